# Makes the driver lose its device in three ways while there are users. Users are connections of rdma_cm, a queue pair
# in a multicast group, NVMe over Fabrics and RDS. All users end, and afterwards new ones work.
# SPDX-License-Identifier: GPL-2.0-or-later
# The device rejects a key, because rping deregisters its memory while its last send is retransmitted to a lost peer.
# After a reset, a process continues to ring doorbells until the driver has unmapped its doorbell page.
#
# guest errors: dma-failed doorbell-page doorbell-queue key-refused
# guest: --guests 2 --nic qrnic --memory 2048 --timeout 900
# full
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

subsystems=/sys/kernel/config/nvmet/subsystems
port=/sys/kernel/config/nvmet/ports/1
address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
bridge=$(basename "$(dirname "$(readlink -f "/sys/bus/pci/devices/$address")")")

# The target is in guest 1, which loses its device, or in guest 2, whose peer loses its device.
target_up() {
    modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=4096 && modprobe nvmet-rdma use_srq="$1" || return 1
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return 2
    mkdir "$subsystems/disk" "$subsystems/disk/namespaces/1" "$port" || return 3
    echo 1 >"$subsystems/disk/attr_allow_any_host"
    echo -n /dev/nullb0 >"$subsystems/disk/namespaces/1/device_path"
    echo 1 >"$subsystems/disk/namespaces/1/enable" || return 4
    echo rdma >"$port/addr_trtype"
    echo ipv4 >"$port/addr_adrfam"
    echo "10.77.0.$GUEST" >"$port/addr_traddr"
    echo 4420 >"$port/addr_trsvcid"
    ln -s "$subsystems/disk" "$port/subsystems/disk" || return 5
}

target_down() {
    rm "$port/subsystems/disk" && rmdir "$port" "$subsystems/disk/namespaces/1" "$subsystems/disk" &&
        modprobe -r nvmet-rdma
}

# shellcheck disable=SC2317  # called through wait_until
disk() { ls /dev/nvme*n1; }

host_up() {
    local id=1b4e28ba-2fa1-11d2-883f-0016d3cca427
    modprobe nvme-rdma || return 1
    echo "transport=rdma,traddr=10.77.0.$PEER,trsvcid=4420,nqn=disk,hostid=$id,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id" \
        >/dev/nvme-fabrics || return 2
    wait_until 30 disk
}

# Fails no test if a controller does not exist, because the kernel deletes it together with its device.
host_down() {
    local controller
    for controller in /sys/class/nvme/nvme*; do
        [ ! -e "$controller" ] || echo 1 >"$controller/delete_controller" 2>/dev/null
    done
    modprobe -r nvme-rdma
}

export subsystems port
export -f target_down host_down

cat >rds.py <<'PYTHON'
import os
import socket
import sys
import time

guest, port = int(sys.argv[1]), int(sys.argv[2])
with socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0) as rds:
    rds.bind((f"10.77.0.{guest}", port))
    open(f"bound-{port}", "w").close()
    if guest == 2:
        for number in range(50):
            rds.sendto(b"%d" % number, ("10.77.0.1", port))
        assert rds.recv(100) == b"good"
    else:
        for number in range(50):
            got, _ = rds.recvfrom(100)
            assert got == b"%d" % number, got
        rds.sendto(b"good", ("10.77.0.2", port))
        # A closed socket drops data that was not sent yet.
        while not os.path.exists(f"heard-{port}"):
            time.sleep(0.05)
PYTHON

rds() {
    local status=0 receiver
    if [ "$GUEST" = 1 ]; then
        timeout $((60 * TIME_FACTOR)) python3 rds.py 1 "$1" >rds.log 2>&1 &
        receiver=$!
        wait_until 30 test -e "bound-$1"
        barrier "rds-$1"
        barrier "heard-$1"
        touch "heard-$1"
        wait $receiver || status=$?
    else
        barrier "rds-$1"
        timeout $((60 * TIME_FACTOR)) python3 rds.py 2 "$1" >rds.log 2>&1 || status=$?
        barrier "heard-$1"
    fi
    [ $status = 0 ] || show rds.log
    together $status "$2"
}

# shellcheck disable=SC2317  # called through wait_until
listening() { rdma resource show cm_id | grep 'state LISTEN' | grep -q 'comm rping'; }

# rping_again NAME PORT: like pair, but waits until rdma shows the server, because its port is no TCP port
rping_again() {
    local status=0 server
    if [ "$GUEST" = 1 ]; then
        timeout "$TRY_TIMEOUT" rping -s -a 10.77.0.1 -p "$2" -C 20 -V >pair.log 2>&1 &
        server=$!
        wait_until 20 listening || status=98
        barrier "rping-$2"
        wait $server || status=$?
    else
        barrier "rping-$2"
        timeout "$TRY_TIMEOUT" rping -c -a 10.77.0.1 -p "$2" -C 20 -V >pair.log 2>&1 || status=$?
    fi
    [ $status = 0 ] || show pair.log
    together $status "$1"
}

# shellcheck disable=SC2317
connected() { [ "$(rdma resource show cm_id | grep 'state CONNECT' | grep -c 'comm rping')" -ge 2 ]; }
# shellcheck disable=SC2317
joined() { grep -q 030201EF /proc/net/igmp; }
# shellcheck disable=SC2317
ended() { ! kill -0 "$1"; }
# shellcheck disable=SC2317
working() { [ "$(cat "/sys/class/net/$NIC0/carrier")" = 1 ] && nic_has_gid "$NIC0"; }

# Two connections, one from each side, exchange messages endlessly during the other tests.
programs=()
users_up() {
    local status=0
    programs=()
    nice -n 19 rping -s -a 0.0.0.0 -p $((7000 + round)) -C 100000000 >rping-server.log 2>&1 &
    programs+=($!)
    mckey -m 239.1.2.3 -b "10.77.0.$GUEST" -C 1000 >mckey.log 2>&1 &
    group=$!
    wait_until 20 listening || status=1
    barrier "listening-$round"
    nice -n 19 rping -c -a "10.77.0.$PEER" -p $((7000 + round)) -C 100000000 >rping-client.log 2>&1 &
    programs+=($!)
    wait_until 20 connected || status=2
    wait_until 20 joined || status=3
    [ $status = 0 ] || { show rping-server.log; show rping-client.log; show mckey.log; }
    together $status "$lost: connections and a group"
}

# In guest 1 rping ends itself when it receives the removal of its device. In guest 2 rping is killed, because it may
# wait for its peer for ever. The program mckey is killed, because it ignores events; no object may remain.
users_end() {
    local status=0 program
    for program in "${programs[@]}"; do
        [ "$GUEST" = 2 ] || wait_until 60 ended "$program" || status=1
        kill "$program" 2>/dev/null
        wait_until 30 ended "$program" || status=1
    done
    kill $group 2>/dev/null
    wait_until 30 ended $group || status=2
    [ $status = 0 ] || { show rping-server.log; show rping-client.log; }
    together $status "$lost: the programs end"
}

# lose HOW: makes the driver of guest 1 lose the device
lose() {
    case $1 in
        fatal) nic_fail "$NIC0" ;;
        unreachable)
            # The device does not respond until its config space has been restored.
            setpci -s "$address" COMMAND=0000
            ;;
        unplugged)
            # The bridge gets other bus numbers, so that accesses get no response, as from an unplugged device. The
            # command register is cleared before, because such a device also sends nothing.
            setpci -s "$address" COMMAND=0000
            bus=$(setpci -s "$bridge" PRIMARY_BUS.l) command=$(setpci -s "$bridge" COMMAND)
            setpci -s "$bridge" COMMAND=0000 && setpci -s "$bridge" PRIMARY_BUS.l=00fefe00
            timeout $((100 * TIME_FACTOR)) sh -c "echo 1 >/sys/bus/pci/devices/$address/remove"
            ;;
    esac
}

recover() {
    if [ "$1" = unplugged ]; then
        setpci -s "$bridge" PRIMARY_BUS.l="$bus" && setpci -s "$bridge" COMMAND="$command"
        echo 1 >/sys/bus/pci/rescan
        nic_setup
    else
        wait_until 60 sh -c "dmesg | tail -n +$seen | grep -q 'qrnic $address: recovered'" || return 1
    fi
    nic_export
    wait_until 20 working
}

modprobe rds_rdma
round=0
for lost in fatal unreachable unplugged; do
    round=$((round + 1))
    target=1 shared=N
    [ $lost != fatal ] || shared=Y
    [ $lost != unplugged ] || target=2

    users_up
    status=0
    [ "$GUEST" != $target ] || target_up $shared >step.log 2>&1 || { status=$?; show step.log; }
    barrier "target-$round"
    [ "$GUEST" = $target ] || host_up >step.log 2>&1 || { status=$?; show step.log; }
    together $status "$lost: NVMe over Fabrics is connected"
    rds $((4000 + 10 * round)) "$lost: RDS is connected"

    # The device is lost while requests are in flight.
    writer=
    [ "$GUEST" = $target ] || { dd if=/dev/zero of="$(disk)" bs=64k oflag=direct >dd.log 2>&1 & writer=$!; }
    sleep 1
    seen=$(dmesg | wc -l)
    barrier "writing-$round"
    status=0
    [ "$GUEST" = 2 ] || lose $lost || status=$?
    together $status "$lost: the device is lost"
    users_end
    status=0
    [ "$GUEST" = 2 ] || recover $lost || status=$?
    together $status "$lost: the device is back"

    status=0
    [ "$GUEST" = $target ] || timeout $((100 * TIME_FACTOR)) bash -c host_down >step.log 2>&1 || { status=$?; show step.log; }
    [ -z "$writer" ] || { wait_until 60 ended $writer || status=9; }
    barrier "host-$round"
    [ "$GUEST" != $target ] || timeout $((100 * TIME_FACTOR)) bash -c target_down >step.log 2>&1 || { status=$?; show step.log; }
    together $status "$lost: the users of NVMe over Fabrics end"

    rping_again "$lost: rping afterwards" $((7100 + round))
    gid=$(gid_index "$RDMA0" 4)
    pair "$lost: ibv_rc_pingpong afterwards" 18515 "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200 guest1"
    rds $((4001 + 10 * round)) "$lost: RDS afterwards"
done

status=0
timeout $((100 * TIME_FACTOR)) modprobe -r rds_rdma >step.log 2>&1 || { status=$?; show step.log; }
timeout $((100 * TIME_FACTOR)) modprobe -r qrnic_ib >step.log 2>&1 || { status=$?; show step.log; }
timeout $((100 * TIME_FACTOR)) modprobe -r qrnic >step.log 2>&1 || { status=$?; show step.log; }
together $status "the modules are unloaded"
kernel_clean "the kernel logs are clean"
finish
