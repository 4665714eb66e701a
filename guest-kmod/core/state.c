// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * state.c: starts and stops the adapter: the device, the Ethernet function, and
 * the auxiliary device by which the RDMA driver finds the adapter.
 *
 * The order of a start is reset, command ring, limits, context memory, event
 * queues, port; then the function; then the auxiliary device. A stop has the
 * reverse order. probe calls qrnic_bring_up() once, and remove calls
 * qrnic_take_down(). In between recovery.c and devlink.c call qrnic_suspend()
 * and qrnic_resume() in turns. core->level has the parts that are up; it
 * changes under core->lock.
 */
#include <linux/idr.h>
#include <linux/iopoll.h>

#include "core/core.h"

/* Poll interval and timeout of a reset, in microseconds */
#define QRNIC_RESET_POLL_US 100
#define QRNIC_RESET_TIMEOUT_US (10 * USEC_PER_SEC)

/*
 * Reads the register STATUS into *status. Returns true if a reset has ended, or
 * if the device is gone; *status is all ones then. A disabled virtual function
 * is gone, too, although its registers may read as 0.
 */
static bool qrnic_reset_ended(struct qrnic_core *core, u32 *status)
{
	*status = qrnic_read(core, QRNIC_REG_STATUS);
	if (!*status && qrnic_config_absent(core))
		PCI_SET_ERROR_RESPONSE(status);
	return PCI_POSSIBLE_ERROR(*status) ||
	       (*status & (QRNIC_REG_STATUS_READY_MASK |
			   QRNIC_REG_STATUS_FATAL_MASK));
}

/*
 * Resets the device and waits until it is ready. All registers have their reset
 * value then. Returns 0, -ENODEV if the device does not respond, or -EIO if it
 * does not become ready. The function is not inlined, because a test makes it
 * fail by a kprobe.
 */
static noinline int qrnic_device_reset(struct qrnic_core *core)
{
	u32 status;
	bool ended;

	qrnic_write(core, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
	/*
	 * The timeout is long, because the device may have to clear much device
	 * memory.
	 */
	read_poll_timeout(qrnic_reset_ended, ended, ended, QRNIC_RESET_POLL_US,
			  QRNIC_RESET_TIMEOUT_US, false, core, &status);
	if (PCI_POSSIBLE_ERROR(status))
		return -ENODEV;
	if (!(status & QRNIC_REG_STATUS_READY_MASK) ||
	    (status & QRNIC_REG_STATUS_FATAL_MASK)) {
		dev_err(&core->dev.pdev->dev,
			"not ready after a reset: status 0x%x, health 0x%x\n",
			status, qrnic_read(core, QRNIC_REG_HEALTH));
		return -EIO;
	}
	return 0;
}

/*
 * Ends all DMA by a reset. If the reset fails, DMA is disabled in the
 * configuration space. Called before the driver frees memory that the device
 * uses.
 */
static void qrnic_quiesce(struct qrnic_core *core)
{
	if (qrnic_device_reset(core)) {
		dev_err(&core->dev.pdev->dev,
			"the reset failed, bus mastering is switched off\n");
		pci_clear_master(core->dev.pdev);
	}
}

/*
 * Starts the device. If it returns 0, the device executes commands and reports
 * events.
 */
static int qrnic_start(struct qrnic_core *core)
{
	int err;

	err = qrnic_device_reset(core);
	if (err)
		return err;
	/*
	 * DMA is enabled only after the reset, because until then the device
	 * may have addresses of freed memory.
	 */
	pci_set_master(core->dev.pdev);
	/*
	 * The device has completed a reset, so it is neither gone nor in the
	 * fatal state.
	 */
	spin_lock_irq(&core->fatal_lock);
	WRITE_ONCE(core->condition, QRNIC_GOOD);
	WRITE_ONCE(core->eqs_closed, false);
	spin_unlock_irq(&core->fatal_lock);

	qrnic_cmd_start(core);
	err = qrnic_cmd_query_device(&core->dev, &core->dev.caps);
	if (err)
		goto err_cmd;
	err = qrnic_caps_check(core);
	if (err)
		goto err_cmd;
	qrnic_contexts_start(core);
	err = qrnic_eqs_create(core);
	if (err)
		goto err_cmd;
	err = qrnic_port_update(core);
	if (err)
		goto err_eqs;
	qrnic_congestion_restore(core);
	qrnic_health_start(core);
	return 0;

err_eqs:
	qrnic_eqs_destroy(core);
err_cmd:
	qrnic_cmd_stop(core);
	qrnic_quiesce(core);
	qrnic_contexts_stop(core);
	return err;
}

/* Stops the device, and frees the memory that it used. */
static void qrnic_stop(struct qrnic_core *core)
{
	qrnic_health_stop(core);
	qrnic_eqs_destroy(core);
	qrnic_cmd_stop(core);
	if (READ_ONCE(core->condition) <= QRNIC_FATAL)
		qrnic_quiesce(core);
	qrnic_contexts_stop(core);
}

/* Numbers of the auxiliary devices of all adapters */
static DEFINE_IDA(qrnic_ida);

static void qrnic_auxdev_release(struct device *device)
{
	struct qrnic_auxdev *auxdev =
		container_of(device, struct qrnic_auxdev, adev.dev);

	ida_free(&qrnic_ida, auxdev->adev.id);
	kfree(auxdev);
}

/*
 * Adds the auxiliary device and sets core->auxdev. Returns 0 also if the device
 * supports no reliable connections, and so has no RDMA part.
 */
static int qrnic_auxdev_add(struct qrnic_core *core)
{
	struct qrnic_auxdev *auxdev;
	int id, err;

	if (!(core->dev.caps.capabilities & QRNIC_CAP_RC))
		return 0;

	auxdev = kzalloc(sizeof(*auxdev), GFP_KERNEL);
	if (!auxdev)
		return -ENOMEM;
	id = ida_alloc(&qrnic_ida, GFP_KERNEL);
	if (id < 0) {
		kfree(auxdev);
		return id;
	}

	auxdev->qdev = &core->dev;
	auxdev->adev.name = QRNIC_AUX_RDMA;
	auxdev->adev.id = id;
	auxdev->adev.dev.parent = &core->dev.pdev->dev;
	auxdev->adev.dev.release = qrnic_auxdev_release;
	err = auxiliary_device_init(&auxdev->adev);
	if (err) {
		ida_free(&qrnic_ida, id);
		kfree(auxdev);
		return err;
	}

	/*
	 * From here on qrnic_auxdev_release() frees the memory and the number,
	 * so the error path only drops the reference.
	 */
	err = auxiliary_device_add(&auxdev->adev);
	if (err) {
		auxiliary_device_uninit(&auxdev->adev);
		return err;
	}
	/*
	 * auxiliary_device_add() returns 0 even if the probe of a loaded driver
	 * has failed. The probe has returned by now, because the driver forces
	 * synchronous probing, even if the user requests another
	 * (driver_async_probe=, async_probe).
	 */
	err = auxdev->error;
	if (err) {
		auxiliary_device_delete(&auxdev->adev);
		auxiliary_device_uninit(&auxdev->adev);
		return err;
	}
	core->auxdev = auxdev;
	return 0;
}

static void qrnic_auxdev_del(struct qrnic_core *core)
{
	struct qrnic_auxdev *auxdev = core->auxdev;

	if (!auxdev)
		return;
	core->auxdev = NULL;
	auxiliary_device_delete(&auxdev->adev);
	auxiliary_device_uninit(&auxdev->adev);
}

/*
 * Tries to add the auxiliary device. Called under core->lock. On failure
 * Ethernet works without RDMA, and recovery tries again.
 */
static int qrnic_rdma_try(struct qrnic_core *core)
{
	int err = qrnic_auxdev_add(core);

	if (err)
		dev_err(&core->dev.pdev->dev, "no RDMA: error %d\n", err);
	else
		WRITE_ONCE(core->level, QRNIC_UP);
	return err;
}

/* Stops the whole adapter. Called under core->lock. */
void qrnic_suspend_locked(struct qrnic_core *core)
{
	if (core->level == QRNIC_DOWN)
		return;
	qrnic_auxdev_del(core);
	core->function->suspend(core);
	qrnic_stop(core);
	WRITE_ONCE(core->level, QRNIC_DOWN);
}

/*
 * Starts the parts of the adapter that are down. Called under core->lock, after
 * a successful qrnic_bring_up(). Returns 0 if all parts are up.
 */
int qrnic_resume_locked(struct qrnic_core *core)
{
	int err;

	if (core->level == QRNIC_DOWN) {
		err = qrnic_start(core);
		if (err)
			return err;
		err = core->function->resume(core);
		if (err) {
			qrnic_stop(core);
			return err;
		}
		WRITE_ONCE(core->level, QRNIC_UP_NO_RDMA);
	}
	return core->level == QRNIC_UP_NO_RDMA ? qrnic_rdma_try(core) : 0;
}

/*
 * Stops the adapter for a reset, a suspend or a reload. Sleeps; waits for users
 * of RDMA.
 */
void qrnic_suspend(struct qrnic_core *core)
{
	mutex_lock(&core->lock);
	qrnic_suspend_locked(core);
	mutex_unlock(&core->lock);
}

/* Starts the adapter after qrnic_suspend(). Returns 0 if all parts are up. */
int qrnic_resume(struct qrnic_core *core)
{
	int err;

	mutex_lock(&core->lock);
	err = qrnic_resume_locked(core);
	mutex_unlock(&core->lock);
	return err;
}

/*
 * Starts the adapter for the first time, and creates the function. Called from
 * probe. Returns 0 also if only the auxiliary device is missing.
 */
int qrnic_bring_up(struct qrnic_core *core)
{
	struct device *device = &core->dev.pdev->dev;
	int err;

	err = qrnic_start(core);
	if (err)
		return dev_err_probe(device, err, "the device does not start\n");
	err = core->function->create(core);
	if (err) {
		qrnic_stop(core);
		return dev_err_probe(device, err, "no Ethernet function\n");
	}

	mutex_lock(&core->lock);
	WRITE_ONCE(core->level, QRNIC_UP_NO_RDMA);
	qrnic_rdma_try(core);
	mutex_unlock(&core->lock);
	return 0;
}

/*
 * Stops the adapter for ever. Called from remove, with recovery disabled, so it
 * needs no lock.
 */
void qrnic_take_down(struct qrnic_core *core)
{
	qrnic_auxdev_del(core);
	core->function->destroy(core);
	if (core->level != QRNIC_DOWN)
		qrnic_stop(core);
}
