"""Looks for other hosts: does the name resolve, does the control port answer, over the interface that we are to use?"""

import concurrent.futures
import contextlib
import socket
from collections.abc import Sequence
from typing import Any

from entrypoint.cluster import Cluster, Host
from entrypoint.events import Reach

TRIES_AT_ONCE = 64
PATIENCE = 3.0  # seconds for one connection
RESOLVING = 5.0  # seconds after which a resolver that says nothing is not waited for


def look_for(cluster: Cluster, names: Sequence[str], control_port: int) -> tuple[Reach, ...]:
    """What came of looking for each of these hosts, side by side. Blocks for some seconds where one is missing."""
    wanted = [host for host in cluster.hosts if host.name in set(names)]
    pool = concurrent.futures.ThreadPoolExecutor(min(TRIES_AT_ONCE, max(1, len(wanted))), thread_name_prefix="reach")
    tries = {host.name: pool.submit(_look_for, cluster, host, host.port(control_port)) for host in wanted}
    concurrent.futures.wait(tries.values(), timeout=RESOLVING + PATIENCE)
    pool.shutdown(wait=False, cancel_futures=True)
    return tuple(_came_of(host.name, tries[host.name]) for host in wanted)


def _came_of(name: str, attempt: "concurrent.futures.Future[Reach]") -> Reach:
    if not attempt.done() or attempt.cancelled():
        return Reach(host=name, why="there was no time to look, or the resolver does not answer")
    error = attempt.exception()
    return Reach(host=name, why=f"{type(error).__name__}: {error}") if error else attempt.result()


def _look_for(cluster: Cluster, host: Host, port: int) -> Reach:
    try:
        found = socket.getaddrinfo(host.address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Reach(host=host.name, why=getattr(error, "strerror", None) or str(error))
    why = first = ""
    for family, kind, protocol, _, address in found:
        why = _try_to_connect(cluster, (family, kind, protocol), address, port)
        first = first or str(address[0])
        if not why:
            return Reach(host=host.name, address=str(address[0]))
    return Reach(host=host.name, address=first, why=why + (f" (over {cluster.interface})" if cluster.interface else ""))


def _try_to_connect(cluster: Cluster, way: tuple[int, int, int], address: Any, port: int) -> str:
    """Why there is no connection; empty if there is one."""
    own = cluster.me.address
    try:
        with socket.socket(*way) as probe:
            probe.settimeout(PATIENCE)
            if own.startswith("127."):  # hosts that are simulated on this machine
                probe.bind((own, 0))
            elif cluster.interface:
                # Takes a right that a container may lack, and a kernel that knows it; else the system's routes decide.
                with contextlib.suppress(OSError):
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, cluster.interface.encode())
            probe.connect(address)
    except TimeoutError:
        return f"port {port} does not answer within {PATIENCE:g} s"
    except OSError as error:
        return f"port {port}: {error.strerror or error}"
    return ""
