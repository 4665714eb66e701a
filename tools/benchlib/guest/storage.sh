# shellcheck shell=bash disable=SC2154  # job.sh sets device and address
# Measures the kernel's users of RDMA by fio: NVMe over Fabrics and NFS. Part of the benchmark's job.
# SPDX-License-Identifier: GPL-2.0-or-later

subsystems=/sys/kernel/config/nvmet/subsystems
port=/sys/kernel/config/nvmet/ports/1

# between SERVER-UP CLIENT SERVER-DOWN MTU WHICH METRIC: calls three functions one after the other, CLIENT in guest 2
# and the others in guest 1. A failure is printed, and the following functions then measure nothing.
between() {
    local status=0
    turn=$((turn + 1))
    [ "$GUEST" = 2 ] || "$1" "${@:4}" >storage.log 2>&1 || status=$?
    barrier "up-$turn" $status
    [ $status = 0 ] || echo "NOTE $1 failed ($status): $(tail -n 1 storage.log)"
    if [ "$GUEST" = 2 ]; then
        "$2" "${@:4}" 2>storage.log || echo "NOTE $2 failed ($?): $(tail -n 1 storage.log)"
    fi
    barrier "down-$turn"
    [ "$GUEST" = 2 ] || "$3" "${@:4}" >storage.log 2>&1 || echo "NOTE $3 failed ($?): $(tail -n 1 storage.log)"
    barrier "gone-$turn"
}

# random_read FILE SIZE DEPTH: prints the operations per second, measured for two seconds.
random_read() {
    timeout 60 fio --name=read --filename="$1" --size=64m --rw=randread --bs="$2" --iodepth="$3" --direct=1 --ioengine=libaio \
        --norandommap --time_based --ramp_time=500ms --runtime=2 --output-format=terse --terse-version=3 | awk -F';' '$3 == "read" { print $8 }'
}

# three_reads FILE MTU WHICH METRIC: measures the three points that NVMe and NFS have.
three_reads() {
    bench "$2" "$3" "$4-4k-1" "$(random_read "$1" 4k 1)"
    bench "$2" "$3" "$4-4k-16" "$(random_read "$1" 4k 16)"
    bench "$2" "$3" "$4-128k-8" "$(random_read "$1" 128k 8)"
}

nvme_up() {
    modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=4096 && modprobe nvmet-rdma || return 1
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return 2
    mkdir $subsystems/disk $subsystems/disk/namespaces/1 $port || return 3
    echo 1 >$subsystems/disk/attr_allow_any_host
    echo -n /dev/nullb0 >$subsystems/disk/namespaces/1/device_path
    echo 1 >$subsystems/disk/namespaces/1/enable || return 4
    echo rdma >$port/addr_trtype
    echo ipv4 >$port/addr_adrfam
    echo "10.77.${address[$2]}.1" >$port/addr_traddr
    echo 4420 >$port/addr_trsvcid
    ln -s $subsystems/disk $port/subsystems/disk || return 5
}

nvme_use() {
    local id=1b4e28ba-2fa1-11d2-883f-0016d3cca427 disk status=0
    modprobe nvme-rdma || return 1
    echo "transport=rdma,traddr=10.77.${address[$2]}.1,trsvcid=4420,nqn=disk,hostid=$id,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id" \
        >/dev/nvme-fabrics || return 2
    wait_until 10 compgen -G '/dev/nvme[0-9]*n1' || return 3
    disk=$(compgen -G '/dev/nvme[0-9]*n1')
    # The null device transfers nothing for blocks that were never written, but the data still crosses the wire.
    three_reads "$disk" "$@"
    echo 1 >"/sys/class/nvme/$(basename "${disk%n1}")/delete_controller" && modprobe -r nvme-rdma
}

nvme_down() {
    rm $port/subsystems/disk && rmdir $port $subsystems/disk/namespaces/1 $subsystems/disk && modprobe -r nvmet-rdma null_blk
}

nfs_up() {
    modprobe nfsd && modprobe rpcrdma || return 1
    mkdir -p export && mount -t tmpfs none export && mount -t nfsd nfsd /proc/fs/nfsd || return 2
    dd if=/dev/zero of=export/file bs=1M count=64 || return 3
    exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check "*:$PWD/export" || return 4
    rpc.mountd -N 3 || return 5
    rpc.nfsd -N 3 --rdma=20049 4 || return 6
    # The grace period is ended, because the server has no earlier clients.
    echo Y >/proc/fs/nfsd/v4_end_grace
}

nfs_use() {
    mkdir -p files && modprobe rpcrdma || return 1
    timeout 30 mount -t nfs -o "rdma,port=20049,vers=4.2" "10.77.${address[$2]}.1:/" files || return 2
    three_reads files/file "$@"
    umount files
}

nfs_down() {
    rpc.nfsd 0 && exportfs -ua && pkill rpc.mountd || return 1
    umount export && umount /proc/fs/nfsd
}
