/*
 * Dynamic connections: connects and disconnects, lost, repeated and reordered
 * packets, and the errors of each side
 *
 * QRNIC_SEED=n runs only that seed of the random traffic.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "engine/transport/transport.h"
#include "pair.h"

#define KEY 0x1122334455667788ull
#define BYTES (1u << 18)
#define SLOTS 64
#define SLOT 2048
#define COUNTER (BYTES - 64)
#define IDLE 10                 /* 4.2 ms */
#define LONG_IDLE 18            /* 1.07 s */

/* Memory of a node, with its key. Receive buffers are at its beginning. */
typedef struct Memory {
    uint64_t addr;
    uint8_t *data;
    uint32_t key;
} Memory;

typedef struct Target {
    SimSrq *srq;
    SimQp *qp;
    Memory m;
} Target;

typedef struct World {
    Sim *sim;
    SimConnect c;
    Target target[3];
    SimQp *initiator[4];
    Memory m[4];                /* Memories of the initiators */
    unsigned targets, initiators;
    uint8_t flags;              /* Flags of the initiators */
    uint16_t responders;
    uint32_t context_cache;
} World;

static Memory memory_new(SimNode *n)
{
    Memory m = { .addr = sim_alloc(n, BYTES) };

    m.data = n->memory + m.addr;
    m.key = sim_mkey(n, m.addr, BYTES, ACCESS_ALL);
    return m;
}

/* Posts the next slot of the SRQ, which has a buffer of its own. */
static void post_slot(Target *t)
{
    SimSge sge = { t->m.addr + t->srq->head * SLOT, SLOT, t->m.key };

    sim_post_srq(t->srq, &sge, 1);
}

static void target_new(World *w, Target *t)
{
    QrnicDynamicAttr attr = {
        .access_key = KEY, .responders = w->responders,
    };
    SimNode *n = &w->sim->node[1];

    t->m = memory_new(n);
    t->srq = sim_srq_new(n, 6, 0);
    t->qp = sim_dynamic_new(n, t->srq, &attr);
    sim_dynamic_start(t->qp, &w->c);
    for (unsigned i = 0; i < SLOTS - 1; i++) {
        post_slot(t);
    }
}

static SimQp *initiator_new(World *w, unsigned node, uint8_t idle)
{
    QrnicDynamicAttr attr = { .idle = idle, .flags = w->flags };
    SimQp *q = sim_dynamic_new(&w->sim->node[node], NULL, &attr);

    sim_dynamic_start(q, &w->c);
    return q;
}

static World world_defaults(void)
{
    return (World) {
        .c = sim_connect_default(), .targets = 1, .initiators = 1,
        .responders = 4,
    };
}

static World *world_new(World with)
{
    World *w = g_memdup2(&with, sizeof(with));
    SimOptions o = {
        .memory = 64 << 20, .context_cache = with.context_cache,
        .context_latency = 1000,
    };

    w->sim = sim_new(7, &o);
    for (unsigned i = 0; i < w->targets; i++) {
        target_new(w, &w->target[i]);
    }
    for (unsigned i = 0; i < w->initiators; i++) {
        w->m[i] = memory_new(&w->sim->node[0]);
        w->initiator[i] = initiator_new(w, 0, IDLE);
    }
    return w;
}

static void world_free(World *w)
{
    for (unsigned i = 0; i < w->initiators; i++) {
        sim_qp_free(w->initiator[i]);
    }
    for (unsigned i = 0; i < w->targets; i++) {
        if (w->target[i].qp) {
            sim_qp_free(w->target[i].qp);
        }
        sim_srq_free(w->target[i].srq);
    }
    sim_free(w->sim);
    g_free(w);
}

static void send_with(World *w, unsigned i, Target *t, SimWr *wr,
                      uint64_t local, uint32_t len, uint64_t remote,
                      uint64_t key)
{
    SimSge sge = { w->m[i].addr + local, len, w->m[i].key };
    QrnicDynamicSeg to = sim_dynamic_to(t->qp, key);

    wr->flags |= QRNIC_WQEF_SIGNALED;
    wr->dynamic = &to;
    wr->sge = &sge;
    wr->num_sge = len != 0 && wr->opcode != QRNIC_WQE_ATOMIC_WRITE;
    wr->remote = t->m.addr + remote;
    wr->rkey = t->m.key;
    sim_post_send(w->initiator[i], wr);
}

static void send_op(World *w, unsigned i, unsigned t, uint8_t opcode,
                    uint64_t local, uint32_t len, uint64_t remote)
{
    SimWr wr = { .opcode = opcode, .swap_add = 1 };

    send_with(w, i, &w->target[t], &wr, local, len, remote, KEY);
}

static void run(World *w)
{
    sim_run(w->sim, w->sim->now + 60000 * SIM_MS);
}

static void fill(World *w, Memory *m)
{
    for (unsigned i = 0; i < BYTES; i++) {
        m->data[i] = g_rand_int(w->sim->rand);
    }
}

static uint64_t count(World *w, unsigned node, enum qrnic_counter c)
{
    return sim_counter(&w->sim->node[node], c);
}

static void expect_recv(World *w, unsigned t, unsigned i, uint64_t local,
                        uint32_t len)
{
    Target *to = &w->target[t];
    QrnicCqe c = expect_cqe(to->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);

    g_assert_cmpint(c.src_qpn, ==, w->initiator[i]->number);
    g_assert_cmpmem(c.smac, 6, w->initiator[i]->node->gid.mac, 6);
    g_assert_cmpint(c.srqn, ==, to->srq->number);
    g_assert_cmpint(c.byte_len, ==, len);
    g_assert_cmpmem(to->m.data + c.index * SLOT, len, w->m[i].data + local,
                    len);
    sim_srq_slot_free(to->srq, c.index);
}

static QrnicCqe expect_error(SimQp *q, uint8_t status, uint8_t syndrome)
{
    QrnicCqe c = expect_status(q, status);

    g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    expect_state(q, QRNIC_QPS_ERR);
    return c;
}

/* Operations */

static void all_operations(World *w)
{
    const uint32_t lengths[] = { 0, 1, 1024, 1025, 2000 };
    uint8_t *a = w->m[0].data, *b = w->target[0].m.data;
    QrnicFlushSeg flush = { .length = 8, .type = QRNIC_FLUSH_GLOBAL };
    SimWr wr = { .opcode = QRNIC_WQE_SEND_IMM, .imm = 0x12345678 };
    uint64_t before;
    QrnicCqe c;

    fill(w, &w->m[0]);
    fill(w, &w->target[0].m);
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        send_op(w, 0, 0, QRNIC_WQE_SEND, i * 4096, lengths[i], 0);
    }
    run(w);
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        expect_recv(w, 0, 0, i * 4096, lengths[i]);
    }
    send_with(w, 0, &w->target[0], &wr, 0, 64, 0, KEY);
    run(w);
    c = expect_cqe(w->target[0].qp, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV);
    g_assert_cmphex(c.imm, ==, 0x12345678);
    g_assert_cmphex(c.flags, ==, QRNIC_CQEF_IMM);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);

    send_op(w, 0, 0, QRNIC_WQE_RDMA_WRITE, 100, 60001, 140000);
    wr = (SimWr) { .opcode = QRNIC_WQE_RDMA_WRITE_IMM, .imm = 9 };
    send_with(w, 0, &w->target[0], &wr, 70000, 3000, 210000, KEY);
    run(w);
    g_assert_cmpmem(a + 100, 60001, b + 140000, 60001);
    g_assert_cmpmem(a + 70000, 3000, b + 210000, 3000);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_WRITE);
    c = expect_cqe(w->target[0].qp, QRNIC_WC_SUCCESS,
                   QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpint(c.byte_len, ==, 3000);
    g_assert_cmpint(c.src_qpn, ==, w->initiator[0]->number);

    send_op(w, 0, 0, QRNIC_WQE_RDMA_READ, 130000, 50000, 140001);
    before = ldq_le_p(b + COUNTER);
    send_op(w, 0, 0, QRNIC_WQE_ATOMIC_FETCH_ADD, 200000, 8, COUNTER);
    wr = (SimWr) {
        .opcode = QRNIC_WQE_ATOMIC_CMP_SWAP, .compare = before + 1,
        .swap_add = 77,
    };
    send_with(w, 0, &w->target[0], &wr, 200008, 8, COUNTER, KEY);
    wr = (SimWr) { .opcode = QRNIC_WQE_ATOMIC_WRITE, .swap_add = 0x4711 };
    send_with(w, 0, &w->target[0], &wr, 0, 8, COUNTER + 8, KEY);
    run(w);
    g_assert_cmpmem(a + 130000, 50000, b + 140001, 50000);
    g_assert_cmphex(ldq_le_p(a + 200000), ==, before);
    g_assert_cmphex(ldq_le_p(a + 200008), ==, before + 1);
    g_assert_cmphex(ldq_le_p(b + COUNTER), ==, 77);
    g_assert_cmphex(ldq_le_p(b + COUNTER + 8), ==, 0x4711);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_FETCH_ADD);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_CMP_SWAP);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_WRITE);

    /* The region lacks the right to be flushed. */
    wr = (SimWr) { .opcode = QRNIC_WQE_FLUSH, .flush = &flush };
    send_with(w, 0, &w->target[0], &wr, 0, 0, 0, KEY);
    run(w);
    expect_error(w->initiator[0], QRNIC_WC_REM_ACCESS_ERR, QRNIC_SYN_NONE);
}

static void test_operations(void)
{
    for (unsigned full = 0; full < 2; full++) {
        World with = world_defaults(), *w;

        with.flags = full ? QRNIC_DYNAMICF_FULL : 0;
        w = world_new(with);
        all_operations(w);
        world_free(w);
    }
}

/* Logs the packets on the wire as text, until all work is done. */
static bool log_tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                    void *opaque)
{
    GString *log = opaque;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    g_string_append_printf(log, "%s ", strchr(p.info->name, '_') + 1);
    return true;
}

static void expect_log(GString *log, const char *what)
{
    g_assert_cmpstr(g_strchomp(log->str), ==, what);
    g_string_truncate(log, 0);
}

/*
 * Tests the half handshake (0), the full one by CREATE_QP (1), and the full one
 * by an option on the move to RTR (2).
 */
static void test_handshake(void)
{
    for (unsigned full = 0; full < 3; full++) {
        World with = world_defaults(), *w;
        g_autoptr(GString) log = g_string_new(NULL);

        with.flags = full == 1 ? QRNIC_DYNAMICF_FULL : 0;
        with.c.options = full == 2 ? QRNIC_QPO_FULL_HANDSHAKE : 0;
        w = world_new(with);
        w->sim->tap = log_tap;
        w->sim->tap_opaque = log;
        send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
        sim_run(w->sim, w->sim->now + SIM_MS);
        expect_log(log, full ? "CONNECT ACCEPT SEND_ONLY ACK" :
                               "CONNECT SEND_ONLY ACCEPT ACK");
        /* The connection persists for the idle time, and then ends. */
        send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
        sim_run(w->sim, w->sim->now + SIM_MS);
        expect_log(log, "SEND_ONLY ACK");
        run(w);
        expect_log(log, "DISCONNECT");
        g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS), ==, 1);
        g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_DISCONNECTS), ==, 1);
        g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
        g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 0);
        world_free(w);
    }
}

/*
 * Tests messages that go to another target each. The order is that of the WQEs,
 * because completions must be in order.
 */
static void test_addresses(void)
{
    World with = world_defaults(), *w;
    g_autoptr(GString) log = g_string_new(NULL);

    with.targets = 2;
    w = world_new(with);
    fill(w, &w->m[0]);
    for (unsigned i = 0; i < 12; i++) {
        send_op(w, 0, i / 2 % 2, QRNIC_WQE_SEND, i * 2048, 1500 + i, 0);
    }
    run(w);
    for (unsigned i = 0; i < 12; i++) {
        QrnicCqe c = expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS,
                                QRNIC_CQE_SEND);

        g_assert_cmpint(c.index, ==, 2 * i);
        expect_recv(w, i / 2 % 2, 0, i * 2048, 1500 + i);
    }
    g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS), ==, 6);
    g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_DISCONNECTS), ==, 6);
    g_assert_cmpint(count(w, 0, QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);

    w->sim->tap = log_tap;
    w->sim->tap_opaque = log;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 1, 0);
    send_op(w, 0, 1, QRNIC_WQE_SEND, 0, 1, 0);
    run(w);
    expect_log(log, "CONNECT SEND_ONLY ACCEPT ACK DISCONNECT "
                    "CONNECT SEND_ONLY ACCEPT ACK DISCONNECT");
    world_free(w);
}

/*
 * The worked example of the chapter Dynamic connections. tests/contract
 * compares these lines with the manual.
 */
static const char worked_example[] =
    "5 to 9    CONNECT     connection 77, PSN 100\n"
    "5 to 9    SEND Only   connection 77, PSN 100, AckReq\n"
    "5 to 9    SEND Only   connection 77, PSN 101, AckReq\n"
    "9 to 5    ACCEPT      connection 77, PSN 100\n"
    "9 to 5    ACK         connection 77, PSN 101\n"
    "5 to 9    DISCONNECT  connection 77, PSN 103\n"
    "5 to 10   CONNECT     connection 78, PSN 102\n"
    "5 to 10   SEND Only   connection 78, PSN 102, AckReq\n"
    "10 to 5   ACCEPT      connection 78, PSN 102\n"
    "10 to 5   ACK         connection 78, PSN 102\n";

typedef struct Conversation {
    World *w;
    GString *log;
    uint32_t connection;        /* Number of the last connection */
    unsigned number;            /* The example's number in place of it */
} Conversation;

static bool conversation_tap(Sim *s, unsigned from, const uint8_t *frame,
                             size_t len, void *opaque)
{
    Conversation *c = opaque;
    g_autofree char *ends = NULL;
    const char *name;
    unsigned target;
    QrnicPacket p;

    g_assert_cmpint(sim_parse(&p, frame, len), ==, QRNIC_PARSE_OK);
    name = strchr(p.info->name, '_') + 1;
    target = (from ? p.t.src_qpn : p.t.dest_qpn) ==
             c->w->target[0].qp->number ? 9 : 10;
    if (p.t.connection != c->connection) {
        c->connection = p.t.connection;
        c->number++;
    }
    ends = g_strdup_printf("%u to %u", from ? target : 5, from ? 5 : target);
    g_string_append_printf(c->log, "%-9s %-11s connection %u, PSN %u%s\n", ends,
                           g_str_equal(name, "SEND_ONLY") ? "SEND Only" : name,
                           76 + c->number,
                           100 + p.t.psn - c->w->c.psn_a,
                           p.t.ack_req ? ", AckReq" : "");
    return true;
}

static void test_worked_example(void)
{
    World with = world_defaults(), *w;
    g_autoptr(GString) log = g_string_new(NULL);
    Conversation c = { .log = log };

    with.targets = 2;
    c.w = w = world_new(with);
    w->sim->tap = conversation_tap;
    w->sim->tap_opaque = &c;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    send_op(w, 0, 1, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_cmpstr(log->str, ==, worked_example);
    world_free(w);
}

/* Tests the longest WQE, which has 35 segments. */
static void test_longest_wqe(void)
{
    World *w = world_new(world_defaults());
    QrnicDynamicSeg to = sim_dynamic_to(w->target[0].qp, KEY);
    SimSge sge[QRNIC_MAX_SGE];
    SimWr wr = {
        .opcode = QRNIC_WQE_RDMA_WRITE, .flags = QRNIC_WQEF_SIGNALED,
        .dynamic = &to, .sge = sge, .num_sge = QRNIC_MAX_SGE,
        .remote = w->target[0].m.addr + SLOTS * SLOT,
        .rkey = w->target[0].m.key,
    };

    fill(w, &w->m[0]);
    for (unsigned i = 0; i < QRNIC_MAX_SGE; i++) {
        sge[i] = (SimSge) { w->m[0].addr + 3 * i, 3, w->m[0].key };
    }
    for (unsigned i = 0; i < 8; i++) {
        sim_post_send(w->initiator[0], &wr);
        run(w);
        g_assert_cmpint(expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS,
                                   QRNIC_CQE_RDMA_WRITE).index, ==,
                        QRNIC_WQE_MAX_WQEBB * i);
    }
    g_assert_cmpmem(w->target[0].m.data + SLOTS * SLOT, 3 * QRNIC_MAX_SGE,
                    w->m[0].data, 3 * QRNIC_MAX_SGE);
    world_free(w);
}

/* Asserts the bytes behind the BTH, and the members of the BTH. */
static bool bytes_tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    World *w = opaque;
    const uint8_t *bth = frame + 14 + 20 + 8;
    uint32_t connection = ldl_be_p(bth + 16);
    uint32_t i = w->initiator[0]->number, t = w->target[0].qp->number;

    g_assert_cmphex(connection >> 24, ==, 0);
    g_assert_cmphex(ldl_be_p(bth + 4), ==, from ? i : t);
    g_assert_cmphex(ldl_be_p(bth + 12), ==, from ? t : i);
    switch (bth[0]) {
    case 0xe0:
        g_assert_cmphex(ldq_be_p(bth + 20), ==, KEY);
        g_assert_cmphex(ldl_be_p(bth + 28), ==, 0x03040000);
        g_assert_cmphex(ldl_be_p(bth + 8), ==, w->c.psn_a);
        g_assert_cmpint(frame + len - bth, ==, 12 + 8 + 12 + 4);
        break;
    case 0xe1:
        g_assert_cmphex(ldl_be_p(bth + 8), ==, w->c.psn_a);
        /* fall through */
    case 0xe3:
        g_assert_cmpint(frame + len - bth, ==, 12 + 8 + 4);
        break;
    case 0xc4:
        g_assert_cmpint(bth[20], ==, 'x');
        g_assert_cmpint(frame + len - bth, ==, 12 + 8 + 4 + 4);
        break;
    case 0xd1:
        g_assert_cmphex(bth[20], ==, 0x1f);
        g_assert_cmpint(frame + len - bth, ==, 12 + 8 + 4 + 4);
        break;
    default:
        g_assert_not_reached();
    }
    w->sim->seed |= 1u << (bth[0] & 0x1f);
    return true;
}

static void test_bytes(void)
{
    World *w = world_new(world_defaults());

    memset(w->m[0].data, 'x', 4);
    w->sim->seed = 0;
    w->sim->tap = bytes_tap;
    w->sim->tap_opaque = w;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 4, 0);
    run(w);
    g_assert_cmphex(w->sim->seed, ==, 0x2001b);
    world_free(w);
}

/* Loss: each packet once, in both handshakes; each packet twice; random loss */

typedef struct Fault {
    unsigned at, seen;
    bool twice;                 /* Repeats the packet; false: loses it */
} Fault;

static bool fault_tap(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    Fault *f = opaque;

    if (f->seen++ != f->at) {
        return true;
    }
    if (f->twice) {
        s->tap = NULL;
        /* Only this packet is repeated, because the caller resets s->repeat. */
        s->repeat = 1000;
        return true;
    }
    return false;
}

static unsigned one_fault(unsigned at, bool twice, bool full)
{
    World with = world_defaults(), *w;
    Fault f = { .at = at, .twice = twice };
    uint64_t sum = 0;

    with.targets = 2;
    with.c.timeout = 5;
    with.c.min_rnr_timer = 3;
    with.flags = full ? QRNIC_DYNAMICF_FULL : 0;
    w = world_new(with);
    fill(w, &w->m[0]);
    memset(w->target[0].m.data + COUNTER, 0, 8);
    memset(w->target[1].m.data + COUNTER, 0, 8);
    w->sim->tap = fault_tap;
    w->sim->tap_opaque = &f;
    for (unsigned i = 0; i < 6; i++) {
        send_op(w, 0, i / 3, QRNIC_WQE_ATOMIC_FETCH_ADD, 100000 + 8 * i, 8,
                COUNTER);
        send_op(w, 0, i / 3, QRNIC_WQE_SEND, i * 2048, 1030 + i, 0);
    }
    run(w);
    for (unsigned i = 0; i < 6; i++) {
        expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS,
                   QRNIC_CQE_ATOMIC_FETCH_ADD);
        expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        g_assert_cmpint(ldq_le_p(w->m[0].data + 100000 + 8 * i), ==, i % 3);
        expect_recv(w, i / 3, 0, i * 2048, 1030 + i);
    }
    for (unsigned i = 0; i < 2; i++) {
        expect_no_cqe(w->target[i].qp);
        sum += ldq_le_p(w->target[i].m.data + COUNTER);
    }
    g_assert_cmpint(sum, ==, 6);
    world_free(w);
    return f.seen;
}

static void test_each_loss(void)
{
    for (unsigned full = 0; full < 2; full++) {
        unsigned all = one_fault(UINT_MAX, false, full);

        g_assert_cmpint(all, >, 20);
        for (unsigned i = 0; i < all; i++) {
            one_fault(i, false, full);
            one_fault(i, true, full);
        }
    }
}

typedef struct Op {
    uint8_t opcode;
    unsigned target;
    uint64_t local;
    uint32_t len;
} Op;

typedef struct Weather {
    const char *name;
    unsigned loss, repeat, reorder, corrupt, wire_room;
    uint16_t responders;
    uint8_t flags;
} Weather;

static const Weather weathers[] = {
    { "calm", 0, 0, 0, 0, 0, 4, 0 },
    { "few-responders", 0, 0, 0, 0, 0, 1, 0 },
    { "full-few-responders", 10, 0, 0, 0, 0, 2, QRNIC_DYNAMICF_FULL },
    { "loss", 40, 0, 0, 0, 0, 4, 0 },
    { "repeat", 0, 150, 0, 0, 0, 4, 0 },
    { "reorder", 0, 0, 50, 0, 0, 4, 0 },
    { "corrupt", 0, 0, 0, 30, 0, 4, 0 },
    { "backpressure", 10, 0, 0, 0, 3, 4, 0 },
    { "all", 15, 50, 15, 10, 5, 3, 0 },
    { "all-full", 15, 50, 15, 10, 5, 3, QRNIC_DYNAMICF_FULL },
};

#define OPS 60
#define AREA 2048u

/*
 * 4 initiators send to 3 targets. Each write has an area of its own, atomics
 * add to one counter, and sends differ in their content.
 */
typedef struct Random {
    World *w;
    Op op[4][OPS];
    unsigned posted[4], done[4], taken[4][3];
    uint64_t added[3];
    bool failed[4];
} Random;

static void random_post(Random *x, unsigned i)
{
    static const uint8_t opcodes[] = {
        QRNIC_WQE_SEND, QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_RDMA_READ,
        QRNIC_WQE_ATOMIC_FETCH_ADD,
    };
    GRand *r = x->w->sim->rand;
    unsigned n = x->posted[i]++;
    Op *o = &x->op[i][n];
    /* Each initiator has an area behind the receive buffers. */
    uint64_t remote = SLOTS * SLOT + i * 32768 + (n % 15) * AREA;

    o->opcode = opcodes[g_rand_int_range(r, 0, ARRAY_SIZE(opcodes))];
    o->target = g_rand_int_range(r, 0, 3) && n ? x->op[i][n - 1].target :
                g_rand_int_range(r, 0, 3);
    o->local = n * AREA;
    o->len = o->opcode == QRNIC_WQE_ATOMIC_FETCH_ADD ? 8 :
             g_rand_int_range(r, 8, AREA + 1);
    if (o->opcode != QRNIC_WQE_RDMA_READ) {
        stl_le_p(x->w->m[i].data + o->local, i << 16 | n);
    }
    send_op(x->w, i, o->target, o->opcode, o->local, o->len,
            o->opcode == QRNIC_WQE_ATOMIC_FETCH_ADD ? COUNTER : remote);
}

static void random_poll(Random *x)
{
    QrnicCqe c;

    for (unsigned i = 0; i < 4; i++) {
        while (sim_poll(x->w->initiator[i], &c)) {
            Op *o = &x->op[i][x->done[i]++];

            if (c.status != QRNIC_WC_SUCCESS) {
                g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                                qrnic_wc_status_name(x->failed[i] ?
                                                     QRNIC_WC_WR_FLUSH_ERR :
                                                     QRNIC_WC_RETRY_EXC_ERR));
                x->failed[i] = true;
                continue;
            }
            g_assert_false(x->failed[i]);
            x->added[o->target] += o->opcode == QRNIC_WQE_ATOMIC_FETCH_ADD;
        }
    }
    for (unsigned t = 0; t < 3; t++) {
        Target *to = &x->w->target[t];

        while (sim_poll(to->qp, &c)) {
            const uint8_t *data = to->m.data + c.index * SLOT;
            unsigned i = ldl_le_p(data) >> 16, n = ldl_le_p(data) & 0xffff;
            Op *o = &x->op[i][n];

            g_assert_cmpint(c.status, ==, QRNIC_WC_SUCCESS);
            g_assert_cmpint(c.src_qpn, ==, x->w->initiator[i]->number);
            g_assert_cmpint(o->opcode, ==, QRNIC_WQE_SEND);
            g_assert_cmpint(o->target, ==, t);
            g_assert_cmpmem(data, c.byte_len, x->w->m[i].data + o->local,
                            o->len);
            /* Each message arrives once, and in order. */
            g_assert_cmpint(n, >=, x->taken[i][t]);
            x->taken[i][t] = n + 1;
            sim_srq_slot_free(to->srq, c.index);
            post_slot(to);
        }
    }
}

static void random_run(const Weather *k, uint32_t seed)
{
    World with = world_defaults(), *w;
    Random *x = g_new0(Random, 1);
    unsigned open = 4;

    g_test_message("%s: seed %u", k->name, seed);
    with.targets = 3;
    with.initiators = 4;
    with.responders = k->responders;
    with.flags = k->flags;
    with.c.timeout = k->wire_room ? 10 : 5;
    with.c.min_rnr_timer = 3;
    w = x->w = world_new(with);
    g_rand_set_seed(w->sim->rand, seed);
    w->sim->loss = k->loss;
    w->sim->repeat = k->repeat;
    w->sim->reorder = k->reorder;
    w->sim->corrupt = k->corrupt;
    w->sim->wire_room = k->wire_room;
    w->sim->wire_pause = 7 * SIM_US;
    for (unsigned i = 0; i < 4; i++) {
        fill(w, &w->m[i]);
    }
    for (unsigned t = 0; t < 3; t++) {
        memset(w->target[t].m.data + COUNTER, 0, 8);
    }
    while (open) {
        g_assert_cmpint(w->sim->now, <, 20000 * SIM_MS);
        open = 0;
        for (unsigned i = 0; i < 4; i++) {
            for (unsigned n = g_rand_int_range(w->sim->rand, 0, 8);
                 n && x->posted[i] < OPS && x->posted[i] - x->done[i] < 60;
                 n--) {
                random_post(x, i);
            }
            open += x->done[i] < OPS;
        }
        sim_run(w->sim, w->sim->now +
                        g_rand_int_range(w->sim->rand, 1, 60) * SIM_US);
        random_poll(x);
    }
    for (unsigned t = 0; t < 3; t++) {
        bool failed = false;

        for (unsigned i = 0; i < 4; i++) {
            failed |= x->failed[i];
        }
        /* Only an initiator in ERR leaves its last atomics in doubt. */
        g_assert_cmpint(ldq_le_p(w->target[t].m.data + COUNTER) -
                        x->added[t], <=, failed ? OPS : 0);
    }
    world_free(w);
    g_free(x);
}

static void test_weather(gconstpointer opaque)
{
    const char *seed = g_getenv("QRNIC_SEED");

    if (seed) {
        random_run(opaque, g_ascii_strtoull(seed, NULL, 0));
        return;
    }
    for (unsigned i = 0; i < 8; i++) {
        random_run(opaque, 100 + i);
    }
}

/* Rejections */

typedef struct Sends {
    const SimQp *of;
    unsigned count;
} Sends;

static bool count_sends(Sim *s, unsigned from, const uint8_t *frame,
                        size_t len, void *opaque)
{
    Sends *sends = opaque;
    QrnicPacket p;

    sim_parse(&p, frame, len);
    sends->count += p.t.opcode == QRNIC_OP_DC_SEND_ONLY &&
                    p.t.src_qpn == sends->of->number;
    return true;
}

static void test_busy(void)
{
    World with = world_defaults(), *w;
    Sends sends = { 0 };

    with.responders = 1;
    with.initiators = 2;
    w = world_new(with);
    sends.of = w->initiator[1];
    w->sim->tap = count_sends;
    w->sim->tap_opaque = &sends;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + 100 * SIM_US);
    expect_recv(w, 0, 0, 0, 10);
    /* The second initiator waits until the first has been idle. */
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_no_cqe(w->initiator[1]);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_TX_CNAK), >, 3);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_TX_CNAK), <, 10);
    run(w);
    expect_cqe(w->initiator[1], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_recv(w, 0, 1, 0, 10);
    g_assert_cmpint(count(w, 0, QRNIC_COUNTER_RX_CNAK), ==,
                    count(w, 1, QRNIC_COUNTER_TX_CNAK));
    /* One packet is sent behind the first CONNECT, and one after the ACCEPT. */
    g_assert_cmpint(sends.count, ==, 2);
    world_free(w);
}

static void test_busy_exceeded(void)
{
    World with = world_defaults(), *w;
    QrnicQpAttr a;

    with.responders = 1;
    with.initiators = 2;
    with.c.rnr_retry = 3;
    w = world_new(with);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + 100 * SIM_US);
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_error(w->initiator[1], QRNIC_WC_RNR_RETRY_EXC_ERR,
                 QRNIC_SYN_DYNAMIC_BUSY);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_TX_CNAK), ==, 4);
    run(w);
    /* Connects again, because the responder is free now. */
    a = (QrnicQpAttr) { .mask = QRNIC_QP_STATE };
    g_assert_cmpint(sim_modify(w->initiator[1], &a).status, ==, QRNIC_ST_OK);
    w->initiator[1]->sq_producer = 0;
    stq_le_p(w->sim->node[0].memory + w->initiator[1]->sq_record, 0);
    sim_dynamic_start(w->initiator[1], &w->c);
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 10, 0);
    run(w);
    expect_cqe(w->initiator[1], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    world_free(w);
}

/*
 * Tests that any difference in the address means another connection. The key is
 * checked even if the initiator is connected to this target.
 */
static void test_address_differs(void)
{
    World *w = world_new(world_defaults());
    QrnicDynamicSeg to = sim_dynamic_to(w->target[0].qp, KEY);
    SimWr wr = {
        .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED,
        .dynamic = &to,
    };

    for (unsigned i = 0; i < 6; i++) {
        to.av.sl = i >= 1;
        to.av.flow_label = i >= 2;
        to.av.traffic_class = i >= 3 ? 8 : 0;
        to.av.hop_limit = i >= 4 ? 9 : 64;
        to.av.udp_sport = i >= 5 ? 0xc123 : 0xc000;
        for (unsigned same = 0; same < 2; same++) {
            sim_post_send(w->initiator[0], &wr);
            sim_run(w->sim, w->sim->now + SIM_MS);
            expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
            g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS), ==,
                            i + 1);
        }
    }
    to.access_key ^= 1;
    sim_post_send(w->initiator[0], &wr);
    run(w);
    expect_error(w->initiator[0], QRNIC_WC_REM_ACCESS_ERR,
                 QRNIC_SYN_DYNAMIC_KEY);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 6);
    world_free(w);
}

static void test_key(void)
{
    World *w = world_new(world_defaults());
    SimWr wr = { .opcode = QRNIC_WQE_RDMA_WRITE };

    memset(w->target[0].m.data, 0, 64);
    memset(w->m[0].data, 1, 64);
    send_with(w, 0, &w->target[0], &wr, 0, 64, 0, KEY + 1);
    run(w);
    expect_error(w->initiator[0], QRNIC_WC_REM_ACCESS_ERR,
                 QRNIC_SYN_DYNAMIC_KEY);
    g_assert_cmpint(w->target[0].m.data[0], ==, 0);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 0);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_RX_DROP_CONNECTION), ==, 1);
    world_free(w);
}

static void test_parameters(void)
{
    for (unsigned i = 0; i < 2; i++) {
        World *w = world_new(world_defaults());
        QrnicDynamicAttr attr = { .idle = IDLE };

        sim_qp_free(w->initiator[0]);
        w->c.path_mtu += i == 0;
        w->c.rd_atomic += i == 1;
        w->initiator[0] = sim_dynamic_new(&w->sim->node[0], NULL, &attr);
        sim_dynamic_start(w->initiator[0], &w->c);
        send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
        run(w);
        expect_error(w->initiator[0], QRNIC_WC_REM_INV_REQ_ERR,
                     QRNIC_SYN_DYNAMIC_PARAMETERS);
        world_free(w);
    }
}

static void test_address(void)
{
    World *w = world_new(world_defaults());
    SimWr wr = { .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED };
    QrnicDynamicSeg to = sim_dynamic_to(w->target[0].qp, KEY);

    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    to.av.sgid_index = 5;
    wr.dynamic = &to;
    sim_post_send(w->initiator[0], &wr);
    run(w);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_error(w->initiator[0], QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_ADDRESS);
    world_free(w);
}

static void target_stop(World *w, bool destroy)
{
    QrnicQpAttr a = { .mask = QRNIC_QP_STATE };

    if (destroy) {
        sim_qp_free(w->target[0].qp);
        w->target[0].qp = NULL;
    } else {
        g_assert_cmpint(sim_modify(w->target[0].qp, &a).status, ==,
                        QRNIC_ST_OK);
    }
}

/*
 * Tests a target that does not respond: before a connection exists, with a
 * connection, and in the middle of a message.
 */
static void test_dead_target(void)
{
    for (unsigned i = 0; i < 6; i++) {
        World with = world_defaults(), *w;
        uint32_t number;
        SimWr wr = {
            .opcode = QRNIC_WQE_SEND, .flags = QRNIC_WQEF_SIGNALED,
        };
        QrnicDynamicSeg to;

        with.c.retry_cnt = 2;
        w = world_new(with);
        to = sim_dynamic_to(w->target[0].qp, KEY);
        number = w->target[0].qp->number;
        if (i / 2 == 1) {
            send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
            sim_run(w->sim, w->sim->now + SIM_MS);
            expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
        } else if (i / 2 == 2) {
            send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 2000, 0);
            w->sim->loss = 1000;
            sim_run(w->sim, w->sim->now + 500);
            w->sim->loss = 0;
        }
        target_stop(w, i % 2);
        if (i / 2 != 2) {
            wr.dynamic = &to;
            sim_post_send(w->initiator[0], &wr);
        }
        run(w);
        expect_error(w->initiator[0], QRNIC_WC_RETRY_EXC_ERR,
                     QRNIC_SYN_TIMEOUT);
        if (i % 2) {
            QrnicQpAttr a;

            g_assert_cmpint(qrnic_qp_query(w->sim->node[1].engine, number,
                                           &a).status, ==,
                            QRNIC_ST_BAD_OBJECT);
        }
        world_free(w);
    }
}

static bool lose_answers(Sim *s, unsigned from, const uint8_t *frame,
                         size_t len, void *opaque)
{
    return !from;
}

/*
 * Tests a request that is executed, but whose response does not arrive while
 * the target keeps the responder.
 */
static void test_late(void)
{
    World with = world_defaults(), *w;

    with.c.timeout = 17;        /* 0.54 s */
    w = world_new(with);
    memset(w->target[0].m.data + COUNTER, 0, 8);
    w->sim->tap = lose_answers;
    send_op(w, 0, 0, QRNIC_WQE_ATOMIC_FETCH_ADD, 0, 8, COUNTER);
    run(w);
    expect_error(w->initiator[0], QRNIC_WC_RETRY_EXC_ERR,
                 QRNIC_SYN_DYNAMIC_LATE);
    g_assert_cmpint(ldq_le_p(w->target[0].m.data + COUNTER), ==, 1);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 1);
    world_free(w);
}

/* Loses the second packet of a send. */
static bool lose_last(Sim *s, unsigned from, const uint8_t *frame, size_t len,
                      void *opaque)
{
    QrnicPacket p;

    sim_parse(&p, frame, len);
    return p.t.opcode != QRNIC_OP_DC_SEND_LAST;
}

static void test_dead_initiator(void)
{
    World with = world_defaults(), *w;
    int64_t began;

    with.responders = 1;
    with.initiators = 2;
    w = world_new(with);
    w->sim->tap = lose_last;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 2000, 0);
    sim_run(w->sim, w->sim->now + 20 * SIM_US);
    sim_qp_free(w->initiator[0]);
    w->sim->tap = NULL;
    began = w->sim->now;
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 2000, 0);
    sim_run(w->sim, began + 3900 * SIM_MS);
    expect_no_cqe(w->initiator[1]);
    run(w);
    expect_cqe(w->initiator[1], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 1);
    /*
     * The message is in the WQE that the first initiator's message had
     * consumed.
     */
    expect_recv(w, 0, 1, 0, 2000);
    w->initiator[0] = w->initiator[1];
    w->initiators = 1;
    world_free(w);
}

static bool lose_first_nak(Sim *s, unsigned from, const uint8_t *frame,
                           size_t len, void *opaque)
{
    unsigned *lost = opaque;
    QrnicPacket p;

    sim_parse(&p, frame, len);
    return !(p.t.opcode == QRNIC_OP_DC_ACK && p.t.syndrome >= 0x60 &&
             !(*lost)++);
}

/* Tests that an error of one initiator has no effect on the other. */
static void test_refused(void)
{
    World with = world_defaults(), *w;
    unsigned lost = 0;

    with.initiators = 2;
    w = world_new(with);
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 100, 0);
    run(w);
    expect_recv(w, 0, 1, 0, 100);
    w->sim->tap = lose_first_nak;
    w->sim->tap_opaque = &lost;
    send_op(w, 0, 0, QRNIC_WQE_RDMA_WRITE, 0, 100, BYTES);
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 200, 0);
    run(w);
    expect_error(w->initiator[0], QRNIC_WC_REM_ACCESS_ERR, QRNIC_SYN_NONE);
    g_assert_cmpint(lost, ==, 2);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_TX_NAK_ERROR), ==, 2);
    expect_recv(w, 0, 1, 0, 200);
    expect_state(w->target[0].qp, QRNIC_QPS_RTR);
    expect_no_event(&w->sim->node[1]);
    world_free(w);
}

/*
 * Tests a read whose key is destroyed before the response. The NAK has the PSN
 * of the read. The requester needs the PSN to find the failed request, because
 * several can be outstanding.
 */
static void test_refused_read(void)
{
    World *w = world_new(world_defaults());
    unsigned lost = 0;

    w->sim->tap = lose_first_nak;
    w->sim->tap_opaque = &lost;
    /* A blocked wire delays the reads from memory. */
    w->sim->wire_room = 6;
    w->sim->wire_pause = 20 * SIM_US;
    send_op(w, 0, 0, QRNIC_WQE_RDMA_READ, 0, 60000, 0);
    sim_run(w->sim, w->sim->now + 10 * SIM_US);
    g_assert_cmpint(qrnic_mkey_destroy(w->sim->node[1].engine,
                                       w->target[0].m.key >> 8).status, ==,
                    QRNIC_ST_OK);
    run(w);
    expect_status(w->initiator[0], QRNIC_WC_REM_ACCESS_ERR);
    g_assert_cmpint(lost, ==, 2);
    world_free(w);
}

/* A peer that sends invalid packets */

/* Delivers a packet to a node. gid: source, or NULL for the usual one. */
static void inject_at(World *w, unsigned to, const QrnicTransport *t,
                      const uint8_t *gid)
{
    QrnicPathSpec spec = sim_path_to(to ? w->target[0].qp : w->initiator[0],
                                     to ? w->initiator[0] : w->target[0].qp);
    uint8_t frame[512], *payload;
    QrnicPath path;

    if (gid) {
        memcpy(spec.dgid, gid, 16);
    }
    qrnic_path_init(&path, &spec);
    payload = qrnic_packet_begin(&path, frame, t, 0);
    sim_inject(w->sim, to, frame, qrnic_packet_finish(&path, frame, payload,
                                                      0));
}

static void inject(World *w, unsigned to, const QrnicTransport *t)
{
    inject_at(w, to, t, NULL);
}

static QrnicTransport of(World *w, unsigned to, uint8_t opcode, uint32_t psn)
{
    uint32_t i = w->initiator[0]->number, t = w->target[0].qp->number;

    return (QrnicTransport) {
        .opcode = opcode, .pkey = QRNIC_PKEY_DEFAULT,
        .dest_qpn = to ? t : i, .src_qpn = to ? i : t, .psn = psn,
        .access_key = KEY, .path_mtu = QRNIC_MTU_1024, .rd_atomic = 1,
    };
}

static uint32_t seen_connection;

static bool see_connection(Sim *s, unsigned from, const uint8_t *frame,
                           size_t len, void *opaque)
{
    QrnicPacket p;

    sim_parse(&p, frame, len);
    seen_connection = p.t.connection;
    return true;
}

static void drops(World *w, unsigned node, const QrnicTransport *t,
                  enum qrnic_counter c)
{
    uint64_t before = count(w, node, c);

    inject(w, node, t);
    g_assert_cmpint(count(w, node, c), ==, before + 1);
}

static void test_lies(void)
{
    World *w = world_new(world_defaults());
    QrnicGidEntry other = w->sim->node[1].gid;
    uint32_t psn = w->c.psn_a;
    QrnicTransport t;

    w->sim->tap = see_connection;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_recv(w, 0, 0, 0, 10);

    /* The target receives requests and a DISCONNECT of another connection. */
    t = of(w, 1, QRNIC_OP_DC_SEND_ONLY, psn + 1);
    t.connection = seen_connection + 1;
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    t.connection = seen_connection;
    t.src_qpn++;
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    /* These requests of this connection are to another GID than before. */
    t.src_qpn--;
    other.gid[15] ^= 1;
    g_assert_cmpint(qrnic_gid_set(w->sim->node[1].engine, 4, &other).status,
                    ==, QRNIC_ST_OK);
    inject_at(w, 1, &t, other.gid);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_RX_DROP_CONNECTION), ==, 3);
    t = of(w, 1, QRNIC_OP_DC_DISCONNECT, psn + 1);
    t.connection = seen_connection - 1;
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    /* The network has delayed this old CONNECT. */
    t = of(w, 1, QRNIC_OP_DC_CONNECT, psn);
    t.connection = seen_connection - 1;
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    /* These opcodes are of the other half, and of other services. */
    t = of(w, 1, QRNIC_OP_DC_ACCEPT, psn);
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_OPCODE);
    t = of(w, 1, QRNIC_OP_DC_ACK, psn);
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_OPCODE);
    t = of(w, 1, QRNIC_OP_RC_SEND_ONLY, psn);
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_OPCODE);
    t = of(w, 0, QRNIC_OP_DC_CONNECT, psn);
    drops(w, 0, &t, QRNIC_COUNTER_RX_DROP_OPCODE);
    t = of(w, 0, QRNIC_OP_DC_SEND_ONLY, psn);
    drops(w, 0, &t, QRNIC_COUNTER_RX_DROP_OPCODE);
    t = of(w, 0, QRNIC_OP_RC_ACK, psn);
    drops(w, 0, &t, QRNIC_COUNTER_RX_DROP_OPCODE);
    /* A responder cannot be addressed by its own number. */
    t = of(w, 1, QRNIC_OP_DC_SEND_ONLY, psn + 1);
    t.connection = seen_connection;
    t.dest_qpn++;
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_NO_QP);
    /*
     * These responses are of another connection and another target. Then a CNAK
     * is late.
     */
    t = of(w, 0, QRNIC_OP_DC_ACK, psn);
    t.connection = seen_connection + 1;
    drops(w, 0, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    t.connection = seen_connection;
    t.src_qpn++;
    drops(w, 0, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    t = of(w, 0, QRNIC_OP_DC_CNAK, psn);
    t.connection = seen_connection;
    t.reason = QRNIC_CNAK_KEY;
    drops(w, 0, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);

    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 20, 0);
    run(w);
    expect_recv(w, 0, 0, 0, 20);
    g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_CONNECTS), ==, 1);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    world_free(w);
}

/*
 * Tests that a newer connection of the same initiator replaces the responder's
 * connection.
 */
static void test_newer(void)
{
    World with = world_defaults(), *w;
    QrnicTransport t;

    with.responders = 1;
    w = world_new(with);
    w->sim->tap = see_connection;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    t = of(w, 1, QRNIC_OP_DC_CONNECT, 0x77);
    t.connection = (seen_connection + 1) & 0xffffff;
    inject(w, 1, &t);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 2);
    /* A repeated CONNECT is accepted again. */
    inject(w, 1, &t);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 2);
    run(w);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 1);
    world_free(w);
}

static int64_t real_time;

static int64_t real_time_ns(void *opaque)
{
    return real_time;
}

/*
 * Tests a target whose VM is stopped for 10 s, with an old duplicate in its
 * input. The duplicate is dropped when the VM continues.
 */
static void test_old_when_stopped(void)
{
    World with = world_defaults(), *w;
    QrnicTransport t;

    with.responders = 1;
    w = world_new(with);
    w->sim->node[1].engine->env.real_time_ns = real_time_ns;
    w->sim->tap = see_connection;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    real_time = 10000 * SIM_MS;
    t = of(w, 1, QRNIC_OP_DC_CONNECT, 0x77);
    t.connection = (seen_connection - 1) & 0xffffff;
    inject(w, 1, &t);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_RX_DROP_CONNECTION), ==, 1);
    run(w);
    world_free(w);
}

/*
 * Tests that packets that the network has delayed are not executed again, for
 * some time.
 */
static void test_ended(void)
{
    World *w = world_new(world_defaults());
    QrnicTransport t;

    w->sim->tap = see_connection;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + 100 * SIM_MS);
    g_assert_cmpint(count(w, 0, QRNIC_COUNTER_DYNAMIC_DISCONNECTS), ==, 1);
    t = of(w, 1, QRNIC_OP_DC_CONNECT, w->c.psn_a);
    t.connection = seen_connection;
    drops(w, 1, &t, QRNIC_COUNTER_RX_DROP_CONNECTION);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    w->sim->now += QRNIC_DYNAMIC_RESPONDER_IDLE * SIM_MS;
    inject(w, 1, &t);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 2);
    run(w);
    world_free(w);
}

/*
 * Tests that a responder with a pending reply is not idle, because the reply
 * would be lost.
 */
static void test_owing(void)
{
    World with = world_defaults(), *w;

    with.c.timeout = 21;        /* 8.6 s: no request is repeated */
    w = world_new(with);
    w->sim->wire_room = 6;
    w->sim->wire_pause = 5000 * SIM_MS;
    send_op(w, 0, 0, QRNIC_WQE_RDMA_READ, 0, 12000, 0);
    run(w);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_RDMA_READ);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 0);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    world_free(w);
}

/* Tests more initiators than the target has responders and stored replies. */
static void test_flood(void)
{
    World *w = world_new(world_defaults());
    QrnicTransport t = of(w, 1, QRNIC_OP_DC_CONNECT, 1);

    for (unsigned i = 0; i < 1000; i++) {
        t.src_qpn = 1000 + i;
        t.connection = i;
        inject(w, 1, &t);
    }
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 4);
    run(w);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_TX_CNAK), ==, 60);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 4);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    run(w);
    expect_recv(w, 0, 0, 0, 10);
    world_free(w);
}

/* Objects */

static void refused_ctx(World *w, QrnicQpCtx ctx, uint8_t status,
                        uint32_t syndrome)
{
    QrnicResult r = qrnic_qp_create(w->sim->node[1].engine, &ctx);

    g_assert_cmpint(r.status, ==, status);
    g_assert_cmphex(r.syndrome, ==, syndrome);
}

static void test_objects(void)
{
    World *w = world_new(world_defaults());
    SimNode *n = &w->sim->node[1];
    const QrnicQpCtx good = {
        .type = QRNIC_QPT_DC_TGT, .pd = n->pd,
        .recv_cq = w->target[0].qp->cq, .srq = w->target[0].srq->number,
        .dynamic = { .access_key = 1, .responders = 2 },
    };
    QrnicQpCtx c;
    QrnicQpAttr a;

#define BAD(status, NAME, ...) \
    do { \
        c = good; \
        __VA_ARGS__; \
        refused_ctx(w, c, QRNIC_ST_##status, QRNIC_QP_CTX_##NAME##_OFFSET); \
    } while (0)
    BAD(BAD_PARAM, SQ_LOG_SIZE, c.sq_log_size = 3);
    BAD(BAD_PARAM, RQ_LOG_SIZE, c.rq_log_size = 3);
    BAD(BAD_PARAM, SEND_CQ, c.send_cq = good.recv_cq);
    BAD(BAD_PARAM, SQ_RECORD, c.sq_record = 8);
    BAD(BAD_PARAM, RQ, c.rq.root = 4096);
    BAD(BAD_OBJECT, PD, c.pd = 63);
    BAD(BAD_OBJECT, RECV_CQ, c.recv_cq = 200);
    BAD(BAD_OBJECT, SRQ, c.srq = 0);
    BAD(BAD_PARAM, DYNAMIC, c.dynamic.responders = 0);
    BAD(BAD_PARAM, DYNAMIC,
        c.dynamic.responders = QRNIC_MAX_DYNAMIC_RESPONDERS + 1);
    BAD(BAD_PARAM, DYNAMIC, c.dynamic.idle = 1);
    BAD(BAD_PARAM, DYNAMIC, c.dynamic.flags = QRNIC_DYNAMICF_FULL);
    BAD(BAD_PARAM, DYNAMIC, c.type = QRNIC_QPT_DC_INI);
    BAD(BAD_PARAM, DYNAMIC, c.type = QRNIC_QPT_DC_INI;
        c.dynamic = (QrnicDynamicAttr) { 0 });
    BAD(BAD_PARAM, DYNAMIC, c.type = QRNIC_QPT_DC_INI;
        c.dynamic = (QrnicDynamicAttr) { .idle = 19 });
    BAD(BAD_PARAM, DYNAMIC, c.type = QRNIC_QPT_RC);
#undef BAD
    /* More responders than numbers: none is created. */
    c = good;
    c.dynamic.responders = 300;
    refused_ctx(w, c, QRNIC_ST_NO_RESOURCE, 0);
    c.dynamic.responders = 250;
    refused_ctx(w, c, QRNIC_ST_OK, 0);

    /* The numbers of the responders belong to no object. */
    for (uint32_t i = 1; i <= 4; i++) {
        uint32_t number = w->target[0].qp->number + i;

        g_assert_cmpint(qrnic_qp_query(n->engine, number, &a).status, ==,
                        QRNIC_ST_BAD_OBJECT);
        g_assert_cmpint(qrnic_qp_destroy(n->engine, number).status, ==,
                        QRNIC_ST_BAD_OBJECT);
        a = sim_attr_init();
        g_assert_cmpint(qrnic_qp_modify(n->engine, number, &a).status, ==,
                        QRNIC_ST_BAD_OBJECT);
    }
    g_assert_cmpint(qrnic_srq_destroy(n->engine,
                                      w->target[0].srq->number).status, ==,
                    QRNIC_ST_BUSY);
    /* A target cannot send. */
    a = sim_attr_rts();
    g_assert_cmpint(sim_modify(w->target[0].qp, &a).status, ==,
                    QRNIC_ST_BAD_STATE);
    a = sim_query(w->initiator[0]);
    g_assert_cmpint(a.qp_type, ==, QRNIC_QPT_DC_INI);
    /* A target has one option only. */
    a = (QrnicQpAttr) { .mask = QRNIC_QP_STATE };
    g_assert_cmpint(sim_modify(w->initiator[0], &a).status, ==, QRNIC_ST_OK);
    a = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT,
        .state = QRNIC_QPS_INIT, .port = 1,
    };
    g_assert_cmpint(sim_modify(w->initiator[0], &a).status, ==, QRNIC_ST_OK);
    a = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PATH_MTU | QRNIC_QP_OPTIONS,
        .state = QRNIC_QPS_RTR, .path_mtu = QRNIC_MTU_1024,
        .options = QRNIC_QPO_SELECTIVE_REPEAT,
    };
    g_assert_cmpint(sim_modify(w->initiator[0], &a).status, ==,
                    QRNIC_ST_BAD_PARAM);
    a.options = QRNIC_QPO_FULL_HANDSHAKE;
    g_assert_cmpint(sim_modify(w->initiator[0], &a).status, ==, QRNIC_ST_OK);
    /* The other 251 objects are freed with the node, as in a reset. */
    sim_qp_free(w->initiator[0]);
    sim_free(w->sim);
    g_free(w->target[0].srq->next);
    g_free(w->target[0].srq);
    g_free(w->target[0].qp);
    g_free(w);
}

/* Tests a reset in the middle of messages and responses, at both sides. */
static void test_reset(void)
{
    for (unsigned node = 0; node < 2; node++) {
        World with = world_defaults(), *w;

        with.initiators = 4;
        w = world_new(with);
        for (unsigned i = 0; i < 4; i++) {
            send_op(w, i, 0, QRNIC_WQE_RDMA_READ, 0, 100000, 0);
            send_op(w, i, 0, QRNIC_WQE_SEND, 0, 2000, 0);
        }
        sim_run(w->sim, w->sim->now + 5 * SIM_US);
        sim_reset(&w->sim->node[node]);
        sim_run(w->sim, w->sim->now + 10000 * SIM_MS);
        sim_free(w->sim);
        for (unsigned i = 0; i < 4; i++) {
            g_free(w->initiator[i]);
        }
        g_free(w->target[0].srq->next);
        g_free(w->target[0].srq);
        g_free(w->target[0].qp);
        g_free(w);
    }
}

/*
 * Tests that the number of a connection after a reset is newer than those
 * before.
 */
static void test_after_reset(void)
{
    World *w = world_new(world_defaults());
    SimNode *n = &w->sim->node[0];

    /* At this time, 24 bits of the clock are not newer than at the start. */
    w->sim->now += 12000 * SIM_MS;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + 100 * SIM_MS);
    expect_recv(w, 0, 0, 0, 10);
    g_free(w->initiator[0]);
    sim_reset(n);
    w->m[0] = memory_new(n);
    w->initiator[0] = initiator_new(w, 0, IDLE);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 20, 0);
    run(w);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_recv(w, 0, 0, 0, 20);
    world_free(w);
}

/*
 * Restarts the process of a node. A restarted process has no state of the
 * earlier process.
 */
static void initiator_restart(World *w)
{
    SimNode *n = &w->sim->node[0];

    g_free(w->initiator[0]);
    sim_reset(n);
    n->engine->transport->connection = 0;
    w->m[0] = memory_new(n);
    w->initiator[0] = initiator_new(w, 0, LONG_IDLE);
}

/*
 * Tests that a restarted initiator connects to a target that still has a
 * responder for it, although the target has seen higher numbers.
 */
static void test_restart(void)
{
    World *w = world_new(world_defaults());

    for (unsigned i = 0; i < 5; i++) {
        send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
        sim_run(w->sim, w->sim->now + 100 * SIM_MS);
        expect_recv(w, 0, 0, 0, 10);
    }
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_recv(w, 0, 0, 0, 10);
    initiator_restart(w);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 20, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_recv(w, 0, 0, 0, 20);
    world_free(w);
}

/*
 * Tests a restarted initiator whose numbers have wrapped, so that the target's
 * number looks newer.
 */
static void test_restart_wrapped(void)
{
    World *w = world_new(world_defaults());

    initiator_restart(w);
    for (unsigned i = 0; i < 20; i++) {
        send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
        sim_run(w->sim, w->sim->now + 500 * SIM_MS);
        expect_recv(w, 0, 0, 0, 10);
        expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    }
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    initiator_restart(w);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 20, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_recv(w, 0, 0, 0, 20);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 2);
    world_free(w);
}

/*
 * Tests a restarted target, which has no responder of earlier connections. An
 * idle initiator connects again.
 */
static void test_target_restart(void)
{
    World *w = world_new(world_defaults());

    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + 100 * SIM_MS);
    expect_recv(w, 0, 0, 0, 10);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    g_free(w->target[0].qp);
    g_free(w->target[0].srq->next);
    g_free(w->target[0].srq);
    sim_reset(&w->sim->node[1]);
    target_new(w, &w->target[0]);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 20, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_recv(w, 0, 0, 0, 20);
    world_free(w);
}

static void test_error(void)
{
    World *w = world_new(world_defaults());
    QrnicQpAttr a = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };

    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    g_assert_cmpint(sim_modify(w->target[0].qp, &a).status, ==, QRNIC_ST_OK);
    sim_run(w->sim, w->sim->now + SIM_US);
    expect_event(&w->sim->node[1], QRNIC_EVENT_LAST_WQE_REACHED,
                 w->target[0].qp->number);
    /* The responder is free, so that nothing has to expire. */
    run(w);
    g_assert_cmpint(count(w, 1, QRNIC_COUNTER_DYNAMIC_EXPIRED), ==, 0);
    /* An initiator flushes the WQEs that it has not sent. */
    w->sim->loss = 1000;
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 10, 0);
    sim_run(w->sim, w->sim->now + SIM_US);
    g_assert_cmpint(sim_modify(w->initiator[0], &a).status, ==, QRNIC_ST_OK);
    run(w);
    expect_cqe(w->initiator[0], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_status(w->initiator[0], QRNIC_WC_WR_FLUSH_ERR);
    world_free(w);
}

/*
 * Tests loopback between queue pairs of one device. The wire loses every frame.
 */
static void test_loopback(void)
{
    World *w = world_new(world_defaults());

    w->sim->loss = 1000;
    w->m[1] = memory_new(&w->sim->node[1]);
    w->initiator[1] = initiator_new(w, 1, IDLE);
    w->initiators = 2;
    fill(w, &w->m[1]);
    send_op(w, 1, 0, QRNIC_WQE_SEND, 0, 2000, 0);
    run(w);
    expect_cqe(w->initiator[1], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    expect_recv(w, 0, 1, 0, 2000);
    world_free(w);
}

/* Responders count in the set of their target. */
static void test_counter_set(void)
{
    World *w = world_new(world_defaults());
    QrnicEngine *e = w->sim->node[1].engine;
    uint64_t counter[QRNIC_NUM_COUNTERS];
    QrnicResult set = qrnic_counter_set_alloc(e);
    QrnicCounterBind in = { .counter_set = set.value };

    g_assert_cmpint(qrnic_counter_set_bind(e, w->target[0].qp->number,
                                           &in).status, ==, QRNIC_ST_OK);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 2000, 0);
    sim_run(w->sim, w->sim->now + SIM_MS);
    qrnic_counter_set_query(e, set.value, counter);
    g_assert_cmpint(counter[QRNIC_COUNTER_RX_SEND], ==, 1);
    g_assert_cmpint(counter[QRNIC_COUNTER_TX_ACK], ==, 1);
    in.counter_set = 0;
    qrnic_counter_set_bind(e, w->target[0].qp->number, &in);
    g_assert_cmpint(qrnic_counter_set_free(e, set.value).status, ==,
                    QRNIC_ST_OK);
    send_op(w, 0, 0, QRNIC_WQE_SEND, 0, 2000, 0);
    run(w);
    expect_recv(w, 0, 0, 0, 2000);
    expect_recv(w, 0, 0, 0, 2000);
    world_free(w);
}

/*
 * Kills a process: all its queue pairs are destroyed in the middle of their
 * work, in any order. Receive WQEs return to SRQs, which are destroyed last.
 */
static void destroyed(uint32_t seed, unsigned node)
{
    World with = world_defaults(), *w;
    unsigned left = 7;

    with.targets = 3;
    with.responders = 2;
    w = world_new(with);
    g_rand_set_seed(w->sim->rand, seed);
    sim_qp_free(w->initiator[0]);
    w->initiators = 4;
    for (unsigned i = 0; i < 4; i++) {
        w->m[i] = memory_new(&w->sim->node[node]);
        w->initiator[i] = initiator_new(w, node, IDLE);
    }
    for (unsigned n = 0; n < 12; n++) {
        for (unsigned i = 0; i < 4; i++) {
            send_op(w, i, (n / 3 + i) % 3, n % 4 == 3 ? QRNIC_WQE_RDMA_READ :
                    QRNIC_WQE_SEND, n * 2048, 2000, 0);
        }
    }
    sim_run(w->sim, w->sim->now + g_rand_int_range(w->sim->rand, 1, 60000));
    while (left) {
        unsigned k = g_rand_int_range(w->sim->rand, 0, 7);
        SimQp **q = k < 4 ? &w->initiator[k] : &w->target[k - 4].qp;

        if (*q) {
            sim_qp_free(*q);
            *q = NULL;
            left--;
            sim_run(w->sim, w->sim->now +
                            g_rand_int_range(w->sim->rand, 0, 3000));
        }
    }
    w->initiators = 0;
    run(w);
    world_free(w);
}

static void test_destroyed(void)
{
    for (uint32_t seed = 0; seed < 200; seed++) {
        destroyed(seed, seed % 2);
    }
}

/* Tests that dynamic queue pairs have no context in a context cache. */
static void test_contexts(void)
{
    World with = world_defaults(), *w;

    with.context_cache = 2;
    with.initiators = 4;
    w = world_new(with);
    for (unsigned i = 0; i < 4; i++) {
        send_op(w, i, 0, QRNIC_WQE_SEND, 0, 2000, 0);
    }
    run(w);
    for (unsigned i = 0; i < 4; i++) {
        expect_cqe(w->initiator[i], QRNIC_WC_SUCCESS, QRNIC_CQE_SEND);
    }
    for (unsigned node = 0; node < 2; node++) {
        g_assert_cmpint(count(w, node, QRNIC_COUNTER_CONTEXT_MISSES), ==, 0);
        g_assert_cmpint(count(w, node, QRNIC_COUNTER_CONTEXT_HITS), ==, 0);
    }
    world_free(w);
}

static void add(const char *path, const Weather *weather)
{
    g_test_add_data_func(path, weather, test_weather);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/dynamic/operations", test_operations);
    g_test_add_func("/dynamic/handshake", test_handshake);
    g_test_add_func("/dynamic/addresses", test_addresses);
    g_test_add_func("/dynamic/worked-example", test_worked_example);
    g_test_add_func("/dynamic/longest-wqe", test_longest_wqe);
    g_test_add_func("/dynamic/bytes", test_bytes);
    g_test_add_func("/dynamic/each-loss", test_each_loss);
    add("/dynamic/random/calm", &weathers[0]);
    add("/dynamic/random/few-responders", &weathers[1]);
    add("/dynamic/random/full-few-responders", &weathers[2]);
    add("/dynamic/random/loss", &weathers[3]);
    add("/dynamic/random/repeat", &weathers[4]);
    add("/dynamic/random/reorder", &weathers[5]);
    add("/dynamic/random/corrupt", &weathers[6]);
    add("/dynamic/random/backpressure", &weathers[7]);
    add("/dynamic/random/all", &weathers[8]);
    add("/dynamic/random/all-full", &weathers[9]);
    g_test_add_func("/dynamic/busy", test_busy);
    g_test_add_func("/dynamic/busy-exceeded", test_busy_exceeded);
    g_test_add_func("/dynamic/address-differs", test_address_differs);
    g_test_add_func("/dynamic/key", test_key);
    g_test_add_func("/dynamic/parameters", test_parameters);
    g_test_add_func("/dynamic/address", test_address);
    g_test_add_func("/dynamic/dead-target", test_dead_target);
    g_test_add_func("/dynamic/late", test_late);
    g_test_add_func("/dynamic/dead-initiator", test_dead_initiator);
    g_test_add_func("/dynamic/refused", test_refused);
    g_test_add_func("/dynamic/refused-read", test_refused_read);
    g_test_add_func("/dynamic/lies", test_lies);
    g_test_add_func("/dynamic/newer", test_newer);
    g_test_add_func("/dynamic/ended", test_ended);
    g_test_add_func("/dynamic/old-when-stopped", test_old_when_stopped);
    g_test_add_func("/dynamic/owing", test_owing);
    g_test_add_func("/dynamic/flood", test_flood);
    g_test_add_func("/dynamic/objects", test_objects);
    g_test_add_func("/dynamic/reset", test_reset);
    g_test_add_func("/dynamic/after-reset", test_after_reset);
    g_test_add_func("/dynamic/restart", test_restart);
    g_test_add_func("/dynamic/restart-wrapped", test_restart_wrapped);
    g_test_add_func("/dynamic/target-restart", test_target_restart);
    g_test_add_func("/dynamic/error", test_error);
    g_test_add_func("/dynamic/loopback", test_loopback);
    g_test_add_func("/dynamic/counter-set", test_counter_set);
    g_test_add_func("/dynamic/contexts", test_contexts);
    g_test_add_func("/dynamic/destroyed", test_destroyed);
    return g_test_run();
}
