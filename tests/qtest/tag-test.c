/*
 * qrnic qtest: tag matching, at the bus and on the wire
 *
 * Errors are in tag-error-test.c. Programmer's Reference, chapter Tag matching.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "tag-list.h"

#define HEADER QRNIC_TAG_HEADER_SIZE
#define HEADERS QRNIC_RENDEZVOUS_SIZE
#define VA 0x7f1234567000ull
#define RKEY 0xabcdef12u
#define TAG 0x1122334455667788ull

/* Tests an eager message of one packet, and each byte of its CQE. */
static void test_eager(void)
{
    uint8_t raw[QRNIC_CQE_SIZE], want[QRNIC_CQE_SIZE] = { 0 };
    QrnicDataSeg seg;
    Tags x;

    tags_start(&x, "");
    seg = (QrnicDataSeg) {
        .address = x.r.mr.start + tags_entry_at(5), .length = TAG_BUFFER,
        .lkey = x.r.mr.key,
    };
    qtest_memset(x.r.d->qts, x.r.mr.memory + tags_entry_at(5), 0xa5,
                 TAG_BUFFER);
    tags_post(&x, tag_add(5, TAG, ALL_BITS), &seg, 1);
    tags_expect_op(&x, QRNIC_CQE_TAG_ADD, 0);
    clock_step(x.r.d, 1000);
    tags_eager(&x, TAG, 100);
    tags_expect_match(&x, 5, VALID, QRNIC_WC_SUCCESS, 100, raw);
    tags_expect_data(&x, 5, 100);
    stl_le_p(want, 5);
    stl_le_p(want + 4, x.qp.number);
    stl_le_p(want + 8, 100);
    memcpy(want + 16, raw + 16, 8);
    g_assert_cmpuint(ldq_le_p(raw + 16), >=, 1000);
    stq_le_p(want + 24, TAG);
    stl_le_p(want + 32, 1);
    stl_le_p(want + 40, x.srqn);
    want[51] = 1 | 4 | 8;
    want[61] = 0xa0;
    want[63] = 0x80;
    g_assert_cmpmem(raw, sizeof(raw), want, sizeof(want));
    /* The handle is free. The duplicate packet has no effect. */
    x.psn--;
    tags_send(&x, HEADER + 100);
    tags_expect_ack(&x);
    tags_post(&x, tag_add(5, TAG, ALL_BITS), &seg, 1);
    tags_expect_op(&x, QRNIC_CQE_TAG_ADD, 0);
    tags_no_cqe(&x);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_OPS), ==, 2);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_MATCHES), ==, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_COMPARED), ==, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    tags_stop(&x);
}

/*
 * Tests that the first matching entry in the order of the list is used, for all
 * values of handles. The mask selects the bits to compare.
 */
static void test_order(void)
{
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 6, TAG, ALL_BITS, 1000);
    tags_add(&x, 0, 0x100, 0xff00, 1000);
    tags_add(&x, 3, TAG, ALL_BITS, 1000);
    tags_add(&x, 1, 0, 0, 1000);
    tags_eager(&x, 0xabcd0123, 7);
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, 7, NULL);
    tags_expect_data(&x, 0, 7);
    tags_eager(&x, TAG, 1000);
    tags_expect_match(&x, 6, VALID, QRNIC_WC_SUCCESS, 1000, NULL);
    tags_expect_data(&x, 6, 1000);
    tags_eager(&x, TAG, 0);
    tags_expect_match(&x, 3, VALID, QRNIC_WC_SUCCESS, 0, NULL);
    tags_eager(&x, TAG, 1);
    tags_expect_match(&x, 1, VALID, QRNIC_WC_SUCCESS, 1, NULL);
    tags_expect_data(&x, 1, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_COMPARED), ==,
                     2 + 1 + 1 + 1);
    tags_stop(&x);
}

/* Tests a message of several packets, the last with immediate data. */
static void test_packets(void)
{
    static const uint8_t opcode[] = {
        RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST_IMM,
    };
    uint8_t raw[QRNIC_CQE_SIZE];
    PeerPacket p;
    QrnicCqe c;
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 2, TAG, ALL_BITS, TAG_BUFFER);
    tags_message(&x, EAGER, TAG, 2 * PEER_MTU);
    for (unsigned i = 0; i < 3; i++) {
        p = peer_packet(&x.qp, opcode[i], x.psn++);
        p.payload = x.message + i * PEER_MTU;
        p.length = i < 2 ? PEER_MTU : HEADER;
        p.solicited = p.ack_request = i == 2;
        p.imm = 0xa1b2c3d4;
        peer_send(x.r.d, &p);
        if (!i) {
            tags_expect_match(&x, 2, 0, QRNIC_WC_SUCCESS, 0, raw);
            g_assert_cmphex(raw[62], ==, 0);
            tags_no_cqe(&x);
        }
    }
    tags_expect_ack(&x);
    c = tags_cqe(&x, QRNIC_WC_SUCCESS, QRNIC_CQE_TAG_RECV, ENTRY | VALID);
    g_assert_cmpuint(c.index, ==, 2);
    g_assert_cmpuint(c.byte_len, ==, 2 * PEER_MTU);
    g_assert_cmphex(c.imm, ==, 0xa1b2c3d4);
    g_assert_cmphex(c.flags, ==, QRNIC_CQEF_IMM | QRNIC_CQEF_SOLICITED);
    tags_expect_data(&x, 2, 2 * PEER_MTU);
    tags_stop(&x);
}

/*
 * Tests that an unexpected message consumes a WQE and is counted. An entry is
 * suspended if software adds it before it has reported that message.
 */
static void test_unexpected(void)
{
    QrnicTagOp op;
    Tags x;

    tags_start(&x, "");
    for (unsigned i = 0; i < 4; i++) {
        tags_post_wqe(&x);
    }
    tags_eager(&x, TAG, 50);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 0, HEADER + 50);
    tags_post(&x, tag_add(0, TAG, ALL_BITS), NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_ADD, SYNC_REQ);
    tags_eager(&x, TAG, PEER_MTU);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, SYNC_REQ, 1,
                    HEADER + PEER_MTU);
    /* Software has reported one of two messages, so the counts still differ. */
    tags_post(&x, tag_sync(1), NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_SYNC, SYNC_REQ);
    tags_eager(&x, TAG, 3);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, SYNC_REQ, 2, HEADER + 3);
    tags_post(&x, tag_sync(3), NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_SYNC, 0);
    tags_eager(&x, TAG, 0);
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, 0, NULL);
    /* An operation with a count sets the count first. */
    tags_eager(&x, TAG, 4);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 3, HEADER + 4);
    op = tag_add(7, TAG, ALL_BITS);
    op.flags |= QRNIC_TAGF_SYNC;
    op.unexpected = 4;
    tags_post(&x, op, NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_ADD, 0);
    tags_eager(&x, TAG, 0);
    tags_expect_match(&x, 7, VALID, QRNIC_WC_SUCCESS, 0, NULL);
    tags_no_cqe(&x);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 4);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_SRQ_WQES), ==, 4);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    tags_stop(&x);
}

/*
 * Tests that a message without a tag, or with an invalid header, consumes a
 * WQE.
 */
static void test_no_tag(void)
{
    static const struct {
        uint8_t kind;
        uint32_t len;
        bool malformed;
    } message[] = {
        { NO_TAG, 100, false }, { FIN, 32, false }, { EAGER, 15, true },
        { RENDEZVOUS, 31, true }, { RENDEZVOUS, 257, true },
        { RENDEZVOUS, PEER_MTU + 1, true }, { 4, 100, true },
        { NO_TAG, 0, true },
    };
    uint64_t malformed = 0;
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 0, 0, 0, 1000);
    for (unsigned i = 0; i < ARRAY_SIZE(message); i++) {
        tags_post_wqe(&x);
        tags_message(&x, message[i].kind, TAG, 2000);
        tags_send(&x, message[i].len);
        tags_expect_ack(&x);
        tags_expect_wqe(&x, QRNIC_CQE_TAG_NO_TAG, 0, i, message[i].len);
        malformed += message[i].malformed;
        g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_MALFORMED), ==,
                         malformed);
    }
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_UNTAGGED), ==,
                     ARRAY_SIZE(message));
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 0);
    /* The entry is still active. Reserved bytes are ignored. */
    tags_message(&x, EAGER, TAG, 20);
    memset(x.message + 1, 0xff, 3);
    tags_send(&x, HEADER + 20);
    tags_expect_ack(&x);
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, 20, NULL);
    tags_stop(&x);
}

/*
 * Tests that a message without a WQE causes an RNR NAK, because unexpected
 * messages need a buffer. The message is matched again when it is
 * retransmitted.
 */
static void test_rnr(void)
{
    Tags x;

    tags_start(&x, "");
    tags_message(&x, EAGER, TAG, 10);
    tags_send(&x, HEADER + 10);
    tags_expect_nak(&x, AETH_RNR_NAK | 12);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_UNEXPECTED), ==, 0);
    tags_add(&x, 4, TAG, ALL_BITS, 100);
    x.psn--;
    tags_send(&x, HEADER + 10);
    tags_expect_ack(&x);
    tags_expect_match(&x, 4, VALID, QRNIC_WC_SUCCESS, 10, NULL);
    tags_expect_data(&x, 4, 10);
    tags_stop(&x);
}

static void tm_error(Tags *x)
{
    QrnicCqe c = tags_cqe(x, QRNIC_WC_TM_ERR, QRNIC_CQE_TAG_DEL,
                          QRNIC_CQET_OPERATION);

    g_assert_cmpuint(c.index, ==, x->ops - 1);
    g_assert_cmphex(c.syndrome, ==, QRNIC_SYN_TAG_HANDLE);
}

/* Tests the removal of an active entry, a consumed entry and one in use. */
static void test_delete(void)
{
    Tags x;

    tags_start(&x, "");
    tags_post_wqe(&x);
    tags_add(&x, 1, TAG, ALL_BITS, 3000);
    tags_add(&x, 2, TAG, ALL_BITS, 3000);
    tags_post(&x, tag_del(1), NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_DEL, 0);
    tags_post(&x, tag_del(1), NULL, 0);
    tm_error(&x);
    /* The first of three packets has matched the entry already. */
    tags_message(&x, EAGER, TAG, 3000);
    for (unsigned i = 0; i < 3; i++) {
        PeerPacket p = peer_packet(&x.qp, i < 2 ? i : RC_SEND_LAST, x.psn++);

        p.payload = x.message + i * PEER_MTU;
        p.length = i < 2 ? PEER_MTU : HEADER + 3000 - 2 * PEER_MTU;
        p.ack_request = i == 2;
        peer_send(x.r.d, &p);
        if (!i) {
            tags_expect_match(&x, 2, 0, QRNIC_WC_SUCCESS, 0, NULL);
            tags_post(&x, tag_del(2), NULL, 0);
            tm_error(&x);
        }
    }
    tags_expect_ack(&x);
    tags_expect_entry(&x, 2, VALID, QRNIC_WC_SUCCESS, 0, 3000);
    tags_expect_data(&x, 2, 3000);
    /* No entry remains. */
    tags_eager(&x, TAG, 1);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 0, HEADER + 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    tags_stop(&x);
}

/*
 * Expects the RDMA read of a rendezvous, byte by byte. The next function
 * expects its FIN, which is a send.
 */
static void expect_read(Tags *x, uint32_t psn, uint32_t len)
{
    PeerPacket p = tags_from_us(psn);

    p.opcode = RC_READ_REQUEST;
    p.va = VA;
    p.rkey = RKEY;
    p.dma_length = len;
    p.ack_request = true;
    peer_expect_frame(x->r.d, &p);
}

/*
 * Sends len bytes of x->message, behind the header, as read response. Returns
 * the number of packets.
 */
static uint32_t answer_read(Tags *x, uint32_t psn, uint32_t len)
{
    uint32_t n = 0, at = 0;

    do {
        uint32_t part = MIN(len - at, PEER_MTU);
        bool first = !at, last = at + part == len;
        PeerPacket p = peer_packet(&x->qp, first && last ? RC_READ_ONLY :
                                   first ? RC_READ_FIRST :
                                   last ? RC_READ_LAST : RC_READ_MIDDLE,
                                   psn + n++);

        p.payload = x->message + HEADER + at;
        p.length = part;
        p.syndrome = AETH_ACK | 31;
        p.msn = 1;
        peer_send(x->r.d, &p);
        at += part;
    } while (at < len);
    return n;
}

static void expect_fin(Tags *x, uint32_t psn, const uint8_t *headers)
{
    PeerPacket p = tags_from_us(psn);
    uint8_t fin[HEADERS];

    memcpy(fin, headers, sizeof(fin));
    fin[0] = FIN;
    p.opcode = RC_SEND_ONLY;
    p.payload = fin;
    p.length = sizeof(fin);
    p.ack_request = true;
    peer_expect_frame(x->r.d, &p);
}

/* Sends the data and acknowledges the FIN. Returns the next PSN. */
static uint32_t rendezvous_end(Tags *x, uint32_t handle, uint32_t psn,
                               uint32_t len, const uint8_t *headers)
{
    tags_message(x, EAGER, 0, len);
    psn += answer_read(x, psn, len);
    tags_expect_entry(x, handle, VALID, QRNIC_WC_SUCCESS, 0, len);
    tags_expect_data(x, handle, len);
    expect_fin(x, psn, headers);
    peer_ack(x->r.d, &x->qp, psn, AETH_ACK | 31, 2);
    return psn + 1;
}

static void test_rendezvous(void)
{
    static const uint32_t len[] = { 0, 5, PEER_MTU, 3000, TAG_BUFFER };
    uint32_t psn = SQ_PSN;
    uint64_t bytes = 0;
    Tags x;

    tags_start(&x, "");
    for (unsigned i = 0; i < ARRAY_SIZE(len); i++) {
        uint8_t headers[HEADERS];

        tags_add(&x, i, TAG, ALL_BITS, TAG_BUFFER);
        tags_rendezvous(&x, TAG, VA, RKEY, len[i]);
        x.message[2] = i;       /* The FIN must return this reserved byte */
        memcpy(headers, x.message, sizeof(headers));
        /* Bytes behind the headers are ignored. */
        tags_send(&x, HEADERS + i);
        tags_expect_ack(&x);
        tags_expect_match(&x, i, 0, QRNIC_WC_SUCCESS, len[i], NULL);
        expect_read(&x, psn, len[i]);
        tags_no_cqe(&x);
        psn = rendezvous_end(&x, i, psn, len[i], headers);
        bytes += len[i];
    }
    tags_no_cqe(&x);
    counter_wait(x.r.d, QRNIC_COUNTER_RENDEZVOUS, ARRAY_SIZE(len));
    counter_wait(x.r.d, QRNIC_COUNTER_RENDEZVOUS_BYTES, bytes);
    tags_others_live(&x);
    tags_stop(&x);
}

/*
 * Tests a rendezvous between messages of the send queue. The rendezvous uses no
 * slot and no CQE of that queue.
 */
static void test_rendezvous_busy(void)
{
    uint8_t headers[HEADERS];
    QrnicCqe c;
    Tags x;
    Wqe w;

    tags_start(&x, "");
    tags_add(&x, 0, TAG, ALL_BITS, TAG_BUFFER);
    tags_rendezvous(&x, TAG, VA, RKEY, 100);
    memcpy(headers, x.message, sizeof(headers));
    tags_send(&x, HEADERS);
    tags_expect_ack(&x);
    tags_expect_match(&x, 0, 0, QRNIC_WC_SUCCESS, 100, NULL);
    expect_read(&x, SQ_PSN, 100);
    for (unsigned i = 0; i < 2; i++) {
        w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
        wqe_inline(&w, "own", 3);
        sq_post(x.r.d, &x.qp, &w);
        peer_expect(x.r.d, RC_SEND_ONLY, SQ_PSN + 1 + i);
    }
    tags_message(&x, EAGER, 0, 100);
    answer_read(&x, SQ_PSN, 100);
    tags_expect_entry(&x, 0, VALID, QRNIC_WC_SUCCESS, 0, 100);
    tags_expect_data(&x, 0, 100);
    expect_fin(&x, SQ_PSN + 3, headers);
    settle(x.r.d);
    g_assert_false(cq_poll(x.r.d, &x.r.send_cq, &c));
    peer_ack(x.r.d, &x.qp, SQ_PSN + 3, AETH_ACK | 31, 4);
    for (unsigned i = 0; i < 2; i++) {
        cq_wait(x.r.d, &x.r.send_cq, &c);
        g_assert_cmpuint(c.index, ==, i);
        g_assert_cmphex(c.opcode, ==, QRNIC_CQE_SEND);
    }
    settle(x.r.d);
    g_assert_false(cq_poll(x.r.d, &x.r.send_cq, &c));
    tags_stop(&x);
}

/*
 * Tests that the device retransmits the read of a rendezvous without a
 * response, and its FIN after an RNR NAK.
 */
static void test_rendezvous_again(void)
{
    uint8_t headers[HEADERS];
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 0, TAG, ALL_BITS, TAG_BUFFER);
    tags_rendezvous(&x, TAG, VA, RKEY, 8);
    memcpy(headers, x.message, sizeof(headers));
    tags_send(&x, HEADERS);
    tags_expect_ack(&x);
    tags_expect_match(&x, 0, 0, QRNIC_WC_SUCCESS, 8, NULL);
    expect_read(&x, SQ_PSN, 8);
    clock_step(x.r.d, 70000000);
    expect_read(&x, SQ_PSN, 8);
    tags_message(&x, EAGER, 0, 8);
    answer_read(&x, SQ_PSN, 8);
    tags_expect_entry(&x, 0, VALID, QRNIC_WC_SUCCESS, 0, 8);
    expect_fin(&x, SQ_PSN + 1, headers);
    /* The peer has no WQE for the FIN for 0.64 ms. */
    peer_ack(x.r.d, &x.qp, SQ_PSN + 1, AETH_RNR_NAK | 12, 1);
    wire_silent(x.r.d);
    clock_step(x.r.d, 700000);
    expect_fin(&x, SQ_PSN + 1, headers);
    peer_ack(x.r.d, &x.qp, SQ_PSN + 1, AETH_ACK | 31, 2);
    clock_step(x.r.d, 700000000);
    wire_silent(x.r.d);
    tags_expect_data(&x, 0, 8);
    tags_no_cqe(&x);
    tags_stop(&x);
}

/*
 * Tests a rendezvous message that is longer than the buffer. The buffer
 * receives both headers, and the list continues.
 */
static void test_rendezvous_left(void)
{
    uint8_t got[HEADERS + 1], raw[QRNIC_CQE_SIZE];
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 3, TAG, ALL_BITS, 99);
    tags_rendezvous(&x, TAG, VA, RKEY, 100);
    tags_send(&x, HEADERS);
    tags_expect_ack(&x);
    tags_expect_match(&x, 3, 0, QRNIC_WC_TM_RNDV_INCOMPLETE, HEADERS, raw);
    g_assert_cmphex(ldl_le_p(raw + 56), ==, QRNIC_SYN_TAG_LENGTH);
    rig_read(&x.r, tags_entry_at(3), got, sizeof(got));
    g_assert_cmpmem(got, HEADERS, x.message, HEADERS);
    g_assert_cmphex(got[HEADERS], ==, 0xa5);
    wire_silent(x.r.d);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_RENDEZVOUS_REFUSED), ==, 1);
    tags_add(&x, 3, TAG, ALL_BITS, 99);
    tags_eager(&x, TAG, 99);
    tags_expect_match(&x, 3, VALID, QRNIC_WC_SUCCESS, 99, NULL);
    tags_expect_data(&x, 3, 99);
    tags_stop(&x);
}

/*
 * Tests that if the sender requests a solicited event, the completion of the
 * data is solicited too.
 */
static void test_rendezvous_solicited(void)
{
    uint8_t raw[QRNIC_CQE_SIZE];
    PeerPacket p;
    QrnicCqe c;
    Tags x;

    tags_start(&x, "");
    for (unsigned i = 0; i < 2; i++) {
        uint8_t flags = i ? 0 : QRNIC_CQEF_SOLICITED;

        tags_add(&x, i, TAG, ALL_BITS, 100);
        tags_rendezvous(&x, TAG, VA, RKEY, 8);
        p = peer_packet(&x.qp, RC_SEND_ONLY, x.psn++);
        p.payload = x.message;
        p.length = HEADERS;
        p.ack_request = true;
        p.solicited = !i;
        peer_send(x.r.d, &p);
        tags_expect_ack(&x);
        tags_expect_match(&x, i, 0, QRNIC_WC_SUCCESS, 8, raw);
        g_assert_cmphex(raw[62], ==, flags);
        expect_read(&x, SQ_PSN + 2 * i, 8);
        answer_read(&x, SQ_PSN + 2 * i, 8);
        c = tags_cqe(&x, QRNIC_WC_SUCCESS, QRNIC_CQE_TAG_RECV, ENTRY | VALID);
        g_assert_cmphex(c.flags, ==, flags);
        expect_fin(&x, SQ_PSN + 2 * i + 1, x.message);
        peer_ack(x.r.d, &x.qp, SQ_PSN + 2 * i + 1, AETH_ACK | 31, 2);
    }
    tags_stop(&x);
}

/* Keys of an entry are checked in the SRQ's PD, not in the receiver's. */
static void test_domain(void)
{
    QrnicDataSeg seg;
    uint32_t pd;
    Tags x;
    Mr mr;

    tags_start(&x, "");
    pd = command_ok(x.r.d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    mr_create(x.r.d, &mr, pd, 0x40000000, 4096, ALL_RIGHTS);
    qp_create_srq(x.r.d, &x.qp, QRNIC_QPT_RC, pd, x.r.page, &x.r.send_cq,
                  &x.r.recv_cq, 4, x.srqn);
    qp_connect(x.r.d, &x.qp, NULL);
    tags_add(&x, 0, TAG, ALL_BITS, 100);
    tags_eager(&x, TAG, 100);
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, 100, NULL);
    tags_expect_data(&x, 0, 100);
    tags_add(&x, 1, TAG, ALL_BITS, 100);
    tags_rendezvous(&x, TAG, VA, RKEY, 100);
    tags_send(&x, HEADERS);
    tags_expect_ack(&x);
    tags_expect_match(&x, 1, 0, QRNIC_WC_SUCCESS, 100, NULL);
    expect_read(&x, SQ_PSN, 100);
    tags_message(&x, EAGER, 0, 100);
    answer_read(&x, SQ_PSN, 100);
    tags_expect_entry(&x, 1, VALID, QRNIC_WC_SUCCESS, 0, 100);
    tags_expect_data(&x, 1, 100);
    peer_expect(x.r.d, RC_SEND_ONLY, SQ_PSN + 1);
    peer_ack(x.r.d, &x.qp, SQ_PSN + 1, AETH_ACK | 31, 2);
    seg = (QrnicDataSeg) {
        .address = 0x40000000, .length = 100, .lkey = mr.key,
    };
    tags_post(&x, tag_add(2, TAG, ALL_BITS), &seg, 1);
    tags_expect_op(&x, QRNIC_CQE_TAG_ADD, 0);
    tags_message(&x, EAGER, TAG, 10);
    tags_send(&x, HEADER + 10);
    tags_expect_nak(&x, AETH_NAK_REMOTE_OP);
    tags_expect_entry(&x, 2, 0, QRNIC_WC_LOC_PROT_ERR, QRNIC_SYN_KEY_INVALID,
                      0);
    tags_stop(&x);
}

/*
 * Tests that one doorbell starts several operations, and that no operation
 * starts without a doorbell.
 */
static void test_doorbell(void)
{
    Tags x;

    tags_start(&x, "");
    tags_post_wqe(&x);
    for (unsigned i = 0; i < 1 << OPS_LOG; i++) {
        tags_write(&x, tag_add(i, TAG, ALL_BITS), NULL, 0);
    }
    tags_eager(&x, TAG, 0);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 0, HEADER);
    tags_no_cqe(&x);
    /*
     * The first doorbell uses another doorbell page, the second names another
     * SRQ.
     */
    doorbell(x.r.d, 0, QRNIC_DB_SRQ, x.srqn, x.ops, 0);
    counter_wait(x.r.d, QRNIC_COUNTER_GE_DOORBELL_OWNER, 1);
    doorbell(x.r.d, x.r.page, QRNIC_DB_SRQ, x.srqn + 1, x.ops, 0);
    counter_wait(x.r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    tags_no_cqe(&x);
    /* The index of a doorbell is ignored. */
    doorbell(x.r.d, x.r.page, QRNIC_DB_SRQ, x.srqn, 0x1234, 0);
    for (unsigned i = 0; i < 1 << OPS_LOG; i++) {
        QrnicCqe c = tags_cqe(&x, QRNIC_WC_SUCCESS, QRNIC_CQE_TAG_ADD,
                              QRNIC_CQET_OPERATION | SYNC_REQ);

        g_assert_cmpuint(c.index, ==, i);
    }
    /* The ring wraps. A second doorbell does not repeat the operation. */
    tags_post(&x, tag_sync(1), NULL, 0);
    tags_ring(&x);
    tags_expect_op(&x, QRNIC_CQE_TAG_SYNC, 0);
    tags_no_cqe(&x);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_TAG_OPS), ==, x.ops);
    tags_stop(&x);
}

/*
 * Tests that a write with immediate data completes as usual, in the CQ of the
 * list.
 */
static void test_write_immediate(void)
{
    PeerPacket p;
    QrnicCqe c;
    Tags x;

    tags_start(&x, "");
    tags_post_wqe(&x);
    tags_add(&x, 0, 0, 0, 100);
    p = peer_packet(&x.qp, RC_WRITE_ONLY_IMM, x.psn++);
    tags_message(&x, EAGER, TAG, 10);
    p.va = x.r.mr.start + tags_wqe_at(7);
    p.rkey = x.r.mr.key;
    p.payload = x.message;
    p.dma_length = p.length = HEADER + 10;
    p.imm = 0x01020304;
    p.ack_request = true;
    peer_send(x.r.d, &p);
    tags_expect_ack(&x);
    c = tags_cqe(&x, QRNIC_WC_SUCCESS, QRNIC_CQE_RECV_RDMA_WITH_IMM, 0);
    g_assert_cmpuint(c.index, ==, 0);
    g_assert_cmphex(c.imm, ==, 0x01020304);
    g_assert_cmpuint(c.byte_len, ==, HEADER + 10);
    tags_eager(&x, TAG, 10);
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, 10, NULL);
    tags_stop(&x);
}

/*
 * Tests a reset in the middle of operations. The reset removes the list and
 * clears its counters, and a new list then works.
 */
static void test_reset(void)
{
    uint32_t old;
    Tags x;

    tags_start(&x, "");
    tags_post_wqe(&x);
    for (unsigned i = 0; i < 4; i++) {
        tags_add(&x, i, TAG, ALL_BITS, TAG_BUFFER);
    }
    tags_rendezvous(&x, TAG, VA, RKEY, 3000);
    tags_send(&x, HEADERS);
    tags_expect_ack(&x);
    expect_read(&x, SQ_PSN, 3000);
    tags_message(&x, EAGER, TAG, 1500);
    tags_send(&x, PEER_MTU);
    tags_expect_ack(&x);
    tags_write(&x, tag_del(3), NULL, 0);
    old = x.srqn;
    reg_write(x.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    device_enable_commands(x.r.d, x.r.d->cmd_log_size);
    for (unsigned i = QRNIC_COUNTER_TAG_OPS;
         i <= QRNIC_COUNTER_RENDEZVOUS_REFUSED; i++) {
        g_assert_cmpuint(counter(x.r.d, i), ==, 0);
    }
    command_fails(x.r.d, QRNIC_CMD_DESTROY_SRQ, old, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    tags_start_again(&x);
    tags_post_wqe(&x);
    tags_eager(&x, TAG, 10);
    tags_expect_wqe(&x, QRNIC_CQE_TAG_UNEXPECTED, 0, 0, HEADER + 10);
    tags_post(&x, tag_sync(1), NULL, 0);
    tags_expect_op(&x, QRNIC_CQE_TAG_SYNC, 0);
    tags_add(&x, 0, TAG, ALL_BITS, TAG_BUFFER);
    tags_eager(&x, TAG, 10);
    tags_expect_match(&x, 0, VALID, QRNIC_WC_SUCCESS, 10, NULL);
    tags_expect_data(&x, 0, 10);
    wire_silent(x.r.d);
    tags_stop(&x);
}

/* Tests that DESTROY_SRQ also destroys the list, and frees its CQ. */
static void test_destroy(void)
{
    QrnicTagListCtx ctx;
    Tags x;

    tags_start(&x, "");
    tags_add(&x, 0, TAG, ALL_BITS, TAG_BUFFER);
    command_fails(x.r.d, QRNIC_CMD_DESTROY_CQ, x.cq.number, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_fails(x.r.d, QRNIC_CMD_DESTROY_SRQ, x.srqn, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(x.r.d, QRNIC_CMD_DESTROY_QP, x.qp.number, NULL, 0, NULL, 0);
    command_ok(x.r.d, QRNIC_CMD_DESTROY_SRQ, x.srqn, NULL, 0, NULL, 0);
    tags_ring(&x);
    counter_wait(x.r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    /* Another SRQ with the same ring starts at operation 0. */
    x.srqn = tags_srq_create(&x, (QrnicSrqCtx) { 0 });
    qtest_writel(x.r.d->qts, x.record, x.ops = 0);
    ctx = tags_list_ctx(&x);
    tags_list_create(&x, x.srqn, &ctx);
    tags_post(&x, tag_del(0), NULL, 0);
    g_assert_cmphex(tags_cqe(&x, QRNIC_WC_TM_ERR, QRNIC_CQE_TAG_DEL,
                             QRNIC_CQET_OPERATION).syndrome, ==,
                    QRNIC_SYN_TAG_HANDLE);
    command_ok(x.r.d, QRNIC_CMD_DESTROY_SRQ, x.srqn, NULL, 0, NULL, 0);
    command_ok(x.r.d, QRNIC_CMD_DESTROY_CQ, x.cq.number, NULL, 0, NULL, 0);
    tags_stop(&x);
}

void add_tag_tests(void)
{
    qtest_add_func("qrnic/tag/eager", test_eager);
    qtest_add_func("qrnic/tag/order", test_order);
    qtest_add_func("qrnic/tag/packets", test_packets);
    qtest_add_func("qrnic/tag/unexpected", test_unexpected);
    qtest_add_func("qrnic/tag/no-tag", test_no_tag);
    qtest_add_func("qrnic/tag/rnr", test_rnr);
    qtest_add_func("qrnic/tag/delete", test_delete);
    qtest_add_func("qrnic/tag/rendezvous", test_rendezvous);
    qtest_add_func("qrnic/tag/rendezvous-busy", test_rendezvous_busy);
    qtest_add_func("qrnic/tag/rendezvous-again", test_rendezvous_again);
    qtest_add_func("qrnic/tag/rendezvous-left", test_rendezvous_left);
    qtest_add_func("qrnic/tag/rendezvous-solicited", test_rendezvous_solicited);
    qtest_add_func("qrnic/tag/domain", test_domain);
    qtest_add_func("qrnic/tag/doorbell", test_doorbell);
    qtest_add_func("qrnic/tag/write-immediate", test_write_immediate);
    qtest_add_func("qrnic/tag/reset", test_reset);
    qtest_add_func("qrnic/tag/destroy", test_destroy);
}
