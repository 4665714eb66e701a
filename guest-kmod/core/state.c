// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * state.c: how far the adapter is up, what is wrong with the device, and every
 * transition of the two: up, down, into the fatal state and, by recovery, out of it.
 */
#include "core/core.h"

/* The least time between two recoveries of a device that fails again at once */
#define QRNIC_RECOVERY_INTERVAL (5 * HZ)
/* The time doubles after each recovery that fails, up to this. */
#define QRNIC_RECOVERY_INTERVAL_MAX (160 * HZ)
/* How long the driver waits for the PCI core to reset the device after a PCI error */
#define QRNIC_PCI_ERROR_PATIENCE (60 * HZ)

bool qrnic_healthy(struct qrnic_dev *dev)
{
	return READ_ONCE(to_qrnic_core(dev)->condition) == QRNIC_GOOD;
}
EXPORT_SYMBOL_QRNIC(qrnic_healthy);

static enum qrnic_condition qrnic_report_cause(struct qrnic_core *core,
					       const char *why)
{
	struct qrnic_crash *crash = &core->crash;

	crash->why = why;
	qrnic_crash_read(core, crash);
	core->crash_unreported = true;
	if (PCI_POSSIBLE_ERROR(crash->health)) {
		dev_err(&core->dev.pdev->dev, "%s; the device is gone\n", why);
		return QRNIC_GONE;
	}
	dev_err(&core->dev.pdev->dev,
		"%s; resetting the device (health: %s, queue %u)\n", why,
		qrnic_health_cause(crash->health), crash->info);
	return QRNIC_FATAL;
}

/*
 * The reset is done here and under a lock, whatever the context, so that when
 * anybody sees the fatal state or a command that failed for it, the device does
 * no DMA any more. All else is left to recovery_work.
 */
void qrnic_report_fatal(struct qrnic_dev *dev, const char *why)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	enum qrnic_condition condition;
	unsigned long flags, delay = 0;

	spin_lock_irqsave(&core->fatal_lock, flags);
	if (core->condition == QRNIC_GOOD) {
		condition = qrnic_report_cause(core, why);
		qrnic_write(core, QRNIC_REG_CONTROL,
			    QRNIC_REG_CONTROL_RESET_MASK);
		/* The read pushes the write to the device: reset is complete. */
		qrnic_read(core, QRNIC_REG_STATUS);
		/*
		 * The registers may be out of reach while the configuration space is
		 * not.
		 */
		pci_clear_master(core->dev.pdev);
		WRITE_ONCE(core->condition, condition);
		qrnic_cmd_abort(core);
		queue_work(core->dev.event_wq, &core->event_work);
		if (condition == QRNIC_GONE ||
		    time_before(jiffies, core->last_recovery +
				QRNIC_RECOVERY_INTERVAL))
			delay = QRNIC_RECOVERY_INTERVAL;
		if (core->may_recover)
			queue_delayed_work(core->dev.wq, &core->recovery_work,
					   delay);
	}
	spin_unlock_irqrestore(&core->fatal_lock, flags);
}
EXPORT_SYMBOL_QRNIC(qrnic_report_fatal);

/*
 * Ends all DMA, by a reset or, if that fails, by the bus. Called before the driver
 * frees memory that the device uses.
 */
static void qrnic_quiesce(struct qrnic_core *core)
{
	if (qrnic_device_reset(core)) {
		dev_err(&core->dev.pdev->dev,
			"the reset failed, bus mastering is switched off\n");
		pci_clear_master(core->dev.pdev);
	}
}

/* From reset to a device that takes commands and reports events. */
static int qrnic_start(struct qrnic_core *core)
{
	int err;

	err = qrnic_device_reset(core);
	if (err)
		return err;
	/* Not before the reset: until then the device has addresses of freed memory. */
	pci_set_master(core->dev.pdev);
	/*
	 * The device answers after a reset, so it is neither gone nor in the fatal
	 * state.
	 */
	spin_lock_irq(&core->fatal_lock);
	WRITE_ONCE(core->condition, QRNIC_GOOD);
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

static void qrnic_stop(struct qrnic_core *core)
{
	qrnic_health_stop(core);
	qrnic_eqs_destroy(core);
	qrnic_cmd_stop(core);
	if (READ_ONCE(core->condition) <= QRNIC_FATAL)
		qrnic_quiesce(core);
	qrnic_contexts_stop(core);
}

/* Called with the lock held. Ethernet works without RDMA; recovery tries again. */
static int qrnic_rdma_try(struct qrnic_core *core)
{
	int err = qrnic_auxdev_add(core);

	if (err)
		dev_err(&core->dev.pdev->dev, "no RDMA: error %d\n", err);
	else
		WRITE_ONCE(core->level, QRNIC_UP);
	return err;
}

/* All the way down, and up again; both are called with the lock held. */
static void qrnic_suspend_locked(struct qrnic_core *core)
{
	if (core->level == QRNIC_DOWN)
		return;
	qrnic_auxdev_del(core);
	core->function->suspend(core);
	qrnic_stop(core);
	WRITE_ONCE(core->level, QRNIC_DOWN);
}

static int qrnic_resume_locked(struct qrnic_core *core)
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

void qrnic_suspend(struct qrnic_core *core)
{
	mutex_lock(&core->lock);
	qrnic_suspend_locked(core);
	mutex_unlock(&core->lock);
}

int qrnic_resume(struct qrnic_core *core)
{
	int err;

	mutex_lock(&core->lock);
	err = qrnic_resume_locked(core);
	mutex_unlock(&core->lock);
	return err;
}

/* The first time up; later there is a function to resume. */
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

/* The end of the adapter; recovery is disabled before. */
void qrnic_take_down(struct qrnic_core *core)
{
	qrnic_auxdev_del(core);
	core->function->destroy(core);
	if (core->level != QRNIC_DOWN)
		qrnic_stop(core);
}

static int qrnic_recover_locked(struct qrnic_core *core)
{
	int err;

	/* All is well, but perhaps for the auxiliary device. */
	if (qrnic_healthy(&core->dev) && core->level != QRNIC_DOWN)
		return qrnic_resume_locked(core);

	qrnic_suspend_locked(core);
	if (READ_ONCE(core->condition) > QRNIC_FATAL ||
	    core->recovery_delay > QRNIC_RECOVERY_INTERVAL) {
		err = qrnic_config_restore(core);
		if (err)
			return err;
	}
	return qrnic_resume_locked(core);
}

int qrnic_recover(struct qrnic_core *core)
{
	int err;

	mutex_lock(&core->lock);
	err = qrnic_recover_locked(core);
	mutex_unlock(&core->lock);
	return err;
}

/*
 * The user has ordered the recovery. It is refused while a reset, a removal or a PCI
 * error is under way. Those disable recovery before they take the lock, so what is
 * found under it holds, and the adapter does not come up behind qrnic_down().
 */
int qrnic_recover_ordered(struct qrnic_core *core)
{
	bool allowed;
	int err;

	mutex_lock(&core->lock);
	spin_lock_irq(&core->fatal_lock);
	allowed = core->may_recover && core->condition != QRNIC_PCI_ERROR;
	spin_unlock_irq(&core->fatal_lock);
	err = allowed ? qrnic_recover_locked(core) : -EBUSY;
	mutex_unlock(&core->lock);
	return err;
}

static void qrnic_recovery_work(struct work_struct *work)
{
	struct qrnic_core *core = container_of(to_delayed_work(work),
					       struct qrnic_core, recovery_work);
	int err;

	core->last_recovery = jiffies;
	err = qrnic_devlink_recover(core);
	if (err == QRNIC_RECOVERY_MANUAL) {
		dev_info(&core->dev.pdev->dev,
			 "recovery is left to \"devlink health recover\"\n");
		return;
	}
	if (!err) {
		core->recovery_delay = QRNIC_RECOVERY_INTERVAL;
		dev_info(&core->dev.pdev->dev, "recovered\n");
		return;
	}
	dev_err(&core->dev.pdev->dev, "recovery failed: %d\n", err);

	spin_lock_irq(&core->fatal_lock);
	if (core->may_recover)
		mod_delayed_work(core->dev.wq, &core->recovery_work,
				 core->recovery_delay);
	spin_unlock_irq(&core->fatal_lock);
	core->recovery_delay = min(2 * core->recovery_delay,
				   QRNIC_RECOVERY_INTERVAL_MAX);
}

/*
 * A fatal error met before is recovered from now, and so is a device that did
 * not come up again as a whole.
 */
void qrnic_recovery_enable(struct qrnic_core *core)
{
	spin_lock_irq(&core->fatal_lock);
	core->may_recover = true;
	if (core->condition != QRNIC_GOOD || READ_ONCE(core->level) != QRNIC_UP)
		queue_delayed_work(core->dev.wq, &core->recovery_work, 0);
	spin_unlock_irq(&core->fatal_lock);
}

void qrnic_recovery_suspend(struct qrnic_core *core)
{
	/* Under the lock, so that nobody schedules recovery_work after this. */
	spin_lock_irq(&core->fatal_lock);
	core->may_recover = false;
	spin_unlock_irq(&core->fatal_lock);
	cancel_delayed_work(&core->recovery_work);
}

void qrnic_recovery_disable(struct qrnic_core *core)
{
	qrnic_recovery_suspend(core);
	cancel_delayed_work_sync(&core->recovery_work);
}

/*
 * Takes the adapter down for a reset or a suspend. Recovery is disabled, so that it
 * does not bring the adapter up meanwhile.
 */
void qrnic_down(struct qrnic_core *core)
{
	qrnic_recovery_disable(core);
	qrnic_suspend(core);
}

/*
 * Brings the adapter up after qrnic_down(). If that fails, recovery tries again. It
 * is a success also without RDMA, for which recovery tries again, too.
 */
int qrnic_up(struct qrnic_core *core)
{
	int err = qrnic_resume(core);

	if (!err)
		qrnic_devlink_healthy(core);
	if (READ_ONCE(core->level) != QRNIC_DOWN)
		err = 0;
	qrnic_recovery_enable(core);
	return err;
}

/*
 * The PCI core has reported that the device is out of reach, and will report when the
 * device is reset. If that report does not come, recovery resets the device.
 */
void qrnic_await_pci(struct qrnic_core *core)
{
	spin_lock_irq(&core->fatal_lock);
	WRITE_ONCE(core->condition, QRNIC_PCI_ERROR);
	core->may_recover = true;
	queue_delayed_work(core->dev.wq, &core->recovery_work,
			   QRNIC_PCI_ERROR_PATIENCE);
	spin_unlock_irq(&core->fatal_lock);
}

void qrnic_state_init(struct qrnic_core *core)
{
	mutex_init(&core->lock);
	spin_lock_init(&core->fatal_lock);
	core->last_recovery = jiffies - QRNIC_RECOVERY_INTERVAL;
	core->recovery_delay = QRNIC_RECOVERY_INTERVAL;
	INIT_DELAYED_WORK(&core->recovery_work, qrnic_recovery_work);
}
