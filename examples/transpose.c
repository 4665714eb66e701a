// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * transpose.c: transposes a matrix during its transfer, without the CPU. Each
 * column of the destination is an indirect key: one element, repeated with the
 * stride of a row. Another key joins these columns. A write to this key takes
 * the rows of the source in order, and stores row n as column n. The program
 * compares this with a transposition by the CPU and a write of its result. The
 * queue pair is connected to itself.
 *
 *   transpose [-d DEVICE] [-n ROUNDS] [-m LARGEST-MATRIX]
 */
#include <getopt.h>
#include <infiniband/qrnicdv.h>

#include "peer.h"

#define MOST 256		/* rows and columns */

static struct peer peer = { .gid_index = PEER_GID_V2 };
static struct ibv_qp_ex *qpx;
static struct ibv_mr *source, *target, *between;
static struct qrnicdv_mkey *column[MOST], *all;
static int n;

static double *element(struct ibv_mr *matrix, int row, int col)
{
	return (double *)matrix->addr + (size_t)row * n + col;
}

static struct qrnicdv_mkey *key_new(int max_pieces)
{
	struct qrnicdv_mkey_init_attr attr = { .pd = peer.pd, .max_pieces = max_pieces };
	struct qrnicdv_mkey *mkey = qrnicdv_create_mkey(&attr, sizeof(attr));

	check(mkey, "cannot create a key");
	return mkey;
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

static void make_of(struct qrnicdv_mkey *mkey, struct qrnicdv_piece *pieces, int count, int repeat)
{
	struct qrnicdv_mkey_layout layout = {
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
		.repeat = repeat,
		.num_pieces = count,
		.pieces = pieces,
	};

	begin();
	qrnicdv_wr_reg_mkey(qpx, mkey, &layout, sizeof(layout));
	finish();
}

static void make_keys(void)
{
	struct qrnicdv_piece columns[MOST] = {}, one;
	int i;

	for (i = 0; i < n; i++) {
		one = (struct qrnicdv_piece){
			.lkey = target->lkey,
			.addr = (uintptr_t)element(target, 0, i),
			.length = sizeof(double),
			.stride = n * sizeof(double),
		};
		make_of(column[i], &one, 1, n);
		columns[i].lkey = column[i]->lkey;
		columns[i].length = n * sizeof(double);
	}
	make_of(all, columns, n, 1);
}

static void unmake(struct qrnicdv_mkey *mkey)
{
	begin();
	ibv_wr_local_inv(qpx, mkey->rkey);
	finish();
}

static void transpose(bool by_key)
{
	struct ibv_mr *from = by_key ? source : between;
	int row, col;

	for (row = 0; !by_key && row < n; row++)
		for (col = 0; col < n; col++)
			*element(between, col, row) = *element(source, row, col);
	begin();
	if (by_key)
		ibv_wr_rdma_write(qpx, all->rkey, 0);
	else
		ibv_wr_rdma_write(qpx, target->rkey, (uintptr_t)target->addr);
	ibv_wr_set_sge(qpx, from->lkey, (uintptr_t)from->addr, n * n * sizeof(double));
	finish();
}

/*
 * Returns the fastest round in microseconds, because other load only adds time.
 */
static double measure(bool by_key, int rounds)
{
	double start, time, best = 1e9;
	int round, row, col;

	for (round = 0; round < rounds; round++) {
		for (row = 0; row < n; row++)
			for (col = 0; col < n; col++)
				*element(source, row, col) = round + row + col / 1000.0;
		memset(target->addr, 0, target->length);
		start = microseconds();
		transpose(by_key);
		time = microseconds() - start;
		if (time < best)
			best = time;
		for (row = 0; row < n; row++)
			for (col = 0; col < n; col++)
				check(*element(target, col, row) == *element(source, row, col),
				      "a wrong element");
	}
	return best;
}

int main(int argc, char **argv)
{
	struct ibv_qp_cap cap = { 16, 1, 1, 1, 64 };
	int option, i, rounds = 9, largest = MOST;
	const char *name = NULL;

	while ((option = getopt(argc, argv, "d:n:m:")) != -1) {
		if (option == 'd')
			name = optarg;
		else if (option == 'n')
			rounds = atoi(optarg);
		else if (option == 'm')
			largest = atoi(optarg);
		else
			return usage("transpose [-d DEVICE] [-n ROUNDS] [-m LARGEST-MATRIX]");
	}
	check(rounds > 0 && largest <= MOST, "rounds or size");
	peer_open(&peer, name);
	source = peer_memory(&peer, MOST * MOST * sizeof(double));
	target = peer_memory(&peer, MOST * MOST * sizeof(double));
	between = peer_memory(&peer, MOST * MOST * sizeof(double));
	qpx = peer_itself(&peer, cap, IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_LOCAL_INV);
	all = key_new(MOST);
	for (i = 0; i < MOST; i++)
		column[i] = key_new(1);

	printf("csv direction,way,block,message,microseconds\n");
	for (n = 16; n <= largest; n *= 2) {
		make_keys();
		for (i = 0; i < 2; i++)
			printf("csv transpose,%s,%zu,%zu,%.1f\n", i ? "cpu" : "key", sizeof(double),
			       n * n * sizeof(double), measure(!i, rounds));
		unmake(all);
		for (i = 0; i < n; i++)
			unmake(column[i]);
	}
	return 0;
}
