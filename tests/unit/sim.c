/*
 * The driver of the simulated world; see sim.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "sim.h"
#include "sim-world.h"

#define MEMORY_DEFAULT (32ull << 20)
#define ASYNC_LOG_SIZE 8

/* The driver */

uint64_t sim_alloc(SimNode *n, uint64_t size)
{
    uint64_t addr = n->allocated;

    n->allocated = QEMU_ALIGN_UP(addr + size, 4096);
    g_assert_cmpuint(n->allocated, <=, n->memory_size);
    return addr;
}

static uint32_t created(QrnicResult r)
{
    g_assert_cmpint(r.status, ==, QRNIC_ST_OK);
    return r.value;
}

static uint32_t eq_new(SimNode *n, uint8_t type, uint16_t vector,
                       uint64_t *ring)
{
    QrnicEqCtx ctx = {
        .type = type, .log_size = ASYNC_LOG_SIZE, .vector = vector,
    };

    ctx.ring.root = sim_alloc(n, QRNIC_EQE_SIZE << ASYNC_LOG_SIZE);
    if (ring) {
        *ring = ctx.ring.root;
    }
    return created(qrnic_eq_create(n->engine, &ctx));
}

static void contexts_give(SimNode *n)
{
    QrnicContextMemory memory = { 0 };
    QrnicContextAttr attr;

    n->contexts = 0;
    if (n->context_bare ||
        qrnic_context_memory_query(n->engine, &attr).status) {
        return;
    }
    memory.length = (uint64_t)attr.images * attr.image_size;
    n->contexts = memory.memory.root = sim_alloc(n, memory.length);
    created(qrnic_context_memory_set(n->engine, &memory));
}

/*
 * Configures the context cache. QRNIC_TEST_CONTEXTS="entries stations latency"
 * gives every test such a cache, to detect accesses to a queue pair without its
 * context.
 */
static void contexts_config(QrnicConfig *c, const SimOptions *o, unsigned id)
{
    const char *all = g_getenv("QRNIC_TEST_CONTEXTS");

    if (o->contexts_of_one && id) {
        return;
    }
    c->context_cache = o->context_cache;
    c->context_stations = o->context_stations;
    c->context_latency = o->context_latency;
    if (all && !o->context_cache) {
        g_assert_cmpint(sscanf(all, "%u %u %u", &c->context_cache,
                               &c->context_stations, &c->context_latency), ==,
                        3);
    }
    if (c->context_cache) {
        c->capabilities |= QRNIC_CAP_CONTEXT_CACHE;
    }
}

/* Performs the first commands of a driver. */
static void node_setup(SimNode *n)
{
    const QrnicPortCtx port = {
        .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP,
    };

    n->allocated = 4096;
    sim_memory_clear(n->memory, n->memory_size);
    n->async.number = eq_new(n, QRNIC_EQ_ASYNC, 0, &n->async.ring);
    n->async.consumer = 0;
    n->cq_eq = eq_new(n, QRNIC_EQ_COMPLETION, 1, &n->cq_eq_ring);
    n->cq_eq_consumer = 0;
    contexts_give(n);
    n->pd = created(qrnic_pd_alloc(n->engine));
    created(qrnic_gid_set(n->engine, 3, &n->gid));
    created(qrnic_port_modify(n->engine, &port));
}

void sim_reset(SimNode *n)
{
    n->deadline = QRNIC_DEADLINE_NEVER;
    qrnic_engine_reset(n->engine);
    node_setup(n);
}

static void node_init(Sim *s, unsigned id, const SimOptions *o)
{
    SimNode *n = &s->node[id];
    QrnicConfig config = {
        .name = n->name,
        .capabilities = QRNIC_CAP_RC | QRNIC_CAP_ATOMIC | QRNIC_CAP_DIRECT_WQE |
                        QRNIC_CAP_INLINE_SEND | QRNIC_CAP_TIMESTAMP |
                        QRNIC_CAP_UC | QRNIC_CAP_UD | QRNIC_CAP_SRQ |
                        QRNIC_CAP_SRQ_RESIZE |
                        QRNIC_CAP_MW | QRNIC_CAP_FAST_REG |
                        QRNIC_CAP_CQ_RESIZE | QRNIC_CAP_CQ_MODERATION |
                        QRNIC_CAP_DEVICE_MEMORY |
                        QRNIC_CAP_ATOMIC_WRITE | QRNIC_CAP_FLUSH |
                        QRNIC_CAP_INLINE_RECV | QRNIC_CAP_RATE_LIMIT |
                        QRNIC_CAP_COUNTER_SETS |
                        QRNIC_CAP_FLOW | QRNIC_CAP_RSS |
                        QRNIC_CAP_ON_DEMAND | QRNIC_CAP_PRIORITY |
                        QRNIC_CAP_INDIRECT_MKEY | QRNIC_CAP_STREAMING_RECV |
                        QRNIC_CAP_TAG_MATCHING |
                        QRNIC_CAP_DYNAMIC | QRNIC_CAP_XRC |
                        QRNIC_CAP_SELECTIVE_REPEAT |
                        QRNIC_CAP_ADAPTIVE_ROUTING |
                        QRNIC_CAP_SHARED_CONNECTION |
                        QRNIC_CAP_CONGESTION_CONTROL | QRNIC_CAP_EVENT_INDEX |
                        QRNIC_CAP_SHARED_VIRTUAL |
                        (o->atomic_hca ? 0 : QRNIC_CAP_ATOMIC_GLOB),
        .max_qp = o->max_qp ? o->max_qp : 256,
        .max_cq = o->max_cq ? o->max_cq : 256,
        .max_mkey = o->max_mkey ? o->max_mkey : 1024,
        .max_srq = o->max_srq ? o->max_srq : 16,
        .max_flow = o->max_flow ? o->max_flow : 16,
        .max_pd = 64, .max_gid = 16,
        .vectors = o->vectors ? o->vectors : 4,
        .db_pages = o->db_pages ? o->db_pages : 8,
        .doorbell_fifo = o->doorbell_fifo ? o->doorbell_fifo : 128,
        .doorbell_hold = o->doorbell_hold,
        .translation_cache = o->no_translation_cache ? 0 :
                             o->translation_cache ? o->translation_cache : 64,
        /* Any odd numbers */
        .translation_key = { 0x9e3779b97f4a7c15ull, 0xc2b2ae3d27d4eb4full },
        .max_sge = QRNIC_MAX_SGE, .max_inline = QRNIC_MAX_INLINE,
        .max_rd_atomic = o->max_rd_atomic ? o->max_rd_atomic : 16,
        .device_memory = o->device_memory ? o->device_memory :
                         16 * QRNIC_DM_PAGE_SIZE,
        .mac = { 2, 0, 0, 0, (1 + id) >> 8, 1 + id },
    };
    QrnicEnv env = sim_env(n);

    g_assert_cmpuint(id, <, UINT16_MAX);
    if (id < 26) {
        snprintf(n->name, sizeof(n->name), "%c", 'A' + id);
    } else {
        snprintf(n->name, sizeof(n->name), "N%u", id);
    }
    if (o->capabilities) {
        config.capabilities = o->capabilities;
    }
    contexts_config(&config, o, id);
    n->may_fail = o->may_fail;
    n->context_bare = o->context_bare;
    /* Gives an event index to the queue pairs of every test. */
    n->event_index = g_getenv("QRNIC_TEST_EVENT_INDEX");
    n->sim = s;
    n->id = id;
    n->deadline = n->queued = QRNIC_DEADLINE_NEVER;
    g_queue_init(&n->inbox);
    n->link_deadline = QRNIC_LINK_NEVER;
    n->memory_size = o->memory ? o->memory : MEMORY_DEFAULT;
    n->memory = sim_memory_new(n->memory_size);
    n->device_memory_size = config.device_memory;
    n->device_memory = sim_memory_new(n->device_memory_size);
    n->engine = qrnic_engine_new(&config, &env);
    qrnic_engine_set_link(n->engine, true);

    n->gid.flags = QRNIC_GID_VALID;
    memcpy(n->gid.mac, config.mac, 6);
    if (o->ipv6) {
        n->gid.gid[0] = 0xfd;
    } else {
        n->gid.gid[10] = n->gid.gid[11] = 0xff;
        n->gid.gid[12] = 10;
    }
    n->gid.gid[14] = (1 + id) >> 8;
    n->gid.gid[15] = 1 + id;
    if (o->vlan) {
        n->gid.flags |= QRNIC_GID_VLAN;
        n->gid.vlan_id = 42;
    }
    node_setup(n);
    if (o->link_retransmission) {
        sim_link_new(n, &config);
    }
}

Sim *sim_new(uint32_t seed, const SimOptions *options)
{
    static const SimOptions none;
    Sim *s = g_new0(Sim, 1);

    s->seed = seed;
    sim_packets_begin(s);
    s->rand = g_rand_new_with_seed(seed);
    s->kicked = g_ptr_array_new();
    s->waiting = g_ptr_array_new();
    s->latency = SIM_US;
    options = options ? options : &none;
    s->nodes = options->nodes ? options->nodes : SIM_NODES;
    s->node = g_new0(SimNode, s->nodes);
    for (unsigned i = 0; i < s->nodes; i++) {
        node_init(s, i, options);
    }
    if (options && options->link_retransmission) {
        sim_run(s, 100 * SIM_MS);
        g_assert_true(qrnic_link_agreed(s->node[0].link));
        g_assert_true(qrnic_link_agreed(s->node[1].link));
    }
    return s;
}

void sim_free(Sim *s)
{
    SimFrame *f;

    sim_packets_end(s);
    while ((f = sim_wire_take(s))) {
        g_free(f);
    }
    for (unsigned i = 0; i < s->nodes; i++) {
        SimNode *n = &s->node[i];

        qrnic_link_free(n->link);
        while (!g_queue_is_empty(&n->link_under_way)) {
            g_bytes_unref(g_queue_pop_head(&n->link_under_way));
        }
        qrnic_engine_free(n->engine);
        sim_memory_free(n->memory, n->memory_size);
        sim_memory_free(n->device_memory, n->device_memory_size);
    }
    heap_free(&s->wire);
    heap_free(&s->due);
    heap_free(&s->later);
    g_ptr_array_free(s->kicked, true);
    g_ptr_array_free(s->waiting, true);
    g_free(s->node);
    g_rand_free(s->rand);
    g_free(s);
}

uint64_t sim_counter(SimNode *n, enum qrnic_counter c)
{
    return qrnic_counters(n->engine)[c];
}

uint32_t sim_mkey_ctx(SimNode *n, const QrnicMkeyCtx *ctx)
{
    return created(qrnic_mkey_create(n->engine, ctx)) << 8 | ctx->variant;
}

uint32_t sim_mkey(SimNode *n, uint64_t addr, uint64_t length, uint8_t access)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = access, .variant = 0x5a, .pd = n->pd,
        .start = addr, .length = length, .table.root = addr,
    };

    return sim_mkey_ctx(n, &ctx);
}

static SimQp *qp_new(SimNode *n, QrnicQpCtx *ctx, unsigned cq_log)
{
    SimQp *q = g_new0(SimQp, 1);
    QrnicCqCtx cq = {
        .eqn = n->cq_eq, .log_size = cq_log, .db_page = n->db_page,
    };

    q->node = n;
    q->db_page = ctx->db_page = n->db_page;
    q->cq_log = cq_log;
    q->cq_ring = cq.ring.root = sim_alloc(n, QRNIC_CQE_SIZE << cq_log);
    q->cq_record = cq.record = sim_alloc(n, 8);
    q->cq = created(qrnic_cq_create(n->engine, &cq));
    q->sq_log = ctx->sq_log_size;
    q->rq_log = ctx->rq_log_size;
    q->rq_log_stride = ctx->rq_log_stride;
    if (ctx->type != QRNIC_QPT_DC_TGT) {
        q->sq = ctx->sq.root = sim_alloc(n, QRNIC_WQEBB_SIZE << q->sq_log);
        q->sq_record = ctx->sq_record = sim_alloc(n, 8);
        ctx->send_cq = q->cq;
    } else {
        ctx->db_page = 0;
    }
    if (ctx->type != QRNIC_QPT_DC_INI) {
        ctx->recv_cq = q->cq;
    }
    if (!ctx->srq && ctx->recv_cq) {
        q->rq = ctx->rq.root = sim_alloc(n, QRNIC_WQEBB_SIZE <<
                                            (q->rq_log + q->rq_log_stride));
        q->rq_record = ctx->rq_record = sim_alloc(n, 8);
        ctx->stream = n->stream;
    }
    if (n->event_index && q->sq) {
        ctx->flags |= QRNIC_QPF_EVENT_INDEX;
        q->event_index = true;
    }
    ctx->pd = n->pd;
    q->number = created(qrnic_qp_create(n->engine, ctx));
    return q;
}

SimQp *sim_qp_new(SimNode *n, unsigned sq_log, unsigned rq_log,
                  unsigned rq_log_stride, unsigned cq_log)
{
    QrnicQpCtx ctx = {
        .type = QRNIC_QPT_RC, .sq_log_size = sq_log, .rq_log_size = rq_log,
        .rq_log_stride = rq_log_stride,
    };

    return qp_new(n, &ctx, cq_log);
}

SimQp *sim_qp_new_srq(SimNode *n, unsigned sq_log, SimSrq *srq,
                      unsigned cq_log)
{
    QrnicQpCtx ctx = {
        .type = QRNIC_QPT_RC, .sq_log_size = sq_log, .srq = srq->number,
    };
    SimQp *q = qp_new(n, &ctx, cq_log);

    q->srq = srq;
    return q;
}

SimQp *sim_uc_new(SimNode *n, SimSrq *srq)
{
    QrnicQpCtx ctx = {
        .type = QRNIC_QPT_UC, .sq_log_size = 6, .srq = srq ? srq->number : 0,
        .rq_log_size = srq ? 0 : 3,
    };
    SimQp *q = qp_new(n, &ctx, 8);

    q->srq = srq;
    return q;
}

SimQp *sim_inline_new(SimNode *n, uint8_t type, SimSrq *srq,
                      uint8_t max_recv_inline)
{
    QrnicQpCtx ctx = {
        .type = type, .sq_log_size = 6, .srq = srq ? srq->number : 0,
        .rq_log_size = srq ? 0 : 3, .rq_log_stride = srq ? 0 : 1,
        .max_recv_inline = max_recv_inline,
        .address_space = max_recv_inline ? 1 : 0,
    };
    SimQp *q = qp_new(n, &ctx, 4);

    q->srq = srq;
    return q;
}

SimQp *sim_datagram_new(SimNode *n, uint8_t type, SimSrq *srq, uint32_t qkey)
{
    QrnicQpCtx ctx = {
        .type = type, .sq_log_size = 6, .srq = srq ? srq->number : 0,
        .rq_log_size = srq ? 0 : 3,
    };
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_QKEY,
        .state = QRNIC_QPS_INIT, .port = 1, .qkey = qkey,
    };
    SimQp *q = qp_new(n, &ctx, 8);

    q->srq = srq;
    created(sim_modify(q, &attr));
    attr = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    created(sim_modify(q, &attr));
    attr.mask |= QRNIC_QP_SQ_PSN;
    attr.state = QRNIC_QPS_RTS;
    created(sim_modify(q, &attr));
    return q;
}

SimQp *sim_dynamic_new(SimNode *n, SimSrq *srq, const QrnicDynamicAttr *attr)
{
    QrnicQpCtx ctx = {
        .type = srq ? QRNIC_QPT_DC_TGT : QRNIC_QPT_DC_INI,
        .sq_log_size = srq ? 0 : 8, .srq = srq ? srq->number : 0,
        .dynamic = *attr,
    };
    SimQp *q = qp_new(n, &ctx, 10);

    q->srq = srq;
    return q;
}

void sim_dynamic_start(SimQp *q, const SimConnect *c)
{
    SimConnect d = sim_connect_default();
    QrnicQpAttr a = sim_attr_init();

    c = c ? c : &d;
    if (!q->srq) {
        a.mask &= ~QRNIC_QP_ACCESS_FLAGS;
        a.access = 0;
    }
    created(sim_modify(q, &a));
    a = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PATH_MTU, .state = QRNIC_QPS_RTR,
        .path_mtu = c->path_mtu,
    };
    if (q->srq) {
        a.mask |= QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER;
        a.max_dest_rd_atomic = c->max_dest_rd_atomic;
        a.min_rnr_timer = c->min_rnr_timer;
    } else if (c->options) {
        a.mask |= QRNIC_QP_OPTIONS;
        a.options = c->options;
    }
    created(sim_modify(q, &a));
    if (!q->srq) {
        a = sim_attr_rts();
        a.timeout = c->timeout;
        a.retry_cnt = c->retry_cnt;
        a.rnr_retry = c->rnr_retry;
        a.sq_psn = c->psn_a;
        a.max_rd_atomic = c->rd_atomic;
        created(sim_modify(q, &a));
    }
}

QrnicDynamicSeg sim_dynamic_to(SimQp *target, uint64_t access_key)
{
    return (QrnicDynamicSeg) {
        .av = sim_attr_rtr(target, target).av, .target = target->number,
        .access_key = access_key,
    };
}

QrnicDatagramSeg sim_datagram_to(SimQp *to, uint32_t qkey)
{
    return (QrnicDatagramSeg) {
        .av = sim_attr_rtr(to, to).av, .dest_qpn = to->number, .qkey = qkey,
    };
}

SimSrq *sim_srq_new(SimNode *n, unsigned log_size, unsigned log_stride)
{
    SimSrq *s = g_new0(SimSrq, 1);
    QrnicSrqCtx ctx = {
        .pd = n->pd, .log_size = log_size, .log_stride = log_stride,
        .stream = n->stream,
    };
    uint32_t slots = 1u << log_size;

    s->node = n;
    s->log_size = log_size;
    s->log_stride = log_stride;
    s->ring = ctx.ring.root = sim_alloc(n, QRNIC_WQEBB_SIZE <<
                                           (log_size + log_stride));
    s->record = ctx.record = sim_alloc(n, 8);
    s->next = g_new(uint16_t, slots);
    for (uint32_t i = 0; i < slots; i++) {
        s->next[i] = i + 1;
    }
    s->tail = slots - 1;
    s->number = created(qrnic_srq_create(n->engine, &ctx));
    return s;
}

void sim_srq_free(SimSrq *s)
{
    created(qrnic_srq_destroy(s->node->engine, s->number));
    g_free(s->next);
    g_free(s);
}

void sim_qp_free(SimQp *q)
{
    created(qrnic_qp_destroy(q->node->engine, q->number));
    created(qrnic_cq_destroy(q->node->engine, q->cq));
    g_free(q);
}

QrnicResult sim_modify(SimQp *q, const QrnicQpAttr *attr)
{
    if (attr->mask & QRNIC_QP_STATE && attr->state == QRNIC_QPS_RESET) {
        q->sq_decided = 0;
    }
    return qrnic_qp_modify(q->node->engine, q->number, attr);
}

QrnicQpAttr sim_attr_init(void)
{
    return (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1,
        .access = QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ |
                  QRNIC_ACCESS_REMOTE_ATOMIC,
    };
}

QrnicQpAttr sim_attr_rtr(SimQp *q, SimQp *peer)
{
    QrnicQpAttr a = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
                QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
        .state = QRNIC_QPS_RTR, .path_mtu = QRNIC_MTU_1024,
        .dest_qpn = peer->number, .max_dest_rd_atomic = 4,
        .min_rnr_timer = 12,
    };

    a.av.sgid_index = 3;
    memcpy(a.av.dgid, peer->node->gid.gid, 16);
    memcpy(a.av.dmac, peer->node->gid.mac, 6);
    return a;
}

QrnicQpAttr sim_attr_rts(void)
{
    return (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT |
                QRNIC_QP_RNR_RETRY | QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC,
        .state = QRNIC_QPS_RTS, .timeout = 8, .retry_cnt = 7, .rnr_retry = 7,
        .max_rd_atomic = 4,
    };
}

SimConnect sim_connect_default(void)
{
    return (SimConnect) {
        .path_mtu = QRNIC_MTU_1024, .timeout = 8, .retry_cnt = 7,
        .rnr_retry = 7, .min_rnr_timer = 12, .rd_atomic = 4,
        .max_dest_rd_atomic = 4, .psn_a = 0x123456, .psn_b = 0xabcdef,
    };
}

static QrnicQpAttr attr_rtr(SimQp *q, SimQp *peer, const SimConnect *c,
                            uint32_t rq_psn, bool options)
{
    QrnicQpAttr a = sim_attr_rtr(q, peer);

    a.path_mtu = c->path_mtu;
    a.av.traffic_class = c->traffic_class;
    a.rq_psn = rq_psn;
    a.max_dest_rd_atomic = c->max_dest_rd_atomic;
    a.min_rnr_timer = c->min_rnr_timer;
    if (options && c->options) {
        a.mask |= QRNIC_QP_OPTIONS;
        a.options = c->options;
    }
    return a;
}

static void to_rtr(SimQp *q, SimQp *peer, const SimConnect *c, uint32_t rq_psn,
                   bool options, SimQp *carrier)
{
    QrnicQpAttr a = sim_attr_init();

    created(sim_modify(q, &a));
    a = attr_rtr(q, peer, c, rq_psn, options);
    if (carrier) {
        a.mask |= QRNIC_QP_CARRIER;
        a.carrier = carrier->number;
    }
    created(sim_modify(q, &a));
}

static QrnicQpAttr attr_rts(const SimConnect *c, uint32_t sq_psn)
{
    QrnicQpAttr a = sim_attr_rts();

    a.timeout = c->timeout;
    a.retry_cnt = c->retry_cnt;
    a.rnr_retry = c->rnr_retry;
    a.sq_psn = sq_psn;
    a.max_rd_atomic = c->rd_atomic;
    return a;
}

static void to_rts(SimQp *q, const SimConnect *c, uint32_t sq_psn)
{
    QrnicQpAttr a = attr_rts(c, sq_psn);

    created(sim_modify(q, &a));
}

SimQp *sim_carrier_new(SimNode *n)
{
    const QrnicQpCtx ctx = { .type = QRNIC_QPT_CARRIER };
    SimQp *q = g_new0(SimQp, 1);

    q->node = n;
    q->number = created(qrnic_qp_create(n->engine, &ctx));
    return q;
}

void sim_carrier_free(SimQp *q)
{
    created(qrnic_qp_destroy(q->node->engine, q->number));
    g_free(q);
}

QrnicQpAttr sim_attr_of_carrier(QrnicQpAttr a)
{
    a.mask &= ~(QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MAX_DEST_RD_ATOMIC |
                QRNIC_QP_MIN_RNR_TIMER | QRNIC_QP_RNR_RETRY |
                QRNIC_QP_MAX_RD_ATOMIC);
    a.access = a.max_dest_rd_atomic = a.min_rnr_timer = 0;
    a.rnr_retry = a.max_rd_atomic = 0;
    return a;
}

void sim_carrier_to_rtr(SimQp *q, SimQp *peer, const SimConnect *c, bool first)
{
    QrnicQpAttr a = sim_attr_of_carrier(sim_attr_init());

    created(sim_modify(q, &a));
    a = sim_attr_of_carrier(attr_rtr(q, peer, c, first ? c->psn_b : c->psn_a,
                                     first ? !c->only_b : !c->only_a));
    created(sim_modify(q, &a));
}

void sim_carrier_to_rts(SimQp *q, const SimConnect *c, bool first)
{
    QrnicQpAttr a = sim_attr_of_carrier(attr_rts(c, first ? c->psn_a :
                                                            c->psn_b));

    created(sim_modify(q, &a));
}

void sim_carrier_connect(SimQp *a, SimQp *b, const SimConnect *c)
{
    SimConnect d = sim_connect_default();

    c = c ? c : &d;
    sim_carrier_to_rtr(a, b, c, true);
    sim_carrier_to_rts(a, c, true);
    sim_carrier_to_rtr(b, a, c, false);
    sim_carrier_to_rts(b, c, false);
}

void sim_connect(SimQp *a, SimQp *b, const SimConnect *c)
{
    SimConnect d = sim_connect_default();

    c = c ? c : &d;
    to_rtr(a, b, c, c->psn_b, !c->only_b, c->carrier_a);
    to_rtr(b, a, c, c->psn_a, !c->only_a, c->carrier_b);
    to_rts(a, c, c->psn_a);
    to_rts(b, c, c->psn_b);
}

void sim_uc_connect(SimQp *a, SimQp *b)
{
    for (unsigned i = 0; i < 2; i++) {
        SimQp *q = i ? b : a;
        QrnicQpAttr attr = sim_attr_init();

        attr.access = QRNIC_ACCESS_REMOTE_WRITE;
        created(sim_modify(q, &attr));
        attr = sim_attr_rtr(q, i ? a : b);
        attr.mask &= ~(QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER);
        attr.max_dest_rd_atomic = attr.min_rnr_timer = 0;
        created(sim_modify(q, &attr));
        attr = (QrnicQpAttr) {
            .mask = QRNIC_QP_STATE | QRNIC_QP_SQ_PSN, .state = QRNIC_QPS_RTS,
        };
        created(sim_modify(q, &attr));
    }
}

QrnicQpAttr sim_query(SimQp *q)
{
    QrnicQpAttr a;

    created(qrnic_qp_query(q->node->engine, q->number, &a));
    return a;
}

void sim_ring(SimNode *n, uint32_t page, unsigned offset, uint32_t number,
              uint32_t index)
{
    QrnicDoorbell d = { .number = number, .index = index };
    uint8_t raw[QRNIC_DOORBELL_BYTES];

    qrnic_doorbell_pack(raw, &d);
    qrnic_doorbell_write(n->engine, page, offset, 8, ldq_le_p(raw));
}

static void ring(SimQp *q, unsigned offset, uint32_t index)
{
    sim_ring(q->node, q->db_page, offset, q->number, index);
}

static void put_sges(uint8_t *p, const SimSge *sge, unsigned num_sge)
{
    for (unsigned i = 0; i < num_sge; i++) {
        QrnicDataSeg d = {
            .address = sge[i].addr, .length = sge[i].length,
            .lkey = sge[i].key,
        };

        qrnic_data_seg_pack(p + QRNIC_SEGMENT_SIZE * i, &d);
    }
}

void sim_post_send_quiet(SimQp *q, const SimWr *wr)
{
    uint8_t raw[QRNIC_WQE_MAX_WQEBB * QRNIC_WQEBB_SIZE] = { 0 };
    bool atomic = wr->opcode == QRNIC_WQE_ATOMIC_CMP_SWAP ||
                  wr->opcode == QRNIC_WQE_ATOMIC_FETCH_ADD ||
                  wr->opcode == QRNIC_WQE_ATOMIC_WRITE;
    QrnicSqCtrl ctrl = {
        .opcode = wr->opcode, .flags = wr->flags, .index = q->sq_producer,
        .imm = wr->imm, .inline_length = wr->inline_length,
    };
    uint8_t *p = raw + QRNIC_SEGMENT_SIZE;
    uint32_t blocks;

    if (wr->dynamic) {
        qrnic_dynamic_seg_pack(p, wr->dynamic);
        p += QRNIC_DYNAMIC_SEG_BYTES;
    }
    if (wr->xrc) {
        qrnic_xrc_seg_pack(p, wr->xrc);
        p += QRNIC_SEGMENT_SIZE;
    }
    if (atomic || wr->flush || wr->opcode == QRNIC_WQE_RDMA_WRITE ||
        wr->opcode == QRNIC_WQE_RDMA_WRITE_IMM ||
        wr->opcode == QRNIC_WQE_RDMA_READ) {
        QrnicRemoteSeg r = { .address = wr->remote, .rkey = wr->rkey };

        qrnic_remote_seg_pack(p, &r);
        p += QRNIC_SEGMENT_SIZE;
    }
    if (atomic) {
        QrnicAtomicSeg a = {
            .swap_add = wr->swap_add, .compare = wr->compare,
        };

        qrnic_atomic_seg_pack(p, &a);
        p += QRNIC_SEGMENT_SIZE;
    }
    if (wr->datagram) {
        qrnic_datagram_seg_pack(p, wr->datagram);
        p += QRNIC_DATAGRAM_SEG_BYTES;
    }
    if (wr->eth) {
        qrnic_eth_seg_pack(p, wr->eth);
        p += QRNIC_SEGMENT_SIZE;
    }
    if (wr->flush) {
        qrnic_flush_seg_pack(p, wr->flush);
        p += QRNIC_SEGMENT_SIZE;
    }
    if (wr->bind) {
        qrnic_bind_seg_pack(p, wr->bind);
        p += QRNIC_BIND_SEG_BYTES;
    }
    if (wr->reg) {
        qrnic_reg_seg_pack(p, wr->reg);
        p += QRNIC_REG_SEG_BYTES;
    }
    if (wr->indirect) {
        qrnic_indirect_seg_pack(p, wr->indirect);
        p += QRNIC_INDIRECT_SEG_BYTES;
    }
    if (wr->inline_data) {
        ctrl.flags |= QRNIC_WQEF_INLINE;
        memcpy(p, wr->inline_data, wr->inline_length);
        p += QEMU_ALIGN_UP(wr->inline_length, QRNIC_SEGMENT_SIZE);
    } else {
        put_sges(p, wr->sge, wr->num_sge);
        p += QRNIC_SEGMENT_SIZE * wr->num_sge;
    }
    ctrl.segments = (p - raw) / QRNIC_SEGMENT_SIZE;
    qrnic_sq_ctrl_pack(raw, &ctrl);
    blocks = DIV_ROUND_UP(p - raw, QRNIC_WQEBB_SIZE);
    for (uint32_t i = 0; i < blocks; i++) {
        uint32_t slot = q->sq_producer++ & ((1u << q->sq_log) - 1);

        memcpy(q->node->memory + q->sq + slot * QRNIC_WQEBB_SIZE,
               raw + i * QRNIC_WQEBB_SIZE, QRNIC_WQEBB_SIZE);
    }
    stl_le_p(q->node->memory + q->sq_record, q->sq_producer);
}

void sim_ring_sq(SimQp *q)
{
    q->sq_decided = q->sq_producer;
    ring(q, QRNIC_DB_SQ, q->sq_producer);
}

bool sim_sq_decide(SimQp *q)
{
    uint32_t event = ldl_le_p(q->node->memory + q->sq_record +
                              QRNIC_QUEUE_RECORD_EVENT_OFFSET);
    uint32_t new = q->sq_producer, old = q->sq_decided;

    q->sq_decided = new;
    return new - event - 1 < new - old;
}

void sim_post_send(SimQp *q, const SimWr *wr)
{
    sim_post_send_quiet(q, wr);
    if (!q->event_index || sim_sq_decide(q)) {
        sim_ring_sq(q);
    }
}

void sim_post_recv_quiet(SimQp *q, const SimSge *sge, unsigned num_sge)
{
    QrnicRecvCtrl ctrl = { .data_segments = num_sge, .index = q->rq_producer };
    uint32_t slot = q->rq_producer++ & ((1u << q->rq_log) - 1);
    uint8_t *p = q->node->memory + q->rq +
                 ((uint64_t)slot * QRNIC_WQEBB_SIZE << q->rq_log_stride);

    qrnic_recv_ctrl_pack(p, &ctrl);
    put_sges(p + QRNIC_SEGMENT_SIZE, sge, num_sge);
    stl_le_p(q->node->memory + q->rq_record, q->rq_producer);
}

uint32_t sim_post_srq(SimSrq *s, const SimSge *sge, unsigned num_sge)
{
    uint32_t slot = s->head;
    QrnicRecvCtrl ctrl = {
        .data_segments = num_sge, .index = slot, .next = s->next[slot],
    };
    uint8_t *p = s->node->memory + s->ring +
                 ((uint64_t)slot * QRNIC_WQEBB_SIZE << s->log_stride);

    g_assert_cmpint(slot, !=, s->tail);
    s->head = s->next[slot];
    qrnic_recv_ctrl_pack(p, &ctrl);
    put_sges(p + QRNIC_SEGMENT_SIZE, sge, num_sge);
    stl_le_p(s->node->memory + s->record, ++s->producer);
    sim_ring(s->node, 0, QRNIC_DB_SRQ, s->number, s->producer);
    return slot;
}

void sim_srq_slot_free(SimSrq *s, uint32_t slot)
{
    s->next[s->tail] = slot;
    s->tail = slot;
}

void sim_ring_rq(SimQp *q)
{
    ring(q, QRNIC_DB_RQ, q->rq_producer);
}

void sim_post_recv(SimQp *q, const SimSge *sge, unsigned num_sge)
{
    sim_post_recv_quiet(q, sge, num_sge);
    sim_ring_rq(q);
}

bool sim_poll(SimQp *q, QrnicCqe *out)
{
    uint32_t slot = q->cq_consumer & ((1u << q->cq_log) - 1);
    uint8_t *p = q->node->memory + q->cq_ring + slot * QRNIC_CQE_SIZE;
    bool phase = !(q->cq_consumer >> q->cq_log & 1);

    /* Inline data may be where other CQEs have reserved members. */
    g_assert_true(qrnic_cqe_unpack(out, p) || out->flags & QRNIC_CQEF_INLINE);
    if (out->phase != phase) {
        return false;
    }
    q->cq_consumer++;
    stl_le_p(q->node->memory + q->cq_record, q->cq_consumer);
    return true;
}

QrnicCqeInline sim_polled_inline(SimQp *q)
{
    uint32_t slot = (q->cq_consumer - 1) & ((1u << q->cq_log) - 1);
    QrnicCqeInline cqe;

    g_assert_true(qrnic_cqe_inline_unpack(&cqe, q->node->memory + q->cq_ring +
                                                slot * QRNIC_CQE_SIZE));
    g_assert_true(cqe.flags & QRNIC_CQEF_INLINE);
    return cqe;
}

static bool eqe_next(SimNode *n, uint64_t ring, uint32_t consumer,
                     QrnicEqe *out)
{
    uint32_t slot = consumer & ((1u << ASYNC_LOG_SIZE) - 1);
    bool phase = !(consumer >> ASYNC_LOG_SIZE & 1);

    g_assert_true(qrnic_eqe_unpack(out, n->memory + ring +
                                        slot * QRNIC_EQE_SIZE));
    return out->phase == phase;
}

bool sim_poll_event(SimNode *n, QrnicEqe *out)
{
    QrnicEqDoorbell d = { .number = n->async.number };
    uint8_t raw[8];

    if (!eqe_next(n, n->async.ring, n->async.consumer, out)) {
        return false;
    }
    d.index = ++n->async.consumer;
    qrnic_eq_doorbell_pack(raw, &d);
    qrnic_doorbell_write(n->engine, 0, QRNIC_DB_EQ, 8, ldq_le_p(raw));
    return true;
}

void sim_cq_arm(SimQp *q)
{
    uint8_t *record = q->node->memory + q->cq_record;

    stl_le_p(record + QRNIC_CQ_RECORD_ARM_OFFSET, ++q->cq_arm);
    sim_ring(q->node, q->db_page, QRNIC_DB_CQ_ARM, q->cq, q->cq_consumer);
}

unsigned sim_cq_events(SimNode *n)
{
    uint8_t raw[QRNIC_EQ_DOORBELL_BYTES];
    QrnicEqDoorbell d = { .number = n->cq_eq };
    unsigned count = 0;
    QrnicEqe e;

    while (eqe_next(n, n->cq_eq_ring, n->cq_eq_consumer, &e)) {
        g_assert_cmpint(e.type, ==, QRNIC_EVENT_COMPLETION);
        n->cq_eq_consumer++;
        count++;
    }
    d.index = n->cq_eq_consumer;
    qrnic_eq_doorbell_pack(raw, &d);
    qrnic_doorbell_write(n->engine, 0, QRNIC_DB_EQ, 8, ldq_le_p(raw));
    return count;
}

QrnicPathSpec sim_path_to(SimQp *q, SimQp *peer)
{
    const QrnicGidEntry *to = &q->node->gid, *from = &peer->node->gid;
    QrnicPathSpec s = {
        .vlan = to->flags & QRNIC_GID_VLAN ? to->vlan_id : -1,
        .udp_sport = 0xc000,
    };

    memcpy(s.dmac, to->mac, 6);
    memcpy(s.smac, from->mac, 6);
    memcpy(s.dgid, to->gid, 16);
    memcpy(s.sgid, from->gid, 16);
    return s;
}
