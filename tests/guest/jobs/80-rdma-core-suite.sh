# Runs the test suite of the guest's rdma-core version. Every generic test must pass, or
# tests/guest/rdma-core-suite/agreed must name it with a reason.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed key-refused
# guest: --guests 1 --nic qrnic --timeout 900
# files: rdma-core-suite/suite.py rdma-core-suite/agreed
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

version=$(dpkg-query -W -f '${Version}' libibverbs1)
rdma_core_suite "${version%-*}" /usr/lib/qrnic/rdma-core-tests/tests 182
kernel_clean "the kernel log is clean"
finish
