"""Start the monitor: first as a fork, before the launcher has threads; later as a new Python process.

A fork is cheaper: a new Python would cost every job some 50 ms of CPU time in its first second.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from entrypoint.launcher.host import process
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.record import lines

if TYPE_CHECKING:
    from entrypoint.launcher.job.job import Job
    from entrypoint.launcher.plan.plan import Plan

# Bytes that may wait in the socket, if the kernel allows so many; the monitor reads it some times a second.
SOCKET_BYTES = 1 << 20
ENDS_SECONDS = 1.0  # seconds within which a process that has closed its socket ends
LATER_MS = 250  # milliseconds by which the monitor starts later than the launcher
LONGEST_BYTES = 1 << 14  # bytes of a traceback that are kept
AGAIN = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from entrypoint.observe.monitor.spawn import be_again
be_again(int(sys.argv[2]))
"""


def fork(job: "Job", plan: "Plan", began: float) -> tuple[socket.socket, int]:
    """Fork the monitor; return our end of its socket, and its pid. Raise OSError if that is impossible."""
    ours, theirs = _sockets()
    pid = os.fork()
    if pid == 0:
        _be_monitor(theirs, job, plan, began)
    theirs.close()
    process.KEPT[pid] = None
    return ours, pid


def spawn(job: "Job", plan: "Plan", began: float) -> tuple[socket.socket, int]:
    """Start the monitor as a Python process of its own, in place of one that has ended; return as `fork` does."""
    import pickle
    import subprocess

    from entrypoint.launcher.job.settings import of_programs

    ours, theirs = _sockets()
    with theirs, process.scratch("monitor") as given:
        given.write(pickle.dumps((job, plan, began, lines.ZERO)))
        given.seek(0)
        command = [sys.executable, "-I", "-c", AGAIN, json.dumps(sys.path), str(theirs.fileno())]
        child = subprocess.Popen(
            command, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            env=of_programs(os.environ), pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    child.returncode = 0  # whoever reaps the launcher's children reaps this one, too
    process.KEPT[child.pid] = None
    return ours, child.pid


def is_tracked() -> bool:
    """Return whether the job is reported to MLflow."""
    return bool(os.environ.get("MLFLOW_TRACKING_URI"))


def end_of(pid: int) -> str:
    """Return how a monitor with a closed socket has ended, from our own wait or from the launcher's loop."""
    until = time.monotonic() + ENDS_SECONDS
    while (status := process.KEPT.get(pid)) is None and pid in process.KEPT and time.monotonic() < until:
        with suppress(ChildProcessError):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                process.KEPT[pid] = status
        time.sleep(0.002)
    exit = None if status is None else Exit.from_wait_status(status)
    return f"was {exit}" if exit and exit.signal else "has ended"


def _sockets() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BYTES)
    return ours, theirs


def _leave_the_launcher(feed: socket.socket) -> None:
    """Give up everything that belongs to the launcher, and wait a moment before the monitor's imports."""
    os.setsid()
    kept = feed.fileno()
    os.closerange(3, kept)  # a reader of our stdout waits for its end, which must be the launcher's end
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    nothing = os.open(os.devnull, os.O_RDWR)  # after these, since there may be no free descriptor before
    for fd in range(3):
        os.dup2(nothing, fd)
    os.close(nothing)
    gc.freeze()  # a collection writes to all objects that it visits: their pages would no longer be the launcher's
    gc.enable()
    # The imports take half as long as the job's start, which needs the CPU first. If the launcher ends, stop waiting.
    over = select.poll()
    over.register(feed, select.POLLRDHUP)
    over.poll(LATER_MS)


def be_again(fd: int) -> NoReturn:
    """Run as a monitor that `spawn` has started."""
    import pickle

    job, plan, began, zero = pickle.load(sys.stdin.buffer)
    lines.set_zero(zero)  # the record goes on by one clock
    _be_monitor(socket.socket(fileno=fd), job, plan, began, again=True)


def _be_monitor(feed: socket.socket, job: "Job", plan: "Plan", began: float, again: bool = False) -> NoReturn:
    """Run as the monitor. It ends with the launcher, and ignores signals that are meant for the launcher."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if not again:
            _leave_the_launcher(feed)
        from entrypoint.base.secrets import Secrets
        from entrypoint.launcher.job.settings import TOKEN
        from entrypoint.observe.monitor.monitor import Monitor
        from entrypoint.observe.monitor.record_header import described

        environment = os.environ | ({TOKEN: job.settings.token} if job.settings.token else {})
        os.environ.pop(TOKEN, None)  # for the programs that the monitor starts
        mask = Secrets(environment, job.hyperparameters).mask
        Monitor(feed, job, plan, mask, is_tracked(), again).run(began, described(job, environment))
        feed.send(b'{"done": true}')
    except Exception:
        import traceback

        feed.send(json.dumps({"fault": traceback.format_exc()[-LONGEST_BYTES:]}).encode())
    finally:
        os._exit(0)
