# Runs middleware as Debian packages it, between two guests, with default settings. UCX, libfabric and Open MPI must
# find the adapter, use it, and transfer data.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --cpus 2 --memory 1536 --timeout 900
# full
# files: mpi_check.py
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

frames() { cat "/sys/class/infiniband/$RDMA0/ports/1/hw_counters/roce_rx_packets"; }

# by_rdma NAME PORT SERVER CLIENT: runs a pair, and checks that its data arrived in RoCE frames
by_rdma() {
    local before status=0
    before=$(frames)
    pair "$@"
    [ "$(($(frames) - before))" -gt 20 ] || status=96
    together $status "$1: by RDMA"
}

try "UCX finds the adapter with RC and UD" \
    "ucx_info -d >ucx; for kind in rc ud; do grep -A3 \"Transport: \${kind}_verbs\" ucx | grep -q $RDMA0:1 || exit 1; done"
# -P 0: two processes that connect by TCP, without MPI.
for test in tag_lat tag_bw stream_lat stream_bw ucp_am_bw ucp_put_lat ucp_put_bw ucp_get ucp_add ucp_cswap; do
    case $test in
        ucp_add | ucp_cswap) size=8 ;;
        *) size=1024 ;;
    esac
    run="ucx_perftest -P 0 -t $test -n 200 -w 20 -s $size"
    by_rdma "ucx_perftest $test" 13337 "$run" "$run guest1"
done
run="ucx_perftest -P 0 -t tag_bw -n 10 -w 2 -s 1048576"
by_rdma "ucx_perftest tag_bw, 1 MiB" 13337 "$run" "$run guest1"
# rc is RC with connections through UD; ud is UD only.
for transport in rc ud; do
    run="UCX_TLS=$transport ucx_perftest -P 0 -t tag_bw -n 100 -w 10 -s 8192"
    by_rdma "ucx_perftest over $transport" 13337 "$run" "$run guest1"
done

try "libfabric finds the adapter with messages and with ofi_rxm" \
    "fi_info -p verbs | grep -q FI_EP_MSG && fi_info -p 'verbs;ofi_rxm' | grep -q FI_EP_RDM"
for kind in "verbs -e msg" "verbs;ofi_rxm -e rdm"; do
    run="fi_pingpong -p '${kind% -e *}' -e ${kind##* } -c -I 10"
    by_rdma "fi_pingpong over $kind" 47592 "$run" "$run guest1"
done

# mpirun runs on guest 1 and starts its daemon on guest 2 by ssh, as usual.
ssh_up() {
    mkdir -p /run/sshd ~/.ssh && ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id_ed25519 && ssh-keygen -A || return 1
    barrier key "$(cut -d' ' -f2 ~/.ssh/id_ed25519.pub)"
    # shellcheck disable=SC2086  # one key a guest
    printf 'ssh-ed25519 %s\n' $BARRIER_VALUES >~/.ssh/authorized_keys
    printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' >~/.ssh/config
    chmod -R go= ~/.ssh && /usr/sbin/sshd && wait_for_port 22
}
status=0
ssh_up >ssh.log 2>&1 || { status=$?; show ssh.log; }
together $status "ssh between the guests"

# mpi NAME FRAMES OPTIONS
mpi() {
    local before status=0
    before=$(frames)
    barrier "mpi-$tests"
    if [ "$GUEST" = 1 ]; then
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout $((120 * TIME_FACTOR)) bash -c \
            "mpirun $3 -np 2 --host guest1,guest2 python3 /etc/qrnic/mpi_check.py" >mpi.log 2>&1 </dev/null || status=$?
        [ $status = 0 ] || show mpi.log 40
    fi
    barrier "mpi-done-$tests"
    [ "$(($(frames) - before))" -ge "$2" ] || status=96
    together $status "Open MPI, $1"
}
# By default Open MPI uses UCX for adapters whose names begin with mlx, and TCP for all others.
mpi "as it is" 0 ""
mpi "over UCX: by RDMA" 500 "--mca pml ucx"
mpi "over libfabric: by RDMA" 500 "--mca pml cm --mca mtl ofi"
kernel_clean "the kernel logs are clean"
finish
