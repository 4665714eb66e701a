# Runs ibv_rc_pingpong between two guests with every path MTU, IPv4 and IPv6 GIDs, and sizes from 1 byte to 1 MiB,
# polled and with events. The option -c makes it compare the received bytes.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --mtu 9000 --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)

pingpong() {
    local name=$1
    shift
    pair "ibv_rc_pingpong $name" 18515 "ibv_rc_pingpong -d $RDMA0 -c $*" "ibv_rc_pingpong -d $RDMA0 -c $* guest1"
}

for mtu in 256 512 1024 2048 4096; do
    for size in 1 64 4097 65536; do
        pingpong "IPv4, MTU $mtu, $size bytes" -g "$gid4" -m $mtu -s $size -n 20
    done
    pingpong "IPv4, MTU $mtu, 1 MiB" -g "$gid4" -m $mtu -s 1048576 -n 4
    pingpong "IPv6, MTU $mtu, 65537 bytes" -g "$gid6" -m $mtu -s 65537 -n 20
done
for size in 1 2 3 4 5 17 255 256 257 1023 4096; do
    pingpong "IPv6, $size bytes" -g "$gid6" -s $size -n 20
    pingpong "events, IPv4, $size bytes" -e -g "$gid4" -s $size -n 20
done
pingpong "events, IPv6, 1 MiB" -e -g "$gid6" -s 1048576 -n 4
pingpong "events, IPv6, 1000 messages" -e -g "$gid6" -n 1000
pingpong "1000 messages" -g "$gid4" -n 1000
pingpong "deep receive queue" -g "$gid4" -r 4000 -n 2000 -s 64
pingpong "with timestamps" -t -g "$gid4" -n 100
pingpong "new post send" -N -g "$gid4" -n 100
pair "hello_verbs over IPv4" 18600 "hello_verbs -d $RDMA0 -g $gid4" "hello_verbs -d $RDMA0 -g $gid4 guest1"
pair "hello_verbs over IPv6" 18600 "hello_verbs -d $RDMA0 -g $gid6" "hello_verbs -d $RDMA0 -g $gid6 guest1v6"
pair "gather_scatter, 16 pieces" 18601 "gather_scatter -d $RDMA0 -g $gid4" "gather_scatter -d $RDMA0 -g $gid4 guest1"
pair "gather_scatter, 30 pieces, IPv6" 18601 "gather_scatter -d $RDMA0 -g $gid6 -p 30 -n 5" \
    "gather_scatter -d $RDMA0 -g $gid6 -p 30 -n 5 guest1v6"
pair "fifo_exchange over IPv4" 18602 "fifo_exchange -d $RDMA0 -g $gid4" "fifo_exchange -d $RDMA0 -g $gid4 guest1"
pair "fifo_exchange over IPv6" 18602 "fifo_exchange -d $RDMA0 -g $gid6 -n 30" "fifo_exchange -d $RDMA0 -g $gid6 -n 30 guest1v6"
kernel_clean "the kernel logs are clean"
finish
