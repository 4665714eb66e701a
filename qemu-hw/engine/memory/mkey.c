/*
 * qrnic engine: commands on memory keys and protection domains
 *
 * The device calls a function of this file for each command (engine.h). A
 * command first checks its input completely and then changes the state, so that
 * a failed command has no effect. Regions, null keys and keys of device memory
 * are valid from the start. Windows, fast registration keys and indirect keys
 * become valid by a WQE (window.c, indirect.c). A key counts as a user of its
 * PD and of its device memory. A region with bound windows cannot be modified
 * or destroyed.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/shared_virtual.h"

static bool is_region(uint8_t type)
{
    return type == QRNIC_MKEY_MR || type == QRNIC_MKEY_DMA;
}

/*
 * Checks the member address_space. Only a region may have an address space,
 * because only regions cover memory that the CPU can address, too.
 */
static QrnicResult cpu_address_check(QrnicEngine *e, const QrnicMkeyCtx *in)
{
    if (in->address_space &&
        !(e->config.capabilities & QRNIC_CAP_INLINE_RECV)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_MKEY_CTX_ADDRESS_SPACE_OFFSET);
    }
    if (in->address_space && in->type != QRNIC_MKEY_MR) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_MKEY_CTX_ADDRESS_SPACE_OFFSET);
    }
    return qrnic_ok(0);
}

static QrnicResult flags_check(QrnicEngine *e, const QrnicMkeyCtx *in)
{
    const bool pasid = in->flags & QRNIC_MKEYF_PASID;

    if ((in->flags && !(e->config.capabilities & QRNIC_CAP_ON_DEMAND)) ||
        (pasid && !(e->config.capabilities & QRNIC_CAP_SHARED_VIRTUAL))) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_MKEY_CTX_FLAGS_OFFSET);
    }
    if ((in->flags && in->type != QRNIC_MKEY_MR &&
         !(pasid && in->type == QRNIC_MKEY_FAST_REG)) ||
        (pasid && in->flags & QRNIC_MKEYF_ON_DEMAND)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_FLAGS_OFFSET);
    }
    /* A WQE takes the PASID of a fast registration key from its queue pair. */
    if ((!pasid || in->type != QRNIC_MKEY_MR) && in->pasid) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_PASID_OFFSET);
    }
    return qrnic_ok(0);
}

static bool table_is_zero(const QrnicTranslation *t)
{
    return !t->root && !t->levels && !t->page_shift && !t->offset;
}

static QrnicResult access_check(QrnicEngine *e, const QrnicMkeyCtx *in)
{
    const struct { uint8_t right; uint64_t cap; } needs[] = {
        { QRNIC_ACCESS_REMOTE_ATOMIC, QRNIC_CAP_ATOMIC },
        { QRNIC_ACCESS_MW_BIND, QRNIC_CAP_MW },
        { QRNIC_ACCESS_FLUSH_GLOBAL, QRNIC_CAP_FLUSH },
    };

    if (!qrnic_access_allowed(in->access, in->access)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_ACCESS_OFFSET);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(needs); i++) {
        if ((in->access & needs[i].right) &&
            !(e->config.capabilities & needs[i].cap)) {
            return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                                QRNIC_MKEY_CTX_ACCESS_OFFSET);
        }
    }
    return qrnic_ok(0);
}

static QrnicResult region_check(QrnicEngine *e, const QrnicMkeyCtx *in,
                                QrnicPages *pages)
{
    bool on_demand = in->flags & QRNIC_MKEYF_ON_DEMAND;
    uint64_t most = on_demand ? QRNIC_MAX_ON_DEMAND_SIZE : QRNIC_MAX_MR_SIZE;
    uint64_t addr, contiguous;
    uint32_t bad_offset;

    if (in->flags & QRNIC_MKEYF_PASID) {
        most = QRNIC_MAX_PROCESS_SIZE;
    }
    if (in->length > most ||
        (in->length && in->start + (in->length - 1) < in->start)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    }
    if (in->flags & QRNIC_MKEYF_PASID) {
        return qrnic_process_check(e, in);
    }
    if (!qrnic_pages_init(e, pages, &in->table, in->length, on_demand,
                          &bad_offset)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_MKEY_CTX_TABLE_OFFSET + bad_offset);
    }
    if (in->length && !on_demand &&
        qrnic_pages_translate(e, pages, 0, false, &addr, &contiguous)) {
        return qrnic_refuse(QRNIC_ST_DMA, 0);
    }
    return qrnic_ok(0);
}

/*
 * Rules for the members of a key that is neither a region with a table nor
 * device memory
 */
typedef struct KindRule {
    uint64_t cap;
    uint8_t access;             /* permitted rights */
    uint64_t min_length, max_length;
} KindRule;

static QrnicResult kind_check(QrnicEngine *e, const QrnicMkeyCtx *in)
{
    static const KindRule rules[] = {
        [QRNIC_MKEY_DMA] = {
            0, QRNIC_ACCESS_LOCAL_WRITE | QRNIC_REMOTE_RIGHTS |
               QRNIC_ACCESS_FLUSH_GLOBAL, 0, UINT64_MAX,
        },
        [QRNIC_MKEY_FAST_REG] = {
            QRNIC_CAP_FAST_REG, 0, 1, QRNIC_MAX_MR_SIZE,
        },
        [QRNIC_MKEY_MW_1] = { QRNIC_CAP_MW, 0, 0, 0 },
        [QRNIC_MKEY_MW_2] = { QRNIC_CAP_MW, 0, 0, 0 },
        [QRNIC_MKEY_NULL_MR] = { 0, QRNIC_ACCESS_LOCAL_WRITE, 0, 0 },
        [QRNIC_MKEY_INDIRECT] = { QRNIC_CAP_INDIRECT_MKEY, 0, 0, 0 },
    };
    const KindRule *rule = &rules[in->type];
    uint64_t max_length = in->flags & QRNIC_MKEYF_PASID ?
                          QRNIC_MAX_PROCESS_SIZE : rule->max_length;

    if (rule->cap && !(e->config.capabilities & rule->cap)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED,
                            QRNIC_MKEY_CTX_TYPE_OFFSET);
    }
    if (in->access & ~rule->access) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_ACCESS_OFFSET);
    }
    if (in->start) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_START_OFFSET);
    }
    if (in->length < rule->min_length || in->length > max_length) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_LENGTH_OFFSET);
    }
    if (!table_is_zero(&in->table)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TABLE_OFFSET);
    }
    return qrnic_ok(0);
}

/*
 * Checks the context of a key. *dm receives the device memory of a key of type
 * DM.
 */
static QrnicResult mkey_check(QrnicEngine *e, const QrnicMkeyCtx *in,
                              QrnicPages *pages, QrnicDm **dm)
{
    QrnicResult result;

    if ((in->type < QRNIC_MKEY_MR || in->type > QRNIC_MKEY_INDIRECT) &&
        in->type != QRNIC_MKEY_DM) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TYPE_OFFSET);
    }
    result = access_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_pd_get(e, in->pd)) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_MKEY_CTX_PD_OFFSET);
    }
    result = cpu_address_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    result = flags_check(e, in);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (in->type == QRNIC_MKEY_INDIRECT ?
        !in->max_pieces || in->max_pieces > QRNIC_MAX_PIECES :
        in->max_pieces) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_MKEY_CTX_MAX_PIECES_OFFSET);
    }
    if (in->type == QRNIC_MKEY_DM) {
        return qrnic_dm_key_check(e, in, dm);
    }
    if (in->dm) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_DM_OFFSET);
    }
    return in->type == QRNIC_MKEY_MR ? region_check(e, in, pages) :
                                       kind_check(e, in);
}

static void pd_users_add(QrnicEngine *e, uint32_t pd, int n)
{
    qrnic_pd_get(e, pd)->users += n;
}

static QrnicBacking backing_of(const QrnicMkeyCtx *ctx)
{
    switch (ctx->type) {
    case QRNIC_MKEY_DMA:
        return QRNIC_BACKING_BUS;
    case QRNIC_MKEY_DM:
        return QRNIC_BACKING_DM;
    case QRNIC_MKEY_NULL_MR:
        return QRNIC_BACKING_NULL;
    default:
        return ctx->flags & QRNIC_MKEYF_PASID ? QRNIC_BACKING_PROCESS :
                                                QRNIC_BACKING_TABLE;
    }
}

static void mkey_fill(QrnicMkey *k, const QrnicMkeyCtx *in,
                      const QrnicPages *pages)
{
    k->ctx = *in;
    k->backing = backing_of(in);
    k->pages = *pages;
    k->valid = is_region(in->type) || in->type == QRNIC_MKEY_NULL_MR ||
               in->type == QRNIC_MKEY_DM;
    if (in->type == QRNIC_MKEY_FAST_REG) {
        k->max_length = in->length;
    }
}

QrnicResult qrnic_mkey_create(QrnicEngine *e, const QrnicMkeyCtx *in)
{
    QrnicPages pages = { 0 };
    QrnicDm *dm = NULL;
    QrnicResult result = mkey_check(e, in, &pages, &dm);
    QrnicMkey *k;

    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    if (!qrnic_pieces_reserve(e, in->max_pieces)) {
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    k = g_new0(QrnicMkey, 1);
    mkey_fill(k, in, &pages);
    if (!qrnic_table_insert(&e->memory->mkeys, k, &k->index)) {
        qrnic_pieces_release(e, k);
        g_free(k);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    pd_users_add(e, in->pd, 1);
    k->dm = dm;
    if (dm) {
        dm->users++;
    }
    trace_qrnic_mkey_create(e->config.name, k->index,
                            qrnic_mkey_type_name(in->type), in->variant,
                            in->pd, in->start, in->length, in->access,
                            in->table.levels, in->table.page_shift);
    return qrnic_ok(k->index);
}

QrnicResult qrnic_mkey_modify(QrnicEngine *e, uint32_t index,
                              const QrnicMkeyCtx *in)
{
    QrnicMkey *k = qrnic_mkey_get(e, index);
    QrnicPages pages = { 0 };
    QrnicDm *dm = NULL;
    QrnicResult result;

    if (!k) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (!is_region(k->ctx.type)) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (k->windows) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    if (!is_region(in->type)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_MKEY_CTX_TYPE_OFFSET);
    }
    result = mkey_check(e, in, &pages, &dm);
    if (result.status != QRNIC_ST_OK) {
        return result;
    }
    trace_qrnic_mkey_modify(e->config.name, index, in->variant, in->pd,
                            in->start, in->length, in->access);
    pd_users_add(e, in->pd, 1);
    pd_users_add(e, k->ctx.pd, -1);
    mkey_fill(k, in, &pages);
    return qrnic_ok(0);
}

QrnicResult qrnic_mkey_destroy(QrnicEngine *e, uint32_t index)
{
    QrnicMkey *k = qrnic_mkey_get(e, index);

    if (!k) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (k->windows) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_mkey_destroy(e->config.name, index);
    qrnic_table_remove(&e->memory->mkeys, index);
    qrnic_window_unbind(e, k);
    qrnic_process_leave(k);
    pd_users_add(e, k->ctx.pd, -1);
    if (k->dm) {
        k->dm->users--;
    }
    qrnic_pieces_release(e, k);
    g_free(k);
    return qrnic_ok(0);
}

QrnicResult qrnic_mkey_invalidate_pages(QrnicEngine *e, uint32_t index,
                                        const QrnicPageRange *in)
{
    QrnicMkey *k = qrnic_mkey_get(e, index);

    if (!(e->config.capabilities & QRNIC_CAP_ON_DEMAND)) {
        return qrnic_refuse(QRNIC_ST_NOT_SUPPORTED, 0);
    }
    if (!k) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (!k->pages.on_demand) {
        return qrnic_refuse(QRNIC_ST_BAD_STATE, 0);
    }
    if (in->start < k->ctx.start ||
        in->start - k->ctx.start >= k->ctx.length) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_PAGE_RANGE_START_OFFSET);
    }
    if (!in->length ||
        in->length > k->ctx.length - (in->start - k->ctx.start)) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM,
                            QRNIC_PAGE_RANGE_LENGTH_OFFSET);
    }
    /*
     * No access is in progress, because each access ends before the engine
     * executes a command.
     */
    qrnic_pages_forget(e, &k->pages);
    qrnic_add(e, QRNIC_COUNTER_PAGE_INVALIDATIONS, 1);
    trace_qrnic_mkey_invalidate_pages(e->config.name, index, in->start,
                                      in->length);
    return qrnic_ok(0);
}

QrnicResult qrnic_mkey_query(QrnicEngine *e, uint32_t index, QrnicMkeyCtx *out)
{
    QrnicMkey *k = qrnic_mkey_get(e, index);

    if (!k) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    *out = k->ctx;
    return qrnic_ok(0);
}

QrnicResult qrnic_pd_alloc(QrnicEngine *e)
{
    QrnicPd *pd = g_new0(QrnicPd, 1);

    if (!qrnic_table_insert(&e->memory->pds, pd, &pd->number)) {
        g_free(pd);
        return qrnic_refuse(QRNIC_ST_NO_RESOURCE, 0);
    }
    trace_qrnic_pd_alloc(e->config.name, pd->number);
    return qrnic_ok(pd->number);
}

QrnicResult qrnic_pd_free(QrnicEngine *e, uint32_t pdn)
{
    QrnicPd *pd = qrnic_pd_get(e, pdn);

    if (!pd) {
        return qrnic_refuse(QRNIC_ST_BAD_OBJECT, QRNIC_OBJECT_OF_ENTRY);
    }
    if (pd->users) {
        return qrnic_refuse(QRNIC_ST_BUSY, 0);
    }
    trace_qrnic_pd_free(e->config.name, pdn);
    g_free(qrnic_table_remove(&e->memory->pds, pdn));
    return qrnic_ok(0);
}
