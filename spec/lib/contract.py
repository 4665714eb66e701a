# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# contract.py: loads qrnic-hw.yaml and checks it. A contradiction raises ContractError, because otherwise generated files
# would contradict each other. The schema is in the head of qrnic-hw.yaml. All other files of this folder use the result.

import re
import yaml

SCALARS = {"u8": 1, "le16": 2, "le32": 4, "le64": 8, "be16": 2, "be32": 4, "be64": 8}
KINDS = ("doorbell", "record", "part", "ring", "wqe", "input", "output", "message")
LOWER = re.compile(r"[a-z][a-z0-9_]*$")
UPPER = re.compile(r"[A-Z0-9][A-Z0-9_]*$")
RESERVED = re.compile(r"rsvd[0-9]+$")


class ContractError(Exception):
    """Reports a contradiction in the contract; the text is one line that names the place."""


def need(condition, where, what):
    if not condition:
        raise ContractError(f"{where}: {what}")


def reserved(item):
    return item["name"].startswith("rsvd")


def keys(item, where, required, optional=()):
    need(isinstance(item, dict), where, "is not a mapping")
    for key in required:
        need(key in item, where, f"has no {key}")
    for key in item:
        need(key in required or key in optional, where, f"unknown key {key}")


def check_side(item, where):
    """Checks side and programs of an item: an item that only the device knows cannot be in the header for programs."""
    need(item.get("side", "host") == "host", where, f"bad side {item.get('side')}")
    need(item.get("programs", True) is True, where, f"bad programs {item.get('programs')}")
    need(not ("side" in item and "programs" in item), where, "has both side and programs")


def check_name(name, pattern, where):
    need(isinstance(name, str) and pattern.match(name), where, f"bad name {name}")


def check_unique(items, key, where):
    seen = {}
    for item in items:
        value = item[key]
        need(value not in seen, where, f"{key} {value} is used by {seen.get(value)} and {item['name']}")
        seen[value] = item["name"]


def check_values(values, key, limit, where, optional=()):
    for item in values:
        place = f"{where}.{item.get('name')}"
        keys(item, place, ("name", key, "doc"), optional)
        check_name(item["name"], UPPER, place)
        need(isinstance(item[key], int) and 0 <= item[key] < limit, place, f"{key} {item[key]} is out of range")
    check_unique(values, "name", where)


class Contract:
    """The checked contract. Checking adds "offset" to members, and "hi", "lo" and "mask" to fields."""

    def __init__(self, raw):
        keys(raw, "contract", ("version", "constants", "enums", "flags", "registers", "structs", "examples", "counters",
                               "guest_errors"))
        keys(raw["version"], "version", ("major", "minor"))
        self.version = raw["version"]
        self.constants = raw["constants"]
        self.enums = {e["name"]: e for e in raw["enums"]}
        self.flags = {f["name"]: f for f in raw["flags"]}
        self.registers = raw["registers"]
        self.structs = {}
        self.counters = raw["counters"]
        self.guest_errors = raw["guest_errors"]
        self.macros = {}
        self.check_constants()
        check_unique(raw["enums"], "name", "enums")
        check_unique(raw["flags"], "name", "flags")
        self.check_enums()
        self.check_flags()
        self.check_registers()
        check_unique(raw["structs"], "name", "structs")
        for struct in raw["structs"]:
            self.check_struct(struct)
            self.structs[struct["name"]] = struct
        self.check_commands()
        self.check_lists()
        check_unique(raw["examples"], "name", "examples")
        for example in raw["examples"]:
            where = f"examples.{example['name']}"
            keys(example, where, ("name", "doc", "parts"))
            for part in example["parts"]:
                keys(part, where, ("struct",), ("values",))
        self.examples = {e["name"]: e for e in raw["examples"]}

    def macro(self, name, where):
        """Records the name of a C macro or enumerator, which must be unique in the headers."""
        need(name not in self.macros, where, f"QRNIC_{name} is also made by {self.macros.get(name)}")
        self.macros[name] = where

    def check_constants(self):
        for group, body in self.constants.items():
            keys(body, f"constants.{group}", ("doc", "values"), ("side", "programs"))
            check_side(body, f"constants.{group}")
            check_values(body["values"], "value", 1 << 64, f"constants.{group}")
            for item in body["values"]:
                self.macro(item["name"], f"constants.{group}.{item['name']}")

    def check_enums(self):
        for enum in self.enums.values():
            where = f"enums.{enum['name']}"
            keys(enum, where, ("name", "prefix", "doc", "values"), ("side", "programs"))
            check_side(enum, where)
            check_name(enum["name"], LOWER, where)
            optional = {"cmd_opcode": ("object", "input", "output"), "cmd_status": ("errno",)}.get(enum["name"], ())
            check_values(enum["values"], "value", 1 << 31, where, optional)
            check_unique(enum["values"], "value", where)
            for item in enum["values"]:
                self.macro(f"{enum['prefix']}_{item['name']}", f"{where}.{item['name']}")
        for item in self.enums["cmd_status"]["values"]:
            need("errno" in item, f"enums.cmd_status.{item['name']}", "has no errno")

    def check_flags(self):
        for flags in self.flags.values():
            where = f"flags.{flags['name']}"
            keys(flags, where, ("name", "prefix", "doc", "values"), ("programs",))
            check_name(flags["name"], LOWER, where)
            need(flags["name"] not in self.enums, where, "is also the name of an enum")
            check_values(flags["values"], "bit", 64, where)
            check_unique(flags["values"], "bit", where)
            flags["all"] = sum(1 << item["bit"] for item in flags["values"])
            self.macro(f"{flags['prefix']}_ALL", where)
            for item in flags["values"]:
                self.macro(f"{flags['prefix']}_{item['name']}", f"{where}.{item['name']}")

    def check_reference(self, item, width, where):
        """Checks the enum or flags that a member or field names."""
        need(not ("enum" in item and "flags" in item), where, "has both enum and flags")
        if "enum" in item:
            need(item["enum"] in self.enums, where, f"no such enum {item['enum']}")
            top = max(v["value"] for v in self.enums[item["enum"]]["values"])
            need(top < 1 << width, where, f"{item['enum']} does not fit {width} bits")
        if "flags" in item:
            need(item["flags"] in self.flags, where, f"no such flags {item['flags']}")
            need(self.flags[item["flags"]]["all"] < 1 << width, where, f"{item['flags']} does not fit {width} bits")

    def check_fields(self, fields, width, where, pattern, gapless):
        expected = 0
        for field in fields:
            place = f"{where}.{field.get('name')}"
            keys(field, place, ("name", "bits"), ("doc", "enum", "flags"))
            check_name(field["name"], RESERVED if reserved(field) else pattern, place)
            match = re.match(r"(\d+):(\d+)$", str(field["bits"]))
            need(match, place, f"bits {field['bits']} are not \"hi:lo\"")
            field["hi"], field["lo"] = int(match[1]), int(match[2])
            need(field["hi"] >= field["lo"], place, f"bits {field['bits']} are not hi:lo")
            need(field["hi"] < width, place, f"bits {field['bits']} are beyond {width} bits")
            need(field["lo"] >= expected, place, f"bits {field['bits']} overlap or are out of order")
            need(not gapless or field["lo"] == expected, place, f"bits {expected} to {field['lo'] - 1} are not named")
            need(reserved(field) or field.get("doc"), place, "has no doc")
            field["width"] = field["hi"] - field["lo"] + 1
            field["mask"] = ((1 << field["width"]) - 1) << field["lo"]
            self.check_reference(field, field["width"], place)
            expected = field["hi"] + 1
        need(not gapless or expected == width, where, f"bits {expected} to {width - 1} are not named")
        check_unique(fields, "name", where)

    def check_registers(self):
        keys(self.registers, "registers", ("doc", "list"))
        registers = self.registers["list"]
        for reg in registers:
            where = f"registers.{reg.get('name')}"
            keys(reg, where, ("name", "offset", "access", "doc"), ("reset", "fields"))
            check_name(reg["name"], UPPER, where)
            need(reg["access"] in ("RO", "RW", "WO"), where, f"bad access {reg['access']}")
            need(reg["offset"] % 4 == 0, where, f"offset {reg['offset']:#x} is not a multiple of 4")
            need(reg["access"] != "RW" or "reset" in reg, where, "RW without a reset value")
            self.check_fields(reg.get("fields", []), 32, where, UPPER, False)
            self.macro(f"REG_{reg['name']}", where)
            for field in reg.get("fields", []):
                self.macro(f"REG_{reg['name']}_{field['name']}_MASK", where)
        check_unique(registers, "name", "registers")
        check_unique(registers, "offset", "registers")
        size = self.constant("BAR_CONTROL_SIZE")
        for reg in registers:
            need(reg["offset"] < size, f"registers.{reg['name']}", "is beyond BAR_CONTROL_SIZE")
        need([r["offset"] for r in registers] == sorted(r["offset"] for r in registers), "registers", "not in order")

    def check_struct(self, struct):
        where = f"structs.{struct.get('name')}"
        keys(struct, where, ("name", "kind", "size", "doc", "members"), ("side", "programs"))
        check_side(struct, where)
        check_name(struct["name"], LOWER, where)
        need(struct["kind"] in KINDS, where, f"bad kind {struct['kind']}")
        offset, align, names = 0, 1, []
        for member in struct["members"]:
            place = f"{where}.{member.get('name')}"
            keys(member, place, ("name", "type"), ("doc", "count", "struct", "enum", "flags", "fields"))
            check_name(member["name"], RESERVED if reserved(member) else LOWER, place)
            size, natural = self.member_size(member, place)
            need(offset % natural == 0, place, f"offset {offset} is not a multiple of {natural}")
            member["offset"], member["size"] = offset, size
            offset += size
            align = max(align, natural)
            names += self.check_member(struct, member, place)
        need(offset == struct["size"], where, f"members add up to {offset} bytes, but size is {struct['size']}")
        need(offset % align == 0, where, f"size {offset} is not a multiple of {align}")
        struct["align"] = align
        check_unique([{"name": n} for n in names], "name", where)
        self.macro(f"{struct['name'].upper()}_BYTES", where)

    def member_size(self, member, place):
        kind = member["type"]
        need(("count" in member) == (kind == "bytes"), place, "count is for bytes, and only for them")
        need(("struct" in member) == (kind == "struct"), place, "struct is for type struct, and only for it")
        if kind == "bytes":
            return member["count"], 1
        if kind == "struct":
            need(member["struct"] in self.structs, place, f"no such struct {member['struct']} before this one")
            inner = self.structs[member["struct"]]
            return inner["size"], inner["align"]
        need(kind in SCALARS, place, f"bad type {kind}")
        return SCALARS[kind], SCALARS[kind]

    def check_member(self, struct, member, place):
        """Checks fields and references. Returns the names by which software knows the member."""
        upper = struct["name"].upper()
        self.macro(f"{upper}_{member['name'].upper()}_OFFSET", place)
        width = 8 * member["size"]
        if "fields" not in member:
            need(reserved(member) or member.get("doc"), place, "has no doc")
            self.check_reference(member, width, place)
            return [member["name"]]
        need(member["type"] in ("u8", "le16", "le32", "le64"), place, f"fields in a member of type {member['type']}")
        need("enum" not in member and "flags" not in member, place, "enum or flags belong to the fields")
        self.check_fields(member["fields"], width, place, LOWER, True)
        for field in member["fields"]:
            if not reserved(field):
                self.macro(f"{upper}_{field['name'].upper()}_MASK", place)
        return [f["name"] for f in member["fields"]]

    def check_commands(self):
        opcodes = [item["value"] for item in self.enums["cmd_opcode"]["values"]]
        need(opcodes == sorted(opcodes), "enums.cmd_opcode", "not in the order of the opcodes")
        for item in self.enums["cmd_opcode"]["values"]:
            for key in ("input", "output"):
                name = item.get(key)
                need(name is None or name in self.structs or (key, name) == ("output", "counters"),
                     f"enums.cmd_opcode.{item['name']}", f"no such struct {name}")

    def check_lists(self):
        for title, body, extra in (("counters", self.counters, ("group",)), ("guest_errors", self.guest_errors, ())):
            keys(body, title, ("doc", "list"))
            check_unique(body["list"], "name", title)
            for item in body["list"]:
                place = f"{title}.{item.get('name')}"
                keys(item, place, ("name", "doc") + extra)
                check_name(item["name"], LOWER, place)
                prefix = "COUNTER_" if title == "counters" else "COUNTER_GE_"
                self.macro(prefix + item["name"].upper(), place)
                if title == "guest_errors":
                    self.macro("GE_" + item["name"].upper(), place)

    def constant(self, name):
        for body in self.constants.values():
            for item in body["values"]:
                if item["name"] == name:
                    return item["value"]
        raise ContractError(f"constants: no {name}")


class HexInt(int):
    """A number that the contract writes in hexadecimal, so that headers and tables do the same."""


class UniqueLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """A YAML loader that rejects a duplicate key, because PyYAML would silently use the last value."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise ContractError(f"line {key.start_mark.line + 1}: key {key.value} twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def construct_int(loader, node):
    value = loader.construct_yaml_int(node)
    return HexInt(value) if node.value.startswith("0x") else value


UniqueLoader.add_constructor("tag:yaml.org,2002:int", construct_int)


def load(path):
    try:
        with open(path, encoding="utf-8") as f:
            raw = yaml.load(f, Loader=UniqueLoader)
    except OSError as error:
        raise ContractError(f"{path}: {error.strerror}") from None
    except yaml.YAMLError as error:
        raise ContractError(f"{path}: {' '.join(str(error).split())}") from None
    try:
        return Contract(raw)
    except (KeyError, TypeError, AttributeError) as error:
        raise ContractError(f"{path}: wrong shape ({type(error).__name__}: {error})") from None
