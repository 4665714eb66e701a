/*
 * qrnic engine: rate limits of queue pairs
 *
 * A token bucket, kept as the time at which it will be full again: each frame
 * moves that on by what it takes at the rate, and may go as long as it is not
 * further away than a burst takes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/qp/qp.h"

/* Nanoseconds that this many bytes take at the rate, which is in kbit/s */
static int64_t bytes_ns(const QrnicQp *qp, uint64_t bytes)
{
    return DIV_ROUND_UP(bytes * 8 * (NANOSECONDS_PER_SECOND / 1000),
                        qp->attr.rate_limit);
}

bool qrnic_pace_wait(QrnicEngine *e, QrnicQp *qp)
{
    int64_t burst, now;

    if (!qp->attr.rate_limit) {
        return false;
    }
    burst = qp->attr.max_burst_sz ? bytes_ns(qp, qp->attr.max_burst_sz) :
                                    SCALE_MS;
    now = qrnic_now(e);
    if (qp->pace_full - burst <= now) {
        return false;
    }
    if (qp->pace_timer.deadline == QRNIC_DEADLINE_NEVER) {
        trace_qrnic_pace_wait(e->config.name, qp->number,
                              qp->pace_full - burst - now);
        qrnic_add(e, QRNIC_COUNTER_RATE_WAITS, 1);
    }
    qrnic_timer_set(e, &qp->pace_timer, qp->pace_full - burst);
    return true;
}

void qrnic_pace_charge(QrnicEngine *e, QrnicQp *qp, size_t len)
{
    if (qp->attr.rate_limit) {
        qp->pace_full = MAX(qp->pace_full, qrnic_now(e)) + bytes_ns(qp, len);
    }
}

void qrnic_pace_restart(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_timer_cancel(e, &qp->pace_timer);
    qp->pace_full = 0;
}
