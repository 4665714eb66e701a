# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# page.py: writes the manual as one HTML page. The program spec/generate calls page(). Docutils generates the text. This file
# adds collapsed contents beside the text, pictures inside the page, and scrolling boxes around tables and pictures. With
# these additions the page is legible on any screen. The contract is not used here, because the chapters are complete.

import html
import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
PART = re.compile(r"\.\. qrnic-part: (.+)$")
INCLUDE = re.compile(r"\.\. include:: (\S+)$")

# The page is also complete without the script, because the contents then stay collapsed.
OPEN_WHERE_THERE_IS_ROOM = """<script>
if (matchMedia("(min-width: 64rem)").matches)
  document.getElementById("contents").open = true;
</script>
"""


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def parts(folder):
    """Returns [(title, number of chapters)] of the parts of the manual, from the comments between the includes."""
    found = []
    for line in read(os.path.join(folder, "manual.rst")).split("\n"):
        if match := PART.match(line):
            found.append([match[1], 0])
        elif INCLUDE.match(line):
            if not found:
                raise ValueError(f"manual.rst: {line} is in no part")
            found[-1][1] += 1
    return found


def link(section):
    title = section.next_node(lambda node: node.tagname == "title")
    words = " ".join(title.astext().split())
    return f'<a href="#{section["ids"][0]}">{html.escape(words)}</a>'


def chapter(section):
    """Returns a line of the contents: a chapter, with its sections behind a summary that opens them."""
    inner = [link(node) for node in section.children if node.tagname == "section"]
    if not inner:
        return f"<li>{link(section)}</li>"
    items = "".join(f"<li>{line}</li>" for line in inner)
    return f"<li><details><summary>{link(section)}</summary><ul>{items}</ul></details></li>"


def contents(document, titles):
    """Returns the contents in three levels: part, chapter, section."""
    chapters = [chapter(node) for node in document.children if node.tagname == "section"]
    if len(chapters) != sum(count for _, count in titles):
        raise ValueError(f"manual.rst: {len(chapters)} chapters, but {titles} includes in parts")
    lines = []
    for title, count in titles:
        lines.append(f"<li><p>{html.escape(title)}</p><ul>\n" + "\n".join(chapters[:count]) + "\n</ul></li>")
        del chapters[:count]
    return ('<nav class="contents"><details id="contents"><summary>Contents</summary>\n<ul>\n' + "\n".join(lines) +
            "\n</ul></details></nav>\n" + OPEN_WHERE_THERE_IS_ROOM)


def inline(page, folder):
    """Returns the page with each picture in place of its reference, so that the page is one file."""
    def picture(match):
        name = re.search(r'src="((?:(?:figures|experiments)/)?[a-z0-9_-]+\.svg)"', match[0])
        path = os.path.join(folder, name[1]) if name else ""
        if not os.path.exists(path):
            return match[0]
        text = read(path)
        svg = text[text.index("<svg "):].replace("<svg ", '<svg class="figure" ', 1)
        return f'<div class="wide">{svg}</div>'
    return re.sub(r"<img [^>]*>", picture, page)


def page(folder):
    """Returns the whole manual as HTML. The chapters and pictures are in the folder."""
    from docutils.core import publish_doctree, publish_from_doctree
    master = os.path.join(folder, "manual.rst")
    settings = {"halt_level": 3, "input_encoding": "utf-8"}
    document = publish_doctree(read(master), source_path=master, settings_overrides=settings)
    text = publish_from_doctree(document, writer_name="html5", settings_overrides={
        "output_encoding": "unicode", "embed_stylesheet": True,
        "stylesheet_path": f"minimal.css,{os.path.join(HERE, 'page.css')}"})
    text = re.sub(r"<table.*?</table>", lambda match: f'<div class="wide">{match[0]}</div>', text, flags=re.S)
    text = re.sub(r"<body[^>]*>\n?", lambda match: match[0] + contents(document, parts(folder)), text, count=1)
    return inline(text.replace("charset=unicode", "charset=utf-8").replace('charset="unicode"', 'charset="utf-8"'), folder)
