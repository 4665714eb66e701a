#!/bin/bash
# The benchmark's job: programs over both RDMA devices of the guests, in turn, between
# two guests or within one. Prints "BENCH MTU DEVICE METRIC VALUE" lines; what failed is "nan".
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2153  # ROUNDS and METRICS_<mtu> come from tools/bench
set -u

declare -A device=([qrnic]=$RDMA0 [soft-roce]=$RDMA1) address=([qrnic]=0 [soft-roce]=1)
turn=0

# value METRIC LOG: the last line of numbers of perftest's table has it.
value() {
    awk -v metric="$1" '
        $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && NF >= 5 { bandwidth = $4; rate = $5 * 1000; typical = $5 }
        END { if (typical == "") typical = bandwidth = rate = "nan"
              print metric ~ /bandwidth$/ ? bandwidth : metric ~ /rate$/ ? rate : typical }' "$2"
}

# measure MTU WHICH METRIC PROGRAM...: the client prints the line.
measure() {
    local mtu=$1 which=$2 metric=$3 gid server
    shift 3
    gid=$(gid_index "${device[$which]}" 4)
    set -- timeout 60 "$@" -d "${device[$which]}" -x "$gid" -F
    turn=$((turn + 1))
    if [ "$GUEST" = 1 ]; then
        "$@" >server.log 2>&1 &
        server=$!
        wait_for_port 18515 10
    fi
    barrier "listening-$turn"
    if [ "$GUESTS" = 1 ]; then
        "$@" localhost >client.log 2>&1
    elif [ "$GUEST" = 2 ]; then
        "$@" "guest1-${address[$which]}" >client.log 2>&1
    fi
    if [ -e client.log ]; then
        echo "BENCH $mtu $which $metric $(value "$metric" client.log)"
        rm client.log
    fi
    [ "$GUEST" != 1 ] || wait $server
    barrier "measured-$turn"
}

# connections MTU WHICH: between two guests; cmtime says how many us each of 100 took.
connections() {
    local listener=10.77.${address[$2]}.1 server
    turn=$((turn + 1))
    if [ "$GUEST" = 1 ]; then
        timeout 60 cmtime -b "$listener" -c 100 >server.log 2>&1 &
        server=$!
        wait_for_port 7471 10
    fi
    barrier "listening-$turn"
    if [ "$GUEST" = 2 ]; then
        timeout 60 cmtime -s "$listener" -c 100 >client.log 2>&1
        echo "BENCH $1 $2 connections $(awk '/^full connect/ && !n++ { value = 1e6 / $3 }
            END { print value == "" ? "nan" : value }' client.log)"
        rm client.log
    else
        wait $server
    fi
    barrier "measured-$turn"
}

# one METRIC MTU WHICH
one() {
    case $1 in
        bandwidth) measure "$2" "$3" "$1" ib_write_bw -s 65536 -D 4 -f 1 ;;
        rate) measure "$2" "$3" "$1" ib_write_bw -s 8 -D 4 -f 1 ;;
        write) measure "$2" "$3" "$1" ib_write_lat -s 8 -n 1000 ;;
        send) measure "$2" "$3" "$1" ib_send_lat -s 8 -n 1000 ;;
        ud-rate) measure "$2" "$3" "$1" ib_send_bw -c UD -s 8 -D 4 -f 1 ;;
        ud-send) measure "$2" "$3" "$1" ib_send_lat -c UD -s 8 -n 1000 ;;
        srq-bandwidth) measure "$2" "$3" "$1" ib_send_bw -s 4096 -q 4 --use-srq -D 4 -f 1 ;;
        connections) connections "$2" "$3" ;;
        *) echo "NOTE the job knows no metric $1" ;;
    esac
}

for mtu in 1500 9000; do
    names=METRICS_$mtu
    [ -n "${!names}" ] || continue
    ip link set "$NIC0" mtu $mtu
    ip link set "$NIC1" mtu $mtu
    sleep 1
    for ((round = 1; round <= ROUNDS; round++)); do
        for which in qrnic soft-roce; do
            for metric in ${!names}; do
                one "$metric" $mtu $which
            done
        done
    done
done
