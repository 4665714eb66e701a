// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * command.c: the command queue: entries, mailboxes, completion by event or by
 * polling, timeout, and the one translation of a status into an errno.
 */
#include "core/core.h"

#define QRNIC_CMD_TIMEOUT (10 * HZ)
/*
 * Nearly every command is done while its doorbell is written, or soon after; an
 * interrupt and a process that is woken take longer.
 */
#define QRNIC_CMD_POLL_US 20u
#define QRNIC_CMD_POLL_MAX 1000u
/* The event of a command may get lost, so the driver looks at the entry this often. */
#define QRNIC_CMD_LOOK (HZ / 2)

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

static size_t qrnic_cmd_mailbox(u32 index, bool out)
{
	return (size_t)(2 * index + out) * QRNIC_CMD_MAILBOX;
}

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
	/* At debug level only, because a process can ask for what the device refuses. */
	if (err)
		dev_dbg_ratelimited(&core->dev.pdev->dev,
				    "command %s (object %u) failed: %s (%u), syndrome 0x%x\n",
				    qrnic_cmd_name(cmd->opcode), cmd->object,
				    name, status, syndrome);
	return err;
}

/*
 * Takes the next entry of the ring and rings for it; -EIO if the queue is not
 * enabled. Entries are taken in the order of the ring, so a later command can
 * have to wait for an earlier one to leave its slot.
 */
static int qrnic_cmd_submit(struct qrnic_core *core, const struct qrnic_cmd *cmd)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct qrnic_cmd_entry *entry;
	struct qrnic_cmd_slot *slot;
	dma_addr_t in = 0, out = 0;
	u32 index, control;

	spin_lock_irq(&queue->lock);
	wait_event_lock_irq(queue->wait, !queue->enabled ||
			    !queue->slots[queue->producer %
					  QRNIC_CMD_ENTRIES].busy,
			    queue->lock);
	if (!queue->enabled) {
		spin_unlock_irq(&queue->lock);
		return -EIO;
	}

	index = queue->producer % QRNIC_CMD_ENTRIES;
	entry = &queue->ring[index];
	slot = &queue->slots[index];
	slot->busy = true;
	slot->token = ++queue->token;
	reinit_completion(&slot->done);
	queue->in_flight++;

	if (cmd->in_len) {
		in = queue->mailboxes_dma + qrnic_cmd_mailbox(index, false);
		memcpy(queue->mailboxes + qrnic_cmd_mailbox(index, false),
		       cmd->in, cmd->in_len);
	}
	if (cmd->out_len) {
		out = queue->mailboxes_dma + qrnic_cmd_mailbox(index, true);
		memset(queue->mailboxes + qrnic_cmd_mailbox(index, true), 0,
		       cmd->out_len);
	}

	*entry = (struct qrnic_cmd_entry) {
		.opcode = cpu_to_le16(cmd->opcode),
		.token = cpu_to_le16(slot->token),
		.object = cpu_to_le32(cmd->object),
		.in_addr = cpu_to_le64(in),
		.out_addr = cpu_to_le64(out),
		.in_len = cpu_to_le32(cmd->in_len),
		.out_len = cpu_to_le32(cmd->out_len),
	};
	control = QRNIC_CMD_ENTRY_OWNER_MASK;
	if (queue->events && !queue->ask)
		control |= QRNIC_CMD_ENTRY_EVENT_MASK;
	/* The entry and its mailbox are whole before the device owns them. */
	dma_wmb();
	WRITE_ONCE(entry->control, cpu_to_le32(control));

	queue->producer++;
	/* writel() orders the owner bit before the doorbell. */
	qrnic_write(core, QRNIC_REG_CMD_DOORBELL, queue->producer);
	spin_unlock_irq(&queue->lock);
	return index;
}

static bool qrnic_cmd_answered(struct qrnic_cmd_queue *queue, u32 index, u32 *control)
{
	*control = le32_to_cpu(READ_ONCE(queue->ring[index].control));
	return !(*control & QRNIC_CMD_ENTRY_OWNER_MASK);
}

static bool qrnic_cmd_poll(struct qrnic_cmd_queue *queue, u32 index, u32 *control)
{
	u32 poll = min(READ_ONCE(queue->poll_us), QRNIC_CMD_POLL_MAX);
	u64 end;

	if (qrnic_cmd_answered(queue, index, control))
		return true;
	end = ktime_get_ns() + poll * NSEC_PER_USEC;
	while (ktime_get_ns() < end && !need_resched()) {
		cpu_relax();
		if (qrnic_cmd_answered(queue, index, control))
			return true;
	}
	return false;
}

/*
 * From now on the device sends an event when the command is done, at once if it is
 * by now. Under the lock, as a queue that is not enabled may not be asked.
 */
static void qrnic_cmd_ask(struct qrnic_core *core, u32 index)
{
	struct qrnic_cmd_queue *queue = &core->cmd;

	spin_lock_irq(&queue->lock);
	if (queue->enabled && queue->events && queue->ask)
		qrnic_write(core, QRNIC_REG_CMD_EVENT,
			    FIELD_PREP(QRNIC_REG_CMD_EVENT_SLOT_MASK, index) |
			    FIELD_PREP(QRNIC_REG_CMD_EVENT_TOKEN_MASK,
				       queue->slots[index].token));
	spin_unlock_irq(&queue->lock);
}

/*
 * Gives back the status (control) of the entry, or an errno. A device that does
 * not answer within a moment may be in the fatal state and never answer.
 */
static int qrnic_cmd_wait(struct qrnic_core *core, u32 index, u32 *control)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct qrnic_cmd_slot *slot = &queue->slots[index];
	unsigned long begin = jiffies;
	bool late, looked = false;

	if (qrnic_cmd_poll(queue, index, control))
		goto answered;
	qrnic_cmd_ask(core, index);
	for (;;) {
		late = time_after(jiffies, begin + QRNIC_CMD_TIMEOUT);
		if (qrnic_cmd_answered(queue, index, control))
			break;
		if (!READ_ONCE(queue->enabled))
			return -EIO;
		if (late)
			return -ETIMEDOUT;
		if (time_after(jiffies, begin + 1))
			qrnic_health_check(core);
		if (READ_ONCE(queue->events))
			looked = !wait_for_completion_timeout(&slot->done,
							      QRNIC_CMD_LOOK);
		else
			usleep_range(20, 100);
	}
	if (looked)
		atomic_inc(&core->late_command_events);
answered:
	/* The owner bit was written last: now result and output are there. */
	dma_rmb();
	return 0;
}

static void qrnic_cmd_release(struct qrnic_core *core, u32 index, bool withhold)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	queue->slots[index].busy = withhold;
	queue->in_flight--;
	spin_unlock_irqrestore(&queue->lock, flags);
	wake_up_all(&queue->wait);
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
		 * The device may still answer into this slot; nobody gets it
		 * until the reset of the device has ended that.
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
		qrnic_report_fatal(&core->dev, "command refused");
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
	/* -EBUSY says that something still uses the object: the caller deals with it. */
	if (err && err != -EBUSY)
		dev_err_ratelimited(&dev->pdev->dev,
				    "command %s (object %u): error %d\n",
				    qrnic_cmd_name(opcode), object, err);
	return err;
}
EXPORT_SYMBOL_QRNIC(qrnic_cmd_destroy);

/*
 * Called from the interrupt of the asynchronous EQ. An event whose token does not
 * match is of an earlier command in this slot.
 */
void qrnic_cmd_event(struct qrnic_core *core, u32 entry, u16 token)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct qrnic_cmd_slot *slot;
	unsigned long flags;

	if (entry >= QRNIC_CMD_ENTRIES) {
		dev_err_ratelimited(&core->dev.pdev->dev,
				    "completion of command entry %u, which does not exist\n",
				    entry);
		return;
	}
	slot = &queue->slots[entry];
	spin_lock_irqsave(&queue->lock, flags);
	if (slot->busy && slot->token == token)
		complete(&slot->done);
	spin_unlock_irqrestore(&queue->lock, flags);
}

void qrnic_cmd_use_events(struct qrnic_core *core, bool events)
{
	struct qrnic_cmd_queue *queue = &core->cmd;

	spin_lock_irq(&queue->lock);
	queue->events = events;
	queue->ask = core->dev.caps.capabilities & QRNIC_CAP_COMMAND_EVENT;
	spin_unlock_irq(&queue->lock);
}

int qrnic_cmd_alloc(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct device *device = qrnic_dma_device(&core->dev);
	unsigned int i;

	spin_lock_init(&queue->lock);
	init_waitqueue_head(&queue->wait);
	queue->poll_us = QRNIC_CMD_POLL_US;
	for (i = 0; i < QRNIC_CMD_ENTRIES; i++)
		init_completion(&queue->slots[i].done);
	/* A random start, so that events of commands of an earlier probe do not match. */
	queue->token = get_random_u16();

	queue->ring = dma_alloc_coherent(device, QRNIC_CMD_ENTRIES *
					 sizeof(*queue->ring),
					 &queue->ring_dma, GFP_KERNEL);
	if (!queue->ring)
		return -ENOMEM;
	queue->mailboxes = dma_alloc_coherent(device, 2 * QRNIC_CMD_ENTRIES *
					      QRNIC_CMD_MAILBOX,
					      &queue->mailboxes_dma, GFP_KERNEL);
	if (!queue->mailboxes) {
		dma_free_coherent(device, QRNIC_CMD_ENTRIES *
				  sizeof(*queue->ring), queue->ring,
				  queue->ring_dma);
		return -ENOMEM;
	}
	return 0;
}

void qrnic_cmd_free(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct device *device = qrnic_dma_device(&core->dev);

	dma_free_coherent(device, 2 * QRNIC_CMD_ENTRIES * QRNIC_CMD_MAILBOX,
			  queue->mailboxes, queue->mailboxes_dma);
	dma_free_coherent(device, QRNIC_CMD_ENTRIES * sizeof(*queue->ring),
			  queue->ring, queue->ring_dma);
}

/* Called after a reset of the device, when no command is in flight. */
void qrnic_cmd_start(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	unsigned int i;

	spin_lock_irq(&queue->lock);
	memset(queue->ring, 0, QRNIC_CMD_ENTRIES * sizeof(*queue->ring));
	for (i = 0; i < QRNIC_CMD_ENTRIES; i++)
		queue->slots[i].busy = false;
	queue->producer = 0;
	queue->events = false;

	qrnic_write(core, QRNIC_REG_CMD_BASE_LO, lower_32_bits(queue->ring_dma));
	qrnic_write(core, QRNIC_REG_CMD_BASE_HI, upper_32_bits(queue->ring_dma));
	qrnic_write(core, QRNIC_REG_CMD_SIZE, QRNIC_CMD_LOG_ENTRIES);
	qrnic_write(core, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_CMD_ENABLE_MASK);
	queue->enabled = true;
	spin_unlock_irq(&queue->lock);
}

void qrnic_cmd_abort(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&queue->lock, flags);
	queue->enabled = false;
	queue->events = false;
	for (i = 0; i < QRNIC_CMD_ENTRIES; i++)
		if (queue->slots[i].busy)
			complete(&queue->slots[i].done);
	spin_unlock_irqrestore(&queue->lock, flags);
	wake_up_all(&queue->wait);
}

void qrnic_cmd_stop(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;

	qrnic_cmd_abort(core);
	spin_lock_irq(&queue->lock);
	wait_event_lock_irq(queue->wait, !queue->in_flight, queue->lock);
	spin_unlock_irq(&queue->lock);
}
