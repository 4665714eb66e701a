# Configuration of Sphinx for the static site. tools/site copies this file and site.css into the source folder of a build.
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Each page must be complete without network: the theme has its own scripts and style, and all fonts are those of the
# browser. Sphinx 5 (Debian 12) and later versions accept this file.

import os

project = "qrnic"
html_title = "qrnic"
copyright = "the authors of qrnic"  # pylint: disable=redefined-builtin
version = release = os.environ.get("QRNIC_SITE_VERSION", "")

extensions = ["myst_parser"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
root_doc = "index"
exclude_patterns = ["spec/manual.rst"]
# GitHub gives each heading an anchor, and the Markdown files use these anchors.
myst_heading_anchors = 4
# Blocks are shown as they are, because Sphinx knows no language for them: a console block has output of programs.
highlight_language = "none"
# Wrong markup in highlighted blocks is no error, because the blocks are excerpts.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["extra"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "default"
smartquotes = False
