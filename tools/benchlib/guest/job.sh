#!/bin/bash
# The benchmark's job: runs programs over both RDMA devices of the guests, one after the other, between two guests or
# within one. Prints lines "BENCH MTU DEVICE METRIC VALUE"; the value of a failure is "nan".
# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck disable=SC2153  # ROUNDS and METRICS_<mtu> come from tools/bench
set -u

declare -A device=([qrnic]=$RDMA0 [soft-roce]=${RDMA1:-}) address=([qrnic]=0 [soft-roce]=1)
here=/etc/qrnic/bench
turn=0
# BASH_ENV is removed, because the programs need none of the job's functions.
unset BASH_ENV

# bench MTU DEVICE METRIC VALUE: prints the line of a figure. No value means a failure.
bench() { echo "BENCH $1 $2 $3 ${4:-nan}"; }

# ends SECONDS PORT SERVER CLIENT: runs SERVER in guest 1 and CLIENT in the last guest. SERVER listens on the TCP port.
# The output of CLIENT is in client.log. The status is 0 in the last guest only, also if CLIENT failed.
ends() {
    local server=
    turn=$((turn + 1))
    rm -f client.log
    client_status=0
    if [ "$GUEST" = 1 ]; then
        timeout "$1" bash -c "exec $3" >server.log 2>&1 &
        server=$!
        wait_for_port "$2" 10
    fi
    barrier "listening-$turn"
    if [ "$GUEST" = "$GUESTS" ]; then
        timeout "$1" bash -c "exec $4" >client.log 2>&1 || client_status=$?
    fi
    barrier "asked-$turn" $client_status
    if [ -n "$server" ]; then
        # A server whose client has failed is ended here, because no other client connects.
        [ "${BARRIER_VALUES##* }" = 0 ] || kill $server 2>/dev/null
        wait $server 2>/dev/null
    fi
    barrier "measured-$turn"
    [ "$client_status" = 0 ] || { echo "NOTE status $client_status: ${4%% -*}: $(grep -aEi 'error|fail|couldn|unable|timed' client.log |
        head -n 1)"; : >client.log; }
    [ "$GUEST" = "$GUESTS" ]
}

# shellcheck source=tools/benchlib/guest/perftest.sh
. $here/perftest.sh
# shellcheck source=tools/benchlib/guest/network.sh
. $here/network.sh
# shellcheck source=tools/benchlib/guest/resources.sh
. $here/resources.sh
# shellcheck source=tools/benchlib/guest/storage.sh
. $here/storage.sh
# shellcheck source=tools/benchlib/guest/mpi.sh
. $here/mpi.sh

# one METRIC MTU WHICH: runs one measurement over one device.
one() {
    local common=("$2" "$3" "$1")
    case $1 in
        bandwidth) perftest "${common[@]}" ib_write_bw -s 65536 -D 2 -f 0 ;;
        bandwidth-1m) perftest "${common[@]}" ib_write_bw -s 1048576 -D 2 -f 0 ;;
        rate) perftest "${common[@]}" ib_write_bw -s 8 -D 2 -f 0 ;;
        rate-64) perftest "${common[@]}" ib_write_bw -s 8 -q 64 -D 2 -f 0 ;;
        send-rate) perftest "${common[@]}" ib_send_bw -s 8 -D 2 -f 0 ;;
        write) perftest "${common[@]}" ib_write_lat -s 8 -n 1000 ;;
        read) perftest "${common[@]}" ib_read_lat -s 8 -n 1000 ;;
        send) perftest "${common[@]}" ib_send_lat -s 8 -n 1000 ;;
        send-4k) perftest "${common[@]}" ib_send_lat -s 4096 -n 1000 ;;
        ud-rate) perftest "${common[@]}" ib_send_bw -c UD -s 8 -D 2 -f 0 ;;
        ud-send) perftest "${common[@]}" ib_send_lat -c UD -s 8 -n 1000 ;;
        srq-bandwidth) perftest "${common[@]}" ib_send_bw -s 4096 -q 4 --use-srq -D 2 -f 0 ;;
        srq-rate) perftest "${common[@]}" ib_send_bw -s 8 -q 4 --use-srq -D 2 -f 0 ;;
        srq-send) perftest "${common[@]}" ib_send_lat -s 8 --use-srq -n 1000 ;;
        size-bandwidth | size-latency) sizes "${common[@]}" ;;
        qps-rate) queue_pairs_rate "${common[@]}" ;;
        connections) connections "${common[@]}" 100 ;;
        connections-1000) connections "${common[@]}" 1000 ;;
        tcp) tcp "${common[@]}" ;;
        register) register "${common[@]}" ;;
        doorbell) doorbell "${common[@]}" ;;
        queue-pairs) queue_pairs "${common[@]}" ;;
        nvme) between nvme_up nvme_use nvme_down "${common[@]}" ;;
        nfs) between nfs_up nfs_use nfs_down "${common[@]}" ;;
        rds) rds "${common[@]}" ;;
        mpi) mpi "${common[@]}" ;;
        *) echo "NOTE the job knows no metric $1" ;;
    esac
}

for mtu in 1500 9000; do
    names=METRICS_$mtu
    [ -n "${!names:-}" ] || continue
    ip link set "$NIC0" mtu $mtu
    [ -z "${NIC1:-}" ] || ip link set "$NIC1" mtu $mtu
    sleep 1
    for ((round = 1; round <= ROUNDS; round++)); do
        for which in ${DEVICES:-qrnic soft-roce}; do
            for metric in ${!names}; do
                one "$metric" $mtu "$which"
            done
        done
    done
done
