# Unloads and loads modules while programs use the adapter.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest errors: doorbell-queue
# guest: --guests 2 --nic qrnic --timeout 600
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

pingpong() {
    local gid
    gid=$(gid_index "$RDMA0" 4)
    pair "$1" 18515 "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200 guest1"
}

# The transport timeout of a second (18) outlasts a host that stops a guest for some seconds.
load() {
    local gid
    gid=$(gid_index "$RDMA0" 4)
    if [ "$GUEST" = 1 ]; then
        ib_write_bw -d "$RDMA0" -x "$gid" -F -D 20 -u 18 >load.log 2>&1 &
        iperf3 -s -1 >iperf.log 2>&1 &
        wait_for_port 18515 && wait_for_port 5201
        barrier "load-$1"
    else
        barrier "load-$1"
        ib_write_bw -d "$RDMA0" -x "$gid" -F -D 20 -u 18 guest1 >load.log 2>&1 &
        iperf3 -c guest1 -t 20 >iperf.log 2>&1 &
    fi
    sleep 3
    barrier "loaded-$1"
    jobs -r >running.log
    [ "$(wc -l <running.log)" = 2 ]
    together $? "RDMA and TCP traffic is running ($1)"
}

# shellcheck disable=SC2317  # called through wait_until
all_ended() { jobs -rp >running.log; [ ! -s running.log ]; }

# A process whose device was removed ends by itself, or is ended here. SIGKILL ends iperf3, because each of its threads
# leaves the handler of SIGTERM by a jump, and may then wait for ever. A process that does not end then is blocked in
# the kernel, and its kernel stack is shown.
end_load() {
    local process status=0
    pkill -KILL iperf3
    for process in $(jobs -p); do
        kill "$process" 2>/dev/null
    done
    if ! wait_until 60 all_ended; then
        status=1
        while read -r process; do
            show_process "$process"
            kill -KILL "$process"
        done <running.log
    fi
    [ $status != 0 ] || wait
    together $status "the programs can be ended ($1)"
}

write() { echo "$1" >"$2"; }

# The device is the same afterwards, but all of its software was loaded again.
again() {
    bounded 60 modprobe qrnic
    bounded 60 modprobe qrnic_ib
    nic_setup
    nic_export
    [ -n "$RDMA0" ]
}

pingpong "before"
for round in 1 2; do
    load $round
    status=0
    [ "$GUEST" = 1 ] || bounded 30 modprobe -r qrnic_ib || status=$?
    together $status "qrnic_ib is unloaded under load ($round)"
    status=0
    [ "$GUEST" = 1 ] || bounded 30 modprobe -r qrnic || status=$?
    together $status "qrnic is unloaded under load ($round)"
    end_load $round
    status=0
    [ "$GUEST" = 1 ] || again || status=$?
    together $status "both are back ($round)"
    pingpong "RDMA works after reload ($round)"
done
load unbind
status=0
[ "$GUEST" = 1 ] || {
    address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
    bounded 60 write "$address" /sys/bus/pci/drivers/qrnic/unbind && sleep 1 &&
        bounded 60 write "$address" /sys/bus/pci/drivers/qrnic/bind && nic_setup && nic_export && [ -n "$RDMA0" ]
} || status=$?
together $status "unbind and bind under load"
end_load unbind
pingpong "RDMA works after unbind and bind"
load remove
status=0
[ "$GUEST" = 1 ] || {
    address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
    bounded 60 write 1 "/sys/bus/pci/devices/$address/remove" && sleep 1 && bounded 60 write 1 /sys/bus/pci/rescan &&
        nic_setup && nic_export && [ -n "$RDMA0" ]
} || status=$?
together $status "removal from the bus and rescan"
end_load remove
pingpong "RDMA works after rescan"
kernel_clean "the kernel logs are clean"
finish
