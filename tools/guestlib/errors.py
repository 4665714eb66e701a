"""Errors that end a run with one line for the user, and the exit statuses of the launcher.

SPDX-License-Identifier: GPL-2.0-or-later
"""

EXIT_USAGE = 2
EXIT_STRICT = 123
EXIT_TIMEOUT = 124
EXIT_LAUNCH = 125


class LaunchError(Exception):
    """A run cannot go on for a reason outside the job; `status` becomes the exit status."""

    def __init__(self, message, status=EXIT_LAUNCH):
        super().__init__(message)
        self.status = status
