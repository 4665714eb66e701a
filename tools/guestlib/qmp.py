"""One QMP command on the monitor of a QEMU.

SPDX-License-Identifier: GPL-2.0-or-later
"""

import json
import socket

SECONDS = 10


def execute(path, command):
    """Runs one command; returns "ok RESULT" or "error RESULT" on one line."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(SECONDS)
        try:
            connection.connect(path)
            stream = connection.makefile("rw", encoding="utf-8")
            stream.readline()
            for request in ({"execute": "qmp_capabilities"}, command):
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                reply = json.loads(stream.readline())
                while "event" in reply:
                    reply = json.loads(stream.readline())
        except (OSError, ValueError) as error:
            return f"error {error}"
    if "error" in reply:
        return "error " + json.dumps(reply["error"])
    return "ok " + json.dumps(reply["return"])
