/*
 * qrnic qtest: receive-side scaling
 *
 * Tests which queue pair of a table receives a frame, by the published examples
 * of the Toeplitz hash (Microsoft, "Verifying the RSS Hash Calculation").
 * Programmer's Reference, chapter Flow steering.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define QUEUES 8
#define ENTRIES (1u << QRNIC_RSS_MAX_LOG_SIZE)
#define FRAME 90
#define ADDRESSES (QRNIC_RSS_SRC_IPV4 | QRNIC_RSS_DST_IPV4 | \
                   QRNIC_RSS_SRC_IPV6 | QRNIC_RSS_DST_IPV6)
#define TCP_PORTS (QRNIC_RSS_SRC_PORT_TCP | QRNIC_RSS_DST_PORT_TCP)
#define UDP_PORTS (QRNIC_RSS_SRC_PORT_UDP | QRNIC_RSS_DST_PORT_UDP)

static const uint8_t key[40] = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
    0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
    0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
    0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
};

typedef struct Example {
    bool ipv6;
    uint8_t src[16], dst[16];
    uint16_t sport, dport;
    uint32_t addresses, all;    /* Hash without and with the ports */
} Example;

static const Example example[] = {
    { false, { 66, 9, 149, 187 }, { 161, 142, 100, 80 }, 2794, 1766,
      0x323e8fc2, 0x51ccc178 },
    { false, { 199, 92, 111, 2 }, { 65, 69, 140, 83 }, 14230, 4739,
      0xd718262a, 0xc626b0ea },
    { false, { 24, 19, 198, 95 }, { 12, 22, 207, 184 }, 12898, 38024,
      0xd2d0a5de, 0x5c2b394a },
    { false, { 38, 27, 205, 30 }, { 209, 142, 163, 6 }, 48228, 2217,
      0x82989176, 0xafc7327f },
    { false, { 153, 39, 163, 191 }, { 202, 188, 127, 2 }, 44251, 1303,
      0x5d1809c5, 0x10e828a2 },
    { true,
      { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0x1f, 0xff, [15] = 7 },
      { 0x3f, 0xfe, 0x25, 0x01, 0x02, 0, 0, 3, [15] = 1 }, 2794, 1766,
      0x2cc18cd5, 0x40207d3d },
};

typedef struct Spread {
    Rig r;
    Qp qp[QUEUES];
} Spread;

static QrnicCmdEntry receive_only(Rig *r, Qp *qp, QrnicQpCtx ctx)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicCmdEntry entry;

    ctx.type = QRNIC_QPT_RAW_PACKET;
    ctx.flags = QRNIC_QPF_RECEIVE_ONLY;
    ctx.pd = r->pd;
    ctx.db_page = r->page;
    ctx.recv_cq = r->recv_cq.number;
    ctx.rq_log_size = 4;
    ctx.rq = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE << 4, 4096));
    ctx.rq_record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    qrnic_qp_ctx_pack(raw, &ctx);
    entry = command(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0);
    *qp = (Qp) {
        .number = entry.result, .page = r->page, .rq = ctx.rq.root,
        .rq_log_size = 4, .rq_record = ctx.rq_record,
        .recv_cq = &r->recv_cq,
    };
    return entry;
}

static void raw_state(Rig *r, const Qp *qp, unsigned state)
{
    QrnicQpAttr step = { .mask = QRNIC_QP_STATE, .state = state };

    if (state == QRNIC_QPS_INIT) {
        step.mask |= QRNIC_QP_PORT;
        step.port = 1;
    }
    qp_modify(r->d, qp, &step);
}

static void spread_start(Spread *s)
{
    rig_start(&s->r, "", NULL);
    for (unsigned i = 0; i < QUEUES; i++) {
        g_assert_cmpuint(receive_only(&s->r, &s->qp[i],
                                      (QrnicQpCtx) { 0 }).status, ==,
                         QRNIC_ST_OK);
        raw_state(&s->r, &s->qp[i], QRNIC_QPS_INIT);
        raw_state(&s->r, &s->qp[i], QRNIC_QPS_RTR);
        for (int n = 0; n < 8; n++) {
            QrnicDataSeg sge = { s->r.mr.start + 256 * i, 256, s->r.mr.key };

            rq_post(s->r.d, &s->qp[i], &sge, 1);
        }
    }
}

/* Makes a table in which entry n is queue (n >> shift) % QUEUES. */
static QrnicRssCtx table_of(const Spread *s, uint32_t hash, unsigned shift)
{
    QrnicRssCtx ctx = { .log_size = QRNIC_RSS_MAX_LOG_SIZE, .hash = hash };

    memcpy(ctx.key, key, sizeof(key));
    for (unsigned n = 0; n < ENTRIES; n++) {
        stl_le_p(ctx.entries + 4 * n, s->qp[(n >> shift) % QUEUES].number);
    }
    return ctx;
}

static QrnicCmdEntry rss_create(Rig *r, const QrnicRssCtx *ctx)
{
    uint8_t raw[QRNIC_RSS_CTX_BYTES];

    qrnic_rss_ctx_pack(raw, ctx);
    return command(r->d, QRNIC_CMD_CREATE_RSS, 0, raw, sizeof(raw), NULL, 0);
}

static QrnicCmdEntry rule_create(Rig *r, uint32_t object,
                                 const QrnicFlowCtx *ctx)
{
    uint8_t raw[QRNIC_FLOW_CTX_BYTES];

    qrnic_flow_ctx_pack(raw, ctx);
    return command(r->d, QRNIC_CMD_CREATE_FLOW, object, raw, sizeof(raw),
                   NULL, 0);
}

static const QrnicFlowCtx to_table = {
    .type = QRNIC_FLOW_ALL_DEFAULT, .flags = QRNIC_FLOWF_RSS,
};

static void frame_make(uint8_t *frame, const Example *x, uint8_t protocol)
{
    uint8_t *ip = frame + 14;
    unsigned addresses = x->ipv6 ? 16 : 4;
    uint8_t *l4 = ip + (x->ipv6 ? 40 : 20);

    memset(frame, 0, FRAME);
    memcpy(frame, "\x02\x00\x00\x00\x00\x77", 6);
    memcpy(frame + 6, PEER_MAC, 6);
    stw_be_p(frame + 12, x->ipv6 ? 0x86dd : 0x0800);
    if (x->ipv6) {
        ip[0] = 0x60;
        stw_be_p(ip + 4, FRAME - 54);
        ip[6] = protocol;
        ip[7] = 64;
    } else {
        ip[0] = 0x45;
        stw_be_p(ip + 2, FRAME - 14);
        ip[8] = 64;
        ip[9] = protocol;
    }
    memcpy(l4 - 2 * addresses, x->src, addresses);
    memcpy(l4 - addresses, x->dst, addresses);
    stw_be_p(l4, x->sport);
    stw_be_p(l4 + 2, x->dport);
}

static QrnicCqe expect_frame(Spread *s, const Example *x, uint8_t protocol,
                             unsigned queue)
{
    uint8_t frame[FRAME];
    QrnicCqe cqe;

    frame_make(frame, x, protocol);
    wire_send(s->r.d, frame, FRAME);
    cq_wait(s->r.d, &s->r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.qpn, ==, s->qp[queue].number);
    return cqe;
}

/* Tests all examples by the low and by the high bits of the hash. */
static void spread(uint32_t hash, uint8_t protocol, bool ports)
{
    for (unsigned shift = 0; shift <= 4; shift += 4) {
        QrnicCmdEntry rss;
        QrnicRssCtx ctx;
        Spread s;

        spread_start(&s);
        ctx = table_of(&s, hash, shift);
        rss = rss_create(&s.r, &ctx);
        g_assert_cmpuint(rss.status, ==, QRNIC_ST_OK);
        g_assert_cmpuint(rule_create(&s.r, rss.result, &to_table).status, ==,
                         QRNIC_ST_OK);
        for (unsigned i = 0; i < ARRAY_SIZE(example); i++) {
            const Example *x = &example[i];
            uint32_t want = ports ? x->all : x->addresses;

            expect_frame(&s, x, protocol,
                         (want % ENTRIES >> shift) % QUEUES);
        }
        rig_stop(&s.r);
    }
}

static void test_addresses(void)
{
    spread(ADDRESSES, IPPROTO_TCP, false);
}

static void test_tcp(void)
{
    spread(ADDRESSES | TCP_PORTS, IPPROTO_TCP, true);
}

static void test_udp(void)
{
    spread(ADDRESSES | UDP_PORTS, IPPROTO_UDP, true);
}

/* Ports of the other protocol are not hashed. */
static void test_other_protocol(void)
{
    spread(ADDRESSES | UDP_PORTS, IPPROTO_TCP, false);
}

/*
 * Tests that a frame without hash uses the first entry. If that queue pair
 * cannot receive, the frame is dropped.
 */
static void test_nothing_selected(void)
{
    uint8_t frame[FRAME];
    QrnicCmdEntry rss;
    QrnicRssCtx ctx;
    QrnicCqe cqe;
    Spread s;

    spread_start(&s);
    ctx = table_of(&s, 0, 0);
    rss = rss_create(&s.r, &ctx);
    rule_create(&s.r, rss.result, &to_table);
    expect_frame(&s, &example[0], IPPROTO_TCP, 0);
    raw_state(&s.r, &s.qp[0], QRNIC_QPS_RESET);
    frame_make(frame, &example[0], IPPROTO_TCP);
    wire_send(s.r.d, frame, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 1);
    g_assert_false(cq_poll(s.r.d, &s.r.recv_cq, &cqe));
    rig_stop(&s.r);
}

/*
 * Tests that a table keeps its queue pairs busy, and that a rule keeps its
 * table busy.
 */
static void test_busy(void)
{
    QrnicCmdEntry rss, rule;
    QrnicRssCtx ctx;
    Spread s;

    spread_start(&s);
    ctx = table_of(&s, ADDRESSES, 0);
    rss = rss_create(&s.r, &ctx);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_QP, s.qp[0].number, NULL, 0, NULL,
                  0, QRNIC_ST_BUSY, 0);
    rule = rule_create(&s.r, rss.result, &to_table);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_RSS, rss.result, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_FLOW, rule.result, NULL, 0, NULL, 0);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_RSS, rss.result, NULL, 0, NULL, 0);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_RSS, rss.result, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_QP, s.qp[0].number, NULL, 0, NULL, 0);
    rig_stop(&s.r);
}

static void fails(QrnicCmdEntry entry, unsigned status, uint32_t syndrome)
{
    g_assert_cmpstr(qrnic_cmd_status_name(entry.status), ==,
                    qrnic_cmd_status_name(status));
    g_assert_cmphex(entry.syndrome, ==, syndrome);
}

static void test_refused(void)
{
    QrnicFlowCtx sniffer = {
        .type = QRNIC_FLOW_SNIFFER, .flags = QRNIC_FLOWF_RSS,
    };
    QrnicCmdEntry rss;
    QrnicRssCtx ctx;
    Spread s;
    Qp qp;

    spread_start(&s);
    ctx = table_of(&s, ADDRESSES, 0);
    ctx.log_size = QRNIC_RSS_MAX_LOG_SIZE + 1;
    fails(rss_create(&s.r, &ctx), QRNIC_ST_BAD_PARAM,
          QRNIC_RSS_CTX_LOG_SIZE_OFFSET);
    ctx.log_size = 1;
    fails(rss_create(&s.r, &ctx), QRNIC_ST_BAD_PARAM,
          QRNIC_RSS_CTX_ENTRIES_OFFSET + 8);
    ctx = table_of(&s, ADDRESSES, 0);
    stl_le_p(ctx.entries + 12, s.r.qp.number);
    fails(rss_create(&s.r, &ctx), QRNIC_ST_BAD_PARAM,
          QRNIC_RSS_CTX_ENTRIES_OFFSET + 12);
    stl_le_p(ctx.entries + 12, 0xfffff0);
    fails(rss_create(&s.r, &ctx), QRNIC_ST_BAD_OBJECT,
          QRNIC_RSS_CTX_ENTRIES_OFFSET + 12);
    ctx = table_of(&s, 0x100, 0);
    fails(rss_create(&s.r, &ctx), QRNIC_ST_RESERVED, 0);
    ctx = table_of(&s, ADDRESSES, 0);
    rss = rss_create(&s.r, &ctx);
    fails(rule_create(&s.r, rss.result, &sniffer), QRNIC_ST_BAD_PARAM,
          QRNIC_FLOW_CTX_FLAGS_OFFSET);
    fails(rule_create(&s.r, rss.result + 1, &to_table), QRNIC_ST_BAD_OBJECT,
          UINT32_MAX);
    /* A receive-only queue pair rejects all members of a send queue. */
    fails(receive_only(&s.r, &qp, (QrnicQpCtx) { .sq_log_size = 3 }),
          QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET);
    fails(receive_only(&s.r, &qp, (QrnicQpCtx) { .sq_record = 8 }),
          QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_RECORD_OFFSET);
    fails(receive_only(&s.r, &qp, (QrnicQpCtx) {
              .send_cq = s.r.send_cq.number }),
          QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SEND_CQ_OFFSET);
    fails(receive_only(&s.r, &qp, (QrnicQpCtx) { .sq.root = 4096 }),
          QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SQ_OFFSET);
    rig_stop(&s.r);
}

/*
 * Tests that the move to ERR flushes the receive queue, and reads no send
 * queue.
 */
static void test_flush(void)
{
    uint64_t reads;
    QrnicCqe cqe;
    Spread s;

    spread_start(&s);
    raw_state(&s.r, &s.qp[1], QRNIC_QPS_ERR);
    for (int i = 0; i < 8; i++) {
        cq_wait(s.r.d, &s.r.recv_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpuint(cqe.qpn, ==, s.qp[1].number);
    }
    settle(s.r.d);
    /* This queue does not exist, so its doorbell is an error. */
    reads = counter(s.r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE);
    doorbell(s.r.d, s.r.page, QRNIC_DB_SQ, s.qp[1].number, 1, 0);
    counter_wait(s.r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, reads + 1);
    rig_stop(&s.r);
}

static QrnicCmdEntry filter_set(Rig *r, uint32_t object, uint8_t flags)
{
    QrnicRxFilter filter = { .qpn = object, .flags = flags };
    uint8_t raw[QRNIC_RX_FILTER_BYTES];

    qrnic_rx_filter_pack(raw, &filter);
    return command(r->d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw), NULL, 0);
}

/*
 * Tests RSS of the Ethernet function. The filter selects frames, and the table
 * distributes them to the queues.
 */
static void test_filter(void)
{
    uint8_t frame[FRAME];
    QrnicCmdEntry rss;
    QrnicRssCtx ctx;
    QrnicCqe cqe;
    Spread s;

    spread_start(&s);
    ctx = table_of(&s, ADDRESSES | TCP_PORTS, 0);
    rss = rss_create(&s.r, &ctx);
    g_assert_cmpuint(filter_set(&s.r, rss.result,
                                QRNIC_RXF_PROMISC | QRNIC_RXF_RSS).status, ==,
                     QRNIC_ST_OK);
    for (unsigned i = 0; i < ARRAY_SIZE(example); i++) {
        const Example *x = &example[i];
        uint8_t addresses = x->ipv6 ?
                            QRNIC_RSS_SRC_IPV6 | QRNIC_RSS_DST_IPV6 :
                            QRNIC_RSS_SRC_IPV4 | QRNIC_RSS_DST_IPV4;

        cqe = expect_frame(&s, x, IPPROTO_TCP, x->all % QUEUES);
        g_assert_cmphex(cqe.hash, ==, x->all);
        g_assert_cmphex(cqe.hashed, ==, addresses | TCP_PORTS);
    }
    /* An ARP frame has no hash. */
    memset(frame, 0, FRAME);
    memset(frame, 0xff, 6);
    memcpy(frame + 6, PEER_MAC, 6);
    stw_be_p(frame + 12, 0x0806);
    wire_send(s.r.d, frame, FRAME);
    cq_wait(s.r.d, &s.r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.qpn, ==, s.qp[0].number);
    g_assert_cmphex(cqe.hash | cqe.hashed, ==, 0);
    /*
     * The entry's queue pair cannot receive, so the frame is dropped and
     * counted.
     */
    raw_state(&s.r, &s.qp[0], QRNIC_QPS_RESET);
    wire_send(s.r.d, frame, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 1);
    /* The filter is still active. */
    filter_set(&s.r, rss.result, QRNIC_RXF_RSS);
    frame_make(frame, &example[1], IPPROTO_TCP);
    wire_send(s.r.d, frame, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_ETH_RX_FILTERED, 1);
    rig_stop(&s.r);
}

/*
 * Tests a filter that changes to another table, and then to a queue pair. Each
 * table stays busy while the filter uses it.
 */
static void test_filter_changes(void)
{
    const unsigned to_rss = QRNIC_RXF_PROMISC | QRNIC_RXF_RSS;
    uint32_t all = example[0].all % ENTRIES;
    QrnicCmdEntry low, high;
    QrnicRssCtx ctx;
    Spread s;

    spread_start(&s);
    ctx = table_of(&s, ADDRESSES | TCP_PORTS, 0);
    low = rss_create(&s.r, &ctx);
    ctx = table_of(&s, ADDRESSES | TCP_PORTS, 4);
    high = rss_create(&s.r, &ctx);
    filter_set(&s.r, low.result, to_rss);
    expect_frame(&s, &example[0], IPPROTO_TCP, all % QUEUES);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_RSS, low.result, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    filter_set(&s.r, high.result, to_rss);
    filter_set(&s.r, high.result, to_rss);
    expect_frame(&s, &example[0], IPPROTO_TCP, (all >> 4) % QUEUES);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_RSS, low.result, NULL, 0, NULL, 0);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_RSS, high.result, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    filter_set(&s.r, s.qp[3].number, QRNIC_RXF_PROMISC);
    g_assert_cmphex(expect_frame(&s, &example[0], IPPROTO_TCP, 3).hashed, ==,
                    0);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_RSS, high.result, NULL, 0, NULL, 0);
    rig_stop(&s.r);
}

static void test_filter_refused(void)
{
    QrnicRssCtx ctx;
    QrnicCmdEntry rss;
    Spread s;

    spread_start(&s);
    fails(filter_set(&s.r, 0, QRNIC_RXF_RSS), QRNIC_ST_BAD_OBJECT,
          QRNIC_RX_FILTER_QPN_OFFSET);
    ctx = table_of(&s, ADDRESSES, 0);
    rss = rss_create(&s.r, &ctx);
    fails(filter_set(&s.r, rss.result + 1, QRNIC_RXF_RSS), QRNIC_ST_BAD_OBJECT,
          QRNIC_RX_FILTER_QPN_OFFSET);
    rig_stop(&s.r);
    /* The device has no capability for RSS here. */
    rig_start(&s.r, "cap-eth-rss=off", NULL);
    fails(filter_set(&s.r, 1, QRNIC_RXF_RSS), QRNIC_ST_NOT_SUPPORTED,
          QRNIC_RX_FILTER_FLAGS_OFFSET);
    rig_stop(&s.r);
}

static void test_off(void)
{
    QrnicRssCtx ctx = { .log_size = 0 };
    Rig r;
    Qp qp;

    rig_start(&r, "cap-rss=off", NULL);
    fails(rss_create(&r, &ctx), QRNIC_ST_NOT_SUPPORTED, 0);
    fails(rule_create(&r, 1, &to_table), QRNIC_ST_NOT_SUPPORTED, 0);
    fails(receive_only(&r, &qp, (QrnicQpCtx) { 0 }), QRNIC_ST_NOT_SUPPORTED,
          QRNIC_QP_CTX_FLAGS_OFFSET);
    rig_stop(&r);
}

void add_rss_tests(void)
{
    qtest_add_func("qrnic/rss/addresses", test_addresses);
    qtest_add_func("qrnic/rss/tcp", test_tcp);
    qtest_add_func("qrnic/rss/udp", test_udp);
    qtest_add_func("qrnic/rss/other-protocol", test_other_protocol);
    qtest_add_func("qrnic/rss/nothing-selected", test_nothing_selected);
    qtest_add_func("qrnic/rss/busy", test_busy);
    qtest_add_func("qrnic/rss/refused", test_refused);
    qtest_add_func("qrnic/rss/flush", test_flush);
    qtest_add_func("qrnic/rss/filter", test_filter);
    qtest_add_func("qrnic/rss/filter-changes", test_filter_changes);
    qtest_add_func("qrnic/rss/filter-refused", test_filter_refused);
    qtest_add_func("qrnic/rss/off", test_off);
}
