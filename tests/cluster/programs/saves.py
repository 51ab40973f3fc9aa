"""Save at SIGTERM, for three seconds, and exit with 0."""

import os
import signal
import sys
import time
from pathlib import Path

rank = os.environ.get("OMPI_COMM_WORLD_RANK", "alone")
if rank != "alone":
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()


def save(number, frame):
    print(f"heard SIGTERM at {time.time():.3f}", flush=True)
    time.sleep(3)
    Path(os.environ["SM_MODEL_DIR"], f"{os.environ['SM_CURRENT_HOST']}-{rank}").write_text("saved")
    print("saved", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print("waiting", flush=True)
while True:
    time.sleep(0.1)
