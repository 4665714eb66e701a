"""Reads the pages: README.md, docs/use/ and the other Markdown files. Finds links, headings, commands and code spans.

tests/pages/run calls read() for each file, and then the functions that return problems. A problem is one line of text
that names the file and the line. The parser is markdown-it, which Debian has as python3-markdown-it.

A code block names its language. The lines of a console block that begin with a prompt are commands. The prompt is "$" on
the host, "#" on the host as root, and "guest1:~#" in a guest. The other lines of a console block are the output of the command above them. A block "bash NAME" is a file that the
commands of its page use. A block without a language is a picture or a list, and must not contain commands.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import os
import re
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent.parent
LANGUAGES = {"console", "bash", "c", "yaml"}
PROMPT = re.compile(r"^(\$|#|guest1:~#) (.*)$")
HOST, ADMIN, GUEST = "$", "#", "guest1:~#"
INSTALLED = {"qemu-system-x86_64-qrnic", "qrnic-switch"}


@dataclass
class Command:
    """One command of a page: its text in one line, where it runs, and the output that the page shows."""

    page: str
    line: int
    prompt: str
    text: str
    shown: list = field(default_factory=list)


@dataclass
class Page:
    """The contents of one Markdown file; problems are those that read() found."""

    name: str
    text: str
    headings: list = field(default_factory=list)
    links: list = field(default_factory=list)
    spans: list = field(default_factory=list)
    commands: list = field(default_factory=list)
    files: dict = field(default_factory=dict)
    problems: list = field(default_factory=list)

    def problem(self, line, text):
        self.problems.append(f"{self.name}:{line}: {text}")

    def anchors(self):
        return {anchor(title) for title in self.headings}


def anchor(title):
    """Returns the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def console(page, line, content):
    """Adds the commands of a console block. A backslash at the end of a line continues the command."""
    last = None
    unfinished = False
    for offset, row in enumerate(content.splitlines()):
        match = PROMPT.match(row)
        if unfinished:
            last.text = f"{last.text} {row.strip().removesuffix(chr(92)).strip()}"
            unfinished = row.endswith("\\")
        elif match:
            unfinished = row.endswith("\\")
            last = Command(page.name, line + offset, match[1], match[2].removesuffix("\\").strip())
            page.commands.append(last)
        elif last is None:
            page.problem(line + offset, f"a console block begins with a command, not with '{row}'")
        else:
            last.shown.append(row)


def executable(word):
    """Returns true if the word is a program of this repository, or is installed by make install."""
    return word in INSTALLED or ("/" in word and not word.startswith("/") and (ROOT / word).is_file() and os.access(ROOT / word, os.X_OK))


def words_of(text):
    """The words of a command without assignments of variables before it."""
    words = text.split()
    while words and re.match(r"^\w+=", words[0]):
        words = words[1:]
    return words


def like_a_command(text):
    """Returns true if a line or a code span is a command of ours with arguments."""
    words = words_of(text)
    return len(words) > 1 and (words[0] == "make" or executable(words[0]))


def block(page, token):
    """Reads a code block."""
    line = token.map[0] + 1
    info = token.info.split()
    if token.type == "code_block" or not info:
        for offset, row in enumerate(token.content.splitlines()):
            if PROMPT.match(row.strip()) or like_a_command(row):
                page.problem(line + offset, f"a command stands in a block without language: {row.strip()}")
    elif info[0] not in LANGUAGES:
        page.problem(line, f"the language '{info[0]}' of a code block is none of {', '.join(sorted(LANGUAGES))}")
    elif info[0] == "console":
        console(page, line + 1, token.content)
    elif info[0] == "bash":
        if len(info) == 2:
            page.files[info[1]] = token.content
        else:
            page.problem(line, "a bash block names its file: ```bash NAME")


def inline(page, token):
    """Reads links, code spans, and references that have no target, of a paragraph or of a cell."""
    line = token.map[0] + 1 if token.map else 0
    for child in token.children:
        if child.type == "link_open":
            page.links.append((line, child.attrGet("href")))
        elif child.type == "image":
            page.links.append((line, child.attrGet("src")))
        elif child.type == "code_inline":
            page.spans.append((line, " ".join(child.content.split())))
        elif child.type == "text" and re.search(r"\]\[[^\]]*\]|\]\(", child.content):
            page.problem(line, f"this link has no target: {child.content.strip()}")


def read(name, text=None):
    """Returns the Page of a file; with text, of a file that has this text."""
    text = (ROOT / name).read_text(encoding="utf-8") if text is None else text
    page = Page(name, text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for before, token in zip([None, *tokens], tokens):
        if token.type in ("fence", "code_block"):
            block(page, token)
        elif token.type == "inline":
            if not token.map and before is not None and before.map:
                token.map = before.map
            if before is not None and before.type == "heading_open":
                page.headings.append("".join(child.content for child in token.children if child.type in ("text", "code_inline")))
            inline(page, token)
    return page


def sections(text):
    """The titles of a reStructuredText file."""
    lines = text.splitlines()
    return [lines[i].strip() for i in range(len(lines) - 1) if lines[i].strip() and re.fullmatch(r"([=\-~^\"'.#*+])\1{2,}", lines[i + 1])
            and len(lines[i + 1]) >= len(lines[i].rstrip())]


def anchors_of(path):
    """The anchors of a Markdown or reStructuredText file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return read(str(path.relative_to(ROOT)), text).anchors()
    return {re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") for title in sections(text)}


def link_problems(page):
    """Checks that each relative link names a file and a section that exist, and that other links have the form of a URL."""
    problems = []
    for line, href in page.links:
        parts = urllib.parse.urlsplit(href)
        wrong = None
        if parts.scheme:
            good = parts.scheme in ("http", "https") and re.fullmatch(r"[\w.-]+\.\w+(:\d+)?", parts.netloc)
            wrong = None if good else "is no URL"
        elif not parts.path:
            wrong = None if parts.fragment in page.anchors() else "names no section of this page"
        else:
            path = (ROOT / page.name).parent / urllib.parse.unquote(parts.path)
            if not path.resolve().is_relative_to(ROOT) or not path.exists():
                wrong = "names no file"
            elif parts.fragment and parts.fragment not in anchors_of(path.resolve()):
                wrong = "names no section of that file"
        if wrong:
            problems.append(f"{page.name}:{line}: the link {href} {wrong}")
    return problems


def path_problems(page):
    """Checks that each path of the repository in a code span exists, and each chapter that is named."""
    problems = []
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    for line, span in page.spans:
        for word in span.split():
            if re.fullmatch(r"[\w.+-]+(/[\w.+-]+)+/?", word) and word.split("/")[0] in folders and not (ROOT / word).exists():
                if not word.endswith(".ko"):
                    problems.append(f"{page.name}:{line}: the path {word} does not exist")
    return problems


def chapters():
    return {title for path in (ROOT / "spec").glob("*.rst") for title in sections(path.read_text(encoding="utf-8"))}


def chapter_problems(name, text, titles):
    """Checks that each chapter that a text names as 'chapter "TITLE"' exists."""
    named = re.findall(r'\bchapter "([^"]+)"', " ".join(text.split()))
    return [f'{name}: the manual has no chapter "{title}"' for title in named if title not in titles]


def option_problems(page, options):
    """Checks that the tools of this repository have the long options of a page's commands. Quoted text is another program's."""
    problems = []
    for command in page.commands:
        tool = next(iter(words_of(command.text)), "")
        for option in re.findall(r"(?<=\s)--[a-z][\w-]*", re.sub(r"'[^']*'|\"[^\"]*\"", "", command.text)):
            if tool in options and option not in options[tool] | {"--help"}:
                problems.append(f"{page.name}:{command.line}: {tool} has no option {option}")
    return problems


def span_problems(page, known, options, targets):
    """Checks commands in code spans. A span with arguments is valid if the table of commands contains it. Otherwise
    it must name only existing targets of make, or only options and words in capitals. An option exists if the help of a
    tool prints it."""
    problems = []
    for line, span in page.spans:
        words = words_of(span)
        if like_a_command(span) and span not in known:
            if words[0] == "make" and all(word in targets for word in words[1:]) or all(word.isupper() for word in words[1:]):
                continue
            unknown = [word.split("=")[0] for word in words[1:] if word.startswith("-") and word.split("=")[0] not in options.get(words[0], ())]
            given = [word for word in words[1:] if not word.startswith("-") and not word.strip("[].").isupper()]
            if words[0] == "make" or unknown or given:
                problems.append(f"{page.name}:{line}: add this command to tests/pages/commands.py: {span}")
        elif words and words[0].startswith("--"):
            option = words[0].split("=")[0]
            if not any(option in of_tool for of_tool in options.values()):
                problems.append(f"{page.name}:{line}: no tool has the option {option}")
    return problems
