/*
 * qrnic qtest: flags of queue pairs and completion queues
 *
 * Programmer's Reference, chapters Queue pairs, Ethernet, Datagrams, and
 * Completion and events.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "driver.h"

#define QKEY 0x11223344u
#define SOURCE 0x00abcdu
#define FRAME 80
#define TAG 0x2005

static QrnicCmdEntry qp_command(Rig *r, unsigned type, uint8_t flags,
                                uint32_t source_qpn)
{
    uint64_t ring = memory_alloc(r->d, QRNIC_WQEBB_SIZE << 3, 4096);
    uint64_t records = memory_alloc(r->d, 2 * QRNIC_RECORD_SIZE, 64);
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx = {
        .type = type, .pd = r->pd, .db_page = r->page, .flags = flags,
        .send_cq = r->send_cq.number, .recv_cq = r->recv_cq.number,
        .sq_log_size = 3, .sq = contiguous(ring),
        .rq = contiguous(memory_alloc(r->d, QRNIC_WQEBB_SIZE, 4096)),
        .sq_record = records, .rq_record = records + QRNIC_RECORD_SIZE,
        .source_qpn = source_qpn,
    };
    QrnicCmdEntry entry;

    qrnic_qp_ctx_pack(raw, &ctx);
    entry = command(r->d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0);
    r->qp = (Qp) {
        .number = entry.result, .page = r->page, .sq_log_size = 3,
        .sq = ring, .sq_record = records, .rq = ctx.rq.root,
        .rq_record = ctx.rq_record,
        .send_cq = &r->send_cq, .recv_cq = &r->recv_cq,
    };
    return entry;
}

static void refused(Rig *r, unsigned type, uint8_t flags, uint32_t source_qpn,
                    unsigned status, uint32_t syndrome)
{
    QrnicCmdEntry entry = qp_command(r, type, flags, source_qpn);

    g_assert_cmpstr(qrnic_cmd_status_name(entry.status), ==,
                    qrnic_cmd_status_name(status));
    g_assert_cmphex(entry.syndrome, ==, syndrome);
}

/* Tests that each flag is valid for one type of queue pair. */
static void test_refused(void)
{
    static const uint8_t of_ud[] = {
        QRNIC_QPF_NO_MULTICAST_LOOPBACK, QRNIC_QPF_SOURCE_QPN,
    };
    static const uint8_t of_raw[] = {
        QRNIC_QPF_VLAN_STRIP, QRNIC_QPF_SCATTER_FCS,
    };
    Rig r;

    rig_start(&r, "doorbell-hold=1", NULL);
    for (unsigned i = 0; i < 2; i++) {
        refused(&r, QRNIC_QPT_RC, of_ud[i], 0, QRNIC_ST_BAD_PARAM,
                QRNIC_QP_CTX_FLAGS_OFFSET);
        refused(&r, QRNIC_QPT_RAW_PACKET, of_ud[i], 0, QRNIC_ST_BAD_PARAM,
                QRNIC_QP_CTX_FLAGS_OFFSET);
        refused(&r, QRNIC_QPT_RC, of_raw[i], 0, QRNIC_ST_BAD_PARAM,
                QRNIC_QP_CTX_FLAGS_OFFSET);
        refused(&r, QRNIC_QPT_UD, of_raw[i], 0, QRNIC_ST_BAD_PARAM,
                QRNIC_QP_CTX_FLAGS_OFFSET);
    }
    refused(&r, QRNIC_QPT_UD, 0, SOURCE, QRNIC_ST_BAD_PARAM,
            QRNIC_QP_CTX_SOURCE_QPN_OFFSET);
    refused(&r, QRNIC_QPT_UD, QRNIC_QPF_SOURCE_QPN, 0, QRNIC_ST_BAD_PARAM,
            QRNIC_QP_CTX_SOURCE_QPN_OFFSET);
    refused(&r, QRNIC_QPT_UD, QRNIC_QPF_SOURCE_QPN, QRNIC_MULTICAST_QPN,
            QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_SOURCE_QPN_OFFSET);
    refused(&r, QRNIC_QPT_UD, QRNIC_QPF_SOURCE_QPN, QRNIC_MULTICAST_QPN - 1,
            QRNIC_ST_OK, 0);
    refused(&r, QRNIC_QPT_RAW_PACKET,
            QRNIC_QPF_EVENT_INDEX | QRNIC_QPF_RECEIVE_ONLY, 0,
            QRNIC_ST_BAD_PARAM, QRNIC_QP_CTX_FLAGS_OFFSET);
    refused(&r, QRNIC_QPT_RC, QRNIC_QPF_EVENT_INDEX, 0, QRNIC_ST_OK, 0);
    rig_stop(&r);
}

static void test_off(void)
{
    Rig r;

    rig_start(&r, "cap-source-qpn=off,cap-scatter-fcs=off,cap-eth-vlan=off,"
              "doorbell-hold=1,cap-event-index=off", NULL);
    refused(&r, QRNIC_QPT_RC, QRNIC_QPF_EVENT_INDEX, 0, QRNIC_ST_NOT_SUPPORTED,
            QRNIC_QP_CTX_FLAGS_OFFSET);
    refused(&r, QRNIC_QPT_UD, QRNIC_QPF_SOURCE_QPN, SOURCE,
            QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_FLAGS_OFFSET);
    refused(&r, QRNIC_QPT_RAW_PACKET, QRNIC_QPF_SCATTER_FCS, 0,
            QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_FLAGS_OFFSET);
    refused(&r, QRNIC_QPT_RAW_PACKET, QRNIC_QPF_VLAN_STRIP, 0,
            QRNIC_ST_NOT_SUPPORTED, QRNIC_QP_CTX_FLAGS_OFFSET);
    rig_stop(&r);
}

/*
 * Tests that the DETH has the source number that software chose, and that the
 * queue pair keeps its own number.
 */
static void test_source_qpn(void)
{
    QrnicDatagramSeg to = {
        .dest_qpn = PEER_QPN, .qkey = QKEY, .av = qp_default_attr().av,
    };
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    QrnicCqe cqe;
    PeerPacket p;
    Rig r;

    rig_start(&r, "", NULL);
    refused(&r, QRNIC_QPT_UD, QRNIC_QPF_SOURCE_QPN, SOURCE, QRNIC_ST_OK, 0);
    g_assert_cmphex(r.qp.number, !=, SOURCE);
    qp_start_datagram(r.d, &r.qp, QKEY);
    wqe_datagram(&w, &to);
    wqe_data(&w, r.mr.start, 8, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, UD_SEND_ONLY, SQ_PSN);
    g_assert_cmphex(p.src_qpn, ==, SOURCE);
    cq_wait(r.d, &r.send_cq, &cqe);
    g_assert_cmphex(cqe.qpn, ==, r.qp.number);
    rig_stop(&r);
}

/* Asserts the bytes of the record of the SQ. */
static void expect_record(Rig *r, const Qp *qp, uint32_t producer,
                          uint32_t event)
{
    uint8_t raw[QRNIC_QUEUE_RECORD_BYTES], expected[QRNIC_QUEUE_RECORD_BYTES];

    stl_le_p(expected + QRNIC_QUEUE_RECORD_PRODUCER_OFFSET, producer);
    stl_le_p(expected + QRNIC_QUEUE_RECORD_EVENT_OFFSET, event);
    qtest_memread(r->d->qts, qp->sq_record, raw, sizeof(raw));
    g_assert_cmpmem(raw, sizeof(raw), expected, sizeof(expected));
}

static void post_datagram(Rig *r, Qp *qp, const QrnicDatagramSeg *to)
{
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);

    wqe_datagram(&w, to);
    wqe_data(&w, r->mr.start, 8, r->mr.key);
    sq_write(r->d, qp, &w);
    sq_publish(r->d, qp);
}

/*
 * Tests that one doorbell is enough for several records, that the device then
 * writes the event index, and that it writes nothing without the flag.
 */
static void test_event_index(void)
{
    QrnicDatagramSeg to = {
        .dest_qpn = PEER_QPN, .qkey = QKEY, .av = qp_default_attr().av,
    };
    QrnicCqe cqe;
    Rig r;

    rig_start(&r, "doorbell-hold=1", NULL);
    for (unsigned on = 0; on < 2; on++) {
        uint64_t before = counter(r.d, QRNIC_COUNTER_EVENT_WRITES);
        uint32_t block, first;

        refused(&r, QRNIC_QPT_UD, on ? QRNIC_QPF_EVENT_INDEX : 0, 0,
                QRNIC_ST_OK, 0);
        qp_start_datagram(r.d, &r.qp, QKEY);
        post_datagram(&r, &r.qp, &to);
        block = r.qp.sq_producer;
        post_datagram(&r, &r.qp, &to);
        wire_silent(r.d);
        expect_record(&r, &r.qp, 2 * block, 0);
        first = counter(r.d, QRNIC_COUNTER_DOORBELLS);
        sq_ring(r.d, &r.qp);
        for (unsigned i = 0; i < 2; i++) {
            peer_expect(r.d, UD_SEND_ONLY, SQ_PSN + i);
            cq_wait(r.d, &r.send_cq, &cqe);
        }
        settle(r.d);
        expect_record(&r, &r.qp, 2 * block, on ? 2 * block : 0);
        g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DOORBELLS), ==, first + 1);
        g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_EVENT_WRITES) - before,
                         ==, on);
        /*
         * The SQ is asleep for longer than the hold time, so that a WQE
         * without a doorbell waits, and its doorbell starts no hold.
         */
        clock_step(r.d, 1000);
        post_datagram(&r, &r.qp, &to);
        wire_silent(r.d);
        sq_ring(r.d, &r.qp);
        peer_expect(r.d, UD_SEND_ONLY, SQ_PSN + 2);
        cq_wait(r.d, &r.send_cq, &cqe);
        settle(r.d);
        expect_record(&r, &r.qp, 3 * block, on ? 3 * block : 0);
    }
    rig_stop(&r);
}

/* Makes a raw packet queue pair with these flags, which receives all frames. */
static void raw_start(Rig *r, uint8_t flags)
{
    uint8_t raw[QRNIC_FLOW_CTX_BYTES];
    QrnicFlowCtx ctx = { .type = QRNIC_FLOW_ALL_DEFAULT };

    rig_start(r, "", NULL);
    refused(r, QRNIC_QPT_RAW_PACKET, flags, 0, QRNIC_ST_OK, 0);
    for (unsigned state = QRNIC_QPS_INIT; state <= QRNIC_QPS_RTS; state++) {
        QrnicQpAttr step = { .mask = QRNIC_QP_STATE, .state = state };

        if (state == QRNIC_QPS_INIT) {
            step.mask |= QRNIC_QP_PORT;
            step.port = 1;
        }
        qp_modify(r->d, &r->qp, &step);
    }
    qrnic_flow_ctx_pack(raw, &ctx);
    command_ok(r->d, QRNIC_CMD_CREATE_FLOW, r->qp.number, raw, sizeof(raw),
               NULL, 0);
}

/* Sends the frame into a buffer of room bytes. */
static void frame_in(Rig *r, uint8_t *frame, bool tagged, uint32_t room)
{
    QrnicDataSeg sge = { r->mr.start, room, r->mr.key };

    for (unsigned i = 0; i < FRAME; i++) {
        frame[i] = i * 7;
    }
    memcpy(frame, "\x02\x00\x00\x00\x00\x77", 6);
    memcpy(frame + 6, PEER_MAC, 6);
    stw_be_p(frame + 12, tagged ? 0x8100 : 0x88b5);
    if (tagged) {
        stw_be_p(frame + 14, TAG);
        stw_be_p(frame + 16, 0x88b5);
    }
    rq_post(r->d, &r->qp, &sge, 1);
    wire_send(r->d, frame, FRAME);
}

/* Computes the FCS bit by bit as in IEEE Std 802.3, 3.2.9. */
static uint32_t frame_check_sequence(const uint8_t *p, size_t len)
{
    uint32_t crc = UINT32_MAX;

    while (len--) {
        crc ^= *p++;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
        }
    }
    return ~crc;
}

/*
 * Tests that a buffer is large enough if it holds the frame without the tag,
 * because the device strips the tag.
 */
static void test_vlan_strip(void)
{
    uint8_t frame[FRAME], got[FRAME];
    QrnicCqe cqe;
    Rig r;

    raw_start(&r, QRNIC_QPF_VLAN_STRIP);
    frame_in(&r, frame, true, FRAME - 4);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_true(cqe.flags & QRNIC_CQEF_VLAN);
    g_assert_cmphex(cqe.vlan_tci, ==, TAG);
    g_assert_cmpuint(cqe.byte_len, ==, FRAME - 4);
    rig_read(&r, 0, got, FRAME - 4);
    g_assert_cmpmem(got, 12, frame, 12);
    g_assert_cmpmem(got + 12, FRAME - 16, frame + 16, FRAME - 16);
    /* An untagged frame is unchanged. */
    frame_in(&r, frame, false, FRAME);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_false(cqe.flags & QRNIC_CQEF_VLAN);
    g_assert_cmpuint(cqe.byte_len, ==, FRAME);
    rig_stop(&r);
}

static void scatter_fcs(uint8_t flags, bool tagged)
{
    size_t rest = flags & QRNIC_QPF_VLAN_STRIP ? FRAME - 4 : FRAME;
    uint8_t frame[FRAME], got[FRAME + 4];
    QrnicCqe cqe;
    Rig r;

    raw_start(&r, flags);
    /* The buffer is one byte too short for the added bytes. */
    frame_in(&r, frame, tagged, rest + 3);
    counter_wait(r.d, QRNIC_COUNTER_ETH_RX_TOO_LONG, 1);
    g_assert_false(cq_poll(r.d, &r.recv_cq, &cqe));
    rig_stop(&r);

    raw_start(&r, flags);
    frame_in(&r, frame, tagged, rest + 4);
    cq_wait(r.d, &r.recv_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(cqe.byte_len, ==, rest + 4);
    rig_read(&r, 0, got, rest + 4);
    g_assert_cmpmem(got, 12, frame, 12);
    g_assert_cmpmem(got + rest - 16, 16, frame + FRAME - 16, 16);
    g_assert_cmphex((uint32_t)ldl_le_p(got + rest), ==,
                    frame_check_sequence(frame, FRAME));
    rig_stop(&r);
}

static void test_scatter_fcs(void)
{
    scatter_fcs(QRNIC_QPF_SCATTER_FCS, false);
}

/*
 * Tests that the FCS in the buffer is that of the frame with its tag, even if
 * the tag is stripped.
 */
static void test_scatter_fcs_strip(void)
{
    scatter_fcs(QRNIC_QPF_SCATTER_FCS | QRNIC_QPF_VLAN_STRIP, true);
}

static QrnicCmdEntry overwriting_cq(Rig *r, Cq *cq)
{
    uint8_t raw[QRNIC_CQ_CTX_BYTES];
    QrnicCqCtx ctx = {
        .eqn = r->eq.number, .db_page = r->page, .log_size = 2,
        .flags = QRNIC_CQF_IGNORE_OVERRUN,
    };
    QrnicCmdEntry entry;

    *cq = (Cq) { .log_size = 2, .page = r->page };
    cq->ring = memory_alloc(r->d, QRNIC_CQE_SIZE << 2, 4096);
    cq->record = memory_alloc(r->d, QRNIC_RECORD_SIZE, QRNIC_RECORD_SIZE);
    ctx.ring = contiguous(cq->ring);
    ctx.record = cq->record;
    qrnic_cq_ctx_pack(raw, &ctx);
    entry = command(r->d, QRNIC_CMD_CREATE_CQ, 0, raw, sizeof(raw), NULL, 0);
    cq->number = entry.result;
    return entry;
}

/*
 * Tests ten completions into a CQ of four entries that ignores overruns. The
 * last four CQEs are readable.
 */
static void test_ignore_overrun(void)
{
    QrnicQpAttr attr;
    QrnicCqe cqe;
    QrnicEqe eqe;
    Cq cq;
    Rig r;

    rig_start(&r, "", NULL);
    g_assert_cmpuint(overwriting_cq(&r, &cq).status, ==, QRNIC_ST_OK);
    qp_create(r.d, &r.qp, QRNIC_QPT_RC, r.pd, r.page, &cq, &r.recv_cq, 5, 3,
              0);
    qp_connect(r.d, &r.qp, NULL);
    for (int i = 0; i < 10; i++) {
        Wqe w = wqe_begin(QRNIC_WQE_NOP, QRNIC_WQEF_SIGNALED);

        sq_post(r.d, &r.qp, &w);
    }
    settle(r.d);
    qp_query(r.d, &r.qp, &attr);
    g_assert_cmpuint(attr.state, ==, QRNIC_QPS_RTS);
    g_assert_false(eq_poll(r.d, &r.async, &eqe));
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_CQ_OVERRUNS), ==, 0);
    /*
     * A consumer index of 0 is behind, which is valid with this flag: the CQ
     * has CQEs.
     */
    cq_arm(r.d, &cq, false);
    eq_wait(r.d, &r.eq, &eqe);
    g_assert_cmpuint(eqe.object, ==, cq.number);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_GE_CQ_CONSUMER), ==, 0);
    cq.consumer = 6;
    for (uint32_t i = 6; i < 10; i++) {
        g_assert_true(cq_poll(r.d, &cq, &cqe));
        g_assert_cmpuint(cqe.index, ==, i);
    }
    g_assert_false(cq_poll(r.d, &cq, &cqe));
    /* A consumer index beyond the producer index is invalid. */
    cq.consumer = 11;
    cq_arm(r.d, &cq, false);
    counter_wait(r.d, QRNIC_COUNTER_GE_CQ_CONSUMER, 1);
    rig_stop(&r);
}

/*
 * Tests that an overwritten solicited CQE does not cause an event when the CQ
 * is armed.
 */
static void test_ignore_overrun_solicited(void)
{
    QrnicCqe cqe;
    QrnicEqe eqe;
    PeerPacket p;
    Cq cq;
    Rig r;

    rig_start(&r, "", NULL);
    g_assert_cmpuint(overwriting_cq(&r, &cq).status, ==, QRNIC_ST_OK);
    qp_create(r.d, &r.qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &cq, 5, 4,
              0);
    qp_connect(r.d, &r.qp, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        QrnicDataSeg sge = { r.mr.start, 64, r.mr.key };

        rq_post(r.d, &r.qp, &sge, 1);
    }
    for (uint32_t i = 0; i < 8; i++) {
        p = peer_packet(&r.qp, RC_SEND_ONLY, RQ_PSN + i);
        p.solicited = i == 0;
        p.ack_request = true;
        peer_send(r.d, &p);
        peer_expect(r.d, RC_ACK, RQ_PSN + i);
    }
    cq_arm(r.d, &cq, true);
    settle(r.d);
    g_assert_false(eq_poll(r.d, &r.eq, &eqe));
    cq_arm(r.d, &cq, false);
    eq_wait(r.d, &r.eq, &eqe);
    cq.consumer = 4;
    g_assert_true(cq_poll(r.d, &cq, &cqe));
    g_assert_cmpuint(cqe.index, ==, 4);
    rig_stop(&r);
}

static void test_ignore_overrun_off(void)
{
    QrnicCmdEntry entry;
    Cq cq;
    Rig r;

    rig_start(&r, "cap-cq-ignore-overrun=off", NULL);
    entry = overwriting_cq(&r, &cq);
    g_assert_cmpuint(entry.status, ==, QRNIC_ST_NOT_SUPPORTED);
    g_assert_cmpuint(entry.syndrome, ==, QRNIC_CQ_CTX_FLAGS_OFFSET);
    rig_stop(&r);
}

void add_flags_tests(void)
{
    qtest_add_func("qrnic/flags/refused", test_refused);
    qtest_add_func("qrnic/flags/off", test_off);
    qtest_add_func("qrnic/flags/source-qpn", test_source_qpn);
    qtest_add_func("qrnic/flags/event-index", test_event_index);
    qtest_add_func("qrnic/flags/vlan-strip", test_vlan_strip);
    qtest_add_func("qrnic/flags/scatter-fcs", test_scatter_fcs);
    qtest_add_func("qrnic/flags/scatter-fcs-strip", test_scatter_fcs_strip);
    qtest_add_func("qrnic/flags/ignore-overrun", test_ignore_overrun);
    qtest_add_func("qrnic/flags/ignore-overrun-solicited",
                   test_ignore_overrun_solicited);
    qtest_add_func("qrnic/flags/ignore-overrun-off", test_ignore_overrun_off);
}
