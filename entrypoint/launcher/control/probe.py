"""Check, many at once, that hosts' names resolve and that their control ports answer over the job's interface."""

import concurrent.futures
import contextlib
import os
import socket
from collections.abc import Sequence

from entrypoint.launcher.control.client import NEXT_SECONDS
from entrypoint.launcher.control.names import is_here, resolve
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.policy.events import Reach

AT_ONCE = 64
PATIENCE_SECONDS = 3.0  # for one address of a host, in attempts of NEXT_SECONDS and more: packets may be lost
RESOLVING_SECONDS = 5.0  # seconds after which a resolver that does not answer is given up


def look_for(cluster: Cluster, names: Sequence[str], control_port: int) -> tuple[Reach, ...]:
    """Return the result of looking for each of these hosts. It blocks for seconds if one is missing."""
    asked = set(names)
    wanted = [host for host in cluster.hosts if host.name in asked]
    threads = concurrent.futures.ThreadPoolExecutor(AT_ONCE, thread_name_prefix="probe")
    looks = [threads.submit(_reach, cluster, host, host.port(control_port)) for host in wanted]
    # Silent hosts take their time, AT_ONCE of them together; only a resolver may take longer.
    concurrent.futures.wait(looks, RESOLVING_SECONDS + PATIENCE_SECONDS * (1 + len(wanted) / AT_ONCE))
    threads.shutdown(wait=False, cancel_futures=True)
    late = "the name was not resolved in time"
    done = [(look.done() and not look.cancelled() and look.result()) for look in looks]
    return tuple(found or Reach(host=host.name, why=late) for host, found in zip(wanted, done, strict=True))


def _reach(cluster: Cluster, host: Host, port: int) -> Reach:
    """Connect to the first address that works. Each attempt waits twice as long, as in client.py."""
    try:
        found = resolve(host.address)
    except OSError as error:
        return Reach(host=host.name, why=error.strerror or str(error))
    if cluster.is_elsewhere(host) and all(map(is_here, found)):
        return Reach(host=host.name, address=found[0], why="which is this host")
    why = ""
    for address in found:
        left, patience = PATIENCE_SECONDS, NEXT_SECONDS
        while left > 0:
            try:
                with _from_here(cluster, address) as probe:
                    probe.settimeout(min(patience, left))
                    probe.connect((address, port))
                return Reach(host=host.name, address=address)
            except TimeoutError:
                left, patience = left - patience, 2 * patience
                why = f"port {port} does not answer within {PATIENCE_SECONDS:g} s"
            except OSError as error:
                why = f"port {port}: {os.strerror(error.errno or 0)}"
                break
    over = f" (over {cluster.interface})" if cluster.interface else ""
    return Reach(host=host.name, address=found[0], why=why + over)


def _from_here(cluster: Cluster, address: str) -> socket.socket:
    own = cluster.me.address
    probe = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    if own.startswith("127."):  # hosts that are simulated on this machine
        probe.bind((own, 0))
    elif cluster.interface:
        # It needs a right that a container may lack, and a kernel that can; else the system's routes decide.
        with contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, cluster.interface.encode())
    return probe
