# Runs unmodified programs over shared connections. One environment variable at both ends makes their queue pairs to a
# node members of one carrier. The drivers agree on the carrier by the connection manager. The wire loses, reorders,
# repeats and corrupts frames. The peer of card 1 is Soft-RoCE, which does not support shared connections. The devices
# have few queue pairs, so that a leaked carrier makes a later test fail.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram,max-qp=48 --nic rxe/qrnic:link=dgram --wire loss=0.5,reorder=0.5,repeat=0.5,corrupt=0.3,spare=mads,seed=11 --timeout 900
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

TRY_TIMEOUT=$((60 * TIME_FACTOR))
port=/sys/class/infiniband/$RDMA0/ports/1/hw_counters
device=/sys/class/infiniband/$RDMA0/hw_counters
QPS=8

# value NAME: prints a counter, which may be 10 ms old
value() { sleep 0.05; cat "$device/$1" "$port/$1" 2>/dev/null; }
# carriers PROGRAM: prints the carrier of each of its queue pairs, one a line
# shellcheck disable=SC2317  # called through wait_until
carriers() { rdma -j -dd resource show qp | tr '{' '\n' | grep "\"$1\"" | grep -o '"drv_carrier":[0-9]*' || :; }
# shellcheck disable=SC2317
one_for_all() {
    carriers "$1" >members.log
    [ "$(wc -l <members.log)" -ge "$2" ] && [ "$(sort -u members.log | wc -l)" = 1 ]
}
# shared NAME: all packets since note() were encapsulated packets of carriers, at this end
shared() {
    local status=0
    [ "$(value tx_inner)" -gt "$before" ] && [ "$(value members_failed)" = "$failed" ] || status=1
    together $status "$1"
}
note() { before=$(value tx_inner) failed=$(value members_failed); }
show_counters() {
    echo "# guest$GUEST $1: $(grep -H . "$port"/{retransmissions,timeouts,tx_sack,rx_sack} \
        "$device"/{tx_inner,rx_inner,rx_inner_early,rx_drop_inner,members_failed} | sed 's|.*/||' | tr '\n' ' ')"
}

programs() {
    note
    tool "rping, $1" listening "rping -s -a 10.77.0.1 -C 20 -V -S 60000" "rping -c -a 10.77.0.1 -C 20 -V -S 60000"
    shared "rping's packets went by a carrier, $1"
    note
    tool "ucmatose, $QPS connections, $1" listening "ucmatose -b 10.77.0.1 -c $QPS -C 50 -S 5000" \
        "ucmatose -s 10.77.0.1 -b 10.77.0.2 -c $QPS -C 50 -S 5000"
    shared "ucmatose's packets went by a carrier, $1"
    for program in ib_write_bw ib_send_bw ib_read_bw; do
        note
        command="$program -R -d $RDMA0 -F -q $QPS -s 65536 -n 20"
        # While the program runs, all its queue pairs have the same carrier.
        tool "$program, $QPS queue pairs have one carrier, $1" listening \
            "$command & wait_until 30 one_for_all $program $QPS && wait \$!" \
            "$command 10.77.0.1 & wait_until 30 one_for_all $program $QPS && wait \$!"
        sed 's/^/# /' tool.log | grep -E '^# +65536' || :
        shared "$program's packets went by a carrier, $1"
    done
    show_counters "$1"
}
export -f carriers one_for_all

export QRNIC_SHARED_CONNECTION=1
programs "go-back-N"
[ "$(value tx_sack | head -1)" = 0 ] && [ "$(value rx_inner_early)" = 0 ]
together $? "no packet of selective repeat was sent, and none out of order"
QRNIC_SELECTIVE_REPEAT=1 programs "selective repeat"
[ "$(value tx_sack | head -1)" -gt 0 ] && [ "$(value rx_inner_early)" -gt 0 ]
together $? "packets of other members were delivered early"

# A server that keeps running, and clients that connect, are killed and connect again
note
tool "rping to a server that keeps running" listening "rping -s -P -a 10.77.0.1 -S 30000" "
    for round in 1 2 3 4 5 6; do
        rping -c -a 10.77.0.1 -C 100000000 -S 30000 >/dev/null & client=\$!
        wait_until 30 one_for_all rping 1
        kill -9 \$client; wait \$client
        rping -c -a 10.77.0.1 -C 5 -V -S 30000 || exit
    done" endless
shared "a carrier sent its packets"

# Only one end requests shared connections.
for who in 1 2; do
    [ "$GUEST" = $who ] || unset QRNIC_SHARED_CONNECTION
    note
    tool "rping, only guest $who requests sharing" listening "rping -s -a 10.77.0.1 -C 20 -V" "rping -c -a 10.77.0.1 -C 20 -V"
    [ "$(value tx_inner)" = "$before" ]
    together $? "no carrier sent a packet, because only guest $who requests sharing"
    export QRNIC_SHARED_CONNECTION=1
done

# Soft-RoCE is in guest 1, which is the server of the first program and the client of the second.
note
tool "rping to Soft-RoCE" listening "rping -s -a 10.77.1.1 -C 20 -V -S 20000" "rping -c -a 10.77.1.1 -C 20 -V -S 20000"
status=0
if [ "$GUEST" = 2 ]; then
    timeout "$TRY_TIMEOUT" rping -s -a 10.77.1.2 -C 20 -V -S 20000 >tool.log 2>&1 &
    wait_until 20 listening || status=98
    barrier soft-roce
    wait $! || status=$?
else
    barrier soft-roce
    timeout "$TRY_TIMEOUT" rping -c -a 10.77.1.2 -C 20 -V -S 20000 >tool.log 2>&1 || status=$?
fi
[ $status = 0 ] || show tool.log
together $status "rping from Soft-RoCE"
[ "$(value tx_inner)" = "$before" ]
together $? "Soft-RoCE receives no packet of shared connections"
both "no object is left" "! rdma -dd resource show qp | grep -E 'comm (rping|ib_.*_bw|ucmatose)'"
kernel_clean "the kernel logs are clean"
finish
