# Changes the link while the rings of the netdev are replaced repeatedly. The carrier of the netdev and the port of
# the RDMA device must follow the link.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 1 --nic qrnic
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

link() { host_qmp "{\"execute\":\"set_link\",\"arguments\":{\"name\":\"nic0\",\"up\":$1}}" >/dev/null; }
# shellcheck disable=SC2317  # called through wait_until
carrier_is() { [ "$(cat "/sys/class/net/$NIC0/carrier")" = "$1" ]; }
# shellcheck disable=SC2317
port_is() { grep -q "$1" "/sys/class/infiniband/$RDMA0/ports/1/state"; }

while ethtool -G "$NIC0" rx 256 && ethtool -G "$NIC0" rx 512; do :; done 2>rings.log &
rings=$!
status=0
for ((i = 0; i < 8; i++)); do
    if ! { link false && wait_until 20 carrier_is 0 && port_is DOWN; }; then status=1; break; fi
    if ! { link true && wait_until 20 carrier_is 1 && port_is ACTIVE; }; then status=2; break; fi
done
kill -0 $rings || status=3
kill $rings 2>/dev/null
wait $rings 2>/dev/null
[ $status = 0 ] || { echo "# in round $i"; show rings.log; }
result $status "the carrier follows the link while rings are replaced"
kernel_clean "the kernel log is clean"
finish
