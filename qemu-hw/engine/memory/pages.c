/*
 * qrnic engine: DMA, and translation tables in guest memory
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * qrnic_pages_init() validates the descriptor of a table, when a command or a
 * WQE creates the key or the ring. Each access then translates its offset. A
 * table has up to 4 levels of page lists; a page list has up to 512 entries.
 * Lists that were read stay in a cache of the device (memory->page_lists), a
 * set of QRNIC_PAGE_LIST_WAYS lists for each hash. A list is valid while its id
 * is the id of its table. So qrnic_pages_forget() invalidates all lists of a
 * table by giving it a new id. Manual, chapters "Memory" and "Paging on
 * demand".
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/memory/memory.h"

/* Reads by an operation of the environment; see qrnic_dma_read(). */
static inline bool read_by(QrnicEngine *e,
                           bool (*op)(void *, uint64_t, void *, size_t),
                           uint64_t addr, void *buf, size_t len)
{
    if (!len) {
        return true;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_READS, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_READ_BYTES, len);
    trace_qrnic_dma_read(e->config.name, addr, len);
    if (op(e->env.opaque, addr, buf, len)) {
        return true;
    }
    memset(buf, 0, len);
    qrnic_add(e, QRNIC_COUNTER_DMA_ERRORS, 1);
    qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "DMA", 0,
                      "read of %zu bytes at 0x%" PRIx64, len, addr);
    return false;
}

/* Writes by an operation of the environment; see qrnic_dma_write(). */
static inline bool write_by(QrnicEngine *e,
                            bool (*op)(void *, uint64_t, const void *, size_t),
                            uint64_t addr, const void *buf, size_t len)
{
    if (!len) {
        return true;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITES, 1);
    qrnic_add(e, QRNIC_COUNTER_DMA_WRITE_BYTES, len);
    trace_qrnic_dma_write(e->config.name, addr, len);
    if (op(e->env.opaque, addr, buf, len)) {
        return true;
    }
    qrnic_add(e, QRNIC_COUNTER_DMA_ERRORS, 1);
    qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "DMA", 0,
                      "write of %zu bytes at 0x%" PRIx64, len, addr);
    return false;
}

bool qrnic_dma_read(QrnicEngine *e, uint64_t addr, void *buf, size_t len)
{
    return read_by(e, e->env.dma_read, addr, buf, len);
}

bool qrnic_dma_write(QrnicEngine *e, uint64_t addr, const void *buf,
                     size_t len)
{
    return write_by(e, e->env.dma_write, addr, buf, len);
}

bool qrnic_translated_read(QrnicEngine *e, uint64_t addr, void *buf,
                           size_t len)
{
    return read_by(e, e->env.translated_read, addr, buf, len);
}

bool qrnic_translated_write(QrnicEngine *e, uint64_t addr, const void *buf,
                            size_t len)
{
    return write_by(e, e->env.translated_write, addr, buf, len);
}

bool qrnic_pages_init(QrnicEngine *e, QrnicPages *p,
                      const QrnicTranslation *desc, uint64_t length,
                      bool on_demand, uint32_t *bad_offset)
{
    uint64_t pages = 0;

    if (desc->levels > (on_demand ? 4 : 3) || desc->levels < on_demand) {
        *bad_offset = QRNIC_TRANSLATION_SHAPE_OFFSET;
        return false;
    }
    if (desc->levels == 0) {
        if (desc->page_shift) {
            *bad_offset = QRNIC_TRANSLATION_SHAPE_OFFSET;
            return false;
        }
        if (desc->offset) {
            *bad_offset = QRNIC_TRANSLATION_OFFSET_OFFSET;
            return false;
        }
        if (length && desc->root + (length - 1) < desc->root) {
            *bad_offset = QRNIC_TRANSLATION_ROOT_OFFSET;
            return false;
        }
    } else {
        uint64_t list_align = desc->levels == 1 ? 8 :
                              1ull << QRNIC_PAGE_LIST_SHIFT;

        if (desc->page_shift < QRNIC_PAGE_SHIFT_MIN ||
            desc->page_shift > QRNIC_PAGE_SHIFT_MAX) {
            *bad_offset = QRNIC_TRANSLATION_SHAPE_OFFSET;
            return false;
        }
        if (desc->root % list_align) {
            *bad_offset = QRNIC_TRANSLATION_ROOT_OFFSET;
            return false;
        }
        if (desc->offset >> desc->page_shift) {
            *bad_offset = QRNIC_TRANSLATION_OFFSET_OFFSET;
            return false;
        }
        /*
         * The sum cannot wrap, because length is at most
         * QRNIC_MAX_ON_DEMAND_SIZE.
         */
        pages = (desc->offset + length + (1ull << desc->page_shift) - 1) >>
                desc->page_shift;
        if (pages > 1ull << (9 * desc->levels)) {
            *bad_offset = QRNIC_TRANSLATION_SHAPE_OFFSET;
            return false;
        }
    }
    p->desc = *desc;
    p->on_demand = on_demand;
    p->length = length;
    p->pages = pages;
    p->id = ++e->memory->next_pages_id;
    return true;
}

bool qrnic_ring_init(QrnicEngine *e, QrnicPages *p,
                     const QrnicTranslation *desc, uint64_t length,
                     uint32_t struct_offset, QrnicResult *error)
{
    uint64_t addr, contiguous;
    uint32_t bad_offset;

    if (!qrnic_pages_init(e, p, desc, length, false, &bad_offset)) {
        *error = qrnic_refuse(QRNIC_ST_BAD_PARAM, struct_offset + bad_offset);
        return false;
    }
    /*
     * The ring must begin with a page. A page is a multiple of every entry
     * size, so no entry then crosses a page boundary.
     */
    if (desc->offset) {
        *error = qrnic_refuse(QRNIC_ST_BAD_PARAM, struct_offset +
                              QRNIC_TRANSLATION_OFFSET_OFFSET);
        return false;
    }
    if (!desc->levels && desc->root % QRNIC_WQEBB_SIZE) {
        *error = qrnic_refuse(QRNIC_ST_BAD_PARAM, struct_offset +
                              QRNIC_TRANSLATION_ROOT_OFFSET);
        return false;
    }
    if (qrnic_pages_translate(e, p, 0, false, &addr, &contiguous)) {
        *error = qrnic_refuse(QRNIC_ST_DMA, 0);
        return false;
    }
    return true;
}

void qrnic_pages_forget(QrnicEngine *e, QrnicPages *p)
{
    p->id = ++e->memory->next_pages_id;
}

void qrnic_page_lists_drop(QrnicEngine *e)
{
    for (unsigned i = 0; i < QRNIC_PAGE_LIST_CACHE; i++) {
        g_free(e->memory->page_lists[i].entry);
        e->memory->page_lists[i] = (QrnicPageList) { 0 };
    }
}

/*
 * Returns the set of cache entries in which the list may be. Neighbouring lists
 * have neighbouring sets, so that the scan of a large table does not evict its
 * own lists.
 */
static QrnicPageList *page_list_set(QrnicEngine *e, uint64_t id,
                                    uint64_t index)
{
    const unsigned sets = QRNIC_PAGE_LIST_CACHE / QRNIC_PAGE_LIST_WAYS;
    uint64_t hash = id * 0x9e3779b97f4a7c15ull;
    unsigned set = ((hash >> 40) + index + (index >> 32) * 7) % sets;

    return &e->memory->page_lists[set * QRNIC_PAGE_LIST_WAYS];
}

/* Returns the least recently used list of the set, to be replaced. */
static QrnicPageList *page_list_oldest(QrnicPageList *set)
{
    QrnicPageList *oldest = set;

    for (unsigned i = 1; i < QRNIC_PAGE_LIST_WAYS; i++) {
        if (set[i].used < oldest->used) {
            oldest = &set[i];
        }
    }
    return oldest;
}

/*
 * Returns true and the address in an entry of a list. The entry leads to a list
 * if "list" is true, else to a page. Returns false and sets *why if the entry
 * is absent or invalid.
 */
static bool entry_address(QrnicEngine *e, const QrnicPages *p, uint64_t entry,
                          bool list, uint64_t *addr, enum qrnic_syndrome *why)
{
    unsigned shift = list ? QRNIC_PAGE_LIST_SHIFT : p->desc.page_shift;
    uint64_t flags = 0;

    if (p->on_demand) {
        flags = QRNIC_PAGE_PRESENT | (list ? 0 : QRNIC_PAGE_WRITABLE);
        if (!entry) {
            *why = QRNIC_SYN_PAGE_FAULT;
            return false;
        }
    }
    *addr = entry & ~flags;
    if (!(*addr & ((1ull << shift) - 1)) &&
        (!p->on_demand || (entry & QRNIC_PAGE_PRESENT))) {
        return true;
    }
    *why = QRNIC_SYN_DMA;
    if (p->on_demand && !(entry & QRNIC_PAGE_PRESENT)) {
        qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "DMA", 0,
                          "entry 0x%" PRIx64 " of a page list is not 0, and "
                          "PAGE_PRESENT is not set", entry);
    } else {
        qrnic_guest_error(e, QRNIC_GE_DMA_FAILED, "DMA", 0,
                          list ? "page list at 0x%" PRIx64 " is not aligned" :
                                 "page address 0x%" PRIx64
                                 " is not a multiple of the page size", entry);
    }
    return false;
}

/*
 * Returns the index of a page list in its table. The high half is the height, 0
 * for lists with page addresses. The low half is the number among the lists of
 * that height.
 */
static uint64_t page_list_index(unsigned height, uint32_t number)
{
    return (uint64_t)height << 32 | number;
}

/* Returns the cached list, or NULL. */
static QrnicPageList *page_list_kept(QrnicEngine *e, const QrnicPages *p,
                                     uint64_t index)
{
    QrnicPageList *set = page_list_set(e, p->id, index);

    for (unsigned i = 0; i < QRNIC_PAGE_LIST_WAYS; i++) {
        if (set[i].id == p->id && set[i].index == index) {
            return &set[i];
        }
    }
    return NULL;
}

/* List that was used last, and whether it came from the cache */
typedef struct LastList {
    uint64_t index;
    bool kept;
} LastList;

static const uint64_t *page_list_get(QrnicEngine *e, QrnicPages *p,
                                     unsigned height, uint32_t number,
                                     LastList *last, enum qrnic_syndrome *why)
{
    uint64_t index = page_list_index(height, number), count, addr;
    QrnicPageList *list = page_list_kept(e, p, index);
    unsigned shift = 9 * height;
    QrnicActivity before;
    bool ok;

    if (list) {
        list->used = ++e->memory->lookups;
        *last = (LastList) { index, true };
        return list->entry;
    }
    if (height + 1 == p->desc.levels) {
        addr = p->desc.root;
    } else {
        const uint64_t *upper = page_list_get(e, p, height + 1, number >> 9,
                                              last, why);

        if (!upper || !entry_address(e, p,
                                     upper[number % QRNIC_PAGE_LIST_ENTRIES],
                                     true, &addr, why)) {
            return NULL;
        }
    }
    /*
     * Entries of this height in the whole table, minus those before this list
     */
    count = ((p->pages + (1ull << shift) - 1) >> shift) -
            (uint64_t)number * QRNIC_PAGE_LIST_ENTRIES;
    count = MIN(count, QRNIC_PAGE_LIST_ENTRIES);

    list = page_list_oldest(page_list_set(e, p->id, index));
    list->id = list->used = 0;
    list->entry = g_renew(uint64_t, list->entry, count);
    qrnic_add(e, QRNIC_COUNTER_MTT_READS, 1);
    trace_qrnic_page_list_read(e->config.name, p->id, height, number, addr,
                               count);
    before = e->activity;
    qrnic_use(e, QRNIC_USE_PAGE_LIST, before.object, number);
    ok = qrnic_dma_read(e, addr, list->entry, count * 8);
    e->activity = before;
    if (!ok) {
        *why = QRNIC_SYN_DMA;
        return NULL;
    }
    for (uint64_t i = 0; i < count; i++) {
        list->entry[i] = qrnic_ld_le64((const uint8_t *)&list->entry[i]);
    }
    list->id = p->id;
    list->index = index;
    list->used = ++e->memory->lookups;
    *last = (LastList) { index, false };
    return list->entry;
}

/* Translates an offset, and joins contiguous pages up to "wanted" bytes. */
static enum qrnic_syndrome walk(QrnicEngine *e, QrnicPages *p, uint64_t offset,
                                uint64_t wanted, bool write, uint64_t *addr,
                                uint64_t *contiguous, LastList *last)
{
    uint64_t page_size = 1ull << p->desc.page_shift, page, entry, got;
    enum qrnic_syndrome why;
    const uint64_t *list;
    unsigned i;

    offset += p->desc.offset;
    page = offset >> p->desc.page_shift;
    list = page_list_get(e, p, 0, page / QRNIC_PAGE_LIST_ENTRIES, last, &why);
    if (!list) {
        return why;
    }
    i = page % QRNIC_PAGE_LIST_ENTRIES;
    entry = list[i];
    if (!entry_address(e, p, entry, false, addr, &why)) {
        return why;
    }
    if (write && p->on_demand && !(entry & QRNIC_PAGE_WRITABLE)) {
        return QRNIC_SYN_PAGE_FAULT;
    }
    *addr += offset & (page_size - 1);
    got = page_size - (offset & (page_size - 1));
    while (got < wanted && ++i < QRNIC_PAGE_LIST_ENTRIES &&
           ++page < p->pages && list[i] == entry + page_size) {
        entry = list[i];
        got += page_size;
    }
    *contiguous = MIN(got, p->length - (offset - p->desc.offset));
    return QRNIC_SYN_NONE;
}

/*
 * Translates an offset. A cached list is read again if its entry is absent,
 * because the guest may have paged in meanwhile. The new entry may lead to
 * another cached list, so each level may need this.
 */
static enum qrnic_syndrome translate(QrnicEngine *e, QrnicPages *p,
                                     uint64_t offset, uint64_t wanted,
                                     bool write, uint64_t *addr,
                                     uint64_t *contiguous)
{
    enum qrnic_syndrome result;
    LastList last = { 0 };
    QrnicPageList *list;

    if (offset >= p->length) {
        return QRNIC_SYN_DMA;
    }
    if (p->desc.levels == 0) {
        *addr = p->desc.root + offset;
        *contiguous = p->length - offset;
        return QRNIC_SYN_NONE;
    }
    for (unsigned i = 0; ; i++) {
        result = walk(e, p, offset, wanted, write, addr, contiguous, &last);
        if (result != QRNIC_SYN_PAGE_FAULT || !last.kept ||
            i == p->desc.levels) {
            return result;
        }
        list = page_list_kept(e, p, last.index);
        list->id = list->used = 0;
    }
}

enum qrnic_syndrome qrnic_pages_translate(QrnicEngine *e, QrnicPages *p,
                                          uint64_t offset, bool write,
                                          uint64_t *addr,
                                          uint64_t *contiguous)
{
    return translate(e, p, offset, 1, write, addr, contiguous);
}

enum qrnic_syndrome qrnic_pages_read(QrnicEngine *e, QrnicPages *p,
                                     uint64_t offset, void *buf, size_t len)
{
    uint8_t *to = buf;

    while (len) {
        uint64_t addr, n;
        enum qrnic_syndrome why = translate(e, p, offset, len, false, &addr,
                                            &n);

        if (why) {
            return why;
        }
        n = MIN(n, len);
        if (!qrnic_dma_read(e, addr, to, n)) {
            return QRNIC_SYN_DMA;
        }
        to += n;
        offset += n;
        len -= n;
    }
    return QRNIC_SYN_NONE;
}

enum qrnic_syndrome qrnic_pages_write(QrnicEngine *e, QrnicPages *p,
                                      uint64_t offset, const void *buf,
                                      size_t len)
{
    const uint8_t *from = buf;

    while (len) {
        uint64_t addr, n;
        enum qrnic_syndrome why = translate(e, p, offset, len, true, &addr,
                                            &n);

        if (why) {
            return why;
        }
        n = MIN(n, len);
        if (!qrnic_dma_write(e, addr, from, n)) {
            return QRNIC_SYN_DMA;
        }
        from += n;
        offset += n;
        len -= n;
    }
    return QRNIC_SYN_NONE;
}
