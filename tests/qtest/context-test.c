/*
 * qrnic qtest: the context cache, at the bus and on the wire
 *
 * Programmer's Reference, chapter Context cache.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define QPS 3
#define LATENCY 1000000
#define REMOTE_VA 0x5000ull
#define REMOTE_KEY 0xabcdef12u

/* A rig with three queue pairs and a cache for two */
typedef struct Cached {
    Rig r;
    QrnicContextAttr attr;
    uint64_t memory;
    Qp qp[QPS];
} Cached;

static QrnicContextAttr query(Device *d)
{
    uint8_t raw[QRNIC_CONTEXT_ATTR_BYTES];
    QrnicContextAttr attr;

    command_ok(d, QRNIC_CMD_QUERY_CONTEXTS, 0, NULL, 0, raw,
               sizeof(raw));
    g_assert_true(qrnic_context_attr_unpack(&attr, raw));
    return attr;
}

static void memory_pack(uint8_t *raw, uint64_t at, uint64_t length)
{
    QrnicContextMemory m = { .memory.root = at, .length = length };

    qrnic_context_memory_pack(raw, &m);
}

static void cached_start(Cached *x, const char *properties)
{
    uint8_t raw[QRNIC_CONTEXT_MEMORY_BYTES];
    uint64_t length;
    Device *d;

    rig_start(&x->r, properties, NULL);
    d = x->r.d;
    command_ok(d, QRNIC_CMD_DESTROY_QP, x->r.qp.number, NULL, 0, NULL, 0);
    x->attr = query(d);
    length = (uint64_t)x->attr.images * x->attr.image_size;
    x->memory = memory_alloc(d, length, 4096);
    memory_pack(raw, x->memory, length);
    command_ok(d, QRNIC_CMD_SET_CONTEXTS, 0, raw, sizeof(raw), NULL, 0);
    for (unsigned i = 0; i < QPS; i++) {
        qp_create(d, &x->qp[i], QRNIC_QPT_RC, x->r.pd, x->r.page,
                  &x->r.send_cq, &x->r.recv_cq, 4, 4, 0);
        qp_connect(d, &x->qp[i], NULL);
    }
}

/* Evicts the context of queue pair 0 by queries of the two others. */
static void push_out(Cached *x)
{
    QrnicQpAttr attr;

    qp_query(x->r.d, &x->qp[1], &attr);
    qp_query(x->r.d, &x->qp[2], &attr);
}

static uint64_t image(const Cached *x)
{
    return x->memory + (uint64_t)x->qp[0].number * x->attr.image_size;
}

static void post_write(Cached *x, unsigned i)
{
    Wqe w = wqe_begin(QRNIC_WQE_RDMA_WRITE, QRNIC_WQEF_SIGNALED);

    wqe_remote(&w, REMOTE_VA, REMOTE_KEY);
    wqe_data(&w, RIG_MR_START, 64, x->r.mr.key);
    sq_post(x->r.d, &x->qp[i], &w);
}

static void step(Cached *x)
{
    clock_step(x->r.d, LATENCY);
    settle(x->r.d);
}

/*
 * Tests that only the queue pair of a context miss waits. With
 * context-stations=0 the whole device waits.
 */
static void test_send(void)
{
    Cached x;

    cached_start(&x, "context-cache=2,context-latency=1000000,max-qp=16");
    g_assert_cmpuint(x.attr.image_size, ==, QRNIC_CONTEXT_IMAGE_SIZE);
    g_assert_cmpuint(x.attr.images, ==, 18);
    g_assert_cmpuint(x.attr.entries, ==, 2);
    g_assert_cmpuint(x.attr.stations, ==, 16);
    g_assert_cmpuint(x.attr.latency, ==, LATENCY);
    push_out(&x);
    g_assert_cmphex(qtest_readl(x.r.d->qts, image(&x)), ==, x.qp[0].number);
    post_write(&x, 0);
    settle(x.r.d);
    wire_silent(x.r.d);
    post_write(&x, 2);
    peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    wire_silent(x.r.d);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_CONTEXT_MISSES), ==, 1);
    step(&x);
    peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_CONTEXT_HITS), >, 0);
    g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_CONTEXT_WRITE_BACKS), >, 0);
    rig_stop(&x.r);

    cached_start(&x, "context-cache=2,context-latency=1000000,max-qp=16,"
                 "context-stations=0");
    push_out(&x);
    post_write(&x, 0);
    post_write(&x, 2);
    settle(x.r.d);
    wire_silent(x.r.d);
    step(&x);
    peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    rig_stop(&x.r);
}

/* Packets to an evicted context wait, and none is dropped. */
static void test_receive(void)
{
    for (unsigned in_order = 0; in_order < 2; in_order++) {
        uint8_t data[64];
        PeerPacket p;
        Cached x;

        cached_start(&x, in_order ? "context-cache=2,context-latency=1000000,"
                     "context-stations=0" :
                     "context-cache=2,context-latency=1000000");
        memset(data, 0x3c, sizeof(data));
        push_out(&x);
        for (unsigned i = 0; i < 3; i++) {
            p = peer_packet(&x.qp[0], RC_WRITE_ONLY, RQ_PSN + i);
            p.psn &= 0xffffff;
            p.va = RIG_MR_START + 64 * i;
            p.rkey = x.r.mr.key;
            p.dma_length = p.length = sizeof(data);
            p.payload = data;
            p.ack_request = i == 2;
            peer_send(x.r.d, &p);
        }
        settle(x.r.d);
        wire_silent(x.r.d);
        step(&x);
        peer_expect(x.r.d, RC_ACK, (RQ_PSN + 2) & 0xffffff);
        g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_OUT_OF_SEQUENCE), ==, 0);
        g_assert_cmpuint(counter(x.r.d, QRNIC_COUNTER_CONTEXT_MISSES), ==, 1);
        rig_stop(&x.r);
    }
}

static void expect_error(Cached *x, unsigned syndrome)
{
    QrnicEqe e;
    QrnicCqe c;

    eq_wait(x->r.d, &x->r.async, &e);
    g_assert_cmpstr(qrnic_event_name(e.type), ==, "QP_CONTEXT_ERROR");
    g_assert_cmpuint(e.object, ==, x->qp[0].number);
    g_assert_cmpuint(e.subtype, ==, syndrome);
    cq_wait(x->r.d, &x->r.send_cq, &c);
    g_assert_cmpuint(c.qpn, ==, x->qp[0].number);
    g_assert_cmpstr(qrnic_wc_status_name(c.status), ==, "WR_FLUSH_ERR");
    g_assert_cmpuint(counter(x->r.d, QRNIC_COUNTER_GE_CONTEXT_IMAGE), ==, 1);
}

/*
 * Tests that a write to the context memory breaks the queue pair of that image,
 * and no other.
 */
static void test_overwritten(void)
{
    Cached x;

    cached_start(&x, "context-cache=2,context-latency=1000000");
    push_out(&x);
    qtest_writeb(x.r.d->qts, image(&x) + 20, 0xff);
    post_write(&x, 0);
    step(&x);
    expect_error(&x, QRNIC_SYN_CONTEXT);
    wire_silent(x.r.d);
    post_write(&x, 1);
    post_write(&x, 2);
    step(&x);
    peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    peer_expect(x.r.d, RC_WRITE_ONLY, SQ_PSN);
    for (unsigned i = 0; i < QPS; i++) {
        command_ok(x.r.d, QRNIC_CMD_DESTROY_QP, x.qp[i].number, NULL, 0, NULL,
                   0);
    }
    rig_stop(&x.r);
}

/*
 * Tests that a reset does no DMA and forgets the context memory. No context is
 * fetched afterwards, because the driver may have freed the memory.
 */
static void test_reset(void)
{
    uint64_t written;
    Cached x;

    cached_start(&x, "context-cache=2,context-latency=1000000");
    push_out(&x);
    post_write(&x, 0);
    settle(x.r.d);
    qtest_memset(x.r.d->qts, x.memory, 0xa5,
                 (uint64_t)x.attr.images * x.attr.image_size);
    reg_write(x.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    step(&x);
    written = qtest_readq(x.r.d->qts, image(&x));
    g_assert_cmphex(written, ==, 0xa5a5a5a5a5a5a5a5ull);
    device_enable_commands(x.r.d, 2);
    g_assert_cmpuint(query(x.r.d).length, ==, 0);
    device_stop(x.r.d);
}

static void test_commands(void)
{
    uint8_t raw[QRNIC_CONTEXT_MEMORY_BYTES], attr[QRNIC_CONTEXT_ATTR_BYTES];
    Cached x;
    Rig r;

    cached_start(&x, "context-cache=2");
    memory_pack(raw, 0, 0);
    command_fails(x.r.d, QRNIC_CMD_SET_CONTEXTS, 0, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BUSY, 0);
    for (unsigned i = 0; i < QPS; i++) {
        command_ok(x.r.d, QRNIC_CMD_DESTROY_QP, x.qp[i].number, NULL, 0, NULL,
                   0);
    }
    memory_pack(raw, x.memory, 63);
    command_fails(x.r.d, QRNIC_CMD_SET_CONTEXTS, 0, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM,
                  QRNIC_CONTEXT_MEMORY_LENGTH_OFFSET);
    memory_pack(raw, x.memory, 0);
    command_fails(x.r.d, QRNIC_CMD_SET_CONTEXTS, 0, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM,
                  QRNIC_CONTEXT_MEMORY_MEMORY_OFFSET);
    memory_pack(raw, 0, 0);
    command_ok(x.r.d, QRNIC_CMD_SET_CONTEXTS, 0, raw, sizeof(raw), NULL,
               0);
    g_assert_cmpuint(query(x.r.d).length, ==, 0);
    rig_stop(&x.r);

    rig_start(&r, "context-cache=2,cap-context-cache=off", NULL);
    command_fails(r.d, QRNIC_CMD_SET_CONTEXTS, 0, raw, sizeof(raw), NULL,
                  0, QRNIC_ST_NOT_SUPPORTED, 0);
    command_fails(r.d, QRNIC_CMD_QUERY_CONTEXTS, 0, NULL, 0, attr,
                  sizeof(attr), QRNIC_ST_NOT_SUPPORTED, 0);
    rig_stop(&r);
}

/*
 * Tests that without context memory the number of connections is limited by the
 * cache.
 */
static void test_bare(void)
{
    uint8_t raw[QRNIC_QP_CTX_BYTES];
    QrnicQpCtx ctx;
    Qp qp;
    Rig r;

    rig_start(&r, "context-cache=2", NULL);
    qp_create(r.d, &qp, QRNIC_QPT_RC, r.pd, r.page, &r.send_cq, &r.recv_cq, 4,
              4, 0);
    ctx = (QrnicQpCtx) {
        .type = QRNIC_QPT_RC, .pd = r.pd, .db_page = r.page,
        .send_cq = r.send_cq.number, .recv_cq = r.recv_cq.number,
        .sq_log_size = 4, .sq = contiguous(qp.sq), .rq = contiguous(qp.rq),
        .sq_record = qp.sq_record, .rq_record = qp.rq_record,
    };
    qrnic_qp_ctx_pack(raw, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_QP, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NO_RESOURCE, 0);
    rig_stop(&r);
}

void add_context_tests(void)
{
    qtest_add_func("qrnic/context/send", test_send);
    qtest_add_func("qrnic/context/receive", test_receive);
    qtest_add_func("qrnic/context/overwritten", test_overwritten);
    qtest_add_func("qrnic/context/reset", test_reset);
    qtest_add_func("qrnic/context/commands", test_commands);
    qtest_add_func("qrnic/context/bare", test_bare);
}
