// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * udata.c: the memory of queues of user space as translation tables, and
 * requests of operations without driver data. The files that create queues call
 * these functions; a process may pass any address, so each one is checked.
 */
#include <linux/sizes.h>
#include <rdma/ib_umem.h>
#include <rdma/iter.h>

#include "memory.h"
#include "qrnic_ib.h"

/*
 * Returns 0 if the operation has no request for this driver, and clears the
 * response. Returns a negative errno if the request has other bytes than zeros.
 */
int qrnic_udata_none(struct ib_udata *udata)
{
	int err = ib_is_udata_in_empty(udata);

	return err ? err : qrnic_udata_no_response(udata);
}

/*
 * Maximum size of a buffer in addition to its rings, for records and alignment
 */
#define QUEUE_BUFFER_SLACK SZ_64K

/*
 * Pins the buffer of a user queue. The address is aligned to a basic block, so
 * that buffers of small queues can share a page. The size is limited, because
 * the buffer is pinned, and searched for the records. Returns the memory or an
 * ERR_PTR().
 */
struct ib_umem *qrnic_queue_umem_get(struct qrnic_ib_dev *dev, u64 address,
				     u64 length, u64 rings)
{
	if (!IS_ALIGNED(address, QRNIC_WQEBB_SIZE) || !length ||
	    length > rings + QUEUE_BUFFER_SLACK ||
	    address != (unsigned long)address || length != (size_t)length)
		return ERR_PTR(-EINVAL);

	return qrnic_umem_get(dev, address, length, IB_ACCESS_LOCAL_WRITE);
}

/*
 * Allocates a table of the smallest pages for a part of the buffer. The device
 * supports no offset in the first of several pages. If the part is within one
 * page, the device uses the address of a basic block. Returns 0 or a negative
 * errno.
 */
int qrnic_queue_table(struct qrnic_ib_dev *dev, struct qrnic_table *table,
		      struct ib_umem *umem, u64 offset, u64 length)
{
	const unsigned long page = BIT(QRNIC_PAGE_SHIFT_MIN);
	struct ib_block_iter iter;
	u64 start, first, last, i = 0;
	int err;

	if (!length || length > umem->length || offset > umem->length - length)
		return -EINVAL;
	/*
	 * Pages are counted from that of the first byte, because the page of
	 * the CPU may be larger.
	 */
	start = (umem->address & (page - 1)) + offset;
	first = start / page;
	last = (start + length - 1) / page;
	if (!IS_ALIGNED(start, page) &&
	    (first != last || !IS_ALIGNED(start, QRNIC_WQEBB_SIZE)))
		return -EINVAL;

	err = qrnic_table_alloc(dev->qdev, table, last - first + 1,
				QRNIC_PAGE_SHIFT_MIN, start % page);
	if (err)
		return err;

	rdma_umem_for_each_dma_block(umem, &iter, page) {
		if (i > last)
			break;
		if (i++ >= first)
			qrnic_table_add(table, rdma_block_iter_dma_address(&iter));
	}
	return 0;
}

/*
 * Sets *address to the bus address of a doorbell record, which is aligned and
 * so crosses no page. Returns 0 or -EINVAL.
 */
int qrnic_queue_record(struct ib_umem *umem, u32 offset, dma_addr_t *address)
{
	const unsigned long page = BIT(QRNIC_PAGE_SHIFT_MIN);
	u64 start = (umem->address & (page - 1)) + offset;
	struct ib_block_iter iter;
	u64 block = start / page;

	if (!IS_ALIGNED(offset, QRNIC_RECORD_SIZE) ||
	    (u64)offset + QRNIC_RECORD_SIZE > umem->length)
		return -EINVAL;

	rdma_umem_for_each_dma_block(umem, &iter, page) {
		if (block-- == 0) {
			*address = rdma_block_iter_dma_address(&iter) +
				   start % page;
			return 0;
		}
	}
	return -EINVAL;
}

/*
 * Pins the buffer of a queue that has one ring, at its start, and one record.
 * Also allocates the table of the ring, and finds the bus address of the
 * record. Returns the memory or an ERR_PTR(); after an error there is nothing
 * to free.
 */
struct ib_umem *qrnic_queue_get(struct qrnic_ib_dev *dev, u64 address, u64 length,
				u64 ring, u32 record_offset,
				struct qrnic_table *table, dma_addr_t *record)
{
	struct ib_umem *umem;
	int err;

	umem = qrnic_queue_umem_get(dev, address, length, ring);
	if (IS_ERR(umem))
		return umem;
	err = qrnic_queue_record(umem, record_offset, record);
	if (!err)
		err = qrnic_queue_table(dev, table, umem, 0, ring);
	if (err) {
		ib_umem_release(umem);
		return ERR_PTR(err);
	}
	return umem;
}
