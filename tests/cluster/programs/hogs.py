"""Take memory on one host until the kernel intervenes; wait on the others."""

import argparse
import os
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--on", required=True)
arguments, _ = parser.parse_known_args()
print("waiting", flush=True)
taken = []
if os.environ["SM_CURRENT_HOST"] == arguments.on and os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0") == "0":
    # The test sets it when the container is up. Version 2 of cgroups has the first file, version 1 the other.
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        limit = Path("/sys/fs/cgroup", name)
        while limit.exists() and (limit.read_text() == "max\n" or int(limit.read_text()) > 1 << 40):
            time.sleep(0.1)
    while True:
        taken.append(bytes(range(256)) * (1 << 17))  # 32 MiB of pages that are not zero
time.sleep(600)
