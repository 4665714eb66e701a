/*
 * qrnic engine: memory windows, fast registration and invalidation
 *
 * Queue pairs call these functions for WQEs, and for received sends with
 * invalidate. Each function checks first and then changes the key, so that a
 * failed operation has no effect. A bound window counts in "windows" of its
 * region. A window of type 2 also counts in "windows" of its queue pair.
 * InfiniBand specification, 10.6.6.2 (invalidation) and 10.6.7 (windows).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/shared_virtual.h"

/* Restores the key to its state after creation, except for the variant. */
static void invalidate(QrnicEngine *e, QrnicMkey *k)
{
    qrnic_window_unbind(e, k);
    qrnic_process_leave(k);
    g_free(k->pieces);
    k->pieces = NULL;
    k->valid = false;
    k->ctx.access = 0;
    k->ctx.start = 0;
    k->ctx.length = k->max_length;
    k->ctx.table = (QrnicTranslation) { 0 };
}

void qrnic_window_unbind(QrnicEngine *e, QrnicMkey *k)
{
    QrnicMkey *region;

    if (!qrnic_mkey_is_window(k) || !k->valid) {
        return;
    }
    trace_qrnic_window_unbind(e->config.name, k->index, k->region,
                              k->user ? k->user->number : 0);
    region = qrnic_mkey_get(e, k->region);
    region->windows--;
    if (k->user) {
        k->user->windows--;
    }
    k->user = NULL;
    k->valid = false;
}

void qrnic_key_user_gone(QrnicEngine *e, const QrnicKeyUser *user)
{
    const QrnicTable *t = &e->memory->mkeys;

    for (uint32_t n = t->first; user->windows && n < t->limit; n++) {
        QrnicMkey *k = t->slot[n];

        if (k && k->user == user) {
            invalidate(e, k);
        }
    }
}

/* Checks the region of a bind, and the range and the rights of the window. */
static enum qrnic_syndrome region_check(const QrnicKeyUser *user,
                                        const QrnicMkey *region,
                                        const QrnicBindSeg *b)
{
    if (!region || !region->valid ||
        region->ctx.variant != (b->lkey & 0xff)) {
        return QRNIC_SYN_KEY_INVALID;
    }
    if (region->ctx.pd != user->pd) {
        return QRNIC_SYN_KEY_PD;
    }
    if (region->ctx.type != QRNIC_MKEY_MR &&
        region->ctx.type != QRNIC_MKEY_DM) {
        return QRNIC_SYN_KEY_TYPE;
    }
    if (b->address < region->ctx.start ||
        b->address - region->ctx.start > region->ctx.length ||
        b->length > region->ctx.length - (b->address - region->ctx.start)) {
        return QRNIC_SYN_KEY_RANGE;
    }
    if (!(region->ctx.access & QRNIC_ACCESS_MW_BIND) ||
        (b->access & ~QRNIC_REMOTE_RIGHTS) ||
        !qrnic_access_allowed(b->access, region->ctx.access)) {
        return QRNIC_SYN_KEY_ACCESS;
    }
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_window_bind(QrnicEngine *e, QrnicKeyUser *user,
                                      const QrnicBindSeg *b)
{
    QrnicMkey *k = qrnic_mkey_get(e, b->key >> 8);
    QrnicMkey *region = qrnic_mkey_get(e, b->lkey >> 8);
    enum qrnic_syndrome syndrome;
    bool type_2;

    if (!k) {
        return QRNIC_SYN_KEY_INVALID;
    }
    if (k->ctx.pd != user->pd) {
        return QRNIC_SYN_KEY_PD;
    }
    if (!qrnic_mkey_is_window(k)) {
        return QRNIC_SYN_KEY_TYPE;
    }
    type_2 = k->ctx.type == QRNIC_MKEY_MW_2;
    if (type_2 && k->valid) {
        return QRNIC_SYN_KEY_BOUND;
    }
    if (!b->length) {
        if (type_2) {
            return QRNIC_SYN_KEY_RANGE;
        }
        invalidate(e, k);
        k->ctx.variant = b->key & 0xff;
        return QRNIC_SYN_NONE;
    }
    syndrome = region_check(user, region, b);
    if (syndrome) {
        return syndrome;
    }
    invalidate(e, k);
    region->windows++;
    k->region = region->index;
    k->region_addr = b->address;
    if (type_2) {
        k->user = user;
        user->windows++;
    }
    k->ctx.variant = b->key & 0xff;
    k->ctx.access = b->access;
    k->ctx.start = b->flags & QRNIC_MWF_ZERO_BASED ? 0 : b->address;
    k->ctx.length = b->length;
    k->valid = true;
    qrnic_add(e, QRNIC_COUNTER_MW_BINDS, 1);
    return QRNIC_SYN_NONE;
}

static enum qrnic_syndrome reg_check(const QrnicKeyUser *user,
                                     const QrnicMkey *k, const QrnicRegSeg *r)
{
    const bool by_process = user->process;

    /* The PASID may have been cleared since the WQE was decoded. */
    if (!qrnic_key_registers(user)) {
        return QRNIC_SYN_WQE_OPCODE;
    }
    if (!k) {
        return QRNIC_SYN_KEY_INVALID;
    }
    if (k->ctx.pd != user->pd) {
        return QRNIC_SYN_KEY_PD;
    }
    /*
     * The kernel names bus addresses, and a process names its own virtual
     * addresses. Neither may name those of the other.
     */
    if (k->ctx.type != QRNIC_MKEY_FAST_REG ||
        by_process != !!(k->ctx.flags & QRNIC_MKEYF_PASID)) {
        return QRNIC_SYN_KEY_TYPE;
    }
    if (k->valid) {
        return QRNIC_SYN_KEY_BOUND;
    }
    if (!r->length || r->length > k->max_length ||
        r->start + (r->length - 1) < r->start) {
        return QRNIC_SYN_KEY_RANGE;
    }
    if (r->access & QRNIC_ACCESS_MW_BIND ||
        !qrnic_access_allowed(r->access, r->access)) {
        return QRNIC_SYN_KEY_ACCESS;
    }
    return QRNIC_SYN_NONE;
}

/* Checks the pages of a registration. *pages is set only on success. */
static enum qrnic_syndrome pages_check(QrnicEngine *e, const QrnicRegSeg *r,
                                       QrnicPages *pages)
{
    uint64_t addr, contiguous;
    uint32_t bad_offset;
    QrnicPages found;

    /* A table with one level has at most FAST_REG_MAX_PAGES pages. */
    if (r->table.levels > 1 ||
        !qrnic_pages_init(e, &found, &r->table, r->length, false,
                          &bad_offset)) {
        return QRNIC_SYN_KEY_RANGE;
    }
    if (qrnic_pages_translate(e, &found, 0, false, &addr, &contiguous)) {
        return QRNIC_SYN_DMA;
    }
    *pages = found;
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_region_register(QrnicEngine *e,
                                          const QrnicKeyUser *user,
                                          const QrnicRegSeg *r)
{
    QrnicMkey *k = qrnic_mkey_get(e, r->key >> 8);
    enum qrnic_syndrome syndrome = reg_check(user, k, r);
    uint32_t bad_offset;

    if (syndrome) {
        return syndrome;
    }
    if (user->process) {
        if (!qrnic_process_range_check(e, &r->table, r->length, &bad_offset)) {
            return QRNIC_SYN_KEY_RANGE;
        }
        k->process = user->process;
        k->process->keys++;
        k->ctx.pasid = k->process->pasid;
    } else {
        syndrome = pages_check(e, r, &k->pages);
        if (syndrome) {
            return syndrome;
        }
    }
    k->ctx.variant = r->key & 0xff;
    k->ctx.access = r->access;
    k->ctx.start = r->start;
    k->ctx.length = r->length;
    k->ctx.table = r->table;
    k->valid = true;
    qrnic_add(e, QRNIC_COUNTER_FAST_REGISTRATIONS, 1);
    return QRNIC_SYN_NONE;
}

/*
 * Returns the syndrome of an invalidation that is not permitted (IB C10-47 and
 * following).
 */
static enum qrnic_syndrome invalidate_check(const QrnicKeyUser *user,
                                            uint32_t pd, const QrnicMkey *k,
                                            uint32_t key)
{
    if (!k || k->ctx.variant != (key & 0xff)) {
        return QRNIC_SYN_KEY_INVALID;
    }
    if (k->ctx.pd != pd) {
        return QRNIC_SYN_KEY_PD;
    }
    if (k->ctx.type != QRNIC_MKEY_MW_2 &&
        k->ctx.type != QRNIC_MKEY_FAST_REG &&
        k->ctx.type != QRNIC_MKEY_INDIRECT) {
        return QRNIC_SYN_KEY_TYPE;
    }
    if (!k->valid) {
        return QRNIC_SYN_KEY_BOUND;
    }
    return k->user && k->user != user ? QRNIC_SYN_KEY_QP : QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_local_invalidate(QrnicEngine *e,
                                           const QrnicKeyUser *user,
                                           uint32_t key)
{
    QrnicMkey *k = qrnic_mkey_get(e, key >> 8);
    enum qrnic_syndrome syndrome = invalidate_check(user, user->pd, k, key);

    if (!syndrome) {
        invalidate(e, k);
        qrnic_add(e, QRNIC_COUNTER_LOCAL_INVALIDATIONS, 1);
    }
    return syndrome;
}

enum qrnic_syndrome qrnic_remote_invalidate(QrnicEngine *e,
                                            const QrnicKeyUser *user,
                                            uint32_t pd, uint32_t key)
{
    QrnicMkey *k = qrnic_mkey_get(e, key >> 8);
    enum qrnic_syndrome syndrome = invalidate_check(user, pd, k, key);

    /*
     * The requester may invalidate only a key with remote rights, because it
     * cannot use any other key.
     */
    if (!syndrome && !(k->ctx.access & QRNIC_REMOTE_RIGHTS)) {
        syndrome = QRNIC_SYN_KEY_ACCESS;
    }
    trace_qrnic_remote_invalidate(e->config.name, user->number, key,
                                  qrnic_syndrome_name(syndrome));
    if (!syndrome) {
        invalidate(e, k);
        qrnic_add(e, QRNIC_COUNTER_REMOTE_INVALIDATIONS, 1);
    }
    return syndrome;
}
