/*
 * qrnic qtest: link retransmission, the test as the other end
 *
 * With an encoder and decoder of its own. Programmer's Reference, chapter Link
 * retransmission.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define LINK_ADDRESS "\x01\x80\xc2\x00\x00\x0c"
#define LINK_HEADERS 46
#define HELLO 1
#define DATA 2
#define ACK 3
#define NAK 4
/* The test's session; its numbers wrap soon. */
#define PEER 0xfffffffeu

#define MTU 1024
#define REMOTE_VA 0x7f1234567000ull
#define REMOTE_KEY 0xabcdef12u
#define MS 1000000ll

typedef struct LinkFrame {
    unsigned type;
    uint32_t session, heard, number, ack;
    uint64_t map;
    const uint8_t *carried;
    size_t length;
} LinkFrame;

typedef struct End {
    Rig r;
    uint32_t session;           /* the device's */
    uint32_t sent;              /* frames of ours */
} End;

/* Bit by bit, of all but itself */
static uint32_t link_crc(const uint8_t *frame, size_t length)
{
    uint32_t crc = 0xffffffff;

    for (size_t i = 0; i < LINK_HEADERS + length; i++) {
        if (i >= 42 && i < LINK_HEADERS) {
            continue;
        }
        crc ^= frame[i];
        for (unsigned bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        }
    }
    return ~crc;
}

static bool is_link_frame(const uint8_t *frame)
{
    return !memcmp(frame, LINK_ADDRESS, 6) && lduw_be_p(frame + 12) == 0x88b5;
}

static LinkFrame link_decode(const uint8_t *frame, size_t len)
{
    LinkFrame f = {
        .type = frame[15], .session = ldl_be_p(frame + 18),
        .heard = ldl_be_p(frame + 22), .number = ldl_be_p(frame + 26),
        .ack = ldl_be_p(frame + 30), .map = ldq_be_p(frame + 34),
        .carried = frame + LINK_HEADERS, .length = lduw_be_p(frame + 16),
    };

    g_assert_true(is_link_frame(frame));
    g_assert_cmpmem(frame + 6, 6, OUR_MAC, 6);
    g_assert_cmpint(frame[14], ==, 1);
    g_assert_cmpuint(len, ==, MAX(LINK_HEADERS + f.length, 60));
    g_assert_cmphex((uint32_t)ldl_be_p(frame + 42), ==,
                    link_crc(frame, f.length));
    return f;
}

/* flip: what is done to the CRC */
static void link_send(End *e, const LinkFrame *f, uint32_t flip)
{
    uint8_t frame[PEER_FRAME_MAX] = { 0 };

    memcpy(frame, LINK_ADDRESS PEER_MAC "\x88\xb5\x01", 15);
    frame[15] = f->type;
    stw_be_p(frame + 16, f->length);
    stl_be_p(frame + 18, f->session);
    stl_be_p(frame + 22, f->heard);
    stl_be_p(frame + 26, f->number);
    stl_be_p(frame + 30, f->ack);
    stq_be_p(frame + 34, f->map);
    if (f->length) {
        memcpy(frame + LINK_HEADERS, f->carried, f->length);
    }
    stl_be_p(frame + 42, link_crc(frame, f->length) ^ flip);
    wire_send(e->r.d, frame, MAX(LINK_HEADERS + f->length, 60));
}

static void hello_send(End *e, uint32_t heard)
{
    const LinkFrame f = {
        .type = HELLO, .session = PEER, .heard = heard, .number = 64,
    };

    link_send(e, &f, 0);
}

static void control_send(End *e, unsigned type, uint32_t count, uint64_t map)
{
    const LinkFrame f = {
        .type = type, .session = PEER, .heard = e->session,
        .ack = e->session + count, .map = map,
    };

    link_send(e, &f, 0);
}

/* Our frame n, which carries a packet; count: of theirs that have arrived */
static void data_send(End *e, uint32_t n, uint32_t count, const PeerPacket *p,
                      uint32_t flip)
{
    uint8_t carried[PEER_FRAME_MAX];
    const LinkFrame f = {
        .type = DATA, .session = PEER, .heard = e->session,
        .number = PEER + n, .ack = e->session + count,
        .carried = carried, .length = peer_encode(p, carried),
    };

    link_send(e, &f, flip);
}

static LinkFrame link_expect(End *e, unsigned type)
{
    static uint8_t frame[PEER_FRAME_MAX];
    LinkFrame f = link_decode(frame, wire_receive(e->r.d, frame));

    g_assert_cmpint(f.type, ==, type);
    if (type != HELLO) {
        g_assert_cmphex(f.session, ==, e->session);
        g_assert_cmphex(f.heard, ==, PEER);
    }
    return f;
}

/* The device's frame n, which carries this packet of its */
static void data_expect(End *e, uint32_t n, uint8_t opcode, uint32_t psn)
{
    LinkFrame f = link_expect(e, DATA);
    PeerPacket p;

    g_assert_cmphex(f.number, ==, e->session + n);
    peer_decode(f.carried, f.length, &p);
    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn);
}

static uint8_t port_link(Device *d)
{
    uint8_t raw[QRNIC_PORT_ATTR_BYTES];
    QrnicPortAttr a;

    command_ok(d, QRNIC_CMD_QUERY_PORT, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_port_attr_unpack(&a, raw));
    return a.link;
}

/* The latest HELLO of the device: each reset begins a session. */
static uint32_t session_of(Device *d)
{
    uint8_t frame[PEER_FRAME_MAX];
    uint32_t session = 0;

    qtest_clock_step(d->qts, 20 * MS);
    WAIT_UNTIL(counter(d, QRNIC_COUNTER_LINK_TX_HELLOS) >= 1,
               "the device greets nobody");
    settle(d);
    while (wire_pending(d)) {
        LinkFrame f = link_decode(frame, wire_receive(d, frame));

        g_assert_cmpint(f.type, ==, HELLO);
        g_assert_cmphex(f.heard, ==, 0);
        g_assert_cmpuint(f.number, ==, 256);
        session = f.session;
    }
    g_assert_cmphex(session, !=, 0);
    return session;
}

static void agree(End *e)
{
    LinkFrame f;

    e->session = session_of(e->r.d);
    g_assert_cmphex(port_link(e->r.d), ==, 0);
    hello_send(e, e->session);
    f = link_expect(e, ACK);
    g_assert_cmphex(f.ack, ==, PEER);
    g_assert_cmphex(f.map, ==, 0);
    g_assert_cmphex(port_link(e->r.d), ==, QRNIC_PORTL_RETRANSMISSION);
    g_assert_cmpuint(counter(e->r.d, QRNIC_COUNTER_LINK_ESTABLISHED), ==, 1);
}

static void end_start(End *e)
{
    *e = (End) { 0 };
    rig_start(&e->r, "link-retransmission=on", NULL);
    agree(e);
}

/* packets: 3 at least */
static void write_post(End *e, unsigned packets)
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

static void write_expect(End *e, unsigned packets)
{
    for (unsigned i = 0; i < packets; i++) {
        data_expect(e, i, write_opcode(i, packets), SQ_PSN + i);
    }
}

static PeerPacket ack_packet(End *e, uint32_t psn)
{
    PeerPacket p = peer_packet(&e->r.qp, RC_ACK, psn);

    p.syndrome = AETH_ACK | 31;
    p.msn = 1;
    return p;
}

static void write_ends(End *e, unsigned packets)
{
    PeerPacket p = ack_packet(e, SQ_PSN + packets - 1);

    data_send(e, 0, packets, &p, 0);
    rig_sent(&e->r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, 0);
    g_assert_cmpuint(counter(e->r.d, QRNIC_COUNTER_RETRANSMISSIONS), ==, 0);
    g_assert_cmpuint(counter(e->r.d, QRNIC_COUNTER_TIMEOUTS), ==, 0);
}

/* What is dropped and told of comes again, and the transport knows nothing. */
static void test_dropped_comes_again(void)
{
    End e;

    end_start(&e);
    write_post(&e, 5);
    write_expect(&e, 5);
    control_send(&e, NAK, 1, 0x5);      /* 1 and 3 are missing */
    data_expect(&e, 1, RC_WRITE_MIDDLE, SQ_PSN + 1);
    data_expect(&e, 3, RC_WRITE_MIDDLE, SQ_PSN + 3);
    wire_silent(e.r.d);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_RETRANSMISSIONS), ==,
                     2);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_FRAMES), ==, 5);
    write_ends(&e, 5);
    rig_stop(&e.r);
}

/* Of a lost tail nobody tells. */
static void test_tail_comes_again(void)
{
    End e;

    end_start(&e);
    write_post(&e, 3);
    write_expect(&e, 3);
    control_send(&e, ACK, 2, 0);
    wire_silent(e.r.d);
    qtest_clock_step(e.r.d->qts, 12 * MS);
    data_expect(&e, 2, RC_WRITE_LAST, SQ_PSN + 2);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_TIMEOUTS), ==, 1);
    write_ends(&e, 3);
    rig_stop(&e.r);
}

/* The device tells what it misses, and puts in order what comes. */
static void test_gap_is_told(void)
{
    PeerPacket p[3];
    uint8_t data[3][64], got[64];
    LinkFrame f;
    End e;

    end_start(&e);
    for (unsigned i = 0; i < 3; i++) {
        memset(data[i], 0x11 * (i + 1), sizeof(data[i]));
        p[i] = peer_packet(&e.r.qp, RC_WRITE_ONLY, RQ_PSN + i);
        p[i].va = RIG_MR_START + 64 * i;
        p[i].rkey = e.r.mr.key;
        p[i].dma_length = p[i].length = 64;
        p[i].payload = data[i];
    }
    p[2].ack_request = true;
    data_send(&e, 1, 0, &p[1], 0);
    f = link_expect(&e, NAK);
    g_assert_cmphex(f.ack, ==, PEER);
    g_assert_cmphex(f.map, ==, 0x1);
    data_send(&e, 0, 0, &p[0], 1);      /* damaged */
    data_send(&e, 2, 0, &p[2], 0);
    wire_silent(e.r.d);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 0);
    data_send(&e, 0, 0, &p[0], 0);
    /* The transport's acknowledgement, with that of the link */
    f = link_expect(&e, DATA);
    g_assert_cmphex(f.number, ==, e.session);
    g_assert_cmphex(f.ack, ==, PEER + 3);
    for (unsigned i = 0; i < 3; i++) {
        rig_read(&e.r, 64 * i, got, sizeof(got));
        g_assert_cmpmem(got, sizeof(got), data[i], sizeof(data[i]));
    }
    data_send(&e, 1, 1, &p[1], 0);      /* once more */
    f = link_expect(&e, ACK);
    g_assert_cmphex(f.ack, ==, PEER + 3);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_GAPS), ==, 1);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_CRC_ERRORS), ==, 1);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_DUPLICATES), ==, 1);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_RX_FRAMES), ==, 3);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 3);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    rig_stop(&e.r);
}

/* So much is under way, and the rest waits in the queue, not in the device. */
static void test_window_holds_the_engine(void)
{
    const unsigned packets = 64;        /* the window that we told */
    End e;

    end_start(&e);
    write_post(&e, packets - 16);
    write_post(&e, packets - 16);
    for (unsigned i = 0; i < packets; i++) {
        LinkFrame f = link_expect(&e, DATA);

        g_assert_cmphex(f.number, ==, e.session + i);
    }
    wire_silent(e.r.d);
    control_send(&e, ACK, 1, 0);
    g_assert_cmphex(link_expect(&e, DATA).number, ==, e.session + packets);
    wire_silent(e.r.d);
    g_assert_cmpuint(counter(e.r.d, QRNIC_COUNTER_LINK_TX_REFUSED), ==, 0);
    rig_stop(&e.r);
}

/* A standard end: its frames and ours are plain, besides a few HELLOs. */
static void test_standard_end(void)
{
    uint8_t frame[PEER_FRAME_MAX];
    unsigned hellos = 0, plain = 0;
    End e = { 0 };

    rig_start(&e.r, "link-retransmission=on", NULL);
    session_of(e.r.d);
    write_post(&e, 3);
    peer_expect(e.r.d, RC_WRITE_FIRST, SQ_PSN);
    peer_expect(e.r.d, RC_WRITE_MIDDLE, SQ_PSN + 1);
    peer_expect(e.r.d, RC_WRITE_LAST, SQ_PSN + 2);
    peer_ack(e.r.d, &e.r.qp, SQ_PSN + 2, AETH_ACK | 31, 1);
    rig_sent(&e.r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, 0);
    for (unsigned i = 0; i < 600; i++) {
        qtest_clock_step(e.r.d->qts, 100 * MS);
        counter(e.r.d, QRNIC_COUNTER_LINK_TX_HELLOS);
        while (wire_pending(e.r.d)) {
            size_t len = wire_receive(e.r.d, frame);

            if (is_link_frame(frame)) {
                hellos += link_decode(frame, len).type == HELLO;
            } else {
                plain++;
            }
        }
    }
    g_assert_cmpuint(hellos, >=, 5);
    g_assert_cmpuint(hellos, <=, 16);
    g_assert_cmpuint(plain, ==, 0);
    g_assert_cmphex(port_link(e.r.d), ==, 0);
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

/* As it is without the property: no greeting, and none is answered. */
static void test_off(void)
{
    End e = { 0 };

    rig_start(&e.r, "", NULL);
    g_assert_false(capabilities(e.r.d) & QRNIC_CAP_LINK_RETRANSMISSION);
    qtest_clock_step(e.r.d->qts, 60000 * MS);
    hello_send(&e, 0);
    wire_silent(e.r.d);
    g_assert_cmphex(port_link(e.r.d), ==, 0);
    rig_stop(&e.r);
}

/* What a reset leaves is a greeting of a new session. */
static void test_reset(void)
{
    uint32_t before;
    End e;

    end_start(&e);
    g_assert_true(capabilities(e.r.d) & QRNIC_CAP_LINK_RETRANSMISSION);
    before = e.session;
    write_post(&e, 3);
    write_expect(&e, 3);
    reg_write(e.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    device_enable_commands(e.r.d, 4);
    rig_start_again(&e.r);
    agree(&e);
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
