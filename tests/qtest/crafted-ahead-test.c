/*
 * qrnic qtest: crafted requests to connections with selective repeat or
 * adaptive routing, out of order and with the expected PSN
 *
 * Each case sends one crafted packet ahead of the expected PSN, and then the
 * missing packets. The case asserts the immediate response and the result of
 * the execution. Programmer's Reference, chapters Selective repeat and Adaptive
 * routing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted.h"

#define MTU CRAFTED_MTU
/* Marks of a packet that the device may place on arrival */
#define PLACED (MARK_PLACES | MARK_ALONE)
#define PLACED_MORE (PLACED | MARK_MORE)

typedef enum Key {
    KEY_RIGHT, KEY_WRONG_INDEX, KEY_WRONG_VARIANT, KEY_OTHER_PD, KEY_READ_ONLY,
} Key;

/* Result of the packet's execution, once its PSN is the expected one */
typedef enum Fate {
    EXECUTED,
    LOST,                       /* Dropped; a correct peer retransmits it */
    INVALID, ACCESS,            /* Rejected with a NAK */
    NOT_READY,                  /* RNR NAK, because no receive WQE is posted */
    STALE,                      /* Acknowledged as a duplicate */
} Fate;

typedef struct Case {
    const char *rule;
    uint8_t opcode, mark;
    int32_t ahead;              /* PSNs ahead of the expected one */
    /* Length of the payload, and length in the RETH */
    uint32_t length, announced;
    Key key;
    int64_t offset;             /* Offset from the start of the region */
    uint64_t compare;
    void (*spoil)(PeerPacket *p);
    const char *counted;        /* Counters that change on arrival */
    /* Response on arrival: RC_SACK; RC_ACK means a NAK */
    uint8_t told;
    bool placed;                /* Placed on arrival, not when executed */
    Fate fate;
} Case;

static void icrc(PeerPacket *p)
{
    p->icrc_flip = 1;
}

static void pkey(PeerPacket *p)
{
    p->pkey = 0x1234;
}

static void source(PeerPacket *p)
{
    p->sip[3] ^= 0x40;
}

static void vlan(PeerPacket *p)
{
    p->vlan = 0;
    p->sip[3] ^= 0x40;
}

static void qpn(PeerPacket *p)
{
    p->dest_qpn += 7;
}

static void udp_length(PeerPacket *p)
{
    p->udp_length_delta = -4;
}

static void version(PeerPacket *p)
{
    p->tver = 1;
}

#define KEPT .counted = "tx_sack buffered_packets out_of_sequence", \
             .told = RC_SACK
#define REFUSED_AHEAD \
    .counted = "tx_nak_sequence out_of_sequence", .told = RC_ACK, .fate = LOST
#define DROPPED(why) .counted = "rx_drop_" why, .fate = LOST
#define AHEAD .mark = MARK_SELECTIVE, .ahead = 2
#define WRITE .opcode = RC_WRITE_ONLY, .length = MTU, .announced = MTU

static const Case selective[] = {
    { "unmarked-is-not-kept", WRITE, .mark = 0, .ahead = 2, REFUSED_AHEAD },
    { "mark-of-another-option-is-not-kept", WRITE, .mark = PLACED, .ahead = 2,
      REFUSED_AHEAD },
    { "last-of-the-window-is-kept", WRITE, .mark = MARK_SELECTIVE,
      .ahead = 255, KEPT },
    { "beyond-the-window-is-not-kept", WRITE, .mark = MARK_SELECTIVE,
      .ahead = 256, REFUSED_AHEAD },
    { "ahead-by-half-of-the-psns-is-not-kept", WRITE, .mark = MARK_SELECTIVE,
      .ahead = 0x7fffff, REFUSED_AHEAD },
    { "behind-by-half-of-the-psns-is-stale", WRITE, .mark = MARK_SELECTIVE,
      .ahead = -0x800000, .counted = "tx_ack duplicate_requests",
      .fate = STALE },
    { "of-long-ago-is-stale", WRITE, .mark = MARK_SELECTIVE, .ahead = -1,
      .counted = "tx_ack duplicate_requests", .fate = STALE },
    { "key-of-nobody", WRITE, AHEAD, .key = KEY_WRONG_INDEX, KEPT,
      .fate = ACCESS },
    { "key-of-another-variant", WRITE, AHEAD, .key = KEY_WRONG_VARIANT, KEPT,
      .fate = ACCESS },
    { "key-of-another-pd", WRITE, AHEAD, .key = KEY_OTHER_PD, KEPT,
      .fate = ACCESS },
    { "key-without-the-right", WRITE, AHEAD, .key = KEY_READ_ONLY, KEPT,
      .fate = ACCESS },
    { "end-beyond-the-region", WRITE, AHEAD, .offset = CRAFTED_BYTES - MTU + 1,
      KEPT, .fate = ACCESS },
    { "begin-before-the-region", WRITE, AHEAD, .offset = -1, KEPT,
      .fate = ACCESS },
    { "address-that-wraps", WRITE, AHEAD, .offset = -(int64_t)CRAFTED_START - 8,
      KEPT, .fate = ACCESS },
    { "longer-than-announced", .opcode = RC_WRITE_ONLY, AHEAD, .length = MTU,
      .announced = 8, KEPT, .fate = INVALID },
    { "shorter-than-announced", .opcode = RC_WRITE_ONLY, AHEAD, .length = MTU,
      .announced = 2 * MTU, KEPT, .fate = INVALID },
    { "longer-than-the-mtu", .opcode = RC_WRITE_ONLY, AHEAD, .length = 2 * MTU,
      .announced = 2 * MTU, KEPT, .fate = INVALID },
    { "longer-than-a-message", .opcode = RC_WRITE_FIRST, AHEAD, .length = MTU,
      .announced = 0x80000001, KEPT, .fate = INVALID },
    { "first-shorter-than-the-mtu", .opcode = RC_WRITE_FIRST, AHEAD,
      .length = MTU - 4, .announced = 2 * MTU, KEPT, .fate = INVALID },
    { "middle-without-first", .opcode = RC_WRITE_MIDDLE, AHEAD, .length = MTU,
      KEPT, .fate = INVALID },
    { "last-without-first", .opcode = RC_WRITE_LAST, AHEAD, .length = 8, KEPT,
      .fate = INVALID },
    { "send-middle-without-first", .opcode = RC_SEND_MIDDLE, AHEAD,
      .length = MTU, KEPT, .fate = INVALID },
    { "send-without-receive-wqe", .opcode = RC_SEND_ONLY, AHEAD, .length = 64,
      KEPT, .fate = NOT_READY },
    { "immediate-without-receive-wqe", .opcode = RC_WRITE_ONLY_IMM, AHEAD,
      .length = 64, .announced = 64, KEPT, .fate = NOT_READY },
    { "read-with-key-of-nobody", .opcode = RC_READ_REQUEST, AHEAD,
      .announced = 64, .key = KEY_WRONG_INDEX, KEPT, .fate = ACCESS },
    { "read-longer-than-a-message", .opcode = RC_READ_REQUEST, AHEAD,
      .announced = 0x80000001, KEPT, .fate = INVALID },
    { "atomic-not-aligned", .opcode = RC_FETCH_ADD, AHEAD, .offset = 4, KEPT,
      .fate = INVALID },
    { "atomic-with-key-without-the-right", .opcode = RC_FETCH_ADD, AHEAD,
      .key = KEY_READ_ONLY, KEPT, .fate = ACCESS },
    { "wrong-icrc", WRITE, AHEAD, .spoil = icrc, DROPPED("icrc") },
    { "wrong-pkey", WRITE, AHEAD, .spoil = pkey, DROPPED("pkey") },
    { "of-another-source", WRITE, AHEAD, .spoil = source, DROPPED("address") },
    { "of-another-source-in-vlan-0", WRITE, AHEAD, .spoil = vlan,
      DROPPED("address") },
    { "to-a-queue-pair-of-nobody", WRITE, AHEAD, .spoil = qpn,
      DROPPED("no_qp") },
    { "udp-shorter-than-ip", WRITE, AHEAD, .spoil = udp_length,
      DROPPED("malformed") },
    { "of-another-transport-version", WRITE, AHEAD, .spoil = version,
      DROPPED("malformed") },
    { "of-another-service", .opcode = UC_WRITE_ONLY, AHEAD, .length = MTU,
      .announced = MTU, DROPPED("opcode") },
    { "of-a-reserved-opcode", .opcode = 0x1e, AHEAD, DROPPED("opcode") },
    { "response-to-nothing", .opcode = RC_READ_ONLY, AHEAD, .length = 64,
      DROPPED("psn") },
};

#undef KEPT
#undef AHEAD
#define KEPT .counted = "buffered_packets out_of_sequence"
#define AT_ONCE .counted = "placed_packets out_of_sequence", .placed = true
#define AHEAD .mark = PLACED, .ahead = 2
#define NOW .mark = PLACED, .ahead = 0
#define REFUSED .counted = "tx_nak_error", .told = RC_ACK

static const Case adaptive[] = {
    { "right-is-placed-at-once", WRITE, AHEAD, AT_ONCE },
    { "immediate-is-placed-and-not-completed", .opcode = RC_WRITE_ONLY_IMM,
      AHEAD, .length = MTU, .announced = MTU, AT_ONCE, .fate = NOT_READY },
    { "empty-is-placed", .opcode = RC_WRITE_ONLY, AHEAD,
      .counted = "placed_packets out_of_sequence" },
    { "last-of-the-window-is-placed", WRITE, .mark = PLACED, .ahead = 255,
      AT_ONCE },
    { "beyond-the-window-is-not-placed", WRITE, .mark = PLACED, .ahead = 256,
      REFUSED_AHEAD },
    { "ahead-by-half-of-the-psns-is-not-placed", WRITE, .mark = PLACED,
      .ahead = 0x7fffff, REFUSED_AHEAD },
    { "of-long-ago-is-not-placed", WRITE, .mark = PLACED, .ahead = -1,
      .counted = "tx_ack duplicate_requests", .fate = STALE },
    { "unmarked-is-not-placed", WRITE, .mark = 0, .ahead = 2, REFUSED_AHEAD },
    { "of-who-places-not-is-not-placed", WRITE, .mark = MARK_ALONE, .ahead = 2,
      REFUSED_AHEAD },
    { "mark-of-selective-repeat-is-not-kept", WRITE, .mark = MARK_SELECTIVE,
      .ahead = 2, REFUSED_AHEAD },
    { "not-alone-is-kept", WRITE, .mark = MARK_PLACES, .ahead = 2, KEPT },
    { "key-of-nobody", WRITE, AHEAD, .key = KEY_WRONG_INDEX, KEPT,
      .fate = ACCESS },
    { "key-of-another-variant", WRITE, AHEAD, .key = KEY_WRONG_VARIANT, KEPT,
      .fate = ACCESS },
    { "key-of-another-pd", WRITE, AHEAD, .key = KEY_OTHER_PD, KEPT,
      .fate = ACCESS },
    { "key-without-the-right", WRITE, AHEAD, .key = KEY_READ_ONLY, KEPT,
      .fate = ACCESS },
    { "end-beyond-the-region", WRITE, AHEAD, .offset = CRAFTED_BYTES - MTU + 1,
      KEPT, .fate = ACCESS },
    { "begin-before-the-region", WRITE, AHEAD, .offset = -1, KEPT,
      .fate = ACCESS },
    { "address-that-wraps", WRITE, AHEAD, .offset = -(int64_t)CRAFTED_START - 8,
      KEPT, .fate = ACCESS },
    { "longer-than-announced", .opcode = RC_WRITE_ONLY, AHEAD, .length = MTU,
      .announced = 8, KEPT, .fate = INVALID },
    { "shorter-than-announced", .opcode = RC_WRITE_ONLY, AHEAD, .length = MTU,
      .announced = 2 * MTU, KEPT, .fate = INVALID },
    { "longer-than-the-mtu", .opcode = RC_WRITE_ONLY, AHEAD, .length = 2 * MTU,
      .announced = 2 * MTU, KEPT, .fate = INVALID },
    { "first-of-several", .opcode = RC_WRITE_FIRST, AHEAD, .length = MTU,
      .announced = MTU, KEPT, .fate = INVALID },
    { "middle-of-several", .opcode = RC_WRITE_MIDDLE, AHEAD, .length = MTU,
      KEPT, .fate = INVALID },
    { "send-is-kept", .opcode = RC_SEND_ONLY, AHEAD, .length = 64, KEPT,
      .fate = NOT_READY },
    { "immediate-with-more-behind", .opcode = RC_WRITE_ONLY_IMM,
      .mark = PLACED_MORE, .ahead = 2, .length = MTU, .announced = MTU,
      AT_ONCE, .fate = INVALID },
    { "wrong-icrc-is-not-placed", WRITE, AHEAD, .spoil = icrc,
      DROPPED("icrc") },
    { "of-another-source-is-not-placed", WRITE, AHEAD, .spoil = source,
      DROPPED("address") },
    { "wrong-pkey-is-not-placed", WRITE, AHEAD, .spoil = pkey,
      DROPPED("pkey") },
    { "more-without-alone-is-whole", WRITE, .mark = MARK_PLACES | MARK_MORE,
      .counted = "rx_write tx_ack", .placed = true },
    { "more-behind-is-not-complete", WRITE, .mark = PLACED_MORE,
      .counted = "tx_ack", .placed = true },
    { "in-turn-key-of-nobody", WRITE, NOW, .key = KEY_WRONG_INDEX, REFUSED,
      .fate = ACCESS },
    { "in-turn-end-beyond-the-region", WRITE, NOW,
      .offset = CRAFTED_BYTES - MTU + 1, REFUSED, .fate = ACCESS },
    { "in-turn-shorter-than-announced", .opcode = RC_WRITE_ONLY, NOW,
      .length = MTU, .announced = 2 * MTU, REFUSED, .fate = INVALID },
    { "in-turn-first-of-several", .opcode = RC_WRITE_FIRST, NOW, .length = MTU,
      .announced = 2 * MTU, REFUSED, .fate = INVALID },
    { "in-turn-immediate-with-more-behind", .opcode = RC_WRITE_ONLY_IMM,
      .mark = PLACED_MORE, .length = MTU, .announced = MTU, REFUSED,
      .fate = INVALID },
};

static uint32_t key_create(Crafted *c, uint32_t pd, uint8_t access)
{
    const QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = access, .variant = 0x77, .pd = pd,
        .start = c->mr.start, .length = CRAFTED_BYTES,
        .table = contiguous(c->mr.memory),
    };
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    qrnic_mkey_ctx_pack(raw, &ctx);
    return command_ok(c->r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw),
                      NULL, 0) << 8 | ctx.variant;
}

static uint32_t key_of(Crafted *c, Key key)
{
    switch (key) {
    case KEY_WRONG_INDEX:
        return c->mr.key ^ 0x100000;
    case KEY_WRONG_VARIANT:
        return c->mr.key ^ 1;
    case KEY_OTHER_PD:
        return key_create(c, command_ok(c->r.d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0,
                                        NULL, 0), ALL_RIGHTS);
    case KEY_READ_ONLY:
        return key_create(c, c->r.pd, QRNIC_ACCESS_LOCAL_WRITE |
                          QRNIC_ACCESS_REMOTE_READ);
    default:
        return c->mr.key;
    }
}

static PeerPacket packet_of(Crafted *c, const Case *k, uint8_t *data)
{
    PeerPacket p = crafted_packet(c, k->opcode, RQ_PSN + k->ahead);

    memset(data, CRAFTED_BYTE, k->length);
    p.mark = k->mark;
    p.va = c->mr.start + k->offset;
    p.rkey = key_of(c, k->key);
    p.dma_length = k->announced;
    p.length = k->length;
    p.payload = data;
    p.ack_request = true;
    if (k->spoil) {
        k->spoil(&p);
    }
    return p;
}

static void expect_answer(Crafted *c, uint8_t opcode, uint8_t syndrome,
                          uint32_t psn)
{
    PeerPacket p = crafted_answer(c);

    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn & 0xffffff);
    /* Credits of an ACK are ignored, because this test is not about them. */
    g_assert_cmphex(syndrome ? p.syndrome : p.syndrome >> 5, ==, syndrome);
}

/* Posts a receive WQE and retransmits the packet. */
static void ready(Crafted *c, const Case *k, const PeerPacket *p)
{
    const QrnicDataSeg sge = {
        .lkey = c->mr.key, .address = c->mr.start + 2 * MTU, .length = 64,
    };
    QrnicCqe cqe;

    crafted_quiet(c);
    rq_post(c->r.d, &c->r.qp, &sge, 1);
    /* The RNR NAK had no credits, so the device reports the new credits. */
    expect_answer(c, RC_ACK, 0, p->psn - 1);
    peer_send(c->r.d, p);
    expect_answer(c, RC_ACK, 0, p->psn);
    crafted_wrote(c, k->opcode == RC_SEND_ONLY ? 2 * MTU : k->offset,
                  CRAFTED_BYTE, k->length);
    cq_wait(c->r.d, &c->r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.byte_len, ==, k->length);
}

/* Asserts the response when the packet is executed. */
static void meet_fate(Crafted *c, const Case *k, const PeerPacket *p)
{
    switch (k->fate) {
    case INVALID:
        expect_answer(c, RC_ACK, AETH_NAK_INVALID_REQUEST, p->psn);
        crafted_dead(c, QRNIC_EVENT_QP_REQUEST_ERROR);
        break;
    case ACCESS:
        expect_answer(c, RC_ACK, AETH_NAK_REMOTE_ACCESS, p->psn);
        crafted_dead(c, QRNIC_EVENT_QP_ACCESS_ERROR);
        break;
    case NOT_READY:
        expect_answer(c, RC_ACK, AETH_RNR_NAK | 12, p->psn);
        ready(c, k, p);
        break;
    case EXECUTED:
        crafted_wrote(c, k->offset, CRAFTED_BYTE, k->length);
        /* fall through */
    default:
        expect_answer(c, RC_ACK, 0, p->psn);
        break;
    }
}

/* Sends the packet and asserts the response on arrival. */
static void come(Crafted *c, const Case *k, const PeerPacket *p)
{
    peer_send(c->r.d, p);
    crafted_counted(c, k->counted);
    if (k->placed) {
        crafted_wrote(c, k->offset, CRAFTED_BYTE, k->length);
    }
    if (k->ahead > 0) {
        if (k->told == RC_SACK) {
            expect_answer(c, RC_SACK, 0, RQ_PSN - 1);
        } else if (k->told) {
            expect_answer(c, RC_ACK, AETH_NAK_SEQUENCE, RQ_PSN);
        }
        crafted_quiet(c);
    }
}

static void run(const Case *k, uint8_t options)
{
    QrnicQpAttr attr = qp_default_attr();
    uint8_t data[2 * MTU];
    /* True if this test reaches the packet's PSN */
    bool near = k->ahead >= 0 && k->ahead < 4 && k->fate != LOST;
    /* Number of correct packets before the packet is executed */
    unsigned n = near ? k->ahead : k->fate == STALE ? 0 : 1;
    uint8_t while_kept = k->told == RC_SACK ? RC_SACK : RC_ACK;
    PeerPacket p;
    Crafted c;

    attr.options = options;
    crafted_start(&c, "", &attr);
    p = packet_of(&c, k, data);
    come(&c, k, &p);
    for (unsigned i = 0; i < n; i++) {
        crafted_honest_write(&c, RQ_PSN + i, i);
        if (!near || i + 1 < n) {
            expect_answer(&c, while_kept, 0, RQ_PSN + i);
        }
    }
    if (near || k->fate == STALE) {
        meet_fate(&c, k, &p);
    }
    if (k->fate != INVALID && k->fate != ACCESS) {
        /* The connection continues: correct packets are executed. */
        for (unsigned i = n + near; i < n + near + 3; i++) {
            crafted_honest_write(&c, RQ_PSN + i, i);
            expect_answer(&c, near ? RC_ACK : while_kept, 0, RQ_PSN + i);
        }
        crafted_quiet(&c);
        crafted_state(&c, QRNIC_QPS_RTS);
    }
    crafted_stop(&c);
}

static void test_selective(const void *opaque)
{
    run(opaque, QRNIC_QPO_SELECTIVE_REPEAT);
}

static void test_adaptive(const void *opaque)
{
    run(opaque, QRNIC_QPO_ADAPTIVE_ROUTING);
}

void add_crafted_ahead_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(selective); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/selective/%s",
                                                selective[i].rule);

        qtest_add_data_func(path, &selective[i], test_selective);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(adaptive); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/adaptive/%s",
                                                adaptive[i].rule);

        qtest_add_data_func(path, &adaptive[i], test_adaptive);
    }
}
