// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * recovery.c: brings the adapter up again after a fatal error, and takes it down and up
 * for a reset, a suspend or a PCI error that devlink, power management or the PCI core
 * controls.
 *
 * fatal.c and this file schedule recovery_work. Every recovery holds core->lock, and none
 * runs while recovery is disabled (may_recover), so a reset or a removal is not disturbed.
 * Each successful recovery is reported to devlink, whose health reporter makes the first
 * attempt after a failure.
 */
#include <net/devlink.h>

#include "core/core.h"

/* The time doubles after each recovery that fails, up to this. */
#define QRNIC_RECOVERY_INTERVAL_MAX (160 * HZ)
/* Time within which the PCI core must reset the device after a PCI error */
#define QRNIC_PCI_ERROR_PATIENCE (60 * HZ)
/* No recovery was made, because the user wants to order it. */
#define QRNIC_RECOVERY_MANUAL 1

/*
 * Restores the configuration space as it was in probe: a reset of the bus or of the
 * slot clears the BARs and the MSI-X state. Bus mastering stays off until the driver
 * has reset the device, which may not have been reset and may still know addresses of
 * memory that has other owners by now.
 */
int qrnic_config_restore(struct qrnic_core *core)
{
	struct pci_dev *pdev = core->dev.pdev;
	int err;

	if (!pci_device_is_present(pdev))
		return -ENODEV;
	err = pci_load_saved_state(pdev, core->saved_state);
	if (err)
		return err;
	pci_restore_state(pdev);
	return pci_save_state(pdev);
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

/* Attempts a recovery. Does nothing if the adapter is already up. */
int qrnic_recover(struct qrnic_core *core)
{
	int err;

	mutex_lock(&core->lock);
	err = qrnic_recover_locked(core);
	mutex_unlock(&core->lock);
	return err;
}

/*
 * Recovers the device on the order of a user. Fails with -EBUSY during a reset, a removal
 * or a PCI error. All three disable recovery before they take the lock, so the state that is
 * read under the lock stays, and the adapter does not come up behind qrnic_down().
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

/* Reports to devlink that the device works, after a recovery, a reload or a reset. */
static void qrnic_report_healthy(struct qrnic_core *core)
{
	devlink_health_reporter_state_update(core->reporter,
					     DEVLINK_HEALTH_REPORTER_STATE_HEALTHY);
}

/*
 * Attempts a recovery with the knowledge of devlink. The health reporter makes the first
 * attempt after a failure, and dumps the state before it. Later attempts are made here,
 * because the reporter makes none after one has failed. Returns QRNIC_RECOVERY_MANUAL if
 * the user has switched the recovery of the reporter off.
 */
static int qrnic_recovery_attempt(struct qrnic_core *core)
{
	struct devlink *devlink = priv_to_devlink(core);
	int err;

	/* A crash is reported once, and not at all if the device works again by now. */
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

static void qrnic_recovery_work(struct work_struct *work)
{
	struct qrnic_core *core = container_of(to_delayed_work(work),
					       struct qrnic_core, recovery_work);
	int err;

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

	spin_lock_irq(&core->fatal_lock);
	if (core->may_recover)
		mod_delayed_work(core->dev.wq, &core->recovery_work,
				 core->recovery_delay);
	spin_unlock_irq(&core->fatal_lock);
	core->recovery_delay = min(2 * core->recovery_delay,
				   QRNIC_RECOVERY_INTERVAL_MAX);
}

/*
 * Enables recovery. It runs at once if the device is in the fatal state, or if a part of
 * the adapter is not up.
 */
void qrnic_recovery_enable(struct qrnic_core *core)
{
	spin_lock_irq(&core->fatal_lock);
	core->may_recover = true;
	if (core->condition != QRNIC_GOOD || READ_ONCE(core->level) != QRNIC_UP)
		queue_delayed_work(core->dev.wq, &core->recovery_work, 0);
	spin_unlock_irq(&core->fatal_lock);
}

/* Disables recovery, as qrnic_recovery_disable(), but does not wait for its end. */
void qrnic_recovery_suspend(struct qrnic_core *core)
{
	/* Under the lock, so that nobody schedules recovery_work after this. */
	spin_lock_irq(&core->fatal_lock);
	core->may_recover = false;
	spin_unlock_irq(&core->fatal_lock);
	cancel_delayed_work(&core->recovery_work);
}

/* Disables recovery, and waits until a recovery that runs has ended. */
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
 * Brings the adapter up after qrnic_down(). If that fails, recovery tries again. Returns
 * 0 also if only RDMA is missing, which recovery tries to bring up again.
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
 * Waits for the PCI core, which has reported a PCI error and will report the reset of the
 * slot. If that report does not come in time, recovery resets the device.
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
