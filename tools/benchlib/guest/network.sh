# shellcheck shell=bash disable=SC2154  # job.sh sets device and address
# Connections by the connection manager, and TCP through the Ethernet function. Part of the benchmark's job.
# SPDX-License-Identifier: GPL-2.0-or-later

# connections MTU WHICH METRIC COUNT: makes all connections at once; cmtime prints how many us each took.
connections() {
    local listener=10.77.${address[$2]}.1
    if ends 60 7471 "cmtime -b $listener -c $4" "cmtime -s $listener -c $4"; then
        bench "$1" "$2" "$3" "$(awk '/^full connect/ && $3 > 0 && !n++ { print 1e6 / $3 }' client.log)"
    fi
}

# tcp MTU WHICH METRIC: measures TCP by iperf3. The interface of Soft-RoCE is a virtio-net.
tcp() {
    local other=$2
    [ "$other" = qrnic ] || other=virtio-net
    if ends 30 5201 "iperf3 -s -1" "iperf3 -f m -t 2 -c 10.77.${address[$2]}.1"; then
        bench "$1" "$other" "$3" "$(awk '/receiver/ { for (i = 2; i <= NF; i++) if ($i ~ /bits\/sec/) print $(i - 1) }' client.log)"
    fi
}

# rds MTU WHICH METRIC: measures a ping-pong over RDS.
rds() {
    local net=10.77.${address[$2]} server=
    turn=$((turn + 1))
    modprobe rds_rdma || echo "NOTE no rds_rdma"
    if [ "$GUEST" = 1 ]; then
        rm -f bound
        timeout 60 python3 "$here/rds_pingpong.py" "$net.1" >rds.log 2>&1 &
        server=$!
        wait_until 20 test -e bound
    fi
    barrier "bound-$turn"
    if [ "$GUEST" = 2 ]; then
        timeout 40 python3 "$here/rds_pingpong.py" "$net.2" "$net.1" >rds.log 2>&1 || echo "NOTE rds: status $?: $(tail -n 1 rds.log)"
        bench "$1" "$2" "$3" "$(grep -xE '[0-9.]+' rds.log)"
    fi
    barrier "heard-$turn"
    # The module stays loaded, because after Soft-RoCE its unload never ends: rds_ib_conn_path_shutdown() waits for its
    # receives.
    [ -z "$server" ] || { kill $server && wait $server; } 2>/dev/null
}
