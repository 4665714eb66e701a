// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * address_space.c: numbers of address spaces, by which the device knows that who
 * polls a queue pair has a region at its addresses (manual, Completion).
 */
#include <linux/sched/mm.h>

#include "qrnic_ib.h"

/* An address space stands for one mm while a region or a queue pair uses its number. */
struct address_space_entry {
	struct hlist_node node;		/* by mm */
	struct mm_struct *mm;
	u32 number;
	unsigned long users;
};

/*
 * The number of the caller's address space, to be put. A process has a new one
 * after exec, and what it made before keeps the old one.
 */
int qrnic_address_space_get(struct qrnic_ib_dev *dev, u32 *number)
{
	struct address_space_entry *entry;
	int err = 0;

	mutex_lock(&dev->address_space_mutex);
	hash_for_each_possible(dev->address_space_mms, entry, node,
			       (unsigned long)current->mm) {
		if (entry->mm == current->mm) {
			entry->users++;
			*number = entry->number;
			goto out;
		}
	}

	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry) {
		err = -ENOMEM;
		goto out;
	}
	entry->mm = current->mm;
	entry->users = 1;
	err = xa_alloc_cyclic(&dev->address_spaces, number, entry,
			      XA_LIMIT(1, U32_MAX), &dev->next_address_space,
			      GFP_KERNEL);
	if (err < 0) {
		kfree(entry);
		goto out;
	}
	/* The numbers may have wrapped around. */
	err = 0;
	entry->number = *number;
	hash_add(dev->address_space_mms, &entry->node, (unsigned long)entry->mm);
	/* Holds the mm_struct, so that no other gets its address. */
	mmgrab(entry->mm);
out:
	mutex_unlock(&dev->address_space_mutex);
	return err;
}

/* 0 is none. */
void qrnic_address_space_put(struct qrnic_ib_dev *dev, u32 number)
{
	struct address_space_entry *entry;

	if (!number)
		return;

	mutex_lock(&dev->address_space_mutex);
	entry = xa_load(&dev->address_spaces, number);
	if (!--entry->users) {
		xa_erase(&dev->address_spaces, number);
		hash_del(&entry->node);
		mmdrop(entry->mm);
		kfree(entry);
	}
	mutex_unlock(&dev->address_space_mutex);
}
