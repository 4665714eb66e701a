/*
 * qrnic qtest: extended reliable connections
 *
 * Programmer's Reference, chapter Extended reliable connections; InfiniBand
 * specification, annex A14.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define SLOTS_LOG 2

typedef struct Srq {
    uint32_t number, producer;
    uint64_t ring, record;
} Srq;

static uint32_t domain(Rig *r)
{
    return command_ok(r->d, QRNIC_CMD_ALLOC_XRCD, 0, NULL, 0, NULL, 0);
}

static QrnicSrqCtx srq_ctx(Rig *r, uint32_t pd, uint32_t xrcd, uint32_t cqn)
{
    return (QrnicSrqCtx) {
        .pd = pd, .db_page = r->page, .log_size = SLOTS_LOG, .xrcd = xrcd,
        .cq = cqn,
        .ring = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE << SLOTS_LOG,
                                        4096)),
        .record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
    };
}

static void srq_create(Rig *r, Srq *s, uint32_t pd, uint32_t xrcd,
                       const Cq *cq)
{
    QrnicSrqCtx ctx = srq_ctx(r, pd, xrcd, cq->number);
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];

    qrnic_srq_ctx_pack(raw, &ctx);
    *s = (Srq) { .ring = ctx.ring.root, .record = ctx.record };
    s->number = command_ok(r->d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw),
                           NULL, 0);
}

/* Posts the next slot, which has 4 KiB of the rig's memory. */
static void srq_post(Rig *r, Srq *s, uint32_t lkey)
{
    uint8_t raw[QRNIC_WQEBB_SIZE] = { 0 };
    uint32_t slot = s->producer;
    QrnicRecvCtrl ctrl = {
        .data_segments = 1, .index = slot, .next = slot + 1,
    };
    QrnicDataSeg seg = {
        .address = r->mr.start + slot * 4096, .length = 4096, .lkey = lkey,
    };

    qrnic_recv_ctrl_pack(raw, &ctrl);
    qrnic_data_seg_pack(raw + QRNIC_SEGMENT_SIZE, &seg);
    qtest_memwrite(r->d->qts, s->ring + slot * sizeof(raw), raw, sizeof(raw));
    qtest_writel(r->d->qts, s->record, ++s->producer);
    doorbell(r->d, r->page, QRNIC_DB_SRQ, s->number, s->producer, 0);
}

static void target_create(Rig *r, Qp *qp, uint32_t xrcd)
{
    QrnicQpCtx ctx = { .type = QRNIC_QPT_XRC_TGT, .xrcd = xrcd };
    uint8_t raw[QRNIC_QP_CTX_BYTES];

    qrnic_qp_ctx_pack(raw, &ctx);
    *qp = (Qp) { 0 };
    qp->number = command_ok(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw),
                            NULL, 0);
}

static void initiator_create(Rig *r, Qp *qp)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx = {
        .type = QRNIC_QPT_XRC_INI, .pd = r->pd, .db_page = r->page,
        .send_cq = r->send_cq.number, .sq_log_size = 4,
    };

    *qp = (Qp) {
        .page = r->page, .send_cq = &r->send_cq, .sq_log_size = 4,
        .sq = memory_alloc(r->d, QRNIC_WQEBB_SIZE << 4, 4096),
        .sq_record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE),
    };
    ctx.sq = contiguous(qp->sq);
    ctx.sq_record = qp->sq_record;
    qrnic_qp_ctx_pack(raw, &ctx);
    qp->number = command_ok(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw),
                            NULL, 0);
}

/*
 * Moves a target from RESET to RTR, or an initiator to RTS, with the required
 * attributes only.
 */
static void half_connect(Rig *r, const Qp *qp, bool target)
{
    QrnicQpAttr all = qp_default_attr();
    QrnicQpAttr step = {
        .mask = QRNIC_QP_STATE | QRNIC_QP_PKEY_INDEX | QRNIC_QP_PORT |
                QRNIC_QP_ACCESS_FLAGS,
        .state = QRNIC_QPS_INIT, .port = 1, .access = all.access,
    };

    qp_modify(r->d, qp, &step);
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_AV | QRNIC_QP_PATH_MTU |
                QRNIC_QP_DEST_QPN | QRNIC_QP_RQ_PSN,
        .state = QRNIC_QPS_RTR, .av = all.av, .path_mtu = all.path_mtu,
        .dest_qpn = PEER_QPN, .rq_psn = RQ_PSN,
    };
    if (target) {
        step.mask |= QRNIC_QP_MAX_DEST_RD_ATOMIC | QRNIC_QP_MIN_RNR_TIMER;
        step.max_dest_rd_atomic = 4;
        step.min_rnr_timer = 12;
    }
    qp_modify(r->d, qp, &step);
    if (target) {
        return;
    }
    step = (QrnicQpAttr) {
        .mask = QRNIC_QP_STATE | QRNIC_QP_TIMEOUT | QRNIC_QP_RETRY_CNT |
                QRNIC_QP_RNR_RETRY | QRNIC_QP_SQ_PSN | QRNIC_QP_MAX_RD_ATOMIC,
        .state = QRNIC_QPS_RTS, .timeout = 14, .retry_cnt = 2, .rnr_retry = 2,
        .sq_psn = SQ_PSN, .max_rd_atomic = 4,
    };
    qp_modify(r->d, qp, &step);
}

static PeerPacket request(const Qp *qp, uint8_t opcode, uint32_t n,
                          uint32_t srqn, const void *data, size_t length)
{
    PeerPacket p = peer_packet(qp, XRC(opcode), (RQ_PSN + n) & 0xffffff);

    p.xrceth = srqn;
    p.payload = data;
    p.length = length;
    p.ack_request = true;
    return p;
}

static void expect_answer(Rig *r, uint32_t n, uint8_t syndrome)
{
    PeerPacket p = peer_expect(r->d, XRC(RC_ACK), RQ_PSN + n);

    g_assert_cmphex(p.syndrome, ==, syndrome);
    g_assert_cmphex(p.dest_qpn, ==, PEER_QPN);
    g_assert_cmpuint(p.length, ==, 0);
}

static void received(Rig *r, Cq *cq, const Srq *s, const Qp *qp, uint32_t slot,
                     uint32_t length)
{
    QrnicCqe cqe;

    cq_wait(r->d, cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.qpn, ==, qp->number);
    g_assert_cmpuint(cqe.srqn, ==, s->number);
    g_assert_cmpuint(cqe.index, ==, slot);
    g_assert_cmpuint(cqe.byte_len, ==, length);
}

static void expect_refused(Rig *r, const Qp *qp, uint32_t n)
{
    QrnicQpAttr attr;
    QrnicEqe eqe;

    expect_answer(r, n, AETH_NAK_INVALID_REQUEST);
    do {
        eq_wait(r->d, &r->async, &eqe);
    } while (eqe.type == QRNIC_EVENT_COMM_EST);
    g_assert_cmpuint(eqe.type, ==, QRNIC_EVENT_QP_REQUEST_ERROR);
    g_assert_cmpuint(eqe.object, ==, qp->number);
    eq_wait(r->d, &r->async, &eqe);
    g_assert_cmpuint(eqe.type, ==, QRNIC_EVENT_LAST_WQE_REACHED);
    g_assert_cmpuint(eqe.object, ==, qp->number);
    qp_query(r->d, qp, &attr);
    g_assert_cmpuint(attr.state, ==, QRNIC_QPS_ERR);
}

/*
 * Tests that the SRQ in the packet decides the buffer and the CQ of a message.
 */
static void test_receive(void)
{
    uint32_t xrcd;
    uint8_t data[1500], got[1500];
    Srq one, two;
    PeerPacket p;
    Qp qp;
    Rig r;

    rig_start(&r, "", NULL);
    xrcd = domain(&r);
    srq_create(&r, &one, r.pd, xrcd, &r.recv_cq);
    srq_create(&r, &two, r.pd, xrcd, &r.send_cq);
    target_create(&r, &qp, xrcd);
    half_connect(&r, &qp, true);
    for (unsigned i = 0; i < sizeof(data); i++) {
        data[i] = i * 7;
    }
    srq_post(&r, &one, r.mr.key);
    srq_post(&r, &two, r.mr.key);
    srq_post(&r, &two, r.mr.key);
    p = request(&qp, RC_SEND_ONLY, 0, two.number, "two", 3);
    peer_send(r.d, &p);
    expect_answer(&r, 0, AETH_ACK | 31);
    received(&r, &r.send_cq, &two, &qp, 0, 3);
    rig_read(&r, 0, got, 3);
    g_assert_cmpmem(got, 3, "two", 3);
    p = request(&qp, RC_SEND_ONLY, 1, one.number, "one", 3);
    peer_send(r.d, &p);
    expect_answer(&r, 1, AETH_ACK | 31);
    received(&r, &r.recv_cq, &one, &qp, 0, 3);
    /* The message has two packets. */
    p = request(&qp, RC_SEND_FIRST, 2, two.number, data, 1024);
    p.ack_request = false;
    peer_send(r.d, &p);
    p = request(&qp, RC_SEND_LAST, 3, two.number, data + 1024, 476);
    peer_send(r.d, &p);
    expect_answer(&r, 3, AETH_ACK | 31);
    received(&r, &r.send_cq, &two, &qp, 1, sizeof(data));
    rig_read(&r, 4096, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), data, sizeof(data));
    /* No WQE remains. */
    p = request(&qp, RC_SEND_ONLY, 4, one.number, "none", 4);
    peer_send(r.d, &p);
    expect_answer(&r, 4, AETH_RNR_NAK | 12);
    rig_stop(&r);
}

/*
 * Keys are checked against the PD of the request's SRQ, because an XRC target
 * has no PD of its own.
 */
static void test_remote(void)
{
    uint32_t xrcd, pd;
    uint8_t got[8];
    Srq ours, other;
    PeerPacket p;
    Qp qp;
    Rig r;

    rig_start(&r, "", NULL);
    xrcd = domain(&r);
    pd = command_ok(r.d, QRNIC_CMD_ALLOC_PD, 0, NULL, 0, NULL, 0);
    srq_create(&r, &ours, r.pd, xrcd, &r.recv_cq);
    srq_create(&r, &other, pd, xrcd, &r.recv_cq);
    target_create(&r, &qp, xrcd);
    half_connect(&r, &qp, true);
    p = request(&qp, RC_WRITE_ONLY, 0, ours.number, "written", 8);
    p.va = r.mr.start + 100;
    p.rkey = r.mr.key;
    p.dma_length = 8;
    peer_send(r.d, &p);
    expect_answer(&r, 0, AETH_ACK | 31);
    rig_read(&r, 100, got, 8);
    g_assert_cmpmem(got, 8, "written", 8);
    p = request(&qp, RC_READ_REQUEST, 1, ours.number, NULL, 0);
    p.va = r.mr.start + 100;
    p.rkey = r.mr.key;
    p.dma_length = 8;
    peer_send(r.d, &p);
    p = peer_expect(r.d, XRC(RC_READ_ONLY), RQ_PSN + 1);
    g_assert_cmpmem(p.payload, p.length, "written", 8);
    p = request(&qp, RC_FETCH_ADD, 2, ours.number, NULL, 0);
    p.va = r.mr.start + 104;
    p.rkey = r.mr.key;
    p.swap_add = 1;
    peer_send(r.d, &p);
    p = peer_expect(r.d, XRC(RC_ATOMIC_ACK), RQ_PSN + 2);
    g_assert_cmphex(p.original, ==, ldl_le_p("ten"));
    rig_read(&r, 104, got, 1);
    g_assert_cmpuint(got[0], ==, 't' + 1);
    /* The key belongs to this PD, but the SRQ to another PD. */
    p = request(&qp, RC_WRITE_ONLY, 3, other.number, "written", 8);
    p.va = r.mr.start + 100;
    p.rkey = r.mr.key;
    p.dma_length = 8;
    peer_send(r.d, &p);
    expect_answer(&r, 3, AETH_NAK_REMOTE_ACCESS);
    rig_stop(&r);
}

/*
 * Tests requests that are rejected because of their SRQ. The SRQ has another
 * domain or none, is not an SRQ, or changes within a message.
 */
static void test_refused(void)
{
    uint8_t data[1024] = { 0 };
    uint32_t xrcd, foreign;
    PeerPacket p;
    Srq s[4];
    Rig r;

    rig_start(&r, "", NULL);
    xrcd = domain(&r);
    foreign = domain(&r);
    srq_create(&r, &s[0], r.pd, foreign, &r.recv_cq);
    srq_create(&r, &s[1], r.pd, 0, &(Cq) { 0 });
    srq_create(&r, &s[2], r.pd, xrcd, &r.recv_cq);
    srq_create(&r, &s[3], r.pd, xrcd, &r.recv_cq);
    for (int i = 0; i < 4; i++) {
        uint32_t n = 0;
        Qp qp;

        srq_post(&r, &s[i], r.mr.key);
        target_create(&r, &qp, xrcd);
        half_connect(&r, &qp, true);
        if (i == 3) {
            p = request(&qp, RC_SEND_FIRST, n++, s[2].number, data, 1024);
            p.ack_request = false;
            peer_send(r.d, &p);
        }
        p = request(&qp, i == 3 ? RC_SEND_LAST : RC_SEND_ONLY, n,
                    i == 2 ? 0xffffff : s[i].number, "no", 2);
        peer_send(r.d, &p);
        expect_refused(&r, &qp, n);
    }
    rig_stop(&r);
}

/* Tests that an SRQ may be destroyed while a target fills a WQE of it. */
static void test_srq_destroyed(void)
{
    uint8_t data[1024] = { 0 };
    uint32_t xrcd;
    PeerPacket p;
    QrnicCqe cqe;
    Rig r;
    Srq s;
    Qp qp;

    rig_start(&r, "", NULL);
    xrcd = domain(&r);
    srq_create(&r, &s, r.pd, xrcd, &r.recv_cq);
    target_create(&r, &qp, xrcd);
    half_connect(&r, &qp, true);
    srq_post(&r, &s, r.mr.key);
    p = request(&qp, RC_SEND_FIRST, 0, s.number, data, 1024);
    peer_send(r.d, &p);
    expect_answer(&r, 0, AETH_ACK | 31);
    command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, s.number, NULL, 0, NULL, 0);
    p = request(&qp, RC_SEND_LAST, 1, s.number, data, 10);
    peer_send(r.d, &p);
    expect_refused(&r, &qp, 1);
    settle(r.d);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, qp.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_XRCD, xrcd, NULL, 0, NULL, 0);
    rig_stop(&r);
}

/* Creates a key of 4 KiB without present pages. */
static uint32_t absent_key(Rig *r, uint64_t start)
{
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .flags = QRNIC_MKEYF_ON_DEMAND,
        .access = ALL_RIGHTS, .pd = r->pd, .start = start, .length = 4096,
        .table = {
            .root = memory_alloc(r->d, 4096, 4096), .levels = 1,
            .page_shift = 12,
        },
    };
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    qrnic_mkey_ctx_pack(raw, &ctx);
    return command_ok(r->d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL,
                      0) << 8;
}

/*
 * Tests a message that waits for a page and has consumed a receive WQE of its
 * SRQ. The message that replaces it must be for the same SRQ, which may be
 * destroyed meanwhile.
 */
static void test_absent(const void *destroyed)
{
    uint8_t data[100] = { 0 };
    uint32_t xrcd;
    PeerPacket p;
    Rig r;
    Srq s[2];
    Eq faults;
    Qp qp;

    rig_start(&r, "", NULL);
    eq_create(r.d, &faults, QRNIC_EQ_PAGE_FAULT, 2, 4);
    xrcd = domain(&r);
    for (int i = 0; i < 2; i++) {
        srq_create(&r, &s[i], r.pd, xrcd, &r.recv_cq);
    }
    srq_post(&r, &s[0], absent_key(&r, r.mr.start));
    srq_post(&r, &s[1], r.mr.key);
    target_create(&r, &qp, xrcd);
    half_connect(&r, &qp, true);
    p = request(&qp, RC_SEND_ONLY, 0, s[0].number, data, sizeof(data));
    peer_send(r.d, &p);
    /* The timer of an absent page is 0.96 ms, not the queue pair's code 12. */
    expect_answer(&r, 0, AETH_RNR_NAK | 13);
    if (destroyed) {
        command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, s[0].number, NULL, 0, NULL, 0);
    }
    p.xrceth = s[1].number;
    peer_send(r.d, &p);
    if (destroyed) {
        expect_answer(&r, 0, AETH_ACK | 31);
        received(&r, &r.recv_cq, &s[1], &qp, 0, sizeof(data));
    } else {
        expect_refused(&r, &qp, 0);
        command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, s[0].number, NULL, 0, NULL, 0);
    }
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, qp.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, s[1].number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_XRCD, xrcd, NULL, 0, NULL, 0);
    rig_stop(&r);
}

static void initiator_ack(Rig *r, const Qp *qp, uint32_t psn, uint32_t msn)
{
    PeerPacket p = peer_packet(qp, XRC(RC_ACK), psn);
    QrnicCqe cqe;

    p.syndrome = AETH_ACK | 31;
    p.msn = msn;
    peer_send(r->d, &p);
    cq_wait(r->d, &r->send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.qpn, ==, qp->number);
}

/*
 * Tests that each request packet has the SRQ number, and that responses have
 * none.
 */
static void test_initiator(void)
{
    uint8_t data[1500], got[8];
    QrnicCqe cqe;
    PeerPacket p;
    Qp qp;
    Wqe w;
    Rig r;

    rig_start(&r, "", NULL);
    initiator_create(&r, &qp);
    half_connect(&r, &qp, false);
    rig_fill(&r, 0, data, sizeof(data), 5);

    w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    wqe_xrc(&w, 0x00abcdef);
    wqe_data(&w, r.mr.start, sizeof(data), r.mr.key);
    sq_post(r.d, &qp, &w);
    p = peer_expect(r.d, XRC(RC_SEND_FIRST), SQ_PSN);
    g_assert_cmphex(p.xrceth, ==, 0x00abcdef);
    g_assert_cmpmem(p.payload, p.length, data, 1024);
    p = peer_expect(r.d, XRC(RC_SEND_LAST), SQ_PSN + 1);
    g_assert_cmphex(p.xrceth, ==, 0x00abcdef);
    g_assert_cmpmem(p.payload, p.length, data + 1024, 476);
    initiator_ack(&r, &qp, SQ_PSN + 1, 1);

    w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);
    wqe_xrc(&w, 17);
    wqe_remote(&w, 0x1122334455667788ull, 0xaabbccdd);
    wqe_data(&w, r.mr.start, 8, r.mr.key);
    sq_post(r.d, &qp, &w);
    p = peer_expect(r.d, XRC(RC_WRITE_ONLY), SQ_PSN + 2);
    g_assert_cmphex(p.xrceth, ==, 17);
    g_assert_cmphex(p.va, ==, 0x1122334455667788ull);
    g_assert_cmphex(p.rkey, ==, 0xaabbccdd);
    initiator_ack(&r, &qp, SQ_PSN + 2, 2);

    w = wqe_begin(QRNIC_WQE_RDMA_READ, QRNIC_WQEF_SIGNALED);
    wqe_xrc(&w, 18);
    wqe_remote(&w, 0x1122334455667788ull, 0xaabbccdd);
    wqe_data(&w, r.mr.start + 4096, 8, r.mr.key);
    sq_post(r.d, &qp, &w);
    p = peer_expect(r.d, XRC(RC_READ_REQUEST), SQ_PSN + 3);
    g_assert_cmphex(p.xrceth, ==, 18);
    p = peer_packet(&qp, XRC(RC_READ_ONLY), SQ_PSN + 3);
    p.syndrome = AETH_ACK | 31;
    p.msn = 3;
    p.payload = (const uint8_t *)"response";
    p.length = 8;
    peer_send(r.d, &p);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    rig_read(&r, 4096, got, 8);
    g_assert_cmpmem(got, 8, "response", 8);

    /* The SRQ number has more than 24 bits. */
    w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    wqe_xrc(&w, 0x01000000);
    sq_post(r.d, &qp, &w);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_LOC_QP_OP_ERR);
    g_assert_cmpuint(cqe.syndrome, ==, QRNIC_SYN_WQE_RESERVED);
    rig_stop(&r);
}

/*
 * Tests that each side accepts only the packets of its half, and has only its
 * own queues.
 */
static void test_halves(void)
{
    Qp ini, tgt;
    PeerPacket p;
    uint32_t xrcd;
    Rig r;
    Srq s;

    rig_start(&r, "", NULL);
    xrcd = domain(&r);
    srq_create(&r, &s, r.pd, xrcd, &r.recv_cq);
    initiator_create(&r, &ini);
    half_connect(&r, &ini, false);
    target_create(&r, &tgt, xrcd);
    half_connect(&r, &tgt, true);
    p = request(&ini, RC_SEND_ONLY, 0, s.number, "x", 1);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 1);
    p = peer_packet(&tgt, XRC(RC_ACK), SQ_PSN);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 2);
    p = peer_packet(&tgt, RC_SEND_ONLY, RQ_PSN);
    peer_send(r.d, &p);
    counter_wait(r.d, QRNIC_COUNTER_RX_DROP_OPCODE, 3);
    doorbell(r.d, r.page, QRNIC_DB_RQ, ini.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 1);
    doorbell(r.d, 0, QRNIC_DB_SQ, tgt.number, 1, 0);
    counter_wait(r.d, QRNIC_COUNTER_GE_DOORBELL_QUEUE, 2);
    wire_silent(r.d);
    rig_stop(&r);
}

static void create_fails(Rig *r, const QrnicQpCtx *ctx, unsigned status,
                         uint32_t offset)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];

    qrnic_qp_ctx_pack(raw, ctx);
    command_fails(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  status, offset);
}

static void srq_fails(Rig *r, uint32_t xrcd, uint32_t cqn, unsigned status,
                      uint32_t offset)
{
    QrnicSrqCtx ctx = srq_ctx(r, r->pd, xrcd, cqn);
    uint8_t raw[QRNIC_SRQ_CTX_BYTES];

    qrnic_srq_ctx_pack(raw, &ctx);
    command_fails(r->d, QRNIC_CMD_CREATE_SRQ, 0, raw, sizeof(raw), NULL, 0,
                  status, offset);
}

static void test_commands(void)
{
    QrnicQpCtx ctx = { .type = QRNIC_QPT_XRC_TGT };
    uint32_t xrcd, cqn;
    Rig r;
    Srq s;
    Qp qp;

    rig_start(&r, "", NULL);
    cqn = r.recv_cq.number;
    xrcd = domain(&r);
    srq_fails(&r, xrcd + 1, cqn, QRNIC_ST_BAD_OBJECT,
              QRNIC_SRQ_CTX_XRCD_OFFSET);
    srq_fails(&r, xrcd, 0, QRNIC_ST_BAD_OBJECT, QRNIC_SRQ_CTX_CQ_OFFSET);
    srq_fails(&r, 0, cqn, QRNIC_ST_BAD_PARAM, QRNIC_SRQ_CTX_CQ_OFFSET);
    create_fails(&r, &ctx, QRNIC_ST_BAD_OBJECT, QRNIC_QP_CTX_XRCD_OFFSET);
    ctx.xrcd = xrcd;
    ctx.pd = r.pd;
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_PD_OFFSET);
    ctx = (QrnicQpCtx) { .type = QRNIC_QPT_XRC_TGT, .xrcd = xrcd,
                         .sq_log_size = 3 };
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM,
                 QRNIC_QP_CTX_SQ_LOG_SIZE_OFFSET);
    srq_create(&r, &s, r.pd, xrcd, &r.recv_cq);
    ctx = (QrnicQpCtx) {
        .type = QRNIC_QPT_XRC_INI, .pd = r.pd, .db_page = r.page,
        .send_cq = r.send_cq.number, .recv_cq = cqn, .sq_log_size = 4,
    };
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_RECV_CQ_OFFSET);
    ctx.recv_cq = 0;
    ctx.rq_log_size = 1;
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM,
                 QRNIC_QP_CTX_RQ_LOG_SIZE_OFFSET);
    ctx.rq_log_size = 0;
    ctx.srq = s.number;
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    ctx.type = QRNIC_QPT_RC;
    ctx.recv_cq = cqn;
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SRQ_OFFSET);
    ctx.srq = 0;
    ctx.xrcd = xrcd;
    create_fails(&r, &ctx, QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_XRCD_OFFSET);

    /* Users keep a domain and a CQ busy. */
    target_create(&r, &qp, xrcd);
    command_fails(r.d, QRNIC_CMD_FREE_XRCD, xrcd, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, qp.number, NULL, 0, NULL, 0);
    command_fails(r.d, QRNIC_CMD_FREE_XRCD, xrcd, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_QP, r.qp.number, NULL, 0, NULL, 0);
    command_fails(r.d, QRNIC_CMD_DESTROY_CQ, cqn, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_SRQ, s.number, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_DESTROY_CQ, cqn, NULL, 0, NULL, 0);
    command_ok(r.d, QRNIC_CMD_FREE_XRCD, xrcd, NULL, 0, NULL, 0);
    command_fails(r.d, QRNIC_CMD_FREE_XRCD, xrcd, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    rig_stop(&r);
}

static void test_off(const void *property)
{
    QrnicQpCtx ctx = { .type = QRNIC_QPT_XRC_TGT };
    Rig r;

    rig_start(&r, property, NULL);
    command_fails(r.d, QRNIC_CMD_ALLOC_XRCD, 0, NULL, 0, NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, 0);
    create_fails(&r, &ctx, QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_TYPE_OFFSET);
    rig_stop(&r);
}

void add_xrc_tests(void)
{
    qtest_add_func("qrnic/xrc/receive", test_receive);
    qtest_add_func("qrnic/xrc/remote", test_remote);
    qtest_add_func("qrnic/xrc/refused", test_refused);
    qtest_add_func("qrnic/xrc/srq-destroyed", test_srq_destroyed);
    qtest_add_data_func("qrnic/xrc/absent", NULL, test_absent);
    qtest_add_data_func("qrnic/xrc/absent-destroyed", "", test_absent);
    qtest_add_func("qrnic/xrc/initiator", test_initiator);
    qtest_add_func("qrnic/xrc/halves", test_halves);
    qtest_add_func("qrnic/xrc/commands", test_commands);
    qtest_add_data_func("qrnic/xrc/off", "cap-xrc=off", test_off);
    qtest_add_data_func("qrnic/xrc/off-without-srq", "cap-srq=off", test_off);
}
