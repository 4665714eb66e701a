/*
 * qrnic qtest: from doorbell to completion, step by step
 *
 * Doorbells, doorbell records, batch fetch, direct WQEs, the doorbell FIFO,
 * arming, overrun. Programmer's Reference, chapters Doorbells and Queues.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

static Wqe small_send(Rig *r, uint32_t offset)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_data(&w, r->mr.start + offset, 16, r->mr.key);
    return w;
}

/*
 * Tests that no step of a send has an effect alone. The doorbell starts the
 * WQE, and the ACK completes it. The order of steps therefore decides when the
 * device reads.
 */
static void test_steps(void)
{
    Rig r;
    Wqe w;
    QrnicCqe cqe;
    PeerPacket p;
    uint64_t records, fetches, blocks;
    uint8_t data[16];

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 1);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    wire_silent(r.d);
    sq_publish(r.d, &r.qp);
    wire_silent(r.d);
    records = counter(r.d, QRNIC_COUNTER_RECORD_READS);
    fetches = counter(r.d, QRNIC_COUNTER_WQE_FETCHES);
    blocks = counter(r.d, QRNIC_COUNTER_WQEBB_FETCHED);
    sq_ring(r.d, &r.qp);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, data, sizeof(data));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RECORD_READS), ==, records + 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_WQE_FETCHES), ==, fetches + 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_WQEBB_FETCHED), ==, blocks + 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELLS), ==, 1);
    /* The send is not complete yet, because its ACK has not arrived. */
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.opcode, ==, QRNIC_CQE_SEND);
    g_assert_cmphex(cqe.qpn, ==, r.qp.number);
    g_assert_cmpuint(cqe.index, ==, 0);
    rig_stop(&r);
}

/*
 * Tests that a hardware doorbell is a hint, because the doorbell record
 * decides the producer index.
 */
static void test_record_rules(void)
{
    Rig r;
    Wqe w;

    rig_start(&r, "", NULL);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    /* The doorbell has the producer index 1, the doorbell record has 0. */
    sq_ring(r.d, &r.qp);
    wire_silent(r.d);
    sq_publish(r.d, &r.qp);
    doorbell(r.d, r.page, QRNIC_DB_SQ, r.qp.number, 0, 0);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

/* Tests that one DMA read fetches eight basic blocks behind one doorbell. */
static void test_batch_fetch(void)
{
    Rig r;
    uint64_t fetches;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 8; i++) {
        Wqe w = small_send(&r, i * 16);

        sq_write(r.d, &r.qp, &w);
    }
    fetches = counter(r.d, QRNIC_COUNTER_WQE_FETCHES);
    sq_publish(r.d, &r.qp);
    sq_ring(r.d, &r.qp);
    for (int i = 0; i < 8; i++) {
        peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + i);
    }
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_WQE_FETCHES), ==, fetches + 1);
    rig_stop(&r);
}

/* Tests that a WQE wraps around the end of its ring at a basic block. */
static void test_wrap(void)
{
    Rig r;
    QrnicCqe cqe;
    uint32_t psn = SQ_PSN;
    uint8_t data[160], got[160];

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 3);
    /*
     * Each WQE has three blocks in a ring of 32, so the one at index 30 wraps.
     */
    for (int i = 0; i < 22; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
        PeerPacket p;

        for (int s = 0; s < 10; s++) {
            wqe_data(&w, r.mr.start + s * 16, 16, r.mr.key);
        }
        g_assert_cmpuint(wqe_wqebbs(&w), ==, 3);
        sq_post(r.d, &r.qp, &w);
        p = peer_expect(r.d, RC_SEND_ONLY, psn);
        memcpy(got, p.payload, MIN(p.length, sizeof(got)));
        g_assert_cmpmem(got, p.length, data, sizeof(data));
        peer_ack(r.d, &r.qp, psn++, AETH_ACK | 31, i + 1);
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.index, ==, i * 3);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    }
    rig_stop(&r);
}

/*
 * Tests that a direct WQE sends the same frame as a fetched one, with two reads
 * less.
 */
static void test_direct_equal(void)
{
    Rig r;
    uint8_t frame[2][PEER_FRAME_MAX], payload[32];
    size_t len[2];
    uint64_t reads[2], before;

    memset(payload, 0x5a, sizeof(payload));
    for (int direct = 0; direct < 2; direct++) {
        Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

        wqe_inline(&w, payload, sizeof(payload));
        rig_start(&r, "", NULL);
        before = counter(r.d, QRNIC_COUNTER_DMA_READS);
        if (direct) {
            sq_post_direct(r.d, &r.qp, &w);
        } else {
            sq_post(r.d, &r.qp, &w);
        }
        len[direct] = wire_receive(r.d, frame[direct]);
        /* QUERY_COUNTERS reads its own entry, so one read is subtracted. */
        reads[direct] = counter(r.d, QRNIC_COUNTER_DMA_READS) - before - 1;
        g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DIRECT_WQE_USED), ==,
                         direct);
        g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_INLINE_WQES), ==, 1);
        rig_stop(&r);
    }
    g_assert_cmpmem(frame[0], len[0], frame[1], len[1]);
    /*
     * The fetched WQE needs reads of the doorbell record and the WQE. The
     * data is inline.
     */
    g_assert_cmpuint(reads[0], ==, 2);
    g_assert_cmpuint(reads[1], ==, 0);
}

/*
 * Tests that a direct WQE out of order is dropped, and the WQE is fetched from
 * the ring.
 */
static void test_direct_out_of_order(void)
{
    Rig r;
    Wqe w;
    PeerPacket p;
    uint8_t data[32];

    rig_start(&r, "", NULL);
    rig_fill(&r, 0, data, sizeof(data), 5);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    w = small_send(&r, 16);
    sq_post_direct(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, data, 16);
    p = peer_expect(r.d, RC_SEND_ONLY, SQ_PSN + 1);
    g_assert_cmpmem(p.payload, p.length, data + 16, 16);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DIRECT_WQE_DROPPED), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DIRECT_WQE_USED), ==, 0);
    rig_stop(&r);
}

/*
 * Tests that without a whole WQE in the window, the direct doorbell reads the
 * ring.
 */
static void test_direct_window(void)
{
    Rig r;
    Wqe w;

    rig_start(&r, "", NULL);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    sq_publish(r.d, &r.qp);
    qpci_io_writeq(r.d->pci, r.d->doorbells,
                   r.page * QRNIC_DB_PAGE_SIZE + QRNIC_DB_WINDOW, 1);
    doorbell(r.d, r.page, QRNIC_DB_DIRECT, r.qp.number, 1, 1);
    counter_wait(r.d, QRNIC_COUNTER_GE_DIRECT_WINDOW, 1);
    doorbell(r.d, r.page, QRNIC_DB_DIRECT, r.qp.number, 1,
             QRNIC_DB_WINDOW_WQEBB + 1);
    counter_wait(r.d, QRNIC_COUNTER_GE_DIRECT_WINDOW, 2);
    sq_ring(r.d, &r.qp);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DIRECT_WQE_USED), ==, 0);
    rig_stop(&r);
}

static void test_direct_switched_off(void)
{
    Rig r;
    Wqe w;

    rig_start(&r, "cap-direct-wqe=off", NULL);
    w = small_send(&r, 0);
    sq_post_direct(r.d, &r.qp, &w);
    counter_wait(r.d, QRNIC_COUNTER_DIRECT_WQE_USED, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_DOORBELL_ACCESS), >, 0);
    sq_ring(r.d, &r.qp);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

/*
 * Writes doorbells while the VM is stopped, so that the device processes none
 * before the last.
 */
static void doorbell_burst(Rig *r, unsigned offset, const uint8_t *bytes,
                           size_t len)
{
    vm_stop(r->d);
    qtest_memwrite(r->d->qts, r->d->doorbells.addr +
                   r->page * QRNIC_DB_PAGE_SIZE + offset, bytes, len);
    vm_continue(r->d);
}

/*
 * Tests one burst of MMIO writes. The CQ arm doorbell at 0x18 fills the FIFO of
 * one entry, and the direct doorbell at 0x40 is dropped. The device finds the
 * work in the doorbell record.
 */
static void test_fifo_overflow(void)
{
    Rig r;
    Wqe w;
    uint8_t burst[0x48 - 0x18] = { 0 };
    QrnicDoorbell arm, direct;
    uint64_t fetched;

    rig_start(&r, "doorbell-fifo=1", NULL);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    sq_publish(r.d, &r.qp);
    arm = (QrnicDoorbell) { .number = r.recv_cq.number };
    direct = (QrnicDoorbell) {
        .number = r.qp.number, .wqebbs = 1, .index = 1,
    };
    qrnic_doorbell_pack(burst, &arm);
    qrnic_doorbell_pack(burst + QRNIC_DB_DIRECT - QRNIC_DB_CQ_ARM, &direct);
    for (int i = 0; i < QRNIC_WQEBB_SIZE; i += 8) {
        qpci_io_writeq(r.d->pci, r.d->doorbells, r.page * QRNIC_DB_PAGE_SIZE +
                       QRNIC_DB_WINDOW + i, ldq_le_p(w.bytes + i));
    }
    fetched = counter(r.d, QRNIC_COUNTER_WQE_FETCHES);
    doorbell_burst(&r, QRNIC_DB_CQ_ARM, burst, sizeof(burst));
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELLS_DROPPED), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELL_RECOVERIES), ==, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DIRECT_WQE_USED), ==, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_WQE_FETCHES), ==, fetched + 1);
    rig_stop(&r);
}

/*
 * Tests that the CQ record has the arm request, so a dropped doorbell is
 * harmless.
 */
static void test_fifo_overflow_arm(void)
{
    Rig r;
    QrnicCqRecord record = { .sequence = 1 };
    QrnicDoorbell rq, arm;
    uint8_t burst[0x20 - 0x08] = { 0 }, raw[QRNIC_CQ_RECORD_BYTES];
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
    QrnicEqe eqe;

    rig_start(&r, "doorbell-fifo=1", NULL);
    qrnic_cq_record_pack(raw, &record);
    qtest_memwrite(r.d->qts, r.send_cq.record, raw, sizeof(raw));
    rq = (QrnicDoorbell) { .number = r.qp.number };
    arm = (QrnicDoorbell) { .number = r.send_cq.number };
    qrnic_doorbell_pack(burst, &rq);
    qrnic_doorbell_pack(burst + QRNIC_DB_CQ_ARM - QRNIC_DB_RQ, &arm);
    doorbell_burst(&r, QRNIC_DB_RQ, burst, sizeof(burst));
    counter_wait(r.d, QRNIC_COUNTER_DOORBELL_RECOVERIES, 1);
    sq_post(r.d, &r.qp, &w);
    eq_wait(r.d, &r.eq, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_COMPLETION);
    g_assert_cmpuint(eqe.object, ==, r.send_cq.number);
    rig_stop(&r);
}

/*
 * Tests a burst of doorbells of one page that overflows the FIFO. The device
 * scans the queues of that page only, although a queue of another page has work
 * without a doorbell.
 */
static void test_fifo_flood(void)
{
    Rig r;
    Qp other;
    uint32_t page;
    uint8_t burst[0x20 - 0x08] = { 0 };
    QrnicDoorbell rq, arm;
    Wqe w, x;

    rig_start(&r, "doorbell-fifo=2", NULL);
    page = command_ok(r.d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    qp_create(r.d, &other, QRNIC_QPT_RC, r.pd, page, &r.send_cq, &r.recv_cq,
              4, 4, 0);
    qp_connect(r.d, &other, NULL);
    x = small_send(&r, 1);
    sq_write(r.d, &other, &x);
    sq_publish(r.d, &other);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    sq_publish(r.d, &r.qp);
    /*
     * The burst begins with the RQ doorbell and fills the page's share of two
     * entries; the SRQ doorbell with number 0 is invalid.
     */
    rq = (QrnicDoorbell) { .number = r.qp.number };
    arm = (QrnicDoorbell) { .number = r.send_cq.number };
    qrnic_doorbell_pack(burst, &rq);
    qrnic_doorbell_pack(burst + QRNIC_DB_CQ_ARM - QRNIC_DB_RQ, &arm);
    doorbell_burst(&r, QRNIC_DB_RQ, burst, sizeof(burst));
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    settle(r.d);
    wire_silent(r.d);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELLS_DROPPED), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELL_RECOVERIES), ==, 1);
    sq_ring(r.d, &other);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

/*
 * Tests that a process cannot ring queues of another doorbell page. Otherwise a
 * process could disturb another.
 */
static void test_isolation(void)
{
    Rig r;
    Wqe w;
    uint32_t other;

    rig_start(&r, "", NULL);
    other = command_ok(r.d, QRNIC_CMD_ALLOC_DB_PAGE, 0, NULL, 0, NULL, 0);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    sq_publish(r.d, &r.qp);
    doorbell(r.d, other, QRNIC_DB_SQ, r.qp.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_OWNER, 1);
    doorbell(r.d, other, QRNIC_DB_RQ, r.qp.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_OWNER, 2);
    doorbell(r.d, other, QRNIC_DB_CQ_ARM, r.send_cq.number, 0, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_OWNER, 3);
    /* Page 0 belongs to the kernel, and cannot ring these queues either. */
    doorbell(r.d, 0, QRNIC_DB_SQ, r.qp.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_OWNER, 4);
    wire_silent(r.d);
    sq_ring(r.d, &r.qp);
    peer_expect(r.d, RC_SEND_ONLY, SQ_PSN);
    rig_stop(&r);
}

/* Tests that each invalid doorbell is dropped and counted by its reason. */
static void test_bad_doorbells(void)
{
    Rig r;
    uint64_t page;

    rig_start(&r, "", NULL);
    page = r.d->doorbells.addr + r.page * QRNIC_DB_PAGE_SIZE;
    doorbell(r.d, r.page + 1, QRNIC_DB_SQ, r.qp.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_PAGE, 1);
    doorbell(r.d, r.page, QRNIC_DB_SQ, 0x00fffff0, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    doorbell(r.d, r.page, QRNIC_DB_CQ_ARM, 0x00fffff0, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 2);
    qtest_writeq(r.d->qts, page + QRNIC_DB_SQ, 0xf0000000u | r.qp.number);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_RESERVED, 1);
    qtest_writel(r.d->qts, page + QRNIC_DB_SQ, r.qp.number);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_ACCESS, 1);
    qtest_writeq(r.d->qts, page + 0x100, r.qp.number);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_ACCESS, 2);
    /* The EQ doorbell exists in page 0 only. */
    qtest_writeq(r.d->qts, page + QRNIC_DB_EQ, r.eq.number);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_ACCESS, 3);
    /* Reads of a doorbell page return 0. */
    g_assert_cmphex(qtest_readq(r.d->qts, page + QRNIC_DB_SQ), ==, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_ACCESS, 4);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET,
    });
    doorbell(r.d, r.page, QRNIC_DB_SQ, r.qp.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_STATE, 1);
    wire_silent(r.d);
    rig_stop(&r);
}

static void expect_error(Rig *r, unsigned status, unsigned syndrome)
{
    QrnicQpAttr a;
    QrnicCqe cqe;

    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpstr(qrnic_wc_status_name(cqe.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpstr(qrnic_syndrome_name(cqe.syndrome), ==,
                    qrnic_syndrome_name(syndrome));
    qp_query(r->d, &r->qp, &a);
    g_assert_cmpuint(a.state, ==, QRNIC_QPS_ERR);
}

/* Tests that a producer index beyond the ring moves the queue pair to ERR. */
static void test_producer_beyond(void)
{
    Rig r;
    QrnicQpAttr a;

    rig_start(&r, "", NULL);
    r.qp.sq_producer = 33;
    sq_publish(r.d, &r.qp);
    sq_ring(r.d, &r.qp);
    counter_wait(r.d, QRNIC_COUNTER_GE_RECORD_VALUE, 1);
    qp_query(r.d, &r.qp, &a);
    g_assert_cmpuint(a.state, ==, QRNIC_QPS_ERR);
    wire_silent(r.d);
    rig_stop(&r);
}

typedef struct BadWqe {
    const char *name;
    void (*spoil)(Wqe *w, uint8_t *raw);
    unsigned status, syndrome;
} BadWqe;

static void spoil_opcode(Wqe *w, uint8_t *raw)
{
    raw[0] = 0x7f;
}

static void spoil_reserved(Wqe *w, uint8_t *raw)
{
    raw[3] = 0x80;
}

static void spoil_index(Wqe *w, uint8_t *raw)
{
    raw[4] = 9;
}

static void spoil_flags(Wqe *w, uint8_t *raw)
{
    raw[1] = 0x80;
}

static void spoil_segments(Wqe *w, uint8_t *raw)
{
    raw[2] = 0;
}

static void spoil_inline(Wqe *w, uint8_t *raw)
{
    raw[1] |= QRNIC_WQEF_INLINE;
    raw[12] = 200;
}

static const BadWqe bad_wqes[] = {
    { "opcode", spoil_opcode, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_OPCODE },
    { "reserved", spoil_reserved, QRNIC_WC_LOC_QP_OP_ERR,
      QRNIC_SYN_WQE_RESERVED },
    { "flags", spoil_flags, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_RESERVED },
    { "index", spoil_index, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_INDEX },
    { "segments", spoil_segments, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_SIZE },
    { "inline", spoil_inline, QRNIC_WC_LOC_QP_OP_ERR, QRNIC_SYN_WQE_SIZE },
};

static void test_bad_wqe(const void *data)
{
    const BadWqe *bad = data;
    uint8_t raw[QRNIC_WQEBB_SIZE];
    QrnicCqe cqe;
    Rig r;
    Wqe w;

    rig_start(&r, "", NULL);
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    qtest_memread(r.d->qts, r.qp.sq, raw, sizeof(raw));
    bad->spoil(&w, raw);
    qtest_memwrite(r.d->qts, r.qp.sq, raw, sizeof(raw));
    w = small_send(&r, 0);
    sq_write(r.d, &r.qp, &w);
    sq_publish(r.d, &r.qp);
    sq_ring(r.d, &r.qp);
    expect_error(&r, bad->status, bad->syndrome);
    /* The next WQE is flushed. */
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_WQE_MALFORMED), ==, 1);
    wire_silent(r.d);
    rig_stop(&r);
}

/*
 * Tests that a malformed WQE of several blocks is skipped as one WQE, and the
 * next one is found.
 */
static void test_bad_wqe_long(void)
{
    uint8_t raw[QRNIC_WQEBB_SIZE];
    QrnicCqe cqe;
    Rig r;
    Wqe w = wqe_begin(QRNIC_WQE_SEND, 0);

    rig_start(&r, "", NULL);
    for (int i = 0; i < 10; i++) {
        wqe_data(&w, r.mr.start, 4, r.mr.key);
    }
    g_assert_cmpuint(wqe_wqebbs(&w), ==, 3);
    for (int i = 0; i < 2; i++) {
        uint64_t at = r.qp.sq + 4 * i * QRNIC_WQEBB_SIZE;
        Wqe small = small_send(&r, 0);

        sq_write(r.d, &r.qp, &w);
        qtest_memread(r.d->qts, at, raw, sizeof(raw));
        spoil_opcode(&w, raw);
        qtest_memwrite(r.d->qts, at, raw, sizeof(raw));
        sq_write(r.d, &r.qp, &small);
    }
    sq_publish(r.d, &r.qp);
    sq_ring(r.d, &r.qp);
    for (int i = 0; i < 4; i++) {
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, i ? QRNIC_WC_WR_FLUSH_ERR :
                                             QRNIC_WC_LOC_QP_OP_ERR);
        g_assert_cmpuint(cqe.index, ==, i / 2 * 4 + (i & 1) * 3);
    }
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.send_cq, &cqe));
    rig_stop(&r);
}

/* Tests that in ERR all WQEs are flushed in order, later ones included. */
static void test_flush(void)
{
    Rig r;
    QrnicCqe cqe;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 3; i++) {
        Wqe w = small_send(&r, 0);

        w.ctrl.flags = 0;       /* Unsignaled WQEs are flushed too */
        sq_write(r.d, &r.qp, &w);
    }
    sq_publish(r.d, &r.qp);
    rq_post(r.d, &r.qp, NULL, 0);
    rq_post(r.d, &r.qp, NULL, 0);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    });
    sq_ring(r.d, &r.qp);
    for (int i = 0; i < 3; i++) {
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpuint(cqe.index, ==, i);
        g_assert_cmphex(cqe.opcode & 0x80, ==, 0);
    }
    for (int i = 0; i < 2; i++) {
        cq_wait(r.d, &r.recv_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpuint(cqe.index, ==, i);
        g_assert_cmphex(cqe.opcode & 0x80, ==, 0x80);
    }
    rq_post(r.d, &r.qp, NULL, 0);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.index, ==, 2);
    for (int i = 3; i < 5; i++) {
        Wqe w = small_send(&r, 0);

        sq_post(r.d, &r.qp, &w);
        cq_wait(r.d, &r.send_cq, &cqe);
        g_assert_cmpuint(cqe.status, ==, QRNIC_WC_WR_FLUSH_ERR);
        g_assert_cmpuint(cqe.index, ==, i);
    }
    wire_silent(r.d);
    rig_stop(&r);
}

static void post_nop(Rig *r)
{
    Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

    sq_post(r->d, &r->qp, &w);
}

/*
 * Tests that the order is CQE, EQE, interrupt, and that each arming causes one
 * event.
 */
static void test_arm(void)
{
    Rig r;
    QrnicCqe cqe;
    QrnicEqe eqe;

    rig_start(&r, "", NULL);
    eq_arm(r.d, &r.eq);
    post_nop(&r);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.opcode, ==, QRNIC_CQE_NOP);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));  /* The CQ was never armed */
    cq_arm(r.d, &r.send_cq, false);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    post_nop(&r);
    interrupt_wait(r.d, 1);
    g_assert_true(eq_poll(r.d, &r.eq, &eqe));
    g_assert_cmpuint(eqe.object, ==, r.send_cq.number);
    g_assert_true(cq_poll(r.d, &r.send_cq, &cqe));
    post_nop(&r);
    cq_wait(r.d, &r.send_cq, &cqe);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    /* A CQE that software has not consumed yet causes an event at once. */
    post_nop(&r);
    settle(r.d);
    eq_arm(r.d, &r.eq);
    cq_arm(r.d, &r.send_cq, false);
    interrupt_wait(r.d, 1);
    g_assert_true(eq_poll(r.d, &r.eq, &eqe));
    rig_stop(&r);
}

/*
 * Tests that an event covers all CQEs before it. If the CQ is armed again
 * before software has consumed one of these CQEs, the next CQE causes the next
 * event.
 */
static void test_arm_once(void)
{
    Rig r;
    QrnicCqe cqe;
    QrnicEqe eqe;

    rig_start(&r, "", NULL);
    cq_arm(r.d, &r.send_cq, false);
    post_nop(&r);
    eq_wait(r.d, &r.eq, &eqe);
    cq_arm(r.d, &r.send_cq, false);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    g_assert_true(cq_poll(r.d, &r.send_cq, &cqe));
    post_nop(&r);
    eq_wait(r.d, &r.eq, &eqe);
    /* A CQE after the event causes an event for every consumer index. */
    post_nop(&r);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    cq_arm(r.d, &r.send_cq, true);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    cq_arm(r.d, &r.send_cq, false);
    eq_wait(r.d, &r.eq, &eqe);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    rig_stop(&r);
}

/*
 * Tests a CQ that is armed for solicited CQEs. A solicited CQE or an error
 * causes an event, a plain CQE does not.
 */
static void test_arm_solicited(void)
{
    Rig r;
    QrnicCqe cqe;
    QrnicEqe eqe;
    PeerPacket p;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 3; i++) {
        rq_post(r.d, &r.qp, NULL, 0);
    }
    cq_arm(r.d, &r.recv_cq, true);
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN);
    peer_send(r.d, &p);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmphex(cqe.flags & QRNIC_CQEF_SOLICITED, ==, 0);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN + 1);
    p.solicited = true;
    peer_send(r.d, &p);
    eq_wait(r.d, &r.eq, &eqe);
    g_assert_true(cq_poll(r.d, &r.recv_cq, &cqe));
    g_assert_cmphex(cqe.flags & QRNIC_CQEF_SOLICITED, !=, 0);
    cq_arm(r.d, &r.recv_cq, true);
    qp_modify(r.d, &r.qp, &(QrnicQpAttr) {
        .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_ERR,
    });
    eq_wait(r.d, &r.eq, &eqe);
    rig_stop(&r);
}

/* Tests that an overrun is always reported, and moves the queue pair to ERR. */
static void test_cq_overrun(void)
{
    Rig r;
    Cq small;
    Qp qp;
    QrnicEqe eqe;
    QrnicQpAttr a;

    rig_start(&r, "", NULL);
    cq_create(r.d, &small, &r.eq, r.page, 1);
    qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &small, &r.recv_cq, 4, 2,
              0);
    qp_connect(r.d, &qp, NULL);
    for (int i = 0; i < 3; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

        sq_write(r.d, &qp, &w);
    }
    sq_publish(r.d, &qp);
    sq_ring(r.d, &qp);
    eq_wait(r.d, &r.async, &eqe);
    g_assert_cmphex(eqe.type, ==, QRNIC_EVENT_CQ_ERROR);
    g_assert_cmpuint(eqe.subtype, ==, QRNIC_CQERR_OVERRUN);
    g_assert_cmpuint(eqe.object, ==, small.number);
    counter_wait(r.d, QRNIC_COUNTER_CQ_OVERRUNS, 1);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_CQ_OVERRUN), ==, 1);
    qp_query(r.d, &qp, &a);
    g_assert_cmpuint(a.state, ==, QRNIC_QPS_ERR);
    rig_stop(&r);
}

/*
 * Tests that no overrun happens while software consumes, because the device
 * reads the record again before it reports one.
 */
static void test_cq_consumer(void)
{
    Rig r;
    Cq small;
    Qp qp;
    QrnicCqe cqe;

    rig_start(&r, "", NULL);
    cq_create(r.d, &small, &r.eq, r.page, 1);
    qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &small, &r.recv_cq, 4, 2,
              0);
    qp_connect(r.d, &qp, NULL);
    for (int i = 0; i < 40; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

        sq_post(r.d, &qp, &w);
        cq_wait(r.d, &small, &cqe);
        g_assert_cmpuint(cqe.index, ==, i);
    }
    rig_stop(&r);
}

static void test_eq_consumer_beyond(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    r.eq.consumer = 5;
    eq_arm(r.d, &r.eq);
    counter_wait(r.d, QRNIC_COUNTER_GE_EQ_CONSUMER, 1);
    rig_stop(&r);
}

/*
 * Tests that an EQ that is too small for its CQs is fatal, because an event
 * would be lost.
 */
static void test_eq_overrun(void)
{
    Rig r;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 17; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);
        Cq cq;
        Qp qp;

        cq_create(r.d, &cq, &r.eq, r.page, 2);
        qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &cq, &cq, 3, 0, 0);
        qp_connect(r.d, &qp, NULL);
        cq_arm(r.d, &cq, false);
        g_assert_cmphex(reg_read(r.d, QRNIC_REG_STATUS) &
                        QRNIC_REG_STATUS_FATAL_MASK, ==, 0);
        sq_post(r.d, &qp, &w);
        settle(r.d);
    }
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_STATUS) &
                    QRNIC_REG_STATUS_FATAL_MASK, !=, 0);
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_HEALTH), ==,
                    QRNIC_HEALTH_EQ_OVERRUN);
    rig_stop(&r);
}

/*
 * Tests that a process that arms its CQ repeatedly cannot overrun the common
 * EQ. A CQ has at most one EQE at a time; the next one follows after software
 * has consumed it.
 */
static void test_eq_one_event(void)
{
    QrnicCqe cqe;
    QrnicEqe eqe;
    Rig r;

    rig_start(&r, "", NULL);
    for (int i = 0; i < 40; i++) {
        cq_arm(r.d, &r.send_cq, false);
        post_nop(&r);
        cq_wait(r.d, &r.send_cq, &cqe);
        settle(r.d);
    }
    g_assert_cmphex(reg_read(r.d, QRNIC_REG_STATUS) &
                    QRNIC_REG_STATUS_FATAL_MASK, ==, 0);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_EQES), ==, 1);
    eq_wait(r.d, &r.eq, &eqe);
    eq_wait(r.d, &r.eq, &eqe);
    g_assert_cmpuint(eqe.object, ==, r.send_cq.number);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    rig_stop(&r);
}

void add_queue_tests(void)
{
    qtest_add_func("qrnic/queue/steps", test_steps);
    qtest_add_func("qrnic/queue/record-rules", test_record_rules);
    qtest_add_func("qrnic/queue/batch-fetch", test_batch_fetch);
    qtest_add_func("qrnic/queue/wrap", test_wrap);
    qtest_add_func("qrnic/queue/direct-equal", test_direct_equal);
    qtest_add_func("qrnic/queue/direct-out-of-order",
                   test_direct_out_of_order);
    qtest_add_func("qrnic/queue/direct-window", test_direct_window);
    qtest_add_func("qrnic/queue/direct-switched-off",
                   test_direct_switched_off);
    qtest_add_func("qrnic/queue/fifo-overflow", test_fifo_overflow);
    qtest_add_func("qrnic/queue/fifo-overflow-arm", test_fifo_overflow_arm);
    qtest_add_func("qrnic/queue/fifo-flood", test_fifo_flood);
    qtest_add_func("qrnic/queue/isolation", test_isolation);
    qtest_add_func("qrnic/queue/bad-doorbells", test_bad_doorbells);
    qtest_add_func("qrnic/queue/producer-beyond", test_producer_beyond);
    for (unsigned i = 0; i < ARRAY_SIZE(bad_wqes); i++) {
        g_autofree char *path = g_strdup_printf("qrnic/queue/bad-wqe-%s",
                                                bad_wqes[i].name);

        qtest_add_data_func(path, &bad_wqes[i], test_bad_wqe);
    }
    qtest_add_func("qrnic/queue/bad-wqe-long", test_bad_wqe_long);
    qtest_add_func("qrnic/queue/flush", test_flush);
    qtest_add_func("qrnic/queue/arm", test_arm);
    qtest_add_func("qrnic/queue/arm-once", test_arm_once);
    qtest_add_func("qrnic/queue/arm-solicited", test_arm_solicited);
    qtest_add_func("qrnic/queue/cq-overrun", test_cq_overrun);
    qtest_add_func("qrnic/queue/cq-consumer", test_cq_consumer);
    qtest_add_func("qrnic/queue/eq-consumer-beyond", test_eq_consumer_beyond);
    qtest_add_func("qrnic/queue/eq-overrun", test_eq_overrun);
    qtest_add_func("qrnic/queue/eq-one-event", test_eq_one_event);
}
