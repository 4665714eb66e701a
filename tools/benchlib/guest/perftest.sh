# shellcheck shell=bash disable=SC2154  # job.sh sets device and address
# Measures by perftest: bandwidth, message rate, latency. Part of the benchmark's job.
# SPDX-License-Identifier: GPL-2.0-or-later

# perftest_value METRIC: prints the figure of the table's last line of numbers. The columns of a bandwidth test are
# bytes, iterations, peak, average and million messages per second. The columns of a latency test are bytes, iterations,
# minimum, maximum, typical, and others.
perftest_value() {
    awk -v metric="$1" '
        $1 ~ /^[0-9]+$/ && $2 ~ /^[0-9]+$/ && NF >= 5 { bandwidth = $4; rate = $5 * 1000; typical = $5 }
        END { print metric ~ /bandwidth/ ? bandwidth : metric ~ /rate/ ? rate : typical }' client.log
}

# perftest MTU WHICH METRIC PROGRAM...: runs the program in both guests; the client prints the figure.
perftest() {
    local mtu=$1 which=$2 metric=$3
    shift 3
    set -- "$@" -d "${device[$which]}" -x "$(gid_index "${device[$which]}" 4)" -F
    if ends "${PATIENCE:-60}" 18515 "$*" "$* $([ "$GUESTS" = 1 ] && echo localhost || echo "guest1-${address[$which]}")"; then
        bench "$mtu" "$which" "$metric" "$(perftest_value "$metric")"
    fi
}

# sizes MTU WHICH METRIC: measures a curve, whose points have the names METRIC/SIZE.
sizes() {
    local size
    for size in 8 64 512 4096 32768 262144 1048576; do
        case $3 in
            *latency) perftest "$1" "$2" "$3/$size" ib_write_lat -s $size -n $((size > 4096 ? 50 : 500)) ;;
            *) perftest "$1" "$2" "$3/$size" ib_write_bw -s $size -D 1 -f 0 ;;
        esac
    done
}

# queue_pairs_rate MTU WHICH METRIC: measures a curve over the number of queue pairs. Each second message completes,
# because the longest completion queue of Soft-RoCE has 32,767 entries. The run with 16,000 queue pairs has a number of
# messages in place of a duration, because otherwise its last requests end seconds later.
queue_pairs_rate() {
    perftest "$1" "$2" "$3/1" ib_write_bw -s 8 -q 1 -t 128 -Q 2 -D 3 -f 0
    perftest "$1" "$2" "$3/64" ib_write_bw -s 8 -q 64 -t 64 -Q 2 -D 3 -f 0
    perftest "$1" "$2" "$3/1024" ib_write_bw -s 8 -q 1024 -t 16 -Q 2 -D 4 -f 0
    PATIENCE=200 perftest "$1" "$2" "$3/16000" ib_write_bw -s 8 -q 16000 -t 2 -Q 2 -n 6
}
