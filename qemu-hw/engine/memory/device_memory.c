/*
 * qrnic engine: device memory: its allocation, and accesses by key
 *
 * Commands allocate ranges (ALLOC_DM) and create keys for them. access.c calls
 * qrnic_dm_read(), write() and atomic() for keys of type DM. A range is cleared
 * when it is allocated and when it is freed, so that no process reads data of
 * another process. A reset clears all pages. Many pages are cleared in several
 * runs (dm_clear to dm_clear_end). No command is executed during that time.
 * Manual, chapter "Device memory".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bitmap.h"
#include "qemu/cutils.h"
#include "trace.h"
#include "engine/memory/memory.h"

/* Pages cleared within the command itself, and in each round of the run loop */
#define CLEAR_AT_ONCE 256
#define CLEAR_BUDGET 64

static uint64_t page_count(const QrnicEngine *e)
{
    return e->config.capabilities & QRNIC_CAP_DEVICE_MEMORY ?
           e->config.device_memory / QRNIC_DM_PAGE_SIZE : 0;
}

/*
 * Clears pages. A page that is already zero is not written, so that pages that
 * the host never allocated stay unallocated.
 */
static void pages_clear(QrnicEngine *e, uint64_t first, uint64_t count)
{
    static const uint8_t zero[QRNIC_DM_PAGE_SIZE];
    uint8_t page[QRNIC_DM_PAGE_SIZE];

    for (uint64_t i = first; i < first + count; i++) {
        uint64_t offset = i * QRNIC_DM_PAGE_SIZE;

        e->env.dm_read(e->env.opaque, offset, page, sizeof(page));
        if (!buffer_is_zero(page, sizeof(page))) {
            e->env.dm_write(e->env.opaque, offset, zero, sizeof(zero));
        }
    }
}

static void clear_some(QrnicEngine *e, uint64_t budget)
{
    QrnicMemory *m = e->memory;
    uint64_t count = MIN(m->dm_clear_end - m->dm_clear, budget);

    pages_clear(e, m->dm_clear, count);
    m->dm_clear += count;
    if (m->dm_clear == m->dm_clear_end) {
        m->dm_dirty = false;
    } else {
        trace_qrnic_dm_clear(e->config.name, m->dm_clear, m->dm_clear_end);
        qrnic_wake(e);
    }
}

static void clear_begin(QrnicEngine *e, uint64_t first, uint64_t count)
{
    e->memory->dm_clear = first;
    e->memory->dm_clear_end = first + count;
    clear_some(e, CLEAR_AT_ONCE);
}

void qrnic_dm_process(QrnicEngine *e)
{
    clear_some(e, CLEAR_BUDGET);
}

bool qrnic_dm_clearing(const QrnicEngine *e)
{
    return e->memory->dm_clear != e->memory->dm_clear_end;
}

bool qrnic_engine_ready(const QrnicEngine *e)
{
    return !e->memory->dm_dirty;
}

void qrnic_dm_init(QrnicEngine *e)
{
    /* Each range has at least one page. */
    qrnic_table_init(&e->memory->dms, 1, page_count(e) + 1);
    e->memory->dm_pages = bitmap_new(page_count(e));
}

void qrnic_dm_cleanup(QrnicEngine *e)
{
    for (uint32_t n = 0; n < e->memory->dms.limit; n++) {
        g_free(e->memory->dms.slot[n]);
    }
    qrnic_table_cleanup(&e->memory->dms);
    g_free(e->memory->dm_pages);
    e->memory->dm_pages = NULL;
}

void qrnic_dm_reset(QrnicEngine *e)
{
    e->memory->dm_dirty = true;
    clear_begin(e, 0, page_count(e));
}

QrnicResult qrnic_dm_alloc(QrnicEngine *e, const QrnicDmCtx *in)
{
    uint64_t pages = page_count(e), wanted, first, align = 0;
    QrnicDm *dm;

    if (!pages) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!in->length || in->length > pages * QRNIC_DM_PAGE_SIZE) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_DM_CTX_LENGTH_OFFSET);
    }
    if (in->offset) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_DM_CTX_OFFSET_OFFSET);
    }
    if (in->log_alignment > 63) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_DM_CTX_LOG_ALIGNMENT_OFFSET);
    }
    if (1ull << in->log_alignment > QRNIC_DM_PAGE_SIZE) {
        /*
         * The alignment in pages; only offset 0 is a multiple of a power of two
         * that exceeds the device memory.
         */
        align = MIN((1ull << in->log_alignment) / QRNIC_DM_PAGE_SIZE,
                    pow2ceil(pages)) - 1;
    }
    wanted = DIV_ROUND_UP(in->length, QRNIC_DM_PAGE_SIZE);
    first = bitmap_find_next_zero_area(e->memory->dm_pages, pages, 0, wanted,
                                       align);
    if (first >= pages) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    dm = g_new0(QrnicDm, 1);
    dm->ctx = *in;
    dm->ctx.offset = first * QRNIC_DM_PAGE_SIZE;
    if (!qrnic_table_insert(&e->memory->dms, dm, &dm->number)) {
        g_free(dm);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    bitmap_set(e->memory->dm_pages, first, wanted);
    clear_begin(e, first, wanted);
    trace_qrnic_dm_alloc(e->config.name, dm->number, dm->ctx.offset,
                         in->length);
    return qrnic_ok(dm->number);
}

QrnicResult qrnic_dm_free(QrnicEngine *e, uint32_t number)
{
    QrnicDm *dm = qrnic_dm_get(e, number);
    uint64_t first, count;

    if (!dm) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (dm->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_dm_free(e->config.name, number);
    first = dm->ctx.offset / QRNIC_DM_PAGE_SIZE;
    count = DIV_ROUND_UP(dm->ctx.length, QRNIC_DM_PAGE_SIZE);
    clear_begin(e, first, count);
    bitmap_clear(e->memory->dm_pages, first, count);
    g_free(qrnic_table_remove(&e->memory->dms, number));
    return qrnic_ok(0);
}

QrnicResult qrnic_dm_query(QrnicEngine *e, uint32_t number, QrnicDmCtx *out)
{
    QrnicDm *dm = qrnic_dm_get(e, number);

    if (!dm) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    *out = dm->ctx;
    return qrnic_ok(0);
}

QrnicResult qrnic_dm_key_check(QrnicEngine *e, const QrnicMkeyCtx *in,
                               QrnicDm **dm)
{
    const QrnicTranslation *t = &in->table;
    QrnicDm *found;

    if (!page_count(e)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_MKEY_CTX_TYPE_OFFSET);
    }
    found = qrnic_dm_get(e, in->dm);
    if (!found) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_MKEY_CTX_DM_OFFSET);
    }
    if (t->levels || t->page_shift || t->offset ||
        t->root > found->ctx.length) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TABLE_OFFSET);
    }
    if (in->length > found->ctx.length - t->root ||
        (in->length && in->start + (in->length - 1) < in->start)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    }
    *dm = found;
    return qrnic_ok(0);
}

/*
 * Returns the offset in device memory. The access has been checked with the
 * key, so it lies inside the range. The range exists as long as the key.
 */
static uint64_t key_offset(const QrnicMkey *k, uint64_t addr)
{
    return k->dm->ctx.offset + k->ctx.table.root + (addr - k->ctx.start);
}

void qrnic_dm_read(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                   void *buf, size_t len)
{
    uint64_t offset = key_offset(k, addr);

    qrnic_add(e, QRNIC_COUNTER_DM_READS, 1);
    trace_qrnic_dm_read(e->config.name, k->dm->number, offset, len);
    e->env.dm_read(e->env.opaque, offset, buf, len);
}

void qrnic_dm_write(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                    const void *buf, size_t len)
{
    uint64_t offset = key_offset(k, addr);

    qrnic_add(e, QRNIC_COUNTER_DM_WRITES, 1);
    trace_qrnic_dm_write(e->config.name, k->dm->number, offset, len);
    e->env.dm_write(e->env.opaque, offset, buf, len);
}

bool qrnic_dm_atomic(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                     QrnicAtomic *op)
{
    uint64_t offset = key_offset(k, addr);

    if (offset % 8 || !e->env.dm_atomic(e->env.opaque, offset, op)) {
        return false;
    }
    qrnic_add(e, QRNIC_COUNTER_DM_READS, 1);
    qrnic_add(e, QRNIC_COUNTER_DM_WRITES, 1);
    trace_qrnic_dm_atomic(e->config.name, k->dm->number, offset,
                          op->compare_swap, op->original);
    return true;
}
