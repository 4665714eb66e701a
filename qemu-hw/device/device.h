/*
 * qrnic: the PCI device around the engine, and what its files offer each other
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_DEVICE_H
#define QRNIC_DEVICE_H

#include "hw/pci/pci_device.h"
#include "net/net.h"
#include "cable/cable.h"
#include "engine/engine.h"

#define TYPE_QRNIC "qrnic"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicDevice, QRNIC)

typedef struct QrnicCommandQueue {
    bool enabled;
    uint64_t base;
    uint32_t log_size;
    uint32_t producer, consumer;
    uint32_t generation;        /* how often it was enabled */
    /* Slots whose events were asked for by CMD_EVENT */
    DECLARE_BITMAP(wanted, 1 << QRNIC_CMD_MAX_LOG_SIZE);
    bool held;                  /* the engine has not ended its work: */
    uint64_t held_addr;
    QrnicCmdEntry held_entry;
    QrnicResult held_result;
} QrnicCommandQueue;

/*
 * What the port is plugged into: a network backend of QEMU's or a cable
 */
typedef struct QrnicWire {
    bool (*link)(QrnicDevice *d);
    /* Takes the frame; false: d->wire_ready is set when another can be sent. */
    bool (*send)(QrnicDevice *d, const uint8_t *frame, size_t len);
    /* Frames that wait may come; the device is not busy. */
    void (*flush)(QrnicDevice *d);
    /* Hands frames that wait to the engine, a few. True: there are more. */
    bool (*receive)(QrnicDevice *d);
    /* The device is about to be left. */
    void (*settle)(QrnicDevice *d);
    /* It is unplugged, and not in use. */
    void (*cleanup)(QrnicDevice *d);
} QrnicWire;

typedef struct QrnicDoorbellEvents QrnicDoorbellEvents;

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

    /*
     * Someone is in the engine or the command queue. A message of MSI-X may
     * hit a register of another device that waits for its own work and so runs
     * ours, hands us a frame, resets us or unplugs us; a frame that is sent may
     * do the same. Whatever finds the device busy is noted here and done when
     * it is left.
     */
    bool busy;
    bool work_waits;
    bool reset_waits;
    bool receive_waits;         /* frames may be offered again */
    bool unplug_waits;
    /* Frames that waited are being delivered: the net client is in use. */
    bool flushing;
    /* The engine is run in a moment anyway; and it has asked for that. */
    bool runs_soon, run_now;
    bool timer_due;
    bool link_changed;
    bool wire_ready;
    bool link_timer_due, link_kicked;

    bool running;               /* of the virtual machine */
    VMChangeStateEntry *run_state;

    QrnicCommandQueue cmd;
    QrnicDoorbellEvents *events;        /* NULL: doorbells are written */

    /* registers that are nothing but registers */
    uint32_t scratch;
    uint32_t cmd_base_lo, cmd_base_hi, cmd_size;
    uint32_t time_hi;
    uint32_t health, health_info;
};

/* pci.c */
bool qrnic_pci_dma_read(QrnicDevice *d, uint64_t addr, void *buf, size_t len);
bool qrnic_pci_dma_write(QrnicDevice *d, uint64_t addr, const void *buf,
                         size_t len);
bool qrnic_pci_bus_master(QrnicDevice *d);
/* False once it is unplugged, or to be reset as soon as it is left */
bool qrnic_on_bus(QrnicDevice *d);
/* In D3hot */
bool qrnic_asleep(QrnicDevice *d);
/*
 * Around every call that may change the engine. False: it is busy, and the
 * caller leaves a note. It may be gone after qrnic_leave().
 */
bool qrnic_enter(QrnicDevice *d);
void qrnic_leave(QrnicDevice *d);
/* Do what waits, from a bottom half. */
void qrnic_kick(QrnicDevice *d);
/* Do it now. It may be gone afterwards. */
void qrnic_work(QrnicDevice *d);
/* A write to a doorbell page. The device was entered. */
void qrnic_doorbell(QrnicDevice *d, uint32_t page, unsigned offset,
                    unsigned size, uint64_t value);
/* Commands wait: done at once if they can be, or soon */
void qrnic_command_rung(QrnicDevice *d);
/* Nobody is there to take a frame: it is lost. */
bool qrnic_takes_no_frame(QrnicDevice *d);
/* Everything back to its reset value, at once or when the engine is left */
void qrnic_device_reset(QrnicDevice *d);
int64_t qrnic_clock_ns(QrnicDevice *d);

/* registers.c */
bool qrnic_mmio_init(QrnicDevice *d, Error **errp);
void qrnic_mmio_reset(QrnicDevice *d);

/* doorbell_events.c */
bool qrnic_doorbell_events_init(QrnicDevice *d, Error **errp);
/* Takes events that the main loop has not come to yet. True: there are some. */
bool qrnic_doorbell_events_collect(QrnicDevice *d);
/* Does what the events ask for that were taken. The device was entered. */
void qrnic_doorbell_events_process(QrnicDevice *d);
void qrnic_doorbell_events_reset(QrnicDevice *d);
void qrnic_doorbell_events_cleanup(QrnicDevice *d);

/* command_queue.c */
void qrnic_command_enable(QrnicDevice *d, uint64_t base, uint32_t log_size);
void qrnic_command_disable(QrnicDevice *d);
void qrnic_command_doorbell(QrnicDevice *d, uint32_t producer);
/* A write to CMD_EVENT; NULL, or what is wrong with it. */
const char *qrnic_command_event(QrnicDevice *d, uint32_t value,
                                enum qrnic_guest_error *rule);
/* Some may wait. */
bool qrnic_command_pending(const QrnicDevice *d);
/* Runs commands that wait, up to a long one; returns true if more do. */
bool qrnic_command_run(QrnicDevice *d, unsigned budget, bool short_only);

/* commands.c */
typedef struct QrnicCommandData {
    uint32_t object;
    uint8_t in[QRNIC_CMD_MAX_MAILBOX];
    uint8_t out[QRNIC_CMD_MAX_MAILBOX];
    uint32_t out_len;           /* room; then what was written */
    bool long_work;             /* others wait for the next turn */
    bool short_only;            /* no long work now */
} QrnicCommandData;

typedef struct QrnicCommand {
    uint16_t opcode;
    uint32_t in_len, out_len;
    bool has_object;            /* the entry names one */
    QrnicResult (*run)(QrnicEngine *e, QrnicCommandData *data);
} QrnicCommand;

const QrnicCommand *qrnic_command_find(uint16_t opcode);

/* interrupts.c */
bool qrnic_interrupts_init(QrnicDevice *d, uint8_t cap_offset, Error **errp);
void qrnic_interrupts_cleanup(QrnicDevice *d);
void qrnic_notify(QrnicDevice *d, unsigned vector);

/*
 * port.c: between the engine and d->wire. All but can_receive are for
 * who has entered the device.
 */
void qrnic_linkport_init(QrnicDevice *d);
bool qrnic_linkport_can_receive(const QrnicDevice *d);
/* No timer any more; later, when nobody uses it, all of it */
void qrnic_linkport_stop(QrnicDevice *d);
void qrnic_linkport_cleanup(QrnicDevice *d);
void qrnic_linkport_set_link(QrnicDevice *d, bool up);
void qrnic_linkport_reset(QrnicDevice *d);
/* As QrnicEnv's */
bool qrnic_linkport_send(QrnicDevice *d, const uint8_t *frame, size_t len);
void qrnic_linkport_wire_ready(QrnicDevice *d);
void qrnic_linkport_receive(QrnicDevice *d, const uint8_t *frame, size_t len);
/* What waited for the engine, as far as that takes it now; is there more? */
void qrnic_linkport_deliver(QrnicDevice *d);
bool qrnic_linkport_more(QrnicDevice *d);
bool qrnic_linkport_idle(const QrnicDevice *d);
void qrnic_linkport_work(QrnicDevice *d);

/* wire_net.c: sets d->wire */
void qrnic_net_init(QrnicDevice *d);

/* wire_cable.c: sets d->wire */
bool qrnic_cable_plug(QrnicDevice *d, Error **errp);

#endif
