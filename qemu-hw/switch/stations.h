/*
 * qrnic switch: which address was last seen at which port
 *
 * Frames choose what is kept here, so each port has a share of its own: one
 * that invents addresses replaces those that it had itself, and no others.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_SWITCH_STATIONS_H
#define QRNIC_SWITCH_STATIONS_H

typedef struct QrnicStations QrnicStations;

/* So long an address stays where it is, whatever other ports say. */
#define QRNIC_STATION_HOLD_MS 2000

typedef enum QrnicLearned {
    QRNIC_LEARNED_KNOWN,        /* seen here before */
    QRNIC_LEARNED_NEW,
    QRNIC_LEARNED_MOVED,        /* was at another port, and silent there */
    QRNIC_LEARNED_CONTESTED,    /* is at another port; nothing changed */
    QRNIC_LEARNED_NOTHING,      /* no station can have this address */
} QrnicLearned;

/*
 * share: addresses that one port may have. seed: random, so that nobody can
 * choose addresses that are slow to find.
 */
QrnicStations *qrnic_stations_new(unsigned ports, unsigned share,
                                  int64_t age_ms, uint64_t seed);
void qrnic_stations_free(QrnicStations *s);

/* A frame from this address came from this port. */
QrnicLearned qrnic_stations_learn(QrnicStations *s, const uint8_t *address,
                                  unsigned port, int64_t now_ms);
/* The port of an address; -1: not known, or too long ago */
int qrnic_stations_find(QrnicStations *s, const uint8_t *address,
                        int64_t now_ms);
/* Nothing is at this port any more. */
void qrnic_stations_forget(QrnicStations *s, unsigned port);
unsigned qrnic_stations_count(const QrnicStations *s, unsigned port);

#endif
