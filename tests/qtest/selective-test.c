/*
 * qrnic qtest: selective repeat, at the bus and on the wire
 *
 * Programmer's Reference, chapter Selective repeat.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define MARK 0x01
#define MARK_AGAIN(n) (MARK | (n) << 4)    /* Mark with transmission number n */
#define MTU RIG_PACKET
#define TOLD 40                 /* Bytes of a SACK behind its AETH */

static void start(Rig *r, const char *properties)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.options = QRNIC_QPO_SELECTIVE_REPEAT;
    rig_start(r, properties, &attr);
}

/* Asserts a SACK. bits: of the first PSNs; all others are 0. */
static void expect_sack(Rig *r, uint32_t psn, uint32_t missing, uint8_t bits,
                        uint32_t latest, uint8_t transmission)
{
    PeerPacket p = peer_expect_marked(r->d, RC_SACK, psn, MARK);
    uint8_t want[TOLD] = {
        0, missing >> 16, missing >> 8, missing,
        transmission, latest >> 16, latest >> 8, latest, bits,
    };

    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmphex(p.syndrome >> 5, ==, 0);
    g_assert_cmpmem(p.payload, p.length, want, sizeof(want));
}

/*
 * Packets that arrive out of order are buffered and reported, and are executed
 * once the missing packet has arrived.
 */
static void test_responder(void)
{
    Rig r;

    start(&r, "");
    qtest_memset(r.d->qts, r.mr.memory, 0, 4 * MTU);
    rig_write_from_peer(&r, RQ_PSN + 1, MTU, 0x11, MARK, false);
    expect_sack(&r, RQ_PSN - 1, RQ_PSN & 0xffffff, 0x40,
                (RQ_PSN + 1) & 0xffffff, 0);
    rig_write_from_peer(&r, RQ_PSN + 3, 3 * MTU, 0x33, MARK, true);
    expect_sack(&r, RQ_PSN - 1, RQ_PSN & 0xffffff, 0x50,
                (RQ_PSN + 3) & 0xffffff, 0);
    rig_expect_byte(&r, MTU, 0);
    rig_write_from_peer(&r, RQ_PSN, 0, 0x10, MARK_AGAIN(5), false);
    expect_sack(&r, RQ_PSN + 1, (RQ_PSN + 2) & 0xffffff, 0x40,
                RQ_PSN & 0xffffff, 5);
    rig_expect_byte(&r, 0, 0x10);
    rig_expect_byte(&r, MTU, 0x11);
    rig_expect_byte(&r, 3 * MTU, 0);
    rig_write_from_peer(&r, RQ_PSN + 2, 2 * MTU, 0x22, MARK, true);
    peer_expect_marked(r.d, RC_ACK, RQ_PSN + 3, MARK);
    rig_expect_byte(&r, 2 * MTU, 0x22);
    rig_expect_byte(&r, 3 * MTU, 0x33);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_SACK), ==, 3);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_BUFFERED_PACKETS), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 0);
    rig_stop(&r);
}

/*
 * Tests five outstanding packets of a write, of which the second and the fourth
 * are lost.
 */
static void test_requester(void)
{
    uint8_t told[TOLD] = { 0 };
    PeerPacket sack;
    QrnicQpAttr a;
    Rig r;
    Wqe w;

    start(&r, "");
    w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);
    wqe_remote(&w, 0x5000, 0x77);
    wqe_data(&w, RIG_MR_START, 5 * MTU, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    peer_expect_marked(r.d, RC_WRITE_FIRST, SQ_PSN, MARK);
    for (unsigned i = 1; i < 4; i++) {
        peer_expect_marked(r.d, RC_WRITE_MIDDLE, SQ_PSN + i, MARK);
    }
    peer_expect_marked(r.d, RC_WRITE_LAST, SQ_PSN + 4, MARK);
    sack = peer_packet(&r.qp, RC_SACK, SQ_PSN);
    sack.mark = MARK;
    sack.syndrome = AETH_ACK | 31;
    told[1] = (SQ_PSN + 1) >> 16 & 0xff;
    told[2] = (SQ_PSN + 1) >> 8 & 0xff;
    told[3] = (SQ_PSN + 1) & 0xff;
    told[5] = (SQ_PSN + 4) >> 16 & 0xff;
    told[6] = (SQ_PSN + 4) >> 8 & 0xff;
    told[7] = (SQ_PSN + 4) & 0xff;
    told[8] = 0x50;             /* The third and the fifth packet */
    sack.payload = told;
    sack.length = sizeof(told);
    peer_send(r.d, &sack);
    g_assert_true(peer_expect_marked(r.d, RC_WRITE_MIDDLE, SQ_PSN + 1,
                                     MARK_AGAIN(1)).ack_request);
    peer_expect_marked(r.d, RC_WRITE_MIDDLE, SQ_PSN + 3, MARK_AGAIN(1));
    wire_silent(r.d);
    /* The fourth packet has arrived now, the second has not. */
    told[7] = (SQ_PSN + 3) & 0xff;
    told[4] = 1;
    told[8] = 0x70;
    peer_send(r.d, &sack);
    peer_expect_marked(r.d, RC_WRITE_MIDDLE, SQ_PSN + 1, MARK_AGAIN(2));
    wire_silent(r.d);
    qp_query(r.d, &r.qp, &a);
    g_assert_cmphex(a.options_in_force, ==, QRNIC_QPO_SELECTIVE_REPEAT);
    peer_ack(r.d, &r.qp, SQ_PSN + 4, AETH_ACK | 31, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, QRNIC_SYN_NONE);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_SACK), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RETRANSMISSIONS), ==, 3);
    rig_stop(&r);
}

/* Tests that a device without the capability rejects the option. */
static void test_capability(void)
{
    Rig r;
    Qp qp;
    QrnicQpAttr a = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1,
    };
    QrnicQpAttr all = qp_default_attr();
    uint8_t raw[QRNIC_QP_ATTR_BYTES];

    rig_start(&r, "cap-selective-repeat=off", NULL);
    qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq, 4,
              4, 0);
    qp_modify(r.d, &qp, &a);
    a = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN | QRNIC_QP_OPTIONS |
                QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER,
        .state = QRNIC_QPS_RTR, .av = all.av, .path_mtu = all.path_mtu,
        .options = QRNIC_QPO_SELECTIVE_REPEAT,
    };
    qrnic_qp_attr_pack(raw, &a);
    command_fails(r.d, QRNIC_CMD_MODIFY_QP, qp.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM, QRNIC_QP_ATTR_OPTIONS_OFFSET);
    rig_stop(&r);
}

void add_selective_tests(void)
{
    qtest_add_func("qrnic/selective/responder", test_responder);
    qtest_add_func("qrnic/selective/requester", test_requester);
    qtest_add_func("qrnic/selective/capability", test_capability);
}
