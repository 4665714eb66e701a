/*
 * The world of the fuzzer: two devices, and connected queue pairs of every
 * type; see fuzz.h.
 *
 * No function here asserts that the device accepts a command, because an input
 * chooses missing capabilities. An object that the device rejected has the
 * number 0.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "device/parts.h"
#include "fuzz.h"

#define LOG_SQ 6
#define LOG_RQ 5
#define LOG_RQ_STRIDE 1
#define LOG_CQ 6
#define LOG_TAG_OPS 5
#define LOG_FAULTS 6
#define TAGS 16
#define QKEY 0x11111111
#define DOORBELL_PAGES 8

#define V1_GID 4
#define GID 3

const FuzzKind fuzz_kinds[] = {
    { "rc", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_RQ, .kernel = true },
    { "rc-user", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_RQ },
    { "rc-srq", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_SRQ },
    { "rc-tags", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_TAGS },
    { "rc-stream", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_STREAM },
    { "rc-inline", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_INLINE },
    { "uc", { QRNIC_QPT_UC, QRNIC_QPT_UC }, RECEIVES_RQ },
    { "ud", { QRNIC_QPT_UD, QRNIC_QPT_UD }, RECEIVES_RQ },
    { "gsi", { QRNIC_QPT_GSI, QRNIC_QPT_GSI }, RECEIVES_RQ, .kernel = true },
    { "xrc", { QRNIC_QPT_XRC_INI, QRNIC_QPT_XRC_TGT }, RECEIVES_NOT },
    { "xrc-back", { QRNIC_QPT_XRC_TGT, QRNIC_QPT_XRC_INI }, RECEIVES_NOT },
    { "initiator", { QRNIC_QPT_DC_INI, QRNIC_QPT_DC_INI }, RECEIVES_NOT },
    { "target", { QRNIC_QPT_DC_TGT, QRNIC_QPT_DC_TGT }, RECEIVES_SRQ },
    { "carrier", { QRNIC_QPT_CARRIER, QRNIC_QPT_CARRIER }, RECEIVES_NOT },
    { "member", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_RQ, .member = true },
    { "member-srq", { QRNIC_QPT_RC, QRNIC_QPT_RC }, RECEIVES_SRQ,
      .member = true },
    { "raw", { QRNIC_QPT_RAW_PACKET, QRNIC_QPT_RAW_PACKET }, RECEIVES_RQ },
    { "raw-receive", { QRNIC_QPT_RAW_PACKET, QRNIC_QPT_RAW_PACKET },
      RECEIVES_RQ, .flags = QRNIC_QPF_RECEIVE_ONLY },
};
const unsigned fuzz_num_kinds = ARRAY_SIZE(fuzz_kinds);
#define KINDS ARRAY_SIZE(fuzz_kinds)

static unsigned kind_of_type(uint8_t type)
{
    for (unsigned i = 0; i < KINDS; i++) {
        if (fuzz_kinds[i].type[0] == type) {
            return i;
        }
    }
    g_assert_not_reached();
}

/*
 * Commands
 */

void fuzz_clear(SimNode *n)
{
    while (qrnic_command_unfinished(n->engine) && !qrnic_is_fatal(n->engine)) {
        qrnic_engine_run(n->engine, QRNIC_RUN_ROUNDS);
    }
}

QrnicResult fuzz_command(SimNode *n, uint16_t opcode, uint32_t object,
                         const uint8_t *in, uint8_t *out)
{
    static QrnicCommandData data;
    const QrnicCommand *c = qrnic_command_find(opcode);
    QrnicResult r;

    if (!c) {
        return (QrnicResult) { QRNIC_ST_BAD_OPCODE };
    }
    if (qrnic_is_fatal(n->engine)) {
        return (QrnicResult) { QRNIC_ST_FATAL };
    }
    data.object = object;
    data.out_len = c->out_len;
    if (c->in_len) {
        memcpy(data.in, in, c->in_len);
    }
    r = c->run(n->engine, &data);
    fuzz_clear(n);
    if (fuzz_shows()) {
        fprintf(stderr, "%s: %s of %u: %s, %u, %u\n", n->name,
                qrnic_cmd_opcode_name(opcode), object,
                qrnic_cmd_status_name(r.status), r.value, r.syndrome);
    }
    if (out && r.status == QRNIC_ST_OK) {
        memcpy(out, data.out, c->out_len);
    }
    return r;
}

uint32_t fuzz_value(QrnicResult r)
{
    return r.status == QRNIC_ST_OK ? r.value : 0;
}

#define COMMAND(n, NAME, object, type, in) ({ \
    uint8_t raw_[4096]; \
    qrnic_##type##_pack(raw_, in); \
    fuzz_value(fuzz_command(n, QRNIC_CMD_##NAME, object, raw_, NULL)); \
})

#define PLAIN(n, NAME) \
    fuzz_value(fuzz_command(n, QRNIC_CMD_##NAME, 0, NULL, NULL))

/*
 * Memory and its keys
 */

static void key_make(FuzzNode *f, FuzzKey which, QrnicMkeyCtx ctx)
{
    const uint64_t has = f->world->options.capabilities;
    uint32_t index;

    ctx.access &= ~((has & QRNIC_CAP_ATOMIC ? 0 : QRNIC_ACCESS_REMOTE_ATOMIC) |
                    (has & QRNIC_CAP_MW ? 0 : QRNIC_ACCESS_MW_BIND) |
                    (has & QRNIC_CAP_FLUSH ? 0 : QRNIC_ACCESS_FLUSH_GLOBAL));
    if (!(has & QRNIC_CAP_INLINE_RECV)) {
        ctx.address_space = 0;
    }
    ctx.variant = 0x10 + which;
    ctx.pd = which == KEY_OTHER_PD ? f->other_pd : f->n->pd;
    index = COMMAND(f->n, CREATE_MKEY, 0, mkey_ctx, &ctx);
    f->key[which] = index ? index << 8 | ctx.variant : 0;
}

static void keys_make(FuzzNode *f)
{
    const uint8_t all = QRNIC_ACCESS_LOCAL_WRITE | QRNIC_ACCESS_REMOTE_WRITE |
                        QRNIC_ACCESS_REMOTE_READ |
                        QRNIC_ACCESS_REMOTE_ATOMIC |
                        QRNIC_ACCESS_FLUSH_GLOBAL | QRNIC_ACCESS_MW_BIND;
    const QrnicTranslation table = {
        .root = f->table, .levels = 1, .page_shift = QRNIC_PAGE_SHIFT_MIN,
    };
    const QrnicDmCtx dm = { .length = 2 * QRNIC_DM_PAGE_SIZE };
    QrnicTranslation demand = table;

    demand.root = f->demand;
    f->dm = COMMAND(f->n, ALLOC_DM, 0, dm_ctx, &dm);
    key_make(f, KEY_ALL, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .access = all, .start = f->data,
        .length = FUZZ_DATA, .table.root = f->data, .address_space = 1,
    });
    key_make(f, KEY_DMA, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_DMA, .access = all & ~QRNIC_ACCESS_MW_BIND,
        .length = UINT64_MAX,
    });
    key_make(f, KEY_TABLE, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .access = all, .start = f->data + 8,
        .length = FUZZ_PAGES * FUZZ_PAGE - 100, .table = table,
    });
    key_make(f, KEY_ON_DEMAND, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .access = all, .start = f->data,
        .length = FUZZ_PAGES * FUZZ_PAGE, .table = demand,
        .flags = QRNIC_MKEYF_ON_DEMAND,
    });
    key_make(f, KEY_READ_ONLY, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .access = QRNIC_ACCESS_REMOTE_READ,
        .start = f->data, .length = FUZZ_DATA, .table.root = f->data,
    });
    key_make(f, KEY_FAST_REG, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_FAST_REG, .length = FUZZ_PAGES * FUZZ_PAGE,
    });
    key_make(f, KEY_WINDOW_1, (QrnicMkeyCtx) { .type = QRNIC_MKEY_MW_1 });
    key_make(f, KEY_WINDOW_2, (QrnicMkeyCtx) { .type = QRNIC_MKEY_MW_2 });
    key_make(f, KEY_NULL, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_NULL_MR, .access = QRNIC_ACCESS_LOCAL_WRITE,
    });
    key_make(f, KEY_INDIRECT, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_INDIRECT, .max_pieces = 8,
    });
    key_make(f, KEY_INDIRECT_2, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_INDIRECT, .max_pieces = 100,
    });
    key_make(f, KEY_DEVICE, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_DM, .access = all & ~QRNIC_ACCESS_MW_BIND,
        .length = QRNIC_DM_PAGE_SIZE, .dm = f->dm,
    });
    key_make(f, KEY_OTHER_PD, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .access = all, .start = f->data,
        .length = FUZZ_DATA, .table.root = f->data,
    });
    key_make(f, KEY_PROCESS, fuzz_process_key(0, all, f->data));
    key_make(f, KEY_PROCESS_2, fuzz_process_key(1, all, f->data));
    /* Addresses that are multiples of 8 are none in the process. */
    key_make(f, KEY_PROCESS_ODD, fuzz_process_key(0, all, f->data + 4));
    key_make(f, KEY_PROCESS_FAST, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_FAST_REG, .flags = QRNIC_MKEYF_PASID,
        .length = FUZZ_PAGES * FUZZ_PAGE,
    });
}

static void memory_make(FuzzNode *f)
{
    SimNode *n = f->n;

    f->data = sim_alloc(n, FUZZ_DATA);
    f->pages = sim_alloc(n, FUZZ_PAGES * FUZZ_PAGE);
    f->table = sim_alloc(n, FUZZ_PAGE);
    f->demand = sim_alloc(n, FUZZ_PAGE);
    f->list = sim_alloc(n, FUZZ_PAGE);
    for (unsigned i = 0; i < FUZZ_PAGES; i++) {
        stq_le_p(n->memory + f->table + 8 * i,
                 f->data + (i ^ 1) * FUZZ_PAGE);
        stq_le_p(n->memory + f->list + 8 * i, f->pages + i * FUZZ_PAGE);
        /* Some pages are present at first, and some of these are writable. */
        stq_le_p(n->memory + f->demand + 8 * i, i & 1 ? 0 :
                 f->pages + i * FUZZ_PAGE + QRNIC_PAGE_PRESENT +
                 (i & 2 ? QRNIC_PAGE_WRITABLE : 0));
    }
    for (unsigned i = 0; i < 2 * FUZZ_PAGE; i++) {
        n->memory[f->data + i] = i * 7;
    }
}

/*
 * Queues
 */

/* Sets the place of a completion queue, which may be created several times. */
static void cq_place(SimNode *n, SimQp *q)
{
    q->node = n;
    q->cq_log = LOG_CQ;
    q->cq_ring = sim_alloc(n, QRNIC_CQE_SIZE << LOG_CQ);
    q->cq_record = sim_alloc(n, 8);
}

static void cq_make(FuzzNode *f, SimQp *q, uint32_t page)
{
    const QrnicCqCtx ctx = {
        .eqn = f->n->cq_eq, .log_size = q->cq_log, .db_page = page,
        .ring.root = q->cq_ring, .record = q->cq_record,
    };

    memset(f->n->memory + q->cq_ring, 0, QRNIC_CQE_SIZE << q->cq_log);
    memset(f->n->memory + q->cq_record, 0, QRNIC_RECORD_SIZE);
    q->cq_consumer = q->cq_arm = 0;
    q->cq = COMMAND(f->n, CREATE_CQ, 0, cq_ctx, &ctx);
}

static void srq_make(FuzzNode *f, FuzzSrq which, SimQp *xrc_cq)
{
    SimSrq *s = &f->srq[which];
    QrnicSrqCtx ctx = {
        .pd = f->n->pd, .log_size = FUZZ_LOG_SRQ, .log_stride = LOG_RQ_STRIDE,
    };

    *s = (SimSrq) {
        .node = f->n, .log_size = FUZZ_LOG_SRQ, .log_stride = LOG_RQ_STRIDE,
        .next = f->srq_next[which], .tail = (1u << FUZZ_LOG_SRQ) - 1,
    };
    s->ring = ctx.ring.root = sim_alloc(f->n, QRNIC_WQEBB_SIZE <<
                                              (FUZZ_LOG_SRQ + LOG_RQ_STRIDE));
    s->record = ctx.record = sim_alloc(f->n, 8);
    for (unsigned i = 0; i < 1u << FUZZ_LOG_SRQ; i++) {
        s->next[i] = i + 1;
    }
    if (which == SRQ_XRC) {
        ctx.xrcd = f->xrcd;
        ctx.cq = f->xrcd ? xrc_cq->cq : 0;
    } else if (which == SRQ_STREAM) {
        ctx.stream = f->world->stream;
    }
    s->number = COMMAND(f->n, CREATE_SRQ, 0, srq_ctx, &ctx);
}

static void tag_list_make(FuzzNode *f)
{
    QrnicTagListCtx ctx = {
        .max_tags = TAGS, .log_size = LOG_TAG_OPS, .log_stride = 1,
    };

    f->tags.producer = 0;
    f->tags.ring = ctx.ring.root = sim_alloc(f->n, QRNIC_WQEBB_SIZE <<
                                                   (LOG_TAG_OPS + 1));
    f->tags.record = ctx.record = sim_alloc(f->n, 8);
    cq_place(f->n, &f->tags.cq);
    cq_make(f, &f->tags.cq, 0);
    ctx.cq = f->tags.cq.cq;
    COMMAND(f->n, CREATE_TAG_LIST, f->srq[SRQ_TAGS].number, tag_list_ctx,
            &ctx);
}

static void qp_place(FuzzNode *f, unsigned kind)
{
    FuzzQp *q = &f->qp[kind];
    SimNode *n = f->n;

    *q = (FuzzQp) { .kind = &fuzz_kinds[kind] };
    q->q.node = n;
    q->q.sq_log = LOG_SQ;
    q->q.rq_log = LOG_RQ;
    q->q.rq_log_stride = LOG_RQ_STRIDE;
    cq_place(n, &q->q);
    q->q.sq = sim_alloc(n, QRNIC_WQEBB_SIZE << LOG_SQ);
    q->q.sq_record = sim_alloc(n, 16);
    q->q.rq_record = q->q.sq_record + 8;
    q->q.rq = sim_alloc(n, QRNIC_WQEBB_SIZE << (LOG_RQ + LOG_RQ_STRIDE));
}

static uint8_t type_of(const FuzzQp *q)
{
    return q->kind->type[q->q.node->id];
}

static SimSrq *srq_of(FuzzNode *f, const FuzzQp *q)
{
    switch (q->kind->receives) {
    case RECEIVES_SRQ:
        return &f->srq[SRQ_PLAIN];
    case RECEIVES_TAGS:
        return &f->srq[SRQ_TAGS];
    default:
        return NULL;
    }
}

static void queues_fill(FuzzNode *f, FuzzQp *q, QrnicQpCtx *ctx)
{
    const uint8_t type = type_of(q);
    SimSrq *srq = srq_of(f, q);

    ctx->pd = f->n->pd;
    ctx->db_page = q->kind->kernel ? 0 : f->page;
    if (type != QRNIC_QPT_DC_TGT && !(ctx->flags & QRNIC_QPF_RECEIVE_ONLY)) {
        ctx->sq_log_size = LOG_SQ;
        ctx->sq.root = q->q.sq;
        ctx->sq_record = q->q.sq_record;
        ctx->send_cq = q->q.cq;
    }
    if (type == QRNIC_QPT_DC_TGT) {
        ctx->db_page = 0;
    }
    if (type != QRNIC_QPT_DC_INI && type != QRNIC_QPT_XRC_INI) {
        ctx->recv_cq = q->q.cq;
        ctx->srq = srq ? srq->number : 0;
    }
    if (ctx->recv_cq && !srq) {
        ctx->rq_log_size = LOG_RQ;
        ctx->rq_log_stride = LOG_RQ_STRIDE;
        ctx->rq.root = q->q.rq;
        ctx->rq_record = q->q.rq_record;
    }
    q->q.srq = srq;
}

static QrnicQpCtx ctx_of(FuzzNode *f, FuzzQp *q)
{
    FuzzWorld *w = f->world;
    QrnicQpCtx ctx = { .type = type_of(q), .flags = q->kind->flags };

    switch (ctx.type) {
    case QRNIC_QPT_CARRIER:
        return ctx;
    case QRNIC_QPT_XRC_TGT:
        ctx.xrcd = f->xrcd;
        return ctx;
    case QRNIC_QPT_DC_INI:
        ctx.dynamic.idle = w->dynamic_idle;
        ctx.dynamic.flags = w->dynamic_flags;
        break;
    case QRNIC_QPT_DC_TGT:
        ctx.dynamic.access_key = FUZZ_ACCESS_KEY;
        ctx.dynamic.responders = w->dynamic_responders;
        break;
    }
    queues_fill(f, q, &ctx);
    if (q->kind->receives == RECEIVES_STREAM) {
        ctx.stream = w->stream;
    } else if (q->kind->receives == RECEIVES_INLINE) {
        ctx.max_recv_inline = w->recv_inline;
        ctx.address_space = 1;
    }
    return ctx;
}

void fuzz_qp_create(FuzzNode *f, unsigned kind)
{
    FuzzQp *q = &f->qp[kind];

    cq_make(f, &q->q, q->kind->kernel ? 0 : f->page);
    memset(f->n->memory + q->q.sq_record, 0, 16);
    q->q.sq_producer = q->q.rq_producer = 0;
    q->ctx = ctx_of(f, q);
    q->q.db_page = q->ctx.db_page;
    q->q.number = COMMAND(f->n, CREATE_QP, 0, qp_ctx, &q->ctx);
    q->exists = q->q.number;
}

/*
 * Connections
 */

/* Masks of the steps to INIT, RTR and RTS of each type */
static const struct {
    uint8_t type;
    uint32_t mask[3];
} steps[] = {
#define INIT_ALL (QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_ACCESS_FLAGS)
#define RTR_PATH (QRNIC_QP_AV | QRNIC_QP_PATH_MTU | QRNIC_QP_DEST_QPN | \
                  QRNIC_QP_RQ_PSN)
#define RTR_RESPONDER (QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER)
#define RTS_REQUESTER (QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT | \
                       QRNIC_QP_RNR_RETRY | QRNIC_QP_SQ_PSN | \
                       QRNIC_QP_MAX_RD_ATOMIC)
    { QRNIC_QPT_RC, { INIT_ALL, RTR_PATH | RTR_RESPONDER, RTS_REQUESTER } },
    { QRNIC_QPT_UC, { INIT_ALL, RTR_PATH, QRNIC_QP_SQ_PSN } },
    { QRNIC_QPT_UD, { QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT | QRNIC_QP_QKEY,
                      0, QRNIC_QP_SQ_PSN } },
    { QRNIC_QPT_GSI, { QRNIC_QP_PKEY_INDEX | QRNIC_QP_QKEY, 0,
                       QRNIC_QP_SQ_PSN } },
    { QRNIC_QPT_XRC_INI, { INIT_ALL, RTR_PATH, RTS_REQUESTER } },
    { QRNIC_QPT_XRC_TGT, { INIT_ALL, RTR_PATH | RTR_RESPONDER,
                           QRNIC_QP_TIMEOUT | QRNIC_QP_SQ_PSN } },
    { QRNIC_QPT_DC_INI, { QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT,
                          QRNIC_QP_PATH_MTU, RTS_REQUESTER } },
    { QRNIC_QPT_DC_TGT, { INIT_ALL, QRNIC_QP_PATH_MTU | RTR_RESPONDER } },
    { QRNIC_QPT_CARRIER, { QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT, RTR_PATH,
                           QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT |
                           QRNIC_QP_SQ_PSN } },
    { QRNIC_QPT_RAW_PACKET, { QRNIC_QP_PORT, 0, 0 } },
};

/*
 * Returns the optional attributes of a step for which the input chose a value
 * other than 0.
 */
static uint32_t optional_mask(const FuzzWorld *w, const FuzzQp *q,
                              uint8_t state)
{
    const uint8_t type = type_of(q);
    uint32_t mask = 0;

    if (state == QRNIC_QPS_RTR) {
        if (q->kind->member) {
            mask = QRNIC_QP_CARRIER;
        } else if (w->qp_options && (type == QRNIC_QPT_RC ||
                                     type == QRNIC_QPT_DC_INI ||
                                     type == QRNIC_QPT_CARRIER)) {
            mask = QRNIC_QP_OPTIONS;
        }
    } else if (state == QRNIC_QPS_RTS && type != QRNIC_QPT_XRC_TGT &&
               type != QRNIC_QPT_CARRIER && !q->kind->flags) {
        mask = (w->rate_limit ? QRNIC_QP_RATE_LIMIT : 0) |
               (w->priority ? QRNIC_QP_PRIORITY : 0);
    }
    return mask;
}

uint32_t fuzz_step_mask(const FuzzQp *q, uint8_t state)
{
    for (unsigned i = 0; i < ARRAY_SIZE(steps); i++) {
        if (steps[i].type == type_of(q)) {
            return steps[i].mask[state - QRNIC_QPS_INIT];
        }
    }
    return 0;
}

FuzzQp *fuzz_peer(FuzzNode *f, unsigned kind)
{
    return &f->world->node[!f->n->id].qp[kind];
}

static uint8_t options_of(const FuzzWorld *w, uint8_t type)
{
    switch (type) {
    case QRNIC_QPT_DC_INI:
        return w->qp_options & QRNIC_QPO_FULL_HANDSHAKE;
    case QRNIC_QPT_CARRIER:
        return w->qp_options & (QRNIC_QPO_SELECTIVE_REPEAT |
                                QRNIC_QPO_ADAPTIVE_ROUTING |
                                QRNIC_QPO_INTRODUCE);
    default:
        return w->qp_options & (QRNIC_QPO_SELECTIVE_REPEAT |
                                QRNIC_QPO_ADAPTIVE_ROUTING);
    }
}

static QrnicQpAttr all_attributes(FuzzNode *f, unsigned kind)
{
    FuzzWorld *w = f->world;
    const SimConnect *c = &w->connect;
    FuzzQp *q = &f->qp[kind], *peer = fuzz_peer(f, kind);
    const uint8_t type = type_of(q);
    const bool first = !f->n->id;
    QrnicQpAttr a = {
        .path_mtu = c->path_mtu,
        .access = type == QRNIC_QPT_UC ? QRNIC_ACCESS_REMOTE_WRITE :
                  QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ |
                  QRNIC_ACCESS_REMOTE_ATOMIC | QRNIC_ACCESS_FLUSH_GLOBAL,
        .timeout = c->timeout, .retry_cnt = c->retry_cnt,
        .rnr_retry = c->rnr_retry, .min_rnr_timer = c->min_rnr_timer,
        .max_rd_atomic = c->rd_atomic,
        .max_dest_rd_atomic = c->max_dest_rd_atomic, .port = 1,
        .dest_qpn = peer->q.number,
        .sq_psn = first ? c->psn_a : c->psn_b,
        .rq_psn = first ? c->psn_b : c->psn_a,
        .qkey = type == QRNIC_QPT_GSI ? QRNIC_GSI_QKEY : QKEY,
        .priority = w->priority, .rate_limit = w->rate_limit,
        .options = options_of(w, type),
        .carrier = f->qp[kind_of_type(QRNIC_QPT_CARRIER)].q.number,
        .av = sim_attr_rtr(&q->q, &w->node[!f->n->id].qp[kind].q).av,
    };

    a.av.traffic_class = c->traffic_class;
    a.av.hop_limit = 64;
    if (w->roce_v1) {
        a.av.sgid_index = V1_GID;
    }
    return a;
}

QrnicQpAttr fuzz_attr(FuzzNode *f, unsigned kind, uint32_t mask,
                      uint8_t state)
{
    const QrnicQpAttr all = all_attributes(f, kind);
    QrnicQpAttr a = { .mask = mask | QRNIC_QP_STATE, .state = state };

#define GIVE(BIT, member) \
    do { \
        if (mask & QRNIC_QP_##BIT) { \
            a.member = all.member; \
        } \
    } while (0)
    GIVE(ACCESS_FLAGS, access);
    GIVE(PATH_MTU, path_mtu);
    GIVE(TIMEOUT, timeout);
    GIVE(RETRY_CNT, retry_cnt);
    GIVE(RNR_RETRY, rnr_retry);
    GIVE(MIN_RNR_TIMER, min_rnr_timer);
    GIVE(MAX_RD_ATOMIC, max_rd_atomic);
    GIVE(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
    GIVE(PORT, port);
    GIVE(DEST_QPN, dest_qpn);
    GIVE(SQ_PSN, sq_psn);
    GIVE(RQ_PSN, rq_psn);
    GIVE(QKEY, qkey);
    GIVE(AV, av);
    GIVE(PRIORITY, priority);
    GIVE(RATE_LIMIT, rate_limit);
    GIVE(OPTIONS, options);
    GIVE(CARRIER, carrier);
#undef GIVE
    return a;
}

void fuzz_qp_connect(FuzzNode *f, unsigned kind)
{
    FuzzQp *q = &f->qp[kind];

    for (uint8_t to = QRNIC_QPS_INIT; to <= QRNIC_QPS_RTS; to++) {
        const uint32_t mask = fuzz_step_mask(q, to) |
                              optional_mask(f->world, q, to);
        const QrnicQpAttr a = fuzz_attr(f, kind, mask, to);

        if (type_of(q) == QRNIC_QPT_DC_TGT && to == QRNIC_QPS_RTS) {
            break;
        }
        COMMAND(f->n, MODIFY_QP, q->q.number, qp_attr, &a);
        if (to == QRNIC_QPS_INIT) {
            fuzz_receives_post(f, kind);
        }
    }
}

FuzzQp *fuzz_qp_any(FuzzNode *f, Bytes *b, unsigned *kind)
{
    unsigned first = take8(b) % KINDS;

    for (unsigned i = 0; i < KINDS; i++) {
        *kind = (first + i) % KINDS;
        if (f->qp[*kind].exists) {
            return &f->qp[*kind];
        }
    }
    return NULL;
}

/* A node: its objects in the order of their dependencies */

static void page_fault_eq_make(FuzzNode *f)
{
    const QrnicEqCtx ctx = {
        .type = QRNIC_EQ_PAGE_FAULT, .log_size = LOG_FAULTS, .vector = 2,
        .ring.root = sim_alloc(f->n, QRNIC_EQE_SIZE << LOG_FAULTS),
    };

    f->page_fault_eq = COMMAND(f->n, CREATE_EQ, 0, eq_ctx, &ctx);
}

static void node_make(FuzzNode *f)
{
    QrnicGidEntry v1 = f->n->gid;
    const uint64_t has = f->world->options.capabilities;
    QrnicRxFilter filter = {
        .flags = QRNIC_RXF_PROMISC | QRNIC_RXF_BROADCAST |
                 (has & QRNIC_CAP_ETH_RX_COALESCE &&
                  f->world->coalesces ? QRNIC_RXF_COALESCE : 0),
    };
    SimQp *xrc_cq;

    fuzz_clear(f->n);
    v1.flags |= QRNIC_GID_ROCE_V1;
    COMMAND(f->n, SET_GID, V1_GID, gid_entry, &v1);
    f->other_pd = PLAIN(f->n, ALLOC_PD);
    f->page = PLAIN(f->n, ALLOC_DB_PAGE);
    f->xrcd = PLAIN(f->n, ALLOC_XRCD);
    f->counter_set = PLAIN(f->n, ALLOC_COUNTER_SET);
    page_fault_eq_make(f);
    memory_make(f);
    fuzz_processes_make(f);
    keys_make(f);
    for (unsigned i = 0; i < KINDS; i++) {
        qp_place(f, i);
    }
    xrc_cq = &f->qp[kind_of_type(QRNIC_QPT_XRC_TGT)].q;
    cq_make(f, xrc_cq, 0);
    srq_make(f, SRQ_PLAIN, NULL);
    srq_make(f, SRQ_TAGS, NULL);
    srq_make(f, SRQ_XRC, xrc_cq);
    srq_make(f, SRQ_STREAM, NULL);
    tag_list_make(f);
    for (unsigned i = 0; i < KINDS; i++) {
        if (f->world->made & 1u << i &&
            fuzz_kinds[i].type[f->n->id] != QRNIC_QPT_XRC_TGT) {
            fuzz_qp_create(f, i);
        } else if (f->world->made & 1u << i) {
            /* The completion queue is that of the SRQ. */
            f->qp[i].ctx = ctx_of(f, &f->qp[i]);
            f->qp[i].q.number = COMMAND(f->n, CREATE_QP, 0, qp_ctx,
                                        &f->qp[i].ctx);
            f->qp[i].exists = f->qp[i].q.number;
        }
    }
    filter.qpn = f->qp[kind_of_type(QRNIC_QPT_RAW_PACKET)].q.number;
    if (filter.qpn) {
        COMMAND(f->n, SET_RX_FILTER, 0, rx_filter, &filter);
    }
}

/* Enables both sides of congestion control, with short times. */
static void congestion_set(FuzzNode *f)
{
    const QrnicCongestionCtx ctx = {
        .flags = QRNIC_CONGESTION_RP | QRNIC_CONGESTION_NP |
                 QRNIC_CONGESTION_ECT,
        .rp_threshold = 2, .rp_min_dec_fac = 50, .rp_gd = 11,
        .rp_dce_tcp_g = 1019, .rp_initial_alpha_value = 1023,
        .rp_dce_tcp_rtt = 1, .rp_time_reset = 5, .rp_byte_reset = 2000,
        .rp_rate_reduce_monitor_period = 1, .rp_ai_rate = 5,
        .rp_hai_rate = 50, .rp_min_rate = 100,
    };

    COMMAND(f->n, SET_CONGESTION, 0, congestion_ctx, &ctx);
}

static void node_connect(FuzzNode *f)
{
    fuzz_shared_post(f);
    if (f->world->marks) {
        congestion_set(f);
    }
    for (unsigned i = 0; i < KINDS; i++) {
        if (f->qp[i].exists) {
            fuzz_qp_connect(f, i);
        }
    }
}

void fuzz_node_reset(FuzzNode *f)
{
    f->n->broken_from = f->n->broken_to = 0;
    f->rss = f->flow = 0;
    sim_reset(f->n);
    node_make(f);
    node_connect(f);
}

/* Computes a group by RFC 1112 (6.4) and RFC 2464 (7). */
void fuzz_group(const FuzzNode *f, uint8_t number, uint8_t gid[16],
                uint8_t mac[6])
{
    static const uint8_t ipv4[] = { 1, 0, 0x5e }, ipv6[] = { 0x33, 0x33 };

    memset(gid, 0, 16);
    memset(mac, 0, 6);
    if (f->world->options.ipv6) {
        gid[0] = 0xff;
        memcpy(mac, ipv6, sizeof(ipv6));
    } else {
        gid[10] = gid[11] = 0xff;
        gid[12] = 0xe0;
        memcpy(mac, ipv4, sizeof(ipv4));
    }
    gid[15] = mac[5] = number;
}

/*
 * The world
 */

static SimOptions options_of_header(FuzzWorld *w, Bytes *b)
{
    const uint8_t flags = take8(b), cache = take8(b), lacks = take8(b);
    SimOptions o = {
        .ipv6 = flags & 1, .vlan = flags & 2, .atomic_hca = flags & 4,
        .link_retransmission = (flags & 0x18) == 0x18,
        .max_rd_atomic = 1 + take8(b) % 16,
        .doorbell_fifo = 1 << take8(b) % 8,
        .memory = 4u << 20, .db_pages = DOORBELL_PAGES, .vectors = 4,
        .device_memory = 4 * QRNIC_DM_PAGE_SIZE, .max_flow = 8,
        .max_mkey = 64, .max_qp = 64, .max_cq = 64, .may_fail = true,
        .capabilities = QRNIC_CAP_ALL & ~(QRNIC_CAP_CONTEXT_CACHE |
                                          QRNIC_CAP_LINK_RETRANSMISSION),
    };

    o.translation_cache = 1u << (lacks >> 1 & 3) * 2;
    o.no_translation_cache = (lacks & 7) == 7;
    w->registers = lacks & 8;
    w->large_pages = lacks >> 6;
    w->roce_v1 = (flags & 0x60) == 0x60;
    w->verified = flags & 0x80 && !o.link_retransmission;
    if (cache & 1) {
        o.context_cache = 2 + (cache >> 1 & 7);
        o.context_stations = cache >> 4 & 3;
        o.context_latency = cache >> 6 ? 1000u << (cache >> 6) : 0;
        o.context_bare = (cache & 0xf0) == 0xf0;
    }
    /* In one of eight inputs the device lacks one of the capabilities. */
    if (lacks < 32) {
        o.capabilities &= ~(2ull << take8(b) % 43);
    }
    if (o.atomic_hca) {
        o.capabilities &= ~(uint64_t)QRNIC_CAP_ATOMIC_GLOB;
    }
    return o;
}

static void connect_of_header(FuzzWorld *w, Bytes *b)
{
    const uint8_t a = take8(b), c = take8(b), d = take8(b), s = take8(b);

    w->connect = (SimConnect) {
        .path_mtu = 1 + a % 5, .timeout = a >> 4, .retry_cnt = c & 7,
        .rnr_retry = c >> 3 & 7, .min_rnr_timer = d & 31,
        .rd_atomic = 1 + (d >> 5) % w->options.max_rd_atomic,
        .max_dest_rd_atomic = 1 + (c >> 6) % w->options.max_rd_atomic,
        .psn_a = take32(b) & QRNIC_PSN_MASK,
        .psn_b = take32(b) & QRNIC_PSN_MASK,
        .traffic_class = s & 1 ? QRNIC_ECN_ECT0 : s & 0xfc,
    };
    w->qp_options = take8(b);
    w->stream = (QrnicStreamAttr) {
        .max_message = 1u << s % 16, .max_messages = 1 + take8(b),
        .log_align = (s >> 4) % 13,
    };
    w->recv_inline = 1 + s % QRNIC_MAX_RECV_INLINE;
    w->dynamic_idle = 1 + a % QRNIC_DYNAMIC_MAX_IDLE;
    w->dynamic_responders = 1 + c % 8;
    w->dynamic_flags = d & QRNIC_DYNAMICF_ALL;
}

static void wire_of_header(FuzzWorld *w, Bytes *b)
{
    static const unsigned loss[] = { 0, 0, 0, 10, 50, 200 };
    const uint8_t a = take8(b), c = take8(b);
    const uint16_t rate = take16(b);

    w->sim->loss = loss[a % ARRAY_SIZE(loss)];
    w->sim->reorder = a & 0x40 ? 200 : 0;
    w->sim->repeat = a & 0x80 ? 50 : 0;
    w->sim->corrupt = (c & 7) == 7 ? 20 : 0;
    w->sim->latency = 100u << (c >> 3 & 7);
    w->sim->wire_room = c >> 6 ? 1u << (c >> 6) : 0;
    w->sim->wire_pause = 2 * SIM_US;
    w->rate_limit = rate & 3 ? 0 : (rate + 1u) * 16;
    w->priority = rate & 0xc ? 0 : 1 + (rate >> 4) % QRNIC_PRIORITY_LEVELS;
    w->coalesces = c & 0x20;
    w->marks = a & 0x20 ? 1 + c % 7 : 0;
    w->made = take32(b);
    if ((w->made & 7) != 7) {
        w->made = UINT32_MAX;   /* Most inputs have all kinds */
    }
}

FuzzWorld *fuzz_world_new(Bytes *header)
{
    FuzzWorld *w = g_new0(FuzzWorld, 1);

    w->options = options_of_header(w, header);
    connect_of_header(w, header);
    w->sim = sim_new(take32(header), &w->options);
    fuzz_wire_begin(w);
    wire_of_header(w, header);
    for (unsigned i = 0; i < 2; i++) {
        FuzzNode *f = &w->node[i];

        f->world = w;
        f->n = &w->sim->node[i];
        f->qp = g_new0(FuzzQp, KINDS);
        node_make(f);
    }
    node_connect(&w->node[0]);
    node_connect(&w->node[1]);
    return w;
}

void fuzz_world_free(FuzzWorld *w)
{
    sim_free(w->sim);
    g_free(w->node[0].qp);
    g_free(w->node[1].qp);
    g_free(w);
}
