"""Save for two seconds at SIGTERM, which needs the parameter servers all the time."""

import json
import os
import signal
import socket
import sys
import time

cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]


def answers(address):
    host, port = address.rsplit(":", 1)
    socket.create_connection((host, int(port)), timeout=5).close()


def save(*_):
    print("saving", flush=True)
    until = time.monotonic() + 2
    while time.monotonic() < until:
        for address in cluster["ps"]:
            answers(address)
        time.sleep(0.05)
    print("saved", flush=True)
    sys.exit(0)


while True:  # parameter servers take longer to start than we do
    try:
        for address in cluster["ps"]:
            answers(address)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
signal.signal(signal.SIGTERM, save)
print("asleep", flush=True)
while True:
    time.sleep(600)
