"""Starts the monitor: a fork of the launcher, before that has threads; later, a Python of its own.

Forked, and not started: a Python of its own would cost every job some 50 ms of processor time in its first second.
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

if TYPE_CHECKING:
    from entrypoint.launcher.job.job import Job
    from entrypoint.launcher.plan.plan import Plan

ROOM = 1 << 20  # bytes that wait in the socket, as far as the kernel allows: it takes them ten times a second
ENDS = 1.0  # seconds until a process has ended that has closed its socket
LATER = 250  # milliseconds after the launcher in which the monitor begins
LONGEST = 1 << 14  # bytes of a traceback
AGAIN = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from entrypoint.observe.monitor.spawn import be_again
be_again(int(sys.argv[2]))
"""


def fork(job: "Job", plan: "Plan", began: float) -> tuple[socket.socket, int]:
    """Return the socket of a monitor, and its pid; OSError if there can be none."""
    ours, theirs = _sockets()
    pid = os.fork()
    if pid == 0:
        _be_monitor(theirs, job, plan, began)
    theirs.close()
    process.KEPT[pid] = None
    return ours, pid


def spawn(job: "Job", plan: "Plan", began: float) -> tuple[socket.socket, int]:
    """Do the same by a Python of its own, which takes the place of a monitor that is no more."""
    import pickle
    import subprocess

    ours, theirs = _sockets()
    with theirs, process.scratch("monitor") as given:
        given.write(pickle.dumps((job, plan, began)))
        given.seek(0)
        command = [sys.executable, "-I", "-c", AGAIN, json.dumps(sys.path), str(theirs.fileno())]
        child = subprocess.Popen(
            command, stdin=given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
            pass_fds=[theirs.fileno()], start_new_session=True,
        )  # fmt: skip
    child.returncode = 0  # whoever reaps all children of the launcher reaps it
    process.KEPT[child.pid] = None
    return ours, child.pid


def is_tracked() -> bool:
    """Return whether MLflow is to be told of the job."""
    return bool(os.environ.get("MLFLOW_TRACKING_URI"))


def end_of(pid: int) -> str:
    """Return how a monitor ended whose socket is closed: as we see it, or whoever reaps what the launcher starts."""
    until = time.monotonic() + ENDS
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
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM)
    return ours, theirs


def _leave_the_launcher(feed: socket.socket) -> None:
    """Keep nothing that is the launcher's, and begin a little later than what the job waits for."""
    os.setsid()
    kept = feed.fileno()
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(nothing, fd)
    os.closerange(3, kept)  # whoever reads our stdout, and sees its end, is to see the launcher's
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    gc.enable()
    # Leave the processor to what the job waits for; to import what we need takes as long. Not where it is over.
    over = select.poll()
    over.register(feed, select.POLLRDHUP)
    over.poll(LATER)


def be_again(fd: int) -> NoReturn:
    """Be a monitor that was spawned."""
    import pickle

    job, plan, began = pickle.load(sys.stdin.buffer)
    _be_monitor(socket.socket(fileno=fd), job, plan, began, again=True)


def _be_monitor(feed: socket.socket, job: "Job", plan: "Plan", began: float, again: bool = False) -> NoReturn:
    """Be the monitor, which ends when the launcher does, and by nothing else that is meant for the launcher."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if not again:
            _leave_the_launcher(feed)
        from entrypoint.base.secrets import Secrets
        from entrypoint.observe.monitor.description import described
        from entrypoint.observe.monitor.monitor import Start, run

        mask = Secrets(os.environ, job.hyperparameters).mask
        told = described(job, os.environ)
        start = Start(
            job=job, plan=plan, began=began, description=told, mask=mask, tracked=is_tracked(), again=again
        )  # fmt: skip
        run(feed, start)
        feed.send(b'{"done": true}')
    except Exception:
        import traceback

        feed.send(json.dumps({"fault": traceback.format_exc()[-LONGEST:]}).encode())
    finally:
        os._exit(0)
