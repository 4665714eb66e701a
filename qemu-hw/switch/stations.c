/*
 * qrnic switch: the table of addresses, with the port at which each was last
 * seen
 *
 * All entries are allocated at the start. An entry in use is in a bucket of the
 * hash table and in the list of its port, least recently seen first. If the
 * share of a port is full, the port replaces the first entry of its list.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "qemu/host-utils.h"
#include "qemu/queue.h"
#include "switch/stations.h"

typedef struct Station {
    uint64_t key;
    int64_t seen_ms;
    unsigned port;
    QLIST_ENTRY(Station) same;      /* in its bucket */
    QTAILQ_ENTRY(Station) order;    /* at its port */
} Station;

typedef QLIST_HEAD(Bucket, Station) Bucket;

typedef struct Share {
    QTAILQ_HEAD(, Station) used;    /* least recently seen first */
    QTAILQ_HEAD(, Station) unused;
    unsigned count;
} Share;

struct QrnicStations {
    unsigned ports, bucket_bits;
    int64_t age_ms;
    uint64_t factor;
    Station *all;
    Share *shares;
    Bucket *buckets;
};

QrnicStations *qrnic_stations_new(unsigned ports, unsigned share,
                                  int64_t age_ms, uint64_t seed)
{
    QrnicStations *s = g_new0(QrnicStations, 1);

    s->ports = ports;
    s->age_ms = age_ms;
    /*
     * The factor is odd, so that the high bits of the product depend on all
     * bits of the address.
     */
    s->factor = seed | 1;
    s->bucket_bits = 64 - clz64((uint64_t)ports * share);
    s->all = g_new0(Station, (size_t)ports * share);
    s->shares = g_new0(Share, ports);
    s->buckets = g_new0(Bucket, 1u << s->bucket_bits);
    for (unsigned port = 0; port < ports; port++) {
        QTAILQ_INIT(&s->shares[port].used);
        QTAILQ_INIT(&s->shares[port].unused);
        for (unsigned i = 0; i < share; i++) {
            Station *station = &s->all[port * share + i];

            station->port = port;
            QTAILQ_INSERT_TAIL(&s->shares[port].unused, station, order);
        }
    }
    return s;
}

void qrnic_stations_free(QrnicStations *s)
{
    g_free(s->all);
    g_free(s->shares);
    g_free(s->buckets);
    g_free(s);
}

static uint64_t key_of(const uint8_t *address)
{
    uint64_t key = 0;

    for (unsigned i = 0; i < 6; i++) {
        key = key << 8 | address[i];
    }
    return key;
}

static unsigned bucket_of(const QrnicStations *s, uint64_t key)
{
    return (key * s->factor) >> (64 - s->bucket_bits);
}

static Station *lookup(const QrnicStations *s, uint64_t key)
{
    Station *station;

    QLIST_FOREACH(station, &s->buckets[bucket_of(s, key)], same) {
        if (station->key == key) {
            break;
        }
    }
    return station;
}

static void drop(QrnicStations *s, Station *station)
{
    Share *share = &s->shares[station->port];

    QLIST_REMOVE(station, same);
    QTAILQ_REMOVE(&share->used, station, order);
    QTAILQ_INSERT_HEAD(&share->unused, station, order);
    share->count--;
}

static void add(QrnicStations *s, uint64_t key, unsigned port, int64_t now_ms)
{
    Share *share = &s->shares[port];
    Station *station;

    if (QTAILQ_EMPTY(&share->unused)) {
        drop(s, QTAILQ_FIRST(&share->used));
    }
    station = QTAILQ_FIRST(&share->unused);
    QTAILQ_REMOVE(&share->unused, station, order);
    QTAILQ_INSERT_TAIL(&share->used, station, order);
    share->count++;
    station->key = key;
    station->seen_ms = now_ms;
    QLIST_INSERT_HEAD(&s->buckets[bucket_of(s, key)], station, same);
}

QrnicLearned qrnic_stations_learn(QrnicStations *s, const uint8_t *address,
                                  unsigned port, int64_t now_ms)
{
    uint64_t key = key_of(address);
    Station *station = lookup(s, key);

    if ((address[0] & 1) || !key) {
        return QRNIC_LEARNED_NOTHING;
    }
    if (!station) {
        add(s, key, port, now_ms);
        return QRNIC_LEARNED_NEW;
    }
    if (station->port == port) {
        Share *share = &s->shares[port];

        station->seen_ms = now_ms;
        QTAILQ_REMOVE(&share->used, station, order);
        QTAILQ_INSERT_TAIL(&share->used, station, order);
        return QRNIC_LEARNED_KNOWN;
    }
    if (now_ms - station->seen_ms < QRNIC_STATION_HOLD_MS) {
        return QRNIC_LEARNED_CONTESTED;
    }
    drop(s, station);
    add(s, key, port, now_ms);
    return QRNIC_LEARNED_MOVED;
}

int qrnic_stations_find(QrnicStations *s, const uint8_t *address,
                        int64_t now_ms)
{
    Station *station = lookup(s, key_of(address));

    if (station && now_ms - station->seen_ms >= s->age_ms) {
        drop(s, station);
        station = NULL;
    }
    return station ? station->port : -1;
}

void qrnic_stations_forget(QrnicStations *s, unsigned port)
{
    Station *station, *next;

    QTAILQ_FOREACH_SAFE(station, &s->shares[port].used, order, next) {
        drop(s, station);
    }
}

unsigned qrnic_stations_count(const QrnicStations *s, unsigned port)
{
    return s->shares[port].count;
}
