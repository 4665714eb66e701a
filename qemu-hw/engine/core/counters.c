/*
 * qrnic engine: counters, counter sets, and reports of guest errors
 *
 * Every layer counts with qrnic_add(). Each counter has a value for the device
 * and a value for each counter set. The layers above call qrnic_charge_to()
 * before they work for a queue pair. So the work counts in the counter set of
 * that queue pair, too, from the received packet to the resulting DMA. The
 * array in_sets has the sum over all sets, including freed sets. Set 0 is the
 * work outside of all sets, so its values are those of the device less in_sets.
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

/* Counts an error. Returns true if its text is needed for a trace or a log. */
static bool guest_error_counted(QrnicEngine *e, enum qrnic_guest_error rule)
{
    qrnic_add(e, QRNIC_COUNTER_GUEST_ERRORS, 1);
    qrnic_add(e, QRNIC_COUNTER_GE_REGISTER_ACCESS + rule, 1);
    return qemu_loglevel_mask(LOG_GUEST_ERROR) ||
           trace_event_get_state_backends(TRACE_QRNIC_GUEST_ERROR);
}

/* Traces and logs an error. Frees the name of the object. */
static void G_GNUC_PRINTF(4, 0)
guest_error_reported(QrnicEngine *e, enum qrnic_guest_error rule, char *object,
                     const char *fmt, va_list ap)
{
    g_autofree char *text = g_strdup_vprintf(fmt, ap);
    const char *name = qrnic_guest_error_name(rule);

    trace_qrnic_guest_error(e->config.name, object, name, text);
    qemu_log_mask(LOG_GUEST_ERROR, "qrnic %s: %s: %s: %s\n",
                  e->config.name, object, name, text);
    g_free(object);
}

void qrnic_guest_error(QrnicEngine *e, enum qrnic_guest_error rule,
                       const char *queue, uint32_t number,
                       const char *fmt, ...)
{
    va_list ap;

    if (guest_error_counted(e, rule)) {
        va_start(ap, fmt);
        guest_error_reported(e, rule,
                             g_strdup_printf("%s %" PRIu32, queue, number),
                             fmt, ap);
        va_end(ap);
    }
}

void qrnic_guest_error_at(QrnicEngine *e, enum qrnic_guest_error rule,
                          const char *place, uint64_t offset,
                          const char *fmt, ...)
{
    va_list ap;

    if (guest_error_counted(e, rule)) {
        va_start(ap, fmt);
        guest_error_reported(e, rule,
                             g_strdup_printf("%s 0x%" PRIx64, place, offset),
                             fmt, ap);
        va_end(ap);
    }
}

QrnicCounterSet *qrnic_counter_set_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->counter_sets, number);
}

QrnicResult qrnic_counter_set_alloc(QrnicEngine *e)
{
    QrnicCounterSet *set;

    if (!(e->config.capabilities & QRNIC_CAP_COUNTER_SETS)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    set = g_new0(QrnicCounterSet, 1);
    if (!qrnic_table_insert(&e->counter_sets, set, &set->number)) {
        g_free(set);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_counter_set_alloc(e->config.name, set->number);
    return qrnic_ok(set->number);
}

QrnicResult qrnic_counter_set_free(QrnicEngine *e, uint32_t number)
{
    QrnicCounterSet *set = qrnic_counter_set_get(e, number);

    if (!set) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (set->users || set->rules) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_counter_set_free(e->config.name, number);
    qrnic_table_remove(&e->counter_sets, number);
    g_free(set);
    return qrnic_ok(0);
}

QrnicResult qrnic_counter_set_query(QrnicEngine *e, uint32_t number,
                                    uint64_t *out)
{
    const QrnicCounterSet *set = qrnic_counter_set_get(e, number);

    if (!(e->config.capabilities & QRNIC_CAP_COUNTER_SETS)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (number && !set) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    for (unsigned i = 0; i < QRNIC_NUM_COUNTERS; i++) {
        out[i] = set ? set->counter[i] : e->counter[i] - e->in_sets[i];
    }
    return qrnic_ok(0);
}
