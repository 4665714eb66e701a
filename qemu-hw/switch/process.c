/*
 * qrnic switch: functions of QEMU that a cable needs
 *
 * A cable calls exit notifiers and the monitor. In QEMU, the system emulator
 * has these functions; here this file replaces them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/notify.h"
#include "qapi/error.h"
#include "monitor/monitor.h"
#include "system/system.h"
#include "switch/process.h"

static NotifierList exit_notifiers =
    NOTIFIER_LIST_INITIALIZER(exit_notifiers);

void qemu_add_exit_notifier(Notifier *notify)
{
    notifier_list_add(&exit_notifiers, notify);
}

void qemu_remove_exit_notifier(Notifier *notify)
{
    notifier_remove(notify);
}

void qrnic_process_end(void)
{
    notifier_list_notify(&exit_notifiers, NULL);
}

int monitor_fd_param(Monitor *mon, const char *fdname, Error **errp)
{
    error_setg(errp, "the ends of a switch's cables meet at paths");
    return -1;
}
