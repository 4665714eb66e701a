// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * fatal.c: the fatal state of the device: how the driver detects it, and its
 * immediate reaction.
 *
 * The driver detects a fatal state by an event, a failed command, a periodic
 * read of the registers, or a call of the PCI core. Then qrnic_report_fatal()
 * resets the device, which ends its DMA. The function also fails all commands,
 * and schedules event_work (event.c) and the recovery (recovery.c). The result
 * of qrnic_healthy() is false from then until state.c has started the device
 * again (manual, Recovery from the fatal state). The lock core->fatal_lock
 * protects the condition and the description of the failure.
 */
#include "core/core.h"

/*
 * Interval of the check for a fatal state whose event was lost. The work item
 * is deferrable, so it does not wake an idle processor.
 */
#define QRNIC_HEALTH_INTERVAL (2 * HZ)

static const char *const qrnic_health_causes[] = {
	[QRNIC_HEALTH_NONE] = "none",
	[QRNIC_HEALTH_CMD_DMA] = "DMA to the command queue failed",
	[QRNIC_HEALTH_EQ_DMA] = "DMA to an event queue failed",
	[QRNIC_HEALTH_EQ_OVERRUN] = "an event queue overran",
};

/* Returns the name of the cause in a value of the register HEALTH. */
const char *qrnic_health_cause(u32 health)
{
	u32 cause = FIELD_GET(QRNIC_REG_HEALTH_CAUSE_MASK, health);

	if (PCI_POSSIBLE_ERROR(health))
		return "no answer";
	if (cause < ARRAY_SIZE(qrnic_health_causes))
		return qrnic_health_causes[cause];
	return "unknown";
}

/* Reads the registers that describe a failure into *crash. */
void qrnic_crash_read(struct qrnic_core *core, struct qrnic_crash *crash)
{
	crash->status = qrnic_read(core, QRNIC_REG_STATUS);
	crash->health = qrnic_read(core, QRNIC_REG_HEALTH);
	crash->info = qrnic_read(core, QRNIC_REG_HEALTH_INFO);
}

bool qrnic_healthy(struct qrnic_dev *dev)
{
	return READ_ONCE(to_qrnic_core(dev)->condition) == QRNIC_GOOD;
}
EXPORT_SYMBOL_QRNIC(qrnic_healthy);

/*
 * Returns true if the function does not respond to configuration requests. An
 * unplugged function is absent, and so is a virtual function from a reset of
 * its physical function until the recovery. The registers of an absent function
 * read as 0 or as all ones. pci_device_is_present() is not used, because it
 * checks only the physical function.
 */
bool qrnic_config_absent(struct qrnic_core *core)
{
	u16 command;

	pci_read_config_word(core->dev.pdev, PCI_COMMAND, &command);
	return PCI_POSSIBLE_ERROR(command);
}

/*
 * Records and logs the failure. Called under fatal_lock. Returns the new
 * condition of the device.
 */
static enum qrnic_condition qrnic_report_cause(struct qrnic_core *core,
					       const char *why)
{
	struct qrnic_crash *crash = &core->crash;

	crash->why = why;
	qrnic_crash_read(core, crash);
	core->crash_unreported = true;
	if (PCI_POSSIBLE_ERROR(crash->health) || qrnic_config_absent(core)) {
		dev_err(&core->dev.pdev->dev, "%s; the device is gone\n", why);
		return QRNIC_GONE;
	}
	/*
	 * A function level reset by others also disables the BARs, and then the
	 * registers may read as 0.
	 */
	if (!(crash->status & (QRNIC_REG_STATUS_FATAL_MASK |
			       QRNIC_REG_STATUS_CMD_ENABLED_MASK))) {
		dev_err(&core->dev.pdev->dev,
			"%s; its configuration space will be restored\n", why);
		return QRNIC_UNCONFIGURED;
	}
	dev_err(&core->dev.pdev->dev,
		"%s; resetting the device (health: %s, queue %u)\n", why,
		qrnic_health_cause(crash->health), crash->info);
	return QRNIC_FATAL;
}

/*
 * Waits until no processor writes an EQ doorbell, and prevents further ones
 * until the device has been started again. Called under fatal_lock.
 */
static void qrnic_eqs_close(struct qrnic_core *core)
{
	unsigned int i;

	WRITE_ONCE(core->eqs_closed, true);
	for (i = 0; i < core->num_irqs; i++) {
		spin_lock(&core->eqs[i].lock);
		spin_unlock(&core->eqs[i].lock);
	}
	spin_lock(&core->fault_eq.lock);
	spin_unlock(&core->fault_eq.lock);
}

/*
 * Resets the device, and makes its condition visible. All DMA has ended before
 * any other context can see the condition, or a command that failed because of
 * it. After the reset no queue exists. The lock and qrnic_eqs_close() prevent
 * writes to the registers of the command queue and to the doorbells of EQs.
 */
static void qrnic_reset_at_once(struct qrnic_core *core,
				enum qrnic_condition condition)
{
	spin_lock(&core->cmd.lock);
	qrnic_eqs_close(core);
	qrnic_write(core, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
	/*
	 * The read waits until the device has received the write, and by then
	 * the reset is complete.
	 */
	qrnic_read(core, QRNIC_REG_STATUS);
	/*
	 * The registers may be out of reach while the configuration space is
	 * not, so DMA is disabled there, too.
	 */
	pci_clear_master(core->dev.pdev);
	WRITE_ONCE(core->condition, condition);
	qrnic_cmd_abort(core);
	spin_unlock(&core->cmd.lock);
}

/*
 * Records and logs a failure, and resets the device. The work item
 * recovery_work does the rest.
 */
void qrnic_report_fatal(struct qrnic_dev *dev, const char *why)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	enum qrnic_condition condition;
	unsigned long flags, delay = 0;

	spin_lock_irqsave(&core->fatal_lock, flags);
	if (core->condition == QRNIC_GOOD) {
		condition = qrnic_report_cause(core, why);
		qrnic_reset_at_once(core, condition);
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
 * Checks the state of the device, and reports a fatal error, a foreign reset or
 * a lost device. Called while the command queue is in use.
 */
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

/* Initialises the members of this file. */
void qrnic_fatal_init(struct qrnic_core *core)
{
	spin_lock_init(&core->fatal_lock);
	INIT_DEFERRABLE_WORK(&core->health_work, qrnic_health_work);
}

/* Starts the periodic check. Called when the device has been started. */
void qrnic_health_start(struct qrnic_core *core)
{
	/*
	 * The work item runs on event_wq, whose worker exists even if no memory
	 * is left. This is needed, because no other code detects a device that
	 * fails at such a time. The work item allocates nothing, and takes no
	 * lock of other parts.
	 */
	queue_delayed_work(core->dev.event_wq, &core->health_work,
			   QRNIC_HEALTH_INTERVAL);
}

/* Stops the periodic check, and waits until it has ended. */
void qrnic_health_stop(struct qrnic_core *core)
{
	cancel_delayed_work_sync(&core->health_work);
}
