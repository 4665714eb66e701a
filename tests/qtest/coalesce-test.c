/*
 * qrnic qtest: received TCP segments that continue the previous one
 *
 * Asserts the CQE of each frame, and that the frame itself is unchanged.
 * Programmer's Reference, chapter Ethernet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define DATA 100
#define BUFFER 2048
#define FIN 0x01
#define PSH 0x08
#define ACK 0x10

/* A TCP segment, and the errors that the test puts into it */
typedef struct Segment {
    bool ipv6, tag;
    uint32_t sequence, data;
    uint16_t identification;
    uint8_t flags;
    /* A byte of the frame to change before the checksums */
    unsigned flip, mask;
    /* A byte to change after the checksums; 0: none */
    unsigned break_at;
    unsigned padding;           /* Bytes behind the packet */
    unsigned options;           /* Bytes of IPv4 options */
} Segment;

static const Segment plain = {
    .sequence = 0xffffff9c, .data = DATA, .identification = 0xffff,
    .flags = ACK,
};

/* Returns the segment that follows in the stream. */
static Segment next_of(Segment s)
{
    s.sequence += s.data;
    s.identification++;
    return s;
}

static uint32_t sum_of(uint32_t sum, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    return sum;
}

static uint16_t sum_end(uint32_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return ~sum;
}

static unsigned ip_at(const Segment *s)
{
    return s->tag ? 18 : 14;
}

static unsigned tcp_at(const Segment *s)
{
    return ip_at(s) + (s->ipv6 ? 40 : 20 + s->options);
}

/* Returns the length of the headers with the timestamp option. */
static unsigned header_of(const Segment *s)
{
    return tcp_at(s) + 32;
}

static size_t make(const Segment *s, uint8_t *frame)
{
    uint8_t *ip = frame + ip_at(s), *tcp = frame + tcp_at(s);
    uint32_t segment = 32 + s->data, sum;

    memset(frame, 0, PEER_FRAME_MAX);
    memcpy(frame, OUR_MAC, 6);
    memcpy(frame + 6, PEER_MAC, 6);
    memcpy(frame + 12, "\x81\x00\x60\x07", 4);
    stw_be_p(ip - 2, s->ipv6 ? 0x86dd : 0x0800);
    if (s->ipv6) {
        memcpy(ip, "\x60\x01\x23\x45\x00\x00\x06\x40", 8);
        stw_be_p(ip + 4, segment);
        memset(ip + 8, 0x21, 32);
    } else {
        memcpy(ip, "\x45\x02\x00\x00\x00\x00\x40\x00\x40\x06", 10);
        ip[0] += s->options / 4;
        stw_be_p(ip + 2, 20 + s->options + segment);
        stw_be_p(ip + 4, s->identification);
        memcpy(ip + 12, PEER_IP4, 4);
        memcpy(ip + 16, OUR_IP4, 4);
        memset(ip + 20, 1, s->options);
    }
    stw_be_p(tcp, 5001);
    stw_be_p(tcp + 2, 40000);
    stl_be_p(tcp + 4, s->sequence);
    stl_be_p(tcp + 8, 0x01020304);
    tcp[12] = 8 << 4;
    tcp[13] = s->flags;
    memcpy(tcp + 14, "\x20\x00\x00\x00\x00\x00\x01\x01\x08\x0a", 10);
    memset(tcp + 24, 0x77, 8);
    for (uint32_t i = 0; i < s->data; i++) {
        tcp[32 + i] = s->sequence + i;
    }
    frame[s->flip] ^= s->mask;
    if (s->ipv6) {
        sum = sum_of(segment + 6, ip + 8, 32);
    } else {
        stw_be_p(ip + 10, sum_end(sum_of(0, ip, 20 + s->options)));
        sum = sum_of(segment + 6, ip + 12, 8);
    }
    stw_be_p(tcp + 16, sum_end(sum_of(sum, tcp, segment)));
    frame[s->break_at] ^= s->break_at ? 1 : 0;
    return tcp_at(s) + segment + s->padding;
}

static QrnicCmdEntry filter_set(Rig *r, uint32_t object, uint8_t flags)
{
    QrnicRxFilter filter = {
        .qpn = object, .flags = QRNIC_RXF_PROMISC | flags,
    };
    uint8_t raw[QRNIC_RX_FILTER_BYTES];

    qrnic_rx_filter_pack(raw, &filter);
    return command(r->d, QRNIC_CMD_SET_RX_FILTER, 0, raw, sizeof(raw), NULL, 0);
}

static void state_set(Rig *r, const Qp *qp, unsigned state)
{
    QrnicQpAttr step = { .mask = QRNIC_QP_STATE, .state = state };

    if (state == QRNIC_QPS_INIT) {
        step.mask |= QRNIC_QP_PORT;
        step.port = 1;
    }
    qp_modify(r->d, qp, &step);
}

static void qp_make(Rig *r, Qp *qp)
{
    qp_create(r->d, qp, QRNIC_QPT_RAW_PACKET, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 4, 3, 0);
    state_set(r, qp, QRNIC_QPS_INIT);
    state_set(r, qp, QRNIC_QPS_RTR);
}

/* Replaces r->qp by the raw packet queue pair of the receive filter. */
static void start(Rig *r, uint8_t flags)
{
    rig_start(r, "", NULL);
    qp_make(r, &r->qp);
    g_assert_cmpuint(filter_set(r, r->qp.number, flags).status, ==,
                     QRNIC_ST_OK);
}

static void post(Rig *r, Qp *qp)
{
    QrnicDataSeg sge = { r->mr.start, BUFFER, r->mr.key };

    rq_post(r->d, qp, &sge, 1);
}

/*
 * Receives a segment and asserts that the buffer has the whole frame. Returns
 * the flags of the CQE.
 */
static uint8_t receive(Rig *r, Qp *qp, const Segment *s)
{
    uint8_t frame[PEER_FRAME_MAX], got[PEER_FRAME_MAX];
    size_t len = make(s, frame);
    QrnicCqe cqe;

    post(r, qp);
    wire_send(r->d, frame, len);
    cq_wait(r->d, &r->recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.qpn, ==, qp->number);
    if (cqe.flags & QRNIC_CQEF_VLAN) {
        memmove(frame + 12, frame + 16, len - 16);
        len -= 4;
    }
    g_assert_cmpuint(cqe.byte_len, ==, len);
    rig_read(r, 0, got, len);
    g_assert_cmpmem(got, len, frame, len);
    return cqe.continues;
}

static void expect(Rig *r, const Segment *s, unsigned continues)
{
    g_assert_cmpuint(receive(r, &r->qp, s), ==, continues);
}

/*
 * Sends a series whose sequence numbers and identifications wrap. A shorter
 * segment, or a segment with PSH, ends the series.
 */
static void stream(Segment s, uint8_t flags)
{
    unsigned header = header_of(&s) - (flags & QRNIC_RXF_VLAN_STRIP ? 4 : 0);
    Rig r;

    start(&r, QRNIC_RXF_COALESCE | flags);
    for (unsigned n = 0; n < 20; n++, s = next_of(s)) {
        expect(&r, &s, n ? header : 0);
    }
    s.data--;
    expect(&r, &s, header);
    s = next_of(s);
    expect(&r, &s, 0);
    s = next_of(s);
    s.flags |= PSH;
    expect(&r, &s, header);
    s = next_of(s);
    expect(&r, &s, 0);
    s = next_of(s);
    s.flags = ACK;
    expect(&r, &s, 0);
    s = next_of(s);
    expect(&r, &s, header);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_RX_CONTINUED), ==, 22);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_RX_PACKETS), ==, 26);
    rig_stop(&r);
}

static void test_ipv4(void)
{
    stream(plain, 0);
}

static void test_ipv6(void)
{
    Segment s = plain;

    s.ipv6 = true;
    stream(s, 0);
}

static void test_tag(void)
{
    Segment s = plain;

    s.tag = true;
    stream(s, 0);
    s.ipv6 = true;
    stream(s, QRNIC_RXF_VLAN_STRIP);
}

/* Tests segments whose packets have the length of the port's MTU. */
static void test_full(void)
{
    Segment s = plain;

    s.data = 1500 - 52;
    stream(s, 0);
}

/*
 * Tests that no CQE is marked without the flag, and that a segment received
 * without the flag cannot begin a series.
 */
static void test_off(void)
{
    Segment s = plain;
    Rig r;

    start(&r, 0);
    expect(&r, &s, 0);
    s = next_of(s);
    expect(&r, &s, 0);
    filter_set(&r, r.qp.number, QRNIC_RXF_COALESCE);
    s = next_of(s);
    expect(&r, &s, 0);
    s = next_of(s);
    expect(&r, &s, header_of(&s));
    filter_set(&r, r.qp.number, 0);
    expect(&r, &plain, 0);
    filter_set(&r, r.qp.number, QRNIC_RXF_COALESCE);
    s = next_of(s);
    expect(&r, &s, 0);
    rig_stop(&r);
}

static void test_refused(void)
{
    static const char *const without[] = {
        "cap-eth-rx-coalesce=off", "cap-eth-csum=off",
    };

    for (unsigned i = 0; i < ARRAY_SIZE(without); i++) {
        QrnicCmdEntry entry;
        Rig r;

        rig_start(&r, without[i], NULL);
        qp_make(&r, &r.qp);
        entry = filter_set(&r, r.qp.number, QRNIC_RXF_COALESCE);
        g_assert_cmpuint(entry.status, ==, QRNIC_ST_NOT_SUPPORTED);
        g_assert_cmphex(entry.syndrome, ==, QRNIC_RX_FILTER_FLAGS_OFFSET);
        g_assert_cmpuint(filter_set(&r, r.qp.number, 0).status, ==,
                         QRNIC_ST_OK);
        rig_stop(&r);
    }
}

/* Asserts that the second segment does not continue the first. */
static void breaks(Rig *r, const Segment *first, const Segment *second)
{
    expect(r, first, 0);
    expect(r, second, 0);
}

/* Tests a difference in each header byte that must be equal. */
static void test_headers_differ(void)
{
    static const uint8_t ipv4[] = {
        3, 9,                   /* Ethernet addresses */
        15, 20, 22, 30,         /* TOS, DF, TTL, destination address */
        34, 36, 40, 43, 48,     /* Ports, sequence, ACK, window */
        53, 55, 58, 62, 65,     /* Urgent pointer; kind, timestamps */
    };
    static const uint8_t ipv6[] = { 15, 17, 21, 25, 50, 54, 56, 80, 85 };
    Rig r;

    start(&r, QRNIC_RXF_COALESCE);
    for (unsigned i = 0; i < ARRAY_SIZE(ipv4); i++) {
        Segment s = next_of(plain);

        expect(&r, &plain, 0);
        expect(&r, &s, header_of(&s));
        s = next_of(s);
        s.flip = ipv4[i];
        s.mask = ipv4[i] == 20 ? 0x40 : 1;
        expect(&r, &s, 0);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(ipv6); i++) {
        Segment s = plain;

        s.ipv6 = true;
        expect(&r, &s, 0);
        s = next_of(s);
        s.flip = ipv6[i];
        s.mask = 1;
        expect(&r, &s, 0);
    }
    rig_stop(&r);
}

/*
 * Tests segments that differ in their VLAN tag or IP version. One has a service
 * tag.
 */
static void test_tag_differs(void)
{
    Segment first = plain, second = next_of(plain);
    Rig r;

    start(&r, QRNIC_RXF_COALESCE | QRNIC_RXF_VLAN_STRIP);
    second.tag = true;
    breaks(&r, &first, &second);
    first.tag = true;
    second.flip = 15;
    second.mask = 1;
    breaks(&r, &first, &second);
    second = next_of(plain);
    second.ipv6 = second.tag = true;
    breaks(&r, &first, &second);
    first.flip = second.flip = 12;
    first.mask = second.mask = 0x81 ^ 0x88;
    first.ipv6 = true;
    breaks(&r, &first, &second);
    rig_stop(&r);
}

static void test_order(void)
{
    Segment s;
    Rig r;

    start(&r, QRNIC_RXF_COALESCE);
    /*
     * A repeated segment, a segment behind a lost one, and an earlier segment
     * end the series.
     */
    breaks(&r, &plain, &plain);
    s = next_of(next_of(plain));
    breaks(&r, &plain, &s);
    s = plain;
    s.sequence -= s.data;
    breaks(&r, &plain, &s);
    /*
     * An unchanged identification and a skipped identification end the series.
     */
    s = next_of(plain);
    s.identification--;
    breaks(&r, &plain, &s);
    s.identification += 2;
    breaks(&r, &plain, &s);
    /* A segment with more data than the first one ends the series. */
    s = next_of(plain);
    s.data++;
    breaks(&r, &plain, &s);
    rig_stop(&r);
}

/*
 * Asserts that the segment can neither begin nor continue a series. The segment
 * is sent twice in both places, because the device keeps state.
 */
static void neither(Rig *r, Segment s)
{
    Segment first = plain, second = next_of(plain);

    first.ipv6 = second.ipv6 = s.ipv6;
    expect(r, &first, 0);
    s.sequence = second.sequence;
    s.identification = second.identification;
    expect(r, &s, 0);
    s = next_of(s);
    expect(r, &s, 0);
    s = next_of(s);
    second.sequence = s.sequence;
    second.identification = s.identification;
    expect(r, &second, 0);
}

static void test_never(void)
{
    static const uint8_t flags[] = {
        ACK | FIN, ACK | 0x02, ACK | 0x04, ACK | 0x20, ACK | 0x40, ACK | 0x80,
        0, PSH,
    };
    Rig r;

    start(&r, QRNIC_RXF_COALESCE);
    for (unsigned i = 0; i < ARRAY_SIZE(flags); i++) {
        Segment s = plain;

        s.flags = flags[i];
        neither(&r, s);
    }
    for (int ipv6 = 0; ipv6 <= 1; ipv6++) {
        Segment s = plain;

        s.ipv6 = ipv6;
        /* The TCP checksum is wrong, and then the IPv4 checksum. */
        s.break_at = header_of(&s);
        neither(&r, s);
        s.break_at = ipv6 ? tcp_at(&s) + 16 : 24;
        neither(&r, s);
        s.break_at = 0;
        /* The segment has no data, and then bytes behind the packet. */
        s.data = 0;
        neither(&r, s);
        s.data = DATA;
        s.padding = 1;
        neither(&r, s);
        s.padding = 0;
        /*
         * The data offset is four words, then beyond the frame, and then a
         * reserved bit is set.
         */
        s.flip = tcp_at(&s) + 12;
        s.mask = 0xc0;
        neither(&r, s);
        s.mask = 0x70;
        s.data = 20;
        neither(&r, s);
        s.data = DATA;
        s.mask = 0x01;
        neither(&r, s);
        /* The packet is UDP, and then it is a fragment. */
        s.flip = 14 + (ipv6 ? 6 : 9);
        s.mask = 6 ^ 17;
        neither(&r, s);
        s.flip = 20;
        s.mask = ipv6 ? 6 ^ 44 : 0x20;
        neither(&r, s);
    }
    {
        Segment s = plain;

        s.options = 4;
        neither(&r, s);
    }
    rig_stop(&r);
}

/*
 * Tests a frame between two segments. The frame belongs to another flow,
 * matches a flow rule, is lost, or is filtered.
 */
static void test_between(void)
{
    QrnicFlowCtx rule = { .type = QRNIC_FLOW_NORMAL };
    uint8_t frame[PEER_FRAME_MAX], raw[QRNIC_FLOW_CTX_BYTES];
    Segment s = plain, other = plain;
    uint32_t number;
    size_t len;
    Rig r;

    start(&r, QRNIC_RXF_COALESCE);
    expect(&r, &s, 0);
    other.sequence = 1;
    other.flip = 36;
    other.mask = 4;
    expect(&r, &other, 0);
    s = next_of(s);
    expect(&r, &s, 0);
    /* A flow rule delivers a frame of the other flow to the queue. */
    qrnic_flow_ctx_pack(raw, &rule);
    number = command_ok(r.d, QRNIC_CMD_CREATE_FLOW, r.qp.number, raw,
                        sizeof(raw), NULL, 0);
    expect(&r, &other, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_FLOW, number, NULL, 0, NULL, 0);
    s = next_of(s);
    expect(&r, &s, 0);
    /*
     * There is no receive WQE, so the segment behind the lost one begins a
     * series.
     */
    s = next_of(s);
    len = make(&s, frame);
    wire_send(r.d, frame, len);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 1);
    s = next_of(s);
    expect(&r, &s, 0);
    /* A lost segment of another flow has no effect. */
    len = make(&other, frame);
    wire_send(r.d, frame, len);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_NO_QUEUE, 2);
    s = next_of(s);
    expect(&r, &s, header_of(&s));
    rig_stop(&r);
}

/* Tests that a reset, or a rejected WQE, ends the series. */
static void test_reset(void)
{
    QrnicDataSeg bad = { 0, BUFFER, 0 };
    Segment s = plain;
    uint8_t frame[PEER_FRAME_MAX];
    QrnicCqe cqe;
    size_t len;
    Rig r;

    start(&r, QRNIC_RXF_COALESCE);
    for (int i = 0; i < 2; i++) {
        expect(&r, &s, 0);
        s = next_of(s);
        expect(&r, &s, header_of(&s));
        s = next_of(s);
        if (i == 1) {
            len = make(&s, frame);
            rq_post(r.d, &r.qp, &bad, 1);
            wire_send(r.d, frame, len);
            cq_wait(r.d, &r.recv_cq, &cqe);
            g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_PROT_ERR);
            g_assert_cmpuint(cqe.continues, ==, 0);
        }
        state_set(&r, &r.qp, QRNIC_QPS_RESET);
        r.qp.rq_producer = 0;
        stl_le_p(frame, 0);
        qtest_memwrite(r.d->qts, r.qp.rq_record, frame, 4);
        state_set(&r, &r.qp, QRNIC_QPS_INIT);
        state_set(&r, &r.qp, QRNIC_QPS_RTR);
    }
    expect(&r, &s, 0);
    rig_stop(&r);
}

/*
 * Tests two flows whose segments alternate, each in its own queue of an RSS
 * table. Both series must continue.
 */
static void test_queues(void)
{
    QrnicRssCtx ctx = { .log_size = 1, .hash = QRNIC_RSS_DST_PORT_TCP };
    uint8_t raw[QRNIC_RSS_CTX_BYTES];
    Segment s[2] = { plain, plain };
    uint32_t number;
    Qp qp[2];
    Rig r;

    start(&r, QRNIC_RXF_COALESCE);
    for (int i = 0; i < 2; i++) {
        qp_make(&r, &qp[i]);
        stl_le_p(ctx.entries + 4 * i, qp[i].number);
    }
    /* The lowest bit of the hash is that of the port. */
    ctx.key[5] = 2;
    qrnic_rss_ctx_pack(raw, &ctx);
    number = command_ok(r.d, QRNIC_CMD_CREATE_RSS, 0, raw, sizeof(raw), NULL,
                        0);
    g_assert_cmpuint(filter_set(&r, number, QRNIC_RXF_RSS |
                                QRNIC_RXF_COALESCE).status, ==, QRNIC_ST_OK);
    s[1].flip = 37;
    s[1].mask = 1;
    for (int n = 0; n < 6; n++) {
        for (int i = 0; i < 2; i++) {
            g_assert_cmpuint(receive(&r, &qp[i], &s[i]), ==,
                             n ? header_of(&s[i]) : 0);
            s[i] = next_of(s[i]);
        }
    }
    rig_stop(&r);
}

void add_coalesce_tests(void)
{
    qtest_add_func("qrnic/coalesce/ipv4", test_ipv4);
    qtest_add_func("qrnic/coalesce/ipv6", test_ipv6);
    qtest_add_func("qrnic/coalesce/tag", test_tag);
    qtest_add_func("qrnic/coalesce/full", test_full);
    qtest_add_func("qrnic/coalesce/off", test_off);
    qtest_add_func("qrnic/coalesce/refused", test_refused);
    qtest_add_func("qrnic/coalesce/headers-differ", test_headers_differ);
    qtest_add_func("qrnic/coalesce/tag-differs", test_tag_differs);
    qtest_add_func("qrnic/coalesce/order", test_order);
    qtest_add_func("qrnic/coalesce/never", test_never);
    qtest_add_func("qrnic/coalesce/between", test_between);
    qtest_add_func("qrnic/coalesce/reset", test_reset);
    qtest_add_func("qrnic/coalesce/queues", test_queues);
}
