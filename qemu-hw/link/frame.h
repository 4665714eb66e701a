/*
 * qrnic link: the frames of link retransmission
 *
 * Bytes in, structure out, and back. An Ethernet header, a link header, and
 * the payload frame, whole.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_LINK_FRAME_H
#define QRNIC_LINK_FRAME_H

/* IEEE 802, for experiments of the local network */
#define QRNIC_LINK_ETHERTYPE 0x88b5
#define QRNIC_LINK_VERSION 1

/* What a payload frame grows by: 14 bytes of Ethernet, 32 of our own */
#define QRNIC_LINK_OVERHEAD 46
/* Shorter ones are filled up with zeros. */
#define QRNIC_LINK_FRAME_MIN 60
#define QRNIC_LINK_PAYLOAD_MIN 14
/* A frame of the largest MTU with a tag, and a little more */
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
    uint32_t session, heard;    /* of its sender; of the other end, or 0 */
    uint32_t number;            /* of DATA; HELLO: window; else 0 */
    uint32_t ack;               /* the first number that has not arrived */
    uint64_t map;               /* bit n: number ack + 1 + n has */
    uint32_t length;            /* of the payload frame */
} QrnicLinkHeader;

typedef enum QrnicLinkKind {
    QRNIC_LINK_FOREIGN,         /* no link frame at all */
    QRNIC_LINK_DAMAGED,         /* differs from one in one byte */
    QRNIC_LINK_OURS,            /* says that it is one */
} QrnicLinkKind;

typedef enum QrnicLinkParse {
    QRNIC_LINK_GOOD,
    QRNIC_LINK_BAD_CRC,
    QRNIC_LINK_MALFORMED,
} QrnicLinkParse;

/* By its destination and its EtherType */
QrnicLinkKind qrnic_link_kind(const uint8_t *frame, size_t len);
/* Of one that is ours. What it carries is at QRNIC_LINK_OVERHEAD. */
QrnicLinkParse qrnic_link_parse(QrnicLinkHeader *h, const uint8_t *frame,
                                size_t len);
/*
 * Writes the headers in front of h->length bytes that are there already.
 * frame: of QRNIC_LINK_FRAME_MIN bytes at least. Returns how many it has.
 */
size_t qrnic_link_build(uint8_t *frame, const uint8_t *mac,
                        const QrnicLinkHeader *h);

#endif
