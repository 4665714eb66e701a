/*
 * qrnic qtest: RoCE v1 beside RoCE v2
 *
 * Asserts exact frames of the device, sends crafted frames, and tests that the
 * versions stay separate. Programmer's Reference, chapter Wire format;
 * InfiniBand specification, annex A16.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define QKEY 0x01020304u
#define GRH 40
#define VLAN_IP4 "\x0a\x00\x00\x03"
#define GROUP_MAC "\x33\x33\xe0\x01\x02\x03"

static const uint8_t our_link[16] = { 0xfe, 0x80, [15] = 1 };
static const uint8_t peer_link[16] = { 0xfe, 0x80, [15] = 2 };
static const uint8_t our_global[16] = { 0xfd, 0x77, [15] = 1 };
static const uint8_t peer_global[16] = { 0xfd, 0x77, [15] = 2 };
/* The RoCE v1 group that Linux derives from an IPv4 address */
static const uint8_t group[16] = {
    0xff, 0x0e, [10] = 0xff, [11] = 0xff, [12] = 0xe0, 1, 2, 3
};

/* Entry V2_IP4 of the rig has the address of V1_IP4, and is of RoCE v2. */
enum { V2_IP4, V1_IP4, V1_LINK, V1_VLAN, V2_GLOBAL };

static void gid_set_v1(Device *d, uint32_t index, const uint8_t *gid, int vlan)
{
    uint8_t raw[QRNIC_GID_ENTRY_BYTES];
    QrnicGidEntry entry = {
        .flags = QRNIC_GID_VALID | QRNIC_GID_ROCE_V1 |
                 (vlan >= 0 ? QRNIC_GID_VLAN : 0),
        .vlan_id = vlan >= 0 ? vlan : 0,
    };

    memcpy(entry.gid, gid, 16);
    memcpy(entry.mac, OUR_MAC, 6);
    qrnic_gid_entry_pack(raw, &entry);
    command_ok(d, QRNIC_CMD_SET_GID, index, raw, sizeof(raw), NULL, 0);
}

static void start(Rig *r)
{
    uint8_t gid[16];

    rig_start(r, "", NULL);
    gid_of_ip4(gid, OUR_IP4);
    gid_set_v1(r->d, V1_IP4, gid, -1);
    gid_set_v1(r->d, V1_LINK, our_link, -1);
    gid_of_ip4(gid, VLAN_IP4);
    gid_set_v1(r->d, V1_VLAN, gid, 7);
    gid_set(r->d, V2_GLOBAL, our_global, -1);
}

/* Returns the two addresses of a path with this GID entry. */
static void addresses(unsigned entry, uint8_t *ours, uint8_t *peers)
{
    if (entry == V1_LINK) {
        memcpy(ours, our_link, 16);
        memcpy(peers, peer_link, 16);
    } else {
        gid_of_ip4(ours, entry == V1_VLAN ? VLAN_IP4 : OUR_IP4);
        gid_of_ip4(peers, PEER_IP4);
    }
}

static QrnicAddressVector address_vector(unsigned entry)
{
    QrnicAddressVector av = {
        .sgid_index = entry, .hop_limit = 33, .traffic_class = 0x28,
        .flow_label = 0x54321, .sl = 5,
    };
    uint8_t ours[16];

    addresses(entry, ours, av.dgid);
    memcpy(av.dmac, PEER_MAC, 6);
    return av;
}

/*
 * Returns a packet that the device must send by the path of a GID entry. The
 * next function returns a packet to the device.
 */
static PeerPacket from_us(unsigned entry, uint8_t opcode, uint32_t psn)
{
    PeerPacket p = {
        .v1 = true, .vlan = entry == V1_VLAN ? 5 << 13 | 7 : -1, .tos = 0x28,
        .ttl = 33, .flow_label = 0x54321, .opcode = opcode,
        .dest_qpn = PEER_QPN, .psn = psn & 0xffffff,
    };

    memcpy(p.dmac, PEER_MAC, 6);
    memcpy(p.smac, OUR_MAC, 6);
    addresses(entry, p.sip, p.dip);
    return p;
}

static PeerPacket to_us(const Qp *qp, unsigned entry, uint8_t opcode,
                        uint32_t psn)
{
    PeerPacket p = peer_packet(qp, opcode, psn);

    p.v1 = true;
    p.vlan = entry == V1_VLAN ? 7 : -1;
    addresses(entry, p.dip, p.sip);
    return p;
}

static void connect_by(Rig *r, unsigned entry)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.av = address_vector(entry);
    qp_create(r->d, &r->qp, QRNIC_QPT_RC, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 5, 3, 0);
    qp_connect(r->d, &r->qp, &attr);
}

static void post_recv(Rig *r, uint64_t offset, uint32_t length)
{
    QrnicDataSeg sge = { r->mr.start + offset, length, r->mr.key };

    rq_post(r->d, &r->qp, &sge, 1);
}

/* Tests a send and its ACK, a write to the device, and a read from it. */
static void check_connection(unsigned entry)
{
    uint8_t data[200], got[200];
    PeerPacket p, answer;
    QrnicCqe cqe;
    Wqe w;
    Rig r;

    start(&r);
    connect_by(&r, entry);
    rig_fill(&r, 0, data, sizeof(data), 5);
    w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    wqe_data(&w, r.mr.start, 199, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    p = from_us(entry, RC_SEND_ONLY, SQ_PSN);
    p.ack_request = true;
    p.payload = data;
    p.length = 199;
    peer_expect_frame(r.d, &p);
    p = to_us(&r.qp, entry, RC_ACK, SQ_PSN);
    p.syndrome = 31;
    p.msn = 1;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);

    p = to_us(&r.qp, entry, RC_WRITE_ONLY, RQ_PSN);
    p.va = r.mr.start + 4096;
    p.rkey = r.mr.key;
    p.dma_length = p.length = 200;
    p.payload = data;
    p.ack_request = true;
    peer_send(r.d, &p);
    answer = peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_true(answer.v1);
    rig_read(&r, 4096, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));

    p = to_us(&r.qp, entry, RC_READ_REQUEST, RQ_PSN + 1);
    p.va = r.mr.start;
    p.rkey = r.mr.key;
    p.dma_length = 120;
    peer_send(r.d, &p);
    p = from_us(entry, RC_READ_ONLY, RQ_PSN + 1);
    p.syndrome = answer.syndrome;
    p.msn = 2;
    p.payload = data;
    p.length = 120;
    peer_expect_frame(r.d, &p);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_V1_TX_PACKETS), ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_V1_RX_PACKETS), ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_TX_PACKETS), ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    rig_stop(&r);
}

static void test_connection_ip4(void)
{
    check_connection(V1_IP4);
}

static void test_connection_link(void)
{
    check_connection(V1_LINK);
}

static void test_connection_vlan(void)
{
    check_connection(V1_VLAN);
}

static void test_unreliable(void)
{
    QrnicQpAttr attr = qp_default_attr();
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    start(&r);
    attr.av = address_vector(V1_LINK);
    qp_create(r.d, &r.qp, QRNIC_QPT_UC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              5, 3, 0);
    qp_connect_unreliable(r.d, &r.qp, &attr);
    wqe_inline(&w, "uncertain", 9);
    sq_post(r.d, &r.qp, &w);
    p = from_us(V1_LINK, UC_SEND_ONLY, SQ_PSN);
    p.payload = (const uint8_t *)"uncertain";
    p.length = 9;
    peer_expect_frame(r.d, &p);
    cq_wait(r.d, &r.send_cq, &cqe);
    post_recv(&r, 0, 64);
    p = to_us(&r.qp, V1_LINK, UC_SEND_ONLY, RQ_PSN);
    p.payload = (const uint8_t *)"it came";
    p.length = 7;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.byte_len, ==, 7);
    rig_stop(&r);
}

/*
 * Tests that a hop limit of 0 is sent as 64, because no router forwards a hop
 * limit of 0 (8.3.6).
 */
static void test_hop_limit(void)
{
    QrnicQpAttr attr = qp_default_attr();
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    PeerPacket p;
    Rig r;

    start(&r);
    attr.av = address_vector(V1_LINK);
    attr.av.hop_limit = 0;
    qp_create(r.d, &r.qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              5, 3, 0);
    qp_connect(r.d, &r.qp, &attr);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpuint(p.ttl, ==, 64);
    rig_stop(&r);
}

/*
 * Tests that a connection has one version of RoCE, because the address vector
 * selects it. Packets of the other version with the same GIDs are dropped.
 */
static void test_apart(void)
{
    PeerPacket p;
    Rig r;

    start(&r);
    p = to_us(&r.qp, V1_IP4, RC_SEND_ONLY, RQ_PSN);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_ADDRESS, 1);
    connect_by(&r, V1_IP4);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_ADDRESS, 2);
    /*
     * The packet has the right version, but other addresses than the
     * connection.
     */
    p = to_us(&r.qp, V1_LINK, RC_SEND_ONLY, RQ_PSN);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_ADDRESS, 3);
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 0);
    rig_stop(&r);
}

/* Packets without a GID entry of their version go to the Ethernet function. */
static void test_steering(void)
{
    PeerPacket p, v2;
    uint64_t others = 0;
    Rig r;

    start(&r);
    connect_by(&r, V1_LINK);
    /* The packet has addresses that only the other version has. */
    p = to_us(&r.qp, V1_LINK, RC_SEND_ONLY, RQ_PSN);
    memcpy(p.sip, peer_global, 16);
    memcpy(p.dip, our_global, 16);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, ++others);
    v2 = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    v2.ipv6 = true;
    memcpy(v2.sip, peer_link, 16);
    memcpy(v2.dip, our_link, 16);
    peer_send(r.d, &v2);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, ++others);
    /*
     * The packets have another VLAN, another MAC address, and an unknown
     * address.
     */
    p = to_us(&r.qp, V1_LINK, RC_SEND_ONLY, RQ_PSN);
    p.vlan = 7;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, ++others);
    p.vlan = -1;
    p.dmac[5] ^= 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, ++others);
    p.dmac[5] ^= 1;
    p.dip[15] = 9;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, ++others);
    wire_silent(r.d);
    /* A tag of VLAN 0 counts as untagged. */
    p = to_us(&r.qp, V1_LINK, RC_WRITE_ONLY, RQ_PSN);
    p.vlan = 0x6000;
    p.ack_request = true;
    p.va = r.mr.start;
    p.rkey = r.mr.key;
    peer_send(r.d, &p);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_RX_PACKETS), ==, 1);
    rig_stop(&r);
}

static void test_malformed(void)
{
    static const uint8_t pad[60];
    uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;
    size_t len;
    Rig r;

    start(&r);
    connect_by(&r, V1_LINK);
    p = to_us(&r.qp, V1_LINK, RC_WRITE_ONLY, RQ_PSN);
    p.ack_request = true;
    p.va = r.mr.start;
    p.rkey = r.mr.key;
    p.length = p.dma_length = 8;
    p.payload = (const uint8_t *)"eightbyt";
    p.icrc_flip = 0x10000;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_ICRC, 1);
    p.icrc_flip = 0;
    /*
     * The packets have a length beyond the frame, a length of 0, and a next
     * header that is no BTH.
     */
    p.udp_length_delta = 4;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 1);
    p.udp_length_delta = -(12 + 16 + 8 + 4);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 2);
    p.udp_length_delta = 0;
    p.next_header = 17;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 3);
    p.next_header = 0;
    p.tver = 1;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, 4);
    p.tver = 0;
    /* The device drops every truncation of the frame. */
    len = peer_encode(&p, frame);
    for (size_t n = 14 + GRH; n < len; n++) {
        wire_send(r.d, frame, n);
        counter_wait(r.d, QRNIC_COUNTER_RX_DROP_MALFORMED, n - 14 - GRH + 5);
    }
    wire_silent(r.d);
    /* Bytes behind the ICRC are ignored. */
    memcpy(frame + len, pad, sizeof(pad));
    wire_send(r.d, frame, len + sizeof(pad));
    peer_expect(r.d, RC_ACK, RQ_PSN);
    rig_stop(&r);
}

/* Tests that the ICRC excludes the fields that a router may change. */
static void test_icrc_cover(void)
{
    uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;
    size_t len;
    Rig r;

    start(&r);
    connect_by(&r, V1_LINK);
    p = to_us(&r.qp, V1_LINK, RC_SEND_ONLY, RQ_PSN + 5);
    len = peer_encode(&p, frame);
    frame[14] ^= 0x0f;          /* Traffic class, flow label */
    frame[15] ^= 0xff;
    frame[16] ^= 0xff;
    frame[17] ^= 0xff;
    frame[14 + 7] ^= 0xff;      /* Hop limit */
    frame[14 + GRH + 4] ^= 0xff;        /* Reserved byte of the BTH */
    wire_send(r.d, frame, len);
    counter_wait(r.d, QRNIC_COUNTER_ROCE_V1_RX_PACKETS, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_DROP_ICRC), ==, 0);
    rig_stop(&r);
}

static void ud_start(Rig *r)
{
    start(r);
    qp_create(r->d, &r->qp, QRNIC_QPT_UD, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 5, 3, 0);
    qp_start_datagram(r->d, &r->qp, QKEY);
}

static QrnicDatagramSeg to_peer(unsigned entry)
{
    return (QrnicDatagramSeg) {
        .av = address_vector(entry), .dest_qpn = PEER_QPN, .qkey = 0x556677,
    };
}

static void send_datagram(Rig *r, const QrnicDatagramSeg *to, const char *text)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_datagram(&w, to);
    wqe_inline(&w, text, strlen(text));
    sq_post(r->d, &r->qp, &w);
}

static PeerPacket datagram_of(Rig *r, PeerPacket p, const char *text)
{
    p.qkey = 0x556677;
    p.src_qpn = r->qp.number;
    p.payload = (const uint8_t *)text;
    p.length = strlen(text);
    return p;
}

static void expect_sent(Rig *r, unsigned status, unsigned syndrome)
{
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpuint(cqe.syndrome, ==, syndrome);
}

/*
 * Tests that any GID can send to any other, because a GRH has room for both
 * kinds.
 */
static void test_datagram_send(void)
{
    QrnicDatagramSeg to;
    uint32_t psn = SQ_PSN;
    PeerPacket p;
    Rig r;

    ud_start(&r);
    for (unsigned entry = V1_IP4; entry <= V1_VLAN; entry++) {
        to = to_peer(entry);
        send_datagram(&r, &to, "hello");
        p = datagram_of(&r, from_us(entry, UD_SEND_ONLY, psn++), "hello");
        peer_expect_frame(r.d, &p);
        expect_sent(&r, QRNIC_WC_SUCCESS, QRNIC_SYN_NONE);
    }
    to = to_peer(V1_LINK);
    gid_of_ip4(to.av.dgid, PEER_IP4);
    send_datagram(&r, &to, "mixed");
    p = datagram_of(&r, from_us(V1_LINK, UD_SEND_ONLY, psn++), "mixed");
    gid_of_ip4(p.dip, PEER_IP4);
    peer_expect_frame(r.d, &p);
    expect_sent(&r, QRNIC_WC_SUCCESS, QRNIC_SYN_NONE);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GUEST_ERRORS), ==, 0);
    /* RoCE v1 has no UDP port. */
    to = to_peer(V1_LINK);
    to.av.udp_sport = 0xc777;
    send_datagram(&r, &to, "port");
    expect_sent(&r, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_ADDRESS);
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests that the receiver gets the GRH as it was on the wire. */
static void test_datagram_receive(void)
{
    uint8_t frame[PEER_FRAME_MAX], got[GRH + 5];
    Rig r;

    ud_start(&r);
    for (unsigned entry = V1_IP4; entry <= V1_VLAN; entry++) {
        PeerPacket p = to_us(&r.qp, entry, UD_SEND_ONLY, entry);
        size_t len;
        QrnicCqe cqe;

        p.tos = 0x6c;
        p.ttl = 17;
        p.flow_label = 0x98765;
        p = datagram_of(&r, p, "hello");
        p.qkey = QKEY;
        p.src_qpn = PEER_QPN;
        len = peer_encode(&p, frame);
        post_recv(&r, 0, 2048);
        wire_send(r.d, frame, len);
        cq_wait(r.d, &r.recv_cq, &cqe);
        g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==, "SUCCESS");
        g_assert_cmpuint(cqe.network, ==, QRNIC_NETWORK_ROCE_V1);
        g_assert_cmphex(cqe.flags, ==, QRNIC_CQEF_GRH |
                        (entry == V1_VLAN ? QRNIC_CQEF_VLAN : 0));
        g_assert_cmpuint(cqe.byte_len, ==, GRH + 5);
        g_assert_cmphex(cqe.src_qpn, ==, PEER_QPN);
        g_assert_cmpmem(cqe.smac, 6, PEER_MAC, 6);
        rig_read(&r, 0, got, sizeof(got));
        g_assert_cmpmem(got, GRH, frame + (entry == V1_VLAN ? 18 : 14), GRH);
        g_assert_cmpmem(got + GRH, 5, "hello", 5);
    }
    rig_stop(&r);
}

/* Tests that queue pairs of one device use loopback, not the wire. */
static void test_loopback(void)
{
    QrnicDatagramSeg to = to_peer(V1_LINK);
    QrnicCqe cqe;
    Rig r;

    ud_start(&r);
    post_recv(&r, 0, 256);
    memcpy(to.av.dgid, our_link, 16);
    memcpy(to.av.dmac, OUR_MAC, 6);
    to.dest_qpn = r.qp.number;
    to.qkey = QKEY;
    send_datagram(&r, &to, "to myself");
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.network, ==, QRNIC_NETWORK_ROCE_V1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ROCE_LOOPBACK_PACKETS), ==, 1);
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests that a group has its members for both versions of RoCE. */
static void test_multicast(void)
{
    QrnicDatagramSeg to = to_peer(V1_IP4);
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;

    ud_start(&r);
    command_ok(r.d, QRNIC_CMD_ATTACH_MULTICAST, r.qp.number, group,
               sizeof(group), NULL, 0);
    for (int i = 0; i < 3; i++) {
        post_recv(&r, 0, 256);
    }
    memcpy(to.av.dgid, group, 16);
    memcpy(to.av.dmac, GROUP_MAC, 6);
    to.dest_qpn = QRNIC_MULTICAST_QPN;
    to.qkey = QKEY;
    send_datagram(&r, &to, "from us");
    p = datagram_of(&r, from_us(V1_IP4, UD_SEND_ONLY, SQ_PSN), "from us");
    memcpy(p.dmac, GROUP_MAC, 6);
    memcpy(p.dip, group, 16);
    p.dest_qpn = QRNIC_MULTICAST_QPN;
    p.qkey = QKEY;
    peer_expect_frame(r.d, &p);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmphex(cqe.src_qpn, ==, r.qp.number);

    p = datagram_of(&r, to_us(&r.qp, V1_IP4, UD_SEND_ONLY, 9), "from the peer");
    memcpy(p.dmac, GROUP_MAC, 6);
    memcpy(p.dip, group, 16);
    p.dest_qpn = QRNIC_MULTICAST_QPN;
    p.qkey = QKEY;
    p.src_qpn = PEER_QPN;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmphex(cqe.src_qpn, ==, PEER_QPN);
    g_assert_cmpuint(cqe.network, ==, QRNIC_NETWORK_ROCE_V1);
    /* The VLAN has no GID entry of this version. */
    p.vlan = 9;
    peer_send(r.d, &p);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    for (unsigned entry = V1_IP4; entry <= V1_LINK; entry++) {
        command_ok(r.d, QRNIC_CMD_CLEAR_GID, entry, NULL, 0, NULL, 0);
    }
    p.vlan = -1;
    peer_send(r.d, &p);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    rig_stop(&r);
}

static void test_address_vector(void)
{
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1,
    };
    uint8_t raw[QRNIC_QP_ATTR_BYTES];
    Rig r;

    start(&r);
    qp_create(r.d, &r.qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              5, 3, 0);
    qp_modify(r.d, &r.qp, &attr);
    attr = qp_default_attr();
    attr.av = address_vector(V1_LINK);
    attr.av.udp_sport = 0xc777;
    attr.mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN |
                QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER;
    attr.state = QRNIC_QPS_RTR;
    attr.port = attr.access = attr.timeout = attr.retry_cnt = 0;
    attr.rnr_retry = attr.sq_psn = attr.max_rd_atomic = 0;
    qrnic_qp_attr_pack(raw, &attr);
    command_fails(r.d, QRNIC_CMD_MODIFY_QP, r.qp.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_AV_OFFSET +
                  QRNIC_ADDRESS_VECTOR_UDP_SPORT_OFFSET);
    attr.av.udp_sport = 0;
    /* RoCE v2 could not reach this destination from this entry. */
    gid_of_ip4(attr.av.dgid, PEER_IP4);
    qp_modify(r.d, &r.qp, &attr);
    rig_stop(&r);
}

/*
 * Tests that without the capability, GID entries and frames of RoCE v1 are
 * rejected.
 */
static void test_off(void)
{
    uint8_t raw[QRNIC_GID_ENTRY_BYTES], attr[QRNIC_DEVICE_ATTR_BYTES];
    QrnicGidEntry entry = { .flags = QRNIC_GID_VALID | QRNIC_GID_ROCE_V1 };
    QrnicDeviceAttr device;
    PeerPacket p;
    Rig r;

    for (int on = 0; on < 2; on++) {
        rig_start(&r, on ? "" : "cap-roce-v1=off", NULL);
        command_ok(r.d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, attr,
                   sizeof(attr));
        qrnic_device_attr_unpack(&device, attr);
        g_assert_cmpint(!!(device.capabilities & QRNIC_CAP_ROCE_V1), ==, on);
        memcpy(entry.gid, our_link, 16);
        memcpy(entry.mac, OUR_MAC, 6);
        qrnic_gid_entry_pack(raw, &entry);
        if (on) {
            command_ok(r.d, QRNIC_CMD_SET_GID, 1, raw, sizeof(raw), NULL, 0);
        } else {
            command_fails(r.d, QRNIC_CMD_SET_GID, 1, raw, sizeof(raw), NULL, 0,
                          QRNIC_ST_NOT_SUPPORTED,
                          QRNIC_GID_ENTRY_FLAGS_OFFSET);
        }
        p = to_us(&r.qp, V1_IP4, RC_SEND_ONLY, RQ_PSN);
        peer_send(r.d, &p);
        counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 1);
        rig_stop(&r);
    }
}

void add_roce_v1_tests(void)
{
    qtest_add_func("qrnic/roce-v1/connection-ip4", test_connection_ip4);
    qtest_add_func("qrnic/roce-v1/connection-link", test_connection_link);
    qtest_add_func("qrnic/roce-v1/connection-vlan", test_connection_vlan);
    qtest_add_func("qrnic/roce-v1/unreliable", test_unreliable);
    qtest_add_func("qrnic/roce-v1/hop-limit", test_hop_limit);
    qtest_add_func("qrnic/roce-v1/apart", test_apart);
    qtest_add_func("qrnic/roce-v1/steering", test_steering);
    qtest_add_func("qrnic/roce-v1/malformed", test_malformed);
    qtest_add_func("qrnic/roce-v1/icrc-cover", test_icrc_cover);
    qtest_add_func("qrnic/roce-v1/datagram-send", test_datagram_send);
    qtest_add_func("qrnic/roce-v1/datagram-receive", test_datagram_receive);
    qtest_add_func("qrnic/roce-v1/loopback", test_loopback);
    qtest_add_func("qrnic/roce-v1/multicast", test_multicast);
    qtest_add_func("qrnic/roce-v1/address-vector", test_address_vector);
    qtest_add_func("qrnic/roce-v1/off", test_off);
}
