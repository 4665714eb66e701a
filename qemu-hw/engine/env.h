/*
 * qrnic engine: its environment: all that the engine needs from outside
 *
 * QEMU (device/engine_env.c), the unit tests with a simulated wire, and the
 * fuzzer pass a table of their own to qrnic_engine_new(). The engine calls an
 * operation only while the environment executes a function of engine.h. These
 * functions are not nested, so an operation must postpone a call that it needs.
 * Only qrnic_engine_invalidate(), the functions for page requests and
 * qrnic_doorbell_write_nested() may be called inside an operation.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_ENV_H
#define QRNIC_ENGINE_ENV_H

#include "qrnic_hw.h"

#define QRNIC_DEADLINE_NEVER INT64_MAX

/* Result of a command */
typedef struct QrnicResult {
    uint8_t status;             /* enum qrnic_cmd_status */
    uint32_t value;             /* number of a created object */
    /*
     * Reason of an error: usually the offset of the invalid member of the input
     */
    uint32_t syndrome;
} QrnicResult;

/* Atomic operation on 8 bytes, little endian, at a multiple of 8 */
typedef struct QrnicAtomic {
    bool compare_swap;          /* else fetch and add */
    uint64_t swap_add, compare;
    uint64_t original;          /* value before the operation */
} QrnicAtomic;

/* Translation of a virtual address */
typedef struct QrnicTranslated {
    uint64_t address;           /* translated address of the page */
    uint8_t page_shift;         /* log2 of the page size, 12 to 63 */
    bool writable;
} QrnicTranslated;

/* Result of a request for a translation */
typedef enum QrnicTranslate {
    QRNIC_TRANSLATE_OK,         /* the page may be read */
    QRNIC_TRANSLATE_ABSENT,     /* the process may access nothing there now */
    QRNIC_TRANSLATE_FAILED,     /* the IOMMU rejects the request */
} QrnicTranslate;

typedef struct QrnicEnv {
    void *opaque;

    /* Read and write the bus. Return false if any byte of the access failed. */
    bool (*dma_read)(void *opaque, uint64_t addr, void *buf, size_t len);
    bool (*dma_write)(void *opaque, uint64_t addr, const void *buf, size_t len);

    /*
     * Executes an atomic as one access, which is also atomic against the CPUs
     * of the guest. Returns false if that is impossible at this address; then
     * nothing was done. Used only with CAP_ATOMIC_GLOB.
     */
    bool (*dma_atomic)(void *opaque, uint64_t addr, QrnicAtomic *op);

    /*
     * Requests the translation of the page of a virtual address (PCIe, 10.2.2).
     * A write to the page follows if write is true; the result may still be
     * read-only. NULL: there is no CAP_SHARED_VIRTUAL. The environment reports
     * each invalidation of a translation to qrnic_engine_invalidate().
     */
    QrnicTranslate (*translate)(void *opaque, uint32_t pasid, uint64_t addr,
                                bool write, QrnicTranslated *result);

    /*
     * Requests that the operating system pages in a page (PCIe, 10.4). group is
     * below QRNIC_PAGE_GROUPS; last is true for the last page of the group.
     * Returns false if the request was not accepted, and then the group has no
     * response. Otherwise the environment passes the response to
     * qrnic_engine_page_response(). Used only if
     * qrnic_engine_page_requests_limit() has set a limit.
     */
    bool (*page_request)(void *opaque, uint32_t pasid, uint64_t addr,
                         bool write, uint16_t group, bool last);

    /*
     * Access the bus at translated addresses, and work otherwise like dma_read,
     * dma_write and dma_atomic. Used only with translate.
     */
    bool (*translated_read)(void *opaque, uint64_t addr, void *buf, size_t len);
    bool (*translated_write)(void *opaque, uint64_t addr, const void *buf,
                             size_t len);
    bool (*translated_atomic)(void *opaque, uint64_t addr, QrnicAtomic *op);

    /*
     * Access device memory, always within config.device_memory bytes. Used only
     * with CAP_DEVICE_MEMORY.
     */
    void (*dm_read)(void *opaque, uint64_t offset, void *buf, size_t len);
    void (*dm_write)(void *opaque, uint64_t offset, const void *buf,
                     size_t len);
    bool (*dm_atomic)(void *opaque, uint64_t offset, QrnicAtomic *op);

    /*
     * Sends a frame (without FCS) to the wire, and always accepts it. Returns
     * false if the wire is busy. The engine then sends no further frame until
     * qrnic_engine_wire_ready() is called.
     */
    bool (*send)(void *opaque, const uint8_t *frame, size_t len);

    /* Sends the interrupt of this vector. */
    void (*notify)(void *opaque, unsigned vector);

    /* Returns the virtual time in ns, from any origin. */
    int64_t (*clock_ns)(void *opaque);

    /*
     * Returns the real time in ns since 1970, which continues after a restart
     * of the process. NULL: clock_ns is used.
     */
    int64_t (*real_time_ns)(void *opaque);

    /*
     * Requests a call of qrnic_engine_timer() at this time or soon after. Each
     * call replaces the previous deadline; QRNIC_DEADLINE_NEVER cancels it.
     */
    void (*timer_arm)(void *opaque, int64_t deadline_ns);

    /*
     * Requests a call of qrnic_engine_run() soon, but not from within this
     * call. The engine does not repeat the request before that run, unless it
     * is reset.
     */
    void (*kick)(void *opaque);

    /*
     * Reports the new receive filter of the Ethernet function. Multicast groups
     * of RoCE are not part of it. NULL: the filter is not used.
     */
    void (*filter)(void *opaque, const QrnicRxFilter *filter);

    /*
     * Execute SET_VF and QUERY_VF for a virtual function. NULL: there is no
     * CAP_SRIOV.
     */
    QrnicResult (*vf_set)(void *opaque, uint32_t number, const QrnicVfCtx *in);
    QrnicResult (*vf_query)(void *opaque, uint32_t number, QrnicVfAttr *out);

    /* Reports that the engine is in the fatal state. */
    void (*fatal)(void *opaque, unsigned cause, uint32_t info);
} QrnicEnv;

#endif
