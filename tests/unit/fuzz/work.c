/*
 * Operations of the fuzzer on work queues: WQEs and doorbells of a process
 *
 * main.c calls each operation of fuzz_work_ops with the parameters of a record.
 * See fuzz.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "fuzz.h"

#define MAX_SGES 28             /* the longest WQE has room for 30 */
#define TAG_HANDLES 16
#define QKEY 0x11111111
#define POSTED 12               /* receive WQEs of a new queue */

static const uint8_t opcodes[] = {
    QRNIC_WQE_NOP, QRNIC_WQE_SEND, QRNIC_WQE_SEND_IMM, QRNIC_WQE_SEND_INV,
    QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_RDMA_WRITE_IMM, QRNIC_WQE_RDMA_READ,
    QRNIC_WQE_ATOMIC_CMP_SWAP, QRNIC_WQE_ATOMIC_FETCH_ADD,
    QRNIC_WQE_ATOMIC_WRITE, QRNIC_WQE_FLUSH, QRNIC_WQE_BIND_MW,
    QRNIC_WQE_LOCAL_INV, QRNIC_WQE_REG_MR, QRNIC_WQE_REG_INDIRECT,
};

/* Parts that a WQE refers to; the structure owns all of them. */
typedef struct Request {
    SimWr wr;
    SimSge sge[MAX_SGES];
    QrnicDatagramSeg datagram;
    QrnicDynamicSeg dynamic;
    QrnicXrcSeg xrc;
    QrnicFlushSeg flush;
    QrnicBindSeg bind;
    QrnicRegSeg reg;
    QrnicIndirectSeg indirect;
    QrnicEthSeg eth;
    uint8_t inline_data[QRNIC_MAX_INLINE];
} Request;

static uint32_t length_of(Bytes *b)
{
    static const uint32_t lengths[] = {
        0, 1, 8, 64, 100, 256, 1000, 1024, 1025, 4096, 5000, 9000, 20000,
        65536, 100000, FUZZ_DATA,
    };

    return lengths[take8(b) % ARRAY_SIZE(lengths)];
}

static uint32_t key_of(FuzzNode *f, uint8_t choice)
{
    static const FuzzKey often[] = {
        KEY_ALL, KEY_ALL, KEY_ALL, KEY_TABLE, KEY_ON_DEMAND, KEY_DMA,
        KEY_INDIRECT, KEY_DEVICE, KEY_PROCESS, KEY_PROCESS, KEY_PROCESS_2,
        KEY_PROCESS_ODD, KEY_PROCESS_FAST,
    };

    if (choice < 0x80) {
        return f->key[often[choice % ARRAY_SIZE(often)]];
    }
    return choice == 0xff ? 0xdeadbe11 : f->key[choice % FUZZ_KEYS];
}

/* Returns an address inside most keys, or near the end of some. */
static uint64_t address_of(FuzzNode *f, uint32_t key, uint16_t choice)
{
    uint64_t offset = choice % (8 * FUZZ_PAGE);

    if (key == f->key[KEY_DEVICE]) {
        return offset % QRNIC_DM_PAGE_SIZE;
    }
    if (choice > 0xff00) {
        offset = FUZZ_PAGES * FUZZ_PAGE - (choice & 0xff);
    }
    return f->data + offset;
}

static void sges_fill(FuzzNode *f, Request *r, Bytes *b)
{
    const uint8_t how = take8(b);
    uint32_t left = length_of(b);

    r->wr.num_sge = how % 8 < 6 ? 1 + how % 2 : how % MAX_SGES;
    for (unsigned i = 0; i < r->wr.num_sge; i++) {
        SimSge *s = &r->sge[i];

        s->key = key_of(f, take8(b));
        s->addr = address_of(f, s->key, take16(b));
        s->length = i + 1 == r->wr.num_sge ? left : left / 2;
        left -= s->length;
    }
    r->wr.sge = r->sge;
}

static void inline_fill(Request *r, Bytes *b)
{
    static const uint16_t sizes[] = { 0, 1, 8, 14, 60, 100, 128, 256 };

    r->wr.inline_length = sizes[take8(b) % ARRAY_SIZE(sizes)];
    for (unsigned i = 0; i < r->wr.inline_length; i++) {
        r->inline_data[i] = i * 5;
    }
    r->wr.inline_data = r->inline_data;
}

/*
 * Makes a message with tag headers, as a peer of a tag list sends it
 * (tag-matching.rst).
 */
static void tagged_fill(FuzzNode *f, Request *r, Bytes *b)
{
    const uint8_t kind = take8(b), tag = take8(b);
    uint8_t *p = r->inline_data;

    memset(p, 0, QRNIC_MAX_INLINE);
    p[0] = kind % 4;
    stl_be_p(p + 4, take8(b));
    stq_be_p(p + 8, tag % 4);
    r->wr.inline_length = QRNIC_TAG_HEADER_SIZE;
    if (kind % 4 == 1) {
        stq_be_p(p + 16, f->data + 64 * (tag & 0x3f));
        stl_be_p(p + 24, key_of(f, take8(b)));
        stl_be_p(p + 28, length_of(b));
        r->wr.inline_length = QRNIC_RENDEZVOUS_SIZE;
    }
    r->wr.inline_length += kind & 0x40 ? 100 : 0;
    r->wr.inline_data = r->inline_data;
}

/* Makes the headers of a frame for segmentation or checksums. */
static void ethernet_fill(FuzzNode *f, Request *r, Bytes *b)
{
    const uint8_t how = take8(b);
    const bool tcp = how & 1, ipv6 = how & 2;
    const unsigned ip = ipv6 ? 40 : 20, l4 = tcp ? 20 : 8;
    uint8_t *p = f->n->memory + f->data;
    FuzzNode *to = &f->world->node[!f->n->id];

    memcpy(p, to->n->gid.mac, 6);
    memcpy(p + 6, f->n->gid.mac, 6);
    stw_be_p(p + 12, ipv6 ? 0x86dd : 0x0800);
    memset(p + 14, 0, ip + l4);
    p[14] = ipv6 ? 0x60 : 0x45;
    p[14 + (ipv6 ? 6 : 9)] = tcp ? 6 : 17;
    p[14 + (ipv6 ? 7 : 8)] = 64;
    stw_be_p(p + 14 + (ipv6 ? 4 : 2), 1000);
    stw_be_p(p + 14 + ip, 1000 + take8(b));
    stw_be_p(p + 14 + ip + 2, 80);
    if (tcp) {
        p[14 + ip + 12] = 5 << 4;
        p[14 + ip + 13] = 0x10 | (how & 8);
    }
    r->eth = (QrnicEthSeg) {
        .flags = how >> 4, .csum_start = 14 + ip, .vlan_tci = take8(b),
        .csum_offset = tcp ? 16 : 6,
    };
    /* A WQE may request one form of checksum only (wqe.rst). */
    if (r->eth.flags & QRNIC_ETHF_TSO) {
        r->eth.flags &= ~(QRNIC_ETHF_CSUM | QRNIC_ETHF_IP_CSUM);
        r->eth.mss = 1 + take16(b) % 2000;
        r->eth.header_length = 14 + ip + l4;
    } else if (r->eth.flags & QRNIC_ETHF_CSUM) {
        r->eth.flags &= ~QRNIC_ETHF_IP_CSUM;
    }
    r->sge[0] = (SimSge) { f->data, 14 + ip + l4 + take16(b) % 3000,
                           f->key[KEY_ALL] };
    r->wr.sge = r->sge;
    r->wr.num_sge = 1;
    r->wr.eth = &r->eth;
}

static void remote_fill(FuzzNode *f, Request *r, Bytes *b)
{
    FuzzNode *to = &f->world->node[!f->n->id];

    r->wr.rkey = key_of(to, take8(b));
    r->wr.remote = address_of(to, r->wr.rkey, take16(b));
}

static void registration_fill(FuzzNode *f, Request *r, Bytes *b)
{
    const uint8_t how = take8(b);
    uint8_t *p = r->inline_data;

    switch (r->wr.opcode) {
    case QRNIC_WQE_LOCAL_INV:
        r->wr.imm = f->key[KEY_FAST_REG + how % 7];
        break;
    case QRNIC_WQE_BIND_MW:
        r->bind = (QrnicBindSeg) {
            .key = f->key[KEY_WINDOW_1 + (how & 1)] + (how & 2 ? 1 : 0),
            .lkey = f->key[how & 8 ? KEY_PROCESS : how & 4 ? KEY_TABLE :
                           KEY_ALL],
            .address = f->data + 8, .length = 8u << how % 12,
            .access = how >> 3 & 0xe, .flags = how & 0x80 ? 1 : 0,
        };
        r->wr.bind = &r->bind;
        break;
    case QRNIC_WQE_REG_MR:
        r->reg = (QrnicRegSeg) {
            .key = f->key[KEY_FAST_REG] + (how & 1), .access = how & 0xf,
            .start = f->data, .length = FUZZ_PAGE * (1 + how % FUZZ_PAGES),
            .table = { .root = f->list, .levels = 1,
                       .page_shift = QRNIC_PAGE_SHIFT_MIN },
        };
        if (how & 0x20) {
            r->reg.key = f->key[KEY_PROCESS_FAST];
            r->reg.table = (QrnicTranslation) { .root = FUZZ_ADDRESS };
        }
        r->wr.reg = &r->reg;
        break;
    default:
        r->indirect = (QrnicIndirectSeg) {
            .key = f->key[how & 1 ? KEY_INDIRECT : KEY_INDIRECT_2],
            .access = how & 2 ? 0xf : how >> 2, .start = f->data,
            .repeat = 1 + (take8(b) & 0x3f),
        };
        r->wr.inline_length = QRNIC_PIECE_BYTES * (1 + (how >> 5));
        for (unsigned i = 0; i <= how >> 5; i++) {
            const QrnicPiece piece = {
                .key = key_of(f, take8(b)),
                .address = f->data + take16(b) % FUZZ_PAGE,
                .length = 1 + take8(b), .stride = take8(b),
            };

            qrnic_piece_pack(p + i * QRNIC_PIECE_BYTES, &piece);
        }
        r->wr.inline_data = p;
        r->wr.indirect = &r->indirect;
    }
}

static bool is_registration(uint8_t opcode)
{
    return opcode >= QRNIC_WQE_BIND_MW && opcode <= QRNIC_WQE_REG_INDIRECT;
}

static bool has_remote(uint8_t opcode)
{
    return opcode >= QRNIC_WQE_RDMA_WRITE && opcode <= QRNIC_WQE_FLUSH;
}

/* Fills in the peer, for transports whose WQE names it. */
static void peer_fill(FuzzNode *f, Request *r, unsigned kind, uint8_t how)
{
    FuzzNode *to = &f->world->node[how & 1 ? f->n->id : !f->n->id];
    FuzzQp *q = &f->qp[kind];

    switch (q->ctx.type) {
    case QRNIC_QPT_UD:
    case QRNIC_QPT_GSI:
        r->datagram = sim_datagram_to(&to->qp[kind].q,
                                      q->ctx.type == QRNIC_QPT_GSI ?
                                      QRNIC_GSI_QKEY : QKEY);
        if (how & 2) {
            r->datagram.dest_qpn = QRNIC_MULTICAST_QPN;
            fuzz_group(f, how >> 2 & 3, r->datagram.av.dgid,
                       r->datagram.av.dmac);
        }
        r->datagram.av.sgid_index += f->world->roce_v1;
        r->wr.datagram = &r->datagram;
        break;
    case QRNIC_QPT_DC_INI:
        for (unsigned i = 0; i < fuzz_num_kinds; i++) {
            if (to->qp[i].ctx.type == QRNIC_QPT_DC_TGT) {
                r->dynamic = sim_dynamic_to(&to->qp[i].q, FUZZ_ACCESS_KEY);
            }
        }
        r->dynamic.access_key ^= how == 0xff;
        r->dynamic.av.sgid_index += f->world->roce_v1;
        r->wr.dynamic = &r->dynamic;
        break;
    case QRNIC_QPT_XRC_INI:
        r->xrc.srqn = f->world->node[!f->n->id].srq[SRQ_XRC].number;
        r->wr.xrc = &r->xrc;
        break;
    }
}

static void request_fill(FuzzNode *f, Request *r, unsigned kind, Bytes *b)
{
    const uint8_t how = take8(b), peer = take8(b);
    const uint8_t type = f->qp[kind].ctx.type;

    r->wr.flags = how & 0x80 ? QRNIC_WQEF_SIGNALED : how & 7;
    if (type == QRNIC_QPT_RAW_PACKET) {
        r->wr.opcode = QRNIC_WQE_SEND;
        ethernet_fill(f, r, b);
        return;
    }
    if (!is_registration(r->wr.opcode) && r->wr.opcode) {
        peer_fill(f, r, kind, peer);
    }
    if (has_remote(r->wr.opcode)) {
        remote_fill(f, r, b);
    }
    switch (r->wr.opcode) {
    case QRNIC_WQE_NOP:
        break;
    case QRNIC_WQE_FLUSH:
        r->flush = (QrnicFlushSeg) {
            .length = length_of(b), .type = 1 + peer % 3, .level = peer & 1,
        };
        r->wr.flush = &r->flush;
        break;
    case QRNIC_WQE_ATOMIC_CMP_SWAP:
    case QRNIC_WQE_ATOMIC_FETCH_ADD:
        r->sge[0] = (SimSge) { f->data + 64, 8, f->key[KEY_ALL] };
        r->wr.sge = r->sge;
        r->wr.num_sge = 1;
        /* fall through */
    case QRNIC_WQE_ATOMIC_WRITE:
        r->wr.swap_add = r->wr.compare = peer;
        r->wr.compare *= r->wr.opcode == QRNIC_WQE_ATOMIC_CMP_SWAP;
        r->wr.remote &= peer & 0x80 ? ~0ull : ~7ull;
        break;
    case QRNIC_WQE_SEND_IMM:
    case QRNIC_WQE_RDMA_WRITE_IMM:
        r->wr.imm = peer;
        break;
    case QRNIC_WQE_SEND_INV:
        r->wr.imm = f->world->node[!f->n->id].key[KEY_FAST_REG + peer % 7];
        break;
    }
    if (is_registration(r->wr.opcode)) {
        registration_fill(f, r, b);
    } else if (r->wr.opcode <= QRNIC_WQE_RDMA_READ && r->wr.opcode) {
        if (how & 0x10 && f->qp[kind].kind->receives == RECEIVES_TAGS) {
            tagged_fill(f, r, b);
        } else if (how & 0x20 && r->wr.opcode != QRNIC_WQE_RDMA_READ) {
            inline_fill(r, b);
        } else {
            sges_fill(f, r, b);
        }
    }
}

/* Corrupts the last posted WQE in its ring. */
static void wqe_break(FuzzNode *f, SimQp *q, uint32_t before, Bytes *b)
{
    uint32_t slot = before & ((1u << q->sq_log) - 1);

    fuzz_break(f->n->memory + q->sq + slot * QRNIC_WQEBB_SIZE,
               QRNIC_WQEBB_SIZE, b);
}

static void direct_ring(FuzzNode *f, SimQp *q, uint32_t before)
{
    uint32_t blocks = q->sq_producer - before;
    const QrnicDoorbell d = {
        .number = q->number, .index = q->sq_producer, .wqebbs = blocks,
    };
    uint8_t raw[QRNIC_DOORBELL_BYTES];

    if (blocks > QRNIC_DB_WINDOW_WQEBB) {
        sim_ring_sq(q);
        return;
    }
    for (uint32_t i = 0; i < blocks * 8; i++) {
        uint32_t slot = (before + i / 8) & ((1u << q->sq_log) - 1);

        qrnic_doorbell_write(f->n->engine, q->db_page,
                             QRNIC_DB_WINDOW + 8 * i, 8,
                             ldq_le_p(f->n->memory + q->sq +
                                      slot * QRNIC_WQEBB_SIZE + 8 * (i % 8)));
    }
    qrnic_doorbell_pack(raw, &d);
    qrnic_doorbell_write(f->n->engine, q->db_page, QRNIC_DB_DIRECT, 8,
                         ldq_le_p(raw));
}

/* Posts a WQE. how: the doorbell; bits 2 and 3 corrupt the WQE. */
static void post(FuzzNode *f, Bytes *b, uint8_t opcode, unsigned kind)
{
    FuzzQp *q = &f->qp[kind];
    uint32_t before = q->q.sq_producer;
    const uint8_t how = take8(b);
    Request r = { .wr.opcode = opcode };

    if (!q->exists || !q->ctx.sq_record) {
        return;
    }
    request_fill(f, &r, kind, b);
    sim_post_send_quiet(&q->q, &r.wr);
    if ((how & 0x1c) == 0x1c) {
        wqe_break(f, &q->q, before, b);
    }
    switch (how & 3) {
    case 0:
        break;                  /* Rung with the next one */
    case 1:
        direct_ring(f, &q->q, before);
        break;
    default:
        sim_ring_sq(&q->q);
    }
}

static void op_send(FuzzNode *f, Bytes *b)
{
    unsigned kind;
    uint8_t opcode;

    if (fuzz_qp_any(f, b, &kind)) {
        opcode = take8(b);
        post(f, b, opcode == 0xff ? take8(b) :
                   opcodes[opcode % ARRAY_SIZE(opcodes)], kind);
    }
}

/* Posts WQEs to one kind of queue pair, because each input has few of a kind */
static void send_of(FuzzNode *f, Bytes *b, bool (*has)(const FuzzQp *q))
{
    const uint8_t opcode = take8(b);

    for (unsigned i = 0; i < fuzz_num_kinds; i++) {
        if (has(&f->qp[i])) {
            post(f, b, opcodes[opcode % ARRAY_SIZE(opcodes)], i);
        }
    }
}

static bool is_raw(const FuzzQp *q)
{
    return q->ctx.type == QRNIC_QPT_RAW_PACKET && q->ctx.sq_record;
}

static bool is_dynamic(const FuzzQp *q)
{
    return q->ctx.type == QRNIC_QPT_DC_INI;
}

static bool is_member(const FuzzQp *q)
{
    return q->kind->member;
}

static bool is_xrc(const FuzzQp *q)
{
    return q->ctx.type == QRNIC_QPT_XRC_INI;
}

static bool is_datagram(const FuzzQp *q)
{
    return q->ctx.type == QRNIC_QPT_UD || q->ctx.type == QRNIC_QPT_GSI;
}

static void op_send_raw(FuzzNode *f, Bytes *b)
{
    send_of(f, b, is_raw);
}

static void op_send_dynamic(FuzzNode *f, Bytes *b)
{
    send_of(f, b, is_dynamic);
}

static void op_send_member(FuzzNode *f, Bytes *b)
{
    send_of(f, b, is_member);
}

static void op_send_xrc(FuzzNode *f, Bytes *b)
{
    send_of(f, b, is_xrc);
}

static void op_send_datagram(FuzzNode *f, Bytes *b)
{
    send_of(f, b, is_datagram);
}

/* Sends to the tag list of the peer, with tag headers. */
static void op_send_tagged(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b);

    for (unsigned i = 0; i < fuzz_num_kinds; i++) {
        FuzzQp *q = &f->qp[i];
        Request r = {
            .wr.opcode = how & 1 ? QRNIC_WQE_SEND_IMM : QRNIC_WQE_SEND,
            .wr.flags = how & 7,
        };

        if (q->exists && q->kind->receives == RECEIVES_TAGS) {
            tagged_fill(f, &r, b);
            sim_post_send(&q->q, &r.wr);
        }
    }
}

/* Posts several WQEs of one kind, because these fill windows and queues */
static void op_burst(FuzzNode *f, Bytes *b)
{
    const Bytes same = *b;
    unsigned count = 1 + take8(b) % 12;

    for (unsigned i = 0; i < count; i++) {
        *b = same;
        take8(b);
        op_send(f, b);
    }
}

static unsigned receive_sges(FuzzNode *f, SimSge *sge, Bytes *b)
{
    const uint8_t how = take8(b);
    const unsigned count = how % 4 == 3 ? how % 8 : 1;

    for (unsigned i = 0; i < count; i++) {
        sge[i].key = key_of(f, take8(b));
        sge[i].addr = address_of(f, sge[i].key, take16(b));
        sge[i].length = length_of(b);
    }
    return count;
}

static void op_receive(FuzzNode *f, Bytes *b)
{
    SimSge sge[8];
    unsigned kind, count, times;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    if (!q || !q->ctx.rq_record) {
        return;
    }
    times = 1 + take8(b) % 16;
    count = MIN(receive_sges(f, sge, b), 7);
    for (unsigned i = 0; i < times; i++) {
        sim_post_recv_quiet(&q->q, sge, count);
    }
    sim_ring_rq(&q->q);
}

static void op_receive_shared(FuzzNode *f, Bytes *b)
{
    SimSrq *s = &f->srq[take8(b) % FUZZ_SRQS];
    unsigned count, times = 1 + take8(b) % 16;
    SimSge sge[8];

    count = MIN(receive_sges(f, sge, b), 7);
    for (unsigned i = 0; s->number && i < times && s->head != s->tail; i++) {
        sim_post_srq(s, sge, count);
    }
}

static uint8_t *tag_slot(FuzzNode *f)
{
    return f->n->memory + f->tags.ring +
           f->tags.producer % 32 * (QRNIC_WQEBB_SIZE << 1);
}

static void tags_ring(FuzzNode *f)
{
    stl_le_p(f->n->memory + f->tags.record, ++f->tags.producer);
    sim_ring(f->n, 0, QRNIC_DB_SRQ, f->srq[SRQ_TAGS].number, 0);
}

static void op_tags(FuzzNode *f, Bytes *b)
{
    const uint8_t how = take8(b), handle = take8(b), mask = take8(b);
    uint8_t *p = tag_slot(f);
    QrnicTagOp op = {
        .opcode = QRNIC_WQE_TAG_ADD + how % 8 % 3, .index = f->tags.producer,
        .flags = how >> 6, .handle = handle % TAG_HANDLES,
        .unexpected = sim_counter(f->n, QRNIC_COUNTER_TAG_UNEXPECTED) -
                      (mask & 0xc0 ? 0 : 1),
    };
    SimSge sge[8];

    memset(p, 0, QRNIC_WQEBB_SIZE << 1);
    if (!(op.flags & QRNIC_TAGF_SYNC)) {
        op.unexpected = 0;
    }
    if (op.opcode == QRNIC_WQE_TAG_SYNC) {
        op.handle = 0;
    } else if (op.opcode == QRNIC_WQE_TAG_ADD) {
        op.mask = mask & 1 ? 3 : mask & 2 ? UINT64_MAX : 0;
        op.tag = handle >> 4 & 3 & op.mask;
        op.data_segments = MIN(receive_sges(f, sge, b), 6);
    }
    qrnic_tag_op_pack(p, &op);
    for (unsigned i = 0; i < op.data_segments; i++) {
        const QrnicDataSeg seg = { sge[i].addr, sge[i].length, sge[i].key };

        qrnic_data_seg_pack(p + QRNIC_TAG_OP_BYTES + i * QRNIC_SEGMENT_SIZE,
                            &seg);
    }
    if ((how & 0x38) == 0x38) {
        fuzz_break(p, QRNIC_TAG_OP_BYTES, b);
    }
    tags_ring(f);
}

void fuzz_receives_post(FuzzNode *f, unsigned kind)
{
    const SimSge sge = { f->data + FUZZ_DATA / 2, 8192, f->key[KEY_ALL] };
    FuzzQp *q = &f->qp[kind];

    if (q->exists && q->ctx.rq_record) {
        for (unsigned i = 0; i < POSTED; i++) {
            sim_post_recv_quiet(&q->q, &sge, 1);
        }
        sim_ring_rq(&q->q);
    }
}

void fuzz_shared_post(FuzzNode *f)
{
    const SimSge sge = { f->data + FUZZ_DATA / 2, 8192, f->key[KEY_ALL] };
    const QrnicDataSeg seg = { sge.addr, sge.length, sge.key };

    for (unsigned k = 0; k < FUZZ_SRQS; k++) {
        for (unsigned i = 0; f->srq[k].number && i < POSTED; i++) {
            sim_post_srq(&f->srq[k], &sge, 1);
        }
    }
    for (unsigned i = 0; i < 4; i++) {
        const QrnicTagOp op = {
            .opcode = QRNIC_WQE_TAG_ADD, .index = f->tags.producer,
            .handle = i, .tag = i, .mask = 3, .data_segments = 1,
        };

        qrnic_tag_op_pack(tag_slot(f), &op);
        qrnic_data_seg_pack(tag_slot(f) + QRNIC_TAG_OP_BYTES, &seg);
        tags_ring(f);
    }
}

/* Rings any doorbell of any page, including doorbells that no queue has. */
static void op_doorbell(FuzzNode *f, Bytes *b)
{
    static const uint16_t offsets[] = {
        QRNIC_DB_SQ, QRNIC_DB_RQ, QRNIC_DB_SRQ, QRNIC_DB_CQ_ARM, QRNIC_DB_EQ,
        QRNIC_DB_DIRECT, QRNIC_DB_WINDOW, QRNIC_DB_WINDOW + 64,
    };
    const uint8_t where = take8(b), how = take8(b);
    const uint32_t page = how & 1 ? f->page : how >> 4 & 7;
    uint64_t value = (uint64_t)fuzz_number(b) << 32;
    unsigned kind, offset = offsets[where % ARRAY_SIZE(offsets)];
    FuzzQp *q = fuzz_qp_any(f, b, &kind);

    if (how & 2) {
        qrnic_doorbell_event(f->n->engine, page);
        return;
    }
    if (how & 4) {
        offset = take16(b) % (QRNIC_DB_PAGE_SIZE - 8) & ~7u;
    }
    value |= how & 8 ? take32(b) : q ? q->q.number : 0;
    qrnic_doorbell_write(f->n->engine, page, offset, where & 0x80 ? 4 : 8,
                         where & 0x80 ? (uint32_t)value : value);
}

/* Writes a producer record with more or fewer WQEs than posted. */
static void op_record(FuzzNode *f, Bytes *b)
{
    unsigned kind;
    FuzzQp *q = fuzz_qp_any(f, b, &kind);
    const uint8_t how = take8(b);
    uint64_t at;

    if (!q) {
        return;
    }
    at = how & 1 ? q->q.sq_record : how & 2 ? q->q.rq_record :
         how & 4 ? q->q.cq_record : f->srq[how >> 4 & 3].record;
    stl_le_p(f->n->memory + at, ldl_le_p(f->n->memory + at) + fuzz_number(b));
    sim_ring_sq(&q->q);
}

static void op_consume(FuzzNode *f, Bytes *b)
{
    fuzz_consume(f, take8(b) & 1);
}

const FuzzOp fuzz_work_ops[] = {
    { "send", op_send, 12 },
    { "send-raw", op_send_raw, 6 },
    { "send-dynamic", op_send_dynamic, 6 },
    { "send-member", op_send_member, 6 },
    { "send-xrc", op_send_xrc, 4 },
    { "send-datagram", op_send_datagram, 4 },
    { "send-tagged", op_send_tagged, 6 },
    { "burst", op_burst, 10 },
    { "receive", op_receive, 4 },
    { "receive-shared", op_receive_shared, 4 },
    { "tags", op_tags, 6 },
    { "doorbell", op_doorbell, 6 },
    { "record", op_record, 4 },
    { "consume", op_consume, 2 },
    { NULL },
};
