// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * memory.c: translation tables, and rings with their doorbell records, in
 * coherent memory. qrnic_core.h documents the functions. The file has no state
 * of its own, so it needs no lock. The caller serialises calls for one table or
 * ring.
 */
#include <linux/dmapool.h>

#include "core/core.h"

/*
 * Size of a page list in bytes, and number of pages of a table with 2 and 3
 * levels
 */
#define QRNIC_PAGE_LIST_BYTES BIT(QRNIC_PAGE_LIST_SHIFT)
#define QRNIC_PAGES_LEVEL_2 ((u64)QRNIC_PAGE_LIST_ENTRIES * \
			     QRNIC_PAGE_LIST_ENTRIES)
#define QRNIC_PAGES_LEVEL_3 (QRNIC_PAGES_LEVEL_2 * QRNIC_PAGE_LIST_ENTRIES)

/*
 * Writes the addresses of the lists first to first + count - 1 into the entries
 * of list above and of the lists after it.
 */
static void qrnic_table_link(struct qrnic_table *table, u32 first, u32 count,
			     u32 above)
{
	struct qrnic_table_list *list;
	u32 i;

	for (i = 0; i < count; i++) {
		list = &table->lists[above + i / QRNIC_PAGE_LIST_ENTRIES];
		list->entries[i % QRNIC_PAGE_LIST_ENTRIES] =
			cpu_to_le64(table->lists[first + i].dma);
	}
}

int qrnic_table_alloc(struct qrnic_dev *dev, struct qrnic_table *table, u64 pages,
		      unsigned int page_shift, u32 offset)
{
	u32 leaves, middle = 0, levels, total, i;

	memset(table, 0, sizeof(*table));
	table->pages = pages;
	table->offset = offset;
	if (!pages || pages > QRNIC_PAGES_LEVEL_3)
		return -EINVAL;
	if (pages == 1)
		return 0;
	if (page_shift < QRNIC_PAGE_SHIFT_MIN || page_shift > QRNIC_PAGE_SHIFT_MAX)
		return -EINVAL;

	leaves = DIV_ROUND_UP_ULL(pages, QRNIC_PAGE_LIST_ENTRIES);
	total = leaves;
	levels = 1;
	if (leaves > 1) {
		middle = DIV_ROUND_UP(leaves, QRNIC_PAGE_LIST_ENTRIES);
		total += middle;
		levels = 2;
	}
	if (middle > 1) {
		total++;
		levels = 3;
	}

	table->lists = kvcalloc(total, sizeof(*table->lists), GFP_KERNEL);
	if (!table->lists)
		return -ENOMEM;
	for (i = 0; i < total; i++) {
		table->lists[i].entries =
			dma_alloc_coherent(qrnic_dma_device(dev),
					   QRNIC_PAGE_LIST_BYTES,
					   &table->lists[i].dma, GFP_KERNEL);
		if (!table->lists[i].entries) {
			qrnic_table_free(dev, table);
			return -ENOMEM;
		}
		table->num_lists++;
		cond_resched();
	}

	if (levels > 1)
		qrnic_table_link(table, 0, leaves, leaves);
	if (levels > 2)
		qrnic_table_link(table, leaves, middle, leaves + middle);
	table->hw.root = cpu_to_le64(table->lists[total - 1].dma);
	table->hw.shape = qrnic_table_shape(levels, page_shift);
	table->hw.offset = cpu_to_le32(offset);
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_table_alloc);

void qrnic_table_add(struct qrnic_table *table, dma_addr_t address)
{
	u64 n = table->added;

	if (WARN_ON_ONCE(n >= table->pages))
		return;
	table->added++;
	if (!table->lists) {
		table->hw.root = cpu_to_le64(address + table->offset);
		return;
	}
	table->lists[n / QRNIC_PAGE_LIST_ENTRIES]
		.entries[n % QRNIC_PAGE_LIST_ENTRIES] = cpu_to_le64(address);
}
EXPORT_SYMBOL_QRNIC(qrnic_table_add);

void qrnic_table_free(struct qrnic_dev *dev, struct qrnic_table *table)
{
	u32 i;

	for (i = 0; i < table->num_lists; i++) {
		dma_free_coherent(qrnic_dma_device(dev), QRNIC_PAGE_LIST_BYTES,
				  table->lists[i].entries, table->lists[i].dma);
		cond_resched();
	}
	kvfree(table->lists);
	table->lists = NULL;
	table->num_lists = 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_table_free);

/*
 * Allocates the chunks of a ring and adds them to its table. After an error the
 * caller frees the ring.
 */
static int qrnic_ring_chunks_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring,
				   u32 count)
{
	struct qrnic_ring_chunk *chunk;

	ring->chunks = kvcalloc(count, sizeof(*ring->chunks), GFP_KERNEL);
	if (!ring->chunks)
		return -ENOMEM;
	while (ring->num_chunks < count) {
		chunk = &ring->chunks[ring->num_chunks];
		chunk->buf = dma_alloc_coherent(qrnic_dma_device(dev),
						ring->chunk_bytes, &chunk->dma,
						GFP_KERNEL);
		if (!chunk->buf)
			return -ENOMEM;
		ring->num_chunks++;
		qrnic_table_add(&ring->table, chunk->dma);
	}
	return 0;
}

int qrnic_ring_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring, size_t bytes)
{
	u32 count = DIV_ROUND_UP(bytes, QRNIC_RING_CHUNK);
	int err;

	memset(ring, 0, sizeof(*ring));
	/*
	 * The size is rounded up to pages, so that a ring of any size is page
	 * aligned.
	 */
	ring->chunk_bytes = min_t(size_t, PAGE_ALIGN(bytes), QRNIC_RING_CHUNK);
	err = qrnic_table_alloc(dev, &ring->table, count, QRNIC_RING_CHUNK_SHIFT, 0);
	if (!err)
		err = qrnic_ring_chunks_alloc(dev, ring, count);
	if (err)
		qrnic_ring_free(dev, ring);
	else
		ring->hw = ring->table.hw;
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_ring_alloc);

int qrnic_queue_ring_alloc(struct qrnic_dev *dev, struct qrnic_ring *ring,
			   size_t bytes)
{
	int err = qrnic_ring_alloc(dev, ring, bytes);

	if (err)
		return err;
	ring->queue_record = dma_pool_zalloc(to_qrnic_core(dev)->records, GFP_KERNEL,
					     &ring->record_dma);
	if (!ring->queue_record) {
		qrnic_ring_free(dev, ring);
		return -ENOMEM;
	}
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_queue_ring_alloc);

void qrnic_ring_free(struct qrnic_dev *dev, struct qrnic_ring *ring)
{
	struct qrnic_ring_chunk *chunk;

	if (ring->queue_record)
		dma_pool_free(to_qrnic_core(dev)->records, ring->queue_record,
			      ring->record_dma);
	ring->queue_record = NULL;
	while (ring->num_chunks) {
		chunk = &ring->chunks[--ring->num_chunks];
		dma_free_coherent(qrnic_dma_device(dev), ring->chunk_bytes,
				  chunk->buf, chunk->dma);
		cond_resched();
	}
	kvfree(ring->chunks);
	ring->chunks = NULL;
	qrnic_table_free(dev, &ring->table);
}
EXPORT_SYMBOL_QRNIC(qrnic_ring_free);
