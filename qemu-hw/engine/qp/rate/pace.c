/*
 * qrnic engine, layer qp: rate limits of queue pairs
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Implements a token bucket, stored as the time when the bucket is full again.
 * Each sent frame moves this time forward by its length divided by the rate. A
 * frame may be sent while this time is at most one burst in the future.
 *
 * A requester calls qrnic_pace_wait() before a packet, and path.c calls
 * qrnic_pace_charge() after it. If the queue pair must wait, pace_timer
 * schedules it again. The rate of congestion control (reaction.c) is included
 * here.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

/*
 * Returns the nanoseconds of this many bytes at the rate limit, given in
 * kbit/s.
 */
static int64_t bytes_ns(const QrnicQp *qp, uint64_t bytes)
{
    return DIV_ROUND_UP(bytes * 8 * (NANOSECONDS_PER_SECOND / 1000),
                        qp->attr.rate_limit);
}

/* Returns the time from which the rate limit allows to send. */
static int64_t limit_until(const QrnicQp *qp)
{
    if (!qp->attr.rate_limit) {
        return INT64_MIN;
    }
    return qp->pace_full - (qp->attr.max_burst_sz ?
                            bytes_ns(qp, qp->attr.max_burst_sz) : SCALE_MS);
}

static bool wait_until(QrnicEngine *e, QrnicQp *qp, int64_t until)
{
    int64_t now = qrnic_now(e);

    if (until <= now) {
        return false;
    }
    if (qp->pace_timer.deadline == QRNIC_DEADLINE_NEVER) {
        trace_qrnic_pace_wait(e->config.name, qp->number, until - now);
        qrnic_add(e, QRNIC_COUNTER_RATE_WAITS, 1);
    }
    /*
     * The timer only moves to an earlier time, because requests and responses
     * may wait for different times.
     */
    qrnic_timer_advance(e, &qp->pace_timer, until);
    return true;
}

bool qrnic_pace_ask(QrnicEngine *e, QrnicQp *qp)
{
    if (qrnic_pace_is_limited(qp) &&
        wait_until(e, qp, MAX(limit_until(qp), qrnic_congestion_until(qp)))) {
        return true;
    }
    /* The rate may have increased since the timer was set. */
    qrnic_timer_cancel(e, &qp->pace_timer);
    return false;
}

bool qrnic_pace_response_wait(QrnicEngine *e, QrnicQp *qp)
{
    return qp->congestion && wait_until(e, qp, qrnic_congestion_until(qp));
}

void qrnic_pace_charge(QrnicEngine *e, QrnicQp *qp, size_t len)
{
    qrnic_congestion_charge(e, qp, len);
    if (qp->attr.rate_limit) {
        qp->pace_full = MAX(qp->pace_full, qrnic_now(e)) + bytes_ns(qp, len);
    }
}

void qrnic_pace_restart(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_timer_cancel(e, &qp->pace_timer);
    qp->pace_full = 0;
}
