/*
 * qrnic engine: the operations it needs from outside
 *
 * The same engine runs in QEMU, in a unit test on a simulated wire, and in a
 * fuzzer; this table is all that it knows of them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_ENV_H
#define QRNIC_ENGINE_ENV_H

#define QRNIC_DEADLINE_NEVER INT64_MAX

/* On 8 bytes, little endian, at an address that is a multiple of 8 */
typedef struct QrnicAtomic {
    bool compare_swap;          /* else fetch and add */
    uint64_t swap_add, compare;
    uint64_t original;          /* what was there before */
} QrnicAtomic;

typedef struct QrnicEnv {
    void *opaque;

    /* Bus. Both return false when any byte of the access failed. */
    bool (*dma_read)(void *opaque, uint64_t addr, void *buf, size_t len);
    bool (*dma_write)(void *opaque, uint64_t addr, const void *buf, size_t len);

    /*
     * One access, atomic also against the CPUs of the guest. False: that is
     * not possible at this address, and nothing was done. Not called by an
     * engine without CAP_ATOMIC_GLOB.
     */
    bool (*dma_atomic)(void *opaque, uint64_t addr, QrnicAtomic *op);

    /*
     * Device memory, of config.device_memory bytes; inside of it always. Not
     * called by an engine without CAP_DEVICE_MEMORY.
     */
    void (*dm_read)(void *opaque, uint64_t offset, void *buf, size_t len);
    void (*dm_write)(void *opaque, uint64_t offset, const void *buf,
                     size_t len);
    bool (*dm_atomic)(void *opaque, uint64_t offset, QrnicAtomic *op);

    /*
     * Wire. Takes the frame (without FCS) in any case; false means that no
     * further one can be taken until qrnic_engine_wire_ready() is called.
     */
    bool (*send)(void *opaque, const uint8_t *frame, size_t len);

    /* Interrupt: send the message of this vector. */
    void (*notify)(void *opaque, unsigned vector);

    /* Virtual time in ns, from any origin. */
    int64_t (*clock_ns)(void *opaque);

    /*
     * Real time in ns since 1970, which continues over a restart of the
     * process. NULL: clock_ns is used.
     */
    int64_t (*real_time_ns)(void *opaque);

    /*
     * Call qrnic_engine_timer() at this time or soon after; replaces the
     * deadline before, QRNIC_DEADLINE_NEVER cancels it.
     */
    void (*timer_arm)(void *opaque, int64_t deadline_ns);

    /*
     * Call qrnic_engine_run() soon, from a clean stack. Not said again before
     * that is done, unless the engine is reset.
     */
    void (*kick)(void *opaque);

    /* The engine fell into the fatal state. */
    void (*fatal)(void *opaque, unsigned cause, uint32_t info);
} QrnicEnv;

#endif
