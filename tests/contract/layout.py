# SPDX-License-Identifier: GPL-2.0-or-later
#
# layout.py: reads the layouts of the contract, and makes C programs that compare the headers with them. The file shares
# no code with the generator, so that one error cannot hide in both.

import random

SIZES = {"u8": 1, "le16": 2, "le32": 4, "le64": 8, "be16": 2, "be32": 4, "be64": 8}


def of_guest(spec):
    """Returns the contract without the parts that only the host's side has."""
    def known(items):
        return [item for item in items if item.get("side") != "host"]
    constants = {name: group for name, group in spec["constants"].items() if group.get("side") != "host"}
    return dict(spec, constants=constants, enums=known(spec["enums"]), structs=known(spec["structs"]))


def struct_size(spec, name):
    return sum(member_size(spec, m) for m in members_of(spec, name))


def members_of(spec, name):
    return next(s for s in spec["structs"] if s["name"] == name)["members"]


def member_size(spec, member):
    if member["type"] == "bytes":
        return member["count"]
    if member["type"] == "struct":
        return struct_size(spec, member["struct"])
    return SIZES[member["type"]]


def flag_bits(spec, item):
    """Returns the bits that an item with flags may have, or None."""
    if "flags" not in item:
        return None
    return sum(1 << v["bit"] for v in next(f for f in spec["flags"] if f["name"] == item["flags"])["values"])


def bit_address(member, offset, bit):
    """Returns (byte, bit in it) of bit `bit` of a member at this offset."""
    size = SIZES[member["type"]]
    byte = bit // 8
    return offset + (size - 1 - byte if member["type"].startswith("be") else byte), bit % 8


class Layout:
    """fields: (C expression, [bit addresses from bit 0 up]); arrays: (expression, offset, count); reserved: bits."""

    def __init__(self, spec, name):
        self.fields, self.arrays, self.reserved, self.offsets = [], [], [], []
        self.size = struct_size(spec, name)
        self.walk(spec, name, 0, "", True)

    def walk(self, spec, name, offset, prefix, top):
        for member in members_of(spec, name):
            expression, kind = prefix + member["name"], member["type"]
            if top:
                self.offsets.append((member["name"], offset))
            if kind == "struct":
                self.walk(spec, member["struct"], offset, expression + ".", False)
            elif kind == "bytes" and member["name"].startswith("rsvd"):
                self.reserved += [(offset + i, b) for i in range(member["count"]) for b in range(8)]
            elif kind == "bytes":
                self.arrays.append((expression, offset, member["count"]))
            else:
                width = 8 * SIZES[kind]
                for item in member.get("fields", [dict(member, bits=f"{width - 1}:0")]):
                    hi, lo = map(int, item["bits"].split(":"))
                    bits = [bit_address(member, offset, bit) for bit in range(lo, hi + 1)]
                    self.add(spec, prefix, item, bits)
            offset += member_size(spec, member)

    def add(self, spec, prefix, item, bits):
        if item["name"].startswith("rsvd"):
            self.reserved += bits
            return
        allowed = flag_bits(spec, item)
        if allowed is not None:
            self.reserved += [b for i, b in enumerate(bits) if not allowed >> i & 1]
        self.fields.append((prefix + item["name"], bits))

    def random_bytes(self, rng):
        raw = bytearray(rng.randbytes(self.size))
        for byte, bit in self.reserved:
            raw[byte] &= ~(1 << bit)
        return raw


def value_of(raw, bits):
    return sum((raw[byte] >> bit & 1) << i for i, (byte, bit) in enumerate(bits))


def camel(name):
    return "Qrnic" + name.title().replace("_", "")


CHECK = """
static int failures;
#define CHECK(cond, what) do { \\
        if (!(cond)) { failures++; printf("wrong: %s\\n", what); } \\
    } while (0)
"""


def device_program(spec, seed, rounds):
    """Returns a C program for the device's header. Random bytes go through unpack and pack. The program checks that
    each reserved bit is reported and that each value is at the contract's place.
    """
    rng = random.Random(seed)
    text = '#include <stdio.h>\n#include <string.h>\n#include "qrnic_hw.h"\n' + CHECK
    calls = []
    for struct in spec["structs"]:
        name, layout = struct["name"], Layout(spec, struct["name"])
        text += f"static void test_{name}(void)\n{{\n    {camel(name)} s;\n"
        text += f"    unsigned char out[{layout.size}];\n"
        for n in range(rounds):
            raw = layout.random_bytes(rng)
            data = ", ".join(map(str, raw))
            text += f"    {{\n    static const unsigned char in[{layout.size}] = {{ {data} }};\n"
            text += "    memset(&s, 0xa5, sizeof(s));\n"
            text += f'    CHECK(qrnic_{name}_unpack(&s, in), "{name}: unpack refuses zero reserved bits");\n'
            for expression, bits in layout.fields:
                text += f'    CHECK(s.{expression} == {value_of(raw, bits)}ull, "{name}.{expression}");\n'
            for expression, offset, count in layout.arrays:
                text += f'    CHECK(!memcmp(s.{expression}, in + {offset}, {count}), "{name}.{expression}");\n'
            text += f"    memset(out, 0x5a, sizeof(out));\n    qrnic_{name}_pack(out, &s);\n"
            text += f'    CHECK(!memcmp(in, out, sizeof(out)), "{name}: pack differs");\n    }}\n'
        for byte, bit in layout.reserved:
            text += f"    memset(out, 0, sizeof(out)); out[{byte}] = {1 << bit};\n"
            text += f'    CHECK(!qrnic_{name}_unpack(&s, out), "{name}: reserved byte {byte} bit {bit} is not seen");\n'
        text += "}\n\n"
        calls.append(f"    test_{name}();\n")
    return text + "int main(void)\n{\n" + "".join(calls) + "    return failures != 0;\n}\n"


def constant_lines(spec, linux):
    """Returns C lines that print sizes, offsets and every constant; both headers must print the same text."""
    lines = []
    for struct in spec["structs"]:
        upper = struct["name"].upper()
        for member in struct["members"]:
            value = f"QRNIC_{upper}_{member['name'].upper()}_OFFSET"
            if linux:
                value = f"__builtin_offsetof(struct qrnic_{struct['name']}, {member['name']})"
            lines.append((f"{struct['name']}.{member['name']}", value))
        size = f"sizeof(struct qrnic_{struct['name']})" if linux else f"QRNIC_{upper}_BYTES"
        lines.append((struct["name"], size))
        for member in struct["members"]:
            for field in member.get("fields", []):
                if not field["name"].startswith("rsvd"):
                    macro = f"QRNIC_{upper}_{field['name'].upper()}_MASK"
                    lines.append((macro, macro))
    names = [v["name"] for g in spec["constants"].values() for v in g["values"]]
    names += [f"{e['prefix']}_{v['name']}" for e in spec["enums"] + spec["flags"] for v in e["values"]]
    names += [f"REG_{r['name']}" for r in spec["registers"]["list"]]
    names += [f"COUNTER_{c['name'].upper()}" for c in spec["counters"]["list"]]
    names += [f"GE_{g['name'].upper()}" for g in spec["guest_errors"]["list"]] + ["NUM_COUNTERS", "NUM_GUEST_ERRORS"]
    return lines + [(n, f"QRNIC_{n}") for n in names]


def dump_program(spec, linux):
    text = '#include <stdio.h>\n#include "qrnic_hw.h"\n\nint main(void)\n{\n'
    for label, value in constant_lines(spec, linux):
        text += f'    printf("{label} %llu\\n", (unsigned long long)({value}));\n'
    return text + "    return 0;\n}\n"


def expected_dump(spec):
    """Returns the text that both programs must print."""
    lines = []
    for struct in spec["structs"]:
        layout = Layout(spec, struct["name"])
        lines += [f"{struct['name']}.{name} {offset}" for name, offset in layout.offsets]
        lines.append(f"{struct['name']} {struct['size']}")
        for member in struct["members"]:
            for field in member.get("fields", []):
                if not field["name"].startswith("rsvd"):
                    hi, lo = map(int, field["bits"].split(":"))
                    mask = (1 << hi + 1) - (1 << lo)
                    lines.append(f"QRNIC_{struct['name'].upper()}_{field['name'].upper()}_MASK {mask}")
    lines += [f"{v['name']} {v['value']}" for g in spec["constants"].values() for v in g["values"]]
    lines += [f"{e['prefix']}_{v['name']} {v['value']}" for e in spec["enums"] for v in e["values"]]
    lines += [f"{f['prefix']}_{v['name']} {1 << v['bit']}" for f in spec["flags"] for v in f["values"]]
    lines += [f"REG_{r['name']} {r['offset']}" for r in spec["registers"]["list"]]
    lines += [f"COUNTER_{c['name'].upper()} {i}" for i, c in enumerate(spec["counters"]["list"])]
    lines += [f"GE_{g['name'].upper()} {i}" for i, g in enumerate(spec["guest_errors"]["list"])]
    errors = len(spec["guest_errors"]["list"])
    return lines + [f"NUM_COUNTERS {len(spec['counters']['list']) + errors}", f"NUM_GUEST_ERRORS {errors}"]
