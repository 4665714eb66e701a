// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * gather_scatter.c: compares two ways to send a message whose parts are
 * scattered over memory. Either the adapter gathers the parts by a list of
 * SGEs, without a copy, or the CPU first packs them into one buffer. The
 * program measures both for several sizes. Received data, which the adapter
 * scatters or the CPU unpacks, is measured in the same way.
 *
 *   gather_scatter -d DEVICE -g GID-INDEX [-p PIECES] [-n ROUNDS]            the target
 *   gather_scatter -d DEVICE -g GID-INDEX [-p PIECES] [-n ROUNDS] SERVER     measures
 *
 * All bytes are checked. Written data is read back, and sent data is checked by
 * the receiver.
 */
#include <getopt.h>

#include "peer.h"

#define TCP_PORT "18601"
#define MAX_PIECES 30
#define SMALLEST 8
#define LARGEST 65536
/* Distance of two pieces, which are never adjacent */
#define STRIDE (LARGEST + 4096)

struct experiment {
	struct peer peer;
	int pieces, rounds;
	struct ibv_mr *strewn;	/* the pieces, STRIDE bytes apart */
	struct ibv_mr *packed;	/* the same bytes in one block */
};

static char *piece_of(struct experiment *exp, int piece)
{
	return (char *)exp->strewn->addr + (size_t)piece * STRIDE;
}

static uint8_t pattern(int seed, size_t at)
{
	return seed * 151 + at * 7 + (at >> 8) * 13;
}

static void fill(struct experiment *exp, size_t size, int seed)
{
	size_t at;
	int i;

	for (i = 0; i < exp->pieces; i++) {
		for (at = 0; at < size; at++)
			piece_of(exp, i)[at] = pattern(seed, i * size + at);
	}
}

static void clear(struct experiment *exp)
{
	memset(exp->strewn->addr, 0, exp->strewn->length);
	memset(exp->packed->addr, 0, exp->packed->length);
}

static void verify_strewn(struct experiment *exp, size_t size, int seed, const char *what)
{
	size_t at;
	int i;

	for (i = 0; i < exp->pieces; i++) {
		for (at = 0; at < size; at++) {
			if ((uint8_t)piece_of(exp, i)[at] == pattern(seed, i * size + at))
				continue;
			fprintf(stderr, "%s: byte %zu of piece %d of %zu is wrong\n",
				what, at, i, size);
			exit(1);
		}
		/* The bytes between the pieces must stay 0 */
		check(piece_of(exp, i)[size] == 0, "a byte outside a piece was written");
	}
}

static void verify_packed(struct experiment *exp, size_t size, int seed, const char *what)
{
	const uint8_t *packed = exp->packed->addr;
	size_t at;

	for (at = 0; at < size * exp->pieces; at++) {
		if (packed[at] == pattern(seed, at))
			continue;
		fprintf(stderr, "%s: byte %zu of %d pieces of %zu is wrong\n", what, at,
			exp->pieces, size);
		exit(1);
	}
}

/*
 * Makes the list of the pieces or of the block. Returns the number of entries.
 */
static int make_list(struct experiment *exp, struct ibv_sge *list, bool gather, size_t size)
{
	int i;

	if (!gather) {
		list[0].addr = (uintptr_t)exp->packed->addr;
		list[0].length = size * exp->pieces;
		list[0].lkey = exp->packed->lkey;
		return 1;
	}
	for (i = 0; i < exp->pieces; i++) {
		list[i].addr = (uintptr_t)piece_of(exp, i);
		list[i].length = size;
		list[i].lkey = exp->strewn->lkey;
	}
	return exp->pieces;
}

/*
 * Executes one work request. The CPU copies only if the adapter does not gather
 * or scatter.
 */
static void transfer(struct experiment *exp, enum ibv_wr_opcode opcode, bool gather, size_t size)
{
	struct ibv_sge list[MAX_PIECES];
	struct ibv_send_wr *bad, wr = {
		.sg_list = list,
		.num_sge = make_list(exp, list, gather, size),
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = exp->peer.remote.address,
			.rkey = exp->peer.remote.rkey,
		},
	};
	char *packed = exp->packed->addr;
	int i;

	if (!gather && opcode != IBV_WR_RDMA_READ) {
		for (i = 0; i < exp->pieces; i++)
			memcpy(packed + i * size, piece_of(exp, i), size);
	}
	errno = ibv_post_send(exp->peer.qp, &wr, &bad);
	check(!errno, "cannot post");
	peer_complete(&exp->peer);
	if (!gather && opcode == IBV_WR_RDMA_READ) {
		for (i = 0; i < exp->pieces; i++)
			memcpy(piece_of(exp, i), packed + i * size, size);
	}
}

static double measure(struct experiment *exp, enum ibv_wr_opcode opcode, bool gather, size_t size)
{
	double start;
	int i;

	transfer(exp, opcode, gather, size);
	start = microseconds();
	for (i = 0; i < exp->rounds; i++)
		transfer(exp, opcode, gather, size);
	return (microseconds() - start) / exp->rounds;
}

static void receive(struct experiment *exp, size_t size, int seed)
{
	struct ibv_sge list[MAX_PIECES];
	struct ibv_recv_wr *bad, wr = {
		.sg_list = list,
		.num_sge = make_list(exp, list, true, size),
	};
	struct ibv_wc wc;

	/*
	 * Only the pieces are cleared, because the peer may already write to
	 * the block
	 */
	memset(exp->strewn->addr, 0, exp->strewn->length);
	errno = ibv_post_recv(exp->peer.qp, &wr, &bad);
	check(!errno, "cannot post a receive");
	peer_meet(&exp->peer);
	wc = peer_complete(&exp->peer);
	check(wc.byte_len == size * exp->pieces, "a message has the wrong length");
	verify_strewn(exp, size, seed, "scatter receive");
	peer_meet(&exp->peer);
}

static void measure_size(struct experiment *exp, size_t size)
{
	double gathered, packed, scattered, unpacked;

	/*
	 * The data is read back as one block, because the memory of the peer
	 * shows if the write was correct
	 */
	fill(exp, size, 1);
	gathered = measure(exp, IBV_WR_RDMA_WRITE, true, size);
	clear(exp);
	transfer(exp, IBV_WR_RDMA_READ, false, size);
	verify_packed(exp, size, 1, "gather write");

	fill(exp, size, 2);
	packed = measure(exp, IBV_WR_RDMA_WRITE, false, size);
	clear(exp);
	scattered = measure(exp, IBV_WR_RDMA_READ, true, size);
	verify_strewn(exp, size, 2, "scatter read of a packed write");
	clear(exp);
	unpacked = measure(exp, IBV_WR_RDMA_READ, false, size);
	verify_strewn(exp, size, 2, "read and unpack");
	printf("%10zu %14.1f %14.1f %14.1f %14.1f\n", size * exp->pieces, gathered,
	       packed, scattered, unpacked);

	/* The last test is a send with a list at both ends */
	fill(exp, size, 3);
	peer_meet(&exp->peer);
	transfer(exp, IBV_WR_SEND, true, size);
	peer_meet(&exp->peer);
}

static void run(struct experiment *exp, const char *name, const char *server)
{
	struct ibv_qp_cap cap = {
		.max_send_wr = 1, .max_recv_wr = 1,
		.max_send_sge = exp->pieces, .max_recv_sge = exp->pieces,
	};
	struct peer *peer = &exp->peer;
	size_t size;

	peer_open(peer, name);
	exp->strewn = peer_memory(peer, (size_t)exp->pieces * STRIDE);
	exp->packed = peer_memory(peer, (size_t)exp->pieces * LARGEST);
	peer_queues(peer, &cap);
	peer_tcp(peer, server, TCP_PORT);
	peer_exchange(peer, exp->packed);
	peer_connect(peer);
	peer_meet(peer);

	if (server) {
		printf("%d pieces, %d rounds; microseconds per message\n", exp->pieces, exp->rounds);
		printf("%10s %14s %14s %14s %14s\n", "bytes", "gather write", "pack, write",
		       "scatter read", "read, unpack");
	}
	for (size = SMALLEST; size <= LARGEST; size *= 8) {
		if (server)
			measure_size(exp, size);
		else
			receive(exp, size, 3);
	}
	if (server)
		printf("all bytes were correct\n");

	peer_free(exp->strewn);
	peer_free(exp->packed);
	peer_close(peer);
}

int main(int argc, char **argv)
{
	struct experiment exp = { .pieces = 16, .rounds = 20, .peer.gid_index = PEER_GID_V2 };
	const char *name = NULL;
	int option;

	while ((option = getopt(argc, argv, "d:g:n:p:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'g')
			exp.peer.gid_index = atoi(optarg);
		else if (option == 'n')
			exp.rounds = atoi(optarg);
		else if (option == 'p')
			exp.pieces = atoi(optarg);
		else
			exp.pieces = 0;
	}
	if (exp.pieces < 1 || exp.pieces > MAX_PIECES || exp.rounds < 1) {
		fprintf(stderr, "usage: gather_scatter [-d DEVICE] [-g GID-INDEX] [-p PIECES (1-%d)] [-n ROUNDS] [SERVER]\n",
			MAX_PIECES);
		return 2;
	}
	run(&exp, name, argv[optind]);
	return 0;
}
