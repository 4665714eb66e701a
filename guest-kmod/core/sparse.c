// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * sparse.c: translation tables of which only those lists exist that are used
 * (manual, Paging on demand).
 */
#include "core/core.h"

#define QRNIC_LIST_BITS 9
#define QRNIC_SPARSE_LEVELS 4

static struct qrnic_sparse_list *qrnic_sparse_list_new(struct qrnic_dev *dev,
						       bool upper)
{
	struct qrnic_sparse_list *list = kzalloc(sizeof(*list), GFP_KERNEL);

	if (!list)
		return NULL;
	if (upper) {
		list->lower = kvcalloc(QRNIC_PAGE_LIST_ENTRIES,
				       sizeof(struct qrnic_sparse_list *), GFP_KERNEL);
		if (!list->lower)
			goto err_free;
	}
	list->entries = dma_alloc_coherent(qrnic_dma_device(dev),
					   BIT(QRNIC_PAGE_LIST_SHIFT), &list->dma,
					   GFP_KERNEL);
	if (!list->entries)
		goto err_lower;
	return list;

err_lower:
	kvfree(list->lower);
err_free:
	kfree(list);
	return NULL;
}

/* No deeper than a table has levels */
static void qrnic_sparse_list_free(struct qrnic_dev *dev,
				   struct qrnic_sparse_list *list)
{
	u32 i;

	for (i = 0; list->lower && i < QRNIC_PAGE_LIST_ENTRIES; i++) {
		if (list->lower[i])
			qrnic_sparse_list_free(dev, list->lower[i]);
	}
	dma_free_coherent(qrnic_dma_device(dev), BIT(QRNIC_PAGE_LIST_SHIFT),
			  list->entries, list->dma);
	kvfree(list->lower);
	kfree(list);
	cond_resched();
}

int qrnic_sparse_alloc(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
		       u64 pages, unsigned int page_shift, u32 offset)
{
	memset(table, 0, sizeof(*table));
	mutex_init(&table->mutex);
	table->levels = 1;
	while (pages > 1ull << (QRNIC_LIST_BITS * table->levels)) {
		if (++table->levels > QRNIC_SPARSE_LEVELS)
			return -EINVAL;
	}
	table->root = qrnic_sparse_list_new(dev, table->levels > 1);
	if (!table->root)
		return -ENOMEM;

	table->num_lists = 1;
	table->hw.root = cpu_to_le64(table->root->dma);
	table->hw.shape = qrnic_table_shape(table->levels, page_shift);
	table->hw.offset = cpu_to_le32(offset);
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_alloc);

static u32 qrnic_sparse_index(u64 page, unsigned int height)
{
	return page >> (QRNIC_LIST_BITS * height) & (QRNIC_PAGE_LIST_ENTRIES - 1);
}

/* Makes the lists that are missing on the way to the entry of this page. */
static int qrnic_sparse_make(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
			     u64 page)
{
	struct qrnic_sparse_list *list = table->root, *lower;
	unsigned int height;
	u32 i;

	lockdep_assert_held(&table->mutex);
	for (height = table->levels - 1; height; height--) {
		i = qrnic_sparse_index(page, height);
		lower = list->lower[i];
		if (!lower) {
			lower = qrnic_sparse_list_new(dev, height > 1);
			if (!lower)
				return -ENOMEM;
			table->num_lists++;
			/* Pairs with the loads of qrnic_sparse_set(). */
			smp_store_release(&list->lower[i], lower);
			/* The list is zero before the device can find it. */
			dma_wmb();
			WRITE_ONCE(list->entries[i],
				   cpu_to_le64(lower->dma | QRNIC_PAGE_PRESENT));
		}
		list = lower;
	}
	return 0;
}

int qrnic_sparse_reserve(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
			 u64 first, u64 count)
{
	u64 page = round_down(first, QRNIC_PAGE_LIST_ENTRIES), end = first + count;
	int err = 0;

	mutex_lock(&table->mutex);
	for (; !err && page < end; page += QRNIC_PAGE_LIST_ENTRIES)
		err = qrnic_sparse_make(dev, table, page);
	mutex_unlock(&table->mutex);
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_reserve);

bool qrnic_sparse_set(struct qrnic_sparse_table *table, u64 page, u64 entry)
{
	struct qrnic_sparse_list *list = table->root;
	unsigned int height;
	__le64 *at, old;

	for (height = table->levels - 1; list && height; height--) {
		/* Pairs with the store of qrnic_sparse_make(). */
		list = smp_load_acquire(&list->lower[qrnic_sparse_index(page,
									height)]);
	}
	if (!list)
		return false;
	at = &list->entries[qrnic_sparse_index(page, 0)];
	old = *at;
	WRITE_ONCE(*at, cpu_to_le64(entry));
	return old;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_set);

void qrnic_sparse_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table)
{
	if (table->root)
		qrnic_sparse_list_free(dev, table->root);
	table->root = NULL;
	table->num_lists = 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_free);
