/*
 * qrnic engine, transport: arithmetic of reliable transport
 *
 * Pure functions on PSNs, AETH syndromes, credits and times. Requester and
 * responder both use them, so they have a file of their own. No state is kept.
 * InfiniBand specification, 9.3.4 and 9.7.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_RELIABILITY_H
#define QRNIC_ENGINE_RELIABILITY_H

#include "wire/packet.h"

/*
 * Half of all PSNs: larger distances cannot be distinguished from negative ones
 */
#define QRNIC_PSN_HALF          0x800000u

/* AETH syndrome (InfiniBand specification, 9.3.4, table 44) */
#define QRNIC_AETH_TYPE_MASK    0xe0
#define QRNIC_AETH_ACK          0x00
#define QRNIC_AETH_RNR          0x20
#define QRNIC_AETH_NAK          0x60
#define QRNIC_AETH_VALUE_MASK   0x1f
#define QRNIC_CREDITS_INVALID   0x1f
#define QRNIC_NAK_SEQUENCE      (QRNIC_AETH_NAK | 0)
#define QRNIC_NAK_INVALID       (QRNIC_AETH_NAK | 1)
#define QRNIC_NAK_ACCESS        (QRNIC_AETH_NAK | 2)
#define QRNIC_NAK_OPERATION     (QRNIC_AETH_NAK | 3)

static inline uint32_t qrnic_psn_add(uint32_t psn, uint32_t n)
{
    return (psn + n) & QRNIC_PSN_MASK;
}

/* Returns the signed distance from b to a, -2^23 to 2^23 - 1. */
static inline int32_t qrnic_psn_diff(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

/* Returns the distance from one PSN forward to the other, 0 to 2^24 - 1. */
static inline uint32_t qrnic_psn_distance(uint32_t from, uint32_t to)
{
    return (to - from) & QRNIC_PSN_MASK;
}

/*
 * Returns the number of PSNs of a message of length bytes. An empty message has
 * one PSN.
 */
static inline uint32_t qrnic_psn_count(uint64_t length, uint32_t mtu)
{
    return length ? (length + mtu - 1) / mtu : 1;
}

/*
 * Credit codes (9.7.7.2, table 49). The first function returns the largest code
 * for at most n credits, the second the credits of a code; UINT32_MAX: no
 * limit.
 */
uint8_t qrnic_credits_encode(uint32_t n);
uint32_t qrnic_credits_decode(uint8_t code);
/* Returns the time of an RNR timer code (table 45) in ns. */
int64_t qrnic_rnr_time_ns(uint8_t code);
/* Returns the local ACK timeout in ns; 0: no timeout. */
int64_t qrnic_ack_timeout_ns(uint8_t code);

#endif
