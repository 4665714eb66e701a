/*
 * qrnic: the wire of a function that has virtual functions beside it: a port of
 * the embedded switch
 *
 * The engine of a function sends through port_send(), which only queues the
 * frame in the switch. switch_bh() runs the switch, and the switch delivers
 * frames to the engines of other functions (deliver()). So one engine is never
 * called from within another one. A function that cannot accept a frame calls
 * port_flush() when it can.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "qemu/timer.h"
#include "hw/pci/pci.h"
#include "trace.h"
#include "device/parts.h"
#include "device/sriov/sriov.h"

QEMU_BUILD_BUG_ON(QRNIC_ESWITCH_FRAME_MAX != QRNIC_FRAME_MAX);

static void sriov_ref(QrnicSriov *s)
{
    s->references++;
}

void qrnic_sriov_unref(QrnicSriov *s)
{
    if (s && !--s->references) {
        qrnic_eswitch_free(s->eswitch);
        timer_free(s->timer);
        g_free(s->name);
        g_free(s);
    }
}

/* Requests a run of the switch. */
static void switch_kick(void *opaque)
{
    QrnicSriov *s = opaque;

    if (s->bh) {
        qemu_bh_schedule(s->bh);
    }
}

static void receive_run(QrnicDevice *d, const void *frame, size_t len)
{
    qrnic_port_receive(d, frame, len);
    qrnic_leave(d);
}

/*
 * Passes a frame to a function. The guard rejects MMIO from the function's own
 * interrupts meanwhile, as in a bottom half of the function.
 */
static void function_receive(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    MemReentrancyGuard *guard = &DEVICE(d)->mem_reentrancy_guard;
    bool was_engaged = guard->engaged_in_io;

    object_ref(OBJECT(d));
    guard->engaged_in_io = true;
    qrnic_run(d, receive_run, frame, len);
    guard->engaged_in_io = was_engaged;
    object_unref(OBJECT(d));
}

static QrnicEswitchDelivery deliver(void *opaque, unsigned port,
                                    const uint8_t *frame, size_t len)
{
    QrnicSriov *s = opaque;
    QrnicDevice *d = s->function[port];

    if (port == QRNIC_ESWITCH_UPLINK) {
        return qrnic_uplink_send(s, frame, len) ? QRNIC_ESWITCH_DELIVERED :
                                                  QRNIC_ESWITCH_BUSY;
    }
    if (!d || qrnic_takes_no_frame(d)) {
        return QRNIC_ESWITCH_OFF;
    }
    if (qrnic_engine_frames_taken(d->engine)) {
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        qrnic_kick(d);
        return QRNIC_ESWITCH_BUSY;
    }
    /* The function may be entered, because its interrupt may run the switch. */
    if (!d->vm_running || !qrnic_port_can_receive(d) || !qrnic_enter(d)) {
        trace_qrnic_waits(d->name, "frame");
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        return QRNIC_ESWITCH_BUSY;
    }
    function_receive(d, frame, len);
    return QRNIC_ESWITCH_DELIVERED;
}

static void sender_ready(void *opaque, unsigned port)
{
    QrnicSriov *s = opaque;
    QrnicDevice *d = s->function[port];

    if (port == QRNIC_ESWITCH_UPLINK) {
        s->backend_stopped = false;
        s->backend_flush = true;
        switch_kick(s);
    } else if (d) {
        qrnic_pending_add(d, QRNIC_PENDING_WIRE);
        qrnic_kick(d);
    }
}

static void link_changed(void *opaque, unsigned port, bool up)
{
    QrnicSriov *s = opaque;
    QrnicDevice *d = s->function[port];

    if (d) {
        qrnic_pending_add(d, QRNIC_PENDING_LINK);
        qrnic_kick(d);
    }
}

static int64_t clock_ns(void *opaque)
{
    return qemu_clock_get_ns(QEMU_CLOCK_VIRTUAL);
}

static void timer_arm(void *opaque, int64_t deadline_ns)
{
    QrnicSriov *s = opaque;

    if (deadline_ns == QRNIC_ESWITCH_NEVER) {
        timer_del(s->timer);
    } else {
        timer_mod(s->timer, deadline_ns);
    }
}

static void timer_fired(void *opaque)
{
    QrnicSriov *s = opaque;

    s->timer_due = true;
    switch_kick(s);
}

/*
 * Runs the switch. A nested call is possible, because the interrupt of a
 * function may reach another device, whose code polls.
 */
static void switch_bh(void *opaque)
{
    QrnicSriov *s = opaque;
    Object *pf;

    if (s->running) {
        s->again = true;
        return;
    }
    /* An interrupt may unplug the physical function, whose backend is used. */
    pf = OBJECT(s->pf);
    object_ref(pf);
    sriov_ref(s);
    s->running = true;
    for (unsigned port = QRNIC_ESWITCH_PF; port < QRNIC_ESWITCH_PORTS_MAX;
         port++) {
        QrnicDevice *d = s->function[port];

        /*
         * The budget of a function that is entered belongs to the run below
         * this call. An entered function accepts no frame in this run.
         */
        if (d && d->state == QRNIC_DEVICE_IDLE) {
            qrnic_engine_take_frames(d->engine);
        }
    }
    if (s->timer_due) {
        s->timer_due = false;
        qrnic_eswitch_timer(s->eswitch);
    }
    qrnic_eswitch_run(s->eswitch);
    if (s->backend_flush) {
        s->backend_flush = false;
        qrnic_uplink_flush(s);
    }
    s->running = false;
    if (s->again) {
        s->again = false;
        switch_kick(s);
    }
    qrnic_sriov_unref(s);
    object_unref(pf);
}

/* Wire of a function */

static bool port_link(QrnicDevice *d)
{
    return qrnic_eswitch_link(d->sriov->eswitch, d->port);
}

static bool port_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    return qrnic_eswitch_send(d->sriov->eswitch, d->port, frame, len);
}

static void port_flush(QrnicDevice *d)
{
    qrnic_eswitch_ready(d->sriov->eswitch, d->port);
}

/*
 * Passes the unicast addresses of the filter to the switch. Each function
 * receives all multicast frames, because the engine selects the groups of its
 * multicast attachments, which have no entry in the filter.
 */
static void port_filter(QrnicDevice *d, const QrnicRxFilter *filter)
{
    const QrnicEswitchFilter f = {
        .promiscuous = filter->flags & QRNIC_RXF_PROMISC,
        .all_multicast = true,
        .count = filter->unicast_count,
        .addresses = (const uint8_t (*)[6])filter->addresses,
    };

    qrnic_eswitch_set_filter(d->sriov->eswitch, d->port, &f);
}

/*
 * Drops the frames of the function. A virtual function is reset when it is
 * enabled and disabled. From now on, the permanent address of the function is
 * that of the switch, which SET_VF may have changed.
 */
static void port_reset(QrnicDevice *d)
{
    QrnicEswitch *eswitch = d->sriov->eswitch;
    const QrnicEswitchConfig *config = qrnic_eswitch_config(eswitch, d->port);
    const QrnicRxFilter no_filter = { 0 };

    memcpy(d->config.mac, config->mac, sizeof(d->config.mac));
    qrnic_engine_set_mac(d->engine, config->mac);
    /* The switch does not notify a stopped sender that was reset. */
    qrnic_pending_add(d, QRNIC_PENDING_WIRE);
    qrnic_kick(d);
    if (!PCI_DEVICE(d)->enabled) {
        qrnic_eswitch_unplug(eswitch, d->port);
        return;
    }
    qrnic_eswitch_plug(eswitch, d->port);
    qrnic_eswitch_reset_port(eswitch, d->port);
    port_filter(d, &no_filter);
    /* The link of a function that was disabled was down. */
    qrnic_pending_add(d, QRNIC_PENDING_LINK);
}

static void port_cleanup(QrnicDevice *d)
{
    QrnicSriov *s = d->sriov;

    s->function[d->port] = NULL;
    qrnic_eswitch_unplug(s->eswitch, d->port);
    if (d->port == QRNIC_ESWITCH_PF) {
        qemu_bh_delete(s->bh);
        s->bh = NULL;
        timer_del(s->timer);
        qrnic_eswitch_unplug(s->eswitch, QRNIC_ESWITCH_UPLINK);
        qrnic_uplink_detach(s);
    }
}

void qrnic_sriov_attach(QrnicSriov *s, QrnicDevice *d, unsigned port)
{
    static const QrnicWire wire = {
        .link = port_link,
        .send = port_send,
        .flush = port_flush,
        .reset = port_reset,
        .filter = port_filter,
        .vf_set = qrnic_sriov_vf_set,
        .vf_query = qrnic_sriov_vf_query,
        .cleanup = port_cleanup,
    };
    QrnicEswitchConfig config = *qrnic_eswitch_config(s->eswitch, port);

    sriov_ref(s);
    d->sriov = s;
    d->port = port;
    d->wire = &wire;
    s->function[port] = d;
    memcpy(config.mac, d->config.mac, sizeof(config.mac));
    qrnic_eswitch_configure(s->eswitch, port, &config);
    port_reset(d);
}

QrnicSriov *qrnic_sriov_new(QrnicPf *pf)
{
    const QrnicEswitchOps ops = {
        .deliver = deliver,
        .sender_ready = sender_ready,
        .link = link_changed,
        .clock_ns = clock_ns,
        .timer_arm = timer_arm,
        .kick = switch_kick,
    };
    QrnicSriov *s = g_new0(QrnicSriov, 1);

    s->pf = pf;
    s->name = g_strdup(pf->parent_obj.name);
    s->bh = qemu_bh_new(switch_bh, s);
    s->timer = timer_new_ns(QEMU_CLOCK_VIRTUAL, timer_fired, s);
    s->eswitch = qrnic_eswitch_new(s->name, pf->vfs, &ops, s);
    return s;
}
