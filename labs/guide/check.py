# Tests of the instructor's guide: slides, common wrong answers, marking, and the picture of the tour. tools/check-labs calls tests().
# SPDX-License-Identifier: GPL-2.0-or-later
#
# The table MISTAKES has the mistakes of the section "Common wrong answers" of README.md. Each is made in a copy of the solution,
# and the grader must fail in the stage, with the message that the guide shows. Slides are made by pandoc, and opened in Chromium
# (tools/deps browser). Faults are planted in copies of the sources, and must be found.
"""Tests of the instructor's guide."""

import concurrent.futures
import importlib.machinery
import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LABS, ROOT = HERE.parent, HERE.parents[1]
WAITERS = 4             # programs at the same time, because some of them wait in vain, as long as a wait of the labs may last

POST = ("        self.machine.mem_write(place, wqe)\n        self.producer += 1\n"
        '        self.machine.mem_write(self.qp.sq_record, struct.pack("<I", self.producer))')
LATE = ('        self.machine.mem_write(self.qp.sq_record, struct.pack("<I", self.producer + 1))\n        self.producer += 1\n'
        "        self.machine.mem_write(place, wqe)")
BELL = "self.machine.bar_write(2, DB_SQ, self.qp.number | self.producer << 32, 8)"

# (lab, stage, text of the solution, wrong text)
MISTAKES = (
    (1, 1, "machine.config_read(DEVICE_ID, 2), class_code", "machine.config_read(DEVICE_ID, 2), class_code >> 8"),
    (1, 2, "offset = machine.config_read(CAPABILITIES, 1)", "offset = CAPABILITIES"),
    (1, 3, " & ~0xf\n", "\n"),
    (1, 3, "    machine.config_write(BAR0 + 4 * bar, old)\n", ""),
    (1, 4, "| MEMORY_SPACE_ENABLE, 2)", "| MEMORY_SPACE_ENABLE | BUS_MASTER_ENABLE, 2)"),
    (1, 4, "| MEMORY_SPACE_ENABLE, 2)", ", 2)"),
    (1, 5, 'return low.to_bytes(4, "little") + (high & 0xffff).to_bytes(2, "little")', 'return low.to_bytes(4, "big") + (high & 0xffff).to_bytes(2, "big")'),
    (2, 1, '    machine.wait_until(lambda: machine.bar_read(0, REG_STATUS) & READY, "READY is 1")\n', ""),
    (2, 1, "machine.config_write(COMMAND, MEMORY_SPACE_ENABLE, 2)", "machine.config_write(COMMAND, MEMORY_SPACE_ENABLE | BUS_MASTER_ENABLE, 2)"),
    (2, 2, "REG_CMD_SIZE, self.LOG_SIZE)", "REG_CMD_SIZE, 1 << self.LOG_SIZE)"),
    (2, 3, "0, 0, OWNER)", "0, 0, 0)"),
    (2, 4, "REG_CMD_DOORBELL, self.producer)", "REG_CMD_DOORBELL, self.producer % 8)"),
    (2, 4, "ENTRY_SIZE * (self.producer % (1 << self.LOG_SIZE))", "ENTRY_SIZE * self.producer"),
    (3, 1, "3 << 16", "48 << 16"),
    (3, 2, POST, LATE),
    (3, 2, BELL, "self.machine.bar_write(2, DB_SQ, self.qp.number); self.machine.bar_write(2, DB_SQ + 4, self.producer)"),
    (3, 2, BELL, "self.machine.bar_write(2, DB_SQ, self.qp.number | self.producer - 1 << 32, 8)"),
    (3, 2, BELL, "self.machine.bar_write(2, DB_SQ, self.qp.number << 32 | self.producer, 8)"),
    (3, 3, "3 << 16, self.producer, 0)", "3 << 16, 0, 0)"),
    (3, 3, '        self.machine.mem_write(self.qp.cq_record, struct.pack("<I", self.consumer))\n', ""),
    (3, 4, "expected = 1 - (self.consumer >> self.qp.cq_log_size) % 2", "expected = 1"),
    (9, 1, "            cache.remove(number)\n", "            continue\n"),
    (9, 3, "return 2 * connections", "return connections"),
    (9, 5, "for message in group]", "for message in group[::-1]]"),
    (10, 2, "flows * seconds(FRAME)", "16 * flows * seconds(FRAME)"),
    (10, 4, "[2 ** level / sum(2 ** one for one in levels)", "[(level + 1) / sum(one + 1 for one in levels)"),
    (10, 6, '"class": traffic_class', '"class": traffic_class >> 5'),
    (12, 1, "        self.qp.post_receive()\n", ""),
    (12, 2, "if index == self.index + 1 else None", "if index else None"),
    (12, 7, "if len(self.sizes) == len(self.qps) else", "if self.sizes else"),
    (13, 2, "range(first, last + 1)", "range(first, first + 1)"),
    (13, 5, "            break\n", ""),
    (13, 5, "(timer if timer == 0 or timer > 13 else 13)", "timer"),
    (14, 3, "\twritel(QRNIC_REG_CONTROL_RESET_MASK, lab->registers", "\tpci_set_master(lab->pdev);\n\twritel(QRNIC_REG_CONTROL_RESET_MASK, lab->registers"),
    (14, 5, "writel(++lab->producer,", "writel(lab->producer++,"),
    (14, 7, "== QRNIC_EVENT_COMMAND", "== QRNIC_EVENT_COMPLETION"),
)

# Faults of a source of slides: the source, and a part of the message. The last ones are found in the browser.
HEAD = "---\ntitle: x\nsubtitle: x\n---\n\n"
GOOD = "# One\n\nText\n\n::: notes\nNote\n:::\n"
FAULTS = (
    ("", "no slide"),
    (GOOD + "\n![a picture](nowhere.svg)\n", "no picture nowhere.svg"),
    (GOOD + "\n[a link](https://example.org)\n", "refer to another file or host: https://example.org"),
    (GOOD + "\n# Two\n\nText\n", "slide 'Two' has no note"),
    (GOOD + "\n" + GOOD, "two slides have the title 'One'"),
    ("Text\n\n" + GOOD, "the line 'Text' is before the first slide"),
)
FULL = (
    (GOOD.replace("Text", "\n\n".join(["Text"] * 30)), "of 720 pixels in height"),
    (GOOD.replace("Text", "```\n" + "x" * 200 + "\n```"), "too wide"),
    (GOOD.replace("Text", "\n".join(["- text"] * 11) + f"\n\n![a picture]({ROOT / 'spec/figures/objects.svg'})"), "a picture has the scale"),
)


def load(name, path):
    loader = importlib.machinery.SourceFileLoader(name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def rows(text, title):
    """Returns the rows of the first table after a text, as lists of cells, without the two lines of its head."""
    table = re.search(r"^\|.*?(?=\n\n|\Z)", text.partition(title)[2], re.M | re.S)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[0].splitlines()[2:]]


def wrong_answers(out, grade, graded):
    """Makes each mistake of the guide in a solution."""
    shown = rows((HERE / "README.md").read_text(encoding="utf-8"), "## Common wrong answers")
    places = [[f"{number}, {stage}"] for number, stage, _, _ in MISTAKES]
    out.problems("labs/guide: each common mistake has a test", [] if [row[:1] for row in shown] == places else ["README.md and MISTAKES of check.py differ"])
    with tempfile.TemporaryDirectory(prefix="qrnic-guide-") as place, concurrent.futures.ThreadPoolExecutor(WAITERS) as pool:
        def one(mistake):
            number, _, right, wrong = mistake
            folder = grade.find(str(number))
            solution = grade.program_of(LABS / "solutions" / folder.name)
            source = solution.read_text(encoding="utf-8")
            path = Path(tempfile.mkdtemp(dir=place)) / solution.name
            path.write_text(source.replace(right, wrong), encoding="utf-8")
            return graded(folder, path) if right in source else (None, "the solution has no such text")
        # tools/check-labs --guest tests the mistakes of a driver in a guest.
        chosen = [mistake for mistake in MISTAKES if not grade.in_guest(grade.find(str(mistake[0])))]
        shown = [row for row, mistake in zip(shown, MISTAKES) if mistake in chosen]
        for (number, stage, _, _), row, (status, said) in zip(chosen, shown, pool.map(one, chosen)):
            out.result(status == 1 and row[2].strip("`").lower() in said.lower() and re.search(rf"^stage {stage} .* FAILED$", said, re.M),
                       f"labs/guide: lab {number}, stage {stage}: {row[1]}", f"expected '{row[2]}':\n{said}")


def marking(out, grade):
    """Compares the points of the guide with the stages and questions of the labs."""
    problems = []
    for number, stages, questions, points in rows((HERE / "README.md").read_text(encoding="utf-8"), "explanation 8 |\n"):
        folder = grade.find(number)
        real = (len(re.findall(r"^def stage_", (folder / "check.py").read_text(encoding="utf-8"), re.M)),
                len(re.findall(r"^\d+\. ", (folder / "README.md").read_text(encoding="utf-8").partition("## Questions")[2], re.M)))
        if (int(stages), int(questions), int(points)) != (*real, 4 * sum(real)):
            problems.append(f"lab {number} has {real[0]} stages and {real[1]} questions: {4 * sum(real)} points")
    out.problems("labs/guide: the points are those of the labs", problems)


def order(out, grade):
    """Tests the order of the labs in labs/README.md and in the plan of ten weeks: each lab once, and behind the labs that it needs."""
    needs = {}
    for name in grade.names():
        goal = (LABS / name / "README.md").read_text(encoding="utf-8").partition("## Background")[0]
        needs[int(name[:2])] = [int(one) for one in re.findall(r"\[lab (\d+)\]", goal.partition("Before:")[2])]
    weeks = "\n".join(row[3] for row in rows((HERE / "README.md").read_text(encoding="utf-8"), "## Ten weeks"))
    for text, found in (("labs/README.md", re.findall(r"^\| \[(\d+)\. ", (LABS / "README.md").read_text(encoding="utf-8"), re.M)), ("the plan of ten weeks", re.findall(r"\[Lab (\d+)\]", weeks))):
        found = [int(one) for one in found]
        problems = [] if sorted(found) == sorted(needs) else [f"the labs are {found}"]
        problems += [f"lab {one} needs lab {need}" for place, one in enumerate(found) for need in needs[one] if need not in found[:place]]
        out.problems(f"labs/guide: {text} has each lab once, behind the labs that it needs", problems)


def lectures(out):
    """Makes the slides, plants faults, and opens all slides in a browser."""
    done = subprocess.run([ROOT / "tools" / "deps", "browser"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        out.skip("labs/guide: slides", (done.stdout.splitlines() or ["tools/deps browser failed"])[-1])
        return
    slides = load("guide_slides", HERE / "slides")
    with tempfile.TemporaryDirectory(prefix="qrnic-guide-") as place:
        folder = Path(place)
        for name in slides.LECTURES:
            try:
                slides.make(HERE / f"{name}.markdown", folder / f"{name}.html")
                problems = []
            except slides.SlideError as error:
                problems = str(error).splitlines()
            out.problems(f"labs/guide: slides of {name}", problems)
        missed = []
        for source, part in FAULTS:
            (folder / "fault.markdown").write_text(HEAD + source, encoding="utf-8")
            said = "nothing"
            try:
                slides.make(folder / "fault.markdown", folder / "fault.html")
            except slides.SlideError as error:
                said = str(error)
            missed += [] if part in said else [f"'{part}' is not in '{said}'"]
        out.problems("labs/guide: faults of slides are found", missed)
        for number, (source, _) in enumerate(FULL):
            (folder / f"full{number}.markdown").write_text(HEAD + source, encoding="utf-8")
            slides.make(folder / f"full{number}.markdown", folder / f"full{number}.html")
        said = slides.overflow(folder, [*slides.LECTURES, *(f"full{number}" for number in range(len(FULL)))])
        out.problems("labs/guide: no slide is too full", [line for line in said if not line.startswith("full")])
        out.problems("labs/guide: slides that are too full are found",
                     [part for number, (_, part) in enumerate(FULL) if not any(line.startswith(f"full{number}.html") and part in line for line in said)])


# A session of two commands, and files that are no session
CAST = """{"version": 2, "width": 64, "height": 26}
[0.0, "m", "make demo"]
[0.5, "o", "10 %\\r20 %\\r\\n\\u001b[1;31mred <&>\\u001b[0m\\r\\n"]
[1.0, "m", "true"]
[1.5, "o", "end\\r\\n"]
"""
NONSENSE = ("", "x", "[]", '{"version": 1}', '{"version": 2}', '{"version": 2}\n[1]\n', '{"version": 2}\n[0, "m", "x"]\n["a", "o", "x"]\n', '{"version": 2}\n[0, "m", "x"]\n[1e999, "o", "x"]\n')


def tour(out):
    """Tests the picture of the tour: it has the commands of the page, an old picture is found, and sessions are drawn."""
    tool = ROOT / "tools" / "tour-picture"

    def run_tool(*words):
        done = subprocess.run(["/usr/bin/python3", tool, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return done.returncode, done.stdout

    def check(path):
        return run_tool("--check", "--output", path)
    picture = ROOT / "docs" / "use" / "tour.svg"
    status, said = check(picture)
    out.result(status == 0, "labs/guide: the picture of the tour shows the commands of the page", said)
    with tempfile.TemporaryDirectory(prefix="qrnic-guide-") as place:
        copy = Path(place) / "tour.svg"
        copy.write_text(picture.read_text(encoding="utf-8").replace("make demo", "make demos"), encoding="utf-8")
        status, said = check(copy)
        out.result(status == 1 and "the picture does not show: make demo" in said, "labs/guide: an old picture of the tour is found", said)
        if subprocess.run(["/usr/bin/python3", "-c", "import pyte"], stderr=subprocess.DEVNULL, check=False).returncode:
            out.skip("labs/guide: a session is drawn", "python3-pyte is not installed")
            return
        cast = Path(place) / "cast"
        cast.write_text(CAST, encoding="utf-8")
        status, said = run_tool("--cast", cast, "--output", copy)
        drawn = copy.read_text(encoding="utf-8")
        out.problems("labs/guide: a session is drawn", [said] if status else [text for text in (
            ">20 %</text>", 'font-weight="bold">red &lt;&amp;&gt;</text>', "<desc id=\"d\">make demo\ntrue\n</desc>") if text not in drawn])
        wrong = []
        for text in NONSENSE:
            cast.write_text(text, encoding="utf-8")
            status, said = run_tool("--cast", cast, "--output", copy)
            wrong += [] if status == 1 and len(said.splitlines()) == 1 and said.startswith("tour-picture: ") else [f"{text!r}: {status}, {said}"]
        out.problems("labs/guide: a file that is no session gives one line", wrong)


def tests(out, grade, graded):
    marking(out, grade)
    order(out, grade)
    wrong_answers(out, grade, graded)
    lectures(out)
    tour(out)
