/*
 * Measures the longest call into the device, in memory accesses and keys
 * entered. The test runs every command and every operation of a send queue,
 * with the parameters that cause the most work. QEMU's main loop waits for each
 * call, and so does every other device of the guest.
 *
 * sim_run() checks all calls of all other tests against the same bound, so
 * test-tags covers the operations of tag lists.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/queue/queue.h"
#include "pair.h"
#include "sim-world.h"

#define MANY (1u << 14)
#define DEVICE_MEMORY (16ull << 20)

/*
 * A command itself must be short; the rest of its work is done in later calls.
 */
#define COMMAND_WORK 1024

typedef struct World {
    Pair *p;
    SimNode *n;
    QrnicEngine *e;
    SimQp *q, *other;
    SimSrq *srq;
    uint32_t number;            /* Number of the last created object */
    uint32_t rss;
    uint64_t big;               /* Memory for the largest ring */
} World;

static void world_init(World *w)
{
    SimOptions o = {
        .loopback = true, .memory = 192 << 20, .device_memory = DEVICE_MEMORY,
        .vectors = 8,
    };
    QrnicEqCtx faults = {
        .type = QRNIC_EQ_PAGE_FAULT, .log_size = 8, .vector = 1,
    };

    const QrnicPortCtx port = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };
    SimConnect c = sim_connect_default();

    *w = (World) { .p = pair_new(1, &o, NULL) };
    w->n = &w->p->sim->node[0];
    w->e = w->n->engine;
    /* The packets have the largest size. */
    g_assert_cmpint(qrnic_port_modify(w->e, &port).status, ==, QRNIC_ST_OK);
    sim_qp_free(w->p->a.qp);
    sim_qp_free(w->p->b.qp);
    w->p->a.qp = sim_qp_new(w->n, 6, 4, 0, 6);
    w->p->b.qp = sim_qp_new(w->n, 6, 4, 0, 6);
    c.path_mtu = QRNIC_MTU_4096;
    sim_connect(w->p->a.qp, w->p->b.qp, &c);
    w->big = sim_alloc(w->n, (uint64_t)QRNIC_CQE_SIZE * QRNIC_MAX_CQE);
    faults.ring.root = sim_alloc(w->n, QRNIC_EQE_SIZE << faults.log_size);
    g_assert_cmpint(qrnic_eq_create(w->e, &faults).status, ==, QRNIC_ST_OK);
}

static void settle(World *w)
{
    g_assert_true(sim_run(w->p->sim, INT64_MAX));
}

/*
 * Commands
 */

static QrnicResult done(void)
{
    return (QrnicResult) { QRNIC_ST_OK };
}

static void many_posted(World *w)
{
    SimWr nop = { .opcode = QRNIC_WQE_NOP, .flags = QRNIC_WQEF_SIGNALED };
    SimSge sge = { w->p->a.addr, 1, w->p->a.key };

    w->q = sim_qp_new(w->n, 15, 14, 0, 16);
    w->other = sim_qp_new(w->n, 4, 0, 0, 4);
    sim_connect(w->q, w->other, NULL);
    for (unsigned i = 0; i < MANY; i++) {
        sim_post_send_quiet(w->q, &nop);
        sim_post_recv_quiet(w->q, &sge, 1);
    }
    sim_ring_sq(w->q);
}

static QrnicResult modify(World *w)
{
    const QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };

    return qrnic_qp_modify(w->e, w->q->number, &err);
}

static QrnicResult create_eq(World *w)
{
    QrnicEqCtx ctx = { .type = QRNIC_EQ_COMPLETION, .log_size = 16 };

    ctx.ring.root = w->big;
    return qrnic_eq_create(w->e, &ctx);
}

static QrnicResult create_cq(World *w)
{
    QrnicCqCtx ctx = { .eqn = w->n->cq_eq, .log_size = 20 };

    ctx.ring.root = w->big;
    ctx.record = sim_alloc(w->n, 8);
    return qrnic_cq_create(w->e, &ctx);
}

static QrnicResult resize_cq(World *w)
{
    QrnicCqResize in = { .log_size = 20 };

    in.ring.root = w->big;
    return qrnic_cq_resize(w->e, w->p->a.qp->cq, &in);
}

/* Returns a key with the largest table, whose pages are all absent. */
static QrnicMkeyCtx on_demand(World *w)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ACCESS_ALL, .pd = w->n->pd, .length = 1ull << 46,
        .table = { .root = w->big, .levels = 4, .page_shift = 12 },
    };
}

static QrnicResult create_mkey(World *w)
{
    QrnicMkeyCtx ctx = on_demand(w);

    return qrnic_mkey_create(w->e, &ctx);
}

static QrnicResult modify_mkey(World *w)
{
    QrnicMkeyCtx ctx = on_demand(w);
    uint32_t index = create_mkey(w).value;

    return qrnic_mkey_modify(w->e, index, &ctx);
}

static QrnicResult invalidate_pages(World *w)
{
    const QrnicPageRange all = { .length = 1ull << 46 };

    return qrnic_mkey_invalidate_pages(w->e, create_mkey(w).value, &all);
}

static QrnicResult fault_answer(World *w,
                                QrnicResult (*answer)(QrnicEngine *, uint32_t,
                                                     const QrnicFaultAnswer *))
{
    SimSge sge = { 0, 4096, create_mkey(w).value << 8 };
    SimWr wr = { .opcode = QRNIC_WQE_SEND, .sge = &sge, .num_sge = 1 };
    QrnicFaultAnswer in = { 0 };
    QrnicPageFault fault;
    uint32_t number;

    w->q = sim_qp_new(w->n, 4, 0, 0, 4);
    w->other = sim_qp_new(w->n, 4, 0, 0, 4);
    number = w->q->number << 1;
    sim_connect(w->q, w->other, NULL);
    sim_post_send(w->q, &wr);
    settle(w);
    if (!answer) {
        return qrnic_page_fault_query(w->e, number, &fault);
    }
    g_assert_cmpint(qrnic_page_fault_query(w->e, number, &fault).status, ==,
                    QRNIC_ST_OK);
    in.sequence = fault.sequence;
    return answer(w->e, number, &in);
}

static QrnicResult tag_list(World *w)
{
    QrnicTagListCtx ctx = {
        .cq = w->p->a.qp->cq, .max_tags = 4096, .log_size = 12, .log_stride = 1,
    };

    ctx.ring.root = w->big;
    ctx.record = sim_alloc(w->n, 8);
    return qrnic_tag_list_create(w->e, w->srq->number, &ctx);
}

static QrnicResult resize_srq(World *w)
{
    QrnicSrqResize in = { .log_size = 15 };

    in.ring.root = w->big;
    w->srq = sim_srq_new(w->n, 14, 0);
    return qrnic_srq_resize(w->e, w->srq->number, &in);
}

/* Executes SET_CONTEXTS, which requires a device without connections. */
static QrnicResult contexts(World *w, bool query)
{
    const SimOptions o = {
        .context_cache = 64, .context_bare = true, .max_qp = 4096,
        .memory = 64 << 20,
    };
    Sim *s = sim_new(1, &o);
    QrnicContextMemory in = { .length = 32 << 20 };
    QrnicContextAttr out;
    QrnicResult r;
    uint64_t before;

    in.memory.root = sim_alloc(&s->node[0], in.length);
    before = sim_work(&s->node[0]);
    r = query ? qrnic_context_memory_query(s->node[0].engine, &out) :
                qrnic_context_memory_set(s->node[0].engine, &in);
    g_assert_cmpuint(sim_work(&s->node[0]) - before, <=, COMMAND_WORK);
    sim_free(s);
    return r;
}

static QrnicResult rss_create(World *w)
{
    QrnicRssCtx table = { .log_size = QRNIC_RSS_MAX_LOG_SIZE };

    w->q = sim_inline_new(w->n, QRNIC_QPT_RAW_PACKET, NULL, 0);
    for (unsigned i = 0; i < 1u << table.log_size; i++) {
        qrnic_st_le32(table.entries + 4 * i, w->q->number);
    }
    return qrnic_rss_create(w->e, &table);
}

static QrnicResult flow_create(World *w)
{
    const QrnicFlowCtx rule = {
        .type = QRNIC_FLOW_NORMAL, .flags = QRNIC_FLOWF_RSS,
    };

    w->rss = rss_create(w).value;
    return qrnic_flow_create(w->e, w->rss, &rule);
}

static QrnicResult multicast(World *w, bool attach)
{
    QrnicMulticast in = { .gid = { [10] = 0xff, 0xff, 224, 1, 2, 3 } };

    if (!attach) {
        return qrnic_multicast_detach(w->e, w->number, &in);
    }
    w->q = sim_datagram_new(w->n, QRNIC_QPT_UD, NULL, 1);
    w->number = w->q->number;
    return qrnic_multicast_attach(w->e, w->number, &in);
}

/*
 * Executes a command. The switch has no default, so that the compiler reports a
 * missing command.
 */
static QrnicResult command(World *w, enum qrnic_cmd_opcode opcode)
{
    QrnicDmCtx dm = { .length = DEVICE_MEMORY };
    const QrnicSrqLimit limit = { .limit = 1 };
    const QrnicPasidCtx pasid = { .pasid = 1 };
    const QrnicCqModeration moderation = { .count = 2, .period = 100 };
    const QrnicCounterBind bind = { .counter_set = w->number };
    const QrnicRxFilter filter = { 0 };
    const QrnicPortCtx port = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };
    uint64_t counters[QRNIC_NUM_COUNTERS];
    static QrnicCongestionCtx congestion;
    union {
        QrnicDeviceAttr device;
        QrnicPortAttr port;
        QrnicEqCtx eq;
        QrnicCqCtx cq;
        QrnicMkeyCtx mkey;
        QrnicQpAttr qp;
        QrnicSrqCtx srq;
        QrnicGidEntry gid;
    } out;

    switch (opcode) {
    case QRNIC_CMD_NOP:
        return done();
    case QRNIC_CMD_QUERY_DEVICE:
        return qrnic_device_query(w->e, &out.device);
    case QRNIC_CMD_QUERY_PORT:
        return qrnic_port_query(w->e, &out.port);
    case QRNIC_CMD_MODIFY_PORT:
        return qrnic_port_modify(w->e, &port);
    case QRNIC_CMD_QUERY_COUNTERS:
        memcpy(counters, qrnic_counters(w->e), sizeof(counters));
        return done();
    case QRNIC_CMD_SET_CONGESTION:
        qrnic_congestion_query(w->e, &congestion);
        return qrnic_congestion_set(w->e, &congestion);
    case QRNIC_CMD_QUERY_CONGESTION:
        return qrnic_congestion_query(w->e, &congestion);
    case QRNIC_CMD_ALLOC_DB_PAGE:
        return qrnic_db_page_alloc(w->e);
    case QRNIC_CMD_FREE_DB_PAGE:
        return qrnic_db_page_free(w->e, w->number);
    case QRNIC_CMD_ALLOC_PD:
        return qrnic_pd_alloc(w->e);
    case QRNIC_CMD_FREE_PD:
        return qrnic_pd_free(w->e, w->number);
    case QRNIC_CMD_SET_PASID:
        w->number = qrnic_db_page_alloc(w->e).value;
        return qrnic_db_page_set_pasid(w->e, w->number, &pasid);
    case QRNIC_CMD_CREATE_EQ:
        return create_eq(w);
    case QRNIC_CMD_DESTROY_EQ:
        return qrnic_eq_destroy(w->e, w->number);
    case QRNIC_CMD_QUERY_EQ:
        return qrnic_eq_query(w->e, w->n->cq_eq, &out.eq);
    case QRNIC_CMD_CREATE_CQ:
        return create_cq(w);
    case QRNIC_CMD_DESTROY_CQ:
        return qrnic_cq_destroy(w->e, w->number);
    case QRNIC_CMD_QUERY_CQ:
        return qrnic_cq_query(w->e, w->p->a.qp->cq, &out.cq);
    case QRNIC_CMD_RESIZE_CQ:
        return resize_cq(w);
    case QRNIC_CMD_MODIFY_CQ:
        return qrnic_cq_modify(w->e, w->p->a.qp->cq, &moderation);
    case QRNIC_CMD_CREATE_MKEY:
        return create_mkey(w);
    case QRNIC_CMD_DESTROY_MKEY:
        return qrnic_mkey_destroy(w->e, w->number);
    case QRNIC_CMD_QUERY_MKEY:
        return qrnic_mkey_query(w->e, w->p->a.key >> 8, &out.mkey);
    case QRNIC_CMD_MODIFY_MKEY:
        return modify_mkey(w);
    case QRNIC_CMD_INVALIDATE_PAGES:
        return invalidate_pages(w);
    case QRNIC_CMD_QUERY_PAGE_FAULT:
        return fault_answer(w, NULL);
    case QRNIC_CMD_RESUME_PAGE_FAULT:
        return fault_answer(w, qrnic_page_fault_resume);
    case QRNIC_CMD_REFUSE_PAGE_FAULT:
        return fault_answer(w, qrnic_page_fault_refuse);
    case QRNIC_CMD_CREATE_QP:
        many_posted(w);
        return done();
    case QRNIC_CMD_MODIFY_QP:
        return modify(w);
    case QRNIC_CMD_QUERY_QP:
        return qrnic_qp_query(w->e, w->q->number, &out.qp);
    case QRNIC_CMD_DESTROY_QP:
        many_posted(w);
        return qrnic_qp_destroy(w->e, w->q->number);
    case QRNIC_CMD_CREATE_SRQ:
        w->srq = sim_srq_new(w->n, 15, 0);
        return done();
    case QRNIC_CMD_MODIFY_SRQ:
        return qrnic_srq_modify(w->e, w->srq->number, &limit);
    case QRNIC_CMD_QUERY_SRQ:
        return qrnic_srq_query(w->e, w->srq->number, &out.srq);
    case QRNIC_CMD_DESTROY_SRQ:
        return qrnic_srq_destroy(w->e, w->srq->number);
    case QRNIC_CMD_ALLOC_XRCD:
        return qrnic_xrcd_alloc(w->e);
    case QRNIC_CMD_FREE_XRCD:
        return qrnic_xrcd_free(w->e, w->number);
    case QRNIC_CMD_RESIZE_SRQ:
        return resize_srq(w);
    case QRNIC_CMD_CREATE_TAG_LIST:
        return tag_list(w);
    case QRNIC_CMD_SET_GID:
        return qrnic_gid_set(w->e, 5, &w->p->sim->node[1].gid);
    case QRNIC_CMD_CLEAR_GID:
        return qrnic_gid_clear(w->e, 5);
    case QRNIC_CMD_QUERY_GID:
        return qrnic_gid_query(w->e, 3, &out.gid);
    case QRNIC_CMD_SET_CONTEXTS:
    case QRNIC_CMD_QUERY_CONTEXTS:
        return contexts(w, opcode == QRNIC_CMD_QUERY_CONTEXTS);
    case QRNIC_CMD_SET_RX_FILTER:
        return qrnic_rx_filter_set(w->e, &filter);
    case QRNIC_CMD_ATTACH_MULTICAST:
    case QRNIC_CMD_DETACH_MULTICAST:
        return multicast(w, opcode == QRNIC_CMD_ATTACH_MULTICAST);
    case QRNIC_CMD_CREATE_FLOW:
        return flow_create(w);
    case QRNIC_CMD_DESTROY_FLOW:
        return qrnic_flow_destroy(w->e, w->number);
    case QRNIC_CMD_CREATE_RSS:
        return rss_create(w);
    case QRNIC_CMD_DESTROY_RSS:
        return qrnic_rss_destroy(w->e, w->number);
    case QRNIC_CMD_ALLOC_DM:
        memset(w->n->device_memory, 1, DEVICE_MEMORY);
        return qrnic_dm_alloc(w->e, &dm);
    case QRNIC_CMD_FREE_DM:
        memset(w->n->device_memory, 1, DEVICE_MEMORY);
        return qrnic_dm_free(w->e, w->number);
    case QRNIC_CMD_QUERY_DM:
        w->number = qrnic_dm_alloc(w->e, &dm).value;
        return qrnic_dm_query(w->e, w->number, &dm);
    case QRNIC_CMD_ALLOC_COUNTER_SET:
        return qrnic_counter_set_alloc(w->e);
    case QRNIC_CMD_FREE_COUNTER_SET:
        return qrnic_counter_set_free(w->e, w->number);
    case QRNIC_CMD_QUERY_COUNTER_SET:
        w->number = qrnic_counter_set_alloc(w->e).value;
        return qrnic_counter_set_query(w->e, w->number, counters);
    case QRNIC_CMD_BIND_COUNTER_SET:
        return qrnic_counter_set_bind(w->e, w->p->a.qp->number, &bind);
    case QRNIC_CMD_SET_VF:
    case QRNIC_CMD_QUERY_VF:
        /* The environment executes these commands. */
        return done();
    }
    g_assert_not_reached();
}

/*
 * Tests each command in the order of the contract, which creates most objects
 * before it destroys them.
 */
static void test_commands(void)
{
#define OPCODE(NAME, ...) { QRNIC_CMD_##NAME },
    static const struct { uint16_t opcode; } commands[] = {
        QRNIC_COMMAND_LIST(OPCODE)
    };
#undef OPCODE
    World w;

    world_init(&w);
    for (unsigned i = 0; i < ARRAY_SIZE(commands); i++) {
        const char *name = qrnic_cmd_opcode_name(commands[i].opcode);
        uint64_t before = sim_work(w.n);
        QrnicResult r = command(&w, commands[i].opcode);

        g_test_message("%s: %s, %" PRIu64 " in the command", name,
                       qrnic_cmd_status_name(r.status),
                       sim_work(w.n) - before);
        g_assert_cmpstr(qrnic_cmd_status_name(r.status), ==,
                        qrnic_cmd_status_name(QRNIC_ST_OK));
        g_assert_cmpuint(sim_work(w.n) - before, <=, COMMAND_WORK);
        if (r.value) {
            w.number = r.value;
        }
        w.n->longest = 0;
        /* Posted WQEs wait, so that MODIFY_QP and DESTROY_QP find work. */
        if (commands[i].opcode != QRNIC_CMD_CREATE_QP) {
            settle(&w);
        }
        g_test_message("%s: %" PRIu64 " in its longest turn", name,
                       w.n->longest);
        g_assert_false(qrnic_command_unfinished(w.e));
    }
    sim_free(w.p->sim);
    g_free(w.p);
}

/*
 * Operations of send queues
 */

/* Makes a key with a piece for each byte, MAX_KEY_DEPTH keys deep. */
static uint32_t key_of_bytes_deep(SimQp *q, const PairEnd *end, uint32_t length)
{
    PairEnd lower = *end;

    for (unsigned i = 0; i < QRNIC_MAX_KEY_DEPTH; i++) {
        lower.key = key_of_bytes(q, &lower, length);
        lower.addr = 0;
    }
    return lower.key;
}

static void list_of_pieces(World *w, PairEnd *end)
{
    for (unsigned i = 0; i < QRNIC_MAX_PIECES; i++) {
        const QrnicPiece piece = {
            .key = end->key, .address = end->addr, .length = 1,
        };

        qrnic_piece_pack(end->data + i * QRNIC_PIECE_BYTES, &piece);
    }
}

static QrnicBindSeg bind_of(World *w, const PairEnd *end)
{
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MW_2, .variant = 7, .pd = w->n->pd,
    };

    return (QrnicBindSeg) {
        .key = sim_mkey_ctx(w->n, &ctx),
        .lkey = sim_mkey(w->n, end->addr, PAIR_BYTES,
                         ACCESS_ALL | QRNIC_ACCESS_MW_BIND),
        .address = end->addr, .length = PAIR_BYTES,
        .access = QRNIC_ACCESS_REMOTE_READ,
    };
}

/* Returns the key of a bound window of this side, which can be invalidated. */
static uint32_t bound_window(World *w, const PairEnd *end)
{
    const QrnicBindSeg bind = bind_of(w, end);
    const SimWr wr = {
        .opcode = QRNIC_WQE_BIND_MW, .flags = QRNIC_WQEF_SIGNALED,
        .bind = &bind,
    };

    sim_post_send(end->qp, &wr);
    settle(w);
    expect_cqe(end->qp, QRNIC_WC_SUCCESS, QRNIC_CQE_BIND_MW);
    return bind.key;
}

/*
 * Makes the operation with the most work. Returns false if it is no operation
 * of send queues.
 */
static bool operation(World *w, enum qrnic_wqe_opcode opcode, SimWr *wr)
{
    static SimSge sge[QRNIC_MAX_SGE];
    static QrnicBindSeg bind;
    static QrnicRegSeg reg;
    static QrnicIndirectSeg indirect;
    static QrnicFlushSeg flush;
    SimQp *q = w->p->a.qp;
    const uint32_t length = QRNIC_MAX_PIECES * QRNIC_PIECE_BYTES;
    QrnicMkeyCtx ctx = { .variant = 7, .pd = w->n->pd };

    sge[0] = (SimSge) {
        0, length, key_of_bytes_deep(q, &w->p->a, length)
    };
    *wr = (SimWr) {
        .opcode = opcode, .flags = QRNIC_WQEF_SIGNALED, .sge = sge,
        .num_sge = 1, .rkey = key_of_bytes_deep(q, &w->p->b, length),
    };
    switch (opcode) {
    case QRNIC_WQE_NOP:
        wr->num_sge = 0;
        return true;
    case QRNIC_WQE_SEND_INV:
        wr->imm = bound_window(w, &w->p->b);
        wr->rkey = 0;
        return true;
    case QRNIC_WQE_SEND:
    case QRNIC_WQE_SEND_IMM:
        wr->rkey = 0;
        return true;
    case QRNIC_WQE_RDMA_WRITE:
    case QRNIC_WQE_RDMA_WRITE_IMM:
    case QRNIC_WQE_RDMA_READ:
        return true;
    case QRNIC_WQE_ATOMIC_CMP_SWAP:
    case QRNIC_WQE_ATOMIC_FETCH_ADD:
    case QRNIC_WQE_ATOMIC_WRITE:
        sge[0].length = 8;
        sge[0].addr = w->p->a.addr;
        sge[0].key = w->p->a.key;
        wr->remote = w->p->b.addr;
        wr->rkey = w->p->b.key;
        /* The data of an atomic write is in the WQE. */
        wr->num_sge = opcode != QRNIC_WQE_ATOMIC_WRITE;
        return true;
    case QRNIC_WQE_FLUSH:
        flush = (QrnicFlushSeg) {
            .length = length, .type = QRNIC_FLUSH_GLOBAL,
            .level = QRNIC_FLUSH_RANGE,
        };
        ctx = (QrnicMkeyCtx) {
            .type = QRNIC_MKEY_MR, .variant = 7, .pd = w->n->pd,
            .access = ACCESS_ALL | QRNIC_ACCESS_FLUSH_GLOBAL,
            .length = PAIR_BYTES, .table.root = w->p->b.addr,
        };
        wr->rkey = sim_mkey_ctx(w->n, &ctx);
        sim_modify(w->p->b.qp, &(QrnicQpAttr) {
            .mask = QRNIC_QP_ACCESS_FLAGS,
            .access = QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_FLUSH_GLOBAL,
        });
        wr->flush = &flush;
        wr->num_sge = 0;
        return true;
    case QRNIC_WQE_BIND_MW:
        bind = bind_of(w, &w->p->a);
        wr->bind = &bind;
        wr->num_sge = 0;
        wr->rkey = 0;
        return true;
    case QRNIC_WQE_REG_MR:
        ctx.type = QRNIC_MKEY_FAST_REG;
        ctx.length = 1 << 20;
        reg = (QrnicRegSeg) {
            .key = sim_mkey_ctx(w->n, &ctx), .length = 1 << 20,
            .table = { .root = w->p->a.addr },
        };
        wr->reg = &reg;
        wr->num_sge = 0;
        wr->rkey = 0;
        return true;
    case QRNIC_WQE_LOCAL_INV:
        wr->imm = bound_window(w, &w->p->a);
        wr->num_sge = 0;
        wr->rkey = 0;
        return true;
    case QRNIC_WQE_REG_INDIRECT:
        list_of_pieces(w, &w->p->a);
        ctx.type = QRNIC_MKEY_INDIRECT;
        ctx.max_pieces = QRNIC_MAX_PIECES;
        indirect = (QrnicIndirectSeg) {
            .key = sim_mkey_ctx(w->n, &ctx), .repeat = 1, .access = ACCESS_ALL,
        };
        wr->indirect = &indirect;
        wr->rkey = 0;
        return true;
    case QRNIC_WQE_TAG_ADD:
    case QRNIC_WQE_TAG_DEL:
    case QRNIC_WQE_TAG_SYNC:
        return false;
    }
    g_assert_not_reached();
}

static void test_operations(void)
{
    for (unsigned opcode = 0; opcode < 256; opcode++) {
        uint64_t before, longest;
        QrnicCqe c;
        World w;
        SimWr wr;

        /* 0xff is no opcode. */
        if (!strcmp(qrnic_wqe_opcode_name(opcode),
                    qrnic_wqe_opcode_name(0xff))) {
            continue;
        }
        world_init(&w);
        if (operation(&w, opcode, &wr)) {
            SimSge sge = {
                0, QRNIC_MAX_PIECES * QRNIC_PIECE_BYTES, wr.rkey ? wr.rkey :
                key_of_bytes_deep(w.p->b.qp, &w.p->b,
                                  QRNIC_MAX_PIECES * QRNIC_PIECE_BYTES)
            };

            sim_post_recv(w.p->b.qp, &sge, 1);
            settle(&w);
            w.n->longest = 0;
            before = sim_work(w.n);
            sim_post_send(w.p->a.qp, &wr);
            longest = sim_work(w.n) - before;
            g_assert_cmpuint(longest, <=, SIM_TURN_WORK);
            settle(&w);
            g_test_message("%s: %" PRIu64 " in its longest turn of %" PRIu64,
                           qrnic_wqe_opcode_name(opcode), w.n->longest,
                           sim_work(w.n) - before);
            g_assert_true(sim_poll(w.p->a.qp, &c));
            g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                            qrnic_syndrome_name(QRNIC_SYN_NONE));
            g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                            qrnic_wc_status_name(QRNIC_WC_SUCCESS));
        }
        sim_free(w.p->sim);
        g_free(w.p);
    }
}

/*
 * Tests that a device has CAP_SRIOV only if its environment has both
 * operations, because the commands call them without a check.
 */
static void test_virtual_functions(void)
{
    const SimOptions o = { .capabilities = QRNIC_CAP_RC | QRNIC_CAP_SRIOV };
    const QrnicConfig config = {
        .name = "none", .capabilities = QRNIC_CAP_SRIOV, .max_qp = 2,
        .max_cq = 2, .max_mkey = 2, .max_pd = 2, .max_gid = 2, .vectors = 1,
        .db_pages = 1, .max_sge = QRNIC_MAX_SGE,
    };
    const QrnicVfCtx in = { .mac = { 2, 1 }, .vlan = 7, .max_rate = 1000 };
    Sim *s = sim_new(1, &o);
    SimNode *n = &s->node[0];
    QrnicVfAttr out = { 0 };

    g_assert_cmpint(qrnic_vf_set(n->engine, 1, &in).status, ==, QRNIC_ST_OK);
    g_assert_cmpint(qrnic_vf_query(n->engine, 1, &out).status, ==,
                    QRNIC_ST_OK);
    g_assert_cmpmem(out.mac, 6, in.mac, 6);
    g_assert_cmpuint(out.vlan, ==, 7);
    g_assert_cmpint(qrnic_vf_set(n->engine, SIM_VFS, &in).status, ==,
                    QRNIC_ST_BAD_OBJECT);

    for (unsigned missing = 0; missing < 2; missing++) {
        QrnicEnv env = sim_env(n);
        QrnicEngine *e;

        if (missing) {
            env.vf_set = NULL;
        } else {
            env.vf_query = NULL;
        }
        e = qrnic_engine_new(&config, &env);
        g_assert_cmpint(qrnic_vf_set(e, 1, &in).status, ==,
                        QRNIC_ST_NOT_SUPPORTED);
        g_assert_cmpint(qrnic_vf_query(e, 1, &out).status, ==,
                        QRNIC_ST_NOT_SUPPORTED);
        qrnic_engine_free(e);
    }
    sim_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/turns/commands", test_commands);
    g_test_add_func("/turns/operations", test_operations);
    g_test_add_func("/turns/virtual-functions", test_virtual_functions);
    return g_test_run();
}
