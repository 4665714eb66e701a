# Makes the device report invalid limits, results and events. The driver accepts harmless values and rejects the
# others, and the kernel continues to work.
# SPDX-License-Identifier: GPL-2.0-or-later
# Impossible numbers make the driver reset the device, and the Ethernet function may ring a doorbell at that time.
#
# guest errors: command-failed doorbell-queue
# guest: --guests 1 --nic qrnic,device-memory-size=128M --timeout 900 --allow-report "probe with driver"
# files: verbs/commands.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
driver=/sys/bus/pci/drivers/qrnic
unbind() { [ ! -e "$driver/$address" ] || echo "$address" >$driver/unbind; }
bind() { echo "$address" 2>/dev/null >$driver/bind; }
# liar OPTION...: selects the invalid values from now on; see tests/guest/kernel-faults/lie.c
liar() { modprobe -r lie && modprobe lie "$@"; }
# shellcheck disable=SC2317  # called through try
told() { [ "$(cat /sys/module/lie/parameters/told)" -gt 0 ]; }
# limit NAME: prints a limit as ibv_devinfo shows it
limit() { ibv_devinfo -v -d "$RDMA0" | awk -v name="$1:" '$1 == name { print $2; exit }'; }
# shellcheck disable=SC2317  # called through try
within() { local value; value=$(limit "$1") && echo "# $1 $value" && [ "$value" -gt 0 ] && [ "$value" -le "$2" ]; }

open_it() { ibv_devinfo -v -d "$RDMA0" >/dev/null 2>&1; }
export address driver
export -f bind told limit within open_it

if ! modprobe lie 2>lie.log; then
    skip "a device with invalid values" "this kernel has no module for it: $(tail -n 1 lie.log)"
    finish
fi

unbind
liar opcode=0x2 offset=8 length=120 byte=0xff
try "limits of the maximum value: the driver starts" "bind && told && nic_setup && nic_export && [ -n \"\$RDMA0\" ]"
nic_export
try "and reports its limits" "within max_cqe 1048576 && within max_sge 30 && within max_qp 1048576 &&
    within max_qp_rd_atom 128 && within max_srq_wr 32767 && within max_qp_wr 65536"
gid=$(gid_index "$RDMA0" 4)
alone "ibv_rc_pingpong" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100 localhost"
unbind
liar opcode=0x2 offset=8 length=120 byte=0
try "limits of 0: the driver rejects the device" "! bind && told && dmesg | grep 'limits too low'"
liar opcode=0x3 offset=24 length=8 byte=0xff
try "maximum numbers of GIDs and P_Keys: the driver starts" "bind && told && nic_setup && nic_export && [ -n \"\$RDMA0\" ]"
nic_export
try "with as many as it can hold" "[ \$(ls /sys/class/infiniband/$RDMA0/ports/1/gids | wc -l) = 1024 ] &&
    [ \$(ls /sys/class/infiniband/$RDMA0/ports/1/pkeys | wc -l) = 1 ]"
unbind
liar opcode=0x3 offset=16 length=6 byte=0xff
try "no MAC address: the driver generates one" "bind && told &&
    read -r mac </sys/bus/pci/devices/$address/net/*/address && echo \$mac && [ \$mac != ff:ff:ff:ff:ff:ff ]"
unbind
liar opcode=0x3 offset=8 length=4 byte=0
try "an MTU of 0: the driver uses the MTU of the contract" "bind && told &&
    read -r mtu </sys/bus/pci/devices/$address/net/*/mtu && [ \$mtu = 68 ]"
unbind
liar opcode=0x2 offset=72 length=1 byte=1
try "another number of counters: none are shown, and RDMA works" "bind && told && nic_setup && nic_export &&
    dmesg | grep 'no statistics: ' && [ ! -e /sys/class/infiniband/\$RDMA0/ports/1/hw_counters ] &&
    open_it && ethtool -S \$NIC0 | grep ' eth_tx_packets: 0'"
nic_export
unbind
liar opcode=0x2 offset=68 length=4 byte=0
try "a clock that does not run: no timestamps" "bind && told && nic_setup && nic_export &&
    ! ibv_devinfo -v -d \$RDMA0 | grep 'hca_core_clock:.*[1-9]' &&
    ibv_devinfo -v -d \$RDMA0 | grep 'max_cqe:'"
nic_export
unbind
liar && bind && nic_setup
nic_export

# Numbers of queue pairs and indices of keys have 24 bits. An object with a longer number cannot be destroyed, so the
# device is reset.
recoveries() { dmesg | grep -c 'qrnic.*: recovered$'; }
export -f recoveries
for opcode in 0x50 0x40; do
    before=$(recoveries)
    liar opcode=$opcode result=16777217 times=1
    try "number 16777217 from command $opcode: rejected" \
        "ibv_rc_pingpong -d $RDMA0 -g 1 2>&1 | tee /dev/stderr | grep \"Couldn't\" && told &&
         dmesg | grep 'object 16777217 cannot be destroyed'"
    try "and the device works again" "wait_until 30 eval '[ \$(recoveries) -gt $before ]' && nic_setup && nic_export && open_it"
    nic_export
done

# A process that opens the device allocates a doorbell page.
try "the device can be opened" open_it
for page in 0 4294967295; do
    liar opcode=0x10 result=$page
    try "but not if it assigns doorbell page $page" "! open_it && told"
done
memory="import pyverbs.device as d; d.DM(d.Context(name='$RDMA0'), d.AllocDmAttr(length=4096))"
liar
try "it has device memory" "python3 -c \"$memory\""
liar opcode=0x82 offset=8 length=8 byte=0xff
try "but not if that is beyond the BAR" "! python3 -c \"$memory\" 2>/dev/null && told"
liar opcode=0x82 offset=8 length=1 byte=0x10
try "or begins within a page" "! python3 -c \"$memory\" 2>/dev/null && told"

work_queue="import pyverbs.cq as c, pyverbs.device as d, pyverbs.enums as e, pyverbs.pd as p, pyverbs.wq as w
context = d.Context(name='$RDMA0')
w.WQ(context, w.WQInitAttr(wq_pd=p.PD(context), wq_cq=c.CQ(context, 16), wq_type=e.IBV_WQT_RQ, max_wr=16, max_sge=1))"
liar
try "it has receive work queues" "python3 -c \"$work_queue\""
liar wq_fatal=1
try "a fatal event of a receive work queue before uverbs knows the queue: dropped" "python3 -c \"$work_queue\" && told"

# Only late commands have events.
poll=/sys/kernel/debug/qrnic/$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")/command_poll_us
echo 0 >"$poll"
liar event=0x1
try "completions in the queue of asynchronous events: ignored" \
    "python3 /etc/qrnic/commands.py $RDMA0 long 20 && told && dmesg | grep 'event 0x1 of object .* in the wrong queue'"
liar event=0xee
try "events of an unknown type: ignored" \
    "python3 /etc/qrnic/commands.py $RDMA0 long 20 && told && dmesg | grep 'unknown event 0xee'"
modprobe -r lie
echo 20 >"$poll"
gid=$(gid_index "$RDMA0" 4)
alone "ibv_rc_pingpong with valid values" 18515 \
    "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 100 localhost"
kernel_clean "the kernel log is clean"
finish
