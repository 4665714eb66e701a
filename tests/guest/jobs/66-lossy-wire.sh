# Measures programs and users of RDMA in the kernel between two guests on a wire that loses, reorders, repeats,
# corrupts and marks frames. Compares go-back-N, selective repeat, adaptive routing and both, with and without DCQCN.
# The peer of card 1 is Soft-RoCE, from which the adapter requests all options, too.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic:link=dgram --nic rxe/qrnic:link=dgram --wire loss=1,reorder=0.5,repeat=0.5,corrupt=0.3,mark=2,spare=mads,seed=5 --memory 1536 --timeout 900
# files: cm.sh
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh
# shellcheck source=tests/guest/cm.sh
. /etc/qrnic/cm.sh

gid=$(gid_index "$RDMA0" 4)
counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters
MESSAGES=100
declare -A goodput again

# mark_now, then count NAME: prints the increase since mark_now. A value of hw_counters may be 10 ms old.
mark_now() {
    sleep 0.05
    (cd "$counters" && grep . -- *) >before
}
count() { echo $(($(cat "$counters/$1") - $(sed -n "s/^$1://p" before))); }
# exchange NAME VALUE: exchanges a value; that of guest 1 is in $first, that of guest 2 in $second
exchange() {
    barrier "$1" "$2"
    first=${BARRIER_VALUES% *} second=${BARRIER_VALUES#* }
}
# each NAME CONDITION-OF-GUEST-1 CONDITION-OF-GUEST-2: checks a condition in each guest
each() {
    local status=0 condition=$2
    [ "$GUEST" = 1 ] || condition=$3
    eval "$condition" || { status=1; (cd "$counters" && grep -E 'retrans|timeouts|sack|held|placed|cnp|marked' -- *) >each.log; show each.log 20; }
    together $status "$1"
}
# shows OPTIONS: a queue pair has the options, and they are in force. Line breaks are replaced by spaces, because rdma
# breaks a line at a place that depends on the text before.
shows() { rdma resource show qp -dd | tr -s '[:space:]' ' ' | grep -q "drv_options 0x$1 drv_options_in_force 0x$1 "; }
export -f shows

# perf MODE PROGRAM: guest 2 measures. Both guests know the goodput and the number of retransmitted packets.
perf() {
    local command="$2 -d $RDMA0 -x $gid -F -u 14 -s 65536 -n $MESSAGES" sent
    mark_now
    pair "$2, $1" 18515 "$command" "$command guest1"
    exchange "goodput-$tests" "$(awk '$1 == 65536 { print $4 }' pair.log)"
    goodput["$1,$2"]=$second
    # The responder resends lost read responses, but the device has no counter of them. Therefore their number is that
    # of all sent packets minus the packets of the data.
    sent=$(count retransmissions)
    [ "$2-$GUEST" != ib_read_bw-1 ] || sent=$(($(count roce_tx_packets) - MESSAGES * 64))
    exchange "again-$tests" "$sent"
    again["$1,$2"]=$second
    [ "$2" != ib_read_bw ] || again["$1,$2"]=$first
    ratio "$2, $1" "${goodput["$1,$2"]}" "${goodput["go-back-N$dcqcn,$2"]}" "; ${again["$1,$2"]} packets retransmitted"
}
ratio() {
    awk -v name="$1" -v one="$2" -v other="$3" -v rest="$4" 'BEGIN {
        printf "# %s: %.1f MiB/s, %.2f times that of go-back-N%s\n", name, one, (other > 0 ? one / other : 0), rest }'
}

# Two programs that compare every byte: rping, and writes in the form of NCCL. Guest 2 sends the latter, and requests
# adaptive routing by an option of the program. ibv_rc_pingpong is not used, because one end may exit before its peer
# has received the last acknowledgement.
verified() {
    local adaptive=
    [ "$QRNIC_ADAPTIVE_ROUTING" = 0 ] || adaptive=--adaptive
    tool "rping, $1" listening "rping -s -a 10.77.0.1 -C 20 -V -S 60000" "rping -c -a 10.77.0.1 -C 20 -V -S 60000"
    mark_now
    # If the program has ended before "rdma resource" runs, this test fails.
    pair "fifo_exchange${adaptive:+ $adaptive}, $1, as rdma resource shows it" 18602 \
        "QRNIC_ADAPTIVE_ROUTING=0 fifo_exchange -d $RDMA0 -g $gid & [ $2 = 0 ] || wait_until 30 shows $2 && wait \$!" \
        "QRNIC_ADAPTIVE_ROUTING=0 fifo_exchange -d $RDMA0 -g $gid $adaptive guest1 & [ $2 = 0 ] || wait_until 30 shows $2 && wait \$!"
    if [ "$adaptive" ]; then
        each "packets were placed out of order, $1" "[ \$(count placed_packets) -gt 0 ] && grep -q 'adaptive routing: yes' pair.log" \
            "grep -q 'adaptive routing: yes' pair.log"
    else
        each "no packet was placed out of order, $1" "[ \$(count placed_packets) = 0 ]" "[ \$(count placed_packets) = 0 ]"
    fi
}

# dcqcn 0|1 NETDEV: disables or enables DCQCN. The minimum rate is below the goodput here, so marks reduce the rate.
dcqcn() {
    local name cc
    cc=/sys/kernel/debug/qrnic/$(pci_of "$2")/cc_params
    echo 20 >"$cc/rp_min_rate"
    for name in np_enable rp_enable ect_enable; do
        echo "$1" >"$cc/$name"
    done
}
pci_of() { basename "$(readlink -f "/sys/class/net/$1/device")"; }

for dcqcn in "" ", DCQCN"; do
    dcqcn "$([ -z "$dcqcn" ]; echo $?)" "$NIC0"
    cat "$counters"/{np_cnp_sent,rp_cnp_handled} >cnps.before
    barrier "dcqcn-$tests"
    for mode in "go-back-N 0 0" "selective repeat 1 0" "adaptive routing 0 1" "both 1 1"; do
        name=${mode% * *}
        read -r selective adaptive <<<"${mode#"$name "}"
        export QRNIC_SELECTIVE_REPEAT=$selective QRNIC_ADAPTIVE_ROUTING=$adaptive
        if [ "$name$dcqcn" = "both, DCQCN" ] && [ "$GUEST" = 1 ]; then
            roce_capture -d "$RDMA0" >wire.pcap 2>capture.log &
            capture=$!
        fi
        for program in ib_write_bw ib_send_bw ib_read_bw; do
            perf "$name$dcqcn" $program
        done
        [ -n "$dcqcn" ] || verified "$name" $((selective + 2 * adaptive))
    done
    for program in ib_write_bw ib_send_bw; do
        [ $((4 * again["selective repeat$dcqcn,$program"])) -lt "${again["go-back-N$dcqcn,$program"]}" ]
        result $? "$program: selective repeat retransmits less than a fourth of the packets of go-back-N$dcqcn"
    done
    if [ -z "$dcqcn" ]; then
        each "no CNPs are sent without DCQCN" "cat $counters/{np_cnp_sent,rp_cnp_handled} | cmp - cnps.before" \
            "cat $counters/{np_cnp_sent,rp_cnp_handled} | cmp - cnps.before"
    else
        each "CNPs are sent for marks, and handled" "[ \$(cat $counters/np_cnp_sent) -gt 0 ]" "[ \$(cat $counters/rp_cnp_handled) -gt 0 ]"
    fi
done

# frames FILTER: prints the number of matching frames in the capture
frames() { tcpdump -n -r wire.pcap "udp dst port 4791 and $*" 2>/dev/null | wc -l; }
status=0
if [ "$GUEST" = 1 ]; then
    kill "$capture"
    wait "$capture"
    marks=$(frames "src host 10.77.0.2 and ip[1] & 3 = 3") cnps=$(frames "src host 10.77.0.1 and udp[8] = 0x81")
    sacks=$(frames "src host 10.77.0.1 and udp[8] = 0x1f") alone=$(frames "udp[8] = 0x0a and udp[16] & 0x0a = 0x0a")
    echo "# captured: $marks marked packets, $cnps CNPs, $sacks SACKs, $alone packets of writes that may use any path"
    [ "$marks" -gt 0 ] && [ "$cnps" -gt 0 ] && [ "$sacks" -gt 0 ] && [ "$alone" -gt 0 ] || status=1
fi
together $status "tcpdump shows marks, CNPs, SACKs, and self-contained packets of writes"
dcqcn 0 "$NIC0"
unset QRNIC_SELECTIVE_REPEAT QRNIC_ADAPTIVE_ROUTING

# NVMe over Fabrics: guest 1 reads the data of writes by RDMA reads, and sends the data of reads by RDMA writes.
target_up() {
    local config=/sys/kernel/config/nvmet
    modprobe null_blk nr_devices=1 memory_backed=1 gb=1 bs=4096 && modprobe nvmet-rdma || return
    mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config || return
    mkdir $config/subsystems/disk $config/subsystems/disk/namespaces/1 $config/ports/1 || return
    echo 1 >$config/subsystems/disk/attr_allow_any_host
    echo -n /dev/nullb0 >$config/subsystems/disk/namespaces/1/device_path
    echo 1 >$config/subsystems/disk/namespaces/1/enable
    echo rdma >$config/ports/1/addr_trtype
    echo ipv4 >$config/ports/1/addr_adrfam
    echo 10.77.0.1 >$config/ports/1/addr_traddr
    echo 4420 >$config/ports/1/addr_trsvcid
    ln -s $config/subsystems/disk $config/ports/1/subsystems/disk
}
host_up() {
    local id=1b4e28ba-2fa1-11d2-883f-0016d3cca427
    modprobe nvme-rdma || return
    echo "transport=rdma,traddr=10.77.0.1,trsvcid=4420,nqn=disk,hostid=$id,hostnqn=nqn.2014-08.org.nvmexpress:uuid:$id" \
        >/dev/nvme-fabrics || return
    wait_until 20 test -b /dev/nvme0n1
}
uptime() { cut -d' ' -f1 /proc/uptime; }
# Each written byte is read from guest 1 and compared. The page cache is dropped, so that it has none of them.
write_and_read() {
    local start written
    start=$(uptime)
    dd if=data of=/dev/nvme0n1 bs=128k oflag=direct || return
    written=$(uptime)
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/nvme0n1 of=back bs=128k count=32 iflag=direct || return
    echo "$start $written $(uptime)" >times.log
    cmp data back
}
status=0
[ "$GUEST" = 2 ] || target_up >step.log 2>&1 || { status=1; show step.log; }
together $status "NVMe over Fabrics: the target listens"
dcqcn=
head -c 4M /dev/urandom >data
status=0
[ "$GUEST" = 1 ] || host_up >step.log 2>&1 || { status=2; show step.log; }
together $status "NVMe over Fabrics: the host connects"
both "NVMe over Fabrics: rdma resource shows the options in force" "shows 1"
mark_now
[ "$GUEST" = 1 ] || write_and_read >step.log 2>&1 || { status=1; show step.log; }
together $status "NVMe over Fabrics: the written data is read"
if [ "$GUEST" = 2 ] && [ $status = 0 ]; then
    read -r start written end <times.log
    awk -v start="$start" -v written="$written" -v end="$end" \
        'BEGIN { printf "# NVMe over Fabrics: %.2f MiB/s written, %.2f MiB/s read\n", 4 / (written - start), 4 / (end - written) }'
fi
each "NVMe over Fabrics: packets out of order are buffered" true "[ \$(count buffered_packets) -gt 0 ] && [ \$(count placed_packets) = 0 ]"
status=0
[ "$GUEST" = 1 ] || { echo 1 >/sys/class/nvme/nvme0/delete_controller; } >step.log 2>&1 || status=1
together $status "NVMe over Fabrics: the host disconnects"

# Soft-RoCE is in guest 1. Guest 2 requests all options, and must send only packets that the specification defines.
gid=$(gid_index "$RDMA1" 4)
if [ "$GUEST" = 2 ]; then
    dcqcn 1 "$NIC1"
    export QRNIC_SELECTIVE_REPEAT=1 QRNIC_ADAPTIVE_ROUTING=1
    roce_capture -d "$RDMA1" >wire.pcap 2>capture.log &
    capture=$!
fi
for program in ib_write_bw ib_send_bw "ib_read_bw -o 16"; do
    command="$program -d $RDMA1 -x $gid -F -u 16 -s 65536 -n 20"
    pair "$program, with Soft-RoCE" 18515 "$command" "$command guest1-1"
done
pair "fifo_exchange --adaptive, with Soft-RoCE" 18602 "fifo_exchange -d $RDMA1 -g $gid -n 3" \
    "fifo_exchange -d $RDMA1 -g $gid -n 3 --adaptive guest1-1"
tool "rping, with Soft-RoCE" listening "rping -s -a 10.77.1.1 -C 10 -V -S 20000" "rping -c -a 10.77.1.1 -C 10 -V -S 20000"
status=0
if [ "$GUEST" = 2 ]; then
    kill "$capture"
    wait "$capture"
    ours="src host 10.77.1.2"
    # Opcodes of RC except the reserved 0x15, of UD, and of CNP
    unknown=$(frames "$ours and (udp[8] > 0x17 or udp[8] = 0x15) and not (udp[8] = 0x64 or udp[8] = 0x65 or udp[8] = 0x81)")
    demanded=$(frames "$ours and udp[16] & 0x09 = 0x09") path=$(frames "$ours and udp[8] < 0x18 and udp[16] & 0x02 = 0x02")
    echo "# captured: $demanded sent frames request all options, $path may use any path, $unknown of unknown opcodes"
    if [ "$demanded" -le 1000 ] || [ "$path" != 0 ] || [ "$unknown" != 0 ]; then
        status=1
        show capture.log
    fi
fi
together $status "Soft-RoCE receives only opcodes of the specification"
kernel_clean "the kernel logs are clean"
finish
