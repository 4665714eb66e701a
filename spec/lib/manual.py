# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# manual.py: writes the generated tables into the chapters of the Programmer's Reference. spec/generate calls chapters().
# A chapter with other tables is rejected, because values written by hand could differ from the contract.
#
# A pair of comments marks the place of a table. The text between the comments is generated.
#
#   .. qrnic-table: struct cqe
#   .. qrnic-end
#
# Kinds: constants GROUP, enum NAME, flags NAME, registers, register-fields, struct NAME, commands, command NAME,
# counters, guest-errors, example NAME, requirements. A table without offsets, bits and values of the contract may be written
# by hand after the comment ".. qrnic-prose-table".

import glob
import os
import re

import examples
from contract import HexInt, reserved

BEGIN = re.compile(r"\.\. qrnic-table: (\S+)(?: (\S+))?$")
END = ".. qrnic-end"
PROSE = ".. qrnic-prose-table"
DIRECTIVE = re.compile(r"\s*\.\. (list-table|csv-table|table)::")
RULED = re.compile(r"\s*(\+[-=]+(\+[-=]+)*\+|=+( +=+)+)\s*$")
CONTRACT_VALUE = re.compile(r"0x[0-9a-fA-F]|\b\d+:\d+\b")


class ManualError(Exception):
    """Reports a mistake in a chapter; the text is one line that names the place."""


def show(value, width=0):
    return f"0x{value:0{width}x}" if isinstance(value, HexInt) or width else str(value)


def quoted(cell):
    """Returns a cell of a csv-table, quoted if it contains commas or quotes."""
    return '"' + cell.replace('"', '""') + '"' if "," in cell or '"' in cell else cell


def table(title, widths, header, rows):
    """Returns a table with one row in each line, so that the table is also legible as text."""
    lines = [f".. csv-table:: {title}", "   :header-rows: 1", "   :widths: " + " ".join(map(str, widths)), ""]
    lines += ["   " + ", ".join(map(quoted, row)) for row in [header] + rows]
    return [line.rstrip() for line in lines]


def text(item):
    """Returns the description as one cell, with escapes, because reStructuredText would treat some characters as markup."""
    doc = item.get("doc", "reserved, 0").replace("\\", "\\\\").replace("*", "\\*").replace("|", "\\|")
    return re.sub(r"(\w)_(?!\w)", r"\1\\_", doc)


def reference(item):
    name = item.get("enum") or item.get("flags")
    return f" (``{name}``)" if name else ""


def constants(spec, group):
    body = spec.constants[group]
    rows = [[f"``{i['name']}``", show(i["value"]), text(i)] for i in body["values"]]
    return table(text(body), (30, 15, 55), ["Name", "Value", "Meaning"], rows)


def enum(spec, name):
    body = spec.enums[name]
    header, widths = ["Value", "Name", "Meaning"], (10, 35, 55)
    rows = [[f"{i['value']:#04x}", f"``{body['prefix']}_{i['name']}``", text(i)] for i in body["values"]]
    if name == "cmd_status":
        header, widths = header[:2] + ["Linux", "Meaning"], (8, 30, 12, 50)
        for row, item in zip(rows, body["values"]):
            row.insert(2, str(item["errno"]))
    return table(f"``{name}``: {text(body)}", widths, header, rows)


def flags(spec, name):
    body = spec.flags[name]
    rows = [[str(i["bit"]), f"``{body['prefix']}_{i['name']}``", text(i)] for i in body["values"]]
    return table(f"``{name}``: {text(body)}", (10, 35, 55), ["Bit", "Name", "Meaning"], rows)


def registers(spec, _):
    rows = []
    for reg in spec.registers["list"]:
        reset = "" if "reset" not in reg else show(reg["reset"])
        rows.append([f"0x{reg['offset']:03x}", f"``{reg['name']}``", reg["access"], reset, text(reg)])
    return table("Control registers", (10, 20, 8, 14, 48), ["Offset", "Name", "Access", "Reset", "Meaning"], rows)


def register_fields(spec, _):
    rows = []
    for reg in spec.registers["list"]:
        for field in reg.get("fields", []):
            rows.append([f"``{reg['name']}``", field["bits"], f"``{field['name']}``", text(field) + reference(field)])
    return picture(spec, "registers", "Fields of the control registers") + table(
        "Fields of the control registers", (18, 10, 18, 54), ["Register", "Bits", "Field", "Meaning"], rows)


def picture(spec, name, alt):
    """Returns a picture of the layout. Only the complete manual has it, because the table has the same content."""
    return [f".. image:: figures/{name}.svg", f"   :alt: {alt}", ""] if spec.complete else []


def struct(spec, name):
    body = spec.structs[name]
    rows = []
    for member in body["members"]:
        kind = member["type"]
        if kind == "bytes":
            kind = f"{member['count']} bytes"
        elif kind == "struct":
            kind = f"``{member['struct']}``"
        meaning = text(member) + reference(member) if "doc" in member or "fields" not in member else ""
        rows.append([f"0x{member['offset']:02x}", kind, "", f"``{member['name']}``", meaning])
        for field in member.get("fields", []):
            rows.append(["", "", field["bits"], f"``{field['name']}``", text(field) + reference(field)])
    title = f"``{name}``, {body['size']} byte{'' if body['size'] == 1 else 's'}: {text(body)}"
    return picture(spec, f"struct-{name}", f"Layout of {name}") + table(title.rstrip("."), (9, 12, 9, 20, 50), ["Offset", "Type", "Bits", "Name", "Meaning"], rows)


def size_of(spec, name):
    if name is None:
        return "none"
    if name == "counters":
        return "8 bytes for each counter"
    return f"``{name}`` ({spec.structs[name]['size']} bytes)"


def commands(spec, _):
    rows = []
    for item in spec.enums["cmd_opcode"]["values"]:
        rows.append([f"{item['value']:#06x}", f"``CMD_{item['name']}``", item.get("object", ""),
                     f"``{item['input']}``" if "input" in item else "",
                     f"``{item['output']}``" if "output" in item else "", text(item)])
    return table("Commands", (9, 24, 12, 13, 13, 29), ["Opcode", "Name", "Object", "Input", "Output", "Purpose"], rows)


def command(spec, name):
    for item in spec.enums["cmd_opcode"]["values"]:
        if item["name"] == name:
            return [f":Opcode: {item['value']:#06x}", f":Object: {item.get('object', 'none, 0')}",
                    f":Input: {size_of(spec, item.get('input'))}", f":Output: {size_of(spec, item.get('output'))}",
                    f":In short: {text(item)}"]
    raise KeyError(name)


def counters(spec, _):
    names = [(c["name"], c["group"], text(c)) for c in spec.counters["list"]]
    names += [(f"ge_{g['name']}", "guest", f"guest errors of the kind {g['name'].replace('_', '-')}")
              for g in spec.guest_errors["list"]]
    rows = [[str(i), f"``{name}``", group, doc] for i, (name, group, doc) in enumerate(names)]
    return table("Counters", (9, 33, 13, 45), ["Index", "Name", "Group", "Counts"], rows)


def guest_errors(spec, _):
    rows = [[f"``{g['name'].replace('_', '-')}``", text(g)] for g in spec.guest_errors["list"]]
    return table("Guest errors", (25, 75), ["Rule", "Broken by"], rows)


def example(spec, name):
    if name not in spec.examples:
        raise KeyError(name)
    return examples.lines(spec, name)


def requirements(spec, _):
    rows = [[item["id"], f"`{item['chapter']}`_", text({"doc": item["text"]}),
             ", ".join(f"``{test}``" for test in item["tests"])] for item in spec.requirements]
    return table("Requirements", (10, 20, 35, 35), ["Number", "Chapter", "The device", "Tests"], rows)


BLOCKS = {"requirements": requirements, "example": example, "constants": constants, "enum": enum, "flags": flags, "registers": registers,
          "register-fields": register_fields, "struct": struct, "commands": commands, "command": command,
          "counters": counters, "guest-errors": guest_errors}


def expected_blocks(spec):
    """Returns all blocks that the manual must show at least once."""
    want = {("requirements", None), ("registers", None), ("register-fields", None), ("commands", None), ("counters", None),
            ("guest-errors", None)}
    want |= {("constants", name) for name in spec.constants}
    want |= {("enum", name) for name in spec.enums if name != "cmd_opcode"}
    want |= {("flags", name) for name in spec.flags}
    want |= {("struct", name) for name in spec.structs}
    want |= {("example", name) for name in spec.examples}
    want |= {("command", item["name"]) for item in spec.enums["cmd_opcode"]["values"]}
    return want


def check_prose_table(lines, number, where):
    """Rejects a table written by hand that repeats values of the contract, because they could become stale."""
    for line in lines[number:]:
        if line.startswith(".. ") and not DIRECTIVE.match(line) or (line and not line[0].isspace() and
                                                                    line[0] not in "+|=."):
            return
        if CONTRACT_VALUE.search(line):
            raise ManualError(f"{where}: a table written by hand holds values, they belong in the contract: "
                              f"{line.strip()}")


def fill(spec, name, source, shown):
    """Returns the text of a chapter with its generated blocks, and adds their names to `shown`."""
    lines, out, number, prose, ruled = source.split("\n"), [], 0, False, False
    while number < len(lines):
        line, where = lines[number], f"{name}:{number + 1}"
        number += 1
        out.append(line)
        match = BEGIN.match(line)
        if match:
            key = (match[1], match[2])
            try:
                block = BLOCKS[match[1]](spec, match[2])
            except KeyError:
                raise ManualError(f"{where}: the contract has no {match[1]} {match[2] or ''}".rstrip()) from None
            shown.add(key)
            try:
                number = lines.index(END, number)
            except ValueError:
                raise ManualError(f"{where}: no {END} follows") from None
            out += [""] + block + [""]
        elif line.startswith(".. qrnic-table"):
            raise ManualError(f"{where}: malformed mark")
        elif line == PROSE:
            prose = True
            check_prose_table(lines, number, where)
        elif DIRECTIVE.match(line) or RULED.match(line) and not ruled:
            if not prose:
                raise ManualError(f"{where}: a table written by hand; use a qrnic-table block")
            prose, ruled = False, not DIRECTIVE.match(line)
        elif ruled and not line:
            ruled = False
        if prose and line and line != PROSE:
            raise ManualError(f"{where}: {PROSE} without a table")
    return "\n".join(out)


# Pictures that do not come from the contract. tools/lint-layers writes and checks the picture of the floors;
# tools/experiments writes and checks the others.
OTHER_PICTURES = re.compile(r"spec/(floors|experiments/[a-z-]+)\.svg")


def check_pictures(name, source, pictures, shown):
    """Checks that each picture of a chapter exists, and adds it to `shown`."""
    for match in re.finditer(r"^\s*\.\. (?:image|figure):: (\S+)$", source, re.M):
        path = f"spec/{match[1]}"
        if OTHER_PICTURES.fullmatch(path):
            continue
        if path not in pictures:
            raise ManualError(f"{name}: no picture {match[1]}; spec/figures.yaml has the drawings")
        shown.add(path)


def chapters(spec, root, pictures):
    """Returns all chapters as {path relative to the repository: text}."""
    files, shown, seen = {}, set(), set()
    for path in sorted(glob.glob(os.path.join(root, "spec", "*.rst"))):
        name = os.path.relpath(path, root)
        with open(path, encoding="utf-8") as f:
            files[name] = fill(spec, name, f.read(), shown)
        check_pictures(name, files[name], pictures, seen)
    missing = sorted(" ".join(filter(None, key)) for key in expected_blocks(spec) - shown)
    if files and missing:
        raise ManualError(f"spec: no chapter shows {', '.join(missing)}")
    if files and set(pictures) - seen:
        raise ManualError(f"spec: no chapter shows {', '.join(sorted(set(pictures) - seen))}")
    return files
