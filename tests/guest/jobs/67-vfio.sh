# Assigns a virtual function to a driver in user space by vfio-pci, behind an IOMMU. This driver exchanges messages with
# the physical function, whose driver is that of Linux, and cannot access the memory of others.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,vfs=2 --cpus 2 --qemu-arg=-device --qemu-arg=intel-iommu --append=intel_iommu=on
# guest errors: dma-failed
# files: verbs/vfio.py ../../labs/zoo/driver.py ../../labs/zoo/scenario.py
# inside only: vfio-user has no virtual functions
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

export pci=/sys/bus/pci/devices mac gid
pf=$(readlink -f "/sys/class/net/$NIC0/device")
# QEMU has no interrupt remapping with KVM, unless its machine has the option kernel-irqchip=split.
modprobe vfio_iommu_type1 allow_unsafe_interrupts=1 && modprobe vfio_pci
result $? "the kernel has vfio-pci"

echo 0 >"$pf/sriov_drivers_autoprobe"
echo 2 >"$pf/sriov_numvfs"
try "2 virtual functions are enabled, and the driver of Linux does not bind to them" "[ -e $pf/virtfn1 ] && [ ! -e $pf/virtfn0/driver ] && [ ! -e $pf/virtfn1/driver ]"
vf=$(basename "$(readlink -f "$pf/virtfn0")")
other=$(basename "$(readlink -f "$pf/virtfn1")")
mac=02:00:00:00:00:40 gid=10.77.0.40
try "the physical function assigns an address" "ip link set $NIC0 vf 0 mac $mac"
bind() { echo vfio-pci >"$pci/$1/driver_override" && echo "$1" >/sys/bus/pci/drivers_probe && [ -e "$pci/$1/driver" ]; }
bind "$vf" && bind "$other"
result $? "vfio-pci binds to both"
try "each function has an IOMMU group of its own" "[ \$(ls $pci/$vf/iommu_group/devices) = $vf ]"

vfio="python3 /etc/qrnic/vfio.py"
try "a driver in user space uses every part of the virtual function" "$vfio $vf scenario"
# The virtual function does not answer ARP requests.
ip neigh replace "$gid" lladdr "$mac" dev "$NIC0"
alone "RC between the virtual function and ibv_rc_pingpong on the physical one" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -g $(gid_index "$RDMA0" 4) -n 2" "$vfio $vf pingpong 127.0.0.1 $mac $gid $(cat "/sys/class/net/$NIC0/address")"

# Each process has one function. The error of the first one must not disturb the second one.
# shellcheck disable=SC2317  # called through wait_until
holds() { grep -q started hold.log || ! kill -0 "$holder"; }
hold() {
    $vfio "$other" hold >hold.log 2>&1 &
    holder=$!
    wait_until 30 holds && grep -q started hold.log
}
hold
result $? "a second process drives the other virtual function"
try "DMA outside of the memory of the process fails, and a reset repairs the function" "$vfio $vf stray"
try "the IOMMU has reported the access" "dmesg | grep 'DMAR.*fault' || dmesg | grep 'DMAR: \[DMA'"
alone "the physical function works" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $(gid_index "$RDMA0" 4) -n 20" "ibv_rc_pingpong -d $RDMA0 -c -g $(gid_index "$RDMA0" 4) -n 20 localhost"
kill -USR1 "$holder"
wait_until 30 grep -q works hold.log
result $? "the other virtual function works"
show hold.log

# The kernel resets a function whose process dies.
kill -KILL "$holder"
wait "$holder"
try "the next process uses the function of a killed one" "$vfio $other scenario"

# Linux removes the virtual functions in their order, and waits for the program that holds the second one. The physical
# function and its recovery must not wait.
address=$(basename "$pf")
hold
result $? "a process holds the second virtual function"
echo 0 >"$pf/sriov_numvfs" &
disabling=$!
# shellcheck disable=SC2317  # called through wait_until
first_absent() { [ ! -e "$pci/$vf" ]; }
wait_until 10 first_absent && kill -0 $disabling && [ -e "$pci/$other" ]
result $? "Linux waits for this process before it disables all virtual functions"
bounded 10 devlink dev info "pci/$address" >info.log && grep -q 'driver qrnic' info.log
result $? "devlink reports the physical function meanwhile"
nic_fail "$NIC0"
# shellcheck disable=SC2317  # called through wait_until
log_has() { [ "$(dmesg | grep -c "qrnic $address: $2")" -ge "$1" ]; }
wait_until 20 log_has 1 recovered && wait_until 10 nic_has_gid "$NIC0"
result $? "the physical function recovers from a failure meanwhile"
kill -0 $disabling
result $? "Linux still waits then"

# hastened: the last recovery came less than 10 seconds after the last failed one, by the clock of the kernel log
hastened() {
    dmesg | awk -F '[][ ]+' -v name="qrnic $address: " 'index($0, name "recovery failed: -16") { failed = $2 }
        index($0, name "recovered") { recovered = $2 }
        END { print "# failed at " failed " s, recovered at " recovered " s"; exit !(recovered > failed && recovered < failed + 10) }'
}

# A reset clears the configuration space of the physical function, and no recovery can restore it before the number of
# virtual functions has changed. Then the recovery follows at once. After two failures the next attempt would be 10
# seconds away.
flr "$address"
ethtool -S "$NIC0" >/dev/null 2>&1
wait_until 30 log_has 2 "recovery failed: -16" && kill -0 $disabling
result $? "recoveries from a reset of the physical function fail meanwhile"
kill -KILL "$holder"
wait "$holder"
wait_until 30 log_has 2 recovered && hastened
result $? "the physical function recovers as soon as the process has ended"
wait $disabling && [ "$(<"$pf/sriov_numvfs")" = 0 ]
result $? "all are disabled"
wait_until 10 nic_has_gid "$NIC0"
result $? "the physical function has its GID"
kernel_clean "the kernel log is clean"
finish
