# Checks devlink: the identity of the adapter, a reload, the report of a failure, and a recovery that is left to the
# administrator.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: command-failed dma-failed doorbell-queue key-refused
# guest: --guests 1 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
device=pci/$address
cc=/sys/kernel/debug/qrnic/$address/cc_params

# shellcheck disable=SC2317  # called through wait_until
working() { ibv_devinfo -d "$RDMA0" 2>/dev/null | grep -q PORT_ACTIVE && [ "$(cat "/sys/class/net/$NIC0/carrier")" = 1 ]; }
# health KEY: prints a member of the report
health() { devlink -j health show "$device" reporter fw_fatal | python3 -c "import json, sys
print(next(iter(json.load(sys.stdin)['health'].values()))[0]['$1'])"; }

try "devlink shows driver and version" "devlink dev info $device | tee /dev/stderr >info.log &&
    grep -q 'driver qrnic' info.log && grep -Eq 'fw.mgmt.api [0-9]+\.[0-9]+' info.log && ! grep -q 'fw ' info.log"
# Only a physical function has a serial number.
serial=$(lspci -vv -s "$address" | sed -n 's/.*Device Serial Number //p' | tr -d -)
if [ "${QRNIC_VF:-no}" = no ]; then
    [ -n "$serial" ] && grep -q "serial_number $serial" info.log
else
    [ -z "$serial" ] && ! grep -q serial_number info.log
fi
result $? "devlink shows the serial number of the PCI function"
try "its health is good" "devlink health show $device reporter fw_fatal | tee /dev/stderr | grep -q 'state healthy error 0'"
try "a dump of a device that works has its counters" "devlink health dump show $device reporter fw_fatal | tee /dev/stderr | grep -q commands &&
    devlink health dump clear $device reporter fw_fatal"
try "and a diagnosis reports that it is up" "devlink health diagnose $device reporter fw_fatal | tee /dev/stderr | grep -q 'up: true'"

# A reset of the device restores the defaults of congestion control, so all parameters but rp_gd are written with
# other values.
congestion() { (cd "$cc" && cat np_enable ect_enable rp_clamp_tgt_rate_ati rp_time_reset np_cnp_dscp rp_dce_tcp_g rp_gd) | xargs; }
try "congestion control is set" "cd $cc && echo 1 >np_enable && echo 1 >ect_enable && echo 0 >rp_clamp_tgt_rate_ati &&
    echo 77 >rp_time_reset && echo 5 >np_cnp_dscp && echo 1000 >rp_dce_tcp_g"
[ "$(congestion)" = "1 1 0 77 5 1000 11" ]
result $? "and has the values that were set"
for round in 1 2 3; do
    devlink dev reload "$device" >step.log 2>&1
    status=$?
    nic_export
    wait_until 20 working || status=9
    [ $status = 0 ] || show step.log
    result $status "reload $round"
done
[ "$(congestion)" = "1 1 0 77 5 1000 11" ]
result $? "congestion control is as before the reloads"
dma_errors 0
try "verbs work after it" "qrnic-provider-test"
dma_errors 1

nic_fail "$NIC0"
recovered() { [ "$(health recover)" = 1 ]; }
wait_until 60 recovered && [ "$(health error)" = 1 ] && [ "$(health state)" = healthy ]
result $? "a failure is reported and recovered from"
nic_export
wait_until 20 working
result $? "the adapter works after it"
[ "$(congestion)" = "1 1 0 77 5 1000 11" ]
result $? "congestion control is as before the failure"
try "the dump contains the reason" "devlink health dump show $device reporter fw_fatal | tee /dev/stderr >dump.log &&
    grep -q 'DMA to the command queue failed' dump.log && devlink health dump clear $device reporter fw_fatal"

try "automatic recovery is switched off" "devlink health set $device reporter fw_fatal auto_recover false"
# The driver waits some seconds between two recoveries.
sleep 6
nic_fail "$NIC0"
wait_until 30 sh -c "dmesg | grep -q 'recovery is left to'"
result $? "then a failure is not recovered from"
[ "$(health state)" = error ]
result $? "and reports it"
# Otherwise the watchdog of the stack reports frames that a dead device does not send.
# shellcheck disable=SC2317  # called through wait_until
detached() { ip link set "$NIC0" mtu 1400 2>&1 | grep 'No such device'; }
wait_until 20 detached
result $? "the network device is detached until then"
try "congestion control can be neither read nor set meanwhile" "! cat $cc/np_enable && ! echo 3 >$cc/rp_threshold"
try "until the administrator requests it" "devlink health recover $device reporter fw_fatal"
nic_export
wait_until 20 working
result $? "the adapter works again"
nic_fail "$NIC0"
wait_until 30 sh -c "[ \$(dmesg | grep -c 'recovery is left to') = 2 ]"
try "a reload helps, too" "devlink dev reload $device"
nic_export
wait_until 20 working && [ "$(health state)" = healthy ]
result $? "and then RDMA works"
nic_fail "$NIC0"
wait_until 30 sh -c "[ \$(dmesg | grep -c 'recovery is left to') = 3 ]" && [ "$(health state)" = error ]
result $? "a failure is left to the administrator again"
try "a user resets the function" "echo 1 >/sys/bus/pci/devices/$address/reset"
nic_export
wait_until 20 working && [ "$(health state)" = healthy ]
result $? "which recovers the device, and the reporter reports it"
[ "$(congestion)" = "1 1 0 77 5 1000 11" ] && [ "$(cat "$cc/rp_threshold")" = 1 ]
result $? "congestion control has the values that were set, and no rejected ones"
try "the parameters are removed with the driver" "modprobe -r qrnic_ib qrnic && [ ! -e /sys/kernel/debug/qrnic ] && modprobe qrnic_ib"
nic_setup
nic_export
wait_until 20 working && [ "$(congestion)" = "0 0 1 300 48 1019 11" ]
result $? "and have their defaults when it is loaded again"
kernel_clean "the kernel log is clean"
finish
