/*
 * qrnic qtest: multicast datagrams
 *
 * Programmer's Reference, chapter Datagrams; InfiniBand specification, 10.5.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define QKEY 0x0badcafeu
#define GRH 40
#define GROUP_IP4 "\xe0\x81\x02\x03"
/* The low 23 bits of the group (RFC 1112), so its byte 0x81 becomes 0x01 */
#define GROUP_MAC "\x01\x00\x5e\x01\x02\x03"
#define MEMBERS 3

static const uint8_t group6[16] = { 0xff, 0x0e, [12] = 0xaa, 0xbb, 0xcc, 0xdd };
static const uint8_t our_ip6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 };
static const uint8_t peer_ip6[16] = { 0x20, 0x01, 0x0d, 0xb8, [15] = 2 };

/*
 * A group and UD queue pairs in RTS. A queue pair outside the group must
 * receive nothing.
 */
typedef struct Group {
    Rig r;
    uint8_t gid[16];
    Qp qp[MEMBERS];
} Group;

static void attach(Group *g, unsigned member)
{
    command_ok(g->r.d, QRNIC_CMD_ATTACH_MULTICAST, g->qp[member].number,
               g->gid, sizeof(g->gid), NULL, 0);
}

static void detach(Group *g, unsigned member)
{
    command_ok(g->r.d, QRNIC_CMD_DETACH_MULTICAST, g->qp[member].number,
               g->gid, sizeof(g->gid), NULL, 0);
}

static void attach_fails(Rig *r, uint32_t qpn, const uint8_t *gid,
                         unsigned status, uint32_t syndrome)
{
    command_fails(r->d, QRNIC_CMD_ATTACH_MULTICAST, qpn, gid, 16, NULL, 0,
                  status, syndrome);
}

static void detach_fails(Rig *r, uint32_t qpn, const uint8_t *gid,
                         unsigned status, uint32_t syndrome)
{
    command_fails(r->d, QRNIC_CMD_DETACH_MULTICAST, qpn, gid, 16, NULL, 0,
                  status, syndrome);
}

/* Posts a receive WQE. Each member has 1 KiB of the rig's memory. */
static void post_recv(Group *g, unsigned member)
{
    QrnicDataSeg sge = {
        g->r.mr.start + 1024 * (member + 1), 1024, g->r.mr.key
    };

    rq_post(g->r.d, &g->qp[member], &sge, 1);
}

/* Starts the group. flags: of member 0. */
static void group_start_with(Group *g, uint8_t flags, const char *properties)
{
    rig_start(&g->r, properties, NULL);
    gid_set(g->r.d, 1, our_ip6, -1);
    gid_of_ip4(g->gid, GROUP_IP4);
    for (unsigned i = 0; i < MEMBERS; i++) {
        qp_create_flags(g->r.d, &g->qp[i], QRNIC_QPT_UD, g->r.pd, g->r.page,
                        &g->r.send_cq, &g->r.recv_cq, 4, 3, 0,
                        i == 0 ? flags : 0);
        qp_start_datagram(g->r.d, &g->qp[i], QKEY);
        for (int n = 0; n < 4; n++) {
            post_recv(g, i);
        }
    }
}

static void group_start(Group *g, uint8_t flags)
{
    group_start_with(g, flags, "");
}

static PeerPacket peer_multicast(Group *g, const char *text)
{
    PeerPacket p = peer_packet(&g->qp[0], UD_SEND_ONLY, 3);

    memcpy(p.dmac, GROUP_MAC, 6);
    memcpy(p.dip, GROUP_IP4, 4);
    p.dest_qpn = QRNIC_MULTICAST_QPN;
    p.qkey = QKEY;
    p.src_qpn = PEER_QPN;
    p.payload = (const uint8_t *)text;
    p.length = strlen(text);
    return p;
}

/*
 * Asserts that exactly these members (a bit each) receive the text, in any
 * order.
 */
static void expect_copies(Group *g, unsigned members, const char *text,
                          uint32_t src_qpn)
{
    unsigned left = members;
    QrnicCqe cqe;

    while (left) {
        unsigned i = 0;
        char got[1024];

        cq_wait(g->r.d, &g->r.recv_cq, &cqe);
        while (i < MEMBERS && g->qp[i].number != cqe.qpn) {
            i++;
        }
        g_assert_cmpuint(i, <, MEMBERS);
        g_assert_true(left & 1u << i);
        left &= ~(1u << i);
        g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
        g_assert_cmphex(cqe.flags, ==, QRNIC_CQEF_GRH);
        g_assert_cmphex(cqe.src_qpn, ==, src_qpn);
        g_assert_cmpuint(cqe.byte_len, ==, GRH + strlen(text));
        rig_read(&g->r, 1024 * (i + 1), (uint8_t *)got, GRH + strlen(text));
        g_assert_cmpmem(got + GRH, strlen(text), text, strlen(text));
        /* The GRH has the group as destination. */
        if (cqe.network == QRNIC_NETWORK_IPV6) {
            g_assert_cmpmem(got + 24, 16, g->gid, 16);
        } else {
            g_assert_cmpmem(got + GRH - 4, 4, g->gid + 12, 4);
        }
    }
    settle(g->r.d);
    g_assert_false(cq_poll(g->r.d, &g->r.recv_cq, &cqe));
}

static void test_commands(void)
{
    static const uint8_t not_groups[][16] = {
        { [10] = 0xff, 0xff, 10, 0, 0, 1 }, { [10] = 0xff, 0xff, 240, 0, 0, 1 },
        { [10] = 0xff, 0xff, 223, 255, 255, 255 }, { 0 },
        { 0xfe, 0x80, [15] = 1 },
    };
    static const uint8_t last4[16] = {
        [10] = 0xff, 0xff, 239, 255, 255, 255
    };
    uint32_t rc;
    Group g;
    Qp gsi;

    group_start(&g, 0);
    rc = g.r.qp.number;
    qp_create(g.r.d, &gsi, QRNIC_QPT_GSI, g.r.pd, 0, &g.r.send_cq,
              &g.r.recv_cq, 3, 3, 0);
    detach_fails(&g.r, g.qp[0].number, g.gid, QRNIC_ST_BAD_PARAM, 0);
    attach(&g, 0);
    attach(&g, 0);
    attach(&g, 1);
    detach(&g, 0);
    detach_fails(&g.r, g.qp[0].number, g.gid, QRNIC_ST_BAD_PARAM, 0);
    detach_fails(&g.r, g.qp[1].number, group6, QRNIC_ST_BAD_PARAM, 0);
    detach(&g, 1);
    command_ok(g.r.d, QRNIC_CMD_ATTACH_MULTICAST, g.qp[0].number, group6, 16,
               NULL, 0);
    command_ok(g.r.d, QRNIC_CMD_ATTACH_MULTICAST, g.qp[0].number, last4, 16,
               NULL, 0);
    for (unsigned i = 0; i < ARRAY_SIZE(not_groups); i++) {
        attach_fails(&g.r, g.qp[0].number, not_groups[i], QRNIC_ST_BAD_PARAM,
                     0);
    }
    attach_fails(&g.r, rc, g.gid, QRNIC_ST_BAD_STATE, 0);
    attach_fails(&g.r, gsi.number, g.gid, QRNIC_ST_BAD_STATE, 0);
    attach_fails(&g.r, 0xfffff0, g.gid, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    detach_fails(&g.r, 0xfffff0, g.gid, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    rig_stop(&g.r);
}

/*
 * Tests that the device has as many attachments as it reports, and rejects one
 * more.
 */
static void test_limit(void)
{
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES], gid[16];
    QrnicDeviceAttr attr;
    Group g;

    group_start(&g, 0);
    command_ok(g.r.d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_device_attr_unpack(&attr, raw));
    g_assert_cmpuint(attr.max_multicast, >, 0);
    memcpy(gid, group6, sizeof(gid));
    for (uint32_t i = 0; i < attr.max_multicast; i++) {
        gid[14] = i >> 8;
        gid[15] = i;
        command_ok(g.r.d, QRNIC_CMD_ATTACH_MULTICAST, g.qp[0].number, gid, 16,
                   NULL, 0);
    }
    attach_fails(&g.r, g.qp[0].number, g.gid, QRNIC_ST_NO_RESOURCE, 0);
    /* An existing attachment needs no room. */
    command_ok(g.r.d, QRNIC_CMD_ATTACH_MULTICAST, g.qp[0].number, gid, 16,
               NULL, 0);
    command_ok(g.r.d, QRNIC_CMD_DETACH_MULTICAST, g.qp[0].number, gid, 16,
               NULL, 0);
    attach(&g, 0);
    attach_fails(&g.r, g.qp[1].number, g.gid, QRNIC_ST_NO_RESOURCE, 0);
    command_ok(g.r.d, QRNIC_CMD_DESTROY_QP, g.qp[0].number, NULL, 0, NULL, 0);
    attach(&g, 1);
    rig_stop(&g.r);
}

/*
 * Tests that each attached queue pair with the right Q_Key receives one copy.
 */
static void test_receive(void)
{
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_QKEY, .state = QRNIC_QPS_RTS,
        .qkey = 0x4711,
    };
    PeerPacket p;
    Group g;

    group_start(&g, 0);
    attach(&g, 0);
    attach(&g, 0);
    attach(&g, 2);
    p = peer_multicast(&g, "to two of three");
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 0 | 1 << 2, "to two of three", PEER_QPN);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_RX_MULTICAST), ==, 2);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_ROCE_RX_MULTICAST), ==, 1);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_RX_DATAGRAM), ==, 2);
    qp_modify(g.r.d, &g.qp[0], &attr);
    p = peer_multicast(&g, "not with this key");
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 2, "not with this key", PEER_QPN);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_RX_DROP_QKEY), ==, 1);
    p.pkey = 0x1234;
    peer_send(g.r.d, &p);
    counter_wait(g.r.d, QRNIC_COUNTER_RX_DROP_PKEY, 1);
    detach(&g, 0);
    p = peer_multicast(&g, "one left");
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 2, "one left", PEER_QPN);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_RX_DROP_QKEY), ==, 1);
    rig_stop(&g.r);
}

static void test_receive_ipv6(void)
{
    PeerPacket p;
    Group g;

    group_start(&g, 0);
    attach(&g, 0);
    memcpy(g.gid, group6, 16);
    attach(&g, 1);
    p = peer_multicast(&g, "version six");
    p.ipv6 = true;
    memcpy(p.dmac, "\x33\x33\xaa\xbb\xcc\xdd", 6);
    memcpy(p.sip, peer_ip6, 16);
    memcpy(p.dip, group6, 16);
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 1, "version six", PEER_QPN);
    rig_stop(&g.r);
}

/* Tests that a group belongs to a VLAN that the device has in its GID table. */
static void test_receive_vlan(void)
{
    uint8_t gid[16];
    PeerPacket p;
    Group g;

    group_start(&g, 0);
    attach(&g, 1);
    p = peer_multicast(&g, "of another VLAN");
    p.vlan = 7;
    peer_send(g.r.d, &p);
    expect_copies(&g, 0, "", 0);
    gid_of_ip4(gid, "\x0a\x07\x00\x01");
    gid_set(g.r.d, 2, gid, 7);
    peer_send(g.r.d, &p);
    counter_wait(g.r.d, QRNIC_COUNTER_RX_MULTICAST, 1);
    p = peer_multicast(&g, "with a priority only");
    p.vlan = 0x6000;
    peer_send(g.r.d, &p);
    counter_wait(g.r.d, QRNIC_COUNTER_RX_MULTICAST, 2);
    rig_stop(&g.r);
}

/*
 * Tests that a packet to a group address with the number of a single queue pair
 * is dropped.
 */
static void test_receive_number(void)
{
    PeerPacket p;
    Group g;

    group_start(&g, 0);
    attach(&g, 0);
    p = peer_multicast(&g, "to whom?");
    p.dest_qpn = g.qp[0].number;
    peer_send(g.r.d, &p);
    counter_wait(g.r.d, QRNIC_COUNTER_RX_DROP_ADDRESS, 1);
    p = peer_packet(&g.qp[0], UD_SEND_ONLY, 0);
    p.dest_qpn = QRNIC_MULTICAST_QPN;
    p.qkey = QKEY;
    peer_send(g.r.d, &p);
    counter_wait(g.r.d, QRNIC_COUNTER_RX_DROP_NO_QP, 1);
    expect_copies(&g, 0, "", 0);
    rig_stop(&g.r);
}

/*
 * Frames to a group without attached queue pairs go to the Ethernet function.
 */
static void test_ethernet(void)
{
    uint8_t raw[QRNIC_RX_FILTER_BYTES], frame[PEER_FRAME_MAX];
    QrnicRxFilter filter = { .flags = QRNIC_RXF_ALLMULTI };
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PORT, .state = QRNIC_QPS_INIT,
        .port = 1,
    };
    QrnicDataSeg sge;
    PeerPacket p;
    QrnicCqe cqe;
    size_t len;
    Group g;
    Qp eth;

    group_start(&g, 0);
    qp_create(g.r.d, &eth, QRNIC_QPT_RAW_PACKET, g.r.pd, g.r.page,
              &g.r.send_cq, &g.r.recv_cq, 4, 3, 0);
    qp_modify(g.r.d, &eth, &step);
    step = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    qp_modify(g.r.d, &eth, &step);
    step.state = QRNIC_QPS_RTS;
    qp_modify(g.r.d, &eth, &step);
    filter.qpn = eth.number;
    qrnic_rx_filter_pack(raw, &filter);
    command_ok(g.r.d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw), NULL, 0);
    for (int i = 0; i < 3; i++) {
        sge = (QrnicDataSeg) { g.r.mr.start + 8192, 1024, g.r.mr.key };
        rq_post(g.r.d, &eth, &sge, 1);
    }
    p = peer_multicast(&g, "hello");
    len = peer_encode(&p, frame);
    for (int i = 0; i < 3; i++) {
        wire_send(g.r.d, frame, len);
        if (i == 1) {
            expect_copies(&g, 1 << 1, "hello", PEER_QPN);
            detach(&g, 1);
        } else {
            uint8_t got[PEER_FRAME_MAX];

            cq_wait(g.r.d, &g.r.recv_cq, &cqe);
            g_assert_cmphex(cqe.qpn, ==, eth.number);
            g_assert_cmpuint(cqe.byte_len, ==, len);
            rig_read(&g.r, 8192, got, len);
            g_assert_cmpmem(got, len, frame, len);
            attach(&g, 1);
        }
    }
    rig_stop(&g.r);
}

static void send_to_group(Group *g, unsigned member, const char *text)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicDatagramSeg to = {
        .dest_qpn = QRNIC_MULTICAST_QPN, .qkey = QKEY,
        .av = { .udp_sport = 0xc001, .hop_limit = 1 },
    };
    bool ipv6 = g->gid[0] == 0xff;
    PeerPacket p;
    QrnicCqe cqe;

    memcpy(to.av.dgid, g->gid, 16);
    memcpy(to.av.dmac, ipv6 ? "\x33\x33\xaa\xbb\xcc\xdd" : GROUP_MAC, 6);
    to.av.sgid_index = ipv6;
    wqe_datagram(&w, &to);
    wqe_inline(&w, text, strlen(text));
    sq_post(g->r.d, &g->qp[member], &w);
    p = peer_expect(g->r.d, UD_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.dmac, 6, to.av.dmac, 6);
    g_assert_cmpmem(p.smac, 6, OUR_MAC, 6);
    g_assert_cmpmem(p.dip, ipv6 ? 16 : 4, g->gid + (ipv6 ? 0 : 12),
                    ipv6 ? 16 : 4);
    g_assert_cmphex(p.dest_qpn, ==, QRNIC_MULTICAST_QPN);
    g_assert_cmphex(p.src_qpn, ==, g->qp[member].number);
    g_assert_cmphex(p.qkey, ==, QKEY);
    g_assert_cmpuint(p.ttl, ==, 1);
    g_assert_cmpmem(p.payload, p.length, text, strlen(text));
    cq_wait(g->r.d, &g->r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    wire_silent(g->r.d);
}

/*
 * Asserts that a send to the group goes to the wire once, and to all attached
 * queue pairs, including the sender.
 */
static void check_send(uint8_t flags, unsigned members, bool ipv6)
{
    Group g;

    group_start(&g, flags);
    if (ipv6) {
        memcpy(g.gid, group6, 16);
    }
    attach(&g, 0);
    attach(&g, 1);
    send_to_group(&g, 0, "from one of us");
    expect_copies(&g, members, "from one of us", g.qp[0].number);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_RX_MULTICAST), ==,
                     ctpop32(members));
    /* The sender need not be attached. */
    send_to_group(&g, 2, "from outside");
    expect_copies(&g, 1 << 0 | 1 << 1, "from outside", g.qp[2].number);
    g_assert_cmpuint(counter(g.r.d, QRNIC_COUNTER_ROCE_TX_MULTICAST), ==, 2);
    rig_stop(&g.r);
}

static void test_send(void)
{
    check_send(0, 1 << 0 | 1 << 1, false);
}

static void test_send_ipv6(void)
{
    check_send(0, 1 << 0 | 1 << 1, true);
}

/*
 * Tests that the sender receives no copy with QPF_NO_MULTICAST_LOOPBACK, and
 * that the other members do. Programs set the flag to avoid their own messages.
 */
static void test_no_loopback(void)
{
    check_send(QRNIC_QPF_NO_MULTICAST_LOOPBACK, 1 << 1, false);
}

/*
 * Tests that the flag applies only to packets of this device, because a peer's
 * queue pair may have the same number.
 */
static void test_no_loopback_peer(void)
{
    PeerPacket p;
    Group g;

    group_start(&g, QRNIC_QPF_NO_MULTICAST_LOOPBACK);
    attach(&g, 0);
    p = peer_multicast(&g, "a namesake");
    p.src_qpn = g.qp[0].number;
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 0, "a namesake", g.qp[0].number);
    rig_stop(&g.r);
}

/*
 * Tests that DESTROY_QP ends the attachments, so that a later queue pair of the
 * same number has none. A reset queue pair keeps its attachments, but receives
 * nothing.
 */
static void test_lifetime(void)
{
    QrnicQpAttr reset = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET };
    uint32_t number;
    PeerPacket p;
    Group g;

    group_start_with(&g, 0, "max-qp=8");
    for (int i = 0; i < MEMBERS; i++) {
        attach(&g, i);
    }
    number = g.qp[1].number;
    qp_modify(g.r.d, &g.qp[0], &reset);
    command_ok(g.r.d, QRNIC_CMD_DESTROY_QP, number, NULL, 0, NULL, 0);
    p = peer_multicast(&g, "the others");
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 2, "the others", PEER_QPN);
    detach_fails(&g.r, number, g.gid, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    /* The device uses a number again after a while. */
    for (int i = 0; i < 100; i++) {
        qp_create(g.r.d, &g.qp[1], QRNIC_QPT_UD, g.r.pd, g.r.page,
                  &g.r.send_cq, &g.r.recv_cq, 3, 3, 0);
        if (g.qp[1].number == number) {
            break;
        }
        command_ok(g.r.d, QRNIC_CMD_DESTROY_QP, g.qp[1].number, NULL, 0, NULL,
                   0);
    }
    g_assert_cmpuint(g.qp[1].number, ==, number);
    qp_start_datagram(g.r.d, &g.qp[1], QKEY);
    post_recv(&g, 1);
    qtest_writel(g.r.d->qts, g.qp[0].rq_record, 0);
    g.qp[0].rq_producer = 0;
    qp_start_datagram(g.r.d, &g.qp[0], QKEY);
    post_recv(&g, 0);
    p = peer_multicast(&g, "once again");
    peer_send(g.r.d, &p);
    expect_copies(&g, 1 << 0 | 1 << 2, "once again", PEER_QPN);
    rig_stop(&g.r);
}

#define MANY 100

/*
 * Tests a frame to many queue pairs, which takes several runs of the engine.
 * The peer's next frame waits in the backend until all copies are written.
 */
static void test_many(void)
{
    static Qp qp[MANY];
    unsigned got[MANY] = { 0 };
    PeerPacket p;
    QrnicCqe cqe;
    Group g;
    Cq cq;

    group_start(&g, 0);
    cq_create(g.r.d, &cq, &g.r.eq, g.r.page, 9);
    for (unsigned i = 0; i < MANY; i++) {
        QrnicDataSeg sge = { g.r.mr.start, 1024, g.r.mr.key };

        qp_create(g.r.d, &qp[i], QRNIC_QPT_UD, g.r.pd, g.r.page,
                  &g.r.send_cq, &cq, 4, 3, 0);
        qp_start_datagram(g.r.d, &qp[i], QKEY);
        for (unsigned n = 0; n < 4; n++) {
            rq_write(g.r.d, &qp[i], &sge, 1);
        }
        rq_post(g.r.d, &qp[i], &sge, 1);
        command_ok(g.r.d, QRNIC_CMD_ATTACH_MULTICAST, qp[i].number, g.gid,
                   sizeof(g.gid), NULL, 0);
    }
    p = peer_multicast(&g, "one for all");
    for (unsigned n = 0; n < 3; n++) {
        p.psn = n;
        peer_send(g.r.d, &p);
    }
    p = peer_packet(&qp[MANY / 2], UD_SEND_ONLY, 3);
    p.qkey = QKEY;
    p.src_qpn = PEER_QPN;
    p.payload = (const uint8_t *)"and one";
    p.length = 7;
    peer_send(g.r.d, &p);
    for (unsigned n = 0; n < 3 * MANY + 1; n++) {
        unsigned i = 0;

        cq_wait(g.r.d, &cq, &cqe);
        g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
        while (i < MANY && qp[i].number != cqe.qpn) {
            i++;
        }
        g_assert_cmpuint(i, <, MANY);
        g_assert_cmpuint(++got[i], ==, n / MANY + 1);
    }
    g_assert_cmpuint(cqe.qpn, ==, qp[MANY / 2].number);
    settle(g.r.d);
    g_assert_false(cq_poll(g.r.d, &cq, &cqe));
    rig_stop(&g.r);
}

void add_multicast_tests(void)
{
    qtest_add_func("qrnic/datagram/multicast-many", test_many);
    qtest_add_func("qrnic/datagram/multicast-commands", test_commands);
    qtest_add_func("qrnic/datagram/multicast-limit", test_limit);
    qtest_add_func("qrnic/datagram/multicast-receive", test_receive);
    qtest_add_func("qrnic/datagram/multicast-receive-ipv6", test_receive_ipv6);
    qtest_add_func("qrnic/datagram/multicast-receive-vlan",
                   test_receive_vlan);
    qtest_add_func("qrnic/datagram/multicast-number", test_receive_number);
    qtest_add_func("qrnic/datagram/multicast-ethernet", test_ethernet);
    qtest_add_func("qrnic/datagram/multicast-send", test_send);
    qtest_add_func("qrnic/datagram/multicast-send-ipv6", test_send_ipv6);
    qtest_add_func("qrnic/datagram/multicast-no-loopback", test_no_loopback);
    qtest_add_func("qrnic/datagram/multicast-namesake",
                   test_no_loopback_peer);
    qtest_add_func("qrnic/datagram/multicast-lifetime", test_lifetime);
}
