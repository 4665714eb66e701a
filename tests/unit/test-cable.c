/*
 * The memory of a cable: both ends, and a peer that writes invalid indices
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/atomic.h"
#include "qemu/bswap.h"
#include "cable/ring.h"
#include "cable/tempo.h"

#define SLOTS 16
#define FRAME 2048

typedef struct Ends {
    QrnicCableRing sender, receiver;
    uint8_t *memory;
    size_t bytes;
} Ends;

static Ends ends_new(uint32_t slots)
{
    const QrnicRingShape shape = {
        .slots = slots, .max_frame = FRAME,
        .stride = qrnic_cable_ring_stride(FRAME),
    };
    Ends e = { .bytes = qrnic_cable_ring_bytes(&shape) };

    g_assert_cmpuint(e.bytes, >, 0);
    e.memory = g_malloc0(e.bytes);
    qrnic_cable_ring_init(&e.sender, e.memory, &shape);
    qrnic_cable_ring_init(&e.receiver, e.memory, &shape);
    return e;
}

static void ends_free(Ends *e)
{
    g_free(e->memory);
}

/*
 * Returns the length of a frame. Length and bytes follow from the frame's
 * number.
 */
static uint32_t length_of(uint32_t number)
{
    return 14 + number * 977 % (FRAME - 13);
}

static void send_one(Ends *e, uint32_t number)
{
    uint32_t len = length_of(number);

    g_assert_cmpuint(qrnic_cable_ring_room(&e->sender), >, 0);
    memset(qrnic_cable_ring_next(&e->sender), number, len);
    qrnic_cable_ring_commit(&e->sender, len);
}

static void expect_one(Ends *e, uint32_t number)
{
    uint32_t len;
    const uint8_t *frame = qrnic_cable_ring_peek(&e->receiver, &len);

    g_assert_nonnull(frame);
    g_assert_cmpuint(len, ==, length_of(number));
    for (uint32_t i = 0; i < len; i++) {
        g_assert_cmphex(frame[i], ==, number & 0xff);
    }
    qrnic_cable_ring_take(&e->receiver);
}

static bool empty(Ends *e)
{
    uint32_t len;

    return !qrnic_cable_ring_peek(&e->receiver, &len);
}

/*
 * Tests every fill level of the ring, many rounds, and the wrap of the
 * counters.
 */
static void test_wrap(void)
{
    Ends e = ends_new(SLOTS);
    uint32_t sent = 0, taken = 0;

    e.sender.own = e.sender.seen = e.sender.told = UINT32_MAX - 40;
    e.receiver.own = e.receiver.seen = e.receiver.told = UINT32_MAX - 40;
    stl_le_p(e.memory + QRNIC_CABLE_CONTROL_PRODUCED_OFFSET, UINT32_MAX - 40);
    stl_le_p(e.memory + QRNIC_CABLE_CONTROL_CONSUMED_OFFSET, UINT32_MAX - 40);
    for (unsigned level = 1; level <= SLOTS; level++) {
        for (unsigned round = 0; round < 5; round++) {
            while (sent - taken < level) {
                send_one(&e, sent++);
            }
            expect_one(&e, taken++);
        }
    }
    while (taken != sent) {
        expect_one(&e, taken++);
    }
    g_assert_true(empty(&e));
    g_assert_false(e.sender.broken || e.receiver.broken);
    ends_free(&e);
}

static void test_full(void)
{
    Ends e = ends_new(SLOTS);

    for (uint32_t i = 0; i < SLOTS; i++) {
        g_assert_cmpuint(qrnic_cable_ring_room(&e.sender), ==, SLOTS - i);
        send_one(&e, i);
    }
    g_assert_cmpuint(qrnic_cable_ring_room(&e.sender), ==, 0);
    expect_one(&e, 0);
    g_assert_cmpuint(qrnic_cable_ring_room(&e.sender), ==, 1);
    ends_free(&e);
}

/* Tests that many frames cause one event, and none if the receiver polls. */
static void test_wake(void)
{
    Ends e = ends_new(SLOTS);

    g_assert_false(qrnic_cable_ring_await_frame(&e.receiver));
    send_one(&e, 0);
    g_assert_true(qrnic_cable_ring_wants_wake(&e.sender));
    send_one(&e, 1);
    g_assert_false(qrnic_cable_ring_wants_wake(&e.sender));
    expect_one(&e, 0);
    expect_one(&e, 1);
    send_one(&e, 2);
    /* The receiver has not requested an event, because it polls. */
    g_assert_false(qrnic_cable_ring_wants_wake(&e.sender));
    g_assert_true(qrnic_cable_ring_await_frame(&e.receiver));
    expect_one(&e, 2);
    g_assert_false(qrnic_cable_ring_await_frame(&e.receiver));
    for (uint32_t i = 3; i < 8; i++) {
        send_one(&e, i);
    }
    g_assert_true(qrnic_cable_ring_wants_wake(&e.sender));
    ends_free(&e);
}

static void test_room(void)
{
    Ends e = ends_new(SLOTS);
    uint32_t i;

    for (i = 0; i < SLOTS; i++) {
        send_one(&e, i);
    }
    /*
     * The first poll causes one extra event, because the indices begin with 0.
     */
    qrnic_cable_ring_wants_room(&e.receiver);
    g_assert_false(qrnic_cable_ring_await_room(&e.sender));
    for (i = 0; i < SLOTS / 4 - 1; i++) {
        expect_one(&e, i);
        g_assert_false(qrnic_cable_ring_wants_room(&e.receiver));
    }
    expect_one(&e, i++);
    g_assert_true(qrnic_cable_ring_wants_room(&e.receiver));
    expect_one(&e, i++);
    g_assert_false(qrnic_cable_ring_wants_room(&e.receiver));
    g_assert_cmpuint(qrnic_cable_ring_room(&e.sender), ==, SLOTS / 4 + 1);
    ends_free(&e);
}

/*
 * Tests that an invalid index of the peer never leads outside the ring.
 * Otherwise a peer could read memory of QEMU.
 */
static void test_lying_receiver(void)
{
    const uint32_t lies[] = { 1, 2, SLOTS, 1u << 31 };

    for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
        Ends e = ends_new(SLOTS);

        for (uint32_t n = 0; n < SLOTS; n++) {
            send_one(&e, n);
        }
        stl_le_p(e.memory + QRNIC_CABLE_CONTROL_CONSUMED_OFFSET,
                 SLOTS + lies[i]);
        g_assert_cmpuint(qrnic_cable_ring_room(&e.sender), ==, 0);
        g_assert_true(e.sender.broken);
        ends_free(&e);
    }
}

static void test_lying_sender(void)
{
    const uint32_t lies[] = { SLOTS + 1, 1u << 31, UINT32_MAX };
    const uint32_t lengths[] = { 0, 13, FRAME + 1, UINT32_MAX };
    uint32_t len;

    for (unsigned i = 0; i < ARRAY_SIZE(lies); i++) {
        Ends e = ends_new(SLOTS);

        stl_le_p(e.memory + QRNIC_CABLE_CONTROL_PRODUCED_OFFSET, lies[i]);
        g_assert_null(qrnic_cable_ring_peek(&e.receiver, &len));
        g_assert_true(e.receiver.broken);
        ends_free(&e);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        Ends e = ends_new(SLOTS);

        send_one(&e, 0);
        stl_le_p(e.memory + QRNIC_CABLE_CONTROL_SIZE, lengths[i]);
        g_assert_null(qrnic_cable_ring_peek(&e.receiver, &len));
        g_assert_true(e.receiver.broken);
        ends_free(&e);
    }
}

static void test_shapes(void)
{
    const QrnicRingShape good = {
        .slots = SLOTS, .max_frame = FRAME,
        .stride = qrnic_cable_ring_stride(FRAME),
    };
    QrnicRingShape s;

    g_assert_cmpuint(qrnic_cable_ring_bytes(&good), >=,
                     QRNIC_CABLE_CONTROL_SIZE + SLOTS * good.stride);
    g_assert_cmpuint(good.stride, >=, FRAME + QRNIC_CABLE_SLOT_BYTES);
    for (unsigned i = 0; i < 7; i++) {
        s = good;
        switch (i) {
        case 0:
            s.slots = 0;
            break;
        case 1:
            s.slots = SLOTS + 1;
            break;
        case 2:
            s.slots = 2 * QRNIC_CABLE_MAX_SLOTS;
            break;
        case 3:
            s.stride -= QRNIC_CABLE_LINE;
            break;
        case 4:
            s.stride = UINT32_MAX;
            break;
        case 5:
            s.max_frame = QRNIC_CABLE_MAX_FRAME + 1;
            s.stride = qrnic_cable_ring_stride(s.max_frame);
            break;
        case 6:
            s.max_frame = 0;
            break;
        }
        g_assert_cmpuint(qrnic_cable_ring_bytes(&s), ==, 0);
    }
}

/* Tests that no event is lost if two threads sleep whenever they may. */
#define STRESS 200000

typedef struct Stress {
    Ends e;
    GMutex lock;
    GCond wake, room;
    bool woken, roomy;
} Stress;

static void ring_bell(Stress *s, GCond *cond, bool *flag)
{
    g_mutex_lock(&s->lock);
    *flag = true;
    g_cond_signal(cond);
    g_mutex_unlock(&s->lock);
}

static void sleep_until(Stress *s, GCond *cond, bool *flag)
{
    gint64 end = g_get_monotonic_time() + 60 * G_USEC_PER_SEC;

    g_mutex_lock(&s->lock);
    while (!*flag) {
        if (!g_cond_wait_until(cond, &s->lock, end)) {
            g_error("an event was lost");
        }
    }
    *flag = false;
    g_mutex_unlock(&s->lock);
}

static void *stress_send(void *opaque)
{
    Stress *s = opaque;

    for (uint32_t i = 0; i < STRESS; i++) {
        while (!qrnic_cable_ring_room(&s->e.sender)) {
            if (qrnic_cable_ring_wants_wake(&s->e.sender)) {
                ring_bell(s, &s->wake, &s->woken);
            }
            if (!qrnic_cable_ring_await_room(&s->e.sender)) {
                sleep_until(s, &s->room, &s->roomy);
            }
        }
        stl_le_p(qrnic_cable_ring_next(&s->e.sender), i);
        qrnic_cable_ring_commit(&s->e.sender, 14 + i % 100);
        if (i % 7 == 0 && qrnic_cable_ring_wants_wake(&s->e.sender)) {
            ring_bell(s, &s->wake, &s->woken);
        }
    }
    if (qrnic_cable_ring_wants_wake(&s->e.sender)) {
        ring_bell(s, &s->wake, &s->woken);
    }
    return NULL;
}

static void test_stress(void)
{
    Stress s = { .e = ends_new(SLOTS) };
    GThread *thread = g_thread_new("sender", stress_send, &s);

    for (uint32_t i = 0; i < STRESS; ) {
        uint32_t len;
        const uint8_t *frame = qrnic_cable_ring_peek(&s.e.receiver, &len);

        if (frame) {
            g_assert_cmpuint(len, ==, 14 + i % 100);
            g_assert_cmpuint(ldl_le_p(frame), ==, i);
            qrnic_cable_ring_take(&s.e.receiver);
            i++;
            if (i % 5 == 0 && qrnic_cable_ring_wants_room(&s.e.receiver)) {
                ring_bell(&s, &s.room, &s.roomy);
            }
            continue;
        }
        g_assert_false(s.e.receiver.broken);
        if (qrnic_cable_ring_wants_room(&s.e.receiver)) {
            ring_bell(&s, &s.room, &s.roomy);
        }
        if (!qrnic_cable_ring_await_frame(&s.e.receiver)) {
            sleep_until(&s, &s.wake, &s.woken);
        }
    }
    g_thread_join(thread);
    ends_free(&s.e);
}

/*
 * Tests that an end polls longer only if polling would have met the next frame
 * several times, because polling takes CPU time from the guest.
 */
static void test_tempo(void)
{
    QrnicTempo t = { 0 };
    int64_t now = 1000000;

    for (unsigned i = 0; i < 20; i++) {
        qrnic_tempo_frame(&t, now);
        g_assert_cmpint(qrnic_tempo_linger(&t, now), ==, i > 3);
        now += QRNIC_TEMPO_LINGER_NS - 1;
        qrnic_tempo_woken(&t, now);
    }
    /* Polling is bounded, and ends without frames. */
    qrnic_tempo_frame(&t, now);
    g_assert_true(qrnic_tempo_linger(&t, now + QRNIC_TEMPO_LINGER_NS - 1));
    g_assert_false(qrnic_tempo_linger(&t, now + QRNIC_TEMPO_LINGER_NS));
    /* After three unsuccessful attempts it sleeps again. */
    for (unsigned i = 0; i < 3; i++) {
        qrnic_tempo_frame(&t, now);
        g_assert_true(qrnic_tempo_linger(&t, now));
        now += QRNIC_TEMPO_LINGER_NS;
        qrnic_tempo_woken(&t, now);
    }
    qrnic_tempo_frame(&t, now);
    g_assert_false(qrnic_tempo_linger(&t, now));
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/cable/wrap", test_wrap);
    g_test_add_func("/qrnic/cable/full", test_full);
    g_test_add_func("/qrnic/cable/wake", test_wake);
    g_test_add_func("/qrnic/cable/room", test_room);
    g_test_add_func("/qrnic/cable/lying-receiver", test_lying_receiver);
    g_test_add_func("/qrnic/cable/lying-sender", test_lying_sender);
    g_test_add_func("/qrnic/cable/shapes", test_shapes);
    g_test_add_func("/qrnic/cable/stress", test_stress);
    g_test_add_func("/qrnic/cable/tempo", test_tempo);
    return g_test_run();
}
