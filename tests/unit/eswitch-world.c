/*
 * A world for tests of the embedded switch
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "eswitch-world.h"

/* Operations of the switch */

static QrnicEswitchDelivery op_deliver(void *opaque, unsigned port,
                                       const uint8_t *data, size_t len)
{
    World *w = opaque;

    g_assert_true(w->running);
    g_assert_false(w->busy[port]);
    w->deliveries++;
    if (w->inside && !w->inside(w, port)) {
        return QRNIC_ESWITCH_BUSY;
    }
    if (w->off[port]) {
        return QRNIC_ESWITCH_OFF;
    }
    if (!w->room[port]) {
        w->busy[port] = true;
        return QRNIC_ESWITCH_BUSY;
    }
    w->room[port] -= w->room[port] != UNLIMITED;
    w->frames[port]++;
    w->bytes[port] += len;
    if (w->keep) {
        Frame *f = g_malloc(sizeof(*f) + len);

        f->len = len;
        memcpy(f->data, data, len);
        g_queue_push_tail(&w->received[port], f);
    }
    return QRNIC_ESWITCH_DELIVERED;
}

static void op_sender_ready(void *opaque, unsigned port)
{
    ((World *)opaque)->readies[port]++;
}

static void op_link(void *opaque, unsigned port, bool up)
{
    World *w = opaque;

    w->links[port]++;
    w->up[port] = up;
}

static int64_t op_clock(void *opaque)
{
    return ((World *)opaque)->now;
}

static void op_timer(void *opaque, int64_t deadline)
{
    ((World *)opaque)->deadline = deadline;
}

static void op_kick(void *opaque)
{
    World *w = opaque;

    g_assert_false(w->kicked);
    w->kicked = true;
}

/* Life */

World *world_new(unsigned vfs)
{
    static const QrnicEswitchOps ops = {
        .deliver = op_deliver,
        .sender_ready = op_sender_ready,
        .link = op_link,
        .clock_ns = op_clock,
        .timer_arm = op_timer,
        .kick = op_kick,
    };
    World *w = g_new0(World, 1);

    w->vfs = vfs;
    w->now = 5000 * MS;
    w->deadline = QRNIC_ESWITCH_NEVER;
    w->keep = true;
    w->sw = qrnic_eswitch_new("test", vfs, &ops, w);
    for (unsigned i = 0; i < VF(vfs); i++) {
        g_queue_init(&w->received[i]);
        w->room[i] = UNLIMITED;
        qrnic_eswitch_plug(w->sw, i);
        if (i != UPLINK) {
            QrnicEswitchConfig c = config_of(w, i);

            put_address(c.mac, ADDRESS(i));
            configure(w, i, c);
        }
    }
    qrnic_eswitch_set_wire(w->sw, true);
    world_run(w);
    return w;
}

void world_free(World *w)
{
    for (unsigned i = 0; i < VF(w->vfs); i++) {
        g_queue_clear_full(&w->received[i], g_free);
    }
    qrnic_eswitch_free(w->sw);
    g_free(w);
}

/* Time */

void world_run_once(World *w)
{
    uint64_t before = w->deliveries;

    if (!w->kicked) {
        return;
    }
    w->kicked = false;
    w->running = true;
    w->runs++;
    qrnic_eswitch_run(w->sw);
    w->running = false;
    w->most = MAX(w->most, w->deliveries - before);
}

void world_run(World *w)
{
    for (unsigned i = 0; w->kicked; i++) {
        g_assert_cmpuint(i, <, 100000);
        world_run_once(w);
    }
}

void world_pass(World *w, int64_t ns)
{
    int64_t end = w->now + ns;

    world_run(w);
    while (w->deadline <= end) {
        w->now = MAX(w->now, w->deadline);
        w->deadline = QRNIC_ESWITCH_NEVER;
        qrnic_eswitch_timer(w->sw);
        world_run(w);
    }
    w->now = end;
}

void world_room(World *w, unsigned port, unsigned frames)
{
    w->room[port] = frames;
    if (w->busy[port] && frames) {
        w->busy[port] = false;
        qrnic_eswitch_ready(w->sw, port);
    }
}

/* Frames */

void put_address(uint8_t *at, uint64_t address)
{
    for (unsigned i = 0; i < 6; i++) {
        at[i] = address >> (40 - 8 * i);
    }
}

Frame *frame_new(uint64_t to, uint64_t from, int tci, size_t len, uint8_t fill)
{
    size_t at = tci < 0 ? 12 : 16;
    Frame *f = g_malloc(sizeof(*f) + MAX(len, 18));

    f->len = len;
    put_address(f->data, to);
    put_address(f->data + 6, from);
    if (tci >= 0) {
        stw_be_p(f->data + 12, 0x8100);
        stw_be_p(f->data + 14, tci);
    }
    stw_be_p(f->data + at, TYPE);
    for (size_t i = at + 2; i < len; i++) {
        f->data[i] = fill++;
    }
    return f;
}

bool send_frame(World *w, unsigned port, Frame *f)
{
    bool more = qrnic_eswitch_send(w->sw, port, f->data, f->len);

    g_free(f);
    return more;
}

void send_now(World *w, unsigned port, uint64_t to, uint64_t from)
{
    send_frame(w, port, frame_new(to, from, -1, 64, 1));
    world_run(w);
}

void expect(World *w, unsigned port, Frame *f)
{
    Frame *got = g_queue_pop_head(&w->received[port]);

    g_assert_nonnull(got);
    g_assert_cmpmem(got->data, got->len, f->data, f->len);
    g_free(got);
    g_free(f);
}

void expect_ports(World *w, uint64_t functions, bool uplink)
{
    for (unsigned i = 0; i < VF(w->vfs); i++) {
        bool receives = i == UPLINK ? uplink : functions & bit(i);

        g_assert_cmpuint(w->received[i].length, ==, receives);
        g_free(g_queue_pop_head(&w->received[i]));
    }
}

void expect_nothing(World *w)
{
    expect_ports(w, 0, false);
}

/* Configuration */

void configure(World *w, unsigned port, QrnicEswitchConfig config)
{
    g_assert_cmpint(qrnic_eswitch_configure(w->sw, port, &config), ==,
                    QRNIC_ESWITCH_OK);
}

void set_vlan(World *w, unsigned port, uint16_t vlan, uint8_t priority)
{
    QrnicEswitchConfig c = config_of(w, port);

    c.vlan = vlan;
    c.priority = priority;
    configure(w, port, c);
}

void set_trust(World *w, unsigned port, bool trust)
{
    QrnicEswitchConfig c = config_of(w, port);

    c.trust = trust;
    configure(w, port, c);
}

void set_spoof_check(World *w, unsigned port, bool check)
{
    QrnicEswitchConfig c = config_of(w, port);

    c.spoof_check = check;
    configure(w, port, c);
}

void set_rate(World *w, unsigned port, uint32_t max_mbps)
{
    QrnicEswitchConfig c = config_of(w, port);

    c.max_mbps = max_mbps;
    configure(w, port, c);
}

void set_min_rate(World *w, unsigned port, uint32_t min_mbps)
{
    QrnicEswitchConfig c = config_of(w, port);

    c.min_mbps = min_mbps;
    configure(w, port, c);
}

void set_link(World *w, unsigned port, QrnicEswitchLink link)
{
    QrnicEswitchConfig c = config_of(w, port);

    c.link = link;
    configure(w, port, c);
}

void set_filter(World *w, unsigned port, bool promiscuous, uint64_t first,
                uint64_t second)
{
    uint8_t addresses[2][6];
    QrnicEswitchFilter filter = {
        .promiscuous = promiscuous,
        .addresses = addresses,
    };

    if (first) {
        put_address(addresses[filter.count++], first);
    }
    if (second) {
        put_address(addresses[filter.count++], second);
    }
    g_assert_true(qrnic_eswitch_set_filter(w->sw, port, &filter));
}
