"""Parts of tools/bench.

SPDX-License-Identifier: GPL-2.0-or-later
"""
