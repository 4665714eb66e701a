# Makes the start of the RDMA driver fail once after a fatal error. Recovery is retried until the RDMA device exists
# again, and reports success only then. Also makes a reset fail, and submits a command during a reset.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: dma-failed
# guest: --guests 1 --nic qrnic --cpus 2 --allow-report "probe with driver"
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

if ! modprobe refuse symbol=ib_register_device error=-12 times=0 2>refuse.log; then
    skip "a probe that fails" "this kernel has no module for it: $(tail -n 1 refuse.log)"
    finish
fi
modprobe -r refuse
address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
# shellcheck disable=SC2317  # these are called through wait_until
refused() { [ "$(cat /sys/module/refuse/parameters/times)" = 0 ]; }
# shellcheck disable=SC2317
working() { nic_has_gid "$NIC0" && [ "$(cat "/sys/class/net/$NIC0/carrier")" = 1 ]; }

# The user may request asynchronous probing, but the driver must ignore it, because the core checks the result of the
# probe.
for options in "" async_probe; do
    bounded 60 rmmod qrnic_ib && bounded 60 modprobe qrnic_ib $options && wait_until 30 working
    result $? "the RDMA part is loaded${options:+ with $options}"
    modprobe refuse symbol=ib_register_device error=-12 times=1
    echo "refused: begin" >/dev/kmsg
    nic_fail "$NIC0"
    wait_until 20 refused
    result $? "the RDMA part fails to start after a fatal error"
    wait_until 30 working
    result $? "and exists again after the next attempt"
    dmesg | awk -v nic="qrnic $address:" '/refused: begin/ { text = "" } index($0, nic) { text = text $0 "\n" }
        END { printf "%s", text }' >driver.log
    status=0
    awk '/recovery failed: -12/ { failed = 1 } /recovered/ { if (!failed) early = 1; well = 1 }
        END { exit !(failed && well && !early) }' driver.log || { status=1; show driver.log; }
    result $status "the log reports a failed recovery, and then a successful one"
    modprobe -r refuse
done
nic_export

# The driver calls pci_clear_master() after it has reset the device, and before it disables its command queue. The delay
# makes this window longer, and the other processor submits a command in it. The driver must not write the registers of
# the command queue then, because the device would report a guest error.
# shellcheck disable=SC2317  # called through try
command_in_reset() {
    local counter=/sys/class/infiniband/$RDMA0/ports/1/hw_counters/cqes second status=0
    local times=/sys/module/refuse/parameters/times
    # Without traffic of the netdev, no doorbell of another queue reaches the device after the reset.
    ip link set "$NIC0" down || return 1
    echo 0 >"${counter%/*}/lifespan" && read -r _ <"$counter" || return 1
    echo "reset: begin" >/dev/kmsg
    modprobe refuse symbol=pci_clear_master delay=1000 times=1 || return 1
    while [ "$(<"$times")" = 1 ]; do :; done && read -r _ <"$counter" 2>/dev/null &
    second=$!
    nic_fail "$NIC0"
    wait_until 60 refused || status=2
    wait "$second"
    wait_until 60 sh -c "dmesg | sed '1,/reset: begin/d' | grep -q 'qrnic $address: recovered'" || status=3
    modprobe -r refuse || status=4
    ip link set "$NIC0" up && wait_until 30 working || status=5
    return "$status"
}
export -f command_in_reset nic_fail refused working nic_has_gid gid_index gid_find
export address
try "a command of another processor during the reset" command_in_reset

nic_export
gid=$(gid_index "$RDMA0" 4)
alone "ibv_rc_pingpong afterwards" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100 localhost"

# If a reset fails, the DMA of the device does not end, and the driver frees memory. So the driver must disable bus
# mastering before.
# shellcheck disable=SC2317  # called through try
reset_fails() {
    local tracing=/sys/kernel/tracing status=0
    mountpoint -q "$tracing" || mount -t tracefs none "$tracing" || return 1
    printf 'p:master pci_clear_master\np:memory qrnic_contexts_stop\n' >"$tracing/kprobe_events" || return 2
    modprobe -r refuse && modprobe refuse symbol=qrnic_device_reset error=-5 times=1 || return 3
    echo 1 >"$tracing/events/kprobes/enable"
    echo 1 >"/sys/bus/pci/devices/$address/reset" || status=4
    echo 0 >"$tracing/events/kprobes/enable"
    refused || status=5
    grep -Eo ' (master|memory): ' "$tracing/trace" | head -n 2 | tr -d ' \n' | grep -x master:memory: || status=6
    dmesg | grep "qrnic $address: the reset failed, bus mastering is switched off" || status=7
    [ "$status" = 0 ] || tail -n 5 "$tracing/trace"
    echo >"$tracing/kprobe_events"
    wait_until 20 working || status=8
    return "$status"
}
export -f reset_fails
try "the device does no DMA after a reset that fails" reset_fails
nic_export
gid=$(gid_index "$RDMA0" 4)
alone "ibv_rc_pingpong after that" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100 localhost"
kernel_clean "the kernel log is clean"
finish
