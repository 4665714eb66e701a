# shellcheck shell=bash disable=SC2154  # job.sh sets device and address
# Measures the control path by examples/resource_costs.c in each guest. Part of the benchmark's job.
# SPDX-License-Identifier: GPL-2.0-or-later

# costs MTU WHICH METRIC OPTIONS: prints the sum of both times.
costs() {
    timeout 400 resource_costs -d "${device[$2]}" "${@:4}" >costs.log 2>&1 || echo "NOTE $(tail -n 1 costs.log)"
    awk '{ for (i = 1; i < NF; i++) if ($(i + 1) ~ /^ms/) all += $i } END { if (all) print all }' costs.log
}

register() { bench "$1" "$2" "$3" "$(costs "$@" -m 1024)"; }

# The figure is in seconds.
queue_pairs() { bench "$1" "$2" "$3" "$(costs "$@" -q 16380 | awk '{ print $1 / 1000 }')"; }
