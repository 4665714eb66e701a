/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * node_contexts.c: counts the queue pairs and contexts of one node of a
 * parallel job, whose processes can all send to one another. The program starts
 * the processes of this node, which create their queue pairs. Then it prints
 * the resources of the adapter and of the processes.
 *
 *   node_contexts -d DEVICE -n NODES -p PROCESSES [-i INITIATORS] [-r RESPONDERS] WAY
 *
 *   rc   a queue pair for each process of the job
 *   xrc  an initiator for each node, and a target for each process that sends here
 *   dc   INITIATORS (default 4), and one target with RESPONDERS (default 16)
 *
 * The other nodes need not exist, because nothing is sent. Each way receives
 * into one SRQ.
 */
#include <fcntl.h>
#include <getopt.h>
#include <sys/wait.h>

#include <infiniband/qrnicdv.h>

#include "peer.h"

#define SENDS 16	/* send WQEs per queue pair */

/* Resources of a process */
struct held {
	unsigned long queue_pairs, bytes;
};

static unsigned long nodes = 2, processes = 4, initiators = 4, responders = 16;
static struct peer peer = { .gid_index = PEER_GID_V2 };
static struct ibv_xrcd *xrcd;
static struct ibv_srq *srq;
static struct held held;

/* Returns the private memory of this process in bytes. */
static unsigned long memory_used(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kib = 0;
	char line[128];

	check(file, "/proc/self/smaps_rollup");
	while (fgets(line, sizeof(line), file) && sscanf(line, "Anonymous: %lu", &kib) != 1)
		continue;
	fclose(file);
	return kib << 10;
}

static bool make(enum ibv_qp_type type, struct qrnicdv_qp_init_attr *dv)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = type, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = peer.pd,
		.send_cq = peer.cq, .cap = { .max_send_wr = SENDS, .max_send_sge = 1 },
	};
	struct ibv_qp *qp;

	if (type == IBV_QPT_RC) {
		attr.recv_cq = peer.cq;
		attr.srq = srq;
	} else if (type == IBV_QPT_XRC_RECV) {
		attr = (struct ibv_qp_init_attr_ex){ .qp_type = type, .xrcd = xrcd,
			.comp_mask = IBV_QP_INIT_ATTR_XRCD };
	} else if (dv && dv->dc.dc_type == QRNICDV_DCTYPE_DCT) {
		attr = (struct ibv_qp_init_attr_ex){ .qp_type = type, .pd = peer.pd,
			.comp_mask = IBV_QP_INIT_ATTR_PD, .recv_cq = peer.cq, .srq = srq };
	} else if (dv) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
	}
	qp = dv ? qrnicdv_create_qp(peer.context, &attr, dv, sizeof(*dv)) :
		  ibv_create_qp_ex(peer.context, &attr);
	held.queue_pairs += qp != NULL;
	return qp;
}

static void make_all(unsigned long count, enum ibv_qp_type type,
		     struct qrnicdv_qp_init_attr *dv)
{
	while (count--)
		check(make(type, dv), "cannot create a queue pair");
}

static void make_way(const char *way)
{
	struct qrnicdv_qp_init_attr dv = {
		.comp_mask = QRNICDV_QP_INIT_ATTR_DC,
		.dc = { .dc_type = QRNICDV_DCTYPE_DCI, .idle = 12 },
	};

	if (!strcmp(way, "rc")) {
		make_all(nodes * processes, IBV_QPT_RC, NULL);
	} else if (!strcmp(way, "xrc")) {
		make_all(nodes, IBV_QPT_XRC_SEND, NULL);
		/*
		 * Each process of the job has one initiator for this node, so
		 * there is one target for each
		 */
		make_all(nodes, IBV_QPT_XRC_RECV, NULL);
	} else {
		make_all(initiators, IBV_QPT_DRIVER, &dv);
		dv.dc = (struct qrnicdv_dc_attr){ .dc_type = QRNICDV_DCTYPE_DCT,
			.responders = responders, .dct_access_key = 1 };
		make_all(1, IBV_QPT_DRIVER, &dv);
	}
}

static void open_all(const char *device)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
		.oflags = O_CREAT,
	};
	struct ibv_srq_init_attr srq_attr = { .attr = { .max_wr = 64, .max_sge = 1 } };

	peer_open(&peer, device);
	peer.cq = ibv_create_cq(peer.context, 64, NULL, NULL, 0);
	srq = ibv_create_srq(peer.pd, &srq_attr);
	xrcd = ibv_open_xrcd(peer.context, &attr);
	check(peer.cq && srq && xrcd, "cannot set up");
}

/*
 * Creates the objects of a process, reports them, and keeps them until its pipe
 * is closed.
 */
static void process(const char *device, const char *way, int tell, int stay)
{
	unsigned long before;
	char none;

	open_all(device);
	before = memory_used();
	make_way(way);
	held.bytes = memory_used() - before;
	check(write(tell, &held, sizeof(held)) == sizeof(held), "pipe");
	check(!read(stay, &none, 1), "pipe");
	exit(0);
}

/*
 * Returns the number of free contexts of the adapter. Each queue pair and each
 * responder uses one.
 */
static unsigned long room(const char *device)
{
	unsigned long count;

	open_all(device);
	for (count = 0; make(IBV_QPT_XRC_RECV, NULL); count++)
		continue;
	check(errno == ENOMEM || errno == ENOSPC, "cannot create a queue pair");
	return count;
}

/* Calls room() in a child process, whose end frees all objects. */
static unsigned long room_now(const char *device)
{
	unsigned long count = 0;
	int ends[2], status;

	check(!pipe(ends), "pipe");
	if (!fork()) {
		count = room(device);
		exit(write(ends[1], &count, sizeof(count)) != sizeof(count));
	}
	check(wait(&status) > 0 && !status, "cannot count the free contexts");
	check(read(ends[0], &count, sizeof(count)) == sizeof(count), "pipe");
	return count;
}

int main(int argc, char **argv)
{
	unsigned long before, i;
	const char *device = NULL;
	struct held sum = {};
	int tell[2], stay[2], option;

	while ((option = getopt(argc, argv, "d:n:p:i:r:")) != -1) {
		if (option == '?')
			optind = argc;
		else if (option == 'd')
			device = optarg;
		else
			*(option == 'n' ? &nodes : option == 'p' ? &processes :
			  option == 'i' ? &initiators : &responders) = strtoul(optarg, NULL, 0);
	}
	if (optind >= argc)
		return usage("node_contexts -d DEVICE -n NODES -p PROCESSES [-i INITIATORS] [-r RESPONDERS] rc|xrc|dc");
	before = room_now(device);
	check(!pipe(tell) && !pipe(stay), "pipe");
	for (i = 0; i < processes; i++) {
		if (!fork()) {
			close(stay[1]);
			process(device, argv[optind], tell[1], stay[0]);
		}
	}
	close(tell[1]);
	for (i = 0; i < processes; i++) {
		check(read(tell[0], &held, sizeof(held)) == sizeof(held), "a process has ended");
		sum.queue_pairs += held.queue_pairs;
		sum.bytes += held.bytes;
	}
	printf("%s: %lu nodes, %lu processes each: %lu queue pairs, %lu contexts, %lu bytes\n",
	       argv[optind], nodes, processes, sum.queue_pairs, before - room_now(device),
	       sum.bytes);
	close(stay[1]);
	while (wait(NULL) > 0)
		continue;
	return 0;
}
