// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * lie.c: makes the device appear to report values that no valid device reports.
 * The module changes data by kprobes where the driver reads it after the device
 * has written it.
 *
 * The module can change bytes of the output of a command, its result, or the
 * type of asynchronous events. Other parameters make each received frame
 * continue the one before, or cause a fatal event of a receive work queue while
 * it is created.
 *
 *   modprobe lie opcode=0x2 offset=8 length=4 byte=0xff
 *   modprobe lie opcode=0x10 result=0 times=1
 *   modprobe lie event=0x0
 *   modprobe lie continues=66
 *   modprobe lie wq_fatal=1
 */
#include <linux/bitfield.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <rdma/ib_verbs.h>

#include "core/core.h"
#include "ethernet/ethernet.h"

static uint opcode;
module_param(opcode, uint, 0444);
MODULE_PARM_DESC(opcode, "opcode of the commands whose output or result is changed; 0: none");

static uint offset, length, byte;
module_param(offset, uint, 0444);
MODULE_PARM_DESC(offset, "offset of the changed bytes in the output");
module_param(length, uint, 0444);
MODULE_PARM_DESC(length, "number of changed bytes");
module_param(byte, uint, 0444);
MODULE_PARM_DESC(byte, "value of all changed bytes");

static long result = -1;
module_param(result, long, 0444);
MODULE_PARM_DESC(result, "result of the command; -1: unchanged");

static int times = -1;
module_param(times, int, 0444);
MODULE_PARM_DESC(times, "number of commands to change; -1: all");

static int event = -1;
module_param(event, int, 0444);
MODULE_PARM_DESC(event, "type of all events of commands; -1: unchanged");

static int continues = -1;
module_param(continues, int, 0444);
MODULE_PARM_DESC(continues, "header bytes after which each received frame continues the one before; -1: unchanged");

static bool wq_fatal;
module_param(wq_fatal, bool, 0444);
MODULE_PARM_DESC(wq_fatal, "send a fatal event of each receive work queue before uverbs knows the queue");

static atomic_t told = ATOMIC_INIT(0);

static int told_get(char *buffer, const struct kernel_param *parameter)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&told));
}

static const struct kernel_param_ops told_ops = { .get = told_get };
module_param_cb(told, &told_ops, NULL, 0444);
MODULE_PARM_DESC(told, "number of changes so far");

static struct qrnic_dev *device;	/* device of the last command */

static int command_begins(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	device = (struct qrnic_dev *)regs_get_kernel_argument(regs, 0);
	*(struct qrnic_cmd **)instance->data =
		(struct qrnic_cmd *)regs_get_kernel_argument(regs, 1);
	return 0;
}

static int command_ends(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct qrnic_cmd *cmd = *(struct qrnic_cmd **)instance->data;

	if (regs_return_value(regs) || !opcode || cmd->opcode != opcode ||
	    !atomic_add_unless(&told, 1, times))
		return 0;
	if (offset < cmd->out_len)
		memset(cmd->out + offset, byte, min(length, cmd->out_len - offset));
	if (result >= 0)
		cmd->result = result;
	return 0;
}

static struct kretprobe commands = {
	.kp.symbol_name = "qrnic_cmd_exec",
	.entry_handler = command_begins,
	.handler = command_ends,
	.data_size = sizeof(struct qrnic_cmd *),
	.maxactive = 256,
};

/*
 * Changes the type of EQEs before the driver reads them. The phase bit is
 * unchanged, so the EQEs remain written.
 */
static int interrupt_begins(struct kprobe *probe, struct pt_regs *regs)
{
	struct qrnic_eq *eq = (struct qrnic_eq *)regs_get_kernel_argument(regs, 1);
	u32 control, index, at = eq->consumer & (BIT(eq->log_size) - 1);
	struct qrnic_eqe *eqe;

	if (event < 0 || eq != &eq->core->eqs[0])
		return 0;
	for (index = 0; index < 8; index++, at = (at + 1) & (BIT(eq->log_size) - 1)) {
		eqe = qrnic_ring_at(&eq->ring, (size_t)QRNIC_EQE_SIZE * at);
		control = le32_to_cpu(READ_ONCE(eqe->control));
		if (FIELD_GET(QRNIC_EQE_TYPE_MASK, control) != QRNIC_EVENT_COMMAND)
			continue;
		control &= ~QRNIC_EQE_TYPE_MASK;
		WRITE_ONCE(eqe->control, cpu_to_le32(control | event));
		atomic_inc(&told);
	}
	return 0;
}

static struct kprobe interrupts = {
	.symbol_name = "qrnic_eq_interrupt",
	.pre_handler = interrupt_begins,
};

/* Changes the driver's own copy of the CQE. */
static int join_begins(struct kprobe *probe, struct pt_regs *regs)
{
	struct qrnic_cqe *cqe = (struct qrnic_cqe *)regs_get_kernel_argument(regs, 2);

	if (continues >= 0) {
		cqe->continues = continues;
		atomic_inc(&told);
	}
	return 0;
}

static struct kprobe joins = {
	.symbol_name = "qrnic_train_join",
	.pre_handler = join_begins,
};

/*
 * Sends the event when the driver can find the work queue, and uverbs has not
 * set its uobject yet.
 */
static int create_wq_ends(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct ib_wq *wq = (struct ib_wq *)regs_return_value(regs);
	struct qrnic_core *core = to_qrnic_core(device);

	if (IS_ERR(wq))
		return 0;
	atomic_inc(&told);
	core->handler->qp_event(core->handler_context, wq->wq_num, QRNIC_EVENT_QP_FATAL, 0);
	return 0;
}

static struct kretprobe work_queues = {
	.kp.symbol_name = "qrnic_ib_create_wq",
	.handler = create_wq_ends,
};

static int __init lie_init(void)
{
	int err = register_kretprobe(&commands);

	if (err)
		return err;
	err = register_kprobe(&interrupts);
	if (err)
		goto err_commands;
	err = register_kprobe(&joins);
	if (err)
		goto err_interrupts;
	if (wq_fatal)
		err = register_kretprobe(&work_queues);
	if (err)
		goto err_joins;
	return 0;

err_joins:
	unregister_kprobe(&joins);
err_interrupts:
	unregister_kprobe(&interrupts);
err_commands:
	unregister_kretprobe(&commands);
	return err;
}

static void __exit lie_exit(void)
{
	if (wq_fatal)
		unregister_kretprobe(&work_queues);
	unregister_kprobe(&joins);
	unregister_kprobe(&interrupts);
	unregister_kretprobe(&commands);
}

module_init(lie_init);
module_exit(lie_exit);

MODULE_DESCRIPTION("Changes values that a device reports, for tests");
MODULE_LICENSE("GPL");
