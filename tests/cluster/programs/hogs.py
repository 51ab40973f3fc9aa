"""On one host, takes memory until the kernel intervenes; on the others, waits."""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--on", required=True)
arguments, _ = parser.parse_known_args()
print("waiting", flush=True)
taken = []
if os.environ["SM_CURRENT_HOST"] == arguments.on and os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0") == "0":
    time.sleep(3)  # for the limit to be there
    while True:
        taken.append(bytes(range(256)) * (1 << 17))  # 32 MiB of pages that are not zero
time.sleep(600)
