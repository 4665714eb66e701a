"""Children that do not outlive the launcher.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1


def die_with(launcher):
    """For preexec_fn: even a launcher that is killed by SIGKILL leaves no child behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # it died before the kernel knew what to do then
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
