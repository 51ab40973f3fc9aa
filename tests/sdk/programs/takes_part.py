"""Show that this process belongs to the job: add up a number over all ranks, or reach every parameter server."""

import json
import os
import socket
import time

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI

    print("added up to", MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1), flush=True)
else:
    servers = json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"]
    for server in servers:
        host, _, port = server.rpartition(":")
        while True:
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
                break
            except OSError:
                time.sleep(0.05)
    print("reached", len(servers), "parameter servers", flush=True)
