// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * health.c: the fatal state and the way out of it, reset, PCI error recovery.
 */
#include <linux/iopoll.h>
#include "core/core.h"

/* Finds a fatal state whose event did not come; does not wake an idle processor. */
#define QRNIC_HEALTH_INTERVAL (2 * HZ)
/* Between two recoveries, so that a device that fails at once is no busy loop */
#define QRNIC_RECOVERY_INTERVAL (5 * HZ)
/* Twice as long after each one that failed, up to this */
#define QRNIC_RECOVERY_INTERVAL_MAX (160 * HZ)
/* How often to look for the end of a reset, and how long */
#define QRNIC_RESET_POLL_US 100
#define QRNIC_RESET_TIMEOUT_US (10 * USEC_PER_SEC)
/* After a PCI error, should the PCI core not lead the way */
#define QRNIC_PCI_ERROR_PATIENCE (60 * HZ)

static const char *const qrnic_health_causes[] = {
	[QRNIC_HEALTH_NONE] = "none",
	[QRNIC_HEALTH_CMD_DMA] = "DMA to the command queue failed",
	[QRNIC_HEALTH_EQ_DMA] = "DMA to an event queue failed",
	[QRNIC_HEALTH_EQ_OVERRUN] = "an event queue overran",
};

bool qrnic_healthy(struct qrnic_dev *dev)
{
	return !test_bit(QRNIC_STATE_FATAL, &to_qrnic_core(dev)->state);
}
EXPORT_SYMBOL_QRNIC(qrnic_healthy);

const char *qrnic_health_cause(u32 health)
{
	u32 cause = FIELD_GET(QRNIC_REG_HEALTH_CAUSE_MASK, health);

	if (PCI_POSSIBLE_ERROR(health))
		return "no answer";
	if (cause < ARRAY_SIZE(qrnic_health_causes))
		return qrnic_health_causes[cause];
	return "unknown";
}

void qrnic_crash_read(struct qrnic_core *core, struct qrnic_crash *crash)
{
	crash->status = qrnic_read(core, QRNIC_REG_STATUS);
	crash->health = qrnic_read(core, QRNIC_REG_HEALTH);
	crash->info = qrnic_read(core, QRNIC_REG_HEALTH_INFO);
}

static void qrnic_report_cause(struct qrnic_core *core, const char *why)
{
	struct qrnic_crash *crash = &core->crash;

	crash->why = why;
	qrnic_crash_read(core, crash);
	core->crash_unreported = true;
	if (PCI_POSSIBLE_ERROR(crash->health)) {
		dev_err(&core->dev.pdev->dev, "%s; the device is gone\n", why);
		set_bit(QRNIC_STATE_GONE, &core->state);
		return;
	}
	dev_err(&core->dev.pdev->dev,
		"%s; resetting the device (health: %s, queue %u)\n", why,
		qrnic_health_cause(crash->health), crash->info);
}

/*
 * The reset is done here and under a lock, whatever the context, so that when
 * anybody sees the fatal state or a command that failed for it, the device does
 * no DMA any more. All else is left to recovery_work.
 */
void qrnic_report_fatal(struct qrnic_dev *dev, const char *why)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	unsigned long flags, delay = 0;

	spin_lock_irqsave(&core->fatal_lock, flags);
	if (!test_bit(QRNIC_STATE_FATAL, &core->state)) {
		qrnic_report_cause(core, why);
		qrnic_write(core, QRNIC_REG_CONTROL,
			    QRNIC_REG_CONTROL_RESET_MASK);
		/* The read pushes the write to the device: reset is complete. */
		qrnic_read(core, QRNIC_REG_STATUS);
		/* Should its registers be out of reach, its configuration may not. */
		pci_clear_master(core->dev.pdev);
		set_bit(QRNIC_STATE_FATAL, &core->state);
		qrnic_cmd_abort(core);
		queue_work(core->dev.wq, &core->event_work);
		if (test_bit(QRNIC_STATE_GONE, &core->state) ||
		    time_before(jiffies, core->last_recovery +
				QRNIC_RECOVERY_INTERVAL))
			delay = QRNIC_RECOVERY_INTERVAL;
		if (!test_bit(QRNIC_STATE_NO_RECOVERY, &core->state))
			queue_delayed_work(system_unbound_wq, &core->recovery_work,
					   delay);
	}
	spin_unlock_irqrestore(&core->fatal_lock, flags);
}
EXPORT_SYMBOL_QRNIC(qrnic_report_fatal);

/*
 * Config space as in probe: whoever took the device out of reach, a reset of the
 * bus or of the slot, may have left it with neither addresses nor vectors. It must
 * do no DMA yet: it may not have heard of the reset, and knows memory that has
 * other owners by now.
 */
static int qrnic_config_restore(struct qrnic_core *core)
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

int qrnic_recover(struct qrnic_core *core)
{
	int err;

	if (qrnic_healthy(&core->dev) && READ_ONCE(core->up) &&
	    !READ_ONCE(core->auxdev_due))
		return 0;
	/* All is well but for the auxiliary device. */
	if (qrnic_healthy(&core->dev) && READ_ONCE(core->auxdev_due))
		return qrnic_resume(core);

	qrnic_suspend(core);
	if (test_bit(QRNIC_STATE_GONE, &core->state) ||
	    test_bit(QRNIC_STATE_PCI_ERROR, &core->state) ||
	    core->recovery_delay > QRNIC_RECOVERY_INTERVAL) {
		err = qrnic_config_restore(core);
		if (err)
			return err;
	}
	return qrnic_resume(core);
}

/*
 * Not on the driver's own workqueue, which gives memory back: this unregisters the
 * RDMA device, for which the RDMA core waits for workqueues of its own.
 */
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
	if (!test_bit(QRNIC_STATE_NO_RECOVERY, &core->state))
		mod_delayed_work(system_unbound_wq, &core->recovery_work,
				 core->recovery_delay);
	spin_unlock_irq(&core->fatal_lock);
	core->recovery_delay = min(2 * core->recovery_delay,
				   QRNIC_RECOVERY_INTERVAL_MAX);
}

/* While the command queue is in use */
void qrnic_health_check(struct qrnic_core *core)
{
	u32 status = qrnic_read(core, QRNIC_REG_STATUS);

	if (PCI_POSSIBLE_ERROR(status))
		qrnic_report_fatal(&core->dev, "no answer");
	else if (status & QRNIC_REG_STATUS_FATAL_MASK)
		qrnic_report_fatal(&core->dev, "fatal state");
	else if (!(status & QRNIC_REG_STATUS_CMD_ENABLED_MASK))
		qrnic_report_fatal(&core->dev, "the device was reset");
}

static void qrnic_health_work(struct work_struct *work)
{
	struct qrnic_core *core = container_of(to_delayed_work(work),
					       struct qrnic_core, health_work);

	qrnic_health_check(core);
	if (qrnic_healthy(&core->dev))
		qrnic_health_start(core);
}

void qrnic_health_init(struct qrnic_core *core)
{
	spin_lock_init(&core->fatal_lock);
	core->last_recovery = jiffies - QRNIC_RECOVERY_INTERVAL;
	core->recovery_delay = QRNIC_RECOVERY_INTERVAL;
	INIT_DELAYED_WORK(&core->recovery_work, qrnic_recovery_work);
	INIT_DEFERRABLE_WORK(&core->health_work, qrnic_health_work);
	/* Until probe is over, which unwinds by itself */
	set_bit(QRNIC_STATE_NO_RECOVERY, &core->state);
}

/*
 * A fatal error met before is recovered from now, and so is a device that did
 * not come up again as a whole.
 */
void qrnic_recovery_enable(struct qrnic_core *core)
{
	spin_lock_irq(&core->fatal_lock);
	clear_bit(QRNIC_STATE_NO_RECOVERY, &core->state);
	if (test_bit(QRNIC_STATE_FATAL, &core->state) || !READ_ONCE(core->up) ||
	    READ_ONCE(core->auxdev_due))
		queue_delayed_work(system_unbound_wq, &core->recovery_work, 0);
	spin_unlock_irq(&core->fatal_lock);
}

void qrnic_recovery_suspend(struct qrnic_core *core)
{
	/* The lock, so that nobody who saw the bit clear schedules after this. */
	spin_lock_irq(&core->fatal_lock);
	set_bit(QRNIC_STATE_NO_RECOVERY, &core->state);
	spin_unlock_irq(&core->fatal_lock);
	cancel_delayed_work(&core->recovery_work);
}

void qrnic_recovery_disable(struct qrnic_core *core)
{
	qrnic_recovery_suspend(core);
	cancel_delayed_work_sync(&core->recovery_work);
}

/* Down for others than recovery, which must not bring it up under their hands */
void qrnic_down(struct qrnic_core *core)
{
	qrnic_recovery_disable(core);
	qrnic_suspend(core);
}

/* Should it fail, recovery tries again. Without RDMA the device is up, too. */
int qrnic_up(struct qrnic_core *core)
{
	int err = qrnic_resume(core);

	if (!err)
		qrnic_devlink_healthy(core);
	if (READ_ONCE(core->up))
		err = 0;
	qrnic_recovery_enable(core);
	return err;
}

void qrnic_health_start(struct qrnic_core *core)
{
	queue_delayed_work(core->dev.wq, &core->health_work,
			   QRNIC_HEALTH_INTERVAL);
}

void qrnic_health_stop(struct qrnic_core *core)
{
	cancel_delayed_work_sync(&core->health_work);
}

/* Everything in the device goes back to its reset value. */
int qrnic_device_reset(struct qrnic_core *core)
{
	u32 status;

	qrnic_write(core, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
	/* It may have much device memory to clear. */
	read_poll_timeout(qrnic_read, status,
			  PCI_POSSIBLE_ERROR(status) ||
			  (status & (QRNIC_REG_STATUS_READY_MASK |
				     QRNIC_REG_STATUS_FATAL_MASK)),
			  QRNIC_RESET_POLL_US, QRNIC_RESET_TIMEOUT_US, false,
			  core, QRNIC_REG_STATUS);
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

static pci_ers_result_t qrnic_error_detected(struct pci_dev *pdev,
					     pci_channel_state_t state)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	if (state == pci_channel_io_normal)
		return PCI_ERS_RESULT_CAN_RECOVER;
	qrnic_report_fatal(&core->dev, "PCI error");
	qrnic_down(core);
	if (state == pci_channel_io_perm_failure)
		return PCI_ERS_RESULT_DISCONNECT;

	/* Should the next steps below not come */
	set_bit(QRNIC_STATE_PCI_ERROR, &core->state);
	spin_lock_irq(&core->fatal_lock);
	clear_bit(QRNIC_STATE_NO_RECOVERY, &core->state);
	queue_delayed_work(system_unbound_wq, &core->recovery_work,
			   QRNIC_PCI_ERROR_PATIENCE);
	spin_unlock_irq(&core->fatal_lock);
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t qrnic_slot_reset(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	qrnic_recovery_disable(core);
	return qrnic_config_restore(core) ? PCI_ERS_RESULT_DISCONNECT :
					    PCI_ERS_RESULT_RECOVERED;
}

static void qrnic_error_resume(struct pci_dev *pdev)
{
	struct qrnic_core *core = pci_get_drvdata(pdev);

	qrnic_recovery_disable(core);
	qrnic_up(core);
}

/* Function level reset by the user: everything down before, up again after */
static void qrnic_reset_prepare(struct pci_dev *pdev)
{
	qrnic_down(pci_get_drvdata(pdev));
}

/* Restoring the state has used it up: the next error needs it again. */
static void qrnic_reset_done(struct pci_dev *pdev)
{
	pci_save_state(pdev);
	qrnic_up(pci_get_drvdata(pdev));
}

const struct pci_error_handlers qrnic_error_handlers = {
	.error_detected = qrnic_error_detected,
	.slot_reset = qrnic_slot_reset,
	.resume = qrnic_error_resume,
	.reset_prepare = qrnic_reset_prepare,
	.reset_done = qrnic_reset_done,
};
