#!/usr/bin/env python3
# Exchanges a datagram of 8 bytes over RDS, because the image has no other program for it.
# SPDX-License-Identifier: GPL-2.0-or-later
"""rds_pingpong.py OWN-ADDRESS: answers; rds_pingpong.py OWN-ADDRESS OTHER: asks, and prints the us of one way."""

import socket
import sys
import time

PORT, WARM, ROUNDS = 4000, 20, 500

with socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0) as rds:
    rds.bind((sys.argv[1], PORT))
    if len(sys.argv) == 2:
        # The file reports that the socket is bound, because RDS drops datagrams for an unbound socket without notice.
        open("bound", "w", encoding="ascii").close()
        while True:
            rds.sendto(*rds.recvfrom(100))
    other = (sys.argv[2], PORT)
    for count in (WARM, ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            rds.sendto(b"datagram", other)
            rds.recv(100)
        taken = time.perf_counter() - start
    print(f"{taken / ROUNDS / 2 * 1e6:.2f}")
