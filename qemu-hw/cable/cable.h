/*
 * qrnic cable: exchanges frames with a device of another process on this host
 *
 * An object of QEMU (qrnic-cable) is one end of a cable. A device or a port of
 * qrnic-switch attaches to it. While the peer is connected, both ends share the
 * memory of two rings. All functions and callbacks run in the main loop.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_H
#define QRNIC_CABLE_H

#include "qom/object.h"

/* Size of the largest frame that the device sends and accepts */
#define QRNIC_CABLE_FRAME 9082

#define TYPE_QRNIC_CABLE "qrnic-cable"
OBJECT_DECLARE_SIMPLE_TYPE(QrnicCable, QRNIC_CABLE)

/* Callbacks for the device */
typedef struct QrnicCableClient {
    /* The link came up or went down. */
    void (*link)(void *opaque);
    /* There may be frames, or room for frames. */
    void (*work)(void *opaque);
} QrnicCableClient;

/**
 * qrnic_cable_attach:
 * @c: the cable
 * @client: callbacks
 * @opaque: argument of the callbacks
 * @name: name of the device for traces and logs
 * @errp: receives the error
 *
 * Attaches a device. From then on the peer can connect.
 *
 * Returns: true, or false with *@errp set if the cable is in use or its socket
 * is unusable
 */
bool qrnic_cable_attach(QrnicCable *c, const QrnicCableClient *client,
                        void *opaque, const char *name, Error **errp);
/**
 * qrnic_cable_detach:
 * @c: the cable
 *
 * Disconnects the peer and detaches the device.
 */
void qrnic_cable_detach(QrnicCable *c);

/**
 * qrnic_cable_link:
 * @c: the cable
 *
 * Returns: true if the peer is connected and the cable is not cut
 */
bool qrnic_cable_link(const QrnicCable *c);

/**
 * qrnic_cable_send:
 * @c: the cable
 * @frame: the frame
 * @len: its size in bytes
 *
 * Sends a frame, which is always accepted. Without a link the frame is lost.
 *
 * Returns: true, or false if there is no room for another frame until
 * client->work() is called
 */
bool qrnic_cable_send(QrnicCable *c, const uint8_t *frame, size_t len);

/**
 * qrnic_cable_room:
 * @c: the cable
 *
 * Returns: true if a frame can be sent, or if there is no peer
 */
bool qrnic_cable_room(QrnicCable *c);

/**
 * qrnic_cable_peek:
 * @c: the cable
 * @len: receives the size in bytes
 *
 * Returns the next frame in shared memory. The peer can change its bytes until
 * qrnic_cable_take(), so the caller must copy them. The link does not go down
 * between both calls.
 *
 * Returns: the frame, or NULL if there is none
 */
const uint8_t *qrnic_cable_peek(QrnicCable *c, size_t *len);
/**
 * qrnic_cable_take:
 * @c: the cable
 * @copy: the copy of the frame, for the capture
 * @len: its size in bytes
 *
 * Consumes the frame of the last qrnic_cable_peek().
 */
void qrnic_cable_take(QrnicCable *c, const uint8_t *copy, size_t len);

/**
 * qrnic_cable_settle:
 * @c: the cable
 *
 * Sends the events that the peer has requested. Called when the device has
 * finished its work.
 */
void qrnic_cable_settle(QrnicCable *c);
/**
 * qrnic_cable_await:
 * @c: the cable
 *
 * Requests a call of client->work() for the next frame.
 *
 * Returns: false, or true if the caller must poll again, because there is
 * already a frame or one is expected soon
 */
bool qrnic_cable_await(QrnicCable *c);

#endif
