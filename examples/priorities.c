// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * priorities.c: a short message waits until the adapter takes up its work request, and
 * with bulk flows beside it this takes long: each of them has its turn first. With a
 * priority for its queue pair it is next. This writes 64 bytes again and again while
 * flows of 1 MiB run, and says how long one took.
 *
 *   priorities [-d DEVICE] [-g GID-INDEX]                                 the target
 *   priorities [-d DEVICE] [-g GID-INDEX] [-n WRITES] [-p LEVEL] SERVER   writes
 *
 * -p: level of the short flow, 0 to 15; that of the bulk flows is 0.
 */
#include <getopt.h>

#include <infiniband/qrnicdv.h>

#include "peer.h"

#define TCP_PORT "18603"
#define BULK_FLOWS 4
#define BULK_BYTES (1u << 20)
#define BULK_DEPTH 2		/* writes under way of each bulk flow */
#define SHORT_BYTES 64u

/* flow[0] is the short one; each has a queue pair, a CQ and memory of its own. */
static struct peer flow[1 + BULK_FLOWS];
static struct ibv_mr *mr[1 + BULK_FLOWS];
static unsigned long bulk_done;

static void flows_make(struct peer *base, const char *server)
{
	int i;

	peer_tcp(base, server, TCP_PORT);
	for (i = 0; i <= BULK_FLOWS; i++) {
		struct ibv_qp_cap cap = { .max_send_wr = BULK_DEPTH, .max_send_sge = 1 };

		flow[i] = *base;
		mr[i] = peer_memory(base, i ? BULK_BYTES : SHORT_BYTES);
		peer_queues(&flow[i], &cap);
		peer_exchange(&flow[i], mr[i]);
		peer_connect(&flow[i]);
	}
	peer_meet(base);
}

static void post(int i)
{
	struct ibv_sge sge = {
		(uintptr_t)mr[i]->addr, i ? BULK_BYTES : SHORT_BYTES, mr[i]->lkey
	};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { flow[i].remote.address, flow[i].remote.rkey },
	};

	errno = ibv_post_send(flow[i].qp, &wr, &bad);
	check(!errno, "cannot post");
}

static int completed(int i)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(flow[i].cq, 1, &wc);

	check(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS), "a write failed");
	return n;
}

/* What a bulk flow has written it writes again. */
static void bulk_go_on(void)
{
	int i;

	for (i = 1; i <= BULK_FLOWS; i++) {
		if (completed(i)) {
			bulk_done++;
			post(i);
		}
	}
}

/* Microseconds that one short write took */
static double write_short(void)
{
	double begin = microseconds();

	post(0);
	while (!completed(0))
		bulk_go_on();
	return microseconds() - begin;
}

static int compare(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static void write_all(unsigned long count, int level)
{
	double *took = calloc(count, sizeof(*took)), begin, all;
	struct qrnicdv_priority is;
	unsigned long n;
	int i;

	check(took, "no memory");
	if (level >= 0) {
		errno = qrnicdv_modify_priority(flow[0].qp, QRNICDV_PRIORITY(level));
		check(!errno, "cannot set the priority");
	}
	errno = qrnicdv_query_priority(flow[0].qp, &is, sizeof(is));
	check(!errno, "cannot query the priority");
	for (i = 1; i <= BULK_FLOWS; i++)
		for (n = 0; n < BULK_DEPTH; n++)
			post(i);
	begin = microseconds();
	for (n = 0; n < count; n++)
		took[n] = write_short();
	all = microseconds() - begin;
	qsort(took, count, sizeof(*took), compare);
	printf("level %u: %u bytes in %.0f us (median), %.0f us (99th percentile)\n",
	       is.level, SHORT_BYTES, took[count / 2], took[count * 99 / 100]);
	printf("beside them %u flows with %.0f MiB/s\n", BULK_FLOWS, bulk_done / all * 1e6);
	free(took);
	/* Nothing is under way when the other side takes its memory away. */
	for (i = 1; i <= BULK_FLOWS; i++)
		for (n = 0; n < BULK_DEPTH; n++)
			peer_complete(&flow[i]);
}

int main(int argc, char **argv)
{
	struct peer base = { .gid_index = PEER_GID_V2 };
	unsigned long count = 1000;
	const char *name = NULL;
	int option, level = -1;

	while ((option = getopt(argc, argv, "d:g:n:p:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			base.gid_index = atoi(optarg);
		else if (option == 'n')
			count = strtoul(optarg, NULL, 0);
		else if (option == 'p')
			level = atoi(optarg);
		else
			return usage("priorities [-d DEVICE] [-g GID-INDEX] [-n WRITES] [-p LEVEL] [SERVER]");
	}
	check(count && level <= 15, "-n or -p");
	peer_open(&base, name);
	flows_make(&base, argv[optind]);
	if (argv[optind])
		write_all(count, level);
	peer_meet(&base);
	return 0;
}
