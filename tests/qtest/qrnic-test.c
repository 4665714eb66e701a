/*
 * qrnic qtest: the program that registers all tests of the device's BARs and of
 * its wire
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */

#include "qemu/osdep.h"
#include "driver.h"

int main(int argc, char **argv)
{
    g_test_init(&argc, &argv, NULL);
    add_register_tests();
    add_command_tests();
    add_queue_tests();
    add_doorbell_event_tests();
    add_memory_tests();
    add_requester_tests();
    add_responder_tests();
    add_ethernet_tests();
    add_segment_tests();
    add_coalesce_tests();
    add_flow_tests();
    add_datagram_tests();
    add_multicast_tests();
    add_srq_tests();
    add_unreliable_tests();
    add_key_tests();
    add_device_memory_tests();
    add_on_demand_tests();
    add_shared_virtual_tests();
    add_indirect_tests();
    add_streaming_tests();
    add_tag_tests();
    add_tag_error_tests();
    add_context_tests();
    add_priority_tests();
    add_selective_tests();
    add_adaptive_tests();
    add_congestion_tests();
    add_flush_tests();
    add_completion_tests();
    add_property_tests();
    add_xrc_tests();
    add_dynamic_tests();
    add_flags_tests();
    add_rss_tests();
    add_reentry_tests();
    add_power_tests();
    add_sriov_tests();
    add_counter_set_tests();
    add_roce_v1_tests();
    add_capture_tests();
    add_stop_tests();
    add_cable_tests();
    add_cable_attack_tests();
    add_link_tests();
    add_crafted_ahead_tests();
    add_crafted_replay_tests();
    add_crafted_sack_tests();
    add_crafted_cnp_tests();
    add_crafted_shared_tests();
    add_crafted_carrier_tests();
    add_crafted_learn_tests();
    add_crafted_link_tests();
    return g_test_run();
}
