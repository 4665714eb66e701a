# shellcheck shell=bash disable=SC2154  # job.sh sets device and address
# What perftest measures: bandwidth, message rate, latency. Part of the benchmark's job.
# SPDX-License-Identifier: GPL-2.0-or-later

# perftest_value METRIC: the last line of numbers of the table has it: of a bandwidth test bytes, iterations, peak,
# average, million a second; of latencies bytes, iterations, minimum, maximum, typical, ...
perftest_value() {
    awk -v metric="$1" '
        $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && NF >= 5 { bandwidth = $4; rate = $5 * 1000; typical = $5 }
        END { print metric ~ /bandwidth/ ? bandwidth : metric ~ /rate/ ? rate : typical }' client.log
}

# perftest MTU WHICH METRIC PROGRAM...: the client prints the line.
perftest() {
    local mtu=$1 which=$2 metric=$3
    shift 3
    set -- "$@" -d "${device[$which]}" -x "$(gid_index "${device[$which]}" 4)" -F
    if ends "${PATIENCE:-60}" 18515 "$*" "$* $([ "$GUESTS" = 1 ] && echo localhost || echo "guest1-${address[$which]}")"; then
        bench "$mtu" "$which" "$metric" "$(perftest_value "$metric")"
    fi
}

# sizes MTU WHICH METRIC: a curve; a point of it is METRIC/SIZE.
sizes() {
    local size
    for size in 8 64 512 4096 32768 262144 1048576; do
        case $3 in
            *latency) perftest "$1" "$2" "$3/$size" ib_write_lat -s $size -n $((size > 4096 ? 50 : 500)) ;;
            *) perftest "$1" "$2" "$3/$size" ib_write_bw -s $size -D 1 -f 0 ;;
        esac
    done
}

# queue_pairs_rate MTU WHICH METRIC: each second message completes, whatever the number of queue pairs. Soft-RoCE's
# longest completion queue has 32,767 entries. So many queue pairs would send for seconds what began in time.
queue_pairs_rate() {
    perftest "$1" "$2" "$3/1" ib_write_bw -s 8 -q 1 -t 128 -Q 2 -D 3 -f 0
    perftest "$1" "$2" "$3/64" ib_write_bw -s 8 -q 64 -t 64 -Q 2 -D 3 -f 0
    perftest "$1" "$2" "$3/1024" ib_write_bw -s 8 -q 1024 -t 16 -Q 2 -D 4 -f 0
    PATIENCE=200 perftest "$1" "$2" "$3/16000" ib_write_bw -s 8 -q 16000 -t 2 -Q 2 -n 6
}
