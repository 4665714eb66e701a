# Checks the counters of the port for performance management. Monitors read them in sysfs; a fabric manager reads and
# sets them by MADs.
# SPDX-License-Identifier: GPL-2.0-or-later
# guest: --guests 2 --nic qrnic --timeout 900
# shellcheck shell=bash source=tests/guest/tap.sh
. /etc/qrnic/tap.sh

gid=$(gid_index "$RDMA0" 4)
counters=/sys/class/infiniband/$RDMA0/ports/1/counters
hw_counters=/sys/class/infiniband/$RDMA0/ports/1/hw_counters

# is NAME EXPRESSION: the counter of performance management equals the sum of counters of the device.
is() {
    local name=$1 value expected
    shift
    value=$(cat "$counters/$name")
    # Values of hw_counters may be 10 ms old.
    sleep 0.05
    expected=$(($*))
    [ "$value" = "$expected" ] || { echo "$name is $value, not $expected"; return 1; }
}
device() { cat "$hw_counters/$1"; }

all_are() {
    is port_xmit_packets "$(device roce_tx_packets)" && is port_rcv_packets "$(device roce_rx_packets)" &&
        is port_xmit_data "$(device roce_tx_bytes) / 4" && is port_rcv_data "$(device roce_rx_bytes) / 4" &&
        is unicast_xmit_packets "$(device roce_tx_packets) - $(device roce_tx_multicast)" &&
        is unicast_rcv_packets "$(device roce_rx_packets) - $(device roce_rx_multicast)" &&
        is multicast_xmit_packets "$(device roce_tx_multicast)" &&
        is multicast_rcv_packets "$(device roce_rx_multicast)" &&
        is port_rcv_errors "$(device rx_drop_icrc) + $(device rx_drop_malformed)" &&
        is port_xmit_discards "$(device tx_drop_link)"
}

before=$(cat "$counters/port_xmit_data")
pair "ibv_rc_pingpong" 18515 "ibv_rc_pingpong -d $RDMA0 -c -s 4096 -n 500 -g $gid" \
    "ibv_rc_pingpong -d $RDMA0 -c -s 4096 -n 500 -g $gid guest1"
# Each end has sent 500 messages of 1024 words.
[ $(($(cat "$counters/port_xmit_data") - before)) -gt $((500 * 1024)) ]
together $? "port_xmit_data has increased by the data that was sent"
status=0
all_are >step.log 2>&1 || { status=1; show step.log; }
together $status "each counter in sysfs is that of the device"

status=0
if [ "$GUEST" = 2 ]; then
    link() { host_qmp "{\"execute\":\"set_link\",\"arguments\":{\"name\":\"nic0\",\"up\":$1}}" >/dev/null; }
    # shellcheck disable=SC2317  # called through wait_until
    carrier_is() { [ "$(cat "/sys/class/net/$NIC0/carrier")" = "$1" ]; }
    before=$(cat "$counters/link_downed")
    link false && wait_until 20 carrier_is 0 && link true && wait_until 20 carrier_is 1 || status=1
    [ "$(cat "$counters/link_downed")" = $((before + 1)) ] || status=2
fi
together $status "a link that goes down is counted"

# Acts as a fabric manager, by performance management datagrams from one port to another.
cat >manager.py <<'PYTHON'
import fcntl
import ipaddress
import struct
import sys

CLASS_PORT_INFO, PORT_SAMPLES_CONTROL, PORT_COUNTERS, PORT_COUNTERS_EXTENDED = 1, 0x10, 0x12, 0x1d
GET, SET, GET_RESP = 1, 2, 0x81

umad = open(sys.argv[1], "r+b", buffering=0)
gid_index = int(sys.argv[2])
fcntl.ioctl(umad, 0x1b03)                                       # IB_USER_MAD_ENABLE_PKEY
agent = bytearray(struct.pack("=I16xBBB3xBx", 0, 1, 4, 1, 0))   # QP 1, performance management
fcntl.ioctl(umad, 0xc01c1b01, agent)                            # IB_USER_MAD_REGISTER_AGENT
# The peer has an IPv6 address, because the kernel compares the GID of a request with the GRH of the response.
# A packet of IPv4 has no GRH, so the kernel would find no request for the response.
peer = ipaddress.ip_address(sys.argv[3]).packed
transaction = 0


def ask(method, attribute, data=b"", version=1):
    """Sends a request, and returns the status and data of the response."""
    global transaction
    transaction += 1
    header = struct.pack("=5I", int.from_bytes(agent[:4], sys.byteorder), 0, 2000, 3, 0)
    header += struct.pack(">IIHBBBBBB16sI", 1, 0x80010000, 0, 0, 0, 1, gid_index, 64, 0, peer, 0) + bytes(8)
    mad = struct.pack(">BBBBHHQHHI", 1, 4, version, method, 0, 0, transaction, attribute, 0, 0) + bytes(40)
    umad.write(header + (mad + data).ljust(256, b"\0"))
    answer = umad.read(64 + 256)
    assert int.from_bytes(answer[4:8], sys.byteorder) == 0, "no response"
    assert answer[64 + 3] == GET_RESP, answer[64:].hex()
    return int.from_bytes(answer[64 + 4:64 + 6], "big"), answer[64 + 64:]


def counters(method=GET, select=0, values=(0, 0, 0, 0)):
    """Returns PortXmitData and the three other counters of 32 bits, which stop at their maximum."""
    data = struct.pack(">BBH18x", 0, 1, select).ljust(24, b"\0") + struct.pack(">4I", *values)
    status, data = ask(method, PORT_COUNTERS, data)
    assert status == 0, status
    return struct.unpack(">4I", data[24:40])


def extended(method=GET, select=0, values=(0,) * 8):
    status, data = ask(method, PORT_COUNTERS_EXTENDED, struct.pack(">BBHI8Q", 0, 1, select, 0, *values))
    assert status == 0, status
    return struct.unpack(">8Q", data[8:72])


status, data = ask(GET, CLASS_PORT_INFO)
assert status == 0 and data[:4] == b"\x01\x01\x02\x00", data.hex()
assert ask(GET, CLASS_PORT_INFO, version=2)[0] == 0x04
assert ask(GET, PORT_SAMPLES_CONTROL)[0] == 0x0c
assert ask(SET, CLASS_PORT_INFO)[0] == 0x0c
assert ask(GET, PORT_COUNTERS, b"\0\2")[0] == 0x1c

first = counters()
assert first[0] > 500 * 1024 and first[3] > 500, first
second = counters()
assert all(b > a for a, b in zip(first, second)), (first, second)   # by the request and its response

# A counter that was set continues from the new value, and stops at its maximum. The others continue to count.
assert counters(SET, 0x1000, (0xffffffff, 0, 0, 0))[0] == 0xffffffff
third = counters()
assert third[0] == 0xffffffff and third[1] > second[1], third
counters(SET, 0x1000)
assert counters()[0] < 10000

# The two attributes have separate counters.
wide = extended()
assert wide[0] > 500 * 1024 and wide[2] == wide[4] + wide[6], wide
extended(SET, 0xff)
wide = extended()
assert all(value < 10000 for value in wide), wide
extended(SET, 0x04, (0, 0, 1 << 40, 0, 0, 0, 0, 0))
assert 1 << 40 < extended()[2] < (1 << 40) + 100
PYTHON
status=0
if [ "$GUEST" = 2 ]; then
    modprobe ib_umad
    timeout $((60 * TIME_FACTOR)) python3 manager.py "/dev/infiniband/umad0" "$(gid_index "$RDMA0" 6)" fd77::1 >step.log 2>&1
    status=$?
    [ $status = 0 ] || show step.log
fi
together $status "the other port's counters are read and set over the wire"
[ "$GUEST" != 1 ] || [ "$(cat "$counters/port_xmit_packets")" -gt $((1 << 40)) ]
together $? "sysfs shows the values that were set"
kernel_clean "the kernel logs are clean"
finish
