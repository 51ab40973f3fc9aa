"""Start the hosts, copy their output, let the injector inject faults, and wait until all hosts have ended.

SIGTERM and Ctrl-C stop the hosts.
"""

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import IO, Any

from entrypoint.launcher.host import descendants, process
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.simulate.engine import Engine
from entrypoint.simulate.host_output import RUNS, Terminal
from entrypoint.simulate.injector import Injector
from entrypoint.simulate.tree import HostFolder

STOP_GRACE_SECONDS = 120.0  # seconds from SIGTERM to SIGKILL, as SageMaker gives
ASK_AGAIN_SECONDS = 1.0  # seconds; a host that was still starting may have missed the signal
FOLLOW_SECONDS = 15.0  # seconds in which the others follow a host that failed; they take 5 if it was lost
LAST_LINES = 2.0  # seconds for the last output of hosts that have ended
GONE_SECONDS = 0.1  # seconds until a killed process is gone
STALLED_SECONDS = 0.05  # seconds between two checks whether a host's output may be read again
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
NEWS = 0  # not a signal: a host has printed what a fault waits for


@contextlib.contextmanager
def handled(numbers: Iterable[int], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Call `handler` for these signals during the block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class HostRunner:
    """Run the hosts of one job. Keep which of them run, how others ended, and since when they are being stopped."""

    def __init__(
        self, engine: Engine, injector: Injector, terminal: Terminal, happened: "queue.SimpleQueue[int]"
    ) -> None:
        self.engine, self.injector, self.terminal, self.happened = engine, injector, terminal, happened
        self.began = time.monotonic()
        self.waiting: list[HostFolder] = []
        self.running: dict[str, int] = {}
        self.exits: dict[str, Exit] = {}
        self.copiers: list[threading.Thread] = []
        self.failed_since: float | None = None
        self.stopping_since: float | None = None
        self.asked_at = 0.0
        self.forced = False

    def run(self, folders: Sequence[HostFolder], timeout: float | None) -> dict[str, Exit]:
        """Run the hosts; return how each one ended. Hosts that a signal kept from starting are left out."""
        if self.engine.runs_here:
            process.become_subreaper()
        self.began = time.monotonic()
        self.waiting = list(folders)
        deadline = self.began + timeout if timeout else None
        try:
            self._start_due()
            while self.running or self.waiting:
                now = time.monotonic()
                if self.stopping_since is None and deadline and now >= deadline:
                    self._stop(f"stopping after {timeout:g} s, as --timeout says")
                elif self.stopping_since is None and self.failed_since and now >= self.failed_since + FOLLOW_SECONDS:
                    self._stop(f"a host failed {FOLLOW_SECONDS:g} s ago and others still run: stopping them")
                self.terminal.tick()
                self._press()
                self.injector.act(now - self.began, self.running)
                self._bury_the_frozen()
                self._hear(wait=self._until_something(deadline))
                self._start_due()
        finally:
            if self.running:
                self.engine.signal(self.running, signal.SIGKILL)
            self._end_what_is_left()
            for copier in self.copiers:
                copier.join(LAST_LINES)
        return self.exits

    def _start_due(self) -> None:
        """Start the hosts that are due: all at once, except for hosts that a fault delays."""
        for folder in list(self.waiting):
            while not self.happened.empty():
                self._hear(wait=0)
            if self.stopping_since is None and time.monotonic() - self.began >= self.injector.starts_at(folder.host):
                self.waiting.remove(folder)
                self._start(folder)
        if self.stopping_since is not None:
            self.waiting.clear()

    def _until_something(self, deadline: float | None) -> float:
        """Return the seconds until something is due, unless an event comes earlier."""
        starts = [self.injector.starts_at(folder.host) for folder in self.waiting]
        times = [self.began + seconds - time.monotonic() for seconds in [*starts, self.injector.next_look()]]
        if deadline and deadline > time.monotonic():
            times.append(deadline - time.monotonic())
        return max(0.0, min([ASK_AGAIN_SECONDS, *times]))

    def _start(self, folder: HostFolder) -> None:
        command = self.engine.command(folder)
        child = subprocess.Popen(
            command.argv, env=dict(command.environment), cwd=folder.root, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0, start_new_session=True,
        )  # fmt: skip
        child.returncode = 0  # we reap every child ourselves: keep Popen from waiting
        assert child.stdout is not None
        self.running[folder.host] = child.pid
        self.terminal.state(folder.host, RUNS)
        copier = threading.Thread(target=self._copy, args=(child.stdout, folder), daemon=True)
        copier.start()
        self.copiers.append(copier)

    def _hear(self, wait: float) -> None:
        """Handle one event: a signal to us, or hosts that ended."""
        try:
            number = self.happened.get(timeout=wait) if wait else self.happened.get_nowait()
        except queue.Empty:
            return
        if number == NEWS:
            return
        if number == signal.SIGCHLD:
            self._note_ends(process.reap())
        elif self.stopping_since is None:
            self._stop(f"{signal.Signals(number).name}: stopping all hosts; send it again to kill them")
        else:
            self._kill(f"{signal.Signals(number).name} again: killing all hosts")

    def _note_ends(self, ended: list[tuple[int, int]]) -> None:
        while ended:
            pid, status = ended.pop()
            for host in [host for host, its in self.running.items() if its == pid]:
                del self.running[host]
                self.exits[host] = Exit.from_wait_status(status)
                self.terminal.state(host, str(self.exits[host]))
                if not self.exits[host].clean and self.failed_since is None:
                    self.failed_since = time.monotonic()
                # The scripts of a killed host become our children, and must end with it.
                ended += self._end_what_is_left(spare=self.running.values())

    def _end_what_is_left(self, spare: Collection[int] = ()) -> list[tuple[int, int]]:
        """Kill our descendants, but for `spare` and theirs, and return those reaped. Containers have clients only."""
        if self.engine.runs_here:
            return descendants.end_descendants(within=GONE_SECONDS, spare=spare)[1]
        for client in {*self.running.values()} - {*spare}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(client, signal.SIGKILL)
        return []

    def _stop(self, why: str) -> None:
        self.terminal.print(why)
        self.stopping_since = time.monotonic()

    def _kill(self, why: str) -> None:
        self.forced = True
        self.terminal.print(why)
        self.engine.signal(self.running, signal.SIGKILL)

    def _press(self) -> None:
        """Send SIGTERM again, or SIGKILL after the grace period, while hosts are being stopped."""
        now = time.monotonic()
        if self.stopping_since is None or not self.running:
            return
        if now >= self.asked_at + ASK_AGAIN_SECONDS and not self.forced:
            self.asked_at = now
            self.engine.signal(self.running, signal.SIGTERM)
        if now >= self.stopping_since + STOP_GRACE_SECONDS and not self.forced:
            self._kill(f"still there {STOP_GRACE_SECONDS:g} s later: killing {', '.join(self.running)}")

    def _bury_the_frozen(self) -> None:
        """Kill hosts that a fault froze for good once only they are left, as SageMaker would remove them."""
        are_frozen = self.injector.frozen_for_good() >= set(self.running)
        if self.running and are_frozen and not (self.waiting or self.forced):
            self._kill(f"only permanently paused hosts are left: killing {', '.join(self.running)}")

    def _read(self, pipe: IO[bytes], host: str) -> bytes:
        """Read a host's next output. While a fault stalls it and the host runs, wait instead."""
        while self.injector.stalls(host) and host in self.running:
            time.sleep(STALLED_SECONDS)
        return pipe.read(1 << 16)

    def _copy(self, pipe: IO[bytes], folder: HostFolder) -> None:
        """Copy a host's output to its log as it comes, and to the terminal in whole lines."""
        rest = b""
        with pipe, folder.log.open("wb", buffering=0) as log:
            while block := self._read(pipe, folder.host):
                with contextlib.suppress(OSError):  # on a full disk, read on: else the host would block
                    log.write(block)
                whole, newline, after = (rest + block).rpartition(b"\n")
                self.terminal.output(folder.host, whole + newline)
                if newline and self.injector.note_output(whole):
                    self.happened.put(NEWS)
                rest = after
        if rest:
            self.terminal.output(folder.host, rest + b"\n")
