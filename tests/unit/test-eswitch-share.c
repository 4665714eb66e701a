/*
 * The embedded switch under load: queues, waits, rates, and the shares of
 * functions beside hostile ones
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "eswitch-world.h"

#define VFS 4
#define MANY QRNIC_ESWITCH_VFS_MAX
/* Manual, chapter "Virtual functions" */
#define PATIENCE (10 * MS)
#define SLOW (1000 * MS)
#define UPLINK_PATIENCE (100 * MS)
#define BURST (32 << 10)

static bool send_size(World *w, unsigned from, uint64_t to, size_t len)
{
    return send_frame(w, from, frame_new(to, from ? ADDRESS(from) : STATION,
                                         -1, len, 0));
}

/* Sends until the switch stops the sender, and returns the number of frames. */
static unsigned fill(World *w, unsigned from, uint64_t to, size_t len)
{
    unsigned n = 1;

    while (send_size(w, from, to, len)) {
        g_assert_cmpuint(n++, <, 10000);
    }
    return n;
}

/* Queues */

/* Tests that frames of one sender keep their order, across a busy receiver. */
static void test_order(void)
{
    World *w = world_new(VFS);

    world_room(w, VF(1), 3);
    for (unsigned i = 0; i < 30; i++) {
        send_frame(w, VF(0), frame_new(ADDRESS(VF(1)), ADDRESS(VF(0)), -1, 64,
                                       i));
        if (i % 4 == 0) {
            world_run(w);
        }
        if (i % 7 == 0) {
            world_room(w, VF(1), 3);
        }
    }
    world_room(w, VF(1), UNLIMITED);
    world_run(w);
    for (unsigned i = 0; i < 30; i++) {
        expect(w, VF(1), frame_new(ADDRESS(VF(1)), ADDRESS(VF(0)), -1, 64, i));
    }
    expect_nothing(w);
    world_free(w);
}

/*
 * Tests that the switch stops a sender whose queue is full, and notifies the
 * sender once. The queue of a sender that does not stop is bounded, too.
 */
static void test_stop(void)
{
    World *w = world_new(VFS);
    unsigned small, large, more = 0;

    w->keep = false;
    small = fill(w, VF(0), STATION, 64);
    g_assert_cmpuint(w->readies[VF(0)], ==, 0);
    world_run(w);
    g_assert_cmpuint(w->readies[VF(0)], ==, 1);
    g_assert_cmpuint(w->frames[UPLINK], ==, small);
    large = fill(w, VF(0), STATION, 9000);
    g_assert_cmpuint(large, <, small);
    while (!count(w, VF(0), QRNIC_ESWITCH_TX_DROP_FULL)) {
        g_assert_false(send_size(w, VF(0), STATION, 64));
        g_assert_cmpuint(more++, <, 1000);
    }
    world_run(w);
    g_assert_cmpuint(w->readies[VF(0)], ==, 2);
    g_assert_cmpuint(w->frames[UPLINK], ==, small + large + more - 1);
    world_free(w);
}

/*
 * Tests that no frame is lost if the uplink pauses for less than its patience,
 * and that the number of buffered frames is bounded.
 */
static void test_uplink_busy(void)
{
    World *w = world_new(VFS);
    unsigned sent = 0;

    w->keep = false;
    for (unsigned pause = 0; pause < 5; pause++) {
        world_room(w, UPLINK, 0);
        w->readies[VF(0)] = 1;
        for (unsigned i = 0; i < 9; i++) {
            if (w->readies[VF(0)]) {
                w->readies[VF(0)] = 0;
                sent += fill(w, VF(0), STATION, 1000);
            }
            world_pass(w, UPLINK_PATIENCE / 10);
        }
        g_assert_cmpuint(sent - w->frames[UPLINK], <, 200);
        world_room(w, UPLINK, UNLIMITED);
        world_run(w);
        g_assert_cmpuint(w->frames[UPLINK], ==, sent);
    }
    g_assert_cmpuint(count(w, UPLINK, QRNIC_ESWITCH_RX_DROP_FULL), ==, 0);
    world_free(w);
}

/*
 * Tests that functions exchange frames while the uplink accepts nothing,
 * although each of them also sends to the wire. The wait is the patience, once.
 */
static void test_uplink_blocked(void)
{
    World *w = world_new(VFS);
    unsigned sent = 0;

    w->keep = false;
    world_room(w, UPLINK, 0);
    fill(w, VF(0), STATION, 1000);
    send_size(w, VF(0), ADDRESS(VF(1)), 64);
    world_pass(w, UPLINK_PATIENCE / 2);
    g_assert_cmpuint(w->frames[VF(1)], ==, 0);
    world_pass(w, UPLINK_PATIENCE);
    g_assert_cmpuint(w->frames[VF(1)], ==, 1);
    for (unsigned i = 0; i < 5000; i++) {
        send_size(w, VF(0), STATION, 1000);
        send_size(w, VF(0), BROADCAST, 64);
        sent += 2;
        send_size(w, VF(0), ADDRESS(VF(1)), 64);
        world_pass(w, MS);
        g_assert_cmpuint(w->frames[VF(1)], ==, 1 + sent);
    }
    g_assert_cmpuint(count(w, UPLINK, QRNIC_ESWITCH_RX_DROP_FULL), >=, sent);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL), ==, 0);
    /* With room again, frames wait for the uplink as before. */
    world_room(w, UPLINK, UNLIMITED);
    world_run(w);
    sent = count(w, UPLINK, QRNIC_ESWITCH_RX_DROP_FULL);
    world_room(w, UPLINK, 0);
    fill(w, VF(0), STATION, 1000);
    world_pass(w, UPLINK_PATIENCE / 2);
    g_assert_cmpuint(count(w, UPLINK, QRNIC_ESWITCH_RX_DROP_FULL), ==, sent);
    world_free(w);
}

/* Tests that a link that goes down frees the senders of a busy uplink. */
static void test_uplink_down(void)
{
    World *w = world_new(VFS);
    unsigned sent;

    w->keep = false;
    world_room(w, UPLINK, 0);
    set_link(w, VF(0), QRNIC_ESWITCH_LINK_ENABLE);
    sent = fill(w, VF(0), STATION, 1000);
    world_run(w);
    qrnic_eswitch_set_wire(w->sw, false);
    world_run(w);
    g_assert_cmpuint(count(w, UPLINK, QRNIC_ESWITCH_RX_DROP_LINK), ==, sent);
    g_assert_cmpuint(w->readies[VF(0)], ==, 1);
    world_free(w);
}

/* Waits for a function */

/* Fills the queue of a function that accepts nothing. Returns the frames. */
static uint64_t block(World *w, unsigned from, unsigned to)
{
    unsigned before;

    world_room(w, to, 0);
    do {
        before = w->readies[from];
        fill(w, from, ADDRESS(to), 1000);
        world_run(w);
    } while (w->readies[from] != before);
    return count(w, from, QRNIC_ESWITCH_TX_FRAMES);
}

static void test_patience(void)
{
    World *w = world_new(VFS);
    uint64_t queued;

    w->keep = false;
    queued = block(w, VF(0), VF(1));
    g_assert_cmpuint(queued, >=, 256);
    g_assert_cmpuint(queued, <=, 600);
    /* The sender waits, and its frame for another receiver with it. */
    send_size(w, VF(0), ADDRESS(VF(2)), 64);
    world_pass(w, PATIENCE - MS);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_FRAMES), ==, queued);
    g_assert_cmpuint(w->frames[VF(2)], ==, 0);
    world_pass(w, 2 * MS);
    g_assert_cmpuint(w->frames[VF(2)], ==, 1);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL), >, 0);
    /* Then no sender waits for this function. */
    for (unsigned i = 0; i < 20; i++) {
        send_size(w, VF(3), ADDRESS(VF(1)), 64);
        send_size(w, VF(3), ADDRESS(VF(2)), 64);
        world_pass(w, SLOW / 4);
        g_assert_cmpuint(w->frames[VF(2)], ==, i + 2);
    }
    /* A quarter of the queue must be free. */
    world_room(w, VF(1), 10);
    world_run(w);
    send_size(w, VF(3), ADDRESS(VF(1)), 64);
    world_run(w);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_FRAMES), ==, 10);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL), >, 20);
    world_room(w, VF(1), UNLIMITED);
    world_run(w);
    send_size(w, VF(3), ADDRESS(VF(1)), 64);
    world_run(w);
    g_assert_cmpuint(w->frames[VF(1)], ==, queued + 1);
    world_free(w);
}

/* Tests that a receiver with short pauses loses nothing. */
static void test_no_loss(void)
{
    World *w = world_new(VFS);
    uint64_t sent = 0;

    w->keep = false;
    world_room(w, VF(1), 0);
    for (unsigned i = 0; i < 2000; i++) {
        if (w->readies[VF(0)] || i == 0) {
            w->readies[VF(0)] = 0;
            sent += fill(w, VF(0), ADDRESS(VF(1)), 1500);
        }
        world_pass(w, MS);
        world_room(w, VF(1), 70);
    }
    world_room(w, VF(1), UNLIMITED);
    world_run(w);
    g_assert_cmpuint(sent, >, 100000);
    g_assert_cmpuint(w->frames[VF(1)], ==, sent);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL), ==, 0);
    world_free(w);
}

/*
 * Tests that a host that stops for a second, and then runs the switch before
 * the receiver, does not make the receiver slow.
 */
static void test_stopped_host(void)
{
    World *w = world_new(VFS);
    uint64_t queued;

    w->keep = false;
    queued = block(w, VF(0), VF(1));
    w->now += 1000 * MS;
    world_pass(w, 0);
    world_pass(w, MS);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_FRAMES), ==, queued);
    world_room(w, VF(1), UNLIMITED);
    world_run(w);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL), ==, 0);
    world_free(w);
}

/* Tests that a function cannot become patient again by resetting itself. */
static void test_reset_keeps_slow(void)
{
    World *w = world_new(VFS);

    w->keep = false;
    block(w, VF(0), VF(1));
    world_pass(w, 2 * PATIENCE);
    for (unsigned i = 0; i < 40; i++) {
        qrnic_eswitch_reset_port(w->sw, VF(1));
        w->busy[VF(1)] = false;
        for (unsigned n = 0; n < 20; n++) {
            fill(w, VF(0), ADDRESS(VF(1)), 1000);
            world_run(w);
        }
        send_size(w, VF(0), ADDRESS(VF(2)), 64);
        world_run(w);
        g_assert_cmpuint(w->frames[VF(2)], ==, i + 1);
    }
    world_free(w);
}

/* Tests that a full receiver delays no broadcast. */
static void test_broadcast_full(void)
{
    World *w = world_new(VFS);

    w->keep = false;
    block(w, VF(0), VF(1));
    send_size(w, VF(2), BROADCAST, 64);
    world_run(w);
    g_assert_cmpuint(w->frames[UPLINK], ==, 1);
    g_assert_cmpuint(w->frames[PF], ==, 1);
    g_assert_cmpuint(w->frames[VF(3)], ==, 1);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL), ==, 1);
    world_free(w);
}

/* Rates */

static void test_rate(void)
{
    static const uint32_t rates[] = { 1, 7, 1000, 9999, 100000 };

    for (unsigned i = 0; i < ARRAY_SIZE(rates); i++) {
        uint64_t bytes = rates[i] * 125000ull / 4, frames = 0;
        World *w = world_new(VFS);
        int64_t end;

        w->keep = false;
        set_rate(w, VF(0), rates[i]);
        world_run(w);
        end = w->now + 250 * MS;
        while (w->now < end && frames < 5000) {
            while (send_size(w, VF(0), ADDRESS(VF(1)), 1500)) {
                frames++;
            }
            world_pass(w, 0);
            if (w->deadline < end) {
                world_pass(w, w->deadline - w->now);
            } else {
                world_pass(w, end - w->now);
            }
        }
        if (w->now < end) {
            bytes = bytes * (w->now - (end - 250 * MS)) / (250 * MS);
        }
        g_assert_cmpuint(w->bytes[VF(1)], >=, bytes + BURST - 3000);
        g_assert_cmpuint(w->bytes[VF(1)], <=, bytes + BURST + 3000);
        world_free(w);
    }
}

static void test_rate_rules(void)
{
    World *w = world_new(VFS);
    uint64_t burst;

    w->keep = false;
    set_rate(w, VF(0), 1);
    fill(w, VF(0), ADDRESS(VF(1)), 1500);
    world_run(w);
    burst = w->bytes[VF(1)];
    g_assert_cmpuint(burst, >=, BURST);
    g_assert_cmpuint(burst, <=, BURST + 1500);
    /* A reset of the function does not fill the bucket. */
    qrnic_eswitch_reset_port(w->sw, VF(0));
    fill(w, VF(0), ADDRESS(VF(1)), 1500);
    world_run(w);
    g_assert_cmpuint(w->bytes[VF(1)], ==, burst);
    /* Other senders, and received frames, have no limit. */
    fill(w, VF(2), ADDRESS(VF(1)), 1500);
    fill(w, VF(2), ADDRESS(VF(0)), 1500);
    world_run(w);
    g_assert_cmpuint(w->bytes[VF(1)], >, burst + 60 * 1500);
    g_assert_cmpuint(w->bytes[VF(0)], >, 0);
    /* A higher rate counts at once, without the debt of the lower one. */
    burst = w->bytes[VF(1)];
    set_rate(w, VF(0), 100);
    world_pass(w, MS);
    g_assert_cmpuint(w->bytes[VF(1)], >=, burst + BURST);
    /* Dropped frames need no rate. */
    set_rate(w, VF(0), 1);
    fill(w, VF(0), ADDRESS(VF(1)), 1500);
    world_run(w);
    set_spoof_check(w, VF(0), true);
    qrnic_eswitch_reset_port(w->sw, VF(0));
    for (unsigned i = 0; i < 1000; i++) {
        send_frame(w, VF(0), frame_new(ADDRESS(PF), STATION, -1, 1500, 0));
        world_run(w);
    }
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_DROP_SPOOF), ==, 1000);
    world_free(w);
}

/* Shares */

/* A sender that always has frames */
typedef struct Flood {
    uint64_t to;
    size_t len;
    bool rude;                  /* ignores the order to stop */
} Flood;

static void refill(World *w, const Flood *floods, unsigned ports)
{
    for (unsigned i = 0; i < ports; i++) {
        unsigned rude = floods[i].rude ? 3 : 0;

        while (floods[i].len) {
            if (!send_size(w, i, floods[i].to, floods[i].len) && !rude--) {
                break;
            }
        }
    }
}

/* One run after another, with full queues */
static void flood_runs(World *w, const Flood *floods, unsigned ports,
                       unsigned runs)
{
    for (unsigned i = 0; i < runs; i++) {
        refill(w, floods, ports);
        w->now += MS / 100;
        world_run_once(w);
    }
}

/* Returns the work that a sender has caused: see OVERHEAD of schedule.c. */
static uint64_t work_of(const World *w, unsigned port)
{
    return count(w, port, QRNIC_ESWITCH_TX_BYTES) +
           256 * count(w, port, QRNIC_ESWITCH_TX_FRAMES);
}

static void flood_slow_uplink(World *w, const Flood *floods, unsigned ports,
                              unsigned runs)
{
    for (unsigned i = 0; i < runs; i++) {
        world_room(w, UPLINK, 20);
        flood_runs(w, floods, ports, 1);
    }
}

/*
 * Tests that all functions get the same bytes of a slow uplink, if their frames
 * have different sizes, and one sends broadcasts.
 */
static void test_share_uplink(void)
{
    Flood floods[PORTS] = { 0 };
    World *w = world_new(MANY);
    uint64_t least = UINT64_MAX, most = 0;

    w->keep = false;
    for (unsigned i = PF; i < VF(MANY); i++) {
        floods[i] = (Flood) { STATION, i % 3 ? 1500 : 9000, i % 2 };
    }
    flood_slow_uplink(w, floods, VF(MANY), 3000);
    for (unsigned i = PF; i < VF(MANY); i++) {
        least = MIN(least, work_of(w, i));
        most = MAX(most, work_of(w, i));
    }
    g_assert_cmpuint(least, >, 1000000);
    g_assert_cmpuint(most - least, <=, 2 * (16 << 10) + 9256);
    world_free(w);
}

/* Tests that functions share a slow uplink by their minimum rates. */
static void test_share_minimum(void)
{
    static const struct {
        uint32_t mbps, share;
    } rates[] = {
        { 0, 16 }, { 4000, 256 }, { 2000, 128 }, { 500, 32 }, { 1, 16 },
    };
    Flood floods[PORTS] = { 0 };
    World *w = world_new(VFS);
    uint64_t none, third;

    w->keep = false;
    for (unsigned i = PF; i < VF(VFS); i++) {
        set_min_rate(w, i, rates[i - PF].mbps);
        floods[i] = (Flood) { STATION, i % 2 ? 9000 : 1500, false };
    }
    flood_slow_uplink(w, floods, VF(VFS), 6000);
    for (unsigned i = PF; i < VF(VFS); i++) {
        uint64_t expected = work_of(w, VF(0)) * rates[i - PF].share / 256;

        g_assert_cmpuint(work_of(w, i), >=, expected * 95 / 100);
        g_assert_cmpuint(work_of(w, i), <=, expected * 105 / 100);
    }
    /* Without the two highest rates, the next one counts. */
    qrnic_eswitch_unplug(w->sw, VF(0));
    set_min_rate(w, VF(1), 0);
    floods[VF(0)].len = 0;
    none = work_of(w, PF);
    third = work_of(w, VF(2));
    flood_slow_uplink(w, floods, VF(VFS), 1500);
    none = work_of(w, PF) - none;
    third = work_of(w, VF(2)) - third;
    g_assert_cmpuint(third, >=, none * 14);
    g_assert_cmpuint(third, <=, none * 18);
    world_free(w);
}

/*
 * Tests that a function that floods, in any way, delays a frame of another
 * function by a bounded number of runs.
 */
static void test_share_flood(void)
{
    static const Flood kinds[] = {
        { BROADCAST, 9000, true }, { BROADCAST, 60, true },
        { STATION, 60, true }, { ADDRESS(VF(62)), 9000, true },
        { ADDRESS(VF(1)), 60, true }, { 0x0180c2000001ull, 60, true },
        { ADDRESS(VF(0)), 1500, true },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        Flood floods[PORTS] = { [VF(0)] = kinds[i] };
        World *w = world_new(MANY);

        w->keep = false;
        flood_runs(w, floods, VF(MANY), 20);
        for (unsigned n = 0; n < 50; n++) {
            uint64_t before = w->frames[VF(3)];

            send_size(w, VF(2), ADDRESS(VF(3)), 1500);
            flood_runs(w, floods, VF(MANY), 2);
            g_assert_cmpuint(w->frames[VF(3)], >=, before + 1);
        }
        world_free(w);
    }
}

/* Tests that the wire keeps its share if all functions flood each other. */
static void test_share_wire(void)
{
    Flood floods[PORTS] = { 0 };
    World *w = world_new(MANY);
    uint64_t wire, others = 0;

    w->keep = false;
    for (unsigned i = PF; i < VF(MANY); i++) {
        floods[i] = (Flood) { ADDRESS(i == VF(62) ? PF : i + 1), 1500, true };
    }
    floods[UPLINK] = (Flood) { ADDRESS(PF), 1500, false };
    flood_runs(w, floods, VF(MANY), 500);
    wire = count(w, UPLINK, QRNIC_ESWITCH_TX_BYTES);
    for (unsigned i = PF; i < VF(MANY); i++) {
        others += count(w, i, QRNIC_ESWITCH_TX_BYTES);
    }
    g_assert_cmpuint(wire, >=, others * 8 / 10);
    g_assert_cmpuint(others, >=, wire * 8 / 10);
    world_free(w);
}

/*
 * Tests that a function to which another function sends without limit still
 * receives from the wire, and the reverse.
 */
static void test_share_receiver(void)
{
    for (unsigned flooder = 0; flooder < 2; flooder++) {
        unsigned hostile = flooder ? VF(0) : UPLINK;
        unsigned other = flooder ? UPLINK : VF(0);
        Flood floods[PORTS] = { 0 };
        World *w = world_new(VFS);

        w->keep = false;
        floods[hostile] = (Flood) { ADDRESS(VF(1)), 200, true };
        world_room(w, VF(1), 0);
        flood_runs(w, floods, VF(VFS), 100);
        for (unsigned i = 0; i < 1000; i++) {
            send_size(w, other, ADDRESS(VF(1)), 200);
            world_room(w, VF(1), 4);
            flood_runs(w, floods, VF(VFS), 3);
        }
        g_assert_cmpuint(count(w, other, QRNIC_ESWITCH_TX_FRAMES), >=, 990);
        g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_FRAMES), ==, 4000);
        /* Only frames of the flooder were dropped. */
        g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_FULL) +
                         4000, <=, count(w, hostile, QRNIC_ESWITCH_TX_FRAMES) +
                         1000);
        world_free(w);
    }
}

/*
 * Tests that functions that accept nothing, or too little, delay the wire by
 * one patience each in a second.
 */
static void test_share_slow(void)
{
    World *w = world_new(VFS);
    uint64_t sent = 0;
    int64_t end = w->now + 2000 * MS;

    w->keep = false;
    world_room(w, VF(0), 0);
    while (w->now < end) {
        /* Each second frame is for the hostile function. */
        if (sent == 0 || w->readies[UPLINK]) {
            w->readies[UPLINK] = 0;
            for (bool more = true; more; sent++) {
                more = send_size(w, UPLINK, ADDRESS(VF(sent & 1)), 1000);
            }
        }
        world_pass(w, MS);
        world_room(w, VF(0), 1);
    }
    /* In each ms a batch, but for some ms of two seconds */
    g_assert_cmpuint(w->frames[VF(1)], >=, 128 * 1950);
    world_free(w);
}

/*
 * Lets the wire send to two functions alternately, or only to the first, which
 * frees a quarter of its queue every 4 ms. Returns the number of sent frames.
 */
static uint64_t paced(World *w, bool shared)
{
    uint64_t sent = 0;

    w->keep = false;
    world_room(w, VF(0), 0);
    for (unsigned i = 0; i < 2000; i++) {
        if (sent == 0 || w->readies[UPLINK]) {
            w->readies[UPLINK] = 0;
            for (bool more = true; more; sent++) {
                more = send_size(w, UPLINK,
                                 ADDRESS(VF(shared ? sent & 1 : 0)), 1000);
            }
        }
        world_pass(w, MS);
        if (i % 4 == 0) {
            world_room(w, VF(0), 70);
        }
    }
    return sent;
}

/*
 * Tests that a function that frees its queue within each patience delays the
 * wire by one patience in a second.
 */
static void test_share_paced(void)
{
    World *w = world_new(VFS);

    paced(w, true);
    g_assert_cmpuint(w->frames[VF(1)], >=, 128 * 1950);
    world_free(w);
}

/* Tests that the wire waits for such a function that is its only receiver. */
static void test_paced_alone(void)
{
    World *w = world_new(VFS);
    uint64_t sent = paced(w, false);

    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_FULL), ==, 0);
    world_room(w, VF(0), UNLIMITED);
    world_run(w);
    g_assert_cmpuint(w->frames[VF(0)], ==, sent);
    world_free(w);
}

/* Tests that a run has a bounded number of deliveries. */
static void test_budget(void)
{
    World *w = world_new(MANY);

    w->keep = false;
    for (unsigned i = 0; i < 20; i++) {
        for (unsigned port = 0; port < VF(MANY); port++) {
            fill(w, port, BROADCAST, 60);
        }
        world_run(w);
    }
    g_assert_cmpuint(w->most, >, 500);
    g_assert_cmpuint(w->most, <, 1200);
    world_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/eswitch/queue/order", test_order);
    g_test_add_func("/eswitch/queue/stop", test_stop);
    g_test_add_func("/eswitch/queue/uplink-busy", test_uplink_busy);
    g_test_add_func("/eswitch/queue/uplink-blocked", test_uplink_blocked);
    g_test_add_func("/eswitch/queue/uplink-down", test_uplink_down);
    g_test_add_func("/eswitch/wait/patience", test_patience);
    g_test_add_func("/eswitch/wait/no-loss", test_no_loss);
    g_test_add_func("/eswitch/wait/stopped-host", test_stopped_host);
    g_test_add_func("/eswitch/wait/reset", test_reset_keeps_slow);
    g_test_add_func("/eswitch/wait/broadcast", test_broadcast_full);
    g_test_add_func("/eswitch/rate/exact", test_rate);
    g_test_add_func("/eswitch/rate/rules", test_rate_rules);
    g_test_add_func("/eswitch/share/uplink", test_share_uplink);
    g_test_add_func("/eswitch/share/minimum", test_share_minimum);
    g_test_add_func("/eswitch/share/flood", test_share_flood);
    g_test_add_func("/eswitch/share/wire", test_share_wire);
    g_test_add_func("/eswitch/share/receiver", test_share_receiver);
    g_test_add_func("/eswitch/share/slow", test_share_slow);
    g_test_add_func("/eswitch/share/paced", test_share_paced);
    g_test_add_func("/eswitch/share/paced-alone", test_paced_alone);
    g_test_add_func("/eswitch/share/budget", test_budget);
    return g_test_run();
}
