/*
 * One end of link retransmission, with the test as its peer: sent frames and
 * their times, and the reaction to invalid frames
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/cutils.h"
#include "link/frame.h"
#include "link/link.h"

#define US 1000ll
#define MS 1000000ll
#define OURS 0x11223344u
#define PEER 0xfffffffdu        /* Numbers wrap soon */
#define WINDOW 16

static const uint8_t our_mac[] = { 0x52, 0x54, 0, 0, 0, 1 };
static const uint8_t peer_mac[] = { 0x52, 0x54, 0, 0, 0, 2 };
static const uint8_t third_mac[] = { 0x52, 0x54, 0, 0, 0, 3 };

typedef struct Rig {
    QrnicLink *link;
    int64_t now, deadline;
    uint32_t sessions;
    GPtrArray *sent, *up;       /* GBytes */
    bool kicked, busy, closed, ready, agreed;
    unsigned changes;
    uint64_t count[QRNIC_LINK_NUM_COUNTS];
} Rig;

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    Rig *r = opaque;

    g_ptr_array_add(r->sent, g_bytes_new(frame, len));
    return !r->busy;
}

static void env_deliver(void *opaque, const uint8_t *frame, size_t len)
{
    Rig *r = opaque;

    g_assert_false(r->closed);
    g_ptr_array_add(r->up, g_bytes_new(frame, len));
}

static bool env_takes(void *opaque)
{
    return !((Rig *)opaque)->closed;
}

static void env_ready(void *opaque)
{
    ((Rig *)opaque)->ready = true;
}

static void env_changed(void *opaque, bool agreed)
{
    Rig *r = opaque;

    g_assert_true(r->agreed != agreed);
    r->agreed = agreed;
    r->changes++;
}

static void env_kick(void *opaque)
{
    ((Rig *)opaque)->kicked = true;
}

static int64_t env_clock_ns(void *opaque)
{
    return ((Rig *)opaque)->now;
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    ((Rig *)opaque)->deadline = deadline_ns;
}

static uint32_t env_random(void *opaque)
{
    return OURS + ((Rig *)opaque)->sessions++;
}

static void env_count(void *opaque, enum qrnic_link_count which, uint64_t n)
{
    ((Rig *)opaque)->count[which] += n;
}

static void unref_bytes(gpointer bytes)
{
    g_bytes_unref(bytes);
}

static Rig *rig_new(void)
{
    Rig *r = g_new0(Rig, 1);
    QrnicLinkConfig config = qrnic_link_config_default();
    const QrnicLinkEnv env = {
        .opaque = r, .send = env_send, .deliver = env_deliver,
        .takes = env_takes, .ready = env_ready, .changed = env_changed,
        .kick = env_kick, .clock_ns = env_clock_ns,
        .timer_arm = env_timer_arm, .random = env_random, .count = env_count,
    };

    config.name = "rig";
    config.window = WINDOW;
    memcpy(config.mac, our_mac, 6);
    r->deadline = QRNIC_LINK_NEVER;
    r->sent = g_ptr_array_new_with_free_func(unref_bytes);
    r->up = g_ptr_array_new_with_free_func(unref_bytes);
    r->link = qrnic_link_new(&config, &env);
    return r;
}

static void rig_free(Rig *r)
{
    qrnic_link_free(r->link);
    g_ptr_array_free(r->sent, true);
    g_ptr_array_free(r->up, true);
    g_free(r);
}

static void settle(Rig *r)
{
    while (r->kicked) {
        r->kicked = false;
        qrnic_link_run(r->link);
    }
}

/*
 * Runs the link at the next deadline. If that is later than until, only sets
 * the time to until and returns false.
 */
static bool step(Rig *r, int64_t until)
{
    settle(r);
    if (r->deadline > until) {
        r->now = until;
        return false;
    }
    r->now = MAX(r->now, r->deadline);
    r->deadline = QRNIC_LINK_NEVER;
    qrnic_link_timer(r->link);
    settle(r);
    return true;
}

static void pass(Rig *r, int64_t ns)
{
    int64_t until = r->now + ns;

    while (step(r, until)) {
        /* Until then */
    }
}

/* Makes frame `number` of the port above. */
static size_t above(uint8_t *frame, unsigned number)
{
    size_t len = 20 + number % 50;

    memset(frame, number, len);
    memcpy(frame, "\x52\x54\x00\x00\x00\x09" "\x52\x54\x00\x00\x00\x08"
           "\x08\x00", 14);
    stw_be_p(frame + 14, number);
    return len;
}

static bool put(Rig *r, unsigned number)
{
    uint8_t frame[128];
    size_t len = above(frame, number);

    return qrnic_link_send(r->link, frame, len);
}

static void expect_bytes(GPtrArray *from, const uint8_t *frame, size_t len)
{
    size_t got;
    const uint8_t *data;

    g_assert_cmpuint(from->len, >, 0);
    data = g_bytes_get_data(from->pdata[0], &got);
    g_assert_cmpmem(data, got, frame, len);
    g_ptr_array_remove_index(from, 0);
}

/* Asserts the next frame to the port above. */
static void expect_up(Rig *r, unsigned number)
{
    uint8_t frame[128];
    size_t len = above(frame, number);

    expect_bytes(r->up, frame, len);
}

static void expect_plain(Rig *r, unsigned number)
{
    uint8_t frame[128];
    size_t len = above(frame, number);

    settle(r);
    expect_bytes(r->sent, frame, len);
}

/* Asserts that the next sent frame is a link frame. */
static QrnicLinkHeader expect_sent(Rig *r, uint8_t type)
{
    QrnicLinkHeader h;
    const uint8_t *frame;
    size_t len;

    settle(r);
    g_assert_cmpuint(r->sent->len, >, 0);
    frame = g_bytes_get_data(r->sent->pdata[0], &len);
    g_assert_cmpint(qrnic_link_kind(frame, len), ==, QRNIC_LINK_OURS);
    g_assert_cmpint(qrnic_link_parse(&h, frame, len), ==, QRNIC_LINK_GOOD);
    g_assert_cmpint(h.type, ==, type);
    g_ptr_array_remove_index(r->sent, 0);
    return h;
}

static void expect_data(Rig *r, uint32_t number)
{
    QrnicLinkHeader h = expect_sent(r, QRNIC_LINK_DATA);

    g_assert_cmphex(h.number, ==, number);
}

static void expect_silence(Rig *r)
{
    settle(r);
    g_assert_cmpuint(r->sent->len, ==, 0);
}

static void expect_nothing_up(Rig *r)
{
    g_assert_cmpuint(r->up->len, ==, 0);
}

static size_t build(uint8_t *frame, const QrnicLinkHeader *h, unsigned number)
{
    QrnicLinkHeader full = *h;

    if (h->type == QRNIC_LINK_DATA && !h->length) {
        full.length = above(frame + QRNIC_LINK_OVERHEAD, number);
    }
    return qrnic_link_build(frame, peer_mac, &full);
}

static void receive(Rig *r, const QrnicLinkHeader *h, unsigned number)
{
    uint8_t frame[QRNIC_LINK_FRAME_MAX];
    size_t len = build(frame, h, number);

    g_assert_true(qrnic_link_takes(r->link));
    qrnic_link_receive(r->link, frame, len);
}

static QrnicLinkHeader hello(uint32_t session, uint32_t heard)
{
    return (QrnicLinkHeader) {
        .type = QRNIC_LINK_HELLO, .session = session, .heard = heard,
        .number = WINDOW,
    };
}

/* Returns DATA of the peer: frame n, with frame n of its port. */
static QrnicLinkHeader data(uint32_t n)
{
    return (QrnicLinkHeader) {
        .type = QRNIC_LINK_DATA, .session = PEER, .heard = OURS,
        .number = PEER + n, .ack = OURS,
    };
}

static QrnicLinkHeader ack(uint32_t n, uint64_t map)
{
    return (QrnicLinkHeader) {
        .type = QRNIC_LINK_ACK, .session = PEER, .heard = OURS,
        .ack = OURS + n, .map = map,
    };
}

static void receive_hello(Rig *r, uint32_t session, uint32_t heard)
{
    const QrnicLinkHeader h = hello(session, heard);

    receive(r, &h, 0);
}

static void receive_data(Rig *r, uint32_t n)
{
    const QrnicLinkHeader h = data(n);

    receive(r, &h, n);
}

static void receive_ack(Rig *r, uint32_t n, uint64_t map)
{
    const QrnicLinkHeader h = ack(n, map);

    receive(r, &h, 0);
}

static Rig *greeting(void)
{
    Rig *r = rig_new();

    qrnic_link_set_up(r->link, true);
    expect_sent(r, QRNIC_LINK_HELLO);
    return r;
}

static Rig *agreed(void)
{
    Rig *r = greeting();

    receive_hello(r, PEER, OURS);
    g_assert_true(r->agreed);
    expect_sent(r, QRNIC_LINK_ACK);
    pass(r, 1 * MS);
    expect_silence(r);
    return r;
}

/*
 * Asserts that the frame changed only a counter, and that the session
 * continues.
 */
static void expect_ignored(Rig *r, enum qrnic_link_count which)
{
    g_assert_cmpuint(r->count[which], ==, 1);
    expect_nothing_up(r);
    expect_silence(r);
    receive_data(r, 0);
    expect_up(r, 0);
    put(r, 7);
    expect_data(r, OURS);
    rig_free(r);
}

/* Tests the format of a link frame, byte by byte. */

static void test_format(void)
{
    static const uint8_t expected[] = {
        0x01, 0x80, 0xc2, 0x00, 0x00, 0x0c, 0x52, 0x54, 0x00, 0x00, 0x00, 0x01,
        0x88, 0xb5, 0x01, 0x02, 0x00, 0x10,
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
        0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10,
        0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18,
        0x98, 0x6b, 0xc3, 0xff,         /* Computed by another program */
        0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
        0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf,
    };
    const QrnicLinkHeader h = {
        .type = QRNIC_LINK_DATA, .session = 0x01020304, .heard = 0x05060708,
        .number = 0x090a0b0c, .ack = 0x0d0e0f10,
        .map = 0x1112131415161718ull, .length = 16,
    };
    uint8_t frame[QRNIC_LINK_FRAME_MIN + 16];
    QrnicLinkHeader back;

    for (unsigned i = 0; i < 16; i++) {
        frame[QRNIC_LINK_OVERHEAD + i] = 0xa0 + i;
    }
    g_assert_cmpuint(qrnic_link_build(frame, our_mac, &h), ==,
                     sizeof(expected));
    g_assert_cmpmem(frame, sizeof(expected), expected, sizeof(expected));
    g_assert_cmpint(qrnic_link_parse(&back, expected, sizeof(expected)), ==,
                    QRNIC_LINK_GOOD);
    g_assert_cmpmem(frame + QRNIC_LINK_OVERHEAD, back.length,
                    expected + QRNIC_LINK_OVERHEAD, 16);
    g_assert_cmpuint(qrnic_link_build(frame, our_mac, &back), ==,
                     sizeof(expected));
    g_assert_cmpmem(frame, sizeof(expected), expected, sizeof(expected));
}

static void test_format_short_is_filled(void)
{
    const QrnicLinkHeader h = ack(0, 0);
    uint8_t frame[QRNIC_LINK_FRAME_MIN];
    QrnicLinkHeader back;

    memset(frame, 0xff, sizeof(frame));
    g_assert_cmpuint(build(frame, &h, 0), ==, QRNIC_LINK_FRAME_MIN);
    g_assert_true(buffer_is_zero(frame + QRNIC_LINK_OVERHEAD, 14));
    g_assert_cmpint(qrnic_link_parse(&back, frame, sizeof(frame)), ==,
                    QRNIC_LINK_GOOD);
    g_assert_cmpint(qrnic_link_parse(&back, frame, QRNIC_LINK_OVERHEAD), ==,
                    QRNIC_LINK_GOOD);
}

/* HELLOs */

static void test_greeting_is_rare(void)
{
    Rig *r = greeting();

    pass(r, 60000 * MS);
    /* The interval is 10 ms, doubled up to 10 s. */
    g_assert_cmpuint(r->sent->len, >=, 10);
    g_assert_cmpuint(r->sent->len, <=, 16);
    while (r->sent->len) {
        g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).heard, ==, 0);
    }
    rig_free(r);
}

static void test_greeting_frames_are_plain(void)
{
    Rig *r = greeting();
    uint8_t frame[128];
    size_t len = above(frame, 2);

    g_assert_true(put(r, 1));
    expect_plain(r, 1);
    qrnic_link_receive(r->link, frame, len);
    expect_up(r, 2);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_FRAMES], ==, 0);
    rig_free(r);
}

static void test_greeting_hello_alone_agrees_nothing(void)
{
    Rig *r = greeting();

    receive_hello(r, PEER, 0);
    g_assert_false(r->agreed);
    pass(r, 1 * MS);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).heard, ==, PEER);
    put(r, 1);
    expect_plain(r, 1);
    rig_free(r);
}

static void test_greeting_of_another_session_agrees_nothing(void)
{
    Rig *r = greeting();

    receive_hello(r, PEER, OURS + 1);
    g_assert_false(r->agreed);
    rig_free(r);
}

static void test_greeting_data_of_who_heard_us_agrees(void)
{
    Rig *r = greeting();

    receive_hello(r, PEER, 0);
    receive_data(r, 0);
    g_assert_true(r->agreed);
    expect_up(r, 0);
    rig_free(r);
}

/* Tests that the end sends HELLOs until it knows that the peer agrees. */
static void test_greeting_is_answered_when_agreed(void)
{
    Rig *r = agreed();

    for (unsigned i = 0; i < 3; i++) {
        receive_hello(r, PEER, OURS);
        g_assert_cmphex(expect_sent(r, QRNIC_LINK_ACK).ack, ==, PEER);
        expect_silence(r);
    }
    receive_hello(r, PEER, 0);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).heard, ==, PEER);
    g_assert_cmpuint(r->count[QRNIC_LINK_ESTABLISHED], ==, 1);
    rig_free(r);
}

static void test_greeting_data_without_hello_is_stale(void)
{
    Rig *r = greeting();

    receive_data(r, 0);
    g_assert_false(r->agreed);
    expect_nothing_up(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_STALE], ==, 1);
    rig_free(r);
}

static void test_greeting_flood_is_answered_rarely(void)
{
    Rig *r = greeting();

    for (unsigned i = 0; i < 100000; i++) {
        receive_hello(r, 1000 + i, 0);
        settle(r);
        r->now += 1 * US;
        if (r->deadline <= r->now) {
            step(r, r->now);
        }
    }
    g_assert_cmpuint(r->sent->len, >, 50);
    g_assert_cmpuint(r->sent->len, <=, 102);
    rig_free(r);
}

static void test_greeting_echo_is_nobody(void)
{
    Rig *r = greeting();
    uint8_t frame[QRNIC_LINK_FRAME_MIN];
    const QrnicLinkHeader h = hello(OURS, OURS);

    qrnic_link_receive(r->link, frame, qrnic_link_build(frame, our_mac, &h));
    g_assert_false(r->agreed);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_STALE], ==, 1);
    rig_free(r);
}

static void test_greeting_waits_for_a_busy_wire(void)
{
    Rig *r = greeting();

    r->busy = true;
    g_assert_false(put(r, 1));
    expect_plain(r, 1);
    pass(r, 1000 * MS);
    expect_silence(r);
    r->busy = false;
    qrnic_link_wire_ready(r->link);
    g_assert_true(r->ready);
    expect_sent(r, QRNIC_LINK_HELLO);
    rig_free(r);
}

/*
 * Tests a frame of the port that is put while the wire is busy after a HELLO of
 * the link. The link sends the frame as soon as the wire is ready.
 */
static void test_greeting_frame_behind_a_busy_hello(void)
{
    Rig *r = rig_new();

    r->busy = true;
    qrnic_link_set_up(r->link, true);
    expect_sent(r, QRNIC_LINK_HELLO);
    g_assert_false(put(r, 1));
    expect_silence(r);
    r->busy = false;
    qrnic_link_wire_ready(r->link);
    expect_plain(r, 1);
    g_assert_true(r->ready);
    rig_free(r);
}

static void test_down_is_silent(void)
{
    Rig *r = agreed();
    const QrnicLinkHeader h = data(0);
    uint8_t frame[256];
    size_t len = build(frame, &h, 0);

    put(r, 1);
    expect_data(r, OURS);
    qrnic_link_set_up(r->link, false);
    g_assert_false(r->agreed);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_LOST], ==, 1);
    qrnic_link_receive(r->link, frame, len);
    expect_nothing_up(r);
    pass(r, 60000 * MS);
    expect_silence(r);
    rig_free(r);
}

static void test_up_again_is_a_new_session(void)
{
    Rig *r = agreed();

    qrnic_link_set_up(r->link, false);
    qrnic_link_set_up(r->link, true);
    pass(r, 1 * MS);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).session, ==, OURS + 1);
    /* This frame is of an earlier session. */
    receive_data(r, 0);
    expect_nothing_up(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_STALE], ==, 1);
    rig_free(r);
}

static void test_third_end_makes_it_plain(void)
{
    Rig *r = agreed();
    const QrnicLinkHeader h = hello(99, 0);
    uint8_t frame[QRNIC_LINK_FRAME_MIN];
    size_t len = qrnic_link_build(frame, third_mac, &h);

    qrnic_link_receive(r->link, frame, len);
    g_assert_false(r->agreed);
    put(r, 1);
    expect_plain(r, 1);
    receive_hello(r, PEER, OURS);
    g_assert_false(r->agreed);
    pass(r, 59000 * MS);
    expect_silence(r);
    pass(r, 2000 * MS);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).session, ==, OURS + 1);
    rig_free(r);
}

/* Sending */

static void test_data_is_numbered(void)
{
    Rig *r = agreed();

    for (unsigned i = 0; i < 5; i++) {
        g_assert_true(put(r, i));
        expect_data(r, OURS + i);
    }
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_FRAMES], ==, 5);
    rig_free(r);
}

static void test_data_waits_for_the_window(void)
{
    Rig *r = agreed();

    for (unsigned i = 0; i < WINDOW - 1; i++) {
        g_assert_true(put(r, i));
        expect_data(r, OURS + i);
    }
    g_assert_false(put(r, WINDOW - 1));
    expect_data(r, OURS + WINDOW - 1);
    /*
     * A frame beyond the window is rejected, because the peer has no buffer for
     * it.
     */
    g_assert_false(put(r, WINDOW));
    expect_silence(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_REFUSED], ==, 1);
    r->ready = false;
    receive_ack(r, 1, 0);
    settle(r);
    g_assert_true(r->ready);
    g_assert_false(put(r, WINDOW));
    expect_data(r, OURS + WINDOW);
    rig_free(r);
}

static void test_data_waits_for_the_others_window(void)
{
    Rig *r = greeting();
    QrnicLinkHeader h = hello(PEER, OURS);

    h.number = 2;
    receive(r, &h, 0);
    g_assert_true(r->agreed);
    g_assert_true(put(r, 0));
    g_assert_false(put(r, 1));
    rig_free(r);
}

static void test_data_waits_for_a_busy_wire(void)
{
    Rig *r = agreed();

    r->busy = true;
    g_assert_false(put(r, 0));
    expect_data(r, OURS);
    /*
     * A missing answer is not an error of the peer. The end keeps
     * retransmitting, because the peer can be paused.
     */
    pass(r, 60000 * MS);
    g_assert_true(r->agreed);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_TIMEOUTS], ==, 0);
    r->busy = false;
    qrnic_link_wire_ready(r->link);
    g_assert_true(r->ready);
    rig_free(r);
}

static void test_data_too_long_is_refused(void)
{
    g_autofree uint8_t *frame = g_malloc0(QRNIC_LINK_PAYLOAD_MAX + 1);
    Rig *r = agreed();

    g_assert_true(qrnic_link_send(r->link, frame, QRNIC_LINK_PAYLOAD_MAX + 1));
    expect_silence(r);
    g_assert_true(qrnic_link_send(r->link, frame, QRNIC_LINK_PAYLOAD_MAX));
    expect_data(r, OURS);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_REFUSED], ==, 1);
    rig_free(r);
}

/*
 * Tests that a guest's frame that looks like a link frame is rejected, with and
 * without an agreement.
 */
static void test_data_like_ours_is_refused(void)
{
    const QrnicLinkHeader h = hello(1, 2);
    uint8_t frame[QRNIC_LINK_FRAME_MIN];
    size_t len = qrnic_link_build(frame, our_mac, &h);

    for (unsigned i = 0; i < 2; i++) {
        Rig *r = i ? agreed() : greeting();

        qrnic_link_send(r->link, frame, len);
        expect_silence(r);
        g_assert_cmpuint(r->count[QRNIC_LINK_TX_REFUSED], ==, 1);
        rig_free(r);
    }
}

static void send_many(Rig *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        put(r, i);
        expect_data(r, OURS + i);
    }
}

static void test_lost_is_sent_again_at_once(void)
{
    Rig *r = agreed();
    QrnicLinkHeader h = ack(2, 0x5);    /* 2 and 4 are missing */

    h.type = QRNIC_LINK_NAK;
    send_many(r, 8);
    receive(r, &h, 0);
    expect_data(r, OURS + 2);
    expect_data(r, OURS + 4);
    expect_silence(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_RETRANSMISSIONS], ==, 2);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_TIMEOUTS], ==, 0);
    rig_free(r);
}

static void test_lost_is_sent_again_once(void)
{
    Rig *r = agreed();

    send_many(r, 8);
    receive_ack(r, 2, 0x1);
    expect_data(r, OURS + 2);
    /* A repeated report does not cause a second retransmission. */
    receive_ack(r, 2, 0x3);
    receive_ack(r, 2, 0x7);
    expect_silence(r);
    rig_free(r);
}

/*
 * Tests that a later frame proves that an earlier one is lost again, because
 * the wire keeps the order. Therefore no timer is needed.
 */
static void test_lost_again_is_seen_by_the_next(void)
{
    Rig *r = agreed();

    send_many(r, 8);
    receive_ack(r, 2, 0x1f);
    expect_data(r, OURS + 2);
    put(r, 8);
    expect_data(r, OURS + 8);
    receive_ack(r, 2, 0x3f);
    expect_data(r, OURS + 2);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_TIMEOUTS], ==, 0);
    rig_free(r);
}

static void test_lost_tail_is_sent_again_in_time(void)
{
    Rig *r = agreed();

    send_many(r, 3);
    r->now += 5 * US;
    receive_ack(r, 1, 0);
    expect_silence(r);
    pass(r, 150 * US);
    expect_data(r, OURS + 1);
    expect_silence(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_TIMEOUTS], ==, 1);
    /* The frames behind it are lost too. */
    receive_ack(r, 2, 0);
    expect_data(r, OURS + 2);
    rig_free(r);
}

static void test_lost_forever_ends_the_connection(void)
{
    Rig *r = agreed();
    int64_t begin = r->now;

    send_many(r, 3);
    while (r->agreed) {
        g_assert_true(step(r, begin + 10000 * MS));
    }
    g_assert_cmpint(r->now - begin, >, 1000 * MS);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_LOST], ==, 3);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_TIMEOUTS], ==, 21);
    while (r->sent->len > 1) {
        expect_data(r, OURS);
    }
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).session, ==, OURS + 1);
    put(r, 9);
    expect_plain(r, 9);
    rig_free(r);
}

static void test_timeouts_are_doubled(void)
{
    Rig *r = agreed();
    int64_t last = 0, gap = 0;

    send_many(r, 1);
    for (unsigned i = 0; i < 6; i++) {
        g_assert_true(step(r, r->now + 1000 * MS));
        expect_data(r, OURS);
        if (i > 1) {
            g_assert_cmpint(r->now - last, >=, MIN(2 * gap, 250 * MS));
            g_assert_cmpint(r->now - last, <=, 250 * MS);
        }
        gap = r->now - last;
        last = r->now;
    }
    rig_free(r);
}

static void test_restart_of_the_other_end(void)
{
    Rig *r = agreed();

    send_many(r, 2);
    receive_hello(r, PEER + 50, 0);
    g_assert_true(r->agreed);           /* The report can be old */
    pass(r, 1 * MS);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).heard, ==, PEER + 50);
    receive_hello(r, PEER + 50, OURS);
    g_assert_true(r->agreed);
    g_assert_cmpuint(r->count[QRNIC_LINK_ESTABLISHED], ==, 2);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_LOST], ==, 2);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_ACK).session, ==, OURS);
    /*
     * A new session starts at the first number, and drops frames of the old
     * one.
     */
    put(r, 5);
    expect_data(r, OURS);
    receive_data(r, 0);
    expect_nothing_up(r);
    rig_free(r);
}

/* Receiving */

static void test_arrival_in_order(void)
{
    Rig *r = agreed();

    for (unsigned i = 0; i < 7; i++) {
        receive_data(r, i);
        expect_up(r, i);
    }
    expect_silence(r);
    receive_data(r, 7);
    expect_up(r, 7);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_ACK).ack, ==, PEER + 8);
    expect_silence(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_FRAMES], ==, 8);
    rig_free(r);
}

static void test_arrival_is_acknowledged_in_time(void)
{
    Rig *r = agreed();

    receive_data(r, 0);
    expect_silence(r);
    pass(r, 20 * US);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_ACK).ack, ==, PEER + 1);
    pass(r, 100 * MS);
    expect_silence(r);
    rig_free(r);
}

static void test_arrival_is_acknowledged_by_data(void)
{
    Rig *r = agreed();

    receive_data(r, 0);
    put(r, 0);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_DATA).ack, ==, PEER + 1);
    pass(r, 50 * US);
    expect_silence(r);
    rig_free(r);
}

static void test_gap_is_told_once(void)
{
    Rig *r = agreed();
    QrnicLinkHeader h;

    receive_data(r, 0);
    expect_up(r, 0);
    receive_data(r, 3);
    h = expect_sent(r, QRNIC_LINK_NAK);
    g_assert_cmphex(h.ack, ==, PEER + 1);
    g_assert_cmphex(h.map, ==, 0x2);
    receive_data(r, 4);
    expect_silence(r);
    expect_nothing_up(r);
    receive_data(r, 6);                 /* Another frame */
    h = expect_sent(r, QRNIC_LINK_NAK);
    g_assert_cmphex(h.ack, ==, PEER + 1);
    g_assert_cmphex(h.map, ==, 0x16);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_GAPS], ==, 2);
    rig_free(r);
}

static void test_gap_that_is_filled(void)
{
    Rig *r = agreed();

    receive_data(r, 1);
    receive_data(r, 2);
    receive_data(r, 0);
    for (unsigned i = 0; i < 3; i++) {
        expect_up(r, i);
    }
    expect_nothing_up(r);
    rig_free(r);
}

static void test_duplicate_is_dropped(void)
{
    Rig *r = agreed();

    receive_data(r, 0);
    receive_data(r, 0);
    expect_up(r, 0);
    expect_nothing_up(r);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_ACK).ack, ==, PEER + 1);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_DUPLICATES], ==, 1);
    rig_free(r);
}

static void test_duplicate_of_one_held_is_dropped(void)
{
    Rig *r = agreed();

    receive_data(r, 1);
    receive_data(r, 1);
    receive_data(r, 0);
    expect_up(r, 0);
    expect_up(r, 1);
    expect_nothing_up(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_DUPLICATES], ==, 1);
    rig_free(r);
}

static void test_arrival_waits_for_the_port(void)
{
    Rig *r = agreed();
    const QrnicLinkHeader h = data(0);
    uint8_t frame[256];
    size_t len = build(frame, &h, 0);

    receive_data(r, 1);
    receive_data(r, 2);
    g_ptr_array_set_size(r->sent, 0);
    r->closed = true;
    g_assert_false(qrnic_link_takes(r->link));
    /* The caller did not check first: the frame is buffered, in order. */
    qrnic_link_receive(r->link, frame, len);
    expect_nothing_up(r);
    g_assert_false(qrnic_link_takes(r->link));
    r->closed = false;
    g_assert_true(qrnic_link_takes(r->link));
    for (unsigned i = 0; i < 3; i++) {
        expect_up(r, i);
    }
    rig_free(r);
}

static void test_damaged_address_is_damage(void)
{
    const QrnicLinkHeader h = data(0);
    uint8_t frame[256];
    size_t len = build(frame, &h, 0);
    Rig *r = agreed();

    frame[2] ^= 0x55;
    qrnic_link_receive(r->link, frame, len);
    expect_ignored(r, QRNIC_LINK_RX_CRC_ERRORS);
}

static void test_plain_frame_is_taken_all_the_same(void)
{
    Rig *r = agreed();
    uint8_t frame[128];
    size_t len = above(frame, 3);

    qrnic_link_receive(r->link, frame, len);
    expect_up(r, 3);
    rig_free(r);
}

/*
 * Tests frames of other protocols at these addresses: LLDP, LACP, PTP, pause.
 */
static void test_neighbours_are_no_link_frames(void)
{
    static const uint8_t other[][14] = {
        { 1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc },
        { 1, 0x80, 0xc2, 0, 0, 0x02, 2, 0, 0, 0, 0, 1, 0x88, 0x09 },
        { 1, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xf7 },
        { 1, 0x80, 0xc2, 0, 0, 0x01, 2, 0, 0, 0, 0, 1, 0x88, 0x08 },
        { 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5 },
    };
    Rig *r = agreed();

    for (unsigned i = 0; i < ARRAY_SIZE(other); i++) {
        qrnic_link_receive(r->link, other[i], sizeof(other[i]));
        expect_bytes(r->up, other[i], sizeof(other[i]));
    }
    rig_free(r);
}

/* Invalid frames: each is counted and has no other effect. */

typedef struct Crafted {
    const char *rule;
    enum qrnic_link_count counted;
    QrnicLinkHeader h;
    unsigned cut, more;         /* Bytes to remove and to append */
    int patch;                  /* 1 + offset of a byte to invert */
    bool resealed;              /* With a corrected CRC */
    bool nested;
} Crafted;

#define AS_DATA .type = QRNIC_LINK_DATA, .session = PEER, .heard = OURS
#define AS_ACK .type = QRNIC_LINK_ACK, .session = PEER, .heard = OURS
#define SENT 4

static const Crafted crafted[] = {
    { "crc-of-data", QRNIC_LINK_RX_CRC_ERRORS,
      { AS_DATA, .number = PEER, .ack = OURS }, .patch = 60 },
    { "crc-of-ack", QRNIC_LINK_RX_CRC_ERRORS,
      { AS_ACK, .ack = OURS + 1 }, .patch = 34 },
    { "crc-itself", QRNIC_LINK_RX_CRC_ERRORS,
      { AS_DATA, .number = PEER, .ack = OURS }, .patch = 43 },
    { "crc-covers-source", QRNIC_LINK_RX_CRC_ERRORS,
      { AS_DATA, .number = PEER, .ack = OURS }, .patch = 8 },
    { "truncated-header", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS }, .cut = 15 },
    { "truncated-data", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 100 }, .cut = 1 },
    { "bytes-behind-data", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 100 }, .more = 1 },
    { "bytes-behind-ack", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS }, .more = 1 },
    { "payload-too-short", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 13 } },
    { "payload-too-long", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS,
        .length = QRNIC_LINK_PAYLOAD_MAX + 1 } },
    { "nested", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 60 }, .nested = true },
    { "version-other", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 60 },
      .patch = 15, .resealed = true },
    { "type-zero", QRNIC_LINK_RX_MALFORMED,
      { .session = PEER, .heard = OURS, .ack = OURS } },
    { "type-unknown", QRNIC_LINK_RX_MALFORMED,
      { .type = 5, .session = PEER, .heard = OURS, .ack = OURS } },
    { "session-zero", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_DATA, .heard = OURS, .number = PEER, .ack = OURS,
        .length = 60 } },
    { "data-heard-zero", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_DATA, .session = PEER, .number = PEER, .ack = OURS,
        .length = 60 } },
    { "hello-window-zero", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_HELLO, .session = PEER, .heard = OURS } },
    { "hello-ack-reserved", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_HELLO, .session = PEER, .heard = OURS,
        .number = 1, .ack = 1 } },
    { "hello-map-reserved", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_HELLO, .session = PEER, .heard = OURS,
        .number = 1, .map = 1 } },
    { "hello-carries-nothing", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_HELLO, .session = PEER, .heard = OURS,
        .number = 1, .length = 20 } },
    { "ack-number-reserved", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS, .number = 1 } },
    { "ack-carries-nothing", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS, .length = 20 } },
    { "ack-of-what-was-not-sent", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS + SENT + 1 } },
    { "ack-of-half-the-numbers", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS + 0x7fffffff } },
    { "map-of-what-was-not-sent", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS, .map = 1ull << (SENT - 1) } },
    { "map-of-all", QRNIC_LINK_RX_MALFORMED,
      { AS_ACK, .ack = OURS, .map = UINT64_MAX } },
    { "data-with-ack-of-what-was-not-sent", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS + SENT + 1, .length = 60 } },
    { "number-beyond-the-window", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER + WINDOW, .ack = OURS, .length = 60 } },
    /* The order of the checks: the first broken rule is counted. */
    { "length-before-crc", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 100 },
      .patch = 43, .cut = 1 },
    { "crc-before-version", QRNIC_LINK_RX_CRC_ERRORS,
      { AS_DATA, .number = PEER, .ack = OURS, .length = 60 }, .patch = 15 },
    { "fields-before-session", QRNIC_LINK_RX_MALFORMED,
      { .type = QRNIC_LINK_ACK, .session = PEER + 1, .heard = OURS,
        .ack = OURS, .number = 1 } },
    { "acknowledgement-before-number", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER - 1, .ack = OURS + SENT + 1, .length = 60 } },
    { "number-of-half-the-numbers", QRNIC_LINK_RX_MALFORMED,
      { AS_DATA, .number = PEER + 0x7fffffff, .ack = OURS, .length = 60 } },
};

static void craft(Rig *r, const Crafted *c)
{
    g_autofree uint8_t *frame = g_malloc0(QRNIC_LINK_FRAME_MAX + 64);
    const QrnicLinkHeader inner = hello(7, 8);
    size_t len;

    if (c->nested) {
        qrnic_link_build(frame + QRNIC_LINK_OVERHEAD, peer_mac, &inner);
    }
    len = build(frame, &c->h, 0);
    if (c->patch) {
        frame[c->patch - 1] ^= 0xff;
    }
    if (c->resealed) {
        g_autofree uint8_t *copy = g_memdup2(frame, len);

        /*
         * This is the CRC of all bytes but the CRC itself, computed bit by bit.
         */
        uint32_t crc = 0xffffffff;

        for (size_t i = 0; i < len; i++) {
            if (i >= 42 && i < 46) {
                continue;
            }
            crc ^= copy[i];
            for (unsigned bit = 0; bit < 8; bit++) {
                crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
            }
        }
        stl_be_p(frame + 42, ~crc);
    }
    /*
     * Exactly this length, so that sanitizers detect a read behind the frame.
     */
    len = len - c->cut + c->more;
    {
        g_autofree uint8_t *exact = g_memdup2(frame, len);

        qrnic_link_receive(r->link, exact, len);
    }
}

static void test_crafted(gconstpointer opaque)
{
    const Crafted *c = opaque;
    Rig *r = agreed();
    uint64_t others = 0;

    send_many(r, SENT);
    craft(r, c);
    g_assert_cmpuint(r->count[c->counted], ==, 1);
    for (unsigned i = QRNIC_LINK_RX_GAPS; i <= QRNIC_LINK_RX_STALE; i++) {
        others += r->count[i];
    }
    g_assert_cmpuint(others, ==, 1);
    g_assert_true(r->agreed);
    g_assert_cmpuint(r->changes, ==, 1);
    expect_nothing_up(r);
    expect_silence(r);
    /* The session continues. */
    receive_data(r, 0);
    expect_up(r, 0);
    receive_ack(r, SENT, 0);
    pass(r, 1 * MS);
    expect_sent(r, QRNIC_LINK_ACK);
    expect_silence(r);
    put(r, 9);
    expect_data(r, OURS + SENT);
    rig_free(r);
}

/* Invalid, but possible frames, and old ones */

static void test_stale_session_is_dropped(void)
{
    Rig *r = agreed();
    QrnicLinkHeader h = data(0);

    h.session = PEER - 1;
    receive(r, &h, 0);
    h = data(0);
    h.heard = OURS - 1;
    receive(r, &h, 0);
    expect_nothing_up(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_STALE], ==, 2);
    g_assert_true(r->agreed);
    /*
     * The peer may have begun a new session, so a HELLO reports the session
     * that this end hears.
     */
    pass(r, 2 * MS);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).heard, ==, PEER);
    expect_silence(r);
    receive_data(r, 0);
    expect_up(r, 0);
    rig_free(r);
}

static void test_stale_ack_is_dropped(void)
{
    Rig *r = agreed();

    send_many(r, 6);
    receive_ack(r, 4, 0);
    receive_ack(r, 1, 0x1);
    expect_silence(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_RETRANSMISSIONS], ==, 0);
    rig_free(r);
}

/*
 * Tests a frame that was acknowledged, and is now reported missing. The end no
 * longer has this frame.
 */
static void test_ack_taken_back(void)
{
    Rig *r = agreed();

    send_many(r, 3);
    receive_ack(r, 0, 0x3);             /* 1 and 2 have arrived */
    expect_data(r, OURS);
    receive_ack(r, 1, 0);               /* 1 is missing */
    expect_silence(r);
    while (r->agreed) {
        g_assert_true(step(r, 10000 * MS));
    }
    expect_sent(r, QRNIC_LINK_HELLO);
    rig_free(r);
}

static void test_forged_hello_ends_nothing(void)
{
    Rig *r = agreed();

    send_many(r, 2);
    for (unsigned i = 1; i < 1000; i++) {
        receive_hello(r, PEER + i, OURS + i);
        settle(r);
    }
    g_assert_true(r->agreed);
    g_assert_cmpuint(r->count[QRNIC_LINK_ESTABLISHED], ==, 1);
    g_assert_cmpuint(r->sent->len, <=, 1);
    receive_ack(r, 2, 0);
    receive_data(r, 0);
    expect_up(r, 0);
    rig_free(r);
}

static void test_held_frames_are_bounded(void)
{
    Rig *r = agreed();

    for (unsigned i = 1; i < 5000; i++) {
        receive_data(r, i);
        g_ptr_array_set_size(r->sent, 0);
    }
    expect_nothing_up(r);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_MALFORMED], ==, 5000 - WINDOW);
    receive_data(r, 0);
    for (unsigned i = 0; i < WINDOW; i++) {
        expect_up(r, i);
    }
    expect_nothing_up(r);
    rig_free(r);
}

/*
 * Tests that the acknowledgement in a frame of another session is not checked.
 */
static void test_session_before_acknowledgement(void)
{
    Rig *r = agreed();
    const QrnicLinkHeader h = {
        .type = QRNIC_LINK_ACK, .session = PEER + 1, .heard = OURS,
        .ack = OURS + SENT + 1,
    };

    send_many(r, SENT);
    receive(r, &h, 0);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_STALE], ==, 1);
    g_assert_cmpuint(r->count[QRNIC_LINK_RX_MALFORMED], ==, 0);
    g_assert_true(r->agreed);
    rig_free(r);
}

static void test_reset_begins_anew(void)
{
    Rig *r = agreed();

    send_many(r, 2);
    receive_data(r, 1);                 /* Buffered */
    g_ptr_array_set_size(r->sent, 0);
    qrnic_link_reset(r->link);
    g_assert_false(r->agreed);
    g_assert_cmpuint(r->count[QRNIC_LINK_TX_LOST], ==, 2);
    pass(r, 1 * MS);
    g_assert_cmphex(expect_sent(r, QRNIC_LINK_HELLO).session, ==, OURS + 1);
    receive_hello(r, PEER, OURS + 1);
    g_assert_true(r->agreed);
    expect_nothing_up(r);
    rig_free(r);
}

/* Tests random bytes behind a valid address. */
static void test_noise(void)
{
    GRand *rand = g_rand_new_with_seed(7);
    Rig *r = agreed();

    for (unsigned i = 0; i < 200000; i++) {
        size_t len = g_rand_int_range(rand, 14, 200);
        g_autofree uint8_t *frame = g_malloc(len);
        const QrnicLinkHeader h = {
            .type = g_rand_int_range(rand, 0, 6),
            .session = PEER + g_rand_int_range(rand, 0, 2),
            .heard = OURS + g_rand_int_range(rand, 0, 2),
            .number = PEER + g_rand_int_range(rand, -40, 40),
            .ack = OURS + g_rand_int_range(rand, -40, 40),
            .map = (uint64_t)g_rand_int(rand) << 32 | g_rand_int(rand),
            .length = len > 60 ? len - 46 : 0,
        };

        if (len >= QRNIC_LINK_FRAME_MIN) {
            qrnic_link_build(frame, peer_mac, &h);
        } else {
            memset(frame, i, len);
            memcpy(frame, "\x01\x80\xc2\x00\x00\x0c", 6);
            stw_be_p(frame + 12, QRNIC_LINK_ETHERTYPE);
        }
        if (qrnic_link_takes(r->link)) {
            qrnic_link_receive(r->link, frame, len);
        }
        put(r, i);
        pass(r, g_rand_int_range(rand, 0, 100 * US));
        g_ptr_array_set_size(r->sent, 0);
        g_ptr_array_set_size(r->up, 0);
    }
    rig_free(r);
    g_rand_free(rand);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/link/format", test_format);
    g_test_add_func("/link/format-short-is-filled",
                    test_format_short_is_filled);
    g_test_add_func("/link/greeting/is-rare", test_greeting_is_rare);
    g_test_add_func("/link/greeting/frames-are-plain",
                    test_greeting_frames_are_plain);
    g_test_add_func("/link/greeting/hello-alone-agrees-nothing",
                    test_greeting_hello_alone_agrees_nothing);
    g_test_add_func("/link/greeting/of-another-session-agrees-nothing",
                    test_greeting_of_another_session_agrees_nothing);
    g_test_add_func("/link/greeting/data-of-who-heard-us-agrees",
                    test_greeting_data_of_who_heard_us_agrees);
    g_test_add_func("/link/greeting/is-answered-when-agreed",
                    test_greeting_is_answered_when_agreed);
    g_test_add_func("/link/greeting/data-without-hello-is-stale",
                    test_greeting_data_without_hello_is_stale);
    g_test_add_func("/link/greeting/flood-is-answered-rarely",
                    test_greeting_flood_is_answered_rarely);
    g_test_add_func("/link/greeting/echo-is-nobody",
                    test_greeting_echo_is_nobody);
    g_test_add_func("/link/greeting/waits-for-a-busy-wire",
                    test_greeting_waits_for_a_busy_wire);
    g_test_add_func("/link/greeting/frame-behind-a-busy-hello",
                    test_greeting_frame_behind_a_busy_hello);
    g_test_add_func("/link/down-is-silent", test_down_is_silent);
    g_test_add_func("/link/up-again-is-a-new-session",
                    test_up_again_is_a_new_session);
    g_test_add_func("/link/third-end-makes-it-plain",
                    test_third_end_makes_it_plain);
    g_test_add_func("/link/data/is-numbered", test_data_is_numbered);
    g_test_add_func("/link/data/waits-for-the-window",
                    test_data_waits_for_the_window);
    g_test_add_func("/link/data/waits-for-the-others-window",
                    test_data_waits_for_the_others_window);
    g_test_add_func("/link/data/waits-for-a-busy-wire",
                    test_data_waits_for_a_busy_wire);
    g_test_add_func("/link/data/too-long-is-refused",
                    test_data_too_long_is_refused);
    g_test_add_func("/link/data/like-ours-is-refused",
                    test_data_like_ours_is_refused);
    g_test_add_func("/link/lost/is-sent-again-at-once",
                    test_lost_is_sent_again_at_once);
    g_test_add_func("/link/lost/is-sent-again-once",
                    test_lost_is_sent_again_once);
    g_test_add_func("/link/lost/again-is-seen-by-the-next",
                    test_lost_again_is_seen_by_the_next);
    g_test_add_func("/link/lost/tail-is-sent-again-in-time",
                    test_lost_tail_is_sent_again_in_time);
    g_test_add_func("/link/lost/forever-ends-the-connection",
                    test_lost_forever_ends_the_connection);
    g_test_add_func("/link/timeouts-are-doubled", test_timeouts_are_doubled);
    g_test_add_func("/link/restart-of-the-other-end",
                    test_restart_of_the_other_end);
    g_test_add_func("/link/arrival/in-order", test_arrival_in_order);
    g_test_add_func("/link/arrival/is-acknowledged-in-time",
                    test_arrival_is_acknowledged_in_time);
    g_test_add_func("/link/arrival/is-acknowledged-by-data",
                    test_arrival_is_acknowledged_by_data);
    g_test_add_func("/link/arrival/waits-for-the-port",
                    test_arrival_waits_for_the_port);
    g_test_add_func("/link/gap/is-told-once", test_gap_is_told_once);
    g_test_add_func("/link/gap/that-is-filled", test_gap_that_is_filled);
    g_test_add_func("/link/duplicate/is-dropped", test_duplicate_is_dropped);
    g_test_add_func("/link/duplicate/of-one-held-is-dropped",
                    test_duplicate_of_one_held_is_dropped);
    g_test_add_func("/link/damaged-address-is-damage",
                    test_damaged_address_is_damage);
    g_test_add_func("/link/plain-frame-is-taken-all-the-same",
                    test_plain_frame_is_taken_all_the_same);
    g_test_add_func("/link/neighbours-are-no-link-frames",
                    test_neighbours_are_no_link_frames);
    for (unsigned i = 0; i < ARRAY_SIZE(crafted); i++) {
        g_autofree char *path = g_strdup_printf("/link/crafted/%s",
                                                crafted[i].rule);

        g_test_add_data_func(path, &crafted[i], test_crafted);
    }
    g_test_add_func("/link/stale/session-is-dropped",
                    test_stale_session_is_dropped);
    g_test_add_func("/link/stale/ack-is-dropped", test_stale_ack_is_dropped);
    g_test_add_func("/link/lies/ack-taken-back", test_ack_taken_back);
    g_test_add_func("/link/lies/forged-hello-ends-nothing",
                    test_forged_hello_ends_nothing);
    g_test_add_func("/link/lies/held-frames-are-bounded",
                    test_held_frames_are_bounded);
    g_test_add_func("/link/session-before-acknowledgement",
                    test_session_before_acknowledgement);
    g_test_add_func("/link/reset-begins-anew", test_reset_begins_anew);
    g_test_add_func("/link/noise", test_noise);
    return g_test_run();
}
