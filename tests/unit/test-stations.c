/*
 * The addresses of the switch: their ports, age and number
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "switch/stations.h"

#define PORTS 3
#define SHARE 8
#define AGE 10000
#define HOLD QRNIC_STATION_HOLD_MS

typedef struct Address {
    uint8_t bytes[6];
} Address;

static Address address(uint32_t number)
{
    return (Address) { { 2, 0, number >> 24, number >> 16, number >> 8,
                         number } };
}

static QrnicStations *stations_new(void)
{
    return qrnic_stations_new(PORTS, SHARE, AGE, 0x123456789abcdef0);
}

static QrnicLearned learn(QrnicStations *s, uint32_t number, unsigned port,
                          int64_t now)
{
    return qrnic_stations_learn(s, address(number).bytes, port, now);
}

static int find(QrnicStations *s, uint32_t number, int64_t now)
{
    return qrnic_stations_find(s, address(number).bytes, now);
}

static void test_learn(void)
{
    QrnicStations *s = stations_new();

    g_assert_cmpint(find(s, 1, 0), ==, -1);
    g_assert_cmpint(learn(s, 1, 0, 0), ==, QRNIC_LEARNED_NEW);
    g_assert_cmpint(learn(s, 2, 2, 0), ==, QRNIC_LEARNED_NEW);
    g_assert_cmpint(learn(s, 1, 0, 1), ==, QRNIC_LEARNED_KNOWN);
    g_assert_cmpint(find(s, 1, 1), ==, 0);
    g_assert_cmpint(find(s, 2, 1), ==, 2);
    g_assert_cmpint(find(s, 3, 1), ==, -1);
    qrnic_stations_free(s);
}

/* Addresses that belong to no station */
static void test_no_station(void)
{
    static const uint8_t group[6] = { 1, 0, 0x5e, 0, 0, 1 };
    static const uint8_t everybody[6] = { 255, 255, 255, 255, 255, 255 };
    static const uint8_t zero[6];
    QrnicStations *s = stations_new();

    g_assert_cmpint(qrnic_stations_learn(s, group, 0, 0), ==,
                    QRNIC_LEARNED_NOTHING);
    g_assert_cmpint(qrnic_stations_learn(s, everybody, 0, 0), ==,
                    QRNIC_LEARNED_NOTHING);
    g_assert_cmpint(qrnic_stations_learn(s, zero, 0, 0), ==,
                    QRNIC_LEARNED_NOTHING);
    g_assert_cmpuint(qrnic_stations_count(s, 0), ==, 0);
    g_assert_cmpint(qrnic_stations_find(s, group, 0), ==, -1);
    qrnic_stations_free(s);
}

static void test_age(void)
{
    QrnicStations *s = stations_new();

    learn(s, 1, 0, 0);
    learn(s, 2, 0, 0);
    learn(s, 1, 0, AGE / 2);
    g_assert_cmpint(find(s, 2, AGE - 1), ==, 0);
    g_assert_cmpint(find(s, 2, AGE), ==, -1);
    g_assert_cmpint(find(s, 1, AGE), ==, 0);
    g_assert_cmpuint(qrnic_stations_count(s, 0), ==, 1);
    qrnic_stations_free(s);
}

/*
 * Tests that an address moves if it was silent, but not while its port uses it.
 */
static void test_move(void)
{
    QrnicStations *s = stations_new();

    learn(s, 1, 0, 0);
    g_assert_cmpint(learn(s, 1, 1, HOLD - 1), ==, QRNIC_LEARNED_CONTESTED);
    g_assert_cmpint(find(s, 1, HOLD - 1), ==, 0);
    g_assert_cmpint(learn(s, 1, 0, HOLD - 1), ==, QRNIC_LEARNED_KNOWN);
    g_assert_cmpint(learn(s, 1, 1, HOLD), ==, QRNIC_LEARNED_CONTESTED);
    g_assert_cmpint(learn(s, 1, 1, 2 * HOLD), ==, QRNIC_LEARNED_MOVED);
    g_assert_cmpint(find(s, 1, 2 * HOLD), ==, 1);
    g_assert_cmpuint(qrnic_stations_count(s, 0), ==, 0);
    g_assert_cmpuint(qrnic_stations_count(s, 1), ==, 1);
    qrnic_stations_free(s);
}

/*
 * Tests that invented addresses of a port replace the oldest addresses of that
 * port.
 */
static void test_share(void)
{
    QrnicStations *s = stations_new();

    for (uint32_t i = 0; i < SHARE; i++) {
        learn(s, 1000 + i, 1, 0);
    }
    for (uint32_t i = 0; i < SHARE; i++) {
        learn(s, i, 0, 0);
    }
    learn(s, 0, 0, 1);
    learn(s, 500, 0, 1);
    g_assert_cmpint(find(s, 0, 1), ==, 0);
    g_assert_cmpint(find(s, 1, 1), ==, -1);
    g_assert_cmpint(find(s, 2, 1), ==, 0);
    for (uint32_t i = 0; i < 100000; i++) {
        learn(s, 5000 + i, 0, 2);
        g_assert_cmpuint(qrnic_stations_count(s, 0), <=, SHARE);
    }
    for (uint32_t i = 0; i < SHARE; i++) {
        g_assert_cmpint(find(s, 1000 + i, 2), ==, 1);
        g_assert_cmpint(find(s, 5000 + 100000 - SHARE + i, 2), ==, 0);
    }
    g_assert_cmpint(find(s, 5000 + 100000 - SHARE - 1, 2), ==, -1);
    qrnic_stations_free(s);
}

/*
 * Tests that exactly the addresses of a port are forgotten when its end goes.
 */
static void test_forget(void)
{
    QrnicStations *s = stations_new();

    for (unsigned round = 0; round < 1000; round++) {
        for (uint32_t i = 0; i < SHARE; i++) {
            learn(s, i, 0, 0);
        }
        learn(s, 100, 1, 0);
        qrnic_stations_forget(s, 0);
        g_assert_cmpuint(qrnic_stations_count(s, 0), ==, 0);
        g_assert_cmpint(find(s, 0, 0), ==, -1);
        g_assert_cmpint(find(s, 100, 0), ==, 1);
        /* The address can be learned elsewhere at once. */
        g_assert_cmpint(learn(s, 0, 2, 0), ==, QRNIC_LEARNED_NEW);
        qrnic_stations_forget(s, 2);
    }
    qrnic_stations_free(s);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/qrnic/stations/learn", test_learn);
    g_test_add_func("/qrnic/stations/no-station", test_no_station);
    g_test_add_func("/qrnic/stations/age", test_age);
    g_test_add_func("/qrnic/stations/move", test_move);
    g_test_add_func("/qrnic/stations/share", test_share);
    g_test_add_func("/qrnic/stations/forget", test_forget);
    return g_test_run();
}
