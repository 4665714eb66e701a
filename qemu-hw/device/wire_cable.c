/*
 * qrnic: the port, plugged into a cable
 *
 * qrnic_cable_plug() attaches the device to the cable at realize. The cable
 * calls link_changed() and work(). The engine sends through cable_send(), and
 * each run of the device calls cable_receive(). While the cable accepts no
 * frame, pf->cable_full is true.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "device/faces.h"
#include "device/parts.h"

QEMU_BUILD_BUG_ON(QRNIC_CABLE_FRAME != QRNIC_FRAME_MAX);

/* Frames in a run of the device */
#define RECEIVE_BUDGET 64

static bool cable_link(QrnicDevice *d)
{
    return qrnic_cable_link(qrnic_pf(d)->cable);
}

static bool cable_send(QrnicDevice *d, const uint8_t *frame, size_t len)
{
    QrnicPf *pf = qrnic_pf(d);

    pf->cable_full = !qrnic_cable_send(pf->cable, frame, len);
    return !pf->cable_full;
}

static bool cable_receive(QrnicDevice *d)
{
    QrnicPf *pf = qrnic_pf(d);
    bool lost = qrnic_takes_no_frame(d);
    uint8_t frame[QRNIC_CABLE_FRAME];

    if (pf->cable_full && qrnic_cable_room(pf->cable)) {
        pf->cable_full = false;
        qrnic_pending_add(d, QRNIC_PENDING_WIRE);
    }
    qrnic_engine_take_frames(d->engine);
    for (unsigned i = 0; i < RECEIVE_BUDGET && qrnic_on_bus(d) &&
         !qrnic_engine_frames_taken(d->engine); i++) {
        const uint8_t *shared;
        size_t len, copied;

        if (!lost && !qrnic_port_can_receive(d)) {
            return !qrnic_engine_suspended(d->engine);
        }
        shared = qrnic_cable_peek(pf->cable, &len);
        if (!shared) {
            return qrnic_cable_await(pf->cable);
        }
        copied = MIN(len, sizeof(frame));
        memcpy(frame, shared, copied);
        qrnic_cable_take(pf->cable, frame, copied);
        /*
         * A frame that is longer than the device accepts is dropped, because a
         * truncated frame is useless.
         */
        if (copied == len && !lost) {
            qrnic_port_receive(d, frame, len);
        }
    }
    return true;
}

static void cable_settle(QrnicDevice *d)
{
    qrnic_cable_settle(qrnic_pf(d)->cable);
}

static void cable_cleanup(QrnicDevice *d)
{
    qrnic_cable_detach(qrnic_pf(d)->cable);
}

static void link_changed(void *opaque)
{
    QrnicDevice *d = opaque;

    /*
     * Senders that wait for room must try again, because a cable without link
     * drops their frames.
     */
    qrnic_pf(d)->cable_full = false;
    qrnic_pending_add(d, QRNIC_PENDING_WIRE);
    qrnic_pending_add(d, QRNIC_PENDING_LINK);
    qrnic_kick(d);
}

/*
 * Runs the device as its bottom half does. The guard rejects MMIO from the
 * device's own DMA and interrupts during that time.
 */
static void work(void *opaque)
{
    QrnicDevice *d = opaque;
    MemReentrancyGuard *guard = &DEVICE(d)->mem_reentrancy_guard;
    bool was_engaged = guard->engaged_in_io;

    object_ref(OBJECT(d));
    guard->engaged_in_io = true;
    qrnic_work(d);
    guard->engaged_in_io = was_engaged;
    object_unref(OBJECT(d));
}

bool qrnic_cable_plug(QrnicPf *pf, Error **errp)
{
    static const QrnicWire wire = {
        .link = cable_link,
        .send = cable_send,
        .receive = cable_receive,
        .settle = cable_settle,
        .cleanup = cable_cleanup,
    };
    static const QrnicCableClient client = {
        .link = link_changed,
        .work = work,
    };
    QrnicDevice *d = &pf->parent_obj;

    if (!qrnic_cable_attach(pf->cable, &client, d, d->name, errp)) {
        return false;
    }
    d->wire = &wire;
    return true;
}
