/*
 * qrnic engine, layer qp: the reaction point of congestion control
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Adapts the rate of a queue pair to CNPs with DCQCN (Zhu et al., Congestion
 * Control for Large-Scale RDMA Deployments, SIGCOMM 2015). The manual has the
 * equations.
 *
 * qrnic_congestion_notified() reduces the rate after a CNP. The timer and the
 * number of sent bytes increase the rate again in stages. The file path.c
 * charges each sent frame, and pace.c compares qrnic_congestion_until() with
 * the current time. A queue pair has a QrnicCongestion from its first CNP until
 * its rate is the highest again, so that others cost nothing.
 */

#include "qemu/osdep.h"
#include "qemu/timer.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

#define MEGABIT 1000000ull
#define ALPHA_SHIFT 20
#define ALPHA_ONE (1u << ALPHA_SHIFT)
/* fraction bits of alpha and g in the parameters */
#define FRACTION_BITS 10
/*
 * Nanoseconds by which a frame may be sent too early. Timers expire late, so
 * without a burst the actual rate would be below the computed rate.
 */
#define BURST_NS (10 * SCALE_US)
/* Largest number of increases that one late expiration of the timer performs */
#define LATE_INCREASES 64

struct QrnicCongestion {
    uint64_t current, target;   /* bit/s */
    uint32_t alpha;             /* parts of ALPHA_ONE */
    int64_t alpha_at;           /* begin of the current period of alpha */
    bool notified;              /* CNP received in that period */
    bool owed;                  /* the rate decreases at monitor_end */
    int64_t monitor_end;
    /* time when the timer next increases the rate */
    int64_t increase_at;
    /* bytes sent since their number last increased the rate */
    uint64_t bytes;
    uint32_t time_stage, byte_stage;
    /*
     * Time when the token bucket is full again (see pace.c). part is the
     * fraction of a nanosecond, in units of 1 / current nanoseconds.
     */
    int64_t full;
    uint64_t part;
};

bool qrnic_congestion_has(const QrnicEngine *e, uint8_t flag)
{
    return e->qps->congestion.flags & flag;
}

static uint64_t highest_rate(const QrnicEngine *e)
{
    uint32_t max = e->qps->congestion.rp_max_rate;

    return max ? max * MEGABIT : QRNIC_MAX_RATE_LIMIT * 1000ull;
}

/*
 * Changes the rate. The number of bits that may be sent at once stays the same;
 * otherwise each increase would let the queue pair send a burst.
 */
static void rate_set(QrnicEngine *e, QrnicQp *qp, uint64_t rate,
                     const char *why)
{
    QrnicCongestion *c = qp->congestion;
    int64_t now = qrnic_now(e), ahead = c->full - now;
    int64_t bits = ahead > 0 ? ahead * c->current + c->part : 0;

    bits += BURST_NS * ((int64_t)rate - (int64_t)c->current);
    bits = MAX(bits, 0);
    c->full = now + bits / (int64_t)rate;
    c->part = bits % (int64_t)rate;
    c->current = rate;
    trace_qrnic_congestion_rate(e->config.name, qp->number, why, c->current,
                                c->target, c->alpha);
}

/* Returns x to the power of n, both x and the result in parts of 2^32. */
static uint64_t power(uint64_t x, uint64_t n)
{
    uint64_t result = 1ull << 32;

    for (; n && result; n >>= 1) {
        if (n & 1) {
            result = result * x >> 32;
        }
        x = x * x >> 32;
    }
    return result;
}

/*
 * Updates alpha for all periods that have ended. No timer is needed, because
 * only the next decrease reads alpha.
 */
static void alpha_settle(QrnicEngine *e, QrnicCongestion *c)
{
    const QrnicCongestionCtx *p = &e->qps->congestion;
    int64_t period = p->rp_dce_tcp_rtt * (int64_t)SCALE_US;
    uint64_t periods = (qrnic_now(e) - c->alpha_at) / period;
    uint64_t g = p->rp_dce_tcp_g;

    if (!periods) {
        return;
    }
    c->alpha = c->alpha * g >> FRACTION_BITS;
    if (c->notified) {
        c->alpha += ALPHA_ONE - (g << (ALPHA_SHIFT - FRACTION_BITS));
    }
    c->alpha = c->alpha * power(g << (32 - FRACTION_BITS), periods - 1) >> 32;
    c->notified = false;
    c->alpha_at += periods * period;
}

static void decrease(QrnicEngine *e, QrnicQp *qp)
{
    const QrnicCongestionCtx *p = &e->qps->congestion;
    QrnicCongestion *c = qp->congestion;
    uint64_t rate, least;

    alpha_settle(e, c);
    if (c->byte_stage || p->flags & QRNIC_CONGESTION_CLAMP_TGT_RATE ||
        (c->time_stage && p->flags & QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI)) {
        c->target = c->current;
    }
    rate = c->current - (c->current * c->alpha >>
                         (ALPHA_SHIFT - FRACTION_BITS + p->rp_gd));
    least = c->current * p->rp_min_dec_fac / 100;
    rate = MAX(rate, MAX(least, p->rp_min_rate * MEGABIT));
    rate_set(e, qp, MIN(rate, c->current), "decrease");
}

/* Restarts all stages of the increase, because a CNP has reduced the rate. */
static void stages_restart(QrnicEngine *e, QrnicCongestion *c)
{
    const QrnicCongestionCtx *p = &e->qps->congestion;
    int64_t now = qrnic_now(e);

    c->bytes = c->time_stage = c->byte_stage = 0;
    c->owed = false;
    c->monitor_end = now + p->rp_rate_reduce_monitor_period *
                           (int64_t)SCALE_US;
    c->increase_at = now + p->rp_time_reset * (int64_t)SCALE_US;
}

/*
 * Increases the rate by one stage. Returns false if the rate is the highest, so
 * that the state is freed.
 */
static bool increase(QrnicEngine *e, QrnicQp *qp, uint32_t *stage)
{
    const QrnicCongestionCtx *p = &e->qps->congestion;
    QrnicCongestion *c = qp->congestion;
    uint64_t highest = highest_rate(e);
    const char *why = "fast recovery";

    if (MIN(c->time_stage, c->byte_stage) > p->rp_threshold) {
        c->target += p->rp_hai_rate * MEGABIT;
        why = "hyper increase";
    } else if (MAX(c->time_stage, c->byte_stage) >= p->rp_threshold) {
        c->target += p->rp_ai_rate * MEGABIT;
        why = "additive increase";
    }
    *stage += *stage < UINT32_MAX;
    c->target = MIN(c->target, highest);
    rate_set(e, qp, (c->current + c->target + 1) / 2, why);
    if (c->current + MEGABIT > highest) {
        qrnic_congestion_drop(e, qp);
        return false;
    }
    return true;
}

static void timer_restart(QrnicEngine *e, QrnicQp *qp)
{
    const QrnicCongestion *c = qp->congestion;

    qrnic_timer_set(e, &qp->congestion_timer,
                    c->owed ? MIN(c->monitor_end, c->increase_at) :
                              c->increase_at);
}

/* Creates the state at the first CNP. */
static void begin(QrnicEngine *e, QrnicQp *qp)
{
    const QrnicCongestionCtx *p = &e->qps->congestion;
    uint64_t first = p->rp_rate_to_set_on_first_cnp * MEGABIT;
    QrnicCongestion *c = g_new0(QrnicCongestion, 1);

    qp->congestion = c;
    c->current = c->target = highest_rate(e);
    c->alpha = p->rp_initial_alpha_value << (ALPHA_SHIFT - FRACTION_BITS);
    c->alpha_at = qrnic_now(e);
    if (first) {
        c->target = MIN(first, c->current);
        rate_set(e, qp, c->target, "first CNP");
    } else {
        decrease(e, qp);
    }
    /*
     * The bucket begins empty: the wire is congested, and a burst at the speed
     * of the port would make it worse.
     */
    c->full = qrnic_now(e) + BURST_NS;
    stages_restart(e, c);
}

void qrnic_congestion_notified(QrnicEngine *e, QrnicQp *qp)
{
    QrnicCongestion *c = qp->congestion;

    if (!c) {
        begin(e, qp);
    } else {
        alpha_settle(e, c);
        c->notified = true;
        if (qrnic_now(e) < c->monitor_end) {
            c->owed = true;
        } else {
            decrease(e, qp);
            stages_restart(e, c);
        }
    }
    timer_restart(e, qp);
}

void qrnic_congestion_expired(QrnicEngine *e, QrnicQp *qp)
{
    const QrnicCongestionCtx *p = &e->qps->congestion;
    QrnicCongestion *c = qp->congestion;
    int64_t now = qrnic_now(e);

    if (!qrnic_congestion_has(e, QRNIC_CONGESTION_RP)) {
        qrnic_congestion_drop(e, qp);
        return;
    }
    if (c->owed && c->monitor_end <= now) {
        decrease(e, qp);
        stages_restart(e, c);
    }
    for (unsigned i = 0; i < LATE_INCREASES && c->increase_at <= now; i++) {
        c->increase_at += p->rp_time_reset * (int64_t)SCALE_US;
        if (!increase(e, qp, &c->time_stage)) {
            return;
        }
    }
    c->increase_at = MAX(c->increase_at, now + 1);
    timer_restart(e, qp);
}

int64_t qrnic_congestion_until(const QrnicQp *qp)
{
    return qp->congestion ? qp->congestion->full - BURST_NS : INT64_MIN;
}

void qrnic_congestion_charge(QrnicEngine *e, QrnicQp *qp, size_t len)
{
    QrnicCongestion *c = qp->congestion;
    uint64_t cost;

    if (!c) {
        return;
    }
    cost = len * 8 * NANOSECONDS_PER_SECOND + c->part;
    c->full = MAX(c->full, qrnic_now(e)) + cost / c->current;
    c->part = cost % c->current;
    c->bytes += len;
    if (c->bytes >= e->qps->congestion.rp_byte_reset) {
        c->bytes %= e->qps->congestion.rp_byte_reset;
        increase(e, qp, &c->byte_stage);
    }
}

void qrnic_congestion_drop(QrnicEngine *e, QrnicQp *qp)
{
    qrnic_timer_cancel(e, &qp->congestion_timer);
    g_clear_pointer(&qp->congestion, g_free);
}
