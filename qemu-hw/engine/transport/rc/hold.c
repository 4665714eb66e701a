/*
 * qrnic engine: packets of a connection that came ahead of their turn, and are
 * kept until what is before them has come
 *
 * What they say is looked at when it is their turn, as if they came then. All
 * connections together keep no more than QRNIC_MAX_HELD bytes.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "trace.h"
#include "engine/transport/rc/rc.h"

QEMU_BUILD_BUG_ON(QRNIC_SELECTIVE_WINDOW != QRNIC_WINDOW);
QEMU_BUILD_BUG_ON(QRNIC_SACK_BYTES * 8 != QRNIC_WINDOW);
/* PSNs are indices modulo the window. */
QEMU_BUILD_BUG_ON((QRNIC_PSN_MASK + 1) % QRNIC_WINDOW);

static size_t held_size(uint32_t payload_len)
{
    return sizeof(QrnicHeld) + payload_len;
}

bool qrnic_hold_put(QrnicEngine *e, QrnicHold **h, const QrnicPacket *pkt,
                    bool placed)
{
    uint32_t psn = pkt->t.psn, place = psn % QRNIC_WINDOW;
    uint32_t len = placed ? 0 : pkt->payload_len;
    size_t size = held_size(len);
    QrnicHeld *p;

    if (qrnic_hold_has(*h, psn)) {
        return true;
    }
    /* Longer than any path MTU allows: no honest end sends it. */
    if (size > QRNIC_BUFFER_MAX) {
        return false;
    }
    if (e->pairs->held_bytes + size > QRNIC_MAX_HELD) {
        qrnic_add(e, QRNIC_COUNTER_RX_DROP_HELD, 1);
        return false;
    }
    if (!*h) {
        *h = qrnic_buffer_get(e, sizeof(**h));
        memset(*h, 0, sizeof(**h));
    }
    p = qrnic_buffer_get(e, size);
    p->t = pkt->t;
    p->info = pkt->info;
    p->placed = placed;
    p->payload_len = len;
    memcpy(p->payload, pkt->payload, len);
    e->pairs->held_bytes += size;
    (*h)->at[place] = p;
    (*h)->count++;
    qrnic_add(e, placed && pkt->info->flags & QRNIC_OPF_WRITE ?
                 QRNIC_COUNTER_PLACED_PACKETS : QRNIC_COUNTER_HELD_PACKETS, 1);
    return true;
}

QrnicHeld *qrnic_hold_take(QrnicEngine *e, QrnicHold **h, uint32_t psn)
{
    QrnicHeld *p;

    if (!qrnic_hold_has(*h, psn)) {
        return NULL;
    }
    p = (*h)->at[psn % QRNIC_WINDOW];
    (*h)->at[psn % QRNIC_WINDOW] = NULL;
    if (!--(*h)->count) {
        qrnic_buffer_put(e, *h, sizeof(**h));
        *h = NULL;
    }
    return p;
}

void qrnic_held_free(QrnicEngine *e, QrnicHeld *p)
{
    size_t size = held_size(p->payload_len);

    e->pairs->held_bytes -= size;
    qrnic_buffer_put(e, p, size);
}

void qrnic_hold_drop(QrnicEngine *e, QrnicHold **h, uint32_t psn,
                     uint32_t count)
{
    for (uint32_t i = 0; *h && i < MIN(count, QRNIC_WINDOW); i++) {
        QrnicHeld *p = qrnic_hold_take(e, h, qrnic_psn_add(psn, i));

        if (p) {
            qrnic_held_free(e, p);
        }
    }
}

void qrnic_hold_cleanup(QrnicEngine *e, QrnicHold **h)
{
    qrnic_hold_drop(e, h, 0, QRNIC_WINDOW);
}

void qrnic_hold_tell(const QrnicHold *h, uint32_t expected,
                     uint8_t arrived[QRNIC_SACK_BYTES])
{
    memset(arrived, 0, QRNIC_SACK_BYTES);
    for (uint32_t i = 0; h && i < QRNIC_WINDOW; i++) {
        if (qrnic_hold_has(h, qrnic_psn_add(expected, i))) {
            arrived[i / 8] |= 0x80 >> i % 8;
        }
    }
}
