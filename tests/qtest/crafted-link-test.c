/*
 * qrnic qtest: crafted frames of link retransmission
 *
 * Programmer's Reference, chapter Link retransmission.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted.h"
#include "link-peer.h"

#define MTU CRAFTED_MTU
#define MS 1000000ll
#define SENT 4                  /* Outstanding frames of the device */
#define WINDOW 256              /* Window of the device */
#define LENGTH 17               /* Offset of the length in a link frame */
#define VERSION 14
#define CRC 42
#define CABLE_LONGEST 9082

typedef struct World {
    Crafted c;
    LinkEnd e;
} World;

typedef struct Case {
    const char *rule;
    uint8_t type;
    bool no_session, no_heard;
    int32_t session, heard;     /* Relative to the right session */
    /* Relative to the right numbers; absolute in a HELLO */
    int64_t number, ack;
    uint64_t map;
    unsigned length;            /* Length of the payload; 0: the right one */
    bool other;                 /* Type is that of another link frame */
    unsigned patch;             /* Offset of a byte to invert; 0: none */
    bool sealed;                /* The CRC is right in spite of that */
    unsigned cut, more;         /* Bytes to remove and to append */
    const char *counted;
} Case;

#define AS_DATA .type = LINK_DATA
#define AS_ACK .type = LINK_ACK
#define MALFORMED .counted = "link_rx_malformed"
#define DAMAGED .counted = "link_rx_crc_errors"
#define OLD .counted = "link_rx_stale"

static const Case cases[] = {
    { "crc-of-the-payload", AS_DATA, .patch = 60, DAMAGED },
    { "crc-of-the-header", AS_ACK, .ack = 1, .patch = 33, DAMAGED },
    { "crc-itself", AS_DATA, .patch = CRC, DAMAGED },
    { "crc-covers-the-source", AS_DATA, .patch = 7, DAMAGED },
    { "crc-covers-the-session", AS_DATA, .patch = 18, DAMAGED },
    { "crc-covers-the-map", AS_ACK, .patch = 34, DAMAGED },
    { "damaged-address-is-damage", AS_DATA, .patch = 3, DAMAGED },
    { "damaged-ethertype-is-damage", AS_DATA, .patch = 13, DAMAGED },
    { "truncated-header", AS_ACK, .cut = 15, MALFORMED },
    { "truncated-data", AS_DATA, .cut = 1, MALFORMED },
    { "bytes-behind-data", AS_DATA, .more = 1, MALFORMED },
    { "bytes-behind-an-ack", AS_ACK, .more = 1, MALFORMED },
    { "length-shorter-than-the-frame", AS_DATA, .patch = LENGTH, .sealed = true,
      MALFORMED },
    { "carries-less-than-a-frame", AS_DATA, .length = 13, MALFORMED },
    { "carries-more-than-a-frame", AS_DATA, .length = 9037, MALFORMED },
    { "carries-a-link-frame", AS_DATA, .other = true, .length = 60,
      MALFORMED },
    { "version-that-is-none", AS_DATA, .patch = VERSION, .sealed = true,
      MALFORMED },
    { "type-0", .type = 0, MALFORMED },
    { "type-5", .type = 5, MALFORMED },
    { "data-of-session-0", AS_DATA, .no_session = true, MALFORMED },
    { "data-to-session-0", AS_DATA, .no_heard = true, MALFORMED },
    { "ack-of-session-0", AS_ACK, .no_session = true, MALFORMED },
    { "hello-with-window-0", .type = LINK_HELLO, MALFORMED },
    { "hello-with-an-acknowledgement", .type = LINK_HELLO, .number = 64,
      .ack = 1, MALFORMED },
    { "hello-with-a-map", .type = LINK_HELLO, .number = 64, .map = 1,
      MALFORMED },
    { "hello-that-carries", .type = LINK_HELLO, .number = 64, .length = 20,
      MALFORMED },
    { "ack-with-a-number", AS_ACK, .number = 1, MALFORMED },
    { "ack-that-carries", AS_ACK, .length = 20, MALFORMED },
    { "nak-that-carries", .type = LINK_NAK, .length = 20, MALFORMED },
    { "ack-of-what-was-not-sent", AS_ACK, .ack = SENT + 1, MALFORMED },
    { "nak-of-what-was-not-sent", .type = LINK_NAK, .ack = SENT + 1,
      MALFORMED },
    { "ack-of-half-the-numbers", AS_ACK, .ack = 0x7fffffff, MALFORMED },
    { "map-of-what-was-not-sent", AS_ACK, .map = 1ull << (SENT - 1),
      MALFORMED },
    { "map-of-all", AS_ACK, .map = UINT64_MAX, MALFORMED },
    { "data-with-ack-of-what-was-not-sent", AS_DATA, .ack = SENT + 1,
      MALFORMED },
    { "data-with-map-of-what-was-not-sent", AS_DATA, .map = 1ull << 60,
      MALFORMED },
    { "data-beyond-the-window", AS_DATA, .number = WINDOW, MALFORMED },
    { "data-of-half-the-numbers", AS_DATA, .number = 0x7fffffff, MALFORMED },
    { "data-of-another-session", AS_DATA, .session = -1, OLD },
    { "data-to-another-session", AS_DATA, .heard = -1, OLD },
    { "ack-of-another-session", AS_ACK, .session = -1, .ack = 2, OLD },
    { "ack-to-another-session", AS_ACK, .heard = 1, .ack = 2, OLD },
    { "nak-to-another-session", .type = LINK_NAK, .heard = 1, .map = 1, OLD },
};

/* Returns a write of CRAFTED_BYTE, which the device must not execute. */
static PeerPacket bad_write(World *w, uint32_t psn)
{
    static uint8_t data[64];
    PeerPacket p = crafted_packet(&w->c, RC_WRITE_ONLY, psn);

    memset(data, CRAFTED_BYTE, sizeof(data));
    p.va = w->c.mr.start;
    p.rkey = w->c.mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    p.ack_request = true;
    return p;
}

/*
 * Starts the device, which sends a write of SENT packets. No packet is
 * acknowledged.
 */
static void start(World *w)
{
    Wqe wqe = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    crafted_start(&w->c, "link-retransmission=on", NULL);
    w->e = (LinkEnd) { .r = w->c.r };
    link_agree(&w->e);
    wqe_remote(&wqe, 0x5000, 0x77);
    wqe_data(&wqe, CRAFTED_START, SENT * MTU, w->c.mr.key);
    sq_post(w->c.r.d, &w->c.r.qp, &wqe);
    for (unsigned i = 0; i < SENT; i++) {
        link_expect_data(&w->e, i, i == 0 ? RC_WRITE_FIRST : i == SENT - 1 ?
                         RC_WRITE_LAST : RC_WRITE_MIDDLE, SQ_PSN + i);
    }
    crafted_counted(&w->c, "tx_write link_tx_frames=4 link_tx_hellos "
                    "link_established");
}

/*
 * Asserts that the connection continues: frame n acknowledges the write, and
 * frame n + 1 is a correct write.
 */
static void goes_on(World *w, uint32_t n)
{
    PeerPacket p = crafted_packet(&w->c, RC_ACK, SQ_PSN + SENT - 1);
    LinkFrame f;

    g_assert_cmphex(link_state(w->c.r.d), ==, QRNIC_PORTL_RETRANSMISSION);
    crafted_quiet(&w->c);
    p.syndrome = AETH_ACK | 31;
    p.msn = 1;
    link_data(&w->e, n, SENT, &p, 0);
    rig_sent(&w->c.r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, 0);
    /* The write is executed, because its frame is valid */
    p = bad_write(w, RQ_PSN);
    link_data(&w->e, n + 1, SENT, &p, 0);
    crafted_wrote(&w->c, 0, CRAFTED_BYTE, p.length);
    f = link_expect(&w->e, LINK_DATA);
    g_assert_cmphex(f.number, ==, w->e.session + SENT);
    g_assert_cmphex(f.ack, ==, LINK_PEER + n + 2);
    crafted_quiet(&w->c);
    g_assert_cmpuint(counter(w->c.r.d, QRNIC_COUNTER_LINK_TX_RETRANSMISSIONS),
                     ==, 0);
    crafted_stop(&w->c);
}

static size_t craft(World *w, const Case *k, uint8_t *frame)
{
    const LinkFrame inner = {
        .type = LINK_HELLO, .session = 7, .heard = 8, .number = 9,
    };
    static uint8_t payload[PEER_FRAME_MAX];
    const PeerPacket p = bad_write(w, RQ_PSN);
    LinkFrame f = {
        .type = k->type,
        .session = k->no_session ? 0 : LINK_PEER + k->session,
        .heard = k->no_heard ? 0 : w->e.session + k->heard,
        .number = k->number, .ack = k->ack, .map = k->map,
        .payload = payload, .length = peer_encode(&p, payload),
    };
    size_t len;

    if (k->type == LINK_DATA) {
        f.number += LINK_PEER;
    } else {
        f.length = 0;
    }
    if (k->type != LINK_HELLO) {
        f.ack += w->e.session;
    }
    if (k->other) {
        link_encode(&inner, payload);
    }
    if (k->length) {
        f.length = k->length;
    }
    len = link_encode(&f, frame);
    if (k->patch) {
        frame[k->patch] ^= 0xff;
    }
    if (k->sealed) {
        link_seal(frame, f.length);
    }
    memset(frame + len, 0, k->more);
    len = len + k->more - k->cut;
    /* A cable cannot carry more bytes, so there the last byte is missing. */
    return w->c.r.d->cable ? MIN(len, CABLE_LONGEST) : len;
}

static void test_case(const void *opaque)
{
    const Case *k = opaque;
    uint8_t frame[PEER_FRAME_MAX];
    size_t len;
    World w;

    start(&w);
    len = craft(&w, k, frame);
    wire_send(w.c.r.d, frame, len);
    crafted_counted(&w.c, k->counted);
    crafted_quiet(&w.c);
    if (!strcmp(k->counted, "link_rx_stale")) {
        /*
         * The peer may have begun a new session, so the device sends a HELLO
         * with the session that it has heard.
         */
        clock_step(w.c.r.d, 2 * MS);
        g_assert_cmphex(link_expect(&w.e, LINK_HELLO).heard, ==, LINK_PEER);
    }
    goes_on(&w, 0);
}

/*
 * Tests that a replayed frame is dropped. Otherwise its packet could be
 * executed twice.
 */
static void test_replayed(void)
{
    PeerPacket p;
    World w;

    start(&w);
    p = crafted_packet(&w.c, RC_ACK, SQ_PSN - 1);
    p.syndrome = AETH_ACK | 31;
    link_data(&w.e, 0, 0, &p, 0);
    crafted_counted(&w.c, "rx_ack link_rx_frames");
    clock_step(w.c.r.d, 20000);
    link_expect(&w.e, LINK_ACK);
    p = bad_write(&w, RQ_PSN);
    for (unsigned i = 0; i < 10; i++) {
        link_data(&w.e, 0, 0, &p, 0);
        crafted_counted(&w.c, "link_rx_duplicates");
        g_assert_cmphex(link_expect(&w.e, LINK_ACK).ack, ==, LINK_PEER + 1);
    }
    crafted_quiet(&w.c);
    goes_on(&w, 1);
}

/*
 * Tests that a replayed frame which is already buffered is not buffered again.
 * The device uses its first copy.
 */
static void test_held_replayed(void)
{
    PeerPacket p;
    World w;

    start(&w);
    p = crafted_packet(&w.c, RC_ACK, SQ_PSN - 1);
    p.syndrome = AETH_ACK | 31;
    link_data(&w.e, 1, 0, &p, 0);
    crafted_counted(&w.c, "link_rx_gaps");
    g_assert_cmphex(link_expect(&w.e, LINK_NAK).map, ==, 1);
    for (unsigned i = 0; i < 10; i++) {
        PeerPacket bad = bad_write(&w, RQ_PSN);

        link_data(&w.e, 1, 0, &bad, 0);
        crafted_counted(&w.c, "link_rx_duplicates");
        link_expect(&w.e, LINK_ACK);
    }
    crafted_quiet(&w.c);
    link_data(&w.e, 0, 0, &p, 0);
    crafted_counted(&w.c, "rx_ack=2 link_rx_frames=2");
    clock_step(w.c.r.d, 20000);
    g_assert_cmphex(link_expect(&w.e, LINK_ACK).ack, ==, LINK_PEER + 2);
    goes_on(&w, 2);
}

/*
 * Tests a peer that fills the window out of order. The frames occupy the buffer
 * and are not delivered, because otherwise a peer could change the order of
 * packets.
 */
static void test_held_is_bounded(void)
{
    PeerPacket p;
    World w;

    start(&w);
    p = bad_write(&w, RQ_PSN);
    for (unsigned i = 1; i < WINDOW + 40; i++) {
        link_data(&w.e, i, 0, &p, 0);
    }
    counter_wait(w.c.r.d, QRNIC_COUNTER_LINK_RX_MALFORMED, 40);
    settle(w.c.r.d);
    while (wire_pending(w.c.r.d)) {
        uint8_t frame[PEER_FRAME_MAX];
        LinkFrame f = link_decode(frame, wire_receive(w.c.r.d, frame));

        g_assert_cmphex(f.ack, ==, LINK_PEER);
    }
    crafted_counted(&w.c, "link_rx_gaps link_rx_malformed=40");
    crafted_quiet(&w.c);
    crafted_stop(&w.c);
}

static void test_stale_ack(void)
{
    World w;

    start(&w);
    link_control(&w.e, LINK_ACK, 3, 0);
    crafted_counted(&w.c, "");
    link_control(&w.e, LINK_ACK, 1, 0x1);
    link_control(&w.e, LINK_NAK, 0, 0x2);
    crafted_counted(&w.c, "");
    crafted_quiet(&w.c);
    goes_on(&w, 0);
}

/*
 * Tests that a forged HELLO is answered, and the session continues, because a
 * HELLO proves nothing.
 */
static void test_forged_hello(void)
{
    World w;

    start(&w);
    for (unsigned i = 1; i < 20; i++) {
        const LinkFrame f = {
            .type = LINK_HELLO, .session = LINK_PEER - i,
            .heard = w.e.session + i, .number = 64,
        };
        uint8_t frame[PEER_FRAME_MAX];
        size_t len = link_encode(&f, frame);

        wire_send(w.c.r.d, frame, len);
        settle(w.c.r.d);
    }
    clock_step(w.c.r.d, MS);
    settle(w.c.r.d);
    while (wire_pending(w.c.r.d)) {
        link_expect(&w.e, LINK_HELLO);
    }
    g_assert_cmpuint(counter(w.c.r.d, QRNIC_COUNTER_LINK_ESTABLISHED), ==, 1);
    g_assert_cmpuint(counter(w.c.r.d, QRNIC_COUNTER_LINK_TX_HELLOS), <=, 4);
    goes_on(&w, 0);
}

/*
 * Tests that a third station ends link retransmission. Frames are then sent
 * without it, and link frames are dropped.
 */
static void test_third_end(void)
{
    LinkFrame f = { .type = LINK_HELLO, .session = 0x77, .number = 64 };
    uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;
    size_t len;
    World w;

    start(&w);
    len = link_encode(&f, frame);
    frame[11] ^= 0x40;
    link_seal(frame, 0);
    wire_send(w.c.r.d, frame, len);
    settle(w.c.r.d);
    g_assert_cmphex(link_state(w.c.r.d), ==, 0);
    p = bad_write(&w, RQ_PSN);
    link_data(&w.e, 0, 0, &p, 0);
    settle(w.c.r.d);
    crafted_memory(&w.c);
    while (wire_pending(w.c.r.d)) {
        len = wire_receive(w.c.r.d, frame);
        g_assert_false(link_is_frame(frame));
    }
    crafted_honest(&w.c, RQ_PSN, 0);
    crafted_stop(&w.c);
}

/* Tests that a frame inside a link frame is checked like any other frame. */
static void test_inner_lies(void)
{
    PeerPacket p;
    World w;

    start(&w);
    p = bad_write(&w, RQ_PSN);
    p.icrc_flip = 1;
    link_data(&w.e, 0, 0, &p, 0);
    crafted_counted(&w.c, "rx_drop_icrc link_rx_frames");
    p.icrc_flip = 0;
    p.rkey ^= 1;
    p.sip[3] ^= 0x40;
    link_data(&w.e, 1, 0, &p, 0);
    crafted_counted(&w.c, "rx_drop_address link_rx_frames");
    clock_step(w.c.r.d, 20000);
    g_assert_cmphex(link_expect(&w.e, LINK_ACK).ack, ==, LINK_PEER + 2);
    goes_on(&w, 2);
}

/* Tests that before the agreement link frames are dropped. */
static void test_before_agreement(void)
{
    PeerPacket p;
    World w;

    crafted_start(&w.c, "link-retransmission=on", NULL);
    w.e = (LinkEnd) { .r = w.c.r, .session = link_session_of(w.c.r.d) };
    crafted_counted(&w.c, "link_tx_hellos");
    p = bad_write(&w, RQ_PSN);
    link_data(&w.e, 0, 0, &p, 0);
    crafted_counted(&w.c, "link_rx_stale");
    link_control(&w.e, LINK_ACK, 0, 0);
    crafted_counted(&w.c, "link_rx_stale");
    crafted_quiet(&w.c);
    g_assert_cmphex(link_state(w.c.r.d), ==, 0);
    crafted_honest(&w.c, RQ_PSN, 0);
    crafted_stop(&w.c);
}

/* Tests that without link retransmission link frames are ignored. */
static void test_off(void)
{
    PeerPacket p;
    World w;

    crafted_start(&w.c, "", NULL);
    w.e = (LinkEnd) { .r = w.c.r, .session = 1 };
    link_hello(&w.e, 0);
    p = bad_write(&w, RQ_PSN);
    link_data(&w.e, 0, 0, &p, 0);
    crafted_counted(&w.c, "");
    crafted_quiet(&w.c);
    crafted_honest(&w.c, RQ_PSN, 0);
    crafted_stop(&w.c);
}

void add_crafted_link_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/link/%s",
                                                cases[i].rule);

        qtest_add_data_func(path, &cases[i], test_case);
    }
    qtest_add_func("qrnic/crafted/link/replay-of-what-arrived-is-dropped",
                   test_replayed);
    qtest_add_func("qrnic/crafted/link/replay-of-what-is-kept-is-dropped",
                   test_held_replayed);
    qtest_add_func("qrnic/crafted/link/ahead-without-end-keeps-the-window",
                   test_held_is_bounded);
    qtest_add_func("qrnic/crafted/link/stale-ack-says-nothing", test_stale_ack);
    qtest_add_func("qrnic/crafted/link/forged-hello-ends-nothing",
                   test_forged_hello);
    qtest_add_func("qrnic/crafted/link/third-end-makes-it-plain",
                   test_third_end);
    qtest_add_func("qrnic/crafted/link/payload-frame-is-checked",
                   test_inner_lies);
    qtest_add_func("qrnic/crafted/link/before-agreement-is-stale",
                   test_before_agreement);
    qtest_add_func("qrnic/crafted/link/where-it-is-off", test_off);
}
