# Runs the tools of librdmacm between two guests, by IPv4 and IPv6. Connections are made by the connection manager of
# the kernel, with MADs on queue pair 1.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

synchronizing() { grep -qh ":$(printf %04X 7471) [0-9A-F:]* 0A " /proc/net/tcp; }
joined() { grep -q "$1" /proc/net/igmp; }

# The file that rcopy copies
seq 100000 >numbers

for family in IPv4 IPv6; do
    case $family in
        IPv4) any=0.0.0.0 one=10.77.0.1 two=10.77.0.2 format=ip ;;
        IPv6) any=::0 one=fd77::1 two=fd77::2 format=ipv6 ;;
    esac
    tool "rping, $family" listening "rping -s -a $any -C 20 -V" "rping -c -a $one -C 20 -V"
    tool "rping with messages of 60,000 bytes, $family" listening \
        "rping -s -a $any -C 10 -V -S 60000" "rping -c -a $one -C 10 -V -S 60000"
    tool "rping with QPs whose state the program modifies, $family" listening \
        "rping -s -a $any -C 5 -V -q" "rping -c -a $one -C 5 -V -q"
    tool "ucmatose, 20 connections, $family" listening \
        "ucmatose -f $format -b $one -c 20 -C 10 -S 1000" "ucmatose -f $format -s $one -b $two -c 20 -C 10 -S 1000"
    tool "rdma_server and rdma_client, $family" listening "rdma_server -s $one" "rdma_client -s $one"
    # cmtime synchronizes its ends over TCP, by IPv4 only.
    [ $family = IPv6 ] || tool "cmtime, 50 connections" synchronizing "cmtime -b $one -c 50" "cmtime -s $one -c 50"
    tool "udaddy, $family" listening "udaddy -f $format -b $one -c 5 -C 10" "udaddy -f $format -s $one -b $two -c 5 -C 10"
    tool "rstream, data verified, $family" listening \
        "rstream -f $format -b $one -S all -I 10 -T v" "rstream -f $format -s $one -S all -I 10 -T v"
    tool "riostream, $family" listening \
        "riostream -f $format -b $one -S 4096 -C 50 -I 10 -T v" "riostream -f $format -s $one -S 4096 -C 50 -I 10 -T v"
done
# The server of this tool listens by IPv4 only.
tool "rcopy" listening rcopy "rcopy numbers guest1:$PWD/received" endless
copied=0
[ "$GUEST" = 2 ] || cmp numbers received || copied=1
together $copied "rcopy has copied the data"
tool "rdma_xserver and rdma_xclient, RC" listening "rdma_xserver" "rdma_xclient -s 10.77.0.1"
tool "rdma_xserver and rdma_xclient, XRC" listening "rdma_xserver -c x" "rdma_xclient -c x -s 10.77.0.1"
tool "mckey" "joined 030201EF" "mckey -m 239.1.2.3 -b 10.77.0.1 -C 10" "mckey -m 239.1.2.3 -b 10.77.0.2 -s -C 10"
tool "mckey -l, which blocks the loopback of multicast datagrams" "joined 030201EF" "mckey -l -m 239.1.2.3 -b 10.77.0.1 -C 10" "mckey -l -m 239.1.2.3 -b 10.77.0.2 -s -C 10"
# 524 is ENOTSUPP of the kernel, which the C library does not know.
fault_of linux 6.12 "mckey, IPv6" "rdma_cm joins no IPv6 groups with RoCEv2 (cma_iboe_join_multicast)" \
    "timeout 60 mckey -m ff0e::7777 -b fd77::$GUEST -C 1 2>&1 | grep -q 'failure joining: Unknown error 524'"
fault_of rdma-core 56.1 "udpong" "rsockets make an address handle without a GRH, which no RoCE adapter can have"
kernel_clean "the kernel logs are clean"
finish
