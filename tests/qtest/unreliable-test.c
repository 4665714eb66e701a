/*
 * qrnic qtest: unreliable connections
 *
 * Asserts exact frames of the device, and sends crafted frames. Programmer's
 * Reference, chapter Reliable transport, section Unreliable connections;
 * InfiniBand specification, 9.8.2.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define MTU 1024
#define REMOTE 0x123456789a00ull
#define RKEY 0x00c0ffeeu

/* Replaces r->qp by a UC queue pair that is connected to the peer. */
static void uc_start(Rig *r)
{
    rig_start(r, "", NULL);
    qp_create(r->d, &r->qp, QRNIC_QPT_UC, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 5, 3, 0);
    qp_connect_unreliable(r->d, &r->qp, NULL);
}

static void expect_state(Rig *r, unsigned state)
{
    QrnicQpAttr a;

    qp_query(r->d, &r->qp, &a);
    g_assert_cmpstr(qrnic_qp_state_name(a.state), ==,
                    qrnic_qp_state_name(state));
}

static QrnicCqe expect_cqe(Rig *r, Cq *cq, uint32_t index, unsigned status)
{
    QrnicCqe cqe;

    cq_wait(r->d, cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpuint(cqe.index, ==, index);
    g_assert_cmphex(cqe.qpn, ==, r->qp.number);
    return cqe;
}

static void expect_no_receive(Rig *r)
{
    QrnicCqe cqe;

    settle(r->d);
    g_assert_false(cq_poll(r->d, &r->recv_cq, &cqe));
}

/* The next tests check sends. */

/* Returns a packet that the device must send, without opcode and payload. */
static PeerPacket from_us(uint32_t psn)
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

static void post(Rig *r, unsigned opcode, unsigned flags, uint32_t imm,
                 uint32_t length, uint32_t lkey)
{
    Wqe w = wqe_begin(opcode, QRNIC_WQEF_SIGNALED | flags);

    w.ctrl.imm = imm;
    if (opcode == QRNIC_WQE_RDMA_WRITE || opcode == QRNIC_WQE_RDMA_WRITE_IMM) {
        wqe_remote(&w, REMOTE, RKEY);
    }
    if (length) {
        wqe_data(&w, r->mr.start, length, lkey);
    }
    sq_post(r->d, &r->qp, &w);
}

/*
 * Asserts one message of this length, packet by packet. Returns the next PSN.
 */
static uint32_t check_message(Rig *r, unsigned opcode, const uint8_t *data,
                              uint32_t length, uint32_t psn)
{
    bool write = opcode == QRNIC_WQE_RDMA_WRITE ||
                 opcode == QRNIC_WQE_RDMA_WRITE_IMM;
    bool imm = opcode == QRNIC_WQE_SEND_IMM ||
               opcode == QRNIC_WQE_RDMA_WRITE_IMM;
    uint8_t base = write ? UC_WRITE_FIRST : UC_SEND_FIRST;
    uint32_t at = r->qp.sq_producer, sent = 0;
    QrnicCqe cqe;

    post(r, opcode, QRNIC_WQEF_SOLICITED, imm ? 0xa1b2c3d4 : 0, length,
         r->mr.key);
    do {
        uint32_t n = MIN(MTU, length - sent);
        bool first = sent == 0, last = sent + n == length;
        PeerPacket p = from_us(psn++);

        p.opcode = base + (first && last ? 4 + imm : first ? 0 :
                           last ? 2 + imm : 1);
        p.solicited = last && (imm || !write);
        p.payload = data + sent;
        p.length = n;
        p.va = REMOTE;
        p.rkey = RKEY;
        p.dma_length = length;
        p.imm = 0xa1b2c3d4;
        peer_expect_frame(r->d, &p);
        sent += n;
    } while (sent < length);
    cqe = expect_cqe(r, &r->send_cq, at, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe.opcode, ==, write ? QRNIC_CQE_RDMA_WRITE :
                                            QRNIC_CQE_SEND);
    return psn;
}

static void check_send(unsigned opcode)
{
    static const uint32_t lengths[] = {
        0, 1, MTU - 1, MTU, MTU + 1, 2 * MTU, 3 * MTU + 5
    };
    uint8_t data[4 * MTU];
    uint32_t psn = SQ_PSN;
    Rig r;

    uc_start(&r);
    rig_fill(&r, 0, data, sizeof(data), 7);
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        psn = check_message(&r, opcode, data, lengths[i], psn);
    }
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    rig_stop(&r);
}

static void test_send(void)
{
    check_send(QRNIC_WQE_SEND);
}

static void test_send_imm(void)
{
    check_send(QRNIC_WQE_SEND_IMM);
}

static void test_write(void)
{
    check_send(QRNIC_WQE_RDMA_WRITE);
}

static void test_write_imm(void)
{
    check_send(QRNIC_WQE_RDMA_WRITE_IMM);
}

/*
 * Tests that a local error moves the queue pair to SQE and flushes the later
 * WQEs in order. Receiving continues, and RTS can be entered again.
 */
static void test_sqe(void)
{
    QrnicQpAttr rts = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTS };
    uint8_t data[64];
    QrnicDataSeg sge;
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;

    uc_start(&r);
    rig_fill(&r, 0, data, sizeof(data), 3);
    sge = (QrnicDataSeg) { r.mr.start + 4096, 1024, r.mr.key };
    rq_post(r.d, &r.qp, &sge, 1);
    post(&r, QRNIC_WQE_SEND, 0, 0, 64, r.mr.key ^ 1);
    post(&r, QRNIC_WQE_SEND, 0, 0, 64, r.mr.key);
    cqe = expect_cqe(&r, &r.send_cq, 0, QRNIC_WC_LOC_PROT_ERR);
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(QRNIC_SYN_KEY_INVALID));
    expect_cqe(&r, &r.send_cq, 1, QRNIC_WC_WR_FLUSH_ERR);
    expect_state(&r, QRNIC_QPS_SQE);
    /* An operation that UC does not support would be an error too. */
    post(&r, QRNIC_WQE_RDMA_READ, 0, 0, 64, r.mr.key);
    post(&r, QRNIC_WQE_SEND, 0, 0, 64, r.mr.key);
    expect_cqe(&r, &r.send_cq, 2, QRNIC_WC_WR_FLUSH_ERR);
    expect_cqe(&r, &r.send_cq, 3, QRNIC_WC_WR_FLUSH_ERR);
    wire_silent(r.d);
    p = peer_packet(&r.qp, UC_SEND_ONLY, RQ_PSN);
    p.payload = data;
    p.length = sizeof(data);
    peer_send(r.d, &p);
    cqe = expect_cqe(&r, &r.recv_cq, 0, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.byte_len, ==, sizeof(data));
    qp_modify(r.d, &r.qp, &rts);
    check_message(&r, QRNIC_WQE_SEND, data, sizeof(data), SQ_PSN);
    post(&r, QRNIC_WQE_SEND_INV, 0, r.mr.key, 64, r.mr.key);
    cqe = expect_cqe(&r, &r.send_cq, 5, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(QRNIC_SYN_WQE_OPCODE));
    expect_state(&r, QRNIC_QPS_SQE);
    rig_stop(&r);
}

/*
 * Tests that MODIFY_QP to ERR flushes both queues in order, and later WQEs as
 * well.
 */
static void test_flush(void)
{
    QrnicQpAttr err = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR };
    QrnicDataSeg sge;
    Rig r;

    uc_start(&r);
    sge = (QrnicDataSeg) { r.mr.start, 1024, r.mr.key };
    for (int i = 0; i < 3; i++) {
        rq_post(r.d, &r.qp, &sge, 1);
    }
    qp_modify(r.d, &r.qp, &err);
    rq_post(r.d, &r.qp, &sge, 1);
    for (unsigned i = 0; i < 3; i++) {
        post(&r, QRNIC_WQE_SEND, 0, 0, 64, r.mr.key);
    }
    for (unsigned i = 0; i < 4; i++) {
        expect_cqe(&r, &r.recv_cq, i, QRNIC_WC_WR_FLUSH_ERR);
    }
    for (unsigned i = 0; i < 3; i++) {
        expect_cqe(&r, &r.send_cq, i, QRNIC_WC_WR_FLUSH_ERR);
    }
    wire_silent(r.d);
    rig_stop(&r);
}

/* The next tests check receives. */

/* Posts receive WQE n with length bytes, in the n-th 4 KiB of the memory. */
static void post_recv(Rig *r, unsigned n, uint32_t length)
{
    QrnicDataSeg sge = { r->mr.start + 4096 * n, length, r->mr.key };

    rq_post(r->d, &r->qp, &sge, 1);
}

/* Returns a packet of the peer with length bytes of data. */
static PeerPacket packet(Rig *r, uint8_t opcode, uint32_t psn,
                         const uint8_t *data, uint32_t length)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.payload = data;
    p.length = length;
    p.imm = 0x11223344;
    p.va = r->mr.start + 0x8000;
    p.rkey = r->mr.key;
    return p;
}

static void receive(Rig *r, uint8_t opcode, uint32_t psn, const uint8_t *data,
                    uint32_t length)
{
    PeerPacket p = packet(r, opcode, psn, data, length);

    peer_send(r->d, &p);
}

static void received(Rig *r, unsigned index, const uint8_t *data,
                     uint32_t length, bool imm)
{
    QrnicCqe cqe = expect_cqe(r, &r->recv_cq, index, QRNIC_WC_SUCCESS);
    uint8_t got[4096];

    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV);
    g_assert_cmpuint(cqe.byte_len, ==, length);
    g_assert_cmphex(cqe.flags, ==, imm ? QRNIC_CQEF_IMM : 0);
    g_assert_cmphex(cqe.imm, ==, imm ? 0x11223344 : 0);
    rig_read(r, 4096 * index, got, length);
    g_assert_cmpmem(got, length, data, length);
}

static void fill(uint8_t *data, size_t length, uint8_t seed)
{
    for (size_t i = 0; i < length; i++) {
        data[i] = i * 7 + (i >> 8) + seed;
    }
}

static void test_receive(void)
{
    uint8_t data[3 * MTU];
    uint32_t psn = RQ_PSN;
    Rig r;

    uc_start(&r);
    fill(data, sizeof(data), 1);
    for (unsigned i = 0; i < 4; i++) {
        post_recv(&r, i, 4096);
    }
    receive(&r, UC_SEND_ONLY, psn++, data, 5);
    received(&r, 0, data, 5, false);
    receive(&r, UC_SEND_ONLY_IMM, psn++, data, 0);
    received(&r, 1, data, 0, true);
    receive(&r, UC_SEND_FIRST, psn++, data, MTU);
    receive(&r, UC_SEND_MIDDLE, psn++, data + MTU, MTU);
    expect_no_receive(&r);
    receive(&r, UC_SEND_LAST, psn++, data + 2 * MTU, 9);
    received(&r, 2, data, 2 * MTU + 9, false);
    receive(&r, UC_SEND_FIRST, psn++, data, MTU);
    receive(&r, UC_SEND_LAST_IMM, psn++, data + MTU, MTU);
    received(&r, 3, data, 2 * MTU, true);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 0);
    /* Without a receive WQE the message is dropped without a response. */
    receive(&r, UC_SEND_ONLY, psn++, data, 5);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_NO_WQE, 1);
    expect_no_receive(&r);
    wire_silent(r.d);
    expect_state(&r, QRNIC_QPS_RTS);
    rig_stop(&r);
}

static void test_receive_write(void)
{
    uint8_t data[3 * MTU], got[3 * MTU];
    uint32_t psn = RQ_PSN;
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;

    uc_start(&r);
    fill(data, sizeof(data), 9);
    p = packet(&r, UC_WRITE_FIRST, psn++, data, MTU);
    p.dma_length = 2 * MTU + 3;
    peer_send(r.d, &p);
    receive(&r, UC_WRITE_MIDDLE, psn++, data + MTU, MTU);
    receive(&r, UC_WRITE_LAST, psn++, data + 2 * MTU, 3);
    counter_wait(r.d, QRNIC_COUNTER_RX_WRITE, 1);
    rig_read(&r, 0x8000, got, 2 * MTU + 4);
    g_assert_cmpmem(got, 2 * MTU + 3, data, 2 * MTU + 3);
    g_assert_cmphex(got[2 * MTU + 3], ==, 0);
    /* Immediate data consumes a WQE without writing to its buffer. */
    post_recv(&r, 0, 4096);
    p = packet(&r, UC_WRITE_ONLY_IMM, psn++, data + 1, 6);
    p.dma_length = 6;
    peer_send(r.d, &p);
    cqe = expect_cqe(&r, &r.recv_cq, 0, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmphex(cqe.imm, ==, 0x11223344);
    g_assert_cmpuint(cqe.byte_len, ==, 6);
    rig_read(&r, 0x8000, got, 6);
    g_assert_cmpmem(got, 6, data + 1, 6);
    p.psn = psn++ & 0xffffff;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_NO_WQE, 1);
    /* A write of 0 bytes needs no key. */
    p = packet(&r, UC_WRITE_ONLY, psn++, NULL, 0);
    p.rkey ^= 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_WRITE, 3);
    expect_no_receive(&r);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Sends a write that is rejected at its first packet. Asserts that no packet of
 * the message writes a byte.
 */
static void refused_write(Rig *r, PeerPacket *p, uint32_t dma_length,
                          uint64_t drops)
{
    static const uint8_t zero[3 * MTU];
    uint8_t got[3 * MTU];

    p->dma_length = dma_length;
    peer_send(r->d, p);
    receive(r, UC_WRITE_MIDDLE, p->psn + 1, p->payload, MTU);
    counter_wait(r->d, QRNIC_COUNTER_RX_DROP_ACCESS, drops);
    counter_wait(r->d, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE, drops);
    rig_read(r, RIG_MR_LENGTH - sizeof(got), got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), zero, sizeof(zero));
}

static void test_refused_write(void)
{
    QrnicQpAttr none = { .mask = QRNIC_QP_ACCESS_FLAGS };
    uint8_t data[MTU];
    PeerPacket p;
    Rig r;

    uc_start(&r);
    fill(data, sizeof(data), 77);
    p = packet(&r, UC_WRITE_FIRST, RQ_PSN, data, MTU);
    p.va = r.mr.start + RIG_MR_LENGTH - 3 * MTU;
    refused_write(&r, &p, 3 * MTU + 1, 1);
    p.rkey ^= 1;
    refused_write(&r, &p, 3 * MTU, 2);
    p.rkey ^= 1;
    qp_modify(r.d, &r.qp, &none);
    refused_write(&r, &p, 3 * MTU, 3);
    p.dma_length = 0x80000001;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 1);
    expect_state(&r, QRNIC_QPS_RTS);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that a lost packet drops its message. The WQE receives the next
 * message.
 */
static void test_loss(void)
{
    uint8_t data[3 * MTU];
    uint32_t psn = RQ_PSN;
    Rig r;

    uc_start(&r);
    fill(data, sizeof(data), 5);
    for (unsigned i = 0; i < 3; i++) {
        post_recv(&r, i, 4096);
    }
    /* The middle packet is missing. */
    receive(&r, UC_SEND_FIRST, psn, data, MTU);
    receive(&r, UC_SEND_LAST, psn + 2, data + 2 * MTU, MTU);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE, 1);
    receive(&r, UC_SEND_MIDDLE, psn + 1, data + MTU, MTU);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE, 2);
    expect_no_receive(&r);
    receive(&r, UC_SEND_ONLY, psn + 3, data + 1, 50);
    received(&r, 0, data + 1, 50, false);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 1);
    /* The last packet is missing, so the next message ends this one. */
    receive(&r, UC_SEND_FIRST, psn + 4, data, MTU);
    receive(&r, UC_SEND_ONLY, psn + 6, data + 2, 60);
    received(&r, 1, data + 2, 60, false);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE), ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 2);
    /* A whole message is missing. */
    receive(&r, UC_SEND_ONLY, psn + 8, data + 3, 70);
    received(&r, 2, data + 3, 70, false);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_DROP_UC_SEQUENCE), ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 3);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that a message which is too long for the WQE or for a packet is
 * dropped, and that the WQE stays.
 */
static void test_length(void)
{
    uint8_t data[2 * MTU];
    uint32_t psn = RQ_PSN;
    Rig r;

    uc_start(&r);
    fill(data, sizeof(data), 6);
    post_recv(&r, 0, MTU + 10);
    receive(&r, UC_SEND_FIRST, psn++, data, MTU);
    receive(&r, UC_SEND_LAST, psn++, data + MTU, 11);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_LENGTH, 1);
    receive(&r, UC_SEND_ONLY, psn++, data, MTU + 4);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 1);
    receive(&r, UC_SEND_FIRST, psn++, data, MTU - 4);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 2);
    receive(&r, UC_SEND_FIRST, psn++, data, MTU);
    receive(&r, UC_SEND_LAST, psn++, data, 0);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 3);
    expect_no_receive(&r);
    expect_state(&r, QRNIC_QPS_RTS);
    receive(&r, UC_SEND_FIRST, psn++, data, MTU);
    receive(&r, UC_SEND_LAST, psn++, data + MTU, 10);
    received(&r, 0, data, MTU + 10, false);
    wire_silent(r.d);
    rig_stop(&r);
}

void add_unreliable_tests(void)
{
    qtest_add_func("qrnic/unreliable/send", test_send);
    qtest_add_func("qrnic/unreliable/send-imm", test_send_imm);
    qtest_add_func("qrnic/unreliable/write", test_write);
    qtest_add_func("qrnic/unreliable/write-imm", test_write_imm);
    qtest_add_func("qrnic/unreliable/sqe", test_sqe);
    qtest_add_func("qrnic/unreliable/flush", test_flush);
    qtest_add_func("qrnic/unreliable/receive", test_receive);
    qtest_add_func("qrnic/unreliable/receive-write", test_receive_write);
    qtest_add_func("qrnic/unreliable/refused-write", test_refused_write);
    qtest_add_func("qrnic/unreliable/loss", test_loss);
    qtest_add_func("qrnic/unreliable/length", test_length);
}
