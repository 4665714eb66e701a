# Runs the adapter behind an IOMMU, so that it can access only memory that the driver has mapped. The program
# tools/check-newest runs the other jobs of one guest in this way.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --nic qrnic --cpus 2 --qemu-arg=-device --qemu-arg=intel-iommu --append=intel_iommu=on --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
counters() {
    host_qmp "{\"execute\":\"qom-get\",\"arguments\":{\"path\":\"/machine/peripheral/$1\",\"property\":\"counters\"}}"
}

try "the adapter's addresses are translated" \
    "grep -qx 'DMA\|DMA-FQ' $(readlink -f "/sys/class/net/$NIC0/device")/iommu_group/type"
alone "ibv_rc_pingpong within one adapter" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s 100000 -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -s 100000 -n 200 localhost"
alone "ibv_rc_pingpong with events within one adapter" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid -n 200 localhost"
for program in "ib_write_bw -s 1048576 -n 20" "ib_read_bw -s 1048576 -n 20" "ib_send_lat -n 100" "ib_atomic_bw -A FETCH_AND_ADD -n 200"; do
    alone "$program within one adapter" 18515 \
        "${program%% *} -d $RDMA0 -x $gid -F -u 18 ${program#* }" "${program%% *} -d $RDMA0 -x $gid -F -u 18 ${program#* } localhost"
done
# The Ethernet functions of both adapters are in different network namespaces, because otherwise packets would not
# leave the guest.
ip netns add far
ip link set "$NIC1" netns far
ip -n far addr add 10.77.0.99/24 dev "$NIC1"
ip -n far link set "$NIC1" up
try "Ethernet from one adapter to another" "wait_until 20 ping -c 1 -W 1 10.77.0.99 && ping -q -c 50 -i 0.02 -s 1400 10.77.0.99 | grep ' 0% packet loss'"
ip netns del far
for nic in nic0 nic1; do
    counters $nic >counters.log
    try "no access of $nic failed" "grep -q '\"dma_errors\": 0[,}]' counters.log && grep -q '\"guest_errors\": 0[,}]' counters.log"
done
try "the IOMMU has reported no fault" "dmesg | grep -q DMAR && ! dmesg | grep -i 'DMAR.*fault'"
kernel_clean "the kernel log is clean"
finish
