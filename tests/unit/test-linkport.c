/*
 * The port between engine and link: buffered frames are delivered in portions,
 * and only while the device accepts frames.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qemu/guest-random.h"
#include "qemu/main-loop.h"
#include "engine/memory/memory.h"
#include "link/link.h"
#include "pair.h"
#include "device/parts.h"

#define PSN_A 0x123456          /* Values of sim_connect_default() */
#define BYTES 4096u
#define FRAMES 20u

/* The device has node 1's engine. The test is the peer of its link. */
static struct {
    QrnicDevice *d;
    QrnicLink *peer;
    bool peer_kicked;
    unsigned lose;              /* Frames of the peer to lose */
    bool kicked, no_master;
} world;

/* The functions of the device that device/port.c calls */

bool qrnic_bus_master(QrnicDevice *d)
{
    return !world.no_master;
}

void qrnic_kick(QrnicDevice *d)
{
    world.kicked = true;
}

int64_t qrnic_clock_ns(QrnicDevice *d)
{
    return SIM_MS;
}

void qrnic_timer_arm(QrnicDevice *d, QEMUTimer *timer, int64_t deadline_ns)
{
    timer_mod(timer, deadline_ns);
}

/* The device has no capture, so the port never calls this function. */
void qrnic_capture_wire(QrnicDevice *d, const uint8_t *frame, size_t len,
                        bool sent)
{
    g_assert_not_reached();
}

/* The device never stops, so the port never calls this function either. */
void qrnic_stop_frame(QrnicDevice *d, const uint8_t *frame, size_t len,
                      bool sent)
{
    g_assert_not_reached();
}

static bool wire_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    qrnic_link_receive(world.peer, frame, len);
    return true;
}

/* The peer */

static bool peer_send(void *opaque, const uint8_t *frame, size_t len)
{
    if (world.lose) {
        world.lose--;
    } else {
        qrnic_port_receive(world.d, frame, len);
    }
    return true;
}

static void peer_deliver(void *opaque, const uint8_t *frame, size_t len)
{
}

static bool peer_takes(void *opaque)
{
    return true;
}

static void peer_ready(void *opaque)
{
}

static void peer_changed(void *opaque, bool agreed)
{
}

static void peer_kick(void *opaque)
{
    world.peer_kicked = true;
}

static int64_t peer_clock_ns(void *opaque)
{
    return SIM_MS;
}

static void peer_timer_arm(void *opaque, int64_t deadline_ns)
{
}

static uint32_t peer_random(void *opaque)
{
    return 0x1234567;
}

static void peer_count(void *opaque, enum qrnic_link_count which, uint64_t n)
{
}

static void settle(void)
{
    while (world.peer_kicked || !qrnic_port_idle(world.d)) {
        if (world.peer_kicked) {
            world.peer_kicked = false;
            qrnic_link_run(world.peer);
        }
        qrnic_port_work(world.d);
    }
}

static void ends_new(Pair *p)
{
    static const QrnicWire wire = { .send = wire_send };
    static const QrnicLinkEnv env = {
        .send = peer_send, .deliver = peer_deliver, .takes = peer_takes,
        .ready = peer_ready, .changed = peer_changed, .kick = peer_kick,
        .clock_ns = peer_clock_ns, .timer_arm = peer_timer_arm,
        .random = peer_random, .count = peer_count,
    };
    QrnicLinkConfig config = qrnic_link_config_default();

    memset(&world, 0, sizeof(world));
    config.name = "peer";
    config.mac[5] = 1;
    world.peer = qrnic_link_new(&config, &env);
    world.d = g_new0(QrnicDevice, 1);
    world.d->name = (char *)"device";
    world.d->state = QRNIC_DEVICE_IDLE;
    world.d->wire = &wire;
    world.d->engine = p->b.qp->node->engine;
    world.d->config.capabilities = QRNIC_CAP_LINK_RETRANSMISSION;
    qrnic_port_init(world.d);
    qrnic_port_set_link(world.d, true);
    qrnic_link_set_up(world.peer, true);
    settle();
    g_assert_true(qrnic_link_agreed(world.peer));
}

static void ends_free(void)
{
    qrnic_port_stop(world.d);
    qrnic_port_cleanup(world.d);
    qrnic_link_free(world.peer);
    g_free(world.d);
}

/* Sends writes that cause the most work of a packet. */
static void writes_send(Pair *p, uint32_t key)
{
    const QrnicPathSpec spec = sim_path_to(p->b.qp, p->a.qp);
    uint8_t frame[BYTES + 256], *payload;
    QrnicPath path;

    qrnic_path_init(&path, &spec);
    for (unsigned i = 0; i < FRAMES; i++) {
        const QrnicTransport t = {
            .opcode = QRNIC_OP_RC_WRITE_ONLY, .pkey = QRNIC_PKEY_DEFAULT,
            .dest_qpn = p->b.qp->number, .psn = PSN_A + i, .rkey = key,
            .dma_len = BYTES,
        };

        payload = qrnic_packet_begin(&path, frame, &t, BYTES);
        memset(payload, i, BYTES);
        qrnic_link_send(world.peer, frame,
                        qrnic_packet_finish(&path, frame, payload, BYTES));
    }
}

static Pair *gap_filled(void)
{
    const QrnicPortCtx port = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };
    SimConnect c = sim_connect_default();
    Pair *p;

    c.path_mtu = QRNIC_MTU_4096;
    p = pair_new(3, NULL, &c);
    qrnic_port_modify(p->sim->node[1].engine, &port);
    ends_new(p);
    world.lose = 1;
    writes_send(p, key_of_bytes(p->b.qp, &p->b, BYTES));
    g_assert_cmpuint(sim_counter(&p->sim->node[1], QRNIC_COUNTER_RX_WRITE), ==,
                     0);
    g_assert_false(world.kicked && qrnic_port_has_frames(world.d));
    return p;
}

/*
 * Tests that each call of the device has a work budget, and requests another
 * call. Many buffered frames can become deliverable at once.
 */
static void test_portions(void)
{
    Pair *p = gap_filled();
    SimNode *n = p->b.qp->node;
    uint64_t before = sim_counter(n, QRNIC_COUNTER_PIECES), work;
    unsigned turns = 0;

    settle();                   /* Reported and retransmitted */
    work = sim_counter(n, QRNIC_COUNTER_PIECES) - before;
    g_assert_cmpuint(work, <, QRNIC_WORK_PER_RUN + BYTES);
    while (qrnic_port_has_frames(world.d)) {
        g_assert_true(world.kicked);
        before += work;
        qrnic_port_deliver(world.d);
        work = sim_counter(n, QRNIC_COUNTER_PIECES) - before;
        g_assert_cmpuint(work, >, 0);
        g_assert_cmpuint(work, <, QRNIC_WORK_PER_RUN + BYTES);
        turns++;
    }
    g_assert_cmpuint(turns, >, 5);
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_WRITE), ==, FRAMES);
    ends_free();
    pair_free(p);
}

/*
 * Tests that buffered frames wait during a reset, or without bus mastering, and
 * request no call.
 */
static void test_waits(void)
{
    Pair *p = gap_filled();
    SimNode *n = p->b.qp->node;
    uint64_t before;

    settle();
    before = sim_counter(n, QRNIC_COUNTER_RX_WRITE);
    for (unsigned i = 0; i < 2; i++) {
        world.d->state = i ? QRNIC_DEVICE_RESET_PENDING : QRNIC_DEVICE_IDLE;
        world.no_master = !i;
        g_assert_false(qrnic_port_has_frames(world.d));
        qrnic_port_deliver(world.d);
        g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_WRITE), ==, before);
    }
    world.d->state = QRNIC_DEVICE_IDLE;
    while (qrnic_port_has_frames(world.d)) {
        qrnic_port_deliver(world.d);
    }
    g_assert_cmpuint(sim_counter(n, QRNIC_COUNTER_RX_WRITE), ==, FRAMES);
    ends_free();
    pair_free(p);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    qemu_init_main_loop(&error_abort);
    qemu_guest_random_seed_main("1", &error_abort);
    g_test_add_func("/linkport/portions", test_portions);
    g_test_add_func("/linkport/waits", test_waits);
    return g_test_run();
}
