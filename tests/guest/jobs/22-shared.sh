# Runs shared connections within a guest by both versions of IP, with and without selective repeat and direct WQEs.
# Also kills a process, and removes the device of a process, while its members are in use. The device has few queue
# pairs, so that a leaked queue pair makes a later test fail.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic,max-qp=128 --timeout 900
# Some commands fail on purpose. After a reset of its device a process continues to ring doorbells for some time.
#
# guest errors: command-failed dma-failed doorbell-page doorbell-queue
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid4=$(gid_index "$RDMA0" 4)
gid6=$(gid_index "$RDMA0" 6)
provider() { echo "set -o pipefail; $2 qrnic-shared-test $RDMA0 $1 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
unknowing() { echo "set -o pipefail; $3 qrnic-sharing-test $RDMA0 $1 $2 | tee test.log && ! grep -E '^not ok|SKIP' test.log"; }
counters=/sys/class/infiniband/$RDMA0/hw_counters

try "the provider's test, IPv4" "$(provider "$gid4")"
try "the provider's test, IPv6" "$(provider "$gid6")"
try "the provider's test, selective repeat" "$(provider "$gid4" QRNIC_SELECTIVE_REPEAT=1)"
try "the provider's test, direct WQEs" "$(provider "$gid4" QRNIC_DIRECT_WQE=1)"
try "the provider's test, received into the completion" "$(provider "$gid4" QRNIC_INLINE_RECV=1)"
sleep 0.1
try "carriers sent packets, and members failed with their carriers" \
    "[ \$(cat $counters/tx_inner) -gt 1000 ] && [ \$(cat $counters/members_failed) -ge 5 ]"

# The device has 128 queue pairs, so a leak in one test makes another test fail.
for round in 1 2; do
    try "shared connections of unmodified programs, round $round" "$(unknowing "$gid4" "$gid6")"
done
try "shared connections of unmodified programs, selective repeat" "$(unknowing "$gid6" "$gid4" QRNIC_SELECTIVE_REPEAT=1)"
# The guest has one processor, and the program keeps it until it sleeps. So the program sees its connections fail
# before the driver receives the event of their carrier.
try "shared connections of unmodified programs that keep the processor" "$(unknowing "$gid4" "$gid6" "chrt -f 50")"

# Prints the number of queue pairs of the test programs whose details contain this text. Without -dd carriers are not
# shown.
# shellcheck disable=SC2317  # called through try and wait_until
detailed() { rdma -j -dd resource show qp | grep qrnic-shar | grep -c "$1" || :; }
# shellcheck disable=SC2317
nothing_left() { [ "$(detailed .)" = 0 ]; }
# shellcheck disable=SC2317
loop() {
    QRNIC_SELECTIVE_REPEAT=1 "qrnic-$1-test" "$RDMA0" "$gid4" loop >loop.log &
    process=$!
    wait_until 60 grep -q '# loop' loop.log || { cat loop.log; return 1; }
}
# shellcheck disable=SC2317
killed() {
    local process
    for _ in 1 2 3; do
        loop shared || return
        # Each carrier has the number of its members, and each member the number of its carrier. Only carriers have
        # options.
        rdma -dd resource show qp
        [ "$(detailed '"drv_members":8')" = 2 ] || return
        [ "$(detailed '"drv_driver_type":"carrier"')" = 2 ] || return
        [ "$(detailed '"drv_carrier":')" = 16 ] || return
        [ "$(detailed '"drv_options_in_force":1')" = 2 ] || return
        kill -9 "$process"
        wait "$process"
        wait_until 20 nothing_left || { rdma resource show; return 1; }
    done
}
# The driver creates the two carriers, one for each end. The test counts the different carriers of all members, because
# rdma does not list the carriers of the driver.
# shellcheck disable=SC2317
killed_unknowing() {
    local process
    for _ in 1 2 3; do
        loop sharing || return
        rdma -dd resource show qp
        cat loop.log
        [ "$(detailed '"drv_carrier":')" = 8 ] || return
        [ "$(rdma -j -dd resource show qp | tr '{' '\n' | grep -o '"drv_carrier":[0-9]*' | sort -u | wc -l)" = 2 ] || return
        kill -9 "$process"
        wait "$process"
        wait_until 20 nothing_left || { rdma resource show; return 1; }
    done
}
# The RDMA cgroup is charged for the objects of a process: 8 ends of PD, CQ, MR and QP, a PD and an MR. The cgroup is
# also charged for the two carriers that the driver makes for the process.
# shellcheck disable=SC2317
charged() { grep -q "^$RDMA0 .*hca_object=$1 *\$" cgroup/sharing/rdma.current; }
# shellcheck disable=SC2317
uncharged() { ! grep -q "^$RDMA0 .*hca_object=[1-9]" cgroup/sharing/rdma.current; }
# shellcheck disable=SC2317
loop_in_cgroup() {
    bash -c "echo \$\$ >cgroup/sharing/cgroup.procs && exec qrnic-sharing-test $RDMA0 $gid4 loop" >loop.log &
    process=$!
    wait_until 60 grep -q '^#' loop.log
    cat loop.log cgroup/sharing/rdma.current
}
# shellcheck disable=SC2317
cgroup_counts() {
    local process
    mkdir -p cgroup && mount -t cgroup2 none cgroup && echo +rdma >cgroup/cgroup.subtree_control && mkdir cgroup/sharing || return
    loop_in_cgroup
    charged $((8 * 4 + 2 + 2)) || return
    kill -9 "$process"
    wait "$process"
    wait_until 20 uncharged || return
    # The limit has room for two ends and one carrier, so that the driver cannot create the carrier of the connecting
    # end.
    echo "$RDMA0 hca_object=$((2 * 4 + 2 + 1))" >cgroup/sharing/rdma.max
    loop_in_cgroup
    grep -q '^# connect_ends:.*to_rtr.*errno 11' loop.log && charged $((2 * 4 + 2 + 1)) || return
    kill -9 "$process"
    wait "$process"
    wait_until 20 uncharged && umount cgroup
}
export -f killed_unknowing cgroup_counts loop_in_cgroup charged uncharged
export -f detailed killed nothing_left loop
export gid4
try "a process is killed while it runs, and all is freed" killed
try "a process of an unmodified program is killed while it runs, and all is freed" killed_unknowing
try "the RDMA cgroup is charged for the driver's carriers" cgroup_counts
try "the provider's test afterwards" "$(provider "$gid4")"

address=$(basename "$(readlink -f "/sys/class/net/$NIC0/device")")
# Unloads and loads the driver.
unbound() { echo "$address" >/sys/bus/pci/drivers/qrnic/unbind && echo "$address" >/sys/bus/pci/drivers/qrnic/bind; }
# shellcheck disable=SC2317  # called through wait_until
recovered() { dmesg | grep -q "qrnic $address: recovered"; }
# Makes the device fail, so that it is reset.
lost() { nic_fail "$NIC0" && wait_until 60 recovered; }

for how in "unbound shared" "lost shared" "unbound sharing" "lost sharing"; do
    status=0 program=${how#* } how=${how% *}
    loop "$program" && $how || status=$?
    kill -9 "$process"
    wait "$process" 2>/dev/null
    nic_setup && nic_export && wait_until 20 nothing_left || status=9
    result $status "the device is $how while $program runs, and all is freed"
    gid4=$(gid_index "$RDMA0" 4)
    try "the provider's test, after the device was $how" "$(provider "$gid4")"
    try "shared connections of unmodified programs, after the device was $how" "$(unknowing "$gid4" "$(gid_index "$RDMA0" 6)")"
done
kernel_clean "the kernel log is clean"
finish
