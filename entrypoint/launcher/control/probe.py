"""Check, many at once, that hosts' names resolve and that their control ports answer over the job's interface."""

import concurrent.futures
import contextlib
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import EINPROGRESS
from typing import Any

from entrypoint.launcher.control.client import NEXT_SECONDS
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.policy.events import Reach

AT_ONCE = 64
PATIENCE_SECONDS = 3.0  # for one address of a host, in attempts of NEXT_SECONDS and more: packets may be lost
RESOLVING_SECONDS = 5.0  # seconds after which a resolver that does not answer is given up

Way = tuple[Any, ...]  # as getaddrinfo returns it: family, kind, protocol, name, address
# Yields each connection that it waits for, with seconds; gets whether the other's kernel answered in time; returns the
# result.
Look = Generator[tuple[socket.socket, float], bool | None, Reach]


def look_for(cluster: Cluster, names: Sequence[str], control_port: int) -> tuple[Reach, ...]:
    """Return the result of looking for each of these hosts. It blocks for seconds if one is missing."""
    asked = set(names)
    wanted = [host for host in cluster.hosts if host.name in asked]
    ways = _ways_to(wanted, control_port)
    found = _side_by_side(_reach(cluster, host, ways[host.name], host.port(control_port)) for host in wanted)
    return tuple(found[host.name] for host in wanted)


def _ways_to(hosts: Sequence[Host], control_port: int) -> dict[str, list[Way] | str]:
    """Return the addresses of each host, or why there are none."""
    named = [host for host in hosts if not host.is_at_number]
    ways: dict[str, list[Way] | str] = {host.name: _ways(host, control_port) for host in hosts if host.is_at_number}
    if named:
        resolvers = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="resolve")
        asked = {host.name: resolvers.submit(_ways, host, control_port) for host in named}
        concurrent.futures.wait(asked.values(), timeout=RESOLVING_SECONDS)
        resolvers.shutdown(wait=False, cancel_futures=True)
        late = "the name was not resolved in time"
        for name, answer in asked.items():
            ways[name] = answer.result() if answer.done() and not answer.cancelled() else late
    return ways


def _ways(host: Host, control_port: int) -> list[Way] | str:
    try:
        return list(socket.getaddrinfo(host.address, host.port(control_port), type=socket.SOCK_STREAM))
    except (OSError, ValueError) as error:  # ValueError: DNS cannot have such a name
        return getattr(error, "strerror", None) or str(error)


def _side_by_side(looks: Iterable[Look]) -> dict[str, Reach]:
    """Run the checks in parallel. Return the result of each by host."""
    to_come, found = deque(looks), dict[str, Reach]()

    def go_on(look: Look, answered: bool | None) -> None:
        try:
            connection, seconds = look.send(answered)
        except StopIteration as end:
            found[end.value.host] = end.value
        else:
            selector.register(connection, selectors.EVENT_WRITE, (look, time.monotonic() + seconds))

    with selectors.DefaultSelector() as selector:
        while to_come or selector.get_map():
            while to_come and len(selector.get_map()) < AT_ONCE:
                go_on(to_come.popleft(), None)
            waiting = list(selector.get_map().values())
            until = min((key.data[1] for key in waiting), default=0.0)
            ready = {key.fd for key, _ in selector.select(max(0.0, until - time.monotonic()))} if waiting else set()
            for key in waiting:
                look, until = key.data
                if key.fd in ready or until <= time.monotonic():
                    selector.unregister(key.fileobj)
                    go_on(look, key.fd in ready)
    return found


def _reach(cluster: Cluster, host: Host, ways: list[Way] | str, port: int) -> Look:
    """Connect to the first address that works. Each attempt waits twice as long, as in client.py."""
    if isinstance(ways, str):
        return Reach(host=host.name, why=ways)
    why = ""
    for *kind, _, address in ways:
        error, left, patience = EINPROGRESS, PATIENCE_SECONDS, NEXT_SECONDS
        while error == EINPROGRESS and left > 0:
            with contextlib.ExitStack() as stack:
                try:
                    probe = stack.enter_context(_from_here(cluster, kind))
                    error = probe.connect_ex(address)
                except OSError as problem:
                    error = problem.errno or 0
                if error == EINPROGRESS and (yield probe, min(patience, left)):
                    error = probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            left, patience = left - patience, 2 * patience
        if not error:
            return Reach(host=host.name, address=str(address[0]))
        silence = f" does not answer within {PATIENCE_SECONDS:g} s"
        why = f"port {port}" + (silence if error == EINPROGRESS else f": {os.strerror(error)}")
    over = f" (over {cluster.interface})" if cluster.interface else ""
    return Reach(host=host.name, address=str(ways[0][4][0]), why=why + over)


def _from_here(cluster: Cluster, kind: Sequence[Any]) -> socket.socket:
    own = cluster.me.address
    probe = socket.socket(*kind)
    try:
        probe.setblocking(False)
        if own.startswith("127."):  # hosts that are simulated on this machine
            probe.bind((own, 0))
        elif cluster.interface:
            # It needs a right that a container may lack, and a kernel that can; else the system's routes decide.
            with contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, cluster.interface.encode())
    except OSError:
        probe.close()
        raise
    return probe
