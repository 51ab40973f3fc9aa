"""Make orphans that end at once, and wait until they have been reaped."""

import os
import sys
import time
from pathlib import Path

pids = []
for _ in range(20):
    reader, writer = os.pipe()
    if os.fork() == 0:
        pid = os.fork()  # its parent ends first: it is adopted by the supervisor
        if pid:
            os.write(writer, str(pid).encode())
            os._exit(0)
        time.sleep(0.2)
        os._exit(0)
    os.wait()
    pids.append(int(os.read(reader, 20)))
deadline = time.monotonic() + 60
while time.monotonic() < deadline and any(Path(f"/proc/{pid}").exists() for pid in pids):
    time.sleep(0.05)
left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
sys.exit(f"not reaped: {left}" if left else 0)
