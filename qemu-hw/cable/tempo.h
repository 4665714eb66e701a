/*
 * qrnic cable: when an end that has nothing to do does not sleep yet
 *
 * To fall asleep and to be woken both take longer than to move a frame. So an
 * end that was woken at once, again and again, looks for some microseconds
 * more before it sleeps. Times are in ns, of any clock.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_CABLE_TEMPO_H
#define QRNIC_CABLE_TEMPO_H

/* So long after the last frame */
#define QRNIC_TEMPO_LINGER_NS 10000

typedef struct QrnicTempo {
    int64_t frame_ns;           /* when the last frame was seen */
    unsigned hurry;             /* how often it should have lingered */
} QrnicTempo;

void qrnic_tempo_frame(QrnicTempo *t, int64_t now);
/* There is no frame. True: look again soon, and do not sleep. */
bool qrnic_tempo_linger(const QrnicTempo *t, int64_t now);
void qrnic_tempo_woken(QrnicTempo *t, int64_t now);

#endif
