/*
 * qrnic wire: the invariant CRC
 *
 * InfiniBand specification, 7.8.1, with the rules of A16.4 (RoCE v1) and
 * A17.3.3 (RoCE v2): CRC-32 of Ethernet over the packet without the fields that
 * a router may change.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_WIRE_ICRC_H
#define QRNIC_WIRE_ICRC_H

#include "wire/headers.h"

#define QRNIC_CRC32_INIT        0xffffffffu

/* Continues a CRC-32 (reflected 0xedb88320) without final inversion. */
uint32_t qrnic_crc32(uint32_t crc, const uint8_t *data, size_t len);

/*
 * Returns true if qrnic_crc32() has been called and has chosen an
 * implementation.
 */
bool qrnic_crc32_is_chosen(void);

typedef uint32_t QrnicCrc32(uint32_t crc, const uint8_t *data, size_t len);

/*
 * What a processor says of itself is tried before it is believed: fast, if it
 * computes what the definition says, else the one that any processor can do.
 */
QrnicCrc32 *qrnic_crc32_choose(QrnicCrc32 *fast);

/* The implementations; qrnic_crc32() takes the fastest that works here. */
uint32_t qrnic_crc32_bytewise(uint32_t crc, const uint8_t *data, size_t len);
uint32_t qrnic_crc32_slicing(uint32_t crc, const uint8_t *data, size_t len);
bool qrnic_crc32_have_clmul(void);
uint32_t qrnic_crc32_clmul(uint32_t crc, const uint8_t *data, size_t len);
bool qrnic_crc32_have_vpclmul(void);
uint32_t qrnic_crc32_vpclmul(uint32_t crc, const uint8_t *data, size_t len);

/* What the ICRC covers; both ends must agree. */
typedef enum QrnicIcrcCover {
    QRNIC_ICRC_STANDARD,
    /* From the BTH on: for networks that rewrite IP and UDP headers (NAT) */
    QRNIC_ICRC_TRANSPORT,
    /* As Soft-RoCE has it: in a flush, all from the BTH on a second time */
    QRNIC_ICRC_SOFT_ROCE,
} QrnicIcrcCover;

/*
 * ICRC of a packet that begins at its IP header or GRH and is len bytes long
 * without the ICRC. It goes on the wire low byte first.
 */
uint32_t qrnic_icrc(QrnicIcrcCover cover, const uint8_t *ip, size_t len,
                    QrnicNetwork network);

#endif
