# SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#
# manual.py: fills the tables of the Programmer's Reference.


class ManualError(Exception):
    """A chapter is wrong; the text is one line that names the place."""


def chapters(spec, root):
    return {}
