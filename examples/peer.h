/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * peer.h: shared by the example programs. The objects are an open adapter, one
 * RC queue pair with its CQ, and a TCP connection on which both ends exchange
 * their addresses. hello_verbs.c explains every step.
 *
 * A program calls peer_open(), peer_queues(), peer_tcp(), peer_exchange() and
 * peer_connect() in this order.
 */
#ifndef EXAMPLES_PEER_H
#define EXAMPLES_PEER_H

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define PORT_NUM 1
#define PEER_GID_V2 (-1)

/* Data that each end sends to its peer, with the address of its memory */
struct endpoint {
	uint32_t qp_num;
	uint32_t psn;
	uint32_t rkey;
	uint64_t address;
	union ibv_gid gid;
};

struct peer {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	int gid_index;		/* index, or PEER_GID_V2 */
	FILE *tcp;
	struct endpoint local, remote;
	/* Function that creates the queue pair; NULL: ibv_create_qp() */
	struct ibv_qp *(*make_qp)(struct peer *peer, struct ibv_qp_init_attr *attr);
};

static inline void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Reports wrong arguments, for which all examples return the exit status 2. */
static inline int usage(const char *arguments)
{
	fprintf(stderr, "usage: %s\n", arguments);
	return 2;
}

static inline double microseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/*
 * Returns the first GID of RoCE v2, because its index depends on the adapter
 * and its addresses.
 */
static inline int peer_gid_v2(struct ibv_context *context)
{
	struct ibv_port_attr port;
	struct ibv_gid_entry gid;
	int i;

	check(!ibv_query_port(context, PORT_NUM, &port), "cannot query the port");
	for (i = 0; i < port.gid_tbl_len; i++) {
		if (!ibv_query_gid_ex(context, PORT_NUM, i, &gid, 0) &&
		    gid.gid_type == IBV_GID_TYPE_ROCE_V2)
			return i;
	}
	check(false, "no GID of RoCE v2");
	return -1;
}

static inline void peer_open(struct peer *peer, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	check(list && list[0], "no RDMA device");
	for (i = 0; list[i]; i++) {
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			break;
	}
	check(list[i], name ? name : "no RDMA device");
	peer->context = ibv_open_device(list[i]);
	check(peer->context, "cannot open the device");
	ibv_free_device_list(list);
	peer->pd = ibv_alloc_pd(peer->context);
	check(peer->pd, "cannot create a PD");
	if (peer->gid_index == PEER_GID_V2)
		peer->gid_index = peer_gid_v2(peer->context);
	check(!ibv_query_gid(peer->context, PORT_NUM, peer->gid_index,
			     &peer->local.gid), "cannot read the GID");
}

/*
 * Allocates and registers zeroed whole pages, with all access rights for both
 * ends.
 */
static inline struct ibv_mr *peer_memory(struct peer *peer, size_t size)
{
	size_t pages = (size + 4095) / 4096 * 4096;
	void *memory = aligned_alloc(4096, pages);
	struct ibv_mr *mr;

	check(memory, "no memory");
	memset(memory, 0, pages);
	mr = ibv_reg_mr(peer->pd, memory, pages, IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	check(mr, "cannot register memory");
	return mr;
}

static inline void peer_free(struct ibv_mr *mr)
{
	void *memory = mr->addr;

	ibv_dereg_mr(mr);
	free(memory);
}

/* Creates CQ and queue pair, and sets cap to the granted sizes. */
static inline void peer_queues(struct peer *peer, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = *cap,
	};

	peer->cq = ibv_create_cq(peer->context, cap->max_send_wr + cap->max_recv_wr,
				 NULL, NULL, 0);
	check(peer->cq, "cannot create a CQ");
	attr.send_cq = peer->cq;
	attr.recv_cq = peer->cq;
	peer->qp = peer->make_qp ? peer->make_qp(peer, &attr) :
				   ibv_create_qp(peer->pd, &attr);
	check(peer->qp, "cannot create a QP");
	*cap = attr.cap;
	peer->local.qp_num = peer->qp->qp_num;
	peer->local.psn = getpid() & 0xffffff;
}

static inline void peer_tcp(struct peer *peer, const char *server, const char *port)
{
	struct addrinfo hints = {
		.ai_flags = server ? 0 : AI_PASSIVE,
		.ai_family = server ? AF_UNSPEC : AF_INET6,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *info;
	int fd, accepted, one = 1;

	check(!getaddrinfo(server, port, &hints, &info), "unknown host");
	fd = socket(info->ai_family, info->ai_socktype, info->ai_protocol);
	check(fd >= 0, "socket");
	if (server) {
		check(!connect(fd, info->ai_addr, info->ai_addrlen), "cannot connect");
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		check(!bind(fd, info->ai_addr, info->ai_addrlen), "bind");
		check(!listen(fd, 1), "listen");
		fprintf(stderr, "waits for the peer at TCP port %s\n", port);
		accepted = accept(fd, NULL, NULL);
		check(accepted >= 0, "accept");
		close(fd);
		fd = accepted;
	}
	freeaddrinfo(info);
	peer->tcp = fdopen(fd, "r+");
	check(peer->tcp, "fdopen");
	setvbuf(peer->tcp, NULL, _IONBF, 0);
}

/* Waits until both ends have called this function. */
static inline void peer_meet(struct peer *peer)
{
	char line[16];

	check(fputs("here\n", peer->tcp) >= 0, "cannot send to the peer");
	check(fgets(line, sizeof(line), peer->tcp), "the peer has closed the TCP connection");
}

static inline void peer_exchange(struct peer *peer, const struct ibv_mr *mr)
{
	char line[128], text[33];
	unsigned long long address;
	unsigned int byte;
	int i, fields;

	peer->local.rkey = mr->rkey;
	peer->local.address = (uintptr_t)mr->addr;
	for (i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", peer->local.gid.raw[i]);
	snprintf(line, sizeof(line), "%x %x %x %llx %s\n", peer->local.qp_num,
		 peer->local.psn, peer->local.rkey,
		 (unsigned long long)peer->local.address, text);
	check(fputs(line, peer->tcp) >= 0, "cannot send to the peer");

	check(fgets(line, sizeof(line), peer->tcp), "the peer has closed the TCP connection");
	fields = sscanf(line, "%x %x %x %llx %32s", &peer->remote.qp_num,
			&peer->remote.psn, &peer->remote.rkey, &address, text);
	check(fields == 5, "the peer has sent invalid data");
	peer->remote.address = address;
	for (i = 0; i < 16; i++) {
		check(sscanf(text + 2 * i, "%2x", &byte) == 1, "bad GID");
		peer->remote.gid.raw[i] = byte;
	}
}

static inline void peer_connect(struct peer *peer)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT_NUM,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->remote.qp_num,
		.rq_psn = peer->remote.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT_NUM,
			.grh = {
				.dgid = peer->remote.gid,
				.sgid_index = peer->gid_index,
				.hop_limit = 64,
			},
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = peer->local.psn,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	errno = ibv_modify_qp(peer->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			      IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	check(!errno, "cannot move the QP to INIT");
	errno = ibv_modify_qp(peer->qp, &rtr, IBV_QP_STATE | IBV_QP_AV |
			      IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	check(!errno, "cannot move the QP to RTR");
	errno = ibv_modify_qp(peer->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN |
			      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	check(!errno, "cannot move the QP to RTS");
}

/* Waits for the next completion, and ends the program if it has an error. */
static inline struct ibv_wc peer_complete(struct peer *peer)
{
	struct ibv_wc wc;
	int count;

	do {
		count = ibv_poll_cq(peer->cq, 1, &wc);
	} while (count == 0);
	check(count == 1, "cannot poll the CQ");
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "a work request failed: %s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return wc;
}

static inline void peer_close(struct peer *peer)
{
	fclose(peer->tcp);
	ibv_destroy_qp(peer->qp);
	ibv_destroy_cq(peer->cq);
	ibv_dealloc_pd(peer->pd);
	ibv_close_device(peer->context);
}

/*
 * Creates an RC queue pair for the extended interface (ibv_wr_start(3)) that is
 * connected to itself, so that one process is enough.
 */
static inline struct ibv_qp_ex *peer_itself(struct peer *peer, struct ibv_qp_cap cap,
					    uint64_t send_ops)
{
	struct ibv_qp_init_attr_ex attr = {
		.qp_type = IBV_QPT_RC,
		.cap = cap,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = peer->pd,
		.send_ops_flags = send_ops,
	};

	peer->cq = ibv_create_cq(peer->context, cap.max_send_wr + cap.max_recv_wr, NULL,
				 NULL, 0);
	check(peer->cq, "cannot create a CQ");
	attr.send_cq = attr.recv_cq = peer->cq;
	peer->qp = ibv_create_qp_ex(peer->context, &attr);
	check(peer->qp, "cannot create a QP");
	peer->local.qp_num = peer->qp->qp_num;
	peer->remote = peer->local;
	peer_connect(peer);
	return ibv_qp_to_qp_ex(peer->qp);
}

#endif
