# The adapter is unplugged under load, and another one plugged in.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: doorbell-queue
# One processor: in QEMU 10.0 an access of one to a register goes to another device while a second changes the memory map
# guest: --guests 1 --nic qrnic --nic qrnic --timeout 300
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
mac=$(<"/sys/class/net/$NIC1/address")

# Within the adapter that goes: two programs, each with both of its ends
load() {
    local program port=18515 gid1
    gid1=$(gid_index "$RDMA1" 4)
    for program in ib_write_bw ib_send_bw; do
        $program -d "$RDMA1" -x "$gid1" -F -b -p $port -D 60 >load.log 2>&1 &
        wait_for_port $port
        $program -d "$RDMA1" -x "$gid1" -F -b -p $port -D 60 localhost >load.log 2>&1 &
        port=$((port + 1))
    done
    sleep 3
    [ "$(jobs -r | wc -l)" = 4 ]
}

# shellcheck disable=SC2317  # called through wait_until
gone() { [ ! -e "/sys/class/net/$NIC1" ]; }

# A process that has lost its device ends by itself or, as here, is ended.
end_load() {
    local process
    for process in $(jobs -p); do
        kill "$process" 2>/dev/null
    done
    wait
}

for round in 1 2; do
    load
    result $? "RDMA traffic is running ($round)"
    host_qmp '{"execute":"device_del","arguments":{"id":"nic1"}}' >/dev/null
    wait_until 30 gone
    result $? "the adapter leaves under load ($round)"
    end_load
    alone "the other one works on ($round)" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200 localhost"
    # Refused as long as something of the first one holds the backend
    host_qmp "{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"qrnic\",\"id\":\"nic1\",\"bus\":\"port1\",\"netdev\":\"net1\",\"mac\":\"$mac\"}}" >add.log &&
        wait_until 30 netdev_of "$mac"
    result $? "another one is plugged in ($round)"
    nic_setup
    nic_export
    gid1=$(gid_index "$RDMA1" 4)
    alone "it works, too ($round)" 18515 \
        "ibv_rc_pingpong -d $RDMA1 -c -g $gid1 -n 200" "ibv_rc_pingpong -d $RDMA1 -c -g $gid1 -n 200 localhost"
done
kernel_clean "the kernel log is clean"
finish
