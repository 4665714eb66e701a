/*
 * The world of the fuzzer while it runs: the wire, completions and events, and
 * the check at the end of an input. See fuzz.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "fuzz.h"

/* Limit of the frames of an input; then the wire blocks, to save time. */
#define FRAMES 4000
#define BLOCKED (1000 * SIM_MS)

/*
 * The wire
 */

static void psn_learn(FuzzWorld *w, unsigned to, const uint8_t *frame,
                      size_t len)
{
    QrnicPacket p;

    if (sim_parse(&p, frame, len) != QRNIC_PARSE_OK) {
        return;
    }
    for (unsigned i = 0; i < fuzz_num_kinds; i++) {
        if (w->node[to].qp[i].q.number == p.t.dest_qpn) {
            w->node[to].qp[i].psn = p.t.psn;
        }
    }
}

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    FuzzWorld *w = opaque;
    unsigned i = w->kept_next++ % FUZZ_KEPT;

    w->kept[i].len = MIN(len, FUZZ_FRAME_MAX);
    w->kept[i].to = !from;
    memcpy(w->kept[i].data, frame, w->kept[i].len);
    w->kept_count = MIN(w->kept_count + 1, FUZZ_KEPT);
    psn_learn(w, !from, frame, len);
    if (s->frames > FRAMES) {
        s->wire_room = 1;
        s->wire_pause = BLOCKED;
        s->node[from].burst = 0;
    }
    return !w->cut || !w->cut--;
}

static bool marks(Sim *s, unsigned from, const uint8_t *frame, size_t len)
{
    FuzzWorld *w = s->tap_opaque;

    return w->marks && w->marked++ % w->marks == 0;
}

void fuzz_wire_begin(FuzzWorld *w)
{
    w->sim->forged = true;
    w->sim->tap = tap;
    w->sim->tap_opaque = w;
    w->sim->marks = marks;
}

/*
 * The driver: completions and events
 */

static void eq_consume(SimNode *n, uint32_t number, uint64_t ring,
                       uint32_t log_size, uint32_t *consumer)
{
    uint8_t raw[QRNIC_EQ_DOORBELL_BYTES];
    QrnicEqDoorbell d = { .number = number, .arm = 1 };

    for (unsigned i = 0; i < 1u << log_size; i++) {
        const uint8_t *p = n->memory + ring +
                           (*consumer & ((1u << log_size) - 1)) *
                           QRNIC_EQE_SIZE;
        bool phase = p[QRNIC_EQE_SIZE - 1] & 0x80;

        if (phase == (*consumer >> log_size & 1)) {
            break;
        }
        (*consumer)++;
    }
    d.index = *consumer;
    qrnic_eq_doorbell_pack(raw, &d);
    qrnic_doorbell_write(n->engine, 0, QRNIC_DB_EQ, 8, ldq_le_p(raw));
}

/* Frees the slot of a receive completion. */
static void slot_free(FuzzNode *f, const QrnicCqe *c)
{
    for (unsigned i = 0; i < FUZZ_SRQS; i++) {
        SimSrq *s = &f->srq[i];
        uint32_t slot = c->index & ((1u << FUZZ_LOG_SRQ) - 1);

        if (s->number == c->srqn && c->opcode & 0x80 && s->tail != slot) {
            sim_srq_slot_free(s, slot);
        }
    }
}

static void cq_consume(FuzzNode *f, SimQp *q, bool arm)
{
    for (unsigned i = 0; q->cq && i < 1u << q->cq_log; i++) {
        uint32_t slot = q->cq_consumer & ((1u << q->cq_log) - 1);
        QrnicCqe c;

        qrnic_cqe_unpack(&c, f->n->memory + q->cq_ring +
                             slot * QRNIC_CQE_SIZE);
        if (c.phase == (q->cq_consumer >> q->cq_log & 1)) {
            break;
        }
        q->cq_consumer++;
        slot_free(f, &c);
    }
    stl_le_p(f->n->memory + q->cq_record, q->cq_consumer);
    if (arm && q->cq) {
        sim_cq_arm(q);
    }
}

void fuzz_consume(FuzzNode *f, bool arm)
{
    SimNode *n = f->n;

    eq_consume(n, n->async.number, n->async.ring, n->async.log_size,
               &n->async.consumer);
    eq_consume(n, n->cq_eq, n->cq_eq_ring, 8, &n->cq_eq_consumer);
    for (unsigned i = 0; i < fuzz_num_kinds; i++) {
        cq_consume(f, &f->qp[i].q, arm);
    }
    cq_consume(f, &f->tags.cq, arm);
}

void fuzz_run(FuzzWorld *w, int64_t ns)
{
    sim_run(w->sim, w->sim->now + ns);
    for (unsigned i = 0; i < 2; i++) {
        fuzz_processes_check(&w->node[i]);
        if (qrnic_is_fatal(w->node[i].n->engine)) {
            fuzz_node_reset(&w->node[i]);
        }
    }
}

/*
 * The end of an input
 */

/* Empties the wire, which from then on loses, changes and marks no frame. */
static void wire_clean(Sim *s)
{
    SimFrame *frame;

    while ((frame = sim_wire_take(s))) {
        g_free(frame);
    }
    s->tap = NULL;
    s->marks = NULL;
    s->loss = s->repeat = s->reorder = s->corrupt = s->wire_room = 0;
    sim_run(s, s->now + 2 * BLOCKED);
    while ((frame = sim_wire_take(s))) {
        g_free(frame);
    }
}

void fuzz_world_verify(FuzzWorld *w)
{
    SimQp *q[2];
    uint64_t at[2];
    uint32_t key[2];
    SimSge sge;
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &sge, .num_sge = 1,
    };
    SimConnect c = sim_connect_default();
    QrnicCqe cqe;

    for (unsigned i = 0; i < 2; i++) {
        SimNode *n = &w->sim->node[i];

        fuzz_processes_end(&w->node[i]);
        n->broken_from = n->broken_to = 0;
        sim_reset(n);
        fuzz_clear(n);
    }
    wire_clean(w->sim);
    for (unsigned i = 0; i < 2; i++) {
        SimNode *n = &w->sim->node[i];

        qrnic_engine_set_link(n->engine, true);
        q[i] = sim_qp_new(n, 4, 4, 0, 4);
        at[i] = sim_alloc(n, FUZZ_PAGE);
        key[i] = sim_mkey(n, at[i], FUZZ_PAGE, QRNIC_ACCESS_LOCAL_WRITE |
                                               QRNIC_ACCESS_REMOTE_WRITE);
    }
    c.rd_atomic = c.max_dest_rd_atomic = 1;
    sim_connect(q[0], q[1], &c);
    memset(w->sim->node[0].memory + at[0], 0x77, FUZZ_PAGE);
    sge = (SimSge) { at[0], FUZZ_PAGE, key[0] };
    wr.remote = at[1];
    wr.rkey = key[1];
    sim_post_send(q[0], &wr);
    sim_run(w->sim, w->sim->now + BLOCKED);
    g_assert_true(sim_poll(q[0], &cqe));
    g_assert_cmpint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpmem(w->sim->node[0].memory + at[0], FUZZ_PAGE,
                    w->sim->node[1].memory + at[1], FUZZ_PAGE);
    sim_qp_free(q[0]);
    sim_qp_free(q[1]);
}
