/*
 * Many queue pairs; see many.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "many.h"

#define UNUSED_BYTES 4096       /* A ring at 0, and records */
#define UNUSED_RQ 2048
#define UNUSED_SQ_RECORD 4032
#define UNUSED_RQ_RECORD 4040

static uint32_t done(QrnicResult r)
{
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    return r.value;
}

void many_end_init(ManyEnd *e, SimNode *n, unsigned cq_log, uint32_t room)
{
    QrnicCqCtx ctx = { .eqn = n->cq_eq, .log_size = cq_log };

    *e = (ManyEnd) {
        .node = n, .cq.node = n, .cq.cq_log = cq_log, .room = room,
    };
    e->cq.cq_ring = ctx.ring.root = sim_alloc(n, QRNIC_CQE_SIZE << cq_log);
    e->cq.cq_record = ctx.record = sim_alloc(n, 8);
    e->cq.cq = done(qrnic_cq_create(n->engine, &ctx));
    e->unused = sim_alloc(n, UNUSED_BYTES);
    e->sq = sim_alloc(n, (uint64_t)MAX(room, 1) * MANY_SQ_BYTES);
    e->records = sim_alloc(n, (uint64_t)MAX(room, 1) * QRNIC_RECORD_SIZE);
}

SimQp many_qp(ManyEnd *e, uint8_t type, uint32_t xrcd, bool sends)
{
    SimQp q = { .node = e->node, .sq_log = MANY_SQ_LOG };
    QrnicQpCtx ctx = { .type = type, .xrcd = xrcd };

    if (type != QRNIC_QPT_XRC_TGT) {
        g_assert_true(!sends || e->made < e->room);
        q.sq = sends ? e->sq + e->made * MANY_SQ_BYTES : e->unused;
        q.sq_record = sends ? e->records + e->made * QRNIC_RECORD_SIZE :
                              e->unused + UNUSED_SQ_RECORD;
        e->made += sends;
        ctx.pd = e->node->pd;
        ctx.send_cq = e->cq.cq;
        ctx.sq_log_size = MANY_SQ_LOG;
        ctx.sq.root = q.sq;
        ctx.sq_record = q.sq_record;
    }
    if (type == QRNIC_QPT_RC) {
        ctx.recv_cq = e->cq.cq;
        ctx.rq.root = e->unused + UNUSED_RQ;
        ctx.rq_record = e->unused + UNUSED_RQ_RECORD;
    }
    q.number = done(qrnic_qp_create(e->node->engine, &ctx));
    return q;
}

static void to_rtr(SimQp *q, SimQp *peer, bool responds)
{
    QrnicQpAttr a = sim_attr_init();

    done(sim_modify(q, &a));
    a = sim_attr_rtr(q, peer);
    if (!responds) {
        a.mask &= ~(QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER);
        a.max_dest_rd_atomic = a.min_rnr_timer = 0;
    }
    done(sim_modify(q, &a));
}

void many_xrc_connect(SimQp *initiator, SimQp *target)
{
    QrnicQpAttr a = sim_attr_rts();

    to_rtr(initiator, target, false);
    to_rtr(target, initiator, true);
    a.timeout = 16;
    done(sim_modify(initiator, &a));
    /*
     * RTS is entered here, because in RTR the first packet would cause an
     * event.
     */
    a = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_TIMEOUT | QRNIC_QP_SQ_PSN,
        .state = QRNIC_QPS_RTS, .timeout = 16,
    };
    done(sim_modify(target, &a));
}
