#!/usr/bin/env python3
# Compares the statistics of queues from netlink (family netdev) with the statistics of ethtool. Each NAPI instance
# must also have an interrupt of the adapter.
# SPDX-License-Identifier: GPL-2.0-or-later
"""queue_stats.py INTERFACE"""

import re
import socket
import struct
import subprocess
import sys

GENERIC, CONTROL, GET_FAMILY, FAMILY_ID, FAMILY_NAME = 16, 16, 3, 1, 2
REQUEST, DUMP = 1, 0x300
NAPI_GET, QSTATS_GET = 11, 12
NAPI_IFINDEX, NAPI_IRQ = 1, 3
IFINDEX, QUEUE_TYPE, QUEUE_ID, SCOPE, RX_PACKETS, RX_BYTES, TX_PACKETS, TX_BYTES = 1, 2, 3, 4, 8, 9, 10, 11


def attributes(data):
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack("=HH", data[:4])
        found[kind & 0x3fff] = int.from_bytes(data[4:length], sys.byteorder) if length <= 12 else data[4:length]
        data = data[(length + 3) & ~3:]
    return found


def ask(family, command, flags, sent):
    """Returns all replies to a generic netlink request."""
    answers = []
    body = struct.pack("=BBxx", command, 1)
    for kind, data in sent.items():
        body += struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC) as link:
        link.send(struct.pack("=IHHII", len(body) + 16, family, REQUEST | flags, 1, 0) + body)
        while True:
            data = link.recv(65536)
            while data:
                length, kind = struct.unpack("=IH", data[:6])
                if kind == 2:
                    raise OSError(-struct.unpack("=i", data[16:20])[0], f"netlink command {command}")
                if kind == 3:
                    return answers
                answers.append(attributes(data[20:length]))
                if not flags:
                    return answers
                data = data[(length + 3) & ~3:]


def ethtool(interface):
    """Returns the value of each (queue, statistic), and the sums."""
    text = subprocess.run(["ethtool", "-S", interface], check=True, capture_output=True, text=True).stdout
    return {(int(queue), f"{side}_{what}"): int(value)
            for side, queue, what, value in re.findall(r"^ *([rt]x)(\d+)_(packets|bytes): (\d+)$", text, re.M)}


def main():
    interface = sys.argv[1]
    index = struct.pack("=I", socket.if_nametoindex(interface))
    family = ask(CONTROL, GET_FAMILY, 0, {FAMILY_NAME: b"netdev\0"})[0][FAMILY_ID]
    before = ethtool(interface)
    queues = ask(family, QSTATS_GET, DUMP, {IFINDEX: index, SCOPE: struct.pack("=Q", 1)})
    whole = ask(family, QSTATS_GET, DUMP, {IFINDEX: index})[0]
    after = ethtool(interface)
    names = {RX_PACKETS: "rx_packets", RX_BYTES: "rx_bytes", TX_PACKETS: "tx_packets", TX_BYTES: "tx_bytes"}
    checked = 0
    for queue in queues:
        for kind, name in names.items():
            if kind in queue:
                place = queue[QUEUE_ID], name
                assert before[place] <= queue[kind] <= after[place], (place, queue[kind], before[place])
                checked += 1
    assert queues and checked == 2 * len(queues), queues
    for kind, name in names.items():
        least, most = (sum(value for (_, what), value in state.items() if what == name) for state in (before, after))
        assert 0 < least <= whole[kind] <= most, (name, least, whole[kind], most)
    with open("/proc/interrupts") as interrupts:
        ours = {int(line.split(":")[0]) for line in interrupts if "qrnic" in line}
    napis = ask(family, NAPI_GET, DUMP, {NAPI_IFINDEX: index})
    assert len(napis) >= 2 and all(napi.get(NAPI_IRQ) in ours for napi in napis), (napis, ours)
    print(f"{len(queues)} queues, {len(napis)} NAPI instances")


main()
