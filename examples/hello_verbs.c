// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * hello_verbs.c: the shortest complete RDMA program. One process writes a
 * string directly into the memory of another, without the CPU of the other
 * process.
 *
 *   hello_verbs -d DEVICE -g GID-INDEX            waits for its peer
 *   hello_verbs -d DEVICE -g GID-INDEX SERVER     writes into the memory of the server
 *
 * The function main() has these steps.
 *   1. Open the adapter and create the objects: PD, MR, CQ, QP.
 *   2. Exchange over TCP the data that each end needs of its peer: QP number, first
 *      packet number, GID, and address and rkey of the buffer.
 *   3. Move the QP through its states: INIT, RTR (ready to receive), RTS (ready to send).
 *   4. The client posts one RDMA write and waits for its completion.
 *   5. The server reads the string in its memory. A plain RDMA write causes no
 *      completion at the server, so the client notifies the server over TCP.
 */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <infiniband/verbs.h>

#define TCP_PORT "18600"
#define PORT_NUM 1
#define BUFFER_SIZE 4096

static const char greeting[] = "Hello, verbs! This came by RDMA write.";

/* Data that each end sends to its peer, as text */
struct endpoint {
	uint32_t qp_num;
	uint32_t psn;
	uint32_t rkey;
	uint64_t address;
	union ibv_gid gid;
};

struct hello {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	char *buffer;
	int gid_index;
	struct endpoint local, remote;
};

static void check(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "hello_verbs: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Step 1: opens the adapter. */

static void open_device(struct hello *hello, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;

	check(list && list[0], "no RDMA device");
	for (i = 0; list[i]; i++) {
		if (!name || !strcmp(ibv_get_device_name(list[i]), name))
			break;
	}
	if (!list[i]) {
		fprintf(stderr, "hello_verbs: no RDMA device %s\n", name);
		exit(1);
	}
	hello->context = ibv_open_device(list[i]);
	check(hello->context, "cannot open the device");
	printf("device %s\n", ibv_get_device_name(list[i]));
	ibv_free_device_list(list);
}

/*
 * Returns the index of the first GID of RoCE v2. An adapter has a GID for each
 * address of its network interface and each version of RoCE. Both ends must use
 * the same version.
 */
static int first_gid(struct ibv_context *context)
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

static void make_objects(struct hello *hello)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = 1, .max_recv_wr = 1,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};

	/*
	 * The protection domain comes first, because only objects of the same
	 * domain work together
	 */
	hello->pd = ibv_alloc_pd(hello->context);
	check(hello->pd, "cannot create a PD");

	/*
	 * Registration pins the memory and gives the adapter its translation.
	 * The peer needs the rkey, because the adapter checks it before it
	 * writes here.
	 */
	hello->buffer = aligned_alloc(BUFFER_SIZE, BUFFER_SIZE);
	check(hello->buffer, "no memory");
	memset(hello->buffer, 0, BUFFER_SIZE);
	hello->mr = ibv_reg_mr(hello->pd, hello->buffer, BUFFER_SIZE,
			       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check(hello->mr, "cannot register memory");

	/*
	 * The adapter reports completed work requests in the completion queue,
	 * so a QP needs one
	 */
	hello->cq = ibv_create_cq(hello->context, 1, NULL, NULL, 0);
	check(hello->cq, "cannot create a CQ");

	attr.send_cq = hello->cq;
	attr.recv_cq = hello->cq;
	hello->qp = ibv_create_qp(hello->pd, &attr);
	check(hello->qp, "cannot create a QP");

	hello->local.qp_num = hello->qp->qp_num;
	hello->local.psn = getpid() & 0xffffff;
	hello->local.rkey = hello->mr->rkey;
	hello->local.address = (uintptr_t)hello->buffer;
	if (hello->gid_index < 0)
		hello->gid_index = first_gid(hello->context);
	check(!ibv_query_gid(hello->context, PORT_NUM, hello->gid_index,
			     &hello->local.gid), "cannot read the GID");
}

/* Step 2: connects the two programs over TCP. */

static FILE *connect_tcp(const char *server)
{
	struct addrinfo hints = {
		.ai_flags = server ? 0 : AI_PASSIVE,
		.ai_family = server ? AF_UNSPEC : AF_INET6,
		.ai_socktype = SOCK_STREAM,
	};
	struct addrinfo *info;
	int fd, accepted, one = 1;
	FILE *stream;

	if (getaddrinfo(server, TCP_PORT, &hints, &info)) {
		fprintf(stderr, "hello_verbs: unknown host %s\n", server);
		exit(1);
	}
	fd = socket(info->ai_family, info->ai_socktype, info->ai_protocol);
	check(fd >= 0, "socket");
	if (server) {
		check(!connect(fd, info->ai_addr, info->ai_addrlen), "cannot connect");
	} else {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		check(!bind(fd, info->ai_addr, info->ai_addrlen), "bind");
		check(!listen(fd, 1), "listen");
		fprintf(stderr, "waits for the peer at TCP port %s\n", TCP_PORT);
		accepted = accept(fd, NULL, NULL);
		check(accepted >= 0, "accept");
		close(fd);
		fd = accepted;
	}
	freeaddrinfo(info);
	stream = fdopen(fd, "r+");
	check(stream, "fdopen");
	setvbuf(stream, NULL, _IONBF, 0);
	return stream;
}

static void exchange(struct hello *hello, FILE *peer)
{
	const uint8_t *gid = hello->local.gid.raw;
	char line[128], text[33];
	int i, fields;

	for (i = 0; i < 16; i++)
		sprintf(text + 2 * i, "%02x", gid[i]);
	snprintf(line, sizeof(line), "%x %x %x %llx %s\n", hello->local.qp_num,
		 hello->local.psn, hello->local.rkey,
		 (unsigned long long)hello->local.address, text);
	check(fputs(line, peer) >= 0, "cannot send to the peer");

	check(fgets(line, sizeof(line), peer), "the peer has closed the TCP connection");
	unsigned long long address;
	fields = sscanf(line, "%x %x %x %llx %32s", &hello->remote.qp_num,
			&hello->remote.psn, &hello->remote.rkey, &address, text);
	check(fields == 5, "the peer has sent invalid data");
	hello->remote.address = address;
	for (i = 0; i < 16; i++) {
		unsigned int byte;

		check(sscanf(text + 2 * i, "%2x", &byte) == 1, "bad GID");
		hello->remote.gid.raw[i] = byte;
	}
}

/* Step 3: connects the queue pairs. */

static void connect_qp(struct hello *hello)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT_NUM,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	/*
	 * RTR needs the number, address and first packet number of the peer, so
	 * that packets can be received
	 */
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = hello->remote.qp_num,
		.rq_psn = hello->remote.psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT_NUM,
			.grh = {
				.dgid = hello->remote.gid,
				.sgid_index = hello->gid_index,
				.hop_limit = 64,
			},
		},
	};
	/*
	 * RTS needs the own first packet number, and the limits of retries, so
	 * that packets can be sent
	 */
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = hello->local.psn,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 1,
	};

	errno = ibv_modify_qp(hello->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX |
			      IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	check(!errno, "cannot move the QP to INIT");
	errno = ibv_modify_qp(hello->qp, &rtr, IBV_QP_STATE | IBV_QP_AV |
			      IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	check(!errno, "cannot move the QP to RTR");
	errno = ibv_modify_qp(hello->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN |
			      IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	check(!errno, "cannot move the QP to RTS");
}

/* Step 4: writes the greeting. */

static void write_greeting(struct hello *hello)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)hello->buffer,
		.length = sizeof(greeting),
		.lkey = hello->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = 42,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = hello->remote.address,
			.rkey = hello->remote.rkey,
		},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int count;

	memcpy(hello->buffer, greeting, sizeof(greeting));
	errno = ibv_post_send(hello->qp, &wr, &bad);
	check(!errno, "cannot post the write");

	do {
		count = ibv_poll_cq(hello->cq, 1, &wc);
	} while (count == 0);
	check(count == 1, "cannot poll the CQ");
	if (wc.status != IBV_WC_SUCCESS || wc.wr_id != 42) {
		fprintf(stderr, "hello_verbs: the write failed: %s\n",
			ibv_wc_status_str(wc.status));
		exit(1);
	}
	printf("wrote %zu bytes to %#llx, rkey %#x\n", sizeof(greeting),
	       (unsigned long long)hello->remote.address, hello->remote.rkey);
}

static void close_all(struct hello *hello)
{
	ibv_destroy_qp(hello->qp);
	ibv_destroy_cq(hello->cq);
	ibv_dereg_mr(hello->mr);
	ibv_dealloc_pd(hello->pd);
	ibv_close_device(hello->context);
	free(hello->buffer);
}

int main(int argc, char **argv)
{
	struct hello hello = { .gid_index = -1 };
	const char *name = NULL, *server;
	char line[16];
	FILE *peer;
	int option;

	while ((option = getopt(argc, argv, "d:g:")) != -1) {
		if (option == 'd') {
			name = optarg;
		} else if (option == 'g') {
			hello.gid_index = atoi(optarg);
		} else {
			fprintf(stderr, "usage: hello_verbs [-d DEVICE] [-g GID-INDEX] [SERVER]\n");
			return 2;
		}
	}
	server = argv[optind];

	open_device(&hello, name);
	make_objects(&hello);
	peer = connect_tcp(server);
	exchange(&hello, peer);
	connect_qp(&hello);

	/*
	 * The ends wait for each other, because the QP of the peer must be in
	 * RTR before a write
	 */
	fputs("ready\n", peer);
	check(fgets(line, sizeof(line), peer), "the peer has closed the TCP connection");
	if (server) {
		write_greeting(&hello);
		fputs("look\n", peer);
		check(fgets(line, sizeof(line), peer), "the peer has closed the TCP connection");
	} else {
		check(fgets(line, sizeof(line), peer), "the peer has closed the TCP connection");
		printf("in my memory: \"%s\"\n", hello.buffer);
		fputs("seen\n", peer);
		if (memcmp(hello.buffer, greeting, sizeof(greeting))) {
			fprintf(stderr, "hello_verbs: the greeting is wrong\n");
			return 1;
		}
	}
	fclose(peer);
	close_all(&hello);
	return 0;
}
