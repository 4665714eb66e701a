# Injects errors of PCI Express, as the AER driver of the kernel reports them. The device continues, or is reset with
# its link. If no reset comes, the driver resets the device after a minute.
# SPDX-License-Identifier: GPL-2.0-or-later
# The port of the first adapter has 2.5 GT/s, because a faster port must report that its link is up (DLLLA). QEMU's port
# does so only without hot plug by ACPI, otherwise the kernel gives up the reset. The second adapter tests this failure.
#
# After a reset of the link, a process continues to ring doorbells until the driver has unmapped its doorbell page.
#
# guest errors: doorbell-page
# guest: --guests 1 --nic qrnic,port.x-speed=2_5 --nic qrnic --timeout 900
# inside only: QEMU reports success for an error that it injects into a vfio-user-pci, but injects none
# full
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

address() { basename "$(readlink -f "/sys/class/net/$1/device")"; }
first=$(address "$NIC0") second=$(address "$NIC1")
# The errors are those of the physical function, also if the job uses a virtual one.
reporting=$(readlink -e "/sys/class/net/$NIC0/device/physfn" || readlink -e "/sys/class/net/$NIC0/device")

# inject CARD ERROR: injects an error by pcie_aer_inject_error of QEMU's monitor
inject() {
    local command="pcie_aer_inject_error nic$1 $2"
    host_qmp "{\"execute\":\"human-monitor-command\",\"arguments\":{\"command-line\":\"$command\"}}" | grep -q OK
}
errors() { awk '/^TOTAL/ { print $2 }' "$reporting/aer_dev_$1"; }
# shellcheck disable=SC2317  # these are called through wait_until
counted() { [ "$(errors "$1")" = 1 ]; }
said() { dmesg | tail -n "+$seen" | grep -q "$1"; }
working() { [ "$(cat "/sys/class/net/$1/carrier")" = 1 ] && nic_has_gid "$1"; }
ended() { ! kill -0 "$1"; }

# Runs both ends of a long connection on the first card.
traffic() {
    local gid
    gid=$(gid_index "$RDMA0" 4)
    ib_write_bw -d "$RDMA0" -x "$gid" -F -D "$1" >server.log 2>&1 &
    server=$!
    server_up 18515
    ib_write_bw -d "$RDMA0" -x "$gid" -F -D "$1" localhost >client.log 2>&1 &
    client=$!
}

traffic 8
sleep 2
for kind in correctable:RCVR nonfatal:POISON_TLP; do
    seen=$(dmesg | wc -l) status=0
    inject 0 "${kind#*:}" && wait_until 20 counted "${kind%:*}" || status=1
    result $status "the kernel counts an error that is ${kind%:*}"
done
try "and recovers without a reset" "dmesg | grep 'device recovery successful'"
status=0
wait $server || status=1
wait $client || status=1
[ $status = 0 ] || { show server.log; show client.log; }
result $status "traffic continues all the time"

stdbuf -oL ibv_asyncwatch -d "$RDMA0" >events.log 2>&1 &
watch=$!
traffic 60
sleep 2
seen=$(dmesg | wc -l) status=0
inject 0 DLP && inject 1 DLP || status=1
[ $status != 0 ] || wait_until 20 said "pcieport.*device recovery successful" || status=2
wait_until 20 working "$NIC0" || status=3
result $status "after a fatal error the link is reset, and the device with it"
# A program that polls and ignores events never ends, so it is killed.
status=0
wait_until 20 grep -q DEVICE_FATAL events.log || { status=1; show events.log; }
kill $server $client $watch 2>/dev/null
wait_until 20 ended $server && wait_until 20 ended $client && wait_until 20 ended $watch || status=2
result $status "its users receive the event, and can be ended"
nic_export
gid=$(gid_index "$RDMA0" 4)
alone "afterwards it works as before" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100 localhost"
result "$([ "$(address "$NIC0")" = "$first" ]; echo $?)" "it is the same one"

said "pcieport.*device recovery failed"
result $? "the kernel fails to reset the link of the other card"
status=0
wait_until 90 said "qrnic $second: recovered" || status=1
wait_until 20 working "$NIC1" || status=2
result $status "which its driver resets after a minute"
nic_export
gid=$(gid_index "$RDMA1" 4)
alone "afterwards it works as before, too" 18515 \
    "ibv_rc_pingpong -d $RDMA1 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA1 -c -g $gid -n 100 localhost"
kernel_clean "the kernel log is clean"
finish
