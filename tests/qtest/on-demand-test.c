/*
 * qrnic qtest: paging on demand, at the bus and on the wire
 *
 * Programmer's Reference, chapter Paging on demand.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define PAGE 4096u
#define PAGES 4u
#define START 0x7f0000000000ull
#define FAULT_VECTOR 2

/* The rig, and a region on demand without present pages */
typedef struct Demand {
    Rig r;
    Eq eq;
    uint64_t list, pages;       /* pages: memory that software uses as pages */
    uint32_t key, sequence;     /* sequence: of the last page fault */
} Demand;

static QrnicMkeyCtx region(const Demand *x)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ALL_RIGHTS, .variant = 9, .pd = x->r.pd, .start = START,
        .length = PAGES * PAGE,
        .table = { .root = x->list, .levels = 1, .page_shift = 12 },
    };
}

static void demand_start(Demand *x)
{
    x->sequence = 0;
    rig_start(&x->r, "", NULL);
    eq_create(x->r.d, &x->eq, QRNIC_EQ_PAGE_FAULT, FAULT_VECTOR, 4);
    eq_arm(x->r.d, &x->eq);
    x->list = memory_alloc(x->r.d, PAGES * 8, PAGE);
    x->pages = memory_alloc(x->r.d, 2 * PAGES * PAGE, PAGE);
    x->key = rig_key_create(&x->r, region(x));
}

static void entry_set(Demand *x, unsigned page, uint64_t entry)
{
    qtest_writeq(x->r.d->qts, x->list + 8 * page, entry);
}

static uint32_t fault_of(const Demand *x, unsigned side)
{
    return x->r.qp.number << 1 | side;
}

/* Asserts the device's next page fault. */
static void expect_fault(Demand *x, unsigned side, uint64_t offset,
                         uint64_t length, uint32_t flags)
{
    uint8_t raw[QRNIC_PAGE_FAULT_BYTES];
    QrnicPageFault f;
    QrnicEqe e;

    interrupt_wait(x->r.d, FAULT_VECTOR);
    eq_wait(x->r.d, &x->eq, &e);
    eq_arm(x->r.d, &x->eq);
    g_assert_cmpstr(qrnic_event_name(e.type), ==, "PAGE_FAULT");
    g_assert_cmphex(e.object, ==, fault_of(x, side));
    command_ok(x->r.d, QRNIC_CMD_QUERY_PAGE_FAULT, e.object, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_page_fault_unpack(&f, raw));
    g_assert_cmphex(f.key, ==, x->key >> 8);
    g_assert_cmphex(f.address, ==, START + offset);
    g_assert_cmpuint(f.length, ==, length);
    g_assert_cmphex(f.flags, ==, flags);
    g_assert_cmpuint(f.sequence, ==, e.data);
    g_assert_cmpuint(f.sequence, ==, ++x->sequence);
}

static void answer(Demand *x, unsigned opcode, unsigned side)
{
    fault_answer(x->r.d, opcode, fault_of(x, side), x->sequence);
}

static void answer_fails(Demand *x, unsigned opcode, uint32_t number,
                         uint32_t sequence, unsigned status, uint32_t syndrome)
{
    uint8_t raw[QRNIC_FAULT_ANSWER_BYTES];

    qrnic_fault_answer_pack(raw, &(QrnicFaultAnswer) { sequence });
    command_fails(x->r.d, opcode, number, raw, sizeof(raw), NULL, 0, status,
                  syndrome);
}

static void invalidate(Demand *x, uint64_t offset, uint64_t length)
{
    uint8_t raw[QRNIC_PAGE_RANGE_BYTES];

    qrnic_page_range_pack(raw, &(QrnicPageRange) { START + offset, length });
    command_ok(x->r.d, QRNIC_CMD_INVALIDATE_PAGES, x->key >> 8, raw,
               sizeof(raw), NULL, 0);
}

static void post_write(Demand *x, uint64_t offset, uint32_t length)
{
    rig_post_write(&x->r, x->key, START + offset, length);
}

static void expect_status(Demand *x, Cq *cq, unsigned status, unsigned syndrome)
{
    QrnicCqe c;

    cq_wait(x->r.d, cq, &c);
    g_assert_cmpstr(qrnic_wc_status_name(c.status), ==,
                    qrnic_wc_status_name(status));
    g_assert_cmpuint(c.syndrome, ==, syndrome);
}

/*
 * Tests that a send waits for its page. The page is invalidated, and is later
 * present at another address.
 */
static void test_send(void)
{
    Demand x;

    demand_start(&x);
    qtest_memset(x.r.d->qts, x.pages, 0x11, PAGE);
    qtest_memset(x.r.d->qts, x.pages + PAGE, 0x22, PAGE);
    post_write(&x, PAGE + 100, 200);
    expect_fault(&x, 0, PAGE + 100, 200, 0);
    wire_silent(x.r.d);
    entry_set(&x, 1, x.pages | QRNIC_PAGE_PRESENT);
    settle(x.r.d);
    wire_silent(x.r.d);
    answer(&x, QRNIC_CMD_RESUME_PAGE_FAULT, 0);
    rig_expect_write(&x.r, SQ_PSN, 0x11, 200);
    peer_ack(x.r.d, &x.r.qp, SQ_PSN, AETH_ACK | 31, 1);
    expect_status(&x, &x.r.send_cq, QRNIC_WC_SUCCESS, 0);

    entry_set(&x, 1, 0);
    invalidate(&x, PAGE, PAGE);
    entry_set(&x, 1, (x.pages + PAGE) | QRNIC_PAGE_PRESENT);
    post_write(&x, PAGE + 100, 200);
    rig_expect_write(&x.r, SQ_PSN + 1, 0x22, 200);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PAGE_FAULTS), ==, 1);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PAGE_INVALIDATIONS), ==, 1);
    rig_stop(&x.r);
}

static PeerPacket write_in(Demand *x, uint32_t psn, uint64_t offset,
                           const uint8_t *data, size_t length)
{
    PeerPacket p = peer_packet(&x->r.qp, RC_WRITE_ONLY, psn);

    p.va = START + offset;
    p.rkey = x->key;
    p.dma_length = p.length = length;
    p.payload = data;
    p.ack_request = true;
    return p;
}

/*
 * Tests that a request to an absent page gets an RNR NAK, and is reported once.
 */
static void test_receive(void)
{
    uint8_t data[100], got[100];
    PeerPacket p, nak;
    Demand x;

    demand_start(&x);
    memset(data, 0x5a, sizeof(data));
    p = write_in(&x, RQ_PSN, 2 * PAGE + 8, data, sizeof(data));
    peer_send(x.r.d, &p);
    expect_fault(&x, 1, 2 * PAGE + 8, sizeof(data), QRNIC_PAGE_FAULT_WRITE);
    nak = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(nak.syndrome, ==, AETH_RNR_NAK | 13);
    peer_send(x.r.d, &p);
    nak = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(nak.syndrome, ==, AETH_RNR_NAK | 13);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PAGE_FAULTS), ==, 1);

    /* A read-only page does not suffice. */
    entry_set(&x, 2, x.pages | QRNIC_PAGE_PRESENT);
    answer(&x, QRNIC_CMD_RESUME_PAGE_FAULT, 1);
    peer_send(x.r.d, &p);
    expect_fault(&x, 1, 2 * PAGE + 8, sizeof(data), QRNIC_PAGE_FAULT_WRITE);
    peer_expect(x.r.d, RC_ACK, RQ_PSN);
    entry_set(&x, 2, x.pages | QRNIC_PAGE_PRESENT | QRNIC_PAGE_WRITABLE);
    answer(&x, QRNIC_CMD_RESUME_PAGE_FAULT, 1);
    peer_send(x.r.d, &p);
    nak = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(nak.syndrome & 0xe0, ==, AETH_ACK);
    qtest_memread(x.r.d->qts, x.pages + 8, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    rig_stop(&x.r);
}

/*
 * Tests REFUSE_PAGE_FAULT for a write of the device, and then for a write of
 * the peer.
 */
static void test_refused(void)
{
    uint8_t data[100] = { 0 };
    PeerPacket p;
    QrnicEqe e;
    Demand x;

    demand_start(&x);
    post_write(&x, 0, 50);
    expect_fault(&x, 0, 0, 50, 0);
    answer(&x, QRNIC_CMD_REFUSE_PAGE_FAULT, 0);
    expect_status(&x, &x.r.send_cq, QRNIC_WC_LOC_PROT_ERR,
                  QRNIC_SYN_PAGE_FAULT);
    rig_stop(&x.r);

    demand_start(&x);
    p = write_in(&x, RQ_PSN, 0, data, sizeof(data));
    peer_send(x.r.d, &p);
    expect_fault(&x, 1, 0, sizeof(data), QRNIC_PAGE_FAULT_WRITE);
    peer_expect(x.r.d, RC_ACK, RQ_PSN);
    answer(&x, QRNIC_CMD_REFUSE_PAGE_FAULT, 1);
    peer_send(x.r.d, &p);
    p = peer_expect(x.r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(p.syndrome, ==, AETH_NAK_REMOTE_ACCESS);
    eq_wait(x.r.d, &x.r.async, &e);
    g_assert_cmpstr(qrnic_event_name(e.type), ==, "QP_ACCESS_ERROR");
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PAGE_REFUSALS), ==, 1);
    rig_stop(&x.r);
}

/*
 * Tests that a queue pair that is reset, destroyed or not yet in RTS has no
 * page fault.
 */
static void test_gone(void)
{
    QrnicQpAttr reset = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET };
    uint8_t raw[QRNIC_PAGE_FAULT_BYTES];
    Demand x;

    demand_start(&x);
    answer_fails(&x, QRNIC_CMD_RESUME_PAGE_FAULT, fault_of(&x, 0), 0,
                 QRNIC_ST_BAD_STATE, 0);
    answer_fails(&x, QRNIC_CMD_RESUME_PAGE_FAULT, UINT32_MAX, 0,
                 QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    post_write(&x, 0, 50);
    expect_fault(&x, 0, 0, 50, 0);
    qp_modify(x.r.d, &x.r.qp, &reset);
    command_fails(x.r.d, QRNIC_CMD_QUERY_PAGE_FAULT, fault_of(&x, 0), NULL, 0,
                  raw, sizeof(raw), QRNIC_ST_BAD_STATE, 0);
    command_ok(x.r.d, QRNIC_CMD_DESTROY_QP, x.r.qp.number, NULL, 0, NULL, 0);
    answer_fails(&x, QRNIC_CMD_REFUSE_PAGE_FAULT, fault_of(&x, 0), 1,
                 QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    rig_stop(&x.r);
}

/* Tests commands for a page fault whose queue pair was reset meanwhile. */
static void test_late_answer(void)
{
    QrnicQpAttr reset = { .mask = QRNIC_QP_STATE, .state = QRNIC_QPS_RESET };
    Demand x;

    demand_start(&x);
    post_write(&x, 0, 50);
    expect_fault(&x, 0, 0, 50, 0);
    qp_modify(x.r.d, &x.r.qp, &reset);
    x.r.qp.sq_producer = 0;
    qtest_writel(x.r.d->qts, x.r.qp.sq_record, 0);
    qp_connect(x.r.d, &x.r.qp, NULL);
    post_write(&x, PAGE, 60);
    expect_fault(&x, 0, PAGE, 60, 0);
    answer_fails(&x, QRNIC_CMD_RESUME_PAGE_FAULT, fault_of(&x, 0), 1,
                 QRNIC_ST_BAD_STATE, 0);
    answer_fails(&x, QRNIC_CMD_REFUSE_PAGE_FAULT, fault_of(&x, 0), 1,
                 QRNIC_ST_BAD_STATE, 0);
    settle(x.r.d);
    wire_silent(x.r.d);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PAGE_REFUSALS), ==, 0);
    qtest_memset(x.r.d->qts, x.pages, 0x33, PAGE);
    entry_set(&x, 1, x.pages | QRNIC_PAGE_PRESENT);
    answer(&x, QRNIC_CMD_RESUME_PAGE_FAULT, 0);
    rig_expect_write(&x.r, SQ_PSN, 0x33, 60);
    rig_stop(&x.r);
}

static void post_frame(Demand *x, Qp *qp)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_eth(&w, &(QrnicEthSeg) { 0 });
    wqe_data(&w, START, 64, x->key);
    sq_post(x->r.d, qp, &w);
}

/*
 * Tests that raw packet queue pairs do not wait for pages, because they have no
 * sender that retransmits.
 */
static void test_raw_packet(void)
{
    QrnicQpAttr attr = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PORT, .state = QRNIC_QPS_INIT,
        .port = 1,
    };
    uint8_t frame[64], got[PEER_FRAME_MAX];
    Demand x;
    Qp qp;

    demand_start(&x);
    qp_create(x.r.d, &qp, QRNIC_QPT_RAW_PACKET, x.r.pd, x.r.page,
              &x.r.send_cq, &x.r.recv_cq, 4, 3, 0);
    qp_modify(x.r.d, &qp, &attr);
    attr = (QrnicQpAttr) { .mask = QRNIC_QP_STATE };
    for (attr.state = QRNIC_QPS_RTR; attr.state <= QRNIC_QPS_RTS;
         attr.state++) {
        qp_modify(x.r.d, &qp, &attr);
    }
    memset(frame, 0x5a, sizeof(frame));
    qtest_memwrite(x.r.d->qts, x.pages, frame, sizeof(frame));
    entry_set(&x, 0, x.pages | QRNIC_PAGE_PRESENT);
    post_frame(&x, &qp);
    expect_status(&x, &x.r.send_cq, QRNIC_WC_SUCCESS, QRNIC_SYN_NONE);
    g_assert_cmpmem(got, wire_receive(x.r.d, got), frame, sizeof(frame));

    entry_set(&x, 0, 0);
    invalidate(&x, 0, PAGE);
    post_frame(&x, &qp);
    expect_status(&x, &x.r.send_cq, QRNIC_WC_LOC_PROT_ERR,
                  QRNIC_SYN_PAGE_FAULT);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_PAGE_FAULTS), ==, 0);
    rig_stop(&x.r);
}

static void check_length(uint64_t region_length, uint64_t offset,
                         uint32_t length, uint64_t expected)
{
    QrnicMkeyCtx ctx;
    Demand x;

    demand_start(&x);
    x.list = memory_alloc(x.r.d, region_length / PAGE * 8, PAGE);
    ctx = region(&x);
    ctx.length = region_length;
    x.key = rig_key_create(&x.r, ctx);
    post_write(&x, offset, length);
    expect_fault(&x, 0, offset, expected, 0);
    rig_stop(&x.r);
}

/*
 * Tests that the page fault has the length of the whole data segment, not only
 * of one packet.
 */
static void test_length(void)
{
    const uint64_t ahead = QRNIC_PAGE_FAULT_AHEAD;

    check_length(PAGES * PAGE, 100, 3 * PAGE, 3 * PAGE);
    check_length(2 * ahead, 8, ahead, ahead);
    check_length(2 * ahead, 8, ahead + 1, ahead);
    check_length(2 * ahead, 0, 2 * ahead, ahead);
}

static void test_capability(void)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES], eq[QRNIC_EQ_CTX_BYTES];
    QrnicEqCtx eq_ctx = { .type = QRNIC_EQ_PAGE_FAULT, .log_size = 4 };
    QrnicMkeyCtx ctx;
    Demand x;

    rig_start(&x.r, "cap-on-demand=off", NULL);
    x.list = memory_alloc(x.r.d, PAGE, PAGE);
    ctx = region(&x);
    qrnic_mkey_ctx_pack(raw, &ctx);
    command_fails(x.r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, QRNIC_MKEY_CTX_FLAGS_OFFSET);
    eq_ctx.ring = contiguous(memory_alloc(x.r.d, PAGE, PAGE));
    qrnic_eq_ctx_pack(eq, &eq_ctx);
    command_fails(x.r.d, QRNIC_CMD_CREATE_EQ, 0, eq, sizeof(eq), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, QRNIC_EQ_CTX_TYPE_OFFSET);
    rig_stop(&x.r);
}

void add_on_demand_tests(void)
{
    qtest_add_func("qrnic/on-demand/send", test_send);
    qtest_add_func("qrnic/on-demand/receive", test_receive);
    qtest_add_func("qrnic/on-demand/refused", test_refused);
    qtest_add_func("qrnic/on-demand/gone", test_gone);
    qtest_add_func("qrnic/on-demand/late-answer", test_late_answer);
    qtest_add_func("qrnic/on-demand/raw-packet", test_raw_packet);
    qtest_add_func("qrnic/on-demand/length", test_length);
    qtest_add_func("qrnic/on-demand/capability", test_capability);
}
