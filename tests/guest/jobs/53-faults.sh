# Fails each memory allocation of the driver's start once. The driver must release everything.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --timeout 900 --allow-report "probe with driver"
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

faults=/sys/kernel/debug/failslab
if [ ! -d $faults ] || [ ! -e /proc/self/fail-nth ]; then
    skip "failed allocations" "this kernel has no fault injection"
    finish
fi
echo N >$faults/ignore-gfp-wait
echo 0 >$faults/verbose
address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
bound() { [ -e "/sys/bus/pci/drivers/qrnic/$address" ]; }
unbind() { ! bound || echo "$address" >/sys/bus/pci/drivers/qrnic/unbind; }

# fail NTH COMMAND...: runs the command in a process whose NTH allocation fails. The status is 0 if there were fewer
# allocations. The file is opened before, because opening it allocates, too.
# shellcheck disable=SC2016
fail() {
    bash -c 'exec 7<>/proc/self/fail-nth; nth=$1; shift; echo "$nth" >&7; "$@" 2>/dev/null
        read -r left <&7; echo 0 >&7; [ "$left" != 0 ]' fail "$@"
}
# shellcheck disable=SC2317  # called through fail
bind() { printf '%s' "$1" >/sys/bus/pci/drivers/qrnic/bind; }
export -f bind

nth=1 refused=0
limit=${FAULT_LIMIT:-400}
while [ $nth -le "$limit" ]; do
    unbind
    if fail $nth bind "$address"; then break; fi
    bound || refused=$((refused + 1))
    nth=$((nth + 1))
done
echo "# $((nth - 1)) allocations of the probe failed, and the driver rejected the device $refused times"
try "the driver survives failed allocations in its probe" "[ $nth -gt 10 ] && [ $refused -gt 5 ]"
unbind
try "and starts when they succeed" "echo $address >/sys/bus/pci/drivers/qrnic/bind && nic_setup && nic_export && [ -n \"\$RDMA0\" ]"
nic_export
gid=$(gid_index "$RDMA0" 4)

# Fails the allocations of calls of programs, too. The programs may fail, but the kernel must continue.
for ((nth = 60; nth <= limit; nth += 10)); do
    bash -c "echo $nth >/proc/self/fail-nth; exec ibv_devinfo -v" >/dev/null 2>&1
done
alone "ibv_rc_pingpong afterwards" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100 localhost"
kernel_clean "the kernel log is clean"
finish
