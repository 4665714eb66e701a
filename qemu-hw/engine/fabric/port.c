/*
 * qrnic engine: the port: link, administrative state and MTU
 *
 * The port is active if the backend's link is up, its administrative state is
 * up, and the device is not fatal. The device reports the link with
 * qrnic_engine_set_link(); commands query and modify the port. Each change
 * between active and inactive is reported as an event.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/fabric/fabric.h"

#define PORT_NUMBER 1
#define PORT_DEFAULT_MTU 1500
#define PORT_SPEED_MBPS 100000
/*
 * Size of the largest headers inside the MTU: IPv6 40, UDP 8, BTH 12, XRCETH 4,
 * AtomicETH 28, ICRC 4
 */
#define PORT_ROCE_OVERHEAD 96

bool qrnic_engine_port_active(const QrnicEngine *e)
{
    return e->fabric->link_up && !e->fatal &&
           (e->fabric->port.flags & QRNIC_PORTF_ADMIN_UP);
}

void qrnic_port_reset(QrnicEngine *e)
{
    e->fabric->port = (QrnicPortCtx) {
        .mtu = PORT_DEFAULT_MTU, .flags = QRNIC_PORTF_ADMIN_UP,
    };
}

static void port_changed(QrnicEngine *e, bool was_active)
{
    bool active = qrnic_engine_port_active(e);

    if (active == was_active) {
        return;
    }
    trace_qrnic_port(e->config.name, active);
    /*
     * Wakes the engine, because queue pairs do not wait for the wire of an
     * inactive port.
     */
    qrnic_wake(e);
    qrnic_add(e, QRNIC_COUNTER_LINK_DOWNS, !active);
    qrnic_event_async(e, active ? QRNIC_EVENT_PORT_UP : QRNIC_EVENT_PORT_DOWN,
                      0, PORT_NUMBER, 0);
}

void qrnic_engine_set_link(QrnicEngine *e, bool up)
{
    bool was_active = qrnic_engine_port_active(e);

    e->fabric->link_up = up;
    port_changed(e, was_active);
}

void qrnic_engine_set_link_agreed(QrnicEngine *e, bool agreed)
{
    e->fabric->link_agreed = agreed;
}

uint8_t qrnic_port_path_mtu(const QrnicEngine *e)
{
    uint8_t mtu = QRNIC_MTU_4096;

    while (mtu > QRNIC_MTU_256 &&
           (128u << mtu) + PORT_ROCE_OVERHEAD > e->fabric->port.mtu) {
        mtu--;
    }
    return mtu;
}

QrnicResult qrnic_port_query(QrnicEngine *e, QrnicPortAttr *out)
{
    memset(out, 0, sizeof(*out));
    out->state = qrnic_engine_port_active(e) ? QRNIC_PORT_ACTIVE :
                                               QRNIC_PORT_DOWN;
    out->active_path_mtu = qrnic_port_path_mtu(e);
    out->max_path_mtu = QRNIC_MTU_4096;
    out->flags = e->fabric->port.flags;
    out->mtu = e->fabric->port.mtu;
    out->max_mtu = QRNIC_MAX_MTU;
    out->speed_mbps = PORT_SPEED_MBPS;
    memcpy(out->mac, e->config.mac, sizeof(out->mac));
    out->gid_entries = e->config.max_gid;
    out->pkey_entries = 1;
    out->link = e->fabric->link_agreed ? QRNIC_PORTL_RETRANSMISSION : 0;
    return qrnic_ok(0);
}

QrnicResult qrnic_port_modify(QrnicEngine *e, const QrnicPortCtx *in)
{
    bool was_active = qrnic_engine_port_active(e);

    if (in->mtu < QRNIC_MIN_MTU || in->mtu > QRNIC_MAX_MTU) {
        return qrnic_refuse(QRNIC_ST_BAD_PARAM, QRNIC_PORT_CTX_MTU_OFFSET);
    }
    e->fabric->port = *in;
    trace_qrnic_port_modify(e->config.name, in->mtu, in->flags);
    port_changed(e, was_active);
    return qrnic_ok(0);
}
