// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ucontext.c: a process's context and its doorbell page. The device accepts a
 * doorbell only through the page of the queue's owner.
 */
#include "qrnic_ib.h"

static int db_page_map(struct qrnic_ib_dev *dev,
		       struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_mmap *map;
	int err;

	map = kzalloc(sizeof(*map), GFP_KERNEL);
	if (!map)
		return -ENOMEM;

	map->address = qrnic_db_page_phys(dev->qdev, ucontext->db_page);
	err = rdma_user_mmap_entry_insert(&ucontext->ibucontext, &map->entry,
					  QRNIC_DB_PAGE_SIZE);
	if (err) {
		kfree(map);
		return err;
	}

	/* From here on mmap_free releases it. */
	ucontext->db_mmap = map;
	return 0;
}

static void ucontext_response(struct qrnic_ib_dev *dev,
			      struct qrnic_ib_ucontext *ucontext,
			      struct qrnic_alloc_ucontext_resp *response)
{
	const struct qrnic_caps *caps = &dev->qdev->caps;

	response->capabilities = caps->capabilities;
	response->db_offset =
		rdma_user_mmap_get_offset(&ucontext->db_mmap->entry);
	response->db_length = QRNIC_DB_PAGE_SIZE;
	response->db_page = ucontext->db_page;
	response->max_wqebb = caps->max_qp_wqebb;
	response->max_recv = caps->max_qp_recv;
	response->max_cqe = caps->max_cqe;
	response->max_send_sge = caps->max_sge;
	response->max_recv_sge = caps->max_sge;
	if (qrnic_ib_cap(dev, QRNIC_CAP_INLINE_SEND))
		response->max_inline = caps->max_inline;
	response->clock_khz = caps->clock_khz;
	response->max_srq_wr = caps->max_srq_wr;
}

int qrnic_ib_alloc_ucontext(struct ib_ucontext *ibucontext,
			    struct ib_udata *udata)
{
	struct qrnic_ib_ucontext *ucontext = to_qrnic_ucontext(ibucontext);
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibucontext->device);
	struct qrnic_alloc_ucontext_resp response = {};
	struct qrnic_alloc_ucontext_req request;
	int err;

	/* A larger page would hold the doorbells of other processes, too. */
	if (PAGE_SIZE != QRNIC_DB_PAGE_SIZE)
		return -EOPNOTSUPP;

	err = qrnic_udata_get(udata, &request, sizeof(request), 0);
	if (err)
		return err;
	if (request.comp_mask)
		return -EOPNOTSUPP;

	err = qrnic_cmd_alloc_db_page(dev->qdev, &ucontext->db_page);
	if (err)
		return err;

	err = db_page_map(dev, ucontext);
	if (err)
		goto err_free_page;

	ucontext_response(dev, ucontext, &response);
	err = qrnic_udata_put(udata, &response, sizeof(response),
			      offsetofend(struct qrnic_alloc_ucontext_resp,
					  db_page));
	if (err)
		goto err_unmap;
	return 0;

err_unmap:
	rdma_user_mmap_entry_remove(&ucontext->db_mmap->entry);
err_free_page:
	qrnic_cmd_free_db_page(dev->qdev, ucontext->db_page);
	return err;
}

/* No mapping is left: the core ends them all before it comes here. */
void qrnic_ib_dealloc_ucontext(struct ib_ucontext *ibucontext)
{
	struct qrnic_ib_ucontext *ucontext = to_qrnic_ucontext(ibucontext);
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibucontext->device);
	int err;

	rdma_user_mmap_entry_remove(&ucontext->db_mmap->entry);
	err = qrnic_cmd_free_db_page(dev->qdev, ucontext->db_page);
	if (err)
		qrnic_destroy_failed(dev, "doorbell page", ucontext->db_page,
				     err);
}

/*
 * The core zaps the mappings; nothing else of a process outlives its context.
 * That the callback exists lets a device go away under open files.
 */
void qrnic_ib_disassociate_ucontext(struct ib_ucontext *ibucontext)
{
}

int qrnic_ib_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct qrnic_ib_mmap *map;
	int err;

	entry = rdma_user_mmap_entry_get(ibucontext, vma);
	if (!entry)
		return -EINVAL;

	/* Not write combining: a doorbell is one transaction, in order. */
	map = container_of(entry, struct qrnic_ib_mmap, entry);
	err = rdma_user_mmap_io(ibucontext, vma, PFN_DOWN(map->address),
				QRNIC_DB_PAGE_SIZE,
				pgprot_noncached(vma->vm_page_prot), entry);
	rdma_user_mmap_entry_put(entry);
	return err;
}

void qrnic_ib_mmap_free(struct rdma_user_mmap_entry *entry)
{
	kfree(container_of(entry, struct qrnic_ib_mmap, entry));
}
