/*
 * qrnic qtest: an SRQ with a tag list, and a queue pair that uses it; see
 * tag-list.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "tag-list.h"

#define SLOT_BYTES (QRNIC_WQEBB_SIZE << STRIDE_LOG)

uint32_t tags_srq_create(Tags *x, QrnicSrqCtx ctx)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];

    ctx.pd = x->r.pd;
    ctx.db_page = x->r.page;
    ctx.log_size = WQES_LOG;
    ctx.ring = contiguous(memory_alloc(x->r.d, QRNIC_WQEBB_SIZE << WQES_LOG,
                                       4096));
    ctx.record = memory_alloc(x->r.d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    qrnic_srq_ctx_pack(raw, &ctx);
    x->srq_ring = ctx.ring.root;
    x->srq_record = ctx.record;
    return command_ok(x->r.d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw), NULL,
                      0);
}

QrnicTagListCtx tags_list_ctx(Tags *x)
{
    return (QrnicTagListCtx) {
        .cq = x->cq.number, .max_tags = TAGS, .log_size = OPS_LOG,
        .log_stride = STRIDE_LOG, .record = x->record,
        .ring = contiguous(x->ring),
    };
}

void tags_list_refused(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx,
                       unsigned status, uint32_t syndrome)
{
    uint8_t raw[QRNIC_TAG_LIST_CTX_BYTES];

    qrnic_tag_list_ctx_pack(raw, ctx);
    command_fails(x->r.d, QRNIC_CMD_CREATE_TAG_LIST, srqn, raw, sizeof(raw),
                  NULL, 0, status, syndrome);
}

void tags_list_create(Tags *x, uint32_t srqn, const QrnicTagListCtx *ctx)
{
    uint8_t raw[QRNIC_TAG_LIST_CTX_BYTES];

    qrnic_tag_list_ctx_pack(raw, ctx);
    command_ok(x->r.d, QRNIC_CMD_CREATE_TAG_LIST, srqn, raw, sizeof(raw), NULL,
               0);
}

void tags_qp_create(Tags *x, Qp *qp)
{
    qp_create_srq(x->r.d, qp, QRNIC_QPT_RC, x->r.pd, x->r.page, &x->r.send_cq,
                  &x->r.recv_cq, 4, x->srqn);
    qp_connect(x->r.d, qp, NULL);
}

static void objects(Tags *x)
{
    QrnicTagListCtx ctx;

    x->wqes = x->ops = x->messages = 0;
    x->psn = x->other_psn = RQ_PSN;
    cq_create(x->r.d, &x->cq, &x->r.eq, x->r.page, 5);
    x->srqn = tags_srq_create(x, (QrnicSrqCtx) { 0 });
    x->ring = memory_alloc(x->r.d, SLOT_BYTES << OPS_LOG, 4096);
    x->record = memory_alloc(x->r.d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx = tags_list_ctx(x);
    tags_list_create(x, x->srqn, &ctx);
    tags_qp_create(x, &x->qp);
}

void tags_start(Tags *x, const char *properties)
{
    *x = (Tags) { 0 };
    rig_start(&x->r, properties, NULL);
    objects(x);
}

void tags_start_again(Tags *x)
{
    rig_start_again(&x->r);
    objects(x);
}

void tags_stop(Tags *x)
{
    rig_stop(&x->r);
}

uint64_t tags_entry_at(uint32_t handle)
{
    return handle * TAG_BUFFER;
}

uint64_t tags_wqe_at(uint32_t slot)
{
    return (TAGS + slot) * TAG_BUFFER;
}

void tags_post_wqe(Tags *x)
{
    uint8_t raw[QRNIC_WQEBB_SIZE] = { 0 };
    uint32_t slot = x->wqes;
    QrnicRecvCtrl ctrl = {
        .data_segments = 1, .index = slot,
        .next = (slot + 1) % (1 << WQES_LOG),
    };
    QrnicDataSeg seg = {
        .address = x->r.mr.start + tags_wqe_at(slot), .length = TAG_BUFFER,
        .lkey = x->r.mr.key,
    };

    g_assert_cmpuint(slot, <, 1 << WQES_LOG);
    qrnic_recv_ctrl_pack(raw, &ctrl);
    qrnic_data_seg_pack(raw + QRNIC_SEGMENT_SIZE, &seg);
    qtest_memwrite(x->r.d->qts, x->srq_ring + slot * sizeof(raw), raw,
                   sizeof(raw));
    qtest_writel(x->r.d->qts, x->srq_record, ++x->wqes);
}

/* Operations */

QrnicTagOp tag_add(uint32_t handle, uint64_t tag, uint64_t mask)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_ADD, .handle = handle, .tag = tag,
        .mask = mask, .flags = QRNIC_TAGF_SIGNALED,
    };
}

QrnicTagOp tag_del(uint32_t handle)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_DEL, .handle = handle,
        .flags = QRNIC_TAGF_SIGNALED,
    };
}

QrnicTagOp tag_sync(uint32_t unexpected)
{
    return (QrnicTagOp) {
        .opcode = QRNIC_WQE_TAG_SYNC, .unexpected = unexpected,
        .flags = QRNIC_TAGF_SIGNALED | QRNIC_TAGF_SYNC,
    };
}

void tags_write(Tags *x, QrnicTagOp op, const QrnicDataSeg *seg, unsigned count)
{
    uint8_t raw[SLOT_BYTES] = { 0 };

    op.index += x->ops;
    op.data_segments += count;
    qrnic_tag_op_pack(raw, &op);
    for (unsigned i = 0; i < count; i++) {
        qrnic_data_seg_pack(raw + QRNIC_TAG_OP_BYTES + i * QRNIC_SEGMENT_SIZE,
                            &seg[i]);
    }
    qtest_memwrite(x->r.d->qts, x->ring + x->ops % (1 << OPS_LOG) * SLOT_BYTES,
                   raw, sizeof(raw));
    qtest_writel(x->r.d->qts, x->record, ++x->ops);
}

void tags_ring(Tags *x)
{
    doorbell(x->r.d, x->r.page, QRNIC_DB_SRQ, x->srqn, x->ops, 0);
}

void tags_post(Tags *x, QrnicTagOp op, const QrnicDataSeg *seg, unsigned count)
{
    tags_write(x, op, seg, count);
    tags_ring(x);
}

void tags_add(Tags *x, uint32_t handle, uint64_t tag, uint64_t mask,
              uint32_t length)
{
    uint64_t at = x->r.mr.start + tags_entry_at(handle);
    uint32_t first = length / 3;
    const QrnicDataSeg seg[] = {
        { .address = at, .length = first, .lkey = x->r.mr.key },
        { .address = at + first, .length = length - first,
          .lkey = x->r.mr.key },
    };
    uint64_t before = counter(x->r.d, QRNIC_COUNTER_TAG_OPS);
    QrnicTagOp op = tag_add(handle, tag, mask);

    op.flags = 0;
    qtest_memset(x->r.d->qts, x->r.mr.memory + tags_entry_at(handle), 0xa5,
                 TAG_BUFFER);
    tags_post(x, op, seg, ARRAY_SIZE(seg));
    counter_wait(x->r.d, QRNIC_COUNTER_TAG_OPS, before + 1);
}

/* Prepares the next message of the peer, with its tag header and its data. */

void tags_message(Tags *x, uint8_t kind, uint64_t tag, uint32_t len)
{
    uint8_t *p = x->message;

    g_assert_cmpuint(QRNIC_TAG_HEADER_SIZE + len, <=, sizeof(x->message));
    memset(p, 0, QRNIC_TAG_HEADER_SIZE);
    p[0] = kind;
    stl_be_p(p + 4, ++x->messages);
    stq_be_p(p + 8, tag);
    for (uint32_t i = 0; i < len; i++) {
        p[QRNIC_TAG_HEADER_SIZE + i] = x->messages * 31 + i * 7 + (i >> 8);
    }
}

void tags_rendezvous(Tags *x, uint64_t tag, uint64_t va, uint32_t rkey,
                     uint32_t len)
{
    tags_message(x, RENDEZVOUS, tag, 16);
    stq_be_p(x->message + 16, va);
    stl_be_p(x->message + 24, rkey);
    stl_be_p(x->message + 28, len);
}

void tags_send(Tags *x, uint32_t len)
{
    uint32_t at = 0;

    do {
        uint32_t n = MIN(len - at, PEER_MTU);
        bool first = !at, last = at + n == len;
        PeerPacket p = peer_packet(&x->qp, first && last ? RC_SEND_ONLY :
                                   first ? RC_SEND_FIRST :
                                   last ? RC_SEND_LAST : RC_SEND_MIDDLE,
                                   x->psn++);

        p.payload = x->message + at;
        p.length = n;
        p.ack_request = last;
        peer_send(x->r.d, &p);
        at += n;
    } while (at < len);
}

static void expect_answer(Tags *x, uint8_t syndrome)
{
    PeerPacket p = peer_expect(x->r.d, RC_ACK, x->psn - 1);

    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(p.syndrome, ==, syndrome);
}

void tags_expect_ack(Tags *x)
{
    expect_answer(x, AETH_ACK | 31);
}

void tags_expect_nak(Tags *x, uint8_t syndrome)
{
    expect_answer(x, syndrome);
}

void tags_eager(Tags *x, uint64_t tag, uint32_t len)
{
    tags_message(x, EAGER, tag, len);
    tags_send(x, QRNIC_TAG_HEADER_SIZE + len);
    tags_expect_ack(x);
}

PeerPacket tags_from_us(uint32_t psn)
{
    PeerPacket p = {
        .vlan = -1, .tos = 0x28, .ttl = 33, .sport = 0xc777,
        .dest_qpn = PEER_QPN, .psn = psn & 0xffffff,
    };

    memcpy(p.dmac, PEER_MAC, 6);
    memcpy(p.smac, OUR_MAC, 6);
    memcpy(p.sip, OUR_IP4, 4);
    memcpy(p.dip, PEER_IP4, 4);
    return p;
}

/* Completions */

QrnicCqe tags_cqe(Tags *x, unsigned status, unsigned opcode, uint8_t tagged)
{
    QrnicCqe c;

    cq_wait(x->r.d, &x->cq, &c);
    g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmphex(c.opcode, ==, opcode);
    g_assert_cmphex(c.tagged, ==, tagged);
    g_assert_cmpuint(c.srqn, ==, x->srqn);
    return c;
}

void tags_no_cqe(Tags *x)
{
    QrnicCqe c;

    settle(x->r.d);
    g_assert_false(cq_poll(x->r.d, &x->cq, &c));
    g_assert_false(cq_poll(x->r.d, &x->r.recv_cq, &c));
}

void tags_expect_op(Tags *x, unsigned opcode, uint8_t sync)
{
    QrnicCqe c = tags_cqe(x, QRNIC_WC_SUCCESS, opcode,
                          QRNIC_CQET_OPERATION | sync);

    g_assert_cmpuint(c.index, ==, x->ops - 1);
    g_assert_cmpuint(c.qpn, ==, 0);
    g_assert_cmpuint(c.byte_len, ==, 0);
    g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                    qrnic_syndrome_name(QRNIC_SYN_NONE));
}

void tags_expect_match(Tags *x, uint32_t handle, uint8_t valid,
                       unsigned status, uint32_t byte_len, uint8_t *raw)
{
    uint8_t got[QRNIC_CQE_SIZE];
    QrnicCqe c = tags_cqe(x, status, QRNIC_CQE_TAG_RECV,
                          ENTRY | MATCH | valid);
    uint32_t slot = (x->cq.consumer - 1) & ((1u << x->cq.log_size) - 1);
    QrnicCqeTag t;

    g_assert_cmpuint(c.index, ==, handle);
    g_assert_cmpuint(c.qpn, ==, x->qp.number);
    g_assert_cmpuint(c.byte_len, ==, byte_len);
    qtest_memread(x->r.d->qts, x->cq.ring + slot * sizeof(got), got,
                  sizeof(got));
    g_assert_true(qrnic_cqe_tag_unpack(&t, got));
    g_assert_cmphex(t.tag, ==, ldq_be_p(x->message + 8));
    g_assert_cmpuint(t.app_ctx, ==, x->messages);
    if (raw) {
        memcpy(raw, got, sizeof(got));
    }
}

void tags_expect_entry(Tags *x, uint32_t handle, uint8_t valid,
                       unsigned status, unsigned syndrome, uint32_t byte_len)
{
    QrnicCqe c = tags_cqe(x, status, QRNIC_CQE_TAG_RECV, ENTRY | valid);

    g_assert_cmpuint(c.index, ==, handle);
    g_assert_cmpuint(c.byte_len, ==, byte_len);
    g_assert_cmpstr(qrnic_syndrome_name(c.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
}

void tags_expect_wqe(Tags *x, unsigned opcode, uint8_t sync, uint32_t slot,
                     uint32_t len)
{
    QrnicCqe c = tags_cqe(x, QRNIC_WC_SUCCESS, opcode, sync);
    uint8_t got[TAG_BUFFER];

    g_assert_cmpuint(c.index, ==, slot);
    g_assert_cmpuint(c.qpn, ==, x->qp.number);
    g_assert_cmpuint(c.byte_len, ==, len);
    rig_read(&x->r, tags_wqe_at(slot), got, len);
    g_assert_cmpmem(got, len, x->message, len);
}

void tags_expect_data(Tags *x, uint32_t handle, uint32_t len)
{
    uint8_t got[TAG_BUFFER];

    rig_read(&x->r, tags_entry_at(handle), got, sizeof(got));
    g_assert_cmpmem(got, len, x->message + QRNIC_TAG_HEADER_SIZE, len);
    for (uint32_t i = len; i < sizeof(got); i++) {
        g_assert_cmphex(got[i], ==, 0xa5);
    }
}

void tags_expect_event(Tags *x, unsigned type, unsigned subtype,
                       uint32_t object)
{
    QrnicEqe e;

    eq_wait(x->r.d, &x->r.async, &e);
    g_assert_cmphex(e.type, ==, type);
    g_assert_cmphex(e.subtype, ==, subtype);
    g_assert_cmpuint(e.object, ==, object);
}

void tags_expect_state(Tags *x, const Qp *qp, unsigned state)
{
    QrnicQpAttr a;

    qp_query(x->r.d, qp, &a);
    g_assert_cmpstr(qrnic_qp_state_name(a.state), ==,
                    qrnic_qp_state_name(state));
}

void tags_others_live(Tags *x)
{
    uint8_t data[8], got[8];
    PeerPacket p = peer_packet(&x->r.qp, RC_WRITE_ONLY, x->other_psn);
    Tags other = { .r = x->r, .cq = x->cq };

    memset(data, x->other_psn, sizeof(data));
    p.va = x->r.mr.start + tags_wqe_at(7) + 8;
    p.rkey = x->r.mr.key;
    p.payload = data;
    p.dma_length = p.length = sizeof(data);
    p.ack_request = true;
    peer_send(x->r.d, &p);
    peer_expect(x->r.d, RC_ACK, x->other_psn++);
    rig_read(&x->r, tags_wqe_at(7) + 8, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    /* The second list is independent of the first. */
    objects(&other);
    tags_post(&other, tag_add(0, 1, ALL_BITS), NULL, 0);
    tags_expect_op(&other, QRNIC_CQE_TAG_ADD, 0);
    tags_eager(&other, 1, 0);
    tags_expect_match(&other, 0, VALID, QRNIC_WC_SUCCESS, 0, NULL);
}
