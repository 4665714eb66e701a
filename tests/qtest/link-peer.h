/*
 * qrnic qtest: the peer of link retransmission
 *
 * Owns a session of link retransmission with the device: frame numbers, an
 * encoder and a decoder of frames, and the CRC. The code shares nothing with
 * the device. Programmer's Reference, chapter Link retransmission.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_QTEST_LINK_PEER_H
#define QRNIC_QTEST_LINK_PEER_H

#include "driver.h"

#define LINK_ADDRESS "\x01\x80\xc2\x00\x00\x0c"
#define LINK_HEADERS 46
enum {
    LINK_HELLO = 1,
    LINK_DATA,
    LINK_ACK,
    LINK_NAK,
};

/* The test's session and its first frame number, which wraps soon */
#define LINK_PEER 0xfffffffeu
typedef struct LinkFrame {
    unsigned type;
    uint32_t session, heard, number, ack;
    uint64_t map;
    const uint8_t *payload;
    size_t length;
} LinkFrame;

typedef struct LinkEnd {
    Rig r;
    uint32_t session;           /* The device's session */
    uint32_t sent;              /* Frames sent by the test */
} LinkEnd;

bool link_is_frame(const uint8_t *frame);
/* Decodes a frame of the device and asserts that it is well formed. */
LinkFrame link_decode(const uint8_t *frame, size_t len);
/* Encodes a frame. frame: PEER_FRAME_MAX bytes. Returns the length. */
size_t link_encode(const LinkFrame *f, uint8_t *frame);
/* Writes the right CRC into a frame. */
void link_seal(uint8_t *frame, size_t length);
void link_hello(LinkEnd *e, uint32_t heard);
void link_control(LinkEnd *e, unsigned type, uint32_t count, uint64_t map);
/*
 * Sends frame n with a packet. count: received frames to acknowledge; flip:
 * XORed to the CRC.
 */
void link_data(LinkEnd *e, uint32_t n, uint32_t count, const PeerPacket *p,
               uint32_t flip);
LinkFrame link_expect(LinkEnd *e, unsigned type);
/* Asserts the device's frame n and its packet. */
void link_expect_data(LinkEnd *e, uint32_t n, uint8_t opcode, uint32_t psn);
uint8_t link_state(Device *d);
/*
 * Returns the session of the device's last HELLO. Each reset begins a session.
 */
uint32_t link_session_of(Device *d);
void link_agree(LinkEnd *e);
void link_end_start(LinkEnd *e);

#endif
