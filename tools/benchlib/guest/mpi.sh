# shellcheck shell=bash disable=SC2154  # job.sh sets device
# Open MPI over UCX. Part of the benchmark's job.
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

# mpi MTU WHICH METRIC
mpi() {
    ssh_up
    turn=$((turn + 1))
    if [ "$GUEST" = 1 ]; then
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 100 mpirun --mca pml ucx --mca btl_tcp_if_include "$NIC0" \
            -x "UCX_NET_DEVICES=${device[$2]}:1" -x "UCX_IB_GID_INDEX=$(gid_index "${device[$2]}" 4)" -x UCX_TLS=rc,ud,self -np 2 --host guest1,guest2 python3 "$here/mpi_pingpong.py" >mpi.log 2>&1 ||
            echo "NOTE mpirun: $(grep -m1 -iE 'error|fail|not' mpi.log)"
        bench "$1" "$2" "$3-8" "$(awk '$1 == 8 { print $3 }' mpi.log)"
        bench "$1" "$2" "$3-1m" "$(awk '$1 == 1048576 && $3 > 0 { print 1e6 / $3 }' mpi.log)"
    fi
    barrier "mpi-$turn"
}
