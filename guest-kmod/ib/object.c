// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * object.c: queue pairs and SRQs by the numbers that the device calls them by, and
 * the end of objects of any kind.
 */
#include "qrnic_ib.h"

/*
 * Locks by number, for references and for the removal from a table. Pollers on several
 * processors do not wait for each other if their completions are of different queue
 * pairs. The only lock that is taken under these locks is that of the table.
 */
#define OBJECT_LOCKS 64

static struct object_lock {
	spinlock_t lock; /* of objects whose number has these low bits */
} ____cacheline_aligned_in_smp object_locks[OBJECT_LOCKS] = {
	[0 ... OBJECT_LOCKS - 1] = { __SPIN_LOCK_UNLOCKED(object_locks) },
};

static spinlock_t *qrnic_object_lock(u32 number)
{
	return &object_locks[number % OBJECT_LOCKS].lock;
}

void qrnic_object_init(struct qrnic_ib_object *object)
{
	refcount_set(&object->refs, 1);
	init_completion(&object->unused);
}

/*
 * Inserts the object into the table. The caller may hold odp_mutex, so the allocation
 * must not wait for memory that the destruction of an object would free.
 */
int qrnic_object_insert(struct xarray *table, struct qrnic_ib_object *object,
			u32 number)
{
	return xa_insert_irq(table, number, object, GFP_NOIO);
}

/*
 * Takes a reference, which the caller puts. Any context: completions are polled in
 * any.
 */
struct qrnic_ib_object *qrnic_object_get(struct xarray *table, u32 number)
{
	struct qrnic_ib_object *object;
	unsigned long flags;

	spin_lock_irqsave(qrnic_object_lock(number), flags);
	object = xa_load(table, number);
	if (object)
		refcount_inc(&object->refs);
	spin_unlock_irqrestore(qrnic_object_lock(number), flags);
	return object;
}

/* Finds the object with the least number from *number on, and sets *number to it. */
struct qrnic_ib_object *qrnic_object_get_from(struct xarray *table,
					      unsigned long *number)
{
	struct qrnic_ib_object *object;

	for (; xa_find(table, number, ULONG_MAX, XA_PRESENT); ++*number) {
		object = qrnic_object_get(table, *number);
		/* The object may have been removed since xa_find(). */
		if (object)
			return object;
	}
	return NULL;
}

void qrnic_object_put(struct qrnic_ib_object *object)
{
	if (refcount_dec_and_test(&object->refs))
		complete(&object->unused);
}

/* Removes the object of this number from the table. */
void qrnic_object_hide(struct xarray *table, u32 number)
{
	/*
	 * Under the lock, because whoever finds the object takes a reference
	 * to it.
	 */
	spin_lock_irq(qrnic_object_lock(number));
	xa_erase(table, number);
	spin_unlock_irq(qrnic_object_lock(number));
}

/* Waits until all references to an object are put. The object is hidden. */
void qrnic_object_wait(struct qrnic_ib_object *object)
{
	qrnic_object_put(object);
	wait_for_completion(&object->unused);
}

/* Both */
void qrnic_object_remove(struct xarray *table, struct qrnic_ib_object *object,
			 u32 number)
{
	qrnic_object_hide(table, number);
	qrnic_object_wait(object);
}

/*
 * Reserves the number of a QP or an SRQ before the device destroys the object.
 * The device may then assign the number to a new object, while completions and
 * events still mean the old one. The caller cleans and flushes these, and then
 * calls qrnic_number_release(). The creation of an object waits for that call,
 * if the device has assigned this number. Neither creation nor destruction
 * waits for the events of other objects.
 */
void qrnic_number_retire(struct qrnic_ib_dev *dev, struct qrnic_ib_number *retired,
			 const struct xarray *table, u32 number)
{
	retired->table = table;
	retired->number = number;
	spin_lock(&dev->numbers_lock);
	list_add(&retired->entry, &dev->retired_numbers);
	spin_unlock(&dev->numbers_lock);
}

void qrnic_number_release(struct qrnic_ib_dev *dev, struct qrnic_ib_number *retired)
{
	spin_lock(&dev->numbers_lock);
	list_del(&retired->entry);
	spin_unlock(&dev->numbers_lock);
	wake_up_all(&dev->number_released);
}

static bool qrnic_number_is_retired(struct qrnic_ib_dev *dev,
				    const struct xarray *table, u32 number)
{
	const struct qrnic_ib_number *retired;
	bool found = false;

	spin_lock(&dev->numbers_lock);
	list_for_each_entry(retired, &dev->retired_numbers, entry)
		found |= retired->table == table && retired->number == number;
	spin_unlock(&dev->numbers_lock);
	return found;
}

/*
 * Sleeps until no completion or event of the number's last owner is left.
 * Called after the device has created an object, and before the object can be
 * found.
 */
void qrnic_number_await(struct qrnic_ib_dev *dev, const struct xarray *table,
			u32 number)
{
	wait_event(dev->number_released, !qrnic_number_is_retired(dev, table, number));
}

/*
 * Verbs objects are destroyed when their users cannot keep them any more, so destroy
 * must not fail. What the device does not let go, a reset takes from it before the
 * memory of the object is freed.
 */
void qrnic_destroy_failed(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
			  u32 number, int err)
{
	ibdev_err(&dev->ibdev, "object %u cannot be destroyed: command 0x%x, error %d\n",
		  number, opcode, err);
	qrnic_report_fatal(dev->qdev, "object cannot be destroyed");
}

void qrnic_destroy(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
		   u32 number)
{
	int err = qrnic_cmd_destroy(dev->qdev, opcode, number);

	if (err)
		qrnic_destroy_failed(dev, opcode, number, err);
}

/* Makes a QP or a key, whose numbers have 24 bits; the device need not be trusted. */
int qrnic_create_24_bits(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode create,
			 enum qrnic_cmd_opcode destroy, const void *context,
			 size_t size, u32 *number)
{
	int err = qrnic_cmd_create(dev->qdev, create, context, size, number);

	if (err || *number <= QRNIC_24_BITS)
		return err;
	qrnic_destroy(dev, destroy, *number);
	return -EIO;
}
