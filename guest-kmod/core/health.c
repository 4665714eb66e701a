// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * health.c: what the health registers say, the look at them from time to time, and
 * reset. What follows is in state.c.
 */
#include <linux/iopoll.h>
#include "core/core.h"

/*
 * The work finds a fatal state whose event was lost. It does not wake an idle
 * processor.
 */
#define QRNIC_HEALTH_INTERVAL (2 * HZ)
/* How often to look for the end of a reset, and how long */
#define QRNIC_RESET_POLL_US 100
#define QRNIC_RESET_TIMEOUT_US (10 * USEC_PER_SEC)

static const char *const qrnic_health_causes[] = {
	[QRNIC_HEALTH_NONE] = "none",
	[QRNIC_HEALTH_CMD_DMA] = "DMA to the command queue failed",
	[QRNIC_HEALTH_EQ_DMA] = "DMA to an event queue failed",
	[QRNIC_HEALTH_EQ_OVERRUN] = "an event queue overran",
};

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

/* Called while the command queue is in use. */
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
	INIT_DEFERRABLE_WORK(&core->health_work, qrnic_health_work);
}

void qrnic_health_start(struct qrnic_core *core)
{
	/*
	 * Runs on the workqueue of events, because only this work item finds a
	 * device that has died while no memory is left. The work item allocates
	 * nothing, and takes no lock of other parts.
	 */
	queue_delayed_work(core->dev.event_wq, &core->health_work,
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
