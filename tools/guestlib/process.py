"""Processes that end with the launcher, and the sockets at which processes listen.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import ctypes
import os
import signal

PR_SET_PDEATHSIG = 1
LISTENS = "00010000"  # __SO_ACCEPTON in the flags of /proc/net/unix


def die_with(launcher):
    """Makes this child end with the launcher, even if SIGKILL ends the launcher. For preexec_fn."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != launcher:  # the launcher ended before prctl()
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def listens(path, pid):
    """Returns true if a socket of the process's network namespace accepts connections at the path. The file alone is no
    proof, because it exists before.
    """
    try:
        with open(f"/proc/{pid}/net/unix", encoding="utf-8", errors="replace") as sockets:
            return any(words[3] == LISTENS and words[-1] == str(path) for words in map(str.split, sockets))
    except OSError:
        return False
