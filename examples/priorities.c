// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * priorities.c: measures a short message beside bulk flows. Without a priority
 * the short message waits long, because the adapter first serves each bulk
 * flow. With a priority of its queue pair it is served next. The program
 * repeats a write of 64 bytes while flows of 1 MiB run, and prints the time of
 * a write.
 *
 *   priorities [-d DEVICE] [-g GID-INDEX]                                 the target
 *   priorities [-d DEVICE] [-g GID-INDEX] [-n WRITES] [-p LEVEL] SERVER   writes
 *
 * -p is the level of the short flow, 0 to 15. The level of the bulk flows is 0.
 */
#include <getopt.h>

#include <infiniband/qrnicdv.h>

#include "peer.h"

#define TCP_PORT "18603"
#define BULK_FLOWS 4
#define BULK_BYTES (1u << 20)
#define BULK_DEPTH 2		/* outstanding writes per bulk flow */
#define SHORT_BYTES 64u

/*
 * Flows, of which flow[0] is the short one. Each has its own queue pair, CQ and
 * memory.
 */
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

/* Repeats each completed write of a bulk flow. */
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

/* Writes one short message and returns the time in microseconds. */
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
	/* All writes must be complete before the peer frees its memory */
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
