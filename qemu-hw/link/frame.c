/*
 * qrnic link: frames of link retransmission
 *
 * link.c parses each received frame and builds each sent frame here. Nothing is
 * kept between calls. Numbers are big-endian; the CRC is CRC-32C.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/bswap.h"
#include "qemu/crc32c.h"
#include "link/frame.h"

/* Offsets in the frame */
#define SOURCE 6
#define ETHERTYPE 12
#define VERSION 14
#define TYPE 15
#define LENGTH 16
#define SESSION 18
#define HEARD 22
#define NUMBER 26
#define ACK 30
#define MAP 34
#define CRC 42

/*
 * Group address that no bridge forwards (IEEE 802.1Q, table 8-1). No protocol
 * that guests may use has this address.
 */
static const uint8_t destination[6] = { 0x01, 0x80, 0xc2, 0x00, 0x00, 0x0c };

QrnicLinkKind qrnic_link_kind(const uint8_t *frame, size_t len)
{
    unsigned other = 0;

    if (len < VERSION) {
        return QRNIC_LINK_FOREIGN;
    }
    for (unsigned i = 0; i < sizeof(destination); i++) {
        other += frame[i] != destination[i];
    }
    other += frame[ETHERTYPE] != QRNIC_LINK_ETHERTYPE >> 8;
    other += frame[ETHERTYPE + 1] != (QRNIC_LINK_ETHERTYPE & 0xff);
    switch (other) {
    case 0:
        return QRNIC_LINK_OURS;
    case 1:
        return QRNIC_LINK_DAMAGED;
    default:
        return QRNIC_LINK_FOREIGN;
    }
}

/*
 * Returns the CRC over header and payload, without the CRC itself and the
 * padding.
 */
static uint32_t frame_crc(const uint8_t *frame, uint32_t length)
{
    uint32_t crc = crc32c(0xffffffff, frame, CRC);

    /* crc32c() inverts its result, so the first result is inverted again. */
    return crc32c(~crc, frame + QRNIC_LINK_OVERHEAD, length);
}

static bool fields_are_good(const QrnicLinkHeader *h)
{
    if (!h->session) {
        return false;
    }
    switch (h->type) {
    case QRNIC_LINK_HELLO:
        return !h->length && h->number && !h->ack && !h->map;
    case QRNIC_LINK_DATA:
        return h->length >= QRNIC_LINK_PAYLOAD_MIN && h->heard;
    case QRNIC_LINK_ACK:
    case QRNIC_LINK_NAK:
        return !h->length && !h->number && h->heard;
    default:
        return false;
    }
}

QrnicLinkParse qrnic_link_parse(QrnicLinkHeader *h, const uint8_t *frame,
                                size_t len)
{
    const uint8_t *payload = frame + QRNIC_LINK_OVERHEAD;
    size_t bytes;

    if (len < QRNIC_LINK_OVERHEAD) {
        return QRNIC_LINK_MALFORMED;
    }
    *h = (QrnicLinkHeader) {
        .type = frame[TYPE],
        .session = ldl_be_p(frame + SESSION),
        .heard = ldl_be_p(frame + HEARD),
        .number = ldl_be_p(frame + NUMBER),
        .ack = ldl_be_p(frame + ACK),
        .map = ldq_be_p(frame + MAP),
        .length = lduw_be_p(frame + LENGTH),
    };
    bytes = QRNIC_LINK_OVERHEAD + h->length;
    if (h->length > QRNIC_LINK_PAYLOAD_MAX ||
        (len != bytes && len != MAX(bytes, QRNIC_LINK_FRAME_MIN))) {
        return QRNIC_LINK_MALFORMED;
    }
    if (ldl_be_p(frame + CRC) != frame_crc(frame, h->length)) {
        return QRNIC_LINK_BAD_CRC;
    }
    /*
     * The payload must not be a link frame, because qrnic_link_send() of an
     * honest peer never accepts such a payload.
     */
    if (frame[VERSION] != QRNIC_LINK_VERSION || !fields_are_good(h) ||
        (h->length && qrnic_link_kind(payload, h->length) == QRNIC_LINK_OURS)) {
        return QRNIC_LINK_MALFORMED;
    }
    return QRNIC_LINK_GOOD;
}

size_t qrnic_link_build(uint8_t *frame, const uint8_t *mac,
                        const QrnicLinkHeader *h)
{
    size_t len = QRNIC_LINK_OVERHEAD + h->length;

    memcpy(frame, destination, sizeof(destination));
    memcpy(frame + SOURCE, mac, 6);
    stw_be_p(frame + ETHERTYPE, QRNIC_LINK_ETHERTYPE);
    frame[VERSION] = QRNIC_LINK_VERSION;
    frame[TYPE] = h->type;
    stw_be_p(frame + LENGTH, h->length);
    stl_be_p(frame + SESSION, h->session);
    stl_be_p(frame + HEARD, h->heard);
    stl_be_p(frame + NUMBER, h->number);
    stl_be_p(frame + ACK, h->ack);
    stq_be_p(frame + MAP, h->map);
    stl_be_p(frame + CRC, frame_crc(frame, h->length));
    if (len < QRNIC_LINK_FRAME_MIN) {
        memset(frame + len, 0, QRNIC_LINK_FRAME_MIN - len);
        len = QRNIC_LINK_FRAME_MIN;
    }
    return len;
}
