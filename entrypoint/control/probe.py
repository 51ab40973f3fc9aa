"""Looks for other hosts: does the name resolve, does the control port answer, over the interface that we are to use?

Names are looked up side by side, by threads, as the C library has it. All connections are tried side by side by one
thread, so that there is no thread for each of a thousand hosts.
"""

import concurrent.futures
import contextlib
import errno
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
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
    ways, found = _ways(wanted, control_port)
    found |= _try_all(cluster, {host: ways[host.name] for host in wanted if host.name in ways}, control_port)
    return tuple(found[host.name] for host in wanted)


def _ways(hosts: Sequence[Host], control_port: int) -> tuple[dict[str, Sequence[Way]], dict[str, Reach]]:
    """(how each host may be reached, what is known of those whose names do not resolve)."""
    ways: dict[str, Sequence[Way]] = {}
    named = []
    for host in hosts:
        try:
            ways[host.name] = socket.getaddrinfo(
                host.address, host.port(control_port), type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )
        except (OSError, UnicodeError):
            named.append(host)
    if not named:
        return ways, {}
    missing: dict[str, Reach] = {}
    pool = concurrent.futures.ThreadPoolExecutor(min(TRIES_AT_ONCE, len(named)), thread_name_prefix="reach")
    asked = {
        host.name: pool.submit(socket.getaddrinfo, host.address, host.port(control_port), type=socket.SOCK_STREAM)
        for host in named
    }
    concurrent.futures.wait(asked.values(), timeout=RESOLVING)
    pool.shutdown(wait=False, cancel_futures=True)
    for name, answer in asked.items():
        if not answer.done() or answer.cancelled():
            missing[name] = Reach(host=name, why="there was no time to look, or the resolver does not answer")
        elif error := answer.exception():
            missing[name] = Reach(host=name, why=getattr(error, "strerror", None) or str(error))
        else:
            ways[name] = answer.result()
    return ways, missing


def _try_all(cluster: Cluster, ways: dict[Host, Sequence[Way]], control_port: int) -> dict[str, Reach]:
    """Connect to each host, in the first of its ways that works."""
    found: dict[str, Reach] = {}
    waiting = deque((host, iter(each), "") for host, each in ways.items())
    with selectors.DefaultSelector() as selector:
        trying: dict[socket.socket, tuple[float, Host, Iterator[Way], Any]] = {}

        def begin(host: Host, rest: Iterator[Way], why: str) -> None:
            """Try the next of its ways, or say why none worked."""
            for family, kind, protocol, _, address in rest:
                try:
                    probe = _begin(cluster, (family, kind, protocol), address)
                except OSError as error:
                    why = f"port {host.port(control_port)}: {error.strerror or error}"
                    continue
                trying[probe] = (time.monotonic() + PATIENCE, host, rest, address)
                selector.register(probe, selectors.EVENT_WRITE)
                return
            over = f" (over {cluster.interface})" if cluster.interface else ""
            found[host.name] = Reach(host=host.name, address=str(ways[host][0][4][0]), why=why + over)

        def end(probe: socket.socket, number: int) -> None:
            _, host, rest, address = trying.pop(probe)
            selector.unregister(probe)
            probe.close()
            if not number:
                found[host.name] = Reach(host=host.name, address=str(address[0]))
                return
            late = number == errno.ETIMEDOUT
            port = host.port(control_port)
            begin(
                host,
                rest,
                f"port {port} does not answer within {PATIENCE:g} s" if late else f"port {port}: {os.strerror(number)}",
            )

        while waiting or trying:
            while waiting and len(trying) < TRIES_AT_ONCE:
                begin(*waiting.popleft())
            now = time.monotonic()
            left = min((deadline for deadline, *_ in trying.values()), default=now) - now
            for key, _ in selector.select(max(0.0, left)):
                probe = key.fileobj
                assert isinstance(probe, socket.socket)
                end(probe, probe.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
            for probe in [each for each, (deadline, *_) in trying.items() if deadline <= time.monotonic()]:
                end(probe, errno.ETIMEDOUT)
    return found


def _begin(cluster: Cluster, way: tuple[int, int, int], address: Any) -> socket.socket:
    """Return a socket that is connecting; OSError if it cannot."""
    own = cluster.me.address
    probe = socket.socket(*way)
    try:
        probe.setblocking(False)
        if own.startswith("127."):  # hosts that are simulated on this machine
            probe.bind((own, 0))
        elif cluster.interface:
            # Takes a right that a container may lack, and a kernel that knows it; else the system's routes decide.
            with contextlib.suppress(OSError):
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, cluster.interface.encode())
        number = probe.connect_ex(address)
        if number not in (0, errno.EINPROGRESS):
            raise OSError(number, os.strerror(number))
    except OSError:
        probe.close()
        raise
    return probe
