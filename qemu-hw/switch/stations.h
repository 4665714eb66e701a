/*
 * qrnic switch: the table of addresses, with the port at which each was last
 * seen
 *
 * forward.c enters the source address of each frame and looks up its
 * destination. A sender that invents source addresses could fill the table.
 * Therefore each port has a share of the table, and new addresses of a port
 * replace only entries of this port.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#ifndef QRNIC_SWITCH_STATIONS_H
#define QRNIC_SWITCH_STATIONS_H

typedef struct QrnicStations QrnicStations;

/*
 * Time during which an address stays at its port, even if another port sends
 * from it
 */
#define QRNIC_STATION_HOLD_MS 2000

/* Result of qrnic_stations_learn() */
typedef enum QrnicLearned {
    QRNIC_LEARNED_KNOWN,        /* already known at this port */
    QRNIC_LEARNED_NEW,
    QRNIC_LEARNED_MOVED,        /* was silent at another port */
    QRNIC_LEARNED_CONTESTED,    /* belongs to another port; no change */
    QRNIC_LEARNED_NOTHING,      /* no valid source address */
} QrnicLearned;

/**
 * qrnic_stations_new:
 * @ports: number of ports
 * @share: maximum number of addresses at a port
 * @age_ms: time after which a silent address is forgotten
 * @seed: random number, so that a sender cannot choose addresses that are slow
 *   to find
 *
 * Returns: an empty table
 */
QrnicStations *qrnic_stations_new(unsigned ports, unsigned share,
                                  int64_t age_ms, uint64_t seed);
/**
 * qrnic_stations_free:
 * @s: the table
 */
void qrnic_stations_free(QrnicStations *s);

/**
 * qrnic_stations_learn:
 * @s: the table
 * @address: source address of a frame, 6 bytes
 * @port: port of the frame
 * @now_ms: the time
 *
 * Enters an address.
 *
 * Returns: any value of QrnicLearned
 */
QrnicLearned qrnic_stations_learn(QrnicStations *s, const uint8_t *address,
                                  unsigned port, int64_t now_ms);
/**
 * qrnic_stations_find:
 * @s: the table
 * @address: destination address of a frame, 6 bytes
 * @now_ms: the time
 *
 * Returns: the port of the address, or -1 if it is unknown or too old
 */
int qrnic_stations_find(QrnicStations *s, const uint8_t *address,
                        int64_t now_ms);
/**
 * qrnic_stations_forget:
 * @s: the table
 * @port: a port whose link went down
 *
 * Removes all addresses of the port.
 */
void qrnic_stations_forget(QrnicStations *s, unsigned port);
/**
 * qrnic_stations_count:
 * @s: the table
 * @port: a port
 *
 * Returns: the number of addresses of the port
 */
unsigned qrnic_stations_count(const QrnicStations *s, unsigned port);

#endif
