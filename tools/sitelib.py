"""Prepares the sources of the static site: copies the pages of the tree and makes their links valid. tools/site calls
stage(), then runs Sphinx.

Order: the manual comes from spec/generate --manual, which also serves the manual as one page. Then Markdown files are
copied with their paths, and man pages are translated by pandoc. sections() then knows each section of the manual, so
that references by title and links to a chapter become labels of Sphinx. A link to a file that is no page leads to a page
with the text of this file. The last step adds the navigation to the start page, which is README.md.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import html
import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "spec" / "lib"))
import page as manual_page  # noqa: E402

ADORNMENT = re.compile(r"([=\-~^\"'.])\1{2,}")
REFERENCE = re.compile(r"(?<![`:])`([^`<>]+)`_(?![_`])")
WORD_REFERENCE = re.compile(r"(?<![\w`.:/-])([A-Z]\w*[a-z0-9])_(?![\w`])")
MARKDOWN_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
FIGURE = re.compile(r"^( *)\.\. (figure|image):: (\S+\.svg)$", re.M)
LANGUAGES = {".c": "c", ".h": "c", ".py": "python", ".sh": "bash", ".yml": "yaml", ".yaml": "yaml", ".xml": "xml"}
# Pages beside docs/use and labs
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "tests/README.md", "tools/README.md")
LEAD = ("tour", "install", "guests")
LABS, ANSWERS = "labs/README.md", "labs/solutions/"
MAN = ("packaging/man", "guest-provider/man")


# Sources of slides, and their places in the site
LECTURES = {f"labs/guide/{path.name}": f"slides/{path.stem}.html" for path in sorted((ROOT / "labs/guide").glob("*.markdown"))}


class SiteError(Exception):
    """Reports an input that cannot become a page; the text is one line."""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def read(path):
    return path.read_text(encoding="utf-8")


def run(argv, reason):
    done = subprocess.run([str(word) for word in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SiteError(f"{reason}: {(done.stderr or done.stdout).strip().splitlines()[-1:] or ['no message']}")
    return done.stdout


def slug(title):
    """Returns the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).strip().replace(" ", "-")


def label(chapter, title):
    return f"{chapter}--{slug(title)}"


def sections(text):
    """Returns [(line number, title, is the first)] of the sections of a chapter. A title that repeats belongs to the first one."""
    lines, found, seen = text.split("\n"), [], set()
    for number in range(1, len(lines)):
        title, rule = lines[number - 1], lines[number]
        if title.strip() and not title[0].isspace() and ADORNMENT.fullmatch(rule) and len(rule) >= len(title) and not ADORNMENT.fullmatch(title) and title not in seen:
            found.append((number - 1, title, not found))
            seen.add(title)
    return found


class Manual:
    """The chapters of the manual as pages of their own."""

    def __init__(self, folder):
        self.folder = folder
        self.chapters = {path.stem: read(path) for path in sorted(folder.glob("*.rst")) if path.stem != "manual"}
        self.labels = {}
        for name, text in self.chapters.items():
            for _, title, first in sections(text):
                # A title in several chapters belongs to the first one, except that a chapter's own section has priority.
                self.labels.setdefault(title, label(name, title))
                if first:
                    self.labels[title] = label(name, title)

    def target(self, name, anchor):
        """Returns the label of a link of Markdown to a chapter or its section."""
        if name == "manual":
            return "manual"
        for _, title, first in sections(self.chapters.get(name, "")):
            if (first and not anchor) or slug(title) == anchor:
                return label(name, title)
        raise SiteError(f"no section {anchor or 'at all'} in spec/{name}.rst")

    def own_titles(self, name):
        return {title: label(name, title) for _, title, _ in sections(self.chapters[name])}

    def chapter(self, name):
        """Returns a chapter with labels, references by label, and each picture as a figure, which scrolls."""
        titles = {**self.labels, **self.own_titles(name)}
        lines = self.chapters[name].split("\n")
        for number, title, _ in reversed(sections(self.chapters[name])):
            lines[number:number] = [f".. _{label(name, title)}:", ""]
        text = "\n".join(lines)

        def reference(match):
            title = " ".join(match[1].split())
            return f":ref:`{title} <{titles[title]}>`" if title in titles else match[0]
        text = REFERENCE.sub(reference, text)
        text = WORD_REFERENCE.sub(lambda match: f":ref:`{match[1]} <{titles[match[1]]}>`" if match[1] in titles else match[0], text)
        return FIGURE.sub(lambda match: f"{match[1]}.. figure:: {match[3]}\n{match[1]}   :class: drawing", text)

    def parts(self):
        """Returns [(title of a part, [names of its chapters])]."""
        names = [match[1] for match in re.finditer(r"^\.\. include:: (\S+)\.rst$", read(self.folder / "manual.rst"), re.M)]
        found = []
        for title, count in manual_page.parts(str(self.folder)):
            found.append((title, names[:count]))
            del names[:count]
        return found

    def introduction(self):
        """Returns the text before the first part, with its title and without the directives of the single page."""
        text = read(self.folder / "manual.rst").split(".. qrnic-part:")[0]
        text = re.sub(r"^\.\. sectnum::\n(   .*\n)*", "", text, flags=re.M)
        text = REFERENCE.sub(lambda match: f":ref:`{' '.join(match[1].split())} <{self.labels[' '.join(match[1].split())]}>`", text)
        return text.replace("====================================\nThe qrnic", ".. _manual:\n\n====================================\nThe qrnic", 1)


class Pages:
    """The Markdown files of the tree, and the files that they name."""

    def __init__(self, out, manual):
        self.out, self.manual = out, manual
        labs = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "labs").rglob("*.md"))
        uses = sorted((path.stem for path in (ROOT / "docs/use").glob("*.md")), key=lambda name: (LEAD.index(name) if name in LEAD else len(LEAD), name))
        # The list of labs, then each lab by its number, then the rest. The navigation has no answers, because students read it.
        self.labs = [LABS, *(name for name in labs if name != LABS and not name.startswith(ANSWERS))]
        self.uses = [f"docs/use/{name}.md" for name in uses]
        self.names = ["README.md", *self.uses, *labs, *PROJECT, "examples/README.md"]
        self.files = set()

    def link(self, name, words, href):
        """Returns a link of Markdown in the form that MyST resolves on the site."""
        path, _, anchor = href.partition("#")
        if re.match(r"[a-z]+:", href) or not path:
            return f"[{words}]({href})"
        target = os.path.normpath(os.path.join(os.path.dirname(name), path))
        if target == "README.md":
            return f"[{words}]({os.path.relpath('index.md', os.path.dirname(name) or '.')})"
        if target in self.names:
            return f"[{words}]({href})"
        if target.startswith("spec/") and target.endswith(".rst"):
            return f"[{words}]({self.manual.target(Path(target).stem, anchor)})"
        if target in LECTURES:
            return f'<a href="{os.path.relpath(LECTURES[target], os.path.dirname(name) or ".")}">{html.escape(words)}</a>'
        if not (ROOT / target).is_file():
            raise SiteError(f"{name}: link to {href}, which is no file of the tree")
        self.files.add(target)
        return f"[{words}]({os.path.relpath('files/' + target + '.md', os.path.dirname(name) or '.')})"

    def page(self, name):
        """Returns a Markdown file with valid links; blocks of code are copied as they are."""
        parts = re.split(r"(^```.*?^```$)", read(ROOT / name), flags=re.M | re.S)
        for number in range(0, len(parts), 2):
            parts[number] = MARKDOWN_LINK.sub(lambda match: self.link(name, match[1], match[2]), parts[number])
        return ("---\norphan: true\n---\n\n" if name.startswith(ANSWERS) else "") + "".join(parts)

    def write(self):
        for name in self.names:
            write(self.out / ("index.md" if name == "README.md" else name), self.page(name))
            # Pictures beside a page, for example of a lab
            for picture in re.findall(r"!\[[^\]]*\]\(([^)\s:]+)\)", read(ROOT / name)):
                source = ROOT / os.path.dirname(name) / picture
                if not source.is_file():
                    raise SiteError(f"{name}: no picture {picture}")
                target = self.out / os.path.normpath(os.path.join(os.path.dirname(name), picture))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
        for name in sorted(self.files):
            language = LANGUAGES.get(Path(name).suffix, "text")
            text = read(ROOT / name)
            fence = "`" * 4
            write(self.out / "files" / f"{name}.md", f"---\norphan: true\n---\n\n# {name}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n")


def man_pages(out):
    """Writes each man page as a page; returns their names."""
    names = []
    for path in sorted((path for folder in MAN for path in (ROOT / folder).glob("*.[1-9]")), key=lambda path: path.name):
        # A page that only names another page is a link of man, not a text.
        if read(path).startswith(".so "):
            continue
        text = run(["pandoc", "-f", "man", "-t", "rst", "--wrap=none", path], f"pandoc cannot read {path.name}")
        title = f"{path.stem}({path.suffix[1:]})"
        text = re.sub(r"^(NAME|SYNOPSIS|DESCRIPTION)\n=+$", lambda match: match[1] + "\n" + "=" * len(match[1]), text, flags=re.M)
        rule = "#" * len(title)
        write(out / "man" / f"{path.name}.rst", f"{rule}\n{title}\n{rule}\n\n{text}")
        names.append(path.name)
    return names


def gallery(out, manual):
    """Writes the page with all drawings of the manual and pictures of the experiments."""
    text = ["# Pictures\n", "All drawings of the manual, and the results of the [experiments](experiments--experiments). A picture leads to its chapter.\n"]
    entries = {"figures": [], "experiments": []}
    for _, names in manual.parts():
        for name in names:
            source = manual.chapters[name]
            for match in FIGURE.finditer(source):
                folder = match[3].split("/", maxsplit=1)[0]
                if match[2] == "figure" and folder in entries:
                    title = re.search(r"<title>(.*?)</title>", read(manual.folder / match[3]))
                    words = html.unescape(title[1]) if title else Path(match[3]).stem
                    entries[folder].append(f'<figure><a href="spec/{name}.html"><img src="_static/pictures/{match[3]}" alt="{html.escape(words)}" loading="lazy"></a>'
                                           f"<figcaption>{html.escape(words)}</figcaption></figure>")
                    target = out / "_static" / "pictures" / match[3]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(manual.folder / match[3], target)
    for folder, title in (("figures", "Drawings and sequence charts"), ("experiments", "Results of experiments")):
        text.append(f"## {title}\n\n" + '<div class="gallery">\n' + "\n".join(entries[folder]) + "\n</div>\n")
    write(out / "pictures.md", "\n".join(text))


def slides(out):
    """Makes the slides of the lectures, and a page that lists them in the order of labs/guide/slides."""
    loader = importlib.machinery.SourceFileLoader("guide_slides", str(ROOT / "labs/guide/slides"))
    maker = importlib.util.module_from_spec(importlib.util.spec_from_loader("guide_slides", loader))
    loader.exec_module(maker)
    lines = ["# Slides", "", "Slides of three lectures for the [labs](labs/README.md). The [instructor's guide](labs/guide/README.md) has the plans.", ""]
    for name in maker.LECTURES:
        source, place = ROOT / "labs/guide" / f"{name}.markdown", LECTURES[f"labs/guide/{name}.markdown"]
        (out / "extra" / place).parent.mkdir(parents=True, exist_ok=True)
        try:
            maker.make(source, out / "extra" / place)
        except maker.SlideError as error:
            raise SiteError(str(error).splitlines()[0]) from None
        title, subtitle = re.findall(r'^(?:title|subtitle): "(.*)"$', read(source), re.M)
        lines.append(f'- <a href="{place}">{html.escape(title)}</a>: {html.escape(subtitle)}')
    lines += ["", "In the browser the right arrow shows the next slide, `n` the notes, `f` the full screen. Printing adds the notes. A window of at most 700 pixels",
              "shows all slides and their notes as one page."]
    write(out / "slides.md", "\n".join(lines) + "\n")


def trend(out, folder):
    """Writes the page of the bench's trend, and runs tools/trend if there are results."""
    text = "# Trend of the bench\n\nThe bench compares qrnic with Soft-RoCE ([Measure](docs/use/measure.md)). "
    if folder:
        (out / "extra").mkdir(exist_ok=True)
        if folder.is_file():
            shutil.copyfile(folder, out / "extra" / "trend.html")
        else:
            run([ROOT / "tools" / "trend", folder, "--out", out / "extra" / "trend.html"], "tools/trend failed")
        text += 'The <a href="trend.html">trend page</a> has a plot of each ratio over the commits.\n'
    else:
        text += ("This copy of the site was made without results, so that it has no plots. `make site TREND=DIR` adds the plots of the results in "
                 "`DIR`, and the workflow of main uses all results of its branch.\n")
    write(out / "bench-trend.md", text)


def toctree(caption, names):
    lines = "\n".join(re.sub(r"\.(md|rst)$", "", name) for name in names)
    return f"\n```{{toctree}}\n:caption: \"{caption}\"\n:maxdepth: 1\n:hidden:\n\n{lines}\n```\n"


def navigation(out, manual, pages, man):
    """Adds the navigation to the start page, which is the README."""
    text = [toctree("Use", pages.uses), toctree("Labs", [*pages.labs, "slides"])]
    text += [toctree("Examples and results", ["examples/README", "pictures", "bench-trend"]), toctree("Manual", ["spec/index"])]
    text += [toctree(f"Manual: {title}", [f"spec/{name}" for name in names]) for title, names in manual.parts()]
    # The ending of a man page is a part of its name.
    text += [toctree("Man pages", [f"man/{name}.rst" for name in man]), toctree("Project", PROJECT)]
    write(out / "index.md", read(out / "index.md") + "".join(text))


def stage(out, results=None):
    """Writes all sources of the site into the folder; results: a folder with results of the bench, a page of tools/trend, or None."""
    run(["/usr/bin/python3", ROOT / "spec" / "generate", "--check", "--manual", out / "spec"], "the manual is not fresh, run spec/generate")
    manual = Manual(out / "spec")
    for name in manual.chapters:
        write(out / "spec" / f"{name}.rst", manual.chapter(name))
    write(out / "spec" / "index.rst", manual.introduction())
    (out / "_static").mkdir()
    (out / "extra").mkdir()
    shutil.copyfile(ROOT / "docs" / "site" / "site.css", out / "_static" / "site.css")
    shutil.copyfile(ROOT / "docs" / "site" / "conf.py", out / "conf.py")
    pages = Pages(out, manual)
    pages.write()
    man = man_pages(out)
    gallery(out, manual)
    slides(out)
    trend(out, results)
    navigation(out, manual, pages, man)


def repair_theme(pages):
    """Makes the files of the theme complete, because Debian's package has them in parts.

    The package leaves out the build of the scripts, and the colours for a dark browser. The style names a file of the web
    server. A module cannot be loaded from a file, either, so that the script and its part become one plain script. A
    complete theme is not changed.
    """
    style, script = pages / "_static/styles/furo.css", pages / "_static/scripts/furo.js"
    base = Path("/usr/share/javascript/normalize.css/normalize.css")
    text = read(style)
    for match in re.findall(r"@import url\(/javascript/[^)]*\);", text):
        text = text.replace(match, read(base))
    # The colours for a dark scheme of the browser are those of the dark theme.
    if "prefers-color-scheme" not in text and (dark := re.search(r'body\[data-theme="dark"\] \{([^}]*)\}', text)):
        text += f'\n@media screen and (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {{{dark[1]}}} }}\n'
    write(style, text)
    text = read(script)
    if match := re.match(r'import Gumshoe from "\./(gumshoe-patched\.js)";\n', text):
        part = read(script.with_name(match[1]))
        write(script, f"{part}\n(function () {{\n{text[match.end():]}\n}})();\n")
