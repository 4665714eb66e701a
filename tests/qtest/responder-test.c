/*
 * qrnic qtest: the device as responder, the test as requester
 *
 * Sends crafted frames of each opcode of RC and asserts the exact responses,
 * then sends every error that a wire peer can make. InfiniBand specification,
 * 9.7.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

static PeerPacket expect_ack(Rig *r, uint32_t psn, uint32_t msn)
{
    PeerPacket p = peer_expect(r->d, RC_ACK, psn);

    g_assert_cmphex(p.syndrome >> 5, ==, 0);
    g_assert_cmpuint(p.msn, ==, msn);
    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmpmem(p.dip, 4, PEER_IP4, 4);
    g_assert_cmpmem(p.dmac, 6, PEER_MAC, 6);
    g_assert_cmpuint(p.length, ==, 0);
    return p;
}

static void expect_nak(Rig *r, uint32_t psn, uint8_t syndrome)
{
    PeerPacket p = peer_expect(r->d, RC_ACK, psn);

    g_assert_cmphex(p.syndrome, ==, syndrome);
}

static void expect_state(Rig *r, unsigned state)
{
    QrnicQpAttr a;

    qp_query(r->d, &r->qp, &a);
    g_assert_cmpstr(qrnic_qp_state_name(a.state), ==,
                    qrnic_qp_state_name(state));
}

static void post_recv(Rig *r, uint64_t offset, uint32_t length)
{
    QrnicDataSeg sge = {
        .address = r->mr.start + offset, .length = length, .lkey = r->mr.key,
    };

    rq_post(r->d, &r->qp, &sge, 1);
}

static void send_packet(Rig *r, uint8_t opcode, uint32_t psn,
                        const uint8_t *data, size_t length, bool ack_request)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.payload = data;
    p.length = length;
    p.ack_request = ack_request;
    p.imm = 0xcafef00d;
    peer_send(r->d, &p);
}

static void write_packet(Rig *r, uint8_t opcode, uint32_t psn, uint64_t offset,
                         const uint8_t *data, size_t length, uint32_t total,
                         bool ack_request)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.va = r->mr.start + offset;
    p.rkey = r->mr.key;
    p.dma_length = total;
    p.payload = data;
    p.length = length;
    p.ack_request = ack_request;
    p.imm = 0xcafef00d;
    peer_send(r->d, &p);
}

static void pattern(uint8_t *data, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        data[i] = i * 13 + (i >> 8) + seed;
    }
}

/*
 * Tests a message of three packets that a receive WQE with three segments
 * scatters. The PSN wraps between the packets.
 */
static void test_send(void)
{
    uint8_t data[2500], got[2500];
    QrnicDataSeg sge[3];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 1);
    sge[0] = (QrnicDataSeg) { r.mr.start + 10, 1000, r.mr.key };
    sge[1] = (QrnicDataSeg) { r.mr.start + 4096, 500, r.mr.key };
    sge[2] = (QrnicDataSeg) { r.mr.start + 8192, 4096, r.mr.key };
    rq_post(r.d, &r.qp, sge, 3);
    send_packet(&r, RC_SEND_FIRST, RQ_PSN, data, 1024, false);
    send_packet(&r, RC_SEND_MIDDLE, RQ_PSN + 1, data + 1024, 1024, false);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    send_packet(&r, RC_SEND_LAST_IMM, RQ_PSN + 2, data + 2048, 452, true);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV);
    g_assert_cmpuint(cqe.byte_len, ==, sizeof(data));
    g_assert_cmphex(cqe.flags, ==, QRNIC_CQEF_IMM);
    g_assert_cmphex(cqe.imm, ==, 0xcafef00d);
    g_assert_cmpuint(cqe.index, ==, 0);
    expect_ack(&r, RQ_PSN + 2, 1);
    rig_read(&r, 10, got, 1000);
    rig_read(&r, 4096, got + 1000, 500);
    rig_read(&r, 8192, got + 1500, 1000);
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_SEND), ==, 1);
    rig_stop(&r);
}

static void test_send_only(void)
{
    uint8_t data[13], got[13];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 4; i++) {
        post_recv(&r, 64 * i, 64);
    }
    for (int i = 0; i < 4; i++) {
        pattern(data, sizeof(data), i);
        send_packet(&r, i & 1 ? RC_SEND_ONLY_IMM : RC_SEND_ONLY, RQ_PSN + i,
                    data, sizeof(data), true);
        expect_ack(&r, RQ_PSN + i, i + 1);
        cq_wait(r.d, &r.recv_cq, &cqe);
        g_assert_cmpuint(cqe.byte_len, ==, sizeof(data));
        g_assert_cmphex(cqe.flags & QRNIC_CQEF_IMM, ==, i & 1);
        rig_read(&r, 64 * i, got, sizeof(got));
        g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    }
    rig_stop(&r);
}

/*
 * Tests an empty message in a frame that is padded to the 60 bytes of Ethernet.
 */
static void test_short_frame(void)
{
    uint8_t frame[PEER_FRAME_MAX] = { 0 };
    PeerPacket p;
    QrnicCqe cqe;
    size_t len;
    Rig r;

    rig_start(&r, "", NULL);
    rq_post(r.d, &r.qp, NULL, 0);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    p.ack_request = true;
    len = peer_encode(&p, frame);
    g_assert_cmpuint(len, <, 60);
    wire_send(r.d, frame, 60);
    expect_ack(&r, RQ_PSN, 1);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.byte_len, ==, 0);
    rig_stop(&r);
}

static void test_write(void)
{
    uint8_t data[2500], got[2500];
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 2);
    write_packet(&r, RC_WRITE_FIRST, RQ_PSN, 333, data, 1024, sizeof(data),
                 false);
    write_packet(&r, RC_WRITE_MIDDLE, RQ_PSN + 1, 0, data + 1024, 1024, 0,
                 false);
    write_packet(&r, RC_WRITE_LAST, RQ_PSN + 2, 0, data + 2048, 452, 0, true);
    expect_ack(&r, RQ_PSN + 2, 1);
    rig_read(&r, 333, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    g_assert_false(cq_poll(r.d, &r.recv_cq, &(QrnicCqe) { 0 }));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_WRITE), ==, 1);
    rig_stop(&r);
}

/* Tests that a write with immediate data also consumes a receive WQE. */
static void test_write_imm(void)
{
    uint8_t data[100], got[100];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 3);
    rq_post(r.d, &r.qp, NULL, 0);
    write_packet(&r, RC_WRITE_ONLY_IMM, RQ_PSN, 0, data, sizeof(data),
                 sizeof(data), true);
    expect_ack(&r, RQ_PSN, 1);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV_RDMA_WITH_IMM);
    g_assert_cmpuint(cqe.byte_len, ==, sizeof(data));
    g_assert_cmphex(cqe.imm, ==, 0xcafef00d);
    rig_read(&r, 0, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    rig_stop(&r);
}

/*
 * Tests that a write of 0 bytes needs no key (InfiniBand specification,
 * 9.7.4.1.2).
 */
static void test_write_empty(void)
{
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    p = peer_packet(&r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.rkey = 0xdeadbeef;
    p.ack_request = true;
    peer_send(r.d, &p);
    expect_ack(&r, RQ_PSN, 1);
    rig_stop(&r);
}

static void read_request(Rig *r, uint32_t psn, uint64_t offset,
                         uint32_t length)
{
    PeerPacket p = peer_packet(&r->qp, RC_READ_REQUEST, psn);

    p.va = r->mr.start + offset;
    p.rkey = r->mr.key;
    p.dma_length = length;
    peer_send(r->d, &p);
}

static void expect_read(Rig *r, uint8_t opcode, uint32_t psn,
                        const uint8_t *data, size_t length, uint32_t msn)
{
    PeerPacket p = peer_expect(r->d, opcode, psn);

    g_assert_cmpmem(p.payload, p.length, data, length);
    if (peer_has_aeth(opcode)) {
        g_assert_cmphex(p.syndrome >> 5, ==, 0);
        g_assert_cmpuint(p.msn, ==, msn);
    }
}

static void test_read(void)
{
    uint8_t data[2500];
    Rig r;

    rig_start(&r, "", NULL);
    rig_fill(&r, 77, data, sizeof(data), 31);
    read_request(&r, RQ_PSN, 77, sizeof(data));
    expect_read(&r, RC_READ_FIRST, RQ_PSN, data, 1024, 1);
    expect_read(&r, RC_READ_MIDDLE, RQ_PSN + 1, data + 1024, 1024, 1);
    expect_read(&r, RC_READ_LAST, RQ_PSN + 2, data + 2048, 452, 1);
    read_request(&r, RQ_PSN + 3, 77, 5);
    expect_read(&r, RC_READ_ONLY, RQ_PSN + 3, data, 5, 2);
    read_request(&r, RQ_PSN + 4, 77, 0);
    expect_read(&r, RC_READ_ONLY, RQ_PSN + 4, data, 0, 3);
    /*
     * The duplicate requests the end of the read. The MSN is that of the
     * original request.
     */
    read_request(&r, RQ_PSN + 1, 77 + 1024, 1476);
    expect_read(&r, RC_READ_FIRST, RQ_PSN + 1, data + 1024, 1024, 1);
    expect_read(&r, RC_READ_LAST, RQ_PSN + 2, data + 2048, 452, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 1);
    rig_stop(&r);
}

static void atomic_request(Rig *r, uint8_t opcode, uint32_t psn,
                           uint64_t offset, uint64_t swap_add,
                           uint64_t compare)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.va = r->mr.start + offset;
    p.rkey = r->mr.key;
    p.swap_add = swap_add;
    p.compare = compare;
    peer_send(r->d, &p);
}

static void expect_atomic(Rig *r, uint32_t psn, uint64_t original)
{
    PeerPacket p = peer_expect(r->d, RC_ATOMIC_ACK, psn);

    g_assert_cmphex(p.syndrome >> 5, ==, 0);
    g_assert_cmphex(p.original, ==, original);
}

/*
 * Tests that an atomic is executed once. A duplicate receives the stored
 * response, because a second execution would change memory again.
 */
static void test_atomics(void)
{
    uint64_t at;
    Rig r;

    rig_start(&r, "", NULL);
    at = r.mr.memory + 256;
    qtest_writeq(r.d->qts, at, 100);
    atomic_request(&r, RC_FETCH_ADD, RQ_PSN, 256, 5, 0);
    expect_atomic(&r, RQ_PSN, 100);
    g_assert_cmpuint(qtest_readq(r.d->qts, at), ==, 105);
    atomic_request(&r, RC_CMP_SWAP, RQ_PSN + 1, 256, 7, 105);
    expect_atomic(&r, RQ_PSN + 1, 105);
    g_assert_cmpuint(qtest_readq(r.d->qts, at), ==, 7);
    atomic_request(&r, RC_CMP_SWAP, RQ_PSN + 2, 256, 9, 8);
    expect_atomic(&r, RQ_PSN + 2, 7);
    g_assert_cmpuint(qtest_readq(r.d->qts, at), ==, 7);
    atomic_request(&r, RC_FETCH_ADD, RQ_PSN, 256, 5, 0);
    expect_atomic(&r, RQ_PSN, 100);
    g_assert_cmpuint(qtest_readq(r.d->qts, at), ==, 7);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_ATOMIC), ==, 3);
    rig_stop(&r);
}

static void test_atomic_misaligned(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    atomic_request(&r, RC_FETCH_ADD, RQ_PSN, 4, 5, 0);
    expect_nak(&r, RQ_PSN, AETH_NAK_INVALID_REQUEST);
    expect_state(&r, QRNIC_QPS_ERR);
    rig_stop(&r);
}

static void test_atomic_switched_off(void)
{
    Rig r;

    rig_start(&r, "cap-atomic=off", NULL);
    atomic_request(&r, RC_FETCH_ADD, RQ_PSN, 0, 5, 0);
    expect_nak(&r, RQ_PSN, AETH_NAK_INVALID_REQUEST);
    rig_stop(&r);
}

/* Duplicates of sends and writes are acknowledged, but not executed. */
static void test_duplicates(void)
{
    uint8_t data[64], other[64], got[64];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 5);
    pattern(other, sizeof(other), 99);
    post_recv(&r, 0, 64);
    post_recv(&r, 64, 64);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, data, sizeof(data), true);
    expect_ack(&r, RQ_PSN, 1);
    cq_wait(r.d, &r.recv_cq, &cqe);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, other, sizeof(other), true);
    expect_ack(&r, RQ_PSN, 1);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    rig_read(&r, 0, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    write_packet(&r, RC_WRITE_ONLY, RQ_PSN + 1, 512, data, 64, 64, true);
    expect_ack(&r, RQ_PSN + 1, 2);
    write_packet(&r, RC_WRITE_ONLY, RQ_PSN + 1, 512, other, 64, 64, true);
    expect_ack(&r, RQ_PSN + 1, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 2);
    rig_stop(&r);
}

/*
 * Tests that a missing PSN causes one NAK with the expected PSN. Later packets
 * are dropped until the missing one arrives.
 */
static void test_sequence_error(void)
{
    uint8_t data[16];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 6);
    for (int i = 0; i < 3; i++) {
        post_recv(&r, 64 * i, 64);
    }
    send_packet(&r, RC_SEND_ONLY, RQ_PSN + 1, data, sizeof(data), true);
    expect_nak(&r, RQ_PSN, AETH_NAK_SEQUENCE);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN + 2, data, sizeof(data), true);
    counter_wait(r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE, 2);
    wire_silent(r.d);
    for (int i = 0; i < 3; i++) {
        send_packet(&r, RC_SEND_ONLY, RQ_PSN + i, data, sizeof(data), true);
        expect_ack(&r, RQ_PSN + i, i + 1);
        cq_wait(r.d, &r.recv_cq, &cqe);
        g_assert_cmpuint(cqe.index, ==, i);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    rig_stop(&r);
}

/*
 * Tests that the device sends an RNR NAK with its own timer if there is no
 * receive WQE. The device receives the message after a WQE was posted.
 */
static void test_rnr(void)
{
    uint8_t data[16];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 7);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, data, sizeof(data), true);
    expect_nak(&r, RQ_PSN, AETH_RNR_NAK | 12);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_RNR_NAK), ==, 1);
    /*
     * The last ACK had no credits, so the device reports new credits by itself.
     */
    post_recv(&r, 0, 64);
    expect_ack(&r, RQ_PSN - 1, 0);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, data, sizeof(data), true);
    expect_ack(&r, RQ_PSN, 1);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    /*
     * The test rings no doorbell, because the device reads the software
     * doorbell before it sends an RNR NAK.
     */
    {
        QrnicDataSeg sge = { r.mr.start, 64, r.mr.key };

        rq_write(r.d, &r.qp, &sge, 1);
    }
    send_packet(&r, RC_SEND_ONLY, RQ_PSN + 1, data, sizeof(data), true);
    expect_ack(&r, RQ_PSN + 1, 2);
    rig_stop(&r);
}

/* ACKs have the credits of the receive queue (table 44: code 2 is 2). */
static void test_credits(void)
{
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 3; i++) {
        post_recv(&r, 0, 64);
    }
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, NULL, 0, true);
    p = expect_ack(&r, RQ_PSN, 1);
    g_assert_cmphex(p.syndrome & 31, ==, 2);
    rig_stop(&r);
}

/*
 * Tests that a message longer than the receive buffers is an invalid request on
 * both sides.
 */
static void test_too_long(void)
{
    uint8_t data[128];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 8);
    post_recv(&r, 0, 100);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, data, sizeof(data), true);
    expect_nak(&r, RQ_PSN, AETH_NAK_INVALID_REQUEST);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "LOC_LEN_ERR");
    expect_state(&r, QRNIC_QPS_ERR);
    rig_stop(&r);
}

/*
 * Tests that an invalid key of the receive buffer is a remote operational
 * error.
 */
static void test_recv_key(void)
{
    QrnicDataSeg sge;
    uint8_t data[32];
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 9);
    sge = (QrnicDataSeg) { r.mr.start, 64, r.mr.key ^ 1 };
    rq_post(r.d, &r.qp, &sge, 1);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, data, sizeof(data), true);
    expect_nak(&r, RQ_PSN, AETH_NAK_REMOTE_OP);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_PROT_ERR);
    expect_state(&r, QRNIC_QPS_ERR);
    rig_stop(&r);
}

/* Rights of the queue pair limit those of the key. */
static void test_qp_rights(void)
{
    for (int i = 0; i < 3; i++) {
        QrnicQpAttr attr = qp_default_attr();
        uint8_t data[8] = { 0 };
        Rig r;

        attr.access = i == 0 ? QRNIC_ACCESS_REMOTE_READ :
                               QRNIC_ACCESS_REMOTE_WRITE;
        rig_start(&r, "", &attr);
        if (i == 0) {
            write_packet(&r, RC_WRITE_ONLY, RQ_PSN, 0, data, 8, 8, true);
        } else if (i == 1) {
            read_request(&r, RQ_PSN, 0, 8);
        } else {
            atomic_request(&r, RC_CMP_SWAP, RQ_PSN, 0, 1, 2);
        }
        {
            PeerPacket p = peer_expect(r.d, RC_ACK, RQ_PSN);

            g_assert_true(p.syndrome == AETH_NAK_INVALID_REQUEST ||
                          p.syndrome == AETH_NAK_REMOTE_ACCESS);
        }
        expect_state(&r, QRNIC_QPS_ERR);
        rig_stop(&r);
    }
}

/*
 * Tests that invalid sequences of opcodes get a NAK for an invalid request
 * (InfiniBand specification, 9.7.4.1.2).
 */
static void test_opcode_sequence(void)
{
    static const uint8_t bad[][2] = {
        { RC_SEND_MIDDLE, 0xff }, { RC_SEND_LAST, 0xff },
        { RC_WRITE_MIDDLE, 0xff }, { RC_WRITE_LAST, 0xff },
        { RC_SEND_FIRST, RC_WRITE_MIDDLE }, { RC_SEND_FIRST, RC_SEND_ONLY },
        { RC_WRITE_FIRST, RC_SEND_LAST }, { RC_WRITE_FIRST, RC_READ_REQUEST },
    };
    uint8_t data[1024];

    pattern(data, sizeof(data), 10);
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        Rig r;
        int last = bad[i][1] != 0xff;

        rig_start(&r, "", NULL);
        post_recv(&r, 0, 4096);
        for (int j = 0; j <= last; j++) {
            if (peer_has_reth(bad[i][j])) {
                write_packet(&r, bad[i][j], RQ_PSN + j, 0, data,
                             bad[i][j] == RC_READ_REQUEST ? 0 : 1024, 2048,
                             false);
            } else {
                send_packet(&r, bad[i][j], RQ_PSN + j, data, 1024, false);
            }
        }
        expect_nak(&r, RQ_PSN + last, AETH_NAK_INVALID_REQUEST);
        expect_state(&r, QRNIC_QPS_ERR);
        rig_stop(&r);
    }
}

/*
 * Tests that first and middle packets must have exactly one MTU, and that last
 * and only packets must have at most one.
 */
static void test_packet_length(void)
{
    static const struct {
        uint8_t opcode;
        size_t length;
        uint32_t total;
    } bad[] = {
        { RC_SEND_FIRST, 1020, 0 }, { RC_SEND_FIRST, 1028, 0 },
        { RC_SEND_ONLY, 1028, 0 }, { RC_WRITE_FIRST, 1000, 2048 },
        { RC_WRITE_ONLY, 100, 200 }, { RC_WRITE_ONLY, 200, 100 },
        { RC_WRITE_FIRST, 1024, 1024 }, { RC_WRITE_FIRST, 1024, 0x80000001u },
    };
    uint8_t data[1100];

    pattern(data, sizeof(data), 11);
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        Rig r;

        rig_start(&r, "", NULL);
        post_recv(&r, 0, 4096);
        write_packet(&r, bad[i].opcode, RQ_PSN, 0, data, bad[i].length,
                     bad[i].total, true);
        /* The key's range rejects a length beyond the region. */
        {
            PeerPacket p = peer_expect(r.d, RC_ACK, RQ_PSN);

            g_assert_true(p.syndrome == AETH_NAK_INVALID_REQUEST ||
                          (bad[i].total > RIG_MR_LENGTH &&
                           p.syndrome == AETH_NAK_REMOTE_ACCESS));
        }
        expect_state(&r, QRNIC_QPS_ERR);
        rig_stop(&r);
    }
}

/*
 * Reads need responder resources (9.7.4.1.2), because a duplicate must be
 * answered again.
 */
static void test_read_without_resources(void)
{
    QrnicQpAttr attr = qp_default_attr();
    Rig r;

    attr.max_dest_rd_atomic = 0;
    rig_start(&r, "", &attr);
    read_request(&r, RQ_PSN, 0, 8);
    expect_nak(&r, RQ_PSN, AETH_NAK_INVALID_REQUEST);
    rig_stop(&r);
}

typedef struct DropCase {
    const char *name;
    void (*spoil)(PeerPacket *p);
    enum qrnic_counter counter;
} DropCase;

static void spoil_icrc(PeerPacket *p)
{
    p->icrc_flip = 0x00010000;
}

static void spoil_qpn(PeerPacket *p)
{
    p->dest_qpn ^= 0x00800000;
}

static void spoil_opcode(PeerPacket *p)
{
    p->opcode = 0x1e;
}

static void spoil_service(PeerPacket *p)
{
    static const uint8_t deth[8];

    /* The packet is a UD send only to an RC queue pair. */
    p->opcode = 0x64;
    p->payload = deth;
    p->length = sizeof(deth);
}

static void spoil_pkey(PeerPacket *p)
{
    p->pkey = 0x1234;
}

static void spoil_version(PeerPacket *p)
{
    p->tver = 1;
}

static void spoil_source(PeerPacket *p)
{
    p->sip[3] = 99;
}

static void spoil_udp_length(PeerPacket *p)
{
    p->udp_length_delta = 8;
}

static void spoil_response_psn(PeerPacket *p)
{
    p->opcode = RC_ACK;
    p->syndrome = AETH_ACK | 31;
    p->psn = 0x700000;
}

static const DropCase drop_cases[] = {
    { "icrc", spoil_icrc, QRNIC_COUNTER_RX_DROP_ICRC },
    { "no-qp", spoil_qpn, QRNIC_COUNTER_RX_DROP_NO_QP },
    { "opcode", spoil_opcode, QRNIC_COUNTER_RX_DROP_OPCODE },
    { "service", spoil_service, QRNIC_COUNTER_RX_DROP_OPCODE },
    { "pkey", spoil_pkey, QRNIC_COUNTER_RX_DROP_PKEY },
    { "version", spoil_version, QRNIC_COUNTER_RX_DROP_MALFORMED },
    { "source", spoil_source, QRNIC_COUNTER_RX_DROP_ADDRESS },
    { "udp-length", spoil_udp_length, QRNIC_COUNTER_RX_DROP_MALFORMED },
    { "response-psn", spoil_response_psn, QRNIC_COUNTER_RX_DROP_PSN },
};

/*
 * Tests that the device drops the packet without a response and counts it, and
 * that the connection continues.
 */
static void test_drop(const void *data)
{
    const DropCase *c = data;
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    rq_post(r.d, &r.qp, NULL, 0);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    p.ack_request = true;
    c->spoil(&p);
    peer_send(r.d, &p);
    counter_wait(r.d, c->counter, 1);
    wire_silent(r.d);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, NULL, 0, true);
    expect_ack(&r, RQ_PSN, 1);
    rig_stop(&r);
}

/* Tests that every truncation of a valid frame is dropped. */
static void test_truncated(void)
{
    uint8_t frame[PEER_FRAME_MAX], data[8];
    PeerPacket p;
    size_t len;
    Rig r;

    rig_start(&r, "", NULL);
    pattern(data, sizeof(data), 12);
    p = peer_packet(&r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.va = r.mr.start;
    p.rkey = r.mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = true;
    len = peer_encode(&p, frame);
    for (size_t i = wire_shortest(r.d); i < len; i++) {
        wire_send(r.d, frame, i);
        settle(r.d);
    }
    wire_silent(r.d);
    wire_send(r.d, frame, len);
    expect_ack(&r, RQ_PSN, 1);
    rig_stop(&r);
}

static void test_not_ready(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    });
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, NULL, 0, true);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_QP_STATE, 1);
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests that the first packet in RTR establishes the communication. */
static void test_comm_est(void)
{
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, "", NULL);
    qp_create(r.d, &r.qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              4, 2, 0);
    qp_to_rtr(r.d, &r.qp, NULL);
    rq_post(r.d, &r.qp, NULL, 0);
    send_packet(&r, RC_SEND_ONLY, RQ_PSN, NULL, 0, true);
    expect_ack(&r, RQ_PSN, 1);
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_COMM_EST);
    g_assert_cmpuint(eqe.object, ==, r.qp.number);
    rig_stop(&r);
}

void add_responder_tests(void)
{
    qtest_add_func("qrnic/responder/send", test_send);
    qtest_add_func("qrnic/responder/send-only", test_send_only);
    qtest_add_func("qrnic/responder/short-frame", test_short_frame);
    qtest_add_func("qrnic/responder/write", test_write);
    qtest_add_func("qrnic/responder/write-imm", test_write_imm);
    qtest_add_func("qrnic/responder/write-empty", test_write_empty);
    qtest_add_func("qrnic/responder/read", test_read);
    qtest_add_func("qrnic/responder/atomics", test_atomics);
    qtest_add_func("qrnic/responder/atomic-misaligned",
                   test_atomic_misaligned);
    qtest_add_func("qrnic/responder/atomic-switched-off",
                   test_atomic_switched_off);
    qtest_add_func("qrnic/responder/duplicates", test_duplicates);
    qtest_add_func("qrnic/responder/sequence-error", test_sequence_error);
    qtest_add_func("qrnic/responder/rnr", test_rnr);
    qtest_add_func("qrnic/responder/credits", test_credits);
    qtest_add_func("qrnic/responder/too-long", test_too_long);
    qtest_add_func("qrnic/responder/recv-key", test_recv_key);
    qtest_add_func("qrnic/responder/qp-rights", test_qp_rights);
    qtest_add_func("qrnic/responder/opcode-sequence", test_opcode_sequence);
    qtest_add_func("qrnic/responder/packet-length", test_packet_length);
    qtest_add_func("qrnic/responder/read-without-resources",
                   test_read_without_resources);
    for (unsigned i = 0; i < ARRAY_SIZE(drop_cases); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/responder/drop-%s",
                                                drop_cases[i].name);

        qtest_add_data_func(path, &drop_cases[i], test_drop);
    }
    qtest_add_func("qrnic/responder/truncated", test_truncated);
    qtest_add_func("qrnic/responder/not-ready", test_not_ready);
    qtest_add_func("qrnic/responder/comm-est", test_comm_est);
}
