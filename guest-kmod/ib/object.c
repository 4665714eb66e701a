// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * object.c: tables that map numbers to QPs, SRQs, work queues and regions,
 * references to these objects, and the destruction of objects in the device.
 *
 * Completions and events find an object by its number and hold a reference
 * while they use it. To create an object, the owner creates it in the device,
 * and then calls qrnic_number_await() and qrnic_object_insert(). To destroy a
 * QP or an SRQ, the owner hides it and waits for its references. Then the owner
 * calls qrnic_number_retire(), and destroys the object in the device. At last
 * the owner removes completions and events of the object, and calls
 * qrnic_number_release().
 */
#include "qrnic_ib.h"

/*
 * Locks by number, for references and for the removal from a table. Pollers on
 * several processors do not wait for each other, unless the low bits of their
 * QP numbers are equal. Only the lock of the table is taken under these locks.
 */
#define OBJECT_LOCKS 64

static struct object_lock {
	/* Protects objects whose numbers have these low bits */
	spinlock_t lock;
} ____cacheline_aligned_in_smp object_locks[OBJECT_LOCKS] = {
	[0 ... OBJECT_LOCKS - 1] = { __SPIN_LOCK_UNLOCKED(object_locks) },
};

static spinlock_t *qrnic_object_lock(u32 number)
{
	return &object_locks[number % OBJECT_LOCKS].lock;
}

/* Initialises the references of an object. The table has the first one. */
void qrnic_object_init(struct qrnic_ib_object *object)
{
	refcount_set(&object->refs, 1);
	init_completion(&object->unused);
}

/*
 * Inserts the object into the table. GFP_NOIO is needed because the caller may
 * hold odp_mutex: memory reclaim could wait for the destruction of an object,
 * which takes odp_mutex. Returns 0 or a negative errno.
 */
int qrnic_object_insert(struct xarray *table, struct qrnic_ib_object *object,
			u32 number)
{
	return xa_insert_irq(table, number, object, GFP_NOIO);
}

/*
 * Returns the object of this number with a reference, or NULL. Called in any
 * context, because completions are polled in any context.
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

/*
 * Returns the object with the smallest number from *number on, with a
 * reference, and sets *number to it. Returns NULL if there is none.
 */
struct qrnic_ib_object *qrnic_object_get_from(struct xarray *table,
					      unsigned long *number)
{
	struct qrnic_ib_object *object;

	for (; xa_find(table, number, ULONG_MAX, XA_PRESENT); ++*number) {
		object = qrnic_object_get(table, *number);
		/* NULL, if the object was removed after xa_find() found it */
		if (object)
			return object;
	}
	return NULL;
}

/* Releases a reference. Any context. */
void qrnic_object_put(struct qrnic_ib_object *object)
{
	if (refcount_dec_and_test(&object->refs))
		complete(&object->unused);
}

/*
 * Removes the object of this number from the table, so that no new reference is
 * possible.
 */
void qrnic_object_hide(struct xarray *table, u32 number)
{
	/*
	 * The lock is needed, because qrnic_object_get() takes a reference
	 * between finding and returning the object.
	 */
	spin_lock_irq(qrnic_object_lock(number));
	xa_erase(table, number);
	spin_unlock_irq(qrnic_object_lock(number));
}

/* Waits until all references to a hidden object are released. Sleeps. */
void qrnic_object_wait(struct qrnic_ib_object *object)
{
	qrnic_object_put(object);
	wait_for_completion(&object->unused);
}

/* Hides the object, and waits until all references are released. Sleeps. */
void qrnic_object_remove(struct xarray *table, struct qrnic_ib_object *object,
			 u32 number)
{
	qrnic_object_hide(table, number);
	qrnic_object_wait(object);
}

/*
 * Reserves the number of a QP or an SRQ before the device destroys the object.
 * Afterwards the device may assign the number to a new object, while
 * completions and events still refer to the old one. The caller cleans and
 * flushes these, and then calls qrnic_number_release(). The creation of an
 * object waits for that call if the device has assigned this number. Neither
 * creation nor destruction waits for the events of other objects.
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

/* Ends the reservation of a number. */
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
 * Sleeps until no completion or event of the last owner of the number is left.
 * Users call this function after the device has created an object, and before
 * the object can be found.
 */
void qrnic_number_await(struct qrnic_ib_dev *dev, const struct xarray *table,
			u32 number)
{
	wait_event(dev->number_released, !qrnic_number_is_retired(dev, table, number));
}

/*
 * Handles a failed destruction. The destruction of an object of verbs must not
 * fail, because its user is gone. So the device is reset, which destroys the
 * object before its memory is freed.
 */
void qrnic_destroy_failed(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
			  u32 number, int err)
{
	ibdev_err(&dev->ibdev, "object %u cannot be destroyed: command 0x%x, error %d\n",
		  number, opcode, err);
	qrnic_report_fatal(dev->qdev, "object cannot be destroyed");
}

/* Makes the device destroy an object, and resets the device if that fails. */
void qrnic_destroy(struct qrnic_ib_dev *dev, enum qrnic_cmd_opcode opcode,
		   u32 number)
{
	int err = qrnic_cmd_destroy(dev->qdev, opcode, number);

	if (err)
		qrnic_destroy_failed(dev, opcode, number, err);
}

/*
 * Creates a QP or a key. Returns -EIO if its number has more than 24 bits,
 * because the device is not trusted.
 */
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
