/*
 * qrnic qtest: the Ethernet function
 *
 * Frames from and to a raw packet queue pair; checksums, VLAN tags, the receive
 * filter, backpressure. Programmer's Reference, chapter Ethernet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"
#include "hw/pci/pci_regs.h"

static const uint8_t broadcast[6] = { [0 ... 5] = 0xff };

/* Replaces r->qp by the raw packet queue pair of the receive filter. */
static void eth_setup(Rig *r, uint8_t rx_flags)
{
    uint8_t raw[QRNIC_RX_FILTER_BYTES];
    QrnicRxFilter filter = { .flags = rx_flags, .unicast_count = 1 };
    QrnicQpAttr step = { .mask = QRNIC_QP_STATE | QRNIC_QP_PORT, .port = 1 };

    qp_create(r->d, &r->qp, QRNIC_QPT_RAW_PACKET, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 4, 3, 0);
    step.state = QRNIC_QPS_INIT;
    qp_modify(r->d, &r->qp, &step);
    step = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    qp_modify(r->d, &r->qp, &step);
    step.state = QRNIC_QPS_RTS;
    qp_modify(r->d, &r->qp, &step);
    filter.qpn = r->qp.number;
    memcpy(filter.addresses, OUR_MAC, 6);
    qrnic_rx_filter_pack(raw, &filter);
    command_ok(r->d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw), NULL, 0);
}

static void eth_start(Rig *r, const char *properties, uint8_t rx_flags)
{
    rig_start(r, properties, NULL);
    eth_setup(r, rx_flags);
}

static void post_recv(Rig *r, uint64_t offset, uint32_t length)
{
    QrnicDataSeg sge = {
        .address = r->mr.start + offset, .length = length, .lkey = r->mr.key,
    };

    rq_post(r->d, &r->qp, &sge, 1);
}

static void make_frame(uint8_t *frame, size_t len, const void *dmac,
                       uint16_t type)
{
    for (size_t i = 0; i < len; i++) {
        frame[i] = i * 3;
    }
    memcpy(frame, dmac, 6);
    memcpy(frame + 6, PEER_MAC, 6);
    frame[12] = type >> 8;
    frame[13] = type;
}

static void test_transmit(void)
{
    uint8_t frame[1514], got[PEER_FRAME_MAX];
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;
    size_t len;
    Rig r;

    eth_start(&r, "", 0);
    rig_fill(&r, 0, frame, sizeof(frame), 1);
    wqe_eth(&w, &(QrnicEthSeg) { 0 });
    wqe_data(&w, r.mr.start, 14, r.mr.key);
    wqe_data(&w, r.mr.start + 14, 1500, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    len = wire_receive(r.d, got);
    g_assert_cmpmem(got, len, frame, sizeof(frame));
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_TX_PACKETS), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_TX_BYTES), ==, 1514);
    rig_stop(&r);
}

static uint16_t ones_sum(const uint8_t *p, size_t len)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < len; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/*
 * Tests that the device computes a checksum with any start and offset. The sum
 * of the result is all ones.
 */
static void test_transmit_csum(void)
{
    uint8_t frame[101], got[PEER_FRAME_MAX];
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    QrnicEthSeg eth = {
        .flags = QRNIC_ETHF_CSUM | QRNIC_ETHF_VLAN, .csum_start = 34,
        .csum_offset = 16, .vlan_tci = 0x6123,
    };
    size_t len;
    Rig r;

    eth_start(&r, "", 0);
    rig_fill(&r, 0, frame, sizeof(frame), 2);
    wqe_eth(&w, &eth);
    wqe_data(&w, r.mr.start, sizeof(frame), r.mr.key);
    sq_post(r.d, &r.qp, &w);
    len = wire_receive(r.d, got);
    g_assert_cmpuint(len, ==, sizeof(frame) + 4);
    g_assert_cmpmem(got, 12, frame, 12);
    g_assert_cmpmem(got + 12, 4, "\x81\x00\x61\x23", 4);
    g_assert_cmpmem(got + 16, 38, frame + 12, 38);
    /*
     * Software wrote a partial sum into the field, so the device must include
     * it.
     */
    memset(frame + 50, 0, 2);
    {
        uint8_t original[2];
        uint16_t partial, want;

        qtest_memread(r.d->qts, r.mr.memory + 50, original, 2);
        partial = original[0] << 8 | original[1];
        want = ones_sum(frame + 34, sizeof(frame) - 34);
        want = want + partial + (want + partial > 0xffff);
        want = ~want;
        g_assert_cmphex(got[54] << 8 | got[55], ==, want ? want : 0xffff);
    }
    rig_stop(&r);
}

static void test_transmit_csum_outside(void)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    QrnicEthSeg eth = {
        .flags = QRNIC_ETHF_CSUM, .csum_start = 60, .csum_offset = 4,
    };
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    wqe_eth(&w, &eth);
    wqe_data(&w, r.mr.start, 64, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_LEN_ERR);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that jumbo frames up to the MTU are sent, and that longer frames are
 * rejected.
 */
static void test_transmit_long(void)
{
    uint8_t raw[QRNIC_PORT_CTX_BYTES], frame[9014], got[PEER_FRAME_MAX];
    QrnicPortCtx ctx = { .mtu = 9000, .flags = QRNIC_PORTF_ADMIN_UP };
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;
    size_t len;
    Rig r;

    eth_start(&r, "", 0);
    qrnic_port_ctx_pack(raw, &ctx);
    command_ok(r.d, QRNIC_CMD_MODIFY_PORT, 0, raw, sizeof(raw), NULL, 0);
    rig_fill(&r, 0, frame, sizeof(frame), 5);
    wqe_eth(&w, &(QrnicEthSeg) { 0 });
    wqe_data(&w, r.mr.start, sizeof(frame), r.mr.key);
    sq_post(r.d, &r.qp, &w);
    len = wire_receive(r.d, got);
    g_assert_cmpmem(got, len, frame, sizeof(frame));
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    w = wqe_begin(QRNIC_WQE_SEND, 0);
    wqe_eth(&w, &(QrnicEthSeg) { 0 });
    wqe_data(&w, r.mr.start, 9100, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_LEN_ERR);
    wire_silent(r.d);
    rig_stop(&r);
}

static void expect_frame(Rig *r, uint64_t offset, const uint8_t *frame,
                         size_t len, QrnicCqe *cqe)
{
    uint8_t got[PEER_FRAME_MAX];

    cq_wait(r->d, &r->recv_cq, cqe);
    g_assert_cmpuint(cqe->status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe->opcode, ==, QRNIC_CQE_RECV);
    g_assert_cmpuint(cqe->byte_len, ==, len);
    rig_read(r, offset, got, len);
    g_assert_cmpmem(got, len, frame, len);
}

static void test_receive(void)
{
    uint8_t frame[1514];
    QrnicDataSeg sge[2];
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    make_frame(frame, sizeof(frame), OUR_MAC, 0x88b5);
    sge[0] = (QrnicDataSeg) { r.mr.start, 100, r.mr.key };
    sge[1] = (QrnicDataSeg) { r.mr.start + 100, 2000, r.mr.key };
    rq_post(r.d, &r.qp, sge, 2);
    wire_send(r.d, frame, sizeof(frame));
    expect_frame(&r, 0, frame, sizeof(frame), &cqe);
    g_assert_cmphex(cqe.flags, ==, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_RX_PACKETS), ==, 1);
    rig_stop(&r);
}

/*
 * Tests that a frame without a receive WQE is dropped and counted. Packets of a
 * reliable connection behind it pass, and so do frames after a buffer was
 * posted.
 */
static void test_receive_no_buffer(void)
{
    uint8_t frame[3][64];
    PeerPacket p;
    QrnicCqe cqe;
    Qp rc;
    Rig r;

    rig_start(&r, "", NULL);
    rc = r.qp;
    eth_setup(&r, 0);
    for (int i = 0; i < 3; i++) {
        make_frame(frame[i], 64, OUR_MAC, 0x88b5);
        frame[i][20] = i;
    }
    wire_send(r.d, frame[0], 64);
    p = peer_packet(&rc, RC_WRITE_ONLY, RQ_PSN);
    p.ack_request = true;
    wire_send(r.d, frame[1], 64);
    peer_send(r.d, &p);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE), ==, 2);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    post_recv(&r, 0, 128);
    wire_send(r.d, frame[2], 64);
    expect_frame(&r, 0, frame[2], 64, &cqe);
    g_assert_cmpuint(cqe.index, ==, 0);
    rig_stop(&r);
}

/*
 * Tests that a frame is dropped and not counted while bus mastering is off, and
 * that the next frame is received.
 */
static void test_receive_bus_master(void)
{
    uint16_t pci_command;
    uint8_t frame[64];
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    post_recv(&r, 0, 128);
    make_frame(frame, sizeof(frame), OUR_MAC, 0x88b5);
    pci_command = qpci_config_readw(r.d->pci, PCI_COMMAND);
    qpci_config_writew(r.d->pci, PCI_COMMAND,
                       pci_command & ~PCI_COMMAND_MASTER);
    wire_send(r.d, frame, sizeof(frame));
    settle(r.d);
    qpci_config_writew(r.d->pci, PCI_COMMAND, pci_command);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    frame[32] ^= 1;
    wire_send(r.d, frame, sizeof(frame));
    expect_frame(&r, 0, frame, sizeof(frame), &cqe);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE), ==, 0);
    rig_stop(&r);
}

static void set_filter(Rig *r, QrnicRxFilter *filter)
{
    uint8_t raw[QRNIC_RX_FILTER_BYTES];

    filter->qpn = r->qp.number;
    qrnic_rx_filter_pack(raw, filter);
    command_ok(r->d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw), NULL, 0);
}

/* Returns true if a frame to dmac is received. */
static bool passes(Rig *r, const void *dmac)
{
    uint64_t filtered = counter(r->d, QRNIC_COUNTER_ETH_RX_FILTERED);
    uint64_t packets = counter(r->d, QRNIC_COUNTER_ETH_RX_PACKETS);
    uint8_t frame[64];
    QrnicCqe cqe;

    make_frame(frame, sizeof(frame), dmac, 0x88b5);
    post_recv(r, 0, 128);
    wire_send(r->d, frame, sizeof(frame));
    WAIT_UNTIL(counter(r->d, QRNIC_COUNTER_ETH_RX_FILTERED) != filtered ||
               counter(r->d, QRNIC_COUNTER_ETH_RX_PACKETS) != packets,
               "the frame does not arrive");
    if (counter(r->d, QRNIC_COUNTER_ETH_RX_PACKETS) == packets) {
        /*
         * Consumes the receive WQE, so that the next call begins without one.
         */
        make_frame(frame, sizeof(frame), OUR_MAC, 0x88b5);
        wire_send(r->d, frame, sizeof(frame));
        cq_wait(r->d, &r->recv_cq, &cqe);
        return false;
    }
    cq_wait(r->d, &r->recv_cq, &cqe);
    return true;
}

static void test_filter(void)
{
    static const uint8_t other[6] = { 2, 0, 0, 0, 0, 0x77 };
    static const uint8_t multicast[6] = { 1, 0, 0x5e, 0, 0, 1 };
    static const uint8_t multicast2[6] = { 1, 0, 0x5e, 0, 0, 2 };
    QrnicRxFilter filter = { .unicast_count = 1 };
    Rig r;

    eth_start(&r, "", 0);
    memcpy(filter.addresses, OUR_MAC, 6);
    g_assert_true(passes(&r, OUR_MAC));
    g_assert_false(passes(&r, other));
    g_assert_false(passes(&r, broadcast));
    g_assert_false(passes(&r, multicast));
    filter.flags = QRNIC_RXF_BROADCAST;
    filter.multicast_count = 1;
    memcpy(filter.addresses + 6, multicast, 6);
    set_filter(&r, &filter);
    g_assert_true(passes(&r, broadcast));
    g_assert_true(passes(&r, multicast));
    g_assert_false(passes(&r, multicast2));
    filter.flags = QRNIC_RXF_ALLMULTI;
    set_filter(&r, &filter);
    g_assert_true(passes(&r, multicast2));
    g_assert_false(passes(&r, other));
    filter.flags = QRNIC_RXF_PROMISC;
    set_filter(&r, &filter);
    g_assert_true(passes(&r, other));
    rig_stop(&r);
}

static void test_filter_bad(void)
{
    uint8_t raw[QRNIC_RX_FILTER_BYTES];
    QrnicRxFilter filter = { .unicast_count = 60, .multicast_count = 5 };
    Rig r;

    eth_start(&r, "", 0);
    filter.qpn = r.qp.number;
    qrnic_rx_filter_pack(raw, &filter);
    g_assert_cmpint(command(r.d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw),
                            NULL, 0).status, ==, QRNIC_ST_BAD_PARAM);
    filter = (QrnicRxFilter) { .qpn = 0x00fffff0 };
    qrnic_rx_filter_pack(raw, &filter);
    g_assert_cmpint(command(r.d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw),
                            NULL, 0).status, ==, QRNIC_ST_BAD_OBJECT);
    rig_stop(&r);
}

/* Makes a UDP/IPv4 frame with valid or invalid checksums. */
static void udp_frame(uint8_t *frame, size_t payload, bool bad_ip, bool bad_udp)
{
    uint8_t pseudo[12], *ip = frame + 14, *udp = ip + 20;
    size_t udp_len = 8 + payload;
    uint32_t sum;

    make_frame(frame, 14 + 20 + udp_len, OUR_MAC, 0x0800);
    memset(ip, 0, 28);
    ip[0] = 0x45;
    stw_be_p(ip + 2, 20 + udp_len);
    ip[8] = 64;
    ip[9] = 17;
    memcpy(ip + 12, PEER_IP4, 4);
    memcpy(ip + 16, OUR_IP4, 4);
    stw_be_p(ip + 10, ~ones_sum(ip, 20) ^ (bad_ip ? 0x100 : 0));
    stw_be_p(udp, 1000);
    stw_be_p(udp + 2, 2000);
    stw_be_p(udp + 4, udp_len);
    memcpy(pseudo, ip + 12, 8);
    pseudo[8] = 0;
    pseudo[9] = 17;
    stw_be_p(pseudo + 10, udp_len);
    sum = ones_sum(pseudo, 12) + ones_sum(udp, udp_len);
    sum = (sum & 0xffff) + (sum >> 16);
    stw_be_p(udp + 6, ~sum ^ (bad_udp ? 0x100 : 0));
}

static void test_receive_csum(void)
{
    uint8_t frame[14 + 28 + 33];
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    for (int i = 0; i < 4; i++) {
        bool bad_ip = i & 1, bad_udp = i & 2;

        udp_frame(frame, 33, bad_ip, bad_udp);
        post_recv(&r, 0, 256);
        wire_send(r.d, frame, sizeof(frame));
        expect_frame(&r, 0, frame, sizeof(frame), &cqe);
        g_assert_cmpint(!!(cqe.flags & QRNIC_CQEF_L3_CSUM_OK), ==, !bad_ip);
        if (!bad_ip) {
            g_assert_cmpint(!!(cqe.flags & QRNIC_CQEF_L4_CSUM_OK), ==,
                            !bad_udp);
        }
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_RX_CSUM_BAD), ==, 3);
    rig_stop(&r);
}

static void test_receive_vlan(void)
{
    uint8_t frame[68], plain[64];
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", QRNIC_RXF_VLAN_STRIP);
    make_frame(plain, sizeof(plain), OUR_MAC, 0x88b5);
    memcpy(frame, plain, 12);
    memcpy(frame + 12, "\x81\x00\x60\x07", 4);
    memcpy(frame + 16, plain + 12, 52);
    post_recv(&r, 0, 128);
    wire_send(r.d, frame, sizeof(frame));
    expect_frame(&r, 0, plain, sizeof(plain), &cqe);
    g_assert_cmphex(cqe.flags & QRNIC_CQEF_VLAN, !=, 0);
    g_assert_cmphex(cqe.vlan_tci, ==, 0x6007);
    rig_stop(&r);
}

/*
 * Tests that a frame longer than the MTU is dropped and consumes no receive
 * WQE.
 */
static void test_receive_long(void)
{
    uint8_t frame[1600], good[64];
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    make_frame(frame, sizeof(frame), OUR_MAC, 0x88b5);
    make_frame(good, sizeof(good), OUR_MAC, 0x88b5);
    post_recv(&r, 0, 4096);
    wire_send(r.d, frame, sizeof(frame));
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_TOO_LONG, 1);
    wire_send(r.d, good, sizeof(good));
    expect_frame(&r, 0, good, sizeof(good), &cqe);
    g_assert_cmpuint(cqe.index, ==, 0);
    rig_stop(&r);
}

/*
 * Tests that the MTU excludes one or two VLAN tags of either type, but not a
 * third.
 */
static void test_tags_beyond_mtu(void)
{
    static const uint8_t tags[12] = {
        0x88, 0xa8, 0x00, 0x08, 0x81, 0x00, 0x00, 0x09, 0x81, 0x00, 0x00, 0x0a,
    };
    uint8_t frame[1514 + 12], got[PEER_FRAME_MAX];
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    for (unsigned n = 1; n <= 3; n++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
        size_t len = 1514 + 4 * n;

        make_frame(frame, len, OUR_MAC, 0x88b5);
        memcpy(frame + 12, tags, 4 * n);
        if (n < 3) {
            post_recv(&r, 8192 * n, 4096);
            wire_send(r.d, frame, len);
            expect_frame(&r, 8192 * n, frame, len, &cqe);
        } else {
            wire_send(r.d, frame, len);
            counter_wait(r.d, QRNIC_COUNTER_ETH_RX_TOO_LONG, 1);
        }

        qtest_memwrite(r.d->qts, r.mr.memory, frame, len);
        wqe_eth(&w, &(QrnicEthSeg) { 0 });
        wqe_data(&w, r.mr.start, len, r.mr.key);
        sq_post(r.d, &r.qp, &w);
        if (n < 3) {
            g_assert_cmpuint(wire_receive(r.d, got), ==, len);
            g_assert_cmpmem(got, len, frame, len);
        }
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, n < 3 ? QRNIC_WC_SUCCESS :
                                                 QRNIC_WC_LOC_LEN_ERR);
    }
    rig_stop(&r);
}

/*
 * Tests that frames without a queue are dropped and counted, and that RoCE
 * continues.
 */
static void test_no_queue(void)
{
    uint8_t frame[64];
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    make_frame(frame, sizeof(frame), OUR_MAC, 0x88b5);
    wire_send(r.d, frame, sizeof(frame));
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 1);
    p = peer_packet(&r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.ack_request = true;
    peer_send(r.d, &p);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    rig_stop(&r);
}

/*
 * Tests that UDP port 4791 to an address that is no GID of the device is
 * ordinary traffic.
 */
static void test_roce_not_ours(void)
{
    uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;
    QrnicCqe cqe;
    size_t len;
    Rig r;

    eth_start(&r, "", 0);
    p = peer_packet(&r.qp, RC_SEND_ONLY, 0);
    p.dip[3] = 55;
    len = peer_encode(&p, frame);
    post_recv(&r, 0, 256);
    wire_send(r.d, frame, len);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.byte_len, ==, len);
    rig_stop(&r);
}

/*
 * Tests that while the link is down, frames are dropped and counted, and WQEs
 * complete.
 */
static void test_link_down(void)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicEqe eqe;
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    wire_cut(r.d, true);
    do {
        eq_wait(r.d, &r.async, &eqe);
    } while (eqe.type != QRNIC_EVENT_PORT_DOWN);
    wqe_eth(&w, &(QrnicEthSeg) { 0 });
    wqe_data(&w, r.mr.start, 64, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_DROP_LINK), ==, 1);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that a full backend loses nothing, because the device stops sending.
 * The device sends all frames once the backend has room.
 */
static void test_backpressure(void)
{
    uint8_t got[PEER_FRAME_MAX];
    Rig r;

    eth_start(&r, "", 0);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 16; i++) {
            Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);

            if (i == 15) {
                w.ctrl.flags = QRNIC_WQEF_SIGNALED;
            }
            wqe_eth(&w, &(QrnicEthSeg) { 0 });
            wqe_data(&w, r.mr.start, 64 + i, r.mr.key);
            sq_write(r.d, &r.qp, &w);
        }
        sq_publish(r.d, &r.qp);
        sq_ring(r.d, &r.qp);
        settle(r.d);
        for (int i = 0; i < 16; i++) {
            g_assert_cmpuint(wire_receive(r.d, got), ==, 64 + i);
        }
        cq_wait(r.d, &r.send_cq, &(QrnicCqe) { 0 });
    }
    wire_silent(r.d);
    rig_stop(&r);
}

/* Posts 16 frames. The last one is signaled. */
static void post_frames(Rig *r)
{
    for (int i = 0; i < 16; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, i == 15 ? QRNIC_WQEF_SIGNALED : 0);

        wqe_eth(&w, &(QrnicEthSeg) { 0 });
        wqe_data(&w, r->mr.start, 1000, r->mr.key);
        sq_write(r->d, &r->qp, &w);
    }
    sq_publish(r->d, &r->qp);
    sq_ring(r->d, &r->qp);
    settle(r->d);
}

/*
 * Tests a peer that accepts no frame. The sender waits for 4 seconds, and then
 * its frames are dropped, until the peer accepts frames again.
 */
static void test_blocked(void)
{
    uint8_t got[PEER_FRAME_MAX];
    unsigned posted = 0;
    uint64_t dropped;
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    do {
        g_assert_cmpuint(posted, <, 4096);
        post_frames(&r);
        posted += 16;
    } while (cq_poll(r.d, &r.send_cq, &cqe));
    for (unsigned ms = 250; ms < 4000; ms += 250) {
        clock_step(r.d, 250 * 1000 * 1000);
        settle(r.d);
        g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_DROP_LINK), ==, 0);
    clock_step(r.d, 250 * 1000 * 1000);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    post_frames(&r);
    cq_wait(r.d, &r.send_cq, &cqe);
    posted += 16;
    dropped = counter(r.d, QRNIC_COUNTER_TX_DROP_LINK);
    g_assert_cmpuint(dropped, >=, 16);
    for (unsigned i = 0; i < posted - dropped; i++) {
        g_assert_cmpuint(wire_receive(r.d, got), ==, 1000);
    }
    wire_silent(r.d);
    /* The frames of the time without room are lost, but no later frame. */
    for (unsigned i = 0; i < 4; i++) {
        post_frames(&r);
        for (unsigned k = 0; k < 16; k++) {
            g_assert_cmpuint(wire_receive(r.d, got), ==, 1000);
        }
        cq_wait(r.d, &r.send_cq, &cqe);
    }
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_DROP_LINK), ==, dropped);
    rig_stop(&r);
}

/*
 * Tests a peer that accepts frames only each 3.75 seconds. No frame is lost,
 * because the peer is slow but not blocked.
 */
static void test_slow_wire(void)
{
    uint8_t got[PEER_FRAME_MAX];
    unsigned posted = 0;
    QrnicCqe cqe;
    Rig r;

    eth_start(&r, "", 0);
    for (unsigned round = 0; round < 3; round++) {
        do {
            g_assert_cmpuint(posted, <, 4096);
            post_frames(&r);
            posted += 16;
        } while (cq_poll(r.d, &r.send_cq, &cqe));
        for (unsigned i = 0; i < 15; i++) {
            clock_step(r.d, 250 * 1000 * 1000);
            settle(r.d);
        }
        /* A socket has room again only after most of its frames. */
        for (unsigned keep = posted / 8; posted > keep; posted--) {
            g_assert_cmpuint(wire_receive(r.d, got), ==, 1000);
        }
        cq_wait(r.d, &r.send_cq, &cqe);
    }
    for (; posted; posted--) {
        g_assert_cmpuint(wire_receive(r.d, got), ==, 1000);
    }
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_DROP_LINK), ==, 0);
    rig_stop(&r);
}

void add_ethernet_tests(void)
{
    qtest_add_func("qrnic/ethernet/transmit", test_transmit);
    qtest_add_func("qrnic/ethernet/transmit-csum", test_transmit_csum);
    qtest_add_func("qrnic/ethernet/transmit-csum-outside",
                   test_transmit_csum_outside);
    qtest_add_func("qrnic/ethernet/transmit-long", test_transmit_long);
    qtest_add_func("qrnic/ethernet/receive", test_receive);
    qtest_add_func("qrnic/ethernet/receive-no-buffer",
                   test_receive_no_buffer);
    qtest_add_func("qrnic/ethernet/receive-bus-master",
                   test_receive_bus_master);
    qtest_add_func("qrnic/ethernet/filter", test_filter);
    qtest_add_func("qrnic/ethernet/filter-bad", test_filter_bad);
    qtest_add_func("qrnic/ethernet/receive-csum", test_receive_csum);
    qtest_add_func("qrnic/ethernet/receive-vlan", test_receive_vlan);
    qtest_add_func("qrnic/ethernet/receive-long", test_receive_long);
    qtest_add_func("qrnic/ethernet/tags-beyond-mtu", test_tags_beyond_mtu);
    qtest_add_func("qrnic/ethernet/no-queue", test_no_queue);
    qtest_add_func("qrnic/ethernet/roce-not-ours", test_roce_not_ours);
    qtest_add_func("qrnic/ethernet/link-down", test_link_down);
    qtest_add_func("qrnic/ethernet/backpressure", test_backpressure);
    qtest_add_func("qrnic/ethernet/blocked", test_blocked);
    qtest_add_func("qrnic/ethernet/slow-wire", test_slow_wire);
}
