"""Looks for other hosts: does the name resolve, does the control port answer, over the interface that we are to use?"""

import concurrent.futures
import contextlib
import socket
from collections.abc import Sequence

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
    nothing = "the resolver does not answer"
    return tuple(found.result() if found.done() else Reach(host=name, why=nothing) for name, found in tries.items())


def _look_for(cluster: Cluster, host: Host, port: int) -> Reach:
    try:
        found = socket.getaddrinfo(host.address, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Reach(host=host.name, why=getattr(error, "strerror", None) or str(error))
    family, kind, protocol, _, address = found[0]
    why = ""
    with socket.socket(family, kind, protocol) as probe:
        probe.settimeout(PATIENCE)
        own = cluster.me.address
        try:
            if own.startswith("127."):  # hosts that are simulated on this machine
                probe.bind((own, 0))
            elif cluster.interface:
                # Takes a right that a container may lack; then the system's routes decide.
                with contextlib.suppress(PermissionError):
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, cluster.interface.encode())
            probe.connect(address)
        except TimeoutError:
            why = f"port {port} does not answer within {PATIENCE:g} s"
        except OSError as error:
            why = f"port {port}: {error.strerror or error}"
    if why and cluster.interface:
        why += f" (over {cluster.interface})"
    return Reach(host=host.name, address=str(address[0]), why=why)
