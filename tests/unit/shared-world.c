/*
 * Members and their two carriers; see shared-world.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "shared-world.h"

static bool tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                void *opaque)
{
    Shared *w = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    w->frames[from]++;
    if (w->sees && !w->sees(w, from, &p)) {
        return false;
    }
    if (!from && w->lost_psn && p.t.psn == w->lost_psn) {
        w->lost_psn = 0;
        return false;
    }
    return !w->cut;
}

void member_init(Shared *w, unsigned m, const SimConnect *connect)
{
    SimConnect c = connect ? *connect : sim_connect_default();

    for (unsigned i = 0; i < 2; i++) {
        PairEnd *e = &w->end[m][i];

        *e = w->end[0][i];
        e->addr += m * SLICE;
        e->data += m * SLICE;
        e->qp = sim_qp_new(&w->sim->node[i], 8, 8, 3, 10);
    }
    c.options = 0;
    c.carrier_a = w->carrier[0];
    c.carrier_b = w->carrier[1];
    c.psn_a += 1000 * m;
    c.psn_b += 2000 * m;
    sim_connect(w->end[m][0].qp, w->end[m][1].qp, &c);
}

Shared *carriers_apart(void)
{
    Shared *w = g_new0(Shared, 1);

    w->sim = sim_new(3, NULL);
    w->sim->tap = tap;
    w->sim->tap_opaque = w;
    for (unsigned i = 0; i < 2; i++) {
        SimNode *n = &w->sim->node[i];
        PairEnd *e = &w->end[0][i];

        w->carrier[i] = sim_carrier_new(n);
        e->addr = sim_alloc(n, PAIR_BYTES);
        e->data = n->memory + e->addr;
        e->key = sim_mkey(n, e->addr, PAIR_BYTES, ACCESS_ALL);
        for (unsigned k = 0; k < PAIR_BYTES; k++) {
            e->data[k] = g_rand_int(w->sim->rand);
        }
    }
    return w;
}

Shared *carriers_new(uint8_t options, const SimConnect *connect)
{
    SimConnect c = connect ? *connect : sim_connect_default();
    Shared *w = carriers_apart();

    c.options = options;
    sim_carrier_connect(w->carrier[0], w->carrier[1], &c);
    return w;
}

Shared *shared_new(unsigned members, uint8_t options,
                   const SimConnect *connect)
{
    Shared *w = carriers_new(options, connect);

    for (w->members = 0; w->members < members; w->members++) {
        member_init(w, w->members, connect);
    }
    return w;
}

void shared_free(Shared *w)
{
    for (unsigned i = 0; i < 2; i++) {
        for (unsigned m = 0; m < w->members; m++) {
            if (w->end[m][i].qp) {
                sim_qp_free(w->end[m][i].qp);
            }
        }
        if (w->carrier[i]) {
            sim_carrier_free(w->carrier[i]);
        }
    }
    sim_free(w->sim);
    g_free(w);
}

void settle(Shared *w)
{
    g_assert_true(sim_run(w->sim, w->sim->now + 100000 * SIM_MS));
}

void run_us(Shared *w, int64_t us)
{
    sim_run(w->sim, w->sim->now + us * SIM_US);
}

uint64_t count(Shared *w, unsigned node, enum qrnic_counter c)
{
    return sim_counter(&w->sim->node[node], c);
}

void send_to(Shared *w, unsigned m, uint8_t opcode, uint32_t len)
{
    post(&w->end[m][0], &w->end[m][1], opcode, 0, 0, len);
}

void expect_same(Shared *w, unsigned m, uint32_t len)
{
    g_assert_cmpmem(w->end[m][0].data, len, w->end[m][1].data, len);
}

void expect_works(Shared *w, unsigned m)
{
    for (unsigned i = 0; i < 2; i++) {
        PairEnd *from = &w->end[m][i], *to = &w->end[m][!i];

        from->data[5]++;
        post(from, to, QRNIC_WQE_RDMA_WRITE, 0, 0, 100);
        settle(w);
        expect_cqe(from->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
        g_assert_cmpmem(from->data, 100, to->data, 100);
    }
}
