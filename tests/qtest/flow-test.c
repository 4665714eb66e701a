/*
 * qrnic qtest: flow steering
 *
 * Tests which raw packet queue pair receives a frame, the copies of sniffers,
 * and invalid commands. Programmer's Reference, chapter Flow steering.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define PROGRAMS 2
#define BUFFER 2048             /* Bytes of each receive WQE */
#define FRAME 80
#define GROUP_MAC "\x01\x00\x5e\x01\x02\x03"
#define OTHER_MAC "\x02\x00\x00\x00\x00\x77"

/*
 * The Ethernet function, which receives frames to the device's address, and
 * queue pairs of programs
 */
typedef struct Steering {
    Rig r;
    Qp function, program[PROGRAMS];
} Steering;

static uint64_t buffer_of(const Steering *s, const Qp *qp)
{
    return qp == &s->function ? 0x1000 :
                                0x2000 + 0x1000 * (qp - s->program);
}

static void post_recv_length(Steering *s, Qp *qp, uint32_t length)
{
    QrnicDataSeg sge = {
        s->r.mr.start + buffer_of(s, qp), length, s->r.mr.key,
    };

    rq_post(s->r.d, qp, &sge, 1);
}

static void post_recv(Steering *s, Qp *qp)
{
    post_recv_length(s, qp, BUFFER);
}

static void raw_state(Steering *s, const Qp *qp, unsigned state)
{
    QrnicQpAttr step = { .mask = QRNIC_QP_STATE, .state = state };

    if (state == QRNIC_QPS_INIT) {
        step.mask |= QRNIC_QP_PORT;
        step.port = 1;
    }
    qp_modify(s->r.d, qp, &step);
}

static void raw_start(Steering *s, Qp *qp, uint32_t page)
{
    qp_create(s->r.d, qp, QRNIC_QPT_RAW_PACKET, s->r.pd, page, &s->r.send_cq,
              &s->r.recv_cq, 4, 3, 0);
    for (unsigned state = QRNIC_QPS_INIT; state <= QRNIC_QPS_RTS; state++) {
        raw_state(s, qp, state);
    }
}

static void steering_start(Steering *s, const char *properties)
{
    uint8_t raw[QRNIC_RX_FILTER_BYTES];
    QrnicRxFilter filter = { .unicast_count = 1 };

    memset(s, 0, sizeof(*s));
    rig_start(&s->r, properties, NULL);
    raw_start(s, &s->function, 0);
    for (unsigned i = 0; i < PROGRAMS; i++) {
        raw_start(s, &s->program[i], s->r.page);
    }
    filter.qpn = s->function.number;
    memcpy(filter.addresses, OUR_MAC, 6);
    qrnic_rx_filter_pack(raw, &filter);
    command_ok(s->r.d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw), NULL, 0);
}

static uint32_t flow_create(Steering *s, const Qp *qp, const QrnicFlowCtx *ctx)
{
    uint8_t raw[QRNIC_FLOW_CTX_BYTES];

    qrnic_flow_ctx_pack(raw, ctx);
    return command_ok(s->r.d, QRNIC_CMD_CREATE_FLOW, qp->number, raw,
                      sizeof(raw), NULL, 0);
}

static uint32_t flow_of_type(Steering *s, const Qp *qp, unsigned type)
{
    return flow_create(s, qp, &(QrnicFlowCtx) { .type = type });
}

static void flow_destroy(Steering *s, uint32_t number)
{
    command_ok(s->r.d, QRNIC_CMD_DESTROY_FLOW, number, NULL, 0, NULL, 0);
}

static void flow_fails(Steering *s, uint32_t qpn, const QrnicFlowCtx *ctx,
                       unsigned status, uint32_t syndrome)
{
    uint8_t raw[QRNIC_FLOW_CTX_BYTES];

    qrnic_flow_ctx_pack(raw, ctx);
    command_fails(s->r.d, QRNIC_CMD_CREATE_FLOW, qpn, raw, sizeof(raw), NULL,
                  0, status, syndrome);
}

static QrnicFlowCtx rule_to(const void *mac)
{
    QrnicFlowCtx ctx = { .type = QRNIC_FLOW_NORMAL };

    memcpy(ctx.value.dmac, mac, 6);
    memset(ctx.mask.dmac, 0xff, 6);
    return ctx;
}

static void frame_make(uint8_t *frame, const void *dmac)
{
    for (unsigned i = 0; i < FRAME; i++) {
        frame[i] = i * 5;
    }
    memcpy(frame, dmac, 6);
    memcpy(frame + 6, PEER_MAC, 6);
    stw_be_p(frame + 12, 0x88b5);
}

static uint64_t frames_seen(Steering *s)
{
    return counter(s->r.d, QRNIC_COUNTER_ETH_RX_PACKETS) +
           counter(s->r.d, QRNIC_COUNTER_ETH_RX_FILTERED) +
           counter(s->r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE) +
           counter(s->r.d, QRNIC_COUNTER_ETH_RX_TOO_LONG);
}

/*
 * Returns the queue pair whose buffer has the frame, or NULL, and posts another
 * WQE to it.
 */
static Qp *delivered(Steering *s, const uint8_t *frame, size_t len)
{
    uint8_t got[PEER_FRAME_MAX];
    QrnicCqe cqe;
    Qp *qp;

    if (!cq_poll(s->r.d, &s->r.recv_cq, &cqe)) {
        return NULL;
    }
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmphex(cqe.opcode, ==, QRNIC_CQE_RECV);
    g_assert_cmpuint(cqe.byte_len, ==, len);
    qp = cqe.qpn == s->function.number ? &s->function :
         cqe.qpn == s->program[0].number ? &s->program[0] : &s->program[1];
    g_assert_cmpuint(cqe.qpn, ==, qp->number);
    rig_read(&s->r, buffer_of(s, qp), got, len);
    g_assert_cmpmem(got, len, frame, len);
    post_recv(s, qp);
    return qp;
}

/* Sends a frame to the device. Returns its receiver, or NULL. */
static Qp *taker_of(Steering *s, const uint8_t *frame, size_t len)
{
    uint64_t before = frames_seen(s);
    QrnicCqe cqe;
    Qp *qp;

    wire_send(s->r.d, frame, len);
    WAIT_UNTIL(frames_seen(s) != before, "the frame does not arrive");
    qp = delivered(s, frame, len);
    g_assert_false(cq_poll(s->r.d, &s->r.recv_cq, &cqe));
    return qp;
}

static void post_all(Steering *s)
{
    post_recv(s, &s->function);
    for (unsigned i = 0; i < PROGRAMS; i++) {
        post_recv(s, &s->program[i]);
    }
}

/* Commands */

static void test_commands(void)
{
    QrnicFlowCtx ctx = rule_to(OTHER_MAC), wrong;
    uint32_t first, second;
    Steering s;

    steering_start(&s, "max-flow=2");
    flow_fails(&s, 0xfffff0, &ctx, QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    flow_fails(&s, s.r.qp.number, &ctx, QRNIC_ST_BAD_STATE, 0);
    wrong = ctx;
    wrong.type = QRNIC_FLOW_SNIFFER + 1;
    flow_fails(&s, s.program[0].number, &wrong, QRNIC_ST_BAD_PARAM,
               QRNIC_FLOW_CTX_TYPE_OFFSET);
    wrong = ctx;
    wrong.value.dport = 1;
    flow_fails(&s, s.program[0].number, &wrong, QRNIC_ST_BAD_PARAM,
               QRNIC_FLOW_CTX_VALUE_OFFSET + QRNIC_FLOW_MATCH_DPORT_OFFSET + 1);
    for (unsigned type = QRNIC_FLOW_ALL_DEFAULT; type <= QRNIC_FLOW_SNIFFER;
         type++) {
        wrong = (QrnicFlowCtx) { .type = type, .mask.protocol = 1 };
        flow_fails(&s, s.program[0].number, &wrong, QRNIC_ST_BAD_PARAM,
                   QRNIC_FLOW_CTX_MASK_OFFSET +
                   QRNIC_FLOW_MATCH_PROTOCOL_OFFSET);
    }
    first = flow_create(&s, &s.program[0], &ctx);
    second = flow_create(&s, &s.program[1], &ctx);
    g_assert_cmpuint(first, !=, second);
    flow_fails(&s, s.program[0].number, &ctx, QRNIC_ST_NO_RESOURCE, 0);
    flow_destroy(&s, first);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_FLOW, first, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    flow_create(&s, &s.program[0], &ctx);
    rig_stop(&s.r);
}

static void test_reserved(void)
{
    static const unsigned places[] = {
        1, 31, 32 + 51, 32 + 60, 32 + 63, 96 + 51, 96 + 60, 96 + 63,
    };
    uint8_t raw[QRNIC_FLOW_CTX_BYTES];
    Steering s;

    steering_start(&s, "");
    for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
        memset(raw, 0, sizeof(raw));
        raw[places[i]] = 0x80;
        command_fails(s.r.d, QRNIC_CMD_CREATE_FLOW, s.program[0].number, raw,
                      sizeof(raw), NULL, 0, QRNIC_ST_RESERVED, 0);
    }
    rig_stop(&s.r);
}

static void test_without(void)
{
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES];
    QrnicFlowCtx ctx = rule_to(OTHER_MAC);
    QrnicDeviceAttr attr;
    Steering s;

    steering_start(&s, "cap-flow=off");
    flow_fails(&s, s.program[0].number, &ctx, QRNIC_ST_NOT_SUPPORTED, 0);
    command_ok(s.r.d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    qrnic_device_attr_unpack(&attr, raw);
    g_assert_cmphex(attr.capabilities & QRNIC_CAP_FLOW, ==, 0);
    g_assert_cmpuint(attr.max_flow, ==, 0);
    rig_stop(&s.r);
}

/* DESTROY_QP ends the queue pair's rules; a reset keeps them. */
/*
 * Tests the limit of the number of sniffers, which is small because every copy
 * costs time.
 */
static void test_sniffers(void)
{
    QrnicFlowCtx ctx = { .type = QRNIC_FLOW_SNIFFER };
    uint32_t last = 0;
    Steering s;

    steering_start(&s, "");
    for (unsigned i = 0; i < 16; i++) {
        last = flow_create(&s, &s.program[i % 2], &ctx);
    }
    flow_fails(&s, s.program[0].number, &ctx, QRNIC_ST_NO_RESOURCE, 0);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_FLOW, last, NULL, 0, NULL, 0);
    flow_create(&s, &s.program[0], &ctx);
    rig_stop(&s.r);
}

static void test_qp_gone(void)
{
    QrnicFlowCtx ctx = rule_to(OTHER_MAC);
    uint8_t frame[FRAME];
    uint32_t first, other;
    Steering s;

    steering_start(&s, "max-flow=3");
    post_all(&s);
    frame_make(frame, OTHER_MAC);
    first = flow_create(&s, &s.program[0], &ctx);
    other = flow_create(&s, &s.program[1], &ctx);
    flow_of_type(&s, &s.program[0], QRNIC_FLOW_SNIFFER);
    raw_state(&s, &s.program[0], QRNIC_QPS_RESET);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[1]);
    command_ok(s.r.d, QRNIC_CMD_DESTROY_QP, s.program[0].number, NULL, 0, NULL,
               0);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_FLOW, first, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[1]);
    flow_destroy(&s, other);
    g_assert_null(taker_of(&s, frame, FRAME));
    /* All three sniffers are free again. */
    for (unsigned i = 0; i < 3; i++) {
        flow_create(&s, &s.program[1], &ctx);
    }
    rig_stop(&s.r);
}

static void test_device_reset(void)
{
    QrnicFlowCtx ctx = rule_to(OTHER_MAC);
    uint32_t number;
    Steering s;

    steering_start(&s, "max-flow=1");
    number = flow_create(&s, &s.program[0], &ctx);
    reg_write(s.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    device_enable_commands(s.r.d, 2);
    command_fails(s.r.d, QRNIC_CMD_DESTROY_FLOW, number, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    /* The destroyed rule has no effect on frames. */
    wire_send(s.r.d, (const uint8_t[FRAME]) { 2, 0, 0, 0, 0, 0x77 }, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 1);
    rig_stop(&s.r);
}

/* The next tests check the matching of rules. */

enum {
    TAGGED = 1, IPV6 = 2, TCP = 4, FRAGMENT = 8, SHORT = 16, ICMP = 32,
    OPTIONS = 64,
};

/*
 * Makes a packet from 10.0.0.2 or 2001:db8::2 to .1 or ::1, port 1000 to 2000.
 */
static size_t packet_make(uint8_t *frame, unsigned kind)
{
    size_t header = kind & IPV6 ? 40 : kind & OPTIONS ? 24 : 20;
    uint8_t *p = frame + 12;
    uint8_t *l4;

    memset(frame, 0, 128);
    memcpy(frame, OUR_MAC, 6);
    memcpy(frame + 6, PEER_MAC, 6);
    if (kind & TAGGED) {
        stw_be_p(p, 0x8100);
        stw_be_p(p + 2, 0x6123);
        p += 4;
    }
    stw_be_p(p, kind & IPV6 ? 0x86dd : 0x0800);
    p += 2;
    l4 = p + header;
    if (kind & IPV6) {
        stl_be_p(p, 0x6ab12345);        /* Traffic class 0xab, label 0x12345 */
        stw_be_p(p + 4, 20);
        p[6] = kind & TCP ? 6 : 17;
        p[7] = 63;
        memcpy(p + 8, "\x20\x01\x0d\xb8", 4);
        p[23] = 2;
        memcpy(p + 24, p + 8, 16);
        p[39] = 1;
    } else {
        p[0] = 0x40 | header / 4;
        p[1] = 0xab;
        stw_be_p(p + 2, header + 20);
        stw_be_p(p + 6, kind & FRAGMENT ? 0x2000 : 0);
        p[8] = 63;
        p[9] = kind & ICMP ? 1 : kind & TCP ? 6 : 17;
        memcpy(p + 12, PEER_IP4, 4);
        memcpy(p + 16, OUR_IP4, 4);
    }
    stw_be_p(l4, 1000);
    stw_be_p(l4 + 2, 2000);
    return kind & SHORT ? p + header - 1 - frame : l4 + 20 - frame;
}

#define IP4(last) { [10] = 0xff, 0xff, 10, 0, 0, last }
#define IP6(last) { 0x20, 0x01, 0x0d, 0xb8, [15] = last }
#define ONES16 { [0 ... 15] = 0xff }
#define LAST4 { [12 ... 15] = 0xff }

typedef struct MatchCase {
    const char *what;
    QrnicFlowMatch value, mask;
    unsigned kind;
    bool takes;
} MatchCase;

static const MatchCase match_cases[] = {
    { "nothing asked", { }, { }, 0, true },
    { "smac", { .smac = { 2, 0, 0, 0, 0, 2 } },
      { .smac = { [0 ... 5] = 0xff } }, 0, true },
    { "another smac", { .smac = { 2, 0, 0, 0, 0, 3 } },
      { .smac = { [0 ... 5] = 0xff } }, 0, false },
    { "smac by a bit that is equal", { .smac = { [5] = 2 } },
      { .smac = { [5] = 2 } }, 0, true },
    { "ethertype", { .ethertype = 0x0800 }, { .ethertype = 0xffff }, 0, true },
    { "another ethertype", { .ethertype = 0x0800 }, { .ethertype = 0xffff },
      IPV6, false },
    { "ethertype behind a tag", { .ethertype = 0x0800 },
      { .ethertype = 0xffff }, TAGGED, true },
    { "VLAN", { .vlan_tci = 0x123 }, { .vlan_tci = 0xfff }, TAGGED, true },
    { "another VLAN", { .vlan_tci = 0x124 }, { .vlan_tci = 0xfff }, TAGGED,
      false },
    { "priority", { .vlan_tci = 0x6000 }, { .vlan_tci = 0xe000 }, TAGGED,
      true },
    { "VLAN 0 is not untagged", { }, { .vlan_tci = 0xfff }, 0, false },
    { "IPv4 source", { .sip = IP4(2) }, { .sip = ONES16 }, 0, true },
    { "IPv4 source, last bytes", { .sip = { [12] = 10, 0, 0, 2 } },
      { .sip = LAST4 }, 0, true },
    { "another IPv4 source", { .sip = IP4(3) }, { .sip = ONES16 }, 0, false },
    { "IPv4 destination", { .dip = IP4(1) }, { .dip = ONES16 }, TAGGED, true },
    { "a network", { .dip = { [12] = 10 } }, { .dip = { [12] = 0xff } }, 0,
      true },
    { "another network", { .dip = { [12] = 11 } }, { .dip = { [12] = 0xff } },
      0, false },
    { "IPv6 source", { .sip = IP6(2) }, { .sip = ONES16 }, IPV6, true },
    { "another IPv6 source", { .sip = IP6(1) }, { .sip = ONES16 }, IPV6,
      false },
    { "IPv6 destination", { .dip = IP6(1) }, { .dip = ONES16 },
      IPV6 | TAGGED, true },
    { "protocol", { .protocol = 17 }, { .protocol = 0xff }, 0, true },
    { "another protocol", { .protocol = 17 }, { .protocol = 0xff }, TCP,
      false },
    { "next header", { .protocol = 6 }, { .protocol = 0xff }, IPV6 | TCP,
      true },
    { "type of service", { .traffic_class = 0xab }, { .traffic_class = 0xff },
      0, true },
    { "traffic class", { .traffic_class = 0xab }, { .traffic_class = 0xff },
      IPV6, true },
    { "another traffic class", { .traffic_class = 0xaa },
      { .traffic_class = 0xff }, IPV6, false },
    { "time to live", { .hop_limit = 63 }, { .hop_limit = 0xff }, 0, true },
    { "hop limit", { .hop_limit = 63 }, { .hop_limit = 0xff }, IPV6, true },
    { "another hop limit", { .hop_limit = 64 }, { .hop_limit = 0xff }, 0,
      false },
    { "flow label", { .flow_label = 0x12345 }, { .flow_label = 0xfffff }, IPV6,
      true },
    { "another flow label", { .flow_label = 0x12346 },
      { .flow_label = 0xfffff }, IPV6, false },
    { "IPv4 has no flow label", { }, { .flow_label = 1 }, 0, false },
    { "UDP ports", { .sport = 1000, .dport = 2000 },
      { .sport = 0xffff, .dport = 0xffff }, 0, true },
    { "UDP ports behind options", { .sport = 1000, .dport = 2000 },
      { .sport = 0xffff, .dport = 0xffff }, OPTIONS, true },
    { "UDP ports over IPv6", { .sport = 1000, .dport = 2000 },
      { .sport = 0xffff, .dport = 0xffff }, IPV6 | TAGGED, true },
    { "TCP port", { .dport = 2000 }, { .dport = 0xffff }, TCP, true },
    { "another port", { .dport = 1000 }, { .dport = 0xffff }, 0, false },
    { "ports the other way round", { .sport = 2000 }, { .sport = 0xffff }, 0,
      false },
    { "a fragment has no ports", { .dport = 2000 }, { .dport = 0xffff },
      FRAGMENT, false },
    { "a fragment has addresses", { .dip = IP4(1) }, { .dip = ONES16 },
      FRAGMENT, true },
    { "ICMP has no ports", { .dport = 2000 }, { .dport = 0xffff }, ICMP,
      false },
    { "half a header has no addresses", { }, { .dip = { [15] = 2 } }, SHORT,
      false },
    { "half an IPv6 header, neither", { }, { .dip = { [15] = 2 } },
      SHORT | IPV6, false },
};

static void test_match(void)
{
    uint8_t frame[128];
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    for (unsigned i = 0; i < ARRAY_SIZE(match_cases); i++) {
        const MatchCase *c = &match_cases[i];
        QrnicFlowCtx ctx = { .value = c->value, .mask = c->mask };
        uint32_t flow = flow_create(&s, &s.program[0], &ctx);
        size_t len = packet_make(frame, c->kind);
        Qp *qp = taker_of(&s, frame, len);

        if (qp != (c->takes ? &s.program[0] : &s.function)) {
            g_error("%s: %s", c->what, qp == &s.function ? "not taken" :
                    qp ? "taken" : "lost");
        }
        flow_destroy(&s, flow);
    }
    rig_stop(&s.r);
}

static void test_priority(void)
{
    QrnicFlowCtx ctx = rule_to(OTHER_MAC);
    uint32_t early, late, first;
    uint8_t frame[FRAME];
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    frame_make(frame, OTHER_MAC);
    ctx.priority = 7;
    early = flow_create(&s, &s.program[0], &ctx);
    late = flow_create(&s, &s.program[1], &ctx);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[0]);
    flow_destroy(&s, early);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[1]);
    /*
     * This rule is less specific, but its lower priority number makes it first.
     */
    first = flow_create(&s, &s.program[0], &(QrnicFlowCtx) { .priority = 6 });
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[0]);
    flow_destroy(&s, first);
    first = flow_create(&s, &s.program[0], &(QrnicFlowCtx) { .priority = 8 });
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[1]);
    flow_destroy(&s, late);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[0]);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_RX_PACKETS), ==, 5);
    rig_stop(&s.r);
}

/*
 * Rules precede the filter. A rule whose queue pair cannot receive is skipped.
 */
static void test_states(void)
{
    QrnicFlowCtx ctx = rule_to(OUR_MAC);
    uint8_t frame[FRAME];
    QrnicCqe cqe;
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    frame_make(frame, OUR_MAC);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.function);
    flow_create(&s, &s.program[0], &ctx);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[0]);
    raw_state(&s, &s.program[0], QRNIC_QPS_SQD);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[0]);
    raw_state(&s, &s.program[0], QRNIC_QPS_RTS);
    raw_state(&s, &s.program[0], QRNIC_QPS_RESET);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.function);
    raw_state(&s, &s.program[0], QRNIC_QPS_INIT);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.function);
    raw_state(&s, &s.program[0], QRNIC_QPS_ERR);
    settle(s.r.d);
    while (cq_poll(s.r.d, &s.r.recv_cq, &cqe)) {
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
    }
    g_assert_true(taker_of(&s, frame, FRAME) == &s.function);
    rig_stop(&s.r);
}

/*
 * Tests that the frame is dropped if the selected queue pair has no WQE or a
 * WQE that is too small. No other rule is tried.
 */
static void test_no_wqe(void)
{
    QrnicFlowCtx ctx = rule_to(OUR_MAC);
    uint8_t frame[FRAME];
    Steering s;

    steering_start(&s, "");
    post_recv(&s, &s.function);
    frame_make(frame, OUR_MAC);
    flow_create(&s, &s.program[0], &ctx);
    flow_of_type(&s, &s.program[1], QRNIC_FLOW_ALL_DEFAULT);
    post_recv(&s, &s.program[1]);
    g_assert_null(taker_of(&s, frame, FRAME));
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE), ==, 1);
    post_recv_length(&s, &s.program[0], FRAME - 1);
    g_assert_null(taker_of(&s, frame, FRAME));
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_ETH_RX_TOO_LONG), ==, 1);
    g_assert_true(taker_of(&s, frame, FRAME - 1) == &s.program[0]);
    rig_stop(&s.r);
}

static void test_defaults(void)
{
    uint8_t ours[FRAME], other[FRAME], group[FRAME];
    uint32_t all, multicast;
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    frame_make(ours, OUR_MAC);
    frame_make(other, OTHER_MAC);
    frame_make(group, GROUP_MAC);
    g_assert_null(taker_of(&s, other, FRAME));
    all = flow_of_type(&s, &s.program[0], QRNIC_FLOW_ALL_DEFAULT);
    g_assert_true(taker_of(&s, ours, FRAME) == &s.function);
    g_assert_true(taker_of(&s, other, FRAME) == &s.program[0]);
    g_assert_true(taker_of(&s, group, FRAME) == &s.program[0]);
    multicast = flow_of_type(&s, &s.program[1], QRNIC_FLOW_MC_DEFAULT);
    g_assert_true(taker_of(&s, group, FRAME) == &s.program[1]);
    g_assert_true(taker_of(&s, other, FRAME) == &s.program[0]);
    flow_destroy(&s, all);
    g_assert_true(taker_of(&s, group, FRAME) == &s.program[1]);
    g_assert_null(taker_of(&s, other, FRAME));
    g_assert_true(taker_of(&s, ours, FRAME) == &s.function);
    flow_destroy(&s, multicast);
    g_assert_null(taker_of(&s, group, FRAME));
    rig_stop(&s.r);
}

/* Rules also work without a queue pair in the filter. */
static void test_without_function(void)
{
    QrnicFlowCtx ctx = rule_to(OTHER_MAC);
    uint8_t frame[FRAME];
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    raw_state(&s, &s.function, QRNIC_QPS_RESET);
    frame_make(frame, OTHER_MAC);
    flow_create(&s, &s.program[0], &ctx);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.program[0]);
    frame_make(frame, OUR_MAC);
    g_assert_null(taker_of(&s, frame, FRAME));
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE), ==, 1);
    rig_stop(&s.r);
}

/* Rules do not match packets of the transport. */
static void test_transport(void)
{
    QrnicFlowCtx ctx = {
        .value.dport = 4791, .mask.dport = 0xffff,
    };
    uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;
    QrnicCqe cqe;
    size_t len;
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    flow_create(&s, &s.program[0], &ctx);
    flow_create(&s, &s.program[0], &(QrnicFlowCtx) { .priority = 0 });
    flow_of_type(&s, &s.program[1], QRNIC_FLOW_ALL_DEFAULT);
    p = peer_packet(&s.r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.ack_request = true;
    peer_send(s.r.d, &p);
    peer_expect(s.r.d, RC_ACK, RQ_PSN);
    g_assert_false(cq_poll(s.r.d, &s.r.recv_cq, &cqe));
    /* RoCE packets to another device match the rule. */
    memcpy(p.dmac, OTHER_MAC, 6);
    len = peer_encode(&p, frame);
    g_assert_true(taker_of(&s, frame, len) == &s.program[0]);
    rig_stop(&s.r);
}

/* Sniffers */

static void expect_copy(Steering *s, const Qp *qp, const uint8_t *frame,
                        size_t len)
{
    uint64_t copies = counter(s->r.d, QRNIC_COUNTER_FLOW_COPIES);
    Qp *taker;

    g_assert_cmpuint(copies, >, 0);
    taker = delivered(s, frame, len);
    g_assert_true(taker == qp);
}

/* Sniffers get a copy of each received frame, even if the frame is dropped. */
static void test_sniff_received(void)
{
    uint8_t frame[PEER_FRAME_MAX], sent[PEER_FRAME_MAX];
    size_t len, sent_len;
    PeerPacket p;
    QrnicCqe cqe;
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    post_recv(&s, &s.program[0]);
    flow_of_type(&s, &s.program[0], QRNIC_FLOW_SNIFFER);
    frame_make(frame, OUR_MAC);
    wire_send(s.r.d, frame, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_ETH_RX_PACKETS, 1);
    expect_copy(&s, &s.program[0], frame, FRAME);
    g_assert_true(delivered(&s, frame, FRAME) == &s.function);
    /* The filter drops this frame. */
    frame_make(frame, OTHER_MAC);
    wire_send(s.r.d, frame, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_ETH_RX_FILTERED, 1);
    expect_copy(&s, &s.program[0], frame, FRAME);
    /* The transport receives this packet and sends an ACK. */
    p = peer_packet(&s.r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.ack_request = true;
    len = peer_encode(&p, frame);
    wire_send(s.r.d, frame, len);
    sent_len = wire_receive(s.r.d, sent);
    cq_wait(s.r.d, &s.r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.qpn, ==, s.program[0].number);
    g_assert_cmpuint(cqe.byte_len, ==, len);
    expect_copy(&s, &s.program[0], sent, sent_len);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES), ==, 4);
    /* The copies are counted as copies only. */
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_ETH_RX_PACKETS), ==, 1);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_RX_PACKETS), ==, 0);
    rig_stop(&s.r);
}

static void send_frame(Steering *s, Qp *qp, const uint8_t *frame, size_t len,
                       const QrnicEthSeg *eth)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);

    qtest_memwrite(s->r.d->qts, s->r.mr.memory, frame, len);
    wqe_eth(&w, eth);
    wqe_data(&w, s->r.mr.start, len, s->r.mr.key);
    sq_post(s->r.d, qp, &w);
}

/*
 * Tests that each sniffer gets a copy of each sent frame, as it is on the wire.
 */
static void test_sniff_sent(void)
{
    const QrnicEthSeg tag = { .flags = QRNIC_ETHF_VLAN, .vlan_tci = 7 };
    uint8_t frame[FRAME], sent[PEER_FRAME_MAX];
    uint32_t first;
    size_t len;
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    first = flow_of_type(&s, &s.program[0], QRNIC_FLOW_SNIFFER);
    flow_of_type(&s, &s.program[1], QRNIC_FLOW_SNIFFER);
    frame_make(frame, OTHER_MAC);
    send_frame(&s, &s.function, frame, FRAME, &tag);
    len = wire_receive(s.r.d, sent);
    g_assert_cmpuint(len, ==, FRAME + 4);
    expect_copy(&s, &s.program[0], sent, len);
    expect_copy(&s, &s.program[1], sent, len);
    flow_destroy(&s, first);
    /* A sniffer's own frame is copied too. */
    send_frame(&s, &s.program[1], frame, FRAME, &(QrnicEthSeg) { 0 });
    len = wire_receive(s.r.d, sent);
    expect_copy(&s, &s.program[1], sent, len);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES), ==, 3);
    rig_stop(&s.r);
}

/*
 * Tests that a loopback packet causes one copy at the sniffer, and that its ACK
 * causes another copy.
 */
static void test_sniff_loopback(void)
{
    QrnicQpAttr attr = qp_default_attr();
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);
    uint8_t frame[PEER_FRAME_MAX];
    PeerPacket p;
    QrnicCqe cqe;
    Steering s;
    Qp self;

    steering_start(&s, "");
    post_recv(&s, &s.program[0]);
    post_recv(&s, &s.program[0]);
    post_recv(&s, &s.program[0]);
    qp_create(s.r.d, &self, QRNIC_QPT_RC, s.r.pd, s.r.page, &s.r.send_cq,
              &s.r.recv_cq, 4, 3, 0);
    attr.dest_qpn = self.number;
    attr.rq_psn = attr.sq_psn;
    gid_of_ip4(attr.av.dgid, OUR_IP4);
    memcpy(attr.av.dmac, OUR_MAC, 6);
    qp_connect(s.r.d, &self, &attr);
    flow_of_type(&s, &s.program[0], QRNIC_FLOW_SNIFFER);
    wqe_remote(&w, s.r.mr.start + 0x8000, s.r.mr.key);
    wqe_data(&w, s.r.mr.start + 0x9000, 32, s.r.mr.key);
    sq_post(s.r.d, &self, &w);
    cq_wait(s.r.d, &s.r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    settle(s.r.d);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES), ==, 2);
    cq_wait(s.r.d, &s.r.recv_cq, &cqe);
    cq_wait(s.r.d, &s.r.recv_cq, &cqe);
    /* The last copy in the common buffer is the ACK. */
    rig_read(&s.r, buffer_of(&s, &s.program[0]), frame, cqe.byte_len);
    peer_decode(frame, cqe.byte_len, &p);
    g_assert_cmphex(p.opcode, ==, RC_ACK);
    wire_silent(s.r.d);
    rig_stop(&s.r);
}

/* Tests that the loss of a sniffer's copy has no effect on the frame. */
static void test_sniff_lost(void)
{
    uint8_t frame[FRAME];
    QrnicCqe cqe;
    Steering s;

    steering_start(&s, "");
    post_recv(&s, &s.function);
    flow_of_type(&s, &s.program[0], QRNIC_FLOW_SNIFFER);
    frame_make(frame, OUR_MAC);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.function);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES_LOST), ==, 1);
    post_recv_length(&s, &s.program[0], FRAME - 1);
    g_assert_true(taker_of(&s, frame, FRAME) == &s.function);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES_LOST), ==, 2);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES), ==, 0);
    /*
     * A copy into a buffer with an invalid key has no effect on the frame
     * either. The sniffer is then in ERR.
     */
    raw_state(&s, &s.program[0], QRNIC_QPS_RESET);
    s.program[0].rq_producer = 0;
    raw_state(&s, &s.program[0], QRNIC_QPS_INIT);
    rq_post(s.r.d, &s.program[0],
            &(QrnicDataSeg) { s.r.mr.start, BUFFER, s.r.mr.key ^ 0xff }, 1);
    raw_state(&s, &s.program[0], QRNIC_QPS_RTR);
    wire_send(s.r.d, frame, FRAME);
    cq_wait(s.r.d, &s.r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.qpn, ==, s.program[0].number);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_PROT_ERR);
    cq_wait(s.r.d, &s.r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.qpn, ==, s.function.number);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    rig_stop(&s.r);
}

/* Frames that the port drops are not copied. */
static void test_sniff_port_down(void)
{
    uint8_t raw[QRNIC_PORT_CTX_BYTES], frame[FRAME];
    QrnicPortCtx ctx = { .mtu = 1500 };
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    flow_of_type(&s, &s.program[0], QRNIC_FLOW_SNIFFER);
    flow_of_type(&s, &s.program[0], QRNIC_FLOW_ALL_DEFAULT);
    qrnic_port_ctx_pack(raw, &ctx);
    command_ok(s.r.d, QRNIC_CMD_MODIFY_PORT, 0, raw, sizeof(raw), NULL, 0);
    frame_make(frame, GROUP_MAC);
    send_frame(&s, &s.program[1], frame, FRAME, &(QrnicEthSeg) { 0 });
    wire_send(s.r.d, frame, FRAME);
    counter_wait(s.r.d, QRNIC_COUNTER_TX_DROP_LINK, 1);
    settle(s.r.d);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_COPIES), ==, 0);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_LOOPBACK), ==, 0);
    g_assert_null(delivered(&s, frame, FRAME));
    rig_stop(&s.r);
}

/* The next tests check frames that the device sends. */

/*
 * Sends a frame and asserts it on the wire. Returns its receiver in the device.
 */
static Qp *loopback_taker(Steering *s, Qp *sender, const uint8_t *frame)
{
    uint8_t sent[PEER_FRAME_MAX];
    QrnicCqe cqe;
    size_t len;
    Qp *qp;

    send_frame(s, sender, frame, FRAME, &(QrnicEthSeg) { 0 });
    len = wire_receive(s->r.d, sent);
    g_assert_cmpmem(sent, len, frame, FRAME);
    settle(s->r.d);
    qp = delivered(s, frame, FRAME);
    g_assert_false(cq_poll(s->r.d, &s->r.recv_cq, &cqe));
    return qp;
}

static void test_loopback(void)
{
    QrnicFlowCtx ctx = rule_to(GROUP_MAC), ours = rule_to(OUR_MAC);
    uint8_t group[FRAME], unicast[FRAME];
    uint32_t flow;
    Steering s;

    steering_start(&s, "");
    post_all(&s);
    frame_make(group, GROUP_MAC);
    frame_make(unicast, OUR_MAC);
    g_assert_null(loopback_taker(&s, &s.program[0], group));
    flow = flow_create(&s, &s.program[0], &ctx);
    flow_create(&s, &s.program[0], &ours);
    /* The sender's own rule does not match. */
    g_assert_null(loopback_taker(&s, &s.program[0], group));
    g_assert_true(loopback_taker(&s, &s.program[1], group) == &s.program[0]);
    /*
     * Frames of the kernel and frames to one address have no loopback, because
     * the network delivers them.
     */
    g_assert_null(loopback_taker(&s, &s.function, group));
    g_assert_null(loopback_taker(&s, &s.program[1], unicast));
    flow_destroy(&s, flow);
    flow = flow_of_type(&s, &s.program[0], QRNIC_FLOW_ALL_DEFAULT);
    g_assert_true(loopback_taker(&s, &s.program[1], group) == &s.program[0]);
    flow_of_type(&s, &s.program[1], QRNIC_FLOW_MC_DEFAULT);
    g_assert_true(loopback_taker(&s, &s.program[0], group) == &s.program[1]);
    g_assert_cmpuint(counter(s.r.d, QRNIC_COUNTER_FLOW_LOOPBACK), ==, 3);
    rig_stop(&s.r);
}

static uint16_t ones_sum(uint32_t sum, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

/*
 * Tests that the device computes the checksums. The sum that a receiver
 * computes is all ones.
 */
static void test_ip_csum(void)
{
    static const unsigned kinds[] = {
        0, TCP, TAGGED, TAGGED | TCP, OPTIONS, IPV6, IPV6 | TCP,
        IPV6 | TAGGED,
    };
    const QrnicEthSeg eth = { .flags = QRNIC_ETHF_IP_CSUM };
    uint8_t frame[128], got[PEER_FRAME_MAX];
    Steering s;

    steering_start(&s, "");
    for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
        size_t ip_at = kinds[i] & TAGGED ? 18 : 14;
        size_t header = kinds[i] & IPV6 ? 40 : kinds[i] & OPTIONS ? 24 : 20;
        size_t len = packet_make(frame, kinds[i]);
        const uint8_t *ip = got + ip_at, *l4 = ip + header;
        unsigned field = kinds[i] & TCP ? 16 : 6;
        uint32_t pseudo;

        if (!(kinds[i] & TCP)) {
            stw_be_p(frame + ip_at + header + 4, 20);   /* UDP length */
        }
        stw_be_p(frame + ip_at + header + field, 0xabcd);
        send_frame(&s, &s.program[0], frame, len, &eth);
        g_assert_cmpuint(wire_receive(s.r.d, got), ==, len);
        pseudo = (kinds[i] & TCP ? 6 : 17) + 20;
        if (kinds[i] & IPV6) {
            pseudo += ones_sum(0, ip + 8, 32);
        } else {
            g_assert_cmphex(ones_sum(0, ip, header), ==, 0xffff);
            pseudo += ones_sum(0, ip + 12, 8);
            memcpy(frame + ip_at + 10, ip + 10, 2);
        }
        g_assert_cmphex(ones_sum(pseudo, l4, 20), ==, 0xffff);
        /* No other byte changes. */
        memcpy(frame + ip_at + header + field, l4 + field, 2);
        g_assert_cmpmem(got, len, frame, len);
    }
    /* A fragment has a checksum of its IP header only. */
    {
        size_t len = packet_make(frame, FRAGMENT);

        send_frame(&s, &s.program[0], frame, len, &eth);
        g_assert_cmpuint(wire_receive(s.r.d, got), ==, len);
        g_assert_cmphex(ones_sum(0, got + 14, 20), ==, 0xffff);
        g_assert_cmpmem(got + 34, 20, frame + 34, 20);
    }
    /* A frame without IP, or a truncated one, is unchanged. */
    frame_make(frame, OTHER_MAC);
    send_frame(&s, &s.program[0], frame, FRAME, &eth);
    g_assert_cmpuint(wire_receive(s.r.d, got), ==, FRAME);
    g_assert_cmpmem(got, FRAME, frame, FRAME);
    rig_stop(&s.r);
}

static void csum_refused(const char *properties, uint16_t flags)
{
    const QrnicEthSeg eth = { .flags = flags, .csum_start = 14 };
    uint8_t frame[128];
    QrnicCqe cqe;
    size_t len;
    Steering s;

    steering_start(&s, properties);
    len = packet_make(frame, 0);
    send_frame(&s, &s.program[0], frame, len, &eth);
    cq_wait(s.r.d, &s.r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_WQE_RESERVED);
    wire_silent(s.r.d);
    rig_stop(&s.r);
}

static void test_ip_csum_refused(void)
{
    csum_refused("", QRNIC_ETHF_IP_CSUM | QRNIC_ETHF_CSUM);
    csum_refused("cap-eth-csum=off", QRNIC_ETHF_IP_CSUM);
    csum_refused("cap-flow=off", QRNIC_ETHF_IP_CSUM);
}

/* Tests that the queue pair sends nothing in SQD, and continues in RTS. */
static void test_drain(void)
{
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_EN_SQD_ASYNC_NOTIFY,
        .state = QRNIC_QPS_SQD, .sq_drained_notify = 1,
    };
    uint8_t frame[FRAME], got[PEER_FRAME_MAX];
    QrnicEqe eqe;
    Steering s;

    steering_start(&s, "");
    qp_modify(s.r.d, &s.program[0], &step);
    eq_wait(s.r.d, &s.r.async, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_SQ_DRAINED);
    g_assert_cmpuint(eqe.object, ==, s.program[0].number);
    frame_make(frame, OTHER_MAC);
    send_frame(&s, &s.program[0], frame, FRAME, &(QrnicEthSeg) { 0 });
    settle(s.r.d);
    wire_silent(s.r.d);
    raw_state(&s, &s.program[0], QRNIC_QPS_RTS);
    g_assert_cmpuint(wire_receive(s.r.d, got), ==, FRAME);
    rig_stop(&s.r);
}

void add_flow_tests(void)
{
    qtest_add_func("qrnic/flow/commands", test_commands);
    qtest_add_func("qrnic/flow/reserved", test_reserved);
    qtest_add_func("qrnic/flow/without", test_without);
    qtest_add_func("qrnic/flow/sniffers", test_sniffers);
    qtest_add_func("qrnic/flow/qp-gone", test_qp_gone);
    qtest_add_func("qrnic/flow/device-reset", test_device_reset);
    qtest_add_func("qrnic/flow/match", test_match);
    qtest_add_func("qrnic/flow/priority", test_priority);
    qtest_add_func("qrnic/flow/states", test_states);
    qtest_add_func("qrnic/flow/no-wqe", test_no_wqe);
    qtest_add_func("qrnic/flow/defaults", test_defaults);
    qtest_add_func("qrnic/flow/without-function", test_without_function);
    qtest_add_func("qrnic/flow/transport", test_transport);
    qtest_add_func("qrnic/flow/sniff-received", test_sniff_received);
    qtest_add_func("qrnic/flow/sniff-sent", test_sniff_sent);
    qtest_add_func("qrnic/flow/sniff-loopback", test_sniff_loopback);
    qtest_add_func("qrnic/flow/sniff-lost", test_sniff_lost);
    qtest_add_func("qrnic/flow/sniff-port-down", test_sniff_port_down);
    qtest_add_func("qrnic/flow/loopback", test_loopback);
    qtest_add_func("qrnic/flow/ip-csum", test_ip_csum);
    qtest_add_func("qrnic/flow/ip-csum-refused", test_ip_csum_refused);
    qtest_add_func("qrnic/flow/drain", test_drain);
}
