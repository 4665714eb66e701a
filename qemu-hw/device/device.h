/*
 * qrnic: the PCI device around the engine, and the bus below it
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
 * The files of the device are in layers. A file calls only files of lower
 * layers, or files of its own layer that call none of its callers:
 *
 *   pci.c properties.c                                      type, realize
 *   registers.c wire_net.c wire_cable.c engine_env.c        faces.h
 *   work.c                                                  work.h
 *   interrupts.c commands.c command_queue.c
 *   doorbell_events.c port.c                                parts.h
 *   bus.c state.c                                           device.h, state.h
 */

#define TYPE_QRNIC "qrnic"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicDevice, QRNIC)

/* Offset of the power management capability in the configuration space */
#define QRNIC_PCI_PM_OFFSET 0x40

typedef struct QrnicCommandQueue {
    QrnicCommandState state;
    uint64_t base;
    uint32_t log_size;
    uint32_t producer, consumer;
    uint32_t generation;        /* incremented each time it is enabled */
    /* Slots whose events CMD_EVENT requested */
    DECLARE_BITMAP(wanted, 1 << QRNIC_CMD_MAX_LOG_SIZE);
    /* UNFINISHED: the command that waits for the engine, and its reply */
    uint64_t reply_addr;
    QrnicCmdEntry reply_entry;
    QrnicResult reply;
} QrnicCommandQueue;

/* Control registers that only hold a value */
typedef struct QrnicRegisters {
    uint32_t scratch;
    uint32_t cmd_base_lo, cmd_base_hi, cmd_size;
    uint32_t time_hi;
    uint32_t health, health_info;
} QrnicRegisters;

/*
 * The operations of what the port is plugged into: a network backend of QEMU
 * (wire_net.c) or a cable (wire_cable.c)
 */
typedef struct QrnicWire {
    bool (*link)(QrnicDevice *d);
    /* Accepts the frame. False: adds PENDING_WIRE when it accepts another. */
    bool (*send)(QrnicDevice *d, const uint8_t *frame, size_t len);
    /* Lets buffered frames come; the device is not entered. */
    void (*flush)(QrnicDevice *d);
    /* Gives a few buffered frames to the engine. True: there are more. */
    bool (*receive)(QrnicDevice *d);
    /* Called before the device is left */
    void (*settle)(QrnicDevice *d);
    /* Called when the device is unplugged and not in use */
    void (*cleanup)(QrnicDevice *d);
} QrnicWire;

struct QrnicDevice {
    PCIDevice parent_obj;

    /* properties */
    NICConf conf;
    QrnicCable *cable;
    QrnicConfig config;
    char *icrc;                 /* "standard" or "transport" */
    bool cap_atomic, cap_direct_wqe, cap_inline_send, cap_timestamp;
    bool cap_eth_csum, cap_eth_vlan, cap_eth_tso, cap_eth_rx_coalesce;
    bool cap_on_demand, cap_indirect_mkey, cap_streaming_recv;
    bool cap_tag_matching;
    bool cap_context_cache, cap_priority, cap_dynamic;
    bool cap_selective_repeat, cap_adaptive_routing;
    bool cap_shared_connection, cap_congestion_control;
    bool cap_ud, cap_uc, cap_srq, cap_xrc, cap_mw, cap_fast_reg;
    bool cap_cq_resize, cap_cq_moderation, cap_srq_resize, cap_flow;
    bool cap_cq_ignore_overrun, cap_scatter_fcs, cap_source_qpn;
    bool cap_rss, cap_eth_rss;
    bool cap_dm, cap_atomic_write, cap_flush;
    bool cap_inline_recv, cap_rate_limit, cap_atomic_glob;
    bool cap_counter_sets, cap_roce_v1, cap_command_event;
    bool ioeventfd;
    bool link_retransmission;

    MemoryRegion bar_control, bar_doorbell, bar_msix, bar_memory;
    char *name;                 /* in log lines and trace events */
    const QrnicWire *wire;
    NICState *nic;              /* with a backend */
    bool cable_full;
    QrnicEngine *engine;
    QEMUBH *bh;
    QEMUTimer *timer;
    struct QrnicLink *link;     /* or NULL */
    QEMUTimer *link_timer;

    QrnicDeviceState state;
    QrnicKicks kicks;
    uint32_t pending;           /* QrnicPending */
    uint32_t flushes;           /* nested deliveries of buffered frames */
    bool vm_running;
    VMChangeStateEntry *run_state;

    QrnicCommandQueue cmd;
    QrnicRegisters regs;
    /* NULL: doorbells are written */
    struct QrnicDoorbellEvents *events;
};

/* Returns true if a caller uses the engine or the command queue. */
static inline bool qrnic_is_entered(const QrnicDevice *d)
{
    return d->state == QRNIC_DEVICE_ENTERED ||
           d->state == QRNIC_DEVICE_RESET_PENDING ||
           d->state == QRNIC_DEVICE_UNPLUGGED;
}

/* Returns false from unplug on. */
static inline bool qrnic_is_plugged(const QrnicDevice *d)
{
    return d->state == QRNIC_DEVICE_IDLE ||
           d->state == QRNIC_DEVICE_ENTERED ||
           d->state == QRNIC_DEVICE_RESET_PENDING;
}

/* Returns false if the device is unplugged, or is reset when it is left. */
static inline bool qrnic_on_bus(const QrnicDevice *d)
{
    return d->state == QRNIC_DEVICE_IDLE || d->state == QRNIC_DEVICE_ENTERED;
}

/*
 * Reads or writes the guest's memory. Returns false if any byte of the access
 * failed, or if the device is not on the bus.
 */
bool qrnic_bus_read(QrnicDevice *d, uint64_t addr, void *buf, size_t len);
bool qrnic_bus_write(QrnicDevice *d, uint64_t addr, const void *buf,
                     size_t len);
/* Does the same atomically at an aligned address. False: nothing was done. */
bool qrnic_bus_atomic(QrnicDevice *d, uint64_t addr, QrnicAtomic *op);
/* Does it at an address of the host. False: the host has no such operation. */
bool qrnic_host_atomic(uint64_t *at, QrnicAtomic *op);
/* Returns true if the guest has enabled bus mastering. */
bool qrnic_bus_master(QrnicDevice *d);
/* Returns true in D3hot. */
bool qrnic_asleep(QrnicDevice *d);
int64_t qrnic_clock_ns(QrnicDevice *d);
/* Schedules the bottom half, which calls qrnic_work(). */
void qrnic_kick(QrnicDevice *d);

#endif
