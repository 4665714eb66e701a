// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * strided_keys.c: compares three ways to send a message whose blocks are not
 * adjacent, for example a column of a matrix.
 *
 * - An indirect key makes the blocks one range (qrnicdv_wr_reg_mkey(3)).
 * - Lists of scatter/gather elements have at most 30 elements in a work request.
 * - The CPU packs the blocks into one buffer.
 *
 * Received data is scattered by the key or by lists, or unpacked by the CPU.
 * The program measures all ways for several sizes of blocks and messages, and
 * checks every byte. The queue pair is connected to itself.
 *
 *   strided_keys [-d DEVICE] [-n ROUNDS] [-m LARGEST-MESSAGE]
 */
#include <getopt.h>
#include <infiniband/qrnicdv.h>

#include "peer.h"

#define MAX_SGE 30
#define BATCH 64		/* outstanding work requests */

enum way { KEY, LISTS, CPU, WAYS };
static const char *const way_name[] = { "key", "lists", "cpu" };

static struct peer peer = { .gid_index = PEER_GID_V2 };
static struct ibv_qp_ex *qpx;
/* the blocks, and the message in one block */
static struct ibv_mr *strewn, *packed;
static struct qrnicdv_mkey *mkey;
static size_t block, length;

static char *block_at(size_t i)
{
	return (char *)strewn->addr + i * 2 * block;
}

static char *packed_at(size_t i)
{
	return (char *)packed->addr + i * block;
}

/* Begins a batch of one signaled work request. */
static void begin(void)
{
	ibv_wr_start(qpx);
	qpx->wr_flags = IBV_SEND_SIGNALED;
}

static void finish(void)
{
	check(!ibv_wr_complete(qpx), "cannot post");
	peer_complete(&peer);
}

/*
 * Registers the key. One registration is enough for all messages of a shape, so
 * it is not measured.
 */
static void make_key(void)
{
	struct qrnicdv_piece piece = {
		.lkey = strewn->lkey,
		.addr = (uintptr_t)strewn->addr,
		.length = block,
		.stride = 2 * block,
	};
	struct qrnicdv_mkey_layout layout = {
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.repeat = length / block,
		.num_pieces = 1,
		.pieces = &piece,
	};

	begin();
	qrnicdv_wr_reg_mkey(qpx, mkey, &layout, sizeof(layout));
	finish();
}

/* Posts n blocks from first on: gathered by a write, or scattered by a read. */
static void post_list(bool send, size_t first, size_t n)
{
	struct ibv_sge list[MAX_SGE];
	size_t i;

	for (i = 0; i < n; i++)
		list[i] = (struct ibv_sge){
			(uintptr_t)block_at(first + i), block, strewn->lkey
		};
	if (send)
		ibv_wr_rdma_write(qpx, packed->rkey, (uintptr_t)packed_at(first));
	else
		ibv_wr_rdma_read(qpx, packed->rkey, (uintptr_t)packed_at(first));
	ibv_wr_set_sge_list(qpx, n, list);
}

static void by_lists(bool send)
{
	size_t blocks = length / block, first = 0, n;
	int i;

	while (first < blocks) {
		ibv_wr_start(qpx);
		for (i = 0; i < BATCH && first < blocks; i++, first += n) {
			n = blocks - first < MAX_SGE ? blocks - first : MAX_SGE;
			qpx->wr_flags = i == BATCH - 1 || first + n == blocks ?
						IBV_SEND_SIGNALED : 0;
			post_list(send, first, n);
		}
		finish();
	}
}

/*
 * Transfers the packed message as one piece, with the key or with a second
 * copy.
 */
static void by_one(enum way way, bool send)
{
	uint64_t other = (uintptr_t)packed->addr + packed->length / 2;
	size_t i;

	if (way == CPU && send)
		for (i = 0; i < length / block; i++)
			memcpy(packed_at(i), block_at(i), block);
	begin();
	if (way == CPU)
		ibv_wr_rdma_write(qpx, packed->rkey, other);
	else if (send)
		ibv_wr_rdma_write(qpx, packed->rkey, (uintptr_t)packed->addr);
	else
		ibv_wr_rdma_write(qpx, mkey->rkey, 0);
	ibv_wr_set_sge(qpx, way == KEY && send ? mkey->lkey : packed->lkey,
		       way == KEY && send ? 0 : (uintptr_t)packed->addr, length);
	finish();
	if (way == CPU && !send)
		for (i = 0; i < length / block; i++)
			memcpy(block_at(i), (char *)other + i * block, block);
}

/*
 * Returns the fastest round in microseconds, because other load only adds time.
 */
static double measure(enum way way, bool send, int rounds)
{
	struct ibv_mr *from = send ? strewn : packed, *to = send ? packed : strewn;
	double start, time, best = 1e9;
	size_t i;
	int round;

	for (round = 0; round < rounds; round++) {
		memset(to->addr, 0, to->length);
		for (i = 0; i < length / block * (send ? 2 : 1) * block; i++)
			((uint8_t *)from->addr)[i] = i * 7 + (i >> 8) + round;
		start = microseconds();
		if (way == LISTS)
			by_lists(send);
		else
			by_one(way, send);
		time = microseconds() - start;
		if (time < best)
			best = time;
		for (i = 0; i < length / block; i++)
			check(!memcmp(block_at(i), packed_at(i), block), "a wrong byte");
	}
	return best;
}

int main(int argc, char **argv)
{
	struct ibv_qp_cap cap = { BATCH, 1, MAX_SGE, 1, 64 };
	struct qrnicdv_mkey_init_attr key = { .max_pieces = 1 };
	int option, rounds = 9, send, way;
	size_t largest = 1 << 20;
	const char *name = NULL;

	while ((option = getopt(argc, argv, "d:n:m:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'n')
			rounds = atoi(optarg);
		else if (option == 'm')
			largest = atoi(optarg);
		else
			return usage("strided_keys [-d DEVICE] [-n ROUNDS] [-m LARGEST-MESSAGE]");
	}
	peer_open(&peer, name);
	strewn = peer_memory(&peer, 2 * largest);
	packed = peer_memory(&peer, 2 * largest);
	qpx = peer_itself(&peer, cap, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
			  IBV_QP_EX_WITH_LOCAL_INV);
	key.pd = peer.pd;
	mkey = qrnicdv_create_mkey(&key, sizeof(key));
	check(mkey, "cannot create a key");
	printf("csv direction,way,block,message,microseconds\n");
	for (block = 8; block <= 4096; block *= 8)
		for (length = 4096; length <= largest; length *= 16) {
			make_key();
			for (send = 0; send < 2; send++)
				for (way = 0; way < WAYS; way++)
					printf("csv %s,%s,%zu,%zu,%.1f\n", send ? "send" : "receive",
					       way_name[way], block, length, measure(way, send, rounds));
			begin();
			ibv_wr_local_inv(qpx, mkey->rkey);
			finish();
		}
	return 0;
}
