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

# doorbell MTU WHICH METRIC: measures accesses to registers. The driver is unbound for that, because the kernel lets no
# process map registers that a driver uses. So this metric is the last one of a job.
doorbell() {
    local card
    card=$(readlink -f "/sys/class/infiniband/${device[$2]}/device")
    basename "$card" >/sys/bus/pci/drivers/qrnic/unbind
    echo 1 >"$card/enable"
    python3 /etc/qrnic/bench/doorbells.py "$card/resource0" >doorbells.log 2>&1 || echo "NOTE $(tail -n 1 doorbells.log)"
    if [ "$GUEST" = "$GUESTS" ]; then
        bench "$1" "$2" "$3-write" "$(sed -n '1s/^[0-9.]*$/&/p' doorbells.log)"
        bench "$1" "$2" "$3-read" "$(sed -n '2s/^[0-9.]*$/&/p' doorbells.log)"
    fi
}
