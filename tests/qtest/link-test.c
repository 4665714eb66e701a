/*
 * qrnic qtest: link retransmission, with the test as the peer
 *
 * Programmer's Reference, chapter Link retransmission.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "link-peer.h"

#define MTU 1024
#define REMOTE_VA 0x7f1234567000ull
#define REMOTE_KEY 0xabcdef12u
#define MS 1000000ll

/* Posts a write. packets: at least 3. */
static void write_post(LinkEnd *e, unsigned packets)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_data(&w, RIG_MR_START, packets * MTU, e->r.mr.key);
    sq_post(e->r.d, &e->r.qp, &w);
}

static uint8_t write_opcode(unsigned i, unsigned packets)
{
    return i == 0 ? RC_WRITE_FIRST :
           i == packets - 1 ? RC_WRITE_LAST : RC_WRITE_MIDDLE;
}

static void write_expect(LinkEnd *e, unsigned packets)
{
    for (unsigned i = 0; i < packets; i++) {
        link_expect_data(e, i, write_opcode(i, packets), SQ_PSN + i);
    }
}

static PeerPacket ack_packet(LinkEnd *e, uint32_t psn)
{
    PeerPacket p = peer_packet(&e->r.qp, RC_ACK, psn);

    p.syndrome = AETH_ACK | 31;
    p.msn = 1;
    return p;
}

static void write_ends(LinkEnd *e, unsigned packets)
{
    PeerPacket p = ack_packet(e, SQ_PSN + packets - 1);

    link_data(e, 0, packets, &p, 0);
    rig_sent(&e->r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, 0);
    g_assert_cmpuint(counter(e->r.d, QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
    g_assert_cmpuint(counter(e->r.d, QRNIC_COUNTER_TIMEOUTS), ==, 0);
}

/*
 * Tests that a frame which a NAK reports is retransmitted, and that the
 * transport is not involved.
 */
static void test_dropped_comes_again(void)
{
    LinkEnd e;

    link_end_start(&e);
    write_post(&e, 5);
    write_expect(&e, 5);
    link_control(&e, LINK_NAK, 1, 0x5); /* Frames 1 and 3 are missing */
    link_expect_data(&e, 1, RC_WRITE_MIDDLE, SQ_PSN + 1);
    link_expect_data(&e, 3, RC_WRITE_MIDDLE, SQ_PSN + 3);
    wire_silent(e.r.d);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_RETRANSMISSIONS), ==,
                     2);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_FRAMES), ==, 5);
    write_ends(&e, 5);
    rig_stop(&e.r);
}

/*
 * Tests that a lost last frame is retransmitted by the timer, because no later
 * frame reports it.
 */
static void test_tail_comes_again(void)
{
    LinkEnd e;

    link_end_start(&e);
    write_post(&e, 3);
    write_expect(&e, 3);
    link_control(&e, LINK_ACK, 2, 0);
    wire_silent(e.r.d);
    clock_step(e.r.d, 12 * MS);
    link_expect_data(&e, 2, RC_WRITE_LAST, SQ_PSN + 2);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_TIMEOUTS), ==, 1);
    write_ends(&e, 3);
    rig_stop(&e.r);
}

/* Tests that the device reports missing frames and delivers frames in order. */
static void test_gap_is_told(void)
{
    PeerPacket p[3];
    uint8_t data[3][64], got[64];
    LinkFrame f;
    LinkEnd e;

    link_end_start(&e);
    for (unsigned i = 0; i < 3; i++) {
        memset(data[i], 0x11 * (i + 1), sizeof(data[i]));
        p[i] = peer_packet(&e.r.qp, RC_WRITE_ONLY, RQ_PSN + i);
        p[i].va = RIG_MR_START + 64 * i;
        p[i].rkey = e.r.mr.key;
        p[i].dma_length = p[i].length = 64;
        p[i].payload = data[i];
    }
    p[2].ack_request = true;
    link_data(&e, 1, 0, &p[1], 0);
    f = link_expect(&e, LINK_NAK);
    g_assert_cmphex(f.ack, ==, LINK_PEER);
    g_assert_cmphex(f.map, ==, 0x1);
    link_data(&e, 0, 0, &p[0], 1);      /* The CRC is wrong */
    link_data(&e, 2, 0, &p[2], 0);
    wire_silent(e.r.d);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 0);
    link_data(&e, 0, 0, &p[0], 0);
    /* The frame has the transport's ACK and the acknowledgement of the link. */
    f = link_expect(&e, LINK_DATA);
    g_assert_cmphex(f.number, ==, e.session);
    g_assert_cmphex(f.ack, ==, LINK_PEER + 3);
    for (unsigned i = 0; i < 3; i++) {
        rig_read(&e.r, 64 * i, got, sizeof(got));
        g_assert_cmpmem(got, sizeof(got), data[i], sizeof(data[i]));
    }
    link_data(&e, 1, 1, &p[1], 0);      /* The peer retransmits this frame */
    f = link_expect(&e, LINK_ACK);
    g_assert_cmphex(f.ack, ==, LINK_PEER + 3);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_GAPS), ==, 1);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_CRC_ERRORS), ==, 1);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_DUPLICATES), ==, 1);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_FRAMES), ==, 3);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 3);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    rig_stop(&e.r);
}

/*
 * Tests that at most one window is outstanding, because the peer's buffer is
 * limited. Other packets wait in the send queue, not in the device.
 */
static void test_window_holds_the_engine(void)
{
    const unsigned packets = 64;        /* The window that the test announced */
    LinkEnd e;

    link_end_start(&e);
    write_post(&e, packets - 16);
    write_post(&e, packets - 16);
    for (unsigned i = 0; i < packets; i++) {
        LinkFrame f = link_expect(&e, LINK_DATA);

        g_assert_cmphex(f.number, ==, e.session + i);
    }
    wire_silent(e.r.d);
    link_control(&e, LINK_ACK, 1, 0);
    g_assert_cmphex(link_expect(&e, LINK_DATA).number, ==, e.session + packets);
    wire_silent(e.r.d);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_REFUSED), ==, 0);
    rig_stop(&e.r);
}

/*
 * Tests a peer without link retransmission. All frames of the device are plain,
 * except a few HELLOs.
 */
static void test_standard_end(void)
{
    uint8_t frame[PEER_FRAME_MAX];
    unsigned hellos = 0, plain = 0;
    LinkEnd e = { 0 };

    rig_start(&e.r, "link-retransmission=on", NULL);
    link_session_of(e.r.d);
    write_post(&e, 3);
    peer_expect(e.r.d, RC_WRITE_FIRST, SQ_PSN);
    peer_expect(e.r.d, RC_WRITE_MIDDLE, SQ_PSN + 1);
    peer_expect(e.r.d, RC_WRITE_LAST, SQ_PSN + 2);
    peer_ack(e.r.d, &e.r.qp, SQ_PSN + 2, AETH_ACK | 31, 1);
    rig_sent(&e.r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, 0);
    for (unsigned i = 0; i < 600; i++) {
        clock_step(e.r.d, 100 * MS);
        counter(e.r.d, QRNIC_COUNTER_LINK_TX_HELLOS);
        while (wire_pending(e.r.d)) {
            size_t len = wire_receive(e.r.d, frame);

            if (link_is_frame(frame)) {
                hellos += link_decode(frame, len).type == LINK_HELLO;
            } else {
                plain++;
            }
        }
    }
    g_assert_cmpuint(hellos, >=, 5);
    g_assert_cmpuint(hellos, <=, 16);
    g_assert_cmpuint(plain, ==, 0);
    g_assert_cmphex(link_state(e.r.d), ==, 0);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_FRAMES), ==, 0);
    rig_stop(&e.r);
}

static uint64_t capabilities(Device *d)
{
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES];
    QrnicDeviceAttr a;

    command_ok(d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_device_attr_unpack(&a, raw));
    return a.capabilities;
}

/*
 * Tests that without the property the device neither sends nor answers HELLOs.
 */
static void test_off(void)
{
    LinkEnd e = { 0 };

    rig_start(&e.r, "", NULL);
    g_assert_false(capabilities(e.r.d) & QRNIC_CAP_LINK_RETRANSMISSION);
    clock_step(e.r.d, 60000 * MS);
    link_hello(&e, 0);
    wire_silent(e.r.d);
    g_assert_cmphex(link_state(e.r.d), ==, 0);
    rig_stop(&e.r);
}

/* Tests that after a reset the device sends a HELLO of a new session. */
static void test_reset(void)
{
    uint32_t before;
    LinkEnd e;

    link_end_start(&e);
    g_assert_true(capabilities(e.r.d) & QRNIC_CAP_LINK_RETRANSMISSION);
    before = e.session;
    write_post(&e, 3);
    write_expect(&e, 3);
    reg_write(e.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    device_enable_commands(e.r.d, 4);
    rig_start_again(&e.r);
    link_agree(&e);
    g_assert_cmphex(e.session, !=, before);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_RETRANSMISSIONS), ==,
                     0);
    write_post(&e, 3);
    write_expect(&e, 3);
    write_ends(&e, 3);
    rig_stop(&e.r);
}

void add_link_tests(void)
{
    qtest_add_func("/qrnic/link/dropped-comes-again",
                   test_dropped_comes_again);
    qtest_add_func("/qrnic/link/tail-comes-again", test_tail_comes_again);
    qtest_add_func("/qrnic/link/gap-is-told", test_gap_is_told);
    qtest_add_func("/qrnic/link/window-holds-the-engine",
                   test_window_holds_the_engine);
    qtest_add_func("/qrnic/link/standard-end", test_standard_end);
    qtest_add_func("/qrnic/link/off", test_off);
    qtest_add_func("/qrnic/link/reset", test_reset);
}
