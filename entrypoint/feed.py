"""What the monitor is told: a process of its own, forked before anything runs, that no event and no line waits for.

Forked, and not started: a Python of its own would cost every job some 50 ms of processor time in its first second.
Its socket keeps messages apart: a line of the record in JSON, as monitor/README.md has them, or output of a process.
What the monitor is too slow for is counted, and not shown.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, NoReturn

from entrypoint.host import descendants

if TYPE_CHECKING:
    from collections.abc import Callable

    from entrypoint.job.job import Job
    from entrypoint.plan.plan import Plan
    from entrypoint.policy.events import Event

PIECE = 1 << 14  # bytes of output in one message
RATE, BURST = 1 << 15, 1 << 18  # bytes of output a second that it is shown, and at once: more than people read
LONGEST = 1 << 17  # bytes of a line of the record
ROOM = 1 << 20  # bytes that wait in the socket, as far as the kernel allows: it takes them ten times a second
KEPT = 1000  # lines of the record that wait for it
LATER = 250  # milliseconds after the launcher in which the monitor begins
LEAVES = 4.5  # seconds that it has at the end: of the coordinator, to hear the others (1) and to make the report (3)


class Feed:
    """The launcher's end. Whatever becomes of the monitor, nothing here raises, and nothing waits, but `finish`.

    `began`: when the launcher did, by time.monotonic(); the record counts from then, for all that the monitor is later.
    """

    def __init__(self, job: "Job", plan: "Plan", began: float) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque(maxlen=KEPT)
        self._room, self._at = float(BURST), time.monotonic()
        self._unseen: Counter[str] = Counter()  # bytes of output that it is still to be told of
        self._socket: socket.socket | None = None
        self._listener, self._why = threading.Thread(), ""
        self._leaves = LEAVES
        if is_tracked():
            from entrypoint.monitor.tracking import LAST

            self._leaves += LAST
        if job.settings.monitor:
            if job.paths.records.exists():  # of an earlier run
                import shutil

                shutil.rmtree(job.paths.records, ignore_errors=True)
            with contextlib.suppress(OSError):
                job.paths.report.unlink()
            with contextlib.suppress(OSError):  # the job goes on without
                self._socket, self._pid = _fork(job, plan, time.time() - (time.monotonic() - began))

    def tell(self, kind: str, *values: Any) -> None:
        """Tell it a line of the record, as of now."""
        if self._socket:
            line = json.dumps([kind, round(time.time(), 3), *values], separators=(",", ":")).encode()
            if len(line) > LONGEST:
                return  # it would never get through; who reads the record misses it by its number
            with self._lock:
                self._waiting.append(line)
                self._send()

    def show(self, process: str, lines: bytes) -> None:
        """Show it what a process has printed, secrets masked."""
        if not self._socket:
            return
        with self._lock:
            now = time.monotonic()
            self._room, self._at = min(BURST, self._room + (now - self._at) * RATE), now
            label = f"{process}\0".encode()
            if not self._waiting and len(lines) <= self._room:
                self._room -= len(lines)
                pieces = [lines[start : start + PIECE] for start in range(0, len(lines), PIECE)]
                if all(self._put(b"L" + label + piece) for piece in pieces):
                    return
            self._unseen[process] += len(lines)
            if self._room >= PIECE:
                self._room -= PIECE
                self._put(b"U" + label + str(self._unseen.pop(process)).encode())

    def listen(
        self, put: "Callable[[Event], None]", say: "Callable[[str], None]", write: "Callable[[str], None]"
    ) -> None:
        """Hear what it has found, by a thread, until it ends."""
        if self._socket:
            self._listener = threading.Thread(target=self._hear, args=(put, say, write), name="monitor", daemon=True)
            self._listener.start()

    def _hear(
        self, put: "Callable[[Event], None]", say: "Callable[[str], None]", write: "Callable[[str], None]"
    ) -> None:
        from entrypoint.outcome.outcome import Cause
        from entrypoint.policy.events import Found

        with contextlib.suppress(OSError):
            while self._socket and (message := self._socket.recv(1 << 18)):
                match json.loads(message):
                    case {"say": words}:
                        say(words)
                    case {"print": line}:
                        write(line)
                    case {"blame": cause}:
                        put(Found(cause=Cause(**cause)))
                    case {"fault": why}:
                        self._why = why

    def finish(self) -> str:
        """Let it write what it has; on the coordinator, hear the other hosts. In LEAVES seconds; what is wrong."""
        if not self._socket:
            return ""
        with self._lock:
            self._send()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        if not self._has_ended():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)  # and what it has started
            self._why = f"it has not ended within {self._leaves:g} s"
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._socket.close()
        self._socket = None
        return self._why

    def _has_ended(self) -> bool:
        """Wait for its end, which closes the connection; whether it came in time."""
        if self._listener.ident is not None:
            self._listener.join(self._leaves)
            return not self._listener.is_alive()
        try:  # the launcher failed before it listened, or had no thread for it
            while self._socket and select.select([self._socket], [], [], self._leaves)[0]:
                if not self._socket.recv(1 << 18):
                    return True
        except OSError:
            return True
        return False

    def _send(self) -> None:
        while self._waiting and self._put(self._waiting[0]):
            self._waiting.popleft()

    def _put(self, message: bytes) -> bool:
        with contextlib.suppress(OSError):
            if self._socket:
                self._socket.send(message, socket.MSG_DONTWAIT)
                return True
        return False


def is_tracked() -> bool:
    """Return whether MLflow is to be told of the job."""
    return bool(os.environ.get("MLFLOW_TRACKING_URI"))


def _fork(job: "Job", plan: "Plan", began: float) -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
    pid = os.fork()
    if pid == 0:
        _be_monitor(theirs, job, plan, began)
    theirs.close()
    descendants.APART.add(pid)
    return ours, pid


def _let_others_start(feed: socket.socket) -> None:
    """Leave the processor to what the job waits for; to import what we need takes as long. Not where it is over."""
    over = select.poll()
    over.register(feed, select.POLLRDHUP)
    over.poll(LATER)


def _be_monitor(feed: socket.socket, job: "Job", plan: "Plan", began: float) -> NoReturn:
    """Be the monitor, which ends when the launcher does, and by nothing else that is meant for the launcher."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        kept = feed.fileno()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(nothing, fd)
        os.closerange(3, kept)  # whoever reads our stdout, and sees its end, is to see the launcher's
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        gc.enable()
        _let_others_start(feed)
        from entrypoint.monitor.description import described
        from entrypoint.monitor.monitor import run

        run(feed, job, plan, began, described(job, os.environ), is_tracked())
    except Exception:
        import traceback

        feed.send(json.dumps({"fault": traceback.format_exc()[-PIECE:]}).encode())
    finally:
        os._exit(0)
