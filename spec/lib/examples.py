# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# examples.py: converts the examples of the contract to the bytes of the structures in memory. manual.py prints them.

from contract import HexInt, need, reserved

DOORBELL_VALUE = ("doorbell", "record")


def resolve(spec, item, value, where):
    """Converts a value of the contract, which may be a name or a list of names, to (number, text for the reader)."""
    if isinstance(value, str) and "enum" in item:
        body = spec.enums[item["enum"]]
        for entry in body["values"]:
            if entry["name"] == value:
                return entry["value"], f"{body['prefix']}_{value}"
        need(False, where, f"no {value} in enum {item['enum']}")
    if isinstance(value, list) and "flags" in item:
        body = spec.flags[item["flags"]]
        bits = {entry["name"]: 1 << entry["bit"] for entry in body["values"]}
        for name in value:
            need(name in bits, where, f"no {name} in flags {item['flags']}")
        return sum(bits[name] for name in value), " | ".join(f"{body['prefix']}_{name}" for name in value) or "0"
    need(isinstance(value, int) and not isinstance(value, bool), where, f"{value} is not a value")
    return value, f"{value:#x}" if isinstance(value, HexInt) else str(value)


def known(names, values, where):
    for name in values:
        need(name in names, where, f"no member {name}")


def scalar(spec, member, values, where):
    """Returns (number, text) of a member of a number type."""
    if "fields" not in member:
        value, text = resolve(spec, member, values.get(member["name"], 0), where)
        need(0 <= value < 1 << 8 * member["size"], where, f"{value} does not fit")
        return value, "" if reserved(member) else f"{member['name']} {text}"
    number, texts = 0, []
    for field in member["fields"]:
        value, text = resolve(spec, field, values.get(field["name"], 0), where)
        need(0 <= value < 1 << field["width"], where, f"{field['name']} {value} does not fit")
        number |= value << field["lo"]
        if not reserved(field) and (value or field["name"] in values):
            texts.append(f"{field['name']} {text}")
    return number, ", ".join(texts) or f"{member['name']} 0"


def rows_of(spec, name, values, where, base=0, prefix=""):
    """Returns [(offset, bytes, text)] of one structure."""
    body, rows, names = spec.structs[name], [], set()
    for member in body["members"]:
        names.add(member["name"])
        names |= {field["name"] for field in member.get("fields", [])}
    known(names, values, where)
    for member in body["members"]:
        place, offset = f"{where}.{member['name']}", base + member["offset"]
        given = values.get(member["name"])
        if member["type"] == "struct":
            rows += rows_of(spec, member["struct"], given or {}, place, offset, f"{prefix}{member['name']}.")
            continue
        if member["type"] == "bytes":
            raw = bytes.fromhex(given) if given else bytes(member["count"])
            need(len(raw) == member["count"], place, f"has {member['count']} bytes, not {len(raw)}")
            rows.append((offset, raw, "" if reserved(member) else prefix + member["name"]))
            continue
        number, text = scalar(spec, member, values, place)
        order = "big" if member["type"].startswith("be") else "little"
        rows.append((offset, number.to_bytes(member["size"], order), prefix + text if text else ""))
    return rows


def build(spec, example):
    """Returns the parts of an example in order: [(offset, bytes, text, name of the structure that begins here or "")]."""
    where, base, out = f"examples.{example['name']}", 0, []
    for part in example["parts"]:
        need(part["struct"] in spec.structs, where, f"no such struct {part['struct']}")
        rows = rows_of(spec, part["struct"], part.get("values", {}), f"{where}.{part['struct']}", base)
        out += [row + (part["struct"] if n == 0 else "",) for n, row in enumerate(rows)]
        base += spec.structs[part["struct"]]["size"]
    return out


def check(spec):
    for example in spec.examples.values():
        build(spec, example)


def lines(spec, name):
    """Returns the example as a literal block with offset, bytes and meaning."""
    example = spec.examples[name]
    out, rest = [f"{example['doc']}:", "", "::", ""], []
    rows = build(spec, example)
    for row in rows:
        if rest and not row[2] and not rest[-1][2] and not row[3]:
            rest[-1] = (rest[-1][0], rest[-1][1] + row[1], "", rest[-1][3])
        else:
            rest.append(row)
    for offset, raw, text, struct in rest:
        if struct and len(example["parts"]) > 1:
            out.append(f"   {struct}")
        if not text:
            text = "reserved"
        if len(raw) > 16 and not any(raw):
            out.append(f"   0x{offset:02x}    {f'00, {len(raw)} times':<24} {text}")
            continue
        for at in range(0, len(raw), 8):
            column = raw[at:at + 8].hex(" ")
            out.append(f"   0x{offset + at:02x}    {column:<24} {text if at == 0 else ''}".rstrip())
    kind = spec.structs[example["parts"][0]["struct"]]
    if len(example["parts"]) == 1 and kind["kind"] in DOORBELL_VALUE:
        number = int.from_bytes(b"".join(row[1] for row in rows), "little")
        out += ["", f"As one 64-bit number: 0x{number:016x}."]
    return out
