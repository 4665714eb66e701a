/*
 * qrnic qtest: crafted responses to carriers and to their members, and carriers
 * that fail
 *
 * Programmer's Reference, chapter Shared connections.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted-shared.h"

#define WRITES 3
#define WINDOW 256

/* Sends writes from member 0. The test acknowledges none of them. */
static void writes_send(Shared *s)
{
    for (unsigned i = 0; i < WRITES; i++) {
        member_post(s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
        shared_expect_inner(s, 0, RC_WRITE_ONLY, AT(MEMBER_SQ_PSN(0), i));
    }
    shared_quiet(s, "tx_inner=3 tx_write=3");
}

/*
 * Asserts that the device retransmits all writes, because none is acknowledged.
 */
static void writes_again(Shared *s)
{
    const PeerPacket p = shared_answer(s, CARRIER_ACK, CARRIER_SQ_PSN,
                                       AETH_NAK_SEQUENCE);

    peer_send(s->c.r.d, &p);
    s->sent = AT(s->sent, -WRITES);
    for (unsigned i = 0; i < WRITES; i++) {
        shared_expect_inner(s, 0, RC_WRITE_ONLY, AT(MEMBER_SQ_PSN(0), i));
    }
    shared_quiet(s, "rx_nak_sequence retransmissions=3");
}

static void writes_complete(Shared *s)
{
    shared_ack(s);
    shared_quiet(s, "rx_ack");
    member_answer(s, 0, AT(MEMBER_SQ_PSN(0), WRITES - 1), AETH_ACK | 31,
                  s->psn);
    shared_expect_ack(s, s->psn);
    for (unsigned i = 0; i < WRITES; i++) {
        member_completed(s, 0, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE,
                         QRNIC_SYN_NONE);
    }
    shared_quiet(s, "rx_inner tx_ack rx_ack");
    s->psn = AT(s->psn, 1);
}

/* Responses to the carrier */

typedef struct Answer {
    const char *rule;
    int32_t psn;                /* Relative to the first PSN */
    uint8_t syndrome, options;
    bool sack;
    void (*spoil)(Shared *s, PeerPacket *p);
    const char *counted;
} Answer;

static void with_data(Shared *s, PeerPacket *p)
{
    p->payload = s->bytes;
    p->length = 4;
}

static void to_the_other(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->other.number;
    p->psn = CARRIER_SQ_PSN;
}

static void to_its_member(Shared *s, PeerPacket *p)
{
    p->dest_qpn = s->member[0].number;
}

static void of_rc(Shared *s, PeerPacket *p)
{
    p->opcode = RC_ACK;
}

static void misses_unsent(Shared *s, PeerPacket *p)
{
    stl_be_p(s->bytes, AT(CARRIER_SQ_PSN, WRITES));
}

static void cut_off(Shared *s, PeerPacket *p)
{
    p->length = SACK_BYTES - 4;
}

#define ALL .psn = WRITES - 1, .syndrome = AETH_ACK | 31
#define SACK .sack = true, .options = SELECTIVE

static const Answer answers[] = {
    { "ack-of-what-was-not-sent", WRITES, AETH_ACK | 31,
      .counted = "rx_ack rx_drop_psn" },
    { "ack-far-ahead", 0x500000, AETH_ACK | 31,
      .counted = "rx_ack rx_drop_psn" },
    { "ack-of-long-ago", -100, AETH_ACK | 31,
      .counted = "rx_ack rx_drop_psn" },
    { "ack-of-what-was-before", -1, AETH_ACK | 31, .counted = "rx_ack" },
    { "ack-without-credits-stops-nothing", -1, AETH_ACK, .counted = "rx_ack" },
    { "nak-of-what-was-not-sent", WRITES, AETH_NAK_SEQUENCE, DROPPED("psn") },
    { "fatal-nak-of-what-was-not-sent", WRITES, AETH_NAK_INVALID_REQUEST,
      DROPPED("psn") },
    { "rnr-nak-of-what-was-not-sent", WRITES, AETH_RNR_NAK,
      DROPPED("psn") },
    { "nak-of-what-was-before", -1, AETH_NAK_REMOTE_ACCESS, DROPPED("psn") },
    { "nak-of-a-reserved-code", 1, 0x64, DROPPED("psn") },
    { "ack-of-a-reserved-kind", 1, 0x40, DROPPED("psn") },
    { "ack-of-another-source", ALL, .spoil = wrong_source, DROPPED("address") },
    { "ack-with-wrong-icrc", ALL, .spoil = wrong_icrc, DROPPED("icrc") },
    { "ack-with-wrong-pkey", ALL, .spoil = wrong_pkey, DROPPED("pkey") },
    { "ack-with-data", ALL, .spoil = with_data, DROPPED("malformed") },
    { "ack-to-the-carrier-beside-it", ALL, .spoil = to_the_other,
      .counted = "rx_ack rx_drop_psn" },
    { "ack-of-carriers-to-a-member", ALL, .spoil = to_its_member,
      DROPPED("opcode") },
    { "ack-of-rc-to-a-carrier", ALL, .spoil = of_rc, DROPPED("opcode") },
    { "sack-without-option", ALL, .sack = true, DROPPED("psn") },
    { "sack-of-what-was-not-sent", WRITES, AETH_ACK | 31, SACK,
      DROPPED("psn") },
    { "sack-of-what-is-far-ahead", 0x500000, AETH_ACK | 31, SACK,
      DROPPED("psn") },
    { "sack-of-long-ago", -100, AETH_ACK | 31, SACK, DROPPED("psn") },
    { "sack-that-is-a-nak", 0, AETH_NAK_SEQUENCE, SACK, DROPPED("psn") },
    { "sack-that-is-a-fatal-nak", 0, AETH_NAK_INVALID_REQUEST, SACK,
      DROPPED("psn") },
    { "sack-that-misses-what-was-not-sent", -1, AETH_ACK | 31, SACK,
      .spoil = misses_unsent, .counted = "rx_sack rx_drop_psn" },
    { "sack-of-another-source", ALL, SACK, .spoil = wrong_source,
      DROPPED("address") },
    { "sack-cut-off", ALL, SACK, .spoil = cut_off, DROPPED("malformed") },
};

static void test_answer(const void *opaque)
{
    const Answer *k = opaque;
    PeerPacket p;
    Shared s;

    shared_start(&s, k->options);
    writes_send(&s);
    p = k->sack ? shared_sack(&s, 0, 0x7f) :
                  shared_answer(&s, CARRIER_ACK, 0, 0);
    p.psn = AT(CARRIER_SQ_PSN, k->psn);
    p.syndrome = k->syndrome;
    if (k->spoil) {
        k->spoil(&s, &p);
    }
    peer_send(s.c.r.d, &p);
    shared_quiet(&s, k->counted);
    writes_again(&s);
    writes_complete(&s);
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Asserts that only the oldest packet is retransmitted. */
static void first_again(Shared *s)
{
    s->sent = CARRIER_SQ_PSN;
    shared_expect_inner(s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    s->sent = AT(CARRIER_SQ_PSN, WRITES);
}

/*
 * Tests that a packet which a SACK reports as arrived is neither retransmitted
 * nor complete.
 */
static void test_sack(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    writes_send(&s);
    p = shared_sack(&s, 0, 0x7f);
    peer_send(s.c.r.d, &p);
    first_again(&s);
    shared_quiet(&s, "rx_sack retransmissions");
    for (unsigned i = 0; i < 20; i++) {
        peer_send(s.c.r.d, &p);
        shared_quiet(&s, "rx_sack");
    }
    p = shared_answer(&s, CARRIER_ACK, CARRIER_SQ_PSN, AETH_NAK_SEQUENCE);
    peer_send(s.c.r.d, &p);
    first_again(&s);
    shared_quiet(&s, "rx_nak_sequence retransmissions");
    writes_complete(&s);
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Tests that an ACK of the carrier acknowledges nothing of its members. */
static void test_ack(void)
{
    Shared s;

    shared_start(&s, 0);
    writes_send(&s);
    writes_complete(&s);
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Responses to a member, as inner packets */

typedef struct Inner {
    const char *rule;
    unsigned member;
    uint32_t psn;
    uint8_t syndrome;
    /* Counters that change besides those of the outer packet */
    const char *counted;
} Inner;

static const Inner inners[] = {
    { "member-ack-of-what-was-not-sent", 0, AT(MEMBER_SQ_PSN(0), WRITES),
      AETH_ACK | 31, "rx_inner tx_ack rx_ack rx_drop_psn" },
    { "member-ack-of-the-psn-of-its-carrier", 0, CARRIER_SQ_PSN,
      AETH_ACK | 31, "rx_inner tx_ack rx_ack rx_drop_psn" },
    { "member-ack-to-another", 1, MEMBER_SQ_PSN(0), AETH_ACK | 31,
      "rx_inner tx_ack rx_ack rx_drop_psn" },
    { "member-nak-to-another", 1, MEMBER_SQ_PSN(0), AETH_NAK_REMOTE_ACCESS,
      "rx_inner tx_ack rx_drop_psn" },
    { "member-ack-to-a-member-elsewhere", ELSEWHERE, MEMBER_SQ_PSN(0),
      AETH_ACK | 31, "rx_drop_inner tx_ack" },
};

static void test_inner(const void *opaque)
{
    const Inner *k = opaque;
    Shared s;

    shared_start(&s, 0);
    writes_send(&s);
    member_answer(&s, k->member, k->psn, k->syndrome, s.psn);
    shared_expect_ack(&s, s.psn);
    shared_quiet(&s, k->counted);
    s.psn = AT(s.psn, 1);
    writes_complete(&s);
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Tests that an error of a member affects only this member. */
static void test_member_fails(void)
{
    Shared s;

    shared_start(&s, 0);
    writes_send(&s);
    shared_ack(&s);
    member_answer(&s, 0, MEMBER_SQ_PSN(0), AETH_NAK_REMOTE_ACCESS, s.psn);
    shared_expect_ack(&s, s.psn);
    s.psn = AT(s.psn, 1);
    member_completed(&s, 0, QRNIC_WC_REM_ACCESS_ERR, 0, QRNIC_SYN_NONE);
    for (unsigned i = 1; i < WRITES; i++) {
        member_completed(&s, 0, QRNIC_WC_WR_FLUSH_ERR, 0, QRNIC_SYN_NONE);
    }
    shared_quiet(&s, "rx_inner tx_ack rx_ack rx_nak_error");
    shared_expect_state(&s, &s.carrier, QRNIC_QPS_RTS);
    shared_expect_state(&s, &s.member[1], QRNIC_QPS_RTS);
    member_enter(&s, 0, QRNIC_QPS_RTS);
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Responses that arrive out of order, behind a missing write */

static void fill(Shared *s, const char *counted)
{
    shared_write(s, 1, s->psn, 0);
    shared_expect_ack(s, AT(s->psn, 1));
    shared_expect_inner(s, 1, RC_ACK, MEMBER_RQ_PSN(1));
    shared_ack(s);
    crafted_counted(&s->c, counted);
    s->psn = AT(s->psn, 2);
}

static void test_early_ack(void)
{
    Shared s;

    shared_start(&s, SELECTIVE);
    member_post(&s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner tx_write rx_ack");
    member_answer(&s, 0, MEMBER_SQ_PSN(0), AETH_ACK | 31, AT(s.psn, 1));
    shared_expect_sack(&s);
    member_completed(&s, 0, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE,
                     QRNIC_SYN_NONE);
    shared_quiet(&s, "rx_inner rx_inner_early rx_ack tx_sack buffered_packets "
                 "out_of_sequence");
    fill(&s, "tx_inner rx_inner rx_write tx_ack=2 rx_ack");
    shared_works(&s, 1);
    shared_stop(&s);
}

static PeerPacket read_response(Shared *s, uint32_t psn)
{
    static uint8_t data[HONEST];
    PeerPacket p = member_packet(s, 0, RC_READ_ONLY, psn);

    memset(data, 0x77, sizeof(data));
    p.syndrome = AETH_ACK | 31;
    p.payload = data;
    p.length = sizeof(data);
    return p;
}

static void read_send(Shared *s)
{
    member_post(s, 0, QRNIC_WQE_RDMA_READ, HONEST);
    shared_expect_inner(s, 0, RC_READ_REQUEST, MEMBER_SQ_PSN(0));
    shared_ack(s);
    shared_quiet(s, "tx_inner tx_read rx_ack");
}

static void read_completed(Shared *s)
{
    crafted_wrote(&s->c, 0, 0x77, HONEST);
    member_completed(s, 0, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_READ,
                     QRNIC_SYN_NONE);
    crafted_quiet(&s->c);
}

/*
 * Tests that the data of a read is placed in order, because the missing packet
 * could be an earlier request.
 */
static void test_response_ahead(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    read_send(&s);
    p = read_response(&s, MEMBER_SQ_PSN(0));
    shared_send(&s, &p, AT(s.psn, 1));
    shared_expect_sack(&s);
    shared_quiet(&s, "tx_sack buffered_packets out_of_sequence");
    fill(&s, "tx_inner rx_inner=2 rx_write tx_ack=2 rx_ack");
    read_completed(&s);
    shared_works(&s, 1);
    shared_stop(&s);
}

/*
 * Tests a read response without a request. The device buffers it, because of
 * early responses it processes only the ACK of a write at once.
 */
static void test_response_to_nothing(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    p = read_response(&s, MEMBER_SQ_PSN(0));
    shared_send(&s, &p, AT(s.psn, 1));
    shared_expect_sack(&s);
    shared_quiet(&s, "tx_sack buffered_packets out_of_sequence");
    fill(&s, "tx_inner rx_inner=2 rx_write tx_ack=2 rx_ack rx_drop_psn");
    shared_works(&s, 1);
    shared_stop(&s);
}

/*
 * Tests that an ACK behind a read waits for the read's response, because the
 * read would otherwise be retransmitted.
 */
static void test_ack_behind_read(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    read_send(&s);
    member_post(&s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, AT(MEMBER_SQ_PSN(0), 1));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner tx_write rx_ack");
    member_answer(&s, 0, AT(MEMBER_SQ_PSN(0), 1), AETH_ACK | 31,
                  AT(s.psn, 1));
    shared_expect_sack(&s);
    shared_quiet(&s, "tx_sack buffered_packets out_of_sequence");
    p = read_response(&s, MEMBER_SQ_PSN(0));
    shared_send(&s, &p, s.psn);
    shared_expect_ack(&s, AT(s.psn, 1));
    crafted_wrote(&s.c, 0, 0x77, HONEST);
    member_completed(&s, 0, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_READ,
                     QRNIC_SYN_NONE);
    member_completed(&s, 0, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE,
                     QRNIC_SYN_NONE);
    shared_quiet(&s, "rx_inner=2 tx_ack rx_ack");
    s.psn = AT(s.psn, 2);
    shared_works(&s, 0);
    shared_stop(&s);
}

/*
 * Tests that after the read's response, ACKs behind it are processed early
 * again.
 */
static void test_early_ack_behind_done_read(void)
{
    PeerPacket p;
    Shared s;

    shared_start(&s, SELECTIVE);
    read_send(&s);
    p = read_response(&s, MEMBER_SQ_PSN(0));
    shared_send(&s, &p, s.psn);
    shared_expect_ack(&s, s.psn);
    read_completed(&s);
    s.psn = AT(s.psn, 1);
    member_post(&s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, AT(MEMBER_SQ_PSN(0), 1));
    shared_ack(&s);
    shared_quiet(&s, "tx_inner rx_inner tx_write tx_ack rx_ack");
    member_answer(&s, 0, AT(MEMBER_SQ_PSN(0), 1), AETH_ACK | 31,
                  AT(s.psn, 1));
    shared_expect_sack(&s);
    member_completed(&s, 0, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE,
                     QRNIC_SYN_NONE);
    shared_stop(&s);
}

/* Tests that correct sends reach the receive WQEs of the members. */

static void test_send_lands(void)
{
    const QrnicDataSeg *none = NULL;
    PeerPacket p;
    QrnicCqe cqe;
    Shared s;

    shared_start(&s, 0);
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        const QrnicDataSeg sge = {
            .lkey = s.c.mr.key, .length = HONEST,
            .address = s.c.mr.start + m * HONEST,
        };

        p = member_forgery(&s, m);
        p.opcode = RC_SEND_ONLY;
        rq_post(s.c.r.d, &s.member[m], m ? none : &sge, !m);
        p.length = m ? 0 : p.length;
        shared_send(&s, &p, s.psn);
        shared_expect_ack(&s, s.psn);
        shared_expect_inner(&s, m, RC_ACK, MEMBER_RQ_PSN(m));
        shared_ack(&s);
        cq_wait(s.c.r.d, &s.c.r.recv_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
        g_assert_cmphex(cqe.qpn, ==, s.member[m].number);
        g_assert_cmpuint(cqe.byte_len, ==, p.length);
        crafted_wrote(&s.c, m * HONEST, CRAFTED_BYTE, p.length);
        shared_quiet(&s, "tx_inner rx_inner rx_send tx_ack=2 rx_ack");
        s.psn = AT(s.psn, 1);
        s.written[m]++;
    }
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Tests that at most one window of packets of all members is in flight. */
static void test_window(void)
{
    unsigned packets = 3 * RIG_MR_LENGTH / CRAFTED_MTU, of[MEMBERS] = { 0 };
    Shared s;

    shared_start(&s, 0);
    for (unsigned i = 0; i < 6; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

        wqe_remote(&w, 0x5000, 0x77);
        wqe_data(&w, s.c.r.mr.start, RIG_MR_LENGTH, s.c.r.mr.key);
        sq_post(s.c.r.d, &s.member[i % 2], &w);
    }
    for (unsigned i = 0; i < 2 * packets; i++) {
        PeerPacket outer, p;
        unsigned m;

        if (i == WINDOW) {
            crafted_quiet(&s.c);
            counter_wait(s.c.r.d, QRNIC_COUNTER_TX_INNER, WINDOW);
            shared_ack(&s);
        }
        p = shared_next_inner(&s, &outer);
        m = p.dest_qpn - PEER_MEMBER(0);
        g_assert_cmpuint(m, <, ELSEWHERE);
        /* Each member's packets are in order. */
        g_assert_cmphex(p.psn, ==, AT(MEMBER_SQ_PSN(m), of[m]));
        of[m]++;
    }
    shared_ack(&s);
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        g_assert_cmpuint(of[m], ==, packets);
        member_answer(&s, m, AT(MEMBER_SQ_PSN(m), packets - 1), AETH_ACK | 31,
                      s.psn);
        shared_expect_ack(&s, s.psn);
        s.psn = AT(s.psn, 1);
        for (unsigned i = 0; i < 3; i++) {
            member_completed(&s, m, QRNIC_WC_SUCCESS, QRNIC_WQE_RDMA_WRITE,
                             QRNIC_SYN_NONE);
        }
    }
    crafted_quiet(&s.c);
    shared_stop(&s);
}

/*
 * Tests that the timer of a member waits until the carrier's ACK, because the
 * peer cannot respond before. Then it waits longer than the member's own
 * timeout, because the peer's carrier may have to retransmit the response.
 */
static void test_member_timer(void)
{
    QrnicQpAttr attr = carrier_attr(PEER_CARRIER, 0);
    Shared s;

    shared_start_alone(&s);
    attr.timeout = 22;
    carrier_to_rtr(&s, &s.carrier, &attr);
    carrier_to_rts(&s, &s.carrier, &attr);
    shared_join(&s);
    member_post(&s, 0, QRNIC_WQE_RDMA_WRITE, HONEST);
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_quiet(&s, "tx_inner tx_write");
    for (unsigned i = 0; i < 20; i++) {
        clock_step(s.c.r.d, TIMEOUT_NS(14));
        shared_quiet(&s, "");
    }
    /* The packet has arrived, but the member's peer sends no response. */
    shared_ack(&s);
    shared_quiet(&s, "rx_ack");
    for (unsigned i = 0; i < 5; i++) {
        clock_step(s.c.r.d, TIMEOUT_NS(14));
        shared_quiet(&s, "");
    }
    for (unsigned i = 0; i < 8 && !wire_pending(s.c.r.d); i++) {
        clock_step(s.c.r.d, TIMEOUT_NS(20));
        settle(s.c.r.d);
    }
    shared_expect_inner(&s, 0, RC_WRITE_ONLY, MEMBER_SQ_PSN(0));
    shared_quiet(&s, "tx_inner retransmissions timeouts");
    shared_ack(&s);
    shared_quiet(&s, "rx_ack");
    shared_works(&s, 0);
    shared_stop(&s);
}

/* Carriers that fail, and their members */

static void error_command(Shared *s)
{
    const QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    };

    qp_modify(s->c.r.d, &s->carrier, &step);
}

static void answered(Shared *s, uint8_t syndrome)
{
    const PeerPacket p = shared_answer(s, CARRIER_ACK, CARRIER_SQ_PSN,
                                       syndrome);

    peer_send(s->c.r.d, &p);
}

static void error_nak(Shared *s)
{
    answered(s, AETH_NAK_REMOTE_OP);
}

static void error_rnr(Shared *s)
{
    answered(s, AETH_RNR_NAK | 1);
}

static void again(Shared *s)
{
    s->sent = CARRIER_SQ_PSN;
    for (unsigned i = 0; i < WRITES; i++) {
        shared_expect_inner(s, 0, RC_WRITE_ONLY, AT(MEMBER_SQ_PSN(0), i));
    }
}

/*
 * Answers with sequence error NAKs until the retries are exhausted. The retry
 * count is 2.
 */
static void error_naks(Shared *s)
{
    for (unsigned i = 0; i < 3; i++) {
        answered(s, AETH_NAK_SEQUENCE);
        if (i < 2) {
            again(s);
        }
    }
}

static void error_timeouts(Shared *s)
{
    for (unsigned i = 0; i < 3; i++) {
        clock_step(s->c.r.d, TIMEOUT_NS(14));
        if (i < 2) {
            again(s);
        }
    }
}

typedef struct Failure {
    const char *rule;
    void (*fail)(Shared *s);
    bool tells;                 /* An event is expected */
    const char *counted;
} Failure;

static const Failure failures[] = {
    { "members-go-with-their-carrier", error_command,
      .counted = "members_failed=2" },
    { "members-go-with-a-fatal-nak", error_nak, true,
      "members_failed=2 rx_nak_error" },
    { "members-go-with-an-rnr-nak", error_rnr, true,
      "members_failed=2 rx_rnr_nak" },
    { "members-go-with-the-last-nak", error_naks, true,
      "members_failed=2 rx_nak_sequence=3 retransmissions=6 retry_exceeded" },
    { "members-go-with-the-last-timeout", error_timeouts, true,
      "members_failed=2 retransmissions=6 timeouts=3 retry_exceeded" },
};

static void test_failure(const void *opaque)
{
    const Failure *k = opaque;
    PeerPacket p;
    Shared s;

    shared_start(&s, 0);
    writes_send(&s);
    k->fail(&s);
    if (k->tells) {
        shared_expect_event(&s, QRNIC_EVENT_QP_FATAL, &s.carrier);
    }
    shared_expect_event(&s, QRNIC_EVENT_QP_FATAL, &s.member[1]);
    member_completed(&s, 0, QRNIC_WC_RETRY_EXC_ERR, 0, QRNIC_SYN_CARRIER);
    for (unsigned i = 1; i < WRITES; i++) {
        member_completed(&s, 0, QRNIC_WC_WR_FLUSH_ERR, 0, QRNIC_SYN_NONE);
    }
    shared_quiet(&s, k->counted);
    shared_expect_state(&s, &s.carrier, QRNIC_QPS_ERR);
    for (unsigned m = 0; m < MEMBERS; m++) {
        shared_expect_state(&s, &s.member[m], m == ELSEWHERE ? QRNIC_QPS_RTS :
                                                               QRNIC_QPS_ERR);
    }
    /* The failed carrier receives and sends nothing. */
    shared_quiet(&s, "");
    p = member_forgery(&s, 0);
    shared_send(&s, &p, s.psn);
    shared_ack(&s);
    shared_quiet(&s, "rx_drop_qp_state=2");
    shared_stop(&s);
}

/* Tests that a queue pair causes no second event if it was in ERR before. */
static void test_failed_before(void)
{
    Shared s;

    shared_start(&s, 0);
    member_enter(&s, 1, QRNIC_QPS_ERR);
    error_command(&s);
    shared_expect_event(&s, QRNIC_EVENT_QP_FATAL, &s.member[0]);
    shared_quiet(&s, "members_failed");
    shared_stop(&s);
}

static void test_busy(void)
{
    Shared s;

    shared_start(&s, 0);
    for (unsigned m = 0; m < ELSEWHERE; m++) {
        command_fails(s.c.r.d, QRNIC_CMD_DESTROY_QP, s.carrier.number, NULL, 0,
                      NULL, 0, QRNIC_ST_BUSY, 0);
        shared_quiet(&s, "guest_errors");
        shared_works(&s, 2 * m);
        if (m + 1 < ELSEWHERE) {
            continue;
        }
        /* A member in ERR remains a member; a member in RESET does not. */
        member_enter(&s, 0, QRNIC_QPS_ERR);
        member_enter(&s, 1, QRNIC_QPS_RESET);
        command_fails(s.c.r.d, QRNIC_CMD_DESTROY_QP, s.carrier.number, NULL, 0,
                      NULL, 0, QRNIC_ST_BUSY, 0);
        command_ok(s.c.r.d, QRNIC_CMD_DESTROY_QP, s.member[0].number, NULL, 0,
                   NULL, 0);
    }
    command_ok(s.c.r.d, QRNIC_CMD_DESTROY_QP, s.carrier.number, NULL, 0, NULL,
               0);
    crafted_quiet(&s.c);
    shared_stop(&s);
}

void add_crafted_carrier_tests(void)
{
    for (unsigned i = 0; i < ARRAY_SIZE(answers); i++) {
        shared_add(answers[i].rule, "", test_answer, &answers[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(inners); i++) {
        shared_add(inners[i].rule, "", test_inner, &inners[i]);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(failures); i++) {
        shared_add(failures[i].rule, "", test_failure, &failures[i]);
    }
    qtest_add_func("qrnic/crafted/shared/ack-completes-nothing-of-a-member",
                   test_ack);
    qtest_add_func("qrnic/crafted/shared/sack-tells-and-completes-nothing",
                   test_sack);
    qtest_add_func("qrnic/crafted/shared/member-fails-alone",
                   test_member_fails);
    qtest_add_func("qrnic/crafted/shared/ack-ahead-is-early", test_early_ack);
    qtest_add_func("qrnic/crafted/shared/response-ahead-has-its-turn",
                   test_response_ahead);
    qtest_add_func("qrnic/crafted/shared/ack-behind-a-read-has-its-turn",
                   test_ack_behind_read);
    qtest_add_func("qrnic/crafted/shared/ack-behind-a-done-read-is-early",
                   test_early_ack_behind_done_read);
    qtest_add_func("qrnic/crafted/shared/send-lands", test_send_lands);
    qtest_add_func("qrnic/crafted/shared/window-is-of-all-members",
                   test_window);
    qtest_add_func("qrnic/crafted/shared/member-timer-waits-for-its-carrier",
                   test_member_timer);
    qtest_add_func("qrnic/crafted/shared/response-to-nothing-has-its-turn",
                   test_response_to_nothing);
    qtest_add_func("qrnic/crafted/shared/failed-before-is-not-told-again",
                   test_failed_before);
    qtest_add_func("qrnic/crafted/shared/busy-while-it-has-members", test_busy);
}
