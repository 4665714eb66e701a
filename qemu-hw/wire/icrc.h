/*
 * qrnic wire: the invariant CRC (ICRC)
 *
 * packet.c computes the ICRC of each packet that is sent or received. The ICRC
 * is the CRC-32 of Ethernet over the packet, without the fields that a router
 * may change. InfiniBand specification, 7.8.1, with the rules of A16.4 (RoCE
 * v1) and A17.3.3 (RoCE v2).
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_WIRE_ICRC_H
#define QRNIC_WIRE_ICRC_H

#include "wire/headers.h"

#define QRNIC_CRC32_INIT        0xffffffffu

/**
 * qrnic_crc32:
 * @crc: CRC of the previous bytes, or QRNIC_CRC32_INIT
 * @data: the bytes
 * @len: their number
 *
 * Continues a CRC-32 (reflected polynomial 0xedb88320). The first call chooses
 * the fastest implementation that works on this processor.
 *
 * Returns: the CRC, without the final inversion
 */
uint32_t qrnic_crc32(uint32_t crc, const uint8_t *data, size_t len);

/**
 * qrnic_crc32_is_chosen:
 *
 * Returns: true if qrnic_crc32() has been called and has chosen an
 * implementation
 */
bool qrnic_crc32_is_chosen(void);

/* Type of the implementations */
typedef uint32_t QrnicCrc32(uint32_t crc, const uint8_t *data, size_t len);

/**
 * qrnic_crc32_choose:
 * @fast: implementation that the processor claims to support
 *
 * Tests the implementation, because a processor may report instructions that
 * give wrong results.
 *
 * Returns: @fast if its results are correct, else qrnic_crc32_slicing()
 */
QrnicCrc32 *qrnic_crc32_choose(QrnicCrc32 *fast);

/*
 * Implementations. The functions *_have_* return true if the processor claims
 * to support the instructions.
 */
uint32_t qrnic_crc32_bytewise(uint32_t crc, const uint8_t *data, size_t len);
uint32_t qrnic_crc32_slicing(uint32_t crc, const uint8_t *data, size_t len);
bool qrnic_crc32_have_clmul(void);
uint32_t qrnic_crc32_clmul(uint32_t crc, const uint8_t *data, size_t len);
bool qrnic_crc32_have_vpclmul(void);
uint32_t qrnic_crc32_vpclmul(uint32_t crc, const uint8_t *data, size_t len);

/* Part of the packet that the ICRC covers; both ends must agree */
typedef enum QrnicIcrcCover {
    QRNIC_ICRC_STANDARD,
    /*
     * BTH and all after it, for networks that rewrite IP and UDP headers (NAT)
     */
    QRNIC_ICRC_TRANSPORT,
    /* as Soft-RoCE: in a flush, all from the BTH on is covered twice */
    QRNIC_ICRC_SOFT_ROCE,
} QrnicIcrcCover;

/**
 * qrnic_icrc:
 * @cover: covered part of the packet
 * @ip: the packet from its IP header or GRH on
 * @len: its size in bytes, without the ICRC
 * @network: type of the header at @ip
 *
 * Returns: the ICRC, which is sent with the low byte first
 */
uint32_t qrnic_icrc(QrnicIcrcCover cover, const uint8_t *ip, size_t len,
                    QrnicNetwork network);

#endif
