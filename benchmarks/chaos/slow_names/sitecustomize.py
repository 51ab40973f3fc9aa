"""Name look-ups that take their time, as when a name server is out: in processes that find this on PYTHONPATH.

CHAOS_FOLDER/slow.json: [[host, from, to], ...] in seconds since 1970. An address is no look-up.
"""

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
rank = socket.gethostname().partition(".")[0].rpartition("-")[2]  # ip-10-0-1-2.ec2.internal is algo-2
windows = [(begin, end) for host, begin, end in windows if host == f"algo-{rank}"]
plain = socket.getaddrinfo


def slow(host, *rest, **more):
    name = host.decode() if isinstance(host, bytes) else host
    is_name = name and not name.replace(".", "").isdigit() and ":" not in name and name != "localhost"
    if is_name and any(begin <= time.time() < end for begin, end in windows):
        time.sleep(SECONDS)
    return plain(host, *rest, **more)


if windows:
    socket.getaddrinfo = slow
