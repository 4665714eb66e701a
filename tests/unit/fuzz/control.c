/*
 * Operations of the fuzzer on the device and around it: commands, guest memory,
 * time, the wire and resets
 *
 * main.c calls each operation of fuzz_control_ops with the parameters of a
 * record. See fuzz.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "fuzz.h"
#include "fuzz-contract.h"

#define FLOW_PORT 4791

/* Corruption of valid input */

uint32_t fuzz_number(Bytes *b)
{
    const uint8_t how = take8(b), which = take8(b);

    if (how < 0x40) {
        return which;
    }
    if (how < 0x80) {
        return -(uint32_t)which;
    }
    if (how < 0xe0) {
        /*
         * The result is a limit of the hardware interface, or that limit plus
         * or minus 1.
         */
        return fuzz_contract_numbers[which %
                                     ARRAY_SIZE(fuzz_contract_numbers)] +
               how % 3 - 1;
    }
    return take32(b);
}

void fuzz_break(uint8_t *raw, size_t len, Bytes *b)
{
    const uint8_t count = 1 + take8(b) % 3;

    for (unsigned i = 0; i < count; i++) {
        const unsigned size = 1u << take8(b) % 4;
        const size_t at = take8(b) * size % len & ~(size_t)(size - 1);
        uint64_t value = fuzz_number(b);

        value |= value << 32;
        for (unsigned k = 0; k < MIN(size, len - at); k++) {
            raw[at + k] = value >> 8 * k;
        }
    }
}

/* Commands: valid input for each command with input, and its object */

/* Fills the mailbox. Returns the object of the command. */
typedef uint32_t Fill(FuzzNode *f, Bytes *b, uint8_t *raw);

static uint32_t any_qp(FuzzNode *f, Bytes *b)
{
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    return q ? q->q.number : 0;
}

static uint32_t qp_of_type(FuzzNode *f, uint8_t type)
{
    for (unsigned i = 0; i < fuzz_num_kinds; i++) {
        if (f->qp[i].exists && f->qp[i].ctx.type == type) {
            return f->qp[i].q.number;
        }
    }
    return 0;
}

/* Returns memory that all rings of new objects share, and nothing else. */
static QrnicTranslation spare(FuzzNode *f, uint8_t how)
{
    if (how & 1) {
        return (QrnicTranslation) {
            .root = f->list, .levels = 1, .page_shift = QRNIC_PAGE_SHIFT_MIN,
        };
    }
    return (QrnicTranslation) { .root = f->pages };
}

static uint32_t fill_port(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    static const uint16_t mtus[] = { 1500, 9000, 9000, 1024, 68, 4200 };
    const uint8_t how = take8(b);
    const QrnicPortCtx in = {
        .mtu = mtus[how % ARRAY_SIZE(mtus)],
        .flags = how < 0xf0 ? QRNIC_PORTF_ADMIN_UP : 0,
    };

    qrnic_port_ctx_pack(raw, &in);
    return 0;
}

static uint32_t fill_congestion(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t flags = take8(b), how = take8(b), rate = take8(b);
    const QrnicCongestionCtx in = {
        .flags = (flags & QRNIC_CONGESTION_ALL) | QRNIC_CONGESTION_RP |
                 QRNIC_CONGESTION_NP,
        .np_cnp_dscp = how & 63, .np_cnp_prio = how & 7,
        .rp_threshold = 1 + how % 31,
        .np_min_time_between_cnps = rate & 1 ? 0 : rate,
        .rp_min_dec_fac = how % 101, .rp_gd = 10 + (how & 1),
        .rp_dce_tcp_g = rate * 4, .rp_initial_alpha_value = 1 + rate * 4,
        .rp_dce_tcp_rtt = 1 + how, .rp_time_reset = 1 + how,
        .rp_byte_reset = 1 + (rate << 8),
        .rp_rate_reduce_monitor_period = 1 + rate / 8,
        .rp_ai_rate = 1 + how, .rp_hai_rate = 1 + how * 4,
        .rp_min_rate = 1 + rate % 16, .rp_max_rate = rate & 2 ? 1000 : 0,
        .rp_rate_to_set_on_first_cnp = rate & 4 ? 100 : 0,
    };

    qrnic_congestion_ctx_pack(raw, &in);
    return 0;
}

static uint32_t fill_eq(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicEqCtx in = {
        .type = QRNIC_EQ_ASYNC + how % 3, .log_size = how >> 2 & 7,
        .vector = 3, .ring = spare(f, how >> 5),
    };

    qrnic_eq_ctx_pack(raw, &in);
    return 0;
}

static uint32_t fill_cq(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicCqCtx in = {
        .eqn = f->n->cq_eq, .log_size = how & 7, .flags = how >> 3 & 1,
        .db_page = how & 0x10 ? f->page : 0, .record = f->pages + 16,
        .ring = spare(f, how >> 5),
    };

    qrnic_cq_ctx_pack(raw, &in);
    return 0;
}

static uint32_t any_cq(FuzzNode *f, Bytes *b)
{
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    return q && take8(b) < 0xc0 ? q->q.cq : f->tags.cq.cq;
}

static uint32_t fill_cq_resize(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicCqResize in = {
        .log_size = how & 7, .ring = spare(f, how >> 4),
    };

    qrnic_cq_resize_pack(raw, &in);
    return any_cq(f, b);
}

static uint32_t fill_moderation(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const QrnicCqModeration in = { .count = take8(b), .period = take8(b) };

    qrnic_cq_moderation_pack(raw, &in);
    return any_cq(f, b);
}

static uint32_t fill_mkey(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b), which = take8(b);
    QrnicMkeyCtx in = {
        .type = QRNIC_MKEY_MR, .access = how & 0xf, .variant = which,
        .pd = how & 0x10 ? f->other_pd : f->n->pd, .start = f->data,
        .length = 1u << which % 17, .table.root = f->data,
    };

    if (how & 0x20) {
        in.table = (QrnicTranslation) {
            .root = f->table, .levels = 1,
            .page_shift = QRNIC_PAGE_SHIFT_MIN, .offset = which * 8,
        };
        in.length /= 2;
        in.flags = how >> 6 & 1;
    } else if (how & 0x40) {
        const uint64_t length = in.length;

        in = fuzz_process_key(how >> 7, how & 0xf, f->data + which % 16);
        in.variant = which;
        in.pd = f->n->pd;
        in.length = MIN(length, in.length);
    }
    qrnic_mkey_ctx_pack(raw, &in);
    return f->key[which % FUZZ_KEYS] >> 8;
}

static uint32_t fill_pages(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const unsigned first = how % FUZZ_PAGES;
    const unsigned count = 1 + (how >> 4) % (FUZZ_PAGES - first);
    const QrnicPageRange in = {
        .start = f->data + first * FUZZ_PAGE, .length = count * FUZZ_PAGE,
    };

    for (unsigned i = 0; i < count; i++) {
        stq_le_p(f->n->memory + f->demand + 8 * (first + i), 0);
    }
    qrnic_page_range_pack(raw, &in);
    return f->key[KEY_ON_DEMAND] >> 8;
}

static uint32_t fill_answer(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const QrnicFaultAnswer in = { .sequence = fuzz_number(b) };

    qrnic_fault_answer_pack(raw, &in);
    return any_qp(f, b) << 1 | (take8(b) & 1);
}

static uint32_t fill_pasid(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicPasidCtx in = {
        .pasid = how & 3 ? fuzz_process_key(how >> 2 & 1, 0, 0).pasid : 0,
    };

    qrnic_pasid_ctx_pack(raw, &in);
    return f->page;
}

static uint32_t fill_qp(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    if (q) {
        QrnicQpCtx in = q->ctx;

        /* A second queue pair is created with the same memory. */
        qrnic_qp_ctx_pack(raw, &in);
    }
    return 0;
}

static uint32_t fill_attr(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);
    const uint8_t state = take8(b) % (QRNIC_QPS_ERR + 1);
    QrnicQpAttr in;

    if (!q) {
        return 0;
    }
    in = fuzz_attr(f, kind, take32(b) & QRNIC_QP_ALL, state);
    qrnic_qp_attr_pack(raw, &in);
    return q->q.number;
}

static uint32_t fill_srq(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicSrqCtx in = {
        .pd = f->n->pd, .log_size = 1 + (how & 3), .log_stride = how >> 2 & 3,
        .xrcd = how & 0x10 ? f->xrcd : 0, .record = f->pages + 24,
        .cq = how & 0x10 ? f->qp[0].q.cq : 0, .ring = spare(f, how >> 5),
        .stream.max_message = how & 0x40 ? 100 : 0,
        .stream.max_messages = how & 0x40 ? 4 : 0,
    };

    qrnic_srq_ctx_pack(raw, &in);
    return 0;
}

static uint32_t fill_srq_limit(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const QrnicSrqLimit in = { .limit = take8(b) % 64 };

    qrnic_srq_limit_pack(raw, &in);
    return f->srq[take8(b) % FUZZ_SRQS].number;
}

static uint32_t fill_srq_resize(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicSrqResize in = {
        .log_size = 1 + (how & 7), .flags = how >> 3 & 1,
        .limit = how & 8 ? 5 : 0, .ring = spare(f, how >> 4),
    };

    qrnic_srq_resize_pack(raw, &in);
    return f->srq[take8(b) % FUZZ_SRQS].number;
}

static uint32_t fill_tag_list(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicTagListCtx in = {
        .cq = f->tags.cq.cq, .max_tags = 1 + (how & 31),
        .log_size = how >> 5, .log_stride = 1, .record = f->pages + 32,
        .ring.root = f->pages,
    };

    qrnic_tag_list_ctx_pack(raw, &in);
    return f->srq[take8(b) % FUZZ_SRQS].number;
}

static uint32_t fill_contexts(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const QrnicContextMemory in = {
        .memory = spare(f, take8(b)), .length = (take8(b) & 3) *
                  QRNIC_CONTEXT_IMAGE_SIZE * f->world->options.max_qp,
    };

    qrnic_context_memory_pack(raw, &in);
    return 0;
}

static uint32_t fill_gid(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    QrnicGidEntry in = f->n->gid;
    const uint8_t how = take8(b);

    in.flags = how & QRNIC_GID_ALL;
    in.vlan_id = in.flags & QRNIC_GID_VLAN ? 42 : 0;
    in.gid[15] += how >> 6;
    qrnic_gid_entry_pack(raw, &in);
    return how >> 3 & 7;
}

static uint32_t fill_multicast(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    QrnicMulticast in = { 0 };
    uint8_t mac[6];

    fuzz_group(f, take8(b) & 3, in.gid, mac);
    qrnic_multicast_pack(raw, &in);
    return qp_of_type(f, QRNIC_QPT_UD);
}

static uint32_t fill_dm(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    const QrnicDmCtx in = {
        .length = 1 + (how & 15) * 1024, .log_alignment = how >> 4,
    };

    qrnic_dm_ctx_pack(raw, &in);
    return 0;
}

static uint32_t fill_filter(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b), counts = take8(b);
    QrnicRxFilter in = {
        .qpn = how & 0x40 ? 0 : qp_of_type(f, QRNIC_QPT_RAW_PACKET),
        .flags = how & QRNIC_RXF_ALL, .unicast_count = counts & 3,
        .multicast_count = counts >> 2 & 3,
    };

    if (in.flags & QRNIC_RXF_RSS) {
        in.qpn = f->rss;
    }
    for (unsigned i = 0; i < in.unicast_count + in.multicast_count; i++) {
        memcpy(in.addresses + 6 * i, f->n->gid.mac, 6);
        in.addresses[6 * i] = i >= in.unicast_count;
        in.addresses[6 * i + 5] += i;
    }
    qrnic_rx_filter_pack(raw, &in);
    return 0;
}

static uint32_t fill_flow(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b), match = take8(b);
    QrnicFlowCtx in = {
        .type = how & 3, .priority = how >> 2 & 3,
        .counter_set = how & 0x10 ? f->counter_set : 0,
        .flags = how & 0x20 && f->rss ? QRNIC_FLOWF_RSS : 0,
    };

    if (in.type == QRNIC_FLOW_NORMAL) {
        in.mask.ethertype = match & 1 ? 0xffff : 0;
        in.mask.protocol = match & 2 ? 0xff : 0;
        in.mask.dport = match & 4 ? 0xffff : 0;
        in.mask.traffic_class = match & 8 ? 0xff : 0;
        in.mask.vlan_tci = match & 16 ? 0xfff : 0;
        in.value.ethertype = match & 1 ? (match & 32 ? 0x86dd : 0x800) : 0;
        in.value.protocol = match & 2 ? (match & 64 ? 6 : 17) : 0;
        in.value.dport = match & 4 ? (match & 128 ? FLOW_PORT : 80) : 0;
        in.value.vlan_tci = match & 16 ? 42 : 0;
    }
    qrnic_flow_ctx_pack(raw, &in);
    return in.flags ? f->rss : qp_of_type(f, QRNIC_QPT_RAW_PACKET);
}

static uint32_t fill_rss(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const uint8_t how = take8(b);
    QrnicRssCtx in = { .log_size = how & 3, .hash = take8(b) };

    for (unsigned i = 0; i < 40; i++) {
        in.key[i] = i * 37 + how;
    }
    for (unsigned i = 0; i < 1u << in.log_size; i++) {
        unsigned kind = fuzz_num_kinds - 1 - i % 2;

        stl_le_p(in.entries + 4 * i, f->qp[kind].q.number);
    }
    qrnic_rss_ctx_pack(raw, &in);
    return 0;
}

static uint32_t fill_bind(FuzzNode *f, Bytes *b, uint8_t *raw)
{
    const QrnicCounterBind in = {
        .counter_set = take8(b) & 1 ? f->counter_set : 0,
    };

    qrnic_counter_bind_pack(raw, &in);
    return any_qp(f, b);
}

static const struct {
    uint16_t opcode;
    Fill *fill;
} fills[] = {
    { QRNIC_CMD_MODIFY_PORT, fill_port },
    { QRNIC_CMD_SET_CONGESTION, fill_congestion },
    { QRNIC_CMD_CREATE_EQ, fill_eq },
    { QRNIC_CMD_CREATE_CQ, fill_cq },
    { QRNIC_CMD_RESIZE_CQ, fill_cq_resize },
    { QRNIC_CMD_MODIFY_CQ, fill_moderation },
    { QRNIC_CMD_CREATE_MKEY, fill_mkey },
    { QRNIC_CMD_MODIFY_MKEY, fill_mkey },
    { QRNIC_CMD_INVALIDATE_PAGES, fill_pages },
    { QRNIC_CMD_RESUME_PAGE_FAULT, fill_answer },
    { QRNIC_CMD_REFUSE_PAGE_FAULT, fill_answer },
    { QRNIC_CMD_SET_PASID, fill_pasid },
    { QRNIC_CMD_CREATE_QP, fill_qp },
    { QRNIC_CMD_MODIFY_QP, fill_attr },
    { QRNIC_CMD_CREATE_SRQ, fill_srq },
    { QRNIC_CMD_MODIFY_SRQ, fill_srq_limit },
    { QRNIC_CMD_RESIZE_SRQ, fill_srq_resize },
    { QRNIC_CMD_CREATE_TAG_LIST, fill_tag_list },
    { QRNIC_CMD_SET_CONTEXTS, fill_contexts },
    { QRNIC_CMD_SET_GID, fill_gid },
    { QRNIC_CMD_ATTACH_MULTICAST, fill_multicast },
    { QRNIC_CMD_DETACH_MULTICAST, fill_multicast },
    { QRNIC_CMD_ALLOC_DM, fill_dm },
    { QRNIC_CMD_SET_RX_FILTER, fill_filter },
    { QRNIC_CMD_CREATE_FLOW, fill_flow },
    { QRNIC_CMD_CREATE_RSS, fill_rss },
    { QRNIC_CMD_BIND_COUNTER_SET, fill_bind },
};

/* Stores the number of a new object, because later commands use it. */
static void created(FuzzNode *f, uint16_t opcode, uint32_t number)
{
    if (!number) {
        return;
    }
    switch (opcode) {
    case QRNIC_CMD_CREATE_RSS:
        f->rss = number;
        break;
    case QRNIC_CMD_CREATE_FLOW:
        f->flow = number;
        break;
    case QRNIC_CMD_ALLOC_DM:
        f->dm = number;
        break;
    case QRNIC_CMD_ALLOC_COUNTER_SET:
        f->counter_set = number;
        break;
    }
}

/* Issues a command with valid input; in some cases some members are corrupt. */
static void op_command(FuzzNode *f, Bytes *b)
{
    const unsigned i = take8(b) % ARRAY_SIZE(fills);
    const uint8_t how = take8(b);
    uint8_t raw[QRNIC_CMD_MAX_MAILBOX] = { 0 };
    Bytes broken = *b;
    uint32_t object = fills[i].fill(f, b, raw);

    if (how < 0x40) {
        fuzz_break(raw, 128, &broken);
    }
    if (how == 0xff) {
        object = fuzz_number(b);
    }
    created(f, fills[i].opcode,
            fuzz_value(fuzz_command(f->n, fills[i].opcode, object, raw,
                                    NULL)));
}

/* Returns an object of the opcode's kind, or any number. */
static uint32_t object_of(FuzzNode *f, uint16_t opcode, Bytes *b)
{
    switch (opcode & ~0xf) {
    case 0x20:
        return take8(b) & 1 ? f->page_fault_eq : take8(b) % 4;
    case 0x30:
        return any_cq(f, b);
    case 0x40:
        return opcode == QRNIC_CMD_QUERY_PAGE_FAULT ?
               any_qp(f, b) << 1 | (take8(b) & 1) :
               f->key[take8(b) % FUZZ_KEYS] >> 8;
    case 0x50:
        return opcode < QRNIC_CMD_CREATE_SRQ ? any_qp(f, b) :
               opcode == QRNIC_CMD_FREE_XRCD ? f->xrcd :
               f->srq[take8(b) % FUZZ_SRQS].number;
    case 0x70:
        return opcode == QRNIC_CMD_DESTROY_FLOW ? f->flow : f->rss;
    case 0x80:
        return f->dm;
    case 0x90:
        return f->counter_set;
    default:
        return take8(b) % 8;
    }
}

/* Issues any opcode for an existing object, with a mailbox of zeros. */
static void op_any_command(FuzzNode *f, Bytes *b)
{
    static const uint8_t zero[QRNIC_CMD_MAX_MAILBOX];
    uint8_t out[QRNIC_CMD_MAX_MAILBOX];
    const uint8_t which = take8(b), how = take8(b);
    const uint16_t opcode = fuzz_contract_commands[
        which % ARRAY_SIZE(fuzz_contract_commands)];
    const uint32_t object = how < 0xe0 ? object_of(f, opcode, b) :
                                         fuzz_number(b);

    created(f, opcode, fuzz_value(fuzz_command(f->n, opcode, object, zero,
                                               out)));
}

/* Queue pairs */

static void modify(FuzzNode *f, unsigned kind, const QrnicQpAttr *a)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];

    qrnic_qp_attr_pack(raw, a);
    fuzz_command(f->n, QRNIC_CMD_MODIFY_QP, f->qp[kind].q.number, raw, NULL);
}

static void state_set(FuzzNode *f, unsigned kind, uint8_t state, uint32_t mask)
{
    const QrnicQpAttr a = fuzz_attr(f, kind, mask, state);

    modify(f, kind, &a);
}

static void reset_queues(FuzzQp *q)
{
    SimNode *n = q->q.node;

    memset(n->memory + q->q.sq_record, 0, 16);
    q->q.sq_producer = q->q.rq_producer = 0;
}

/* Changes the state of a connection as a process does: drain, end, restart. */
static void op_state(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b);
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    if (!q) {
        return;
    }
    switch (how % 5) {
    case 0:
        state_set(f, kind, QRNIC_QPS_ERR, 0);
        break;
    case 1:
        state_set(f, kind, QRNIC_QPS_SQD, how & 0x80 ?
                  QRNIC_QP_EN_SQD_ASYNC_NOTIFY : 0);
        break;
    case 2:
        state_set(f, kind, QRNIC_QPS_RTS, take32(b) & QRNIC_QP_ALL &
                  (QRNIC_QP_ACCESS_FLAGS | QRNIC_QP_MIN_RNR_TIMER |
                   QRNIC_QP_RATE_LIMIT | QRNIC_QP_PRIORITY |
                   QRNIC_QP_QKEY));
        break;
    default:
        state_set(f, kind, QRNIC_QPS_RESET, 0);
        reset_queues(q);
        if (how & 0x80) {
            fuzz_qp_connect(f, kind);
        }
    }
}

/*
 * Connects both sides again, so that the connection starts with its first PSNs.
 */
static void op_reconnect(FuzzNode *f, Bytes *b)
{
    unsigned kind;

    if (!fuzz_qp_any(f, b, &kind)) {
        return;
    }
    for (unsigned i = 0; i < 2; i++) {
        FuzzNode *end = &f->world->node[i];

        if (end->qp[kind].exists) {
            state_set(end, kind, QRNIC_QPS_RESET, 0);
            reset_queues(&end->qp[kind]);
            fuzz_qp_connect(end, kind);
        }
    }
}

static void op_recreate(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b);
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    if (!q || q->ctx.type == QRNIC_QPT_XRC_TGT) {
        return;
    }
    if (fuzz_command(f->n, QRNIC_CMD_DESTROY_QP, q->q.number, NULL, NULL)
        .status != QRNIC_ST_OK) {
        return;
    }
    if (how & 1) {
        fuzz_run(f->world, 10 * SIM_US);
    }
    fuzz_command(f->n, QRNIC_CMD_DESTROY_CQ, q->q.cq, NULL, NULL);
    fuzz_qp_create(f, kind);
    if (how & 2 && q->exists) {
        fuzz_qp_connect(f, kind);
    }
}

/* Paging on demand: the part of the operating system */

static void op_page_fault(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b);
    uint32_t number = any_qp(f, b) << 1 | (how & 1);
    uint8_t raw[QRNIC_CMD_MAX_MAILBOX];
    QrnicPageFault fault;
    QrnicFaultAnswer answer;

    if (how & 0x40) {
        number += 2 * (1 + (how >> 4 & 3));     /* Responders of a target */
    }
    if (fuzz_command(f->n, QRNIC_CMD_QUERY_PAGE_FAULT, number, NULL, raw)
        .status != QRNIC_ST_OK) {
        return;
    }
    qrnic_page_fault_unpack(&fault, raw);
    if (fault.flags & QRNIC_PAGE_FAULT_PASID) {
        fuzz_process_page_in(f, fault.pasid, fault.address, fault.length,
                             how & 2);
    }
    for (unsigned i = 0; i < FUZZ_PAGES; i++) {
        uint64_t start = f->data + i * FUZZ_PAGE;

        if (fault.address < start + FUZZ_PAGE &&
            fault.address + fault.length > start) {
            stq_le_p(f->n->memory + f->demand + 8 * i,
                     f->pages + i * FUZZ_PAGE + QRNIC_PAGE_PRESENT +
                     (how & 2 ? QRNIC_PAGE_WRITABLE : 0));
        }
    }
    answer.sequence = fault.sequence + (how == 0xff);
    qrnic_fault_answer_pack(raw, &answer);
    fuzz_command(f->n, how & 4 ? QRNIC_CMD_REFUSE_PAGE_FAULT :
                                 QRNIC_CMD_RESUME_PAGE_FAULT, number, raw,
                 NULL);
}

/* Memory, time, and the wire */

/* Writes to guest memory that the device may be reading. */
static void op_memory(FuzzNode *f, Bytes *b)
{
    const uint8_t where = take8(b);
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);
    uint64_t at;

    switch (where % 10) {
    case 0:
        at = f->demand;
        break;
    case 1:
        at = f->table;
        break;
    case 2:
        at = f->list;
        break;
    case 3:
        at = f->srq[where >> 4 & 3].ring;
        break;
    case 4:
        at = f->tags.ring;
        break;
    case 5:
        at = f->n->contexts ? f->n->contexts : f->data;
        break;
    case 6:
        at = q ? q->q.rq : f->data;
        break;
    case 7:
        at = q ? q->q.cq_ring : f->data;
        break;
    default:
        at = q ? q->q.sq : f->data;
    }
    fuzz_break(f->n->memory + at, FUZZ_PAGE / 2, b);
}

static void op_race(FuzzNode *f, Bytes *b)
{
    f->races = take8(b) & 1;
}

/* Makes DMA to a part of the memory fail, or to none. */
static void op_broken(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b);

    f->n->broken_from = how & 1 ? f->data + take16(b) : 0;
    f->n->broken_to = how & 1 ? f->n->broken_from + (8u << how % 12) : 0;
}

static void op_run(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b);

    fuzz_run(f->world, 100ll << how % 18);
    if (how < 0xc0) {
        fuzz_consume(&f->world->node[0], how & 0x40);
        fuzz_consume(&f->world->node[1], how & 0x40);
    }
}

static void op_wire(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b), value = take8(b);
    FuzzWorld *w = f->world;

    switch (how % 8) {
    case 0:
        w->sim->loss = value & 1 ? value * 2 : 0;
        break;
    case 1:
        w->cut = value % 16;
        break;
    case 2:
        w->marks = value % 8;
        break;
    case 3:
        w->sim->reorder = value & 1 ? value * 4 : 0;
        break;
    case 4:
        w->sim->repeat = value & 1 ? value : 0;
        break;
    case 5:
        w->sim->corrupt = value & 1 ? value : 0;
        break;
    case 6:
        w->sim->latency = 100ll << value % 12;
        break;
    default:
        if (f->n->link) {
            qrnic_link_set_up(f->n->link, value & 7);
        }
        qrnic_engine_set_link(f->n->engine, value & 7);
    }
}

/*
 * Resets rarely, because a reset removes every state that the input has
 * reached.
 */
static void op_reset(FuzzNode *f, Bytes *b)
{
    if (take8(b) < 0x20) {
        fuzz_node_reset(f);
    }
}

const FuzzOp fuzz_control_ops[] = {
    { "command", op_command, 24 },
    { "any-command", op_any_command, 12 },
    { "state", op_state, 5 },
    { "reconnect", op_reconnect, 5 },
    { "recreate", op_recreate, 5 },
    { "page-fault", op_page_fault, 8 },
    { "memory", op_memory, 6 },
    { "race", op_race, 1 },
    { "broken", op_broken, 2 },
    { "run", op_run, 3 },
    { "wire", op_wire, 6 },
    { "reset", op_reset, 1 },
    { NULL },
};
