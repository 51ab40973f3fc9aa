"""Serve the socket where the ranks that mpirun starts on this host report, each in one short talk.

programs/rank.py is the other end. Only processes of our own user, as the kernel names it, get an answer.
"""

import contextlib
import json
import marshal
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from entrypoint.launcher.host.inbox import Noticed, RankEnded
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.resource_limits import NAP_SECONDS, Shortage, broken
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.policy.events import RankOrphaned, RankStarted

MARSHAL_VERSION = 4  # that of every Python since 3.4
Order = Callable[[int, int, int | None, tuple[int, ...]], dict[str, Any]]
"""From a rank's number, attempt, CPUs that it may run on and its place to {argv, env, cwd}, or {refused: why}.

Its place, where mpirun has put it: size, rank, local size, local rank.
"""


class Ranks:
    """Serve the socket. Put RankStarted, RankOrphaned and RankEnded events."""

    def __init__(self, path: Path, order: Order, put: Callable[[Noticed], None], log: Log) -> None:
        path.unlink(missing_ok=True)
        self._order, self._put, self._log = order, put, log
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        path.chmod(0o600)
        self._socket.listen(512)
        threading.Thread(target=self._serve, name="ranks", daemon=True).start()

    def _serve(self) -> None:
        shortage = Shortage(self._put)
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if shortage.note(error):
                    time.sleep(NAP_SECONDS)
                continue
            shortage.over()
            try:
                threading.Thread(target=self._receive, args=(connection,), daemon=True).start()
            except RuntimeError as error:  # no thread is left: others would wait for the rank
                self._put(broken(error))
                connection.close()

    def _receive(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, KeyError):  # it broke off, or is no rank of ours
            self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] != os.geteuid():
            return
        lines = connection.makefile("rb")
        hello = json.loads(lines.readline() or b"{}")
        if not isinstance(hello.get("rank"), int):
            return
        rank, name = hello["rank"], f"rank {hello['rank']}"
        attempt = int(hello.get("attempt", 0))
        cpus = hello.get("cpus")
        place = tuple(int(hello[key]) for key in ("size", "rank", "local_size", "local_rank"))
        order = self._order(rank, attempt, cpus if isinstance(cpus, int) and cpus > 0 else None, place)
        try:
            out, err = self._log.open_pipes(name if "refused" not in order else f"{name}, refused")
        except OSError as error:
            self._put(broken(error))
            raise
        try:
            socket.send_fds(connection, [b"."], [out, err])
            connection.sendall(marshal.dumps(order, MARSHAL_VERSION))
        finally:
            os.close(out)
            os.close(err)
        if "refused" in order:
            return
        self._put(RankStarted(name=name, pid=int(hello["pid"]), attempt=attempt))
        try:
            while (message := json.loads(lines.readline() or b"{}")).get("orphaned"):
                self._put(RankOrphaned(name=name))
        except (OSError, ValueError, AttributeError):
            message = {}
        # Without a status, the rank program itself was killed, and its child with it or soon after.
        status = message.get("wait_status")
        exit = Exit.from_wait_status(status) if status is not None else Exit(code=137, signal=9)
        over = threading.Event()
        self._put(RankEnded(name=name, exit=exit, let_go=over.set))
        over.wait()
        connection.sendall(b".")
