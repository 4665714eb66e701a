// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * command_ring.c: the command ring: its memory, entries, slots and mailboxes
 * (manual, Command queue).
 *
 * For each command the file command.c submits an entry, polls or waits for it,
 * and releases its slot. The file pci.c allocates the ring, state.c starts and
 * stops it, and fatal.c aborts all commands in flight. The file event.c selects
 * events or polling, and passes completion events on. A slot owns one entry and
 * two mailboxes, and is reused only after its command has released it. The lock
 * of the queue protects all state; the interrupt handler of EQ 0 takes this
 * lock, too.
 */
#include "core/core.h"

/*
 * Default and maximum time of polling for a completion, in microseconds. Most
 * commands complete while their doorbell is written, or soon after. Polling
 * avoids an interrupt and a context switch, which take longer.
 */
#define QRNIC_CMD_POLL_US 20u
#define QRNIC_CMD_POLL_MAX 1000u

/*
 * Allocates the ring and its mailboxes, which stay through resets of the
 * device. Called in probe.
 */
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
	/*
	 * The start is random, so that an event of a command from an earlier
	 * probe does not match.
	 */
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

/*
 * Frees the ring and its mailboxes. Called when the device does no DMA any
 * more.
 */
void qrnic_cmd_free(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	struct device *device = qrnic_dma_device(&core->dev);

	dma_free_coherent(device, 2 * QRNIC_CMD_ENTRIES * QRNIC_CMD_MAILBOX,
			  queue->mailboxes, queue->mailboxes_dma);
	dma_free_coherent(device, QRNIC_CMD_ENTRIES * sizeof(*queue->ring),
			  queue->ring, queue->ring_dma);
}

/*
 * Enables the queue. Called after a reset of the device, with no command in
 * flight.
 */
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

/*
 * Disables the queue and fails all commands in flight. Called in any context,
 * with queue->lock held. A caller that resets the device takes the lock before
 * the reset, because no register of the queue may be written in between.
 */
void qrnic_cmd_abort(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	unsigned int i;

	lockdep_assert_held(&queue->lock);
	queue->enabled = false;
	queue->events = false;
	for (i = 0; i < QRNIC_CMD_ENTRIES; i++)
		if (queue->slots[i].busy)
			complete(&queue->slots[i].done);
	wake_up_all(&queue->wait);
}

/*
 * Disables the queue, and waits until the last command has released its slot.
 * Sleeps.
 */
void qrnic_cmd_stop(struct qrnic_core *core)
{
	struct qrnic_cmd_queue *queue = &core->cmd;

	spin_lock_irq(&queue->lock);
	qrnic_cmd_abort(core);
	wait_event_lock_irq(queue->wait, !queue->in_flight, queue->lock);
	spin_unlock_irq(&queue->lock);
}

/*
 * Selects how a command waits: for an event, or by polling if there is no
 * asynchronous EQ.
 */
void qrnic_cmd_use_events(struct qrnic_core *core, bool events)
{
	struct qrnic_cmd_queue *queue = &core->cmd;

	spin_lock_irq(&queue->lock);
	queue->events = events;
	queue->ask = core->dev.caps.capabilities & QRNIC_CAP_COMMAND_EVENT;
	spin_unlock_irq(&queue->lock);
}

/*
 * Writes the command into the next entry of the ring and rings the doorbell.
 * Returns the index of the entry, or -EIO if the queue is not enabled. Sleeps
 * until the slot of the next entry is free, because entries are used in the
 * order of the ring.
 */
int qrnic_cmd_submit(struct qrnic_core *core, const struct qrnic_cmd *cmd)
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
	/*
	 * The entry and its mailbox must be complete before the device owns the
	 * entry.
	 */
	dma_wmb();
	WRITE_ONCE(entry->control, cpu_to_le32(control));

	queue->producer++;
	/*
	 * writel() orders the owner bit before the doorbell, so the device
	 * finds the entry.
	 */
	qrnic_write(core, QRNIC_REG_CMD_DOORBELL, queue->producer);
	spin_unlock_irq(&queue->lock);
	return index;
}

/*
 * Returns true if the device has completed the entry, and sets *control to its
 * control word.
 */
bool qrnic_cmd_completed(struct qrnic_cmd_queue *queue, u32 index, u32 *control)
{
	*control = le32_to_cpu(READ_ONCE(queue->ring[index].control));
	return !(*control & QRNIC_CMD_ENTRY_OWNER_MASK);
}

/*
 * Polls the entry for a short time. Returns true if the device has completed
 * it.
 */
bool qrnic_cmd_poll(struct qrnic_cmd_queue *queue, u32 index, u32 *control)
{
	u32 poll = min(READ_ONCE(queue->poll_us), QRNIC_CMD_POLL_MAX);
	u64 end;

	if (qrnic_cmd_completed(queue, index, control))
		return true;
	end = ktime_get_ns() + poll * NSEC_PER_USEC;
	while (ktime_get_ns() < end && !need_resched()) {
		cpu_relax();
		if (qrnic_cmd_completed(queue, index, control))
			return true;
	}
	return false;
}

/*
 * Requests an event for the completion of a command that is late. The device
 * sends the event at once if the command is complete. The lock is held, because
 * the register must not be written while the queue is disabled.
 */
void qrnic_cmd_request_event(struct qrnic_core *core, u32 index)
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
 * Wakes the command of a slot. Called from the interrupt handler of EQ 0. An
 * event whose token does not match is ignored, because it belongs to an earlier
 * command in this slot.
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

/*
 * Releases the slot of a command. If withhold is true, the slot stays unused
 * until the next start of the ring, because the device may still write into its
 * mailbox.
 */
void qrnic_cmd_release(struct qrnic_core *core, u32 index, bool withhold)
{
	struct qrnic_cmd_queue *queue = &core->cmd;
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	queue->slots[index].busy = withhold;
	queue->in_flight--;
	spin_unlock_irqrestore(&queue->lock, flags);
	wake_up_all(&queue->wait);
}
