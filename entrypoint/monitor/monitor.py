"""The loop of the monitor: what the launcher tells, what the host uses, what programs print; written down, brought together.

It runs beside the launcher as a process of its own, forked by feed.py. Nothing waits for it but the job's last moment; where it
fails, the job has no record and is the same else.
"""

import json
import select
import socket
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from entrypoint.job.job import Job
from entrypoint.monitor.metrics import Reader, definitions
from entrypoint.monitor.record import Record
from entrypoint.plan.plan import Plan

if TYPE_CHECKING:
    from entrypoint.monitor.delivery import Delivery
    from entrypoint.monitor.sampling import Sampling

QUIET = 0.5  # seconds at the start in which it only listens: the job's programs start then
BRING = 5.0  # seconds between two pieces that are written, and that a follower brings
LAST = 1.0  # seconds at the end: of a follower, to bring the rest; of the coordinator, to have it of all
LONGEST_MESSAGE = 1 << 18


def run(feed: socket.socket, job: Job, plan: Plan) -> None:
    """Be the monitor until the launcher closes its end."""
    with suppress(OSError):
        Path("/proc/self/comm").write_text("monitor")
    Monitor(job, plan).run(feed)


class Monitor:
    """Facts of one host, as far as the record needs them."""

    def __init__(self, job: Job, plan: Plan) -> None:
        self._job, self._me = job, job.cluster.me.name
        self._programs = {spec.name for spec in plan.on(self._me) if spec.runs_program or spec.duty.is_users}
        self._running: dict[str, int] = {}  # processes of the plan: name -> pid
        self._printed: Counter[str] = Counter()  # bytes since the last look
        self._wanted = definitions(job.settings.metrics)
        self._readers: dict[str, Reader] = {}
        self._record = Record(job.paths.records / f"{self._me}.jsonl.gz")
        self._sampling: Sampling | None = None
        self._delivery: Delivery | None = None
        self._there: set[str] = set()  # hosts whose records are about to end

    def run(self, feed: socket.socket) -> None:
        """Listen and look, until the launcher has no more to say."""
        self._record.add("host", time.time(), about(self._job))
        poll = select.poll()
        poll.register(feed, select.POLLIN)
        look_at, bring_at = time.monotonic() + QUIET, time.monotonic() + BRING
        while True:
            if poll.poll(max(0.0, min(look_at, bring_at) - time.monotonic()) * 1000) and not self._hear(feed):
                break
            now = time.monotonic()
            if now >= look_at:
                look_at = max(look_at + self._job.settings.monitor_interval, now)
                self._look()
            if now >= bring_at:
                bring_at = now + BRING
                self._bring()
        if self._sampling:
            self._look()
        self._finish()

    def _hear(self, feed: socket.socket) -> bool:
        """Take one message; whether there was one."""
        message = feed.recv(LONGEST_MESSAGE)
        kind, rest = message[:1], message[1:]
        if kind == b"[":
            self._record.add_line(message)
            self._note(*json.loads(message))
        elif kind:
            label, _, text = rest.partition(b"\0")
            process = label.decode(errors="replace")
            if not process:
                self._record.add("said", time.time(), text.decode("utf-8", "replace"))
                return True
            self._printed[process] += len(text) if kind == b"L" else int(text)
            if kind == b"L":
                if process not in self._readers:
                    self._readers[process] = Reader(self._wanted)
                self._readers[process].read(text.decode("utf-8", "replace"))
        return bool(message)

    def _note(self, kind: str, at: float, *values: Any) -> None:
        match kind, values:
            case "process", (name, {"pid": pid}):
                self._running[name] = pid
            case "ended", (name, _):
                self._running.pop(name, None)
            case "outcome", ({"there": there},):
                self._there = set(there)

    def _look(self) -> None:
        if self._sampling is None:
            from entrypoint.monitor.sampling import Sampling

            self._sampling = Sampling(self._job)
            return
        printed, self._printed = self._printed, Counter()
        self._record.add("sample", time.time(), *self._sampling.look(self._running, printed))
        for process, reader in self._readers.items():
            if found := reader.take():
                self._record.add("metric", time.time(), process, found)

    def _bring(self) -> None:
        self._record.flush()
        if self._job.cluster.is_coordinator:
            return
        if self._delivery is None:
            from entrypoint.monitor.delivery import Delivery

            self._delivery = Delivery(self._job, self._record.path)
        self._delivery.bring()

    def _finish(self) -> None:
        self._record.close()
        path = self._record.path
        if self._job.cluster.is_coordinator:
            self._wait_for_others(path.parent)
        else:
            self._bring()
            if self._delivery and self._delivery.finish(LAST):
                path.unlink()  # the coordinator has it
                with suppress(OSError):
                    path.parent.rmdir()

    def _wait_for_others(self, folder: Path) -> None:
        """Wait until each of the hosts that are still there has brought all, or LAST seconds."""
        until, waiting = time.monotonic() + LAST, self._there
        while waiting and time.monotonic() < until:
            waiting = {host for host in waiting if not (folder / f"{host}.whole").exists()}
            time.sleep(0.005)
        for path in folder.glob("*.whole"):
            path.unlink()


def about(job: Job) -> dict[str, Any]:
    """Return what the record says first: whose it is, and of what."""
    from entrypoint.host.machine import this_machine

    machine, cluster = this_machine(), job.cluster
    return {
        "version": 1,
        "host": cluster.me.name,
        "rank": cluster.me.rank,
        "hosts": [host.name for host in cluster.hosts],
        "coordinator": cluster.coordinator.name,
        "mode": str(job.mode),
        "instance_type": str(job.resource_config.get("current_instance_type", "")),
        "cpus": machine.cpus,
        "gpus": machine.gpus,
        "interval": job.settings.monitor_interval,
        "limits": {"stop": job.settings.stop_grace},
    }
