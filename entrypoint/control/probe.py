"""Looks for other hosts: does the name resolve, does the control port answer, over the interface that we are to use?

All are looked for side by side, by no more threads than TRIES_AT_ONCE: there are up to a thousand hosts.
"""

import concurrent.futures
import contextlib
import socket
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from entrypoint.job.cluster import Cluster, Host
from entrypoint.policy.events import Reach

TRIES_AT_ONCE = 64
PATIENCE = 3.0  # seconds for one connection
RESOLVING = 5.0  # seconds after which a resolver that says nothing is not waited for

Way = tuple[Any, ...]  # as getaddrinfo gives it: family, kind, protocol, name, address


def look_for(cluster: Cluster, names: Sequence[str], control_port: int) -> tuple[Reach, ...]:
    """Tell what came of looking for each of these hosts, side by side. Blocks for seconds where one is missing."""
    asked = set(names)
    wanted = [host for host in cluster.hosts if host.name in asked]
    resolvers = ThreadPoolExecutor(TRIES_AT_ONCE, thread_name_prefix="resolve")
    ways = [
        resolvers.submit(socket.getaddrinfo, host.address, host.port(control_port), type=socket.SOCK_STREAM)
        for host in wanted
    ]
    concurrent.futures.wait(ways, timeout=RESOLVING)
    resolvers.shutdown(wait=False, cancel_futures=True)
    with ThreadPoolExecutor(TRIES_AT_ONCE, thread_name_prefix="reach") as pool:
        return tuple(pool.map(lambda host, found: _reach(cluster, host, found, control_port), wanted, ways))


def _reach(cluster: Cluster, host: Host, ways: "Future[list[Way]]", control_port: int) -> Reach:
    """Connect to a host, in the first of its ways that works."""
    if not ways.done() or ways.cancelled():
        return Reach(host=host.name, why="there was no time to look, or the resolver does not answer")
    if error := ways.exception():
        return Reach(host=host.name, why=getattr(error, "strerror", None) or str(error))
    port, why = host.port(control_port), ""
    for *kind, _, address in ways.result():
        try:
            _connect(cluster, kind, address)
            return Reach(host=host.name, address=str(address[0]))
        except TimeoutError:
            why = f"port {port} does not answer within {PATIENCE:g} s"
        except OSError as problem:
            why = f"port {port}: {problem.strerror or problem}"
    over = f" (over {cluster.interface})" if cluster.interface else ""
    return Reach(host=host.name, address=str(ways.result()[0][4][0]), why=why + over)


def _connect(cluster: Cluster, kind: Sequence[Any], address: Any) -> None:
    own = cluster.me.address
    with socket.socket(*kind) as probe:
        probe.settimeout(PATIENCE)
        if own.startswith("127."):  # hosts that are simulated on this machine
            probe.bind((own, 0))
        elif cluster.interface:
            # Takes a right that a container may lack, and a kernel that knows it; else the system's routes decide.
            with contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, cluster.interface.encode())
        probe.connect(address)
