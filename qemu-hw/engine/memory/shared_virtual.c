/*
 * qrnic engine: accesses to the virtual addresses of a process
 *
 * access.c calls these functions for keys with MKEYF_PASID. Each page of an
 * access is translated and accessed before the next page, so that an
 * invalidation between two pages is obeyed. A page that the IOMMU reports as
 * absent is a page fault, as in paging on demand. Manual, chapter "Shared
 * virtual addressing".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/shared_virtual.h"

/*
 * Requests for one translation. An invalidation during a request makes its
 * result outdated. After so many requests the page counts as absent, because
 * the engine must not repeat requests without limit.
 */
#define REQUESTS_MAX 8

bool qrnic_process_range_check(QrnicEngine *e, const QrnicTranslation *range,
                               uint64_t length, uint32_t *bad_offset)
{
    QrnicPages pages;

    if (range->levels) {
        *bad_offset = QRNIC_TRANSLATION_SHAPE_OFFSET;
        return false;
    }
    /* The range of virtual addresses has the rules of a contiguous region. */
    return qrnic_pages_init(e, &pages, range, length, false, bad_offset);
}

QrnicResult qrnic_process_check(QrnicEngine *e, const QrnicMkeyCtx *in)
{
    uint32_t bad_offset;

    if (!in->pasid || in->pasid > QRNIC_MAX_PASID) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_PASID_OFFSET);
    }
    if (!qrnic_process_range_check(e, &in->table, in->length, &bad_offset)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_MKEY_CTX_TABLE_OFFSET + bad_offset);
    }
    return qrnic_ok(0);
}

void qrnic_process_leave(QrnicMkey *k)
{
    if (k->process) {
        k->process->keys--;
        k->process = NULL;
        k->ctx.pasid = 0;
    }
}

/* Requests a translation, and stores it in the cache. */
static QrnicTranslate request(QrnicEngine *e, uint32_t pasid, uint64_t addr,
                              bool write, QrnicTranslated *t)
{
    for (unsigned i = 0; i < REQUESTS_MAX; i++) {
        uint64_t before = qrnic_atc_invalidations(e);
        QrnicTranslate result;

        *t = (QrnicTranslated) { 0 };
        qrnic_budget_charge(e, 1);
        qrnic_add(e, QRNIC_COUNTER_ATC_MISSES, 1);
        result = e->env.translate(e->env.opaque, pasid, addr, write, t);
        trace_qrnic_translation_request(e->config.name, pasid, addr, write,
                                        result, t->address, t->page_shift,
                                        t->writable);
        if (result != QRNIC_TRANSLATE_OK) {
            return result;
        }
        /* The cache has entries for these page sizes only. */
        if (t->page_shift < 12 || t->page_shift > 63) {
            return QRNIC_TRANSLATE_FAILED;
        }
        if (before == qrnic_atc_invalidations(e)) {
            qrnic_atc_insert(e, pasid, addr, t);
            return result;
        }
    }
    return QRNIC_TRANSLATE_ABSENT;
}

enum qrnic_syndrome qrnic_process_translate(QrnicEngine *e, const QrnicMkey *k,
                                            uint64_t addr, bool write,
                                            uint64_t *to, uint64_t *contiguous)
{
    uint64_t at = qrnic_process_address(k, addr), offset;
    uint32_t pasid = k->ctx.pasid;
    QrnicTranslate result;
    QrnicTranslated t;

    if (!qrnic_atc_find(e, pasid, at, write, &t)) {
        result = request(e, pasid, at, write, &t);
        if (result == QRNIC_TRANSLATE_FAILED) {
            qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "key", k->index,
                              "the translation of 0x%" PRIx64 " for PASID %"
                              PRIu32 " failed", at, pasid);
            return QRNIC_SYN_DMA;
        }
        if (result == QRNIC_TRANSLATE_ABSENT || (write && !t.writable)) {
            return QRNIC_SYN_PAGE_FAULT;
        }
    }
    offset = at & ((1ull << t.page_shift) - 1);
    *to = t.address + offset;
    *contiguous = (1ull << t.page_shift) - offset;
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_process_read(QrnicEngine *e, const QrnicMkey *k,
                                       uint64_t addr, void *buf, size_t len,
                                       uint64_t *absent)
{
    for (size_t done = 0; done < len; ) {
        uint64_t from, n;
        enum qrnic_syndrome why = qrnic_process_translate(e, k, addr + done,
                                                          false, &from, &n);

        if (why) {
            *absent = done;
            return why;
        }
        n = MIN(n, len - done);
        if (!qrnic_translated_read(e, from, (uint8_t *)buf + done, n)) {
            return QRNIC_SYN_DMA;
        }
        done += n;
    }
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_process_write(QrnicEngine *e, const QrnicMkey *k,
                                        uint64_t addr, const void *buf,
                                        size_t len, uint64_t *absent)
{
    for (size_t done = 0; done < len; ) {
        uint64_t to, n;
        enum qrnic_syndrome why = qrnic_process_translate(e, k, addr + done,
                                                          true, &to, &n);

        if (why) {
            *absent = done;
            return why;
        }
        n = MIN(n, len - done);
        if (!qrnic_translated_write(e, to, (const uint8_t *)buf + done, n)) {
            return QRNIC_SYN_DMA;
        }
        done += n;
    }
    return QRNIC_SYN_NONE;
}
