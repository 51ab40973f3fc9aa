"""Ignore SIGTERM and sleep."""

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("asleep", flush=True)
while True:
    time.sleep(600)
