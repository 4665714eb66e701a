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

bool qrnic_memory_read(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                       void *buf, size_t len)
{
    k = region_of(e, k, &addr);
    if (k->ctx.type == QRNIC_MKEY_NULL_MR) {
        memset(buf, 0, len);
        return true;
    }
    if (k->ctx.type == QRNIC_MKEY_DMA) {
        return qrnic_dma_read(e, addr, buf, len);
    }
    if (k->ctx.type == QRNIC_MKEY_DM) {
        qrnic_dm_read(e, k, addr, buf, len);
        return true;
    }
    return qrnic_pages_read(e, &k->pages, addr - k->ctx.start, buf, len);
}

bool qrnic_memory_write(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                        const void *buf, size_t len)
{
    k = region_of(e, k, &addr);
    if (k->ctx.type == QRNIC_MKEY_NULL_MR) {
        return true;
    }
    if (k->ctx.type == QRNIC_MKEY_DMA) {
        return qrnic_dma_write(e, addr, buf, len);
    }
    if (k->ctx.type == QRNIC_MKEY_DM) {
        qrnic_dm_write(e, k, addr, buf, len);
        return true;
    }
    return qrnic_pages_write(e, &k->pages, addr - k->ctx.start, buf, len);
}

/* True if the host did it as one access. */
static bool atomic_at_once(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                           QrnicAtomic *op)
{
    uint64_t contiguous;

    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC_GLOB)) {
        return false;
    }
    k = region_of(e, k, &addr);
    switch (k->ctx.type) {
    case QRNIC_MKEY_NULL_MR:
        return false;
    case QRNIC_MKEY_DM:
        return qrnic_dm_atomic(e, k, addr, op);
    case QRNIC_MKEY_DMA:
        break;
    default:
        if (!qrnic_pages_translate(e, &k->pages, addr - k->ctx.start, &addr,
                                   &contiguous)) {
            return false;
        }
    }
    /* The address is a multiple of 8, so the 8 bytes lie in one page. */
    if (addr % 8 || !e->env.dma_atomic(e->env.opaque, addr, op)) {
        return false;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_READS, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_READ_BYTES, 8);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITES, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITE_BYTES, 8);
    trace_qrnic_dma_atomic(e->config.name, addr, op->compare_swap,
                           op->original);
    return true;
}

/*
 * With two accesses a CPU may store between them. So a compare and swap that
 * fails writes nothing: it must not undo the store of the CPU.
 */
bool qrnic_memory_atomic(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                         QrnicAtomic *op)
{
    uint8_t bytes[8];
    uint64_t result;

    if (atomic_at_once(e, k, addr, op)) {
        return true;
    }
    if (!qrnic_memory_read(e, k, addr, bytes, sizeof(bytes))) {
        return false;
    }
    op->original = qrnic_ld_le64(bytes);
    if (op->compare_swap) {
        result = op->original == op->compare ? op->swap_add : op->original;
    } else {
        result = op->original + op->swap_add;
    }
    if (result == op->original) {
        return true;
    }
    qrnic_st_le64(bytes, result);
    return qrnic_memory_write(e, k, addr, bytes, sizeof(bytes));
}
