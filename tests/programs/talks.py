"""Exchange messages with the other processes of the job until an error, as training does.
This is the program of the root-cause tests. Processes are numbered: 0 is the coordinator's first.

--shape topology of messages: `ring`, `star` (all with number 0), `mpi` (an allreduce)
--deed fault of number --by, half a second after all are connected; --then NUMBER fails --gap seconds later
--manner reaction of the others
"""

import argparse
import contextlib
import json
import logging
import os
import socket
import sys
import time
from multiprocessing.connection import Client, Listener

PORT = 31000  # plus number
PATIENCE = 1.0  # seconds without a word after which the others are taken for gone
LONG = 600.0


def say(*words):
    print(*words, flush=True)


# --- who is there ---


def places():
    """Return (number of this process, host of each number)."""
    if "OMPI_COMM_WORLD_RANK" in os.environ:
        hosts, each = json.loads(os.environ["SM_HOSTS"]), int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
        total = int(os.environ["OMPI_COMM_WORLD_SIZE"])
        return int(os.environ["OMPI_COMM_WORLD_RANK"]), [hosts[number // each] for number in range(total)]
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        chief = cluster.get("chief", [])
        addresses = [*chief, *cluster.get("worker", [])]
        me = task["index"] + (len(chief) if task["type"] == "worker" else 0)
        return me, [address.rpartition(":")[0] for address in addresses]
    hosts = json.loads(os.environ["SM_HOSTS"])
    return hosts.index(os.environ["SM_CURRENT_HOST"]), hosts


def servers():
    """Return the addresses of the parameter servers."""
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    return [address.rpartition(":") for address in config.get("cluster", {}).get("ps", [])]


# --- talking ---


def reach(connect):
    """Repeat `connect()` until the other side accepts; return the result."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return connect()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Talk:
    """Connections to other processes, and rounds of messages over them."""

    def __init__(self, shape, me, hosts):
        self.me, self.connections = me, []
        self.servers = [reach(lambda a=a: socket.create_connection((a[0], int(a[2])))) for a in servers()]
        if shape == "mpi":
            return
        listener = Listener(("", PORT + me), backlog=64)
        last = len(hosts) - 1
        calls = {"ring": [(me + 1) % len(hosts)], "star": [0] if me else []}[shape]
        answers = {"ring": 1, "star": last if me == 0 else 0}[shape]
        self.calls = [reach(lambda n=n: Client((hosts[n], PORT + n))) for n in calls]
        self.answers = [listener.accept() for _ in range(answers)]
        self.connections = [*self.calls, *self.answers]

    def round(self, word):
        """Send a number, receive those of the others; return the largest."""
        for server in self.servers:
            server.settimeout(0.001)
            with contextlib.suppress(TimeoutError):
                if server.recv(1) == b"":
                    raise EOFError("a parameter server closed the connection")
        if not self.connections:
            return comm.allreduce(word, max)
        for connection in self.calls:
            connection.send(word)
        words = [self.hear(connection) for connection in self.answers]
        for connection in self.answers:
            connection.send(max([word, *words]))
        return max([word, *words, *[self.hear(connection) for connection in self.calls]])

    def hear(self, connection):
        if not connection.poll(PATIENCE):
            raise TimeoutError(f"no answer for {PATIENCE:g} s")
        return connection.recv()

    def close(self):
        for connection in self.connections:
            connection.close()


# --- what goes wrong ---


def raises():
    raise ValueError(f"the loss of number {me} is not a number")


def aborts():
    os.abort()


def closes_first():
    """Close connections before the traceback is printed, as programs with a clean-up do, so that others fail first."""
    try:
        raises()
    finally:
        talk.close()
        time.sleep(0.15)


def misses_a_service():
    """Raise a root cause that looks like a symptom."""
    socket.create_connection(("127.0.0.1", 9))


DEEDS = {deed.__name__: deed for deed in (raises, aborts, closes_first, misses_a_service)}


# --- what the others do ---


def raise_it(error):
    raise error


def log_it(error):
    logging.exception("lost a peer")
    sys.exit(1)


def wrap_it(error):
    raise RuntimeError("training cannot go on") from error


def say_it(error):
    say(f"error: lost a peer: {error!r}")
    sys.exit(5)


def wait(error):
    time.sleep(LONG)


MANNERS = {"raises": raise_it, "logs": log_it, "wraps": wrap_it, "says": say_it, "waits": wait}


parser = argparse.ArgumentParser()
parser.add_argument("--shape", default="star")
parser.add_argument("--deed", default="")
parser.add_argument("--by", type=int, default=-1)
parser.add_argument("--then", type=int, default=-1)
parser.add_argument("--gap", type=float, default=0.0)
parser.add_argument("--manner", default="raises")
args = parser.parse_args()

if "OMPI_COMM_WORLD_RANK" in os.environ:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
me, hosts = places()
talk = Talk(args.shape, me, hosts)
act_at, rounds = 0.0, 0


while True:
    try:
        act_at = talk.round(act_at)
    except Exception as error:
        if me == args.then:  # it fails of itself, whatever it hears of the others by then
            time.sleep(max(0.0, act_at + args.gap - time.time()))
            say(f"acts at {time.time():.4f}")
            raise KeyError(f"number {me} has no such key") from None
        MANNERS[args.manner](error)
    rounds += 1
    if rounds == 20:
        say("talks")
        if me == 0:
            say("all talk")
            act_at = time.time() + 0.5
    if act_at and me == args.by and time.time() >= act_at:
        say(f"acts at {time.time():.4f}")
        DEEDS[args.deed]()
    time.sleep(0.005)
