# shellcheck shell=bash disable=SC2154  # job.sh sets here
# Open MPI. Part of the benchmark's job.
# SPDX-License-Identifier: GPL-2.0-or-later

# mpirun runs on guest 1 and starts its daemon on guest 2 by ssh, as it does anywhere.
ssh_up() {
    [ ! -e /run/sshd ] || return 0
    mkdir -p /run/sshd ~/.ssh && ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id_ed25519 && ssh-keygen -A >/dev/null
    barrier key "$(cut -d' ' -f2 ~/.ssh/id_ed25519.pub)"
    # shellcheck disable=SC2086  # one key a guest
    printf 'ssh-ed25519 %s\n' $BARRIER_VALUES >~/.ssh/authorized_keys
    printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n' >~/.ssh/config
    chmod -R go= ~/.ssh && /usr/sbin/sshd && wait_for_port 22
    barrier ssh
}

# mpi MTU WHICH METRIC: measures Open MPI. Soft-RoCE is measured by TCP, which Open MPI selects itself there. The reason
# is that UCX gets no answer by Soft-RoCE's UD, and that neither UCX nor libfabric connects without UD.
mpi() {
    local which=$2 options=(--mca pml ucx -x UCX_TLS="rc,ud,self")
    ssh_up
    turn=$((turn + 1))
    if [ "$which" = qrnic ]; then
        options+=(-x "UCX_NET_DEVICES=$RDMA0:1" -x "UCX_IB_GID_INDEX=$(gid_index "$RDMA0" 4)")
    else
        options=(--mca pml ob1 --mca btl "tcp,self" --mca btl_tcp_if_include "$NIC1")
        which=virtio-net
    fi
    if [ "$GUEST" = 1 ]; then
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 60 mpirun "${options[@]}" -np 2 \
            --host guest1,guest2 python3 "$here/mpi_pingpong.py" >mpi.log 2>&1 || echo "NOTE mpirun: $(grep -m1 -iE 'error|fail|not' mpi.log)"
        bench "$1" "$which" "$3-8" "$(awk '$1 == 8 { print $3 }' mpi.log)"
        bench "$1" "$which" "$3-1m" "$(awk '$1 == 1048576 && $3 > 0 { print 1e6 / $3 }' mpi.log)"
    fi
    barrier "mpi-$turn"
    # Processes of a failed run are killed, because they would use the processor during the next run.
    pkill -KILL -f mpi_pingpong
    pkill -KILL orted
    barrier "no-mpi-$turn"
}
