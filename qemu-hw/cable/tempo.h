/*
 * qrnic cable: decides if an idle end polls for a while before it sleeps
 *
 * Falling asleep and being woken take longer than the transfer of a frame. So
 * an end that was repeatedly woken soon after its last frame polls for some
 * more microseconds. Times are in ns of any clock.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_TEMPO_H
#define QRNIC_CABLE_TEMPO_H

/* Time after the last frame during which an end may poll */
#define QRNIC_TEMPO_LINGER_NS 10000

typedef struct QrnicTempo {
    int64_t frame_ns;           /* time of the last frame */
    unsigned hurry;             /* score of early wake-ups */
} QrnicTempo;

/**
 * qrnic_tempo_frame:
 * @t: the state
 * @now: the time
 *
 * Records that a frame was received.
 */
void qrnic_tempo_frame(QrnicTempo *t, int64_t now);
/**
 * qrnic_tempo_linger:
 * @t: the state
 * @now: the time
 *
 * Decides how the end waits. cable.c calls this function before an end without
 * frames sleeps.
 *
 * Returns: true if the caller shall poll again instead of sleeping
 */
bool qrnic_tempo_linger(const QrnicTempo *t, int64_t now);
/**
 * qrnic_tempo_woken:
 * @t: the state
 * @now: the time
 *
 * Records that the end was woken.
 */
void qrnic_tempo_woken(QrnicTempo *t, int64_t now);

#endif
