/*
 * qrnic switches: the rules that qrnic-switch and the embedded switch of the
 * adapter share
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

/*
 * Both switches forward by MAC address to ports with bounded queues. A frame
 * for a full port waits, because a lost packet makes a reliable connection
 * retransmit all packets behind it. A port that accepts too little would slow
 * down all its senders. Therefore a sender waits for a limited time only. After
 * that the port is slow for a while, and no sender waits for it. Times are in
 * any unit, and from any origin. Manual, chapter "Switch", section "Full
 * ports".
 */

#ifndef QRNIC_SWITCH_RULES_H
#define QRNIC_SWITCH_RULES_H

/* State of a port that may have no room */
typedef struct QrnicPatience {
    bool full;                  /* set and cleared by the switch */
    int64_t since;              /* time at which the port became full */
    int64_t slow_until;         /* no sender waits for the port until then */
} QrnicPatience;

/**
 * qrnic_patience_waits:
 * @p: the port
 * @now: the time
 * @limit: longest time that a sender waits
 *
 * Returns: true if senders shall wait for the port: it is full, but has
 * accepted frames recently
 */
static inline bool qrnic_patience_waits(const QrnicPatience *p, int64_t now,
                                        int64_t limit)
{
    return p->full && now < p->since + limit && now >= p->slow_until;
}

/**
 * qrnic_patience_exceeded:
 * @p: a full port for which senders do not wait
 * @now: the time
 * @slow: time for which the port is slow
 *
 * Makes the port slow, unless it is slow already.
 *
 * Returns: true if the port has become slow
 */
static inline bool qrnic_patience_exceeded(QrnicPatience *p, int64_t now,
                                           int64_t slow)
{
    if (now < p->slow_until) {
        return false;
    }
    p->slow_until = now + slow;
    return true;
}

/**
 * qrnic_address_is_one_hop:
 * @address: destination address, 6 bytes
 *
 * Returns: true for 01-80-c2-00-00-00 to 0f, which a bridge must not forward
 * (IEEE 802.1Q, table 8-1)
 */
static inline bool qrnic_address_is_one_hop(const uint8_t *address)
{
    static const uint8_t group[] = { 0x01, 0x80, 0xc2, 0x00, 0x00 };

    return !memcmp(address, group, sizeof(group)) && address[5] < 0x10;
}

#endif
