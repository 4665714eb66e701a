# Unplugs the adapter under load, and plugs another one in. Adapters are plugged into ports that were empty when the
# guest started, with the default properties and with more memory. Two adapters with the largest device memory start.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: doorbell-queue
# One processor only, because in QEMU 10.0 a register access goes to another device while a second processor changes
# the memory map.
# guest: --guests 1 --nic qrnic,device-memory-size=256M --nic qrnic,device-memory-size=256M --timeout 900 --qemu-arg=-device --qemu-arg=pcie-root-port,id=spare,chassis=91 --qemu-arg=-device --qemu-arg=pcie-root-port,id=large,chassis=92,pref64-reserve=512M
# inside only: QEMU 11.1 ends by an assertion if a vfio-user-pci is unplugged (docs/use/process.md)
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
# The physical function is unplugged, also if the job uses a virtual one.
physical=$(readlink -e "/sys/class/net/$NIC1/device/physfn" || readlink -e "/sys/class/net/$NIC1/device")
mac=$(cat "$physical"/net/*/address) functions=
[ "${QRNIC_VF:-no}" = no ] || functions=',"vfs":1'

# Two programs, each with both of its ends, use the adapter that is unplugged.
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

# A process whose device was removed ends by itself or is ended here.
end_load() {
    local process
    for process in $(jobs -p); do
        kill "$process" 2>/dev/null
    done
    wait
}

# memory_is DEVICE BYTES: checks the size of the device memory
memory_is() { ibv_devinfo -v -d "$1" | grep "available device memory:.*[[:space:]]$2Bytes"; }

# plug PORT MAC HOST [PROPERTY]: plugs in an adapter on the hub of the others, with address 10.77.0.HOST
plug() {
    local netdev
    host_qmp "{\"execute\":\"netdev_add\",\"arguments\":{\"type\":\"hubport\",\"id\":\"net-$1\",\"hubid\":0}}" &&
        host_qmp "{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"qrnic\",\"id\":\"nic-$1\",\"bus\":\"$1\",\"netdev\":\"net-$1\",\"mac\":\"$2\"${4:+,$4}}}" &&
        wait_until 30 netdev_of "$2" || return 1
    netdev=$(netdev_of "$2")
    nic_up "$netdev" "10.77.0.$3/24" "fd77::$3/64" 1500
    wait_until 20 nic_has_gid "$netdev"
}

# plugged PORT MAC HOST BYTES [PROPERTY]: the adapter starts with all of its device memory, and communicates
plugged() {
    local rdma gid
    plug "$1" "$2" "$3" "${5:-}" >plug.log 2>&1
    result $? "an adapter is plugged into the empty port '$1'"
    rdma=$(rdma_of "$(netdev_of "$2")")
    gid=$(gid_index "$rdma" 4)
    try "it has $4 bytes of device memory" "$(declare -f memory_is); memory_is $rdma $4"
    alone "it works" 18515 "ibv_rc_pingpong -d $rdma -g $gid -n 200 -c -e" \
        "ibv_rc_pingpong -d $rdma -g $gid -n 200 -c -e localhost"
}

for device in "$RDMA0" "$RDMA1"; do
    try "$device has its device memory" "$(declare -f memory_is); memory_is $device $((256 << 20))"
done
plugged spare 52:54:00:77:01:aa 90 $((1 << 20))
plugged large 52:54:00:77:01:bb 91 $((256 << 20)) "\"device-memory-size\":$((256 << 20))"

for round in 1 2; do
    load
    result $? "RDMA traffic is running ($round)"
    host_qmp '{"execute":"device_del","arguments":{"id":"nic1"}}' >/dev/null
    wait_until 30 gone
    result $? "the adapter is unplugged under load ($round)"
    end_load
    alone "the other adapter continues to work ($round)" 18515 \
        "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200 localhost"
    # Fails while a part of the first adapter still uses the backend.
    host_qmp "{\"execute\":\"device_add\",\"arguments\":{\"driver\":\"qrnic\",\"id\":\"nic1\",\"bus\":\"port1\",\"netdev\":\"net1\",\"mac\":\"$mac\"$functions}}" >add.log &&
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
