#!/usr/bin/env python3
# An MPI program without a compiler: two ranks exchange messages of many sizes through
# libmpi, called by ctypes, and check every byte.
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run by mpirun with two ranks."""

import ctypes
import random
import sys

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    """MPI_COMM_WORLD and its like are addresses of objects in the library."""
    return ctypes.byref(ctypes.c_char.in_dll(mpi, name))


WORLD = handle("ompi_mpi_comm_world")
BYTE = handle("ompi_mpi_byte")
INT = handle("ompi_mpi_int")
SUM = handle("ompi_mpi_op_sum")
SIZES = (0, 1, 8, 1000, 4096, 8192, 65536, 1 << 20)


def call(function, *args):
    status = getattr(mpi, function)(*args)
    if status:
        sys.exit(f"{function} failed: {status}")


def pattern(rank, size):
    return random.Random(rank * 1000003 + size).randbytes(size)


def main():
    rank = ctypes.c_int()
    count = ctypes.c_int()
    call("MPI_Init", None, None)
    call("MPI_Comm_rank", WORLD, ctypes.byref(rank))
    call("MPI_Comm_size", WORLD, ctypes.byref(count))
    if count.value != 2:
        sys.exit(f"{count.value} ranks")
    other = 1 - rank.value
    for size in SIZES:
        mine = ctypes.create_string_buffer(pattern(rank.value, size), size + 1)
        theirs = ctypes.create_string_buffer(size + 1)
        call("MPI_Sendrecv", mine, size, BYTE, other, 5, theirs, size, BYTE, other, 5, WORLD, None)
        if theirs.raw[:size] != pattern(other, size):
            sys.exit(f"{size} bytes came wrong")
    value = (ctypes.c_int * 1000)(*[rank.value + at for at in range(1000)])
    total = (ctypes.c_int * 1000)()
    call("MPI_Allreduce", value, total, 1000, INT, SUM, WORLD)
    if list(total) != [1 + 2 * at for at in range(1000)]:
        sys.exit("MPI_Allreduce: wrong sums")
    call("MPI_Finalize")
    print(f"rank {rank.value}: {len(SIZES)} messages and a sum were right")


main()
