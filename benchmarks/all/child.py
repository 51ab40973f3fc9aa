"""Run a benchmark as a child process, and leave no process, container or network of it behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks import docker
from benchmarks.machine import ROOT
from entrypoint.simulate.host_runner import handled

GRACE_SECONDS = 180.0  # for a benchmark to clean up; `entrypoint local` gives its hosts 120 of them
LEFT_SECONDS = 20.0  # for processes that a benchmark has left behind


class Interrupted(Exception):
    """SIGINT, SIGTERM or SIGHUP has come, or came before."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def interrupts() -> Iterator[Callable[[], int]]:
    """Remember the first signal to end, so that no clean-up is interrupted. Yield what returns it, or 0."""
    seen: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with handled(numbers, lambda number, _: seen.append(number)):
        yield lambda: seen[0] if seen else 0


def run(command: list[str], log: Path, limit_s: float, interrupted: Callable[[], int]) -> str:
    """Run the command from the root of the repository. Return what went wrong; "" if it ended well.

    Raise Interrupted, after all is cleaned up, if a signal to end has come.
    """
    environment = os.environ | {docker.SESSION_VARIABLE: docker.SESSION}
    with log.open("ab") as said:
        # A session of its own: Ctrl-C in the terminal then reaches this process alone, which passes it on once.
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True, preexec_fn=_take_signals,
        )  # fmt: skip
        try:
            wrong = _followed(child, time.monotonic() + limit_s, limit_s, interrupted)
        finally:
            _end(child)
    if number := interrupted():
        raise Interrupted(number)
    return wrong


def _take_signals() -> None:
    """Undo what a shell does to a job in the background, and this process to itself."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _followed(child: "subprocess.Popen[bytes]", until: float, limit_s: float, interrupted: Callable[[], int]) -> str:
    while not interrupted():
        try:
            code = child.wait(0.2)
        except subprocess.TimeoutExpired:
            if time.monotonic() < until:
                continue
            return f"it had not ended after {limit_s / 60:.0f} minutes"
        return f"exit code {code}" if code else ""
    return "interrupted"


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the child as Ctrl-C does, so that it cleans up, and then what it has left."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    left = psutil.Process().children(recursive=True)
    for send in (psutil.Process.terminate, psutil.Process.kill):
        for each in left:
            try:
                send(each)
            except psutil.NoSuchProcess:
                continue
        _, left = psutil.wait_procs(left, timeout=LEFT_SECONDS)
    try:
        docker.remove_all()
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(f"docker could not be asked for what the benchmark has left: {error}", file=sys.stderr)
