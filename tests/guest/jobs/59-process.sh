# Pauses, kills, ends and starts the device process of guest 2 under traffic. After a pause the traffic goes on. After the
# end of a process, the driver of guest 2 reports that the device is gone. Programs of both guests end with an error.
# When the process runs again, a new card in another port works.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=cable --device process --timeout 900 --qemu-arg=-device --qemu-arg=pcie-root-port,id=again1,chassis=91 --qemu-arg=-device --qemu-arg=pcie-root-port,id=again2,chassis=92
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

# on_2 COMMAND...: runs the command in guest 2 only.
on_2() { [ "$GUEST" != 2 ] || "$@"; }

pingpong() {
    pair "$1" 18515 "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200" "ibv_rc_pingpong -d $RDMA0 -c -g $gid -n 200 guest1"
}

counter() { cat "/sys/class/infiniband/$RDMA0/ports/1/hw_counters/$1"; }
# Guest 1 transmits the RDMA writes of ib_write_bw, and guest 2 receives them. The RDMA writes of rping have the other
# direction, because its server makes them. Both ends of rping transmit sends.
writes() { counter "$([ "$GUEST" = 1 ] && echo tx_write || echo rx_write)"; }
# shellcheck disable=SC2317  # called through wait_until
both_progress() { [ "$(writes)" -gt $((writes_before + 50)) ] && [ "$(counter tx_send)" -gt $((sends_before + 5)) ]; }
# traffic NAME: tests that ib_write_bw and rping both make progress now. One of them alone is not enough: perftest
# exchanges its QP numbers by TCP over the same card. If the device of the peer ends before that, the client has no
# requests in flight that could fail, and waits for TCP.
traffic() {
    local status=0
    writes_before=$(writes)
    sends_before=$(counter tx_send)
    wait_until $((60 * TIME_FACTOR)) both_progress || status=1
    together $status "$1"
}

# load NAME: guest 1 writes to guest 2 without end, so that it always has requests in flight, and rping has a connection of
# rdma_cm. A retry takes two seconds, so the writes outlast a pause, and fail after 17 seconds.
load() {
    export QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT
    local write="ib_write_bw -d $RDMA0 -x $gid -F -s 4096 --run_infinitely"
    if [ "$GUEST" = 2 ]; then
        $write >write.log 2>&1 &
        writer=$!
        rping -s -a 10.77.0.2 -C 100000000 >rping.log 2>&1 &
        user=$!
        wait_for_port 18515
        wait_until 20 eval 'rdma resource show cm_id | grep -q "state LISTEN.*comm rping"'
        barrier "load-$tests"
    else
        barrier "load-$tests"
        $write guest2 >write.log 2>&1 &
        writer=$!
        rping -c -a 10.77.0.2 -C 100000000 >rping.log 2>&1 &
        user=$!
    fi
    traffic "$1"
}

# shellcheck disable=SC2317  # called through wait_until
reported() { [ "$(dmesg | grep -c 'qrnic .*the device is gone')" = "$losses" ]; }

# ended NAME: tests that the peer reports an error, and that the driver of guest 2 reports the end of its device.
losses=0
ended() {
    local status=0
    losses=$((losses + 1))
    if [ "$GUEST" = 1 ]; then
        wait_until 90 process_ended $writer || status=1
        grep -q 'Failed status 12' write.log || status=2
        [ $status = 0 ] || show write.log
    fi
    together $status "the peer $1 reports that its retries are exceeded"
    status=0
    on_2 wait_until 90 reported || status=1
    together $status "the driver $1 reports that the device is gone"
}

# shellcheck disable=SC2317  # called through wait_until
card_gone() { [ ! -e "/sys/class/net/$NIC0" ]; }

# replugged PORT: replaces the card of guest 2. QEMU 11.1 cannot unplug a vfio-user-pci (docs/use/process.md). Therefore
# the guest itself removes the old card, and the new card is in another port.
replugged() {
    local status=0 address
    if [ "$GUEST" = 2 ]; then
        [ "$(host_device status)" = ended ] || status=1
        address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
        bounded 120 eval "echo 1 >/sys/bus/pci/devices/$address/remove" || status=2
        wait_until 60 card_gone || status=3
    fi
    together $status "the guest removes the card"
    status=0
    if [ "$GUEST" = 2 ]; then
        wait_until 90 process_ended $user || status=1
        [ $status != 0 ] || ! wait $user || status=2
        [ $status = 0 ] || show rping.log
    fi
    together $status "a program with a connection of rdma_cm ends with an error"
    status=0
    kill -KILL $writer $user 2>/dev/null
    wait $writer $user 2>/dev/null
    if [ "$GUEST" = 2 ]; then
        host_device start >/dev/null || status=4
        host_device plug 0 "$1" >/dev/null || status=5
        nic_setup && nic_export || status=7
        [ -n "$RDMA0" ] || status=8
    fi
    together $status "the process is started again, and a card is in the port $1"
    gid=$(gid_index "$RDMA0" 4)
    pingpong "ibv_rc_pingpong in the port $1"
}

gid=$(gid_index "$RDMA0" 4)
pingpong "ibv_rc_pingpong before"
status=0
# shellcheck disable=SC2016  # eval expands it
on_2 eval '[ "$(host_device status)" = running ] && ! host_device start && ! host_device frobnicate && ! host_device pause 7' \
    >/dev/null || status=1
together $status "the launcher knows the process and rejects wrong actions"

load "traffic runs"
status=0
on_2 host_device pause 0 1 >/dev/null || status=1
together $status "the process is paused for a second"
traffic "the traffic goes on after a pause"

status=0
on_2 host_device kill >/dev/null || status=1
together $status "the process is killed"
ended "of a killed process"
replugged again1

load "traffic runs again"
status=0
on_2 host_device end >/dev/null || status=1
together $status "the process is ended by SIGTERM"
ended "of an ended process"
replugged again2
kernel_clean "the kernel logs are clean"
finish
