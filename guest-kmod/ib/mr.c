// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mr.c: memory regions: a memory key with the rights and, but for DMA regions,
 * the translation table (manual, Memory keys).
 */
#include <rdma/ib_umem.h>
#include <rdma/iter.h>

#include "qrnic_ib.h"

static_assert(IB_ACCESS_LOCAL_WRITE == QRNIC_ACCESS_LOCAL_WRITE);
static_assert(IB_ACCESS_REMOTE_WRITE == QRNIC_ACCESS_REMOTE_WRITE);
static_assert(IB_ACCESS_REMOTE_READ == QRNIC_ACCESS_REMOTE_READ);
static_assert(IB_ACCESS_REMOTE_ATOMIC == QRNIC_ACCESS_REMOTE_ATOMIC);

/* Makes the key of an MR whose members and context are otherwise complete */
static int mkey_create(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr,
		       struct qrnic_mkey_ctx *context)
{
	int err;

	/* A key that comes back under the same index differs from the last. */
	context->variant = atomic_inc_return(&dev->next_variant);
	context->access = mr->access;
	context->pd = cpu_to_le32(to_qrnic_pd(mr->ibmr.pd)->pdn);

	err = qrnic_cmd_create_mkey(dev->qdev, context, &mr->index);
	if (err)
		return err;

	mr->ibmr.lkey = mr->index << 8 | context->variant;
	mr->ibmr.rkey = mr->ibmr.lkey;
	return 0;
}

struct ib_mr *qrnic_ib_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr *mr;
	int err;

	access &= ~IB_ACCESS_OPTIONAL;
	if (access & ~QRNIC_ACCESS_ALL)
		return ERR_PTR(-EOPNOTSUPP);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);

	mr->ibmr.pd = ibpd;
	mr->access = access;
	context.type = QRNIC_MKEY_DMA;
	context.length = cpu_to_le64(U64_MAX);

	err = mkey_create(dev, mr, &context);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	return &mr->ibmr;
}

/*
 * The table has the largest pages that the memory allows. The core chooses them
 * so that an address and its place in the table agree in the low bits; a
 * zero-based region borrows the process's address for that.
 */
static int mr_table(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr, u64 virt)
{
	struct ib_block_iter iter;
	unsigned long page;
	int err;

	page = ib_umem_find_best_pgsz(mr->umem,
				      GENMASK(QRNIC_PAGE_SHIFT_MAX,
					      QRNIC_PAGE_SHIFT_MIN), virt);
	if (!page)
		return -EINVAL;

	mr->page_shift = ilog2(page);
	err = qrnic_table_alloc(dev->qdev, &mr->table,
				ib_umem_num_dma_blocks(mr->umem, page),
				mr->page_shift, virt & (page - 1));
	if (err)
		return err;

	rdma_umem_for_each_dma_block(mr->umem, &iter, page)
		qrnic_table_add(&mr->table, rdma_block_iter_dma_address(&iter));
	return 0;
}

struct ib_mr *qrnic_ib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				   u64 virt, int access, QRNIC_DMAH_PARAMETER
				   struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr *mr;
	bool zero_based;
	int err;

	err = qrnic_udata_none(udata);
	if (err)
		return ERR_PTR(err);

	access &= ~(IB_ACCESS_OPTIONAL | IB_ACCESS_HUGETLB);
	zero_based = access & IB_ZERO_BASED;
	access &= ~IB_ZERO_BASED;
	if (access & ~QRNIC_ACCESS_ALL || QRNIC_DMAH)
		return ERR_PTR(-EOPNOTSUPP);
	if (!length || length > dev->qdev->caps.max_mr_size)
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);

	mr->umem = ib_umem_get(&dev->ibdev, start, length, access);
	if (IS_ERR(mr->umem)) {
		err = PTR_ERR(mr->umem);
		goto err_free;
	}

	err = mr_table(dev, mr, zero_based ? start : virt);
	if (err)
		goto err_release;

	mr->ibmr.pd = ibpd;
	mr->access = access;
	mr->start = zero_based ? 0 : virt;
	context.type = QRNIC_MKEY_MR;
	context.start = cpu_to_le64(mr->start);
	context.length = cpu_to_le64(length);
	context.table = mr->table.hw;

	err = mkey_create(dev, mr, &context);
	if (err)
		goto err_table;

	mr->ibmr.iova = mr->start;
	mr->ibmr.length = length;
	mr->ibmr.page_size = BIT(mr->page_shift);
	return &mr->ibmr;

err_table:
	qrnic_table_free(dev->qdev, &mr->table);
err_release:
	ib_umem_release(mr->umem);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

int qrnic_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibmr->device);
	struct qrnic_ib_mr *mr = to_qrnic_mr(ibmr);
	int err;

	err = qrnic_cmd_destroy_mkey(dev->qdev, mr->index);
	if (err)
		qrnic_destroy_failed(dev, "memory key", mr->index, err);

	if (mr->umem) {
		qrnic_table_free(dev->qdev, &mr->table);
		ib_umem_release(mr->umem);
	}
	kfree(mr);
	return 0;
}
