/*
 * Receiving into the CQE: the data, the saved DMA write, the cases in which
 * memory is written anyway, and equal errors with and without it
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "pair.h"

#define BYTES 4096

/* A sends, B receives into the CQE. All memory of a side is one region. */
typedef struct Ends {
    Sim *sim;
    SimQp *a, *b;
    SimSrq *srq;
    uint64_t from, to;
    uint32_t from_key, to_key;
    uint8_t type;
} Ends;

static uint32_t key_new(SimNode *n, uint64_t addr, uint8_t access,
                        uint32_t address_space)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = access, .variant = 7, .pd = n->pd,
        .start = addr, .length = BYTES, .table.root = addr,
        .address_space = address_space,
    };

    return sim_mkey_ctx(n, &ctx);
}

static void ends_init(Ends *x, uint8_t type, bool srq, uint8_t max)
{
    SimNode *a, *b;

    *x = (Ends) { .sim = sim_new(1, NULL), .type = type };
    a = &x->sim->node[0];
    b = &x->sim->node[1];
    x->srq = srq ? sim_srq_new(b, 3, 1) : NULL;
    x->a = sim_inline_new(a, type, NULL, 0);
    x->b = sim_inline_new(b, type, x->srq, max);
    if (type == QRNIC_QPT_UC) {
        sim_uc_connect(x->a, x->b);
    } else {
        sim_connect(x->a, x->b, NULL);
    }
    x->from = sim_alloc(a, BYTES);
    x->to = sim_alloc(b, BYTES);
    x->from_key = key_new(a, x->from, 0, 0);
    x->to_key = key_new(b, x->to, QRNIC_ACCESS_LOCAL_WRITE, 1);
    for (unsigned i = 0; i < BYTES; i++) {
        a->memory[x->from + i] = 1 + i % 255;
    }
    memset(b->memory + x->to, 0, BYTES);
}

static void ends_free(Ends *x)
{
    sim_qp_free(x->a);
    sim_qp_free(x->b);
    if (x->srq) {
        sim_srq_free(x->srq);
    }
    sim_free(x->sim);
}

static void post_to(Ends *x, const SimSge *sge, unsigned num_sge)
{
    if (x->srq) {
        sim_post_srq(x->srq, sge, num_sge);
    } else {
        sim_post_recv(x->b, sge, num_sge);
    }
}

static void send_message(Ends *x, uint8_t opcode, uint32_t len)
{
    SimSge sge = { x->from, len, x->from_key };
    SimWr wr = {
        .opcode = opcode, .sge = &sge, .num_sge = len != 0,
        .imm = opcode == QRNIC_WQE_SEND_IMM ? 0x1234 : 0,
        .flags = QRNIC_WQEF_SIGNALED,
    };

    sim_post_send(x->a, &wr);
    g_assert_true(sim_run(x->sim, INT64_MAX));
}

static uint64_t count(Ends *x, enum qrnic_counter c)
{
    return sim_counter(x->b->node, c);
}

static bool memory_has(Ends *x, uint64_t offset, uint32_t len)
{
    return !memcmp(x->b->node->memory + x->to + offset,
                   x->a->node->memory + x->from, len);
}

/* Receives a message. Returns the number of B's DMA writes. */
static uint64_t receive(Ends *x, uint32_t len, bool expect_inline)
{
    SimSge sge = { x->to, 100, x->to_key };
    uint64_t writes, cqes = count(x, QRNIC_COUNTER_INLINE_CQES);
    QrnicCqeInline in;
    QrnicCqe c;

    memset(x->b->node->memory + x->to, 0, BYTES);
    post_to(x, &sge, 1);
    writes = count(x, QRNIC_COUNTER_DMA_WRITES);
    send_message(x, QRNIC_WQE_SEND_IMM, len);
    writes = count(x, QRNIC_COUNTER_DMA_WRITES) - writes;
    expect_cqe(x->a, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    c = expect_cqe(x->b, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmpuint(c.byte_len, ==, len);
    g_assert_cmphex(c.imm, ==, 0x1234);
    g_assert_cmpuint(c.srqn, ==, x->srq ? x->srq->number : 0);
    g_assert_cmphex(c.flags, ==, QRNIC_CQEF_IMM |
                    (expect_inline ? QRNIC_CQEF_INLINE : 0));
    g_assert_cmpuint(count(x, QRNIC_COUNTER_INLINE_CQES) - cqes, ==,
                     expect_inline);
    if (x->srq) {
        sim_srq_slot_free(x->srq, c.index);
    }
    if (expect_inline) {
        uint8_t data[32];

        in = sim_polled_inline(x->b);
        memcpy(data, in.data, 16);
        memcpy(data + 16, in.more_data, 16);
        g_assert_cmpmem(data, len, x->a->node->memory + x->from, len);
        for (uint32_t i = len; i < sizeof(data); i++) {
            g_assert_cmpuint(data[i], ==, 0);
        }
        for (uint32_t i = 0; i < BYTES; i++) {
            g_assert_cmpuint(x->b->node->memory[x->to + i], ==, 0);
        }
    } else {
        g_assert_true(memory_has(x, 0, len));
    }
    return writes;
}

static void test_data(void)
{
    static const struct { uint8_t type; bool srq; } kind[] = {
        { QRNIC_QPT_RC, false }, { QRNIC_QPT_RC, true },
        { QRNIC_QPT_UC, false }, { QRNIC_QPT_UC, true },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(kind); i++) {
        Ends with, without;
        uint64_t nothing;

        ends_init(&with, kind[i].type, kind[i].srq, 32);
        ends_init(&without, kind[i].type, kind[i].srq, 0);
        nothing = receive(&without, 0, false);
        g_assert_cmpuint(receive(&with, 0, false), ==, nothing);
        for (uint32_t len = 1; len <= 32; len++) {
            /*
             * Without inline data, data costs one write more than a message of
             * 0 bytes.
             */
            g_assert_cmpuint(receive(&without, len, false), ==, nothing + 1);
            g_assert_cmpuint(receive(&with, len, true), ==, nothing);
        }
        g_assert_cmpuint(receive(&with, 33, false), ==, nothing + 1);
        g_assert_cmpuint(receive(&with, 100, false), ==, nothing + 1);
        ends_free(&with);
        ends_free(&without);
    }
}

/* Tests a limit below the room of the CQE. */
static void test_limit(void)
{
    Ends x;

    ends_init(&x, QRNIC_QPT_RC, false, 5);
    receive(&x, 5, true);
    receive(&x, 6, false);
    ends_free(&x);
}

/*
 * Tests that all segments of the data must have the address space. Otherwise
 * the data would be in memory that software does not read.
 */
static void test_address_space(void)
{
    Ends x;
    QrnicCqe c;
    uint32_t other;

    ends_init(&x, QRNIC_QPT_RC, false, 32);
    other = key_new(x.b->node, x.to, QRNIC_ACCESS_LOCAL_WRITE, 2);
    for (int len = 8; len <= 10; len++) {
        SimSge sge[3] = {
            { x.to, 8, x.to_key }, { x.to + 8, 1, other },
            { x.to + 9, 8, x.to_key },
        };
        bool in_cqe = len == 8;

        post_to(&x, sge, 3);
        send_message(&x, QRNIC_WQE_SEND, len);
        expect_cqe(x.a, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        c = expect_cqe(x.b, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
        g_assert_cmphex(c.flags, ==, in_cqe ? QRNIC_CQEF_INLINE : 0);
        g_assert_true(memory_has(&x, 0, len) == !in_cqe);
    }
    ends_free(&x);
}

/* Tests a message that follows a message of several packets, or a write. */
static void test_others(void)
{
    Ends x;
    QrnicCqe c;
    uint32_t rkey;
    SimSge from, to;
    SimWr wr;

    ends_init(&x, QRNIC_QPT_RC, false, 32);
    to = (SimSge) { x.to, 4000, x.to_key };
    post_to(&x, &to, 1);
    send_message(&x, QRNIC_WQE_SEND, 4000);
    expect_cqe(x.a, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    c = expect_cqe(x.b, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmphex(c.flags, ==, 0);
    g_assert_true(memory_has(&x, 0, 4000));

    memset(x.b->node->memory + x.to, 0, BYTES);
    rkey = key_new(x.b->node, x.to, QRNIC_ACCESS_LOCAL_WRITE |
                   QRNIC_ACCESS_REMOTE_WRITE, 1);
    from = (SimSge) { x.from, 8, x.from_key };
    wr = (SimWr) {
        .opcode = QRNIC_WQE_RDMA_WRITE_IMM, .flags = QRNIC_WQEF_SIGNALED,
        .sge = &from, .num_sge = 1, .remote = x.to + 64, .rkey = rkey,
    };
    post_to(&x, &to, 1);
    sim_post_send(x.a, &wr);
    g_assert_true(sim_run(x.sim, INT64_MAX));
    expect_cqe(x.a, QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    c = expect_cqe(x.b, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmphex(c.flags, ==, QRNIC_CQEF_IMM);
    g_assert_true(memory_has(&x, 64, 8));
    ends_free(&x);
}

/*
 * Causes one error, with and without inline data. The CQEs, states and counters
 * are equal.
 */
static void one_error(uint8_t type, uint32_t length, bool bad_key,
                      uint8_t access, uint8_t status, uint8_t syndrome)
{
    for (int max = 0; max <= 32; max += 32) {
        SimSge sge;
        QrnicCqe c;
        Ends x;

        ends_init(&x, type, false, max);
        sge = (SimSge) {
            x.to, length,
            key_new(x.b->node, x.to, access, 1) ^ (bad_key ? 0xff : 0),
        };
        post_to(&x, &sge, 1);
        send_message(&x, QRNIC_WQE_SEND, 20);
        g_assert_cmpuint(count(&x, QRNIC_COUNTER_INLINE_CQES), ==, 0);
        g_assert_false(memory_has(&x, 0, 20));
        if (status == QRNIC_WC_SUCCESS) {
            /* UC drops the message without an error. */
            expect_no_cqe(x.b);
            expect_state(x.b, QRNIC_QPS_RTS);
            g_assert_cmpuint(count(&x, QRNIC_COUNTER_RX_DROP_LENGTH), ==, 1);
        } else {
            c = expect_status(x.b, status);
            g_assert_cmpuint(c.syndrome, ==, syndrome);
            g_assert_cmpuint(c.opcode & QRNIC_CQE_RECV, ==, QRNIC_CQE_RECV);
            expect_state(x.b, QRNIC_QPS_ERR);
        }
        if (type == QRNIC_QPT_RC) {
            expect_status(x.a, status == QRNIC_WC_LOC_LEN_ERR ?
                          QRNIC_WC_REM_INV_REQ_ERR : QRNIC_WC_REM_OP_ERR);
        }
        ends_free(&x);
    }
}

static void test_errors(void)
{
    const uint8_t write = QRNIC_ACCESS_LOCAL_WRITE;

    one_error(QRNIC_QPT_RC, 19, false, write, QRNIC_WC_LOC_LEN_ERR,
              QRNIC_SYN_NONE);
    one_error(QRNIC_QPT_UC, 19, false, write, QRNIC_WC_SUCCESS, 0);
    for (int i = 0; i < 2; i++) {
        uint8_t type = i ? QRNIC_QPT_UC : QRNIC_QPT_RC;

        one_error(type, 20, true, write, QRNIC_WC_LOC_PROT_ERR,
                  QRNIC_SYN_KEY_INVALID);
        one_error(type, 20, false, 0, QRNIC_WC_LOC_PROT_ERR,
                  QRNIC_SYN_KEY_ACCESS);
    }
}

static void expect_refused(SimNode *n, const QrnicQpCtx *ctx, uint32_t offset)
{
    QrnicResult r = qrnic_qp_create(n->engine, ctx);

    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmphex(r.syndrome, ==, offset);
}

static void test_commands(void)
{
    static const uint8_t without[] = {
        QRNIC_QPT_UD, QRNIC_QPT_GSI, QRNIC_QPT_RAW_PACKET,
    };
    Sim *s = sim_new(1, NULL);
    SimNode *n = &s->node[0];
    QrnicQpCtx qp = { .type = QRNIC_QPT_RC, .sq_log_size = 3 };
    QrnicMkeyCtx key = {
        .type = QRNIC_MKEY_DMA, .pd = n->pd, .length = UINT64_MAX,
        .address_space = 1,
    };
    QrnicResult r;

    qp.max_recv_inline = 33;
    qp.address_space = 1;
    expect_refused(n, &qp, QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    qp.max_recv_inline = 32;
    qp.address_space = 0;
    expect_refused(n, &qp, QRNIC_QP_CTX_ADDRESS_SPACE_OFFSET);
    qp.max_recv_inline = 0;
    qp.address_space = 1;
    expect_refused(n, &qp, QRNIC_QP_CTX_ADDRESS_SPACE_OFFSET);
    qp.max_recv_inline = 32;
    for (unsigned i = 0; i < ARRAY_SIZE(without); i++) {
        qp.type = without[i];
        expect_refused(n, &qp, QRNIC_QP_CTX_MAX_RECV_INLINE_OFFSET);
    }
    r = qrnic_mkey_create(n->engine, &key);
    g_assert_cmpint(r.status, ==, QRNIC_ST_BAD_PARAM);
    g_assert_cmphex(r.syndrome, ==, QRNIC_MKEY_CTX_ADDRESS_SPACE_OFFSET);
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/inline-recv/data", test_data);
    g_test_add_func("/qrnic/inline-recv/limit", test_limit);
    g_test_add_func("/qrnic/inline-recv/address-space", test_address_space);
    g_test_add_func("/qrnic/inline-recv/others", test_others);
    g_test_add_func("/qrnic/inline-recv/errors", test_errors);
    g_test_add_func("/qrnic/inline-recv/commands", test_commands);
    return g_test_run();
}
