// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * ucontext.c: contexts of processes, their doorbell pages, and their mappings.
 *
 * The device accepts a doorbell for a queue only through the doorbell page of
 * the queue. Each context has one page and may allocate more (uapi.c).
 * Processes map doorbell pages and device memory (device_memory.c) by mmap(). A
 * page stays allocated while its object, a queue pair or a mapping uses it. The
 * mutex db_mutex protects the pages that are allocated and unused.
 */
#include <linux/cred.h>
#include <linux/nsproxy.h>
#include <net/net_namespace.h>

#include "memory.h"
#include "odp.h"
#include "qrnic_ib.h"
#include "verbs.h"

/*
 * A process can map only whole pages of the CPU. If such a page contains
 * several doorbell pages of the device, a context gets all of them. So it
 * cannot ring the doorbells of another context. The device allocates single
 * doorbell pages. Pages of an incomplete group stay in db_spare until the group
 * is complete or the driver is removed. (The kernel has page 0, so the other
 * pages of the first group stay in db_spare.)
 */

/*
 * Returns true if the whole group is in db_spare, and removes its pages from
 * there.
 */
static bool qrnic_db_group_take(struct qrnic_ib_dev *dev, u32 first, u32 count)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (!xa_load(&dev->db_spare, first + i))
			return false;
	for (i = 0; i < count; i++)
		xa_erase(&dev->db_spare, first + i);
	return true;
}

/*
 * Allocates a group of count doorbell pages and sets *first to the number of
 * the first, a multiple of count. Returns 0 or a negative errno.
 */
static int qrnic_db_group_alloc(struct qrnic_ib_dev *dev, u32 count, u32 *first)
{
	u32 number;
	int err;

	mutex_lock(&dev->db_mutex);
	do {
		err = qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_DB_PAGE, NULL, 0,
				       &number);
		if (err)
			break;
		/*
		 * Page 0 belongs to the kernel, and the memory behind the BAR
		 * to other devices. The number is checked, because the device
		 * is not trusted.
		 */
		err = -EIO;
		if (number && number < dev->qdev->db_pages)
			err = xa_insert(&dev->db_spare, number, xa_mk_value(0),
					GFP_KERNEL);
		if (err) {
			qrnic_cmd_destroy(dev->qdev, QRNIC_CMD_FREE_DB_PAGE, number);
			break;
		}
		*first = round_down(number, count);
	} while (!qrnic_db_group_take(dev, *first, count));
	mutex_unlock(&dev->db_mutex);
	return err;
}

static void qrnic_db_group_free(struct qrnic_ib_dev *dev, u32 first, u32 count)
{
	while (count--)
		qrnic_destroy(dev, QRNIC_CMD_FREE_DB_PAGE, first + count);
}

void qrnic_db_pages_init(struct qrnic_ib_dev *dev)
{
	dev->db_group = max_t(u32, PAGE_SIZE / QRNIC_DB_PAGE_SIZE, 1);
	mutex_init(&dev->db_mutex);
	xa_init(&dev->db_spare);
}

/* Frees unused doorbell pages. Called when no process has a page any more. */
void qrnic_db_pages_cleanup(struct qrnic_ib_dev *dev)
{
	unsigned long number;
	void *page;

	xa_for_each(&dev->db_spare, number, page)
		qrnic_destroy(dev, QRNIC_CMD_FREE_DB_PAGE, number);
	xa_destroy(&dev->db_spare);
}

/* Allocates the doorbell pages of the device, and sets their PASID. */
static struct qrnic_ib_db_page *qrnic_db_page_alloc(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_db_page *page;
	u32 i;
	int err;

	page = kzalloc(sizeof(*page), GFP_KERNEL);
	if (!page)
		return ERR_PTR(-ENOMEM);

	page->ucontext = ucontext;
	page->count = READ_ONCE(dev->db_group);
	err = qrnic_db_group_alloc(dev, page->count, &page->number);
	if (err)
		goto err_page;
	for (i = 0; i < page->count && ucontext->process; i++) {
		err = qrnic_process_db_page(dev, ucontext->process, page->number + i);
		if (err)
			goto err_device;
	}
	return page;

err_device:
	qrnic_db_group_free(dev, page->number, page->count);
err_page:
	kfree(page);
	return ERR_PTR(err);
}

static void qrnic_db_page_free(struct qrnic_ib_dev *dev,
			       struct qrnic_ib_db_page *page)
{
	qrnic_db_group_free(dev, page->number, page->count);
	kfree(page);
}

/*
 * Releases a page that has no user and no mapping. With shared virtual
 * addressing the page stays in the context, because a valid key may still name
 * its PASID. The device does not free the page then, and keys outlive the queue
 * pairs that registered them.
 */
static void qrnic_db_page_unused(struct qrnic_ib_dev *dev,
				 struct qrnic_ib_db_page *page)
{
	struct qrnic_ib_ucontext *ucontext = page->ucontext;

	if (!ucontext->process) {
		qrnic_db_page_free(dev, page);
		return;
	}
	mutex_lock(&dev->db_mutex);
	list_add(&page->spare, &ucontext->spare_pages);
	mutex_unlock(&dev->db_mutex);
}

/* Returns an unused page of the context, or NULL. */
static struct qrnic_ib_db_page *qrnic_db_page_reuse(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_db_page *page;

	mutex_lock(&dev->db_mutex);
	page = list_first_entry_or_null(&ucontext->spare_pages,
					struct qrnic_ib_db_page, spare);
	if (page)
		list_del(&page->spare);
	mutex_unlock(&dev->db_mutex);
	return page;
}

/* Frees the unused pages of a context that has no keys any more. */
static void qrnic_db_pages_free(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_db_page *page;

	while ((page = qrnic_db_page_reuse(ucontext)))
		qrnic_db_page_free(dev, page);
}

/*
 * Allocates a doorbell page that processes of the context can map. The page
 * stays while its object or a queue pair uses it. The device gets the page back
 * when also its last mapping has ended, because a process can ring doorbells
 * until then. Returns the page or an ERR_PTR().
 */
struct qrnic_ib_db_page *qrnic_db_page_create(struct qrnic_ib_ucontext *ucontext)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	struct qrnic_ib_db_page *page = qrnic_db_page_reuse(ucontext);
	int err;

	if (!page)
		page = qrnic_db_page_alloc(ucontext);
	if (IS_ERR(page))
		return page;

	kref_init(&page->users);
	/* A page that is used again has an earlier mapping here. */
	memset(&page->map, 0, sizeof(page->map));
	page->map.kind = QRNIC_MAP_DB_PAGE;
	err = rdma_user_mmap_entry_insert(&ucontext->ibucontext, &page->map.entry,
					  qrnic_db_page_bytes(page));
	if (err) {
		qrnic_db_page_unused(dev, page);
		return ERR_PTR(err);
	}

	/*
	 * From here on qrnic_ib_mmap_free() frees the page. This insertion must
	 * be the last step, because QPs can find and use the page afterwards.
	 */
	err = xa_insert(&ucontext->db_pages, page->number, page, GFP_KERNEL);
	if (err) {
		rdma_user_mmap_entry_remove(&page->map.entry);
		return ERR_PTR(err);
	}
	return page;
}

static void qrnic_db_page_release(struct kref *users)
{
	struct qrnic_ib_db_page *page = container_of(users, struct qrnic_ib_db_page,
						     users);

	rdma_user_mmap_entry_remove(&page->map.entry);
}

/* Releases a reference to a doorbell page. */
void qrnic_db_page_put(struct qrnic_ib_db_page *page)
{
	kref_put(&page->users, qrnic_db_page_release);
}

/*
 * Releases the reference of the object. New queue pairs do not find the page
 * any more; queue pairs that use it keep it.
 */
void qrnic_db_page_destroy(struct qrnic_ib_db_page *page)
{
	xa_erase(&page->ucontext->db_pages, page->number);
	qrnic_db_page_put(page);
}

/*
 * Returns the doorbell page of this number with a reference, or NULL if it is
 * not in the context.
 */
struct qrnic_ib_db_page *qrnic_db_page_get(struct qrnic_ib_ucontext *ucontext,
					   u32 number)
{
	struct qrnic_ib_db_page *page;

	xa_lock(&ucontext->db_pages);
	page = xa_load(&ucontext->db_pages, number);
	if (page)
		kref_get(&page->users);
	xa_unlock(&ucontext->db_pages);
	return page;
}

void qrnic_ucontext_response(struct qrnic_ib_ucontext *ucontext,
			     struct qrnic_alloc_ucontext_resp *response)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ucontext->ibucontext.device);
	const struct qrnic_caps *caps = &dev->qdev->caps;

	response->comp_mask = QRNIC_UCONTEXT_SMALL_QUEUES;
	if (ucontext->process && qrnic_process_may_post(ucontext->process))
		response->comp_mask |= QRNIC_UCONTEXT_SHARED_VIRTUAL;
	/*
	 * Unknown bits are cleared, because a newer library must not use
	 * features that this driver does not know.
	 */
	response->capabilities = caps->capabilities & QRNIC_CAP_ALL;
	if (!qrnic_on_demand(dev))
		response->capabilities &= ~QRNIC_CAP_ON_DEMAND;
	if (!dev->shared_virtual)
		response->capabilities &= ~QRNIC_CAP_SHARED_VIRTUAL;
	response->db_offset =
		rdma_user_mmap_get_offset(&ucontext->db_page->map.entry);
	response->db_length = qrnic_db_page_bytes(ucontext->db_page);
	response->db_page = ucontext->db_page->number;
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
	struct qrnic_alloc_ucontext_req request = {};
	int err;

	/* A request is optional, because all its members have the default 0. */
	if (udata->inlen) {
		err = ib_copy_validate_udata_in_cm(udata, request, comp_mask,
						   QRNIC_UCONTEXT_REQ_SHARED_VIRTUAL);
		if (err)
			return err;
	}

	ucontext->owner.user = current_euid();
	ucontext->owner.net_cookie = current->nsproxy->net_ns->net_cookie;
	xa_init(&ucontext->db_pages);
	INIT_LIST_HEAD(&ucontext->spare_pages);
	err = qrnic_odp_budget_get(ucontext);
	if (err)
		return err;
	if (request.comp_mask & QRNIC_UCONTEXT_REQ_SHARED_VIRTUAL) {
		ucontext->process = qrnic_process_get(dev);
		if (IS_ERR(ucontext->process)) {
			err = PTR_ERR(ucontext->process);
			goto err_budget;
		}
	}
	ucontext->db_page = qrnic_db_page_create(ucontext);
	if (IS_ERR(ucontext->db_page)) {
		err = PTR_ERR(ucontext->db_page);
		goto err_process;
	}

	qrnic_ucontext_response(ucontext, &response);
	err = ib_respond_udata(udata, response);
	if (err)
		goto err_page;
	return 0;

err_page:
	qrnic_db_page_destroy(ucontext->db_page);
err_process:
	/* A page whose creation failed keeps the PASID, and is here, too. */
	qrnic_db_pages_free(ucontext);
	qrnic_process_put(dev, ucontext->process);
err_budget:
	qrnic_odp_budget_put(ucontext);
	return err;
}

/*
 * Frees a context. No mapping is left, because the RDMA core ends all of them
 * before this call.
 */
void qrnic_ib_dealloc_ucontext(struct ib_ucontext *ibucontext)
{
	struct qrnic_ib_ucontext *ucontext = to_qrnic_ucontext(ibucontext);

	qrnic_db_page_destroy(ucontext->db_page);
	WARN_ON(!xa_empty(&ucontext->db_pages));
	qrnic_db_pages_free(ucontext);
	/* Last, because a doorbell page has the PASID of the process. */
	qrnic_process_put(to_qrnic_dev(ibucontext->device), ucontext->process);
	qrnic_odp_budget_put(ucontext);
}

/*
 * Does nothing, because the RDMA core ends the mappings, and nothing else of a
 * process outlives its context. The callback must exist, because otherwise the
 * device could not be removed while files are open.
 */
void qrnic_ib_disassociate_ucontext(struct ib_ucontext *ibucontext)
{
}

/*
 * Maps a doorbell page with write combining, so that a direct WQE may be one
 * burst. BAR 2 is prefetchable, so this is allowed. A doorbell stays a
 * transaction of its own, because the library uses a barrier before and after
 * it.
 */
static int qrnic_db_page_mmap(struct ib_ucontext *ibucontext,
			      struct vm_area_struct *vma, struct qrnic_ib_map *map)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibucontext->device);
	struct qrnic_ib_db_page *page =
		container_of(map, struct qrnic_ib_db_page, map);
	phys_addr_t address = qrnic_db_page_phys(dev->qdev, page->number);

	/*
	 * No other process gets the page, neither by its own mapping nor by
	 * fork(), because a direct WQE could name the memory of this process.
	 */
	if (page->ucontext->process) {
		if (!qrnic_process_may_post(page->ucontext->process))
			return -EPERM;
		vm_flags_set(vma, VM_DONTCOPY);
	}
	return rdma_user_mmap_io(ibucontext, vma, PFN_DOWN(address),
				 qrnic_db_page_bytes(page),
				 pgprot_writecombine(vma->vm_page_prot), &map->entry);
}

int qrnic_ib_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma)
{
	struct rdma_user_mmap_entry *entry;
	struct qrnic_ib_map *map;
	int err;

	entry = rdma_user_mmap_entry_get(ibucontext, vma);
	if (!entry)
		return -EINVAL;

	map = container_of(entry, struct qrnic_ib_map, entry);
	if (map->kind == QRNIC_MAP_DEVICE_MEMORY)
		err = qrnic_dm_mmap(ibucontext, vma, map);
	else
		err = qrnic_db_page_mmap(ibucontext, vma, map);
	rdma_user_mmap_entry_put(entry);
	return err;
}

static void qrnic_db_page_mmap_free(struct qrnic_ib_map *map)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(map->entry.ucontext->device);
	struct qrnic_ib_db_page *page =
		container_of(map, struct qrnic_ib_db_page, map);

	qrnic_db_page_unused(dev, page);
}

void qrnic_ib_mmap_free(struct rdma_user_mmap_entry *entry)
{
	struct qrnic_ib_map *map = container_of(entry, struct qrnic_ib_map, entry);

	if (map->kind == QRNIC_MAP_DEVICE_MEMORY)
		qrnic_dm_mmap_free(map);
	else
		qrnic_db_page_mmap_free(map);
}
