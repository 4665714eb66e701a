# Uses link retransmission between two guests, on a wire that loses, corrupts, repeats and reorders frames. The ends
# agree, all frames have numbers, and neither the transport nor TCP detects a loss.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram,link-retransmission=on --wire loss=1,reorder=0.5,repeat=0.5,corrupt=0.3,seed=11 --mtu 9000 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
# count COUNTER: prints a counter of the device
count() { ethtool -S "$NIC0" | awk -v name="$1:" '$1 == name { print $2 }'; }
agreed() { [ "$(count link_established)" -ge 1 ]; }

wait_until 30 agreed
result $? "both ends of the link agree"
before=$(count link_tx_frames)
pair "ibv_rc_pingpong" 18515 "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s 65537 -n 200" \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s 65537 -n 200 guest1"
pair "ib_write_bw" 18516 "ib_write_bw -p 18516 -d $RDMA0 -x $gid -F -s 65536 -n 200" \
    "ib_write_bw -p 18516 -d $RDMA0 -x $gid -F -s 65536 -n 200 guest1"
[ $(($(count link_tx_frames) - before)) -ge 3400 ]
result $? "all frames had numbers"
[ "$(count link_tx_lost)" = 0 ] && [ "$(count link_tx_refused)" = 0 ]
result $? "the link has neither lost nor rejected a frame"
[ "$(count link_rx_gaps)" -gt 0 ] && [ "$(count link_rx_crc_errors)" -gt 0 ]
result $? "the wire has lost and corrupted frames"
[ "$(count link_tx_retransmissions)" -gt 0 ]
result $? "the link has retransmitted frames"
# A host that runs neither guest for longer than the timeout of ibv_rc_pingpong (67 ms) causes timeouts of the transport,
# although no packet is lost. Only these may cause retransmissions, because a lost packet would also be out of sequence.
[ "$(count out_of_sequence)" = 0 ] && [ "$(count tx_nak_sequence)" = 0 ] &&
    { [ "$(count retransmissions)" = 0 ] || [ "$(count timeouts)" -gt 0 ]; }
result $? "the transport has detected no loss"
ethtool -S "$NIC0" | grep -E 'link_|retransmissions|timeouts|out_of_sequence' >link.log
show link.log
kernel_clean "the kernel logs are clean"
finish
