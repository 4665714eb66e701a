/*
 * qrnic engine: arithmetic of reliable transport
 *
 * PSNs, AETH syndromes, credits and times. Pure functions, in a file of their
 * own because requester and responder use them, and neither calls the other.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_ENGINE_RELIABILITY_H
#define QRNIC_ENGINE_RELIABILITY_H

#include "wire/packet.h"

/* Largest range of PSNs that can be told from its complement. */
#define QRNIC_PSN_HALF          0x800000u

/* AETH syndrome (InfiniBand specification, 9.3.4, table 44). */
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

/* How far a is ahead of b, -2^23 to 2^23 - 1. */
static inline int32_t qrnic_psn_diff(uint32_t a, uint32_t b)
{
    return (int32_t)((a - b) << 8) >> 8;
}

/* How far a is behind or at b, counted the other way: 0 to 2^24 - 1. */
static inline uint32_t qrnic_psn_distance(uint32_t from, uint32_t to)
{
    return (to - from) & QRNIC_PSN_MASK;
}

/* PSNs of a message of length bytes: an empty one takes one too. */
static inline uint32_t qrnic_psn_count(uint64_t length, uint32_t mtu)
{
    return length ? (length + mtu - 1) / mtu : 1;
}

/* Code of at most n credits (9.7.7.2, table 49), and what a code means. */
uint8_t qrnic_credits_encode(uint32_t n);
uint32_t qrnic_credits_decode(uint8_t code);
/* Time of an RNR timer code (table 45) in ns. */
int64_t qrnic_rnr_time_ns(uint8_t code);
/* Local ACK timeout in ns; 0: none. */
int64_t qrnic_ack_timeout_ns(uint8_t code);

#endif
