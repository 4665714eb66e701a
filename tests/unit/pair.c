/*
 * Two connected queue pairs with memory; see pair.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

static void end_init(PairEnd *e, SimNode *n)
{
    e->qp = sim_qp_new(n, 8, 8, 3, 10);
    e->addr = sim_alloc(n, PAIR_BYTES);
    e->data = n->memory + e->addr;
    e->key = sim_mkey(n, e->addr, PAIR_BYTES, ACCESS_ALL);
}

Pair *pair_new(uint32_t seed, const SimOptions *o, const SimConnect *c)
{
    Pair *p = g_new0(Pair, 1);

    p->sim = sim_new(seed, o);
    end_init(&p->a, &p->sim->node[0]);
    end_init(&p->b, &p->sim->node[!(o && o->loopback)]);
    if (!c || c->path_mtu) {
        sim_connect(p->a.qp, p->b.qp, c);
    }
    return p;
}

void pair_free(Pair *p)
{
    sim_qp_free(p->a.qp);
    sim_qp_free(p->b.qp);
    sim_free(p->sim);
    g_free(p);
}

void pair_fill(Pair *p)
{
    for (unsigned i = 0; i < PAIR_BYTES; i++) {
        p->a.data[i] = g_rand_int(p->sim->rand);
        p->b.data[i] = g_rand_int(p->sim->rand);
    }
}

void post(PairEnd *from, PairEnd *to, uint8_t opcode, uint64_t offset,
          uint64_t remote_offset, uint32_t len)
{
    SimSge sge = { from->addr + offset, len, from->key };
    SimWr wr = {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = &sge,
        .num_sge = len != 0, .remote = to->addr + remote_offset,
        .rkey = to->key,
    };

    sim_post_send(from->qp, &wr);
}

void post_recv(PairEnd *e, uint64_t offset, uint32_t len)
{
    SimSge sge = { e->addr + offset, len, e->key };

    sim_post_recv(e->qp, &sge, 1);
}

void pair_inject(Pair *p, PairEnd *to, const QrnicTransport *t,
                 const uint8_t *data, uint32_t len)
{
    PairEnd *from = to == &p->a ? &p->b : &p->a;
    const QrnicPathSpec spec = sim_path_to(to->qp, from->qp);
    uint8_t frame[8192], *payload;
    QrnicPath path;

    g_assert_cmpuint(len, <=, 8000);
    qrnic_path_init(&path, &spec);
    payload = qrnic_packet_begin(&path, frame, t, len);
    memset(payload, 0x5a, len);
    if (data) {
        memcpy(payload, data, len);
    }
    sim_inject(p->sim, to->qp->node->id, frame,
               qrnic_packet_finish(&path, frame, payload, len));
}

QrnicCqe expect_status(SimQp *q, uint8_t status)
{
    QrnicCqe c;

    g_assert_true(sim_poll(q, &c));
    g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpint(c.qpn, ==, q->number);
    return c;
}

QrnicCqe expect_cqe(SimQp *q, uint8_t status, uint8_t opcode)
{
    QrnicCqe c = expect_status(q, status);

    g_assert_cmphex(c.opcode, ==, opcode);
    return c;
}

void expect_no_cqe(SimQp *q)
{
    QrnicCqe c;

    g_assert_false(sim_poll(q, &c));
}

void expect_event(SimNode *n, uint8_t type, uint32_t object)
{
    QrnicEqe e;

    g_assert_true(sim_poll_event(n, &e));
    g_assert_cmpstr(qrnic_event_name(e.type), ==, qrnic_event_name(type));
    g_assert_cmpint(e.object, ==, object);
}

void expect_no_event(SimNode *n)
{
    QrnicEqe e;

    g_assert_false(sim_poll_event(n, &e));
}

void expect_state(SimQp *q, uint8_t state)
{
    g_assert_cmpstr(qrnic_qp_state_name(sim_query(q).state), ==,
                    qrnic_qp_state_name(state));
}

uint32_t key_of_bytes(SimQp *q, const PairEnd *end, uint32_t length)
{
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_INDIRECT, .variant = 7, .max_pieces = 1,
        .pd = q->node->pd,
    };
    const QrnicPiece piece = {
        .key = end->key, .address = end->addr, .length = 1, .stride = 1,
    };
    uint8_t list[QRNIC_PIECE_BYTES];
    QrnicIndirectSeg s = {
        .key = sim_mkey_ctx(q->node, &ctx), .repeat = length,
        .access = ACCESS_ALL,
    };
    SimWr wr = {
        .opcode = QRNIC_WQE_REG_INDIRECT, .flags = QRNIC_WQEF_SIGNALED,
        .indirect = &s, .inline_data = list, .inline_length = sizeof(list),
    };

    qrnic_piece_pack(list, &piece);
    sim_post_send(q, &wr);
    sim_run(q->node->sim, q->node->sim->now + SIM_MS);
    expect_cqe(q, QRNIC_WC_SUCCESS, QRNIC_CQE_REG_INDIRECT);
    return s.key;
}
