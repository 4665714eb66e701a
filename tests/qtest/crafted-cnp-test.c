/*
 * qrnic qtest: crafted congestion notification packets, and ECN marks of
 * packets that are dropped
 *
 * Programmer's Reference, chapter Congestion control.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted.h"

#define CNP 0x81
#define BECN 0x40
#define FECN 0x80
#define CE 3
/* Length of the reserved bytes behind the BTH of a CNP */
#define RESERVED 16
#define IP 14

typedef struct Case {
    const char *rule;
    void (*spoil)(Crafted *c, PeerPacket *p, uint8_t *reserved);
    size_t (*raw)(uint8_t *frame, size_t len);
    const char *counted;
    bool followed;
} Case;

static void no_qp(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->dest_qpn += 7;
}

static void qp_0(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->dest_qpn = 0;
}

static void qp_1(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->dest_qpn = 1;
}

static void multicast_qp(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->dest_qpn = 0xffffff;
}

static void source(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->sip[3] ^= 0x40;
}

/*
 * Changes the destination to another address of the device, which this
 * connection does not use.
 */
static void destination(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    uint8_t gid[16];

    gid_of_ip4(gid, OUR_IP4);
    gid[15] = 99;
    gid_set(c->r.d, 4, gid, -1);
    p->dip[3] = 99;
}

static void vlan(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->vlan = 0;
    p->sip[3] ^= 0x40;
}

static void pkey(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->pkey = 0x1234;
}

static void limited_pkey(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->pkey = 0x7fff;
}

static void no_becn(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->notify = 0;
}

static void fecn(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->notify = FECN;
}

static void becn_and_fecn(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->notify = BECN | FECN;
}

static void psn(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->psn = 1;
}

static void psn_high(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->psn = 0x800000;
}

static void reserved_first(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    reserved[0] = 1;
}

static void reserved_last(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    reserved[RESERVED - 1] = 0x80;
}

static void cut(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->length = RESERVED - 4;
}

static void cut_all(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->length = 0;
}

static void longer(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->length = RESERVED + 4;
}

static void much_longer(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->length = RESERVED + 256;
}

static void padded(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->length = RESERVED - 1;
}

static void version(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->tver = 1;
}

static void opcode_below(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->opcode = CNP - 1;
}

static void opcode_above(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->opcode = CNP + 1;
}

static void operation(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->opcode = CNP | 0x10;
}

static void icrc(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->icrc_flip = 1;
}

static void udp_length(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->udp_length_delta = -4;
}

static void asks(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->ack_request = p->solicited = true;
}

static void marked(Crafted *c, PeerPacket *p, uint8_t *reserved)
{
    p->tos = CE;
}

static size_t cut_on_the_wire(uint8_t *frame, size_t len)
{
    return len - 1;
}

static size_t checksum(uint8_t *frame, size_t len)
{
    frame[IP + 10] ^= 1;
    return len;
}

/* Makes the frame a fragment, which the transport ignores. */
static size_t fragment(uint8_t *frame, size_t len)
{
    uint16_t sum = lduw_be_p(frame + IP + 10);

    frame[IP + 6] = 0x60;       /* More fragments */
    stw_be_p(frame + IP + 10, sum - 0x2000);
    return len;
}

#define DROPPED(why) .counted = "rx_drop_" why
#define IGNORED(why) .counted = "rp_cnp_ignored rx_drop_" why
#define FOLLOWED .counted = "rp_cnp_handled", .followed = true

static const Case cases[] = {
    { "to-no-queue-pair", no_qp, IGNORED("no_qp") },
    { "to-queue-pair-0", qp_0, IGNORED("no_qp") },
    { "to-queue-pair-1", qp_1, IGNORED("no_qp") },
    { "to-the-multicast-queue-pair", multicast_qp, IGNORED("no_qp") },
    { "of-another-source", source, IGNORED("address") },
    { "to-another-address", destination, IGNORED("address") },
    { "of-another-source-in-vlan-0", vlan, IGNORED("address") },
    { "wrong-pkey", pkey, IGNORED("pkey") },
    { "limited-pkey-is-followed", limited_pkey, FOLLOWED },
    { "without-becn", no_becn, IGNORED("malformed") },
    { "fecn-for-becn", fecn, IGNORED("malformed") },
    { "becn-and-fecn-is-followed", becn_and_fecn, FOLLOWED },
    { "psn-1", psn, IGNORED("malformed") },
    { "psn-with-top-bit", psn_high, IGNORED("malformed") },
    { "first-reserved-byte", reserved_first, IGNORED("malformed") },
    { "last-reserved-byte", reserved_last, IGNORED("malformed") },
    { "truncated", cut, DROPPED("malformed") },
    { "truncated-to-its-bth", cut_all, DROPPED("malformed") },
    { "too-long", longer, DROPPED("malformed") },
    { "much-too-long", much_longer, DROPPED("malformed") },
    { "padded", padded, DROPPED("malformed") },
    { "of-another-transport-version", version, DROPPED("malformed") },
    { "opcode-below", opcode_below, DROPPED("opcode") },
    { "opcode-above", opcode_above, DROPPED("opcode") },
    { "opcode-of-another-operation", operation, DROPPED("opcode") },
    { "wrong-icrc", icrc, DROPPED("icrc") },
    { "udp-shorter-than-ip", udp_length, DROPPED("malformed") },
    { "cut-on-the-wire", .raw = cut_on_the_wire, DROPPED("malformed") },
    { "wrong-ip-checksum", .raw = checksum, DROPPED("malformed") },
    { "fragment-is-not-for-the-transport", .raw = fragment, .counted = "" },
    { "asks-and-is-not-answered", asks, FOLLOWED },
    { "marked-and-is-not-answered", marked, FOLLOWED },
};

static void congestion_set(Crafted *c, uint8_t flags)
{
    uint8_t raw[QRNIC_CONGESTION_CTX_BYTES];
    QrnicCongestionCtx ctx;

    command_ok(c->r.d, QRNIC_CMD_QUERY_CONGESTION, 0, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_congestion_ctx_unpack(&ctx, raw));
    ctx.flags |= flags;
    ctx.rp_rate_to_set_on_first_cnp = 1;        /* Mbit/s */
    ctx.rp_time_reset = 131071;
    qrnic_congestion_ctx_pack(raw, &ctx);
    command_ok(c->r.d, QRNIC_CMD_SET_CONGESTION, 0, raw, sizeof(raw), NULL, 0);
}

static void start(Crafted *c)
{
    crafted_start(c, "", NULL);
    congestion_set(c, QRNIC_CONGESTION_NP | QRNIC_CONGESTION_RP);
}

static PeerPacket honest(Crafted *c, uint8_t *reserved)
{
    PeerPacket p = crafted_packet(c, CNP, 0);

    memset(reserved, 0, RESERVED + 256);
    p.notify = BECN;
    p.payload = reserved;
    p.length = RESERVED;
    return p;
}

static void write_post(Crafted *c)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, 0x4000, 77);
    wqe_data(&w, c->mr.start, 1000, c->mr.key);
    sq_post(c->r.d, &c->r.qp, &w);
}

/* Posts two writes of 1,000 bytes. At 1 Mbit/s the second one waits. */
static void expect_slow(Crafted *c, uint32_t psn, bool slow)
{
    write_post(c);
    peer_expect(c->r.d, RC_WRITE_ONLY, psn);
    write_post(c);
    if (slow) {
        counter_wait(c->r.d, QRNIC_COUNTER_RATE_WAITS, 1);
        wire_silent(c->r.d);
        clock_step(c->r.d, 9 * SCALE_MS);
    }
    peer_expect(c->r.d, RC_WRITE_ONLY, psn + 1);
    if (!slow) {
        g_assert_cmpuint(counter(c->r.d, QRNIC_COUNTER_RATE_WAITS), ==, 0);
    }
    peer_ack(c->r.d, &c->r.qp, psn + 1, AETH_ACK | 31, 0);
    for (unsigned i = 0; i < 2; i++) {
        rig_sent(&c->r, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE, QRNIC_SYN_NONE);
    }
    crafted_quiet(c);
    crafted_counted(c, "tx_write=2 rx_ack");
}

static void come(Crafted *c, const PeerPacket *p, const Case *k)
{
    uint8_t frame[PEER_FRAME_MAX];
    size_t len = peer_encode(p, frame);

    if (k->raw) {
        len = k->raw(frame, len);
    }
    wire_send(c->r.d, frame, len);
    crafted_counted(c, k->counted);
    crafted_quiet(c);
}

static void test_cnp(const void *opaque)
{
    const Case *k = opaque;
    uint8_t reserved[RESERVED + 256];
    PeerPacket p, good;
    Crafted c;

    start(&c);
    good = p = honest(&c, reserved);
    if (k->spoil) {
        k->spoil(&c, &p, reserved);
    }
    come(&c, &p, k);
    expect_slow(&c, SQ_PSN, k->followed);
    if (!k->followed) {
        /* A valid CNP still works after the invalid one. */
        memset(reserved, 0, sizeof(reserved));
        peer_send(c.r.d, &good);
        crafted_counted(&c, "rp_cnp_handled");
        expect_slow(&c, SQ_PSN + 2, true);
    }
    crafted_honest(&c, RQ_PSN, 0);
    crafted_stop(&c);
}

/* CNPs to a queue pair that does not send */
static void test_states(void)
{
    static const uint8_t states[] = {
        QRNIC_QPS_RESET, QRNIC_QPS_INIT, QRNIC_QPS_ERR,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(states); i++) {
        const Case k = { .counted = "rp_cnp_ignored rx_drop_qp_state" };
        QrnicQpAttr to = {
            .mask = QRNIC_QP_STATE,
            .state = states[i] == QRNIC_QPS_ERR ? states[i] : QRNIC_QPS_RESET,
        };
        uint8_t reserved[RESERVED + 256];
        PeerPacket p;
        Crafted c;

        start(&c);
        qp_modify(c.r.d, &c.r.qp, &to);
        if (states[i] == QRNIC_QPS_INIT) {
            to = (QrnicQpAttr) {
                .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                        QRNIC_QP_ACCESS_FLAGS,
                .state = QRNIC_QPS_INIT, .port = 1,
            };
            qp_modify(c.r.d, &c.r.qp, &to);
        }
        p = honest(&c, reserved);
        come(&c, &p, &k);
        crafted_state(&c, states[i]);
        crafted_stop(&c);
    }
}

/* Datagrams have no rate limit. */
static void test_datagram(void)
{
    const Case k = { .counted = "rp_cnp_ignored rx_drop_opcode" };
    uint8_t reserved[RESERVED + 256];
    PeerPacket p;
    Crafted c;
    Qp qp;

    start(&c);
    qp_create(c.r.d, &qp, QRNIC_QPT_UD, c.r.pd, c.r.page, &c.r.send_cq,
              &c.r.recv_cq, 4, 4, 0);
    qp_start_datagram(c.r.d, &qp, 1);
    p = honest(&c, reserved);
    p.dest_qpn = qp.number;
    come(&c, &p, &k);
    expect_slow(&c, SQ_PSN, false);
    crafted_stop(&c);
}

/* Tests that the device ignores CNPs while the reaction point is off. */
static void test_off(void)
{
    const Case k = { .counted = "rp_cnp_ignored" };
    uint8_t reserved[RESERVED + 256];
    PeerPacket p;
    Crafted c;

    crafted_start(&c, "", NULL);
    congestion_set(&c, QRNIC_CONGESTION_NP);
    p = honest(&c, reserved);
    come(&c, &p, &k);
    expect_slow(&c, SQ_PSN, false);
    crafted_stop(&c);
}

static void test_without_capability(void)
{
    const Case k = { .counted = "rx_drop_opcode" };
    uint8_t reserved[RESERVED + 256];
    PeerPacket p;
    Crafted c;

    crafted_start(&c, "cap-congestion-control=off", NULL);
    p = honest(&c, reserved);
    come(&c, &p, &k);
    expect_slow(&c, SQ_PSN, false);
    crafted_stop(&c);
}

/*
 * Tests that replayed CNPs cannot lower the rate below its minimum or stop
 * other connections.
 */
static void test_replayed(void)
{
    uint8_t reserved[RESERVED + 256];
    PeerPacket p;
    Crafted c;

    start(&c);
    p = honest(&c, reserved);
    for (unsigned i = 0; i < 500; i++) {
        peer_send(c.r.d, &p);
        if (i % 100 == 0) {
            settle(c.r.d);
        }
    }
    crafted_counted(&c, "rp_cnp_handled=500");
    crafted_quiet(&c);
    expect_slow(&c, SQ_PSN, true);
    crafted_honest(&c, RQ_PSN, 0);
    crafted_stop(&c);
}

/* A dropped packet causes no CNP, because its sender is not verified. */
typedef struct Mark {
    const char *rule;
    void (*spoil)(Crafted *c, PeerPacket *p, uint8_t *reserved);
    const char *counted;
} Mark;

static const Mark marks[] = {
    { "mark-of-another-source", source, "rx_drop_address" },
    { "mark-under-a-wrong-icrc", icrc, "rx_drop_icrc" },
    { "mark-under-a-wrong-pkey", pkey, "rx_drop_pkey" },
    { "mark-to-no-queue-pair", no_qp, "rx_drop_no_qp" },
    { "mark-of-a-reserved-opcode", operation, "rx_drop_opcode" },
};

static void test_mark(const void *opaque)
{
    const Mark *k = opaque;
    uint8_t data[8] = { 1 };
    PeerPacket p;
    Crafted c;

    start(&c);
    p = crafted_packet(&c, RC_WRITE_ONLY, RQ_PSN);
    p.tos = CE;
    p.va = c.mr.start;
    p.rkey = c.mr.key;
    p.dma_length = p.length = sizeof(data);
    p.payload = data;
    k->spoil(&c, &p, data);
    peer_send(c.r.d, &p);
    crafted_counted(&c, k->counted);
    crafted_quiet(&c);
    crafted_honest(&c, RQ_PSN, 0);
    crafted_stop(&c);
}

void add_crafted_cnp_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/cnp/%s",
                                                cases[i].rule);

        qtest_add_data_func(path, &cases[i], test_cnp);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(marks); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/cnp/%s",
                                                marks[i].rule);

        qtest_add_data_func(path, &marks[i], test_mark);
    }
    qtest_add_func("qrnic/crafted/cnp/in-other-states", test_states);
    qtest_add_func("qrnic/crafted/cnp/to-a-queue-pair-of-datagrams",
                   test_datagram);
    qtest_add_func("qrnic/crafted/cnp/where-it-is-off", test_off);
    qtest_add_func("qrnic/crafted/cnp/without-capability",
                   test_without_capability);
    qtest_add_func("qrnic/crafted/cnp/replayed-without-end", test_replayed);
}
