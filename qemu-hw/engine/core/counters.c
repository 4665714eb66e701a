/*
 * qrnic engine: counters, and reports of what the guest did wrong
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/log.h"
#include "trace.h"
#include "engine/core/core.h"

const uint64_t *qrnic_counters(QrnicEngine *e)
{
    return e->counter;
}

void qrnic_count(QrnicEngine *e, enum qrnic_counter which, uint64_t n)
{
    qrnic_add(e, which, n);
}

void qrnic_guest_error(QrnicEngine *e, enum qrnic_guest_error rule,
                       const char *queue, uint32_t number,
                       const char *fmt, ...)
{
    g_autofree char *text = NULL;
    va_list ap;

    qrnic_add(e, QRNIC_COUNTER_GUEST_ERRORS, 1);
    qrnic_add(e, QRNIC_COUNTER_GE_REGISTER_ACCESS + rule, 1);
    if (!qemu_loglevel_mask(LOG_GUEST_ERROR) &&
        !trace_event_get_state_backends(TRACE_QRNIC_GUEST_ERROR)) {
        return;
    }
    va_start(ap, fmt);
    text = g_strdup_vprintf(fmt, ap);
    va_end(ap);
    trace_qrnic_guest_error(e->config.name, queue, number,
                            qrnic_guest_error_name(rule), text);
    qemu_log_mask(LOG_GUEST_ERROR, "qrnic %s: %s %" PRIu32 ": %s: %s\n",
                  e->config.name, queue, number,
                  qrnic_guest_error_name(rule), text);
}
