#!/usr/bin/env python3
# Two ranks exchange a message through libmpi, which ctypes calls because the guest has no compiler.
# SPDX-License-Identifier: GPL-2.0-or-later
"""Run by mpirun with two ranks; rank 0 prints "SIZE bytes: N us" (one way)."""

import ctypes
import time

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    """Returns an MPI handle: MPI_COMM_WORLD and similar names are addresses of objects in the library."""
    return ctypes.byref(ctypes.c_char.in_dll(mpi, name))


def throw(world, byte, rank, size, times):
    """Returns the seconds for this number of exchanges."""
    area = ctypes.create_string_buffer(size)
    send, receive = mpi.MPI_Send, mpi.MPI_Recv
    outward = (area, size, byte, 1 - rank, 5, world)
    start = time.perf_counter()
    for _ in range(times):
        if rank == 0:
            send(*outward)
        receive(*outward, None)
        if rank == 1:
            send(*outward)
    return time.perf_counter() - start


def main():
    rank = ctypes.c_int()
    mpi.MPI_Init(None, None)
    world, byte = handle("ompi_mpi_comm_world"), handle("ompi_mpi_byte")
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    for size, times in ((8, 500), (1 << 20, 10)):
        throw(world, byte, rank.value, size, 3)
        seconds = throw(world, byte, rank.value, size, times)
        if rank.value == 0:
            print(f"{size} bytes: {seconds / times / 2 * 1e6:.2f} us", flush=True)
    mpi.MPI_Finalize()


main()
