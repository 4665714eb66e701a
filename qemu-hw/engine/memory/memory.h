/*
 * qrnic engine, floor memory: DMA, page lists, keys, windows, device memory,
 * protection domains
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_MEMORY_H
#define QRNIC_ENGINE_MEMORY_H

#include "engine/core/core.h"

/* mkey.c */
typedef struct QrnicPd {
    uint32_t number;
    uint32_t users;
} QrnicPd;

/* DMA with counting; every access of the engine goes through these two. */
bool qrnic_dma_read(QrnicEngine *e, uint64_t addr, void *buf, size_t len);
bool qrnic_dma_write(QrnicEngine *e, uint64_t addr, const void *buf,
                     size_t len);

/*
 * pages.c: a translation table in guest memory, walked by DMA. The lists read
 * are in a cache that all tables of the device share, so that a guest cannot
 * make it grow without bound.
 */
typedef struct QrnicPages {
    QrnicTranslation desc;
    bool on_demand;             /* its entries have the flags page_entry */
    uint64_t length;            /* bytes that the table describes */
    uint64_t pages;             /* the same in pages; 0 for levels 0 */
    uint64_t id;                /* tag of its lists in the cache */
} QrnicPages;

/* Checks the descriptor for length bytes; on error the offending offset. */
bool qrnic_pages_init(QrnicEngine *e, QrnicPages *p,
                      const QrnicTranslation *desc, uint64_t length,
                      bool on_demand, uint32_t *bad_offset);
/* The same for a ring, which begins with a page, and may be read at once. */
bool qrnic_ring_init(QrnicEngine *e, QrnicPages *p,
                     const QrnicTranslation *desc, uint64_t length,
                     uint32_t struct_offset, QrnicResult *error);
/*
 * Bus address of byte offset of the described memory, and how many bytes from
 * there are contiguous, if its page is there for such an access. SYN_DMA: the
 * table could not be read, or is wrong; SYN_PAGE_FAULT: the page is absent, in
 * a table where it may be.
 */
enum qrnic_syndrome qrnic_pages_translate(QrnicEngine *e, QrnicPages *p,
                                          uint64_t offset, bool write,
                                          uint64_t *addr,
                                          uint64_t *contiguous);
/* The same; on an error a part may have been accessed. */
enum qrnic_syndrome qrnic_pages_read(QrnicEngine *e, QrnicPages *p,
                                     uint64_t offset, void *buf, size_t len);
enum qrnic_syndrome qrnic_pages_write(QrnicEngine *e, QrnicPages *p,
                                      uint64_t offset, const void *buf,
                                      size_t len);
/* What was read of the table is not used again. */
void qrnic_pages_forget(QrnicEngine *e, QrnicPages *p);
void qrnic_page_lists_drop(QrnicEngine *e);

/* One page list of a translation table, or the used part of it */
typedef struct QrnicPageList {
    uint64_t id;                /* QrnicPages.id; 0: empty */
    uint64_t index;             /* which list of the table */
    uint64_t used;              /* when: QrnicMemory.lookups */
    uint64_t *entry;
} QrnicPageList;

/* Lists: 16 MiB when all are full. Each has its place in one set. */
#define QRNIC_PAGE_LIST_CACHE 4096
#define QRNIC_PAGE_LIST_WAYS 4

/* device_memory.c */
typedef struct QrnicDm {
    uint32_t number;
    uint32_t users;             /* keys */
    QrnicDmCtx ctx;
} QrnicDm;

/* Who uses keys: a queue pair, of which this floor knows no more */
typedef struct QrnicKeyUser {
    uint32_t number;
    uint32_t pd;
    uint32_t windows;           /* type 2, bound by it */
} QrnicKeyUser;

/* mkey.c */
typedef struct QrnicPieces QrnicPieces;
typedef struct QrnicMkey {
    uint32_t index;
    QrnicMkeyCtx ctx;           /* of a window, of a fast registration: now */
    QrnicPages pages;
    bool valid;
    uint64_t max_length;        /* fast registration */
    uint32_t region;            /* window: index of the region */
    uint64_t region_addr;       /* and where in it it begins */
    QrnicKeyUser *user;         /* window type 2: bound by */
    uint32_t windows;           /* region: windows bound to it */
    QrnicDm *dm;                /* region of device memory: what it lies in */
    QrnicPieces *pieces;        /* indirect and valid: what it is made of */
} QrnicMkey;

#define QRNIC_REMOTE_RIGHTS (QRNIC_ACCESS_REMOTE_WRITE | \
                             QRNIC_ACCESS_REMOTE_READ | \
                             QRNIC_ACCESS_REMOTE_ATOMIC)

/* Who may be written to from afar may be at home (IB 10.6.3.1). */
static inline bool qrnic_access_allowed(uint8_t asked, uint8_t local)
{
    return !(asked & (QRNIC_ACCESS_REMOTE_WRITE |
                      QRNIC_ACCESS_REMOTE_ATOMIC)) ||
           local & QRNIC_ACCESS_LOCAL_WRITE;
}

static inline bool qrnic_mkey_is_window(const QrnicMkey *k)
{
    return k->ctx.type == QRNIC_MKEY_MW_1 || k->ctx.type == QRNIC_MKEY_MW_2;
}

/*
 * FEATURES M2: index and variant, PD, range, access; in this order. A right
 * of REMOTE_RIGHTS makes it a remote access, by this queue pair (else 0).
 */
enum qrnic_syndrome qrnic_memory_check_qp(QrnicEngine *e, uint32_t key,
                                          uint32_t pd, uint32_t qpn,
                                          uint64_t addr, uint64_t len,
                                          uint8_t access, QrnicMkey **mkey);
static inline enum qrnic_syndrome
qrnic_memory_check(QrnicEngine *e, uint32_t key, uint32_t pd, uint64_t addr,
                   uint64_t len, uint8_t access, QrnicMkey **mkey)
{
    return qrnic_memory_check_qp(e, key, pd, 0, addr, len, access, mkey);
}
/*
 * The page fault of one access. It is on the stack of the caller, who passes it
 * to qrnic_page_fault() if the queue pair is to wait for the page.
 */
typedef struct QrnicFault {
    QrnicPageFault at;
    uint64_t room;              /* bytes from there on that lie behind it */
} QrnicFault;

/*
 * After a check. addr is the key user's address. SYN_DMA: DMA failed;
 * SYN_PAGE_FAULT: the page that *fault names is absent; else an indirect key
 * has a bad piece. fault may be NULL.
 */
enum qrnic_syndrome qrnic_memory_read(QrnicEngine *e, QrnicMkey *k,
                                      uint64_t addr, void *buf, size_t len,
                                      QrnicFault *fault);
enum qrnic_syndrome qrnic_memory_write(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, const void *buf,
                                       size_t len, QrnicFault *fault);
/* Fills in op->original; addr is a multiple of 8. */
enum qrnic_syndrome qrnic_memory_atomic(QrnicEngine *e, QrnicMkey *k,
                                        uint64_t addr, QrnicAtomic *op,
                                        QrnicFault *fault);
/*
 * As an access of this many bytes, at least 1, would answer, but for what only
 * DMA finds out. Nothing is accessed.
 */
enum qrnic_syndrome qrnic_memory_probe(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, size_t len, bool write,
                                       QrnicFault *fault);

/* The same for 8 bytes that are written as a whole */
enum qrnic_syndrome qrnic_memory_probe_atomic(QrnicEngine *e, QrnicMkey *k,
                                              uint64_t addr,
                                              QrnicFault *fault);
/*
 * If the access has met an absent page, it needs so many bytes from there on in
 * all. The pager is asked for a part of them at most, because buffers may be
 * far longer than messages, and one request must not page in gigabytes. Bytes
 * behind a piece of an indirect key lie elsewhere. Returns the syndrome.
 */
static inline enum qrnic_syndrome
qrnic_fault_extend(QrnicFault *fault, enum qrnic_syndrome syndrome,
                   uint64_t len)
{
    if (syndrome == QRNIC_SYN_PAGE_FAULT && fault) {
        len = MIN(len, fault->room);
        fault->at.length = MAX(fault->at.length,
                               MIN(len, QRNIC_PAGE_FAULT_AHEAD));
    }
    return syndrome;
}

/* device_memory.c: what a key of its type says, and accesses by such a key */
QrnicResult qrnic_dm_key_check(QrnicEngine *e, const QrnicMkeyCtx *in,
                               QrnicDm **dm);
void qrnic_dm_read(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                   void *buf, size_t len);
void qrnic_dm_write(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                    const void *buf, size_t len);
/* As one access of the host; false: it cannot, and nothing was done. */
bool qrnic_dm_atomic(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                     QrnicAtomic *op);
void qrnic_dm_init(QrnicEngine *e);
void qrnic_dm_cleanup(QrnicEngine *e);
void qrnic_dm_reset(QrnicEngine *e);
bool qrnic_dm_clearing(const QrnicEngine *e);
/* Clears more of what is to be cleared. */
void qrnic_dm_process(QrnicEngine *e);

/*
 * window.c: what is not SYN_NONE goes with MW_BIND_ERR. The keys must be of the
 * user's PD.
 */
enum qrnic_syndrome qrnic_window_bind(QrnicEngine *e, QrnicKeyUser *user,
                                      const QrnicBindSeg *b);
enum qrnic_syndrome qrnic_region_register(QrnicEngine *e,
                                          const QrnicKeyUser *user,
                                          const QrnicRegSeg *r);
enum qrnic_syndrome qrnic_local_invalidate(QrnicEngine *e,
                                           const QrnicKeyUser *user,
                                           uint32_t key);
/* For a send with invalidate, whose key must be of this PD */
enum qrnic_syndrome qrnic_remote_invalidate(QrnicEngine *e,
                                            const QrnicKeyUser *user,
                                            uint32_t pd, uint32_t key);
/* A key is about to go, or to be replaced. */
void qrnic_window_unbind(QrnicEngine *e, QrnicMkey *k);
/* A user is about to go: with it the windows that it alone uses. */
void qrnic_key_user_gone(QrnicEngine *e, const QrnicKeyUser *user);

/*
 * indirect.c: keys that are made of pieces of other keys. max_pieces of each is
 * reserved from when the key is made until it is released.
 */
bool qrnic_pieces_reserve(QrnicEngine *e, uint32_t count);
void qrnic_pieces_release(QrnicEngine *e, QrnicMkey *k);
void qrnic_pieces_cleanup(QrnicEngine *e);
/* What can be said before the list is read, which has so many bytes */
enum qrnic_syndrome qrnic_indirect_check(QrnicEngine *e,
                                         const QrnicKeyUser *user,
                                         const QrnicIndirectSeg *s,
                                         uint64_t bytes);
/* After such a check. */
enum qrnic_syndrome qrnic_indirect_register(QrnicEngine *e,
                                            const QrnicIndirectSeg *s,
                                            const uint8_t *list,
                                            uint64_t bytes);
/*
 * The piece where an address of a valid indirect key lies. Returns the key of
 * the piece; *addr becomes that key's address, *length what is left from there.
 */
uint32_t qrnic_piece_find(const QrnicMkey *k, uint64_t *addr,
                          uint64_t *length);

typedef struct QrnicMemory {
    QrnicTable pds, mkeys, dms;
    uint32_t pieces_reserved;   /* of QRNIC_MAX_ALL_PIECES */
    unsigned long *dm_pages;    /* bitmap of those that are somebody's */
    uint64_t dm_clear, dm_clear_end;    /* pages still to be cleared */
    bool dm_dirty;              /* since a reset; these are all there are */
    QrnicPageList *page_lists;  /* sets, by id and index */
    uint64_t lookups;
    uint64_t next_pages_id;
} QrnicMemory;

extern const QrnicFloor qrnic_memory_floor;

static inline QrnicPd *qrnic_pd_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->memory->pds, number);
}

static inline QrnicMkey *qrnic_mkey_get(QrnicEngine *e, uint32_t index)
{
    return qrnic_table_get(&e->memory->mkeys, index);
}

static inline QrnicDm *qrnic_dm_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->memory->dms, number);
}

#endif
