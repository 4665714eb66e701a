/*
 * qrnic qtest: the device as requester, the test as responder
 *
 * Asserts the exact packets of every send opcode of RC, then ACK, NAK, RNR NAK,
 * loss and timeouts in virtual time. InfiniBand specification, 9.7.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qobject/qdict.h"
#include "qobject/qlist.h"
#include "driver.h"

#define REMOTE_VA 0x7f1234567000ull
#define REMOTE_KEY 0xabcdef12u
/* Transport timer of attr.timeout 14: 4.096 us x 2^14 */
#define ACK_TIMEOUT_NS (4096ll << 14)

static void expect_cqe(Rig *r, unsigned opcode, unsigned status,
                       uint32_t index, uint32_t byte_len)
{
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpuint(cqe.index, ==, index);
    g_assert_cmphex(cqe.qpn, ==, r->qp.number);
    if (status == QRNIC_WC_SUCCESS) {
        g_assert_cmphex(cqe.opcode, ==, opcode);
        g_assert_cmpuint(cqe.byte_len, ==, byte_len);
    }
}

static void expect_state(Rig *r, unsigned state)
{
    QrnicQpAttr a;

    qp_query(r->d, &r->qp, &a);
    g_assert_cmpstr(qrnic_qp_state_name(a.state), ==,
                    qrnic_qp_state_name(state));
}

/* Asserts the headers that come from the address vector and the GID entry. */
static void check_headers(const PeerPacket *p)
{
    g_assert_cmpmem(p->dmac, 6, PEER_MAC, 6);
    g_assert_cmpmem(p->smac, 6, OUR_MAC, 6);
    g_assert_cmpmem(p->sip, 4, OUR_IP4, 4);
    g_assert_cmpmem(p->dip, 4, PEER_IP4, 4);
    g_assert_cmphex(p->tos, ==, 0x28);
    g_assert_cmpuint(p->ttl, ==, 33);
    g_assert_cmphex(p->sport, ==, 0xc777);
    g_assert_cmpint(p->vlan, ==, -1);
    g_assert_cmphex(p->dest_qpn, ==, PEER_QPN);
}

/*
 * Asserts the three packets of 3000 bytes at MTU 1024. Only the last packet has
 * AckReq.
 */
static void check_message(Rig *r, bool write, bool imm)
{
    static const uint8_t opcodes[2][2][3] = {
        { { RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST },
          { RC_SEND_FIRST, RC_SEND_MIDDLE, RC_SEND_LAST_IMM } },
        { { RC_WRITE_FIRST, RC_WRITE_MIDDLE, RC_WRITE_LAST },
          { RC_WRITE_FIRST, RC_WRITE_MIDDLE, RC_WRITE_LAST_IMM } },
    };
    static const uint8_t wqe_opcodes[2][2] = {
        { QRNIC_WQE_SEND, QRNIC_WQE_SEND_IMM },
        { QRNIC_WQE_RDMA_WRITE, QRNIC_WQE_RDMA_WRITE_IMM },
    };
    Wqe w = wqe_begin(wqe_opcodes[write][imm],
                      QRNIC_WQEF_SIGNALED | QRNIC_WQEF_SOLICITED);
    uint8_t data[3000];

    rig_fill(r, 0, data, sizeof(data), 11);
    if (write) {
        wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    }
    if (imm) {
        w.ctrl.imm = 0x11223344;
    }
    /* The three data segments have other lengths than the packets. */
    wqe_data(&w, r->mr.start, 1000, r->mr.key);
    wqe_data(&w, r->mr.start + 1000, 1, r->mr.key);
    wqe_data(&w, r->mr.start + 1001, 1999, r->mr.key);
    sq_post(r->d, &r->qp, &w);
    for (int i = 0; i < 3; i++) {
        PeerPacket p = peer_expect(r->d, opcodes[write][imm][i], SQ_PSN + i);

        check_headers(&p);
        g_assert_cmpmem(p.payload, p.length, data + 1024 * i,
                        i < 2 ? 1024 : 952);
        g_assert_cmpuint(p.pad, ==, 0);
        g_assert_cmpint(p.ack_request, ==, i == 2);
        g_assert_cmpint(p.solicited, ==, i == 2 && (imm || !write));
        if (write && i == 0) {
            g_assert_cmphex(p.va, ==, REMOTE_VA);
            g_assert_cmphex(p.rkey, ==, REMOTE_KEY);
            g_assert_cmpuint(p.dma_length, ==, sizeof(data));
        }
        if (imm && i == 2) {
            g_assert_cmphex(p.imm, ==, 0x11223344);
        }
    }
    wire_silent(r->d);
    peer_ack(r->d, &r->qp, SQ_PSN + 2, AETH_ACK | 31, 1);
    expect_cqe(r, write ? QRNIC_CQE_RDMA_WRITE : QRNIC_CQE_SEND,
               QRNIC_WC_SUCCESS, 0, 0);
}

static void run_message(bool write, bool imm)
{
    Rig r;

    rig_start(&r, "", NULL);
    check_message(&r, write, imm);
    rig_stop(&r);
}

static void test_send(void)
{
    run_message(false, false);
}

static void test_send_imm(void)
{
    run_message(false, true);
}

static void test_write(void)
{
    run_message(true, false);
}

static void test_write_imm(void)
{
    run_message(true, true);
}

/*
 * Tests that odd lengths have pad bytes, and that a message of 0 bytes is an
 * empty packet.
 */
static void test_pad(void)
{
    Rig r;
    uint8_t data[8];

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 2);
    for (unsigned len = 0; len < 6; len++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
        PeerPacket p;

        if (len) {
            wqe_data(&w, r.mr.start, len, r.mr.key);
        }
        sq_post(r.d, &r.qp, &w);
        p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + len);
        g_assert_cmpmem(p.payload, p.length, data, len);
        g_assert_cmpuint(p.pad, ==, -len & 3);
        peer_ack(r.d, &r.qp, SQ_PSN + len, AETH_ACK | 31, len + 1);
    }
    rig_stop(&r);
}

/* Tests the number of packets of a write of 4097 bytes at every MTU. */
static void test_mtu(void)
{
    static const unsigned bytes[] = { 0, 256, 512, 1024, 2048, 4096 };

    for (unsigned mtu = QRNIC_MTU_256; mtu <= QRNIC_MTU_4096; mtu++) {
        QrnicQpAttr attr = qp_default_attr();
        Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);
        unsigned packets = DIV_ROUND_UP(4097, bytes[mtu]);
        Rig r;

        attr.path_mtu = mtu;
        rig_start(&r, "", &attr);
        wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
        wqe_data(&w, r.mr.start, 4097, r.mr.key);
        sq_post(r.d, &r.qp, &w);
        for (unsigned i = 0; i < packets; i++) {
            PeerPacket p = peer_expect(
                r.d, i == 0 ? RC_WRITE_FIRST :
                i < packets - 1 ? RC_WRITE_MIDDLE : RC_WRITE_LAST, SQ_PSN + i);

            g_assert_cmpuint(p.length, ==, i < packets - 1 ? bytes[mtu] : 1);
        }
        peer_ack(r.d, &r.qp, SQ_PSN + packets - 1, AETH_ACK | 31, 1);
        expect_cqe(&r, QRNIC_CQE_RDMA_WRITE, QRNIC_WC_SUCCESS, 0, 0);
        rig_stop(&r);
    }
}

static void test_inline(void)
{
    Rig r;
    uint8_t data[QRNIC_MAX_INLINE];
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, 0);
    PeerPacket p;

    for (unsigned i = 0; i < sizeof(data); i++) {
        data[i] = i ^ 0xa5;
    }
    rig_start(&r, "", NULL);
    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_inline(&w, data, sizeof(data));
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, data, sizeof(data));
    g_assert_cmpuint(p.dma_length, ==, sizeof(data));
    rig_stop(&r);
}

/* Tests a write that is gathered from QRNIC_MAX_SGE data segments. */
static void test_gather(void)
{
    Rig r;
    uint8_t data[QRNIC_MAX_SGE * 7], want[QRNIC_MAX_SGE * 7];
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, 0);
    PeerPacket p;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 21);
    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    for (int i = 0; i < QRNIC_MAX_SGE; i++) {
        int from = (QRNIC_MAX_SGE - 1 - i) * 7;

        wqe_data(&w, r.mr.start + from, 7, r.mr.key);
        memcpy(want + i * 7, data + from, 7);
    }
    g_assert_cmpuint(wqe_wqebbs(&w), ==, QRNIC_WQE_FETCH_WQEBB);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, want, sizeof(want));
    rig_stop(&r);
}

static void read_response(Rig *r, uint8_t opcode, uint32_t psn,
                          const uint8_t *data, size_t length, uint32_t msn)
{
    PeerPacket p = peer_packet(&r->qp, opcode, psn);

    p.payload = data;
    p.length = length;
    p.syndrome = AETH_ACK | 31;
    p.msn = msn;
    peer_send(r->d, &p);
}

static Wqe small_read(Rig *r, uint32_t length)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_READ, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_data(&w, r->mr.start, length, r->mr.key);
    return w;
}

/*
 * Tests that the response to a read is scattered, and that its packets have the
 * PSNs of the request.
 */
static void test_read(void)
{
    Rig r;
    uint8_t data[2500], got[2500];
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_READ, QRNIC_WQEF_SIGNALED);
    PeerPacket p;

    rig_start(&r, "", NULL);
    for (unsigned i = 0; i < sizeof(data); i++) {
        data[i] = i * 7;
    }
    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_data(&w, r.mr.start + 100, 1500, r.mr.key);
    wqe_data(&w, r.mr.start + 5000, 1000, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_READ_REQUEST, SQ_PSN);
    g_assert_cmphex(p.va, ==, REMOTE_VA);
    g_assert_cmphex(p.rkey, ==, REMOTE_KEY);
    g_assert_cmpuint(p.dma_length, ==, sizeof(data));
    g_assert_cmpuint(p.length, ==, 0);
    read_response(&r, RC_READ_FIRST, SQ_PSN, data, 1024, 1);
    read_response(&r, RC_READ_MIDDLE, SQ_PSN + 1, data + 1024, 1024, 1);
    settle(r.d);
    read_response(&r, RC_READ_LAST, SQ_PSN + 2, data + 2048, 452, 1);
    expect_cqe(&r, QRNIC_CQE_RDMA_READ, QRNIC_WC_SUCCESS, 0, sizeof(data));
    rig_read(&r, 100, got, 1500);
    rig_read(&r, 5000, got + 1500, 1000);
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    /* The next request has the PSN behind those of the responses. */
    w = small_read(&r, 8);
    sq_post(r.d, &r.qp, &w);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN + 3);
    rig_stop(&r);
}

static void test_atomics(void)
{
    Rig r;
    uint64_t got;
    PeerPacket p;

    rig_start(&r, "", NULL);
    for (int fetch_add = 0; fetch_add < 2; fetch_add++) {
        Wqe w = wqe_begin(fetch_add ? QRNIC_WQE_ATOMIC_FETCH_ADD :
                          QRNIC_WQE_ATOMIC_CMP_SWAP, QRNIC_WQEF_SIGNALED);

        wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
        wqe_atomic(&w, 0x1122334455667788ull,
                   fetch_add ? 0 : 0x99aabbccddeeff00ull);
        wqe_data(&w, r.mr.start + 64, 8, r.mr.key);
        sq_post(r.d, &r.qp, &w);
        p = peer_expect(r.d, fetch_add ? RC_FETCH_ADD : RC_CMP_SWAP,
                        SQ_PSN + fetch_add);
        g_assert_cmphex(p.va, ==, REMOTE_VA);
        g_assert_cmphex(p.rkey, ==, REMOTE_KEY);
        g_assert_cmphex(p.swap_add, ==, 0x1122334455667788ull);
        g_assert_cmphex(p.compare, ==, fetch_add ? 0 : 0x99aabbccddeeff00ull);
        p = peer_packet(&r.qp, RC_ATOMIC_ACK, SQ_PSN + fetch_add);
        p.syndrome = AETH_ACK | 31;
        p.msn = fetch_add + 1;
        p.original = 0x0102030405060708ull + fetch_add;
        peer_send(r.d, &p);
        expect_cqe(&r, fetch_add ? QRNIC_CQE_ATOMIC_FETCH_ADD :
                   QRNIC_CQE_ATOMIC_CMP_SWAP, QRNIC_WC_SUCCESS, fetch_add, 8);
        /* Memory has the value in host byte order: little endian here. */
        got = qtest_readq(r.d->qts, r.mr.memory + 64);
        g_assert_cmphex(got, ==, 0x0102030405060708ull + fetch_add);
    }
    rig_stop(&r);
}

/*
 * Tests that at most max_rd_atomic reads are outstanding, because the responder
 * stores that many. A fence waits for them.
 */
static void test_rd_atomic_limit(void)
{
    QrnicQpAttr attr = qp_default_attr();
    uint8_t data[8] = { 0 };
    Rig r;
    Wqe w;

    attr.max_rd_atomic = 2;
    rig_start(&r, "", &attr);
    for (int i = 0; i < 3; i++) {
        w = small_read(&r, 8);
        sq_write(r.d, &r.qp, &w);
    }
    sq_publish(r.d, &r.qp);
    sq_ring(r.d, &r.qp);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN + 1);
    wire_silent(r.d);
    read_response(&r, RC_READ_ONLY, SQ_PSN, data, 8, 1);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN + 2);
    w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_FENCE);
    sq_post(r.d, &r.qp, &w);
    wire_silent(r.d);
    read_response(&r, RC_READ_ONLY, SQ_PSN + 1, data, 8, 2);
    wire_silent(r.d);
    read_response(&r, RC_READ_ONLY, SQ_PSN + 2, data, 8, 3);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 3);
    rig_stop(&r);
}

static void post_sends(Rig *r, int count)
{
    for (int i = 0; i < count; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

        wqe_data(&w, r->mr.start + i * 16, 16, r->mr.key);
        sq_write(r->d, &r->qp, &w);
    }
    sq_publish(r->d, &r->qp);
    sq_ring(r->d, &r->qp);
}

/* Tests that one ACK acknowledges all packets before it. */
static void test_coalesced_ack(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 5);
    for (int i = 0; i < 5; i++) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
    }
    peer_ack(r.d, &r.qp, SQ_PSN + 3, AETH_ACK | 31, 4);
    for (int i = 0; i < 4; i++) {
        expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, i, 0);
    }
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.send_cq, &(QrnicCqe) { 0 }));
    /* A duplicate ACK has no effect. */
    peer_ack(r.d, &r.qp, SQ_PSN + 1, AETH_ACK | 31, 2);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.send_cq, &(QrnicCqe) { 0 }));
    peer_ack(r.d, &r.qp, SQ_PSN + 4, AETH_ACK | 31, 5);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, 4, 0);
    rig_stop(&r);
}

/* Tests that an ACK of a PSN that was never sent is dropped and counted. */
static void test_ack_unsent(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 1);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_ack(r.d, &r.qp, SQ_PSN + 7, AETH_ACK | 31, 8);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_PSN, 1);
    g_assert_false(cq_poll(r.d, &r.send_cq, &(QrnicCqe) { 0 }));
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, 0, 0);
    rig_stop(&r);
}

/*
 * Tests that after a NAK for a sequence error, the device retransmits all
 * packets from that PSN on (go-back-N).
 */
static void test_go_back_n(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 4);
    for (int i = 0; i < 4; i++) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
    }
    peer_ack(r.d, &r.qp, SQ_PSN + 1, AETH_NAK_SEQUENCE, 1);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, 0, 0);
    for (int i = 1; i < 4; i++) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_NAK_SEQUENCE), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RETRANSMISSIONS), ==, 3);
    peer_ack(r.d, &r.qp, SQ_PSN + 3, AETH_ACK | 31, 4);
    for (int i = 1; i < 4; i++) {
        expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, i, 0);
    }
    rig_stop(&r);
}

/*
 * Tests that go-back-N inside a message retransmits the rest of it with the
 * right bytes.
 */
static void test_go_back_middle(void)
{
    Rig r;
    uint8_t data[3000];
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);
    PeerPacket p;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 17);
    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_data(&w, r.mr.start, sizeof(data), r.mr.key);
    sq_post(r.d, &r.qp, &w);
    peer_expect(r.d, RC_WRITE_FIRST, SQ_PSN);
    peer_expect(r.d, RC_WRITE_MIDDLE, SQ_PSN + 1);
    peer_expect(r.d, RC_WRITE_LAST, SQ_PSN + 2);
    peer_ack(r.d, &r.qp, SQ_PSN + 1, AETH_NAK_SEQUENCE, 0);
    p = peer_expect(r.d, RC_WRITE_MIDDLE, SQ_PSN + 1);
    g_assert_cmpmem(p.payload, p.length, data + 1024, 1024);
    p = peer_expect(r.d, RC_WRITE_LAST, SQ_PSN + 2);
    g_assert_cmpmem(p.payload, p.length, data + 2048, 952);
    rig_stop(&r);
}

typedef struct NakCase {
    const char *name;
    uint8_t syndrome;
    unsigned status;
} NakCase;

static const NakCase nak_cases[] = {
    { "invalid-request", AETH_NAK_INVALID_REQUEST, QRNIC_WC_REM_INV_REQ_ERR },
    { "remote-access", AETH_NAK_REMOTE_ACCESS, QRNIC_WC_REM_ACCESS_ERR },
    { "remote-operation", AETH_NAK_REMOTE_OP, QRNIC_WC_REM_OP_ERR },
};

/* WQEs before the NAK complete, its WQE fails, later ones are flushed. */
static void test_nak(const void *data)
{
    const NakCase *c = data;
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 3);
    for (int i = 0; i < 3; i++) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
    }
    peer_ack(r.d, &r.qp, SQ_PSN + 1, c->syndrome, 1);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, 0, 0);
    expect_cqe(&r, QRNIC_CQE_SEND, c->status, 1, 0);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_WR_FLUSH_ERR, 2, 0);
    expect_state(&r, QRNIC_QPS_ERR);
    rig_stop(&r);
}

/* Tests the RNR timer. Code 1 is 0.01 ms, code 12 is 0.64 ms (table 45). */
static void test_rnr(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 2);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 1);
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_RNR_NAK | 12, 0);
    counter_wait(r.d, QRNIC_COUNTER_RX_RNR_NAK, 1);
    wire_silent(r.d);
    clock_step(r.d, 630 * 1000);
    wire_silent(r.d);
    clock_step(r.d, 20 * 1000);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 1);
    rig_stop(&r);
}

/* Tests that with rnr_retry 2 the third RNR NAK is an error. */
static void test_rnr_exceeded(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 1);
    for (int i = 0; i < 3; i++) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
        peer_ack(r.d, &r.qp, SQ_PSN, AETH_RNR_NAK | 1, 0);
        counter_wait(r.d, QRNIC_COUNTER_RX_RNR_NAK, i + 1);
        if (i < 2) {
            clock_step(r.d, 20 * 1000);
        }
    }
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_RNR_RETRY_EXC_ERR, 0, 0);
    expect_state(&r, QRNIC_QPS_ERR);
    rig_stop(&r);
}

/*
 * Tests that without an answer the device retries retry_cnt times at the
 * transport timer, then reports an error.
 */
static void test_timeout(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 1);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    for (int i = 0; i < 2; i++) {
        wire_silent(r.d);
        clock_step(r.d, ACK_TIMEOUT_NS - 100000);
        wire_silent(r.d);
        /*
         * The timer may expire between 1 and 4 times its value (InfiniBand
         * specification, 9.7.6.1.3).
         */
        clock_step(r.d, 3 * ACK_TIMEOUT_NS + 200000);
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
        counter_wait(r.d, QRNIC_COUNTER_TIMEOUTS, i + 1);
    }
    g_assert_false(cq_poll(r.d, &r.send_cq, &(QrnicCqe) { 0 }));
    clock_step(r.d, 4 * ACK_TIMEOUT_NS + 100000);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_RETRY_EXC_ERR, 0, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RETRY_EXCEEDED), ==, 1);
    expect_state(&r, QRNIC_QPS_ERR);
    rig_stop(&r);
}

/* Members of the property "queue-pairs" that a step of the test changes */
typedef struct Reported {
    const char *state;
    uint64_t fetched, completed, retransmissions;
} Reported;

/*
 * Asserts the property "queue-pairs" of the device, which has the queue pair of
 * the rig. This queue pair has an empty RQ. To read the property changes no
 * counter.
 */
static void expect_reported(Rig *r, const Reported *wanted)
{
    const struct { const char *name; uint64_t value; } member[] = {
        { "number", r->qp.number },
        { "level", 0 },
        { "dest-qpn", PEER_QPN },
        { "sq-producer", r->qp.sq_producer },
        { "sq-fetched", wanted->fetched },
        { "sq-completed", wanted->completed },
        { "rq-producer", 0 },
        { "rq-consumer", 0 },
        { "retransmissions", wanted->retransmissions },
    };
    uint64_t commands = counter(r->d, QRNIC_COUNTER_COMMANDS);
    QDict *rsp = qtest_qmp(r->d->home, "{'execute': 'qom-get', 'arguments': {"
                           "'path': '/machine/peripheral/qrnic', "
                           "'property': 'queue-pairs'}}");
    QList *list = qdict_get_qlist(rsp, "return");
    QDict *pair = qobject_to(QDict, qlist_peek(list));

    g_assert_cmpuint(qlist_size(list), ==, 1);
    g_assert_cmpstr(qdict_get_str(pair, "type"), ==, "RC");
    g_assert_cmpstr(qdict_get_str(pair, "state"), ==, wanted->state);
    for (unsigned i = 0; i < ARRAY_SIZE(member); i++) {
        uint64_t found = qdict_get_int(pair, member[i].name);

        if (found != member[i].value) {
            g_error("%s is %" PRIu64 ", expected %" PRIu64, member[i].name,
                    found, member[i].value);
        }
    }
    qobject_unref(rsp);
    /* One command reads the counters. */
    g_assert_cmpuint(counter(r->d, QRNIC_COUNTER_COMMANDS), ==, commands + 1);
}

/* Tests the property "queue-pairs" while packets are lost and retransmitted. */
static void test_report(void)
{
    Rig r;
    uint32_t posted;

    rig_start(&r, "", NULL);
    expect_reported(&r, &(Reported) { "RTS" });
    post_sends(&r, 2);
    posted = r.qp.sq_producer;
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 1);
    wire_silent(r.d);
    expect_reported(&r, &(Reported) { "RTS", posted });
    clock_step(r.d, 4 * ACK_TIMEOUT_NS + 100000);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 1);
    wire_silent(r.d);
    expect_reported(&r, &(Reported) { "RTS", posted, 0, 2 });
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, 0, 0);
    expect_reported(&r, &(Reported) { "RTS", posted, posted / 2, 2 });
    peer_ack(r.d, &r.qp, SQ_PSN + 1, AETH_ACK | 31, 2);
    expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, posted / 2, 0);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    });
    expect_reported(&r, &(Reported) { "ERR", posted, posted, 2 });
    rig_stop(&r);
}

/* Progress restores the number of retries. */
static void test_timeout_progress(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 4; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

        sq_post(r.d, &r.qp, &w);
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
        clock_step(r.d, 4 * ACK_TIMEOUT_NS + 100000);
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
        peer_ack(r.d, &r.qp, SQ_PSN + i, AETH_ACK | 31, i + 1);
        expect_cqe(&r, QRNIC_CQE_SEND, QRNIC_WC_SUCCESS, i, 0);
    }
    rig_stop(&r);
}

/*
 * Tests a read whose second response packet is missing. The device repeats the
 * read from that packet on.
 */
static void test_read_hole(void)
{
    Rig r;
    uint8_t data[3072] = { 0 };
    Wqe w;
    PeerPacket p;

    rig_start(&r, "", NULL);
    w = small_read(&r, sizeof(data));
    sq_post(r.d, &r.qp, &w);
    peer_expect(r.d, RC_READ_REQUEST, SQ_PSN);
    read_response(&r, RC_READ_FIRST, SQ_PSN, data, 1024, 1);
    read_response(&r, RC_READ_LAST, SQ_PSN + 2, data + 2048, 1024, 1);
    p = peer_expect(r.d, RC_READ_REQUEST, SQ_PSN + 1);
    g_assert_cmphex(p.va, ==, REMOTE_VA + 1024);
    g_assert_cmpuint(p.dma_length, ==, 2048);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_IMPLIED_NAK), ==, 1);
    read_response(&r, RC_READ_FIRST, SQ_PSN + 1, data + 1024, 1024, 1);
    read_response(&r, RC_READ_LAST, SQ_PSN + 2, data + 2048, 1024, 1);
    expect_cqe(&r, QRNIC_CQE_RDMA_READ, QRNIC_WC_SUCCESS, 0, sizeof(data));
    rig_stop(&r);
}

/*
 * Tests that IPv6 packets in a VLAN have the tag of the GID entry and the
 * priority of the address vector.
 */
static void test_ipv6_vlan(void)
{
    QrnicQpAttr attr = qp_default_attr();
    QrnicGidEntry gid = {
        .gid = { 0xfd, 0x77, [15] = 1 }, .mac = { 2, 0, 0, 0, 0, 9 },
        .vlan_id = 77, .flags = QRNIC_GID_VALID | QRNIC_GID_VLAN,
    };
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    qrnic_gid_entry_pack(raw, &gid);
    command_ok(r.d, QRNIC_CMD_SET_GID, 1, raw, sizeof(raw), NULL, 0);
    memset(attr.av.dgid, 0, 16);
    attr.av.dgid[0] = 0xfd;
    attr.av.dgid[15] = 2;
    attr.av.sgid_index = 1;
    attr.av.flow_label = 0xabcde;
    attr.av.sl = 5;
    qp_create(r.d, &r.qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              4, 2, 0);
    qp_connect(r.d, &r.qp, &attr);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_true(p.ipv6);
    g_assert_cmpint(p.vlan, ==, 5 << 13 | 77);
    g_assert_cmphex(p.flow_label, ==, 0xabcde);
    g_assert_cmpmem(p.sip, 16, gid.gid, 16);
    g_assert_cmpmem(p.dip, 16, attr.av.dgid, 16);
    g_assert_cmpmem(p.smac, 6, gid.mac, 6);
    rig_stop(&r);
}

/*
 * Tests a queue pair that moves to SQD. Outstanding WQEs complete, no new WQE
 * begins, and then the event is sent.
 */
static void test_drain(void)
{
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, "", NULL);
    post_sends(&r, 1);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_EN_SQD_ASYNC_NOTIFY,
        .state = QRNIC_QPS_SQD, .sq_drained_notify = 1,
    });
    post_sends(&r, 1);
    wire_silent(r.d);
    g_assert_false(eq_poll(r.d, &r.async, &eqe));
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    eq_wait(r.d, &r.async, &eqe);
    while (eqe.type == QRNIC_EVENT_COMM_EST) {
        eq_wait(r.d, &r.async, &eqe);
    }
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_SQ_DRAINED);
    wire_silent(r.d);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTS,
    });
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 1);
    rig_stop(&r);
}

/* Tests that two queue pairs of one device use loopback, not the wire. */
static void test_loopback(void)
{
    QrnicQpAttr attr = qp_default_attr();
    QrnicDataSeg sge;
    uint8_t data[2000], got[2000];
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;
    Qp a, b;
    Rig r;

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 4);
    qp_create(r.d, &a, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq, 4,
              2, 0);
    qp_create(r.d, &b, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq, 4,
              2, 0);
    memcpy(attr.av.dgid + 12, OUR_IP4, 4);
    memcpy(attr.av.dmac, OUR_MAC, 6);
    attr.rq_psn = attr.sq_psn;
    attr.dest_qpn = b.number;
    qp_connect(r.d, &a, &attr);
    attr.dest_qpn = a.number;
    qp_connect(r.d, &b, &attr);
    sge = (QrnicDataSeg) {
        .address = r.mr.start + 8192, .length = 4096, .lkey = r.mr.key,
    };
    rq_post(r.d, &b, &sge, 1);
    wqe_data(&w, r.mr.start, sizeof(data), r.mr.key);
    sq_post(r.d, &a, &w);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.byte_len, ==, sizeof(data));
    g_assert_cmpuint(cqe.qpn, ==, b.number);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    rig_read(&r, 8192, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS), >=, 3);
    wire_silent(r.d);
    rig_stop(&r);
}

void add_requester_tests(void)
{
    qtest_add_func("qrnic/requester/send", test_send);
    qtest_add_func("qrnic/requester/send-imm", test_send_imm);
    qtest_add_func("qrnic/requester/write", test_write);
    qtest_add_func("qrnic/requester/write-imm", test_write_imm);
    qtest_add_func("qrnic/requester/pad", test_pad);
    qtest_add_func("qrnic/requester/mtu", test_mtu);
    qtest_add_func("qrnic/requester/inline", test_inline);
    qtest_add_func("qrnic/requester/gather", test_gather);
    qtest_add_func("qrnic/requester/read", test_read);
    qtest_add_func("qrnic/requester/atomics", test_atomics);
    qtest_add_func("qrnic/requester/rd-atomic-limit", test_rd_atomic_limit);
    qtest_add_func("qrnic/requester/coalesced-ack", test_coalesced_ack);
    qtest_add_func("qrnic/requester/ack-unsent", test_ack_unsent);
    qtest_add_func("qrnic/requester/go-back-n", test_go_back_n);
    qtest_add_func("qrnic/requester/go-back-middle", test_go_back_middle);
    for (unsigned i = 0; i < ARRAY_SIZE(nak_cases); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/requester/nak-%s",
                                                nak_cases[i].name);

        qtest_add_data_func(path, &nak_cases[i], test_nak);
    }
    qtest_add_func("qrnic/requester/rnr", test_rnr);
    qtest_add_func("qrnic/requester/rnr-exceeded", test_rnr_exceeded);
    qtest_add_func("qrnic/requester/timeout", test_timeout);
    qtest_add_func("qrnic/requester/timeout-progress", test_timeout_progress);
    qtest_add_func("qrnic/requester/report", test_report);
    qtest_add_func("qrnic/requester/read-hole", test_read_hole);
    qtest_add_func("qrnic/requester/ipv6-vlan", test_ipv6_vlan);
    qtest_add_func("qrnic/requester/drain", test_drain);
    qtest_add_func("qrnic/requester/loopback", test_loopback);
}
