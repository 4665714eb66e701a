/*
 * qrnic engine, layer memory: DMA, translation tables, keys, memory windows,
 * device memory, and protection domains
 *
 * Commands create the objects. A queue pair accesses memory by key in two
 * steps. qrnic_memory_check_qp() validates the key and the range. Then
 * qrnic_memory_read(), qrnic_memory_write() or qrnic_memory_atomic() accesses
 * the range. Queues access their rings with qrnic_pages_read() and
 * qrnic_pages_write(). The layer knows no queue pairs, only QrnicKeyUser.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_MEMORY_H
#define QRNIC_ENGINE_MEMORY_H

#include "engine/core/core.h"

/* Protection domain; users counts keys and queues */
typedef struct QrnicPd {
    uint32_t number;
    uint32_t users;
} QrnicPd;

/**
 * qrnic_dma_read:
 * @e: the engine
 * @addr: bus address
 * @buf: receives the data; zeros if the DMA fails
 * @len: number of bytes; 0 is allowed
 *
 * Reads from the bus, counts the access, and reports a failure as a guest
 * error. Every DMA of the engine uses this function or qrnic_dma_write(),
 * except for atomics that the host executes as one access.
 *
 * Returns: true, or false if the DMA failed
 */
bool qrnic_dma_read(QrnicEngine *e, uint64_t addr, void *buf, size_t len);
/**
 * qrnic_dma_write:
 * @e: the engine
 * @addr: bus address
 * @buf: the data
 * @len: number of bytes; 0 is allowed
 *
 * Writes to the bus like qrnic_dma_read() reads.
 *
 * Returns: true, or false if the DMA failed; a part may have been written
 */
bool qrnic_dma_write(QrnicEngine *e, uint64_t addr, const void *buf,
                     size_t len);

/**
 * qrnic_translated_read:
 * @e: the engine
 * @addr: translated address
 * @buf: receives the data; zeros if the DMA fails
 * @len: number of bytes; 0 is allowed
 *
 * Works like qrnic_dma_read() at an address that the IOMMU does not translate
 * again.
 *
 * Returns: true, or false if the DMA failed
 */
bool qrnic_translated_read(QrnicEngine *e, uint64_t addr, void *buf,
                           size_t len);
/**
 * qrnic_translated_write:
 * @e: the engine
 * @addr: translated address
 * @buf: the data
 * @len: number of bytes; 0 is allowed
 *
 * Works like qrnic_dma_write() at an address that the IOMMU does not translate
 * again.
 *
 * Returns: true, or false if the DMA failed; a part may have been written
 */
bool qrnic_translated_write(QrnicEngine *e, uint64_t addr, const void *buf,
                            size_t len);

/*
 * Translation table in guest memory, read by DMA. All tables share one cache of
 * page lists, so that a guest cannot use unlimited memory of the host.
 */
typedef struct QrnicPages {
    QrnicTranslation desc;
    bool on_demand;             /* entries have the flags of page_entry */
    uint64_t length;            /* bytes that the table describes */
    /* pages that the table describes; 0 for levels 0 */
    uint64_t pages;
    uint64_t id;                /* tag of the page lists in the cache */
} QrnicPages;

/**
 * qrnic_pages_init:
 * @e: the engine
 * @p: receives the table
 * @desc: descriptor of the table, from a command or a WQE
 * @length: bytes that the table must describe
 * @on_demand: entries may be absent
 * @bad_offset: receives the offset of the invalid member of @desc
 *
 * Validates the descriptor. The table itself is read at the first access.
 *
 * Returns: true, or false if the descriptor is invalid
 */
bool qrnic_pages_init(QrnicEngine *e, QrnicPages *p,
                      const QrnicTranslation *desc, uint64_t length,
                      bool on_demand, uint32_t *bad_offset);
/**
 * qrnic_ring_init:
 * @e: the engine
 * @p: receives the table
 * @desc: descriptor of the table
 * @length: size of the ring in bytes
 * @struct_offset: offset of @desc in the input of the command
 * @error: receives the result of the command if the function fails
 *
 * Works like qrnic_pages_init(), but the ring must begin at the start of a
 * page. The first entry of the table is read, so that an unreadable table fails
 * the command.
 *
 * Returns: true, or false with *@error set
 */
bool qrnic_ring_init(QrnicEngine *e, QrnicPages *p,
                     const QrnicTranslation *desc, uint64_t length,
                     uint32_t struct_offset, QrnicResult *error);
/**
 * qrnic_pages_translate:
 * @e: the engine
 * @p: the table
 * @offset: offset in the described memory
 * @write: true if the access writes
 * @addr: receives the bus address
 * @contiguous: receives the number of bytes that follow at that address
 *
 * Returns: SYN_NONE; SYN_DMA if the table is unreadable or invalid; or
 * SYN_PAGE_FAULT if the page is absent, or read-only for a write. Only a table
 * with on_demand returns SYN_PAGE_FAULT.
 */
enum qrnic_syndrome qrnic_pages_translate(QrnicEngine *e, QrnicPages *p,
                                          uint64_t offset, bool write,
                                          uint64_t *addr,
                                          uint64_t *contiguous);
/**
 * qrnic_pages_read:
 * @e: the engine
 * @p: the table
 * @offset: offset in the described memory
 * @buf: receives the data
 * @len: number of bytes
 *
 * Returns: the syndromes of qrnic_pages_translate(), and SYN_DMA if the DMA
 * failed. If an error is returned, a part may have been read.
 */
enum qrnic_syndrome qrnic_pages_read(QrnicEngine *e, QrnicPages *p,
                                     uint64_t offset, void *buf, size_t len);
/**
 * qrnic_pages_write:
 * @e: the engine
 * @p: the table
 * @offset: offset in the described memory
 * @buf: the data
 * @len: number of bytes
 *
 * Returns: as qrnic_pages_read()
 */
enum qrnic_syndrome qrnic_pages_write(QrnicEngine *e, QrnicPages *p,
                                      uint64_t offset, const void *buf,
                                      size_t len);
/**
 * qrnic_pages_forget:
 * @e: the engine
 * @p: the table
 *
 * Invalidates all cached page lists of the table, because the guest has changed
 * it.
 */
void qrnic_pages_forget(QrnicEngine *e, QrnicPages *p);
/**
 * qrnic_page_lists_drop:
 * @e: the engine
 *
 * Frees all cached page lists of the device.
 */
void qrnic_page_lists_drop(QrnicEngine *e);

/*
 * Cached page list of a translation table; a short list has only the used
 * entries
 */
typedef struct QrnicPageList {
    /* QrnicPages.id; 0 for an empty entry of the cache */
    uint64_t id;
    uint64_t index;             /* page_list_index() of the list in its table */
    uint64_t used;              /* QrnicMemory.lookups at the last use */
    uint64_t *entry;
} QrnicPageList;

/* Number of cached lists (16 MiB if all are full), and size of a set */
#define QRNIC_PAGE_LIST_CACHE 4096
#define QRNIC_PAGE_LIST_WAYS 4

/* Allocated range of device memory */
typedef struct QrnicDm {
    uint32_t number;
    uint32_t users;             /* number of keys */
    QrnicDmCtx ctx;
} QrnicDm;

/* Process that owns a doorbell page, and the only process of its WQEs */
typedef struct QrnicProcess {
    uint32_t pasid;             /* 0: none */
    /* valid keys that a WQE registered for this process */
    uint32_t keys;
} QrnicProcess;

/* User of keys: the part of a queue pair that this layer needs */
typedef struct QrnicKeyUser {
    uint32_t number;
    uint32_t pd;
    /* owner of the doorbell page, or NULL for the page of the kernel */
    QrnicProcess *process;
    /* number of windows of type 2 bound by the user */
    uint32_t windows;
} QrnicKeyUser;

/*
 * Memory key of any type. The comment of a member names the types of keys that
 * use it, unless all do.
 */
typedef struct QrnicPieces QrnicPieces;

/* Location of the memory of a key that is neither a window nor indirect */
typedef enum QrnicBacking {
    QRNIC_BACKING_TABLE,        /* pages of a translation table */
    QRNIC_BACKING_BUS,          /* bus addresses */
    QRNIC_BACKING_DM,           /* device memory */
    QRNIC_BACKING_NULL,         /* no memory */
    QRNIC_BACKING_PROCESS,      /* virtual addresses of a process */
} QrnicBacking;

typedef struct QrnicMkey {
    uint32_t index;
    QrnicBacking backing;
    /* present values; a window and a fast registration key change them */
    QrnicMkeyCtx ctx;
    QrnicPages pages;
    bool valid;
    uint64_t max_length;        /* fast registration: maximum of ctx.length */
    uint32_t region;            /* window: index of the key of the region */
    /* window: address in the region at which it begins */
    uint64_t region_addr;
    QrnicKeyUser *user;         /* window of type 2: queue pair that bound it */
    uint32_t windows;           /* region: number of windows bound to it */
    /* key of device memory: the range that contains it */
    QrnicDm *dm;
    QrnicPieces *pieces;        /* valid indirect key: its pieces */
    /* valid fast registration key with MKEYF_PASID: owner of the addresses */
    QrnicProcess *process;
} QrnicMkey;

#define QRNIC_REMOTE_RIGHTS (QRNIC_ACCESS_REMOTE_WRITE | \
                             QRNIC_ACCESS_REMOTE_READ | \
                             QRNIC_ACCESS_REMOTE_ATOMIC)

/*
 * Returns true if a key may have the rights "asked" while its memory has the
 * rights "local". Remote write and remote atomic need local write (IB
 * 10.6.3.1).
 */
static inline bool qrnic_access_allowed(uint8_t asked, uint8_t local)
{
    return !(asked & (QRNIC_ACCESS_REMOTE_WRITE |
                      QRNIC_ACCESS_REMOTE_ATOMIC)) ||
           local & QRNIC_ACCESS_LOCAL_WRITE;
}

/* Returns true if the key is a memory window of any type. */
static inline bool qrnic_mkey_is_window(const QrnicMkey *k)
{
    return k->ctx.type == QRNIC_MKEY_MW_1 || k->ctx.type == QRNIC_MKEY_MW_2;
}

/**
 * qrnic_memory_check_qp:
 * @e: the engine
 * @key: lkey or rkey: index and variant
 * @pd: protection domain of the access
 * @qpn: number of the queue pair of a remote access, else 0
 * @addr: address that the key's user names
 * @len: number of bytes
 * @access: required rights; a right of QRNIC_REMOTE_RIGHTS makes the access
 *   remote
 * @mkey: receives the key, or NULL on an error
 *
 * Checks index and variant, PD, type, range and rights, in this order.
 *
 * Returns: SYN_NONE, or SYN_KEY_* for the first check that fails
 */
enum qrnic_syndrome qrnic_memory_check_qp(QrnicEngine *e, uint32_t key,
                                          uint32_t pd, uint32_t qpn,
                                          uint64_t addr, uint64_t len,
                                          uint8_t access, QrnicMkey **mkey);
/**
 * qrnic_memory_check:
 *
 * Checks a local access: qrnic_memory_check_qp() without a queue pair.
 */
static inline enum qrnic_syndrome
qrnic_memory_check(QrnicEngine *e, uint32_t key, uint32_t pd, uint64_t addr,
                   uint64_t len, uint8_t access, QrnicMkey **mkey)
{
    return qrnic_memory_check_qp(e, key, pd, 0, addr, len, access, mkey);
}
/*
 * Page fault of an access. The caller has it on its stack, and passes it to
 * qrnic_page_fault() if the queue pair shall wait for the page.
 */
typedef struct QrnicFault {
    QrnicPageFault at;
    uint64_t room;              /* bytes from there to the end of the piece */
    uint64_t absent;            /* process: offset of the absent page */
} QrnicFault;

/**
 * qrnic_memory_read:
 * @e: the engine
 * @k: key that qrnic_memory_check_qp() returned for this range
 * @addr: address that the key's user names
 * @buf: receives the data
 * @len: number of bytes
 * @fault: receives the page fault, or NULL
 *
 * Returns: SYN_NONE or an error. SYN_DMA: the DMA failed. SYN_PAGE_FAULT: a
 * page is absent, and *@fault is set. SYN_CHILD_*, SYN_KEY_*: a piece of an
 * indirect key is invalid. If an error is returned, a part may have been read.
 */
enum qrnic_syndrome qrnic_memory_read(QrnicEngine *e, QrnicMkey *k,
                                      uint64_t addr, void *buf, size_t len,
                                      QrnicFault *fault);
/**
 * qrnic_memory_write:
 * @e: the engine
 * @k: key that qrnic_memory_check_qp() returned for this range
 * @addr: address that the key's user names
 * @buf: the data
 * @len: number of bytes
 * @fault: receives the page fault, or NULL
 *
 * Returns: as qrnic_memory_read()
 */
enum qrnic_syndrome qrnic_memory_write(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, const void *buf,
                                       size_t len, QrnicFault *fault);
/**
 * qrnic_memory_atomic:
 * @e: the engine
 * @k: key that qrnic_memory_check_qp() returned for this range
 * @addr: address that the key's user names, a multiple of 8
 * @op: the operation; receives the original value
 * @fault: receives the page fault, or NULL
 *
 * Executes an atomic. The host executes it as one access if it can.
 *
 * Returns: as qrnic_memory_read(), or SYN_KEY_SPLIT if the 8 bytes lie in two
 * pieces of an indirect key or in two pages of a process
 */
enum qrnic_syndrome qrnic_memory_atomic(QrnicEngine *e, QrnicMkey *k,
                                        uint64_t addr, QrnicAtomic *op,
                                        QrnicFault *fault);
/**
 * qrnic_memory_probe:
 * @e: the engine
 * @k: key that qrnic_memory_check_qp() returned for this range
 * @addr: address that the key's user names
 * @len: number of bytes, at least 1
 * @write: true to probe a write
 * @fault: receives the page fault, or NULL
 *
 * Finds out if an access would succeed, without accessing the memory. Errors
 * that only the DMA itself detects are not found.
 *
 * Returns: as qrnic_memory_read()
 */
enum qrnic_syndrome qrnic_memory_probe(QrnicEngine *e, QrnicMkey *k,
                                       uint64_t addr, size_t len, bool write,
                                       QrnicFault *fault);

/**
 * qrnic_memory_probe_atomic:
 * @e: the engine
 * @k: key that qrnic_memory_check_qp() returned for this range
 * @addr: address that the key's user names
 * @fault: receives the page fault, or NULL
 *
 * Works like qrnic_memory_probe() for 8 bytes that are written as a whole.
 *
 * Returns: as qrnic_memory_atomic()
 */
enum qrnic_syndrome qrnic_memory_probe_atomic(QrnicEngine *e, QrnicMkey *k,
                                              uint64_t addr,
                                              QrnicFault *fault);
/**
 * qrnic_fault_extend:
 * @fault: the page fault of the access, or NULL
 * @syndrome: result of the access
 * @len: bytes from the faulting address that the message needs
 *
 * If the access met an absent page, extends the range that the pager shall page
 * in. The range has a limit, because a buffer may be far longer than its
 * message. The range ends with the piece of an indirect key, because the next
 * piece lies elsewhere.
 *
 * Returns: @syndrome
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

/**
 * qrnic_dm_key_check:
 * @e: the engine
 * @in: context of a new key of type DM
 * @dm: receives the range of device memory
 *
 * Returns: the result of the command that creates the key
 */
QrnicResult qrnic_dm_key_check(QrnicEngine *e, const QrnicMkeyCtx *in,
                               QrnicDm **dm);
/**
 * qrnic_dm_read:
 * @e: the engine
 * @k: key of type DM, checked for this range
 * @addr: address that the key's user names
 * @buf: receives the data
 * @len: number of bytes
 *
 * Reads device memory, which cannot fail.
 */
void qrnic_dm_read(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                   void *buf, size_t len);
/**
 * qrnic_dm_write:
 * @e: the engine
 * @k: key of type DM, checked for this range
 * @addr: address that the key's user names
 * @buf: the data
 * @len: number of bytes
 *
 * Writes device memory, which cannot fail.
 */
void qrnic_dm_write(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                    const void *buf, size_t len);
/**
 * qrnic_dm_atomic:
 * @e: the engine
 * @k: key of type DM, checked for this range
 * @addr: address that the key's user names
 * @op: the operation; receives the original value
 *
 * Executes an atomic as one access of the host.
 *
 * Returns: true, or false if the host cannot and nothing was done
 */
bool qrnic_dm_atomic(QrnicEngine *e, const QrnicMkey *k, uint64_t addr,
                     QrnicAtomic *op);
/**
 * qrnic_dm_init:
 * @e: the engine
 *
 * Prepares the allocation of device memory.
 */
void qrnic_dm_init(QrnicEngine *e);
/**
 * qrnic_dm_cleanup:
 * @e: the engine
 *
 * Frees all ranges and the allocation bitmap.
 */
void qrnic_dm_cleanup(QrnicEngine *e);
/**
 * qrnic_dm_reset:
 * @e: the engine
 *
 * Begins to clear the whole device memory. qrnic_engine_ready() returns false
 * until it is clear.
 */
void qrnic_dm_reset(QrnicEngine *e);
/**
 * qrnic_dm_clearing:
 * @e: the engine
 *
 * Returns: true while pages remain to be cleared
 */
bool qrnic_dm_clearing(const QrnicEngine *e);
/**
 * qrnic_dm_process:
 * @e: the engine
 *
 * Clears a limited number of the remaining pages.
 */
void qrnic_dm_process(QrnicEngine *e);

/**
 * qrnic_window_bind:
 * @e: the engine
 * @user: the queue pair; the keys must be of its PD
 * @b: segment of the WQE; length 0 unbinds a window of type 1
 *
 * Binds a memory window to a range of a region.
 *
 * Returns: SYN_NONE, or the syndrome of a completion with MW_BIND_ERR
 */
enum qrnic_syndrome qrnic_window_bind(QrnicEngine *e, QrnicKeyUser *user,
                                      const QrnicBindSeg *b);
/**
 * qrnic_key_registers:
 * @user: the queue pair
 *
 * Returns: true if the queue pair may register a fast registration key. The
 * kernel registers pages, and a process registers its own virtual addresses.
 */
static inline bool qrnic_key_registers(const QrnicKeyUser *user)
{
    return !user->process || user->process->pasid;
}
/**
 * qrnic_region_register:
 * @e: the engine
 * @user: the queue pair; the key must be of its PD
 * @r: segment of the WQE
 *
 * Makes a fast registration key valid. The PASID of a key with MKEYF_PASID is
 * that of @user, because a WQE must not name the memory of another process.
 *
 * Returns: SYN_NONE, or the syndrome of a completion with MW_BIND_ERR
 */
enum qrnic_syndrome qrnic_region_register(QrnicEngine *e,
                                          const QrnicKeyUser *user,
                                          const QrnicRegSeg *r);
/**
 * qrnic_local_invalidate:
 * @e: the engine
 * @user: the queue pair; the key must be of its PD
 * @key: key to invalidate
 *
 * Executes the WQE "local invalidate".
 *
 * Returns: SYN_NONE, or the syndrome of a completion with MW_BIND_ERR
 */
enum qrnic_syndrome qrnic_local_invalidate(QrnicEngine *e,
                                           const QrnicKeyUser *user,
                                           uint32_t key);
/**
 * qrnic_remote_invalidate:
 * @e: the engine
 * @user: the queue pair that received a send with invalidate
 * @pd: protection domain that the key must have
 * @key: key to invalidate
 *
 * Returns: SYN_NONE, or SYN_KEY_* if the requester may not invalidate the key
 */
enum qrnic_syndrome qrnic_remote_invalidate(QrnicEngine *e,
                                            const QrnicKeyUser *user,
                                            uint32_t pd, uint32_t key);
/**
 * qrnic_window_unbind:
 * @e: the engine
 * @k: a key that is to be destroyed or replaced; any other key than a bound
 *   window is ignored
 *
 * Unbinds a window from its region and its user.
 */
void qrnic_window_unbind(QrnicEngine *e, QrnicMkey *k);
/**
 * qrnic_process_leave:
 * @k: a key of any type that becomes invalid
 *
 * Separates a key from its process.
 */
void qrnic_process_leave(QrnicMkey *k);
/**
 * qrnic_key_user_gone:
 * @e: the engine
 * @user: a queue pair that is to be destroyed or reset
 *
 * Invalidates the windows of type 2 that only this user may use.
 */
void qrnic_key_user_gone(QrnicEngine *e, const QrnicKeyUser *user);

/**
 * qrnic_pieces_reserve:
 * @e: the engine
 * @count: max_pieces of a new indirect key; 0 for other types
 *
 * Reserves pieces for the whole life of a key, so that a later registration
 * cannot exceed the limit of all keys together.
 *
 * Returns: true, or false if the limit of the device is exceeded
 */
bool qrnic_pieces_reserve(QrnicEngine *e, uint32_t count);
/**
 * qrnic_pieces_release:
 * @e: the engine
 * @k: a key of any type
 *
 * Frees the pieces of a key and its reservation.
 */
void qrnic_pieces_release(QrnicEngine *e, QrnicMkey *k);
/**
 * qrnic_pieces_cleanup:
 * @e: the engine
 *
 * Releases the pieces of all keys.
 */
void qrnic_pieces_cleanup(QrnicEngine *e);
/**
 * qrnic_indirect_check:
 * @e: the engine
 * @user: the queue pair; the key must be of its PD
 * @s: segment of the WQE
 * @bytes: length of the list of pieces
 *
 * Checks everything that does not need the list of pieces.
 *
 * Returns: SYN_NONE, or the syndrome of a completion with MW_BIND_ERR
 */
enum qrnic_syndrome qrnic_indirect_check(QrnicEngine *e,
                                         const QrnicKeyUser *user,
                                         const QrnicIndirectSeg *s,
                                         uint64_t bytes);
/**
 * qrnic_indirect_register:
 * @e: the engine
 * @s: segment that qrnic_indirect_check() accepted
 * @list: the list of pieces
 * @bytes: its length
 *
 * Makes an indirect key valid.
 *
 * Returns: SYN_NONE, SYN_PIECES or SYN_KEY_RANGE
 */
enum qrnic_syndrome qrnic_indirect_register(QrnicEngine *e,
                                            const QrnicIndirectSeg *s,
                                            const uint8_t *list,
                                            uint64_t bytes);
/**
 * qrnic_piece_find:
 * @k: a valid indirect key
 * @addr: address inside the key; receives the address in the key of the piece
 * @length: receives the number of bytes from there to the end of the piece
 *
 * Returns: the key of the piece
 */
uint32_t qrnic_piece_find(const QrnicMkey *k, uint64_t *addr,
                          uint64_t *length);

typedef struct QrnicAtc QrnicAtc;
typedef struct QrnicMemory {
    QrnicTable pds, mkeys, dms;
    QrnicAtc *atc;              /* NULL without CAP_SHARED_VIRTUAL */
    uint32_t pieces_reserved;   /* at most QRNIC_MAX_ALL_PIECES */
    unsigned long *dm_pages;    /* bitmap of allocated pages */
    uint64_t dm_clear, dm_clear_end;    /* range of pages to be cleared */
    /* a reset has begun to clear all pages and has not finished */
    bool dm_dirty;
    QrnicPageList *page_lists;  /* cache in sets, selected by id and index */
    uint64_t lookups;
    uint64_t next_pages_id;
} QrnicMemory;

extern const QrnicFloor qrnic_memory_floor;

/* Returns the protection domain, or NULL if there is none of this number. */
static inline QrnicPd *qrnic_pd_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->memory->pds, number);
}

/* Returns the key, valid or not, or NULL if there is none of this index. */
static inline QrnicMkey *qrnic_mkey_get(QrnicEngine *e, uint32_t index)
{
    return qrnic_table_get(&e->memory->mkeys, index);
}

/*
 * Returns the range of device memory, or NULL if there is none of this number.
 */
static inline QrnicDm *qrnic_dm_get(QrnicEngine *e, uint32_t number)
{
    return qrnic_table_get(&e->memory->dms, number);
}

#endif
