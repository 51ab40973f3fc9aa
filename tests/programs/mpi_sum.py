"""Add 1 to a sum on every rank; write arguments and environment. --raise N: that rank raises instead."""

import json
import os
import sys
import time
from pathlib import Path

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(1)
keys = ("SM_CURRENT_HOST", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MINE", "OTHER", "NEW", "TMPDIR")
keys += ("PYTHONPATH",)
env = {key: os.environ.get(key) for key in (*keys, *(key for key in os.environ if key.endswith(("_THREADS", "_idle"))))}
told = {"rank": world.rank, "sum": total, "argv": sys.argv[1:], "env": env, "cpus": len(os.sched_getaffinity(0))}
with open(Path(os.environ["SM_OUTPUT_DATA_DIR"], f"rank-{world.rank}.json"), "w") as file:
    json.dump(told, file)
print(f"rank {world.rank} of {world.size}: sum {total}", flush=True)
action = next((word for word in sys.argv if word in ("--raise", "--exit", "--kill")), "")
if action and int(sys.argv[sys.argv.index(action) + 1]) == world.rank:
    time.sleep(0.5)
    if action == "--raise":
        raise ValueError(f"rank {world.rank} is unhappy")
    if action == "--exit":
        os._exit(7)
    if action == "--kill":
        os.kill(os.getpid(), 9)
world.barrier()
