"""Run instance groups without TensorFlow: a task reaches its parameter servers, a rank the other ranks and the data.

Outside the distribution it serves the data, as workers of `tf.data` service do, and never ends by itself.
"""

import http.server
import json
import os
import socket
import time
import urllib.request
from pathlib import Path

PORT = 8500


def until_there(attempt):
    """Call `attempt` until the name resolves and the connection is accepted; return its result."""
    while True:
        try:
            return attempt()
        except OSError:
            time.sleep(0.05)


def reached(address: str) -> str:
    host, _, port = address.rpartition(":")
    until_there(lambda: socket.create_connection((host, int(port)), timeout=5)).close()
    return address


def rows() -> str:
    (server,) = json.loads(os.environ["SM_INSTANCE_GROUPS_DICT"])["data"]["hosts"]
    return until_there(lambda: urllib.request.urlopen(f"http://{server}:{PORT}", timeout=5).read()).decode()


def tell(name: str, **facts: object) -> None:
    text = json.dumps({"group": os.environ["SM_CURRENT_INSTANCE_GROUP"], **facts})
    Path(os.environ["SM_OUTPUT_DATA_DIR"], f"{name}.json").write_text(text)


class Data(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"seven rows")


if "TF_CONFIG" in os.environ:
    config = json.loads(os.environ["TF_CONFIG"])
    tell("task", task=config["task"], servers=[reached(address) for address in config["cluster"]["ps"]])
elif "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    tell(f"rank-{world.rank}", sum=world.allreduce(world.rank + 1), rows=rows())
else:
    print("serving", flush=True)
    http.server.ThreadingHTTPServer(("", PORT), Data).serve_forever()
