# Restarts a guest without restarting QEMU. The adapter must start as after power-on.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
tests=$((4 * (QRNIC_BOOT - 1)))
# There are few messages, because on one processor each polling end waits for the time slice of the other.
alone "ibv_rc_pingpong after boot $QRNIC_BOOT" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 50" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 50 localhost"
alone "ibv_rc_pingpong with events after boot $QRNIC_BOOT" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -e -g $gid -n 200 localhost"
try "the port is active after boot $QRNIC_BOOT" "ibv_devinfo | grep -q PORT_ACTIVE"
kernel_clean "the kernel log is clean after boot $QRNIC_BOOT"
if [ "$QRNIC_BOOT" -lt 3 ]; then
    # The guest restarts under traffic.
    ib_write_bw -d "$RDMA0" -x "$gid" -F -D 20 >/dev/null 2>&1 &
    wait_for_port 18515
    ib_write_bw -d "$RDMA0" -x "$gid" -F -D 20 localhost >/dev/null 2>&1 &
    sleep 2
    guest_reboot
fi
finish
