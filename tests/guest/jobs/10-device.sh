# Checks the device in one guest: probe, objects, kernel verbs, and limits of contexts.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed cq-overrun key-refused
# guest: --guests 1 --nic qrnic
# files: verbs/contexts.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

ibv_devinfo -v >devinfo.log 2>&1
try "ibv_devinfo -v succeeds" "ibv_devinfo -v"
for line in 'hca_id:\s*qrnic' 'transport:\s*InfiniBand' 'vendor_id:\s*0x1234' 'state:\s*PORT_ACTIVE' \
        'max_mtu:\s*4096' 'active_mtu:\s*1024' 'link_layer:\s*Ethernet' 'atomic_cap:\s*ATOMIC_GLOB' \
        'max_sge:\s*([3-9][0-9]|[1-9][0-9]{2,})' 'GID\[.*::ffff:10\.77\.0\.1, RoCE v2' 'GID\[.*fd77::1, RoCE v2' \
        'max_msg_sz:\s*0x80000000' 'fw_ver:\s*0\.0$' 'hca_core_clock:\s*1000000' \
        'completion timestamp_mask:\s*0xffffffffffffffff'; do
    try "ibv_devinfo -v has $line" "grep -Eq '$line' devinfo.log || { cat devinfo.log; false; }"
done
try "the PCI function is an Ethernet controller with PCIe, MSI-X and AER" \
    "lspci -vvv -d 1234: >pci.log; cat pci.log; grep -q 'Ethernet controller' pci.log &&
     grep -q 'MSI-X: Enable+' pci.log && grep -q 'Express.*Endpoint' pci.log && grep -q 'FLReset+' pci.log &&
     grep -q 'Advanced Error Reporting' pci.log"
try "rdma link shows the port active" "rdma link show | tee /dev/stderr | grep -q 'link $RDMA0/1 state ACTIVE physical_state LINK_UP netdev $NIC0'"
gid=$(gid_index "$RDMA0" 4)
alone "ibv_rc_pingpong" 18515 "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 10" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 10 localhost"
try "rdma statistic has counted it" "rdma statistic show link $RDMA0/1 | tee /dev/stderr | grep -Eq ' roce_tx_packets [1-9]'"
try "rdma resource lists objects" "rdma resource show | tee /dev/stderr | grep -q '$RDMA0: pd'"
try "udev identifies it as RoCE hardware" "udevadm test --action=add /sys/class/infiniband/$RDMA0 2>&1 | tee /dev/stderr | grep -q 'ID_RDMA_ROCE=1'"
try "ethtool shows the driver" "ethtool -i $NIC0 | tee /dev/stderr | grep -q '^driver: qrnic'"
try "ethtool -S has counted frames" "ethtool -S $NIC0 | tee /dev/stderr | grep -Eq ' eth_tx_packets: [1-9]'"
try "ethtool -k shows offloads" "ethtool -k $NIC0 | grep -q 'tx-checksumming: on'"
try "the link is up" "ethtool $NIC0 | tee /dev/stderr | grep -q 'Link detected: yes'"
dma_errors 0
try "the provider's own test" qrnic-provider-test
try "the provider's own test without locks" "QRNIC_SINGLE_THREADED=true QRNIC_DIRECT_WQE=no qrnic-provider-test"
counter=/sys/class/infiniband/$RDMA0/ports/1/hw_counters/direct_wqe_used
try "direct WQEs are used only on request" "cat $counter | tee /dev/stderr | grep -qx 0"
try "the provider's own test with direct WQEs" "QRNIC_DIRECT_WQE=Yes qrnic-provider-test"
try "structures of direct verbs, and other providers" "qrnic-direct-test $RDMA0"
try "all sizes within the limits" "set -o pipefail; qrnic-limits-test $RDMA0 | tee limits.log && ! grep SKIP limits.log"
dma_errors 1
try "and they were used" "wait_until 20 eval '[ \$(cat $counter) -gt 0 ]'"
if modinfo kernel_verbs >/dev/null 2>&1; then
    # One test needs a queue pair of a process.
    ibv_rc_pingpong -d "$RDMA0" -g "$(gid_index "$RDMA0" 4)" >/dev/null 2>&1 &
    process=$!
    wait_for_port 18515
    try "kernel verbs" "modprobe kernel_verbs device=$RDMA0 gid_index=\$(gid_index $RDMA0 4) ||
        { dmesg | grep kernel_verbs; false; }"
    kill $process
    # As in a kernel with pages of 64 KiB, where each page contains 16 doorbell pages. The doorbell pages of the first
    # one stay unused, because the kernel has page 0.
    # shellcheck disable=SC2317  # called through try
    doorbell_groups() {
        local pages status=0
        pages=$(($(stat -c %s "/sys/class/infiniband/$RDMA0/device/resource2") / 4096))
        modprobe -r kernel_verbs && modprobe kernel_verbs "device=$RDMA0" db_group=16 && modprobe -r kernel_verbs || return 1
        # Run twice, so that the second run uses the pages that the first one has freed.
        for _ in 1 2; do
            python3 /etc/qrnic/contexts.py "$RDMA0" 65536 $((pages / 16 - 1)) || status=2
        done
        ibv_rc_pingpong -d "$RDMA0" -c -g "$gid" -n 10 >server.log & wait_for_port 18515
        ibv_rc_pingpong -d "$RDMA0" -c -g "$gid" -n 10 localhost || status=3
        wait $! || status=4
        modprobe kernel_verbs "device=$RDMA0" db_group=1 || return 5
        python3 /etc/qrnic/contexts.py "$RDMA0" 4096 100 || status=6
        return "$status"
    }
    export -f doorbell_groups
    export gid
    try "a context has all doorbell pages in a page of the CPU" doorbell_groups
else
    skip "kernel verbs" "the test's module is not built for this kernel"
fi
# The monitor of QEMU can disconnect and reconnect the link.
host_qmp '{"execute":"set_link","arguments":{"name":"nic0","up":false}}' >/dev/null
try "the port goes down with its link" \
    "wait_until 20 eval \"ibv_devinfo | grep -q PORT_DOWN\" && ethtool $NIC0 | grep -q 'Link detected: no'"
host_qmp '{"execute":"set_link","arguments":{"name":"nic0","up":true}}' >/dev/null
try "and comes up again" "wait_until 20 eval \"ibv_devinfo | grep -q PORT_ACTIVE\""
kernel_clean "the kernel log is clean"
finish
