/*
 * qrnic link: frames of link retransmission
 *
 * Pure functions that parse and build these frames: an Ethernet header, a link
 * header, and the whole payload frame. Manual, chapter "Link retransmission".
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_FRAME_H
#define QRNIC_LINK_FRAME_H

/* IEEE 802, for local experiments */
#define QRNIC_LINK_ETHERTYPE 0x88b5
#define QRNIC_LINK_VERSION 1

/* Bytes before the payload frame: Ethernet header 14, link header 32 */
#define QRNIC_LINK_OVERHEAD 46
/* Minimum size; shorter frames are padded with zeros */
#define QRNIC_LINK_FRAME_MIN 60
#define QRNIC_LINK_PAYLOAD_MIN 14
/* A tagged frame of the largest MTU, and some reserve */
#define QRNIC_LINK_PAYLOAD_MAX 9036
#define QRNIC_LINK_FRAME_MAX (QRNIC_LINK_OVERHEAD + QRNIC_LINK_PAYLOAD_MAX)

enum qrnic_link_type {
    QRNIC_LINK_HELLO = 1,
    QRNIC_LINK_DATA = 2,
    QRNIC_LINK_ACK = 3,
    QRNIC_LINK_NAK = 4,
};

typedef struct QrnicLinkHeader {
    uint8_t type;
    /* session of the sender; heard: session of the peer, or 0 */
    uint32_t session, heard;
    uint32_t number;            /* of DATA; HELLO: window; else 0 */
    uint32_t ack;               /* first number that has not arrived */
    uint64_t map;               /* bit n: number ack + 1 + n has arrived */
    uint32_t length;            /* length of the payload frame */
} QrnicLinkHeader;

typedef enum QrnicLinkKind {
    QRNIC_LINK_FOREIGN,         /* no link frame */
    QRNIC_LINK_DAMAGED,         /* differs from a link frame in one byte */
    QRNIC_LINK_OURS,            /* destination and EtherType of a link frame */
} QrnicLinkKind;

typedef enum QrnicLinkParse {
    QRNIC_LINK_GOOD,
    QRNIC_LINK_BAD_CRC,
    QRNIC_LINK_MALFORMED,
} QrnicLinkParse;

/**
 * qrnic_link_kind:
 * @frame: a frame of the wire or of the port above
 * @len: its size in bytes
 *
 * Returns: the kind of the frame, by destination address and EtherType
 */
QrnicLinkKind qrnic_link_kind(const uint8_t *frame, size_t len);
/**
 * qrnic_link_parse:
 * @h: receives the header
 * @frame: a frame of the kind QRNIC_LINK_OURS
 * @len: its size in bytes
 *
 * Parses and validates a link frame. The payload is at QRNIC_LINK_OVERHEAD.
 *
 * Returns: any value of QrnicLinkParse
 */
QrnicLinkParse qrnic_link_parse(QrnicLinkHeader *h, const uint8_t *frame,
                                size_t len);
/**
 * qrnic_link_build:
 * @frame: at least QRNIC_LINK_FRAME_MIN bytes; the payload is already in place
 * @mac: source MAC address
 * @h: the header
 *
 * Writes the headers and the padding of a link frame.
 *
 * Returns: the size of the frame in bytes
 */
size_t qrnic_link_build(uint8_t *frame, const uint8_t *mac,
                        const QrnicLinkHeader *h);

#endif
