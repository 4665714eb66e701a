/*
 * qrnic engine, transport: tables of reliable transport
 *
 * Converts the codes of credits and timers. Requester and responder call these
 * pure functions. InfiniBand specification, tables 45 and 49.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/rc/reliability.h"

/* Credits by code (table 49). Code 31 means that the ACK has no credits. */
static const uint16_t credits[QRNIC_CREDITS_INVALID] = {
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512,
    768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
};

/* RNR times by code (table 45), in units of 10 us */
static const uint16_t rnr_time[32] = {
    65535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384,
    512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576,
    32768, 49152,
};

uint8_t qrnic_credits_encode(uint32_t n)
{
    uint8_t code = QRNIC_CREDITS_INVALID - 1;

    while (credits[code] > n) {
        code--;
    }
    return code;
}

uint32_t qrnic_credits_decode(uint8_t code)
{
    return code < QRNIC_CREDITS_INVALID ? credits[code] : UINT32_MAX;
}

int64_t qrnic_rnr_time_ns(uint8_t code)
{
    /* Code 0 is 655.36 ms, which does not fit the type of the table. */
    return code ? rnr_time[code & 31] * 10000ll : 655360000ll;
}

int64_t qrnic_ack_timeout_ns(uint8_t code)
{
    return code ? 4096ll << (code & 31) : 0;
}
