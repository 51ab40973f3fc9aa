"""Start a ProcessSpec in a session of its own, and signal all of its process group."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from entrypoint.base.values import State
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.plan.plan import ProcessSpec

KEPT: dict[int, int | None] = {}  # children whose end another thread asks for -> wait status, once reaped
OOM_SCORE = 300  # of 1000; the same for all that we start, so that among them the largest is still killed first


class Process(State):
    """Represent a running process of this host: a child of ours, or a rank that mpirun started."""

    name: str
    pid: int
    group: int | None = None  # its process group, if it has one of its own from the start

    def signal(self, number: int) -> None:
        """Signal the process and all of its group. Nothing happens if it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.group or os.getpgid(self.pid), number)

    def in_group(self, group: int) -> bool:
        """Return whether `signal` reaches the members of a process group."""
        with contextlib.suppress(ProcessLookupError):
            return group == (self.group or os.getpgid(self.pid))
        return False


def spawn(spec: ProcessSpec, argv: tuple[str, ...], env: Mapping[str, str], log: Log) -> Process:
    """Start `argv` for a spec, with its output going to the log. Raise OSError if it cannot be started."""
    with plumbing(spec, log) as (stdin, out, err):
        child = subprocess.Popen(
            argv, env=dict(env), cwd=spec.cwd, stdin=stdin, stdout=out, stderr=err, start_new_session=True
        )
    # The supervisor reaps every child itself, as PID 1 must; keep Popen from waiting or complaining.
    child.returncode = 0
    return started(spec, child.pid)


@contextlib.contextmanager
def plumbing(spec: ProcessSpec, log: Log) -> Iterator[tuple[int, int, int]]:
    """Open a process's stdin, stdout and stderr for as long as it takes to start it."""
    with contextlib.ExitStack() as held:
        out, err = log.open_pipes(spec.name)
        for fd in (out, err):
            held.callback(os.close, fd)
        if not spec.stdin:
            stdin: IO[bytes] = held.enter_context(open(os.devnull, "rb", buffering=0))
        else:
            stdin = held.enter_context(scratch("stdin"))
            stdin.write(spec.stdin.encode())
            stdin.seek(0)
        yield stdin.fileno(), out, err


def scratch(name: str) -> IO[bytes]:
    """Return a nameless file in memory; where a seccomp profile forbids that, a temporary file."""
    try:
        return open(os.memfd_create(name), "w+b", buffering=0)
    except OSError:
        import tempfile

        return tempfile.TemporaryFile("w+b", buffering=0)


def started(spec: ProcessSpec, pid: int) -> Process:
    """Return the started process. If memory is short, the kernel kills it and its children rather than us."""
    path = Path(f"/proc/{pid}/oom_score_adj")
    with contextlib.suppress(OSError, ValueError):
        if int(path.read_text()) < OOM_SCORE:
            path.write_text(str(OOM_SCORE))
    return Process(name=spec.name, pid=pid, group=pid)  # it has a session of its own


def reap() -> list[tuple[int, int]]:
    """Return (pid, wait status) of every child that has ended since the last call, adopted orphans included."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))
        if pid in KEPT:
            KEPT[pid] = status


def become_subreaper() -> None:
    """Adopt orphans of our descendants, as PID 1 does by itself (Linux, prctl PR_SET_CHILD_SUBREAPER)."""
    if os.getpid() == 1:
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def listening(port: int) -> list[str]:
    """Return the inodes of the sockets that listen on a TCP port of this host. It does not connect to the port."""
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:
            rows = [line.split() for line in lines]
            found += [row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
    return found
