/*
 * qrnic engine: accesses by key
 *
 * Queue pairs call qrnic_memory_check_qp() first, and then read, write, probe
 * or execute an atomic with the key that it returned. An access is split into
 * places. Each place lies in one key that is neither a window nor indirect. A
 * window leads to its region. An indirect key leads to the keys of its pieces,
 * which may be indirect themselves, up to MAX_KEY_DEPTH keys. Nothing is kept
 * between calls. InfiniBand specification, 10.6.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/shared_virtual.h"

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
     * Only remote accesses may use a window. A window of type 2 may be used
     * through one queue pair only (IB 10.6.7.2).
     */
    if (qrnic_mkey_is_window(k) && !(access & QRNIC_REMOTE_RIGHTS)) {
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

/*
 * Returns the region of a window, and converts the address. The region exists
 * because a region with bound windows cannot be destroyed.
 */
static QrnicMkey *region_of(QrnicEngine *e, QrnicMkey *k, uint64_t *addr)
{
    if (qrnic_mkey_is_window(k)) {
        *addr = *addr - k->ctx.start + k->region_addr;
        k = qrnic_mkey_get(e, k->region);
    }
    return k;
}

/* Place of the first part of an access */
typedef struct Place {
    QrnicMkey *k;               /* neither a window nor indirect */
    uint64_t addr;              /* address that this key translates */
    uint64_t length;
    uint64_t room;              /* bytes from addr to the end of the piece */
} Place;

/*
 * Returns the syndrome of an access whose piece has an invalid key. Pieces have
 * syndromes of their own, so that a program can distinguish its key from the
 * key of a piece.
 */
static enum qrnic_syndrome piece_syndrome(enum qrnic_syndrome of_key)
{
    switch (of_key) {
    case QRNIC_SYN_NONE:
        return QRNIC_SYN_NONE;
    case QRNIC_SYN_KEY_PD:
        return QRNIC_SYN_CHILD_PD;
    case QRNIC_SYN_KEY_TYPE:
        return QRNIC_SYN_CHILD_TYPE;
    case QRNIC_SYN_KEY_RANGE:
        return QRNIC_SYN_CHILD_RANGE;
    case QRNIC_SYN_KEY_ACCESS:
        return QRNIC_SYN_CHILD_ACCESS;
    default:
        return QRNIC_SYN_CHILD_INVALID;
    }
}

/* Indirect keys from the key that the user named down to the present one */
typedef struct Path {
    const QrnicMkey *k[QRNIC_MAX_KEY_DEPTH];
    unsigned depth;
} Path;

static enum qrnic_syndrome path_add(Path *path, const QrnicMkey *k)
{
    for (unsigned i = 0; i < path->depth; i++) {
        if (path->k[i] == k) {
            return QRNIC_SYN_KEY_CYCLE;
        }
    }
    if (path->depth == QRNIC_MAX_KEY_DEPTH) {
        return QRNIC_SYN_KEY_DEPTH;
    }
    path->k[path->depth++] = k;
    return QRNIC_SYN_NONE;
}

/*
 * Enters the piece that contains the place. The key that the user named is
 * "top".
 */
static enum qrnic_syndrome enter_piece(QrnicEngine *e, Place *at, Path *path,
                                       const QrnicMkey *top, bool write)
{
    uint64_t left;
    uint32_t key = qrnic_piece_find(at->k, &at->addr, &left);
    QrnicMkey *k = qrnic_mkey_get(e, key >> 8);
    enum qrnic_syndrome why = QRNIC_SYN_CHILD_INVALID;

    at->room = MIN(at->room, left);
    at->length = MIN(at->length, left);
    if (k && k->valid && k->ctx.variant == (key & 0xff)) {
        /*
         * The PD is compared first, because a syndrome must not reveal the type
         * of a key in another PD.
         */
        why = k->ctx.pd != top->ctx.pd ? QRNIC_SYN_CHILD_PD :
              k->ctx.type == QRNIC_MKEY_INDIRECT ? path_add(path, k) :
                                                   QRNIC_SYN_NONE;
        if (!why) {
            why = piece_syndrome(key_check(k, key, top->ctx.pd, 0, at->addr,
                                           at->length,
                                           write ? QRNIC_ACCESS_LOCAL_WRITE :
                                                   0));
        }
    }
    trace_qrnic_memory_piece(e->config.name, at->k->index, path->depth, key,
                             at->addr, at->length, qrnic_syndrome_name(why));
    if (why) {
        qrnic_guest_error(e, QRNIC_GE_PIECE_REFUSED, "key", at->k->index,
                          "key 0x%" PRIx32 " for %" PRIu64 " bytes at 0x%"
                          PRIx64 " of a piece: %s", key, at->length, at->addr,
                          qrnic_syndrome_name(why));
    }
    at->k = k;
    return why;
}

/* Enters pieces until the key is not indirect. */
static enum qrnic_syndrome enter_pieces(QrnicEngine *e, Place *at, bool write)
{
    const QrnicMkey *top = at->k;
    Path path = { { top }, 1 };
    enum qrnic_syndrome why;

    qrnic_add(e, QRNIC_COUNTER_PIECES, 1);
    do {
        qrnic_budget_charge(e, 1);
        why = enter_piece(e, at, &path, top, write);
    } while (!why && at->k->ctx.type == QRNIC_MKEY_INDIRECT);
    return why;
}

/* Finds the place of the first bytes of an access. */
static enum qrnic_syndrome place_of(QrnicEngine *e, QrnicMkey *k, uint64_t addr,
                                    uint64_t len, bool write, Place *at)
{
    *at = (Place) { .addr = addr, .length = len, .room = UINT64_MAX };
    at->k = region_of(e, k, &at->addr);
    return at->k->ctx.type == QRNIC_MKEY_INDIRECT ?
           enter_pieces(e, at, write) : QRNIC_SYN_NONE;
}

/*
 * Sets *fault to the data for the pager if a page of the place is absent. The
 * page of a process contains the byte at the offset absent.
 */
static enum qrnic_syndrome note_fault(const Place *at, bool write,
                                      uint64_t absent,
                                      enum qrnic_syndrome result,
                                      QrnicFault *fault)
{
    if (result == QRNIC_SYN_PAGE_FAULT && fault) {
        *fault = (QrnicFault) {
            .at = {
                .key = at->k->index,
                .flags = write ? QRNIC_PAGE_FAULT_WRITE : 0,
                .address = at->addr,
                .length = at->length,
            },
            .room = at->room,
            .absent = absent,
        };
        /*
         * A pager of processes needs no key, because a process may create the
         * key without the pager.
         */
        if (at->k->backing == QRNIC_BACKING_PROCESS) {
            fault->at.flags |= QRNIC_PAGE_FAULT_PASID;
            fault->at.pasid = at->k->ctx.pasid;
            fault->at.address = qrnic_process_address(at->k, at->addr);
        }
    }
    return result;
}

static enum qrnic_syndrome dma_result(bool ok)
{
    return ok ? QRNIC_SYN_NONE : QRNIC_SYN_DMA;
}

static enum qrnic_syndrome place_read(QrnicEngine *e, const Place *at,
                                      void *buf, QrnicFault *fault)
{
    QrnicMkey *k = at->k;
    enum qrnic_syndrome why;
    uint64_t absent = 0;

    switch (k->backing) {
    case QRNIC_BACKING_NULL:
        memset(buf, 0, at->length);
        return QRNIC_SYN_NONE;
    case QRNIC_BACKING_BUS:
        return dma_result(qrnic_dma_read(e, at->addr, buf, at->length));
    case QRNIC_BACKING_DM:
        qrnic_dm_read(e, k, at->addr, buf, at->length);
        return QRNIC_SYN_NONE;
    case QRNIC_BACKING_PROCESS:
        why = qrnic_process_read(e, k, at->addr, buf, at->length, &absent);
        return note_fault(at, false, absent, why, fault);
    default:
        return note_fault(at, false, 0,
                          qrnic_pages_read(e, &k->pages,
                                           at->addr - k->ctx.start, buf,
                                           at->length), fault);
    }
}

static enum qrnic_syndrome place_write(QrnicEngine *e, const Place *at,
                                       const void *buf, QrnicFault *fault)
{
    QrnicMkey *k = at->k;
    enum qrnic_syndrome why;
    uint64_t absent = 0;

    switch (k->backing) {
    case QRNIC_BACKING_NULL:
        return QRNIC_SYN_NONE;
    case QRNIC_BACKING_BUS:
        return dma_result(qrnic_dma_write(e, at->addr, buf, at->length));
    case QRNIC_BACKING_DM:
        qrnic_dm_write(e, k, at->addr, buf, at->length);
        return QRNIC_SYN_NONE;
    case QRNIC_BACKING_PROCESS:
        why = qrnic_process_write(e, k, at->addr, buf, at->length, &absent);
        return note_fault(at, true, absent, why, fault);
    default:
        return note_fault(at, true, 0,
                          qrnic_pages_write(e, &k->pages,
                                            at->addr - k->ctx.start, buf,
                                            at->length), fault);
    }
}

enum qrnic_syndrome qrnic_memory_read(QrnicEngine *e, QrnicMkey *k,
                                      uint64_t addr, void *buf, size_t len,
                                      QrnicFault *fault)
{
    enum qrnic_syndrome why = QRNIC_SYN_NONE;
    Place at;

    for (size_t done = 0; !why && done < len; done += at.length) {
        why = place_of(e, k, addr + done, len - done, false, &at);
        if (!why) {
            why = place_read(e, &at, (uint8_t *)buf + done, fault);
        }
    }
    return why;
}

enum qrnic_syndrome qrnic_memory_write(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, const void *buf,
                                       size_t len, QrnicFault *fault)
{
    enum qrnic_syndrome why = QRNIC_SYN_NONE;
    Place at;

    for (size_t done = 0; !why && done < len; done += at.length) {
        why = place_of(e, k, addr + done, len - done, true, &at);
        if (!why) {
            why = place_write(e, &at, (const uint8_t *)buf + done, fault);
        }
    }
    return why;
}

/* Checks the pages of a place in the memory of a process. */
static enum qrnic_syndrome process_probe(QrnicEngine *e, const Place *at,
                                         bool write, uint64_t *absent)
{
    enum qrnic_syndrome why = QRNIC_SYN_NONE;
    uint64_t found, contiguous = 0;

    for (uint64_t done = 0; !why && done < at->length; done += contiguous) {
        *absent = done;
        why = qrnic_process_translate(e, at->k, at->addr + done, write, &found,
                                      &contiguous);
    }
    return why;
}

/*
 * Checks that all pages of the place are present. Only keys with paging on
 * demand, or of a process, can have absent pages.
 */
static enum qrnic_syndrome place_probe(QrnicEngine *e, const Place *at,
                                       bool write, QrnicFault *fault)
{
    QrnicPages *pages = &at->k->pages;
    enum qrnic_syndrome why = QRNIC_SYN_NONE;
    uint64_t found, contiguous = 0, absent = 0;

    if (at->k->backing == QRNIC_BACKING_PROCESS) {
        why = process_probe(e, at, write, &absent);
        return note_fault(at, write, absent, why, fault);
    }
    for (uint64_t done = 0; pages->on_demand && !why && done < at->length;
         done += contiguous) {
        why = qrnic_pages_translate(e, pages,
                                    at->addr - at->k->ctx.start + done, write,
                                    &found, &contiguous);
    }
    return note_fault(at, write, 0, why, fault);
}

enum qrnic_syndrome qrnic_memory_probe(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, size_t len, bool write,
                                       QrnicFault *fault)
{
    enum qrnic_syndrome why = QRNIC_SYN_NONE;
    Place at;

    for (size_t done = 0; !why && done < len; done += at.length) {
        why = place_of(e, k, addr + done, len - done, write, &at);
        if (!why) {
            why = place_probe(e, &at, write, fault);
        }
    }
    return why;
}

/*
 * Executes an atomic operation by one atomic instruction of the host. *done is
 * false on an error, or if the address has no such access.
 */
static enum qrnic_syndrome atomic_at_once(QrnicEngine *e, const Place *at,
                                          QrnicAtomic *op, bool *done,
                                          QrnicFault *fault)
{
    uint64_t addr = at->addr, contiguous;
    bool (*execute)(void *, uint64_t, QrnicAtomic *) = e->env.dma_atomic;
    QrnicMkey *k = at->k;
    enum qrnic_syndrome why = QRNIC_SYN_NONE;

    *done = false;
    if (!(e->config.capabilities & QRNIC_CAP_ATOMIC_GLOB)) {
        return QRNIC_SYN_NONE;
    }
    switch (k->backing) {
    case QRNIC_BACKING_NULL:
        return QRNIC_SYN_NONE;
    case QRNIC_BACKING_DM:
        *done = qrnic_dm_atomic(e, k, addr, op);
        return QRNIC_SYN_NONE;
    case QRNIC_BACKING_BUS:
        break;
    case QRNIC_BACKING_PROCESS:
        execute = e->env.translated_atomic;
        why = qrnic_process_translate(e, k, at->addr, true, &addr,
                                      &contiguous);
        break;
    default:
        why = qrnic_pages_translate(e, &k->pages, at->addr - k->ctx.start,
                                    true, &addr, &contiguous);
    }
    if (why) {
        return note_fault(at, true, 0, why, fault);
    }
    /*
     * A piece may begin at any address, so the address may not be a multiple of
     * 8. If it is, all 8 bytes are in one page and need only one translation.
     */
    if (addr % 8 || !execute(e->env.opaque, addr, op)) {
        return QRNIC_SYN_NONE;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_READS, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_READ_BYTES, 8);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITES, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITE_BYTES, 8);
    trace_qrnic_dma_atomic(e->config.name, addr, op->compare_swap,
                           op->original);
    *done = true;
    return QRNIC_SYN_NONE;
}

/*
 * Returns true if the 8 bytes of an atomic lie in two pages of a process. The
 * device rejects the atomic, because the second page may become absent after
 * the write to the first. Then a part of the atomic would be executed twice.
 * Large pages count as pages of 4 KiB, so that the result does not depend on
 * the operating system.
 */
static bool crosses_pages(const Place *at)
{
    const uint64_t page = 1ull << QRNIC_PAGE_SHIFT_MIN;

    return at->k->backing == QRNIC_BACKING_PROCESS &&
           qrnic_process_address(at->k, at->addr) % page > page - 8;
}

/* Finds the place of all 8 bytes of an atomic. */
static enum qrnic_syndrome whole_place(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, Place *at)
{
    enum qrnic_syndrome why = place_of(e, k, addr, 8, true, at);

    if (!why && at->length < 8) {
        qrnic_guest_error(e, QRNIC_GE_PIECE_REFUSED, "key", k->index,
                          "an atomic at 0x%" PRIx64 " lies in several pieces",
                          addr);
        why = QRNIC_SYN_KEY_SPLIT;
    } else if (!why && crosses_pages(at)) {
        qrnic_guest_error(e, QRNIC_GE_PIECE_REFUSED, "key", k->index,
                          "an atomic at 0x%" PRIx64 " lies in two pages", addr);
        why = QRNIC_SYN_KEY_SPLIT;
    }
    return why;
}

enum qrnic_syndrome qrnic_memory_probe_atomic(QrnicEngine *e, QrnicMkey *k,
                                              uint64_t addr, QrnicFault *fault)
{
    Place at;
    enum qrnic_syndrome why = whole_place(e, k, addr, &at);

    return why ? why : place_probe(e, &at, true, fault);
}

/*
 * Without an access of the host as a whole, a CPU may store between the read
 * and the write. So a compare and swap that fails does not write, because it
 * would undo the store of the CPU.
 */
enum qrnic_syndrome qrnic_memory_atomic(QrnicEngine *e, QrnicMkey *k,
                                        uint64_t addr, QrnicAtomic *op,
                                        QrnicFault *fault)
{
    enum qrnic_syndrome why;
    uint8_t bytes[8];
    uint64_t result;
    bool done;
    Place at;

    why = whole_place(e, k, addr, &at);
    if (why) {
        return why;
    }
    why = atomic_at_once(e, &at, op, &done, fault);
    if (done || why) {
        return why;
    }
    why = place_read(e, &at, bytes, fault);
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
    return place_write(e, &at, bytes, fault);
}
