/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * many_connections.c: measures the cost of many connections. The program makes
 * N reliable connections between queue pairs of one adapter, sends over each of
 * them and checks the data. Then it prints the messages per second over a few
 * of the connections and over all.
 *
 *   many_connections [-d DEVICE] [-g GID-INDEX] [-n N]     N: queue pairs, default 1024
 *
 * An adapter may cache the contexts of only some connections (property
 * context-cache of qrnic). With more connections the adapter must fetch a
 * context for nearly every message.
 */
#include <getopt.h>

#include "peer.h"

#define BURST 64u	/* outstanding messages */
#define DEPTH 4u	/* of a queue pair, so that others can overtake it */

static struct peer peer;
static struct ibv_mr *mr;
static uint64_t *memory;	/* one word to send and one to receive for each queue pair */
static struct ibv_qp **qps;
static unsigned char *under_way;	/* of each queue pair */
static unsigned int count;

static struct ibv_qp *queue_pair(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = peer.cq, .recv_cq = peer.cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};
	struct ibv_qp *qp = ibv_create_qp(peer.pd, &attr);

	check(qp, "cannot create a queue pair");
	return qp;
}

/*
 * Moves a queue pair through INIT and RTR to RTS; hello_verbs.c explains the
 * attributes.
 */
static void connect_to(struct ibv_qp *qp, uint32_t other)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = PORT_NUM,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = other,
		.max_dest_rd_atomic = 0, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = PORT_NUM,
			     .grh = { .dgid = peer.local.gid, .sgid_index = peer.gid_index,
				      .hop_limit = 1 } },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
	};

	check(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS), "cannot move to INIT");
	check(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER), "cannot move to RTR");
	check(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
	      "to RTS");
}

/* Writes eight bytes of queue pair i to the word of its peer. */
static void send_one(unsigned int i, uint64_t value)
{
	struct ibv_sge sge = { (uintptr_t)&memory[i], sizeof(memory[0]), mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)&memory[count + (i ^ 1)], mr->rkey },
	}, *bad;

	memory[i] = value;
	under_way[i]++;
	check(!ibv_post_send(qps[i], &wr, &bad), "cannot post");
}

/*
 * Sends messages over queue pairs 0 to active - 1, one after another, and
 * returns messages per second.
 */
static double rate(unsigned int active, unsigned int messages)
{
	unsigned int posted = 0, done = 0;
	double begin = microseconds();

	while (done < messages) {
		struct ibv_wc wc[16];
		int i, n;

		/*
		 * A queue pair that retransmits delays its own messages, but
		 * polling continues
		 */
		while (posted < messages && posted - done < BURST &&
		       under_way[posted % active] < DEPTH) {
			send_one(posted % active, posted + 1);
			posted++;
		}
		n = ibv_poll_cq(peer.cq, 16, wc);
		for (i = 0; i < n; i++) {
			check(wc[i].status == IBV_WC_SUCCESS, ibv_wc_status_str(wc[i].status));
			under_way[wc[i].wr_id]--;
		}
		done += n;
	}
	return messages / (microseconds() - begin) * 1e6;
}

/* Sends one message over each queue pair, and checks the received values. */
static void use_all(void)
{
	unsigned int i;

	rate(count, count);
	for (i = 0; i < count; i++)
		check(memory[count + (i ^ 1)] == memory[i] && memory[i], "wrong data");
}

int main(int argc, char **argv)
{
	double begin, few, all;
	const char *name = NULL;
	unsigned int i;
	int option;

	count = 1024;
	peer.gid_index = PEER_GID_V2;
	while ((option = getopt(argc, argv, "d:g:n:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			peer.gid_index = atoi(optarg);
		else if (option == 'n')
			count = strtoul(optarg, NULL, 0) & ~1u;
		else
			count = 0;
	}
	if (!count || optind < argc)
		return usage("many_connections [-d DEVICE] [-g GID-INDEX] [-n N]");
	peer_open(&peer, name);
	peer.cq = ibv_create_cq(peer.context, 1024, NULL, NULL, 0);
	check(peer.cq, "cannot create a CQ");
	qps = calloc(count, sizeof(*qps));
	under_way = calloc(count, 1);
	memory = calloc(2 * count, sizeof(*memory));
	mr = ibv_reg_mr(peer.pd, memory, 2 * count * sizeof(*memory),
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(qps && under_way && memory && mr, "no memory");

	begin = microseconds();
	for (i = 0; i < count; i++)
		qps[i] = queue_pair();
	for (i = 0; i < count; i++)
		connect_to(qps[i], qps[i ^ 1]->qp_num);
	printf("%u queue pairs connected in %.1f s\n", count, (microseconds() - begin) / 1e6);

	begin = microseconds();
	use_all();
	printf("each used in %.1f s\n", (microseconds() - begin) / 1e6);

	few = rate(count < 16 ? count : 16, 10000);
	all = rate(count, 10000);
	printf("%.0f messages per second over %u of them, %.0f over all\n", few,
	       count < 16 ? count : 16, all);

	begin = microseconds();
	for (i = 0; i < count; i++)
		check(!ibv_destroy_qp(qps[i]), "cannot destroy a queue pair");
	printf("destroyed in %.1f s\n", (microseconds() - begin) / 1e6);
	return 0;
}
