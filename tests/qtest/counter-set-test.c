/*
 * qrnic qtest: counter sets of queue pairs and flow rules
 *
 * Programmer's Reference, chapter Counters.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define TRANSPORT_TIMEOUT_NS (4096ll << 14)
#define OBJECT_ITSELF UINT32_MAX
#define QKEY 0x11223344u

static uint32_t set_alloc(Rig *r)
{
    return command_ok(r->d, QRNIC_CMD_ALLOC_COUNTER_SET, 0, NULL, 0, NULL, 0);
}

static void set_bind(Rig *r, const Qp *qp, uint32_t set)
{
    uint8_t raw[QRNIC_COUNTER_BIND_BYTES];
    QrnicCounterBind bind = { .counter_set = set };

    qrnic_counter_bind_pack(raw, &bind);
    command_ok(r->d, QRNIC_CMD_BIND_COUNTER_SET, qp->number, raw, sizeof(raw),
               NULL, 0);
}

/* Asserts a counter in the set and in set 0, and that both make the total. */
static void expect(Rig *r, uint32_t set, enum qrnic_counter which,
                   uint64_t in_set, uint64_t in_none)
{
    uint64_t table[QRNIC_NUM_COUNTERS], none[QRNIC_NUM_COUNTERS];

    command_ok(r->d, QRNIC_CMD_QUERY_COUNTER_SET, set, NULL, 0, table,
               sizeof(table));
    command_ok(r->d, QRNIC_CMD_QUERY_COUNTER_SET, 0, NULL, 0, none,
               sizeof(none));
    g_test_message("%s", qrnic_counter_name(which));
    g_assert_cmpuint(le64_to_cpu(table[which]), ==, in_set);
    g_assert_cmpuint(le64_to_cpu(none[which]), ==, in_none);
    g_assert_cmpuint(counter(r->d, which), ==, in_set + in_none);
}

static void send_and_acknowledge(Rig *r, unsigned n)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;

    wqe_inline(&w, "counted", 7);
    sq_post(r->d, &r->qp, &w);
    peer_expect(r->d, RC_SEND_ONLY, SQ_PSN + n);
    peer_ack(r->d, &r->qp, SQ_PSN + n, AETH_ACK | 31, n + 1);
    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
}

/*
 * Events are counted in the set to which the queue pair is bound at that time.
 */
static void test_bind(void)
{
    uint32_t set;
    Rig r;

    rig_start(&r, "", NULL);
    set = set_alloc(&r);
    send_and_acknowledge(&r, 0);
    expect(&r, set, QRNIC_COUNTER_TX_SEND, 0, 1);
    set_bind(&r, &r.qp, set);
    send_and_acknowledge(&r, 1);
    send_and_acknowledge(&r, 2);
    expect(&r, set, QRNIC_COUNTER_TX_SEND, 2, 1);
    expect(&r, set, QRNIC_COUNTER_SEND_WQES, 2, 1);
    expect(&r, set, QRNIC_COUNTER_ROCE_TX_PACKETS, 2, 1);
    expect(&r, set, QRNIC_COUNTER_ROCE_RX_PACKETS, 2, 1);
    expect(&r, set, QRNIC_COUNTER_RX_ACK, 2, 1);
    expect(&r, set, QRNIC_COUNTER_CQES, 2, 1);
    set_bind(&r, &r.qp, 0);
    send_and_acknowledge(&r, 3);
    expect(&r, set, QRNIC_COUNTER_TX_SEND, 2, 2);
    /*
     * The counts of a freed set do not move to set 0, because set 0 counts
     * queue pairs without a set.
     */
    command_ok(r.d, QRNIC_CMD_FREE_COUNTER_SET, set, NULL, 0, NULL, 0);
    set = set_alloc(&r);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_SEND), ==, 4);
    set_bind(&r, &r.qp, set);
    send_and_acknowledge(&r, 4);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_SEND), ==, 5);
    rig_stop(&r);
}

/*
 * Tests that received packets, timers and direct WQEs are counted in the set
 * too.
 */
static void test_sources(void)
{
    QrnicDataSeg sge;
    uint32_t set;
    PeerPacket p;
    Wqe w;
    Rig r;

    rig_start(&r, "", NULL);
    set = set_alloc(&r);
    set_bind(&r, &r.qp, set);
    sge = (QrnicDataSeg) {
        .address = r.mr.start, .length = 64, .lkey = r.mr.key,
    };
    rq_post(r.d, &r.qp, &sge, 1);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    p.payload = (const uint8_t *)"to a set";
    p.length = 8;
    p.ack_request = true;
    peer_send(r.d, &p);
    peer_expect(r.d, RC_ACK, RQ_PSN);
    expect(&r, set, QRNIC_COUNTER_RX_SEND, 1, 0);
    expect(&r, set, QRNIC_COUNTER_TX_ACK, 1, 0);
    expect(&r, set, QRNIC_COUNTER_RECV_WQES, 1, 0);
    p.pkey = 0x1234;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_PKEY, 1);
    expect(&r, set, QRNIC_COUNTER_RX_DROP_PKEY, 1, 0);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN + 1);
    p.dest_qpn += 1000;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_NO_QP, 1);
    expect(&r, set, QRNIC_COUNTER_RX_DROP_NO_QP, 0, 1);

    w = wqe_begin(QRNIC_WQE_SEND, 0);
    wqe_inline(&w, "direct", 6);
    sq_post_direct(r.d, &r.qp, &w);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    expect(&r, set, QRNIC_COUNTER_DIRECT_WQE_USED, 1, 0);
    clock_step(r.d, 4 * TRANSPORT_TIMEOUT_NS);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    expect(&r, set, QRNIC_COUNTER_TIMEOUTS, 1, 0);
    expect(&r, set, QRNIC_COUNTER_RETRANSMISSIONS, 1, 0);
    rig_stop(&r);
}

/*
 * Tests that a receive WQE that the device consumed and returned counts
 * nowhere.
 */
static void test_give_back(void)
{
    QrnicDataSeg sge;
    uint32_t set;
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    qp_create(r.d, &r.qp, QRNIC_QPT_UD, r.pd, r.page, &r.send_cq, &r.recv_cq,
              3, 3, 0);
    qp_start_datagram(r.d, &r.qp, QKEY);
    set = set_alloc(&r);
    set_bind(&r, &r.qp, set);
    sge = (QrnicDataSeg) {
        .address = r.mr.start, .length = QRNIC_GRH_SIZE + 8,
        .lkey = r.mr.key,
    };
    rq_post(r.d, &r.qp, &sge, 1);
    p = peer_packet(&r.qp, UD_SEND_ONLY, 0);
    p.qkey = QKEY;
    p.src_qpn = PEER_QPN;
    p.payload = (const uint8_t *)"too long";
    p.length = 9;
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_LENGTH, 1);
    expect(&r, set, QRNIC_COUNTER_RECV_WQES, 0, 0);
    rig_stop(&r);
}

/*
 * Tests two queue pairs in two sets. Each set counts its own queue pair only.
 */
static void test_two(void)
{
    uint32_t set[2];
    Qp other;
    Rig r;

    rig_start(&r, "", NULL);
    set[0] = set_alloc(&r);
    set[1] = set_alloc(&r);
    qp_create(r.d, &other, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq,
              5, 3, 0);
    set_bind(&r, &r.qp, set[0]);
    set_bind(&r, &other, set[1]);
    send_and_acknowledge(&r, 0);
    expect(&r, set[0], QRNIC_COUNTER_TX_SEND, 1, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, other.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_COUNTER_SET, set[1], NULL, 0, NULL, 0);
    command_fails(r.d, QRNIC_CMD_FREE_COUNTER_SET, set[0], NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    rig_stop(&r);
}

static void test_refused(void)
{
    uint8_t raw[QRNIC_COUNTER_BIND_BYTES] = { 77 };
    uint64_t table[QRNIC_NUM_COUNTERS];
    uint32_t set;
    Rig r;

    rig_start(&r, "", NULL);
    set = set_alloc(&r);
    command_fails(r.d, QRNIC_CMD_FREE_COUNTER_SET, set + 1, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, OBJECT_ITSELF);
    command_fails(r.d, QRNIC_CMD_QUERY_COUNTER_SET, set + 1, NULL, 0, table,
                  sizeof(table), QRNIC_ST_BAD_OBJECT, OBJECT_ITSELF);
    command_fails(r.d, QRNIC_CMD_BIND_COUNTER_SET, r.qp.number, raw,
                  sizeof(raw), NULL, 0, QRNIC_ST_BAD_OBJECT,
                  QRNIC_COUNTER_BIND_COUNTER_SET_OFFSET);
    raw[0] = set;
    command_fails(r.d, QRNIC_CMD_BIND_COUNTER_SET, r.qp.number + 1, raw,
                  sizeof(raw), NULL, 0, QRNIC_ST_BAD_OBJECT, OBJECT_ITSELF);
    raw[7] = 1;
    command_fails(r.d, QRNIC_CMD_BIND_COUNTER_SET, r.qp.number, raw,
                  sizeof(raw), NULL, 0, QRNIC_ST_RESERVED, 0);
    rig_stop(&r);

    rig_start(&r, "cap-counter-sets=off", NULL);
    command_fails(r.d, QRNIC_CMD_ALLOC_COUNTER_SET, 0, NULL, 0, NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, 0);
    command_fails(r.d, QRNIC_CMD_QUERY_COUNTER_SET, 0, NULL, 0, table,
                  sizeof(table), QRNIC_ST_NOT_SUPPORTED, 0);
    raw[0] = raw[7] = 0;
    command_fails(r.d, QRNIC_CMD_BIND_COUNTER_SET, r.qp.number, raw,
                  sizeof(raw), NULL, 0, QRNIC_ST_NOT_SUPPORTED, 0);
    rig_stop(&r);
}

/* Flow rules */

/* Makes a raw packet queue pair in RTR, which cannot send. */
static void raw_start(Rig *r, Qp *qp)
{
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PORT, .state = QRNIC_QPS_INIT,
        .port = 1,
    };

    qp_create(r->d, qp, QRNIC_QPT_RAW_PACKET, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 4, 3, 0);
    qp_modify(r->d, qp, &step);
    step = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    qp_modify(r->d, qp, &step);
}

/* Creates a rule for frames of this EtherType. */
static uint32_t rule(Rig *r, const Qp *qp, uint16_t ethertype, uint32_t set)
{
    uint8_t raw[QRNIC_FLOW_CTX_BYTES];
    QrnicFlowCtx ctx = {
        .type = QRNIC_FLOW_NORMAL, .counter_set = set,
        .value.ethertype = ethertype, .mask.ethertype = 0xffff,
    };

    qrnic_flow_ctx_pack(raw, &ctx);
    return command_ok(r->d, QRNIC_CMD_CREATE_FLOW, qp->number, raw,
                      sizeof(raw), NULL, 0);
}

/* Sends a frame, and waits until the device has accepted or dropped it. */
static void frame(Rig *r, uint16_t ethertype, size_t len)
{
    uint64_t before = counter(r->d, QRNIC_COUNTER_ETH_RX_NO_QUEUE);
    uint8_t raw[1500] = { 0 };

    memcpy(raw, OUR_MAC, 6);
    memcpy(raw + 6, PEER_MAC, 6);
    stw_be_p(raw + 12, ethertype);
    wire_send(r->d, raw, len);
    counter_wait(r->d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, before + 1);
}

static void expect_flow(Rig *r, uint32_t set, uint64_t packets, uint64_t bytes)
{
    uint64_t table[QRNIC_NUM_COUNTERS];

    command_ok(r->d, QRNIC_CMD_QUERY_COUNTER_SET, set, NULL, 0, table,
               sizeof(table));
    for (unsigned i = 0; i < QRNIC_NUM_COUNTERS; i++) {
        g_test_message("%s", qrnic_counter_name(i));
        g_assert_cmpuint(le64_to_cpu(table[i]), ==,
                         i == QRNIC_COUNTER_FLOW_RX_PACKETS ? packets :
                         i == QRNIC_COUNTER_FLOW_RX_BYTES ? bytes : 0);
    }
}

/*
 * Tests two flow rules that count in one set, one rule in another set, and one
 * rule in no set. No receive WQE is posted, because the rules count before the
 * WQE is consumed.
 */
static void test_flow(void)
{
    uint64_t none[QRNIC_NUM_COUNTERS];
    uint32_t two, one, flow, other;
    Qp qp;
    Rig r;

    rig_start(&r, "", NULL);
    raw_start(&r, &qp);
    two = set_alloc(&r);
    one = set_alloc(&r);
    flow = rule(&r, &qp, 0x88b5, two);
    rule(&r, &qp, 0x88b6, two);
    other = rule(&r, &qp, 0x88b7, one);
    rule(&r, &qp, 0x88b8, 0);
    frame(&r, 0x88b5, 100);
    frame(&r, 0x88b6, 60);
    frame(&r, 0x88b6, 61);
    frame(&r, 0x88b7, 1000);
    frame(&r, 0x88b8, 70);
    frame(&r, 0x88b9, 80);
    expect_flow(&r, two, 3, 221);
    expect_flow(&r, one, 1, 1000);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_FLOW_RX_PACKETS), ==, 5);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_FLOW_RX_BYTES), ==, 1291);
    /* Frames of rules are in no set of queue pairs. */
    command_ok(r.d, QRNIC_CMD_QUERY_COUNTER_SET, 0, NULL, 0, none,
               sizeof(none));
    g_assert_cmpuint(le64_to_cpu(none[QRNIC_COUNTER_FLOW_RX_PACKETS]), ==, 5);
    /* The counts remain after DESTROY_FLOW. */
    command_ok(r.d, QRNIC_CMD_DESTROY_FLOW, flow, NULL, 0, NULL, 0);
    frame(&r, 0x88b5, 100);
    expect_flow(&r, two, 3, 221);
    command_fails(r.d, QRNIC_CMD_FREE_COUNTER_SET, two, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_FLOW, other, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_COUNTER_SET, one, NULL, 0, NULL, 0);
    /* A set is also free once DESTROY_QP has ended its rules. */
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, qp.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_COUNTER_SET, two, NULL, 0, NULL, 0);
    rig_stop(&r);
}

static void test_flow_refused(void)
{
    uint8_t raw[QRNIC_FLOW_CTX_BYTES], bind_raw[QRNIC_COUNTER_BIND_BYTES];
    QrnicFlowCtx ctx = { .type = QRNIC_FLOW_ALL_DEFAULT };
    QrnicCounterBind bind;
    uint32_t flow;
    Qp qp;
    Rig r;

    rig_start(&r, "", NULL);
    raw_start(&r, &qp);
    ctx.counter_set = set_alloc(&r);
    set_bind(&r, &r.qp, ctx.counter_set);
    qrnic_flow_ctx_pack(raw, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_FLOW, qp.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BUSY, 0);
    set_bind(&r, &r.qp, 0);
    flow = command_ok(r.d, QRNIC_CMD_CREATE_FLOW, qp.number, raw, sizeof(raw),
                      NULL, 0);
    bind.counter_set = ctx.counter_set;
    qrnic_counter_bind_pack(bind_raw, &bind);
    command_fails(r.d, QRNIC_CMD_BIND_COUNTER_SET, r.qp.number, bind_raw,
                  sizeof(bind_raw), NULL, 0, QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_FLOW, flow, NULL, 0, NULL, 0);
    set_bind(&r, &r.qp, ctx.counter_set);
    ctx.counter_set++;
    qrnic_flow_ctx_pack(raw, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_FLOW, qp.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_OBJECT,
                  QRNIC_FLOW_CTX_COUNTER_SET_OFFSET);
    rig_stop(&r);

    rig_start(&r, "cap-counter-sets=off", NULL);
    raw_start(&r, &qp);
    command_fails(r.d, QRNIC_CMD_CREATE_FLOW, qp.number, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_NOT_SUPPORTED,
                  QRNIC_FLOW_CTX_COUNTER_SET_OFFSET);
    rig_stop(&r);
}

void add_counter_set_tests(void)
{
    qtest_add_func("qrnic/counter-set/bind", test_bind);
    qtest_add_func("qrnic/counter-set/sources", test_sources);
    qtest_add_func("qrnic/counter-set/give-back", test_give_back);
    qtest_add_func("qrnic/counter-set/two", test_two);
    qtest_add_func("qrnic/counter-set/flow", test_flow);
    qtest_add_func("qrnic/counter-set/flow-refused", test_flow_refused);
    qtest_add_func("qrnic/counter-set/refused", test_refused);
}
