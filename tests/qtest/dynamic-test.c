/*
 * qrnic qtest: dynamic connections
 *
 * Programmer's Reference, chapter Dynamic connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define KEY 0x8877665544332211ull
#define CONNECTION 0x000100u
#define PARAMETERS (3u << 24 | 4u << 16)        /* Path MTU 1024, 4 reads */
#define SLOTS_LOG 3

typedef struct Srq {
    uint32_t number, producer;
    uint64_t ring, record;
} Srq;

typedef struct Target {
    Srq srq;
    Qp qp;
} Target;

static void srq_create(Rig *r, Srq *s)
{
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];
    QrnicSrqCtx ctx = {
        .pd = r->pd, .db_page = r->page, .log_size = SLOTS_LOG,
        .ring = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE << SLOTS_LOG,
                                        4096)),
        .record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
    };

    qrnic_srq_ctx_pack(raw, &ctx);
    *s = (Srq) { .ring = ctx.ring.root, .record = ctx.record };
    s->number = command_ok(r->d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw),
                           NULL, 0);
}

/* Posts the next slot, which has 4 KiB of the rig's memory. */
static void srq_post(Rig *r, Srq *s)
{
    uint8_t raw[QRNIC_WQEBB_SIZE] = { 0 };
    uint32_t slot = s->producer;
    QrnicRecvCtrl ctrl = {
        .data_segments = 1, .index = slot, .next = slot + 1,
    };
    QrnicDataSeg seg = {
        .address = r->mr.start + slot * 4096, .length = 4096,
        .lkey = r->mr.key,
    };

    qrnic_recv_ctrl_pack(raw, &ctrl);
    qrnic_data_seg_pack(raw + QRNIC_SEGMENT_SIZE, &seg);
    qtest_memwrite(r->d->qts, s->ring + slot * sizeof(raw), raw, sizeof(raw));
    qtest_writel(r->d->qts, s->record, ++s->producer);
    doorbell(r->d, r->page, QRNIC_DB_SRQ, s->number, s->producer, 0);
}

static QrnicQpCtx target_ctx(Rig *r, const Srq *s, uint16_t responders)
{
    return (QrnicQpCtx) {
        .type = QRNIC_QPT_DC_TGT, .pd = r->pd, .recv_cq = r->recv_cq.number,
        .srq = s->number,
        .dynamic = { .access_key = KEY, .responders = responders },
    };
}

static uint32_t create(Rig *r, const QrnicQpCtx *ctx)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];

    qrnic_qp_ctx_pack(raw, ctx);
    return command_ok(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0);
}

/* Creates a target in RTR. */
static void target_create(Rig *r, Target *t, uint16_t responders)
{
    QrnicQpCtx ctx;
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1,
        .access = QRNIC_ACCESS_REMOTE_WRITE | QRNIC_ACCESS_REMOTE_READ |
                  QRNIC_ACCESS_REMOTE_ATOMIC,
    };

    srq_create(r, &t->srq);
    ctx = target_ctx(r, &t->srq, responders);
    t->qp = (Qp) { .number = create(r, &ctx) };
    qp_modify(r->d, &t->qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PATH_MTU |
                QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
        .state = QRNIC_QPS_RTR, .path_mtu = QRNIC_MTU_1024,
        .max_dest_rd_atomic = 4, .min_rnr_timer = 12,
    };
    qp_modify(r->d, &t->qp, &step);
}

/* Creates an initiator in RTS. */
static void initiator_create(Rig *r, Qp *qp, uint8_t flags)
{
    QrnicQpCtx ctx = {
        .type = QRNIC_QPT_DC_INI, .pd = r->pd, .db_page = r->page,
        .send_cq = r->send_cq.number, .sq_log_size = 5,
        .dynamic = { .idle = 10, .flags = flags },
    };
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT,
        .state = QRNIC_QPS_INIT, .port = 1,
    };

    *qp = (Qp) {
        .page = r->page, .send_cq = &r->send_cq, .sq_log_size = 5,
        .sq = memory_alloc(r->d, QRNIC_WQEBB_SIZE << 5, 4096),
        .sq_record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
    };
    ctx.sq = contiguous(qp->sq);
    ctx.sq_record = qp->sq_record;
    qp->number = create(r, &ctx);
    qp_modify(r->d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PATH_MTU, .state = QRNIC_QPS_RTR,
        .path_mtu = QRNIC_MTU_1024,
    };
    qp_modify(r->d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT |
                QRNIC_QP_RNR_RETRY | QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC,
        .state = QRNIC_QPS_RTS, .timeout = 14, .retry_cnt = 2, .rnr_retry = 2,
        .sq_psn = SQ_PSN, .max_rd_atomic = 4,
    };
    qp_modify(r->d, qp, &step);
}

/* Returns a packet that the peer sends as initiator. */

static PeerPacket from_initiator(const Target *t, uint8_t opcode, uint32_t n)
{
    PeerPacket p = peer_packet(&t->qp, opcode, RQ_PSN + n);

    p.dceth[0] = PEER_QPN;
    p.dceth[1] = CONNECTION;
    p.access_key = KEY;
    p.parameters = PARAMETERS;
    return p;
}

static PeerPacket send_packet(const Target *t, uint32_t n, const char *text)
{
    PeerPacket p = from_initiator(t, DC(RC_SEND_ONLY), n);

    p.payload = (const uint8_t *)text;
    p.length = strlen(text);
    p.ack_request = true;
    return p;
}

static void expect_answer(Rig *r, const Target *t, uint8_t opcode, uint32_t n,
                          uint8_t detail)
{
    PeerPacket p = peer_expect(r->d, opcode, RQ_PSN + n);

    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(p.dceth[0], ==, t->qp.number);
    g_assert_cmphex(p.dceth[1], ==, CONNECTION);
    g_assert_cmphex(p.syndrome, ==, opcode == DC(RC_ACK) ? detail : 0);
    g_assert_cmphex(p.reason, ==,
                    opcode == DC_CNAK ? (uint32_t)detail << 24 : 0);
    g_assert_cmpuint(p.length, ==, 0);
}

static void connect_peer(Rig *r, const Target *t)
{
    PeerPacket p = from_initiator(t, DC_CONNECT, 0);

    peer_send(r->d, &p);
    expect_answer(r, t, DC_ACCEPT, 0, 0);
}

static void received(Rig *r, const Target *t, const char *text)
{
    uint8_t got[64];
    QrnicCqe cqe;

    cq_wait(r->d, &r->recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.qpn, ==, t->qp.number);
    g_assert_cmpuint(cqe.srqn, ==, t->srq.number);
    g_assert_cmpuint(cqe.src_qpn, ==, PEER_QPN);
    g_assert_cmpmem(cqe.smac, 6, PEER_MAC, 6);
    g_assert_cmpuint(cqe.byte_len, ==, strlen(text));
    rig_read(r, cqe.index * 4096, got, strlen(text));
    g_assert_cmpmem(got, strlen(text), text, strlen(text));
}

static void test_target(void)
{
    PeerPacket p;
    uint8_t got[8];
    Target t;
    Rig r;

    rig_start(&r, "", NULL);
    target_create(&r, &t, 2);
    srq_post(&r, &t.srq);
    srq_post(&r, &t.srq);
    /* In the half handshake the message follows CONNECT at once. */
    p = from_initiator(&t, DC_CONNECT, 0);
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_ACCEPT, 0, 0);
    p = send_packet(&t, 0, "hello");
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC(RC_ACK), 0, AETH_ACK | 31);
    received(&r, &t, "hello");
    /*
     * A repeated CONNECT is answered again and has no effect, because the first
     * answer may be lost.
     */
    p = from_initiator(&t, DC_CONNECT, 0);
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_ACCEPT, 0, 0);
    p = send_packet(&t, 0, "hello");
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC(RC_ACK), 0, AETH_ACK | 31);
    counter_wait(r.d, QRNIC_COUNTER_DUPLICATE_REQUESTS, 1);

    p = from_initiator(&t, DC(RC_WRITE_ONLY), 1);
    p.va = r.mr.start + 0x5000;
    p.rkey = r.mr.key;
    p.dma_length = p.length = 8;
    p.payload = (const uint8_t *)"written.";
    p.ack_request = true;
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC(RC_ACK), 1, AETH_ACK | 31);
    rig_read(&r, 0x5000, got, 8);
    g_assert_cmpmem(got, 8, "written.", 8);
    p = from_initiator(&t, DC(RC_READ_REQUEST), 2);
    p.va = r.mr.start + 0x5000;
    p.rkey = r.mr.key;
    p.dma_length = 8;
    peer_send(r.d, &p);
    p = peer_expect(r.d, DC(RC_READ_ONLY), RQ_PSN + 2);
    g_assert_cmpmem(p.payload, p.length, "written.", 8);
    g_assert_cmphex(p.dceth[1], ==, CONNECTION);

    /* After DISCONNECT later packets belong to no connection. */
    p = from_initiator(&t, DC_DISCONNECT, 3);
    peer_send(r.d, &p);
    p = send_packet(&t, 3, "late");
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
    /*
     * A duplicate of the CONNECT that the network delivers late has no effect
     * either.
     */
    p = from_initiator(&t, DC_CONNECT, 0);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 2);
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DYNAMIC_ACCEPTS), ==, 1);
    rig_stop(&r);
}

/*
 * Tests that the target rejects a CONNECT that breaks a rule. Each rule is
 * broken once.
 */
static void test_refused(void)
{
    PeerPacket p;
    Target t;
    Rig r;

    rig_start(&r, "", NULL);
    target_create(&r, &t, 1);
    p = from_initiator(&t, DC_CONNECT, 0);
    p.access_key ^= 1;
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_CNAK, 0, 2);
    p = from_initiator(&t, DC_CONNECT, 0);
    p.parameters = 4u << 24 | 4u << 16;         /* Path MTU 2048 */
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_CNAK, 0, 3);
    p.parameters = 0u << 24 | 4u << 16;
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_CNAK, 0, 3);
    p.parameters = 3u << 24 | 5u << 16;         /* Five reads */
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_CNAK, 0, 3);
    /* Another initiator occupies the only responder. */
    p = from_initiator(&t, DC_CONNECT, 0);
    p.dceth[0]++;
    peer_send(r.d, &p);
    p = peer_expect(r.d, DC_ACCEPT, RQ_PSN);
    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN + 1);
    p = from_initiator(&t, DC_CONNECT, 0);
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC_CNAK, 0, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_CNAK), ==, 5);
    /* A CONNECT with payload, or a truncated one, is malformed. */
    p.payload = (const uint8_t *)"none";
    p.length = 4;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 1);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that the target answers a rejected request, and all later requests of
 * this connection, with the same NAK. The device sends no event.
 */
static void test_access(void)
{
    QrnicQpAttr attr;
    PeerPacket p;
    QrnicEqe eqe;
    Target t;
    Rig r;

    rig_start(&r, "", NULL);
    target_create(&r, &t, 2);
    srq_post(&r, &t.srq);
    connect_peer(&r, &t);
    p = from_initiator(&t, DC(RC_WRITE_ONLY), 0);
    p.va = r.mr.start;
    p.rkey = r.mr.key ^ 0xff;
    p.dma_length = p.length = 8;
    p.payload = (const uint8_t *)"written.";
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC(RC_ACK), 0, AETH_NAK_REMOTE_ACCESS);
    p = send_packet(&t, 1, "more");
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC(RC_ACK), 0, AETH_NAK_REMOTE_ACCESS);
    qp_query(r.d, &t.qp, &attr);
    g_assert_cmpuint(attr.state, ==, QRNIC_QPS_RTR);
    g_assert_false(eq_poll(r.d, &r.async, &eqe));
    /* A newer connection starts with clear state. */
    p = from_initiator(&t, DC_CONNECT, 0);
    p.dceth[1]++;
    peer_send(r.d, &p);
    peer_expect(r.d, DC_ACCEPT, RQ_PSN);
    p = send_packet(&t, 0, "again");
    p.dceth[1]++;
    peer_send(r.d, &p);
    peer_expect(r.d, DC(RC_ACK), RQ_PSN);
    received(&r, &t, "again");
    rig_stop(&r);
}

/*
 * Tests that the device drops a packet that does not match the connection. Each
 * header is spoiled once.
 */
static void test_lies(void)
{
    PeerPacket p;
    Target t;
    Rig r;

    rig_start(&r, "", NULL);
    target_create(&r, &t, 2);
    srq_post(&r, &t.srq);
    connect_peer(&r, &t);
    p = send_packet(&t, 0, "no");
    p.dceth[0] ^= 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
    p = send_packet(&t, 0, "no");
    p.dceth[1] ^= 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 2);
    p = send_packet(&t, 0, "no");
    p.sip[3] ^= 0x40;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 3);
    p = from_initiator(&t, DC_DISCONNECT, 0);
    p.dceth[1]--;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 4);
    p = from_initiator(&t, DC_CONNECT, 0);
    p.dceth[1]--;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 5);
    /* The opcodes are of the other half, of another service, and reserved. */
    p = from_initiator(&t, DC(RC_ACK), 0);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 1);
    p = from_initiator(&t, DC_ACCEPT, 0);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 2);
    p = send_packet(&t, 0, "no");
    p.opcode = RC_SEND_ONLY;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 3);
    p = from_initiator(&t, 0xe5, 0);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 4);
    /* The responder cannot be addressed by its own number. */
    p = send_packet(&t, 0, "no");
    p.dest_qpn++;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_NO_QP, 1);
    wire_silent(r.d);
    /* Reserved bits are ignored. */
    p = send_packet(&t, 0, "yes");
    p.dceth[0] |= 0xab000000;
    p.dceth[1] |= 0xcd000000;
    peer_send(r.d, &p);
    expect_answer(&r, &t, DC(RC_ACK), 0, AETH_ACK | 31);
    received(&r, &t, "yes");
    rig_stop(&r);
}

/*
 * Returns the address segment of the peer's target, for sends of the device as
 * initiator.
 */

static QrnicDynamicSeg address_of_peer(void)
{
    return (QrnicDynamicSeg) {
        .av = qp_default_attr().av, .target = PEER_QPN, .access_key = KEY,
    };
}

static void post(Rig *r, Qp *qp, const char *text)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicDynamicSeg to = address_of_peer();

    wqe_dynamic(&w, &to);
    wqe_inline(&w, text, strlen(text));
    sq_post(r->d, qp, &w);
}

static uint32_t expect_connect(Rig *r, const Qp *qp, uint32_t n)
{
    PeerPacket p = peer_expect(r->d, DC_CONNECT, SQ_PSN + n);

    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(p.dceth[0], ==, qp->number);
    g_assert_cmphex(p.dceth[1] >> 24, ==, 0);
    g_assert_cmphex(p.access_key, ==, KEY);
    g_assert_cmphex(p.parameters, ==, PARAMETERS);
    return p.dceth[1];
}

static void answer(Rig *r, const Qp *qp, uint8_t opcode, uint32_t n,
                   uint32_t connection, uint8_t detail)
{
    PeerPacket p = peer_packet(qp, opcode, SQ_PSN + n);

    p.dceth[0] = PEER_QPN;
    p.dceth[1] = connection;
    p.syndrome = detail;
    p.reason = (uint32_t)detail << 24;
    peer_send(r->d, &p);
}

static void test_initiator(void)
{
    uint32_t connection, next;
    PeerPacket p;
    Qp qp;
    Rig r;

    rig_start(&r, "", NULL);
    initiator_create(&r, &qp, 0);
    post(&r, &qp, "one");
    connection = expect_connect(&r, &qp, 0);
    p = peer_expect(r.d, DC(RC_SEND_ONLY), SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, "one", 3);
    g_assert_cmphex(p.dceth[1], ==, connection);
    /* These packets belong to another connection and to another target. */
    answer(&r, &qp, DC(RC_ACK), 0, connection + 1, AETH_ACK | 31);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
    p = peer_packet(&qp, DC(RC_ACK), SQ_PSN);
    p.dceth[0] = PEER_QPN + 1;
    p.dceth[1] = connection;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 2);
    /* The ACK implies the ACCEPT, so the CNAK is stale. */
    answer(&r, &qp, DC(RC_ACK), 0, connection, AETH_ACK | 31);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, 0);
    answer(&r, &qp, DC_CNAK, 0, connection, 2);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 3);
    answer(&r, &qp, DC_ACCEPT, 0, connection, 0);
    post(&r, &qp, "two");
    peer_expect(r.d, DC(RC_SEND_ONLY), SQ_PSN + 1);
    answer(&r, &qp, DC(RC_ACK), 1, connection, AETH_ACK | 31);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, 0);
    /* The initiator disconnects after some time without work. */
    clock_step(r.d, 5000000);
    p = peer_expect(r.d, DC_DISCONNECT, SQ_PSN + 2);
    g_assert_cmphex(p.dceth[1], ==, connection);
    post(&r, &qp, "three");
    next = expect_connect(&r, &qp, 2);
    g_assert_cmphex(next, !=, connection);
    peer_expect(r.d, DC(RC_SEND_ONLY), SQ_PSN + 2);
    answer(&r, &qp, DC(RC_ACK), 2, next, AETH_ACK | 31);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, 0);
    rig_stop(&r);
}

static void test_full_handshake(void)
{
    uint32_t connection;
    Qp qp;
    Rig r;

    rig_start(&r, "", NULL);
    initiator_create(&r, &qp, QRNIC_DYNAMICF_FULL);
    post(&r, &qp, "one");
    connection = expect_connect(&r, &qp, 0);
    wire_silent(r.d);
    /* CONNECT is lost. */
    clock_step(r.d, 70000000);
    g_assert_cmphex(expect_connect(&r, &qp, 0), ==, connection);
    answer(&r, &qp, DC_ACCEPT, 0, connection, 0);
    peer_expect(r.d, DC(RC_SEND_ONLY), SQ_PSN);
    answer(&r, &qp, DC(RC_ACK), 0, connection, AETH_ACK | 31);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_SEND, 0);
    rig_stop(&r);
}

/*
 * Tests an initiator whose target rejects the connection, permanently or
 * temporarily. A temporary rejection is retried until it has occurred too
 * often.
 */
static void test_cnak(void)
{
    static const struct { uint8_t reason, status, syndrome; } no[] = {
        { 2, QRNIC_WC_REM_ACCESS_ERR, QRNIC_SYN_DYNAMIC_KEY },
        { 3, QRNIC_WC_REM_INV_REQ_ERR, QRNIC_SYN_DYNAMIC_PARAMETERS },
        { 1, QRNIC_WC_RNR_RETRY_EXC_ERR, QRNIC_SYN_DYNAMIC_BUSY },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(no); i++) {
        uint32_t connection;
        Qp qp;
        Rig r;

        rig_start(&r, "", NULL);
        initiator_create(&r, &qp, 0);
        post(&r, &qp, "one");
        connection = expect_connect(&r, &qp, 0);
        peer_expect(r.d, DC(RC_SEND_ONLY), SQ_PSN);
        /*
         * The first CNAK has an invalid reason, the second has the PSN of
         * another packet.
         */
        answer(&r, &qp, DC_CNAK, 0, connection, 9);
        counter_wait(r.d, QRNIC_COUNTER_RX_CNAK, 1);
        answer(&r, &qp, DC_CNAK, 1, connection, 2);
        counter_wait(r.d, QRNIC_COUNTER_RX_DROP_CONNECTION, 1);
        /* rnr_retry is 2. */
        for (unsigned again = 0; no[i].reason == 1 && again < 2; again++) {
            answer(&r, &qp, DC_CNAK, 0, connection, 1);
            counter_wait(r.d, QRNIC_COUNTER_RX_CNAK, 2 + again);
            wire_silent(r.d);
            clock_step(r.d, 16000 << again);
            g_assert_cmphex(expect_connect(&r, &qp, 0), ==, connection);
            wire_silent(r.d);
        }
        answer(&r, &qp, DC_CNAK, 0, connection, no[i].reason);
        rig_sent(&r, no[i].status, 0, no[i].syndrome);
        rig_stop(&r);
    }
}

/*
 * Tests that the device rejects send WQEs with invalid addresses of the target.
 */
static void test_bad_address(void)
{
    for (unsigned i = 0; i < 4; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
        QrnicDynamicSeg to = address_of_peer();
        Qp qp;
        Rig r;

        rig_start(&r, "", NULL);
        initiator_create(&r, &qp, 0);
        switch (i) {
        case 0:
            to.target = 0x1000000;
            break;
        case 1:
            to.av.sgid_index = 9;
            break;
        case 2:
            memset(to.av.dgid, 0, sizeof(to.av.dgid));
            break;
        case 3:
            to.av.dmac[0] |= 1;
            break;
        }
        wqe_dynamic(&w, &to);
        wqe_inline(&w, "one", 3);
        sq_post(r.d, &qp, &w);
        rig_sent(&r, QRNIC_WC_LOC_QP_OP_ERR, 0,
                 i ? QRNIC_SYN_ADDRESS : QRNIC_SYN_WQE_RESERVED);
        counter_wait(r.d, QRNIC_COUNTER_GE_WQE_MALFORMED, 1);
        wire_silent(r.d);
        rig_stop(&r);
    }
}

static void test_commands(void)
{
    uint8_t raw[QRNIC_QP_ATTR_BYTES];
    QrnicQpCtx ctx;
    uint8_t in[QRNIC_QP_CTX_BYTES];
    Target t;
    Rig r;

    rig_start(&r, "max-qp=16", NULL);
    target_create(&r, &t, 4);
    /*
     * The device checks reserved bits before other members, so this command
     * fails with QRNIC_ST_RESERVED.
     */
    ctx = target_ctx(&r, &t.srq, 1);
    qrnic_qp_ctx_pack(in, &ctx);
    in[QRNIC_QP_CTX_DYNAMIC_OFFSET + 12] = 1;
    command_fails(r.d, QRNIC_CMD_CREATE_QP, 0, in, sizeof(in), NULL, 0,
                  QRNIC_ST_RESERVED, 0);
    ctx.dynamic.responders = 0;
    qrnic_qp_ctx_pack(in, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_QP, 0, in, sizeof(in), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_DYNAMIC_OFFSET);
    ctx.dynamic.responders = 20;
    qrnic_qp_ctx_pack(in, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_QP, 0, in, sizeof(in), NULL, 0,
                  QRNIC_ST_NO_RESOURCE, 0);
    command_fails(r.d, QRNIC_CMD_QUERY_QP, t.qp.number + 1, NULL, 0, raw,
                  sizeof(raw), QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(r.d, QRNIC_CMD_DESTROY_QP, t.qp.number + 1, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(r.d, QRNIC_CMD_DESTROY_SRQ, t.srq.number, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    /* A target has no doorbell. */
    doorbell(r.d, 0, QRNIC_DB_SQ, t.qp.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    connect_peer(&r, &t);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, t.qp.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, t.srq.number, NULL, 0, NULL, 0);
    rig_stop(&r);
}

static void test_off(const void *property)
{
    uint8_t in[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx = { .type = QRNIC_QPT_DC_INI, .dynamic.idle = 1 };
    Rig r;

    rig_start(&r, property, NULL);
    qrnic_qp_ctx_pack(in, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_QP, 0, in, sizeof(in), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_TYPE_OFFSET);
    rig_stop(&r);
}

void add_dynamic_tests(void)
{
    qtest_add_func("qrnic/dynamic/target", test_target);
    qtest_add_func("qrnic/dynamic/refused", test_refused);
    qtest_add_func("qrnic/dynamic/access", test_access);
    qtest_add_func("qrnic/dynamic/lies", test_lies);
    qtest_add_func("qrnic/dynamic/initiator", test_initiator);
    qtest_add_func("qrnic/dynamic/full-handshake", test_full_handshake);
    qtest_add_func("qrnic/dynamic/cnak", test_cnak);
    qtest_add_func("qrnic/dynamic/bad-address", test_bad_address);
    qtest_add_func("qrnic/dynamic/commands", test_commands);
    qtest_add_data_func("qrnic/dynamic/off", "cap-dynamic=off", test_off);
    qtest_add_data_func("qrnic/dynamic/off-without-srq", "cap-srq=off",
                        test_off);
}
