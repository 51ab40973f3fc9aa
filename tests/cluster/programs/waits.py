"""Wait, without handlers for signals. Under MPI, wait between MPI_Init and MPI_Finalize."""

import os
import time

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI

    MPI.COMM_WORLD.Barrier()
print("waiting", flush=True)
time.sleep(3600)
