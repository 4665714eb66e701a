# Makes a thousand connections at once by the connection manager, over a cable. Each must be fast enough that its peer
# does not time out.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=cable --timeout 900
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

synchronizing() { grep -qh ":$(printf %04X 7471) [0-9A-F:]* 0A " /proc/net/tcp; }

tool "cmtime, 1000 connections" synchronizing "cmtime -b 10.77.0.1 -c 1000" "cmtime -s 10.77.0.1 -c 1000"
try "no object of them is left" "wait_until 20 eval '! rdma resource show qp | grep -q \"type RC\"'"
kernel_clean "the kernel logs are clean"
finish
