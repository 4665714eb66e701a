#!/usr/bin/env python3
# A datagram of 8 bytes thrown to and fro over RDS; the image has no program of others for it.
# SPDX-License-Identifier: GPL-2.0-or-later
"""rds_pingpong.py OWN-ADDRESS: answers; rds_pingpong.py OWN-ADDRESS OTHER: asks, and prints the us of one way."""

import socket
import sys
import time

PORT, WARM, ROUNDS = 4000, 20, 500

with socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET, 0) as rds:
    rds.bind((sys.argv[1], PORT))
    if len(sys.argv) == 2:
        # Who is not bound gets nothing, and nobody hears of it.
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
