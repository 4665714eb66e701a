/*
 * qrnic qtest: congestion control on the wire: ECT, a CNP for a CE mark, and
 * the effect of a CNP
 *
 * Programmer's Reference, chapter Congestion control.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define CNP 0x81
#define BECN 0x40
#define CE 3
#define ECT0 2

static QrnicCongestionCtx query(Device *d)
{
    uint8_t raw[QRNIC_CONGESTION_CTX_BYTES];
    QrnicCongestionCtx c;

    command_ok(d, QRNIC_CMD_QUERY_CONGESTION, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_congestion_ctx_unpack(&c, raw));
    return c;
}

static void set(Device *d, const QrnicCongestionCtx *c)
{
    uint8_t raw[QRNIC_CONGESTION_CTX_BYTES];

    qrnic_congestion_ctx_pack(raw, c);
    command_ok(d, QRNIC_CMD_SET_CONGESTION, 0, raw, sizeof(raw), NULL, 0);
}

static void start(Rig *r, uint8_t flags)
{
    QrnicCongestionCtx c;

    rig_start(r, "", NULL);
    c = query(r->d);
    c.flags |= flags;
    c.rp_rate_to_set_on_first_cnp = 1;
    c.rp_time_reset = 131071;
    set(r->d, &c);
}

static void write_packet(Rig *r, uint32_t psn, uint8_t tos)
{
    static const uint8_t data[8] = "congest";
    PeerPacket p = peer_packet(&r->qp, RC_WRITE_ONLY, psn);

    p.va = r->mr.start;
    p.rkey = r->mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = true;
    p.tos = tos;
    peer_send(r->d, &p);
}

static void expect_cnp(Rig *r)
{
    static const uint8_t zero[16];
    PeerPacket p = peer_expect(r->d, CNP, 0);

    g_assert_cmphex(p.notify, ==, BECN);
    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(p.tos, ==, 48 << 2);
    g_assert_cmphex(p.pkey, ==, 0xffff);
    g_assert_false(p.ack_request || p.solicited);
    g_assert_cmpmem(p.payload, p.length, zero, sizeof(zero));
    g_assert_cmpmem(p.dip, 4, PEER_IP4, 4);
    g_assert_cmpmem(p.dmac, 6, PEER_MAC, 6);
}

static void expect_ack(Rig *r, uint32_t psn, uint8_t ecn)
{
    PeerPacket p = peer_expect(r->d, RC_ACK, psn);

    g_assert_cmphex(p.tos & 3, ==, ecn);
    g_assert_cmphex(p.notify, ==, 0);
}

static void test_notification(void)
{
    Rig r;

    start(&r, QRNIC_CONGESTION_NP | QRNIC_CONGESTION_ECT);
    write_packet(&r, RQ_PSN, ECT0);
    expect_ack(&r, RQ_PSN, ECT0);
    write_packet(&r, RQ_PSN + 1, CE);
    expect_cnp(&r);
    expect_ack(&r, RQ_PSN + 1, ECT0);
    /* The virtual clock has not moved, so there is no second CNP. */
    write_packet(&r, RQ_PSN + 2, CE);
    expect_ack(&r, RQ_PSN + 2, ECT0);
    clock_step(r.d, 4 * SCALE_US);
    write_packet(&r, RQ_PSN + 3, CE);
    expect_cnp(&r);
    expect_ack(&r, RQ_PSN + 3, ECT0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS),
                     ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_NP_CNP_SENT), ==, 2);
    rig_stop(&r);
}

/* Tests that congestion control is off after a reset. */
static void test_off(void)
{
    PeerPacket p;
    Rig r;

    start(&r, 0);
    write_packet(&r, RQ_PSN, CE);
    expect_ack(&r, RQ_PSN, 0);
    p = peer_packet(&r.qp, CNP, 0);
    p.notify = BECN;
    p.payload = (uint8_t [16]) { 0 };
    p.length = 16;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RP_CNP_IGNORED, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_NP_ECN_MARKED_ROCE_PACKETS),
                     ==, 0);
    rig_stop(&r);
}

static void post_write(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, 0x4000, 77);
    wqe_data(&w, r->mr.start, 1000, r->mr.key);
    sq_post(r->d, &r->qp, &w);
}

/* Tests that at 1 Mbit/s a frame of 1,074 bytes takes 8.6 ms. */
static void test_reaction(void)
{
    PeerPacket p;
    Rig r;

    start(&r, QRNIC_CONGESTION_RP);
    p = peer_packet(&r.qp, CNP, 0);
    p.payload = (uint8_t [16]) { 0 };
    p.length = 16;
    peer_send(r.d, &p);                 /* The CNP has no BECN */
    counter_wait(r.d, QRNIC_COUNTER_RP_CNP_IGNORED, 1);
    p.notify = BECN;
    p.psn = 7;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RP_CNP_IGNORED, 2);
    p.psn = 0;
    p.dest_qpn++;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RP_CNP_IGNORED, 3);
    p.dest_qpn--;
    p.icrc_flip = 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_ICRC, 1);
    p.icrc_flip = 0;
    post_write(&r);
    peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN);
    post_write(&r);
    peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN + 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RATE_WAITS), ==, 0);

    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RP_CNP_HANDLED, 1);
    post_write(&r);
    peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN + 2);
    post_write(&r);
    counter_wait(r.d, QRNIC_COUNTER_RATE_WAITS, 1);
    wire_silent(r.d);
    clock_step(r.d, 8 * SCALE_MS);
    wire_silent(r.d);
    clock_step(r.d, SCALE_MS);
    peer_expect(r.d, RC_WRITE_ONLY, SQ_PSN + 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RP_CNP_IGNORED), ==, 3);
    rig_stop(&r);
}

static void test_parameters(void)
{
    uint8_t raw[QRNIC_CONGESTION_CTX_BYTES];
    QrnicCongestionCtx c, now;
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    c = query(r.d);
    g_assert_cmphex(c.flags, ==, QRNIC_CONGESTION_CLAMP_TGT_RATE_ATI);
    g_assert_cmpuint(c.rp_time_reset, ==, 300);
    c.rp_time_reset = 1500;
    c.np_cnp_dscp = 40;
    set(r.d, &c);
    now = query(r.d);
    g_assert_cmpmem(&now, sizeof(now), &c, sizeof(c));
    c.rp_threshold = 32;
    qrnic_congestion_ctx_pack(raw, &c);
    command_fails(r.d, QRNIC_CMD_SET_CONGESTION, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_BAD_PARAM, QRNIC_CONGESTION_CTX_RP_THRESHOLD_OFFSET);
    c.rp_threshold = 1;
    c.flags |= 0x80;
    qrnic_congestion_ctx_pack(raw, &c);
    command_fails(r.d, QRNIC_CMD_SET_CONGESTION, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_RESERVED, 0);
    raw[0] &= ~0x80;
    raw[QRNIC_CONGESTION_CTX_BYTES - 1] = 1;
    command_fails(r.d, QRNIC_CMD_SET_CONGESTION, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_RESERVED, 0);
    rig_stop(&r);

    rig_start(&r, "cap-congestion-control=off", NULL);
    raw[QRNIC_CONGESTION_CTX_BYTES - 1] = 0;
    command_fails(r.d, QRNIC_CMD_SET_CONGESTION, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, 0);
    command_fails(r.d, QRNIC_CMD_QUERY_CONGESTION, 0, NULL, 0, raw,
                  sizeof(raw), QRNIC_ST_NOT_SUPPORTED, 0);
    p = peer_packet(&r.qp, CNP, 0);
    p.notify = BECN;
    p.payload = (uint8_t [16]) { 0 };
    p.length = 16;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RP_CNP_IGNORED), ==, 0);
    rig_stop(&r);
}

void add_congestion_tests(void)
{
    qtest_add_func("qrnic/congestion/notification", test_notification);
    qtest_add_func("qrnic/congestion/off", test_off);
    qtest_add_func("qrnic/congestion/reaction", test_reaction);
    qtest_add_func("qrnic/congestion/parameters", test_parameters);
}
