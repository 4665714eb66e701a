"""Processes that end with the launcher.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with(launcher):
    """Makes this child end with the launcher, even if SIGKILL ends the launcher. For preexec_fn."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # the launcher ended before prctl()
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
