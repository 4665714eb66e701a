/*
 * qrnic qtest: segmentation of TCP
 *
 * Asserts each frame of a large send, byte by byte, with checksums computed
 * here. Programmer's Reference, chapter Ethernet.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define MSS 1000
/* MSS at which a send makes more frames than any wire accepts at once */
#define SMALL_MSS 100
#define FIN 0x01
#define PSH 0x08
#define ACK 0x10
#define CWR 0x80

/* One large send: headers from software, and data */
typedef struct Large {
    uint8_t header[160];
    unsigned ip, tcp, length;   /* Offsets, and bytes of the headers */
    bool ipv6;
    uint32_t data, mss;
} Large;

static void qp_up(Rig *r)
{
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PORT, .state = QRNIC_QPS_INIT,
        .port = 1,
    };

    qp_modify(r->d, &r->qp, &step);
    step = (QrnicQpAttr) { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RTR };
    qp_modify(r->d, &r->qp, &step);
    step.state = QRNIC_QPS_RTS;
    qp_modify(r->d, &r->qp, &step);
}

/* Replaces r->qp by a raw packet queue pair. */
static void start(Rig *r, const char *properties)
{
    rig_start(r, properties, NULL);
    qp_create(r->d, &r->qp, QRNIC_QPT_RAW_PACKET, r->pd, r->page, &r->send_cq,
              &r->recv_cq, 4, 3, 0);
    qp_up(r);
}

/* Moves the queue pair to RTS again after an error. */
static void qp_again(Rig *r)
{
    QrnicQpAttr step = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET };

    qp_modify(r->d, &r->qp, &step);
    r->qp.sq_producer = 0;
    sq_publish(r->d, &r->qp);
    qp_up(r);
}

/*
 * Makes a large send with options of 4 and 12 bytes. Sequence number and
 * identification wrap.
 */
static Large large_make(bool ipv6, bool tag, uint32_t data)
{
    Large l = { .ip = tag ? 18 : 14, .ipv6 = ipv6, .data = data,
                .mss = MSS };
    uint8_t *ip = l.header + l.ip, *tcp;

    memcpy(l.header, PEER_MAC, 6);
    memcpy(l.header + 6, OUR_MAC, 6);
    memcpy(l.header + 12, "\x81\x00\x20\x05", 4);
    stw_be_p(l.header + l.ip - 2, ipv6 ? 0x86dd : 0x0800);
    l.tcp = l.ip + (ipv6 ? 40 : 24);
    if (ipv6) {
        memcpy(ip, "\x60\x12\x34\x56\xff\xff\x06\x40", 8);
        memset(ip + 8, 0x21, 32);
        ip[39] = 2;
    } else {
        memcpy(ip, "\x46\x02\xff\xff\xff\xfe\x40\x00\x40\x06\x12\x34", 12);
        memcpy(ip + 12, OUR_IP4, 4);
        memcpy(ip + 16, PEER_IP4, 4);
        memcpy(ip + 20, "\x94\x04\x00\x00", 4);
    }
    tcp = l.header + l.tcp;
    memcpy(tcp, "\x12\x34\x00\x50\xff\xff\xfc\x00\x01\x02\x03\x04", 12);
    tcp[12] = 8 << 4;
    tcp[13] = CWR | ACK | PSH | FIN;
    memcpy(tcp + 14, "\x20\x00\xab\xcd\x00\x00\x01\x01\x08\x0a", 10);
    memset(tcp + 24, 0x77, 8);
    l.length = l.tcp + 32;
    return l;
}

static uint8_t data_at(uint32_t i)
{
    return i * 7 + (i >> 8);
}

/*
 * Writes headers at the end of the region's first page, and data from the
 * second page on.
 */
static void large_write(Rig *r, const Large *l)
{
    g_autofree uint8_t *data = g_malloc(RIG_MR_LENGTH - 4096);

    for (uint32_t i = 0; i < RIG_MR_LENGTH - 4096; i++) {
        data[i] = data_at(i);
    }
    qtest_memwrite(r->d->qts, r->mr.memory + 4096 - l->length, l->header,
                   l->length);
    qtest_memwrite(r->d->qts, r->mr.memory + 4096, data,
                   RIG_MR_LENGTH - 4096);
}

static void large_post(Rig *r, const Large *l, const QrnicEthSeg *eth)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    large_write(r, l);
    wqe_eth(&w, eth);
    /* The first data segment ends within the data, so that frames cross it. */
    wqe_data(&w, r->mr.start + 4096 - l->length, l->length + l->data / 3,
             r->mr.key);
    wqe_data(&w, r->mr.start + 4096 + l->data / 3, l->data - l->data / 3,
             r->mr.key);
    sq_post(r->d, &r->qp, &w);
}

static QrnicEthSeg eth_of(const Large *l)
{
    return (QrnicEthSeg) {
        .flags = QRNIC_ETHF_TSO, .mss = l->mss, .header_length = l->length,
    };
}

static uint32_t ones_sum(uint32_t sum, const uint8_t *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        sum += i & 1 ? p[i] : p[i] << 8;
    }
    return sum;
}

static uint16_t ones_end(uint32_t sum)
{
    while (sum >> 16) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return ~sum;
}

/* Makes the frame with the data from offset on. Returns its length. */
static size_t frame_make(const Large *l, uint32_t offset, uint8_t *frame)
{
    uint32_t n = MIN(l->mss, l->data - offset), sum;
    uint32_t segment = l->length - l->tcp + n;
    uint8_t *ip = frame + l->ip, *tcp = frame + l->tcp;

    memcpy(frame, l->header, l->length);
    for (uint32_t i = 0; i < n; i++) {
        frame[l->length + i] = data_at(offset + i);
    }
    stl_be_p(tcp + 4, 0xfffffc00u + offset);
    tcp[13] = ACK | (offset ? 0 : CWR) |
              (offset + n == l->data ? PSH | FIN : 0);
    stw_be_p(tcp + 16, 0);
    if (l->ipv6) {
        stw_be_p(ip + 4, segment);
        sum = ones_sum(segment + 6, ip + 8, 32);
    } else {
        stw_be_p(ip + 2, 24 + segment);
        stw_be_p(ip + 4, 0xfffe + offset / l->mss);
        stw_be_p(ip + 10, 0);
        stw_be_p(ip + 10, ones_end(ones_sum(0, ip, 24)));
        sum = ones_sum(segment + 6, ip + 12, 8);
    }
    stw_be_p(tcp + 16, ones_end(ones_sum(sum, tcp, segment)));
    return l->length + n;
}

/* Asserts the frames. tci 0: no tag was inserted. */
static void expect_frames(Rig *r, const Large *l, uint32_t from, uint16_t tci)
{
    uint8_t want[PEER_FRAME_MAX], got[PEER_FRAME_MAX];

    for (uint32_t offset = from; offset < l->data; offset += l->mss) {
        size_t len = frame_make(l, offset, want);

        if (tci) {
            memmove(want + 16, want + 12, len - 12);
            stw_be_p(want + 12, 0x8100);
            stw_be_p(want + 14, tci);
            len += 4;
        }
        g_assert_cmpmem(got, wire_receive(r->d, got), want, len);
    }
}

static void expect_success(Rig *r)
{
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
}

static void check(bool ipv6, bool tag, uint16_t tci, uint32_t data)
{
    Large l = large_make(ipv6, tag, data);
    QrnicEthSeg eth = eth_of(&l);
    Rig r;

    start(&r, "");
    if (tci) {
        eth.flags |= QRNIC_ETHF_VLAN;
        eth.vlan_tci = tci;
    }
    large_post(&r, &l, &eth);
    expect_frames(&r, &l, 0, tci);
    expect_success(&r);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_TX_SEGMENTED), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_TX_PACKETS), ==,
                     DIV_ROUND_UP(data, MSS));
    wire_silent(r.d);
    rig_stop(&r);
}

static void test_ipv4(void)
{
    check(false, false, 0, 3500);
}

static void test_ipv6(void)
{
    check(true, false, 0, 4000);
}

static void test_tag(void)
{
    check(false, true, 0, 2001);
}

static void test_vlan(void)
{
    check(true, false, 0x6007, 2999);
}

/* Tests that a send whose data fits into one frame makes one frame. */
static void test_one(void)
{
    check(false, false, 0, 7);
}

/* Starts a send of more frames than the wire accepts at once. */
static void start_small(Rig *r, Large *l)
{
    QrnicEthSeg eth;

    start(r, "");
    l->mss = SMALL_MSS;
    eth = eth_of(l);
    large_post(r, l, &eth);
    settle(r->d);
}

/*
 * Tests a wire that accepts some frames at a time. No frame is lost, and all
 * have the headers that the WQE had when the device fetched it.
 */
static void test_backpressure(void)
{
    Large l = large_make(false, false, 60000), other = { .length = l.length };
    uint64_t sent;
    Rig r;

    start_small(&r, &l);
    sent = counter(r.d, QRNIC_COUNTER_ETH_TX_PACKETS);
    g_assert_cmpuint(sent, >, 0);
    g_assert_cmpuint(sent, <, l.data / l.mss);
    large_write(&r, &other);
    expect_frames(&r, &l, 0, 0);
    expect_success(&r);
    wire_silent(r.d);
    rig_stop(&r);
}

/* Tests that a reset drops all remaining frames of the send. */
static void test_reset(void)
{
    Large l = large_make(false, false, 60000), small;
    uint8_t got[PEER_FRAME_MAX];
    QrnicEthSeg eth;
    QrnicCqe cqe;
    Rig r;

    start_small(&r, &l);
    qp_again(&r);
    settle(r.d);
    while (wire_pending(r.d)) {
        wire_receive(r.d, got);
        settle(r.d);
    }
    while (cq_poll(r.d, &r.send_cq, &cqe)) {
        continue;
    }
    small = large_make(true, false, 2500);
    eth = eth_of(&small);
    large_post(&r, &small, &eth);
    expect_frames(&r, &small, 0, 0);
    expect_success(&r);
    rig_stop(&r);
}

/* Tests that another queue pair sends between two frames of a WQE. */
static void test_turns(void)
{
    Large l = large_make(false, false, 60000);
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    QrnicEthSeg eth = eth_of(&l);
    uint8_t got[PEER_FRAME_MAX];
    unsigned before = 0;
    Rig r;
    Qp big;

    start(&r, "");
    big = r.qp;
    qp_create(r.d, &r.qp, QRNIC_QPT_RAW_PACKET, r.pd, r.page, &r.send_cq,
              &r.recv_cq, 4, 3, 0);
    qp_up(&r);
    vm_stop(r.d);
    wqe_eth(&w, &(QrnicEthSeg) { 0 });
    wqe_data(&w, r.mr.start, 77, r.mr.key);
    {
        Qp little = r.qp;

        r.qp = big;
        large_post(&r, &l, &eth);
        sq_post(r.d, &little, &w);
    }
    vm_continue(r.d);
    while (wire_receive(r.d, got) != 77) {
        before++;
    }
    g_assert_cmpuint(before, <, 40);
    for (; before < 60; before++) {
        wire_receive(r.d, got);
    }
    expect_success(&r);
    rig_stop(&r);
}

static void refused(Rig *r, const Large *l, const QrnicEthSeg *eth,
                    unsigned status, unsigned syndrome)
{
    QrnicCqe cqe;

    large_post(r, l, eth);
    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    wire_silent(r->d);
    qp_again(r);
}

static void refused_length(Rig *r, const Large *l, const QrnicEthSeg *eth)
{
    refused(r, l, eth, QRNIC_WC_LOC_LEN_ERR, QRNIC_SYN_WQE_LENGTH);
}

static void test_lengths_refused(void)
{
    const Large good = large_make(false, false, 3000);
    const QrnicEthSeg eth = eth_of(&good);
    QrnicEthSeg bad;
    Large l;
    Rig r;

    start(&r, "");
    bad = eth;
    bad.mss = 0;
    refused_length(&r, &good, &bad);
    bad.mss = 1500 + 14 - good.length + 1;
    refused_length(&r, &good, &bad);
    bad = eth;
    bad.header_length = 0;
    refused_length(&r, &good, &bad);
    bad.header_length = good.tcp + 12;
    refused_length(&r, &good, &bad);
    bad.header_length = good.length - 4;
    refused_length(&r, &good, &bad);
    bad.header_length = good.length + 4;
    refused_length(&r, &good, &bad);
    bad.header_length = QRNIC_TSO_MAX_HEADER + 1;
    refused_length(&r, &good, &bad);
    l = good;
    l.data = 0;
    refused_length(&r, &l, &eth);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_TX_PACKETS), ==, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_ETH_TX_SEGMENTED), ==, 0);
    rig_stop(&r);
}

static void test_headers_refused(void)
{
    static const struct { uint8_t at, value; } change[] = {
        { 12, 0x88 },           /* Not IP */
        { 14, 0x66 },           /* Version differs from the type */
        { 14, 0x44 },           /* Header too short */
        { 20, 0x20 },           /* Fragment */
        { 23, 17 },             /* UDP */
        { 38 + 12, 0x40 },      /* TCP header too short */
        { 38 + 12, 0xf0 },      /* TCP header too long */
    };
    const Large good = large_make(false, false, 3000);
    QrnicEthSeg eth = eth_of(&good);
    Large l;
    Rig r;

    start(&r, "");
    for (unsigned i = 0; i < ARRAY_SIZE(change); i++) {
        l = good;
        l.header[change[i].at] = change[i].value;
        refused_length(&r, &l, &eth);
    }
    l = large_make(true, false, 3000);
    /* The packet has hop-by-hop options before TCP. */
    l.header[14 + 6] = 0;
    eth = eth_of(&l);
    refused_length(&r, &l, &eth);
    rig_stop(&r);
}

static void test_reserved(void)
{
    const Large l = large_make(false, false, 3000);
    const QrnicEthSeg eth = eth_of(&l);
    const QrnicEthSeg bad[] = {
        { .flags = QRNIC_ETHF_CSUM, .mss = 1 },
        { .header_length = 54 },
        { .flags = QRNIC_ETHF_TSO | QRNIC_ETHF_CSUM, .mss = MSS,
          .header_length = l.length },
        { .flags = QRNIC_ETHF_TSO | QRNIC_ETHF_IP_CSUM, .mss = MSS,
          .header_length = l.length },
    };
    Rig r;

    start(&r, "");
    for (unsigned i = 0; i < ARRAY_SIZE(bad); i++) {
        refused(&r, &l, &bad[i], QRNIC_WC_LOC_QP_OP_ERR,
                QRNIC_SYN_WQE_RESERVED);
    }
    rig_stop(&r);
    start(&r, "cap-eth-tso=off");
    refused(&r, &l, &eth, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_RESERVED);
    rig_stop(&r);
    start(&r, "cap-eth-csum=off");
    refused(&r, &l, &eth, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_RESERVED);
    rig_stop(&r);
}

/*
 * Tests a key that covers only the first frames of a send. These frames are
 * sent before the error.
 */
static void test_key(void)
{
    const Large l = large_make(false, false, 5000);
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);
    QrnicEthSeg eth = eth_of(&l);
    uint8_t got[PEER_FRAME_MAX], want[PEER_FRAME_MAX];
    QrnicCqe cqe;
    Rig r;

    start(&r, "");
    large_write(&r, &l);
    wqe_eth(&w, &eth);
    wqe_data(&w, r.mr.start + 4096 - l.length, l.length + 2500, r.mr.key);
    wqe_data(&w, r.mr.start + 4096 + 2500, 2500, r.mr.key ^ 1);
    sq_post(r.d, &r.qp, &w);
    for (uint32_t offset = 0; offset < 2 * MSS; offset += MSS) {
        size_t len = frame_make(&l, offset, want);

        g_assert_cmpmem(got, wire_receive(r.d, got), want, len);
    }
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_PROT_ERR);
    wire_silent(r.d);
    rig_stop(&r);
}

void add_segment_tests(void)
{
    qtest_add_func("qrnic/segment/ipv4", test_ipv4);
    qtest_add_func("qrnic/segment/ipv6", test_ipv6);
    qtest_add_func("qrnic/segment/tag", test_tag);
    qtest_add_func("qrnic/segment/vlan", test_vlan);
    qtest_add_func("qrnic/segment/one", test_one);
    qtest_add_func("qrnic/segment/backpressure", test_backpressure);
    qtest_add_func("qrnic/segment/reset", test_reset);
    qtest_add_func("qrnic/segment/turns", test_turns);
    qtest_add_func("qrnic/segment/lengths-refused", test_lengths_refused);
    qtest_add_func("qrnic/segment/headers-refused", test_headers_refused);
    qtest_add_func("qrnic/segment/reserved", test_reserved);
    qtest_add_func("qrnic/segment/key", test_key);
}
