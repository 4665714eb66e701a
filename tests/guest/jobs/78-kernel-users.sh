# Runs users of RDMA in the kernel between two guests: NVMe over Fabrics, with separate and with shared receive
# queues, and RDS. All transferred data is compared.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --memory 2048 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

subsystems=/sys/kernel/config/nvmet/subsystems
port=/sys/kernel/config/nvmet/ports/1

# Exports a disk in memory on the address of this guest.
target_up() {
    modprobe nvmet-rdma use_srq="$1" || return 1
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return 2
    mkdir "$subsystems/disk" "$subsystems/disk/namespaces/1" "$port" || return 3
    echo 1 >"$subsystems/disk/attr_allow_any_host"
    echo -n /dev/nullb0 >"$subsystems/disk/namespaces/1/device_path"
    echo 1 >"$subsystems/disk/namespaces/1/enable" || return 4
    echo rdma >$port/addr_trtype
    echo ipv4 >$port/addr_adrfam
    echo 10.77.0.1 >$port/addr_traddr
    echo 4420 >$port/addr_trsvcid
    ln -s "$subsystems/disk" $port/subsystems/disk || return 5
}

target_down() {
    rm $port/subsystems/disk && rmdir $port "$subsystems/disk/namespaces/1" "$subsystems/disk" &&
        modprobe -r nvmet-rdma
}

host_up() {
    local id=1b4e28ba-2fa1-11d2-883f-0016d3cca427
    modprobe nvme-rdma || return 1
    echo "transport=rdma,traddr=10.77.0.1,trsvcid=4420,nqn=disk,hostid=$id,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id" \
        >/dev/nvme-fabrics || return 2
    wait_until 10 test -b /dev/nvme0n1
}

host_down() { echo 1 >/sys/class/nvme/nvme0/delete_controller && modprobe -r nvme-rdma; }

# Large requests, then small ones from several processes at once, in separate areas.
write_and_read() {
    local writer writers=() status=0
    dd if=data of=/dev/nvme0n1 bs=1M oflag=direct 2>&1 || return 1
    dd if=/dev/nvme0n1 of=back bs=256k count=32 iflag=direct 2>&1 || return 2
    cmp data back || return 3
    for writer in 1 2 3 4 5 6; do
        dd if=data of=/dev/nvme0n1 bs=4k skip=$((writer * 100)) count=300 seek=$((writer * 4096)) oflag=direct 2>&1 &
        writers+=($!)
    done
    wait "${writers[@]}" || return 4
    for writer in 1 2 3 4 5 6; do
        dd if=/dev/nvme0n1 bs=4k skip=$((writer * 4096)) count=300 iflag=direct 2>/dev/null |
            cmp -n $((300 * 4096)) - data 0 $((writer * 100 * 4096)) || status=5
    done
    return $status
}

# fio checks each block that it reads back; then the file system is checked.
file_system() {
    modprobe ext4 || return 1
    mkfs.ext4 -qF /dev/nvme0n1 && mkdir -p disk && mount /dev/nvme0n1 disk || return 2
    fio --name=verified --directory=disk --size=4m --rw=randwrite --bsrange=4k-256k --verify=crc32c \
        --ioengine=libaio --iodepth=8 --direct=1 --verify_fatal=1 --end_fsync=1 || return 3
    umount disk && fsck.ext4 -fn /dev/nvme0n1
}

head -c 8M /dev/urandom >data
if [ "$GUEST" = 1 ]; then
    modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=4096
fi

for shared in N Y; do
    case $shared in
        N) name="NVMe over Fabrics" ;;
        Y) name="NVMe over Fabrics with a shared receive queue" ;;
    esac
    status=0
    if [ "$GUEST" = 1 ]; then
        target_up $shared >step.log 2>&1 || status=$?
        barrier "target-$shared"
        [ $status = 0 ] || show step.log
        together $status "$name: the target listens"
        barrier "host-$shared"
        [ "$(rdma resource show srq | grep -c srqn)" = "$([ $shared = N ] && echo 0 || echo 1)" ] ||
            { status=6; rdma resource show srq >step.log 2>&1; show step.log; }
        together $status "$name: the host connects"
        together 0 "$name: the written data is read"
        together 0 "$name: a file system, with fio"
        together 0 "$name: the host disconnects"
        status=0
        target_down >step.log 2>&1 || { status=$?; show step.log; }
        together $status "$name: the target stops"
    else
        barrier "target-$shared"
        together 0 "$name: the target listens"
        host_up >step.log 2>&1 || { status=$?; show step.log; }
        barrier "host-$shared"
        together $status "$name: the host connects"
        write_and_read >step.log 2>&1 || { status=$?; show step.log; }
        together $status "$name: the written data is read"
        file_system >step.log 2>&1 || { status=$?; show step.log; }
        together $status "$name: a file system, with fio"
        host_down >step.log 2>&1 || { status=$?; show step.log; }
        together $status "$name: the host disconnects"
        together 0 "$name: the target stops"
    fi
done

# Datagrams of RDS arrive complete, in order and once, also those larger than a fragment.
cat >rds.py <<'PYTHON'
import os
import random
import socket
import sys
import time

guest = int(sys.argv[1])
random.seed(5)
messages = [random.randbytes(random.choice((1, 100, 4000, 4097, 60000))) for _ in range(200)]
with socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0) as rds:
    rds.bind((f"10.77.0.{guest}", 4000))
    # The peer starts after this socket is bound, because datagrams to an unbound port are lost without an error. The
    # socket has no timeout, because Python then makes it non-blocking, and each congestion would be an error.
    open("bound", "w").close()
    if guest == 2:
        for message in messages:
            rds.sendto(message, ("10.77.0.1", 4000))
        assert rds.recv(100) == b"good"
    else:
        for number, message in enumerate(messages):
            got, sender = rds.recvfrom(100000)
            assert sender[0] == "10.77.0.2", sender
            assert got == message, f"message {number}: {len(got)} bytes for {len(message)}"
        rds.sendto(b"good", ("10.77.0.2", 4000))
        # A closed socket drops data that was not sent yet.
        while not os.path.exists("heard"):
            time.sleep(0.05)
PYTHON
status=0
modprobe rds_rdma >step.log 2>&1 || status=1
if [ "$GUEST" = 1 ]; then
    timeout $((60 * TIME_FACTOR)) python3 rds.py 1 >step.log 2>&1 &
    receiver=$!
    wait_until 30 test -e bound
    barrier rds
    barrier heard
    touch heard
    wait $receiver || status=$?
else
    barrier rds
    timeout $((60 * TIME_FACTOR)) python3 rds.py 2 >step.log 2>&1 || status=$?
    barrier heard
fi
[ $status = 0 ] || show step.log
together $status "RDS: 200 messages of 1 to 60,000 bytes"
modprobe -r rds_rdma >step.log 2>&1 || { status=$?; show step.log; }
together $status "RDS: its modules are unloaded"

kernel_clean "the kernel logs are clean"
finish
