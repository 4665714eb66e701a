/*
 * qrnic qtest: carriers that learn the number of their peer from an
 * introduction, crafted introductions, and carriers that introduce themselves
 *
 * Programmer's Reference, chapter Shared connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted-shared.h"

/* The carriers of the next tests learn the peer's number. */

/* Starts a carrier without a peer's number. Member 0 has a packet to send. */
static void learning(Shared *s, uint8_t options)
{
    const QrnicQpAttr attr = carrier_attr(0, options);

    shared_start_alone(s);
    s->options = options & SELECTIVE;
    carrier_to_rtr(s, &s->carrier, &attr);
    carrier_to_rts(s, &s->carrier, &attr);
    shared_join(s);
    member_post(s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    shared_quiet(s, "tx_write");
}

static void expect_dest(Shared *s, uint32_t dest_qpn)
{
    QrnicQpAttr attr;

    qp_query(s->c.r.d, &s->carrier, &attr);
    g_assert_cmphex(attr.dest_qpn, ==, dest_qpn);
}

/* Asserts that introductions of a second peer are dropped. */
static void stays(Shared *s)
{
    for (int i = -1; i < 2; i++) {
        PeerPacket p = shared_introduction(s, AT(s->psn, i));

        stl_be_p(s->bytes, PEER_OTHER);
        peer_send(s->c.r.d, &p);
        shared_quiet(s, "rx_drop_connection");
    }
    expect_dest(s, PEER_CARRIER);
    shared_works(s, 0);
    shared_stop(s);
}

static void learns(Shared *s, const char *counted)
{
    shared_expect_ack(s, s->psn);
    shared_expect_inner(s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_ack(s);
    s->psn = AT(s->psn, 1);
    shared_quiet(s, counted);
    expect_dest(s, PEER_CARRIER);
    stays(s);
}

typedef struct Lesson {
    const char *rule;
    uint8_t options;
    void (*spoil)(Shared *s, PeerPacket *p);
    const char *counted;
} Lesson;

static void behind(Shared *s, PeerPacket *p)
{
    p->psn = AT(s->psn, -1);
}

static void ahead(Shared *s, PeerPacket *p)
{
    p->psn = AT(s->psn, 1);
}

static void carrier_0(Shared *s, PeerPacket *p)
{
    stl_be_p(s->bytes, 0);
}

static void no_carrier(Shared *s, PeerPacket *p)
{
    p->length = 0;
}

static void ack(Shared *s, PeerPacket *p)
{
    *p = shared_answer(s, CARRIER_ACK, CARRIER_SQ_PSN, AETH_ACK | 31);
}

static void beside(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->other.number;
}

static const Lesson lessons[] = {
    { "learns-not-from-what-is-stale", 0, behind, DROPPED("connection") },
    { "learns-not-from-what-is-ahead", 0, ahead, DROPPED("connection") },
    { "learns-not-from-what-would-be-kept", SELECTIVE, ahead,
      DROPPED("connection") },
    { "learns-not-from-another-source", 0, wrong_source, DROPPED("address") },
    { "learns-not-from-vlan-0", 0, wrong_vlan, DROPPED("address") },
    { "learns-not-from-carrier-0", 0, carrier_0, DROPPED("connection") },
    { "learns-not-from-who-is-not-named", 0, no_carrier,
      DROPPED("malformed") },
    { "learns-not-from-wrong-icrc", 0, wrong_icrc, DROPPED("icrc") },
    { "learns-not-from-wrong-pkey", 0, wrong_pkey, DROPPED("pkey") },
    { "learns-not-from-an-ack", 0, ack, .counted = "rx_ack rx_drop_psn" },
    { "learns-not-from-what-is-beside-it", 0, beside, DROPPED("connection") },
};

static void test_lesson(const void *opaque)
{
    const Lesson *k = opaque;
    PeerPacket p;
    Shared s;

    learning(&s, k->options);
    p = shared_introduction(&s, s.psn);
    k->spoil(&s, &p);
    peer_send(s.c.r.d, &p);
    shared_quiet(&s, k->counted);
    expect_dest(&s, 0);
    p = shared_introduction(&s, s.psn);
    peer_send(s.c.r.d, &p);
    learns(&s, "tx_inner rx_inner tx_ack rx_ack");
}

/*
 * Tests that the carrier learns from a packet of a member, and from an
 * introduction.
 */
static void test_learns(void)
{
    PeerPacket p;
    Shared s;

    learning(&s, 0);
    p = member_forgery(&s, ELSEWHERE);
    shared_send(&s, &p, s.psn);
    learns(&s, "tx_inner rx_drop_inner tx_ack rx_ack");
}

/*
 * Tests that a carrier without a peer's number sends no introduction, because
 * it has no destination.
 */
static void test_learns_and_introduces(void)
{
    PeerPacket p;
    Shared s;

    learning(&s, QRNIC_QPO_INTRODUCE);
    p = shared_introduction(&s, s.psn);
    peer_send(s.c.r.d, &p);
    learns(&s, "tx_inner rx_inner tx_ack rx_ack");
}

/* Tests that the introduction requests no ACK, and the members send anyway. */
static void test_learns_without_ack(void)
{
    PeerPacket p;
    Shared s;

    learning(&s, 0);
    p = shared_introduction(&s, s.psn);
    p.ack_request = false;
    peer_send(s.c.r.d, &p);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_ack(&s);
    s.psn = AT(s.psn, 1);
    shared_quiet(&s, "tx_inner rx_inner rx_ack");
    stays(&s);
}

/*
 * Tests that the carrier queues a limited number of packets. The rest stays in
 * the send queues of the members.
 */
static void test_waiting_is_bounded(void)
{
    Rig *r;
    Shared s;

    learning(&s, 0);
    r = &s.c.r;
    for (unsigned i = 0; i < 20; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, 0);

        wqe_remote(&w, 0x5000, 0x77);
        wqe_data(&w, r->mr.start, 5 * CRAFTED_MTU, r->mr.key);
        sq_post(r->d, &s.member[0], &w);
    }
    /*
     * CARRIER_QUEUE is 64, so it holds one packet of learning(), 12 messages of
     * 5 packets, and 3 packets of one more message.
     */
    shared_quiet(&s, "tx_write=13");
    shared_stop(&s);
}

/* Tests that a reset carrier drops the packets that its members queued. */
static void test_reset_forgets(void)
{
    const QrnicQpAttr attr = carrier_attr(PEER_CARRIER, 0);
    const QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    Shared s;

    learning(&s, 0);
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        member_enter(&s, m, QRNIC_QPS_RESET);
    }
    qp_modify(s.c.r.d, &s.carrier, &reset);
    carrier_to_rtr(&s, &s.carrier, &attr);
    carrier_to_rts(&s, &s.carrier, &attr);
    shared_join(&s);
    shared_quiet(&s, "");
    shared_works(&s, 0);
    shared_stop(&s);
}

/*
 * Tests that the carrier in RTR learns and sends ACKs, and that in RTS it also
 * sends its packets.
 */
static void test_learns_in_rtr(void)
{
    const QrnicQpAttr attr = carrier_attr(0, 0);
    PeerPacket p;
    Shared s;

    shared_start_alone(&s);
    carrier_to_rtr(&s, &s.carrier, &attr);
    shared_join(&s);
    member_post(&s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    p = shared_introduction(&s, s.psn);
    peer_send(s.c.r.d, &p);
    shared_expect_ack(&s, s.psn);
    s.psn = AT(s.psn, 1);
    shared_expect_event(&s, QRNIC_EVENT_COMM_EST, &s.carrier);
    shared_quiet(&s, "rx_inner tx_ack");
    expect_dest(&s, PEER_CARRIER);
    carrier_to_rts(&s, &s.carrier, &attr);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner tx_write rx_ack");
    stays(&s);
}

/* Tests that RESET clears the learned number. */
static void test_learns_anew(void)
{
    const QrnicQpAttr attr = carrier_attr(0, 0);
    const QrnicQpAttr reset = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    PeerPacket p;
    Shared s;

    learning(&s, 0);
    p = shared_introduction(&s, s.psn);
    stl_be_p(s.bytes, PEER_CARRIER);
    peer_send(s.c.r.d, &p);
    shared_expect_ack(&s, s.psn);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_quiet(&s, "tx_inner rx_inner tx_ack");
    /* A carrier with members cannot be reset. */
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        member_enter(&s, m, QRNIC_QPS_RESET);
    }
    qp_modify(s.c.r.d, &s.carrier, &reset);
    carrier_to_rtr(&s, &s.carrier, &attr);
    carrier_to_rts(&s, &s.carrier, &attr);
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        member_enter(&s, m, QRNIC_QPS_RTS);
        s.written[m] = 0;
    }
    expect_dest(&s, 0);
    p = shared_introduction(&s, AT(s.psn, 1));
    peer_send(s.c.r.d, &p);
    shared_quiet(&s, "rx_drop_connection");
    p = shared_introduction(&s, s.psn);
    peer_send(s.c.r.d, &p);
    shared_expect_ack(&s, s.psn);
    s.psn = AT(s.psn, 1);
    s.sent = CARRIER_SQ_PSN;
    shared_quiet(&s, "rx_inner tx_ack");
    stays(&s);
}

/* Expects the introduction that a carrier sends to its peer. */

static void expect_introduction(Shared *s)
{
    PeerPacket outer;

    shared_next_inner(s, &outer);
    g_assert_cmpuint(outer.length, ==, WORD);
    g_assert_true(outer.ack_request);
}

static void introducing(Shared *s, uint8_t options)
{
    const QrnicQpAttr attr = carrier_attr(PEER_CARRIER,
                                          options | QRNIC_QPO_INTRODUCE);

    shared_start_alone(s);
    s->options = options;
    carrier_to_rtr(s, &s->carrier, &attr);
    shared_join(s);
    member_post(s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    /* In RTR the carrier may not send. */
    shared_quiet(s, "");
    carrier_to_rts(s, &s->carrier, &attr);
    expect_introduction(s);
    shared_expect_inner(s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_quiet(s, "tx_inner=2 tx_write");
}

/*
 * Tests that the introduction is sent once, before all other packets, and is
 * retransmitted like any packet.
 */
static void test_introduces(void)
{
    PeerPacket p;
    Shared s;

    introducing(&s, 0);
    p = shared_answer(&s, CARRIER_ACK, CARRIER_SQ_PSN, AETH_NAK_SEQUENCE);
    peer_send(s.c.r.d, &p);
    s.sent = CARRIER_SQ_PSN;
    expect_introduction(&s);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_quiet(&s, "rx_nak_sequence retransmissions=2");
    shared_ack(&s);
    shared_quiet(&s, "rx_ack");
    shared_works(&s, 0);
    shared_stop(&s);
}

static void test_introduces_selectively(void)
{
    PeerPacket p;
    Shared s;

    introducing(&s, SELECTIVE);
    p = shared_sack(&s, 0, 0x40);
    peer_send(s.c.r.d, &p);
    s.sent = CARRIER_SQ_PSN;
    expect_introduction(&s);
    shared_quiet(&s, "rx_sack retransmissions");
    s.sent = AT(CARRIER_SQ_PSN, 2);
    shared_ack(&s);
    shared_quiet(&s, "rx_ack");
    shared_works(&s, 0);
    shared_stop(&s);
}

/*
 * Tests a carrier without members whose introduction receives no response. The
 * carrier moves to ERR after its retries.
 */
static void test_introduction_unanswered(void)
{
    const QrnicQpAttr attr = carrier_attr(PEER_CARRIER, QRNIC_QPO_INTRODUCE);
    Shared s;

    shared_start_alone(&s);
    carrier_to_rtr(&s, &s.carrier, &attr);
    carrier_to_rts(&s, &s.carrier, &attr);
    for (unsigned i = 0; i < 3; i++) {
        s.sent = CARRIER_SQ_PSN;
        expect_introduction(&s);
        clock_step(s.c.r.d, TIMEOUT_NS(14));
    }
    shared_expect_event(&s, QRNIC_EVENT_QP_FATAL, &s.carrier);
    shared_quiet(&s, "tx_inner retransmissions=2 timeouts=3 retry_exceeded");
    shared_expect_state(&s, &s.carrier, QRNIC_QPS_ERR);
    shared_stop(&s);
}

void add_crafted_learn_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(lessons); i++) {
        shared_add(lessons[i].rule, "", test_lesson, &lessons[i]);
    }
    qtest_add_func("qrnic/crafted/shared/learns-from-what-no-member-has",
                   test_learns);
    qtest_add_func("qrnic/crafted/shared/learns-before-it-introduces-itself",
                   test_learns_and_introduces);
    qtest_add_func("qrnic/crafted/shared/learns-where-no-ack-is-due",
                   test_learns_without_ack);
    qtest_add_func("qrnic/crafted/shared/waiting-is-bounded",
                   test_waiting_is_bounded);
    qtest_add_func("qrnic/crafted/shared/reset-forgets-what-waits",
                   test_reset_forgets);
    qtest_add_func("qrnic/crafted/shared/learns-in-rtr", test_learns_in_rtr);
    qtest_add_func("qrnic/crafted/shared/learns-anew-behind-a-reset",
                   test_learns_anew);
    qtest_add_func("qrnic/crafted/shared/introduces-itself-first",
                   test_introduces);
    qtest_add_func("qrnic/crafted/shared/introduces-itself-again-selectively",
                   test_introduces_selectively);
    qtest_add_func("qrnic/crafted/shared/introduction-that-nobody-answers",
                   test_introduction_unanswered);
}
