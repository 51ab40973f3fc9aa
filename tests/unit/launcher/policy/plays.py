"""Run one host's policy on a history of events, for the tests of this folder.

A `Play` is one host's policy on a plan that the real planner made. Between two events, the policy is woken at the
times that it asks for, as the supervisor does it. Actions read "12.5 ask worker/0"; log lines and messages are apart.
Most tests are rows of tables: a history of (second, event, ...), and the verdict or the actions that must follow.
In a history, `Shows` states what must hold at that point.
"""

import re
from pathlib import Path

from builders import names, read

from entrypoint.base.values import replace
from entrypoint.launcher.job.open_mpi import ORTE
from entrypoint.launcher.outcome.outcome import Cause, Confidence, Exit, Outcome
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.artifacts import Artifacts
from entrypoint.launcher.policy.events import News, Report
from entrypoint.launcher.policy.policy import Policy

GRACE = 2.0  # failure_grace, by default
PAUSED = object()  # before an event: nothing woke this host until then, as it was paused
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1\n'
RAISED = TRACEBACK + "ValueError: x\n"
SYMPTOM = TRACEBACK + "UnavailableError: Socket closed\n"


class Play:
    def __init__(
        self, base: Path, hosts: int = 1, me: int = 1, mode: str = "mwms", open_mpi: int = ORTE, **settings
    ) -> None:
        environment = {f"ENTRYPOINT_{key.upper()}": str(value) for key, value in {"mode": mode, **settings}.items()}
        self.hosts = names(hosts)
        self.me = f"algo-{me}"
        job = replace(read(base, self.hosts, {}, environment, me=self.me), open_mpi=open_mpi)
        self.plan = plan_for(job)
        self.policy = Policy(self.plan, self.me, job.settings, 0.0)
        self.now, self.woken = 0.0, 0
        self.did: list[tuple[float, str]] = []
        self.sent: list[Report | News] = []
        self.said: list[str] = []
        self.probed: list[tuple[str, ...]] = []
        self.knocked: list[str] = []
        self.looked: list[tuple[str, ...]] = []
        self.leaves: Artifacts | None = Artifacts(model=True, saved="model/1")
        self.unkillable: tuple[str, ...] = ()
        self.sees = True  # whether it can see what it leaves
        self.reachable: dict[str, str] | None = {}  # host -> why not; None: probes bring nothing back
        self._on(events.Due())

    def at(self, time: float, *happened: events.Event) -> "Play":
        """Advance the clock to this time, then let the events happen."""
        while (due := self.policy.deadline) < time and not self.policy.facts.left:
            assert due > self.now
            self.now, self.woken = due, self.woken + 1
            self._on(events.Due())
        self.now = time
        for event in happened or (events.Due(),):
            self._on(event)
        return self

    def through(self, history: "list[tuple | Shows]") -> "Play":
        """Play a history of (second, event, ...). `Beats` in place of an event send heartbeats until that second."""
        seen = len(self.did)
        for step in history:
            if isinstance(step, Shows):
                step.check(self, self.since(0)[seen:])
                seen = len(self.did)
                continue
            second, *happened = step
            if happened and isinstance(happened[0], Beats):
                heartbeats(self, second, *happened[0].hosts, **happened[0].facts)
            elif happened and happened[0] is PAUSED:
                self.now = second
                for event in happened[1:] or (events.Due(),):
                    self._on(event)
            else:
                self.at(second, *happened)
        return self

    def _on(self, event: events.Event) -> None:
        came_of_it: list[events.Event] = []
        for action in self.policy.on((event,), self.now):
            match action:
                case events.Start(spec=spec):
                    self.did.append((self.now, f"start {spec.name}"))
                case events.Ask(name=name) | events.Force(name=name):
                    self.did.append((self.now, f"{type(action).__name__.lower()} {name}"))
                case events.WritePublicKeys(key_name=key_name, keys=keys):
                    self.did.append((self.now, f"write {key_name}: {', '.join(host for host, _ in keys)}"))
                case events.Finish(outcome=end):
                    self.did.append((self.now, f"finish {end.kind} {int(end.exit_code)}"))
                case events.TellCoordinator(report=report):
                    self.sent.append(report)
                case events.TellFollowers(news=news):
                    self.sent.append(news)
                case events.Sweep(keep=keep):
                    self.did.append((self.now, f"sweep, keep {', '.join(sorted(keep)) or 'nothing'}"))
                    came_of_it.append(events.Swept(left=self.unkillable))
                case events.Inspect(name=name):
                    self.did.append((self.now, f"inspect {name}"))
                    came_of_it.append(events.Survived(name=name, left=self.unkillable))
                case events.Look(names=names):
                    self.looked.append(names)
                case events.Probe(hosts=hosts):
                    self.probed.append(hosts)
                    if self.reachable is not None:  # all are found at once, but for those that are not
                        found = [events.Reach(host=h, address="10.0.0.1", why=self.reachable.get(h, "")) for h in hosts]
                        came_of_it.append(events.Probed(found=tuple(found)))
                case events.Knock(host=host):
                    self.knocked.append(host)
                case events.TakeInventory():
                    if self.sees:
                        came_of_it.append(events.Inventoried(artifacts=self.leaves))
                case events.Say(message=message):
                    self.said.append(message)
        for each in came_of_it:
            self._on(each)

    def since(self, time: float) -> list[str]:
        """Return the actions since a time, rounded to tenths of a second."""
        return [f"{at:.1f} {what}" for at, what in self.did if at >= time]

    @property
    def what(self) -> list[str]:
        return [what for _, what in self.did]

    @property
    def last_told(self) -> Report | News:
        return self.sent[-1]

    @property
    def outcome(self) -> Outcome | None:
        return self.policy.facts.outcome

    @property
    def verdict(self) -> str:
        """Return when the outcome was settled, and what it is: `5.1 failed 3: algo-2 worker/1 (exit code 3)`."""
        if self.outcome is None:
            return ""
        text = f"{self.policy.facts.outcome_at:.1f} {self.outcome.kind} {int(self.outcome.exit_code)}"
        return f"{text}: {self.outcome.cause.headline}" if self.outcome.cause else text

    @property
    def blamed(self) -> str:
        assert self.policy.facts.outcome and self.policy.facts.outcome.cause
        return self.policy.facts.outcome.cause.headline


def ended(name: str, code: int = 0, output: str = "", signal: int | None = None) -> events.Ended:
    return events.Ended(name=name, exit=Exit(code=128 + signal if signal else code, signal=signal), output=output)


def reported(host: int, **facts) -> events.Reported:
    facts.setdefault("ready", frozenset({"prepare", "preflight"}))
    facts.setdefault("ack", 1000)  # whatever was asked
    return events.Reported(report=Report(host=f"algo-{host}", **facts))


def unreached(host: int) -> events.Unreached:
    return events.Unreached(host=f"algo-{host}")


def link_ended(host: int) -> events.LinkEnded:
    return events.LinkEnded(host=f"algo-{host}")


def informed(**facts) -> events.Informed:
    facts.setdefault("ready", frozenset({("*", "prepare"), ("*", "preflight")}))
    facts.setdefault("assembled", True)
    return events.Informed(news=News(**facts), offset=0.0)


def cause(host: int = 2, confidence: Confidence = Confidence.HIGH, **facts) -> Cause:
    given = {"host": f"algo-{host}", "process": f"worker/{host - 1}", "what": "exit code 3", "code": 3, **facts}
    return Cause(confidence=confidence, **given)


STOP = events.Signalled(number=15)


class Shows:
    """State what must hold for a host at a point of a history: patterns of its verdict and of its last action.

    `did` are all its actions since the history began or since the last Shows. `cause` is a pattern of the cause in the
    host's last report, "" if there is none. `told` are other fields of its last message.
    """

    def __init__(self, verdict: str = "*", last: str = "*", did: list[str] | None = None, **told) -> None:
        self.verdict, self.last, self.did, self.told = verdict, last, did, told

    def check(self, p: Play, did: list[str]) -> None:
        told = {name: getattr(p.last_told, name) for name in self.told}
        if "cause" in told:
            assert matches(told["cause"].headline if told["cause"] else "", self.told["cause"]), told["cause"]
            told["cause"] = self.told["cause"]
        assert matches(p.verdict, self.verdict), p.verdict
        assert matches(p.since(0)[-1], self.last), p.did
        assert self.did is None or did == self.did
        assert told == self.told


def running(play, hosts: int = 3, me: int = 1, **settings) -> Play:
    """Return a MultiWorkerMirrored job whose scripts all run; it is 2.0 s old."""
    p = play(hosts, me, **settings)
    p.at(1, ended("prepare"))
    if me == 1:
        p.at(2, *(reported(host) for host in range(2, hosts + 1)))
    else:
        p.at(2, informed())
    assert p.what[-1] == f"start worker/{me - 1}"
    return p


def following(play, **settings) -> Play:
    """Return the first follower of a MultiWorkerMirrored job whose scripts all run."""
    return running(play, me=2, **settings)


class Beats:
    """Stand for a heartbeat each second: from some followers or, on a follower, from the coordinator."""

    def __init__(self, *hosts: int, **facts) -> None:
        self.hosts, self.facts = hosts, facts


def matches(text: str, pattern: str) -> bool:
    """Return whether a text matches a pattern, in which `*` stands for any text."""
    return bool(re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text, re.DOTALL))


def heartbeats(p: Play, until: float, *hosts: int, **facts) -> None:
    """Let some followers (or, on a follower, the coordinator) send a heartbeat every second."""
    while p.now + 1 <= until:
        p.at(p.now + 1, *([reported(host, **facts) for host in hosts] if p.me == "algo-1" else [informed(**facts)]))


def mpi(play, me: int = 1, **settings) -> Play:
    """Return a job of two hosts with two running ranks each; it is 3.0 s old."""
    p = play(2, me, mode="mpi", processes_per_host=2, **settings)
    p.at(1, ended("prepare"), ended("host-key"))
    first = (me - 1) * 2
    if me == 1:
        p.at(1, ended("client-key"), events.Listening(name="sshd"))
        p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"})))
        assert p.what[-1] == "start mpirun"
    else:
        p.at(2, informed(ready=frozenset({("*", "prepare"), ("algo-1", "client-key"), ("algo-1", "mpirun")})))
    p.at(3, *(events.RankStarted(name=f"rank {number}", pid=number) for number in (first, first + 1)))
    return p


def mpi_following(play) -> Play:
    return mpi(play, me=2)


UP = frozenset({"prepare", "preflight", "sshd"})  # what is ready on a follower of mode mpi


def mpi_started(play, me: int = 1, hosts: int = 2, **settings) -> Play:
    """Return a job of mode mpi with one rank per host. The job is 2.0 s old, and its mpirun has just been started."""
    p = play(hosts, me, mode="mpi", **settings)
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"))
    p.at(2, *([ended("client-key"), reported(2, ready=UP)] if me == 1 else [informed()]))
    return p


def stopped_job(play, me: int = 1, **settings) -> Play:
    p = running(play, me=me, **settings)
    p.at(5, STOP)
    assert p.since(4) == [f"5.0 ask worker/{me - 1}"]
    assert p.last_told.stopping
    return p
