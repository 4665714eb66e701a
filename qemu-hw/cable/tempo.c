/*
 * qrnic cable: decides if an idle end polls for a while before it sleeps
 *
 * cable.c reports received frames and wake-ups, and asks before it sleeps. A
 * wake-up soon after a frame increments the score, any other wake-up reduces
 * it.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "cable/tempo.h"

/* Score from which on the end polls, and its maximum */
#define SURE 4
#define MAX_SURE 8

void qrnic_tempo_frame(QrnicTempo *t, int64_t now)
{
    t->frame_ns = now;
}

bool qrnic_tempo_linger(const QrnicTempo *t, int64_t now)
{
    return t->hurry >= SURE && now - t->frame_ns < QRNIC_TEMPO_LINGER_NS;
}

void qrnic_tempo_woken(QrnicTempo *t, int64_t now)
{
    if (now - t->frame_ns < QRNIC_TEMPO_LINGER_NS) {
        t->hurry = MIN(t->hurry + 1, MAX_SURE);
    } else {
        t->hurry -= MIN(t->hurry, 2);
    }
}
