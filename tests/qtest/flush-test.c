/*
 * qrnic qtest: atomic write and flush, on the wire and by loopback
 *
 * InfiniBand specification, annex A19; Programmer's Reference, chapters Queues
 * and Transport.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

#define FLUSH_RIGHTS (ALL_RIGHTS | QRNIC_ACCESS_FLUSH_GLOBAL)
#define GLOBAL QRNIC_FLUSH_GLOBAL
#define FETH(type, level) ((level) << 4 | (type))

/* Creates a key of the rig's memory with all rights. */
static uint32_t key_create(Rig *r)
{
    return rig_key_create(r, (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_MR, .variant = 0x11, .access = FLUSH_RIGHTS,
        .start = RIG_MR_START, .length = RIG_MR_LENGTH,
        .table = contiguous(r->mr.memory),
    });
}

static void flush_start(Rig *r, const char *properties)
{
    QrnicQpAttr attr = qp_default_attr();

    attr.access = ALL_RIGHTS & ~QRNIC_ACCESS_LOCAL_WRITE;
    attr.access |= QRNIC_ACCESS_FLUSH_GLOBAL;
    rig_start(r, properties, &attr);
}

/* Sends the response to both operations: a read response of 0 bytes. */
static void peer_done(Rig *r, uint32_t psn, uint32_t msn)
{
    PeerPacket p = peer_packet(&r->qp, RC_READ_ONLY, psn);

    p.syndrome = AETH_ACK | 31;
    p.msn = msn;
    peer_send(r->d, &p);
}

static void test_write_sent(void)
{
    Rig r;
    Wqe w = wqe_begin(QRNIC_WQE_ATOMIC_WRITE, QRNIC_WQEF_SIGNALED);
    PeerPacket p;

    flush_start(&r, "");
    wqe_remote(&w, 0x1234567890ull, 0xabcdef);
    wqe_atomic(&w, ldq_le_p("8 bytes!"), 0);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_ATOMIC_WRITE, SQ_PSN);
    g_assert_cmphex(p.va, ==, 0x1234567890ull);
    g_assert_cmphex(p.rkey, ==, 0xabcdef);
    g_assert_cmpuint(p.dma_length, ==, 8);
    g_assert_true(p.ack_request);
    g_assert_cmpmem(p.payload, p.length, "8 bytes!", 8);
    /*
     * An ACK is no response to a flush, so the device retransmits the request.
     */
    peer_ack(r.d, &r.qp, SQ_PSN, AETH_ACK | 31, 1);
    p = peer_expect(r.d, RC_ATOMIC_WRITE, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, "8 bytes!", 8);
    peer_done(&r, SQ_PSN, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_ATOMIC_WRITE, QRNIC_SYN_NONE);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_TX_ATOMIC_WRITE), ==, 1);
    rig_stop(&r);
}

static void test_flush_sent(void)
{
    Rig r;
    QrnicFlushSeg seg = {
        .length = 0x12345678, .type = GLOBAL | QRNIC_FLUSH_PERSISTENT,
        .level = QRNIC_FLUSH_MR,
    };
    Wqe w = wqe_begin(QRNIC_WQE_FLUSH, QRNIC_WQEF_SIGNALED);
    PeerPacket p;

    flush_start(&r, "");
    wqe_remote(&w, 0x1234567891ull, 0xabcdef);
    wqe_flush(&w, &seg);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_FLUSH, SQ_PSN);
    g_assert_cmphex(p.va, ==, 0x1234567891ull);
    g_assert_cmphex(p.rkey, ==, 0xabcdef);
    g_assert_cmphex(p.dma_length, ==, 0x12345678);
    g_assert_cmphex(p.feth, ==, 0x13);
    g_assert_true(p.ack_request);
    g_assert_cmpuint(p.length, ==, 0);
    peer_done(&r, SQ_PSN, 1);
    rig_sent(&r, QRNIC_WC_SUCCESS, QRNIC_CQE_FLUSH, QRNIC_SYN_NONE);

    w = wqe_begin(QRNIC_WQE_FLUSH, QRNIC_WQEF_SIGNALED);
    seg.type = GLOBAL;
    seg.level = QRNIC_FLUSH_RANGE;
    wqe_remote(&w, 0, 1);
    wqe_flush(&w, &seg);
    sq_post(r.d, &r.qp, &w);
    p = peer_expect(r.d, RC_FLUSH, SQ_PSN + 1);
    g_assert_cmphex(p.feth, ==, 0x01);
    /* A response with data is invalid here. */
    p = peer_packet(&r.qp, RC_READ_ONLY, SQ_PSN + 1);
    p.payload = (const uint8_t *)"data";
    p.length = 4;
    peer_send(r.d, &p);
    rig_sent(&r, QRNIC_WC_BAD_RESP_ERR, 0, QRNIC_SYN_NONE);
    rig_stop(&r);
}

static PeerPacket write_packet(Rig *r, uint32_t psn, uint32_t key,
                               uint64_t offset)
{
    PeerPacket p = peer_packet(&r->qp, RC_ATOMIC_WRITE, psn);

    p.va = RIG_MR_START + offset;
    p.rkey = key;
    p.dma_length = p.length = 8;
    p.payload = (const uint8_t *)"together";
    return p;
}

static void test_write_received(void)
{
    Rig r;
    PeerPacket p;
    uint8_t got[8];
    uint32_t key;

    flush_start(&r, "");
    key = key_create(&r);
    p = write_packet(&r, RQ_PSN, key, 0x808);
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_READ_ONLY, RQ_PSN);
    g_assert_cmphex(p.syndrome & 0x60, ==, AETH_ACK);
    g_assert_cmpuint(p.msn, ==, 1);
    g_assert_cmpuint(p.length, ==, 0);
    rig_read(&r, 0x808, got, 8);
    g_assert_cmpmem(got, 8, "together", 8);
    /* A duplicate has the same response and is not executed. */
    qtest_memwrite(r.d->qts, r.mr.memory + 0x808, "changed!", 8);
    p = write_packet(&r, RQ_PSN, key, 0x808);
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_READ_ONLY, RQ_PSN);
    g_assert_cmpuint(p.length, ==, 0);
    rig_read(&r, 0x808, got, 8);
    g_assert_cmpmem(got, 8, "changed!", 8);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_ATOMIC_WRITE), ==, 1);
    /*
     * A packet with the PSN of the flush and another address is dropped,
     * because it is not a duplicate.
     */
    p = write_packet(&r, RQ_PSN, key, 0x810);
    peer_send(r.d, &p);
    p = write_packet(&r, RQ_PSN + 1, key, 0x7fc);
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN + 1);
    g_assert_cmphex(p.syndrome, ==, AETH_NAK_INVALID_REQUEST);
    rig_stop(&r);
}

static PeerPacket flush_packet(Rig *r, uint32_t psn, uint32_t key,
                               uint32_t feth)
{
    PeerPacket p = peer_packet(&r->qp, RC_FLUSH, psn);

    p.va = RIG_MR_START;
    p.rkey = key;
    p.dma_length = RIG_MR_LENGTH;
    p.feth = feth;
    return p;
}

static void test_flush_received(void)
{
    Rig r;
    PeerPacket p;
    uint32_t key;

    flush_start(&r, "");
    key = key_create(&r);
    p = flush_packet(&r, RQ_PSN, key, FETH(GLOBAL, QRNIC_FLUSH_RANGE));
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_READ_ONLY, RQ_PSN);
    g_assert_cmphex(p.syndrome & 0x60, ==, AETH_ACK);
    g_assert_cmpuint(p.msn, ==, 1);
    g_assert_cmpuint(p.length, ==, 0);
    /*
     * The test sends the duplicate, and then a flush of the whole region, whose
     * address is outside of the region.
     */
    p = flush_packet(&r, RQ_PSN, key, FETH(GLOBAL, QRNIC_FLUSH_RANGE));
    peer_send(r.d, &p);
    peer_expect(r.d, RC_READ_ONLY, RQ_PSN);
    p = flush_packet(&r, RQ_PSN + 1, key, FETH(GLOBAL, QRNIC_FLUSH_MR));
    p.va = 0;
    p.dma_length = UINT32_MAX;
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_READ_ONLY, RQ_PSN + 1);
    g_assert_cmpuint(p.msn, ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_RX_FLUSH), ==, 2);
    g_assert_cmpuint(counter(r.d, QRNIC_COUNTER_DUPLICATE_REQUESTS), ==, 1);
    rig_stop(&r);
}

typedef struct Refused {
    const char *name;
    uint8_t opcode, syndrome;
    uint64_t offset;
    uint32_t dma_length, length, feth;
    /* False: the rig's key, without the right to flush */
    bool own_key;
} Refused;

static const Refused refused[] = {
    { "flush/refused-range", RC_FLUSH, AETH_NAK_REMOTE_ACCESS, 1,
      RIG_MR_LENGTH, 0, FETH(GLOBAL, 0), true },
    { "flush/refused-right", RC_FLUSH, AETH_NAK_REMOTE_ACCESS, 0, 1, 0,
      FETH(GLOBAL, 0), false },
    { "flush/refused-right-mr", RC_FLUSH, AETH_NAK_REMOTE_ACCESS, 0, 0, 0,
      FETH(GLOBAL, 1), false },
    { "flush/refused-persistent", RC_FLUSH, AETH_NAK_REMOTE_ACCESS, 0, 1, 0,
      FETH(QRNIC_FLUSH_PERSISTENT, 0), true },
    { "flush/refused-both", RC_FLUSH, AETH_NAK_REMOTE_ACCESS, 0, 1, 0,
      FETH(3, 0), true },
    { "flush/refused-no-placement", RC_FLUSH, AETH_NAK_INVALID_REQUEST, 0,
      1, 0, FETH(0, 0), true },
    { "flush/refused-level", RC_FLUSH, AETH_NAK_INVALID_REQUEST, 0, 1, 0,
      FETH(GLOBAL, 2), true },
    { "atomic-write/refused-length", RC_ATOMIC_WRITE, AETH_NAK_INVALID_REQUEST,
      0, 4, 4, 0, true },
    { "atomic-write/refused-payload", RC_ATOMIC_WRITE, AETH_NAK_INVALID_REQUEST,
      0, 8, 7, 0, true },
    { "atomic-write/refused-reth", RC_ATOMIC_WRITE, AETH_NAK_INVALID_REQUEST,
      0, 16, 8, 0, true },
    { "atomic-write/refused-range", RC_ATOMIC_WRITE, AETH_NAK_REMOTE_ACCESS,
      RIG_MR_LENGTH, 8, 8, 0, true },
};

static void test_refused(const void *opaque)
{
    static const uint8_t zero[16];
    const Refused *f = opaque;
    Rig r;
    PeerPacket p;
    uint8_t got[16];

    flush_start(&r, "");
    p = peer_packet(&r.qp, f->opcode, RQ_PSN);
    p.rkey = f->own_key ? key_create(&r) : r.mr.key;
    p.va = RIG_MR_START + f->offset;
    p.dma_length = f->dma_length;
    p.length = f->length;
    p.feth = f->feth;
    p.payload = (const uint8_t *)"too many bytes..";
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(p.syndrome, ==, f->syndrome);
    rig_read(&r, 0, got, sizeof(got));
    g_assert_cmpmem(got, sizeof(got), zero, sizeof(zero));
    rig_stop(&r);
}

static void test_malformed(void)
{
    static const QrnicFlushSeg flush[] = {
        { .type = 0 }, { .type = GLOBAL, .level = 2 },
    };
    Rig r;
    Wqe w = wqe_begin(QRNIC_WQE_ATOMIC_WRITE, 0);

    flush_start(&r, "");
    wqe_remote(&w, 0, 1);
    wqe_atomic(&w, 1, 1);
    sq_post(r.d, &r.qp, &w);
    rig_sent(&r, QRNIC_WC_LOC_QP_OP_ERR, 0, QRNIC_SYN_WQE_RESERVED);
    rig_stop(&r);

    flush_start(&r, "");
    w = wqe_begin(QRNIC_WQE_ATOMIC_WRITE, 0);
    wqe_remote(&w, 0, 1);
    wqe_atomic(&w, 1, 0);
    wqe_data(&w, r.mr.start, 8, r.mr.key);
    sq_post(r.d, &r.qp, &w);
    rig_sent(&r, QRNIC_WC_LOC_QP_OP_ERR, 0, QRNIC_SYN_WQE_SIZE);
    rig_stop(&r);

    for (unsigned i = 0; i < ARRAY_SIZE(flush); i++) {
        flush_start(&r, "");
        w = wqe_begin(QRNIC_WQE_FLUSH, 0);
        wqe_remote(&w, 0, 1);
        wqe_flush(&w, &flush[i]);
        sq_post(r.d, &r.qp, &w);
        rig_sent(&r, QRNIC_WC_LOC_QP_OP_ERR, 0, QRNIC_SYN_WQE_RESERVED);
        rig_stop(&r);
    }
}

static void test_off(void)
{
    static const uint8_t opcode[] = { QRNIC_WQE_ATOMIC_WRITE,
                                      QRNIC_WQE_FLUSH };
    static const char off[] = "cap-atomic-write=off,cap-flush=off";
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    QrnicMkeyCtx ctx = {
        .type = QRNIC_MKEY_MR, .access = FLUSH_RIGHTS, .length = 1,
    };
    PeerPacket p;
    Rig r;

    for (unsigned i = 0; i < ARRAY_SIZE(opcode); i++) {
        Wqe w = wqe_begin(opcode[i], 0);

        flush_start(&r, off);
        wqe_remote(&w, 0, 1);
        sq_post(r.d, &r.qp, &w);
        rig_sent(&r, QRNIC_WC_LOC_QP_OP_ERR, 0, QRNIC_SYN_WQE_OPCODE);
        rig_stop(&r);
    }
    flush_start(&r, off);
    ctx.pd = r.pd;
    qrnic_mkey_ctx_pack(raw, &ctx);
    command_fails(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, QRNIC_MKEY_CTX_ACCESS_OFFSET);
    p = write_packet(&r, RQ_PSN, r.mr.key, 0);
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(p.syndrome, ==, AETH_NAK_INVALID_REQUEST);
    rig_stop(&r);

    flush_start(&r, off);
    p = flush_packet(&r, RQ_PSN, r.mr.key, FETH(GLOBAL, QRNIC_FLUSH_RANGE));
    peer_send(r.d, &p);
    p = peer_expect(r.d, RC_ACK, RQ_PSN);
    g_assert_cmphex(p.syndrome, ==, AETH_NAK_INVALID_REQUEST);
    rig_stop(&r);
}

void add_flush_tests(void)
{
    qtest_add_func("qrnic/atomic-write/sent", test_write_sent);
    qtest_add_func("qrnic/atomic-write/received", test_write_received);
    qtest_add_func("qrnic/flush/sent", test_flush_sent);
    qtest_add_func("qrnic/flush/received", test_flush_received);
    qtest_add_func("qrnic/flush/malformed", test_malformed);
    qtest_add_func("qrnic/flush/off", test_off);
    for (unsigned i = 0; i < ARRAY_SIZE(refused); i++) {
        g_autofree char *name = g_strdup_printf("qrnic/%s", refused[i].name);

        qtest_add_data_func(name, &refused[i], test_refused);
    }
}
