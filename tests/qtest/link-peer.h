/*
 * qrnic qtest: the other end of link retransmission
 *
 * With an encoder and decoder of its own. Programmer's Reference, chapter Link
 * retransmission.
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

/* The test's session; its numbers wrap soon. */
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
    uint32_t session;           /* the device's */
    uint32_t sent;              /* frames of ours */
} LinkEnd;

bool link_is_frame(const uint8_t *frame);
/* One of the device's, which is as it should be */
LinkFrame link_decode(const uint8_t *frame, size_t len);
/* One of ours into frame, PEER_FRAME_MAX long; returns its length. */
size_t link_encode(const LinkFrame *f, uint8_t *frame);
/* The CRC is right again. */
void link_seal(uint8_t *frame, size_t length);
void link_hello(LinkEnd *e, uint32_t heard);
void link_control(LinkEnd *e, unsigned type, uint32_t count, uint64_t map);
/*
 * Our frame n, which carries a packet; count: of theirs that have arrived;
 * flip: what is done to the CRC
 */
void link_data(LinkEnd *e, uint32_t n, uint32_t count, const PeerPacket *p,
               uint32_t flip);
LinkFrame link_expect(LinkEnd *e, unsigned type);
/* The device's frame n, which carries this packet of its */
void link_expect_data(LinkEnd *e, uint32_t n, uint8_t opcode, uint32_t psn);
uint8_t link_state(Device *d);
/* The latest HELLO of the device: each reset begins a session. */
uint32_t link_session_of(Device *d);
void link_agree(LinkEnd *e);
void link_end_start(LinkEnd *e);

#endif
