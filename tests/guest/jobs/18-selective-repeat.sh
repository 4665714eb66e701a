# Runs selective repeat and adaptive routing between two guests whose wire loses, reorders, repeats and corrupts
# frames. Guest 2 requests both options, and the two ends agree on them by the connection manager. The tools of
# librdmacm verify the received data.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram --wire loss=1,reorder=0.5,repeat=0.5,corrupt=0.3,spare=mads,seed=7 --timeout 900
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

gid=$(gid_index "$RDMA0" 4)
counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters
count() { cat "$counters/$1"; }
seen() { echo "# guest$GUEST $1: $(for c in retransmissions timeouts tx_nak_sequence tx_sack rx_sack buffered_packets placed_packets probes rx_drop_icrc; do echo "$c $(count $c),"; done)" | tr '\n' ' '; echo; }

# The loopback of the device loses no packet.
both "the provider's test of options" "set -o pipefail; qrnic-ece-test $RDMA0 $gid | tee test.log && ! grep -E '^not ok' test.log"

# verified NAME STREAM: runs rping and STREAM, which is rstream or riostream. The tool riostream does not wait for
# completions, but polls the memory for the last byte of a write.
verified() {
    tool "rping, $1" listening "rping -s -a 10.77.0.1 -C 30 -V -S 60000" "rping -c -a 10.77.0.1 -C 30 -V -S 60000"
    tool "$2, $1" listening "$2 -f ip -b 10.77.0.1 -S 65536 -C 50 -I 4 -T v" \
        "$2 -f ip -s 10.77.0.1 -S 65536 -C 50 -I 4 -T v"
}

verified "go-back-N" riostream
seen "go-back-N"
both "no packet of selective repeat was sent" "[ $(count tx_sack) = 0 ] && [ $(count buffered_packets) = 0 ]"

# The connecting end requests the options, and its peer accepts them.
[ "$GUEST" = 1 ] || export QRNIC_SELECTIVE_REPEAT=1
verified "selective repeat" riostream
seen "selective repeat"
both "packets out of order were buffered and reported" "[ \$(cat $counters/buffered_packets) -gt 0 ] && [ \$(cat $counters/rx_sack) -gt 0 ]"

# With adaptive routing the packets of writes reach memory in any order, so a program must wait for completions.
# The tool riostream polls memory instead, and is used here because guest 1 does not agree. The request of guest 2 must
# then have no effect.
[ "$GUEST" = 1 ] || export QRNIC_SELECTIVE_REPEAT=0 QRNIC_ADAPTIVE_ROUTING=1
verified "adaptive routing, which one end has not agreed to" riostream
both "no packet was placed out of order so far" "[ \$(cat $counters/placed_packets) = 0 ]"
export QRNIC_ADAPTIVE_ROUTING=1
verified "adaptive routing" rstream
seen "adaptive routing"
both "packets out of order were placed" "[ \$(cat $counters/placed_packets) -gt 0 ]"
[ "$GUEST" = 1 ] || export QRNIC_SELECTIVE_REPEAT=1
verified "both" rstream
seen "both"
finish
