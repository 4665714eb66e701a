// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * device_memory.c: memory of the device for processes, which map it (manual,
 * Device memory). Regions of device memory are in mr.c. The memory is freed
 * when the object is destroyed and its last mapping has ended.
 */
#include "memory.h"
#include "qrnic_ib.h"
#include "verbs.h"

/*
 * Returns true if the memory is within the BAR. This is checked because the
 * device is not trusted, and addresses behind the BAR belong to other devices.
 */
static bool qrnic_dm_in_bar(const struct qrnic_dev *qdev, u64 offset, u64 length)
{
	return IS_ALIGNED(offset, PAGE_SIZE) && length <= qdev->dm_bytes &&
	       offset <= qdev->dm_bytes - length;
}

struct ib_dm *qrnic_ib_alloc_dm(struct ib_device *ibdev,
				struct ib_ucontext *ibucontext,
				struct ib_dm_alloc_attr *attr,
				struct uverbs_attr_bundle *attrs)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibdev);
	struct qrnic_dm_ctx context = {};
	u32 alignment = attr->alignment;
	u64 length = attr->length;
	struct qrnic_ib_dm *dm;
	int err;

	if (!qrnic_ib_cap(dev, QRNIC_CAP_DEVICE_MEMORY))
		return ERR_PTR(-EOPNOTSUPP);
	/*
	 * Longer memory is rejected, because the RDMA core stores the length in
	 * 32 bits.
	 */
	if (attr->length > U32_MAX || attr->alignment > U8_MAX)
		return ERR_PTR(-EINVAL);

	dm = kzalloc(sizeof(*dm), GFP_KERNEL);
	if (!dm)
		return ERR_PTR(-ENOMEM);

	/*
	 * Rounded up, because a page of the CPU can be mapped only as a whole,
	 * and must not contain memory of another object.
	 */
	if (PAGE_SIZE > QRNIC_DM_PAGE_SIZE) {
		length = PAGE_ALIGN(length);
		alignment = max_t(u32, alignment, PAGE_SHIFT);
	}
	context.length = cpu_to_le64(length);
	context.log_alignment = alignment;
	err = qrnic_cmd_create(dev->qdev, QRNIC_CMD_ALLOC_DM, &context,
			       sizeof(context), &dm->number);
	if (err)
		goto err_free;
	err = qrnic_cmd_query(dev->qdev, QRNIC_CMD_QUERY_DM, dm->number,
			      &context, sizeof(context));
	if (err)
		goto err_device;

	dm->offset = le64_to_cpu(context.offset);
	err = -EIO;
	if (!qrnic_dm_in_bar(dev->qdev, dm->offset, PAGE_ALIGN(attr->length)))
		goto err_device;
	dm->map.kind = QRNIC_MAP_DEVICE_MEMORY;
	err = rdma_user_mmap_entry_insert(ibucontext, &dm->map.entry,
					  PAGE_ALIGN(attr->length));
	if (err)
		goto err_device;
	return &dm->ibdm;

err_device:
	qrnic_cmd_destroy(dev->qdev, QRNIC_CMD_FREE_DM, dm->number);
err_free:
	kfree(dm);
	return ERR_PTR(err);
}

/*
 * Destroys the object. The memory is freed in qrnic_dm_mmap_free(), after the
 * last mapping has ended.
 */
int qrnic_ib_dealloc_dm(struct ib_dm *ibdm, struct uverbs_attr_bundle *attrs)
{
	rdma_user_mmap_entry_remove(&to_qrnic_dm(ibdm)->map.entry);
	return 0;
}

/*
 * Maps the memory with write combining, which is allowed because it has no side
 * effects.
 */
int qrnic_dm_mmap(struct ib_ucontext *ibucontext, struct vm_area_struct *vma,
		  struct qrnic_ib_map *map)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(ibucontext->device);
	struct qrnic_ib_dm *dm = container_of(map, struct qrnic_ib_dm, map);

	return rdma_user_mmap_io(ibucontext, vma,
				 PFN_DOWN(dev->qdev->dm_phys + dm->offset),
				 map->entry.npages * PAGE_SIZE,
				 pgprot_writecombine(vma->vm_page_prot),
				 &map->entry);
}

void qrnic_dm_mmap_free(struct qrnic_ib_map *map)
{
	struct qrnic_ib_dev *dev = to_qrnic_dev(map->entry.ucontext->device);
	struct qrnic_ib_dm *dm = container_of(map, struct qrnic_ib_dm, map);

	qrnic_destroy(dev, QRNIC_CMD_FREE_DM, dm->number);
	kfree(dm);
}
