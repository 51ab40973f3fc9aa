"""Raise an exception on the host --on; wait for ever on the others."""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--on")
on = parser.parse_args().on

print("here", flush=True)
if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()  # the ranks that wait then do so in the middle of MPI
else:
    time.sleep(2)  # the scripts of the other hosts are there by then
if os.environ["SM_CURRENT_HOST"] == on:
    print(f"raises at {time.time():.3f}", flush=True)
    raise ValueError(f"row 17 of {on} has no label")
if "OMPI_COMM_WORLD_RANK" in os.environ:
    MPI.COMM_WORLD.Barrier()
time.sleep(3600)
