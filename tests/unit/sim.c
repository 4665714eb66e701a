/*
 * A simulated world for the engine; see sim.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "sim.h"

#define MEMORY_DEFAULT (32ull << 20)
#define ASYNC_LOG_SIZE 8
#define RUNS_MAX 50000000

/*
 * The environment of the engine
 */

static bool in_memory(SimNode *n, uint64_t addr, size_t len)
{
    if (addr > n->memory_size || len > n->memory_size - addr) {
        return false;
    }
    return addr >= n->broken_to || addr + len <= n->broken_from;
}

static bool env_dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    SimNode *n = opaque;

    if (!in_memory(n, addr, len)) {
        return false;
    }
    memcpy(buf, n->memory + addr, len);
    if (n->after_read) {
        n->after_read(n, addr, len);
    }
    return true;
}

static bool env_dma_write(void *opaque, uint64_t addr, const void *buf,
                          size_t len)
{
    SimNode *n = opaque;

    if (!in_memory(n, addr, len)) {
        return false;
    }
    memcpy(n->memory + addr, buf, len);
    return true;
}

static bool apply(uint8_t *at, QrnicAtomic *op)
{
    op->original = ldq_le_p(at);
    if (!op->compare_swap) {
        stq_le_p(at, op->original + op->swap_add);
    } else if (op->original == op->compare) {
        stq_le_p(at, op->swap_add);
    }
    return true;
}

static bool env_dma_atomic(void *opaque, uint64_t addr, QrnicAtomic *op)
{
    SimNode *n = opaque;

    g_assert_cmpuint(addr % 8, ==, 0);
    return in_memory(n, addr, 8) && apply(n->memory + addr, op);
}

static bool env_dm_atomic(void *opaque, uint64_t offset, QrnicAtomic *op)
{
    SimNode *n = opaque;

    g_assert_cmpuint(offset % 8, ==, 0);
    g_assert_cmpuint(offset + 8, <=, n->device_memory_size);
    return apply(n->device_memory + offset, op);
}

static void env_dm_read(void *opaque, uint64_t offset, void *buf, size_t len)
{
    SimNode *n = opaque;

    g_assert_cmpuint(offset + len, <=, n->device_memory_size);
    memcpy(buf, n->device_memory + offset, len);
}

static void env_dm_write(void *opaque, uint64_t offset, const void *buf,
                         size_t len)
{
    SimNode *n = opaque;

    g_assert_cmpuint(offset + len, <=, n->device_memory_size);
    memcpy(n->device_memory + offset, buf, len);
}

static void env_notify(void *opaque, unsigned vector)
{
    ((SimNode *)opaque)->notified++;
}

static int64_t env_clock_ns(void *opaque)
{
    return ((SimNode *)opaque)->sim->now;
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    ((SimNode *)opaque)->deadline = deadline_ns;
}

static void env_kick(void *opaque)
{
    ((SimNode *)opaque)->kicked = true;
    ((SimNode *)opaque)->kicks++;
}

static void env_fatal(void *opaque, unsigned cause, uint32_t info)
{
    if (!((SimNode *)opaque)->may_fail) {
        g_error("fatal state: cause %u info %u", cause, info);
    }
}

static bool chance(Sim *s, unsigned thousandths)
{
    return thousandths && g_rand_int_range(s->rand, 0, 1000) < thousandths;
}

static gint frame_compare(gconstpointer a, gconstpointer b)
{
    const SimFrame *f = *(SimFrame * const *)a, *g = *(SimFrame * const *)b;

    if (f->time != g->time) {
        return f->time < g->time ? -1 : 1;
    }
    return f->order < g->order ? -1 : 1;
}

/* As a switch does: IPv4 has a checksum that covers the field. */
static void mark(uint8_t *frame, size_t len)
{
    const QrnicHeaders h = qrnic_headers_walk(frame, len);
    uint8_t *ip = frame + h.ip;
    uint32_t sum = 0;

    if (!qrnic_headers_have_ip(&h) || !(h.traffic_class & QRNIC_ECN_MASK)) {
        return;
    }
    if (h.network == QRNIC_NET_IPV6) {
        ip[1] |= QRNIC_ECN_CE << 4;
        return;
    }
    ip[1] |= QRNIC_ECN_CE;
    stw_be_p(ip + QRNIC_IPV4_CHECKSUM, 0);
    for (unsigned i = 0; i < QRNIC_IPV4_LEN; i += 2) {
        sum += lduw_be_p(ip + i);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    stw_be_p(ip + QRNIC_IPV4_CHECKSUM, ~(sum + (sum >> 16)));
}

static void wire_put(Sim *s, unsigned to, const uint8_t *frame, size_t len,
                     int64_t delay)
{
    SimFrame *f = g_malloc(sizeof(*f) + len);
    bool last;

    f->time = s->now + delay;
    f->order = s->frames++;
    f->to = to;
    f->len = len;
    memcpy(f->data, frame, len);
    if (s->marks && s->marks(s, !to, frame, len)) {
        mark(f->data, len);
    }
    if (chance(s, s->corrupt)) {
        f->data[g_rand_int_range(s->rand, 0, len)] ^=
            1 << g_rand_int_range(s->rand, 0, 8);
    }
    last = !s->wire->len ||
           ((SimFrame *)s->wire->pdata[s->wire->len - 1])->time <= f->time;
    g_ptr_array_add(s->wire, f);
    if (!last) {
        g_ptr_array_sort(s->wire, frame_compare);
    }
}

static bool wire_send(void *opaque, const uint8_t *frame, size_t len)
{
    SimNode *n = opaque;
    Sim *s = n->sim;

    g_assert_false(n->blocked);
    if ((!s->tap || s->tap(s, n->id, frame, len, s->tap_opaque)) &&
        !chance(s, s->loss)) {
        int64_t extra = chance(s, s->reorder) ?
                        g_rand_int_range(s->rand, 1, 20 * SIM_US) : 0;

        wire_put(s, !n->id, frame, len, s->latency + extra);
        if (chance(s, s->repeat)) {
            wire_put(s, !n->id, frame, len, s->latency +
                     g_rand_int_range(s->rand, 0, 20 * SIM_US));
        }
    }
    if (s->wire_room && ++n->burst == s->wire_room) {
        n->blocked = true;
        n->wire_ready = s->now + s->wire_pause;
        return false;
    }
    return true;
}

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    SimNode *n = opaque;

    if (!n->link) {
        return wire_send(n, frame, len);
    }
    g_queue_push_tail(&n->link_under_way, g_bytes_new(frame, len));
    return qrnic_link_send(n->link, frame, len);
}

/*
 * The environment of the link
 */

/* Each once, in order, and as it was sent */
static void link_deliver(void *opaque, const uint8_t *frame, size_t len)
{
    SimNode *n = opaque, *from = &n->sim->node[!n->id];
    GBytes *sent = g_queue_pop_head(&from->link_under_way);

    g_assert_nonnull(sent);
    g_assert_cmpmem(frame, len, g_bytes_get_data(sent, NULL),
                    g_bytes_get_size(sent));
    g_bytes_unref(sent);
    qrnic_engine_receive(n->engine, frame, len);
}

static bool link_takes(void *opaque)
{
    return qrnic_engine_can_receive(((SimNode *)opaque)->engine);
}

static void link_ready(void *opaque)
{
    qrnic_engine_wire_ready(((SimNode *)opaque)->engine);
}

static void link_changed(void *opaque, bool agreed)
{
}

static void link_kick(void *opaque)
{
    ((SimNode *)opaque)->link_kicked = true;
}

static void link_timer_arm(void *opaque, int64_t deadline_ns)
{
    ((SimNode *)opaque)->link_deadline = deadline_ns;
}

static uint32_t link_random(void *opaque)
{
    return g_rand_int(((SimNode *)opaque)->sim->rand);
}

static void link_count(void *opaque, enum qrnic_link_count which, uint64_t n)
{
    ((SimNode *)opaque)->link_count[which] += n;
}

static void link_init(SimNode *n, const QrnicConfig *c)
{
    QrnicLinkConfig config = qrnic_link_config_default();
    const QrnicLinkEnv env = {
        .opaque = n, .send = wire_send, .deliver = link_deliver,
        .takes = link_takes, .ready = link_ready, .changed = link_changed,
        .kick = link_kick, .clock_ns = env_clock_ns,
        .timer_arm = link_timer_arm, .random = link_random,
        .count = link_count,
    };

    config.name = c->name;
    memcpy(config.mac, c->mac, sizeof(config.mac));
    n->link = qrnic_link_new(&config, &env);
    qrnic_link_set_up(n->link, true);
}

static bool node_takes(SimNode *n)
{
    return n->link ? qrnic_link_takes(n->link) :
                     qrnic_engine_can_receive(n->engine);
}

QrnicParse sim_parse(QrnicPacket *p, const uint8_t *frame, size_t len)
{
    const QrnicHeaders h = qrnic_headers_walk(frame, len);
    QrnicParse result = qrnic_packet_parse(p, &h, QRNIC_ICRC_STANDARD);

    p->h = NULL;
    return result;
}

void sim_inject(Sim *s, unsigned to, const uint8_t *frame, size_t len)
{
    SimNode *n = &s->node[to];

    if (n->link) {
        qrnic_link_receive(n->link, frame, len);
    } else {
        qrnic_engine_receive(n->engine, frame, len);
    }
}

/*
 * Time
 */

static bool run_kicked(Sim *s)
{
    bool any = false;

    for (unsigned i = 0; i < SIM_NODES; i++) {
        if (s->node[i].kicked) {
            s->node[i].kicked = false;
            s->node[i].runs++;
            qrnic_engine_run(s->node[i].engine, QRNIC_RUN_ROUNDS);
            any = true;
        }
        if (s->node[i].link_kicked) {
            s->node[i].link_kicked = false;
            qrnic_link_run(s->node[i].link);
            any = true;
        }
        /* What waited for the engine, which may take it now */
        if (s->node[i].link && any) {
            qrnic_link_takes(s->node[i].link);
        }
    }
    return any;
}

static int64_t next_event(Sim *s)
{
    int64_t next = QRNIC_DEADLINE_NEVER;

    if (s->wire->len) {
        const SimFrame *f = s->wire->pdata[0];

        /* One that is not taken waits for something else. */
        if (f->time > s->now ||
            !qrnic_engine_held(s->node[f->to].engine)) {
            next = f->time;
        }
    }
    for (unsigned i = 0; i < SIM_NODES; i++) {
        next = MIN(next, MIN(s->node[i].deadline, s->node[i].link_deadline));
        if (s->node[i].blocked) {
            next = MIN(next, s->node[i].wire_ready);
        }
    }
    return next;
}

static void events_of_now(Sim *s)
{
    for (unsigned i = 0; i < SIM_NODES; i++) {
        SimNode *n = &s->node[i];

        if (n->blocked && n->wire_ready <= s->now) {
            n->blocked = false;
            n->burst = 0;
            if (n->link) {
                qrnic_link_wire_ready(n->link);
            } else {
                qrnic_engine_wire_ready(n->engine);
            }
        }
        if (n->link_deadline <= s->now) {
            n->link_deadline = QRNIC_LINK_NEVER;
            qrnic_link_timer(n->link);
        }
        if (n->deadline <= s->now) {
            n->deadline = QRNIC_DEADLINE_NEVER;
            qrnic_engine_timer(n->engine);
        }
    }
    while (s->wire->len && ((SimFrame *)s->wire->pdata[0])->time <= s->now) {
        SimFrame *f = s->wire->pdata[0];

        if (!node_takes(&s->node[f->to])) {
            break;
        }
        g_ptr_array_steal_index(s->wire, 0);
        sim_inject(s, f->to, f->data, f->len);
        g_free(f);
    }
}

bool sim_run(Sim *s, int64_t until)
{
    for (unsigned runs = 0; runs < RUNS_MAX; runs++) {
        int64_t next;

        while (run_kicked(s)) {
            g_assert_cmpuint(++runs, <, RUNS_MAX);
        }
        next = next_event(s);
        if (next == QRNIC_DEADLINE_NEVER) {
            return true;
        }
        if (next > until) {
            s->now = until;
            return false;
        }
        s->now = MAX(s->now, next);
        events_of_now(s);
    }
    g_assert_not_reached();
}

/*
 * The driver
 */

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
 * QRNIC_TEST_CONTEXTS="entries stations latency": every test with such a cache,
 * to see that nobody works on a queue pair whose context is out.
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

/* What a driver does first with a device that has nothing yet */
static void node_setup(SimNode *n)
{
    const QrnicPortCtx port = {
        .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP,
    };

    n->allocated = 4096;
    memset(n->memory, 0, n->memory_size);
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
        .name = id ? "B" : "A",
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
                        QRNIC_CAP_DYNAMIC | QRNIC_CAP_SELECTIVE_REPEAT |
                        QRNIC_CAP_CONGESTION_CONTROL |
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
        .max_sge = QRNIC_MAX_SGE, .max_inline = QRNIC_MAX_INLINE,
        .max_rd_atomic = o->max_rd_atomic ? o->max_rd_atomic : 16,
        .device_memory = o->device_memory ? o->device_memory :
                         16 * QRNIC_DM_PAGE_SIZE,
        .mac = { 2, 0, 0, 0, 0, 1 + id },
    };
    QrnicEnv env = {
        .opaque = n, .dma_read = env_dma_read, .dma_write = env_dma_write,
        .dma_atomic = env_dma_atomic, .dm_atomic = env_dm_atomic,
        .dm_read = env_dm_read, .dm_write = env_dm_write,
        .send = env_send, .notify = env_notify, .clock_ns = env_clock_ns,
        .timer_arm = env_timer_arm, .kick = env_kick,
        .fatal = env_fatal,
    };

    contexts_config(&config, o, id);
    n->context_bare = o->context_bare;
    n->sim = s;
    n->id = id;
    n->deadline = QRNIC_DEADLINE_NEVER;
    n->link_deadline = QRNIC_LINK_NEVER;
    n->memory_size = o->memory ? o->memory : MEMORY_DEFAULT;
    n->memory = g_malloc(n->memory_size);
    n->device_memory_size = config.device_memory;
    n->device_memory = g_malloc0(n->device_memory_size);
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
    n->gid.gid[15] = 1 + id;
    if (o->vlan) {
        n->gid.flags |= QRNIC_GID_VLAN;
        n->gid.vlan_id = 42;
    }
    node_setup(n);
    if (o->link_retransmission) {
        link_init(n, &config);
    }
}

Sim *sim_new(uint32_t seed, const SimOptions *options)
{
    static const SimOptions none;
    Sim *s = g_new0(Sim, 1);

    s->seed = seed;
    s->rand = g_rand_new_with_seed(seed);
    s->wire = g_ptr_array_new_with_free_func(g_free);
    s->latency = SIM_US;
    for (unsigned i = 0; i < SIM_NODES; i++) {
        node_init(s, i, options ? options : &none);
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
    for (unsigned i = 0; i < SIM_NODES; i++) {
        qrnic_link_free(s->node[i].link);
        while (!g_queue_is_empty(&s->node[i].link_under_way)) {
            g_bytes_unref(g_queue_pop_head(&s->node[i].link_under_way));
        }
        qrnic_engine_free(s->node[i].engine);
        g_free(s->node[i].memory);
        g_free(s->node[i].device_memory);
    }
    g_ptr_array_free(s->wire, true);
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

static void to_rtr(SimQp *q, SimQp *peer, const SimConnect *c, uint32_t rq_psn,
                   bool options)
{
    QrnicQpAttr a = sim_attr_init();

    created(sim_modify(q, &a));
    a = sim_attr_rtr(q, peer);
    a.path_mtu = c->path_mtu;
    a.rq_psn = rq_psn;
    a.max_dest_rd_atomic = c->max_dest_rd_atomic;
    a.min_rnr_timer = c->min_rnr_timer;
    if (options && c->options) {
        a.mask |= QRNIC_QP_OPTIONS;
        a.options = c->options;
    }
    created(sim_modify(q, &a));
}

static void to_rts(SimQp *q, const SimConnect *c, uint32_t sq_psn)
{
    QrnicQpAttr a = sim_attr_rts();

    a.timeout = c->timeout;
    a.retry_cnt = c->retry_cnt;
    a.rnr_retry = c->rnr_retry;
    a.sq_psn = sq_psn;
    a.max_rd_atomic = c->rd_atomic;
    created(sim_modify(q, &a));
}

void sim_connect(SimQp *a, SimQp *b, const SimConnect *c)
{
    SimConnect d = sim_connect_default();

    c = c ? c : &d;
    to_rtr(a, b, c, c->psn_b, !c->only_b);
    to_rtr(b, a, c, c->psn_a, !c->only_a);
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
    ring(q, QRNIC_DB_SQ, q->sq_producer);
}

void sim_post_send(SimQp *q, const SimWr *wr)
{
    sim_post_send_quiet(q, wr);
    sim_ring_sq(q);
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

    /* Data may be where the other kind of CQE has reserved members. */
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
