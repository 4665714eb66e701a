// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Makes a function of the kernel return an error for a number of calls, for
 * failures that no property of the device can cause. The module can also delay
 * the calls, for races with a small window.
 *
 *   modprobe refuse symbol=ib_register_device error=-12 times=1
 *
 * With caller=TEXT only calls from functions with this text in their names
 * fail. With skip=N the first N such calls succeed; calls are counted only
 * while times is above 0. A function that returns a pointer fails with error=0.
 * With delay=MS the function does not fail: the call waits for MS milliseconds
 * first, and keeps its processor.
 */
#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>

static char *symbol = "";
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "function that fails; it returns an int or a pointer");

static int error = -ENOMEM;
module_param(error, int, 0644);
MODULE_PARM_DESC(error, "result of a call that fails");

static int times;
module_param(times, int, 0644);
MODULE_PARM_DESC(times, "number of calls that will fail");

static int skip;
module_param(skip, int, 0644);
MODULE_PARM_DESC(skip, "number of calls that succeed before the first one fails");

static unsigned int delay;
module_param(delay, uint, 0644);
MODULE_PARM_DESC(delay, "milliseconds that a call waits in place of the failure");

/*
 * Replaces the body of a call that fails. The result is in a register already,
 * and the address of the caller is on top of the stack, so the function only
 * returns.
 */
static noinline notrace void refuse_return(void)
{
	asm volatile("");
}

static char *caller = "";
module_param(caller, charp, 0444);
MODULE_PARM_DESC(caller, "text in the name of the function whose calls fail");

/*
 * Returns true if the caller has the text in its name. The probe is at the
 * entry of the function, so the return address is on top of the stack.
 */
static bool from_caller(const struct pt_regs *regs)
{
	char name[KSYM_SYMBOL_LEN];

	snprintf(name, sizeof(name), "%ps", (void *)*(unsigned long *)regs->sp);
	return strstr(name, caller);
}

static int refuse_call(struct kprobe *probe, struct pt_regs *regs)
{
	if (times <= 0 || !from_caller(regs))
		return 0;
	if (skip > 0) {
		skip--;
		return 0;
	}
	times--;
	if (delay) {
		mdelay(delay);
		return 0;
	}
	regs_set_return_value(regs, error);
	instruction_pointer_set(regs, (unsigned long)refuse_return);
	return 1;
}

/*
 * Does nothing. The handler must exist, because without it the probe would be
 * optimised to a jump, which always continues in the function.
 */
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

MODULE_DESCRIPTION("Makes a function of the kernel fail, for tests");
MODULE_LICENSE("GPL");
