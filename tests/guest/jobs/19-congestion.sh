# Checks congestion control between two guests whose wire marks frames that have ECT. Covers the parameters in
# debugfs, and CNPs on the wire. A flow gets slower with marks and faster without, if both ends have enabled it.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram --wire mark=50 --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
cc=/sys/kernel/debug/qrnic/$address/cc_params
counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters
gid=$(gid_index "$RDMA0" 4)

# Name, value after a reset, minimum, maximum
cat >params <<'TABLE'
ect_enable 0 0 1
np_cnp_dscp 48 0 63
np_cnp_prio 6 0 7
np_cnp_prio_mode 0 0 1
np_enable 0 0 1
np_min_time_between_cnps 4 0 4095
rp_ai_rate 5 1 100000
rp_byte_reset 32767 1 4294967295
rp_clamp_tgt_rate 0 0 1
rp_clamp_tgt_rate_ati 1 0 1
rp_dce_tcp_g 1019 0 1023
rp_dce_tcp_rtt 1 1 131071
rp_enable 0 0 1
rp_gd 11 10 11
rp_hai_rate 50 1 100000
rp_initial_alpha_value 1023 1 1023
rp_max_rate 0 0 100000
rp_min_dec_fac 50 0 100
rp_min_rate 1 1 100000
rp_rate_reduce_monitor_period 4 1 131071
rp_rate_to_set_on_first_cnp 0 0 100000
rp_threshold 1 1 31
rp_time_reset 300 1 131071
TABLE

values() {
    local file value
    for file in "$cc"/*; do
        read -r value <"$file" && echo "${file##*/} $value"
    done
}
# accepted NAME VALUE, rejected NAME VALUE: checks that a write succeeds or fails
accepted() {
    local value
    echo "$2" 2>/dev/null >"$cc/$1" && read -r value <"$cc/$1" && [ "$value" = "$2" ] && return
    echo "$1: $2 is not accepted"
    return 1
}
rejected() {
    local before
    before=$(values)
    if echo "$2" 2>/dev/null >"$cc/$1"; then
        echo "$1: $2 is accepted"
        return 1
    fi
    [ "$(values)" = "$before" ] && return
    echo "$1: $2 was rejected, but a value has changed"
    return 1
}
ranges() {
    local name value least most
    while read -r name value least most; do
        accepted "$name" "$most" && accepted "$name" "$least" && rejected "$name" $((least - 1)) &&
            rejected "$name" $((most + 1)) && rejected "$name" $((most + (1 << 32))) && rejected "$name" -1 &&
            rejected "$name" all && accepted "$name" "$value" || return
    done <params
}
# The maximum rate must not be below the minimum, in whatever order they are written.
rates() {
    accepted rp_min_rate 40 && rejected rp_max_rate 39 && accepted rp_max_rate 40 && rejected rp_min_rate 41 &&
        accepted rp_max_rate 0 && accepted rp_min_rate 41 && accepted rp_min_rate 1
}
# check NAME COMMAND: runs the command on each guest
check() {
    local status=0
    $2 >check.log 2>&1 || status=$?
    [ $status = 0 ] || show check.log
    together $status "$1"
}
check "the parameters have the values of a reset" "eval values | diff - <(cut -d' ' -f1,2 params)"
check "each accepts values in its range only" ranges
check "the lowest and the highest rate agree" rates
check "all parameters are unchanged" "eval values | diff - <(cut -d' ' -f1,2 params)"

# One flow from guest 2 to guest 1 runs during all tests below.
if [ "$GUEST" = 1 ]; then
    timeout $((300 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -u 18 --run_infinitely >flow.log 2>&1 &
    flow=$!
    wait_for_port 18515 20
    barrier up
else
    known_peers guest1
    barrier up
    timeout $((300 * TIME_FACTOR)) ib_write_bw -d "$RDMA0" -x "$gid" -F -u 18 --run_infinitely guest1 >flow.log 2>&1 &
    flow=$!
fi

# shellcheck disable=SC2317  # called through check
flows() {
    local before
    before=$(cat "$counters/roce_rx_packets")
    more() { [ "$(cat "$counters/roce_rx_packets")" -gt $((before + $1)) ]; }
    wait_until 20 more 100
}
# count NAME: prints the increase since the last mark_now
mark_now() {
    # A value of hw_counters may be 10 ms old.
    sleep 0.05
    for name in np_ecn_marked_roce_packets np_cnp_sent rp_cnp_handled rp_cnp_ignored rate_waits roce_tx_bytes; do
        cat "$counters/$name" >"before.$name"
    done
    cut -d' ' -f1 /proc/uptime >before.uptime
}
count() { echo $(($(cat "$counters/$1") - $(cat "before.$1"))); }
# Sets rate, in Mbit/s from this guest, and the counters, measured during some seconds.
observe() {
    local seconds
    mark_now
    sleep "$1"
    seconds=$(awk -v before="$(cat before.uptime)" '{ print $1 - before }' /proc/uptime)
    rate=$(awk -v bytes="$(count roce_tx_bytes)" -v seconds="$seconds" 'BEGIN { printf "%d", bytes * 8 / 1e6 / seconds }')
    marked=$(count np_ecn_marked_roce_packets) sent=$(count np_cnp_sent) handled=$(count rp_cnp_handled)
    ignored=$(count rp_cnp_ignored) waits=$(count rate_waits)
    echo "# guest$GUEST $2: $rate Mbit/s, marked $marked, CNPs sent $sent, handled $handled, ignored $ignored, waits $waits"
}
# step NAME RECEIVER-CONDITION SENDER-CONDITION: checks the counters after some seconds
step() {
    local status=0
    barrier "set $1"
    observe 3 "$1"
    if [ "$GUEST" = 1 ]; then
        eval "$2" || status=1
    else
        eval "$3" || status=1
    fi
    together $status "$1"
}
# put GUEST NAME VALUE: writes a parameter
put() { [ "$GUEST" != "$1" ] || echo "$3" >"$cc/$2"; }

check "the flow transfers data" flows
none="[ \$marked = 0 ] && [ \$sent = 0 ] && [ \$handled = 0 ] && [ \$ignored = 0 ]"
step "off: no marks, no CNPs" "$none" "$none"
free=$rate
put 2 ect_enable 1
step "a disabled receiver sends no CNP for marks" "$none" "$none && [ \$waits = 0 ]"
put 1 np_enable 1
step "a sender that is off ignores CNPs" "[ \$marked -gt 0 ] && [ \$sent -gt 0 ] && [ \$handled = 0 ]" \
    "[ \$marked = 0 ] && [ \$handled = 0 ] && [ \$ignored -gt 0 ] && [ \$waits = 0 ]"
# The minimum of the rate. Each period of some milliseconds with a CNP halves the rate. Increases are rare, so the
# rate stays below twice the minimum.
put 2 rp_min_rate 4
put 2 rp_dce_tcp_rtt 5000
put 2 rp_time_reset 10000
put 2 rp_byte_reset 1000000
put 2 rp_enable 1
if [ "$GUEST" = 2 ]; then
    roce_capture -d "$RDMA0" >wire.pcap 2>capture.log &
    capture=$!
fi
step "DCQCN: the rate falls" "[ \$marked -gt 0 ] && [ \$sent -gt 0 ]" \
    "[ \$handled -gt 0 ] && [ \$ignored = 0 ] && [ \$waits -gt 0 ] && [ \$rate -le 8 ] && [ \$rate -gt 0 ]"
status=0
if [ "$GUEST" = 2 ]; then
    kill "$capture"
    wait "$capture"
    # The frame of a CNP by spec/congestion.rst: opcode, BECN, PSN, DSCP, no ECT, length
    tcpdump -n -r wire.pcap "udp dst port 4791 and udp[8] = 0x81" 2>/dev/null >cnps.log
    tcpdump -n -r wire.pcap "udp dst port 4791 and udp[8] = 0x81 and udp[12] = 0x40 and udp[16:4] = 0 and \
        ip[1] = 0xc0 and udp[4:2] = 40 and src host 10.77.0.1" 2>/dev/null >good.log
    if [ ! -s cnps.log ] || ! cmp -s cnps.log good.log; then
        status=1
        show cnps.log
    fi
    echo "# $(wc -l <cnps.log) CNPs captured"
fi
together $status "tcpdump shows the CNPs as the manual defines them"
put 2 rp_time_reset 300
put 2 rp_byte_reset 32767
put 2 ect_enable 0
barrier "marks end"
# shellcheck disable=SC2317  # called through wait_until
fast_again() { observe 1 "recovers"; [ "$rate" -gt $((free / 4)) ]; }
status=0
[ "$GUEST" != 2 ] || wait_until 30 fast_again || status=1
together $status "without marks the rate recovers"
step "and there are no more CNPs" "$none" "$none && [ \$rate -gt $((free / 4)) ]"
# Each CNP must arrive, because this wire loses no frame.
total() { cat "$counters/$1"; }
if [ "$GUEST" = 1 ]; then
    barrier cnps "$(total np_cnp_sent)"
    [ "$(total np_cnp_sent)" -le "$(total np_ecn_marked_roce_packets)" ]
else
    barrier cnps $(($(total rp_cnp_handled) + $(total rp_cnp_ignored)))
fi
status=$?
[ "${BARRIER_VALUES% *}" = "${BARRIER_VALUES#* }" ] || status=1
[ $status = 0 ] || echo "# CNPs sent, received: $BARRIER_VALUES"
together $status "there are at most as many CNPs as marks, and each has arrived"

[ "$GUEST" != 2 ] || kill $flow
barrier "flow ends"
[ "$GUEST" != 1 ] || kill $flow
wait $flow
kernel_clean "the kernel logs are clean"
finish
