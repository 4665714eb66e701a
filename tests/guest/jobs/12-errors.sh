# Checks the errno with which each verb rejects invalid arguments, and regions of dma-bufs.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed
# guest: --guests 1 --nic qrnic
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

complete() {
    try "$1" "set -o pipefail; $2 | tee complete.log && ! grep SKIP complete.log"
}

complete "the provider's test of errnos" "qrnic-errno-test $RDMA0"
complete "the provider's test of dma-bufs" "qrnic-dmabuf-test $RDMA0"
try "the adapter works as before" "ibv_devinfo -v && ! rdma resource show qp | grep 'type RC'"
kernel_clean "the kernel log is clean"
finish
