// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * refuse.c: a function of the kernel that returns an error instead of doing its
 * work, as often as is ordered: for what no property of the device can make fail.
 *
 * modprobe refuse symbol=ib_register_device error=-12 times=1
 */
#include <linux/kprobes.h>
#include <linux/module.h>

static char *symbol = "";
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "function, whose result is an int");

static int error = -ENOMEM;
module_param(error, int, 0644);
MODULE_PARM_DESC(error, "what it returns");

static int times;
module_param(times, int, 0644);
MODULE_PARM_DESC(times, "calls still to fail");

/*
 * Runs in the place of a call that is refused: it leaves alone the result, which is
 * in a register, and returns to the caller, whose address is on top of the stack.
 */
static noinline notrace void refuse_return(void)
{
	asm volatile("");
}

static int refuse_call(struct kprobe *probe, struct pt_regs *regs)
{
	if (times <= 0)
		return 0;
	times--;
	regs_set_return_value(regs, error);
	instruction_pointer_set(regs, (unsigned long)refuse_return);
	return 1;
}

/* That there is one keeps the probe from being made a jump, which always goes on. */
static void refuse_after(struct kprobe *probe, struct pt_regs *regs,
			 unsigned long flags)
{
}

static struct kprobe probe = {
	.pre_handler = refuse_call,
	.post_handler = refuse_after,
};

static int __init refuse_init(void)
{
	probe.symbol_name = symbol;
	return register_kprobe(&probe);
}

static void __exit refuse_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(refuse_init);
module_exit(refuse_exit);

MODULE_DESCRIPTION("A function that fails when a test wants it");
MODULE_LICENSE("GPL");
