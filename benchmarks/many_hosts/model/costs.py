"""The processor time that the control channel takes, measured once on this machine: with sockets of loopback.

A process is the coordinator's end (the real server, links and inbox), this one plays its followers. What the kernel
does for sockets is in it. The policy is not: its calls are timed one by one while they are simulated.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.many_hosts.worker import PORT, at, environment_of
from entrypoint.launcher.control import client, probe
from entrypoint.launcher.control.peers import Peers
from entrypoint.launcher.control.records import Records
from entrypoint.launcher.control.wire import news_from_json, to_json
from entrypoint.launcher.host.inbox import Inbox
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.policy.events import News, Report

ROOT = Path(__file__).resolve().parents[3]
FOLLOWERS = 200
ROUNDS = 3
PIECE = os.urandom(1300)  # of a record, as one script's host has for each review: 920 kB an hour (docs/benchmarks)


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of a core. `policy`: of each call, where it is not to be timed; `slower`: so many times as long."""

    accept: float  # the coordinator takes a connection, and closes it
    request: float  # it reads a report on a new connection, answers, and keeps the connection
    link: float  # it reads and answers a report over a connection that was kept
    tell: float  # it tells one follower something new
    record: float  # it takes a piece of a record, connection and all
    ask: float  # a follower connects, reports and hears the answer
    say: float  # it reports over its connection and hears the answer
    probe: float  # a host looks whether another is there
    policy: float | None = None
    slower: float = 1.0

    def scaled(self, name: str) -> float:
        return float(getattr(self, name)) * self.slower

    def of(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """Return what a call returns, and the time that it took."""
        if self.policy is not None:
            return call(), self.policy * self.slower
        began = time.thread_time()
        found = call()
        return found, (time.thread_time() - began) * self.slower


def measure(rounds: int = ROUNDS) -> Costs:
    """Return the medians of so many rounds, each with a coordinator of its own."""
    with tempfile.TemporaryDirectory(prefix="model-costs-") as folder:
        each = [_measured(Path(folder) / str(number)) for number in range(rounds)]
    return Costs(**{name: statistics.median(one[name] for one in each) for name in each[0]})


def _measured(base: Path) -> dict[str, float]:
    config = base / "input" / "config"
    config.mkdir(parents=True)
    names = [f"algo-{number + 1}" for number in range(FOLLOWERS + 1)]
    network = f"127.{20 + os.getpid() % 200}"
    resources = {"current_host": names[0], "hosts": names, "network_interface_name": "lo"}
    (config / "resourceconfig.json").write_text(json.dumps(resources))
    (config / "hyperparameters.json").write_text('{"sagemaker_program": "train.py"}')
    job = read_job(base, environment_of(len(names), network), base / "run" / names[0])
    command = [sys.executable, "-m", __spec__.name, str(base), network]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            return _played(job, _Coordinator(process))
        finally:
            process.kill()


class _Coordinator:
    """The other process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.ask("use")

    def ask(self, what: str) -> float:
        """Return the processor time that it has used until it had done that."""
        assert self._process.stdin and self._process.stdout
        print(what, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def used(self, act: Callable[[], Any], times: int) -> float:
        """Return its time for each of what we do so many times."""
        before = self.ask("use")
        act()
        time.sleep(0.1)  # what the last has to do behind its answer
        return (self.ask("use") - before) / times


def _played(job: Job, there: _Coordinator) -> dict[str, float]:
    """Say as a follower would say; all at once, where that is how a coordinator hears it."""
    coordinator, followers = job.cluster.coordinator, job.cluster.followers
    where, found = (coordinator.address, PORT), dict[str, float]()
    texts = {host: json.dumps({**to_json(_report(host.name)), "life": host.name}).encode() for host in followers}

    def connected() -> dict[Any, socket.socket]:
        return {host: socket.create_connection(where, source_address=(host.address, 0)) for host in followers}

    def hang_up() -> None:
        for connection in connected().values():
            connection.close()

    links: dict[Any, socket.socket] = {}

    def report() -> None:
        links.update(connected())
        for host, link in links.items():
            length = f"Content-Length: {len(texts[host])}"
            head = f"POST /report HTTP/1.1\r\nHost: control\r\nConnection: keep-alive\r\n{length}\r\n\r\n"
            link.sendall(head.encode() + texts[host])
        for link in links.values():
            link.recv(1 << 16)

    def report_again() -> None:
        for host, link in links.items():
            link.sendall(texts[host] + b"\n")
        for link in links.values():
            link.recv(1 << 16)

    def hear_news() -> None:
        there.ask("announce")
        for link in links.values():
            link.recv(1 << 16)

    def bring_records() -> None:
        for host in followers:
            path = f"/record/{host.name}/0"
            client.post([coordinator.address], PORT, path, PIECE, 5.0, source=host.address)

    def ask() -> None:
        for host in followers:
            client.post([coordinator.address], PORT, "/report", texts[host], 5.0, source=host.address)

    def say() -> None:
        for host, link in links.items():
            link.sendall(json.dumps({**to_json(_report(host.name)), "life": host.name}).encode() + b"\n")
            news_from_json(json.loads(link.recv(1 << 16)))

    def look() -> None:
        probe.look_for(at(job, followers[0].name).cluster, [coordinator.name], PORT)

    found["accept"] = there.used(hang_up, FOLLOWERS)
    found["request"] = there.used(report, FOLLOWERS) - found["accept"]
    found["link"] = there.used(report_again, FOLLOWERS)
    found["tell"] = there.used(hear_news, FOLLOWERS)
    found["say"] = _ours(say, FOLLOWERS)
    found["record"] = there.used(bring_records, FOLLOWERS)
    for link in links.values():
        link.close()
    found["ask"] = _ours(ask, FOLLOWERS)
    found["probe"] = _ours(lambda: [look() for _ in range(50)], 50)
    return found


def _ours(act: Callable[[], Any], times: int) -> float:
    began = time.thread_time()
    act()
    return (time.thread_time() - began) / times


def _report(host: str) -> Report:
    """Return what a host says while all is well."""
    things = ("the launcher", "the plan", "the set of settings", "the set of channels")
    same = tuple((thing, "MultiWorkerMirrored: 1000 workers (0123456789ab)") for thing in things)
    return Report(host=host, ready=frozenset({"prepare", "preflight"}), fingerprints=same)


def _coordinate(base: Path, network: str) -> None:
    """Be the coordinator's end, and tell the processor time that was used."""
    job = read_job(base, environment_of(FOLLOWERS + 1, network), base / "run" / "algo-1")
    inbox = Inbox()
    followers = {host.name for host in job.cluster.followers}
    records = Records(job.paths.records, job.paths.run / "wants.json", followers)
    peers = Peers(job.cluster, job.settings, inbox.put, dict, lambda _: None, records)

    def hear() -> None:
        while True:
            inbox.take(1.0)

    threading.Thread(target=hear, daemon=True).start()
    time.sleep(0.5)
    polls = 0
    for line in sys.stdin:
        if line.strip() == "announce":
            polls += 1
            peers.announce(News(poll=polls, assembled=True))
        print(time.process_time(), flush=True)


if __name__ == "__main__":
    _coordinate(Path(sys.argv[1]), sys.argv[2])
