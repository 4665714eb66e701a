# The stages of lab 2. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
from grade import expect
from lab import hw


def register(machine, name):
    return machine._adapter.register(name)                  # pylint: disable=protected-access


def started(machine, program):
    program.reset(machine)
    return program.CommandQueue(machine)


def stage_1(machine, program):
    """Reset."""
    machine.config_write(4, 2, 2)
    machine.bar_write(0, hw.register["CMD_SIZE"], 5)
    machine.accesses.clear()
    program.reset(machine)
    command = machine.config_read(4, 2)
    expect(command & 2, "Memory space is not enabled (bit 1 of COMMAND).")
    expect(register(machine, "CMD_SIZE") == 0, "Register CMD_SIZE has the value that the grader wrote before: the device was not reset.")
    places = [place for place, access in enumerate(machine.accesses) if access[:3] == ("bar-read", 0, hw.register["STATUS"])]
    expect(places, "reset() does not read STATUS. A write is posted: only a read proves that it has arrived.")
    masters = [place for place, access in enumerate(machine.accesses) if access[0] == "config-write" and access[2] == 4 and access[3] & 4]
    expect(masters, "Bus mastering is not enabled at the end, so the device cannot read the ring.")
    expect(masters[0] > places[-1], "Bus mastering is enabled before READY. Until then the device may work for its previous owner.")


def stage_2(machine, program):
    """Start of the command queue."""
    queue = started(machine, program)
    base = register(machine, "CMD_BASE_LO") | register(machine, "CMD_BASE_HI") << 32
    expect(base == queue.ring, f"CMD_BASE is {base:#x}, and the ring is at {queue.ring:#x}.")
    expect(queue.ring % 64 == 0, "The ring is not aligned to 64 bytes.")
    expect(register(machine, "CMD_SIZE") == queue.LOG_SIZE, f"CMD_SIZE is {register(machine, 'CMD_SIZE')}: it is the log2 of the number of entries, {queue.LOG_SIZE}.")
    expect(register(machine, "STATUS") & 2, "STATUS.CMD_ENABLED is 0: write CMD_ENABLE to CONTROL, after base and size.")
    expect(not machine.guest_errors(), "The device rejected a register write.")


def stage_3(machine, program):
    """One command."""
    queue = started(machine, program)
    got = queue.execute(program.NOP)
    expect(got == (0, 0, 0), f"execute(NOP) returned {got!r}, not (0, 0, 0): status, result, syndrome.")
    expect(register(machine, "CMD_CONSUMER") == 1, "The device has not executed a command: CMD_CONSUMER is not 1.")


def stage_4(machine, program):
    """More commands than the ring has entries."""
    queue = started(machine, program)
    for number in range(20):
        got = queue.execute(program.NOP)
        expect(got == (0, 0, 0), f"Command {number} returned {got!r}, not (0, 0, 0).")
    expect(register(machine, "CMD_CONSUMER") == 20, f"The device executed {register(machine, 'CMD_CONSUMER')} of 20 commands. The doorbell is a counter; "
                                                    "only the place in the ring is taken modulo 8.")


def stage_5(machine, program):
    """Output of a command."""
    program.reset(machine)
    machine._adapter.enable_commands()                      # pylint: disable=protected-access  # the grader's own ring
    machine._adapter.command("QUERY_DEVICE")                # pylint: disable=protected-access
    want = machine._adapter.output("device_attr")["max_qp"]
    machine._adapter.set_register("CONTROL", 0)             # pylint: disable=protected-access
    queue = started(machine, program)
    got = program.max_qp(machine, queue)
    expect(got == want, f"max_qp() returned {got!r}. max_qp is a le32 at offset 8 of the output mailbox, which has 128 bytes.")


def stage_6(machine, program):
    """A rejected command."""
    queue = started(machine, program)
    got = program.free_missing_pd(queue)
    expect(got == (6, 0xffffffff), f"free_missing_pd() returned {got!r}. Status is bits 7:0 of control; the syndrome of ST_BAD_OBJECT names the wrong "
                                   "member, or is 0xffffffff for the object of the entry.")
