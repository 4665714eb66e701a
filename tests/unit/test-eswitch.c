/*
 * The embedded switch: receivers of each frame, and each rule broken once
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "eswitch-world.h"

#define VFS 4
#define FUNCTIONS (bit(PF) | bit(VF(0)) | bit(VF(1)) | bit(VF(2)) | bit(VF(3)))

/* Checks that one frame was dropped for this reason, and received by no port */
static void expect_drop(World *w, unsigned port, QrnicEswitchCount reason,
                        uint64_t before)
{
    expect_nothing(w);
    g_assert_cmpuint(count(w, port, reason), ==, before + 1);
}

static void send_and_drop(World *w, unsigned port, Frame *f,
                          QrnicEswitchCount reason)
{
    uint64_t before = count(w, port, reason);
    uint64_t sent = count(w, port, QRNIC_ESWITCH_TX_FRAMES);

    g_assert_true(send_frame(w, port, f));
    world_run(w);
    expect_drop(w, port, reason, before);
    g_assert_cmpuint(count(w, port, QRNIC_ESWITCH_TX_FRAMES), ==, sent);
}

static Frame *simple(uint64_t to, uint64_t from)
{
    return frame_new(to, from, -1, 64, 1);
}

/* Addresses */

static void test_unicast(void)
{
    World *w = world_new(VFS);

    for (unsigned from = 0; from < VF(VFS); from++) {
        for (unsigned to = PF; to < VF(VFS); to++) {
            if (from != to) {
                send_frame(w, from, frame_new(ADDRESS(to), ADDRESS(from), -1,
                                              200, from));
                world_run(w);
                expect(w, to, frame_new(ADDRESS(to), ADDRESS(from), -1, 200,
                                        from));
                expect_nothing(w);
            }
        }
    }
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_FRAMES), ==, VFS);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_BYTES), ==, VFS * 200);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_FRAMES), ==, VFS + 1);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_BYTES), ==,
                     (VFS + 1) * 200);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_MULTICAST), ==, 0);
    world_free(w);
}

static void test_unknown(void)
{
    World *w = world_new(VFS);

    send_now(w, VF(0), STATION, ADDRESS(VF(0)));
    expect_ports(w, 0, true);
    send_now(w, PF, STATION, ADDRESS(PF));
    expect_ports(w, 0, true);
    send_and_drop(w, UPLINK, simple(STATION, STATION + 1),
                  QRNIC_ESWITCH_TX_DROP_NOBODY);
    /* No address: no function has it, although a function may have none. */
    configure(w, VF(0), (QrnicEswitchConfig) { .spoof_check = true });
    send_and_drop(w, UPLINK, simple(0, STATION), QRNIC_ESWITCH_TX_DROP_NOBODY);
    send_and_drop(w, VF(0), simple(STATION, 0), QRNIC_ESWITCH_TX_DROP_SPOOF);
    world_free(w);
}

static void test_own(void)
{
    World *w = world_new(VFS);

    send_and_drop(w, VF(1), simple(ADDRESS(VF(1)), ADDRESS(VF(1))),
                  QRNIC_ESWITCH_TX_DROP_OWN);
    world_free(w);
}

static void test_broadcast(void)
{
    World *w = world_new(VFS);

    for (unsigned from = 0; from < VF(VFS); from++) {
        send_now(w, from, BROADCAST, from ? ADDRESS(from) : STATION);
        expect_ports(w, from ? FUNCTIONS & ~bit(from) : FUNCTIONS, from);
    }
    g_assert_cmpuint(count(w, VF(2), QRNIC_ESWITCH_TX_BROADCAST), ==, 1);
    g_assert_cmpuint(count(w, VF(2), QRNIC_ESWITCH_RX_BROADCAST), ==, VFS + 1);
    g_assert_cmpuint(count(w, VF(2), QRNIC_ESWITCH_RX_MULTICAST), ==, 0);
    world_free(w);
}

static void test_multicast(void)
{
    World *w = world_new(VFS);
    QrnicEswitchFilter all = { .all_multicast = true };

    send_and_drop(w, UPLINK, simple(GROUP, STATION),
                  QRNIC_ESWITCH_TX_DROP_NOBODY);
    set_filter(w, VF(0), false, GROUP + 1, GROUP);
    set_filter(w, VF(1), false, GROUP + 2, GROUP + 1);
    g_assert_true(qrnic_eswitch_set_filter(w->sw, VF(2), &all));
    send_now(w, UPLINK, GROUP, STATION);
    expect_ports(w, bit(VF(0)) | bit(VF(2)), false);
    send_now(w, UPLINK, GROUP + 1, STATION);
    expect_ports(w, bit(VF(0)) | bit(VF(1)) | bit(VF(2)), false);
    send_now(w, VF(0), GROUP + 1, ADDRESS(VF(0)));
    expect_ports(w, bit(VF(1)) | bit(VF(2)), true);
    send_now(w, VF(3), GROUP + 3, ADDRESS(VF(3)));
    expect_ports(w, bit(VF(2)), true);
    g_assert_cmpuint(count(w, VF(3), QRNIC_ESWITCH_TX_MULTICAST), ==, 1);
    g_assert_cmpuint(count(w, VF(2), QRNIC_ESWITCH_RX_MULTICAST), ==, 4);
    /* A new filter replaces the old one. */
    set_filter(w, VF(0), false, GROUP, 0);
    send_now(w, UPLINK, GROUP + 1, STATION);
    expect_ports(w, bit(VF(1)) | bit(VF(2)), false);
    world_free(w);
}

static void test_filter_size(void)
{
    uint8_t addresses[QRNIC_ESWITCH_ADDRESSES + 1][6];
    QrnicEswitchFilter filter = {
        .count = QRNIC_ESWITCH_ADDRESSES,
        .addresses = addresses,
    };
    World *w = world_new(VFS);

    for (unsigned i = 0; i <= QRNIC_ESWITCH_ADDRESSES; i++) {
        /* In no order, and each second address twice */
        put_address(addresses[i], GROUP + (i * 77 % 256 & ~1));
    }
    g_assert_true(qrnic_eswitch_set_filter(w->sw, VF(0), &filter));
    filter.count++;
    g_assert_false(qrnic_eswitch_set_filter(w->sw, VF(0), &filter));
    for (unsigned i = 0; i < 256; i++) {
        send_now(w, UPLINK, GROUP + i, STATION);
        expect_ports(w, i & 1 ? 0 : bit(VF(0)), false);
    }
    world_free(w);
}

/* Trust */

static void test_trust(void)
{
    World *w = world_new(VFS);
    uint64_t extra = STATION + 7;

    set_filter(w, VF(0), false, extra, 0);
    send_now(w, VF(1), extra, ADDRESS(VF(1)));
    expect_ports(w, 0, true);
    set_trust(w, VF(0), true);
    send_now(w, VF(1), extra, ADDRESS(VF(1)));
    expect_ports(w, bit(VF(0)), false);
    send_now(w, UPLINK, extra, STATION);
    expect_ports(w, bit(VF(0)), false);
    set_trust(w, VF(0), false);
    send_and_drop(w, UPLINK, simple(extra, STATION),
                  QRNIC_ESWITCH_TX_DROP_NOBODY);
    world_free(w);
}

/* Tests that no trusted function can take the address of another function. */
static void test_precedence(void)
{
    World *w = world_new(VFS);

    set_trust(w, VF(0), true);
    set_filter(w, VF(0), true, ADDRESS(VF(1)), ADDRESS(PF));
    send_now(w, UPLINK, ADDRESS(VF(1)), STATION);
    expect_ports(w, bit(VF(1)), false);
    send_now(w, VF(2), ADDRESS(PF), ADDRESS(VF(2)));
    expect_ports(w, bit(PF), false);
    /* The address may be requested first, and assigned later. */
    set_filter(w, VF(0), true, STATION, 0);
    send_now(w, VF(2), STATION, ADDRESS(VF(2)));
    expect_ports(w, bit(VF(0)), false);
    configure(w, VF(3), (QrnicEswitchConfig) {
        .mac = { 0x02, 0x55 },
    });
    send_now(w, VF(2), STATION, ADDRESS(VF(2)));
    expect_ports(w, bit(VF(3)), false);
    world_free(w);
}

static void test_promiscuous(void)
{
    World *w = world_new(VFS);

    set_filter(w, VF(0), true, 0, 0);
    send_and_drop(w, UPLINK, simple(STATION, STATION + 1),
                  QRNIC_ESWITCH_TX_DROP_NOBODY);
    set_trust(w, VF(0), true);
    send_now(w, UPLINK, STATION, STATION + 1);
    expect_ports(w, bit(VF(0)), false);
    /* Frames that have a receiver are not copied. */
    send_now(w, UPLINK, ADDRESS(VF(1)), STATION);
    expect_ports(w, bit(VF(1)), false);
    send_now(w, VF(2), STATION, ADDRESS(VF(2)));
    expect_ports(w, 0, true);
    /* The VLAN of the function also limits these frames. */
    set_vlan(w, VF(0), 5, 0);
    send_and_drop(w, UPLINK, simple(STATION, STATION + 1),
                  QRNIC_ESWITCH_TX_DROP_NOBODY);
    world_free(w);
}

/* Spoof check */

static void test_spoof(void)
{
    World *w = world_new(VFS);

    send_now(w, VF(0), ADDRESS(PF), ADDRESS(VF(1)));
    expect_ports(w, bit(PF), false);
    set_spoof_check(w, VF(0), true);
    send_and_drop(w, VF(0), simple(ADDRESS(PF), ADDRESS(VF(1))),
                  QRNIC_ESWITCH_TX_DROP_SPOOF);
    send_and_drop(w, VF(0), simple(BROADCAST, STATION),
                  QRNIC_ESWITCH_TX_DROP_SPOOF);
    send_and_drop(w, VF(0), simple(BROADCAST, 0), QRNIC_ESWITCH_TX_DROP_SPOOF);
    for (unsigned i = 0; i < 48; i++) {
        if (i != 40) {
            send_and_drop(w, VF(0), simple(ADDRESS(PF),
                                           ADDRESS(VF(0)) ^ (1ull << i)),
                          QRNIC_ESWITCH_TX_DROP_SPOOF);
        }
    }
    send_now(w, VF(0), ADDRESS(PF), ADDRESS(VF(0)));
    expect_ports(w, bit(PF), false);
    /* A trusted function may also use the addresses of its filter. */
    set_filter(w, VF(0), false, STATION, 0);
    send_and_drop(w, VF(0), simple(ADDRESS(PF), STATION),
                  QRNIC_ESWITCH_TX_DROP_SPOOF);
    set_trust(w, VF(0), true);
    send_now(w, VF(0), ADDRESS(PF), STATION);
    expect_ports(w, bit(PF), false);
    world_free(w);
}

static void test_group_source(void)
{
    World *w = world_new(VFS);

    send_and_drop(w, VF(0), simple(ADDRESS(PF), GROUP),
                  QRNIC_ESWITCH_TX_DROP_SOURCE);
    send_and_drop(w, UPLINK, simple(ADDRESS(PF), BROADCAST),
                  QRNIC_ESWITCH_TX_DROP_SOURCE);
    world_free(w);
}

/* VLANs */

static void test_vlan(void)
{
    World *w = world_new(VFS);

    set_vlan(w, VF(0), 100, 3);
    set_vlan(w, VF(1), 100, 0);
    set_vlan(w, VF(2), 200, 0);
    /* To the wire with the tag, and to the same VLAN without */
    send_now(w, VF(0), STATION, ADDRESS(VF(0)));
    expect(w, UPLINK, frame_new(STATION, ADDRESS(VF(0)), 3 << 13 | 100, 68, 1));
    send_now(w, VF(0), ADDRESS(VF(1)), ADDRESS(VF(0)));
    expect(w, VF(1), frame_new(ADDRESS(VF(1)), ADDRESS(VF(0)), -1, 64, 1));
    expect_nothing(w);
    /* The address is unknown in the other VLAN. */
    send_now(w, VF(0), ADDRESS(VF(2)), ADDRESS(VF(0)));
    expect_ports(w, 0, true);
    /* Ports without VLAN receive all frames with their tags. */
    send_now(w, VF(0), BROADCAST, ADDRESS(VF(0)));
    expect(w, PF, frame_new(BROADCAST, ADDRESS(VF(0)), 3 << 13 | 100, 68, 1));
    expect(w, VF(1), frame_new(BROADCAST, ADDRESS(VF(0)), -1, 64, 1));
    expect_ports(w, bit(VF(3)), true);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_BYTES), ==, 4 * 64);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_BYTES), ==, 2 * 64);
    g_assert_cmpuint(count(w, PF, QRNIC_ESWITCH_RX_BYTES), ==, 68);
    world_free(w);
}

static void test_vlan_from_wire(void)
{
    World *w = world_new(VFS);

    set_vlan(w, VF(0), 100, 0);
    send_frame(w, UPLINK, frame_new(ADDRESS(VF(0)), STATION, 7 << 13 | 100,
                                    100, 9));
    world_run(w);
    expect(w, VF(0), frame_new(ADDRESS(VF(0)), STATION, -1, 96, 9));
    /* Another VLAN, no VLAN, and the priority tag, whose VLAN is 0 */
    for (int tci = -1; tci < 102; tci += tci == 0 ? 98 : 1) {
        if (tci != 100) {
            uint64_t before = count(w, VF(0), QRNIC_ESWITCH_RX_DROP_VLAN);

            send_and_drop(w, UPLINK, frame_new(ADDRESS(VF(0)), STATION, tci,
                                               100, 9),
                          QRNIC_ESWITCH_TX_DROP_NOBODY);
            g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_VLAN), ==,
                             before + 1);
        }
    }
    /* A frame whose tag is not complete has no VLAN. */
    for (unsigned len = 14; len < 18; len++) {
        send_and_drop(w, UPLINK, frame_new(ADDRESS(VF(0)), STATION, 100, len,
                                           0),
                      QRNIC_ESWITCH_TX_DROP_NOBODY);
    }
    send_frame(w, UPLINK, frame_new(ADDRESS(VF(0)), STATION, 100, 18, 0));
    world_run(w);
    expect(w, VF(0), frame_new(ADDRESS(VF(0)), STATION, -1, 14, 0));
    world_free(w);
}

/* Tests that the port removes one tag of two. */
static void test_vlan_in_vlan(void)
{
    World *w = world_new(VFS);
    Frame *f = frame_new(ADDRESS(VF(0)), STATION, 100, 100, 0);

    set_vlan(w, VF(0), 100, 0);
    stw_be_p(f->data + 16, 0x8100);
    stw_be_p(f->data + 18, 200);
    send_frame(w, UPLINK, f);
    world_run(w);
    g_assert_cmpuint(w->received[VF(0)].length, ==, 1);
    f = g_queue_pop_head(&w->received[VF(0)]);
    g_assert_cmpuint(f->len, ==, 96);
    g_assert_cmpuint(lduw_be_p(f->data + 12), ==, 0x8100);
    g_assert_cmpuint(lduw_be_p(f->data + 14), ==, 200);
    g_free(f);
    /* The service tag is no tag of the VLAN. */
    f = frame_new(ADDRESS(VF(0)), STATION, 100, 100, 0);
    stw_be_p(f->data + 12, 0x88a8);
    send_and_drop(w, UPLINK, f, QRNIC_ESWITCH_TX_DROP_NOBODY);
    world_free(w);
}

/* Tests that a function with a VLAN cannot reach another VLAN by a tag. */
static void test_tagged(void)
{
    static const uint16_t types[] = { 0x8100, 0x88a8 };
    World *w = world_new(VFS);

    set_vlan(w, VF(0), 100, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(types); i++) {
        for (unsigned vlan = 0; vlan <= 4095; vlan += 65) {
            Frame *f = frame_new(BROADCAST, ADDRESS(VF(0)), vlan, 100, 0);

            stw_be_p(f->data + 12, types[i]);
            send_and_drop(w, VF(0), f, QRNIC_ESWITCH_TX_DROP_TAGGED);
        }
    }
    /* Without VLAN the frame passes unchanged. */
    set_vlan(w, VF(0), 0, 0);
    send_frame(w, VF(0), frame_new(ADDRESS(VF(1)), ADDRESS(VF(0)), 77, 100, 0));
    world_run(w);
    expect(w, VF(1), frame_new(ADDRESS(VF(1)), ADDRESS(VF(0)), 77, 100, 0));
    world_free(w);
}

/* Sizes and reserved addresses */

static void test_sizes(void)
{
    World *w = world_new(VFS);
    unsigned max = QRNIC_ESWITCH_FRAME_MAX;

    for (unsigned len = 0; len < 14; len++) {
        send_and_drop(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, len,
                                          0), QRNIC_ESWITCH_TX_DROP_RUNT);
    }
    for (unsigned len = 14; len <= max; len += len < 100 ? 1 : 997) {
        send_frame(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, len,
                                       3));
        world_run(w);
        expect(w, PF, frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, len, 3));
    }
    send_frame(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, max, 3));
    world_run(w);
    expect(w, PF, frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, max, 3));
    send_and_drop(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, max + 1,
                                      0), QRNIC_ESWITCH_TX_DROP_GIANT);
    send_and_drop(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, 65535,
                                      0), QRNIC_ESWITCH_TX_DROP_GIANT);
    /* The inserted tag counts. */
    set_vlan(w, VF(0), 1, 0);
    send_and_drop(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, max - 3,
                                      0), QRNIC_ESWITCH_TX_DROP_GIANT);
    send_frame(w, VF(0), frame_new(ADDRESS(PF), ADDRESS(VF(0)), -1, max - 4,
                                   3));
    world_run(w);
    expect(w, PF, frame_new(ADDRESS(PF), ADDRESS(VF(0)), 1, max, 3));
    world_free(w);
}

static void test_one_hop(void)
{
    World *w = world_new(VFS);

    for (unsigned i = 0; i < VF(VFS); i++) {
        QrnicEswitchFilter all = { .all_multicast = true };

        if (i != UPLINK) {
            g_assert_true(qrnic_eswitch_set_filter(w->sw, i, &all));
        }
    }
    for (unsigned i = 0; i < 16; i++) {
        uint64_t to = 0x0180c2000000ull + i;

        send_and_drop(w, VF(0), simple(to, ADDRESS(VF(0))),
                      QRNIC_ESWITCH_TX_DROP_RESERVED);
        send_now(w, PF, to, ADDRESS(PF));
        expect_ports(w, 0, true);
        send_now(w, UPLINK, to, STATION);
        expect_ports(w, bit(PF), false);
    }
    send_now(w, VF(0), 0x0180c2000010ull, ADDRESS(VF(0)));
    expect_ports(w, FUNCTIONS & ~bit(VF(0)), true);
    qrnic_eswitch_unplug(w->sw, PF);
    send_and_drop(w, UPLINK, simple(0x0180c2000000ull, STATION),
                  QRNIC_ESWITCH_TX_DROP_RESERVED);
    world_free(w);
}

/* Links */

static void test_link_auto(void)
{
    World *w = world_new(VFS);

    set_link(w, VF(1), QRNIC_ESWITCH_LINK_ENABLE);
    set_link(w, VF(2), QRNIC_ESWITCH_LINK_DISABLE);
    memset(w->links, 0, sizeof(w->links));
    qrnic_eswitch_set_wire(w->sw, false);
    g_assert_false(qrnic_eswitch_link(w->sw, UPLINK));
    g_assert_false(qrnic_eswitch_link(w->sw, VF(0)));
    g_assert_true(qrnic_eswitch_link(w->sw, VF(1)));
    g_assert_cmpuint(w->links[VF(0)], ==, 1);
    g_assert_false(w->up[VF(0)]);
    g_assert_cmpuint(w->links[VF(1)], ==, 0);
    g_assert_cmpuint(w->links[VF(2)], ==, 0);
    g_assert_cmpuint(w->links[UPLINK], ==, 0);
    send_and_drop(w, VF(0), simple(ADDRESS(VF(1)), ADDRESS(VF(0))),
                  QRNIC_ESWITCH_TX_DROP_LINK);
    send_and_drop(w, UPLINK, simple(ADDRESS(VF(1)), STATION),
                  QRNIC_ESWITCH_TX_DROP_LINK);
    /* Functions with an enabled link still reach each other. */
    set_link(w, VF(3), QRNIC_ESWITCH_LINK_ENABLE);
    send_now(w, VF(1), ADDRESS(VF(3)), ADDRESS(VF(1)));
    expect_ports(w, bit(VF(3)), false);
    send_now(w, VF(1), BROADCAST, ADDRESS(VF(1)));
    expect_ports(w, bit(VF(3)), false);
    g_assert_cmpuint(count(w, UPLINK, QRNIC_ESWITCH_RX_DROP_LINK), ==, 1);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_LINK), ==, 1);
    qrnic_eswitch_set_wire(w->sw, true);
    g_assert_true(w->up[VF(0)]);
    send_now(w, VF(0), ADDRESS(VF(1)), ADDRESS(VF(0)));
    expect_ports(w, bit(VF(1)), false);
    world_free(w);
}

static void test_link_disable(void)
{
    World *w = world_new(VFS);

    set_link(w, VF(0), QRNIC_ESWITCH_LINK_DISABLE);
    g_assert_false(w->up[VF(0)]);
    g_assert_cmpuint(w->links[VF(0)], ==, 2);
    send_and_drop(w, VF(0), simple(ADDRESS(PF), ADDRESS(VF(0))),
                  QRNIC_ESWITCH_TX_DROP_LINK);
    send_now(w, PF, ADDRESS(VF(0)), ADDRESS(PF));
    expect_drop(w, VF(0), QRNIC_ESWITCH_RX_DROP_LINK, 0);
    g_assert_cmpuint(count(w, PF, QRNIC_ESWITCH_TX_FRAMES), ==, 1);
    set_link(w, VF(0), QRNIC_ESWITCH_LINK_AUTO);
    g_assert_true(w->up[VF(0)]);
    send_now(w, PF, ADDRESS(VF(0)), ADDRESS(PF));
    expect_ports(w, bit(VF(0)), false);
    world_free(w);
}

/* Tests that queued frames do not survive the end of a link. */
static void test_link_queued(void)
{
    World *w = world_new(VFS);

    world_room(w, VF(1), 0);
    send_now(w, VF(0), ADDRESS(VF(1)), ADDRESS(VF(0)));
    send_now(w, VF(0), ADDRESS(VF(1)), ADDRESS(VF(0)));
    send_frame(w, VF(1), simple(ADDRESS(VF(0)), ADDRESS(VF(1))));
    set_link(w, VF(1), QRNIC_ESWITCH_LINK_DISABLE);
    world_run(w);
    expect_nothing(w);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_RX_DROP_LINK), ==, 2);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_TX_DROP_LINK), ==, 1);
    world_free(w);
}

/* Configuration */

static void refused(World *w, unsigned port, QrnicEswitchConfig c,
                    QrnicEswitchResult why)
{
    QrnicEswitchConfig before = config_of(w, VF(0));

    g_assert_cmpint(qrnic_eswitch_configure(w->sw, port, &c), ==, why);
    g_assert_cmpmem(&before, sizeof(before),
                    qrnic_eswitch_config(w->sw, VF(0)), sizeof(before));
}

static void test_refused(void)
{
    World *w = world_new(VFS);
    QrnicEswitchConfig good = config_of(w, VF(0)), bad = good;

    refused(w, UPLINK, good, QRNIC_ESWITCH_BAD_PORT);
    refused(w, VF(VFS), good, QRNIC_ESWITCH_BAD_PORT);
    refused(w, UINT_MAX, good, QRNIC_ESWITCH_BAD_PORT);
    put_address(bad.mac, GROUP);
    refused(w, VF(0), bad, QRNIC_ESWITCH_BAD_MAC);
    put_address(bad.mac, ADDRESS(PF));
    refused(w, VF(0), bad, QRNIC_ESWITCH_MAC_IN_USE);
    bad = good;
    bad.vlan = 4095;
    refused(w, VF(0), bad, QRNIC_ESWITCH_BAD_VLAN);
    bad.vlan = 1;
    bad.priority = 8;
    refused(w, VF(0), bad, QRNIC_ESWITCH_BAD_PRIORITY);
    bad.vlan = 0;
    bad.priority = 1;
    refused(w, VF(0), bad, QRNIC_ESWITCH_BAD_PRIORITY);
    bad = good;
    bad.link = QRNIC_ESWITCH_LINK_DISABLE + 1;
    refused(w, VF(0), bad, QRNIC_ESWITCH_BAD_LINK);
    bad = good;
    bad.min_mbps = 11;
    bad.max_mbps = 10;
    refused(w, VF(0), bad, QRNIC_ESWITCH_BAD_RATE);
    bad.min_mbps = 10;
    bad.vlan = 4094;
    bad.priority = 7;
    configure(w, VF(0), bad);
    /* Several functions may have no address. */
    configure(w, VF(1), (QrnicEswitchConfig) { 0 });
    configure(w, VF(2), (QrnicEswitchConfig) { 0 });
    world_free(w);
}

static void test_new_address(void)
{
    World *w = world_new(VFS);
    QrnicEswitchConfig c = config_of(w, VF(0));

    put_address(c.mac, STATION);
    configure(w, VF(0), c);
    send_now(w, VF(1), STATION, ADDRESS(VF(1)));
    expect_ports(w, bit(VF(0)), false);
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    expect_ports(w, 0, true);
    /* The old address is free for another function. */
    c = config_of(w, VF(2));
    put_address(c.mac, ADDRESS(VF(0)));
    configure(w, VF(2), c);
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    expect_ports(w, bit(VF(2)), false);
    world_free(w);
}

/* Reset and unplug */

static void test_reset(void)
{
    World *w = world_new(VFS);

    set_vlan(w, VF(0), 9, 0);
    set_vlan(w, VF(1), 9, 0);
    set_filter(w, VF(0), false, GROUP, 0);
    world_room(w, VF(0), 0);
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    send_frame(w, VF(0), simple(ADDRESS(VF(1)), ADDRESS(VF(0))));
    send_frame(w, VF(1), simple(STATION, ADDRESS(VF(1))));
    qrnic_eswitch_reset_port(w->sw, VF(0));
    w->busy[VF(0)] = false;
    world_run(w);
    expect_ports(w, 0, true);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_RESET), ==, 2);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_TX_DROP_RESET), ==, 1);
    /* The function is no longer busy, and keeps its VLAN and address. */
    world_room(w, VF(0), UNLIMITED);
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    expect(w, VF(0), simple(ADDRESS(VF(0)), ADDRESS(VF(1))));
    send_now(w, VF(1), GROUP, ADDRESS(VF(1)));
    expect_ports(w, 0, true);
    world_free(w);
}

static void test_reset_stopped(void)
{
    World *w = world_new(VFS);
    unsigned n;

    for (n = 0; n < 1000; n++) {
        if (!send_frame(w, VF(0), simple(STATION, ADDRESS(VF(0))))) {
            break;
        }
    }
    g_assert_cmpuint(n, <, 1000);
    qrnic_eswitch_reset_port(w->sw, VF(0));
    world_run(w);
    g_assert_cmpuint(w->readies[VF(0)], ==, 0);
    g_assert_true(send_frame(w, VF(0), simple(STATION, ADDRESS(VF(0)))));
    world_run(w);
    expect_ports(w, 0, true);
    world_free(w);
}

static void test_unplug(void)
{
    World *w = world_new(VFS);
    QrnicEswitchConfig c;

    set_filter(w, VF(0), false, GROUP, 0);
    set_spoof_check(w, VF(0), true);
    c = config_of(w, VF(0));
    qrnic_eswitch_unplug(w->sw, VF(0));
    g_assert_false(qrnic_eswitch_link(w->sw, VF(0)));
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    expect_ports(w, 0, true);
    send_now(w, UPLINK, BROADCAST, STATION);
    expect_ports(w, FUNCTIONS & ~bit(VF(0)), false);
    send_and_drop(w, UPLINK, simple(GROUP, STATION),
                  QRNIC_ESWITCH_TX_DROP_NOBODY);
    send_and_drop(w, VF(0), simple(ADDRESS(PF), ADDRESS(VF(0))),
                  QRNIC_ESWITCH_TX_DROP_LINK);
    qrnic_eswitch_plug(w->sw, VF(0));
    g_assert_cmpmem(&c, sizeof(c), qrnic_eswitch_config(w->sw, VF(0)),
                    sizeof(c));
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    expect_ports(w, bit(VF(0)), false);
    /* Without uplink a frame to the wire has no receiver. */
    qrnic_eswitch_unplug(w->sw, UPLINK);
    set_link(w, VF(1), QRNIC_ESWITCH_LINK_ENABLE);
    send_now(w, VF(1), STATION, ADDRESS(VF(1)));
    expect_drop(w, UPLINK, QRNIC_ESWITCH_RX_DROP_LINK, 0);
    world_free(w);
}

/* Operations that call the switch */

static bool inside_send(World *w, unsigned port)
{
    if (w->deliveries < 50) {
        send_frame(w, port, frame_new(ADDRESS(port == PF ? VF(0) : PF),
                                      ADDRESS(port), -1, 64, 0));
    }
    return true;
}

static void test_inside_send(void)
{
    World *w = world_new(VFS);

    w->inside = inside_send;
    send_now(w, VF(0), ADDRESS(PF), ADDRESS(VF(0)));
    g_assert_cmpuint(w->deliveries, ==, 50);
    world_free(w);
}

/* Resets the receiver, and the sender. */
static bool inside_reset(World *w, unsigned port)
{
    qrnic_eswitch_reset_port(w->sw, port);
    qrnic_eswitch_reset_port(w->sw, VF(1));
    return w->deliveries & 1;
}

static void test_inside_reset(void)
{
    World *w = world_new(VFS);
    uint64_t ended = 0;

    w->inside = inside_reset;
    for (unsigned i = 0; i < 20; i++) {
        send_frame(w, VF(1), simple(BROADCAST, ADDRESS(VF(1))));
        send_frame(w, UPLINK, simple(ADDRESS(VF(0)), STATION));
    }
    world_run(w);
    g_assert_cmpuint(count(w, VF(1), QRNIC_ESWITCH_TX_DROP_RESET), >=, 19);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_RESET), >=, 5);
    for (unsigned i = 0; i < VF(VFS); i++) {
        ended += count(w, i, QRNIC_ESWITCH_RX_FRAMES) +
                 count(w, i, QRNIC_ESWITCH_RX_DROP_RESET);
    }
    g_assert_cmpuint(ended, ==, w->deliveries);
    world_free(w);
}

/* Tests that a frame that a function drops is not counted as delivered. */
static void test_off(void)
{
    World *w = world_new(VFS);

    w->off[VF(0)] = true;
    for (unsigned i = 0; i < 3; i++) {
        send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    }
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_OFF), ==, 3);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_FRAMES), ==, 0);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_BYTES), ==, 0);
    w->off[VF(0)] = false;
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    expect_ports(w, bit(VF(0)), false);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_FRAMES), ==, 1);
    world_free(w);
}

static bool inside_unplug(World *w, unsigned port)
{
    qrnic_eswitch_unplug(w->sw, VF(2));
    qrnic_eswitch_unplug(w->sw, VF(0));
    return false;
}

static void test_inside_unplug(void)
{
    World *w = world_new(VFS);

    w->inside = inside_unplug;
    send_frame(w, VF(1), simple(BROADCAST, ADDRESS(VF(1))));
    world_run(w);
    expect_nothing(w);
    g_assert_cmpuint(count(w, VF(0), QRNIC_ESWITCH_RX_DROP_LINK), ==, 1);
    g_assert_cmpuint(count(w, VF(2), QRNIC_ESWITCH_RX_DROP_LINK), ==, 1);
    world_free(w);
}

/* Reports that the port is ready, and rejects the frame. */
static bool inside_ready(World *w, unsigned port)
{
    qrnic_eswitch_ready(w->sw, port);
    return w->deliveries > 5;
}

static void test_inside_ready(void)
{
    World *w = world_new(VFS);

    w->inside = inside_ready;
    send_now(w, VF(0), ADDRESS(VF(1)), ADDRESS(VF(0)));
    g_assert_cmpuint(w->deliveries, ==, 6);
    expect_ports(w, bit(VF(1)), false);
    world_free(w);
}

static void test_names(void)
{
    for (unsigned i = 0; i < QRNIC_ESWITCH_NUM_COUNTS; i++) {
        for (unsigned j = 0; j < i; j++) {
            g_assert_cmpstr(qrnic_eswitch_count_name(i), !=,
                            qrnic_eswitch_count_name(j));
        }
        g_assert_nonnull(qrnic_eswitch_count_name(i));
    }
}

static void test_free_queued(void)
{
    World *w = world_new(VFS);
    uint64_t before;

    world_room(w, VF(0), 0);
    send_now(w, VF(1), ADDRESS(VF(0)), ADDRESS(VF(1)));
    send_now(w, VF(1), BROADCAST, ADDRESS(VF(1)));
    send_frame(w, VF(2), simple(BROADCAST, ADDRESS(VF(2))));
    before = w->deliveries;
    for (unsigned i = 0; i < VF(VFS); i++) {
        g_queue_clear_full(&w->received[i], g_free);
    }
    qrnic_eswitch_free(w->sw);
    g_assert_cmpuint(w->deliveries, ==, before);
    g_free(w);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/eswitch/unicast", test_unicast);
    g_test_add_func("/eswitch/unknown", test_unknown);
    g_test_add_func("/eswitch/own", test_own);
    g_test_add_func("/eswitch/broadcast", test_broadcast);
    g_test_add_func("/eswitch/multicast", test_multicast);
    g_test_add_func("/eswitch/filter-size", test_filter_size);
    g_test_add_func("/eswitch/trust", test_trust);
    g_test_add_func("/eswitch/precedence", test_precedence);
    g_test_add_func("/eswitch/promiscuous", test_promiscuous);
    g_test_add_func("/eswitch/spoof", test_spoof);
    g_test_add_func("/eswitch/group-source", test_group_source);
    g_test_add_func("/eswitch/vlan", test_vlan);
    g_test_add_func("/eswitch/vlan-from-wire", test_vlan_from_wire);
    g_test_add_func("/eswitch/vlan-in-vlan", test_vlan_in_vlan);
    g_test_add_func("/eswitch/tagged", test_tagged);
    g_test_add_func("/eswitch/sizes", test_sizes);
    g_test_add_func("/eswitch/one-hop", test_one_hop);
    g_test_add_func("/eswitch/link-auto", test_link_auto);
    g_test_add_func("/eswitch/link-disable", test_link_disable);
    g_test_add_func("/eswitch/link-queued", test_link_queued);
    g_test_add_func("/eswitch/refused", test_refused);
    g_test_add_func("/eswitch/new-address", test_new_address);
    g_test_add_func("/eswitch/reset", test_reset);
    g_test_add_func("/eswitch/reset-stopped", test_reset_stopped);
    g_test_add_func("/eswitch/unplug", test_unplug);
    g_test_add_func("/eswitch/off", test_off);
    g_test_add_func("/eswitch/inside-send", test_inside_send);
    g_test_add_func("/eswitch/inside-reset", test_inside_reset);
    g_test_add_func("/eswitch/inside-unplug", test_inside_unplug);
    g_test_add_func("/eswitch/inside-ready", test_inside_ready);
    g_test_add_func("/eswitch/names", test_names);
    g_test_add_func("/eswitch/free-queued", test_free_queued);
    return g_test_run();
}
