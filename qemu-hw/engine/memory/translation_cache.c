/*
 * qrnic engine: the address translation cache
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The cache has config.translation_cache entries. An entry is in a hash chain,
 * found by PASID, page and page size. All entries are in one list, the most
 * recently used one first and unused ones last, so that a new translation
 * replaces the last entry. The hash function has a secret key, so that no guest
 * can make a long chain by its choice of addresses. qrnic_engine_invalidate()
 * removes entries, at any time in which the engine executes an operation of the
 * environment; no function of this file calls one. Absent pages are not cached,
 * because the operating system pages in without an invalidation (PCIe, 10.2.3).
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "trace.h"
#include "engine/memory/shared_virtual.h"

/* Cached translation */
typedef struct AtcEntry {
    uint32_t pasid;
    uint8_t shift;              /* log2 of the page size; 0: unused entry */
    bool writable;
    uint64_t page;              /* virtual address >> shift */
    uint64_t address;           /* translated address of the page */
    QLIST_ENTRY(AtcEntry) chain;
    QTAILQ_ENTRY(AtcEntry) order;
} AtcEntry;

typedef QLIST_HEAD(, AtcEntry) AtcChain;

struct QrnicAtc {
    uint32_t entries, used;
    unsigned chain_bits;        /* log2 of the number of hash chains */
    uint64_t key[2];            /* odd multipliers of the hash function */
    uint64_t invalidations;
    uint64_t shifts;            /* mask of the page sizes in use */
    uint32_t in_shift[64];      /* number of entries of each page size */
    AtcEntry *entry;
    AtcChain *chain;
    QTAILQ_HEAD(, AtcEntry) order;
};

void qrnic_atc_init(QrnicEngine *e)
{
    QrnicAtc *c;

    if (!(e->config.capabilities & QRNIC_CAP_SHARED_VIRTUAL)) {
        return;
    }
    c = e->memory->atc = g_new0(QrnicAtc, 1);
    c->entries = e->config.translation_cache;
    c->chain_bits = ctz64(pow2ceil(MAX(c->entries, 1)));
    for (unsigned i = 0; i < 2; i++) {
        c->key[i] = e->config.translation_key[i] | 1;
    }
    c->entry = g_new0(AtcEntry, c->entries);
    c->chain = g_new0(AtcChain, 1u << c->chain_bits);
    QTAILQ_INIT(&c->order);
    for (uint32_t i = 0; i < c->entries; i++) {
        QTAILQ_INSERT_TAIL(&c->order, &c->entry[i], order);
    }
}

void qrnic_atc_cleanup(QrnicEngine *e)
{
    QrnicAtc *c = e->memory->atc;

    if (c) {
        g_free(c->entry);
        g_free(c->chain);
        g_free(c);
        e->memory->atc = NULL;
    }
}

uint64_t qrnic_atc_invalidations(const QrnicEngine *e)
{
    return e->memory->atc->invalidations;
}

uint32_t qrnic_atc_chain(const uint64_t key[2], uint32_t pasid, unsigned shift,
                         uint64_t page, unsigned bits)
{
    const uint64_t hash = page * key[0] + (pasid | (uint64_t)shift << 32) *
                          key[1];

    /* Only the top bits depend on all bits of the page. bits may be 0. */
    return hash >> 32 >> (32 - bits);
}

static AtcChain *chain_of(QrnicAtc *c, uint32_t pasid, unsigned shift,
                          uint64_t page)
{
    return &c->chain[qrnic_atc_chain(c->key, pasid, shift, page,
                                     c->chain_bits)];
}

/* Returns the entry, or NULL. */
static AtcEntry *entry_of(QrnicAtc *c, uint32_t pasid, unsigned shift,
                          uint64_t page)
{
    AtcEntry *x;

    QLIST_FOREACH(x, chain_of(c, pasid, shift, page), chain) {
        if (x->page == page && x->pasid == pasid && x->shift == shift) {
            return x;
        }
    }
    return NULL;
}

static void entry_drop(QrnicAtc *c, AtcEntry *x)
{
    QLIST_REMOVE(x, chain);
    QTAILQ_REMOVE(&c->order, x, order);
    QTAILQ_INSERT_TAIL(&c->order, x, order);
    if (!--c->in_shift[x->shift]) {
        c->shifts &= ~(1ull << x->shift);
    }
    x->shift = 0;
    c->used--;
}

void qrnic_atc_drop(QrnicEngine *e)
{
    QrnicAtc *c = e->memory->atc;

    while (c && c->used) {
        entry_drop(c, QTAILQ_FIRST(&c->order));
    }
}

static void entry_use(QrnicAtc *c, AtcEntry *x)
{
    QTAILQ_REMOVE(&c->order, x, order);
    QTAILQ_INSERT_HEAD(&c->order, x, order);
}

bool qrnic_atc_find(QrnicEngine *e, uint32_t pasid, uint64_t addr, bool write,
                    QrnicTranslated *t)
{
    QrnicAtc *c = e->memory->atc;

    for (uint64_t left = c->shifts; left; left &= left - 1) {
        unsigned shift = ctz64(left);
        AtcEntry *x = entry_of(c, pasid, shift, addr >> shift);

        if (x && (x->writable || !write)) {
            entry_use(c, x);
            *t = (QrnicTranslated) {
                .address = x->address, .page_shift = shift,
                .writable = x->writable,
            };
            qrnic_add(e, QRNIC_COUNTER_ATC_HITS, 1);
            return true;
        }
    }
    return false;
}

void qrnic_atc_insert(QrnicEngine *e, uint32_t pasid, uint64_t addr,
                      const QrnicTranslated *t)
{
    QrnicAtc *c = e->memory->atc;
    unsigned shift = t->page_shift;
    uint64_t page = addr >> shift;
    AtcEntry *x = entry_of(c, pasid, shift, page);

    if (!c->entries) {
        return;
    }
    if (!x) {
        x = QTAILQ_LAST(&c->order);
        if (x->shift) {
            entry_drop(c, x);
            qrnic_add(e, QRNIC_COUNTER_ATC_EVICTIONS, 1);
        }
        x->pasid = pasid;
        x->shift = shift;
        x->page = page;
        QLIST_INSERT_HEAD(chain_of(c, pasid, shift, page), x, chain);
        c->shifts |= 1ull << shift;
        c->in_shift[shift]++;
        c->used++;
    }
    x->address = t->address;
    x->writable = t->writable;
    entry_use(c, x);
}

/* Drops the entries of a short range. Returns their number. */
static uint32_t drop_pages(QrnicAtc *c, uint32_t pasid, uint64_t first,
                           uint64_t last)
{
    uint32_t dropped = 0;

    for (uint64_t left = c->shifts; left; left &= left - 1) {
        unsigned shift = ctz64(left);

        for (uint64_t page = first >> shift; page <= last >> shift; page++) {
            AtcEntry *x = entry_of(c, pasid, shift, page);

            if (x) {
                entry_drop(c, x);
                dropped++;
            }
        }
    }
    return dropped;
}

/* Drops the entries of any range, and of all PASIDs. Returns their number. */
static uint32_t drop_range(QrnicAtc *c, uint32_t pasid, uint64_t first,
                           uint64_t last)
{
    uint32_t dropped = 0;

    for (uint32_t i = 0; i < c->entries && c->used; i++) {
        AtcEntry *x = &c->entry[i];

        if (x->shift && (pasid == QRNIC_PASID_ALL || x->pasid == pasid) &&
            x->page >= first >> x->shift && x->page <= last >> x->shift) {
            entry_drop(c, x);
            dropped++;
        }
    }
    return dropped;
}

void qrnic_engine_invalidate(QrnicEngine *e, uint32_t pasid, uint64_t first,
                             uint64_t last)
{
    const bool whole = !first && last == UINT64_MAX;
    QrnicAtc *c = e->memory->atc;
    uint32_t dropped;

    if (!c) {
        return;
    }
    c->invalidations++;
    /* A lookup of each page is faster if the pages are fewer than entries. */
    if (pasid != QRNIC_PASID_ALL && (last >> 12) - (first >> 12) < c->used) {
        dropped = drop_pages(c, pasid, first, last);
    } else {
        dropped = drop_range(c, pasid, first, last);
    }
    qrnic_add(e, !whole ? QRNIC_COUNTER_ATC_INVALIDATIONS_PAGES :
                 pasid != QRNIC_PASID_ALL ?
                 QRNIC_COUNTER_ATC_INVALIDATIONS_PASID :
                 QRNIC_COUNTER_ATC_INVALIDATIONS_ALL, 1);
    trace_qrnic_translation_invalidate(e->config.name, pasid, first, last,
                                       dropped);
}
