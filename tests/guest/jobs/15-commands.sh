# Checks the commands of the driver. The driver polls for the completion before it waits, and requests the event of a
# late command afterwards. The second device does not support such a request, so each of its commands requests the
# event at once.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,device-memory-size=128M --nic qrnic,cap-command-event=off
# files: verbs/commands.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# Prints the interrupts of the asynchronous EQ of an interface's device, which has the events of commands.
events() { grep "qrnic-async-$(basename "$(readlink -f "/sys/class/net/$1/device")")" /proc/interrupts | awk '{ print $2 }'; }
late() { ethtool -S "$1" | awk '/late_command_events/ { print $2 }'; }
# issue NIC DEVICE WHAT NUMBER: prints the number of events for these commands, and the number of events that did not
# come
issue() {
    local events late
    events=$(events "$1") late=$(late "$1")
    python3 /etc/qrnic/commands.py "$2" "$3" "$4" || return
    echo "$(($(events "$1") - events)) events, $(($(late "$1") - late)) late"
}
# shellcheck disable=SC2317  # called through try
few() { local said; said=$(issue "$@") && echo "$said" && [ "${said%% *}" -lt 20 ] && [ "${said#*, }" = "0 late" ]; }
# shellcheck disable=SC2317  # called through try
many() { local said; said=$(issue "$@") && echo "$said" && [ "${said%% *}" -ge 100 ]; }
# shellcheck disable=SC2317  # called through try
some() { local said; said=$(issue "$@") && echo "$said" && [ "${said%% *}" -ge 1 ] && [ "${said#*, }" = "0 late" ]; }
export -f events late issue few many some

try "500 commands: the driver waits for few of them" "few $NIC0 $RDMA0 short 250"
# Most commands are complete when the processor returns from QEMU, because it waits for QEMU's lock.
poll=/sys/kernel/debug/qrnic/$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")/command_poll_us
[ "$(cat "$poll")" = 20 ] && echo 0 >"$poll"
result $? "the driver polls for 20 microseconds, unless polling is disabled"
try "long commands: their events arrive" "some $NIC0 $RDMA0 long 30"
echo 20 >"$poll"
try "without the register: an event for each command" "many $NIC1 $RDMA1 short 250"
kernel_clean "the kernel log is clean"
finish
