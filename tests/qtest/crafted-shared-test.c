/*
 * qrnic qtest: crafted packets to carriers, and their inner packets
 *
 * Programmer's Reference, chapter Shared connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted-shared.h"

#define MTU CRAFTED_MTU
#define KEPT "tx_sack buffered_packets out_of_sequence"

/* A correct write of member 0 with one change */
typedef struct Case {
    const char *rule;
    uint8_t opcode;             /* Opcode of the inner packet; 0: unchanged */
    unsigned left;              /* Bytes of the inner packet to send; 0: all */
    void (*prepare)(Shared *s); /* Prepares member 0 */
    void (*inner)(Shared *s, PeerPacket *p);
    void (*outer)(Shared *s, PeerPacket *p);
    const char *counted;
} Case;

/*
 * Removes the payload of the inner packet. The next functions spoil the inner
 * packet in other ways.
 */

static void empty(Shared *s, PeerPacket *p)
{
    p->length = 0;
}

static void beyond_mtu(Shared *s, PeerPacket *p)
{
    static uint8_t data[MTU + 4];

    memset(data, CRAFTED_BYTE, sizeof(data));
    p->payload = data;
    p->length = p->dma_length = sizeof(data);
}

static void inner_version(Shared *s, PeerPacket *p)
{
    p->tver = 1;
}

static void inner_pkey(Shared *s, PeerPacket *p)
{
    p->pkey = 0x1234;
}

static void pad_too_much(Shared *s, PeerPacket *p)
{
    p->pad = 3;
}

static void told(Shared *s, PeerPacket *p)
{
    p->psn = AT(MEMBER_SQ_PSN(0), -1);
    p->syndrome = AETH_ACK | 31;
    p->length = SACK_BYTES;
}

static void to_nobody(Shared *s, PeerPacket *p)
{
    p->dest_qpn += 1000;
}

static void to_gsi(Shared *s, PeerPacket *p)
{
    p->dest_qpn = 1;
}

static void to_multicast(Shared *s, PeerPacket *p)
{
    p->dest_qpn = 0xffffff;
}

static void to_carrier(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->carrier.number;
    p->psn = s->psn;
}

static void to_no_member(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->c.r.qp.number;
    p->psn = RQ_PSN & 0xffffff;
}

static void to_other_member(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->member[ELSEWHERE].number;
    p->psn = MEMBER_RQ_PSN(ELSEWHERE);
}

static void to_rtr(Shared *s, PeerPacket *p)
{
    empty(s, p);
    p->psn = MEMBER_SQ_PSN(0);
    p->syndrome = AETH_ACK | 31;
}

static void enter_reset(Shared *s)
{
    member_enter(s, 0, QRNIC_QPS_RESET);
}

static void enter_init(Shared *s)
{
    member_enter(s, 0, QRNIC_QPS_INIT);
}

static void enter_rtr(Shared *s)
{
    member_enter(s, 0, QRNIC_QPS_RTR);
}

static void enter_error(Shared *s)
{
    member_enter(s, 0, QRNIC_QPS_ERR);
}

static void byte_less(Shared *s, PeerPacket *p)
{
    p->length--;
}

static void pad_of_nothing(Shared *s, PeerPacket *p)
{
    s->bytes[WORD + 1] |= 0x30;
}

/* The carrier accepts the packet, and its member drops it. */
static const Case taken[] = {
    { "one-word", .left = 4 },
    { "shorter-than-a-bth", .left = BTH - 4 },
    { "write-without-its-reth", .left = BTH },
    { "write-cut-in-its-reth", .left = BTH + 12 },
    { "immediate-cut-off", RC_WRITE_ONLY_IMM, .left = BTH + 16 },
    { "send-without-its-immediate", RC_SEND_ONLY_IMM, .left = BTH },
    { "read-cut-in-its-reth", RC_READ_REQUEST, .left = BTH + 12 },
    { "atomic-without-its-operands", RC_FETCH_ADD, .left = BTH + 16 },
    { "ack-without-its-aeth", RC_ACK, .left = BTH },
    { "atomic-ack-cut-off", RC_ATOMIC_ACK, .left = BTH + 8 },
    { "inner-ack-with-data", RC_ACK },
    { "read-request-with-data", RC_READ_REQUEST },
    { "longer-than-the-path-mtu", .inner = beyond_mtu },
    { "pad-that-does-not-fit", .inner = pad_too_much },
    { "pad-of-nothing", RC_SEND_ONLY, .left = BTH, .outer = pad_of_nothing },
    { "padded-outside", .outer = byte_less },
    { "of-another-transport-version", .inner = inner_version },
    { "of-another-pkey", .inner = inner_pkey },
    { "sack", RC_SACK, .inner = told },
    { "of-a-reserved-opcode", 0x15 },
    { "of-the-last-reserved-opcode", 0x1e },
    { "of-unreliable-connections", UC_WRITE_ONLY },
    { "of-datagrams", UD_SEND_ONLY },
    { "of-xrc", XRC(RC_WRITE_ONLY) },
    { "of-dynamic-connections", DC(RC_WRITE_ONLY) },
    { "connect-of-dynamic-connections", DC_CONNECT, .inner = empty },
    { "notification-of-congestion", 0x81, .left = BTH + 16 },
    { "encapsulated-in-encapsulated", ENCAPSULATED },
    { "ack-of-carriers", CARRIER_ACK, .inner = empty },
    { "sack-of-carriers", CARRIER_SACK, .inner = told },
    { "to-a-queue-pair-of-nobody", .inner = to_nobody },
    { "to-the-gsi", .inner = to_gsi },
    { "to-a-group", .inner = to_multicast },
    { "to-its-carrier", .inner = to_carrier },
    { "to-who-is-no-member", .inner = to_no_member },
    { "to-a-member-of-another-carrier", .inner = to_other_member },
    { "to-a-member-in-error", .prepare = enter_error },
    { "to-a-member-that-was-reset", .prepare = enter_reset },
    { "to-a-member-in-init", .prepare = enter_init },
    { "ack-to-a-member-in-rtr", RC_ACK, .prepare = enter_rtr,
      .inner = to_rtr },
};

static PeerPacket packet_of(Shared *s, const Case *k, uint32_t psn)
{
    PeerPacket inner = member_forgery(s, 0), p;

    inner.opcode = k->opcode ? k->opcode : inner.opcode;
    if (k->inner) {
        k->inner(s, &inner);
    }
    p = shared_carry(s, &inner, psn);
    p.length = k->left ? WORD + k->left : p.length;
    if (k->outer) {
        k->outer(s, &p);
    }
    return p;
}

/* Connects the member again. */
static void restore(Shared *s, const Case *k)
{
    if (k->prepare) {
        member_enter(s, 0, QRNIC_QPS_RTS);
        s->written[0] = 0;
    }
}

static void test_taken(const void *opaque)
{
    const Case *k = opaque;
    PeerPacket p;
    Shared s;

    shared_start(&s, 0);
    if (k->prepare) {
        k->prepare(&s);
    }
    p = packet_of(&s, k, s.psn);
    peer_send(s.c.r.d, &p);
    shared_expect_ack(&s, s.psn);
    shared_quiet(&s, "rx_drop_inner tx_ack");
    s.psn = AT(s.psn, 1);
    restore(&s, k);
    shared_works(&s, 0);
    shared_stop(&s);
}

/*
 * Tests that the member drops an inner packet whose outer packet arrives out of
 * order, on arrival or when its PSN is expected.
 */
static void test_taken_ahead(const void *opaque)
{
    const Case *k = opaque;
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    if (k->prepare) {
        k->prepare(&s);
    }
    p = packet_of(&s, k, AT(s.psn, 1));
    peer_send(s.c.r.d, &p);
    shared_expect_sack(&s);
    shared_quiet(&s, KEPT);
    shared_write(&s, 1, s.psn, 0);
    shared_expect_ack(&s, AT(s.psn, 1));
    shared_expect_inner(&s, 1, RC_ACK, MEMBER_RQ_PSN(1));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner rx_inner rx_drop_inner rx_write tx_ack=2 "
                 "rx_ack");
    s.psn = AT(s.psn, 2);
    restore(&s, k);
    shared_works(&s, 1);
    shared_stop(&s);
}

/*
 * Replaces the number of the carrier in the outer packet. The next functions
 * spoil the outer packet in other ways.
 */

static void of_another(Shared *s, PeerPacket *p)
{
    stl_be_p(s->bytes, PEER_CARRIER ^ 0x10);
}

static void of_the_other(Shared *s, PeerPacket *p)
{
    stl_be_p(s->bytes, PEER_OTHER);
}

static void of_none(Shared *s, PeerPacket *p)
{
    stl_be_p(s->bytes, 0);
}

static void of_a_member(Shared *s, PeerPacket *p)
{
    stl_be_p(s->bytes, PEER_MEMBER(0));
}

static void by_the_other(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->other.number;
}

static void no_word(Shared *s, PeerPacket *p)
{
    p->length = 0;
}

static void part_of_the_word(Shared *s, PeerPacket *p)
{
    p->length = WORD - 1;
}

static void odd_introduction(Shared *s, PeerPacket *p)
{
    p->length = WORD;
    p->pad = 2;
}

static void udp_length(Shared *s, PeerPacket *p)
{
    p->udp_length_delta = -4;
}

static void version(Shared *s, PeerPacket *p)
{
    p->tver = 1;
}

static void no_qp(Shared *s, PeerPacket *p)
{
    p->dest_qpn += 1000;
}

static void frame_to_member(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->member[0].number;
}

static void frame_to_no_member(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->c.r.qp.number;
}

static void as_send(Shared *s, PeerPacket *p)
{
    p->opcode = RC_SEND_ONLY;
}

static void as_dynamic(Shared *s, PeerPacket *p)
{
    p->opcode = DC(RC_SEND_ONLY);
}

static void as_reserved(Shared *s, PeerPacket *p)
{
    p->opcode = ENCAPSULATED + 1;
}

static void bare(Shared *s, PeerPacket *p)
{
    *p = member_forgery(s, 0);
}

static void bare_ack(Shared *s, PeerPacket *p)
{
    *p = member_packet(s, 0, RC_ACK, MEMBER_SQ_PSN(0));
    p->syndrome = AETH_ACK | 31;
}

static void bare_by_source(Shared *s, PeerPacket *p)
{
    bare(s, p);
    wrong_source(s, p);
}


/* Packets that the carrier drops. The carrier keeps its expected PSN. */
static const Case dropped[] = {
    { "of-another-carrier", .outer = of_another, DROPPED("connection") },
    { "of-the-carrier-beside-it", .outer = of_the_other,
      DROPPED("connection") },
    { "of-carrier-0", .outer = of_none, DROPPED("connection") },
    { "of-a-member", .outer = of_a_member, DROPPED("connection") },
    { "by-the-carrier-beside-it", .outer = by_the_other,
      DROPPED("connection") },
    { "without-who-carries", .outer = no_word, DROPPED("malformed") },
    { "cut-in-who-carries", .outer = part_of_the_word, DROPPED("malformed") },
    { "introduction-with-odd-pad", .outer = odd_introduction,
      DROPPED("malformed") },
    { "wrong-icrc", .outer = wrong_icrc, DROPPED("icrc") },
    { "wrong-pkey", .outer = wrong_pkey, DROPPED("pkey") },
    { "of-another-source", .outer = wrong_source, DROPPED("address") },
    { "of-another-source-in-vlan-0", .outer = wrong_vlan, DROPPED("address") },
    { "udp-shorter-than-ip", .outer = udp_length, DROPPED("malformed") },
    { "frame-of-another-transport-version", .outer = version,
      DROPPED("malformed") },
    { "frame-to-a-queue-pair-of-nobody", .outer = no_qp, DROPPED("no_qp") },
    { "frame-to-a-member", .outer = frame_to_member, DROPPED("opcode") },
    { "frame-to-who-is-no-member", .outer = frame_to_no_member,
      DROPPED("opcode") },
    { "send-to-a-carrier", .outer = as_send, DROPPED("opcode") },
    { "dynamic-to-a-carrier", .outer = as_dynamic, DROPPED("opcode") },
    { "frame-of-a-reserved-opcode", .outer = as_reserved, DROPPED("opcode") },
    { "to-a-member-without-its-carrier", .outer = bare,
      DROPPED("connection") },
    { "ack-to-a-member-without-its-carrier", .outer = bare_ack,
      DROPPED("connection") },
    { "to-a-member-of-another-source", .outer = bare_by_source,
      DROPPED("connection") },
};

static void test_dropped(const void *opaque)
{
    const Case *k = opaque;
    PeerPacket p;
    Shared s;

    shared_start(&s, 0);
    p = packet_of(&s, k, s.psn);
    peer_send(s.c.r.d, &p);
    shared_quiet(&s, k->counted);
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Changes ignored fields of a correct packet. */

static void reserved(Shared *s, PeerPacket *p)
{
    s->bytes[0] = 0xff;
}

static void other_marks(Shared *s, PeerPacket *p)
{
    p->mark = 0x7e;
}

static void inner_marks(Shared *s, PeerPacket *p)
{
    p->mark = 0x7f;
    p->notify = 0xc0;
}

static void limited_pkey(Shared *s, PeerPacket *p)
{
    p->pkey = 0x7fff;
}

static void whole_mtu(Shared *s, PeerPacket *p)
{
    beyond_mtu(s, p);
    p->length = p->dma_length = MTU;
}

static const Case executed[] = {
    { "reserved-bits-are-ignored", .outer = reserved },
    { "other-marks-are-ignored", .outer = other_marks },
    { "marks-of-the-inner-packet-are-ignored", .inner = inner_marks },
    { "limited-pkey-is-taken", .inner = limited_pkey, .outer = limited_pkey },
    { "whole-path-mtu-is-taken", .inner = whole_mtu },
};

static void test_executed(const void *opaque)
{
    const Case *k = opaque;
    PeerPacket p;
    Shared s;

    shared_start(&s, 0);
    p = packet_of(&s, k, s.psn);
    crafted_wrote(&s.c, 0, CRAFTED_BYTE, k->inner == whole_mtu ? MTU : HONEST);
    peer_send(s.c.r.d, &p);
    shared_expect_ack(&s, s.psn);
    shared_expect_inner(&s, 0, RC_ACK, MEMBER_RQ_PSN(0));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner rx_inner rx_write tx_ack=2 rx_ack");
    s.psn = AT(s.psn, 1);
    s.written[0]++;
    shared_works(&s, 0);
    shared_stop(&s);
}

/* PSNs of the carrier */

typedef struct Psn {
    const char *rule;
    int32_t ahead;
    uint8_t options;            /* Options, and the mark of the packet */
    bool unmarked;
} Psn;

/* The inner packet has the PSN that its member expects. */
static const Psn psns[] = {
    { "just-taken-is-stale", -1 },
    { "of-long-ago-is-stale", -0x400000 },
    { "behind-by-half-of-the-psns-is-stale", -0x800000 },
    { "selective-just-taken-is-stale", -1, SELECTIVE },
    { "selective-of-long-ago-is-stale", -0x400000, SELECTIVE },
    { "ahead-is-not-kept", 1 },
    { "marked-ahead-is-not-kept-without-option", 1, .unmarked = true },
    { "ahead-by-half-of-the-psns-is-not-kept", 0x7fffff },
    { "selective-unmarked-ahead-is-not-kept", 1, SELECTIVE, true },
    { "selective-beyond-the-window-is-not-kept", 256, SELECTIVE },
    { "selective-ahead-by-half-of-the-psns-is-not-kept", 0x7fffff, SELECTIVE },
};

static void test_psn(const void *opaque)
{
    const Psn *k = opaque;
    PeerPacket inner, p;
    Shared s;

    shared_start(&s, k->options);
    inner = member_forgery(&s, 0);
    p = shared_carry(&s, &inner, AT(s.psn, k->ahead));
    if (k->unmarked) {
        p.mark ^= MARK_SELECTIVE;
    }
    peer_send(s.c.r.d, &p);
    if (k->ahead < 0) {
        shared_expect_ack(&s, AT(s.psn, k->ahead));
        shared_quiet(&s, "tx_ack duplicate_requests");
    } else {
        shared_expect_answer(&s, CARRIER_ACK, AETH_NAK_SEQUENCE, s.psn);
        shared_quiet(&s, "tx_nak_sequence out_of_sequence");
    }
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Replayed packets */

#define REPLAYS 20

/*
 * Tests that a replayed packet is not written again, because software may use
 * the memory already.
 */
static void test_replayed(void)
{
    uint8_t ours[HONEST];
    Shared s;

    shared_start(&s, 0);
    shared_works(&s, 0);
    memset(ours, 0x99, sizeof(ours));
    qtest_memwrite(s.c.r.d->qts, s.c.mr.memory + CRAFTED_HONEST + HONEST, ours,
                   sizeof(ours));
    crafted_wrote(&s.c, CRAFTED_HONEST + HONEST, 0x99, HONEST);
    for (unsigned i = 0; i < REPLAYS; i++) {
        const PeerPacket p = member_write(&s, 1, MEMBER_RQ_PSN(1), 1);

        shared_send(&s, &p, AT(s.psn, -1));
        shared_expect_ack(&s, AT(s.psn, -1));
        shared_quiet(&s, "tx_ack duplicate_requests");
    }
    shared_works(&s, 2);
    shared_stop(&s);
}

/*
 * Tests that a replayed inner packet has a new PSN of the carrier, and the
 * member detects the duplicate.
 */
static void test_replayed_inside(void)
{
    Shared s;

    shared_start(&s, 0);
    shared_works(&s, 0);
    for (unsigned i = 0; i < REPLAYS; i++) {
        PeerPacket p = member_forgery(&s, 1);

        p.psn = MEMBER_RQ_PSN(1);
        shared_send(&s, &p, s.psn);
        shared_expect_ack(&s, s.psn);
        shared_expect_inner(&s, 1, RC_ACK, MEMBER_RQ_PSN(1));
        shared_ack(&s);
        shared_quiet(&s, "tx_inner rx_inner tx_ack=2 rx_ack "
                     "duplicate_requests");
        s.psn = AT(s.psn, 1);
    }
    shared_works(&s, 2);
    shared_stop(&s);
}

/*
 * Sends the write of member 1 out of order. The write of member 0 is missing,
 * and the write of member 1 is executed early.
 */
static void early(Shared *s)
{
    shared_start(s, SELECTIVE);
    shared_write(s, 1, AT(s->psn, 1), 1);
    shared_expect_sack(s);
    shared_expect_inner(s, 1, RC_ACK, MEMBER_RQ_PSN(1));
    shared_ack(s);
    shared_quiet(s, "tx_inner rx_inner rx_inner_early rx_write tx_ack "
                 "rx_ack tx_sack buffered_packets out_of_sequence");
}

static void filled(Shared *s, const char *counted)
{
    shared_write(s, 0, s->psn, 0);
    shared_expect_ack(s, AT(s->psn, 1));
    shared_expect_inner(s, 0, RC_ACK, MEMBER_RQ_PSN(0));
    shared_ack(s);
    shared_quiet(s, counted);
    s->psn = AT(s->psn, 2);
    shared_works(s, 2);
    shared_stop(s);
}

#define FILLED "tx_inner rx_inner rx_write tx_ack=2 rx_ack"

static void test_early(void)
{
    Shared s;

    early(&s);
    filled(&s, FILLED);
}

static void test_early_replayed(void)
{
    Shared s;

    early(&s);
    for (unsigned i = 0; i < REPLAYS; i++) {
        const PeerPacket p = member_write(&s, 1, MEMBER_RQ_PSN(1), 1);

        shared_send(&s, &p, AT(s.psn, 1));
        shared_expect_sack(&s);
        shared_quiet(&s, "tx_sack out_of_sequence");
    }
    filled(&s, FILLED);
}

/* Tests a second valid packet with the carrier PSN of a buffered packet. */
static void test_early_not_displaced(void)
{
    PeerPacket p;
    Shared s;

    early(&s);
    p = member_forgery(&s, 1);
    shared_send(&s, &p, AT(s.psn, 1));
    shared_expect_sack(&s);
    p = member_forgery(&s, 0);
    shared_send(&s, &p, AT(s.psn, 1));
    shared_expect_sack(&s);
    shared_quiet(&s, "tx_sack=2 out_of_sequence=2");
    filled(&s, FILLED);
}

/*
 * Tests that a packet which was executed early is a duplicate like any other
 * when the peer retransmits it.
 */
static void test_early_then_stale(void)
{
    PeerPacket p;
    Shared s;

    early(&s);
    shared_write(&s, 0, s.psn, 0);
    shared_expect_ack(&s, AT(s.psn, 1));
    shared_expect_inner(&s, 0, RC_ACK, MEMBER_RQ_PSN(0));
    shared_ack(&s);
    shared_quiet(&s, FILLED);
    p = member_forgery(&s, 1);
    shared_send(&s, &p, AT(s.psn, 1));
    shared_expect_ack(&s, AT(s.psn, 1));
    shared_quiet(&s, "tx_ack duplicate_requests");
    s.psn = AT(s.psn, 2);
    shared_works(&s, 2);
    shared_stop(&s);
}

/* Sends the next write of member 0 without AckReq for the member. */
static void write_silently(Shared *s, uint32_t psn, unsigned n)
{
    PeerPacket p = member_write(s, 0, AT(MEMBER_RQ_PSN(0), s->written[0]++),
                                n);

    p.ack_request = false;
    crafted_wrote(&s->c, CRAFTED_HONEST + n * HONEST, 0x10 + n, HONEST);
    shared_send(s, &p, psn);
}

/*
 * Tests a packet of the same member as the missing packet. The packet is
 * buffered, and is executed once.
 */
static void test_order_of_one(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    p = member_write(&s, 0, AT(MEMBER_RQ_PSN(0), 1), 1);
    for (unsigned i = 0; i < REPLAYS; i++) {
        shared_send(&s, &p, AT(s.psn, 1));
        shared_expect_sack(&s);
        shared_quiet(&s, i ? "tx_sack out_of_sequence" : KEPT);
    }
    crafted_wrote(&s.c, CRAFTED_HONEST + HONEST, 0x11, HONEST);
    write_silently(&s, s.psn, 0);
    shared_expect_ack(&s, AT(s.psn, 1));
    shared_expect_inner(&s, 0, RC_ACK, AT(MEMBER_RQ_PSN(0), 1));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner rx_inner=2 rx_write=2 tx_ack=2 rx_ack");
    s.psn = AT(s.psn, 2);
    s.written[0]++;
    shared_works(&s, 2);
    shared_stop(&s);
}

/*
 * Tests writes to one address that arrive in reversed order. The data of the
 * write with the last PSN must be in memory at the end.
 */
static void test_reversed(void)
{
    Shared s;

    shared_start(&s, SELECTIVE);
    for (int i = 3; i >= 0; i--) {
        PeerPacket p = member_write(&s, 0, AT(MEMBER_RQ_PSN(0), i), i);

        p.va = s.c.mr.start;
        p.ack_request = i == 3;
        if (!i) {
            crafted_wrote(&s.c, 0, 0x13, HONEST);
        }
        shared_send(&s, &p, AT(s.psn, i));
        if (i) {
            shared_expect_sack(&s);
            shared_quiet(&s, KEPT);
        }
    }
    shared_expect_ack(&s, AT(s.psn, 3));
    shared_expect_inner(&s, 0, RC_ACK, AT(MEMBER_RQ_PSN(0), 3));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner rx_inner=4 rx_write=4 tx_ack=2 rx_ack");
    s.psn = AT(s.psn, 4);
    s.written[0] = 4;
    shared_works(&s, 0);
    shared_stop(&s);
}

/*
 * Tests that at most one window of packets is buffered, to limit the memory
 * that a peer can occupy. No packet of the window is delivered early.
 */
static void test_flood(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    p = member_write(&s, 0, AT(MEMBER_RQ_PSN(0), 1), 0);
    p.ack_request = false;
    for (unsigned i = 1; i < 256; i++) {
        shared_send(&s, &p, AT(s.psn, i));
        shared_expect_sack(&s);
    }
    shared_quiet(&s, "tx_sack=255 buffered_packets=255 out_of_sequence=255");
    for (unsigned i = 256; i < 300; i++) {
        shared_send(&s, &p, AT(s.psn, i));
        if (i == 256) {
            shared_expect_answer(&s, CARRIER_ACK, AETH_NAK_SEQUENCE, s.psn);
        }
    }
    shared_quiet(&s, "tx_nak_sequence out_of_sequence=44");
    /*
     * All packets are copies of one packet of one member, which accepts the
     * first of 255.
     */
    crafted_wrote(&s.c, CRAFTED_HONEST, 0x10, HONEST);
    write_silently(&s, s.psn, 1);
    shared_expect_ack(&s, AT(s.psn, 255));
    shared_quiet(&s, "rx_inner=256 rx_write=2 tx_ack duplicate_requests=254");
    s.psn = AT(s.psn, 256);
    s.written[0]++;
    shared_works(&s, 2);
    shared_stop(&s);
}

/* Introductions */

static void introduce(Shared *s, uint32_t psn)
{
    const PeerPacket p = shared_introduction(s, psn);

    peer_send(s->c.r.d, &p);
}

static void test_introduction(void)
{
    Shared s;

    shared_start(&s, 0);
    for (unsigned i = 0; i < 3; i++) {
        introduce(&s, s.psn);
        shared_expect_ack(&s, s.psn);
        shared_quiet(&s, "rx_inner tx_ack");
        for (unsigned j = 0; j < REPLAYS; j++) {
            introduce(&s, s.psn);
            shared_expect_ack(&s, s.psn);
            shared_quiet(&s, "tx_ack duplicate_requests");
        }
        s.psn = AT(s.psn, 1);
    }
    shared_works(&s, 0);
    shared_stop(&s);
}

static void test_introduction_ahead(void)
{
    Shared s;

    shared_start(&s, SELECTIVE);
    for (unsigned i = 0; i < REPLAYS; i++) {
        introduce(&s, AT(s.psn, 1));
        shared_expect_sack(&s);
        shared_quiet(&s, i ? "tx_sack out_of_sequence" : KEPT);
    }
    filled(&s, "tx_inner rx_inner=2 rx_write tx_ack=2 rx_ack");
}

/* An error of a member has no effect on the carrier. */

typedef struct Fate {
    const char *rule;
    void (*inner)(Shared *s, PeerPacket *p);
    uint8_t syndrome;
    const char *counted;
    /* Event of the member; 0 if the member continues */
    unsigned event;
} Fate;

static void key_of_nobody(Shared *s, PeerPacket *p)
{
    p->rkey ^= 0x100000;
}

static void key_without_right(Shared *s, PeerPacket *p)
{
    p->rkey = rig_key_create(&s->c.r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .variant = 0x55,
        .access = QRNIC_ACCESS_LOCAL_WRITE | QRNIC_ACCESS_REMOTE_READ,
        .start = s->c.mr.start, .length = CRAFTED_BYTES,
        .table = contiguous(s->c.mr.memory),
    });
}

static void beyond_region(Shared *s, PeerPacket *p)
{
    p->va += CRAFTED_BYTES - HONEST + 1;
}

static void announced_less(Shared *s, PeerPacket *p)
{
    p->dma_length--;
}

static void last_of_nothing(Shared *s, PeerPacket *p)
{
    p->opcode = RC_WRITE_LAST;
}

static void send_only(Shared *s, PeerPacket *p)
{
    p->opcode = RC_SEND_ONLY;
}

static void member_ahead(Shared *s, PeerPacket *p)
{
    p->psn++;
}

#define NAK "tx_inner rx_inner tx_ack rx_ack tx_nak_error"

static const Fate fates[] = {
    { "key-of-nobody", key_of_nobody, AETH_NAK_REMOTE_ACCESS, NAK,
      QRNIC_EVENT_QP_ACCESS_ERROR },
    { "key-without-the-right", key_without_right, AETH_NAK_REMOTE_ACCESS, NAK,
      QRNIC_EVENT_QP_ACCESS_ERROR },
    { "end-beyond-the-region", beyond_region, AETH_NAK_REMOTE_ACCESS, NAK,
      QRNIC_EVENT_QP_ACCESS_ERROR },
    { "longer-than-announced", announced_less, AETH_NAK_INVALID_REQUEST, NAK,
      QRNIC_EVENT_QP_REQUEST_ERROR },
    { "last-without-first", last_of_nothing, AETH_NAK_INVALID_REQUEST, NAK,
      QRNIC_EVENT_QP_REQUEST_ERROR },
    { "send-without-receive-wqe", send_only, AETH_RNR_NAK | 12,
      "tx_inner rx_inner tx_ack rx_ack tx_rnr_nak" },
    { "ahead-of-its-member", member_ahead, AETH_NAK_SEQUENCE,
      "tx_inner rx_inner tx_ack rx_ack tx_nak_sequence out_of_sequence" },
};

static void test_fate(const void *opaque)
{
    const Fate *k = opaque;
    PeerPacket inner, p;
    Shared s;

    shared_start(&s, 0);
    inner = member_forgery(&s, 0);
    k->inner(&s, &inner);
    shared_send(&s, &inner, s.psn);
    shared_expect_ack(&s, s.psn);
    p = shared_expect_inner(&s, 0, RC_ACK, MEMBER_RQ_PSN(0));
    g_assert_cmphex(p.syndrome, ==, k->syndrome);
    shared_ack(&s);
    if (k->event) {
        shared_expect_event(&s, k->event, &s.member[0]);
        shared_expect_state(&s, &s.member[0], QRNIC_QPS_ERR);
    }
    shared_quiet(&s, k->counted);
    shared_expect_state(&s, &s.carrier, QRNIC_QPS_RTS);
    s.psn = AT(s.psn, 1);
    if (k->event) {
        member_enter(&s, 0, QRNIC_QPS_RTS);
    }
    shared_works(&s, 0);
    shared_stop(&s);
}

void add_crafted_shared_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(taken); i++) {
        shared_add(taken[i].rule, "", test_taken, &taken[i]);
        shared_add(taken[i].rule, "-ahead", test_taken_ahead, &taken[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(dropped); i++) {
        shared_add(dropped[i].rule, "", test_dropped, &dropped[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(executed); i++) {
        shared_add(executed[i].rule, "", test_executed, &executed[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(psns); i++) {
        shared_add(psns[i].rule, "", test_psn, &psns[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(fates); i++) {
        shared_add(fates[i].rule, "", test_fate, &fates[i]);
    }
    qtest_add_func("qrnic/crafted/shared/replay-is-handed-over-once",
                   test_replayed);
    qtest_add_func("qrnic/crafted/shared/replay-by-a-new-psn-is-the-members",
                   test_replayed_inside);
    qtest_add_func("qrnic/crafted/shared/next-of-another-is-early", test_early);
    qtest_add_func("qrnic/crafted/shared/replay-of-the-early-is-nothing",
                   test_early_replayed);
    qtest_add_func("qrnic/crafted/shared/early-is-not-displaced",
                   test_early_not_displaced);
    qtest_add_func("qrnic/crafted/shared/early-is-stale-behind-its-turn",
                   test_early_then_stale);
    qtest_add_func("qrnic/crafted/shared/later-of-the-same-is-not-early",
                   test_order_of_one);
    qtest_add_func("qrnic/crafted/shared/reversed-is-in-order", test_reversed);
    qtest_add_func("qrnic/crafted/shared/flood-keeps-the-window", test_flood);
    qtest_add_func("qrnic/crafted/shared/introduction-is-of-nobody",
                   test_introduction);
    qtest_add_func("qrnic/crafted/shared/introduction-ahead-is-kept-once",
                   test_introduction_ahead);
}
