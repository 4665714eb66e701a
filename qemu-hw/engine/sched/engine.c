/*
 * qrnic engine: its life, and the run loop
 *
 * The device creates an engine with qrnic_engine_new(), and calls
 * qrnic_engine_run() after each kick. The run loop walks the table of layers
 * and names none of them. Each layer reports pending work, and does a limited
 * amount of it in each round (QrnicFloor). The loop ends if no layer has work,
 * after a number of rounds, or on a fatal error. If work remains, the loop
 * kicks the device again. From a kick to the end of the run, e->awake is true.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/qp/qp_rate.h"
#include "engine/sched/sched.h"

#define CLOCK_KHZ 1000000       /* the clock counts nanoseconds */
#define ACK_DELAY 12            /* 4.096 us x 2^12: 17 ms */

/* Layers, the lowest first; each one uses only layers before it. */
static const QrnicFloor *const floors[] = {
    &qrnic_core_floor, &qrnic_memory_floor, &qrnic_queue_floor,
    &qrnic_fabric_floor, &qrnic_qp_floor, &qrnic_transport_floor,
    &qrnic_sched_floor,
};
#define FLOORS ARRAY_SIZE(floors)

/*
 * Operations of the table that are not NULL, in the order of a round. The
 * engine collects them once, because a run is short and most entries of the
 * table are NULL.
 */
typedef struct QrnicRounds {
    unsigned pending_count, process_count, finish_count;
    bool (*pending[FLOORS])(QrnicEngine *e);
    void (*process[FLOORS * QRNIC_PHASES])(QrnicEngine *e);
    void (*finish[FLOORS])(QrnicEngine *e);
} QrnicRounds;

static QrnicRounds *rounds_new(void)
{
    QrnicRounds *r = g_new0(QrnicRounds, 1);

    /*
     * The highest layer comes first, because the scheduler has work most often.
     */
    for (unsigned i = FLOORS; i-- > 0; ) {
        if (floors[i]->pending) {
            r->pending[r->pending_count++] = floors[i]->pending;
        }
        if (floors[i]->finish) {
            r->finish[r->finish_count++] = floors[i]->finish;
        }
    }
    for (unsigned phase = 0; phase < QRNIC_PHASES; phase++) {
        for (unsigned i = FLOORS; i-- > 0; ) {
            if (floors[i]->process[phase]) {
                r->process[r->process_count++] = floors[i]->process[phase];
            }
        }
    }
    return r;
}

QrnicEngine *qrnic_engine_new(const QrnicConfig *config, const QrnicEnv *env)
{
    QrnicEngine *e = g_new0(QrnicEngine, 1);

    e->config = *config;
    e->env = *env;
    if (!env->translate || !(config->capabilities & QRNIC_CAP_ON_DEMAND)) {
        e->config.capabilities &= ~QRNIC_CAP_SHARED_VIRTUAL;
    }
    if (!env->vf_set || !env->vf_query) {
        e->config.capabilities &= ~QRNIC_CAP_SRIOV;
    }
    e->rounds = rounds_new();
    for (unsigned i = 0; i < FLOORS; i++) {
        floors[i]->init(e);
    }
    return e;
}

void qrnic_engine_free(QrnicEngine *e)
{
    if (!e) {
        return;
    }
    qrnic_timers_reset(e);
    for (unsigned i = FLOORS; i-- > 0; ) {
        floors[i]->cleanup(e);
    }
    g_free(e->rounds);
    g_free(e);
}

void qrnic_engine_reset(QrnicEngine *e)
{
    trace_qrnic_engine_reset(e->config.name);
    e->awake = false;
    qrnic_timers_reset(e);
    for (unsigned i = FLOORS; i-- > 0; ) {
        floors[i]->reset(e);
    }
}

static bool engine_has_work(QrnicEngine *e)
{
    const QrnicRounds *r = e->rounds;

    for (unsigned i = 0; i < r->pending_count; i++) {
        if (r->pending[i](e)) {
            return true;
        }
    }
    return false;
}

static void engine_round(QrnicEngine *e)
{
    const QrnicRounds *r = e->rounds;

    for (unsigned i = 0; i < r->process_count; i++) {
        r->process[i](e);
    }
}

void qrnic_engine_run(QrnicEngine *e, unsigned rounds)
{
    e->awake = true;
    qrnic_budget_renew(e);
    for (unsigned i = 0; i < rounds && !e->fatal && engine_has_work(e); i++) {
        engine_round(e);
    }
    for (unsigned i = 0; i < e->rounds->finish_count; i++) {
        e->rounds->finish[i](e);
    }
    e->awake = false;
    if (!e->fatal && engine_has_work(e)) {
        qrnic_wake(e);
    }
}

void qrnic_engine_set_mac(QrnicEngine *e, const uint8_t *mac)
{
    memcpy(e->config.mac, mac, sizeof(e->config.mac));
}

QrnicResult qrnic_vf_set(QrnicEngine *e, uint32_t number, const QrnicVfCtx *in)
{
    if (!(e->config.capabilities & QRNIC_CAP_SRIOV)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    return e->env.vf_set(e->env.opaque, number, in);
}

QrnicResult qrnic_vf_query(QrnicEngine *e, uint32_t number, QrnicVfAttr *out)
{
    if (!(e->config.capabilities & QRNIC_CAP_SRIOV)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    return e->env.vf_query(e->env.opaque, number, out);
}

uint64_t qrnic_eui64(const uint8_t *mac)
{
    return (uint64_t)mac[0] << 56 | (uint64_t)mac[1] << 48 |
           (uint64_t)mac[2] << 40 | 0xfffeull << 24 |
           (uint64_t)mac[3] << 16 | (uint64_t)mac[4] << 8 | mac[5];
}

QrnicResult qrnic_device_query(QrnicEngine *e, QrnicDeviceAttr *out)
{
    const QrnicConfig *c = &e->config;

    memset(out, 0, sizeof(*out));
    out->capabilities = c->capabilities;
    out->max_qp = c->max_qp;
    out->max_cq = c->max_cq;
    out->max_mkey = c->max_mkey;
    out->max_pd = c->max_pd;
    out->max_eq = qrnic_max_eq(e);
    out->max_gid = c->max_gid;
    out->max_qp_wqebb = QRNIC_MAX_QP_WQEBB;
    out->max_qp_recv = QRNIC_MAX_QP_RECV;
    out->max_cqe = QRNIC_MAX_CQE;
    out->max_eqe = QRNIC_MAX_EQE;
    if (c->capabilities & QRNIC_CAP_SRQ) {
        out->max_srq = c->max_srq;
        out->max_srq_wr = QRNIC_MAX_SRQ_WR;
    }
    if (c->capabilities & QRNIC_CAP_XRC) {
        out->max_xrcd = QRNIC_MAX_XRCD;
    }
    if (c->capabilities & QRNIC_CAP_CQ_MODERATION) {
        out->max_cq_period = UINT16_MAX;
        out->max_cq_count = UINT16_MAX;
    }
    if (c->capabilities & QRNIC_CAP_UD) {
        out->max_multicast = QRNIC_MAX_MULTICAST;
    }
    if (c->capabilities & QRNIC_CAP_FLOW) {
        out->max_flow = c->max_flow;
    }
    if (c->capabilities & QRNIC_CAP_RSS) {
        out->max_rss = c->max_flow;
    }
    if (c->capabilities & QRNIC_CAP_DEVICE_MEMORY) {
        out->max_dm_size = c->device_memory;
    }
    if (c->capabilities & QRNIC_CAP_COUNTER_SETS) {
        out->max_counter_set = QRNIC_MAX_COUNTER_SET;
    }
    out->max_sge = c->max_sge;
    out->max_inline = c->capabilities & QRNIC_CAP_INLINE_SEND ?
                      c->max_inline : 0;
    out->max_rd_atomic = c->max_rd_atomic;
    out->doorbell_fifo = c->doorbell_fifo;
    out->max_mr_size = QRNIC_MAX_MR_SIZE;
    out->max_msg_size = QRNIC_MAX_MSG_SIZE;
    out->clock_khz = CLOCK_KHZ;
    out->counters = QRNIC_NUM_COUNTERS;
    out->ack_delay = ACK_DELAY;
    /*
     * The bit for "universal" is inverted in a GUID (modified EUI-64), so that
     * it differs from the MAC address.
     */
    out->node_guid = qrnic_eui64(c->mac) ^ 2ull << 56;
    return qrnic_ok(0);
}
