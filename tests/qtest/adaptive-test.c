/*
 * qrnic qtest: adaptive routing, at the bus and on the wire
 *
 * Programmer's Reference, chapter Adaptive routing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define PLACES 0x08
/* Mark of a packet of a write that may take any path */
#define PACKET (PLACES | 0x02)
/* Mark of a packet that is not the last of its write */
#define MORE (PACKET | 0x04)
#define SELECTIVE 0x01
#define MTU RIG_PACKET
#define GAP_NS (QRNIC_ADAPTIVE_GAP_TIME * SCALE_US)

static void start(Rig *r, uint8_t options)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.options = options;
    rig_start(r, "", &attr);
    qtest_memset(r->d->qts, r->mr.memory, 0, 4 * MTU);
}

/*
 * Tests that packets which arrive before the first packet of a write are
 * placed, and that a sequence gap that persists causes a NAK.
 */
static void test_responder(void)
{
    PeerPacket nak;
    Rig r;

    start(&r, QRNIC_QPO_ADAPTIVE_ROUTING);
    rig_write_from_peer(&r, RQ_PSN + 3, 3 * MTU, 0x33, PACKET, true);
    rig_write_from_peer(&r, RQ_PSN + 1, MTU, 0x11, MORE, false);
    wire_silent(r.d);
    rig_expect_byte(&r, 0, 0);
    rig_expect_byte(&r, MTU, 0x11);
    rig_expect_byte(&r, 2 * MTU, 0);
    rig_expect_byte(&r, 3 * MTU, 0x33);
    clock_step(r.d, GAP_NS - 1);
    wire_silent(r.d);
    clock_step(r.d, 1);
    nak = peer_expect_marked(r.d, RC_ACK, RQ_PSN, PLACES);
    g_assert_cmphex(nak.syndrome, ==, AETH_NAK_SEQUENCE);
    /*
     * Clears the placed data, to show that the device does not write it again.
     */
    qtest_memset(r.d->qts, r.mr.memory + MTU, 0, MTU);
    rig_write_from_peer(&r, RQ_PSN, 0, 0x10, MORE, false);
    rig_write_from_peer(&r, RQ_PSN + 1, MTU, 0x11, MORE, false);
    /*
     * Waits for the placed packet's execution, because the next packet could
     * otherwise arrive first.
     */
    settle(r.d);
    rig_write_from_peer(&r, RQ_PSN + 2, 2 * MTU, 0x22, MORE, false);
    g_assert_cmpuint(peer_expect_marked(r.d, RC_ACK, RQ_PSN + 3, PLACES).msn,
                     ==, 1);
    rig_expect_byte(&r, 0, 0x10);
    rig_expect_byte(&r, MTU, 0);
    rig_expect_byte(&r, 2 * MTU, 0x22);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_PLACED_PACKETS), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 0);
    rig_stop(&r);
}

/*
 * Tests that with selective repeat a SACK reports the missing PSN, so that only
 * that packet is retransmitted.
 */
static void test_both(void)
{
    PeerPacket sack;
    Rig r;

    start(&r, QRNIC_QPO_ADAPTIVE_ROUTING | QRNIC_QPO_SELECTIVE_REPEAT);
    rig_write_from_peer(&r, RQ_PSN + 1, MTU, 0x11, PACKET | SELECTIVE, true);
    wire_silent(r.d);
    rig_expect_byte(&r, MTU, 0x11);
    clock_step(r.d, GAP_NS);
    sack = peer_expect_marked(r.d, RC_SACK, RQ_PSN - 1, PLACES | SELECTIVE);
    g_assert_cmphex(sack.payload[8], ==, 0x40);
    rig_write_from_peer(&r, RQ_PSN, 0, 0x10, PACKET | SELECTIVE, false);
    peer_expect_marked(r.d, RC_ACK, RQ_PSN + 1, PLACES | SELECTIVE);
    rig_expect_byte(&r, 0, 0x10);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    rig_stop(&r);
}

static void post_write(Rig *r, uint32_t length)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, 0x5000, 0x77);
    wqe_data(&w, RIG_MR_START, length, r->mr.key);
    sq_post(r->d, &r->qp, &w);
}

static void expect_part(Rig *r, unsigned psn, uint8_t mark, uint32_t offset,
                        uint32_t length)
{
    PeerPacket p = peer_expect_marked(r->d, RC_WRITE_ONLY, SQ_PSN + psn, mark);

    g_assert_cmphex(p.va, ==, 0x5000 + offset);
    g_assert_cmphex(p.rkey, ==, 0x77);
    g_assert_cmpuint(p.dma_length, ==, length);
    g_assert_cmpuint(p.length, ==, length);
}

/*
 * Tests that the requester sets the marks of adaptive routing once it knows
 * that the peer places packets in any order.
 */
static void test_requester(void)
{
    PeerPacket ack;
    Rig r;

    start(&r, QRNIC_QPO_ADAPTIVE_ROUTING);
    post_write(&r, 2 * MTU);
    peer_expect_marked(r.d, RC_WRITE_FIRST, SQ_PSN, PLACES);
    peer_expect_marked(r.d, RC_WRITE_LAST, SQ_PSN + 1, PLACES);
    ack = peer_packet(&r.qp, RC_ACK, SQ_PSN + 1);
    ack.mark = PLACES;
    ack.syndrome = AETH_ACK | 31;
    ack.msn = 1;
    peer_send(r.d, &ack);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, QRNIC_SYN_NONE);
    post_write(&r, 2 * MTU + 100);
    expect_part(&r, 2, MORE, 0, MTU);
    expect_part(&r, 3, MORE, MTU, MTU);
    expect_part(&r, 4, PACKET, 2 * MTU, 100);
    peer_ack(r.d, &r.qp, SQ_PSN + 4, AETH_ACK | 31, 2);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, QRNIC_SYN_NONE);
    rig_stop(&r);
}

void add_adaptive_tests(void)
{
    qtest_add_func("qrnic/adaptive/responder", test_responder);
    qtest_add_func("qrnic/adaptive/both", test_both);
    qtest_add_func("qrnic/adaptive/requester", test_requester);
}
