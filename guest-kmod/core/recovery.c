// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * recovery.c: starts the adapter again after a fatal error. The file also stops
 * and starts the adapter around a reset, a suspend or a PCI error that other
 * parts of the kernel control.
 *
 * fatal.c and this file schedule recovery_work. Every recovery holds
 * core->lock. No recovery runs while may_recover is false, so none disturbs a
 * reset or a removal. Each successful recovery is reported to devlink, whose
 * health reporter makes the first attempt after a failure. Every recovery also
 * holds the lock of the devlink instance, which prevents a reload.
 */
#include <net/devlink.h>

#include "core/core.h"

/*
 * Upper bound of the time between attempts; the time doubles after each failed
 * recovery
 */
#define QRNIC_RECOVERY_INTERVAL_MAX (160 * HZ)
/* Time within which the PCI core must reset the slot after a PCI error */
#define QRNIC_PCI_ERROR_PATIENCE (60 * HZ)
/*
 * Result of an attempt: no recovery was made, because the administrator has
 * disabled automatic recovery
 */
#define QRNIC_RECOVERY_MANUAL 1

/*
 * Restores the configuration space from probe, because a reset of the bus or
 * the slot clears the BARs and the MSI-X state. Bus mastering stays off until
 * the driver has reset the device. The device may not have been reset yet, and
 * may still know addresses of memory that has other owners by now. Returns 0 or
 * a negative errno; -EBUSY while the number of virtual functions changes, which
 * may last long.
 */
int qrnic_config_restore(struct qrnic_core *core)
{
	struct pci_dev *pdev = core->dev.pdev;
	int err;

	if (qrnic_config_absent(core))
		return -ENODEV;
	if (!mutex_trylock(&core->sriov_lock))
		return -EBUSY;
	err = pci_load_saved_state(pdev, core->saved_state);
	if (!err) {
		pci_restore_state(pdev);
		err = pci_save_state(pdev);
	}
	mutex_unlock(&core->sriov_lock);
	return err;
}

/*
 * Recovers the adapter. Called under core->lock. Returns 0 if all parts are up.
 */
static int qrnic_recover_locked(struct qrnic_core *core)
{
	int err;

	/*
	 * The device works, so no reset is needed. Only the auxiliary device
	 * may be missing.
	 */
	if (qrnic_healthy(&core->dev) && core->level != QRNIC_DOWN)
		return qrnic_resume_locked(core);

	qrnic_suspend_locked(core);
	if (READ_ONCE(core->condition) > QRNIC_FATAL ||
	    core->recovery_delay > QRNIC_RECOVERY_INTERVAL) {
		err = qrnic_config_restore(core);
		/*
		 * In the condition QRNIC_FATAL the restore is a precaution,
		 * because earlier attempts have failed. The recovery must not
		 * wait for a change of the number of virtual functions then.
		 */
		if (err && (err != -EBUSY ||
			    READ_ONCE(core->condition) > QRNIC_FATAL))
			return err;
	}
	return qrnic_resume_locked(core);
}

/* Attempts a recovery. Returns 0 at once if all parts are up already. */
int qrnic_recover(struct qrnic_core *core)
{
	int err;

	mutex_lock(&core->lock);
	err = qrnic_recover_locked(core);
	mutex_unlock(&core->lock);
	return err;
}

/*
 * Recovers the adapter on request of a user. Returns -EBUSY during a reset, a
 * removal or a PCI error. All three disable recovery before they take
 * core->lock. So the state that is read under the lock stays, and the adapter
 * is not started after qrnic_down().
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

/*
 * Reports to devlink that the device works, after a recovery, a reload or a
 * reset.
 */
static void qrnic_report_healthy(struct qrnic_core *core)
{
	devlink_health_reporter_state_update(core->reporter,
					     DEVLINK_HEALTH_REPORTER_STATE_HEALTHY);
}

/*
 * Attempts a recovery that devlink knows of. The health reporter makes the
 * first attempt after a failure, and makes a dump before it. This function
 * makes the later attempts, because the reporter makes none after a failed one.
 * Returns QRNIC_RECOVERY_MANUAL if the administrator has disabled the recovery
 * of the reporter.
 */
static int qrnic_recovery_attempt(struct qrnic_core *core)
{
	struct devlink *devlink = priv_to_devlink(core);
	int err;

	/*
	 * A crash is reported only once, and only if the device still is in the
	 * fatal state, because a recovery may have come first.
	 */
	if (xchg(&core->crash_unreported, false) &&
	    !qrnic_healthy(&core->dev)) {
		err = devlink_health_report(core->reporter, core->crash.why, core);
		if (err != -ECANCELED)
			return err || qrnic_healthy(&core->dev) ?
			       err : QRNIC_RECOVERY_MANUAL;
	}
	devl_lock(devlink);
	err = qrnic_recover(core);
	if (!err)
		qrnic_report_healthy(core);
	devl_unlock(devlink);
	return err;
}

/*
 * Schedules the next attempt after a failed one, after recovery_delay. The
 * change of the number of virtual functions that blocked the attempt may have
 * ended by now, before the attempt has failed. Then the next attempt follows at
 * once, because qrnic_recovery_hasten() has found no pending attempt.
 */
static void qrnic_recovery_retry(struct qrnic_core *core, int err)
{
	unsigned long delay = core->recovery_delay;

	spin_lock_irq(&core->fatal_lock);
	core->recovery_blocked = err == -EBUSY;
	if (core->recovery_blocked && core->sriov_changed)
		delay = 0;
	if (core->may_recover)
		mod_delayed_work(core->dev.wq, &core->recovery_work, delay);
	spin_unlock_irq(&core->fatal_lock);
	core->recovery_delay = min(2 * core->recovery_delay,
				   QRNIC_RECOVERY_INTERVAL_MAX);
}

/* Attempts a recovery, and schedules the next attempt after a failure. */
static void qrnic_recovery_work(struct work_struct *work)
{
	struct qrnic_core *core = container_of(to_delayed_work(work),
					       struct qrnic_core, recovery_work);
	int err;

	spin_lock_irq(&core->fatal_lock);
	core->recovery_blocked = false;
	core->sriov_changed = false;
	spin_unlock_irq(&core->fatal_lock);

	core->last_recovery = jiffies;
	err = qrnic_recovery_attempt(core);
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
	qrnic_recovery_retry(core, err);
}

/*
 * Enables recovery. Recovery runs at once if the device is in the fatal state,
 * or if a part of the adapter is down.
 */
void qrnic_recovery_enable(struct qrnic_core *core)
{
	spin_lock_irq(&core->fatal_lock);
	core->may_recover = true;
	if (core->condition != QRNIC_GOOD || READ_ONCE(core->level) != QRNIC_UP)
		queue_delayed_work(core->dev.wq, &core->recovery_work, 0);
	spin_unlock_irq(&core->fatal_lock);
}

/*
 * Makes the next attempt at once if the last one failed with -EBUSY. Called
 * when a change of the number of virtual functions has ended, because until
 * then recoveries fail with -EBUSY. If a recovery runs now, it finds
 * sriov_changed. An attempt after a PCI error still waits for the PCI core, and
 * an attempt after another error for its time.
 */
void qrnic_recovery_hasten(struct qrnic_core *core)
{
	spin_lock_irq(&core->fatal_lock);
	core->sriov_changed = true;
	if (core->recovery_blocked && core->may_recover &&
	    core->condition != QRNIC_PCI_ERROR &&
	    delayed_work_pending(&core->recovery_work))
		mod_delayed_work(core->dev.wq, &core->recovery_work, 0);
	spin_unlock_irq(&core->fatal_lock);
}

/*
 * Disables recovery as qrnic_recovery_disable(), but returns while a recovery
 * may still run.
 */
void qrnic_recovery_suspend(struct qrnic_core *core)
{
	/*
	 * The lock is held, so that no other context schedules recovery_work
	 * afterwards.
	 */
	spin_lock_irq(&core->fatal_lock);
	core->may_recover = false;
	spin_unlock_irq(&core->fatal_lock);
	cancel_delayed_work(&core->recovery_work);
}

/* Disables recovery, and waits until a running recovery has ended. */
void qrnic_recovery_disable(struct qrnic_core *core)
{
	qrnic_recovery_suspend(core);
	cancel_delayed_work_sync(&core->recovery_work);
}

/*
 * Stops the adapter for a reset or a suspend. Recovery is disabled first, so
 * that it does not start the adapter meanwhile.
 */
void qrnic_down(struct qrnic_core *core)
{
	qrnic_recovery_disable(core);
	qrnic_suspend(core);
}

/*
 * Starts the adapter after qrnic_down(), and enables recovery, which retries
 * after a failure. Returns 0 also if only the auxiliary device is missing.
 */
int qrnic_up(struct qrnic_core *core)
{
	int err = qrnic_resume(core);

	if (!err)
		qrnic_report_healthy(core);
	if (READ_ONCE(core->level) != QRNIC_DOWN)
		err = 0;
	qrnic_recovery_enable(core);
	return err;
}

/*
 * Waits for the PCI core, which has reported a PCI error and will report the
 * reset of the slot. If that report does not come in time, recovery resets the
 * device.
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

void qrnic_recovery_init(struct qrnic_core *core)
{
	core->last_recovery = jiffies - QRNIC_RECOVERY_INTERVAL;
	core->recovery_delay = QRNIC_RECOVERY_INTERVAL;
	INIT_DELAYED_WORK(&core->recovery_work, qrnic_recovery_work);
}
