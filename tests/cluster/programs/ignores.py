"""Ignore SIGTERM."""

import signal
import time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("waiting", flush=True)
time.sleep(3600)
