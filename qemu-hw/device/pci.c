/*
 * qrnic: a RoCE adapter that exists only as code: its PCI Express function
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/error-report.h"
#include "qemu/main-loop.h"
#include "qemu/module.h"
#include "qemu/timer.h"
#include "qemu/units.h"
#include "qapi/error.h"
#include "qapi/visitor.h"
#include "hw/pci/pci.h"
#include "hw/pci/pci_bridge.h"
#include "hw/pci/pci_bus.h"
#include "hw/pci/pcie.h"
#include "migration/vmstate.h"
#include "system/runstate.h"
#include "trace.h"
#include "compat.h"
#include "device/device.h"

/* Configuration space */
#define CAP_PM 0x40
#define CAP_EXPRESS 0x50
#define CAP_MSIX 0x90
#define ECAP_AER 0x100
#define ECAP_SERIAL 0x150

/* Commands in one go of the bottom half */
#define COMMAND_BUDGET 16

#define DEVICE_MEMORY_MAX (256u << 20)

#define DEFAULT_VECTORS 8

/*
 * Bus
 */

/*
 * Memory only: a register of another device could do anything, among it to
 * wait until a disk is idle, with us in the middle of our work. No cast that
 * is checked at run time, for this is where the time goes.
 */
static bool bus_dma(QrnicDevice *d, uint64_t addr, void *buf, size_t len,
                    DMADirection direction)
{
    const MemTxAttrs attrs = { .memory = 1 };

    return qrnic_on_bus(d) && pci_dma_rw(&d->parent_obj, addr, buf, len,
                                         direction, attrs) == MEMTX_OK;
}

bool qrnic_pci_dma_read(QrnicDevice *d, uint64_t addr, void *buf, size_t len)
{
    return bus_dma(d, addr, buf, len, DMA_DIRECTION_TO_DEVICE);
}

bool qrnic_pci_dma_write(QrnicDevice *d, uint64_t addr, const void *buf,
                         size_t len)
{
    return bus_dma(d, addr, (void *)buf, len, DMA_DIRECTION_FROM_DEVICE);
}

bool qrnic_on_bus(QrnicDevice *d)
{
    return d->bh && !d->reset_waits;
}

bool qrnic_pci_bus_master(QrnicDevice *d)
{
    return pci_get_word(PCI_DEVICE(d)->config + PCI_COMMAND) &
           PCI_COMMAND_MASTER;
}

/*
 * The operations of the engine
 */

static bool env_dma_read(void *opaque, uint64_t addr, void *buf, size_t len)
{
    return qrnic_pci_dma_read(opaque, addr, buf, len);
}

static bool env_dma_write(void *opaque, uint64_t addr, const void *buf,
                          size_t len)
{
    return qrnic_pci_dma_write(opaque, addr, buf, len);
}

/* In the host's memory, at an aligned address; false: the host cannot. */
static bool host_atomic(uint64_t *at, QrnicAtomic *op)
{
#ifdef CONFIG_ATOMIC64
    uint64_t seen, next;

    if (op->compare_swap) {
        seen = qatomic_cmpxchg__nocheck(at, cpu_to_le64(op->compare),
                                        cpu_to_le64(op->swap_add));
        op->original = le64_to_cpu(seen);
        return true;
    }
    next = qatomic_read__nocheck(at);
    do {
        seen = next;
        next = qatomic_cmpxchg__nocheck(at, seen,
                                        cpu_to_le64(le64_to_cpu(seen) +
                                                    op->swap_add));
    } while (next != seen);
    op->original = le64_to_cpu(seen);
    return true;
#else
    return false;
#endif
}

/*
 * The RAM behind 8 bytes, as it is mapped now; NULL: it is something else, or
 * may not be used so. Memory only, as with bus_dma(): what is no RAM is mapped
 * by way of a copy, which no region has.
 */
static void *map_ram(AddressSpace *as, uint64_t addr, DMADirection direction)
{
    const MemTxAttrs attrs = { .memory = 1 };
    dma_addr_t len = 8;
    ram_addr_t offset;
    void *at = dma_memory_map(as, addr, &len, direction, attrs);

    if (at && (len != 8 || (uintptr_t)at % 8 ||
               !memory_region_from_host(at, &offset))) {
        dma_memory_unmap(as, at, len, direction, 0);
        at = NULL;
    }
    return at;
}

/*
 * Each right is asked for once, and what counts is the memory that was got: an
 * IOMMU may map the address to another place at any time. That it may be read
 * and that it may be written must have been said of the same place.
 */
static bool env_dma_atomic(void *opaque, uint64_t addr, QrnicAtomic *op)
{
    QrnicDevice *d = opaque;
    AddressSpace *as = pci_get_address_space(&d->parent_obj);
    void *read, *write;
    bool done;

    RCU_READ_LOCK_GUARD();
    if (!qrnic_on_bus(d)) {
        return false;
    }
    write = map_ram(as, addr, DMA_DIRECTION_FROM_DEVICE);
    if (!write) {
        return false;
    }
    read = map_ram(as, addr, DMA_DIRECTION_TO_DEVICE);
    done = read == write && host_atomic(write, op);
    if (read) {
        dma_memory_unmap(as, read, 8, DMA_DIRECTION_TO_DEVICE, 0);
    }
    dma_memory_unmap(as, write, 8, DMA_DIRECTION_FROM_DEVICE, done ? 8 : 0);
    return done;
}

static bool env_dm_atomic(void *opaque, uint64_t offset, QrnicAtomic *op)
{
    QrnicDevice *d = opaque;
    uint8_t *ram = memory_region_get_ram_ptr(&d->bar_memory);

    if (!host_atomic((uint64_t *)(ram + offset), op)) {
        return false;
    }
    memory_region_set_dirty(&d->bar_memory, offset, sizeof(uint64_t));
    return true;
}

static void env_dm_read(void *opaque, uint64_t offset, void *buf, size_t len)
{
    QrnicDevice *d = opaque;

    memcpy(buf, memory_region_get_ram_ptr(&d->bar_memory) + offset, len);
}

static void env_dm_write(void *opaque, uint64_t offset, const void *buf,
                         size_t len)
{
    QrnicDevice *d = opaque;

    memcpy(memory_region_get_ram_ptr(&d->bar_memory) + offset, buf, len);
    memory_region_set_dirty(&d->bar_memory, offset, len);
}

static bool env_send(void *opaque, const uint8_t *frame, size_t len)
{
    QrnicDevice *d = opaque;

    return !qrnic_on_bus(d) || qrnic_linkport_send(d, frame, len);
}

static void env_notify(void *opaque, unsigned vector)
{
    qrnic_notify(opaque, vector);
}

int64_t qrnic_clock_ns(QrnicDevice *d)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static int64_t env_clock_ns(void *opaque)
{
    return qrnic_clock_ns(opaque);
}

static int64_t env_real_time_ns(void *opaque)
{
    return g_get_real_time() * SCALE_US;
}

static void env_timer_arm(void *opaque, int64_t deadline_ns)
{
    QrnicDevice *d = opaque;

    if (deadline_ns == QRNIC_DEADLINE_NEVER) {
        timer_del(d->timer);
    } else {
        timer_mod(d->timer, deadline_ns);
    }
}

static void env_kick(void *opaque)
{
    QrnicDevice *d = opaque;

    if (d->runs_soon) {
        d->run_now = true;
    } else {
        qrnic_kick(d);
    }
}

static void env_fatal(void *opaque, unsigned cause, uint32_t info)
{
    QrnicDevice *d = opaque;

    d->health = cause;
    d->health_info = info;
}

/*
 * Work
 */

bool qrnic_asleep(QrnicDevice *d)
{
    return pci_get_word(PCI_DEVICE(d)->config + CAP_PM + PCI_PM_CTRL) &
           PCI_PM_CTRL_STATE_MASK;
}

void qrnic_kick(QrnicDevice *d)
{
    if (d->bh) {
        qemu_bh_schedule(d->bh);
    }
}

bool qrnic_takes_no_frame(QrnicDevice *d)
{
    return !d->bh || qrnic_asleep(d);
}

bool qrnic_enter(QrnicDevice *d)
{
    if (d->busy) {
        return false;
    }
    d->busy = true;
    /* It may be unplugged before it is left. */
    object_ref(OBJECT(d));
    return true;
}

/* At once, or when the last one leaves who is in the middle of the wire. */
static void wire_cleanup(QrnicDevice *d)
{
    d->unplug_waits = d->busy || d->flushing;
    if (!d->unplug_waits) {
        d->wire->cleanup(d);
    }
}

void qrnic_leave(QrnicDevice *d)
{
    if (d->wire->settle && !d->unplug_waits) {
        d->wire->settle(d);
    }
    d->busy = false;
    if (d->unplug_waits) {
        wire_cleanup(d);
    } else if (d->reset_waits) {
        d->reset_waits = false;
        qrnic_device_reset(d);
    }
    if (d->work_waits ||
        (d->receive_waits && !qrnic_engine_held(d->engine))) {
        d->work_waits = false;
        qrnic_kick(d);
    }
    object_unref(OBJECT(d));
}

/* What an owner of before left there is nobody's to see. */
static void device_memory_show(QrnicDevice *d)
{
    if (d->config.capabilities & QRNIC_CAP_DEVICE_MEMORY) {
        memory_region_set_enabled(&d->bar_memory,
                                  qrnic_engine_ready(d->engine));
    }
}

void qrnic_device_reset(QrnicDevice *d)
{
    if (d->busy) {
        trace_qrnic_waits(d->name, "reset");
        d->reset_waits = true;
        return;
    }
    trace_qrnic_reset(d->name);
    d->cmd = (QrnicCommandQueue) { 0 };
    qrnic_mmio_reset(d);
    timer_del(d->timer);
    d->timer_due = false;
    qrnic_linkport_reset(d);
    qrnic_engine_reset(d->engine);
    qrnic_doorbell_events_reset(d);
    device_memory_show(d);
    if (d->receive_waits) {
        qrnic_kick(d);
    }
}

/* True: frames or commands wait for the next turn. */
static bool work_once(QrnicDevice *d)
{
    bool more = false, held;

    d->runs_soon = true;
    if (d->link_changed) {
        d->link_changed = false;
        qrnic_linkport_set_link(d, d->wire->link(d));
    }
    qrnic_linkport_deliver(d);
    if (d->wire->receive) {
        more |= d->wire->receive(d);
    }
    held = qrnic_engine_held(d->engine);
    if (d->wire_ready) {
        d->wire_ready = false;
        qrnic_linkport_wire_ready(d);
    }
    if (d->timer_due) {
        d->timer_due = false;
        qrnic_engine_timer(d->engine);
    }
    if (qrnic_command_pending(d)) {
        qrnic_doorbell_events_collect(d);
    }
    qrnic_doorbell_events_process(d);
    d->runs_soon = d->run_now = false;
    /*
     * Doorbells rung before a command come before it: else one for a queue
     * that the command destroys would be taken for a mistake of the guest.
     */
    qrnic_engine_run(d->engine, QRNIC_RUN_ROUNDS);
    /* Frames that it sent acknowledge those that came. */
    qrnic_linkport_work(d);
    /* What the wire has for us has waited for this, and says nothing more. */
    more |= held && !qrnic_engine_held(d->engine);
    more |= qrnic_linkport_more(d);
    device_memory_show(d);
    return qrnic_command_run(d, COMMAND_BUDGET, false) || more;
}

/* A hub has the frames of others delivered first, which may unplug us. */
static void wire_flush(QrnicDevice *d)
{
    bool outer = d->flushing;

    if (!d->bh || !d->wire->flush) {
        return;
    }
    d->flushing = true;
    qrnic_engine_take_frames(d->engine);
    d->wire->flush(d);
    d->flushing = outer;
    if (d->unplug_waits) {
        wire_cleanup(d);
    }
}

void qrnic_work(QrnicDevice *d)
{
    bool more = false, flush;

    if (!d->running) {
        return;
    }
    if (!qrnic_enter(d)) {
        trace_qrnic_waits(d->name, "work");
        d->work_waits = true;
        return;
    }
    object_ref(OBJECT(d));
    flush = d->receive_waits;
    d->receive_waits = false;
    if (!qrnic_asleep(d)) {
        more = work_once(d);
        if (flush && !qrnic_engine_can_receive(d->engine)) {
            d->receive_waits = true;
            flush = false;
        }
    } else if (d->wire->receive) {
        more = d->wire->receive(d);
    }
    qrnic_leave(d);
    if (flush) {
        wire_flush(d);
    }
    if (more) {
        qrnic_kick(d);
    }
    object_unref(OBJECT(d));
}

/* All that waits is what the processor is just asking for. */
static bool nothing_waits(QrnicDevice *d)
{
    return d->running && qrnic_on_bus(d) && !qrnic_asleep(d) &&
           !d->link_changed && !d->wire_ready && !d->timer_due &&
           qrnic_linkport_idle(d);
}

/*
 * An idle engine does at once what a doorbell asks for: to wake the main loop's
 * thread takes longer than a few packets. More is left to it, as the processor
 * that rings does nothing else meanwhile; and so is all if other work waits,
 * which comes first.
 */
void qrnic_doorbell(QrnicDevice *d, uint32_t page, unsigned offset,
                    unsigned size, uint64_t value)
{
    d->runs_soon = true;
    qrnic_doorbell_write(d->engine, page, offset, size, value);
    d->runs_soon = false;
    if (!d->run_now) {
        return;
    }
    d->run_now = false;
    if (nothing_waits(d)) {
        qrnic_engine_run(d->engine, 1);
        device_memory_show(d);
    } else {
        qrnic_kick(d);
    }
}

/*
 * The same for a command: one, a short one, and none before the doorbells that
 * were rung before it.
 */
void qrnic_command_rung(QrnicDevice *d)
{
    bool more = true;

    object_ref(OBJECT(d));
    if (nothing_waits(d) && !qrnic_doorbell_events_collect(d) &&
        !qrnic_doorbells_pending(d->engine) && qrnic_enter(d)) {
        more = qrnic_command_run(d, 1, true);
        device_memory_show(d);
        qrnic_leave(d);
    }
    if (more) {
        trace_qrnic_command_later(d->name, d->cmd.producer, d->cmd.consumer);
        qrnic_kick(d);
    }
    object_unref(OBJECT(d));
}

/* QEMU's guard of a bottom half traces that it is entered again, no more. */
static void device_bh(void *opaque)
{
    qrnic_work(opaque);
}

static void device_timer(void *opaque)
{
    QrnicDevice *d = opaque;

    d->timer_due = true;
    qrnic_kick(d);
}

static void device_reset_hold(Object *obj, ResetType type)
{
    qrnic_device_reset(QRNIC(obj));
}

static void config_write(PCIDevice *pci, uint32_t addr, uint32_t value,
                         int len)
{
    QrnicDevice *d = QRNIC(pci);
    bool was_master = qrnic_pci_bus_master(d), was_asleep = qrnic_asleep(d);

    pci_default_write_config(pci, addr, value, len);
    pcie_cap_flr_write_config(pci, addr, value, len);
    pcie_aer_write_config(pci, addr, value, len);
    if (was_asleep != qrnic_asleep(d)) {
        trace_qrnic_power(d->name, was_asleep ? "D0" : "D3hot");
    }
    /* Work that waited goes on, and frames that waited come in or are lost. */
    if ((!was_master && qrnic_pci_bus_master(d)) ||
        was_asleep != qrnic_asleep(d)) {
        d->receive_waits = true;
        qrnic_kick(d);
    }
}

/* RAM of a VM that is stopped belongs to whoever saves or looks at it. */
static void run_state_changed(void *opaque, bool running, RunState state)
{
    QrnicDevice *d = opaque;

    trace_qrnic_run_state(d->name, running);
    d->running = running;
    if (running) {
        qrnic_kick(d);
    }
}

/*
 * Realize and unrealize
 */

static bool check_range(const char *name, uint32_t value, uint32_t min,
                        uint32_t max, Error **errp)
{
    if (value < min || value > max) {
        error_setg(errp, "qrnic: property '%s' is %" PRIu32
                   ", must be %" PRIu32 " to %" PRIu32, name, value, min, max);
        return false;
    }
    return true;
}

/* QEMU's options -nic and -net nic set "vectors" to 0 unless told otherwise. */
static void set_defaults(QrnicDevice *d)
{
    if (!d->config.vectors) {
        d->config.vectors = DEFAULT_VECTORS;
    }
}

static bool check_properties(QrnicDevice *d, Error **errp)
{
    const QrnicConfig *c = &d->config;
    const struct { const char *name; uint32_t value, min, max; } range[] = {
        { "vectors", c->vectors, 2, QRNIC_MSIX_MAX_VECTORS },
        { "doorbell-pages", c->db_pages, 2, 65536 },
        { "doorbell-fifo", c->doorbell_fifo, 1, 4096 },
        { "max-qp", c->max_qp, 1, 1 << 20 },
        /* Each may have an event in the one EQ that they all can name. */
        { "max-cq", c->max_cq, 1, QRNIC_MAX_CQ },
        { "max-mkey", c->max_mkey, 1, 1 << 20 },
        { "max-pd", c->max_pd, 1, 1 << 16 },
        { "max-gid", c->max_gid, 1, 1024 },
        { "max-srq", c->max_srq, 1, 1 << 20 },
        { "max-flow", c->max_flow, 1, 1 << 16 },
        { "max-sge", c->max_sge, 1, QRNIC_MAX_SGE },
        { "max-inline", c->max_inline, 0, QRNIC_MAX_INLINE },
        { "max-rd-atomic", c->max_rd_atomic, 0, 128 },
        { "context-cache", c->context_cache, 0, 1 << 20 },
        { "context-stations", c->context_stations, 0, 1024 },
        { "context-latency", c->context_latency, 0, 1000000000 },
    };

    for (unsigned i = 0; i < ARRAY_SIZE(range); i++) {
        if (!check_range(range[i].name, range[i].value, range[i].min,
                         range[i].max, errp)) {
            return false;
        }
    }
    /* The next one must come in without the one that is worked on. */
    if (c->context_cache == 1) {
        error_setg(errp, "qrnic: property 'context-cache' is 1, must be 0 or "
                   "at least 2");
        return false;
    }
    if (d->icrc && strcmp(d->icrc, "standard") &&
        strcmp(d->icrc, "transport") && strcmp(d->icrc, "soft-roce")) {
        error_setg(errp, "qrnic: property 'icrc' is '%s', must be 'standard', "
                   "'transport' or 'soft-roce'", d->icrc);
        return false;
    }
    if (!is_power_of_2(c->db_pages)) {
        error_setg(errp, "qrnic: property 'doorbell-pages' is %" PRIu32
                   ", must be a power of two", c->db_pages);
        return false;
    }
    if (c->device_memory &&
        (!is_power_of_2(c->device_memory) ||
         c->device_memory < QRNIC_DM_PAGE_SIZE ||
         c->device_memory > DEVICE_MEMORY_MAX)) {
        error_setg(errp, "qrnic: property 'device-memory-size' is %" PRIu64
                   ", must be 0 or a power of two from %u to %u",
                   c->device_memory, QRNIC_DM_PAGE_SIZE, DEVICE_MEMORY_MAX);
        return false;
    }
    if (d->cable && d->conf.peers.ncs[0]) {
        error_setg(errp, "qrnic: a port is plugged into one thing: property "
                   "'cable' or property 'netdev'");
        return false;
    }
    if (d->conf.macaddr.a[0] & 1) {
        error_setg(errp, "qrnic: property 'mac' is a multicast address");
        return false;
    }
    if (!pci_bus_is_express(pci_get_bus(PCI_DEVICE(d)))) {
        error_setg(errp, "qrnic needs a PCI Express bus: "
                   "use '-machine q35' or a PCI Express port");
        return false;
    }
    return true;
}

static void fill_config(QrnicDevice *d)
{
    QrnicConfig *c = &d->config;
    const struct { bool on; uint64_t bit; } cap[] = {
        { true, QRNIC_CAP_RC },
        { d->cap_atomic, QRNIC_CAP_ATOMIC },
        { d->cap_direct_wqe, QRNIC_CAP_DIRECT_WQE },
        { d->cap_inline_send, QRNIC_CAP_INLINE_SEND },
        { d->cap_timestamp, QRNIC_CAP_TIMESTAMP },
        { d->cap_eth_csum, QRNIC_CAP_ETH_CSUM },
        { d->cap_eth_vlan, QRNIC_CAP_ETH_VLAN },
        { d->cap_eth_csum && d->cap_eth_tso, QRNIC_CAP_ETH_TSO },
        { d->cap_eth_csum && d->cap_eth_rx_coalesce,
          QRNIC_CAP_ETH_RX_COALESCE },
        { d->cap_on_demand, QRNIC_CAP_ON_DEMAND },
        { d->cap_indirect_mkey, QRNIC_CAP_INDIRECT_MKEY },
        { d->cap_streaming_recv, QRNIC_CAP_STREAMING_RECV },
        { d->cap_srq && d->cap_tag_matching, QRNIC_CAP_TAG_MATCHING },
        { d->cap_priority, QRNIC_CAP_PRIORITY },
        { d->cap_selective_repeat, QRNIC_CAP_SELECTIVE_REPEAT },
        { d->cap_adaptive_routing, QRNIC_CAP_ADAPTIVE_ROUTING },
        { d->cap_shared_connection, QRNIC_CAP_SHARED_CONNECTION },
        { d->cap_congestion_control, QRNIC_CAP_CONGESTION_CONTROL },
        { d->cap_context_cache && c->context_cache,
          QRNIC_CAP_CONTEXT_CACHE },
        { d->cap_ud, QRNIC_CAP_UD },
        { d->cap_uc, QRNIC_CAP_UC },
        { d->cap_srq, QRNIC_CAP_SRQ },
        { d->cap_srq && d->cap_xrc, QRNIC_CAP_XRC },
        { d->cap_srq && d->cap_dynamic, QRNIC_CAP_DYNAMIC },
        { d->cap_srq && d->cap_srq_resize, QRNIC_CAP_SRQ_RESIZE },
        { d->cap_mw, QRNIC_CAP_MW },
        { d->cap_fast_reg, QRNIC_CAP_FAST_REG },
        { d->cap_cq_resize, QRNIC_CAP_CQ_RESIZE },
        { d->cap_cq_moderation, QRNIC_CAP_CQ_MODERATION },
        { d->cap_flow, QRNIC_CAP_FLOW },
        { d->cap_cq_ignore_overrun, QRNIC_CAP_CQ_IGNORE_OVERRUN },
        { d->cap_scatter_fcs, QRNIC_CAP_SCATTER_FCS },
        { d->cap_source_qpn, QRNIC_CAP_SOURCE_QPN },
        { d->cap_flow && d->cap_rss, QRNIC_CAP_RSS },
        { d->cap_flow && d->cap_rss && d->cap_eth_rss, QRNIC_CAP_ETH_RSS },
        { d->cap_dm && c->device_memory, QRNIC_CAP_DEVICE_MEMORY },
        { d->cap_atomic_write, QRNIC_CAP_ATOMIC_WRITE },
        { d->cap_flush, QRNIC_CAP_FLUSH },
        { d->cap_inline_recv, QRNIC_CAP_INLINE_RECV },
        { d->cap_rate_limit, QRNIC_CAP_RATE_LIMIT },
        { d->cap_counter_sets, QRNIC_CAP_COUNTER_SETS },
        { d->cap_roce_v1, QRNIC_CAP_ROCE_V1 },
        { d->cap_command_event, QRNIC_CAP_COMMAND_EVENT },
        { d->link_retransmission, QRNIC_CAP_LINK_RETRANSMISSION },
#ifdef CONFIG_ATOMIC64
        { d->cap_atomic && d->cap_atomic_glob, QRNIC_CAP_ATOMIC_GLOB },
#endif
    };

    c->capabilities = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(cap); i++) {
        c->capabilities |= cap[i].on ? cap[i].bit : 0;
    }
    if (d->icrc && !strcmp(d->icrc, "transport")) {
        c->icrc = QRNIC_ICRC_TRANSPORT;
    } else if (d->icrc && !strcmp(d->icrc, "soft-roce")) {
        c->icrc = QRNIC_ICRC_SOFT_ROCE;
    }
    c->name = d->name;
    memcpy(c->mac, d->conf.macaddr.a, sizeof(c->mac));
}

/* Nothing that the device holds is lost in D3hot. */
static bool pm_init(PCIDevice *pci, Error **errp)
{
    if (pci_pm_init(pci, CAP_PM, errp) < 0) {
        return false;
    }
    pci_set_word(pci->config + CAP_PM + PCI_PM_PMC, PCI_PM_CAP_VER_1_2);
    pci_set_word(pci->config + CAP_PM + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET);
    pci_set_word(pci->wmask + CAP_PM + PCI_PM_CTRL, PCI_PM_CTRL_STATE_MASK);
    return true;
}

static bool express_init(PCIDevice *pci, Error **errp)
{
    if (pcie_endpoint_cap_init(pci, CAP_EXPRESS) < 0) {
        error_setg(errp, "qrnic: no room for the PCI Express capability");
        return false;
    }
    pcie_cap_flr_init(pci);
    pcie_cap_deverr_init(pci);
    if (pcie_aer_init(pci, PCI_ERR_VER, ECAP_AER, PCI_ERR_SIZEOF, errp) < 0) {
        pcie_cap_exit(pci);
        return false;
    }
    return true;
}

/*
 * Warns if the prefetchable BARs do not fit into the window of the port above,
 * and the running guest has already set this window. An empty port has a
 * window of 2 MiB, in which the defaults fit. A device that is present from
 * the start needs no warning, because the firmware makes the window large
 * enough.
 */
static void check_window(QrnicDevice *d)
{
    const uint8_t type = PCI_BASE_ADDRESS_MEM_PREFETCH;
    PCIDevice *pci = PCI_DEVICE(d);
    PCIDevice *port = pci_bridge_get_device(pci_get_bus(pci));
    uint64_t base, limit, window, needed = 0;

    if (!DEVICE(d)->hotplugged || !port ||
        !(pci_get_word(port->config + PCI_COMMAND) & PCI_COMMAND_MEMORY)) {
        return;
    }
    for (unsigned i = 0; i < PCI_NUM_REGIONS; i++) {
        if (pci->io_regions[i].type & type) {
            needed += pci->io_regions[i].size;
        }
    }
    base = pci_bridge_get_base(port, type);
    limit = pci_bridge_get_limit(port, type);
    window = limit > base ? limit - base + 1 : 0;
    if (window < needed) {
        warn_report("qrnic '%s': properties 'doorbell-pages' and "
                    "'device-memory-size' ask for %" PRIu64 " KiB of "
                    "prefetchable address space, but its port has a window of "
                    "%" PRIu64 " KiB: set pref64-reserve=%" PRIu64 "M of the "
                    "pcie-root-port", d->name, needed / KiB, window / KiB,
                    pow2ceil(DIV_ROUND_UP(needed, MiB)));
    }
}

static void device_realize(PCIDevice *pci, Error **errp)
{
    static const QrnicEnv env = {
        .dma_read = env_dma_read,
        .dma_write = env_dma_write,
        .dma_atomic = env_dma_atomic,
        .dm_read = env_dm_read,
        .dm_write = env_dm_write,
        .dm_atomic = env_dm_atomic,
        .send = env_send,
        .notify = env_notify,
        .clock_ns = env_clock_ns, .real_time_ns = env_real_time_ns,
        .timer_arm = env_timer_arm,
        .kick = env_kick,
        .fatal = env_fatal,
    };
    QrnicDevice *d = QRNIC(pci);
    DeviceState *dev = DEVICE(pci);
    QrnicEnv mine = env;

    set_defaults(d);
    if (!check_properties(d, errp)) {
        return;
    }
    if (!pm_init(pci, errp) || !express_init(pci, errp)) {
        return;
    }
    if (!qrnic_interrupts_init(d, CAP_MSIX, errp)) {
        pcie_aer_exit(pci);
        pcie_cap_exit(pci);
        return;
    }
    qemu_macaddr_default_if_unset(&d->conf.macaddr);
    pcie_dev_ser_num_init(pci, ECAP_SERIAL, qrnic_eui64(d->conf.macaddr.a));
    d->name = dev->id ? g_strdup(dev->id) :
              g_strdup_printf("%s.%x", pci_get_bus(pci)->qbus.name,
                              pci->devfn);
    fill_config(d);
    if (!qrnic_mmio_init(d, errp) || !qrnic_doorbell_events_init(d, errp) ||
        (d->cable && !qrnic_cable_plug(d, errp))) {
        qrnic_doorbell_events_cleanup(d);
        g_free(d->name);
        d->name = NULL;
        qrnic_interrupts_cleanup(d);
        pcie_aer_exit(pci);
        pcie_cap_exit(pci);
        return;
    }

    d->timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, device_timer, d);
    d->bh = qemu_bh_new_guarded(device_bh, d, &dev->mem_reentrancy_guard);
    mine.opaque = d;
    d->engine = qrnic_engine_new(&d->config, &mine);
    qrnic_linkport_init(d);
    if (!d->wire) {
        qrnic_net_init(d);
    }
    qrnic_linkport_set_link(d, d->wire->link(d));
    d->running = runstate_is_live(runstate_get());
    d->run_state = qrnic_add_vm_change_state_handler(dev, run_state_changed, d);
    trace_qrnic_realize(d->name, d->config.capabilities, d->config.vectors,
                        d->config.db_pages, d->config.doorbell_fifo);
    check_window(d);
}

/* The engine itself goes last of all, as this may be its own doing. */
static void device_exit(PCIDevice *pci)
{
    QrnicDevice *d = QRNIC(pci);

    trace_qrnic_unrealize(d->name);
    qemu_del_vm_change_state_handler(d->run_state);
    qemu_bh_delete(d->bh);
    d->bh = NULL;
    qrnic_doorbell_events_cleanup(d);
    wire_cleanup(d);
    timer_del(d->timer);
    qrnic_linkport_stop(d);
    qrnic_interrupts_cleanup(d);
    pcie_aer_exit(pci);
    pcie_cap_exit(pci);
}

static void device_finalize(Object *obj)
{
    QrnicDevice *d = QRNIC(obj);

    qrnic_linkport_cleanup(d);
    qrnic_engine_free(d->engine);
    timer_free(d->timer);
    g_free(d->name);
}

/*
 * Type
 */

static void counters_get(Object *obj, Visitor *v, const char *name,
                         void *opaque, Error **errp)
{
    QrnicDevice *d = QRNIC(obj);

    if (!visit_start_struct(v, name, NULL, 0, errp)) {
        return;
    }
    for (unsigned i = 0; i < QRNIC_NUM_COUNTERS; i++) {
        uint64_t value = d->engine ? qrnic_counters(d->engine)[i] : 0;

        if (!visit_type_uint64(v, qrnic_counter_name(i), &value, errp)) {
            break;
        }
    }
    visit_end_struct(v, NULL);
}

static const Property device_properties[] = {
    DEFINE_NIC_PROPERTIES(QrnicDevice, conf),
    DEFINE_PROP_LINK("cable", QrnicDevice, cable, TYPE_QRNIC_CABLE,
                     QrnicCable *),
    DEFINE_PROP_UINT32("vectors", QrnicDevice, config.vectors,
                       DEFAULT_VECTORS),
    DEFINE_PROP_UINT32("doorbell-pages", QrnicDevice, config.db_pages, 256),
    DEFINE_PROP_UINT32("doorbell-fifo", QrnicDevice, config.doorbell_fifo,
                       256),
    DEFINE_PROP_BOOL("ioeventfd", QrnicDevice, ioeventfd, false),
    DEFINE_PROP_BOOL("link-retransmission", QrnicDevice, link_retransmission,
                     false),
    DEFINE_PROP_UINT32("max-qp", QrnicDevice, config.max_qp, 16384),
    DEFINE_PROP_UINT32("max-cq", QrnicDevice, config.max_cq, 16384),
    DEFINE_PROP_UINT32("max-mkey", QrnicDevice, config.max_mkey, 65536),
    DEFINE_PROP_UINT32("max-pd", QrnicDevice, config.max_pd, 4096),
    DEFINE_PROP_UINT32("max-gid", QrnicDevice, config.max_gid, 256),
    DEFINE_PROP_UINT32("max-srq", QrnicDevice, config.max_srq, 8192),
    DEFINE_PROP_UINT32("max-flow", QrnicDevice, config.max_flow, 1024),
    DEFINE_PROP_UINT32("max-sge", QrnicDevice, config.max_sge, QRNIC_MAX_SGE),
    DEFINE_PROP_UINT32("max-inline", QrnicDevice, config.max_inline,
                       QRNIC_MAX_INLINE),
    DEFINE_PROP_UINT32("max-rd-atomic", QrnicDevice, config.max_rd_atomic, 16),
    DEFINE_PROP_SIZE("device-memory-size", QrnicDevice, config.device_memory,
                     1 << 20),
    DEFINE_PROP_UINT32("context-cache", QrnicDevice, config.context_cache, 0),
    DEFINE_PROP_UINT32("context-stations", QrnicDevice,
                       config.context_stations, 16),
    DEFINE_PROP_UINT32("context-latency", QrnicDevice, config.context_latency,
                       1000),
    DEFINE_PROP_STRING("icrc", QrnicDevice, icrc),
    DEFINE_PROP_BOOL("cap-atomic", QrnicDevice, cap_atomic, true),
    DEFINE_PROP_BOOL("cap-direct-wqe", QrnicDevice, cap_direct_wqe, true),
    DEFINE_PROP_BOOL("cap-inline-send", QrnicDevice, cap_inline_send, true),
    DEFINE_PROP_BOOL("cap-timestamp", QrnicDevice, cap_timestamp, true),
    DEFINE_PROP_BOOL("cap-eth-csum", QrnicDevice, cap_eth_csum, true),
    DEFINE_PROP_BOOL("cap-eth-vlan", QrnicDevice, cap_eth_vlan, true),
    DEFINE_PROP_BOOL("cap-eth-tso", QrnicDevice, cap_eth_tso, true),
    DEFINE_PROP_BOOL("cap-eth-rx-coalesce", QrnicDevice, cap_eth_rx_coalesce,
                     true),
    DEFINE_PROP_BOOL("cap-on-demand", QrnicDevice, cap_on_demand, true),
    DEFINE_PROP_BOOL("cap-indirect-mkey", QrnicDevice, cap_indirect_mkey,
                     true),
    DEFINE_PROP_BOOL("cap-streaming-recv", QrnicDevice, cap_streaming_recv,
                     true),
    DEFINE_PROP_BOOL("cap-tag-matching", QrnicDevice, cap_tag_matching, true),
    DEFINE_PROP_BOOL("cap-context-cache", QrnicDevice, cap_context_cache,
                     true),
    DEFINE_PROP_BOOL("cap-dynamic", QrnicDevice, cap_dynamic, true),
    DEFINE_PROP_BOOL("cap-priority", QrnicDevice, cap_priority, true),
    DEFINE_PROP_BOOL("cap-selective-repeat", QrnicDevice, cap_selective_repeat,
                     true),
    DEFINE_PROP_BOOL("cap-adaptive-routing", QrnicDevice, cap_adaptive_routing,
                     true),
    DEFINE_PROP_BOOL("cap-shared-connection", QrnicDevice,
                     cap_shared_connection, true),
    DEFINE_PROP_BOOL("cap-congestion-control", QrnicDevice,
                     cap_congestion_control, true),
    DEFINE_PROP_BOOL("cap-ud", QrnicDevice, cap_ud, true),
    DEFINE_PROP_BOOL("cap-uc", QrnicDevice, cap_uc, true),
    DEFINE_PROP_BOOL("cap-srq", QrnicDevice, cap_srq, true),
    DEFINE_PROP_BOOL("cap-srq-resize", QrnicDevice, cap_srq_resize, true),
    DEFINE_PROP_BOOL("cap-xrc", QrnicDevice, cap_xrc, true),
    DEFINE_PROP_BOOL("cap-mw", QrnicDevice, cap_mw, true),
    DEFINE_PROP_BOOL("cap-fast-reg", QrnicDevice, cap_fast_reg, true),
    DEFINE_PROP_BOOL("cap-cq-resize", QrnicDevice, cap_cq_resize, true),
    DEFINE_PROP_BOOL("cap-cq-moderation", QrnicDevice, cap_cq_moderation, true),
    DEFINE_PROP_BOOL("cap-flow", QrnicDevice, cap_flow, true),
    DEFINE_PROP_BOOL("cap-cq-ignore-overrun", QrnicDevice,
                     cap_cq_ignore_overrun, true),
    DEFINE_PROP_BOOL("cap-scatter-fcs", QrnicDevice, cap_scatter_fcs, true),
    DEFINE_PROP_BOOL("cap-source-qpn", QrnicDevice, cap_source_qpn, true),
    DEFINE_PROP_BOOL("cap-rss", QrnicDevice, cap_rss, true),
    DEFINE_PROP_BOOL("cap-eth-rss", QrnicDevice, cap_eth_rss, true),
    DEFINE_PROP_BOOL("cap-dm", QrnicDevice, cap_dm, true),
    DEFINE_PROP_BOOL("cap-atomic-write", QrnicDevice, cap_atomic_write, true),
    DEFINE_PROP_BOOL("cap-flush", QrnicDevice, cap_flush, true),
    DEFINE_PROP_BOOL("cap-inline-recv", QrnicDevice, cap_inline_recv, true),
    DEFINE_PROP_BOOL("cap-rate-limit", QrnicDevice, cap_rate_limit, true),
    DEFINE_PROP_BOOL("cap-counter-sets", QrnicDevice, cap_counter_sets, true),
    DEFINE_PROP_BOOL("cap-roce-v1", QrnicDevice, cap_roce_v1, true),
    DEFINE_PROP_BOOL("cap-command-event", QrnicDevice, cap_command_event, true),
    DEFINE_PROP_BOOL("cap-atomic-glob", QrnicDevice, cap_atomic_glob, true),
};

static const VMStateDescription device_vmstate = {
    .name = TYPE_QRNIC,
    .unmigratable = 1,
};

static void device_class_init(ObjectClass *klass, QrnicClassData *data)
{
    DeviceClass *dc = DEVICE_CLASS(klass);
    PCIDeviceClass *k = PCI_DEVICE_CLASS(klass);
    ResettableClass *rc = RESETTABLE_CLASS(klass);

    k->realize = device_realize;
    k->exit = device_exit;
    k->config_write = config_write;
    k->vendor_id = QRNIC_PCI_VENDOR_ID;
    k->device_id = QRNIC_PCI_DEVICE_ID;
    k->revision = QRNIC_PCI_REVISION;
    k->class_id = QRNIC_PCI_CLASS >> 8;
    rc->phases.hold = device_reset_hold;
    dc->desc = "RoCE RDMA adapter that exists only in QEMU";
    dc->vmsd = &device_vmstate;
    device_class_set_props(dc, device_properties);
    set_bit(DEVICE_CATEGORY_NETWORK, dc->categories);

    object_class_property_add(klass, "counters", "struct", counters_get, NULL,
                              NULL, NULL);
    object_class_property_set_description(klass, "counters",
        "All counters, as in the chapter Counters of the manual");
}

static const TypeInfo device_info = {
    .name = TYPE_QRNIC,
    .parent = TYPE_PCI_DEVICE,
    .instance_size = sizeof(QrnicDevice),
    .instance_finalize = device_finalize,
    .class_init = device_class_init,
    .interfaces = (QrnicInterfaceInfo[]) {
        { INTERFACE_PCIE_DEVICE },
        { }
    },
};

static void device_register(void)
{
    type_register_static(&device_info);
}

type_init(device_register)
