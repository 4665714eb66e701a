/*
 * qrnic qtest: replayed and late requests, and invalid sequences of requests
 *
 * Programmer's Reference, chapters Selective repeat and Adaptive routing.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "crafted.h"

#define MTU CRAFTED_MTU
#define PLACED (MARK_PLACES | MARK_ALONE)
#define PLACED_MORE (PLACED | MARK_MORE)

static void start(Crafted *c, uint8_t options)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.options = options;
    crafted_start(c, "", &attr);
}

static void start_selective(Crafted *c)
{
    start(c, QRNIC_QPO_SELECTIVE_REPEAT);
}

static void start_adaptive(Crafted *c)
{
    start(c, QRNIC_QPO_ADAPTIVE_ROUTING);
}

/* Returns a write of MTU bytes to the start of the region. */
static PeerPacket write_of(Crafted *c, uint32_t psn, uint8_t byte, uint8_t mark)
{
    static uint8_t data[MTU];
    PeerPacket p = crafted_packet(c, RC_WRITE_ONLY, psn);

    memset(data, byte, sizeof(data));
    p.mark = mark;
    p.va = c->mr.start;
    p.rkey = c->mr.key;
    p.dma_length = p.length = MTU;
    p.payload = data;
    p.ack_request = true;
    return p;
}

static void send_write(Crafted *c, uint32_t psn, uint8_t byte, uint8_t mark)
{
    const PeerPacket p = write_of(c, psn, byte, mark);

    peer_send(c->r.d, &p);
}

static PeerPacket expect(Crafted *c, uint8_t opcode, uint32_t psn)
{
    PeerPacket p = crafted_answer(c);

    g_assert_cmphex(p.opcode, ==, opcode);
    g_assert_cmphex(p.psn, ==, psn & 0xffffff);
    return p;
}

static void expect_nak(Crafted *c, uint32_t psn, uint8_t syndrome)
{
    g_assert_cmphex(expect(c, RC_ACK, psn).syndrome, ==, syndrome);
}

/* Makes the device buffer a write with the PSN behind the expected one. */
static void keep(Crafted *c)
{
    send_write(c, RQ_PSN + 1, CRAFTED_BYTE, MARK_SELECTIVE);
    crafted_counted(c, "tx_sack buffered_packets out_of_sequence");
    expect(c, RC_SACK, RQ_PSN - 1);
}

/* Sends the missing packet, so that the buffered write is executed, once. */
static void turn(Crafted *c)
{
    crafted_wrote(c, 0, CRAFTED_BYTE, MTU);
    crafted_honest_write(c, RQ_PSN, 0);
    expect(c, RC_ACK, RQ_PSN + 1);
    crafted_counted(c, "rx_write=2 tx_ack");
}

static void goes_on(Crafted *c, uint32_t psn)
{
    crafted_quiet(c);
    for (unsigned i = 0; i < 3; i++) {
        crafted_honest(c, psn + i, 4 + i);
    }
    crafted_quiet(c);
    crafted_state(c, QRNIC_QPS_RTS);
    crafted_stop(c);
}

static void test_kept_replayed(void)
{
    Crafted c;

    start_selective(&c);
    keep(&c);
    for (unsigned i = 0; i < 20; i++) {
        send_write(&c, RQ_PSN + 1, CRAFTED_BYTE,
                   MARK_SELECTIVE | MARK_AGAIN(1));
        crafted_counted(&c, "tx_sack out_of_sequence");
        expect(&c, RC_SACK, RQ_PSN - 1);
    }
    crafted_quiet(&c);
    turn(&c);
    goes_on(&c, RQ_PSN + 2);
}

static void test_kept_first_counts(void)
{
    Crafted c;

    start_selective(&c);
    keep(&c);
    send_write(&c, RQ_PSN + 1, 0xbd, MARK_SELECTIVE);
    crafted_counted(&c, "tx_sack rx_buffered_conflicts out_of_sequence");
    expect(&c, RC_SACK, RQ_PSN - 1);
    turn(&c);
    goes_on(&c, RQ_PSN + 2);
}

/*
 * Tests that a packet with the PSN of a buffered one cannot replace it.
 * Otherwise its invalid key would end the connection.
 */
static void test_kept_not_displaced(void)
{
    PeerPacket p;
    Crafted c;

    start_selective(&c);
    keep(&c);
    p = write_of(&c, RQ_PSN + 1, 0xbd, MARK_SELECTIVE);
    p.rkey ^= 0x100000;
    peer_send(c.r.d, &p);
    expect(&c, RC_SACK, RQ_PSN - 1);
    p = crafted_packet(&c, RC_SEND_MIDDLE, RQ_PSN + 1);
    peer_send(c.r.d, &p);
    expect(&c, RC_SACK, RQ_PSN - 1);
    crafted_counted(&c, "tx_sack=2 rx_buffered_conflicts=2 out_of_sequence=2");
    turn(&c);
    goes_on(&c, RQ_PSN + 2);
}

static void test_executed_replayed(void)
{
    Crafted c;

    start_selective(&c);
    keep(&c);
    turn(&c);
    for (unsigned i = 0; i < 2; i++) {
        send_write(&c, RQ_PSN + i, 0xbd, MARK_SELECTIVE | MARK_AGAIN(1));
        crafted_counted(&c, "tx_ack duplicate_requests");
        expect(&c, RC_ACK, RQ_PSN + i);
    }
    goes_on(&c, RQ_PSN + 2);
}

static void test_atomic_replayed(void)
{
    PeerPacket p, answer;
    Crafted c;

    start_selective(&c);
    p = crafted_packet(&c, RC_FETCH_ADD, RQ_PSN + 1);
    p.va = c.mr.start;
    p.rkey = c.mr.key;
    p.swap_add = 0x100;
    for (unsigned i = 0; i < 3; i++) {
        peer_send(c.r.d, &p);
        expect(&c, RC_SACK, RQ_PSN - 1);
    }
    crafted_quiet(&c);
    crafted_counted(&c, "tx_sack=3 buffered_packets out_of_sequence=3");
    crafted_honest_write(&c, RQ_PSN, 0);
    crafted_wrote(&c, 1, 0xef, 1);      /* 0xeeee... + 0x100 */
    answer = expect(&c, RC_ATOMIC_ACK, RQ_PSN + 1);
    g_assert_cmphex(answer.original, ==, 0xeeeeeeeeeeeeeeeeull);
    crafted_counted(&c, "rx_write rx_atomic");
    peer_send(c.r.d, &p);
    answer = expect(&c, RC_ATOMIC_ACK, RQ_PSN + 1);
    g_assert_cmphex(answer.original, ==, 0xeeeeeeeeeeeeeeeeull);
    crafted_counted(&c, "duplicate_requests");
    goes_on(&c, RQ_PSN + 2);
}

/* Tests that a read occupies the PSNs of its response. */
static void test_inside_of_read(void)
{
    PeerPacket p;
    Crafted c;

    start_selective(&c);
    send_write(&c, RQ_PSN + 1, CRAFTED_BYTE, MARK_SELECTIVE);
    expect(&c, RC_SACK, RQ_PSN - 1);
    send_write(&c, RQ_PSN + 3, CRAFTED_BYTE, MARK_SELECTIVE);
    expect(&c, RC_SACK, RQ_PSN - 1);
    p = crafted_packet(&c, RC_READ_REQUEST, RQ_PSN);
    p.va = c.mr.start;
    p.rkey = c.mr.key;
    p.dma_length = 4 * MTU;
    p.ack_request = true;
    peer_send(c.r.d, &p);
    for (unsigned i = 0; i < 4; i++) {
        expect(&c, i == 0 ? RC_READ_FIRST : i == 3 ? RC_READ_LAST :
               RC_READ_MIDDLE, RQ_PSN + i);
    }
    crafted_counted(&c, "rx_read tx_sack=2 buffered_packets=2 "
                    "out_of_sequence=2");
    goes_on(&c, RQ_PSN + 4);
}

static void test_key_gone(void)
{
    uint8_t options[] = {
        QRNIC_QPO_SELECTIVE_REPEAT, QRNIC_QPO_ADAPTIVE_ROUTING,
    };

    for (unsigned i = 0; i < ARRAY_SIZE(options); i++) {
        PeerPacket p;
        Mr other;
        Crafted c;

        start(&c, options[i]);
        mr_create(c.r.d, &other, c.r.pd, CRAFTED_START, MTU, ALL_RIGHTS);
        p = write_of(&c, RQ_PSN + 1, CRAFTED_BYTE, MARK_SELECTIVE | PLACED);
        p.rkey = other.key;
        /*
         * The key is destroyed before the write arrives, so the write is not
         * placed.
         */
        if (i) {
            command_ok(c.r.d, QRNIC_CMD_DESTROY_MKEY, other.index, NULL, 0,
                       NULL, 0);
        }
        peer_send(c.r.d, &p);
        /* The key is destroyed while the write is buffered. */
        if (!i) {
            expect(&c, RC_SACK, RQ_PSN - 1);
            command_ok(c.r.d, QRNIC_CMD_DESTROY_MKEY, other.index, NULL, 0,
                       NULL, 0);
        }
        crafted_quiet(&c);
        crafted_honest_write(&c, RQ_PSN, 0);
        expect_nak(&c, RQ_PSN + 1, AETH_NAK_REMOTE_ACCESS);
        for (unsigned at = 0; at < MTU; at += 8) {
            g_assert_cmphex(qtest_readq(c.r.d->qts, other.memory + at), ==, 0);
        }
        crafted_dead(&c, QRNIC_EVENT_QP_ACCESS_ERROR);
        crafted_stop(&c);
    }
}

static void test_behind_refusal(void)
{
    PeerPacket p;
    Crafted c;

    start_selective(&c);
    keep(&c);
    p = write_of(&c, RQ_PSN, 0xbd, MARK_SELECTIVE);
    p.rkey ^= 0x100000;
    peer_send(c.r.d, &p);
    expect_nak(&c, RQ_PSN, AETH_NAK_REMOTE_ACCESS);
    crafted_counted(&c, "tx_nak_error");
    crafted_dead(&c, QRNIC_EVENT_QP_ACCESS_ERROR);
    crafted_stop(&c);
}

static void reset(Crafted *c)
{
    const QrnicQpAttr to = {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    };
    QrnicQpAttr attr = qp_default_attr();

    attr.options = c->options;
    qp_modify(c->r.d, &c->r.qp, &to);
    qp_connect(c->r.d, &c->r.qp, &attr);
}

/*
 * Tests that after a reset with the same numbers nothing of the old connection
 * remains.
 */
static void test_reset(void)
{
    Crafted c;

    start_selective(&c);
    keep(&c);
    reset(&c);
    crafted_honest(&c, RQ_PSN, 0);
    crafted_counted(&c, "rx_write tx_ack");
    goes_on(&c, RQ_PSN + 1);
}

static void test_adaptive_reset(void)
{
    Crafted c;

    start_adaptive(&c);
    send_write(&c, RQ_PSN + 1, CRAFTED_BYTE, PLACED);
    crafted_wrote(&c, 0, CRAFTED_BYTE, MTU);
    crafted_counted(&c, "placed_packets out_of_sequence");
    reset(&c);
    crafted_honest(&c, RQ_PSN, 0);
    crafted_counted(&c, "rx_write tx_ack");
    goes_on(&c, RQ_PSN + 1);
}

/*
 * Tests a flood of packets out of order. Each PSN inside the window is buffered
 * once, and a PSN beyond the window causes one NAK.
 */
static void test_flood(void)
{
    const unsigned many = QRNIC_SELECTIVE_WINDOW + 40;
    Crafted c;

    start_selective(&c);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 1; i < many; i++) {
            send_write(&c, RQ_PSN + i, CRAFTED_BYTE, MARK_SELECTIVE);
            settle(c.r.d);
            while (wire_pending(c.r.d)) {
                crafted_answer(&c);
            }
        }
    }
    g_assert_cmpuint(counter(c.r.d, QRNIC_COUNTER_BUFFERED_PACKETS), ==,
                     QRNIC_SELECTIVE_WINDOW - 1);
    g_assert_cmpuint(counter(c.r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==,
                     2 * (many - 1));
    g_assert_cmpuint(counter(c.r.d, QRNIC_COUNTER_TX_NAK_SEQUENCE), ==, 1);
    crafted_quiet(&c);
    crafted_wrote(&c, 0, CRAFTED_BYTE, MTU);
    crafted_honest_write(&c, RQ_PSN, 0);
    counter_wait(c.r.d, QRNIC_COUNTER_RX_WRITE, QRNIC_SELECTIVE_WINDOW);
    settle(c.r.d);
    while (wire_pending(c.r.d)) {
        crafted_answer(&c);
    }
    goes_on(&c, RQ_PSN + QRNIC_SELECTIVE_WINDOW);
}

static void test_placed_replayed(void)
{
    Crafted c;

    start_adaptive(&c);
    send_write(&c, RQ_PSN + 1, CRAFTED_BYTE, PLACED);
    crafted_wrote(&c, 0, CRAFTED_BYTE, MTU);
    crafted_counted(&c, "placed_packets out_of_sequence");
    for (unsigned i = 0; i < 3; i++) {
        send_write(&c, RQ_PSN + 1, 0xbd, PLACED);
        crafted_counted(&c, "out_of_sequence");
        crafted_quiet(&c);
    }
    turn(&c);
    goes_on(&c, RQ_PSN + 2);
}

static void test_complete_replayed(void)
{
    Crafted c;

    start_adaptive(&c);
    send_write(&c, RQ_PSN + 1, CRAFTED_BYTE, PLACED);
    crafted_counted(&c, "placed_packets out_of_sequence");
    turn(&c);
    for (unsigned i = 0; i < 2; i++) {
        send_write(&c, RQ_PSN + i, 0xbd, PLACED);
        crafted_counted(&c, "tx_ack duplicate_requests");
        expect(&c, RC_ACK, RQ_PSN + i);
    }
    goes_on(&c, RQ_PSN + 2);
}

/*
 * Tests a write that was placed on arrival, while the request before it is
 * missing. That request is then rejected. The placed data stays in memory, and
 * the write never completes.
 */
static void test_placed_behind_refusal(void)
{
    PeerPacket p;
    Crafted c;

    start_adaptive(&c);
    send_write(&c, RQ_PSN + 1, CRAFTED_BYTE, PLACED);
    crafted_wrote(&c, 0, CRAFTED_BYTE, MTU);
    p = write_of(&c, RQ_PSN, 0xbd, PLACED);
    p.rkey ^= 0x100000;
    peer_send(c.r.d, &p);
    expect_nak(&c, RQ_PSN, AETH_NAK_REMOTE_ACCESS);
    crafted_counted(&c, "placed_packets tx_nak_error out_of_sequence");
    crafted_dead(&c, QRNIC_EVENT_QP_ACCESS_ERROR);
    crafted_stop(&c);
}

/* Tests that a forged PSN far ahead causes one NAK, after ADAPTIVE_GAP_TIME. */
static void test_gap_of_forgery(void)
{
    Crafted c;

    start_adaptive(&c);
    send_write(&c, RQ_PSN + 100, CRAFTED_BYTE, PLACED);
    crafted_wrote(&c, 0, CRAFTED_BYTE, MTU);
    crafted_counted(&c, "placed_packets out_of_sequence");
    crafted_quiet(&c);
    clock_step(c.r.d, QRNIC_ADAPTIVE_GAP_TIME * SCALE_US);
    expect_nak(&c, RQ_PSN, AETH_NAK_SEQUENCE);
    crafted_counted(&c, "tx_nak_sequence");
    clock_step(c.r.d, 100 * QRNIC_ADAPTIVE_GAP_TIME * SCALE_US);
    goes_on(&c, RQ_PSN);
}

/* Packets that are invalid between two packets of one write */
typedef struct Between {
    const char *rule;
    uint8_t opcode, mark;
    uint32_t length, announced;
} Between;

static const Between between[] = {
    { "write-cut-short-by-a-write", RC_WRITE_ONLY, MARK_PLACES, 8, 8 },
    { "write-cut-short-by-a-write-first", RC_WRITE_FIRST, MARK_PLACES, MTU,
      2 * MTU },
    { "write-cut-short-by-a-send", RC_SEND_ONLY, MARK_PLACES, 8, 0 },
    { "write-cut-short-by-a-marked-send", RC_SEND_ONLY, PLACED, 8, 0 },
    { "write-cut-short-by-a-read", RC_READ_REQUEST, MARK_PLACES, 0, 8 },
    { "write-cut-short-by-a-marked-read", RC_READ_REQUEST, PLACED, 0, 8 },
    { "write-cut-short-by-an-atomic", RC_FETCH_ADD, MARK_PLACES, 0, 0 },
    { "write-continued-by-a-middle", RC_WRITE_MIDDLE, PLACED, MTU, 0 },
    { "write-continued-by-a-last", RC_WRITE_LAST, PLACED, 8, 0 },
};

static void test_between(const void *opaque)
{
    const Between *k = opaque;
    uint8_t data[MTU];
    PeerPacket p;
    Crafted c;

    start_adaptive(&c);
    send_write(&c, RQ_PSN, CRAFTED_BYTE, PLACED_MORE);
    expect(&c, RC_ACK, RQ_PSN);
    crafted_wrote(&c, 0, CRAFTED_BYTE, MTU);
    crafted_counted(&c, "tx_ack");
    memset(data, 0xbd, sizeof(data));
    p = write_of(&c, RQ_PSN + 1, 0xbd, k->mark);
    p.opcode = k->opcode;
    p.length = k->length;
    p.payload = data;
    p.dma_length = k->announced;
    peer_send(c.r.d, &p);
    expect_nak(&c, RQ_PSN + 1, AETH_NAK_INVALID_REQUEST);
    crafted_counted(&c, "tx_nak_error");
    crafted_dead(&c, QRNIC_EVENT_QP_REQUEST_ERROR);
    crafted_stop(&c);
}

void add_crafted_replay_tests(void)
{
    qtest_add_func("qrnic/crafted/selective/replay-is-kept-once",
                   test_kept_replayed);
    qtest_add_func("qrnic/crafted/selective/replay-with-other-bytes",
                   test_kept_first_counts);
    qtest_add_func("qrnic/crafted/selective/forgery-displaces-nothing",
                   test_kept_not_displaced);
    qtest_add_func("qrnic/crafted/selective/replay-of-the-executed-is-stale",
                   test_executed_replayed);
    qtest_add_func("qrnic/crafted/selective/replay-of-an-atomic",
                   test_atomic_replayed);
    qtest_add_func("qrnic/crafted/selective/inside-of-a-read-is-nobodys",
                   test_inside_of_read);
    qtest_add_func("qrnic/crafted/selective/key-gone-before-its-turn",
                   test_key_gone);
    qtest_add_func("qrnic/crafted/selective/behind-a-refusal-is-nothing",
                   test_behind_refusal);
    qtest_add_func("qrnic/crafted/selective/reset-forgets-what-is-kept",
                   test_reset);
    qtest_add_func("qrnic/crafted/selective/flood-keeps-the-window",
                   test_flood);
    qtest_add_func("qrnic/crafted/adaptive/reset-forgets-what-was-placed",
                   test_adaptive_reset);
    qtest_add_func("qrnic/crafted/adaptive/replay-is-placed-once",
                   test_placed_replayed);
    qtest_add_func("qrnic/crafted/adaptive/replay-of-the-complete-is-stale",
                   test_complete_replayed);
    qtest_add_func("qrnic/crafted/adaptive/behind-a-refusal-is-not-complete",
                   test_placed_behind_refusal);
    qtest_add_func("qrnic/crafted/adaptive/gap-of-a-forgery-is-told-once",
                   test_gap_of_forgery);
    for (unsigned i = 0; i < ARRAY_SIZE(between); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/crafted/adaptive/%s",
                                                between[i].rule);

        qtest_add_data_func(path, &between[i], test_between);
    }
}
