# Connects three guests by cables to qrnic-switch: RDMA between all of them at once, multicast datagrams, and the
# counters of the switch.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 3 --nic qrnic:link=cable --timeout 900
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

gid=$(gid_index "$RDMA0" 4)

# port GUEST NAME: prints a counter of the switch
port() { host_switch | sed -n "$1p" | grep -o " $2=[^ ]*" | cut -d= -f2; }

# flows NAME PROGRAM SERVER-CLIENT...: runs all pairs at the same time
# shellcheck disable=SC2086  # a program and its arguments
flows() {
    local name=$1 program="$2 -d $RDMA0 -x $gid -F" status=0 flow number=$tests port processes=()
    shift 2
    for flow; do
        port=$((18600 + ${flow/-/}))
        if [ "$GUEST" = "${flow%-*}" ]; then
            QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT timeout "$TRY_TIMEOUT" $program -p $port >"flow$flow.log" 2>&1 &
            processes+=($!)
            wait_for_port $port
        fi
    done
    barrier "up-$number"
    for flow; do
        port=$((18600 + ${flow/-/}))
        if [ "$GUEST" = "${flow#*-}" ]; then
            QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT timeout "$TRY_TIMEOUT" $program -p $port "guest${flow%-*}" >"flow$flow.log" 2>&1 &
            processes+=($!)
        fi
    done
    for process in "${processes[@]}"; do
        wait "$process" || status=$?
    done
    if [ $status != 0 ]; then
        for flow in flow*.log; do show "$flow"; done
    fi
    rm -f flow*.log
    together $status "$name"
}

# From here on each guest knows the MAC addresses of all guests.
for guest in 1 2 3; do
    [ $guest = "$GUEST" ] || ping -c 2 -i 0.2 -W 5 "guest$guest" >ping.log 2>&1 || break
done
together $? "each reaches the others"

if [ "$GUEST" = 1 ]; then before=$(port 3 out); fi
flows "ib_write_bw, two guests" "ib_write_bw -n 1000" 1-2
flows "ib_send_bw, two guests" "ib_send_bw -n 1000" 2-1
if [ "$GUEST" = 1 ]; then
    try "the third adapter has received no frame of it" "[ $(port 3 out) -lt $((before + 200)) ]"
    try "and the second all of it" "[ $(port 2 out) -gt 40000 ]"
else
    tests=$((tests + 2))
fi
flows "ib_write_bw, in a ring of all" "ib_write_bw -n 500" 1-2 2-3 3-1
flows "ib_send_bw, two to one" "ib_send_bw -n 500" 1-2 1-3
flows "ib_read_bw, one from two" "ib_read_bw -n 200" 2-1 3-1
flows "ib_write_bw, all with all" "ib_write_bw -n 200" 1-2 2-1 1-3 3-1 2-3 3-2
flows "ib_send_lat" "ib_send_lat -n 500" 3-2

# Guest 3 receives the datagrams of the group, too.
joined() { grep -q 030201EF /proc/net/igmp; }
status=0
if [ "$GUEST" = 1 ]; then
    barrier mckey
    timeout "$TRY_TIMEOUT" mckey -m 239.1.2.3 -b 10.77.0.1 -s -C 20 >mckey.log 2>&1 || status=$?
else
    timeout "$TRY_TIMEOUT" mckey -m 239.1.2.3 -b "10.77.0.$GUEST" -C 20 >mckey.log 2>&1 &
    wait_until 20 joined || status=98
    barrier mckey
    wait $! || status=$?
fi
[ $status = 0 ] || show mckey.log
together $status "mckey: one sends, two receive"

status=0
case $GUEST in
    1)
        timeout "$TRY_TIMEOUT" udaddy -b 10.77.0.1 -c 5 -C 10 >udaddy.log 2>&1 &
        wait_until 20 listening || status=98
        barrier udaddy
        wait $! || status=$? ;;
    2)
        barrier udaddy ;;
    3)
        barrier udaddy
        timeout "$TRY_TIMEOUT" udaddy -s 10.77.0.1 -b 10.77.0.3 -c 5 -C 10 >udaddy.log 2>&1 || status=$? ;;
esac
[ $status = 0 ] || show udaddy.log
together $status "udaddy between the first and the third"

if [ "$GUEST" = 1 ]; then
    host_switch | sed 's/^/# /'
    for guest in 1 2 3; do
        try "port $guest of the switch: link, one address, no error" \
            "[ '$(host_switch | sed -n "${guest}p" | grep -oE ' (link|long|contested|links|addresses)=[^ ]*' | tr -d '\n')' = \
               ' link=up long=0 contested=0 links=1 addresses=1' ]"
    done
    try "few frames were sent to all ports" "[ $(($(port 1 flooded) + $(port 2 flooded) + $(port 3 flooded))) -lt 1000 ]"
else
    tests=$((tests + 4))
fi
kernel_clean "the kernel logs are clean"
finish
