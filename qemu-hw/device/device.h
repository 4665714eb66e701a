/*
 * qrnic: the PCI device around the engine: its structure, and the bus below it
 *
 * A device is a PCI Express function: the physical function (type qrnic), or a
 * virtual function (type qrnic-vf). pci.c creates and destroys the parts that
 * both types have. Every other file reaches their state through QrnicDevice,
 * and uses the functions of bus.c below. Only the physical function has
 * properties and a backend (QrnicPf).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_H
#define QRNIC_DEVICE_H

#include "hw/pci/pci_device.h"
#include "net/net.h"
#include "cable/cable.h"
#include "engine/engine.h"
#include "device/state.h"

/*
 * Layers of the device. A file calls only files of lower layers, or files of
 * its own layer that call none of its callers.
 *
 *   pf.c sriov/                                             types, realize
 *   pci.c properties.c                                      faces.h
 *   registers.c wire_net.c wire_cable.c engine_env.c        faces.h
 *   work.c                                                  work.h
 *   interrupts.c commands.c command_queue.c
 *   doorbell_events.c port.c                                parts.h
 *   translation.c                                           device.h
 *   bus.c state.c                                           device.h, state.h
 *   capture.c stop.c                                        capture.h, stop.h
 */

/* Abstract type of all functions */
#define TYPE_QRNIC_FUNCTION "qrnic-function"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicDevice, QRNIC_FUNCTION)

/* Type of the physical function */
#define TYPE_QRNIC "qrnic"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicPf, QRNIC)

/* Offset of the power management capability in the configuration space */
#define QRNIC_PCI_PM_OFFSET 0x40
/* Offsets of the extended capabilities of the property shared-virtual */
#define QRNIC_PCI_PASID_OFFSET 0x1d0
#define QRNIC_PCI_ATS_OFFSET 0x1e0
/* Offset of the extended capability of the property page-requests */
#define QRNIC_PCI_PRI_OFFSET 0x1f0

/* The command queue; see command_queue.c */
typedef struct QrnicCommandQueue {
    QrnicCommandState state;
    uint64_t base;
    uint32_t log_size;
    uint32_t producer, consumer;
    uint32_t generation;        /* incremented when the queue is enabled */
    /* Slots for which CMD_EVENT has requested an event */
    DECLARE_BITMAP(wanted, 1 << QRNIC_CMD_MAX_LOG_SIZE);
    /*
     * In state UNFINISHED: the entry and the result of the unfinished command
     */
    uint64_t reply_addr;
    QrnicCmdEntry reply_entry;
    QrnicResult reply;
} QrnicCommandQueue;

/* Capture of bus and wire (capture.c) */
typedef struct QrnicBusCapture QrnicBusCapture;

/* Stops at events (stop.c) */
typedef struct QrnicStop QrnicStop;

/* Control registers that only store a value */
typedef struct QrnicRegisters {
    uint32_t scratch;
    uint32_t cmd_base_lo, cmd_base_hi, cmd_size;
    uint32_t time_hi;
    uint32_t health, health_info;
} QrnicRegisters;

/*
 * Operations of the wire: a network backend of QEMU (wire_net.c), a cable
 * (wire_cable.c), or the embedded switch (sriov/wire.c)
 */
typedef struct QrnicWire {
    /* Returns true if the link is up. */
    bool (*link)(QrnicDevice *d);
    /*
     * Accepts a frame. Returns false if the wire is busy. The wire adds
     * QRNIC_PENDING_WIRE when it accepts frames again.
     */
    bool (*send)(QrnicDevice *d, const uint8_t *frame, size_t len);
    /*
     * Delivers frames that the wire buffers. The device is not entered. NULL if
     * the wire buffers none.
     */
    void (*flush)(QrnicDevice *d);
    /*
     * Passes some buffered frames to the engine. Returns true if there are
     * more.
     */
    bool (*receive)(QrnicDevice *d);
    /* Work of the wire at the beginning of qrnic_leave(), or NULL */
    void (*settle)(QrnicDevice *d);
    /* Reset of the wire, for each reset of the device, or NULL */
    void (*reset)(QrnicDevice *d);
    /*
     * For functions of an adapter with virtual functions: new receive filter,
     * and configuration and state of a virtual function. NULL for other wires.
     */
    void (*filter)(QrnicDevice *d, const QrnicRxFilter *filter);
    QrnicResult (*vf_set)(QrnicDevice *d, uint32_t number,
                          const QrnicVfCtx *in);
    QrnicResult (*vf_query)(QrnicDevice *d, uint32_t number, QrnicVfAttr *out);
    /* Releases the wire. Called when the device is unplugged and not in use. */
    void (*cleanup)(QrnicDevice *d);
} QrnicWire;

struct QrnicDevice {
    PCIDevice parent_obj;

    QrnicConfig config;
    bool ioeventfd;
    bool shared_virtual;

    MemoryRegion bar_control, bar_doorbell, bar_msix, bar_memory;
    char *name;                 /* for log lines and trace events */
    const QrnicWire *wire;
    QrnicEngine *engine;
    QEMUBH *bh;
    QEMUTimer *timer;
    /* Address translation services; NULL without the property shared-virtual */
    GHashTable *pasids;         /* PASIDs with a notifier; see translation.c */
    AddressSpace *translated_as;    /* translated addresses */
    bool translation_on;        /* the guest has enabled the capabilities */
    uint32_t page_requests;     /* property; 0: no capability PRI */
    bool page_failed;           /* a response reported a failure */
    struct QrnicLink *link;     /* link retransmission, or NULL */
    QEMUTimer *link_timer;
    /* timer of a step while the wire is busy */
    QEMUTimer *wire_timer;
    uint32_t wire_steps;        /* steps for which the wire has been busy */
    /* the wire has been busy for so long that its frames are dropped */
    bool wire_blocked;

    QrnicDeviceState state;
    QrnicKicks kicks;
    uint32_t pending;           /* bits of QrnicPending */
    uint32_t flushes;           /* nested calls of flush() */
    bool vm_running;
    VMChangeStateEntry *run_state;

    QrnicCommandQueue cmd;
    QrnicRegisters regs;
    /* NULL without ioeventfd */
    struct QrnicDoorbellEvents *events;
    QrnicBusCapture *capture;   /* NULL without the property capture */

    uint32_t stop_at;           /* kinds of the property stop-at; see stop.c */
    QrnicStop *stop;            /* NULL until stop-at is set */
    /* Time of the device in a stop */
    bool clock_stopped;
    int64_t clock_stopped_ns;
    int64_t clock_lag_ns;       /* length of all earlier stops */

    /* Functions of the adapter (sriov/sriov.h); NULL without virtual ones */
    struct QrnicSriov *sriov;
    unsigned port;              /* port of the embedded switch */
};

/* The physical function: its properties, and the backend of its wire */
struct QrnicPf {
    QrnicDevice parent_obj;

    NICConf conf;
    QrnicCable *cable;
    char *icrc;                 /* "standard", "transport" or "soft-roce" */
    bool cap_atomic, cap_direct_wqe, cap_inline_send, cap_timestamp;
    bool cap_eth_csum, cap_eth_vlan, cap_eth_tso, cap_eth_rx_coalesce;
    bool cap_on_demand, cap_indirect_mkey, cap_streaming_recv;
    bool cap_tag_matching;
    bool cap_context_cache, cap_priority, cap_dynamic;
    bool cap_selective_repeat, cap_adaptive_routing;
    bool cap_shared_connection, cap_congestion_control, cap_event_index;
    bool cap_ud, cap_uc, cap_srq, cap_xrc, cap_mw, cap_fast_reg;
    bool cap_cq_resize, cap_cq_moderation, cap_srq_resize, cap_flow;
    bool cap_cq_ignore_overrun, cap_scatter_fcs, cap_source_qpn;
    bool cap_rss, cap_eth_rss;
    bool cap_dm, cap_atomic_write, cap_flush;
    bool cap_inline_recv, cap_rate_limit, cap_atomic_glob;
    bool cap_counter_sets, cap_roce_v1, cap_command_event;
    bool link_retransmission;
    char *capture_path;
    uint32_t capture_qp;
    uint32_t vfs;               /* number of virtual functions */

    NICState *nic;              /* NULL with a cable */
    /* the cable accepts no frame now */
    bool cable_full;
};

/* Returns the physical function whose state is d. */
static inline QrnicPf *qrnic_pf(QrnicDevice *d)
{
    return container_of(d, QrnicPf, parent_obj);
}

/* Returns true if a caller uses the engine or the command queue. */
static inline bool qrnic_is_entered(const QrnicDevice *d)
{
    return d->state == QRNIC_DEVICE_ENTERED ||
           d->state == QRNIC_DEVICE_RESET_PENDING ||
           d->state == QRNIC_DEVICE_UNPLUGGED;
}

/* Returns true between plug and unplug. */
static inline bool qrnic_is_plugged(const QrnicDevice *d)
{
    return d->state == QRNIC_DEVICE_IDLE ||
           d->state == QRNIC_DEVICE_ENTERED ||
           d->state == QRNIC_DEVICE_RESET_PENDING;
}

/*
 * Returns true if the device may use the bus: it is plugged, and no reset is
 * pending.
 */
static inline bool qrnic_on_bus(const QrnicDevice *d)
{
    return d->state == QRNIC_DEVICE_IDLE || d->state == QRNIC_DEVICE_ENTERED;
}

/**
 * qrnic_bus_read:
 * @d: the device
 * @addr: bus address
 * @buf: receives the data
 * @len: number of bytes
 *
 * Reads memory of the guest.
 *
 * Returns: true, or false if any byte failed or the device may not use the bus
 */
bool qrnic_bus_read(QrnicDevice *d, uint64_t addr, void *buf, size_t len);
/**
 * qrnic_bus_write:
 * @d: the device
 * @addr: bus address
 * @buf: the data
 * @len: number of bytes
 *
 * Writes memory of the guest.
 *
 * Returns: true, or false if any byte failed or the device may not use the bus
 */
bool qrnic_bus_write(QrnicDevice *d, uint64_t addr, const void *buf,
                     size_t len);
/**
 * qrnic_bus_atomic:
 * @d: the device
 * @addr: bus address, a multiple of 8
 * @op: the operation; receives the original value
 *
 * Executes an atomic in the memory of the guest as one access.
 *
 * Returns: true, or false if that is impossible and nothing was done
 */
bool qrnic_bus_atomic(QrnicDevice *d, uint64_t addr, QrnicAtomic *op);
/**
 * qrnic_bus_read_translated:
 * @d: the device
 * @addr: translated address
 * @buf: receives the data
 * @len: number of bytes
 *
 * Works like qrnic_bus_read(), but no IOMMU translates the address again.
 *
 * Returns: true, or false if any byte failed or the device may not use the bus
 */
bool qrnic_bus_read_translated(QrnicDevice *d, uint64_t addr, void *buf,
                               size_t len);
/**
 * qrnic_bus_write_translated:
 * @d: the device
 * @addr: translated address
 * @buf: the data
 * @len: number of bytes
 *
 * Works like qrnic_bus_write(), but no IOMMU translates the address again.
 *
 * Returns: true, or false if any byte failed or the device may not use the bus
 */
bool qrnic_bus_write_translated(QrnicDevice *d, uint64_t addr,
                                const void *buf, size_t len);
/**
 * qrnic_bus_atomic_translated:
 * @d: the device
 * @addr: translated address, a multiple of 8
 * @op: the operation; receives the original value
 *
 * Works like qrnic_bus_atomic(), but no IOMMU translates the address again.
 *
 * Returns: true, or false if that is impossible and nothing was done
 */
bool qrnic_bus_atomic_translated(QrnicDevice *d, uint64_t addr,
                                 QrnicAtomic *op);
/**
 * qrnic_host_atomic:
 * @at: address in the memory of the host, a multiple of 8
 * @op: the operation; receives the original value
 *
 * Executes an atomic in the memory of the host as one access.
 *
 * Returns: true, or false if the host has no such operation
 */
bool qrnic_host_atomic(uint64_t *at, QrnicAtomic *op);
/**
 * qrnic_translation_init:
 * @d: the device
 * @errp: receives the error
 *
 * Creates the capabilities PASID and ATS if the property shared-virtual is set,
 * and PRI if page-requests is not 0.
 *
 * Returns: true, or false with *@errp set
 */
bool qrnic_translation_init(QrnicDevice *d, Error **errp);
/**
 * qrnic_translate:
 * @d: the device
 * @pasid: PASID of a process
 * @addr: virtual address
 * @write: true if a write follows
 * @result: receives the translation
 *
 * Requests a translation from the IOMMU.
 *
 * Returns: the result of the request
 */
QrnicTranslate qrnic_translate(QrnicDevice *d, uint32_t pasid, uint64_t addr,
                               bool write, QrnicTranslated *result);
/**
 * qrnic_page_request_send:
 * @d: the device
 * @pasid: PASID of a process
 * @addr: virtual address of a page
 * @write: true if the access writes
 * @group: index of the group
 * @last: true for the last page of the group
 *
 * Sends a page request to the IOMMU.
 *
 * Returns: true if the IOMMU has accepted the request
 */
bool qrnic_page_request_send(QrnicDevice *d, uint32_t pasid, uint64_t addr,
                             bool write, uint16_t group, bool last);
/**
 * qrnic_translation_status:
 * @d: the device
 *
 * Updates the status registers before a read of the configuration space.
 */
void qrnic_translation_status(QrnicDevice *d);
/**
 * qrnic_translation_configured:
 * @d: the device
 *
 * Handles a write to the configuration space.
 */
void qrnic_translation_configured(QrnicDevice *d);
/**
 * qrnic_translation_reset:
 * @d: the device
 *
 * Disables the capabilities in a reset of the function.
 */
void qrnic_translation_reset(QrnicDevice *d);
/**
 * qrnic_translation_cleanup:
 * @d: the device
 *
 * Ends all notifiers of the IOMMU at unplug.
 */
void qrnic_translation_cleanup(QrnicDevice *d);
/**
 * qrnic_bus_master:
 * @d: the device
 *
 * Returns: true if the guest has enabled bus mastering
 */
bool qrnic_bus_master(QrnicDevice *d);
/**
 * qrnic_asleep:
 * @d: the device
 *
 * Returns: true in the power state D3hot
 */
bool qrnic_asleep(QrnicDevice *d);
/**
 * qrnic_clock_ns:
 * @d: the device
 *
 * Returns: the time of the device in ns: the virtual time without its stops
 */
int64_t qrnic_clock_ns(QrnicDevice *d);
/**
 * qrnic_timer_arm:
 * @d: the device
 * @timer: a timer of the device
 * @deadline_ns: time of the device
 *
 * Arms a timer.
 */
void qrnic_timer_arm(QrnicDevice *d, QEMUTimer *timer, int64_t deadline_ns);
/**
 * qrnic_kick:
 * @d: the device
 *
 * Schedules the bottom half, which calls qrnic_work(). An unplugged device
 * ignores the call.
 */
void qrnic_kick(QrnicDevice *d);

#endif
