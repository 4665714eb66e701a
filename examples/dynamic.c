/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * dynamic.c: dynamic connections and a pool of initiators. The program creates
 * targets and fewer initiators on one adapter, sends to the targets in a random
 * order, and checks the received data. An initiator connects to the target of
 * each message. So the pool chooses the initiator that is already connected to
 * this target, or else the initiator that has been idle longest.
 *
 *   dynamic [-d DEVICE] [-g GID-INDEX] [-i INITIATORS] [-t TARGETS]
 *
 * The defaults are 4 initiators and 16 targets.
 */
#include <getopt.h>

#include <infiniband/qrnicdv.h>

#include "peer.h"

#define KEY 0x6b657920666f7220ull	/* access key, hard to guess */
#define MESSAGES 2000u
#define SLOTS 64u			/* receive buffers, for all targets together */
#define SIZE 64u			/* bytes of a message */

struct initiator {
	struct ibv_qp *qp;
	struct ibv_qp_ex *ex;
	unsigned int target;	/* current target */
	unsigned int used;	/* number of its last message */
	bool busy;
};

static struct peer peer;
static struct ibv_mr *mr;
static uint64_t *memory;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct initiator *pool;
static struct ibv_qp **targets;
static unsigned int initiators = 4, num_targets = 16;

static void modify(struct ibv_qp *qp, enum ibv_qp_state state, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = state, .port_num = PORT_NUM, .path_mtu = IBV_MTU_1024,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .min_rnr_timer = 1,
		.timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};

	errno = ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE);
	check(!errno, "cannot change the state of a queue pair");
}

/* Creates a target, which serves 4 initiators at a time. */
static struct ibv_qp *target(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { .dc_type = QRNICDV_DCTYPE_DCT, .responders = 4, .dct_access_key = KEY },
	};
	struct ibv_qp_init_attr_ex attr = {
		.recv_cq = peer.cq, .srq = srq, .qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = peer.pd,
	};
	struct ibv_qp *qp = qrnicdv_create_qp(peer.context, &attr, &dv, sizeof(dv));

	check(qp, "cannot create a target");
	modify(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	modify(qp, IBV_QPS_RTR, IBV_QP_PATH_MTU | IBV_QP_MAX_DEST_RD_ATOMIC |
	       IBV_QP_MIN_RNR_TIMER);
	return qp;
}

/* Creates an initiator, which keeps an idle connection for 16 ms. */
static struct initiator initiator(void)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { .dc_type = QRNICDV_DCTYPE_DCI, .idle = 12 },
	};
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = peer.cq, .qp_type = IBV_QPT_DRIVER, .pd = peer.pd,
		.cap = { .max_send_wr = 1, .max_send_sge = 1 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
	struct initiator i = { .target = UINT32_MAX };

	i.qp = qrnicdv_create_qp(peer.context, &attr, &dv, sizeof(dv));
	check(i.qp, "cannot create an initiator");
	i.ex = ibv_qp_to_qp_ex(i.qp);
	modify(i.qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	modify(i.qp, IBV_QPS_RTR, IBV_QP_PATH_MTU);
	modify(i.qp, IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
	       IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
	return i;
}

static void receive(uint64_t slot)
{
	struct ibv_sge sge = { (uintptr_t)memory + slot * SIZE, SIZE, mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	check(!ibv_post_srq_recv(srq, &wr, &bad), "cannot post a receive");
}

/*
 * Returns the initiator that is connected to this target, or else the initiator
 * that has been idle longest. Returns NULL if all are busy. Sets *hit if it is
 * connected.
 */
static struct initiator *pick(unsigned int to, bool *hit)
{
	struct initiator *best = NULL;
	unsigned int i;

	for (i = 0; i < initiators; i++) {
		*hit = !pool[i].busy && pool[i].target == to;
		if (*hit)
			return &pool[i];
		if (!pool[i].busy && (!best || pool[i].used < best->used))
			best = &pool[i];
	}
	return best;
}

static void send_message(struct initiator *i, unsigned int to, unsigned int number)
{
	uint64_t *data = memory + (SLOTS + (i - pool)) * SIZE / 8;

	data[0] = to;
	data[SIZE / 8 - 1] = data[0] * 3 + number;
	data[1] = number;
	i->target = to;
	i->used = number;
	i->busy = true;
	ibv_wr_start(i->ex);
	i->ex->wr_id = SLOTS + (i - pool);
	i->ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(i->ex);
	qrnicdv_wr_set_dc_addr(i->ex, ah, targets[to]->qp_num, KEY);
	ibv_wr_set_sge(i->ex, mr->lkey, (uintptr_t)data, SIZE);
	check(!ibv_wr_complete(i->ex), "cannot post a send");
}

/*
 * Polls a completion. Returns true if a message has arrived, whose data is
 * checked.
 */
static bool complete(void)
{
	struct ibv_wc wc = peer_complete(&peer);
	uint64_t *data = memory + wc.wr_id * SIZE / 8;

	if (wc.wr_id >= SLOTS) {
		pool[wc.wr_id - SLOTS].busy = false;
		return false;
	}
	check(data[0] < num_targets && wc.qp_num == targets[data[0]]->qp_num &&
	      data[SIZE / 8 - 1] == data[0] * 3 + data[1], "wrong data");
	receive(wc.wr_id);
	return true;
}

int main(int argc, char **argv)
{
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = SLOTS, .max_sge = 1 } };
	struct ibv_ah_attr ah_attr = { .is_global = 1, .port_num = PORT_NUM };
	unsigned int i, sent = 0, received = 0, hits = 0, to = 0;
	const char *name = NULL;
	double begin;
	int option;

	peer.gid_index = PEER_GID_V2;
	while ((option = getopt(argc, argv, "d:g:i:t:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			peer.gid_index = atoi(optarg);
		else if (option == 'i')
			initiators = strtoul(optarg, NULL, 0);
		else if (option == 't')
			num_targets = strtoul(optarg, NULL, 0);
		else
			initiators = 0;
	}
	if (!initiators || !num_targets || optind < argc)
		return usage("dynamic [-d DEVICE] [-g GID-INDEX] [-i INITIATORS] [-t TARGETS]");
	peer_open(&peer, name);
	mr = peer_memory(&peer, (SLOTS + initiators) * SIZE);
	memory = mr->addr;
	peer.cq = ibv_create_cq(peer.context, SLOTS + initiators, NULL, NULL, 0);
	srq = ibv_create_srq(peer.pd, &srq_attr);
	ah_attr.grh = (struct ibv_global_route){ .dgid = peer.local.gid,
		.sgid_index = peer.gid_index, .hop_limit = 1 };
	ah = ibv_create_ah(peer.pd, &ah_attr);
	pool = calloc(initiators, sizeof(*pool));
	targets = calloc(num_targets, sizeof(*targets));
	check(peer.cq && srq && ah && pool && targets && num_targets, "cannot set up");
	for (i = 0; i < SLOTS; i++)
		receive(i);
	for (i = 0; i < num_targets; i++)
		targets[i] = target();
	for (i = 0; i < initiators; i++)
		pool[i] = initiator();

	srand(1);
	begin = microseconds();
	while (received < MESSAGES) {
		/*
		 * Half of the messages have the same target as the message
		 * before
		 */
		bool hit;
		struct initiator *free = sent < MESSAGES ? pick(to, &hit) : NULL;

		if (!free) {
			received += complete();
			continue;
		}
		hits += hit;
		send_message(free, to, sent++);
		if (rand() & 64)
			to = rand() / 128 % num_targets;
	}
	printf("%u initiators, %u targets: %u messages in %.1f ms, %u%% on a connection\n",
	       initiators, num_targets, received, (microseconds() - begin) / 1e3,
	       hits * 100 / MESSAGES);
	return 0;
}
