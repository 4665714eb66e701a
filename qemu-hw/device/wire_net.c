/*
 * qrnic: the port, connected to a network backend of QEMU
 *
 * qrnic_net_init() creates the net client at realize. The backend calls
 * net_receive() for each frame. If the device cannot accept a frame, the
 * backend buffers it, and net_flush() later delivers the buffered frames. A
 * backend that is busy calls net_sent() when it accepts frames again.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
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
    return true;
}

static void frame_run(QrnicDevice *d, const void *frame, size_t len)
{
    qrnic_port_receive(d, frame, len);
    qrnic_leave(d);
}

static ssize_t net_receive(NetClientState *nc, const uint8_t *frame,
                           size_t len)
{
    QrnicDevice *d = qemu_get_nic_opaque(nc);

    if (qrnic_takes_no_frame(d)) {
        return len;
    }
    /*
     * All conditions are checked again, because a flush delivers without
     * calling net_can_receive(). The device may be entered, for example if this
     * frame responds to a frame that it sends now.
     */
    if (!d->vm_running || !qrnic_port_can_receive(d) || !qrnic_enter(d)) {
        trace_qrnic_waits(d->name, "frame");
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        return 0;
    }
    /*
     * The work budget is checked in a flush, because a flush delivers all
     * buffered frames, and a backend only a few.
     */
    if (d->flushes && qrnic_engine_frames_taken(d->engine)) {
        qrnic_pending_add(d, QRNIC_PENDING_RECEIVE);
        qrnic_leave(d);
        qrnic_kick(d);
        return 0;
    }
    qrnic_run(d, frame_run, frame, len);
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

static void net_unplugged(void *opaque)
{
    QrnicPf *pf = opaque;
    NetClientState *nc = qemu_get_queue(pf->nic);

    /*
     * Delivers the frames that a hub buffers for this device, because their
     * sender waits for them.
     */
    qemu_flush_queued_packets(nc);
    /*
     * Discards the frame that the backend has not accepted yet, because it must
     * not call back after the deletion.
     */
    qemu_purge_queued_packets(nc);
    qemu_del_nic(pf->nic);
    pf->nic = NULL;
    object_unref(OBJECT(pf));
}

/*
 * Deletes the net client later. The queues that deliver a frame to the device
 * or accept a frame from it are in use until their functions return. The flush
 * may also unplug further devices.
 */
static void net_detach(QrnicDevice *d)
{
    object_ref(OBJECT(d));
    aio_bh_schedule_oneshot(qemu_get_aio_context(), net_unplugged,
                            qrnic_pf(d));
}

static bool net_link(QrnicDevice *d)
{
    NICState *nic = qrnic_pf(d)->nic;
    NetClientState *nc = nic ? qemu_get_queue(nic) : NULL;

    return nc && nc->peer && !nc->link_down;
}

static void net_sent(NetClientState *nc, ssize_t ret)
{
    QrnicDevice *d = qemu_get_nic_opaque(nc);

    /*
     * The frame may have been discarded by the backend. Then it counts as lost
     * on the wire.
     */
    qrnic_pending_add(d, QRNIC_PENDING_WIRE);
    qrnic_kick(d);
}

static bool net_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    return qemu_send_packet_async(qemu_get_queue(qrnic_pf(d)->nic), frame, len,
                                  net_sent) != 0;
}

static void net_flush(QrnicDevice *d)
{
    qemu_flush_queued_packets(qemu_get_queue(qrnic_pf(d)->nic));
}

void qrnic_net_init(QrnicPf *pf)
{
    static const QrnicWire wire = {
        .link = net_link,
        .send = net_send,
        .flush = net_flush,
        .cleanup = net_detach,
    };
    QrnicDevice *d = &pf->parent_obj;
    DeviceState *dev = DEVICE(d);

    pf->nic = qemu_new_nic(&net_info, &pf->conf,
                           object_get_typename(OBJECT(d)), dev->id,
                           &dev->mem_reentrancy_guard, d);
    qemu_format_nic_info_str(qemu_get_queue(pf->nic), pf->conf.macaddr.a);
    d->wire = &wire;
}
