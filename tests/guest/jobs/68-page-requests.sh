# Runs shared virtual addressing with page requests (PRI): Linux pages in for the device through the IOMMU, without the
# driver. The QEMU is that of the job 64-shared-virtual. The commands that fail are queries of page faults of killed
# processes. Without a page table the IOMMU accepts no page request, so the device sends an event to the driver.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,bus=pcie.0,shared-virtual=on,page-requests=64 --cpus 2 --cpu max,la57=off --qemu-arg=-device --qemu-arg=intel-iommu,x-scalable-mode=on,x-flts=on,x-pasid-mode=on,device-iotlb=on,aw-bits=48 --append=intel_iommu=on --timeout 600
# guest errors: key-refused command-failed
# needs: shared-virtual
# inside only: a device process has no IOMMU
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
counter() { cat "/sys/class/infiniband/$RDMA0/hw_counters/$1"; }
pci=$(readlink -f "/sys/class/infiniband/$RDMA0/device")

try "a swap device" "modprobe brd rd_nr=1 rd_size=65536 && mkswap /dev/ram0 && swapon /dev/ram0"
# The extended capability Page Request is at 0x1f0; bit 0 of its control register is Enable.
control=$(od -An -tu2 -j $((0x1f4)) -N 2 "$pci/config")
try "Linux has enabled page requests" "[ $((control & 1)) = 1 ]"

try "the provider's test" "set -o pipefail; qrnic-process-test $RDMA0 $gid | tee test.log && ! grep -E '^not ok|SKIP' test.log"
for name in page_faults page_refusals page_requests page_requests_rejected page_responses_{success,invalid,failure,unexpected}; do
    printf '# %s %s\n' "$name" "$(counter "$name")"
done
try "the IOMMU answered page requests" \
    "[ $(counter page_requests) -gt 0 ] && [ $(counter page_responses_success) -gt 0 ] && [ $(counter page_responses_invalid) -gt 0 ]"
try "no request was rejected, and no response failed or was unexpected" \
    "[ $(counter page_requests_rejected) = 0 ] && [ $(counter page_responses_failure) = 0 ] && [ $(counter page_responses_unexpected) = 0 ]"

try "processes that are killed during traffic, while page requests are outstanding" \
    "for i in 1 2 3 4 5; do kill_after ready 0 qrnic-process-test $RDMA0 $gid hold || exit; done"
try "each later response belongs to a page request" "[ $(counter page_responses_unexpected) = 0 ]"
kernel_clean "the kernel log is clean"
finish
