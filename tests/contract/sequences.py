# SPDX-License-Identifier: GPL-2.0-or-later
#
# sequences.py: reads the sequence diagrams of spec/engine.rst, and compares them with the sources of the device.
#
# A diagram is a literal block after the comment ".. qrnic-sequence: NAME". Each line has a function, its file and,
# optionally, a remark. The file is below qemu-hw/engine/ or qemu-hw/; files of driver and provider are named from the
# root of the repository. A function is two columns right of its caller, and functions of one caller are in the order of
# the calls. "MEMBER: FUNCTION" is a call through the pointer MEMBER, of a structure or an argument.

import os
import re

MARK = re.compile(r"\.\. qrnic-sequence: (.+)$")
LINE = re.compile(r"( *)(?:(\w+): )?(\w+) +([\w/-]+\.[ch])(?:  +(.+))?$")
DEFINITION = re.compile(r"^[A-Za-z_][\w \t*]*?[ *\n](\w+)\s*\([^;{}]*?\)\s*\n\{(.*?)^\}", re.M | re.S)
COMMENT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


class Call:
    def __init__(self, number, member, name, file, caller):
        self.number, self.member, self.name, self.file, self.caller = number, member, name, file, caller
        self.callees = []


def sources(root, below=""):
    """Returns {file below the root: its text without comments and strings} of a folder there."""
    found = {}
    for folder, _, names in os.walk(os.path.join(root, below)):
        for name in names:
            if name.endswith((".c", ".h")):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    found[os.path.relpath(path, root)] = COMMENT.sub("", f.read())
    return found


def functions(texts):
    """Returns {file as the diagrams name it: {function: its body}}."""
    return {file.removeprefix("engine/"): {match[1]: match[2] for match in DEFINITION.finditer(text)} for file, text in texts.items()}


def diagrams(chapter):
    """Returns {name: (the calls without caller, what is malformed)} of a chapter."""
    found, lines = {}, chapter.split("\n")
    for at, line in enumerate(lines):
        mark = MARK.match(line)
        if mark:
            found[mark[1]] = diagram(lines, at + 1)
    return found


def diagram(lines, at):
    tops, wrong, open_calls = [], [], []
    while at < len(lines) and lines[at] in ("", "::"):
        at += 1
    while at < len(lines) and (not lines[at] or lines[at].startswith("    ")):
        match, text = LINE.match(lines[at][4:]), lines[at].strip()
        at += 1
        if not match:
            if text:
                wrong.append(f"line {at}: not a call: {text}")
            continue
        depth = len(match[1]) // 2
        if len(match[1]) % 2 or depth > len(open_calls) or (match[2] and not depth):
            wrong.append(f"line {at}: {match[3]} does not stand two columns right of its caller")
            continue
        del open_calls[depth:]
        call = Call(at, match[2], match[3], match[4], open_calls[-1] if open_calls else None)
        (call.caller.callees if call.caller else tops).append(call)
        open_calls.append(call)
    return tops, wrong


def is_in_table(call, text):
    """Returns true if a structure has the function as that member, or if it is an argument of a call or a macro."""
    return re.search(rf"\b{call.member}(?:\[\w+\])?\s*=\s*{call.name}\b|[(,]\s*{call.name}\s*[,)]", text)


def wrong_calls(calls, texts, bodies):
    """Yields one line for each function that is not there, and for each call that its caller does not make."""
    everything = "\n".join(texts.values())
    position = 0
    for call in calls:
        where = f"line {call.number}: {call.name}"
        if call.name not in bodies.get(call.file, {}):
            yield f"{where}: {call.file} has no such function"
        elif call.caller and call.caller.name in bodies.get(call.caller.file, {}):
            made = rf"(?<!\w){call.member}(?:\[\w+\])?\(" if call.member else rf"(?<![\w.>]){call.name}\("
            body = bodies[call.caller.file][call.caller.name]
            match = re.compile(made).search(body, position)
            if not match:
                before = re.search(made, body)
                yield f"{where}: {call.caller.name} does not call {call.member or 'it'}{' behind the call above' if before else ''}"
            else:
                # A loop makes all calls through a pointer in one place.
                position = match.start() if call.member else match.end()
            if call.member and not is_in_table(call, everything):
                yield f"{where}: no structure has it as {call.member}, and no call passes it on"
        yield from wrong_calls(call.callees, texts, bodies)
