/*
 * qrnic qtest: device memory: its BAR, commands and keys
 *
 * Programmer's Reference, chapter Device memory.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

/* The rig's device memory, with its BAR */
typedef struct Memory {
    Rig r;
    QPCIBar bar;
    uint64_t size;
} Memory;

static void memory_start(Memory *m, const char *properties)
{
    rig_start(&m->r, properties, NULL);
    m->bar = qpci_iomap(m->r.d->pci, QRNIC_BAR_MEMORY, &m->size);
}

static uint32_t dm_alloc(Memory *m, uint64_t length, uint64_t *offset)
{
    QrnicDmCtx ctx = { .length = length };
    uint8_t raw[QRNIC_DM_CTX_BYTES];
    uint32_t number;

    qrnic_dm_ctx_pack(raw, &ctx);
    number = command_ok(m->r.d, QRNIC_CMD_ALLOC_DM, 0, raw, sizeof(raw), NULL,
                        0);
    command_ok(m->r.d, QRNIC_CMD_QUERY_DM, number, NULL, 0, raw, sizeof(raw));
    g_assert_true(qrnic_dm_ctx_unpack(&ctx, raw));
    g_assert_cmpuint(ctx.length, ==, length);
    g_assert_cmphex(ctx.offset % QRNIC_DM_PAGE_SIZE, ==, 0);
    *offset = ctx.offset;
    return number;
}

static void dm_alloc_fails(Memory *m, QrnicDmCtx ctx, unsigned status,
                           uint32_t syndrome)
{
    uint8_t raw[QRNIC_DM_CTX_BYTES];

    qrnic_dm_ctx_pack(raw, &ctx);
    command_fails(m->r.d, QRNIC_CMD_ALLOC_DM, 0, raw, sizeof(raw), NULL, 0,
                  status, syndrome);
}

static QrnicMkeyCtx dm_key_ctx(Memory *m, uint32_t dm, uint64_t length)
{
    return (QrnicMkeyCtx) {
        .type = QRNIC_MKEY_DM, .variant = 0x21, .access = ALL_RIGHTS,
        .pd = m->r.pd, .length = length, .dm = dm,
    };
}

static uint32_t dm_key(Memory *m, uint32_t dm, uint64_t length)
{
    QrnicMkeyCtx ctx = dm_key_ctx(m, dm, length);
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    qrnic_mkey_ctx_pack(raw, &ctx);
    return command_ok(m->r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL,
                      0) << 8 | ctx.variant;
}

static void dm_key_fails(Memory *m, QrnicMkeyCtx ctx, unsigned status,
                         uint32_t syndrome)
{
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    qrnic_mkey_ctx_pack(raw, &ctx);
    command_fails(m->r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0,
                  status, syndrome);
}

static void bar_is(Memory *m, uint64_t offset, const void *bytes, size_t len)
{
    g_autofree uint8_t *got = g_malloc(len);

    qpci_memread(m->r.d->pci, m->bar, offset, got, len);
    g_assert_cmpmem(got, len, bytes, len);
}

static void test_commands(void)
{
    static const uint8_t zero[QRNIC_DM_PAGE_SIZE];
    Memory m;
    QrnicDeviceAttr attr;
    uint8_t raw[QRNIC_DEVICE_ATTR_BYTES];
    uint64_t offset, other;
    uint32_t dm, key;

    memory_start(&m, "device-memory-size=64K");
    command_ok(m.r.d, QRNIC_CMD_QUERY_DEVICE, 0, NULL, 0, raw, sizeof(raw));
    qrnic_device_attr_unpack(&attr, raw);
    g_assert_cmpuint(attr.max_dm_size, ==, 65536);
    g_assert_cmpuint(m.size, ==, 65536);
    g_assert_cmphex(attr.capabilities & QRNIC_CAP_DEVICE_MEMORY, !=, 0);

    dm_alloc_fails(&m, (QrnicDmCtx) { 0 }, QRNIC_ST_BAD_PARAM,
                   QRNIC_DM_CTX_LENGTH_OFFSET);
    dm_alloc_fails(&m, (QrnicDmCtx) { .length = 65537 }, QRNIC_ST_BAD_PARAM,
                   QRNIC_DM_CTX_LENGTH_OFFSET);
    dm_alloc_fails(&m, (QrnicDmCtx) { .length = UINT64_MAX },
                   QRNIC_ST_BAD_PARAM, QRNIC_DM_CTX_LENGTH_OFFSET);
    dm_alloc_fails(&m, (QrnicDmCtx) { .length = 1, .offset = 4096 },
                   QRNIC_ST_BAD_PARAM, QRNIC_DM_CTX_OFFSET_OFFSET);
    dm_alloc_fails(&m, (QrnicDmCtx) { .length = 1, .log_alignment = 64 },
                   QRNIC_ST_BAD_PARAM, QRNIC_DM_CTX_LOG_ALIGNMENT_OFFSET);
    command_fails(m.r.d, QRNIC_CMD_FREE_DM, 1, NULL, 0, NULL, 0,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);
    command_fails(m.r.d, QRNIC_CMD_QUERY_DM, 77777, NULL, 0, raw, 32,
                  QRNIC_ST_BAD_OBJECT, UINT32_MAX);

    dm = dm_alloc(&m, 60 * 1024, &offset);
    dm_alloc_fails(&m, (QrnicDmCtx) { .length = 4097 }, QRNIC_ST_NO_RESOURCE,
                   0);
    qpci_memwrite(m.r.d->pci, m.bar, offset + 60, "secret", 6);
    key = dm_key(&m, dm, 100);
    command_fails(m.r.d, QRNIC_CMD_FREE_DM, dm, NULL, 0, NULL, 0,
                  QRNIC_ST_BUSY, 0);
    command_ok(m.r.d, QRNIC_CMD_DESTROY_MKEY, key >> 8, NULL, 0, NULL, 0);
    command_ok(m.r.d, QRNIC_CMD_FREE_DM, dm, NULL, 0, NULL, 0);
    dm_alloc(&m, 65536, &other);
    g_assert_cmphex(other, ==, 0);
    bar_is(&m, offset, zero, sizeof(zero));
    rig_stop(&m.r);
}

static void test_keys(void)
{
    Memory m;
    QrnicMkeyCtx ctx;
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];
    uint64_t offset;
    uint32_t dm, key;

    memory_start(&m, "");
    dm = dm_alloc(&m, 5000, &offset);
    dm_key_fails(&m, dm_key_ctx(&m, dm + 1, 1), QRNIC_ST_BAD_OBJECT,
                 QRNIC_MKEY_CTX_DM_OFFSET);
    dm_key_fails(&m, dm_key_ctx(&m, dm, 5001), QRNIC_ST_BAD_PARAM,
                 QRNIC_MKEY_CTX_LENGTH_OFFSET);
    ctx = dm_key_ctx(&m, dm, 2);
    ctx.table.root = 4999;
    dm_key_fails(&m, ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    ctx.table.root = 5001;
    ctx.length = 0;
    dm_key_fails(&m, ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TABLE_OFFSET);
    ctx.table = (QrnicTranslation) { .levels = 1, .page_shift = 12 };
    dm_key_fails(&m, ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TABLE_OFFSET);
    ctx = dm_key_ctx(&m, dm, 2);
    ctx.start = UINT64_MAX;
    dm_key_fails(&m, ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    ctx = dm_key_ctx(&m, dm, 2);
    ctx.access = QRNIC_ACCESS_REMOTE_WRITE;
    dm_key_fails(&m, ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_ACCESS_OFFSET);
    /* Other types of keys reject the member. */
    ctx = dm_key_ctx(&m, dm, 0);
    ctx.type = QRNIC_MKEY_NULL_MR;
    ctx.access = 0;
    dm_key_fails(&m, ctx, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_DM_OFFSET);
    /*
     * A key of device memory can neither be modified nor replace another key,
     * because its memory has an owner.
     */
    key = dm_key(&m, dm, 5000);
    ctx = dm_key_ctx(&m, dm, 10);
    qrnic_mkey_ctx_pack(raw, &ctx);
    command_fails(m.r.d, QRNIC_CMD_MODIFY_MKEY, key >> 8, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_STATE, 0);
    command_fails(m.r.d, QRNIC_CMD_MODIFY_MKEY, m.r.mr.index, raw, sizeof(raw),
                  NULL, 0, QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TYPE_OFFSET);
    rig_stop(&m.r);
}

/*
 * Tests that the device sends data that the CPU wrote to device memory, and
 * that the CPU reads data of the peer. The device does no DMA for this data.
 */
static void test_data(void)
{
    static const uint8_t zero[4];
    Memory m;
    Wqe w = wqe_begin(QRNIC_WQE_SEND, QRNIC_WQEF_SIGNALED);
    PeerPacket p;
    QrnicCqe cqe;
    uint64_t offset, unused;
    uint32_t key;

    memory_start(&m, "");
    dm_alloc(&m, 1, &unused);
    key = dm_key(&m, dm_alloc(&m, 4096, &offset), 4096);
    g_assert_cmphex(offset, !=, 0);
    qpci_memwrite(m.r.d->pci, m.bar, offset + 5, "from here", 9);
    wqe_data(&w, 5, 9, key);
    sq_post(m.r.d, &m.r.qp, &w);
    p = peer_expect(m.r.d, RC_SEND_ONLY, SQ_PSN);
    g_assert_cmpmem(p.payload, p.length, "from here", 9);
    peer_ack(m.r.d, &m.r.qp, SQ_PSN, AETH_ACK | 31, 1);
    cq_wait(m.r.d, &m.r.send_cq, &cqe);
    g_assert_cmpuint(cqe.status, ==, QRNIC_WC_SUCCESS);
    g_assert_cmpuint(counter(m.r.d, QRNIC_COUNTER_DM_READS), ==, 1);

    p = peer_packet(&m.r.qp, RC_WRITE_ONLY, RQ_PSN);
    p.ack_request = true;
    p.va = 100;
    p.rkey = key;
    p.dma_length = p.length = 11;
    p.payload = (const uint8_t *)"from beyond";
    peer_send(m.r.d, &p);
    peer_expect(m.r.d, RC_ACK, RQ_PSN);
    bar_is(&m, offset + 100, "from beyond", 11);
    bar_is(&m, offset + 111, zero, 4);
    g_assert_cmpuint(counter(m.r.d, QRNIC_COUNTER_DM_WRITES), ==, 1);

    /* The write ends one byte behind the end of device memory. */
    p.psn = RQ_PSN + 1;
    p.va = 4096 - 10;
    peer_send(m.r.d, &p);
    p = peer_expect(m.r.d, RC_ACK, RQ_PSN + 1);
    g_assert_cmphex(p.syndrome, ==, AETH_NAK_REMOTE_ACCESS);
    rig_stop(&m.r);
}

static void test_atomic(void)
{
    Memory m;
    PeerPacket p;
    uint64_t offset;
    uint32_t key;

    memory_start(&m, "");
    key = dm_key(&m, dm_alloc(&m, 64, &offset), 64);
    qpci_io_writeq(m.r.d->pci, m.bar, offset + 8, 1000);
    p = peer_packet(&m.r.qp, RC_FETCH_ADD, RQ_PSN);
    p.va = 8;
    p.rkey = key;
    p.swap_add = 23;
    peer_send(m.r.d, &p);
    p = peer_expect(m.r.d, RC_ATOMIC_ACK, RQ_PSN);
    g_assert_cmpuint(p.original, ==, 1000);
    g_assert_cmpuint(qpci_io_readq(m.r.d->pci, m.bar, offset + 8), ==, 1023);
    rig_stop(&m.r);
}

/*
 * Tests accesses of the CPU to device memory by bytes, words and unaligned
 * addresses. A reset clears the memory.
 */
static void test_bar(void)
{
    static const uint8_t zero[16];
    Memory m;
    uint64_t offset;

    memory_start(&m, "");
    g_assert_cmpuint(m.size, ==, 1 << 20);
    dm_alloc(&m, 16, &offset);
    bar_is(&m, offset, zero, 16);
    qpci_io_writeb(m.r.d->pci, m.bar, offset + 1, 0x11);
    qpci_io_writew(m.r.d->pci, m.bar, offset + 3, 0x3322);
    qpci_io_writel(m.r.d->pci, m.bar, offset + 9, 0x77665544);
    bar_is(&m, offset, "\0\x11\0\x22\x33\0\0\0\0\x44\x55\x66\x77\0\0\0", 16);
    qpci_memwrite(m.r.d->pci, m.bar, (1 << 20) - 4, "last", 4);
    bar_is(&m, (1 << 20) - 4, "last", 4);
    reg_write(m.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    bar_is(&m, offset, zero, 16);
    bar_is(&m, (1 << 20) - 4, zero, 4);
    rig_stop(&m.r);
}

#define MARK 0x1122334455667788ull
#define STEP (1u << 20)

static void mark(Memory *m)
{
    for (uint64_t at = 0; at < m->size; at += STEP) {
        qpci_io_writeq(m->r.d->pci, m->bar, at, MARK);
    }
}

static void is_clear(Memory *m)
{
    for (uint64_t at = 0; at < m->size; at += STEP) {
        g_assert_cmphex(qpci_io_readq(m->r.d->pci, m->bar, at), ==, 0);
    }
}

/*
 * Tests that the device clears memory in many steps of the main loop. The
 * command completes after the last step. After a reset no read returns old
 * data, because the BAR is absent until the device is ready.
 */
static void test_pieces(void)
{
    uint64_t offset, seen;
    bool ready;
    Memory m;

    memory_start(&m, "device-memory-size=64M");
    mark(&m);
    command_ok(m.r.d, QRNIC_CMD_FREE_DM, dm_alloc(&m, 64, &offset), NULL, 0,
               NULL, 0);
    mark(&m);
    command_ok(m.r.d, QRNIC_CMD_FREE_DM, dm_alloc(&m, m.size, &offset), NULL,
               0, NULL, 0);
    is_clear(&m);
    dm_alloc(&m, m.size, &offset);
    mark(&m);
    reg_write(m.r.d, QRNIC_REG_CONTROL, QRNIC_REG_CONTROL_RESET_MASK);
    do {
        seen = qpci_io_readq(m.r.d->pci, m.bar, m.size - STEP);
        /*
         * A process is exempt, because a mapping of the VMM stays in place
         * during the reset. Only map-memory=on permits such a mapping, and
         * machine_start() does not set it.
         */
        g_assert_true(in_process() || seen != MARK);
        ready = reg_read(m.r.d, QRNIC_REG_STATUS) &
                QRNIC_REG_STATUS_READY_MASK;
    } while (!ready);
    is_clear(&m);
    rig_stop(&m.r);
}

static void test_off(const void *properties)
{
    Rig r;
    QrnicDmCtx ctx = { .length = 1 };
    QrnicMkeyCtx key = { .type = QRNIC_MKEY_DM };
    uint8_t raw[QRNIC_MKEY_CTX_BYTES];

    rig_start(&r, properties, NULL);
    g_assert_cmphex(qpci_config_readl(r.d->pci, 0x10 + 4 * QRNIC_BAR_MEMORY),
                    ==, 0);
    qpci_config_writel(r.d->pci, 0x10 + 4 * QRNIC_BAR_MEMORY, 0xffffffff);
    g_assert_cmphex(qpci_config_readl(r.d->pci, 0x10 + 4 * QRNIC_BAR_MEMORY),
                    ==, 0);
    qrnic_dm_ctx_pack(raw, &ctx);
    command_fails(r.d, QRNIC_CMD_ALLOC_DM, 0, raw, QRNIC_DM_CTX_BYTES, NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, 0);
    key.pd = r.pd;
    qrnic_mkey_ctx_pack(raw, &key);
    command_fails(r.d, QRNIC_CMD_CREATE_MKEY, 0, raw, sizeof(raw), NULL, 0,
                  QRNIC_ST_NOT_SUPPORTED, QRNIC_MKEY_CTX_TYPE_OFFSET);
    rig_stop(&r);
}

void add_device_memory_tests(void)
{
    qtest_add_func("qrnic/device-memory/commands", test_commands);
    qtest_add_func("qrnic/device-memory/keys", test_keys);
    qtest_add_func("qrnic/device-memory/data", test_data);
    qtest_add_func("qrnic/device-memory/atomic", test_atomic);
    qtest_add_func("qrnic/device-memory/bar", test_bar);
    qtest_add_func("qrnic/device-memory/pieces", test_pieces);
    qtest_add_data_func("qrnic/device-memory/off", "cap-dm=off", test_off);
    qtest_add_data_func("qrnic/device-memory/none", "device-memory-size=0",
                        test_off);
}
