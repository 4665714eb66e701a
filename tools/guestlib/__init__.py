"""The guest launcher: command line (cli), topology, one guest (guest), a run (run).

SPDX-License-Identifier: GPL-2.0-or-later
"""
