/*
 * A transport type in this file only: "toy" queue pairs have no queues, and
 * send numbers. The test proves that a type is one table of operations: the
 * engine calls each operation, and tests nowhere else for the type.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/transport.h"
#include "sim.h"

#define TOY_TYPE (QRNIC_QP_TYPES - 1)   /* Unknown to every guest */
#define TOY_ROUNDS 40
#define TOY_BALLS 3
#define TOY_DEADLINE (50 * SIM_US)

/*
 * The type
 */

typedef struct Toy {
    uint32_t ball[TOY_BALLS];   /* Numbers to send */
    unsigned balls;
    uint32_t sent, received, last;
    unsigned expired, flushed;
} Toy;

/* Calls without a Toy */
static unsigned toys, errors;

static void toy_init(QrnicEngine *e, QrnicQp *qp)
{
    if (!qp->type_state) {
        qp->type_state = g_new0(Toy, 1);
        toys++;
    }
    memset(qp->type_state, 0, sizeof(Toy));
}

static void toy_cleanup(QrnicEngine *e, QrnicQp *qp)
{
    g_free(qp->type_state);
    qp->type_state = NULL;
    toys--;
}

static void throw(QrnicEngine *e, QrnicQp *qp, uint32_t number)
{
    Toy *t = qp->type_state;

    g_assert_cmpuint(t->balls, <, TOY_BALLS);
    t->ball[t->balls++] = number;
    qrnic_schedule(e, qp);
}

static QrnicResult toy_modify_check(QrnicEngine *e, const QrnicQp *qp,
                                    const QrnicQpAttr *in, uint8_t to)
{
    return in->path_mtu == QRNIC_MTU_512 ?
           qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_PATH_MTU_OFFSET) :
           qrnic_ok(0);
}

static void toy_entered(QrnicEngine *e, QrnicQp *qp, uint8_t from,
                        const QrnicQpAttr *in)
{
    if (from == QRNIC_QPS_RTR && qp->state == QRNIC_QPS_RTS) {
        qrnic_timer_set(e, &qp->timer, qrnic_now(e) + TOY_DEADLINE);
    }
}

static void toy_query(const QrnicQp *qp, QrnicQpAttr *out)
{
    const Toy *t = qp->type_state;

    out->sq_psn = t->sent;
    out->rq_psn = t->received;
}

static QrnicReadyList toy_transmit(QrnicEngine *e, QrnicQp *qp, unsigned budget)
{
    Toy *t = qp->type_state;

    while (t->balls) {
        const QrnicTransport packet = {
            .opcode = QRNIC_OP_UC_SEND_ONLY, .pkey = QRNIC_PKEY_DEFAULT,
            .dest_qpn = qp->attr.dest_qpn, .psn = t->sent,
        };
        QrnicReadyList wait = qrnic_path_wait(e, qp);
        uint8_t *payload;

        if (wait != QRNIC_LIST_READY) {
            return wait;
        }
        if (!budget--) {
            return QRNIC_LIST_READY;
        }
        payload = qrnic_packet_open(e, qp, &packet, 4);
        stl_be_p(payload, t->ball[--t->balls]);
        t->sent++;
        qrnic_packet_send(e, qp, &packet, payload, 4);
    }
    return QRNIC_LIST_NONE;
}

static void toy_receive(QrnicEngine *e, QrnicQp *qp, const QrnicPacket *p)
{
    Toy *t = qp->type_state;

    g_assert_cmpuint(p->payload_len, ==, 4);
    t->last = ldl_be_p(p->payload);
    t->received++;
    if (t->last < TOY_ROUNDS) {
        throw(e, qp, t->last + 1);
    }
}

static void toy_timer(QrnicEngine *e, QrnicQp *qp)
{
    ((Toy *)qp->type_state)->expired++;
}

static void toy_error_entered(QrnicEngine *e, QrnicQp *qp)
{
    errors++;
}

static bool toy_flush(QrnicEngine *e, QrnicQp *qp)
{
    Toy *t = qp->type_state;

    t->flushed += t->balls > 0;
    return t->balls && t->balls--;
}

static bool toy_in_use(const QrnicQp *qp)
{
    return ((const Toy *)qp->type_state)->balls;
}

static const QrnicTransition toy_transitions[] = {
    { QRNIC_QPS_RESET, QRNIC_QPS_INIT, 0, 0 },
    { QRNIC_QPS_INIT, QRNIC_QPS_RTR,
      QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN, 0 },
    { QRNIC_QPS_RTR, QRNIC_QPS_RTS, 0, 0 },
};

static const QrnicStates toy_states = {
    toy_transitions, ARRAY_SIZE(toy_transitions),
};

static const QrnicQpOps toy_ops = {
    .service = QRNIC_SERVICE_UC,
    .no_recv_wqes = true,
    .states = &toy_states,
    .create_check = qrnic_qp_no_queues_check,
    .init = toy_init,
    .cleanup = toy_cleanup,
    .in_use = toy_in_use,
    .modify_check = toy_modify_check,
    .entered = toy_entered,
    .query = toy_query,
    .transmit = toy_transmit,
    .timer = toy_timer,
    .receive = toy_receive,
    .error_entered = toy_error_entered,
    .flush_send = toy_flush,
};

/*
 * The tests
 */

typedef struct World {
    Sim *sim;
    SimQp qp[2];
} World;

static const QrnicQpCtx toy_ctx = { .type = TOY_TYPE };

static QrnicQp *qp_of(World *w, unsigned i)
{
    return qrnic_qp_get(w->sim->node[i].engine, w->qp[i].number);
}

static Toy *toy_of(World *w, unsigned i)
{
    return qp_of(w, i)->type_state;
}

static void expect_status(QrnicResult r, uint8_t status, uint32_t syndrome)
{
    g_assert_cmpuint(r.status, ==, status);
    g_assert_cmphex(r.syndrome, ==, syndrome);
}

static World *world_new(uint32_t seed)
{
    World *w = g_new0(World, 1);

    w->sim = sim_new(seed, NULL);
    for (unsigned i = 0; i < 2; i++) {
        QrnicEngine *e = w->sim->node[i].engine;
        QrnicResult r;

        expect_status(qrnic_qp_create(e, &toy_ctx), QRNIC_ST_BAD_PARAM,
                      QRNIC_QP_CTX_TYPE_OFFSET);
        qrnic_qp_type_register(e, TOY_TYPE, &toy_ops);
        r = qrnic_qp_create(e, &toy_ctx);
        g_assert_cmpuint(r.status, ==, QRNIC_ST_OK);
        w->qp[i].node = &w->sim->node[i];
        w->qp[i].number = r.value;
    }
    return w;
}

static QrnicQpAttr attr_rtr(World *w, unsigned i)
{
    QrnicQpAttr a = sim_attr_rtr(&w->qp[i], &w->qp[!i]);

    a.mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
             QRNIC_QP_DEST_QPN;
    a.rq_psn = a.max_dest_rd_atomic = a.min_rnr_timer = 0;
    return a;
}

static void modify(World *w, unsigned i, QrnicQpAttr a)
{
    g_assert_cmpuint(sim_modify(&w->qp[i], &a).status, ==, QRNIC_ST_OK);
}

static void to_state(World *w, unsigned i, uint8_t state)
{
    modify(w, i, (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = state });
}

static void connect_toys(World *w)
{
    for (unsigned i = 0; i < 2; i++) {
        to_state(w, i, QRNIC_QPS_INIT);
        modify(w, i, attr_rtr(w, i));
        to_state(w, i, QRNIC_QPS_RTS);
    }
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < 2; i++) {
        expect_status(qrnic_qp_destroy(w->sim->node[i].engine,
                                       w->qp[i].number), QRNIC_ST_OK, 0);
    }
    sim_free(w->sim);
    g_free(w);
    g_assert_cmpuint(toys, ==, 0);
}

/*
 * Tests that all numbers arrive over a wire that accepts one frame at a time.
 */
static void test_packets(void)
{
    World *w = world_new(1);
    QrnicQpAttr a;

    w->sim->wire_room = 1;
    w->sim->wire_pause = SIM_US;
    connect_toys(w);
    for (unsigned i = 0; i < TOY_BALLS; i++) {
        throw(w->sim->node[0].engine, qp_of(w, 0), i);
    }
    sim_run(w->sim, w->sim->now + 10 * SIM_MS);
    g_assert_cmpuint(toy_of(w, 0)->sent, ==, toy_of(w, 1)->received);
    g_assert_cmpuint(toy_of(w, 1)->sent, ==, toy_of(w, 0)->received);
    g_assert_cmpuint(toy_of(w, 0)->sent + toy_of(w, 1)->sent, ==,
                     3 * TOY_ROUNDS);
    g_assert_cmpuint(MAX(toy_of(w, 0)->last, toy_of(w, 1)->last), ==,
                     TOY_ROUNDS);
    for (unsigned i = 0; i < 2; i++) {
        g_assert_cmpuint(toy_of(w, i)->expired, ==, 1);
        a = sim_query(&w->qp[i]);
        g_assert_cmpuint(a.sq_psn, ==, toy_of(w, i)->sent);
        g_assert_cmpuint(a.rq_psn, ==, toy_of(w, i)->received);
        g_assert_cmpuint(a.qp_type, ==, TOY_TYPE);
    }
    world_free(w);
}

/*
 * Tests that the engine accepts only transitions, attributes and values of the
 * table.
 */
static void test_states(void)
{
    World *w = world_new(2);
    QrnicQpAttr a = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    QrnicQpCtx ctx = toy_ctx;

    ctx.sq_log_size = 4;
    expect_status(qrnic_qp_create(w->sim->node[0].engine, &ctx),
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET);
    expect_status(sim_modify(&w->qp[0], &a), QRNIC_ST_BAD_STATE, 0);
    to_state(w, 0, QRNIC_QPS_INIT);
    a = attr_rtr(w, 0);
    a.mask &= ~QRNIC_QP_PATH_MTU;
    expect_status(sim_modify(&w->qp[0], &a), QRNIC_ST_BAD_ATTR,
                  QRNIC_QP_PATH_MTU);
    a = attr_rtr(w, 0);
    a.mask |= QRNIC_QP_RQ_PSN;
    expect_status(sim_modify(&w->qp[0], &a), QRNIC_ST_BAD_ATTR,
                  QRNIC_QP_RQ_PSN);
    a = attr_rtr(w, 0);
    a.path_mtu = QRNIC_MTU_512;
    expect_status(sim_modify(&w->qp[0], &a), QRNIC_ST_BAD_PARAM,
                  QRNIC_QP_ATTR_PATH_MTU_OFFSET);
    modify(w, 0, attr_rtr(w, 0));
    to_state(w, 0, QRNIC_QPS_RTS);
    a = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_SQD };
    expect_status(sim_modify(&w->qp[0], &a), QRNIC_ST_BAD_STATE, 0);
    world_free(w);
}

/*
 * Tests that ERR flushes, that DESTROY_QP fails while the queue pair is in use,
 * and that RESET initializes again.
 */
static void test_life(void)
{
    World *w = world_new(3);
    QrnicEngine *e = w->sim->node[0].engine;

    connect_toys(w);
    throw(e, qp_of(w, 0), 0);
    throw(e, qp_of(w, 0), 0);
    expect_status(qrnic_qp_destroy(e, w->qp[0].number), QRNIC_ST_BUSY, 0);
    errors = 0;
    to_state(w, 0, QRNIC_QPS_ERR);
    g_assert_cmpuint(errors, ==, 1);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_cmpuint(toy_of(w, 0)->flushed, ==, 2);
    g_assert_cmpuint(toy_of(w, 0)->sent, ==, 0);
    to_state(w, 0, QRNIC_QPS_RESET);
    g_assert_cmpuint(toy_of(w, 0)->flushed, ==, 0);
    g_assert_cmpuint(toys, ==, 2);
    /* Flushed numbers are not sent. */
    g_assert_cmpuint(toy_of(w, 1)->received, ==, 0);
    world_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/toy-transport/packets", test_packets);
    g_test_add_func("/qrnic/toy-transport/states", test_states);
    g_test_add_func("/qrnic/toy-transport/life", test_life);
    return g_test_run();
}
