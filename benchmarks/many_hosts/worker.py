"""Run some hosts of the job in one process, which `__main__.py` starts and controls by lines of JSON.

`--real`: one host, and all of it is the launcher's: policy, loop, sockets, processes, signals. Otherwise each host is a
thread that runs the same Supervisor. Stand-ins replace what a process can have only once, or one machine cannot hold
for all hosts: signal handlers, and children (a step that ends at once, a script that runs until it is terminated). All
hosts of a process share what each real host finds out by itself: the plan, its digest, the machine's CPUs, which
addresses of a thousand are numbers. They also share an interpreter, which they do not take from one another (SWITCH).
"""

import argparse
import contextlib
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from entrypoint.base.values import replace
from entrypoint.launcher.control import peers, probe, server  # noqa: F401 - else hundreds of threads import them at once
from entrypoint.launcher.host import inventory, spawner  # noqa: F401
from entrypoint.launcher.host.host import ThisHost
from entrypoint.launcher.host.inbox import Inbox, RankEnded
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.outcome import explain, symptoms  # noqa: F401
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan import fingerprint
from entrypoint.launcher.plan.plan import Duty, Plan, ProcessSpec
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy.events import Action, Event, Reported, Start
from entrypoint.launcher.supervisor import Supervisor

# All threads that wait for the interpreter wake to ask for it, at the usual 5 ms most of the work, which no real host
# has. The thread that holds it soon gives it up by itself, as it waits for something.
SWITCH = 1.0
PORT = 7777
SAID = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    main()\nValueError: a failure\n'
RAISES = Exit(code=1)
STACK = 256 * 1024  # bytes of a thread, of which a thousand hosts have many; a real launcher has few


def main() -> None:
    options = argparse.ArgumentParser()
    for name in ("--base", "--run", "--network"):
        options.add_argument(name, required=True)
    for name in ("--hosts", "--first", "--count"):
        options.add_argument(name, type=int, required=True)
    options.add_argument("--real", action="store_true")
    given = options.parse_args()
    said = os.fdopen(os.dup(1), "w", buffering=1)
    Worker(given, lambda **what: print(json.dumps(what), file=said)).run()


class Worker:
    """Run the hosts of this process; `say` reports to the driver."""

    def __init__(self, given: argparse.Namespace, say: Callable[..., None]) -> None:
        self._say, self._lock, self._counts = say, threading.Lock(), Counter[str]()
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        gc.disable()  # as the launcher does while it reads and plans
        job = read_job(Path(given.base), environment_of(given.hosts, given.network), Path(given.run) / "nobody")
        hosts = job.cluster.hosts[given.first : given.first + given.count]
        job = at(job, hosts[0].name)
        plan = trivial(plan_for(job))
        log = Log(hosts[0].name, fd=os.open(Path(given.run) / f"log-{given.first}", os.O_CREAT | os.O_WRONLY, 0o644))
        kind = Watched if given.real else StandIn
        if not given.real:
            threading.stack_size(STACK)
            sys.setswitchinterval(SWITCH)
            fingerprints, here = fingerprint.fingerprint(job, plan), spawner.this_machine()
            fingerprint.fingerprint = lambda job, plan: dict(fingerprints)
            spawner.this_machine = lambda: here
        spawner.fork = refuse
        self.hosts = {host.name: kind(at(job, host.name), plan, log, self._count) for host in hosts}
        prepared = {"flags": [], "fingerprints": {}, "env": {}, "module": None, "unused_gpus": "", "other_mode": ""}
        for each in self.hosts.values():
            each.job.paths.prepared.write_text(json.dumps(prepared))
        gc.freeze()
        gc.enable()
        say(what="up")

    def run(self) -> None:
        started = threading.Event()
        threading.Thread(target=self._obey, args=(started,), daemon=True).start()
        started.wait()
        real = [each for each in self.hosts.values() if not isinstance(each, StandIn)]
        if real:
            real[0].run()
        else:
            threads = [threading.Thread(target=each.run) for each in self.hosts.values()]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self._say(what="end", at=time.monotonic(), **use())
        codes = Counter(each.outcome.exit_code for each in self.hosts.values() if each.outcome)
        texts = {each.outcome.failure_text() for each in self.hosts.values() if each.outcome}
        self._say(what="finished", at=time.monotonic(), codes=dict(codes), texts=sorted(texts))
        os._exit(0)

    def _obey(self, started: threading.Event) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            match command["do"]:
                case "start":
                    started.set()
                case "use":
                    self._say(what="use", at=time.monotonic(), heard=self._counts["heard"], **use())
                case "fail":
                    self.hosts[command["host"]].fail()  # type: ignore[attr-defined]
                    self._say(what="failed", at=time.monotonic())
        os._exit(1)  # the driver is gone

    def _count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1
            if what != "heard" and self._counts[what] == len(self.hosts):
                self._say(what=what, at=time.monotonic())


class Watched(Supervisor):
    """A host that reports its state."""

    own = ThisHost

    def made_inbox(self) -> Inbox:
        inbox = Inbox()
        inbox.catch_signals()
        return inbox

    def __init__(self, job: Job, plan: Plan, log: Log, count: Callable[[str], None]) -> None:
        job.paths.run.mkdir(parents=True, exist_ok=True)
        super().__init__(self.own(job, plan, os.environ, log, self.made_inbox()))
        self._count, self._was = count, set[str]()

    def _decide(self, *happened: Event) -> None:
        super()._decide(*happened)
        for event in happened:
            if isinstance(event, Reported):
                self._count("heard")
        if self.facts.outcome is not None:
            self._note("told")

    def _carry_out(self, actions: Sequence[Action]) -> None:
        super()._carry_out(actions)
        if any(isinstance(action, Start) and action.spec.duty is not Duty.STEP for action in actions):
            self._note("gone")

    def _note(self, what: str) -> None:
        if what not in self._was:
            self._was.add(what)
            self._count(what)


def refuse(spec: ProcessSpec, env: Mapping[str, str], log: Log) -> NoReturn:
    """Replace `fork` for commands outside of the launcher."""
    raise OSError(f"{spec.name} is no program of the launcher's")


class Childless(ThisHost):
    """Stand-ins for signal handlers and children of one of several hosts in a process."""

    def start_threads(self) -> None:
        pass

    def start(self, spec: ProcessSpec, restarted: int) -> None:
        if spec.duty is Duty.STEP:
            self.inbox.put(_ended(spec.name, Exit(code=0)))

    def ask(self, name: str, grace: float) -> None:
        self.force(name)

    def force(self, name: str) -> None:
        self.inbox.put(_ended(name, Exit(code=128 + signal.SIGTERM, signal=signal.SIGTERM)))

    def close(self) -> None:
        pass


class StandIn(Watched):
    """One of several hosts in a process."""

    own = Childless

    def made_inbox(self) -> Inbox:
        return Inbox()

    def fail(self) -> None:
        """Make the script of the host raise."""
        name = next(spec.name for spec in self.facts.own.specs.values() if spec.duty is Duty.SCRIPT)
        for end in self.host.log.open_pipes(name):
            with contextlib.suppress(OSError):
                os.write(end, SAID.encode())
            os.close(end)
            break
        self.host.inbox.put(_ended(name, RAISES))


def _ended(name: str, exit: Exit) -> RankEnded:
    """Return the end of a simulated child as that of a rank, since ranks are no children of the launcher either."""
    return RankEnded(name=name, exit=exit, let_go=lambda: None)


def environment_of(hosts: int, network: str) -> dict[str, str]:
    addresses = {f"algo-{number + 1}": f"{network}.{number >> 8}.{number & 255}" for number in range(hosts)}
    return {
        "ENTRYPOINT_MODE": "mwms",
        "ENTRYPOINT_CONTROL_PORT": str(PORT),
        "ENTRYPOINT_HOST_ADDRESSES": json.dumps(addresses),
    }


def trivial(plan: Plan) -> Plan:
    """Return the plan with commands that do nothing, and without listening processes."""
    does = {Duty.STEP: ("true",), Duty.SCRIPT: ("sleep", "3600")}
    rows = [replace(spec, argv=does[spec.duty], ports=(), stdin="", cwd=None, program=None) for spec in plan.processes]
    return replace(plan, processes=tuple(rows))


def at(job: Job, host: str) -> Job:
    me = next(each for each in job.cluster.hosts if each.name == host)
    run = job.paths.run.parent / host
    return replace(job, cluster=replace(job.cluster, me=me), paths=replace(job.paths, base=run, run=run))


def use() -> dict[str, Any]:
    """Return processor time and memory of this process, without its children."""
    times = os.times()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    memory = {key: int(status[name].split()[0]) * 1024 for key, name in (("rss", "VmRSS"), ("most", "VmHWM"))}
    return {"cpu": times.user + times.system, "threads": int(status["Threads"]), **memory}


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
