/*
 * qrnic cable: frames to and from a device of another process on this host
 *
 * An object of QEMU's, one for each end. A device attaches to it; while the
 * other end is there, too, both have the memory of two rings in common.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_H
#define QRNIC_CABLE_H

#include "qom/object.h"

/* Bytes of the largest frame that the device sends and takes */
#define QRNIC_CABLE_FRAME 9082

#define TYPE_QRNIC_CABLE "qrnic-cable"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicCable, QRNIC_CABLE)

/* What the device is told, always from the main loop. */
typedef struct QrnicCableClient {
    /* The link came up or went down. */
    void (*link)(void *opaque);
    /* There are frames, or room for some. */
    void (*work)(void *opaque);
} QrnicCableClient;

/* From now on the other end can connect. name: for traces and logs */
bool qrnic_cable_attach(QrnicCable *c, const QrnicCableClient *client,
                        void *opaque, const char *name, Error **errp);
void qrnic_cable_detach(QrnicCable *c);

bool qrnic_cable_link(const QrnicCable *c);

/*
 * Takes the frame in any case (without link it is lost). False: there is no
 * room for another until client->work() is called.
 */
bool qrnic_cable_send(QrnicCable *c, const uint8_t *frame, size_t len);

/* Frames can be sent again (or there is nobody to whom). */
bool qrnic_cable_room(QrnicCable *c);

/*
 * The next frame, or NULL. The other end can change its bytes until it is
 * taken. The link does not go down between the two.
 */
const uint8_t *qrnic_cable_peek(QrnicCable *c, size_t *len);
/* copy: what the caller made of it, and goes on with */
void qrnic_cable_take(QrnicCable *c, const uint8_t *copy, size_t len);

/*
 * To be called when the device has done what there was to do: gives the other
 * end the events that it wants.
 */
void qrnic_cable_settle(QrnicCable *c);
/*
 * Asks for client->work() when there is a frame. True: nothing was asked for,
 * as there is one already or may be soon: the caller must come again.
 */
bool qrnic_cable_await(QrnicCable *c);

#endif
