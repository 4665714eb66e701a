/*
 * PSN arithmetic, credits and timers of reliable transport
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "engine/transport/rc/reliability.h"

static void test_psn(void)
{
    g_assert_cmphex(qrnic_psn_add(0xffffff, 1), ==, 0);
    g_assert_cmphex(qrnic_psn_add(0, -1), ==, 0xffffff);
    g_assert_cmpint(qrnic_psn_diff(0, 0xffffff), ==, 1);
    g_assert_cmpint(qrnic_psn_diff(0xffffff, 0), ==, -1);
    g_assert_cmpint(qrnic_psn_diff(5, 5), ==, 0);
    g_assert_cmpint(qrnic_psn_diff(0x7fffff, 0), ==, 0x7fffff);
    g_assert_cmpint(qrnic_psn_diff(0x800000, 0), ==, -0x800000);
    g_assert_cmpint(qrnic_psn_distance(0xfffff0, 0x10), ==, 0x20);
    g_assert_cmpint(qrnic_psn_count(0, 256), ==, 1);
    g_assert_cmpint(qrnic_psn_count(1, 256), ==, 1);
    g_assert_cmpint(qrnic_psn_count(256, 256), ==, 1);
    g_assert_cmpint(qrnic_psn_count(257, 256), ==, 2);
    g_assert_cmpint(qrnic_psn_count(3072, 1024), ==, 3);
    g_assert_cmpint(qrnic_psn_count(1ull << 31, 256), ==, 1 << 23);
}

static void test_credits(void)
{
    /* These are some lines of table 49 of the specification. */
    g_assert_cmpint(qrnic_credits_decode(0), ==, 0);
    g_assert_cmpint(qrnic_credits_decode(4), ==, 4);
    g_assert_cmpint(qrnic_credits_decode(5), ==, 6);
    g_assert_cmpint(qrnic_credits_decode(11), ==, 48);
    g_assert_cmpint(qrnic_credits_decode(30), ==, 32768);
    for (uint32_t n = 0; n < 70000; n++) {
        uint8_t code = qrnic_credits_encode(n);

        g_assert_cmpint(code, <, 31);
        g_assert_cmpint(qrnic_credits_decode(code), <=, n);
        if (code < 30) {
            g_assert_cmpint(qrnic_credits_decode(code + 1), >, n);
        }
    }
}

static void test_times(void)
{
    /* Table 45: 0 is the longest time, the others grow. */
    g_assert_cmpint(qrnic_rnr_time_ns(0), ==, 655360000);
    g_assert_cmpint(qrnic_rnr_time_ns(1), ==, 10000);
    g_assert_cmpint(qrnic_rnr_time_ns(12), ==, 640000);
    g_assert_cmpint(qrnic_rnr_time_ns(31), ==, 491520000);
    for (int i = 2; i < 32; i++) {
        g_assert_cmpint(qrnic_rnr_time_ns(i), >, qrnic_rnr_time_ns(i - 1));
    }
    g_assert_cmpint(qrnic_ack_timeout_ns(0), ==, 0);
    g_assert_cmpint(qrnic_ack_timeout_ns(1), ==, 8192);
    g_assert_cmpint(qrnic_ack_timeout_ns(14), ==, 67108864);
    g_assert_cmpint(qrnic_ack_timeout_ns(31), ==, 4096ll << 31);
}

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    g_test_add_func("/reliability/psn", test_psn);
    g_test_add_func("/reliability/credits", test_credits);
    g_test_add_func("/reliability/times", test_times);
    return g_test_run();
}
