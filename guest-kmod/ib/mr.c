// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * mr.c: memory regions and windows: a memory key with rights and, except for
 * DMA regions, a translation table (manual, Memory keys).
 *
 * Regions on demand are in odp.c, and device memory is in device_memory.c. The
 * RDMA core serialises the calls for one region. The memory of a region stays
 * pinned until the device has destroyed its key.
 */
#include <linux/sched.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>

#include "memory.h"
#include "odp.h"
#include "qrnic_ib.h"
#include "verbs.h"

struct ib_mr *qrnic_ib_get_dma_mr(struct ib_pd *ibpd, int access)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr *mr;
	int err;

	access = qrnic_access_rights(dev, access);
	if (access < 0)
		return ERR_PTR(access);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);

	mr->ibmr.pd = ibpd;
	mr->access = access;
	context.type = QRNIC_MKEY_DMA;
	context.length = cpu_to_le64(U64_MAX);

	err = qrnic_mr_key_create(mr, &context);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	return &mr->ibmr;
}

/*
 * Allocates the table with the largest pages that the memory allows. The RDMA
 * core chooses a size for which an address and its offset in the table agree in
 * the low bits. For a zero-based region the address in the process is used
 * instead.
 */
static int qrnic_mr_table(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr, u64 virt)
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

static void qrnic_mr_context(const struct qrnic_ib_mr *mr,
			     struct qrnic_mkey_ctx *context)
{
	context->type = QRNIC_MKEY_MR;
	context->start = cpu_to_le64(mr->start);
	context->length = cpu_to_le64(mr->umem->length);
	context->table = mr->table.hw;
	context->address_space = cpu_to_le32(mr->address_space);
}

/*
 * Gets the number of the address space if the process uses this memory at the
 * addresses of the region. Then the poller of a queue pair of this process may
 * copy received data in place of the device.
 */
static int qrnic_mr_get_address_space(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr)
{
	const struct ib_umem *umem = mr->umem;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_INLINE_RECV) || umem->is_dmabuf ||
	    umem->address != mr->start)
		return 0;
	return qrnic_address_space_get(dev, &mr->address_space);
}

/*
 * Creates the MR of pinned memory, and releases the memory on an error. The
 * address in the process is start; users of the key name the memory by virt.
 */
static struct ib_mr *qrnic_mr_of_umem(struct qrnic_ib_dev *dev, struct ib_pd *ibpd,
				      struct ib_umem *umem, u64 start, u64 virt,
				      int access)
{
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr *mr;
	int err;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr) {
		err = -ENOMEM;
		goto err_release;
	}

	mr->umem = umem;
	mr->ibmr.pd = ibpd;
	mr->access = qrnic_access_rights(dev, access);
	mr->zero_based = access & IB_ZERO_BASED;
	mr->start = mr->zero_based ? 0 : virt;
	err = qrnic_mr_table(dev, mr, mr->zero_based ? start : virt);
	if (err)
		goto err_free;

	err = qrnic_mr_get_address_space(dev, mr);
	if (err)
		goto err_table;
	qrnic_mr_context(mr, &context);
	err = qrnic_mr_key_create(mr, &context);
	if (err)
		goto err_address_space;

	mr->ibmr.iova = mr->start;
	mr->ibmr.length = umem->length;
	mr->ibmr.page_size = BIT(mr->page_shift);
	return &mr->ibmr;

err_address_space:
	qrnic_address_space_put(dev, mr->address_space);
err_table:
	qrnic_table_free(dev->qdev, &mr->table);
err_free:
	kfree(mr);
err_release:
	ib_umem_release(umem);
	return ERR_PTR(err);
}

static int qrnic_mr_check(struct qrnic_ib_dev *dev, u64 length, int access)
{
	int rights = qrnic_access_rights(dev, access);

	if (rights < 0)
		return rights;
	if (length > dev->qdev->caps.max_mr_size)
		return -EINVAL;
	return 0;
}

/*
 * Creates a region of no bytes, because mlx5 supports it, too. The RDMA core
 * pins no memory of length 0, so the region has neither umem nor table.
 */
static struct ib_mr *qrnic_mr_empty(struct ib_pd *ibpd, u64 virt, int access)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = { .type = QRNIC_MKEY_MR };
	struct qrnic_ib_mr *mr;
	int err;

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);

	mr->ibmr.pd = ibpd;
	mr->access = qrnic_access_rights(dev, access);
	mr->zero_based = access & IB_ZERO_BASED;
	mr->start = mr->zero_based ? 0 : virt;
	context.start = cpu_to_le64(mr->start);
	err = qrnic_mr_key_create(mr, &context);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	mr->ibmr.iova = mr->start;
	return &mr->ibmr;
}

struct ib_mr *qrnic_ib_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length,
				   u64 virt, int access, QRNIC_DMAH_PARAMETER
				   struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct ib_umem *umem;
	int err;

	err = qrnic_udata_none(udata);
	if (err)
		return ERR_PTR(err);
	if (QRNIC_DMAH)
		return ERR_PTR(-EOPNOTSUPP);
	if (access & IB_ACCESS_ON_DEMAND)
		return qrnic_odp_reg_user_mr(ibpd, start, length, virt, access);
	err = qrnic_mr_check(dev, length, access);
	if (err)
		return ERR_PTR(err);
	if (!length)
		return qrnic_mr_empty(ibpd, virt, access);

	umem = qrnic_umem_get(dev, start, length, access);
	if (IS_ERR(umem))
		return ERR_CAST(umem);
	return qrnic_mr_of_umem(dev, ibpd, umem, start, virt, access);
}

/*
 * Registers a dma-buf. The memory is pinned while it is registered, because the
 * device cannot wait for its pages.
 */
struct ib_mr *qrnic_ib_reg_user_mr_dmabuf(struct ib_pd *ibpd, u64 offset,
					  u64 length, u64 virt, int fd,
					  int access, QRNIC_DMAH_PARAMETER
					  struct uverbs_attr_bundle *attrs)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct ib_umem_dmabuf *dmabuf;
	int err;

	if (QRNIC_DMAH)
		return ERR_PTR(-EOPNOTSUPP);
	if (!length)
		return ERR_PTR(-EINVAL);
	err = qrnic_mr_check(dev, length, access);
	if (err)
		return ERR_PTR(err);

	dmabuf = ib_umem_dmabuf_get_pinned(&dev->ibdev, offset, length, fd,
					   access);
	if (IS_ERR(dmabuf))
		return ERR_CAST(dmabuf);
	err = qrnic_umem_check(dev, &dmabuf->umem);
	if (err) {
		ib_umem_release(&dmabuf->umem);
		return ERR_PTR(err);
	}
	return qrnic_mr_of_umem(dev, ibpd, &dmabuf->umem, offset, virt, access);
}

/*
 * Registers device memory. The RDMA core has checked that the region is
 * zero-based and within the device memory.
 */
struct ib_mr *qrnic_ib_reg_dm_mr(struct ib_pd *ibpd, struct ib_dm *ibdm,
				 struct ib_dm_mr_attr *attr,
				 struct uverbs_attr_bundle *attrs)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr *mr;
	int err;

	err = qrnic_access_rights(dev, attr->access_flags);
	if (err < 0)
		return ERR_PTR(err);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);

	mr->ibmr.pd = ibpd;
	mr->access = err;
	mr->zero_based = true;
	context.type = QRNIC_MKEY_DM;
	context.length = cpu_to_le64(attr->length);
	context.table.root = cpu_to_le64(attr->offset);
	context.dm = cpu_to_le32(to_qrnic_dm(ibdm)->number);
	err = qrnic_mr_key_create(mr, &context);
	if (err) {
		kfree(mr);
		return ERR_PTR(err);
	}
	mr->ibmr.length = attr->length;
	return &mr->ibmr;
}

/*
 * Returns the memory of a re-registration: new memory, or the old one pinned
 * for writing. Returns NULL if the memory stays.
 */
static struct ib_umem *qrnic_rereg_umem(struct qrnic_ib_dev *dev,
					struct qrnic_ib_mr *mr, int flags, u64 start,
					u64 length, int access)
{
	struct ib_umem *old = mr->umem;

	if (flags & IB_MR_REREG_TRANS)
		return qrnic_umem_get(dev, start, length, access);
	if (!(flags & IB_MR_REREG_ACCESS) || !ib_access_writable(access) ||
	    old->writable || old->is_dmabuf)
		return NULL;
	/*
	 * Rejected, because the address is valid only in the process that
	 * registered the region.
	 */
	if (old->owning_mm != current->mm)
		return ERR_PTR(-EPERM);
	return qrnic_umem_get(dev, old->address, old->length, access);
}

static int qrnic_rereg_check(struct qrnic_ib_dev *dev, struct qrnic_ib_mr *mr,
			     int flags, u64 length, int access, struct ib_udata *udata)
{
	int err = qrnic_udata_none(udata);

	if (err)
		return err;
	if (mr->odp || !mr->umem)
		return -EOPNOTSUPP;
	if (flags & IB_MR_REREG_TRANS && !length)
		return -EINVAL;
	/*
	 * A dma-buf has no address in the process, so its memory cannot be
	 * replaced.
	 */
	if (mr->umem->is_dmabuf && flags & IB_MR_REREG_TRANS)
		return -EOPNOTSUPP;
	return qrnic_mr_check(dev, flags & IB_MR_REREG_TRANS ? length : mr->umem->length,
			      access);
}

/*
 * Changes a region. The device replaces the context of the key at once; then
 * the old memory is freed. If the memory is new, the key gets a new variant,
 * because users of the old key expect the old memory. Otherwise the key stays,
 * because programs rely on it. On an error nothing changes.
 */
struct ib_mr *qrnic_ib_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start,
				     u64 length, u64 virt, int access,
				     struct ib_pd *ibpd, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibmr->device);
	struct qrnic_ib_mr *mr = to_qrnic_mr(ibmr);
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr next = {};
	int err;

	if (!(flags & IB_MR_REREG_ACCESS))
		access = qrnic_access_of_rights(mr->access) |
			 (mr->zero_based ? IB_ZERO_BASED : 0);
	err = qrnic_rereg_check(dev, mr, flags, length, access, udata);
	if (err)
		return ERR_PTR(err);

	next.zero_based = mr->zero_based;
	next.start = mr->start;
	if (flags & IB_MR_REREG_TRANS) {
		next.zero_based = access & IB_ZERO_BASED;
		next.start = next.zero_based ? 0 : virt;
	}
	next.access = qrnic_access_rights(dev, access);
	next.umem = qrnic_rereg_umem(dev, mr, flags, start, length, access);
	if (IS_ERR(next.umem))
		return ERR_CAST(next.umem);

	if (next.umem) {
		err = qrnic_mr_table(dev, &next, next.zero_based ? next.umem->address :
							     next.start);
		if (err)
			goto err_release;
		err = qrnic_mr_get_address_space(dev, &next);
		if (err)
			goto err_table;
		qrnic_mr_context(&next, &context);
	} else {
		qrnic_mr_context(mr, &context);
	}

	context.variant = ibmr->lkey;
	while (flags & IB_MR_REREG_TRANS && context.variant == (u8)ibmr->lkey)
		context.variant = qrnic_mkey_variant(dev);
	context.access = next.access;
	context.pd = cpu_to_le32(to_qrnic_pd(ibpd)->pdn);
	err = qrnic_cmd_set(dev->qdev, QRNIC_CMD_MODIFY_MKEY, mr->index,
			    &context, sizeof(context));
	if (err)
		goto err_address_space;

	if (next.umem) {
		qrnic_address_space_put(dev, mr->address_space);
		qrnic_table_free(dev->qdev, &mr->table);
		ib_umem_release(mr->umem);
		mr->umem = next.umem;
		mr->table = next.table;
		mr->page_shift = next.page_shift;
		mr->address_space = next.address_space;
		ibmr->page_size = BIT(mr->page_shift);
	}
	mr->start = next.start;
	mr->zero_based = next.zero_based;
	mr->access = next.access;
	ibmr->lkey = mr->index << 8 | context.variant;
	ibmr->rkey = ibmr->lkey;
	return NULL;

err_address_space:
	qrnic_address_space_put(dev, next.address_space);
err_table:
	if (next.umem)
		qrnic_table_free(dev->qdev, &next.table);
err_release:
	ib_umem_release(next.umem);
	return ERR_PTR(err);
}

/*
 * Allocates a region for fast registration: the key, and room for a page list.
 * A work request sets the rest. The list is in one page, because the device
 * reads it as one array.
 */
struct ib_mr *qrnic_ib_alloc_mr(struct ib_pd *ibpd, enum ib_mr_type type,
				u32 max_num_sg)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibpd->device);
	struct qrnic_mkey_ctx context = {};
	struct qrnic_ib_mr *mr;
	int err;

	if (type != IB_MR_TYPE_MEM_REG || !qrnic_ib_cap(dev, QRNIC_CAP_FAST_REG))
		return ERR_PTR(-EOPNOTSUPP);
	if (!max_num_sg || max_num_sg > QRNIC_FAST_REG_MAX_PAGES)
		return ERR_PTR(-EINVAL);

	mr = kzalloc(sizeof(*mr), GFP_KERNEL);
	if (!mr)
		return ERR_PTR(-ENOMEM);

	mr->max_pages = max_num_sg;
	mr->pages = dma_alloc_coherent(qrnic_dma_device(dev->qdev),
				       max_num_sg * sizeof(*mr->pages),
				       &mr->pages_dma, GFP_KERNEL);
	if (!mr->pages) {
		err = -ENOMEM;
		goto err_free;
	}

	mr->ibmr.pd = ibpd;
	context.type = QRNIC_MKEY_FAST_REG;
	context.length = cpu_to_le64(dev->qdev->caps.max_mr_size);
	err = qrnic_mr_key_create(mr, &context);
	if (err)
		goto err_pages;
	return &mr->ibmr;

err_pages:
	dma_free_coherent(qrnic_dma_device(dev->qdev),
			  max_num_sg * sizeof(*mr->pages), mr->pages,
			  mr->pages_dma);
err_free:
	kfree(mr);
	return ERR_PTR(err);
}

static int qrnic_mr_add_page(struct ib_mr *ibmr, u64 address)
{
	struct qrnic_ib_mr *mr = to_qrnic_mr(ibmr);

	if (mr->num_pages == mr->max_pages)
		return -ENOMEM;
	mr->pages[mr->num_pages++] = cpu_to_le64(address);
	return 0;
}

int qrnic_ib_map_mr_sg(struct ib_mr *ibmr, struct scatterlist *sg, int sg_nents,
		       unsigned int *sg_offset)
{
	struct qrnic_ib_mr *mr = to_qrnic_mr(ibmr);

	if (!is_power_of_2(ibmr->page_size) ||
	    ibmr->page_size < BIT(QRNIC_PAGE_SHIFT_MIN) ||
	    ibmr->page_size > BIT(QRNIC_PAGE_SHIFT_MAX))
		return -EINVAL;

	mr->num_pages = 0;
	mr->page_shift = ilog2(ibmr->page_size);
	return ib_sg_to_pages(ibmr, sg, sg_nents, sg_offset, qrnic_mr_add_page);
}

/*
 * Returns the pages that the last qrnic_ib_map_mr_sg() has put into the list.
 */
struct qrnic_translation qrnic_mr_pages(const struct qrnic_ib_mr *mr)
{
	return (struct qrnic_translation) {
		.root = cpu_to_le64(mr->pages_dma),
		.shape = qrnic_table_shape(1, mr->page_shift),
		.offset = cpu_to_le32(mr->ibmr.iova & (mr->ibmr.page_size - 1)),
	};
}

int qrnic_ib_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibmr->device);
	struct qrnic_ib_mr *mr = to_qrnic_mr(ibmr);
	int err;

	if (mr->odp) {
		err = qrnic_odp_dereg(dev, mr);
		if (!err)
			kfree(mr);
		return err;
	}
	err = qrnic_cmd_destroy(dev->qdev, QRNIC_CMD_DESTROY_MKEY, mr->index);
	/*
	 * The error is returned, because windows are bound to the region, and
	 * the process must deallocate them first.
	 */
	if (err == -EBUSY && (mr->umem || ibmr->type == IB_MR_TYPE_DM))
		return err;
	if (err)
		qrnic_destroy_failed(dev, QRNIC_CMD_DESTROY_MKEY, mr->index,
				     err);

	if (mr->umem) {
		qrnic_address_space_put(dev, mr->address_space);
		qrnic_table_free(dev->qdev, &mr->table);
		ib_umem_release(mr->umem);
	}
	if (mr->pages)
		dma_free_coherent(qrnic_dma_device(dev->qdev),
				  mr->max_pages * sizeof(*mr->pages), mr->pages,
				  mr->pages_dma);
	kfree(mr);
	return 0;
}

/* Creates the key of a window. Work requests bind the window to memory. */
int qrnic_ib_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibmw->device);
	struct qrnic_ib_mw *mw = to_qrnic_mw(ibmw);
	struct qrnic_mkey_ctx context = {};
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_MW))
		return -EOPNOTSUPP;
	err = qrnic_udata_none(udata);
	if (err)
		return err;

	context.type = ibmw->type == IB_MW_TYPE_1 ? QRNIC_MKEY_MW_1 :
						    QRNIC_MKEY_MW_2;
	return qrnic_mkey_create(to_qrnic_pd(ibmw->pd), &context, &mw->index,
				 &ibmw->rkey);
}

int qrnic_ib_dealloc_mw(struct ib_mw *ibmw)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibmw->device);

	qrnic_destroy(dev, QRNIC_CMD_DESTROY_MKEY, to_qrnic_mw(ibmw)->index);
	return 0;
}

/*
 * Returns the key of the PD's null region, which is created at the first call.
 * Returns 0 or a negative errno.
 */
int qrnic_pd_null_key(struct qrnic_ib_pd *pd, u32 *key)
{
	struct qrnic_mkey_ctx context = {
		.type = QRNIC_MKEY_NULL_MR,
		.access = QRNIC_ACCESS_LOCAL_WRITE,
	};
	u32 index;
	int err = 0;

	mutex_lock(&pd->null_mutex);
	if (!pd->has_null) {
		err = qrnic_mkey_create(pd, &context, &index, &pd->null_key);
		pd->has_null = !err;
	}
	*key = pd->null_key;
	mutex_unlock(&pd->null_mutex);
	return err;
}

/* Destroys the key of the null region, if it exists. */
void qrnic_pd_null_key_destroy(struct qrnic_ib_pd *pd)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(pd->ibpd.device);

	if (pd->has_null)
		qrnic_destroy(dev, QRNIC_CMD_DESTROY_MKEY, pd->null_key >> 8);
}
