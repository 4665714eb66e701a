# shellcheck shell=bash
# TAP for the guest jobs (the runner puts it before each job). Only guest 1 prints
# results; what happened on the other guests reaches it through barriers.
# SPDX-License-Identifier: GPL-2.0-or-later

tests=0
failed=0

# A guest starts in five to ten seconds. If it needed longer, the machine is slow, so all timeouts are multiplied by
# TIME_FACTOR, which the runner may have set to a higher value.
read -r since_boot _ </proc/uptime
[ "${TIME_FACTOR:-1}" -ge $((${since_boot%.*} / 8 + 1)) ] || TIME_FACTOR=$((${since_boot%.*} / 8 + 1))
export TIME_FACTOR=${TIME_FACTOR:-1}
TRY_TIMEOUT=$((120 * TIME_FACTOR))
# ACK_TIMEOUT is the least ACK timeout of the programs of pair and tool (QRNIC_ACK_TIMEOUT, qrnic(7)). Most programs set
# 14 (67 ms) and seven retries, and would fail if the host stopped one guest for half a second. With 19 they fail after
# 17 seconds. The runner sets 0 for jobs with --wire, because each packet that the wire loses would cost two seconds.
ACK_TIMEOUT=${ACK_TIMEOUT:-19}

# result STATUS NAME: prints the result of one test; STATUS 0 means success.
result() {
    tests=$((tests + 1))
    if [ "$1" = 0 ]; then
        [ "$GUEST" != 1 ] || echo "ok $tests - $2"
    else
        failed=$((failed + 1))
        [ "$GUEST" != 1 ] || echo "not ok $tests - $2 (status $1)"
    fi
}

skip() {
    tests=$((tests + 1))
    [ "$GUEST" != 1 ] || echo "ok $tests - $1 # SKIP $2"
}

# fault_of linux|rdma-core VERSION NAME REASON [COMMAND]: skips a test that fails because of another project's fault. The
# skip is valid for that version only, as far as VERSION has digits. With any other version the skip is valid if the
# shell command COMMAND succeeds, which shows the fault. Otherwise the test must run, and this function fails.
fault_of() {
    local version
    case $1 in
        linux) version=$(uname -r) ;;
        rdma-core) version=$(dpkg-query -W -f '${Version}' libibverbs1) ;;
    esac
    case $version in
        "$2"[.-]*) skip "$3" "$1 $2: $4" ;;
        *) [ -z "${5:-}" ] || ! bash -c "$5" || { skip "$3" "$1 $version: $4"; return; }
            result 1 "$3: $1 $2 had a fault ($4), here is $version: write the test" ;;
    esac
}

# nic_fail NIC: makes the device fail. Without bus mastering it cannot read the next command, which is a fatal error. The
# result of ethtool is ignored, because ethtool finds no device if another user of the driver has issued this command.
nic_fail() {
    local function
    function=$(readlink -e "/sys/class/net/$1/device") && setpci -s "${function##*/}" COMMAND=0002 &&
        { ethtool -S "$1" >/dev/null 2>&1 || true; }
}

# flr FUNCTION: resets a PCI function in a way that its driver does not know
flr() { setpci -s "$1" CAP_EXP+8.w=8000:8000; }

# kill_after WORD SECONDS PROGRAM...: starts the program, and kills it SECONDS after its output has the word. Fails if the
# program has ended before.
kill_after() {
    local word=$1 seconds=$2 process status=0
    shift 2
    "$@" >kill.log &
    process=$!
    wait_until 20 grep -q "$word" kill.log || status=1
    sleep "$seconds"
    kill -KILL "$process"
    wait "$process" 2>/dev/null
    [ $? = 137 ] || status=2
    return $status
}
export -f kill_after

# show FILE [LINES]: prints its end and its first lines. The first lines are those of stderr if stdout was kept until
# the program ended. The program awk ends an incomplete last line, which a program leaves if it dies.
show() {
    { head -n -"${2:-15}" "$1" | head -n 6; tail -n "${2:-15}" "$1"; } |
        awk -v guest="$GUEST" '{ print "# guest" guest ": " $0 }'
}

# show_process PROCESS: prints the process, and its stack in the kernel
show_process() {
    { echo "process $1: $(tr '\0' ' ' <"/proc/$1/cmdline")"; cat /proc/"$1"/task/*/stack; } >process.log 2>&1
    show process.log 40
}

# shellcheck disable=SC2317  # called through wait_until
process_ended() { ! kill -0 "$1"; }

# bounded SECONDS COMMAND...: runs the command with a timeout. A process that is blocked in the kernel then is shown,
# and left behind.
bounded() {
    local seconds=$1 process
    shift
    "$@" &
    process=$!
    if ! wait_until "$seconds" process_ended $process; then
        show_process $process
        kill -KILL $process
        return 124
    fi
    wait $process
}

# try NAME COMMAND...: a test that succeeds if the command succeeds; the output of the command explains a failure.
try() {
    local name=$1 status=0
    shift
    timeout "$TRY_TIMEOUT" bash -c "$*" >try.log 2>&1 || status=$?
    [ $status = 0 ] || show try.log
    result $status "$name"
}

# together STATUS NAME: a test of all guests that succeeds if STATUS is 0 on each.
together() {
    local status=0 value
    barrier "end-$((tests + 1))" "$1" || status=99
    for value in $BARRIER_VALUES; do
        [ "$value" = 0 ] || status=$value
    done
    result "$status" "$2"
}

# both NAME COMMAND...: a test of all guests, each of which runs the command.
both() {
    local status=0 name=$1
    shift
    timeout $((30 * TIME_FACTOR)) bash -c "$*" >both.log 2>&1 || status=$?
    [ $status = 0 ] || show both.log
    together $status "$name"
}

# beside NAME COMMAND NAME COMMAND: two tests that need one guest each. Guest 1 runs the first and guest 2 the second,
# at the same time.
beside() {
    local status=0
    timeout "$TRY_TIMEOUT" bash -c "${*:2 * GUEST:1}" >try.log 2>&1 || status=$?
    [ $status = 0 ] || show try.log 40
    barrier "beside-$tests" "$status" || BARRIER_VALUES="99 99"
    result "${BARRIER_VALUES% *}" "$1"
    result "${BARRIER_VALUES#* }" "$3"
}

# known_peers ADDRESS...: this guest and the peers at these addresses learn each other's MAC address. Without this,
# rdma_resolve_ip() of the RDMA core requests a MAC address and only then waits for the reply. A reply in between is
# noticed a second later. But the peer of a program repeats its first message for half a second only, and gives up. If
# there is no such address or no path to the peer, the next test fails.
known_peers() {
    local address
    for address; do
        ping -q -c 1 -W 1 "$address" >/dev/null 2>&1 || :
    done
}

server_up() { wait_for_port "$1" "${2:-20}" || ! kill -0 "$server" 2>/dev/null; }

# pair NAME PORT SERVER CLIENT: guest 1 runs SERVER, which listens on the TCP port,
# guest 2 runs CLIENT; both must succeed.
pair() {
    local status=0 server
    if [ "$GUEST" = 1 ]; then
        QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT timeout "$TRY_TIMEOUT" bash -c "$3" >pair.log 2>&1 &
        server=$!
        server_up "$2"
        barrier "up-$tests"
        wait $server || status=$?
    else
        known_peers guest1v6
        barrier "up-$tests"
        QRNIC_ACK_TIMEOUT=$ACK_TIMEOUT timeout "$TRY_TIMEOUT" bash -c "$4" >pair.log 2>&1 || status=$?
    fi
    [ $status = 0 ] || show pair.log
    together $status "$1"
}

# alone NAME PORT SERVER CLIENT: like pair, with both programs in this guest.
alone() {
    local status=0 server
    timeout "$TRY_TIMEOUT" bash -c "$3" >server.log 2>&1 &
    server=$!
    server_up "$2"
    timeout "$TRY_TIMEOUT" bash -c "$4" >client.log 2>&1 || status=$?
    if [ $status != 0 ]; then
        sleep 0.5
        kill $server 2>/dev/null
    fi
    wait $server || [ $status != 0 ] || status=$?
    [ $status = 0 ] || { show server.log; show client.log; }
    result $status "$1"
}

# rdma_core_suite VERSION TESTS AT-LEAST: runs the test suite of that version of rdma-core by suite.py, which prints
# TAP. AT-LEAST is the minimum number of tests. Output of the suite's programs goes to another file.
rdma_core_suite() {
    local before=$tests
    # Some tests need huge pages, which are available only before memory is fragmented. With fewer they would be
    # skipped, and the list of agreed skips does not contain them.
    echo 24 >/proc/sys/vm/nr_hugepages
    VERSIONS="rdma-core=$1 linux=$(uname -r)" \
        timeout $((800 * TIME_FACTOR)) python3 -W ignore /etc/qrnic/suite.py --first $((before + 1)) "$2" /etc/qrnic/agreed \
        --dev "$RDMA0" 2>suite.log
    if [ -e count ]; then
        # shellcheck source=/dev/null
        . ./count
    else
        show suite.log 40
        result 1 "the suite ran to its end"
    fi
    # One more result is the check of the list of agreed skips.
    try "all of its tests ran" "echo $((tests - before - 1)) of $3 && [ $((tests - before - 1)) -ge $3 ]"
    try "the adapter works as before" "ibv_devinfo -v && rdma resource show $RDMA0 && ! rdma resource show qp | grep 'type RC'"
}

# dma_errors 0|1: selects how many errors DMA-API debugging reports. By default it reports only the first error, which
# could be one of the expected ones below. All errors are reported except during the provider's test. The largest
# memory region of this test maps a few pages a thousand times each, and the console would need hours for these
# reports.
dma_errors() { [ ! -e /sys/kernel/debug/dma-api/all_errors ] || echo "$1" >/sys/kernel/debug/dma-api/all_errors; }
[ -z "${GUEST:-}" ] || dma_errors 1

# without_known: a filter for kernel logs that removes two known reports, from "cut here" to the end of the trace,
# unless another report is inside. The first is from DMA-API debugging: it tracks one mapping of each cache line, and
# warns of a second (add_dma_entry()), once of an eighth. This is no error, because a process may register memory as
# often as it likes, with verbs that ib_umem_get() serves. The second comes after a failed allocation (53-faults).
# Then register_irq_proc() ignores that it could not create a file of /proc/irq, and unregister_irq_proc() later warns
# of the missing file. Drivers are not involved.
without_known() {
    awk '
        /\[ cut here \]/ { printf "%s", held; held = $0 "\n"; inside = 1; overlap = absent = irq = other = after = 0; next }
        inside {
            held = held $0 "\n"
            if (/cacheline tracking EEXIST, overlapping mappings|exceeded [0-9]+ overlapping mappings/) overlap = 1
            else if (/WARNING: .* remove_proc_entry/) absent = 1
            else if (/\] +unregister_irq_proc\+/) irq = 1
            else if (/BUG:|KASAN|UBSAN|INFO:|possible |DMA-API|ODEBUG|refcount_t/) other = 1
            if (/---\[ end trace/) {
                if (other || !(overlap || absent && irq)) printf "%s", held
                after = overlap && !other
                held = ""
                inside = 0
            }
            next
        }
        after && (/DMA-API: Mapped at:/ || /\] +[A-Za-z0-9_.]+\+0x[0-9a-f]+\/0x/) { next }
        { after = 0; print }
        END { printf "%s", held }'
}

# kernel_clean NAME: the kernel has reported no error. (A debugging kernel lists its active checks at boot.)
kernel_clean() {
    local status=0
    dmesg | without_known | grep -vE 'RCU lockdep checking|DMA-API: (preallocated|debugging|dma_debug)' | grep -E -A12 'WARNING:|BUG:|Oops|Call Trace|refcount_t|DMA-API|KASAN|lockdep|possible.*deadlock|NETDEV WATCHDOG|command timed out' \
        >kernel.log && status=1
    [ $status = 0 ] || show kernel.log 40
    together $status "$1"
}

# finish: ends the job, and guest 1 prints the plan.
finish() {
    [ "$GUEST" != 1 ] || echo "1..$tests"
    [ $failed = 0 ]
    exit
}
