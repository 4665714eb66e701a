/*
 * qrnic: the uplink of the embedded switch, connected to a backend of QEMU
 *
 * qrnic_uplink_init() creates the net client at realize of the physical
 * function. A frame of the backend is queued in the switch. If the switch stops
 * the uplink, the backend buffers frames until qrnic_uplink_flush(). A backend
 * that is busy calls net_sent() when it accepts frames again.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/main-loop.h"
#include "trace.h"
#include "device/sriov/sriov.h"

static NetClientState *uplink_client(QrnicSriov *s)
{
    return s->pf->nic ? qemu_get_queue(s->pf->nic) : NULL;
}

static bool net_can_receive(NetClientState *nc)
{
    QrnicSriov *s = qemu_get_nic_opaque(nc);

    return !s->backend_stopped;
}

/*
 * Queues a frame. The condition is checked again, because a flush delivers
 * without calling net_can_receive().
 */
static ssize_t net_receive(NetClientState *nc, const uint8_t *frame,
                           size_t len)
{
    QrnicSriov *s = qemu_get_nic_opaque(nc);

    /* After unplug the frame is lost, because its sender must not wait. */
    if (!s->bh) {
        return len;
    }
    if (s->backend_stopped) {
        trace_qrnic_waits(s->name, "frame");
        return 0;
    }
    s->backend_stopped = !qrnic_eswitch_send(s->eswitch, QRNIC_ESWITCH_UPLINK,
                                             frame, len);
    return len;
}

static bool uplink_is_up(QrnicSriov *s)
{
    NetClientState *nc = uplink_client(s);

    return nc && nc->peer && !nc->link_down;
}

static void net_link_status_changed(NetClientState *nc)
{
    QrnicSriov *s = qemu_get_nic_opaque(nc);

    qrnic_eswitch_set_wire(s->eswitch, uplink_is_up(s));
}

static NetClientInfo net_info = {
    .type = NET_CLIENT_DRIVER_NIC,
    .size = sizeof(NICState),
    .can_receive = net_can_receive,
    .receive = net_receive,
    .link_status_changed = net_link_status_changed,
};

static void net_sent(NetClientState *nc, ssize_t ret)
{
    QrnicSriov *s = qemu_get_nic_opaque(nc);

    s->backend_full = false;
    qrnic_eswitch_ready(s->eswitch, QRNIC_ESWITCH_UPLINK);
}

bool qrnic_uplink_send(QrnicSriov *s, const uint8_t *frame, size_t len)
{
    NetClientState *nc = uplink_client(s);

    if (s->backend_full) {
        return false;
    }
    /* The backend accepts the frame in any case, but may buffer it. */
    s->backend_full = nc && qemu_send_packet_async(nc, frame, len,
                                                   net_sent) == 0;
    return true;
}

void qrnic_uplink_flush(QrnicSriov *s)
{
    NetClientState *nc = uplink_client(s);

    if (nc) {
        qemu_flush_queued_packets(nc);
    }
}

void qrnic_uplink_init(QrnicSriov *s)
{
    QrnicPf *pf = s->pf;
    DeviceState *dev = DEVICE(pf);

    pf->nic = qemu_new_nic(&net_info, &pf->conf,
                           object_get_typename(OBJECT(pf)), dev->id,
                           &dev->mem_reentrancy_guard, s);
    qemu_format_nic_info_str(qemu_get_queue(pf->nic), pf->conf.macaddr.a);
    qrnic_eswitch_plug(s->eswitch, QRNIC_ESWITCH_UPLINK);
    qrnic_eswitch_set_wire(s->eswitch, uplink_is_up(s));
}

/*
 * Deletes the net client. The backend must not call back after the deletion, so
 * frames that it has not accepted yet are discarded.
 */
static void net_unplugged(void *opaque)
{
    QrnicSriov *s = opaque;
    NetClientState *nc = uplink_client(s);

    s->backend_stopped = false;
    qemu_flush_queued_packets(nc);
    qemu_purge_queued_packets(nc);
    qemu_del_nic(s->pf->nic);
    s->pf->nic = NULL;
    object_unref(OBJECT(s->pf));
}

/*
 * The net client is deleted in a bottom half, because its queues are in use
 * until the functions that deliver or accept a frame return.
 */
void qrnic_uplink_detach(QrnicSriov *s)
{
    object_ref(OBJECT(s->pf));
    aio_bh_schedule_oneshot(qemu_get_aio_context(), net_unplugged, s);
}
