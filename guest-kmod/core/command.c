// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * command.c: executes a command. Each call submits the command to the ring
 * (command_ring.c), waits for the completion by polling or by event, and
 * translates the status into an errno. No other file translates a status.
 *
 * Any context that may sleep calls qrnic_cmd_exec(). Each call has a slot of
 * the ring until it returns.
 */
#include "core/core.h"

/*
 * Time after which a command without completion puts the adapter into the fatal
 * state
 */
#define QRNIC_CMD_TIMEOUT (10 * HZ)
/* Interval of reading the entry of a command, because its event may get lost */
#define QRNIC_CMD_CHECK_INTERVAL (HZ / 2)

static const struct {
	const char *name;
	int error;
} qrnic_cmd_statuses[] = {
#define QRNIC_STATUS(status, value) \
	[QRNIC_ST_##status] = { #status, -(value) },
	QRNIC_CMD_STATUS_LIST(QRNIC_STATUS)
#undef QRNIC_STATUS
};

static const char *const qrnic_cmd_names[] = {
#define QRNIC_OPCODE(opcode) \
	[QRNIC_CMD_##opcode] = #opcode,
	QRNIC_CMD_OPCODE_LIST(QRNIC_OPCODE)
#undef QRNIC_OPCODE
};

static const char *qrnic_cmd_name(enum qrnic_cmd_opcode opcode)
{
	if (opcode < ARRAY_SIZE(qrnic_cmd_names) && qrnic_cmd_names[opcode])
		return qrnic_cmd_names[opcode];
	return "unknown";
}

/* Returns the errno of a status, and logs an error. */
static int qrnic_cmd_result(struct qrnic_core *core, const struct qrnic_cmd *cmd,
			    u32 status, u32 syndrome)
{
	const char *name = "unknown status";
	int err = -EIO;

	if (status < ARRAY_SIZE(qrnic_cmd_statuses) &&
	    qrnic_cmd_statuses[status].name) {
		name = qrnic_cmd_statuses[status].name;
		err = qrnic_cmd_statuses[status].error;
	}
	/*
	 * Logged at debug level only, because a process can request a command
	 * that the device rejects.
	 */
	if (err)
		dev_dbg_ratelimited(&core->dev.pdev->dev,
				    "command %s (object %u) failed: %s (%u), syndrome 0x%x\n",
				    qrnic_cmd_name(cmd->opcode), cmd->object,
				    name, status, syndrome);
	return err;
}

/*
 * Waits for the completion of an entry. Returns 0 and sets *control if the
 * device completed the entry. Returns -EIO if the queue was disabled, or
 * -ETIMEDOUT if the device did not complete the entry. If the completion does
 * not come soon, the health of the device is checked, because it may be in the
 * fatal state.
 */
static int qrnic_cmd_wait(struct qrnic_core *core, u32 index, u32 *control)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct qrnic_cmd_slot *slot = &queue->slots[index];
	unsigned long begin = jiffies;
	bool late, checked = false;

	if (qrnic_cmd_poll(queue, index, control))
		goto answered;
	qrnic_cmd_request_event(core, index);
	for (;;) {
		late = time_after(jiffies, begin + QRNIC_CMD_TIMEOUT);
		if (qrnic_cmd_completed(queue, index, control))
			break;
		if (!READ_ONCE(queue->enabled))
			return -EIO;
		if (late)
			return -ETIMEDOUT;
		if (time_after(jiffies, begin + 1))
			qrnic_health_check(core);
		if (READ_ONCE(queue->events))
			checked = !wait_for_completion_timeout(&slot->done,
							      QRNIC_CMD_CHECK_INTERVAL);
		else
			usleep_range(20, 100);
	}
	if (checked)
		atomic_inc(&core->late_command_events);
answered:
	/*
	 * The device writes the owner bit last, so result and output are valid
	 * after this barrier.
	 */
	dma_rmb();
	return 0;
}

int qrnic_cmd_exec(struct qrnic_dev *dev, struct qrnic_cmd *cmd)
{
	struct qrnic_core *core = to_qrnic_core(dev);
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct qrnic_cmd_entry *entry;
	u32 control, status;
	int index, err;

	might_sleep();
	if (WARN_ON(cmd->in_len > QRNIC_CMD_MAILBOX ||
		    cmd->out_len > QRNIC_CMD_MAILBOX))
		return -EINVAL;

	index = qrnic_cmd_submit(core, cmd);
	if (index < 0)
		return index;

	err = qrnic_cmd_wait(core, index, &control);
	if (err == -ETIMEDOUT) {
		dev_err(&core->dev.pdev->dev, "command %s (object %u): no answer\n",
			qrnic_cmd_name(cmd->opcode), cmd->object);
		/*
		 * The device may still write into this slot. So the slot is
		 * withheld until the reset of the device has ended its DMA.
		 */
		qrnic_cmd_release(core, index, true);
		qrnic_report_fatal(&core->dev, "command timeout");
		return err;
	}
	if (err) {
		qrnic_cmd_release(core, index, false);
		return err;
	}

	entry = &queue->ring[index];
	status = FIELD_GET(QRNIC_CMD_ENTRY_STATUS_MASK, control);
	err = qrnic_cmd_result(core, cmd, status,
			       le32_to_cpu(READ_ONCE(entry->syndrome)));
	if (!err) {
		cmd->result = le32_to_cpu(READ_ONCE(entry->result));
		if (cmd->out_len)
			memcpy(cmd->out,
			       queue->mailboxes + qrnic_cmd_mailbox(index, true),
			       cmd->out_len);
	}
	qrnic_cmd_release(core, index, false);
	if (status == QRNIC_ST_FATAL)
		qrnic_report_fatal(&core->dev, "command failed with status FATAL");
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_exec);

int qrnic_cmd_destroy(struct qrnic_dev *dev, enum qrnic_cmd_opcode opcode,
		      u32 object)
{
	struct qrnic_cmd cmd = { .opcode = opcode, .object = object };
	int err = qrnic_cmd_exec(dev, &cmd);

	if (err && !qrnic_healthy(dev))
		return 0;
	/*
	 * The caller handles -EBUSY, because it means that another object uses
	 * this object.
	 */
	if (err && err != -EBUSY)
		dev_err_ratelimited(&dev->pdev->dev,
				    "command %s (object %u): error %d\n",
				    qrnic_cmd_name(opcode), object, err);
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy);
