"""Feed the monitor of this host, and act on its findings. The loop never waits for the monitor.

A message on the socket is a line of the record in JSON, or output of a process. If the monitor is too slow, output is
only counted.
"""

import contextlib
import json
import os
import queue
import select
import signal
import socket
import threading
import time
from collections import Counter, deque
from math import inf
from typing import TYPE_CHECKING, Any

from entrypoint.launcher.host import descendants
from entrypoint.observe.monitor import spawn
from entrypoint.record.lines import LIVES, Line, Said, now

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrypoint.launcher.job.job import Job
    from entrypoint.launcher.plan.plan import Plan
    from entrypoint.launcher.policy.events import Event

PIECE_BYTES = 1 << 14  # bytes of output in one message
RATE, BURST = 1 << 15, 1 << 18  # bytes of output that it gets per second, and at once: more than people read
LONGEST_BYTES = 1 << 17  # bytes of a line of the record
KEPT_LINES = 1000  # lines of the record that may wait to be sent
LEAVES_SECONDS = 4.5  # for its end; on the coordinator it reads the other hosts (1 s) and makes the report (3 s)
AGAIN, PAUSE = 3, 1.0  # how often it is started again, and seconds before each start
LOOP_SECONDS = 1.0  # seconds to wait for the launcher's loop to start it, before the loop is asked again


class Feed:
    """Hold the launcher's end of the monitor. Nothing here raises, and only `finish` waits.

    `began`: when the launcher started, by time.monotonic(). The record's times count from then, although the monitor
    starts later.
    """

    def __init__(self, job: "Job", plan: "Plan", began: float) -> None:
        self._job, self._plan, self._began = job, plan, now() - (time.monotonic() - began)
        self._lock = threading.Lock()
        self._lives: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._told_again: deque[bytes] = deque()  # lines of `_lives` that a restarted monitor has not got yet
        self._waiting: deque[bytes] = deque(maxlen=KEPT_LINES)
        self._room, self._at = float(BURST), time.monotonic()
        self._unseen: Counter[str] = Counter()  # process -> bytes of output that were dropped and not reported yet
        self._is_wanted = job.settings.monitor
        self._socket: socket.socket | None = None
        self._pid = 0
        self._begun, self._is_there, self._is_done = 0, False, False
        self._over = threading.Event()
        self._listener, self._why = threading.Thread(), ""
        self._is_distributed = False
        self._say: Callable[[str], None] = lambda words: None
        self._write: Callable[[str], None] = lambda line: None
        self._put_event: Callable[[Event], None] = lambda event: None
        self._leaves = LEAVES_SECONDS
        if spawn.is_tracked():
            from entrypoint.observe.monitor.tracking import LAST_SECONDS

            self._leaves += LAST_SECONDS
        if self._is_wanted:
            self._remove_earlier()
            self._begin(spawn.fork)

    def _remove_earlier(self) -> None:
        with contextlib.suppress(OSError):
            if self._job.paths.records.exists():
                import shutil

                shutil.rmtree(self._job.paths.records, ignore_errors=True)
        for path in (self._job.paths.report, self._job.paths.run / "wants.json"):
            with contextlib.suppress(OSError):
                path.unlink()

    def _begin(self, start: "Callable[[Job, Plan, float], tuple[socket.socket, int]]") -> None:
        """Start a monitor if possible. Without one, the job goes on."""
        self._begun += 1
        try:
            ours, pid = start(self._job, self._plan, self._began)
        except Exception as error:  # for example because no process or no memory is left
            self._why = f"cannot be started: {error}"
            return
        descendants.APART.discard(self._pid)
        descendants.APART.add(pid)
        with self._lock:
            before, self._socket, self._pid = self._socket, ours, pid
            self._is_there, self._is_done, self._why = True, False, ""
            self._told_again = deque(self._lives)
            self._send()
        if before:
            before.close()

    def record(self, line: Line) -> None:
        if self._is_wanted:
            text = line.to_json()
            if len(text) > LONGEST_BYTES:
                return  # no socket would take it; readers of the record notice the gap in its numbers
            with self._lock:
                if isinstance(line, LIVES):
                    self._lives.append(text)
                self._waiting.append(text)
                self._send()

    def show(self, process: str, lines: bytes) -> None:
        """Send the monitor the output of a process, in which secrets are masked already."""
        if not self._is_wanted:
            return
        if not process:  # the launcher's own lines are not dropped
            for start in range(0, len(lines), PIECE_BYTES):
                self.record(Said(text=lines[start : start + PIECE_BYTES].decode("utf-8", "replace")))
            return
        with self._lock:
            at = time.monotonic()
            self._room, self._at = min(BURST, self._room + (at - self._at) * RATE), at
            label = f"{process}\0".encode()
            if not (self._told_again or self._waiting) and len(lines) <= self._room:
                self._room -= len(lines)
                pieces = [lines[start : start + PIECE_BYTES] for start in range(0, len(lines), PIECE_BYTES)]
                if all(self._put(b"L" + label + piece) for piece in pieces):
                    return
            self._unseen[process] += len(lines)
            if self._room >= PIECE_BYTES:
                self._room -= PIECE_BYTES
                self._put(b"U" + label + str(self._unseen.pop(process)).encode())

    def listen(
        self,
        put: "Callable[[Event], None]",
        log: "Callable[[str], None]",
        write: "Callable[[str], None]",
        ask: "Callable[[Callable[[], dict[str, Any]], float], Any]",
    ) -> None:
        """Start a thread that reads the monitor's findings, and restarts a monitor that has ended too early.

        `ask` runs a function in the launcher's loop: only the loop may start children, since it reaps them.
        """
        self._put_event, self._say, self._write = put, log, write
        if self._is_wanted:
            self._listener = threading.Thread(target=self._listen, args=(ask,), name="monitor", daemon=True)
            self._listener.start()

    def _listen(self, ask: "Callable[[Callable[[], dict[str, Any]], float], Any]") -> None:
        while True:
            if self._is_there:
                self._hear()
            if self._over.is_set():
                return
            how = self._why or spawn.end_of(self._pid)
            if self._begun > AGAIN:
                self._give_up(how)
                return
            self._say(f"warning: the monitor of this host {how}; it is restarted ({self._begun} of {AGAIN})")
            if self._over.wait(PAUSE):
                return
            begun = self._begun

            def begin(begun: int = begun) -> dict[str, Any]:
                if self._begun == begun and not self._over.is_set():
                    self._begin(spawn.spawn)
                return {}

            while self._begun == begun and not self._over.is_set():
                with contextlib.suppress(queue.Empty):  # the loop is busy, or has ended
                    ask(begin, LOOP_SECONDS)

    def _give_up(self, how: str) -> None:
        """Log the checks that are no longer made. End the job if the settings require one of them."""
        from entrypoint.base.errors import ExitCode
        from entrypoint.launcher.outcome.outcome import Cause
        from entrypoint.launcher.policy.events import Found

        settings, cluster = self._job.settings, self._job.cluster
        lost = ["recording has stopped"]
        if settings.hang_after:
            action = f", and ENTRYPOINT_HANG_ACTION={settings.hang_action} does nothing"
            lost.append(f"hangs are no longer detected here{action if settings.hang_action != 'wait' else ''}")
        is_asked = settings.require_distributed and len(cluster.training) > 1 and not self._is_distributed
        if is_asked:
            lost.append("ENTRYPOINT_REQUIRE_DISTRIBUTED=true cannot be checked")
        words = f"the monitor of this host {how}, and is not restarted: {', '.join(lost)}"
        self._say(f"warning: {words}")
        if is_asked and cluster.is_coordinator:
            cause = Cause(host=cluster.me.name, process="", what="monitor", error=words, code=ExitCode.INTERNAL)
            self._put_event(Found(cause=cause))

    def _hear(self, within: float = inf) -> bool:
        """Read the monitor's findings until it ends, or for `within` seconds. Return whether it has ended."""
        until, poll = time.monotonic() + within, select.poll()
        link = self._socket
        if link is None:
            return True
        poll.register(link, select.POLLIN)
        while True:
            if within < inf and not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
            try:
                message = link.recv(1 << 18)
            except OSError:  # it was killed before it had read everything
                message = b""
            if not message:
                self._is_there = False
                return True
            with contextlib.suppress(ValueError, TypeError):
                self._take(json.loads(message))

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"say": str(words)}:
                self._is_distributed |= words.startswith("distributed: yes")
                self._say(words)
            case {"print": str(line)}:
                self._write(line)
            case {"blame": dict(cause)}:
                from entrypoint.launcher.outcome.outcome import Cause
                from entrypoint.launcher.policy.events import Found

                self._put_event(Found(cause=Cause(**cause)))
            case {"fault": str(why)}:
                self._why = f"failed: {' '.join(why.split())[-300:]}"
            case {"done": True}:
                self._is_done = True

    def finish(self) -> str:
        """Let the monitor finish, and on the coordinator read the other hosts' records; return an error text, or "".

        It waits for at most `LEAVES` seconds, and as long again if the monitor was killed: another one then finishes.
        """
        if not self._is_wanted:
            return ""
        self._over.set()
        if self._end() and not self._is_done:
            self._begin(spawn.spawn)
            self._end()
        if self._is_done:
            self._why = ""
        if self._socket:
            self._socket.close()
        self._is_wanted = False
        return self._why

    def _end(self) -> bool:
        """Close our end of the socket, and wait for the monitor to end. Return whether it ended in time."""
        with self._lock:
            self._send()
        with contextlib.suppress(OSError):
            if self._socket:
                self._socket.shutdown(socket.SHUT_WR)
        if self._listener.is_alive():
            self._listener.join(self._leaves)
            ended = not self._listener.is_alive()
        else:  # the launcher failed before it listened, or no thread was left to listen
            ended = self._hear(self._leaves)
        if not ended and self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)  # and the programs that it has started
            self._why = f"the monitor did not end within {self._leaves:g} s"
        elif not self._is_done:
            self._why = self._why or f"the monitor {spawn.end_of(self._pid)}"
        with contextlib.suppress(ChildProcessError):
            if self._pid:
                os.waitpid(self._pid, 0)
        return ended

    def _send(self) -> None:
        while (lines := self._told_again or self._waiting) and self._put(lines[0]):
            lines.popleft()

    def _put(self, message: bytes) -> bool:
        with contextlib.suppress(OSError):
            if self._socket:
                self._socket.send(message, socket.MSG_DONTWAIT)
                return True
        return False
