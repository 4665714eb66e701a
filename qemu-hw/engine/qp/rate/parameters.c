/*
 * qrnic engine, layer qp: the parameters of congestion control
 *
 * Executes the commands that set and query the parameters, which are common to
 * all queue pairs. Each command that sets them changes congestion_epoch, so
 * that path.c updates the ECN bits of paths. Reset values are set by the init
 * and reset of the layer. Manual, chapter on congestion control.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_private.h"

#define RATE_MAX (QRNIC_MAX_RATE_LIMIT / 1000)  /* Mbit/s */
#define PERIOD_MAX 131071                       /* microseconds */

void qrnic_congestion_init(QrnicEngine *e)
{
    e->qps->congestion = (QrnicCongestionCtx) {
        .flags = QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI,
        .np_cnp_dscp = 48, .np_cnp_prio = 6, .np_min_time_between_cnps = 4,
        .rp_threshold = 1, .rp_min_dec_fac = 50, .rp_gd = 11,
        .rp_dce_tcp_g = 1019, .rp_initial_alpha_value = 1023,
        .rp_dce_tcp_rtt = 1, .rp_time_reset = 300, .rp_byte_reset = 32767,
        .rp_rate_reduce_monitor_period = 4, .rp_ai_rate = 5,
        .rp_hai_rate = 50, .rp_min_rate = 1,
    };
    e->qps->congestion_epoch++;
    QTAILQ_INIT(&e->qps->cnps_owed);
}

/*
 * Returns ST_OK, or ST_BAD_PARAM with the offset of the first invalid member.
 */
static QrnicResult check(const QrnicCongestionCtx *in)
{
#define V(NAME, name, least, most) \
    { QRNIC_CONGESTION_CTX_##NAME##_OFFSET, in->name, least, most }
    const struct { uint32_t offset, value, least, most; } member[] = {
        V(NP_CNP_DSCP, np_cnp_dscp, 0, 63),
        V(NP_CNP_PRIO, np_cnp_prio, 0, 7),
        V(RP_THRESHOLD, rp_threshold, 1, 31),
        V(NP_MIN_TIME_BETWEEN_CNPS, np_min_time_between_cnps, 0, 4095),
        V(RP_MIN_DEC_FAC, rp_min_dec_fac, 0, 100),
        V(RP_GD, rp_gd, 10, 11),
        V(RP_DCE_TCP_G, rp_dce_tcp_g, 0, 1023),
        V(RP_INITIAL_ALPHA_VALUE, rp_initial_alpha_value, 1, 1023),
        V(RP_DCE_TCP_RTT, rp_dce_tcp_rtt, 1, PERIOD_MAX),
        V(RP_TIME_RESET, rp_time_reset, 1, PERIOD_MAX),
        V(RP_BYTE_RESET, rp_byte_reset, 1, UINT32_MAX),
        V(RP_RATE_REDUCE_MONITOR_PERIOD, rp_rate_reduce_monitor_period, 1,
          PERIOD_MAX),
        V(RP_AI_RATE, rp_ai_rate, 1, RATE_MAX),
        V(RP_HAI_RATE, rp_hai_rate, 1, RATE_MAX),
        V(RP_MIN_RATE, rp_min_rate, 1, RATE_MAX),
        V(RP_MAX_RATE, rp_max_rate, in->rp_max_rate ? in->rp_min_rate : 0,
          RATE_MAX),
        V(RP_RATE_TO_SET_ON_FIRST_CNP, rp_rate_to_set_on_first_cnp, 0,
          RATE_MAX),
    };
#undef V

    for (unsigned i = 0; i < ARRAY_SIZE(member); i++) {
        if (member[i].value < member[i].least ||
            member[i].value > member[i].most) {
            return qrnic_refuse(QRNIC_ST_BAD_PARAM, member[i].offset);
        }
    }
    return qrnic_ok(0);
}

/*
 * Expires the timers of all reaction points, because each timer frees its state
 * if the reaction point is disabled.
 */
static void reaction_stop(QrnicEngine *e)
{
    const QrnicTable *t = &e->qps->table;

    for (uint32_t n = 0; n < t->limit; n++) {
        QrnicQp *qp = t->slot[n];

        if (qp && qp->congestion) {
            qrnic_timer_set(e, &qp->congestion_timer, qrnic_now(e));
        }
    }
}

QrnicResult qrnic_congestion_set(QrnicEngine *e, const QrnicCongestionCtx *in)
{
    bool reacted = qrnic_congestion_has(e, QRNIC_CONGESTION_RP);
    QrnicResult result;

    if (!(e->config.capabilities & QRNIC_CAP_CONGESTION_CONTROL)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    result = check(in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    e->qps->congestion = *in;
    e->qps->congestion_epoch++;
    trace_qrnic_congestion_set(e->config.name, in->flags);
    if (reacted && !qrnic_congestion_has(e, QRNIC_CONGESTION_RP)) {
        reaction_stop(e);
    }
    if (!qrnic_congestion_has(e, QRNIC_CONGESTION_NP)) {
        qrnic_notifications_forget(e);
    }
    return result;
}

QrnicResult qrnic_congestion_query(QrnicEngine *e, QrnicCongestionCtx *out)
{
    if (!(e->config.capabilities & QRNIC_CAP_CONGESTION_CONTROL)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    *out = e->qps->congestion;
    return qrnic_ok(0);
}
