# The stages of lab 2. labs/lib/grade.py calls them.
# SPDX-License-Identifier: GPL-2.0-or-later
from grade import expect
from lab import hw

OPTIONS = ("--property", "max-qp=100000")       # a number that needs more than 16 bits
ENTRY, PLACES = 64, 8
STATUS, DOORBELL = hw.register["STATUS"], hw.register["CMD_DOORBELL"]
POLLS = 3               # accesses of a program after a doorbell until a slow device executes the command


def register(machine, name):
    return machine._adapter.register(name)                  # pylint: disable=protected-access


class Commands:
    """Checks each command when its doorbell is written. A slow device sees the doorbell some accesses later."""

    def __init__(self, machine, program, slow=False):
        program.reset(machine)
        self.machine, self.slow, self.count, self.entry, self.waiting = machine, slow, 0, {}, None
        self.bar_write = machine.bar_write
        self.queue = program.CommandQueue(machine)
        machine.bar_write = self.write
        for name in ("mem_read", "bar_read"):
            setattr(machine, name, self.polled(getattr(machine, name)))

    def read(self, number):
        place = self.queue.ring + ENTRY * (number % PLACES)
        return hw.unpack("cmd_entry", self.machine._memory.read(place, ENTRY))          # pylint: disable=protected-access

    def write(self, bar, offset, value, size=4):
        """Replaces bar_write() of the machine."""
        if (bar, offset) != (0, DOORBELL):
            self.bar_write(bar, offset, value, size)
            return
        entry, place = self.read(self.count), self.count % PLACES
        expect(entry["opcode"] and entry["owner"], f"Command {self.count}: at the time of the doorbell, place {place} of the ring has opcode {entry['opcode']:#x} and owner {entry['owner']}. "
               "Write the entry with its owner bit first, to the place that is the number modulo 8, then the doorbell.")
        self.count, self.entry = self.count + 1, entry
        expect(value == self.count, f"The doorbell of command {self.count - 1} is {value}, not {self.count}. The doorbell is a counter; only the place in the ring is taken modulo 8.")
        if self.slow:
            self.waiting = [POLLS, (bar, offset, value, size)]
        else:
            self.bar_write(bar, offset, value, size)

    def polled(self, access):
        def counted(*words):
            result = access(*words)
            if self.waiting:
                self.waiting[0] -= 1
                if not self.waiting[0]:
                    self.bar_write(*self.waiting[1])
                    self.waiting = None
            return result
        return counted

    def execute(self, opcode, number=0):
        """Lets the program execute a command, whose results the ring shows."""
        before = self.count
        got = self.queue.execute(opcode, number)
        expect(self.count == before + 1, f"execute() wrote {self.count - before} command doorbells in place of one, so the device has not executed a command.")
        expect(not self.waiting, f"execute() returned {got!r} before the device executed the command. Wait until the owner bit of the entry is 0.")
        for member, want in (("opcode", opcode), ("object", number)):
            expect(self.entry[member] == want, f"The entry of command {before} has {member} {self.entry[member]:#x} in place of {want:#x}.")
        entry = self.read(before)
        want = tuple(entry[member] for member in ("status", "result", "syndrome"))
        expect(got == want, f"Command {before} returned {got!r}, not {want!r}: status, result, syndrome, as the device wrote them to the entry.")
        return got


def stage_1(machine, program):
    """Reset."""
    machine.config_write(4, 2, 2)
    machine.bar_write(0, hw.register["CMD_SIZE"], 5)
    register(machine, "STATUS")
    machine.config_write(4, 0, 2)
    read, reads = machine.bar_read, [0]

    def slow(bar, offset, size=4):
        value = read(bar, offset, size)
        if (bar, offset) == (0, STATUS) and any(access[:3] == ("bar-write", 0, hw.register["CONTROL"]) for access in machine.accesses):
            reads[0] += 1
            value &= ~1 if reads[0] <= POLLS else -1
        return value
    machine.bar_read = slow
    machine.accesses.clear()
    program.reset(machine)
    command = machine.config_read(4, 2)
    expect(command & 2, "Memory space is not enabled (bit 1 of COMMAND).")
    expect(register(machine, "CMD_SIZE") == 0, "Register CMD_SIZE has the value that the grader wrote before: the device was not reset.")
    expect(reads[0], "reset() does not read STATUS. A write is posted: only a read proves that it has arrived.")
    expect(reads[0] > POLLS, f"reset() reads STATUS {reads[0]} times, and READY was 0 each time. Read again until READY is 1.")
    places = [place for place, access in enumerate(machine.accesses) if access[:3] == ("bar-read", 0, STATUS)]
    commands = [place for place, access in enumerate(machine.accesses) if access.kind == "config-write" and access.offset == 4]
    masters = [place for place in commands if machine.accesses[place].value & 4]
    expect(masters, "Bus mastering is not enabled at the end, so the device cannot read the ring.")
    expect(masters[0] > places[-1], "Bus mastering is enabled before READY. Until then the device may work for its previous owner.")
    expect(all(machine.accesses[place].size < 4 for place in commands), "reset() writes 4 bytes to COMMAND. The upper two are the register STATUS of configuration space: write 2 bytes.")


def stage_2(machine, program):
    """Start of the command queue."""
    queue = Commands(machine, program).queue
    base = register(machine, "CMD_BASE_LO") | register(machine, "CMD_BASE_HI") << 32
    expect(base == queue.ring, f"CMD_BASE is {base:#x}, and the ring is at {queue.ring:#x}. Write both halves of the address.")
    expect(queue.ring % ENTRY == 0, "The ring is not aligned to 64 bytes.")
    expect(queue.LOG_SIZE == 3, f"LOG_SIZE is {queue.LOG_SIZE}: the ring of this lab has 8 entries.")
    expect(machine.room(queue.ring) >= ENTRY * PLACES, f"__init__() allocated {machine.room(queue.ring)} bytes for the ring. A ring of 8 entries has 512 bytes.")
    expect(register(machine, "CMD_SIZE") == queue.LOG_SIZE, f"CMD_SIZE is {register(machine, 'CMD_SIZE')}: it is the log2 of the number of entries, {queue.LOG_SIZE}.")
    expect(register(machine, "STATUS") & 2, "STATUS.CMD_ENABLED is 0: write CMD_ENABLE to CONTROL, after base and size.")
    expect(not machine.guest_errors(), "The device rejected a register write.")


def stage_3(machine, program):
    """One command."""
    commands = Commands(machine, program, slow=True)
    got = commands.execute(program.NOP)
    expect(got == (0, 0, 0), f"execute(NOP) returned {got!r}, not (0, 0, 0): status, result, syndrome.")
    expect(register(machine, "CMD_CONSUMER") == 1, "The device has not executed a command: CMD_CONSUMER is not 1.")


def stage_4(machine, program):
    """More commands than the ring has entries."""
    commands = Commands(machine, program)
    for number in range(18):
        got = commands.execute(program.NOP)
        expect(got == (0, 0, 0), f"Command {number} returned {got!r}, not (0, 0, 0).")
    # The result of ALLOC_PD is the number of the PD, which is the object of FREE_PD.
    _, domain, _ = commands.execute(hw.opcode["ALLOC_PD"])
    commands.execute(program.FREE_PD, domain)
    expect(register(machine, "CMD_CONSUMER") == 20, f"The device executed {register(machine, 'CMD_CONSUMER')} of 20 commands.")


def stage_5(machine, program):
    """Output of a command."""
    program.reset(machine)
    machine._adapter.enable_commands()                      # pylint: disable=protected-access  # the grader's own ring
    machine._adapter.command("QUERY_DEVICE")                # pylint: disable=protected-access
    want = machine._adapter.output("device_attr")["max_qp"]
    machine._adapter.set_register("CONTROL", 0)             # pylint: disable=protected-access
    commands = Commands(machine, program)
    got = program.max_qp(machine, commands.queue)
    expect(got == want, f"max_qp() returned {got!r}. max_qp is a le32 at offset 8 of the output mailbox, which has 128 bytes.")
    expect(commands.entry.get("opcode") == program.QUERY_DEVICE, "max_qp() does not execute QUERY_DEVICE.")
    mailbox, size = commands.entry["out_addr"], commands.entry["out_len"]
    expect(size <= machine.room(mailbox), f"The entry has an output mailbox of {size} bytes at {mailbox:#x}, but only {machine.room(mailbox)} bytes are allocated there.")


def stage_6(machine, program):
    """A rejected command."""
    commands = Commands(machine, program)
    got = program.free_missing_pd(commands.queue)
    expect((commands.entry.get("opcode"), commands.entry.get("object")) == (program.FREE_PD, 77), "free_missing_pd() does not execute FREE_PD with the object 77.")
    expect(got == (6, 0xffffffff), f"free_missing_pd() returned {got!r}, not (6, 0xffffffff). Status is bits 7:0 of control; the syndrome of ST_BAD_OBJECT names the wrong "
                                   "member, or is 0xffffffff for the object of the entry.")
