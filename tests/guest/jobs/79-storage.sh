# Runs more users of RDMA in the kernel between two guests: NFS, iSCSI (iSER) and sockets (SMC-R). The program fio
# verifies its reads, and the file system on the disk is checked afterwards.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --memory 1536 --timeout 900
# full
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

config=/sys/kernel/config/target
target=iqn.2026-11.org.qrnic:disk
portal=10.77.0.1:3260

roce_frames() { cat /sys/class/infiniband/"$RDMA0"/ports/1/hw_counters/roce_{r,t}x_packets | awk '{ all += $1 } END { print all }'; }

# over_rdma NAME SERVER CLIENT STOP: guest 1 runs SERVER, then guest 2 runs CLIENT, then guest 1 runs STOP; each may
# be a function. The data arrived in RoCE frames.
over_rdma() {
    local name=$1 status=0 before
    before=$(roce_frames)
    if [ "$GUEST" = 1 ]; then
        $2 >step.log 2>&1 || status=$?
        barrier "up-$tests"
        barrier "done-$tests"
    else
        barrier "up-$tests"
        $3 >step.log 2>&1 || status=$?
        barrier "done-$tests"
    fi
    [ $(($(roce_frames) - before)) -gt 500 ] || status=97
    [ $status = 0 ] || show step.log
    together $status "$name"
    status=0
    [ "$GUEST" = 2 ] || $4 >step.log 2>&1 || { status=$?; show step.log; }
    together $status "$name: the server stops"
}

# verified DIRECTORY: makes random writes of all sizes, and verifies each block that is read
verified() {
    timeout $((60 * TIME_FACTOR)) fio --name=verified --directory="$1" --size=4m --rw=randwrite --bsrange=1k-256k --verify=crc32c \
        --ioengine=libaio --iodepth=8 --direct=1 --verify_fatal=1 --end_fsync=1
}

nfs_up() {
    modprobe nfsd && modprobe rpcrdma || return 1
    mkdir -p export && mount -t tmpfs none export && mount -t nfsd nfsd /proc/fs/nfsd || return 2
    exportfs -o rw,no_root_squash,insecure,fsid=0,no_subtree_check "*:$PWD/export" || return 3
    rpc.mountd -N 3 || return 4
    rpc.nfsd -N 3 --rdma=20049 4 || return 5
    # The server must not wait for clients of a former server.
    echo Y >/proc/fs/nfsd/v4_end_grace
}

nfs_use() {
    mkdir -p files && modprobe rpcrdma || return 1
    mount -t nfs -o rdma,port=20049,vers=4.2 10.77.0.1:/ files || return 2
    mount | grep 'on .*/files .*proto=rdma' || return 3
    verified files || return 4
    seq 200000 >numbers && cp numbers files/ && sync || return 5
    umount files && mount -t nfs -o rdma,port=20049,vers=4.2 10.77.0.1:/ files || return 6
    cmp numbers files/numbers || return 7
    umount files && modprobe -r rpcrdma
}

nfs_down() {
    seq 200000 | cmp - export/numbers || return 1
    rpc.nfsd 0 && exportfs -ua && pkill rpc.mountd || return 2
    umount export && umount /proc/fs/nfsd && modprobe -r rpcrdma
}

# Unquoted variables are safe here, because no name contains a space.
# shellcheck disable=SC2086
iser_up() {
    modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=512 || return 1
    modprobe -a target_core_iblock iscsi_target_mod ib_isert || return 2
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return 3
    mkdir -p $config/core/iblock_0/disk && echo udev_path=/dev/nullb0 >$config/core/iblock_0/disk/control || return 4
    echo 1 >$config/core/iblock_0/disk/enable || return 5
    mkdir -p $config/iscsi/$target/tpgt_1/np/$portal $config/iscsi/$target/tpgt_1/lun/lun_0 || return 6
    echo 1 >$config/iscsi/$target/tpgt_1/np/$portal/iser || return 7
    ln -s $config/core/iblock_0/disk $config/iscsi/$target/tpgt_1/lun/lun_0/disk || return 8
    cd $config/iscsi/$target/tpgt_1/attrib || return 9
    echo 0 >authentication && echo 1 >generate_node_acls && echo 1 >cache_dynamic_acls && echo 0 >demo_mode_write_protect
    cd - && echo 1 >$config/iscsi/$target/tpgt_1/enable
}

# shellcheck disable=SC2086
iser_use() {
    local node=(iscsiadm -m node -T "$target" -p "$portal")
    modprobe -a ib_iser sd_mod ext4 || return 1
    mkdir -p /etc/iscsi /run/lock/iscsi disk
    echo InitiatorName=iqn.2026-11.org.qrnic:guest2 >/etc/iscsi/initiatorname.iscsi
    iscsid || return 2
    "${node[@]}" -o new && "${node[@]}" -o update -n iface.transport_name -v iser || return 3
    "${node[@]}" --login || return 4
    iscsiadm -m session | grep '^iser:' || return 5
    wait_until 20 test -b /dev/sda || return 6
    mkfs.ext4 -q /dev/sda && mount /dev/sda disk || return 7
    verified disk || return 8
    umount disk && fsck.ext4 -fn /dev/sda || return 9
    "${node[@]}" --logout && pkill iscsid && modprobe -r ib_iser
}

# shellcheck disable=SC2086
iser_down() {
    echo 0 >$config/iscsi/$target/tpgt_1/enable
    rm $config/iscsi/$target/tpgt_1/lun/lun_0/disk || return 1
    rmdir $config/iscsi/$target/tpgt_1/{np/$portal,lun/lun_0} $config/iscsi/$target/tpgt_1 $config/iscsi/$target \
        $config/core/iblock_0/disk $config/core/iblock_0 $config/iscsi || return 2
    modprobe -r ib_isert
}

over_rdma "NFS over RDMA" nfs_up nfs_use nfs_down
over_rdma "iSCSI over RDMA, with a file system" iser_up iser_use iser_down

# These sockets agree on RDMA while TCP connects them. SMC-R version 1 uses RoCE v1, and requires one subnet and a
# physical network to which both ends give the same name (RFC 7609: PNETID). Version 2 uses RoCE v2, and both ends
# belong to one enterprise (EID). The script configures this by netlink, because Debian has no package of the tools.
cat >smc.py <<'PYTHON'
import hashlib
import random
import socket
import struct
import sys

GENERIC, CONTROL, GET_FAMILY, FAMILY_NAME = 16, 16, 3, 2
PNETID_ADD, PNETID_NAME, PNETID_ETHNAME, PNETID_IBNAME, PNETID_IBPORT = 2, 1, 2, 3, 4
ADD_UEID, UEID_NAME = 10, 1


def ask(link, family, command, attributes):
    """Sends one generic netlink command; returns the answer's attributes."""
    body = struct.pack("=BBxx", command, 1)
    for kind, value in attributes.items():
        data = value.encode() + bytes(1) if isinstance(value, str) else bytes([value])
        body += struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)
    link.send(struct.pack("=IHHII", len(body) + 16, family, 1 | 4, 1, 0) + body)  # request, acknowledge
    while True:
        answer = link.recv(65536)
        length, kind = struct.unpack("=IH", answer[:6])
        if kind == 2 and (error := struct.unpack("=i", answer[16:20])[0]):
            raise OSError(-error, f"netlink command {command} of family {family}")
        return answer[20:length]


def tell(name, command, attributes):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC) as link:
        answer = ask(link, CONTROL, GET_FAMILY, {FAMILY_NAME: name})
        while struct.unpack("=HH", answer[:4])[1] != 1:  # the family's number
            answer = answer[(struct.unpack("=H", answer[:2])[0] + 3) & ~3:]
        family = struct.unpack("=H", answer[4:6])[0]
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC) as link:
        ask(link, family, command, attributes)


side, version, netdev, device = sys.argv[1:]
if version == "1":
    tell("SMC_PNETID", PNETID_ADD, {PNETID_NAME: "QRNICNET", PNETID_ETHNAME: netdev,
                                    PNETID_IBNAME: device, PNETID_IBPORT: 1})
else:
    tell("SMC_GEN_NETLINK", ADD_UEID, {UEID_NAME: "QRNIC".ljust(32)})

SMC = 43  # AF_SMC; protocol 0 is over IPv4
data = random.Random(7).randbytes(3_000_000)
with socket.socket(SMC, socket.SOCK_STREAM, 0) as smc:
    # Python does not support addresses of this family. Therefore a socket object of AF_INET takes over the descriptor.
    inet = socket.socket(socket.AF_INET, fileno=smc.detach())
    inet.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if side == "server":
        inet.bind(("10.77.0.1", 4300))
        inet.listen()
        connection, _ = inet.accept()
        got = b""
        while len(got) < len(data):
            got += connection.recv(100_000)
        assert got == data, "other data"
        connection.sendall(hashlib.sha256(got).digest())
        connection.recv(1)
    else:
        inet.connect(("10.77.0.1", 4300))
        inet.sendall(data)
        digest = b""
        while len(digest) < 32:
            digest += inet.recv(32)
        assert digest == hashlib.sha256(data).digest(), "other digest"
PYTHON
v1_frames() { cat /sys/class/infiniband/"$RDMA0"/ports/1/hw_counters/roce_v1_{r,t}x_packets | awk '{ all += $1 } END { print all }'; }
smc_up() {
    modprobe smc || return 1
    timeout $((60 * TIME_FACTOR)) python3 smc.py server "$smc_version" "$NIC0" "$RDMA0" >smc.log 2>&1 &
    smc_server=$!
    wait_for_port 4300
}
smc_use() { modprobe smc && timeout $((60 * TIME_FACTOR)) python3 smc.py client "$smc_version" "$NIC0" "$RDMA0"; }
# The module stays loaded, because a link group outlives its last connection by ten minutes.
smc_down() { wait "$smc_server" || { cat smc.log; return 1; }; }
smc_version=1
before=$(v1_frames)
over_rdma "SMC-R version 1 within a subnet: three million bytes" smc_up smc_use smc_down
[ $(($(v1_frames) - before)) -gt 500 ]
together $? "SMC-R version 1 went over RoCE v1"
smc_version=2
before=$(v1_frames)
over_rdma "SMC-R version 2: three million bytes" smc_up smc_use smc_down
[ $(($(v1_frames) - before)) -lt 100 ]
together $? "SMC-R version 2 went over RoCE v2"

kernel_clean "the kernel logs are clean"
finish
