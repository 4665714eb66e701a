# Runs shared virtual addressing: the test of the provider, and processes that are killed during traffic. The emulated
# IOMMU of QEMU offers PASIDs to Linux only after the test-only change of tests/guest/iommu/build-qemu, which has the
# command for this job. The commands that fail are queries of page faults of QPs that are in ERR already.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,bus=pcie.0,shared-virtual=on --cpus 2 --cpu max,la57=off --qemu-arg=-device --qemu-arg=intel-iommu,x-scalable-mode=on,x-flts=on,x-pasid-mode=on,device-iotlb=on,aw-bits=48 --append=intel_iommu=on --timeout 600
# guest errors: key-refused command-failed
# needs: shared-virtual
# inside only: a device process has no IOMMU
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
counter() { cat "/sys/class/infiniband/$RDMA0/hw_counters/$1"; }

try "a swap device" "modprobe brd rd_nr=1 rd_size=65536 && mkswap /dev/ram0 && swapon /dev/ram0"
before=$(counter atc_misses)
try "the provider's test" "set -o pipefail; qrnic-process-test $RDMA0 $gid | tee test.log && ! grep -E '^not ok|SKIP' test.log"
try "the device requested and invalidated translations" \
    "[ $(counter atc_misses) -gt $before ] && [ $(counter atc_invalidations_pages) -gt 0 ]"

# The kernel destroys the keys and doorbell pages of a killed process, and releases the PASID.
try "processes that are killed during traffic" \
    "for i in 0 2 4 6 8; do kill_after ready 0.\$i qrnic-process-test $RDMA0 $gid hold || exit; done"
try "the provider's test again" "set -o pipefail; qrnic-process-test $RDMA0 $gid | tee test.log && ! grep -E '^not ok|SKIP' test.log"
# Contexts end when the driver is removed while a process has traffic.
qrnic-process-test "$RDMA0" "$gid" hold >hold.log &
process=$!
try "a process has traffic" "wait_until 20 grep -q ready hold.log"
try "the driver is removed" "modprobe -r qrnic_ib"
kill -KILL "$process"
wait "$process" 2>/dev/null
kernel_clean "the kernel log is clean"
finish
