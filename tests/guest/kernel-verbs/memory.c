// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * memory.c: fast registration by the owner of the memory, use of the key by the
 * peer, and invalidation by either. The test is skipped if the device does not
 * support fast registration.
 */
#include "kernel_verbs.h"

#include <linux/scatterlist.h>

#define RIGHTS (IB_ACCESS_LOCAL_WRITE | IB_ACCESS_REMOTE_WRITE | IB_ACCESS_REMOTE_READ)
#define PIECES 3

/* Pieces of B's buffer in another order; only the ends are not whole pages */
static const struct piece {
	u32 at;
	u32 length;
} pieces[PIECES] = {
	{ 5 * 4096 + 1000, 3096 },
	{ 2 * 4096, 4096 },
	{ 9 * 4096, 1500 },
};

#define PIECES_LENGTH (3096 + 4096 + 1500)

static bool supported(struct test *test)
{
	return test->dev->attrs.device_cap_flags & IB_DEVICE_MEM_MGT_EXTENSIONS;
}

/* Maps the pieces into the MR. */
static bool map(struct test *test, struct ib_mr *mr)
{
	struct scatterlist sg[PIECES];
	int i;

	sg_init_table(sg, PIECES);
	for (i = 0; i < PIECES; i++) {
		sg_set_buf(&sg[i], test->b.buffer + pieces[i].at, pieces[i].length);
		/*
		 * One mapping suffices, because B's buffer is mapped as a
		 * whole.
		 */
		sg_dma_address(&sg[i]) = test->b.dma + pieces[i].at;
		sg_dma_len(&sg[i]) = pieces[i].length;
	}
	return EXPECT(test, ib_map_mr_sg(mr, sg, PIECES, NULL, 4096) == PIECES) &&
	       EXPECT(test, mr->length == PIECES_LENGTH);
}

static bool post_reg(struct test *test, struct ib_mr *mr, u64 id)
{
	struct ib_reg_wr wr = {
		.wr = {
			.wr_id = id, .opcode = IB_WR_REG_MR,
			.send_flags = IB_SEND_SIGNALED,
		},
		.mr = mr,
		.key = mr->rkey,
		.access = RIGHTS,
	};
	struct ib_wc wc;

	return EXPECT(test, !ib_post_send(test->b.qp, &wr.wr, NULL)) &&
	       EXPECT(test, poll_of(test, id, &wc)) &&
	       EXPECT(test, wc.opcode == IB_WC_REG_MR);
}

static enum ib_wc_status write(struct test *test, struct ib_mr *mr, u32 offset,
			       u32 length)
{
	struct ib_sge sge = sge_of(test, &test->a, 0, length);
	struct ib_rdma_wr wr = rdma(test, IB_WR_RDMA_WRITE, &sge, 0, 10);
	struct ib_wc wc;

	wr.remote_addr = mr->iova + offset;
	wr.rkey = mr->rkey;
	if (!EXPECT(test, !ib_post_send(test->a.qp, &wr.wr, NULL)) ||
	    !EXPECT(test, poll_one(test, &wc)))
		return IB_WC_FATAL_ERR;
	EXPECT(test, wc.wr_id == 10);
	return wc.status;
}

static bool written(struct test *test, u8 seed)
{
	u32 i, done = 0;

	for (i = 0; i < PIECES; i++) {
		if (!filled(test->b.buffer + pieces[i].at, pieces[i].length,
			    seed + done * 7))
			return false;
		done += pieces[i].length;
	}
	/* No byte beside the pieces may have changed */
	return !test->b.buffer[pieces[0].at - 1] &&
	       !test->b.buffer[pieces[2].at + pieces[2].length];
}

static bool write_all(struct test *test, struct ib_mr *mr, u8 seed)
{
	fill(test->a.buffer, PIECES_LENGTH, seed);
	memset(test->b.buffer, 0, BUFFER_SIZE);
	return EXPECT(test, write(test, mr, 0, PIECES_LENGTH) == IB_WC_SUCCESS) &&
	       EXPECT(test, written(test, seed));
}

/*
 * A send of the peer invalidates the key, and the completion reports the key to
 * the owner.
 */
static void remote_invalidate(struct test *test, struct ib_mr *mr)
{
	struct ib_send_wr wr = {
		.wr_id = 20, .opcode = IB_WR_SEND_WITH_INV,
		.ex.invalidate_rkey = mr->rkey,
	};
	struct ib_wc wc;

	EXPECT(test, !recv(test, &test->b, 21, 0, 8));
	EXPECT(test, !ib_post_send(test->a.qp, &wr, NULL));
	if (!EXPECT(test, poll_of(test, 21, &wc)))
		return;
	EXPECT(test, wc.wc_flags & IB_WC_WITH_INVALIDATE);
	EXPECT(test, wc.ex.invalidate_rkey == mr->rkey);
}

static enum ib_wc_status local_invalidate(struct test *test, u32 key)
{
	struct ib_send_wr wr = {
		.wr_id = 30, .opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED, .ex.invalidate_rkey = key,
	};
	struct ib_wc wc;

	if (!EXPECT(test, !ib_post_send(test->b.qp, &wr, NULL)) ||
	    !EXPECT(test, poll_one(test, &wc)))
		return IB_WC_FATAL_ERR;
	EXPECT(test, wc.wr_id == 30);
	EXPECT(test, wc.status != IB_WC_SUCCESS || wc.opcode == IB_WC_LOCAL_INV);
	return wc.status;
}

static void use(struct test *test, struct ib_mr *mr)
{
	/* Before the registration the key is invalid. */
	mr->iova = 0;
	EXPECT(test, write(test, mr, 0, 8) == IB_WC_REM_ACCESS_ERR);
	reconnect(test);

	if (!map(test, mr) || !post_reg(test, mr, 1) || !write_all(test, mr, 40))
		return;
	EXPECT(test, write(test, mr, PIECES_LENGTH - 7, 8) == IB_WC_REM_ACCESS_ERR);
	reconnect(test);

	remote_invalidate(test, mr);
	EXPECT(test, write(test, mr, 0, 8) == IB_WC_REM_ACCESS_ERR);
	reconnect(test);

	/* Registers again with the next key; the old one stays invalid. */
	ib_update_fast_reg_key(mr, ib_inc_rkey(mr->rkey));
	if (!map(test, mr) || !post_reg(test, mr, 2) || !write_all(test, mr, 90))
		return;
	EXPECT(test, local_invalidate(test, mr->rkey) == IB_WC_SUCCESS);
	EXPECT(test, write(test, mr, 0, 8) == IB_WC_REM_ACCESS_ERR);
	reconnect(test);
	EXPECT(test, local_invalidate(test, mr->rkey ^ 0x100) != IB_WC_SUCCESS);
	reconnect(test);
}

void test_fast_registration(struct test *test)
{
	struct ib_mr *mr;

	if (!supported(test)) {
		pr_info("no fast registration\n");
		return;
	}
	mr = ib_alloc_mr(test->pd, IB_MR_TYPE_MEM_REG, PIECES);
	if (!EXPECT(test, !IS_ERR(mr)))
		return;
	use(test, mr);
	EXPECT(test, !ib_dereg_mr(mr));
}

void test_fast_registration_limits(struct test *test)
{
	u32 most = test->dev->attrs.max_fast_reg_page_list_len;
	struct scatterlist sg;
	struct ib_mr *mr;

	if (!supported(test))
		return;
	EXPECT(test, IS_ERR(ib_alloc_mr(test->pd, IB_MR_TYPE_MEM_REG, most + 1)));
	EXPECT(test, IS_ERR(ib_alloc_mr(test->pd, IB_MR_TYPE_SG_GAPS, 1)));

	mr = ib_alloc_mr(test->pd, IB_MR_TYPE_MEM_REG, PIECES - 1);
	if (!EXPECT(test, !IS_ERR(mr)))
		return;
	/* One page more than the list has room for, and invalid pages */
	sg_init_one(&sg, test->b.buffer, PIECES * 4096);
	sg_dma_address(&sg) = test->b.dma;
	sg_dma_len(&sg) = PIECES * 4096;
	ib_map_mr_sg(mr, &sg, 1, NULL, 4096);
	EXPECT(test, mr->length && mr->length <= (PIECES - 1) * 4096);
	EXPECT(test, ib_map_mr_sg(mr, &sg, 1, NULL, 3000) < 0);
	EXPECT(test, !ib_dereg_mr(mr));
}
