/*
 * qrnic: the net client, by which frames come and go
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "block/aio.h"
#include "qemu/main-loop.h"
#include "trace.h"
#include "device/faces.h"
#include "device/parts.h"

static bool net_can_receive(NetClientState *nc)
{
    QrnicDevice *d = qemu_get_nic_opaque(nc);

    if (qrnic_takes_no_frame(d)) {
        return true;
    }
    if (!qrnic_port_can_receive(d)) {
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        return false;
    }
    /* Without bus mastering a frame could go nowhere; it waits instead. */
    return qrnic_bus_master(d);
}

static ssize_t net_receive(NetClientState *nc, const uint8_t *frame,
                           size_t len)
{
    QrnicDevice *d = qemu_get_nic_opaque(nc);

    if (qrnic_takes_no_frame(d)) {
        return len;
    }
    /*
     * A queue of frames is emptied without asking net_can_receive(). Busy: it
     * is the answer to a frame that is being sent just now, say.
     */
    if (!d->vm_running || !qrnic_bus_master(d) ||
        !qrnic_port_can_receive(d) || !qrnic_enter(d)) {
        trace_qrnic_waits(d->name, "frame");
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        return 0;
    }
    /* A backend comes with few frames, a queue that is emptied with all. */
    if (d->flushes && qrnic_engine_frames_taken(d->engine)) {
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        qrnic_leave(d);
        qrnic_kick(d);
        return 0;
    }
    qrnic_port_receive(d, frame, len);
    qrnic_leave(d);
    return len;
}

static void net_link_status_changed(NetClientState *nc)
{
    QrnicDevice *d = qemu_get_nic_opaque(nc);

    qrnic_pending_add(d, QRNIC_PENDING_LINK);
    qrnic_kick(d);
}

static NetClientInfo net_info = {
    .type = NET_CLIENT_DRIVER_NIC,
    .size = sizeof(NICState),
    .can_receive = net_can_receive,
    .receive = net_receive,
    .link_status_changed = net_link_status_changed,
};

static void nic_delete(QrnicDevice *d)
{
    qemu_del_nic(d->nic);
    d->nic = NULL;
}

static void net_unplugged(void *opaque)
{
    QrnicDevice *d = opaque;
    NetClientState *nc = qemu_get_queue(d->nic);

    /* What waited for us in a hub, and its sender with it, waits no longer. */
    qemu_flush_queued_packets(nc);
    /* A frame that the backend has not taken yet must not call back later. */
    qemu_purge_queued_packets(nc);
    nic_delete(d);
    object_unref(OBJECT(d));
}

/*
 * Not at once: the queue that was delivering to the device, and the one that
 * took a frame from it, are used until their functions have returned. And the
 * frames that go to others now can make those unplug devices in their turn.
 */
static void net_detach(QrnicDevice *d)
{
    object_ref(OBJECT(d));
    aio_bh_schedule_oneshot(qemu_get_aio_context(), net_unplugged, d);
}

static bool net_link(QrnicDevice *d)
{
    NetClientState *nc = d->nic ? qemu_get_queue(d->nic) : NULL;

    return nc && nc->peer && !nc->link_down;
}

static void net_sent(NetClientState *nc, ssize_t ret)
{
    QrnicDevice *d = qemu_get_nic_opaque(nc);

    /* Also when the backend purged it: then it is lost, as on any wire. */
    qrnic_pending_add(d, QRNIC_PENDING_WIRE);
    qrnic_kick(d);
}

static bool net_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    return qemu_send_packet_async(qemu_get_queue(d->nic), frame, len,
                                  net_sent) != 0;
}

static void net_flush(QrnicDevice *d)
{
    qemu_flush_queued_packets(qemu_get_queue(d->nic));
}

void qrnic_net_init(QrnicDevice *d)
{
    static const QrnicWire wire = {
        .link = net_link,
        .send = net_send,
        .flush = net_flush,
        .cleanup = net_detach,
    };
    DeviceState *dev = DEVICE(d);

    d->nic = qemu_new_nic(&net_info, &d->conf, object_get_typename(OBJECT(d)),
                          dev->id, &dev->mem_reentrancy_guard, d);
    qemu_format_nic_info_str(qemu_get_queue(d->nic), d->conf.macaddr.a);
    d->wire = &wire;
}
