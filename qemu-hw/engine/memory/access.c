/*
 * qrnic engine: accesses by key
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/memory.h"

static bool is_window(const QrnicMkey *k)
{
    return k->ctx.type == QRNIC_MKEY_MW_1 || k->ctx.type == QRNIC_MKEY_MW_2;
}

static enum qrnic_syndrome key_check(const QrnicMkey *k, uint32_t key,
                                     uint32_t pd, uint32_t qpn, uint64_t addr,
                                     uint64_t len, uint8_t access)
{
    const QrnicMkeyCtx *ctx = &k->ctx;

    if (!k->valid || ctx->variant != (key & 0xff)) {
        return QRNIC_SYN_KEY_INVALID;
    }
    if (ctx->pd != pd) {
        return QRNIC_SYN_KEY_PD;
    }
    /*
     * A window is no local key, and a window of type 2 has one user (IB
     * 10.6.7.2).
     */
    if (is_window(k) && !(access & QRNIC_REMOTE_RIGHTS)) {
        return QRNIC_SYN_KEY_TYPE;
    }
    if (ctx->type == QRNIC_MKEY_MW_2 &&
        (!k->user || k->user->number != qpn)) {
        return QRNIC_SYN_KEY_QP;
    }
    if (ctx->type != QRNIC_MKEY_NULL_MR &&
        (addr < ctx->start || addr - ctx->start > ctx->length ||
         len > ctx->length - (addr - ctx->start))) {
        return QRNIC_SYN_KEY_RANGE;
    }
    return access & ~ctx->access ? QRNIC_SYN_KEY_ACCESS : QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_memory_check_qp(QrnicEngine *e, uint32_t key,
                                          uint32_t pd, uint32_t qpn,
                                          uint64_t addr, uint64_t len,
                                          uint8_t access, QrnicMkey **mkey)
{
    QrnicMkey *k = qrnic_mkey_get(e, key >> 8);
    enum qrnic_syndrome result = QRNIC_SYN_KEY_INVALID;

    if (k) {
        result = key_check(k, key, pd, qpn, addr, len, access);
    }
    *mkey = result == QRNIC_SYN_NONE ? k : NULL;
    trace_qrnic_memory_check(e->config.name, key, pd, addr, len, access,
                             qrnic_syndrome_name(result));
    return result;
}

/* From a window to its region, which lives as long as the window is bound */
static QrnicMkey *region_of(QrnicEngine *e, QrnicMkey *k, uint64_t *addr)
{
    if (is_window(k)) {
        *addr = *addr - k->ctx.start + k->region_addr;
        k = qrnic_mkey_get(e, k->region);
    }
    return k;
}

/* Of an absent page: keeps what who brings pages needs to know. */
static enum qrnic_syndrome note_fault(QrnicEngine *e, const QrnicMkey *k,
                                      uint64_t addr, size_t len, bool write,
                                      enum qrnic_syndrome result)
{
    if (result == QRNIC_SYN_PAGE_FAULT) {
        e->memory->fault = (QrnicPageFault) {
            .key = k->index,
            .flags = write ? QRNIC_PAGE_FAULT_WRITE : 0,
            .address = addr,
            .length = len,
        };
    }
    return result;
}

static enum qrnic_syndrome dma_result(bool ok)
{
    return ok ? QRNIC_SYN_NONE : QRNIC_SYN_DMA;
}

enum qrnic_syndrome qrnic_memory_read(QrnicEngine *e, QrnicMkey *k,
                                      uint64_t addr, void *buf, size_t len)
{
    k = region_of(e, k, &addr);
    if (k->ctx.type == QRNIC_MKEY_NULL_MR) {
        memset(buf, 0, len);
        return QRNIC_SYN_NONE;
    }
    if (k->ctx.type == QRNIC_MKEY_DMA) {
        return dma_result(qrnic_dma_read(e, addr, buf, len));
    }
    if (k->ctx.type == QRNIC_MKEY_DM) {
        qrnic_dm_read(e, k, addr, buf, len);
        return QRNIC_SYN_NONE;
    }
    return note_fault(e, k, addr, len, false,
                      qrnic_pages_read(e, &k->pages, addr - k->ctx.start, buf,
                                       len));
}

enum qrnic_syndrome qrnic_memory_write(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, const void *buf,
                                       size_t len)
{
    k = region_of(e, k, &addr);
    if (k->ctx.type == QRNIC_MKEY_NULL_MR) {
        return QRNIC_SYN_NONE;
    }
    if (k->ctx.type == QRNIC_MKEY_DMA) {
        return dma_result(qrnic_dma_write(e, addr, buf, len));
    }
    if (k->ctx.type == QRNIC_MKEY_DM) {
        qrnic_dm_write(e, k, addr, buf, len);
        return QRNIC_SYN_NONE;
    }
    return note_fault(e, k, addr, len, true,
                      qrnic_pages_write(e, &k->pages, addr - k->ctx.start, buf,
                                        len));
}

enum qrnic_syndrome qrnic_memory_probe(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, size_t len, bool write)
{
    enum qrnic_syndrome result = QRNIC_SYN_NONE;
    uint64_t found, contiguous = 0;

    k = region_of(e, k, &addr);
    if (!k->pages.on_demand) {
        return QRNIC_SYN_NONE;
    }
    for (uint64_t done = 0; !result && done < len; done += contiguous) {
        result = qrnic_pages_translate(e, &k->pages,
                                       addr - k->ctx.start + done, write,
                                       &found, &contiguous);
    }
    return note_fault(e, k, addr, len, write, result);
}

/*
 * *done: the host did it as one access. Else it cannot, or the page is absent.
 */
static enum qrnic_syndrome atomic_at_once(QrnicEngine *e, QrnicMkey *k,
                                          uint64_t addr, QrnicAtomic *op,
                                          bool *done)
{
    uint64_t at = addr, contiguous;
    enum qrnic_syndrome why;

    *done = false;
    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC_GLOB)) {
        return QRNIC_SYN_NONE;
    }
    k = region_of(e, k, &at);
    switch (k->ctx.type) {
    case QRNIC_MKEY_NULL_MR:
        return QRNIC_SYN_NONE;
    case QRNIC_MKEY_DM:
        *done = qrnic_dm_atomic(e, k, at, op);
        return QRNIC_SYN_NONE;
    case QRNIC_MKEY_DMA:
        break;
    default:
        why = qrnic_pages_translate(e, &k->pages, at - k->ctx.start, true,
                                    &addr, &contiguous);
        if (why) {
            return note_fault(e, k, at, 8, true, why);
        }
        at = addr;
    }
    /* The address is a multiple of 8, so the 8 bytes lie in one page. */
    if (at % 8 || !e->env.dma_atomic(e->env.opaque, at, op)) {
        return QRNIC_SYN_NONE;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_READS, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_READ_BYTES, 8);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITES, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITE_BYTES, 8);
    trace_qrnic_dma_atomic(e->config.name, at, op->compare_swap,
                           op->original);
    *done = true;
    return QRNIC_SYN_NONE;
}

/*
 * With two accesses a CPU may store between them. So a compare and swap that
 * fails writes nothing: it must not undo the store of the CPU.
 */
enum qrnic_syndrome qrnic_memory_atomic(QrnicEngine *e, QrnicMkey *k,
                                        uint64_t addr, QrnicAtomic *op)
{
    enum qrnic_syndrome why;
    uint8_t bytes[8];
    uint64_t result;
    bool done;

    why = atomic_at_once(e, k, addr, op, &done);
    if (done || why) {
        return why;
    }
    why = qrnic_memory_read(e, k, addr, bytes, sizeof(bytes));
    if (why) {
        return why;
    }
    op->original = qrnic_ld_le64(bytes);
    if (op->compare_swap) {
        result = op->original == op->compare ? op->swap_add : op->original;
    } else {
        result = op->original + op->swap_add;
    }
    if (result == op->original) {
        return QRNIC_SYN_NONE;
    }
    qrnic_st_le64(bytes, result);
    return qrnic_memory_write(e, k, addr, bytes, sizeof(bytes));
}
