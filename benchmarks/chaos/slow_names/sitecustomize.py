"""Slow down look-ups of names, like a failed name server, in processes with this folder on PYTHONPATH.

CHAOS_FOLDER/slow.json: [[number, host, from, to], ...] in seconds since 1970. A file slow-NUMBER shows that a look-up
was slowed. A look-up of an address is not slowed.
"""

import contextlib
import json
import os
import socket
import time

SECONDS = 2.5

try:
    with open(f"{os.environ['CHAOS_FOLDER']}/slow.json") as file:
        windows = json.load(file)
except (KeyError, OSError):
    windows = []
# ip-10-0-1-2.ec2.internal is algo-2. In the environment, as the launcher gives itself its name only later.
rank = os.environ.get("HOSTNAME", "").partition(".")[0].rpartition("-")[2]
windows = [(number, begin, end) for number, host, begin, end in windows if host == f"algo-{rank}"]
plain = socket.getaddrinfo


def slow(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    is_name = name and not name.replace(".", "").isdigit() and ":" not in name and name != "localhost"
    now = time.time()
    met = [number for number, begin, end in windows if is_name and begin <= now < end]
    for number in met:
        with contextlib.suppress(OSError), open(f"{os.environ['CHAOS_FOLDER']}/slow-{number}", "w"):
            pass
    if met:
        time.sleep(SECONDS)
    return plain(host, *rest, **more)


if windows:
    socket.getaddrinfo = slow
