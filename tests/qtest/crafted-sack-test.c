/*
 * qrnic qtest: crafted SACKs
 *
 * Programmer's Reference, chapter Selective repeat.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted.h"

#define MTU CRAFTED_MTU
#define TOLD 40                 /* Bytes of a SACK behind its AETH */
#define WRITES 3                /* Two packets each */
#define SENT (2 * WRITES)

typedef struct Sack {
    const char *rule;
    int32_t psn, missing;       /* Relative to the first PSN */
    uint8_t arrived[2];
    uint8_t syndrome;           /* 0: an ACK */
    int32_t latest;
    uint8_t latest_transmission;
    void (*spoil)(PeerPacket *p, uint8_t *told);
    const char *counted;
    uint8_t again;              /* Retransmitted packets, one bit each */
    unsigned completed;         /* Completed writes */
} Sack;

static void icrc(PeerPacket *p, uint8_t *told)
{
    p->icrc_flip = 0x80000000;
}

static void pkey(PeerPacket *p, uint8_t *told)
{
    p->pkey = 0x1234;
}

static void source(PeerPacket *p, uint8_t *told)
{
    p->sip[3] ^= 0x40;
}

static void vlan(PeerPacket *p, uint8_t *told)
{
    p->vlan = 0;
    p->sip[0] ^= 0x40;
}

static void qpn(PeerPacket *p, uint8_t *told)
{
    p->dest_qpn += 7;
}

static void udp_length(PeerPacket *p, uint8_t *told)
{
    p->udp_length_delta = -4;
}

static void version(PeerPacket *p, uint8_t *told)
{
    p->tver = 1;
}

static void cut(PeerPacket *p, uint8_t *told)
{
    p->length = TOLD - 4;
}

static void cut_all(PeerPacket *p, uint8_t *told)
{
    p->length = 0;
}

static void longer(PeerPacket *p, uint8_t *told)
{
    p->length = TOLD + 4;
}

static void pad(PeerPacket *p, uint8_t *told)
{
    p->length = TOLD - 3;       /* Adds 3 pad bytes */
}

static void reserved(PeerPacket *p, uint8_t *told)
{
    told[0] = 0xff;
    told[4] |= 0xf8;
}

static void xrc(PeerPacket *p, uint8_t *told)
{
    p->opcode = XRC(RC_SACK);
}

static void uc(PeerPacket *p, uint8_t *told)
{
    p->opcode = 0x20 | RC_SACK;
}

static void dynamic(PeerPacket *p, uint8_t *told)
{
    p->opcode = DC(RC_SACK);
}

static void unmarked(PeerPacket *p, uint8_t *told)
{
    p->mark = 0;
}

static void other_marks(PeerPacket *p, uint8_t *told)
{
    p->mark = 0x7f;
}

#define OF_OLDEST .psn = -1, .missing = 0, .arrived = { 0x7c }
#define DROPPED(why) .counted = "rx_drop_" why

static const Sack sacks[] = {
    { "acknowledges-what-was-not-sent", SENT, SENT + 1, DROPPED("psn") },
    { "acknowledges-far-ahead", 0x500000, 0x500001, { 0x7f }, DROPPED("psn") },
    { "acknowledges-what-was-long-ago", -100, -99, { 0x7f }, DROPPED("psn") },
    { "misses-what-was-not-sent", -1, SENT, { 0x7f },
      .counted = "rx_sack rx_drop_psn" },
    { "misses-what-it-acknowledges", 3, 1, { 0x7f }, DROPPED("psn") },
    { "misses-what-is-far-ahead", -1, 0x7ffff0, { 0x7f },
      .counted = "rx_sack rx_drop_psn" },
    { "is-a-nak-of-a-sequence-error", 1, 2, { 0x40 }, 0x60, DROPPED("psn") },
    { "is-a-nak-of-remote-access", 1, 2, { 0x40 }, 0x62, DROPPED("psn") },
    { "is-an-rnr-nak", 1, 2, { 0x40 }, 0x21, DROPPED("psn") },
    { "is-of-a-reserved-kind", 1, 2, { 0x40 }, 0x40, DROPPED("psn") },
    { "is-of-a-reserved-kind-with-top-bit", 1, 2, { 0x40 }, 0xe0,
      DROPPED("psn") },
    { "tells-of-nothing", -1, 0, .counted = "rx_sack" },
    { "tells-of-what-was-not-sent-only", -1, 0, { 0x03, 0xff },
      .counted = "rx_sack" },
    { "tells-of-more-than-was-sent", -1, 0, { 0x7f, 0xff },
      .counted = "rx_sack retransmissions", .again = 0x01 },
    { "tells-of-the-missing-one", -1, 0, { 0xfc },
      .counted = "rx_sack retransmissions", .again = 0x01 },
    { "tells-of-all-and-completes-nothing", -1, 0, { 0xff, 0xff },
      .counted = "rx_sack retransmissions", .again = 0x01 },
    { "tells-of-every-other", -1, 0, { 0x54 },
      .counted = "rx_sack retransmissions=3", .again = 0x15 },
    { "misses-behind-what-is-not-acknowledged", 1, 3, { 0x60 },
      .counted = "rx_sack retransmissions", .again = 0x08, .completed = 1 },
    { "names-what-was-not-sent", -1, 0, .latest = SENT + 3,
      .counted = "rx_sack" },
    { "names-what-was-acknowledged", -1, 0, .latest = -5,
      .counted = "rx_sack" },
    { "names-a-transmission-that-was-not", -1, 0, .latest = 3,
      .latest_transmission = 5, .counted = "rx_sack retransmissions=3",
      .again = 0x07 },
    { "reserved-bits-are-ignored", OF_OLDEST, .spoil = reserved,
      .counted = "rx_sack retransmissions", .again = 0x01 },
    { "unmarked-is-taken", OF_OLDEST, .spoil = unmarked,
      .counted = "rx_sack retransmissions", .again = 0x01 },
    { "other-marks-are-ignored", OF_OLDEST, .spoil = other_marks,
      .counted = "rx_sack retransmissions", .again = 0x01 },
    { "truncated", OF_OLDEST, .spoil = cut, DROPPED("malformed") },
    { "truncated-to-its-aeth", OF_OLDEST, .spoil = cut_all,
      DROPPED("malformed") },
    { "too-long", OF_OLDEST, .spoil = longer, DROPPED("malformed") },
    { "padded", OF_OLDEST, .spoil = pad, DROPPED("malformed") },
    { "udp-shorter-than-ip", OF_OLDEST, .spoil = udp_length,
      DROPPED("malformed") },
    { "of-another-transport-version", OF_OLDEST, .spoil = version,
      DROPPED("malformed") },
    { "wrong-icrc", OF_OLDEST, .spoil = icrc, DROPPED("icrc") },
    { "wrong-pkey", OF_OLDEST, .spoil = pkey, DROPPED("pkey") },
    { "of-another-source", OF_OLDEST, .spoil = source, DROPPED("address") },
    { "of-another-source-in-vlan-0", OF_OLDEST, .spoil = vlan,
      DROPPED("address") },
    { "to-a-queue-pair-of-nobody", OF_OLDEST, .spoil = qpn, DROPPED("no_qp") },
    { "of-xrc", OF_OLDEST, .spoil = xrc, DROPPED("opcode") },
    { "of-unreliable-connections", OF_OLDEST, .spoil = uc, DROPPED("opcode") },
    { "of-dynamic-connections", OF_OLDEST, .spoil = dynamic,
      DROPPED("opcode") },
};

static void put24(uint8_t *p, uint32_t value)
{
    p[0] = value >> 16;
    p[1] = value >> 8;
    p[2] = value;
}

static PeerPacket sack_of(Crafted *c, const Sack *k, uint8_t *told)
{
    PeerPacket p = crafted_packet(c, RC_SACK, SQ_PSN + k->psn);

    memset(told, 0, TOLD + 4);
    put24(told + 1, SQ_PSN + k->missing);
    told[4] = k->latest_transmission;
    put24(told + 5, SQ_PSN + k->latest);
    memcpy(told + 8, k->arrived, 2);
    p.mark |= MARK_SELECTIVE;
    p.syndrome = k->syndrome ? k->syndrome : AETH_ACK | 31;
    p.payload = told;
    p.length = TOLD;
    if (k->spoil) {
        k->spoil(&p, told);
    }
    return p;
}

static void start(Crafted *c, uint8_t options)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.options = options;
    crafted_start(c, "", &attr);
}

static void post(Crafted *c, uint8_t opcode, uint32_t length)
{
    Wqe w = wqe_begin(opcode, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, 0x5000, 0x77);
    wqe_data(&w, c->mr.start, length, c->mr.key);
    sq_post(c->r.d, &c->r.qp, &w);
}

static PeerPacket expect(Crafted *c, uint8_t opcode, uint32_t psn)
{
    PeerPacket p = crafted_answer(c);

    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn);
    return p;
}

static void writes_send(Crafted *c)
{
    for (unsigned i = 0; i < WRITES; i++) {
        post(c, QRNIC_WQE_RDMA_WRITE, 2 * MTU);
        expect(c, RC_WRITE_FIRST, SQ_PSN + 2 * i);
        expect(c, RC_WRITE_LAST, SQ_PSN + 2 * i + 1);
    }
    crafted_counted(c, "tx_write=3");
}

static void completed(Crafted *c, unsigned count, uint8_t opcode)
{
    for (unsigned i = 0; i < count; i++) {
        rig_sent(&c->r, QRNIC_WC_SUCCESS, opcode, QRNIC_SYN_NONE);
    }
    crafted_quiet(c);
}

/* Sends an ACK of all packets, then tests one more message. */
static void goes_on(Crafted *c, uint32_t psn, unsigned left, uint8_t opcode)
{
    peer_ack(c->r.d, &c->r.qp, psn - 1, AETH_ACK | 31, 0);
    completed(c, left, opcode);
    post(c, QRNIC_WQE_RDMA_WRITE, 8);
    g_assert_cmphex(expect(c, RC_WRITE_ONLY, psn).mark >> 4, ==, 0);
    peer_ack(c->r.d, &c->r.qp, psn, AETH_ACK | 31, 0);
    completed(c, 1, QRNIC_WQE_RDMA_WRITE);
    crafted_state(c, QRNIC_QPS_RTS);
    crafted_stop(c);
}

static void expect_again(Crafted *c, uint8_t again, unsigned transmission)
{
    for (unsigned i = 0; i < SENT; i++) {
        if (again >> i & 1) {
            PeerPacket p = expect(c, i % 2 ? RC_WRITE_LAST : RC_WRITE_FIRST,
                                  SQ_PSN + i);

            g_assert_cmpuint(p.mark >> 4, ==, transmission);
            g_assert_true(p.ack_request);
        }
    }
    wire_silent(c->r.d);
}

static void test_sack(const void *opaque)
{
    const Sack *k = opaque;
    uint8_t told[TOLD + 4];
    PeerPacket p;
    Crafted c;

    start(&c, QRNIC_QPO_SELECTIVE_REPEAT);
    writes_send(&c);
    p = sack_of(&c, k, told);
    peer_send(c.r.d, &p);
    crafted_counted(&c, k->counted);
    expect_again(&c, k->again, 1);
    completed(&c, k->completed, QRNIC_WQE_RDMA_WRITE);
    goes_on(&c, SQ_PSN + SENT, WRITES - k->completed, QRNIC_WQE_RDMA_WRITE);
}

/* Tests that a repeated SACK does not retransmit packets again. */
static void test_replayed(void)
{
    const Sack k = { OF_OLDEST };
    uint8_t told[TOLD + 4];
    PeerPacket p;
    Crafted c;

    start(&c, QRNIC_QPO_SELECTIVE_REPEAT);
    writes_send(&c);
    p = sack_of(&c, &k, told);
    peer_send(c.r.d, &p);
    crafted_counted(&c, "rx_sack retransmissions");
    expect_again(&c, 0x01, 1);
    for (unsigned i = 0; i < 20; i++) {
        peer_send(c.r.d, &p);
        crafted_counted(&c, "rx_sack");
    }
    completed(&c, 0, 0);
    goes_on(&c, SQ_PSN + SENT, WRITES, QRNIC_WQE_RDMA_WRITE);
}

/* Tests a SACK that was sent before an ACK but arrives after it. */
static void test_stale(void)
{
    const Sack k = { OF_OLDEST };
    uint8_t told[TOLD + 4];
    PeerPacket p;
    Crafted c;

    start(&c, QRNIC_QPO_SELECTIVE_REPEAT);
    writes_send(&c);
    peer_ack(c.r.d, &c.r.qp, SQ_PSN + 3, AETH_ACK | 31, 2);
    completed(&c, 2, QRNIC_WQE_RDMA_WRITE);
    crafted_counted(&c, "rx_ack");
    p = sack_of(&c, &k, told);
    peer_send(c.r.d, &p);
    crafted_counted(&c, "rx_drop_psn");
    completed(&c, 0, 0);
    goes_on(&c, SQ_PSN + SENT, 1, QRNIC_WQE_RDMA_WRITE);
}

static void test_before_anything(void)
{
    const Sack k = { OF_OLDEST };
    uint8_t told[TOLD + 4];
    PeerPacket p;
    Crafted c;

    start(&c, QRNIC_QPO_SELECTIVE_REPEAT);
    p = sack_of(&c, &k, told);
    peer_send(c.r.d, &p);
    crafted_counted(&c, "rx_sack rx_drop_psn");
    completed(&c, 0, 0);
    writes_send(&c);
    goes_on(&c, SQ_PSN + SENT, WRITES, QRNIC_WQE_RDMA_WRITE);
}

static void test_without_option(void)
{
    const Sack k = { .psn = 1, .missing = 2, .arrived = { 0x40 } };
    uint8_t told[TOLD + 4];
    PeerPacket p;
    Crafted c;

    start(&c, 0);
    writes_send(&c);
    p = sack_of(&c, &k, told);
    peer_send(c.r.d, &p);
    crafted_counted(&c, "rx_drop_psn");
    completed(&c, 0, 0);
    goes_on(&c, SQ_PSN + SENT, WRITES, QRNIC_WQE_RDMA_WRITE);
}

/*
 * Tests that a SACK cannot complete a read, because the data has not arrived.
 */
static void test_of_read(void)
{
    const Sack k = { .psn = 3, .missing = 4, .arrived = { 0x7f } };
    uint8_t told[TOLD + 4], data[2 * MTU];
    PeerPacket p;
    Crafted c;

    start(&c, QRNIC_QPO_SELECTIVE_REPEAT);
    post(&c, QRNIC_WQE_RDMA_READ, 2 * MTU);
    expect(&c, RC_READ_REQUEST, SQ_PSN);
    crafted_counted(&c, "tx_read");
    p = sack_of(&c, &k, told);
    peer_send(c.r.d, &p);
    crafted_counted(&c, "rx_drop_psn");
    put24(told + 1, SQ_PSN + 1);
    /* The missing PSN is inside the read, whose response was lost. */
    p.psn = SQ_PSN;
    peer_send(c.r.d, &p);
    crafted_counted(&c, "rx_sack implied_nak retransmissions");
    g_assert_cmphex(expect(&c, RC_READ_REQUEST, SQ_PSN).mark >> 4, ==, 1);
    completed(&c, 0, 0);
    memset(data, 0x77, sizeof(data));
    for (unsigned i = 0; i < 2; i++) {
        p = crafted_packet(&c, i ? RC_READ_LAST : RC_READ_FIRST, SQ_PSN + i);
        p.mark |= MARK_AGAIN(1);
        p.syndrome = AETH_ACK | 31;
        p.payload = data;
        p.length = MTU;
        peer_send(c.r.d, &p);
    }
    crafted_wrote(&c, 0, 0x77, 2 * MTU);
    completed(&c, 1, QRNIC_WQE_RDMA_READ);
    goes_on(&c, SQ_PSN + 2, 0, 0);
}

/* Tests a SACK in states without outstanding packets. */
static void test_states(void)
{
    static const uint8_t states[] = {
        QRNIC_QPS_RTR, QRNIC_QPS_ERR, QRNIC_QPS_RESET,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(states); i++) {
        const Sack k = { OF_OLDEST };
        QrnicQpAttr attr = qp_default_attr();
        QrnicQpAttr to = {
            .mask = QRNIC_QP_STATE, .state = states[i] == QRNIC_QPS_ERR ?
                                             QRNIC_QPS_ERR : QRNIC_QPS_RESET,
        };
        uint8_t told[TOLD + 4];
        PeerPacket p;
        Crafted c;

        start(&c, QRNIC_QPO_SELECTIVE_REPEAT);
        attr.options = QRNIC_QPO_SELECTIVE_REPEAT;
        qp_modify(c.r.d, &c.r.qp, &to);
        if (states[i] == QRNIC_QPS_RTR) {
            qp_to_rtr(c.r.d, &c.r.qp, &attr);
        }
        p = sack_of(&c, &k, told);
        peer_send(c.r.d, &p);
        crafted_counted(&c, "rx_drop_qp_state");
        crafted_quiet(&c);
        crafted_state(&c, states[i]);
        crafted_stop(&c);
    }
}

void add_crafted_sack_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(sacks); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/sack/%s",
                                                sacks[i].rule);

        qtest_add_data_func(path, &sacks[i], test_sack);
    }
    qtest_add_func("qrnic/crafted/sack/replayed-sends-nothing-again",
                   test_replayed);
    qtest_add_func("qrnic/crafted/sack/stale", test_stale);
    qtest_add_func("qrnic/crafted/sack/before-anything-was-sent",
                   test_before_anything);
    qtest_add_func("qrnic/crafted/sack/to-who-has-not-the-option",
                   test_without_option);
    qtest_add_func("qrnic/crafted/sack/acknowledges-a-read-without-response",
                   test_of_read);
    qtest_add_func("qrnic/crafted/sack/in-other-states", test_states);
}
