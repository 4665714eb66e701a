// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * tag_matching.c: compares tag matching by the adapter and by software, as MPI
 * needs it. The adapter has a list of buffers, and writes each message into the
 * buffer with its tag. With -o software has the list, and copies from the
 * buffers of an ordinary SRQ.
 *
 * A process sends to itself, and prints the CPU time of the receiver for a
 * message. All messages have arrived before the measurement begins.
 *
 *   tag_matching [-d DEVICE] [-g GID-INDEX] [-n ROUNDS] [-s SIZE] [-r] [-l OTHERS] [-o]
 *
 * The option -s is the length of messages in bytes. With -r each message is a
 * rendezvous: only the address of the data is sent, and the receiver reads the
 * data. The option -l is the number of buffers with other tags at the head of
 * the list, which never match.
 */
#include <getopt.h>

#include "tag_messages.h"

#define TAGS 4096u	/* buffers in the list, and outstanding operations */

static struct ibv_cq_ex *cq;
static uint32_t others;
static bool software;

static double processor(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Appends buffers with tags to the list. */
static void post_tags(uint32_t first, uint32_t count)
{
	static struct ibv_ops_wr add[MESSAGES];
	static struct ibv_sge sge[MESSAGES];
	struct ibv_ops_wr *bad;
	uint32_t i, tag;

	for (i = 0; i < count; i++) {
		tag = first + i;
		/*
		 * Buffers with other tags are never used, so they may share
		 * memory
		 */
		sge[i] = (struct ibv_sge){ (uintptr_t)data->addr + tag % MESSAGES * size, size,
					   data->lkey };
		add[i] = (struct ibv_ops_wr){
			.next = i + 1 < count ? &add[i + 1] : NULL, .opcode = IBV_WR_TAG_ADD,
			.tm.add = { tag, &sge[i], 1, tag, LOOKED_AT },
		};
		if (software)
			list_append(tag, LOOKED_AT, (uint8_t *)(uintptr_t)sge[i].addr);
	}
	errno = software ? 0 : ibv_post_srq_ops(srq, add, &bad);
	check(!errno, "cannot add tags");
}

/*
 * Receives until this number of buffers is full. In a software rendezvous, this
 * number of headers must have arrived first.
 */
static void take(uint32_t count)
{
	struct ibv_poll_cq_attr poll = { 0 };
	bool received;

	while (count) {
		if (ibv_start_poll(cq, &poll))
			continue;
		do {
			check(cq->status == IBV_WC_SUCCESS, "a message failed");
			received = ibv_wc_read_opcode(cq) == IBV_WC_RECV;
			if (software && received)
				match(cq->wr_id);
			/*
			 * The received header is also needed for the message at
			 * the end of a rendezvous, so its buffer is posted
			 * later
			 */
			if (software && received != rendezvous)
				post_receive(cq->wr_id);
			count -= software || ibv_wc_read_wc_flags(cq) & IBV_WC_TM_DATA_VALID;
		} while (count && !ibv_next_poll(cq));
		ibv_end_poll(cq);
		post_chain();
	}
}

static void make_queues(void)
{
	struct ibv_cq_init_attr_ex cq_attr = { .cqe = 4 * MESSAGES };
	struct ibv_srq_init_attr_ex srq_attr = {
		.attr = { MESSAGES, 1, 0 },
		.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE,
		.srq_type = IBV_SRQT_BASIC, .pd = to.pd,
	};
	struct ibv_qp_cap cap = { 2 * MESSAGES, MESSAGES, 2, 1, 0 };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = cap };

	cq = ibv_create_cq_ex(to.context, &cq_attr);
	check(cq, "cannot create a CQ");
	if (!software) {
		srq_attr.comp_mask |= IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM;
		srq_attr.srq_type = IBV_SRQT_TM;
		srq_attr.cq = ibv_cq_ex_to_cq(cq);
		srq_attr.tm_cap = (struct ibv_tm_cap){ TAGS, TAGS };
	}
	attr.srq = srq = ibv_create_srq_ex(to.context, &srq_attr);
	check(srq, "cannot create an SRQ");
	from = to;
	peer_queues(&from, &cap);
	attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
	to.qp = ibv_create_qp(to.pd, &attr);
	check(to.qp, "cannot create a QP");
	to.local.qp_num = to.qp->qp_num;
	to.local.psn = from.local.psn;
	to.remote = from.local;
	from.remote = to.local;
	peer_connect(&to);
	peer_connect(&from);
}

/*
 * Runs one round and returns the CPU time for a message in microseconds. Only
 * the part of the receiver counts.
 */
static double one_round(uint32_t round, struct ibv_mr *source)
{
	uint8_t *bytes = (uint8_t *)source->addr + 2 * MESSAGES * sizeof(struct header);
	uint32_t i, step, steps = rendezvous ? 2 : 1;
	double spent;

	for (i = 0; i < MESSAGES * size; i++)
		bytes[i] = round * 59 + i * 7 + (i >> 8) * 13;
	spent = -processor();
	post_tags(0, MESSAGES);
	spent += processor();
	send_all(source);
	for (step = 1; step <= steps; step++) {
		for (i = 0; i < MESSAGES; i++)
			peer_complete(&from);
		spent -= processor();
		if (software || step == steps)
			take(MESSAGES);
		spent += processor();
	}
	check(!memcmp(data->addr, bytes, MESSAGES * size), "a byte is wrong");
	memset(data->addr, 0, MESSAGES * size);
	return spent / MESSAGES;
}

static int by_value(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : 1;
}

int main(int argc, char **argv)
{
	uint32_t rounds = 50, i;
	struct ibv_mr *source;
	const char *name = NULL;
	double *spent;
	int option;

	while ((option = getopt(argc, argv, "d:g:n:s:l:ro")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			to.gid_index = atoi(optarg);
		else if (option == 'n')
			rounds = atoi(optarg);
		else if (option == 's')
			size = atoi(optarg);
		else if (option == 'l')
			others = atoi(optarg);
		else if (option == 'r')
			rendezvous = true;
		else if (option == 'o')
			software = true;
		else
			rounds = 0;
	}
	if (!size || !rounds || others > TAGS - MESSAGES)
		return usage("tag_matching [-d DEVICE] [-g GID-INDEX] [-n ROUNDS] [-s SIZE] [-r] [-l OTHERS] [-o]");
	peer_open(&to, name);
	make_queues();
	data = peer_memory(&to, MESSAGES * size);
	messages = peer_memory(&to, MESSAGES * (sizeof(struct header) + size));
	source = peer_memory(&to, MESSAGES * (2 * sizeof(struct header) + size));
	pool = calloc(TAGS, sizeof(*pool));
	spent = calloc(rounds, sizeof(*spent));
	check(pool && spent, "no memory");
	for (i = 0; i < MESSAGES; i++)
		post_receive(i);
	for (i = 0; i < others; i++)
		post_tags(MESSAGES + i, 1);
	for (i = 0; i < rounds; i++)
		spent[i] = one_round(i, source);
	qsort(spent, rounds, sizeof(*spent), by_value);
	printf("%.3f us of the processor for each of %u messages of %u bytes, %u others waiting, by %s\n",
	       spent[rounds / 2], rounds * MESSAGES, size, others,
	       software ? "software" : "the adapter");
	return 0;
}
