// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * sparse.c: translation tables that contain only the page lists in use (manual,
 * Paging on demand). The caller is ib/odp_map.c; qrnic_core.h documents the
 * functions, their order and their locks.
 *
 * The lists form a tree of up to 4 levels, which the device reads at any time.
 * Each list counts its entries (present) and its users. A list without both is
 * moved to table->empty, and qrnic_sparse_unlink() removes it from the tree
 * later.
 */
#include "core/core.h"

/* log2 of the entries of a page list, and the maximum number of levels */
#define QRNIC_LIST_BITS 9
#define QRNIC_SPARSE_LEVELS 4

bool qrnic_sparse_charge(struct qrnic_sparse_budget *budget, int lists)
{
	int used = atomic_read(&budget->used);

	/*
	 * The budget is never exceeded, not even for a moment, because
	 * otherwise a large charge that fails would make smaller ones fail,
	 * too.
	 */
	do {
		if (lists > budget->limit - used)
			return false;
	} while (!atomic_try_cmpxchg(&budget->used, &used, used + lists));
	return true;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_charge);

void qrnic_sparse_uncharge(struct qrnic_sparse_budget *budget, int lists)
{
	atomic_sub(lists, &budget->used);
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_uncharge);

/*
 * Allocates a page list, with an array for lower lists if upper is true.
 * Returns NULL if the memory or the budget does not suffice.
 */
static struct qrnic_sparse_list *
qrnic_sparse_list_new(struct qrnic_dev *dev, struct qrnic_sparse_budget *budget,
		      bool upper)
{
	struct qrnic_sparse_list *list;

	if (!qrnic_sparse_charge(budget, 1))
		return NULL;
	list = kzalloc(sizeof(*list), GFP_KERNEL_ACCOUNT);
	if (!list)
		goto err_charge;
	if (upper) {
		list->lower = kvcalloc(QRNIC_PAGE_LIST_ENTRIES,
				       sizeof(struct qrnic_sparse_list *),
				       GFP_KERNEL_ACCOUNT);
		if (!list->lower)
			goto err_free;
	}
	list->entries = dma_alloc_coherent(qrnic_dma_device(dev),
					   BIT(QRNIC_PAGE_LIST_SHIFT), &list->dma,
					   GFP_KERNEL_ACCOUNT);
	if (!list->entries)
		goto err_lower;
	INIT_LIST_HEAD(&list->link);
	return list;

err_lower:
	kvfree(list->lower);
err_free:
	kfree(list);
err_charge:
	qrnic_sparse_uncharge(budget, 1);
	return NULL;
}

static void qrnic_sparse_list_free(struct qrnic_dev *dev,
				   struct qrnic_sparse_budget *budget,
				   struct qrnic_sparse_list *list)
{
	dma_free_coherent(qrnic_dma_device(dev), BIT(QRNIC_PAGE_LIST_SHIFT),
			  list->entries, list->dma);
	kvfree(list->lower);
	kfree(list);
	qrnic_sparse_uncharge(budget, 1);
	cond_resched();
}

int qrnic_sparse_alloc(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
		       struct qrnic_sparse_budget *budget, u64 pages,
		       unsigned int page_shift, u32 offset)
{
	memset(table, 0, sizeof(*table));
	mutex_init(&table->mutex);
	spin_lock_init(&table->lock);
	INIT_LIST_HEAD(&table->empty);
	table->budget = budget;
	table->levels = 1;
	while (pages > 1ull << (QRNIC_LIST_BITS * table->levels)) {
		if (++table->levels > QRNIC_SPARSE_LEVELS)
			return -EINVAL;
	}
	table->root = qrnic_sparse_list_new(dev, budget, table->levels > 1);
	if (!table->root)
		return -ENOMEM;

	table->num_lists = 1;
	table->hw.root = cpu_to_le64(table->root->dma);
	table->hw.shape = qrnic_table_shape(table->levels, page_shift);
	table->hw.offset = cpu_to_le32(offset);
	return 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_alloc);

/* Returns the index of a page in a list at this height above the pages. */
static u32 qrnic_sparse_index(u64 page, unsigned int height)
{
	return page >> (QRNIC_LIST_BITS * height) & (QRNIC_PAGE_LIST_ENTRIES - 1);
}

/* Adds a lower list to a list. Called under the mutex. */
static void qrnic_sparse_link(struct qrnic_sparse_list *upper,
			      struct qrnic_sparse_list *lower, u32 index)
{
	lower->upper = upper;
	upper->present++;
	/*
	 * Pairs with the loads of qrnic_sparse_find(), so readers find an
	 * initialised list.
	 */
	smp_store_release(&upper->lower[index], lower);
	/* The list must be zero before the device can find it. */
	dma_wmb();
	WRITE_ONCE(upper->entries[index], cpu_to_le64(lower->dma | QRNIC_PAGE_PRESENT));
}

/*
 * Returns true if the list is empty, so that qrnic_sparse_unlink() can remove
 * it once it has no users. The root stays, because the context of the key has
 * its address. Called under the spinlock.
 */
static bool qrnic_sparse_is_empty(struct qrnic_sparse_table *table,
				  struct qrnic_sparse_list *list)
{
	if (list->present || list == table->root)
		return false;
	if (list_empty(&list->link))
		list_add_tail(&list->link, &table->empty);
	return true;
}

struct qrnic_sparse_list *qrnic_sparse_get(struct qrnic_dev *dev,
					   struct qrnic_sparse_table *table, u64 page)
{
	struct qrnic_sparse_list *list = table->root, *lower;
	unsigned int height;
	u32 i;

	lockdep_assert_held(&table->mutex);
	for (height = table->levels - 1; height; height--) {
		i = qrnic_sparse_index(page, height);
		lower = list->lower[i];
		if (!lower) {
			lower = qrnic_sparse_list_new(dev, table->budget, height > 1);
			if (!lower)
				goto err;
			lower->first = round_down(page, 1ull << QRNIC_LIST_BITS * height);
			table->num_lists++;
			qrnic_sparse_link(list, lower, i);
		}
		list = lower;
	}
	list->users++;
	return list;

err:
	/*
	 * An upper list that was allocated for this page only is freed as an
	 * empty list, so that a failure leaves nothing behind.
	 */
	spin_lock(&table->lock);
	qrnic_sparse_is_empty(table, list);
	spin_unlock(&table->lock);
	return NULL;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_get);

bool qrnic_sparse_put(struct qrnic_sparse_table *table, struct qrnic_sparse_list *list)
{
	bool empty = false;

	lockdep_assert_held(&table->mutex);
	if (--list->users)
		return false;
	spin_lock(&table->lock);
	empty = qrnic_sparse_is_empty(table, list);
	spin_unlock(&table->lock);
	return empty;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_put);

/*
 * Returns the list that has the entry of this page, or NULL. Called under RCU.
 */
static struct qrnic_sparse_list *qrnic_sparse_find(struct qrnic_sparse_table *table,
						   u64 page)
{
	struct qrnic_sparse_list *list = table->root;
	unsigned int height;

	for (height = table->levels - 1; list && height; height--) {
		/* Pairs with the store of qrnic_sparse_link(). */
		list = smp_load_acquire(&list->lower[qrnic_sparse_index(page, height)]);
	}
	return list;
}

bool qrnic_sparse_set(struct qrnic_sparse_table *table, u64 page, u64 entry,
		      bool *emptied)
{
	struct qrnic_sparse_list *list;
	__le64 *at, old = 0;

	rcu_read_lock();
	list = qrnic_sparse_find(table, page);
	/*
	 * A list without entries and users may be freed at any time, so it is
	 * not written.
	 */
	if (!list || (!entry && !list->present))
		goto unlock;
	at = &list->entries[qrnic_sparse_index(page, 0)];
	old = *at;
	WRITE_ONCE(*at, cpu_to_le64(entry));
	if (!old == !entry)
		goto unlock;
	if (entry) {
		list->present++;
	} else if (list->present > 1) {
		list->present--;
	} else {
		/*
		 * The lock is needed because qrnic_sparse_unlink() may remove
		 * the list as soon as present is 0.
		 */
		spin_lock(&table->lock);
		list->present = 0;
		*emptied |= qrnic_sparse_is_empty(table, list);
		spin_unlock(&table->lock);
	}
unlock:
	rcu_read_unlock();
	return old;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_set);

/* Returns the next list that has become empty and still is, or NULL. */
static struct qrnic_sparse_list *qrnic_sparse_next_empty(struct qrnic_sparse_table *table)
{
	struct qrnic_sparse_list *list, *found = NULL;

	spin_lock(&table->lock);
	while (!found && !list_empty(&table->empty)) {
		list = list_first_entry(&table->empty, struct qrnic_sparse_list, link);
		list_del_init(&list->link);
		if (!list->present && !list->users)
			found = list;
	}
	spin_unlock(&table->lock);
	return found;
}

/* Returns the index of the list in its upper list. */
static u32 qrnic_sparse_place(const struct qrnic_sparse_table *table,
			      const struct qrnic_sparse_list *list)
{
	const struct qrnic_sparse_list *above = list;
	unsigned int height = table->levels;

	for (; above->upper; above = above->upper)
		height--;
	return qrnic_sparse_index(list->first, height);
}

static void qrnic_sparse_unlink_one(struct qrnic_sparse_table *table,
				    struct qrnic_sparse_list *list,
				    struct list_head *unlinked)
{
	struct qrnic_sparse_list *upper = list->upper;
	u32 i = qrnic_sparse_place(table, list);

	WRITE_ONCE(upper->entries[i], 0);
	WRITE_ONCE(upper->lower[i], NULL);
	upper->present--;
	table->num_lists--;
	spin_lock(&table->lock);
	list_move_tail(&list->link, unlinked);
	spin_unlock(&table->lock);
}

void qrnic_sparse_unlink(struct qrnic_sparse_table *table, struct list_head *unlinked)
{
	struct qrnic_sparse_list *list, *upper;

	lockdep_assert_held(&table->mutex);
	while ((list = qrnic_sparse_next_empty(table))) {
		/*
		 * An upper list becomes empty with the removal of its last
		 * list, so it is removed, too.
		 */
		for (; list != table->root && !list->present; list = upper) {
			upper = list->upper;
			qrnic_sparse_unlink_one(table, list, unlinked);
		}
	}
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_unlink);

void qrnic_sparse_lists_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table,
			     struct list_head *unlinked)
{
	struct qrnic_sparse_list *list, *next;

	if (list_empty(unlinked))
		return;
	synchronize_rcu();
	list_for_each_entry_safe(list, next, unlinked, link)
		qrnic_sparse_list_free(dev, table->budget, list);
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_lists_free);

/*
 * Frees a list and all lists below it. The recursion is bounded by the number
 * of levels.
 */
static void qrnic_sparse_tree_free(struct qrnic_dev *dev,
				   struct qrnic_sparse_table *table,
				   struct qrnic_sparse_list *list)
{
	u32 i;

	for (i = 0; list->lower && i < QRNIC_PAGE_LIST_ENTRIES; i++) {
		if (list->lower[i])
			qrnic_sparse_tree_free(dev, table, list->lower[i]);
	}
	qrnic_sparse_list_free(dev, table->budget, list);
}

void qrnic_sparse_free(struct qrnic_dev *dev, struct qrnic_sparse_table *table)
{
	if (table->root)
		qrnic_sparse_tree_free(dev, table, table->root);
	table->root = NULL;
	table->num_lists = 0;
}
EXPORT_SYMBOL_QRNIC(qrnic_sparse_free);
