"""policy.py as tables: a history of (time, event) in, the actions out. No process, no socket, no clock.

A `Play` is one host's policy on a plan that the real planner made. Between two events it is woken whenever it
asked to be, as the supervisor does it. Actions read "12.5 ask worker/0"; what is only said or told is apart.
"""

from pathlib import Path

import pytest
from builders import names, read

from entrypoint import events, outcome
from entrypoint.artifacts import Artifacts, File
from entrypoint.distributions import plan_for
from entrypoint.errors import ExitCode
from entrypoint.events import News, Report
from entrypoint.outcome import Cause, Exit, Kind, Strength
from entrypoint.plan import Duty, Flag
from entrypoint.policy import INVENTORY, LEAVE, Policy
from entrypoint.verdict import LINGER, SETTLE

GRACE = 2.0  # failure_grace, by default
TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 1\n'
RAISED = TRACEBACK + "ValueError: x\n"
ECHO = TRACEBACK + "UnavailableError: Socket closed\n"


class Play:
    def __init__(self, base: Path, hosts: int = 1, me: int = 1, mode: str = "mwms", **settings) -> None:
        environment = {f"ENTRYPOINT_{key.upper()}": str(value) for key, value in {"mode": mode, **settings}.items()}
        self.hosts = names(hosts)
        self.me = f"algo-{me}"
        job = read(base, self.hosts, {}, environment, me=self.me)
        self.plan = plan_for(job)
        self.policy = Policy(self.plan, self.me, job.settings, 0.0)
        self.now, self.woken = 0.0, 0
        self.did: list[tuple[float, str]] = []
        self.told: list[Report | News] = []
        self.said: list[str] = []
        self.probed: list[tuple[str, ...]] = []
        self.looked: list[tuple[str, ...]] = []
        self.leaves: Artifacts | None = Artifacts(model=True, saved="model/1")
        self.unkillable: tuple[str, ...] = ()
        self.sees = True  # whether it can see what it leaves
        self.reachable: dict[str, str] | None = {}  # host -> why not; None: probes bring nothing back
        self._on(events.Due())

    def at(self, time: float, *happened: events.Event) -> "Play":
        """Let time pass, then let it happen."""
        while (due := self.policy.deadline(self.now)) < time and not self.policy._finished:
            assert due > self.now
            self.now, self.woken = due, self.woken + 1
            self._on(events.Due())
        self.now = time
        for event in happened or (events.Due(),):
            self._on(event)
        return self

    def _on(self, event: events.Event) -> None:
        came_of_it: list[events.Event] = []
        for action in self.policy.on(event, self.now):
            match action:
                case events.Start(spec=spec):
                    self.did.append((self.now, f"start {spec.name}"))
                case events.Ask(name=name) | events.Force(name=name):
                    self.did.append((self.now, f"{type(action).__name__.lower()} {name}"))
                case events.WriteCards(card=card, keys=keys):
                    self.did.append((self.now, f"write {card}: {', '.join(host for host, _ in keys)}"))
                case events.Finish(outcome=end):
                    self.did.append((self.now, f"finish {end.kind} {int(end.exit_code)}"))
                case events.TellCoordinator(report=report):
                    self.told.append(report)
                case events.TellFollowers(news=news):
                    self.told.append(news)
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
                case events.TakeInventory():
                    if self.sees:
                        came_of_it.append(events.Inventoried(artifacts=self.leaves))
                case events.Say(message=message):
                    self.said.append(message)
        for each in came_of_it:
            self._on(each)

    def since(self, time: float) -> list[str]:
        """What was done from a time on, rounded to tenths of a second."""
        return [f"{at:.1f} {what}" for at, what in self.did if at >= time]

    @property
    def what(self) -> list[str]:
        return [what for _, what in self.did]

    @property
    def last_told(self) -> Report | News:
        return self.told[-1]

    @property
    def blamed(self) -> str:
        assert self.policy.facts.outcome and self.policy.facts.outcome.cause
        return self.policy.facts.outcome.cause.headline


def ended(name: str, code: int = 0, output: str = "", signal: int | None = None) -> events.Ended:
    return events.Ended(name=name, exit=Exit(code=128 + signal if signal else code, signal=signal), output=output)


def reported(host: int, **facts) -> events.Reported:
    facts.setdefault("ready", frozenset({"prepare", "preflight"}))
    facts.setdefault("answers", 1000)  # whatever was asked
    return events.Reported(report=Report(host=f"algo-{host}", **facts))


def unreached(host: int) -> events.Unreached:
    return events.Unreached(host=f"algo-{host}")


def line_ended(host: int) -> events.LineEnded:
    return events.LineEnded(host=f"algo-{host}")


def informed(**facts) -> events.Informed:
    facts.setdefault("ready", frozenset({("*", "prepare"), ("*", "preflight")}))
    facts.setdefault("assembled", True)
    return events.Informed(news=News(**facts))


def cause(host: int = 2, strength: Strength = Strength.STRONG, **facts) -> Cause:
    given = {"host": f"algo-{host}", "process": f"worker/{host - 1}", "what": "exit code 3", "code": 3, **facts}
    return Cause(strength=strength, **given)


STOP = events.Signalled(number=15)


@pytest.fixture
def play(tmp_path):
    return lambda *args, **more: Play(tmp_path, *args, **more)


def running(play, hosts: int = 3, me: int = 1, **settings) -> Play:
    """A MultiWorkerMirrored job whose scripts all run; it is 2.0 s old."""
    p = play(hosts, me, **settings)
    p.at(1, ended("prepare"))
    if me == 1:
        p.at(2, *(reported(host) for host in range(2, hosts + 1)))
    else:
        p.at(2, informed())
    assert p.what[-1] == f"start worker/{me - 1}"
    return p


def heartbeats(p: Play, until: float, *hosts: int, **facts) -> None:
    """Let some followers (or, on a follower, the coordinator) be heard every second."""
    while p.now + 1 <= until:
        p.at(p.now + 1, *([reported(host, **facts) for host in hosts] if p.me == "algo-1" else [informed(**facts)]))


# --- one host ---

ALONE = {
    # history on one host: the actions
    "success": ([(1, ended("prepare")), (5, ended("script"))],
                ["0.0 start prepare", "1.0 start script", "5.0 finish succeeded 0"]),
    "script exits 3": ([(1, ended("prepare")), (5, ended("script", 3))],
                       ["0.0 start prepare", "1.0 start script", "5.0 finish failed 3"]),
    "script is killed": ([(1, ended("prepare")), (5, ended("script", signal=9))],
                         ["0.0 start prepare", "1.0 start script", "5.0 finish failed 137"]),
    "code cannot be had": ([(1, ended("prepare", 65, "no such bucket\n"))],
                           ["0.0 start prepare", "1.0 finish failed 65"]),
    "interpreter is absent": ([(1, ended("prepare")), (1.1, events.NotStarted(name="script", why="python: gone"))],
                              ["0.0 start prepare", "1.0 start script", "1.1 finish failed 127"]),
    "stopped, saves": ([(1, ended("prepare")), (5, STOP), (6, ended("script"))],
                       ["0.0 start prepare", "1.0 start script", "5.0 ask script", "6.0 finish succeeded 0"]),
    "stopped, dies": ([(1, ended("prepare")), (5, STOP), (6, ended("script", signal=15))],
                      ["0.0 start prepare", "1.0 start script", "5.0 ask script", "6.0 finish stopped 143"]),
    "stopped, fails": ([(1, ended("prepare")), (5, STOP), (6, ended("script", 1, RAISED))],
                       ["0.0 start prepare", "1.0 start script", "5.0 ask script", "6.0 finish stopped 143"]),
    "stopped twice": ([(1, ended("prepare")), (5, STOP), (6, STOP), (7, ended("script"))],
                      ["0.0 start prepare", "1.0 start script", "5.0 ask script", "7.0 finish succeeded 0"]),
    "stopped before the script": ([(0.5, STOP), (0.6, ended("prepare", signal=15))],
                                  ["0.0 start prepare", "0.5 ask prepare", "0.6 finish stopped 143"]),
    "stopped, prepared just then": ([(0.5, STOP), (0.6, ended("prepare"))],
                                    ["0.0 start prepare", "0.5 ask prepare", "0.6 finish stopped 143"]),
    "stopped, never ends": ([(1, ended("prepare")), (5, STOP), (105.5, ended("script", signal=9))],
                            ["0.0 start prepare", "1.0 start script", "5.0 ask script", "105.0 force script",
                             "105.5 finish stopped 143"]),
    "stopped after the end": ([(1, ended("prepare")), (5, ended("script")), (6, STOP)],
                              ["0.0 start prepare", "1.0 start script", "5.0 finish succeeded 0"]),
    "failed, then stopped": ([(1, ended("prepare")), (5, ended("script", 3)), (5, STOP)],
                             ["0.0 start prepare", "1.0 start script", "5.0 finish failed 3"]),
    "an echo has nobody else to blame": (
        [(1, ended("prepare")), (5, ended("script", 1, ECHO)), (7, events.Due())],
        ["0.0 start prepare", "1.0 start script", "5.3 finish failed 1"]),
    "an end that is told twice": ([(1, ended("prepare")), (1, ended("prepare", 1)), (5, ended("script"))],
                                  ["0.0 start prepare", "1.0 start script", "5.0 finish succeeded 0"]),
    "the launcher itself breaks": (
        [(1, ended("prepare")), (2, events.Broken(why="disk full", code=70)), (2.1, ended("script", signal=15))],
        ["0.0 start prepare", "1.0 start script", "2.0 ask script", "2.1 finish failed 70"]),
}  # fmt: skip


@pytest.mark.parametrize("history, actions", ALONE.values(), ids=ALONE)
def test_one_host(play, history, actions):
    p = play(1, mode="single")
    for time, event in history:
        p.at(time, event)
    assert p.since(0) == actions


# --- starting together ---


def test_scripts_start_when_every_host_is_prepared(play):
    p = play(3)
    p.at(1, ended("prepare"))
    p.at(2, reported(2))
    assert p.what == ["start prepare"]
    p.at(3, reported(3))
    assert p.since(3) == ["3.0 start worker/0"]
    assert p.last_told.ready == {("*", "prepare"), ("*", "preflight")}


def test_a_follower_starts_when_the_coordinator_says_so(play):
    p = play(3, 2)
    p.at(1, ended("prepare"))
    assert p.last_told.ready == {"prepare"}
    p.at(2, informed(ready=frozenset()))
    assert p.what == ["start prepare"]
    p.at(3, informed())
    assert p.what == ["start prepare", "start worker/1"]


def test_what_was_said_before_anybody_was_there_is_repeated(play):
    p = play(3, 2)
    assert [type(action) for action in p.policy.repeat()] == [events.TellCoordinator]


def test_parameter_servers_wait_for_their_own_host_only(play):
    p = play(2, mode="ps")
    assert p.what == ["start prepare"]
    p.at(1, ended("prepare"))
    assert p.what == ["start prepare", "start ps/0"]


CHIEF_FIRST = {
    # flags found in the code, chief heard to listen at (or never), setting: when the worker starts
    "TF2 code": (frozenset(), None, "auto", 2.0),
    "TF1 code, chief listens": ({Flag.TF1_SESSIONS}, 20.0, "auto", 20.0),
    "TF1 code, chief never listens": ({Flag.TF1_SESSIONS}, None, "auto", 62.0),
    "always": (frozenset(), 20.0, "always", 20.0),
    "always, chief never listens": (frozenset(), None, "always", 62.0),
    "never": ({Flag.TF1_SESSIONS}, None, "never", 2.0),
}


@pytest.mark.parametrize("flags, listens, setting, starts", CHIEF_FIRST.values(), ids=CHIEF_FIRST)
def test_workers_that_wait_for_the_chief(play, flags, listens, setting, starts):
    p = play(2, 2, mode="ps", ps_chief_first=setting)
    p.at(1, events.Prepared(flags=frozenset(flags)), ended("prepare"))
    p.at(2, informed())
    while p.now < 70:
        up = {("algo-1", "chief/0")} if listens and p.now + 1 >= listens else set()
        p.at(p.now + 1, informed(ready=frozenset({("*", "prepare"), ("*", "preflight")} | up)))
    assert [f"{starts} start worker/0"] == [line for line in p.since(0) if "worker" in line]


def test_the_chief_tells_that_it_listens(play):
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(2, events.Listening(name="chief/0"))
    assert ("algo-1", "chief/0") in p.last_told.ready


def test_cards_reach_those_who_need_them(play):
    p = play(2, mode="mpi")
    assert p.what == ["start prepare", "start host-key", "start client-key"]
    p.at(1, events.Card(name="known_hosts", key="K"), ended("host-key"))
    p.at(1.1, events.Card(name="authorized_keys", key="C"), ended("client-key"))
    assert p.since(1) == ["1.0 write known_hosts: algo-1", "1.1 write authorized_keys: algo-1", "1.1 start sshd"]
    assert dict(p.last_told.cards) == {"known_hosts": "K", "authorized_keys": "C"}
    p.at(1.2, ended("prepare"), events.Listening(name="sshd"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), cards=(("known_hosts", "L"),)))
    assert p.since(2) == ["2.0 write known_hosts: algo-1, algo-2", "2.0 start mpirun"]


def test_cards_that_the_plan_asks_nobody_for_are_not_taken(play):
    """A follower's key would open the coordinator's own door; a name with a / would be a file somewhere else."""
    p = play(2, mode="mpi")
    p.at(1, reported(2, cards=(("authorized_keys", "E"), ("../../x", "E"), ("known_hosts", "L"))))
    assert [line for line in p.since(1) if "write" in line] == ["1.0 write known_hosts: algo-2"]


# --- success ---


def test_success_needs_every_host(play):
    p = running(play)
    p.at(5, ended("worker/0"))
    p.at(6, reported(2, done=True), reported(3))
    assert p.policy.facts.outcome is None
    p.at(7, reported(3, done=True))
    assert p.last_told.outcome == outcome.succeeded()
    assert "finish succeeded 0" not in p.what  # they still have to hear it
    p.at(7.2, reported(2, done=True, gone=True))
    p.at(7.3, reported(3, done=True, gone=True))
    assert p.since(3) == ["7.3 finish succeeded 0"]


def test_a_follower_that_is_done_waits_for_the_job(play):
    p = running(play, me=2)
    p.at(5, ended("worker/1"))
    assert p.last_told.done and p.last_told.clean and not p.last_told.gone
    heartbeats(p, 600)
    assert "finish succeeded 0" not in p.what
    p.at(601, informed(outcome=outcome.succeeded()))
    assert p.since(3) == ["601.0 finish succeeded 0"]
    assert p.last_told.gone


def test_servers_stay_until_the_last_script_has_ended(play):
    p = play(2, 2, mode="ps")
    p.at(1, events.Prepared(flags=frozenset()), ended("prepare"))
    p.at(2, informed())
    p.at(3, ended("worker/0"))
    heartbeats(p, 60)
    assert not [line for line in p.what if line.startswith("ask")]
    p.at(61, informed(outcome=outcome.succeeded()))
    assert p.since(61) == ["61.0 ask ps/1"]
    p.at(61.5, ended("ps/1", signal=15))
    assert p.since(61.1) == ["61.5 finish succeeded 0"]


def test_a_server_that_does_not_go_is_forced(play):
    p = play(2, 2, mode="ps")
    p.at(1, events.Prepared(flags=frozenset()), ended("prepare"))
    p.at(2, informed(), ended("worker/0"), informed(outcome=outcome.succeeded()))
    p.at(5, ended("ps/1", signal=9))
    assert p.since(1.5) == ["2.0 start worker/0", "2.0 ask ps/1", f"{2 + GRACE} force ps/1", "5.0 finish succeeded 0"]


def test_a_follower_that_never_says_good_bye_does_not_hold_the_coordinator(play):
    p = running(play)
    p.at(5, ended("worker/0"), reported(2, done=True), reported(3, done=True))
    p.at(5.1, reported(2, done=True, gone=True))
    p.at(60)
    assert p.since(3) == [f"{5 + GRACE + LEAVE} finish succeeded 0"]


# --- failure ---


def test_a_followers_failure_is_everybodys(play):
    p = running(play)
    p.at(5, reported(2, done=True, clean=False, cause=cause(2)))
    assert p.since(3) == ["5.0 ask worker/0"]
    assert p.last_told.outcome == outcome.failed(cause(2))
    p.at(5.1, ended("worker/0", signal=15))
    p.at(5.2, reported(2, gone=True), reported(3, gone=True))
    assert p.since(5.1) == ["5.2 finish failed 3"]


def test_what_ignores_sigterm_is_killed_after_the_grace(play):
    p = running(play, failure_grace=4)
    p.at(5, reported(2, done=True, clean=False, cause=cause(2)))
    p.at(20, ended("worker/0", signal=9))
    assert p.since(3)[:2] == ["5.0 ask worker/0", "9.0 force worker/0"]
    assert p.what[-1] == "finish failed 3"


def test_a_follower_tells_its_failure_at_once_and_waits_for_the_verdict(play):
    p = running(play, me=2)
    p.at(5, ended("worker/1", 3, RAISED))
    assert p.last_told.cause.headline == "algo-2 worker/1 (exit code 3): ValueError: x"
    assert "finish failed 3" not in p.what
    first = cause(3, error="KeyError: y")  # another host was quicker: that is the verdict, here too
    p.at(5.1, informed(outcome=outcome.failed(first)))
    assert p.what[-1] == "finish failed 3"
    assert "algo-3" in p.blamed


def test_the_rest_of_a_failing_host_is_stopped_at_once(play):
    p = play(2, 2, processes_per_host=2)
    p.at(1, ended("prepare"))
    p.at(2, informed())
    p.at(5, ended("worker/2", 3, RAISED))
    assert p.since(3) == ["5.0 ask worker/3"]
    p.at(5.1, ended("worker/3", 1, RAISED))  # is our doing
    assert p.last_told.cause.process == "worker/2"


def test_the_first_of_two_failures_counts(play):
    p = running(play)
    p.at(5, reported(3, cause=cause(3)))
    p.at(5, reported(2, cause=cause(2)))
    assert "algo-3" in p.blamed


def test_an_echo_waits_for_its_cause(play):
    p = running(play)
    p.at(5, ended("worker/0", 1, ECHO))
    assert p.policy.facts.outcome is None
    p.at(5.1, reported(2, cause=cause(2)))
    assert "algo-2" in p.blamed


def test_a_lone_echo_is_used_after_a_moment(play):
    p = running(play)
    p.at(5, ended("worker/0", 1, ECHO))
    p.at(5 + SETTLE * 0.9, reported(2), reported(3))
    assert p.policy.facts.outcome is None
    p.at(5 + SETTLE * 1.1)
    assert "algo-1 worker/0" in p.blamed and "Socket closed" in p.blamed


def test_an_echo_waits_for_hosts_that_were_not_heard_since(play):
    """The culprit may be the one whose word is still on its way, or that is dead."""
    p = running(play)
    p.at(2.1, reported(2, answers=0), reported(3, answers=0))
    p.at(5, ended("worker/0", 1, ECHO))
    p.at(5.9, reported(3))
    assert p.policy.facts.outcome is None
    p.at(12)
    assert p.blamed.startswith("algo-2 (lost")
    assert p.policy.facts.outcome.exit_code == ExitCode.HOST_LOST


def test_an_echo_and_then_the_cause_from_the_same_host(play):
    p = running(play)
    p.at(5, reported(2, cause=cause(2, Strength.WEAK, process="worker/1", error="Socket closed")))
    p.at(5.1, reported(2, cause=cause(2, process="worker/2", error="ValueError: x")), reported(3))
    p.at(7)
    assert p.blamed == "algo-2 worker/2 (exit code 3): ValueError: x"


def test_an_echo_does_not_silence_its_cause_on_the_same_host(play):
    """Two processes end together; the one that only suffered happens to be looked at first."""
    p = play(2, 2, processes_per_host=2)
    p.at(1, ended("prepare"))
    p.at(2, informed())
    p.at(5, ended("worker/2", 1, ECHO), ended("worker/3", 3, RAISED))
    assert p.last_told.cause.headline == "algo-2 worker/3 (exit code 3): ValueError: x"


def test_a_parameter_server_that_dies_fails_the_job(play):
    for end in (ended("ps/0", signal=11), ended("ps/0", 0), ended("ps/0", 1, RAISED)):
        p = play(2, mode="ps")
        p.at(1, ended("prepare"), reported(2))
        p.at(5, end)
        assert "algo-1 ps/0 (ended too early" in p.blamed
        assert p.policy.facts.outcome.exit_code == (end.exit.code or 1)
        assert p.since(3) == ["5.0 ask chief/0"]


def mpi(play, me: int = 1, **settings) -> Play:
    """Two hosts with two ranks each, all running; it is 3.0 s old."""
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


def test_mpirun_fails_because_a_rank_did(play):
    p = mpi(play)
    p.at(5, ended("mpirun", 1, "Primary job terminated normally, but 1 process returned\nmore text\n"))
    assert p.policy.facts.outcome is None
    p.at(5.1, reported(2, cause=cause(2, process="rank 3", error="ValueError: x")))
    assert p.blamed == "algo-2 rank 3 (exit code 3): ValueError: x"


def test_mpirun_fails_by_itself(play):
    p = mpi(play)
    p.at(4, ended("rank 0"), ended("rank 1"))
    p.at(5, ended("mpirun", 213, "There are not enough slots\n\nlong story\n"))
    p.at(5.2, reported(2))
    p.at(6)
    assert p.blamed == "algo-1 mpirun (exit code 213): There are not enough slots"


def test_ranks_that_mpirun_kills_are_not_to_blame(play):
    p = mpi(play)
    p.at(5, ended("rank 0", signal=9))
    p.at(5.05, ended("rank 1", 1, RAISED))
    assert p.blamed == "algo-1 rank 1 (exit code 1): ValueError: x"


def test_a_rank_that_the_kernel_kills_is_to_blame_if_nobody_else_is(play):
    p = mpi(play)
    p.at(5, ended("rank 1", signal=9))
    p.at(5.1, ended("mpirun", 137))
    p.at(5.5, reported(2))
    assert p.blamed == "algo-1 rank 1 (killed by SIGKILL)"
    assert p.policy.facts.outcome.exit_code == 137


def test_a_rank_that_the_kernel_kills_is_to_blame_whoever_is_heard_first(play):
    p = mpi(play)
    p.at(5, ended("rank 0", signal=15), ended("mpirun", 137))
    killed = cause(2, Strength.WEAK, process="rank 3", what="killed by SIGKILL", code=137)
    p.at(5.1, reported(2, cause=killed))
    p.at(7)
    assert p.blamed == "algo-2 rank 3 (killed by SIGKILL)"


def test_ranks_do_not_decide_success(play):
    p = mpi(play)
    p.at(5, ended("rank 0"), ended("rank 1"), reported(2, done=True))
    assert p.policy.facts.outcome is None
    p.at(6, ended("mpirun"))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_a_late_rank_of_a_failed_job_is_stopped(play):
    p = mpi(play, me=2)
    p.at(5, ended("rank 2", signal=15), informed(outcome=outcome.failed(cause(1))))
    assert sorted(p.since(4)) == ["5.0 ask rank 3", "5.0 ask sshd"]
    p = play(2, 2, mode="mpi", processes_per_host=2)
    p.at(1, ended("prepare"), informed(outcome=outcome.failed(cause(1))))
    p.at(2, events.RankStarted(name="rank 2", pid=5))
    assert p.since(2) == ["2.0 ask rank 2"]


def test_mpirun_goes_when_the_job_has_failed(play):
    p = mpi(play)
    p.at(5, reported(2, cause=cause(2, process="rank 3"), ready=frozenset({"prepare", "preflight", "sshd"})))
    p.at(5.2, ended("rank 0", signal=15), ended("rank 1", signal=15), ended("sshd", signal=15))
    p.at(5.3, reported(2, gone=True))
    assert p.what[-1] == "force mpirun"
    p.at(5.4, ended("mpirun", signal=9))
    assert p.what[-1] == "finish failed 3"


def test_mpirun_is_not_waited_for_where_no_other_host_is_left(play):
    """It waits for a daemon that is lost."""
    p = mpi(play)
    p.at(7.1, ended("rank 0", signal=15), ended("rank 1", signal=15))
    assert p.blamed == "algo-2 (lost: not heard for 5 s)"
    assert p.what[-1] == "force mpirun"
    p.at(7.2, ended("mpirun", signal=9), ended("sshd"))
    assert p.what[-1] == "finish failed 69"


# --- hosts that vanish ---


def test_a_lost_follower(play):
    p = running(play)
    heartbeats(p, 20, 3)
    assert p.blamed == "algo-2 (lost: not heard for 5 s)"
    assert p.since(3)[0] == "7.0 ask worker/0"
    p.at(20.1, ended("worker/0", signal=15), reported(3, gone=True))
    assert p.what[-1] == "finish failed 69"


def test_a_second_lost_follower_is_not_waited_for(play):
    """The verdict comes with the first one; the other is as silent soon after, and has no last words to say."""
    p = running(play)
    p.at(2.5, reported(3))
    p.at(7.1, ended("worker/0", signal=15))
    p.at(30)
    assert p.blamed.startswith("algo-2 (lost: not heard for 5 s)")
    assert p.what[-1] == "finish failed 69"
    assert p.did[-1][0] == pytest.approx(7.5, abs=0.1)


GONE = "(lost: not heard for 2 s, and it takes no connection)"


def test_a_failing_job_does_not_wait_long_for_a_host_that_takes_no_connection(play):
    p = mpi(play)
    p.at(3, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), answers=0))
    p.at(3.5, ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15), unreached(2))
    p.at(4.9)
    assert p.policy.facts.outcome is None
    p.at(5.1)
    assert p.blamed == f"algo-2 {GONE}"


def test_one_that_takes_connections_may_only_be_paused(play):
    p = mpi(play)
    p.at(3, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), answers=0))
    p.at(3.5, ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15))
    p.at(7.9)
    assert p.policy.facts.outcome is None
    p.at(8.1)
    assert p.blamed == "algo-2 (lost: not heard for 5 s)"


def test_one_that_is_heard_again_is_not_lost(play):
    p = mpi(play)
    p.at(3.5, ended("mpirun", 1), ended("rank 0", signal=15), ended("rank 1", signal=15), unreached(2))
    p.at(3.6, reported(2, ready=frozenset({"prepare", "preflight", "sshd"})))
    p.at(6)
    assert "algo-2" not in p.policy.facts.lost()


def test_where_nothing_is_wrong_a_network_may_be_away_for_longer(play):
    p = running(play)
    p.at(4.5, unreached(2), reported(3))
    p.at(6.9, reported(3))
    assert p.policy.facts.outcome is None


def test_a_follower_that_fails_does_not_wait_long_for_a_coordinator_that_takes_no_connection(play):
    p = mpi(play, me=2)
    p.at(3.5, events.RankOrphaned(name="rank 2"), unreached(1))
    assert p.policy.facts.outcome is None
    p.at(4.1)
    assert p.blamed == f"algo-1 {GONE}"


CLOSED = "(lost: its connection ended, and it was not heard for 1.5 s)"


@pytest.mark.parametrize("me, other", [(1, 2), (2, 1)])
def test_a_launcher_that_is_killed_is_lost_soon(play, me, other):
    p = running(play, me=me)
    p.at(2.7, line_ended(other))
    p.at(2.8, unreached(other))
    p.at(3.6, *([reported(3)] if me == 1 else []))
    p.at(4.1)
    assert p.policy.facts.outcome is None
    p.at(4.3)
    assert p.blamed == f"algo-{other} {CLOSED}"


def test_whose_connection_ended_has_its_time_though_we_stood_still(play):
    p = running(play)
    p.at(2.7, line_ended(2), reported(3))
    p.now = 4.6  # nothing woke us
    p._on(reported(3))  # the report of the other is behind this one
    p.at(4.7, reported(2))
    p.at(6, reported(2), reported(3))
    assert p.policy.facts.outcome is None


def test_a_failed_job_waits_for_one_that_is_cut_off_for_a_moment(play):
    """It comes back, and is to hear what became of the job."""
    p = running(play)
    p.at(2, ended("worker/0", 3, RAISED), reported(2), reported(3))
    p.at(3.3, unreached(2), reported(3, gone=True))
    p.at(5.5)
    assert not p.what[-1].startswith("finish")
    p.at(5.6, reported(2, gone=True))
    assert p.what[-1] == "finish failed 3"


def test_a_coordinator_that_hangs_up_and_takes_connections_is_not_lost_soon(play):
    """Others on our host may have asked too much of it."""
    p = running(play, me=2)
    p.at(2.7, line_ended(1))
    p.at(6.9)
    assert p.policy.facts.outcome is None
    p.at(7.1)
    assert p.blamed == "algo-1 (lost: not heard for 5 s)"


def test_a_connection_that_is_lost_is_no_host_that_is_lost(play):
    p = running(play)
    p.at(2.7, line_ended(2))
    p.at(2.8, reported(2), reported(3))
    p.at(6, reported(3))
    assert p.policy.facts.outcome is None
    p.at(8)
    assert p.blamed == "algo-2 (lost: not heard for 5 s)"


def test_who_hangs_up_after_its_last_words_is_not_lost(play):
    p = running(play)
    p.at(2, reported(2, done=True), reported(3, done=True), ended("worker/0", 0))
    p.at(2.5, reported(2, done=True, gone=True), line_ended(2))
    p.at(2.6, reported(3, done=True, gone=True), line_ended(3))
    p.at(9)
    assert p.what[-1] == "finish succeeded 0"


def test_a_host_that_is_killed_while_the_job_ends_is_not_waited_for(play):
    p = running(play)
    p.at(2, ended("worker/0", 3, RAISED), reported(2), reported(3))
    p.at(2.9, line_ended(2), reported(3, gone=True))
    p.at(4.3)
    assert not p.what[-1].startswith("finish")
    p.at(4.5)
    assert p.what[-1] == "finish failed 3"


def test_a_lost_coordinator(play):
    p = running(play, me=3)
    p.at(7.1, ended("worker/2", signal=15))
    assert p.since(3) == ["7.0 ask worker/2", "7.1 finish failed 69"]
    assert p.blamed == "algo-1 (lost: not heard for 5 s)"


def test_what_failed_here_before_the_coordinator_was_lost_is_the_cause(play):
    p = running(play, me=3)
    p.at(3, informed())
    p.at(3.5, ended("worker/2", 3, RAISED))
    p.at(4, informed())
    p.at(20)
    assert p.what[-1] == "finish failed 3"
    assert "algo-3 worker/2" in p.blamed


def test_what_failed_here_after_the_coordinator_fell_silent_is_an_echo(play):
    p = running(play, me=3)
    p.at(4, ended("worker/2", 1, RAISED))
    p.at(20)
    assert p.what[-1] == "finish failed 69"


def test_a_host_that_never_appears(play):
    p = play(3, start_timeout=60)
    p.reachable = {"algo-3": "port 7979: Connection refused"}
    p.at(1, ended("prepare"))
    heartbeats(p, 70, 2)
    assert p.blamed == ("algo-3 (did not appear within 60 s): it is at 10.0.0.1, port 7979: Connection refused")
    assert p.policy.facts.outcome.cause.details.splitlines() == [
        "host    name resolves  port answers                   last heard",
        "algo-3  10.0.0.1       port 7979: Connection refused  never",
    ]
    assert p.policy.facts.outcome.exit_code == ExitCode.START_TIMEOUT
    assert [text for text in p.said if "waiting for algo-3" in text]
    p.at(71, reported(2, gone=True))
    assert p.what[-1] == "finish failed 75"


def test_a_coordinator_that_never_appears(play):
    p = play(3, 2, start_timeout=60)
    p.reachable = None
    p.at(1, ended("prepare"))
    p.at(70)
    assert p.what[-1] == "finish failed 75"
    assert p.blamed == "algo-1 (did not appear within 60 s)"


def test_a_host_that_appears_but_never_gets_ready(play):
    """A pip that hangs: `start_timeout` promises hosts that appear *and are ready*."""
    p = play(3, start_timeout=60)
    p.at(1, ended("prepare"))
    while p.now < 70:
        p.at(p.now + 1, reported(2), reported(3, ready=frozenset()))
    assert p.blamed.startswith("algo-3 (")
    assert p.policy.facts.outcome.exit_code == ExitCode.START_TIMEOUT


def test_a_long_training_is_not_a_late_start(play):
    p = running(play, start_timeout=60)
    heartbeats(p, 200, 2, 3)
    assert p.policy.facts.outcome is None


def test_bad_news_wait_for_hosts_that_have_not_appeared(play):
    """Else these would look for the coordinator until the start timeout."""
    p = play(2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(20, reported(2))
    p.at(20.5)
    assert "finish failed 65" not in p.what  # the answer may be on its way, or lost
    p.at(21, reported(2, gone=True))
    assert p.what[-1] == "finish failed 65"


def test_who_appears_late_and_never_says_good_bye_does_not_hold_bad_news_up(play):
    p = play(2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(20, reported(2))
    p.at(40)
    assert p.since(2) == [f"{20 + GRACE + LEAVE} finish failed 65"]


def test_bad_news_do_not_wait_for_ever(play):
    p = play(2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(LINGER + 10)
    assert p.what[-1] == "finish failed 65"


def test_a_follower_with_bad_news_and_no_coordinator(play):
    p = play(2, 2)
    p.at(1, ended("prepare", 65, "no such bucket\n"))
    p.at(LINGER + 10)
    assert p.what[-1] == "finish failed 65"


def test_our_own_pause_is_nobodys_fault(play):
    """Suspended for a minute (SIGSTOP, a frozen machine): the others were not silent, we were deaf."""
    for me in (1, 2):
        p = running(play, me=me)
        p.at(5, *([reported(2), reported(3)] if me == 1 else [informed()]))
        p.now = 65  # nothing woke us
        p._on(events.Due())
        assert p.policy.facts.outcome is None
        heartbeats(p, 80, 2, 3)
        assert p.policy.facts.outcome is None


def test_a_follower_that_left_by_itself_is_no_success(play):
    """It took us for lost while we stood still; its last report is: all ended, gone. Never exit 0."""
    p = running(play)
    p.at(5, ended("worker/0"))
    p.now = 30
    p._on(reported(2, done=True, clean=False, gone=True))
    p.at(31, reported(3, done=True))
    p.at(40, reported(3, done=True, gone=True))
    assert p.policy.facts.outcome and p.policy.facts.outcome.kind is Kind.FAILED
    assert p.what[-1] == "finish failed 69"
    assert p.blamed == "algo-1 (stood still for 25 s): algo-2 has left meanwhile"


def test_a_coordinator_that_stood_still_too_long_blames_itself_for_whom_it_misses(play):
    p = running(play)
    p.at(5, reported(2), reported(3))
    p.now = 12  # nothing woke us
    p._on(line_ended(2))
    heartbeats(p, 15, 3)
    assert p.blamed == "algo-1 (stood still for 7 s): algo-2 has left meanwhile"


def test_a_host_that_goes_later_is_lost_though_the_coordinator_once_stood_still(play):
    p = running(play)
    p.at(5, reported(2), reported(3))
    p.now = 12
    p._on(events.Due())
    heartbeats(p, 20, 2, 3)
    p.at(20.1, line_ended(2), reported(3))
    heartbeats(p, 23, 3)
    assert p.blamed.startswith("algo-2 (lost: ")


@pytest.mark.parametrize("stopping", [False, True])
def test_a_follower_that_left_before_its_script_started_is_no_dead_end(play, stopping):
    p = play(3)
    p.at(1, ended("prepare"), reported(2), reported(3, ready=frozenset()))
    p.at(2, reported(2, gone=True))
    if stopping:
        p.at(2.1, STOP)
    for _ in range(20):
        p.at(p.now + 1, reported(3, done=stopping))
    assert p.policy.facts.outcome and p.policy.facts.outcome.kind is not Kind.SUCCEEDED
    p.at(p.now + 0.1, reported(3, gone=True))
    assert p.what[-1].startswith("finish ")


# --- stopping ---


def stopped_job(play, me: int = 1, **settings) -> Play:
    p = running(play, me=me, **settings)
    p.at(5, STOP)
    assert p.since(4) == [f"5.0 ask worker/{me - 1}"]
    assert p.last_told.stopping
    return p


def test_stopped_and_all_scripts_save(play):
    p = stopped_job(play)
    p.at(6, ended("worker/0"), reported(2, stopping=True))
    assert p.policy.facts.outcome is None
    p.at(6.5, reported(2, stopping=True, done=True), reported(3, stopping=True, done=True))
    assert p.policy.facts.outcome == outcome.succeeded()
    p.at(6.6, reported(2, gone=True), reported(3, gone=True))
    assert p.what[-1] == "finish succeeded 0"


def test_stopped_and_one_script_does_not_save(play):
    p = stopped_job(play)
    p.at(6, ended("worker/0"))
    p.at(6.5, reported(2, stopping=True, done=True, clean=False), reported(3, stopping=True, done=True))
    assert p.policy.facts.outcome == outcome.stopped()


def test_what_failed_before_the_stop_is_no_success(play):
    p = stopped_job(play)
    p.at(5.1, reported(2, cause=cause(2, process="sidecar")), reported(3))
    p.at(6, ended("worker/0"))
    p.at(6.5, reported(2, stopping=True, done=True), reported(3, stopping=True, done=True))
    assert p.policy.facts.outcome == outcome.stopped()


@pytest.mark.parametrize("heard, at, strength, fails", [
    (4.9, None, Strength.STRONG, True),
    (5.1, 4.9, Strength.STRONG, True),  # it was on its way
    (5.1, None, Strength.STRONG, False),  # nobody knows which was first
    (5.1, 5.05, Strength.STRONG, False),
    (4.5, None, Strength.WEAK, True),
    (4.9, None, Strength.WEAK, False),  # the stop may have reached a program before it reached us
])  # fmt: skip
def test_what_was_known_before_the_stop_counts(play, heard, at, strength, fails):
    """Though algo-3 stands still, so that nothing was decided when the stop came."""
    p = running(play)
    raised = cause(2, process="worker/1", strength=strength)
    known = reported(2, answers=0, cause=raised, cause_at=at)
    for time, event in sorted([(heard, known), (5, STOP)], key=lambda pair: pair[0]):
        p.at(time, event)
    p.at(6, ended("worker/0"), reported(2, cause=raised, cause_at=at, done=True, clean=False, stopping=True))
    heartbeats(p, 15, 2, cause=raised, cause_at=at, done=True, clean=False, stopping=True)
    assert p.policy.facts.outcome == (outcome.failed(raised) if fails else outcome.stopped())


def test_a_stop_that_reached_another_host_first_comes_before_what_follows_of_it(play):
    p = running(play)
    p.at(5, reported(3, answers=0, cause=cause(3, process="worker/2"), cause_at=4.9))
    p.at(5.1, reported(2, stopping=True, stopping_at=4.8))
    p.at(6, ended("worker/0"), reported(2, stopping=True, stopping_at=4.8, done=True))
    p.at(6.1, reported(3, cause=cause(3, process="worker/2"), cause_at=4.9, stopping=True, done=True, clean=False))
    assert p.policy.facts.outcome == outcome.stopped()


def test_a_follower_that_failed_before_the_stop_says_so_without_a_coordinator(play):
    p = running(play, me=2)
    p.at(4.9, ended("worker/1", 1, RAISED))
    p.at(5, STOP)
    p.at(30)
    assert p.policy.facts.outcome.kind is Kind.FAILED
    assert p.blamed == "algo-2 worker/1 (exit code 1): ValueError: x"


def test_a_coordinator_that_was_killed_before_the_stop_is_the_cause(play):
    """Its kernel had said so, though that did not count yet."""
    p = running(play, me=2)
    p.at(4.5, line_ended(1), unreached(1))
    p.at(5, STOP)
    p.at(6, ended("worker/1", signal=15), unreached(1))
    p.at(30)
    assert p.blamed.startswith("algo-1 (lost: its connection ended")


def test_a_success_that_was_complete_before_the_stop_stays_one(play):
    """Though a host is not heard any more that had said that all was well."""
    p = running(play)
    heartbeats(p, 4, 2, done=True)
    p.at(4, reported(3, done=True))
    p.at(5, STOP, reported(2, done=True))
    p.at(6, ended("worker/0"), reported(2, done=True, stopping=True))
    heartbeats(p, 15, 2, done=True, stopping=True)
    assert p.policy.facts.outcome == outcome.succeeded()


def test_a_process_that_survives_sigkill_is_given_up(play):
    p = running(play, stop_grace=10, kill_timeout=4)
    p.unkillable = ("pid 7 (python3), state D (uninterruptible sleep), waits in nfs_wait",)
    p.at(5, STOP)
    heartbeats(p, 20, 2, 3, stopping=True, done=True)
    assert p.since(6) == ["15.0 force worker/0", "19.0 inspect worker/0"]
    assert p.policy.facts.outcome == outcome.stopped()
    assert f"worker/0 is still there 4 s after SIGKILL, and is left behind: {p.unkillable[0]}" in p.said
    p.at(21, reported(2, gone=True), reported(3, gone=True))
    assert p.what[-1] == "finish stopped 143"


def test_what_is_in_the_way_of_another_attempt_fails_the_job(play):
    p = running(play, me=2, restarts=2, kill_timeout=4)
    p.unkillable = ("pid 7 (python3), state D (uninterruptible sleep)",)
    p.at(5, informed(attempt=1, go=False))
    heartbeats(p, 12, attempt=1, go=False)
    assert p.since(5) == ["5.0 ask worker/1", "7.0 force worker/1", "11.0 inspect worker/1", "11.0 sweep, keep nothing"]
    told = p.last_told
    assert (told.attempt, told.cause.host, told.cause.process, told.cause.code) == (1, "algo-2", "worker/1", 71)
    assert told.cause.error == f"4 s after SIGKILL there is still {p.unkillable[0]}"


def test_what_ends_at_last_is_in_the_way_of_no_other_attempt_and_counts_for_nothing_in_it(play):
    p = play(restarts=1, restart_backoff=1, kill_timeout=4, processes_per_host=2)
    p.at(1, ended("prepare"))
    assert p.since(1) == ["1.0 start worker/0", "1.0 start worker/1"]
    p.at(5, ended("worker/0", signal=9))
    p.at(12)  # worker/1 took longer to die than SIGKILL has time, and was gone when we swept
    assert p.what[-2:] == ["start worker/0", "start worker/1"]
    p.at(20)
    assert p.policy.facts.outcome is None, "both are working"
    p.at(21, ended("worker/0"))
    p.at(25)
    assert p.policy.facts.outcome is None, "worker/1 is still working"
    p.at(26, ended("worker/1"))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_mpirun_has_its_time_and_no_more_when_all_ranks_have_ended_well(play):
    p = mpi(play)
    p.at(5, reported(2, ready=frozenset({"prepare", "preflight", "sshd", "rank 2", "rank 3"}), done=False))
    p.at(6, ended("rank 0"), ended("rank 1"))
    heartbeats(p, 30, 2, done=False)
    assert p.since(6) == []
    heartbeats(p, 45, 2, done=True)
    assert [what.split(maxsplit=1)[1] for what in p.since(6)][:1] == ["force mpirun"]
    p.at(46, ended("mpirun", signal=9))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_the_coordinators_stop_is_everybodys(play):
    p = running(play, me=2)
    p.at(5, informed(stopping=True))
    assert p.since(4) == ["5.0 ask worker/1"]
    p.at(6, ended("worker/1"))
    assert p.last_told.done and p.last_told.stopping
    p.at(7, informed(stopping=True, outcome=outcome.stopped()))
    assert p.what[-1] == "finish stopped 143"


def test_a_followers_stop_is_everybodys(play):
    p = running(play)
    p.at(5, reported(2, stopping=True))
    assert p.since(4) == ["5.0 ask worker/0"]
    assert p.last_told.stopping


def test_what_ignores_the_stop_is_killed_after_stop_grace(play):
    p = stopped_job(play, stop_grace=10)
    heartbeats(p, 16, 2, 3, stopping=True, done=True)
    assert p.since(6) == ["15.0 force worker/0"]
    p.at(16.5, ended("worker/0", signal=9))
    assert p.policy.facts.outcome == outcome.stopped()


def test_servers_stay_while_scripts_save(play):
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(5, STOP, reported(2))
    assert p.since(5) == ["5.0 ask chief/0"]
    p.at(6, ended("chief/0"))
    heartbeats(p, 30, 2, stopping=True)
    assert p.since(6) == []
    p.at(31, reported(2, stopping=True, done=True))
    assert p.since(6) == ["31.0 ask ps/0"]


def test_a_follower_is_lost_while_the_job_stops(play):
    p = stopped_job(play)
    p.at(6, ended("worker/0"))
    heartbeats(p, 15, 3, stopping=True, done=True)
    assert p.policy.facts.outcome == outcome.stopped()
    p.at(16, reported(3, gone=True))
    p.at(30)
    assert p.what[-1] == "finish stopped 143"


def test_the_coordinator_is_lost_while_the_job_stops(play):
    p = stopped_job(play, me=2)
    p.at(6, ended("worker/1"))
    p.at(30)
    assert p.what[-1] == "finish stopped 143"


def test_a_follower_that_is_stopped_before_the_coordinator_appears_tells_it(play):
    p = play(3, me=2)
    p.at(0.5, STOP)
    p.at(0.6, ended("prepare", signal=15))
    p.at(1.5)
    assert p.policy.facts.outcome is None and p.last_told.stopping
    p.at(1.8, informed(stopping=True))
    p.at(5)
    assert p.policy.facts.outcome is None  # it is the coordinator's now
    p.at(6, informed(stopping=True, outcome=outcome.stopped()))
    assert p.what[-1] == "finish stopped 143"


def test_stopped_before_the_others_appear(play):
    for me in (1, 2):
        p = play(3, me)
        p.at(1, ended("prepare"))
        p.at(2, STOP)
        p.at(60)
        assert p.what[-1] == "finish stopped 143"


def test_mpirun_is_left_to_end_with_its_ranks(play):
    """A rank of another host may still save: mpirun would kill it, and turn a good end into a bad one."""
    p = mpi(play)
    p.at(5, STOP)
    assert sorted(p.since(5)) == ["5.0 ask rank 0", "5.0 ask rank 1"]
    p.at(6, ended("rank 0"), ended("rank 1"))
    heartbeats(p, 20, 2, stopping=True, done=False)
    assert p.since(6) == []
    p.at(21, reported(2, stopping=True, done=True, clean=True), ended("mpirun"))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_mpirun_that_aborts_over_ranks_that_were_stopped_is_not_waited_for(play):
    """Its daemons sleep as long as ranks have for saving, before they see that there is none left."""
    p = mpi(play)
    p.at(5, STOP)
    p.at(6, reported(2, stopping=True, done=True, clean=False), ended("rank 0", 143), ended("rank 1", 143))
    p.at(8)
    assert [what.split(maxsplit=1)[1] for what in p.since(6)] == ["force mpirun"]
    p.at(8, ended("mpirun", 137))
    assert p.policy.facts.outcome == outcome.stopped()


def test_a_rank_that_still_saves_is_no_end_of_its_host(play):
    p = mpi(play, me=2)
    p.at(5, informed(stopping=True))
    p.at(6, ended("rank 2"))
    assert not p.policy.facts.own_report().done
    p.at(7, ended("rank 3"))
    assert p.policy.facts.own_report().done
    assert p.policy.facts.own_report().clean


def test_mpirun_without_ranks_is_stopped(play):
    p = play(2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"})))
    p.at(5, STOP)
    assert p.since(5) == ["5.0 ask mpirun"]


# --- the loop sleeps ---


@pytest.mark.parametrize("me", [1, 2])
@pytest.mark.parametrize("stop", [False, True])
def test_the_policy_sleeps_between_events(play, me, stop):
    """Whatever is overdue must not wake the loop a thousand times a second."""
    p = running(play, me=me, start_timeout=10)
    if stop:
        p.at(3, STOP)
    before, began = p.woken, p.now
    heartbeats(p, 60, 3)  # algo-2 is lost on the way, where it matters
    assert (p.woken - before) / (p.now - began) < 50


def test_a_held_process_does_not_wake_the_loop(play):
    p = play(2, 2, mode="ps", ps_chief_first="always")
    p.at(1, ended("prepare"), events.Prepared(flags=frozenset()))
    p.at(2, informed())
    p.at(3, informed(stopping=True))
    heartbeats(p, 100, stopping=True)
    assert p.woken / 100 < 50


def test_status_says_what_is_going_on(play):
    p = running(play)
    status = p.policy.facts.status(3.0)
    assert (status["host"], status["rank"], status["role"], status["phase"]) == ("algo-1", 0, "coordinator", "running")
    by_name = {process["name"]: process for process in status["processes"]}
    assert by_name["prepare"]["state"] == "ended" and by_name["prepare"]["exit"] == "exit code 0"
    assert by_name["worker/0"]["state"] == "running" and by_name["worker/0"]["seconds"] == 1.0
    assert set(status["peers"]) == {"algo-2", "algo-3"}
    assert play(1).policy.facts.status(0.5)["phase"] == "starting"
    p.at(5, STOP)
    assert p.policy.facts.status(5.0)["phase"] == "stopping"
    p.at(6, ended("worker/0"), reported(2, done=True, clean=False), reported(3, done=True))
    assert p.policy.facts.status(7.0)["phase"] == "stopped"
    assert p.policy.facts.status(7.0)["outcome"]["exit_code"] == 143


def test_every_duty_is_in_some_plan(play):
    """The tables above would otherwise say nothing of it."""
    plans = [play(2, mode="ps", evaluator="last").plan, play(2, mode="mpi").plan]
    duties = {spec.duty for plan in plans for spec in plan.processes}
    assert duties == set(Duty)


# --- found by a review ---


def test_a_worker_script_that_joins_its_server_does_not_hold_up_the_end(play):
    """TensorFlow 2's tutorial: the worker's branch of the script never returns."""
    p = play(2, 2, mode="ps")
    p.at(1, ended("prepare"))
    p.at(2, informed())
    assert not p.last_told.done and p.last_told.rests is None
    p.at(3, events.Resting(found=(("worker/0", 2.0),)))
    assert p.last_told.rests == 2.0
    p.at(4, informed(outcome=outcome.succeeded()))
    p.at(4.1, ended("worker/0", signal=15), ended("ps/1", signal=15))
    assert p.what[-1] == "finish succeeded 0"


def test_who_only_serves_is_watched_for_a_while_after_the_chiefs_end(play):
    """It may have waited for that end, and begin its own work now; then it is waited for."""
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    heartbeats(p, 9, 2, rests=2.0)
    p.at(9.5, ended("chief/0"))
    heartbeats(p, 11, 2, rests=2.0)
    assert p.policy.facts.outcome is None
    heartbeats(p, 30, 2)
    assert p.policy.facts.outcome is None
    heartbeats(p, 31, 2, rests=2.0)
    assert p.policy.facts.outcome is None
    heartbeats(p, 34, 2, rests=2.0)
    assert p.policy.facts.outcome == outcome.succeeded()


def test_who_is_waited_for_after_the_chiefs_end_is_said_once(play):
    p = play(2, mode="ps")
    p.at(1, ended("prepare"), reported(2))
    p.at(3, ended("chief/0"), reported(2))
    heartbeats(p, 30, 2)
    assert not [line for line in p.said if "waiting for" in line]
    heartbeats(p, 90, 2)
    assert [line for line in p.said if "waiting for" in line] == [
        "waiting for the scripts of algo-2 (ENTRYPOINT_PS_WORKER_END)"
    ]


def test_a_script_that_serves_has_the_whole_grace_when_it_is_told_to_end(play):
    p = play(2, mode="ps", processes_per_host=2, stop_grace=10)
    p.at(1, events.Prepared(flags=frozenset()), ended("prepare"), reported(2))
    p.at(2, events.Resting(found=(("worker/0", 2.0),)))
    p.at(3, ended("chief/0"), reported(2, done=True))
    heartbeats(p, 30, 2, done=True)
    whens = {what: float(when) for when, what in (each.split(maxsplit=1) for each in p.since(3))}
    assert 5.0 <= whens["ask worker/0"] < 6.0
    assert whens["force worker/0"] - whens["ask worker/0"] == pytest.approx(10, abs=0.2)


def test_mpirun_that_starts_no_rank_is_no_success(play):
    p = play(2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "sshd"}), done=True))
    p.at(3, ended("mpirun", 0, "mpirun (Open MPI) 4.1.4\n"))
    heartbeats(p, 6, 2, done=True)
    assert p.blamed.startswith("algo-1 mpirun (exit code 0): it started no rank")
    assert p.policy.facts.outcome.exit_code == 1


def test_mpirun_that_never_gets_a_rank_up_is_not_waited_for_for_ever(play):
    p = play(2, mode="mpi", start_timeout=30)
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "host-key", "sshd"})
    p.at(2, reported(2, ready=up, done=True))
    heartbeats(p, 40, 2, ready=up, done=True)
    assert p.blamed.startswith("algo-1 mpirun (started no rank within 30 s)")
    assert p.policy.facts.outcome.exit_code == 75


def test_mpirun_that_never_gets_one_of_its_ranks_up_is_not_waited_for_for_ever(play):
    p = play(2, mode="mpi", start_timeout=30)
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "host-key", "sshd", "rank 1"})
    p.at(2, reported(2, ready=up))
    heartbeats(p, 25, 2, ready=up)
    assert p.policy.facts.outcome is None
    heartbeats(p, 40, 2, ready=up)
    assert p.blamed.startswith("algo-1 mpirun (did not start rank 0 of algo-1 within 30 s)")
    assert p.policy.facts.outcome.exit_code == 75


def test_losing_the_coordinator_does_not_shorten_the_time_to_save(play):
    p = stopped_job(play, me=2)
    p.at(40)
    assert p.policy.facts.outcome is None
    assert "force worker/1" not in p.what
    p.at(41, ended("worker/1"))
    p.at(42)
    assert p.what[-1] == "finish stopped 143"


def test_a_host_that_is_to_blame_but_answers_is_waited_for(play):
    p = play(2, start_timeout=30)
    p.at(1, ended("prepare"))
    heartbeats(p, 31, 2, ready=frozenset())
    assert p.blamed == "algo-2 (prepare did not end within 30 s)"
    assert p.what[-1] != "finish failed 75"
    p.at(p.now + 0.5, reported(2, ready=frozenset(), gone=True))
    assert p.what[-1] == "finish failed 75"


# --- who is asked, and which cause came first ---


def test_a_failure_is_settled_when_all_have_answered(play):
    """A host whose own failure came first may not have been heard of it yet."""
    p = running(play)
    p.at(2.1, reported(2, answers=0), reported(3, answers=0))
    p.at(5, ended("worker/0", 3, RAISED))
    assert p.last_told.question == 1
    p.at(5.01, reported(2, answers=1))
    assert p.policy.facts.outcome is None
    p.at(5.02, reported(3, answers=1))
    assert p.blamed.startswith("algo-1 worker/0")


def test_the_earlier_failure_counts_though_it_is_heard_later(play):
    """Clocks differ: followers say when it was by the coordinator's clock."""
    p = running(play)
    p.at(2.1, reported(2, answers=0), reported(3, answers=0))
    p.at(5, ended("worker/0", 3, RAISED))
    p.at(5.01, reported(2, answers=0, cause=cause(2), cause_at=4.9))
    p.at(5.02, reported(2, answers=2, cause=cause(2), cause_at=4.9), reported(3, answers=2))
    assert p.blamed.startswith("algo-2 worker/1")


def test_a_host_that_does_not_answer_may_be_what_the_others_failed_of(play):
    p = running(play)
    p.at(2.1, reported(2, answers=0), reported(3, answers=0))
    p.at(4, reported(2, answers=0), reported(3, answers=0))
    p.at(5, ended("worker/0", 3, RAISED))
    heartbeats(p, 12, 3)
    assert p.blamed == "algo-2 (lost: not heard for 5 s)"


def test_a_follower_answers_at_once_and_tells_its_time_by_the_coordinators_clock(play):
    p = running(play, me=2)
    p.at(3, events.Informed(news=News(ready=frozenset({("*", "prepare")}), assembled=True), offset=1000.0))
    p.at(5, ended("worker/1", 3, RAISED))
    assert (p.last_told.cause_at, p.last_told.answers) == (1005.0, 0)
    p.at(6, informed(question=4))
    assert p.last_told.answers == 4


# --- rendezvous ---


def test_every_host_looks_for_every_other_when_all_are_there(play):
    p = play(3, 2)
    p.reachable = {"algo-3": "port 7979: No route to host"}
    p.at(1, ended("prepare"), informed(ready=frozenset(), assembled=False))
    assert not p.probed
    p.at(2, informed(ready=frozenset(), assembled=True))
    assert p.probed == [("algo-1", "algo-3")]
    assert "preflight" not in p.last_told.ready
    assert [reach.host for reach in p.last_told.unreached] == ["algo-3"]
    p.reachable = {}
    p.at(4, informed(ready=frozenset()))
    assert p.probed[-1] == ("algo-3",)
    assert "preflight" in p.last_told.ready


def test_a_host_that_one_other_cannot_reach_fails_the_job(play):
    p = play(3, 2)
    p.reachable = {"algo-3": "port 7979: No route to host"}
    p.at(1, ended("prepare"), informed(ready=frozenset()))
    heartbeats(p, 130, 1, ready=frozenset())
    assert p.last_told.cause.headline == (
        "algo-2 (cannot reach algo-3): it is at 10.0.0.1, port 7979: No route to host"
    )
    assert p.last_told.cause.code == ExitCode.START_TIMEOUT


def test_no_program_starts_before_all_hosts_reach_one_another(play):
    p = play(2)
    p.at(1, ended("prepare"), reported(2, ready=frozenset({"prepare"})))
    assert p.what == ["start prepare"]
    p.at(2, reported(2))
    assert p.what == ["start prepare", "start worker/0"]


def test_hosts_that_share_nothing_need_not_reach_one_another(play):
    p = play(2, mode="single")
    p.reachable = {"algo-2": "port 7979: No route to host"}
    p.at(1, ended("prepare"), reported(2))
    assert p.what == ["start prepare", "start script"]


def test_who_is_missing_is_said_every_ten_seconds(play):
    p = play(4, start_timeout=100)
    p.reachable = {"algo-3": "port 7979: Connection refused"}
    p.at(1, ended("prepare"))
    heartbeats(p, 25, 2, 4)
    assert [line for line in p.said if line.startswith("waiting")] == [
        "waiting for algo-3 (10 s)", "waiting for algo-3 (20 s)"
    ]  # fmt: skip
    assert "algo-3  10.0.0.1       port 7979: Connection refused  never" in p.said


def test_who_is_not_prepared_and_who_reaches_whom_not_is_said_too(play):
    p = play(3)
    p.at(1, ended("prepare"))
    unreached = (events.Reach(host="algo-3", why="Name or service not known"),)
    while p.now < 11:
        p.at(p.now + 1, reported(2, ready=frozenset({"prepare"}), unreached=unreached), reported(3, ready=frozenset()))
    assert [line for line in p.said if "(10 s)" in line] == [
        "algo-2 cannot reach algo-3 (10 s): its name does not resolve: Name or service not known",
        "waiting for prepare of algo-3 (10 s)",
    ]


def prepared(**things: str) -> events.Prepared:
    return events.Prepared(flags=frozenset(), things=tuple(things.items()))


def test_a_host_that_differs_is_named(play):
    p = play(3)
    p.at(1, prepared(numpy="1.26.4"), ended("prepare"))
    p.at(2, reported(2, things=(("numpy", "1.26.3"),)))
    assert p.policy.facts.outcome is None  # two hosts: who is the odd one?
    p.at(3, reported(3, things=(("numpy", "1.26.4"),)))
    assert p.blamed == "algo-2 (differs from the other hosts): numpy is 1.26.3; on algo-1 it is 1.26.4"
    assert p.policy.facts.outcome.exit_code == ExitCode.CONFIG
    assert "start worker/0" not in p.what


def test_the_coordinator_may_be_the_one_that_differs(play):
    p = play(3)
    p.at(1, prepared(numpy=""), ended("prepare"))
    p.at(2, reported(2, things=(("numpy", "1"),)), reported(3, things=(("numpy", "1"),)))
    assert p.blamed == "algo-1 (differs from the other hosts): numpy is absent; on algo-2 it is 1"


def test_a_host_that_a_thing_is_not_about_does_not_differ(play):
    """The channels of a host outside the distribution, say."""
    p = play(3)
    p.at(1, prepared(channels="a"), ended("prepare"))
    p.at(2, reported(2, things=(("channels", "*"),)), reported(3, things=(("channels", "a"),)))
    assert p.policy.facts.outcome is None
    p = play(3)
    p.at(1, prepared(channels="*"), ended("prepare"))
    p.at(2, reported(2, things=(("channels", "a"),)), reported(3, things=(("channels", "b"),)))
    assert p.blamed == "algo-3 (differs from the other hosts): channels is b; on algo-2 it is a"


def test_a_difference_may_be_only_warned_of(play):
    p = play(2, differences="warn")
    p.at(1, prepared(numpy="1"), ended("prepare"))
    p.at(2, reported(2, things=(("numpy", "2"),)))
    assert "warning: algo-2 differs: numpy is 2; on algo-1 it is 1" in p.said
    assert p.what[-1] == "start worker/0"


def test_a_host_that_is_refused_ends_the_job(play):
    """A wrong token, or another version: waiting would not change it."""
    p = play(2)
    p.at(1, ended("prepare"))
    while p.now < 7:
        p.at(p.now + 1, events.Rejected(host="algo-2", why="wrong or missing token"))
    assert p.blamed == "algo-2 (was refused): wrong or missing token"
    assert p.policy.facts.outcome.exit_code == ExitCode.CONFIG


def test_a_refused_follower_does_not_wait_for_the_coordinator(play):
    p = play(2, 2)
    p.at(1, ended("prepare"))
    while p.now < 7:
        p.at(p.now + 1, events.Rejected(host="algo-1", why="wrong or missing token"))
    assert p.what[-1] == "finish failed 78"
    assert p.blamed == "algo-2 (is refused by the coordinator algo-1): wrong or missing token"


def test_a_refused_stranger_with_a_hosts_address_is_nothing_where_the_host_is_heard(play):
    p = running(play)
    p.at(3, events.Rejected(host="algo-2", why="wrong or missing token"))
    heartbeats(p, 20, 2, 3)
    assert p.policy.facts.outcome is None


# --- attempts ---


def tried_again(play, me: int = 1, **settings) -> Play:
    """A job whose first attempt has just been given up; it is 5.1 s old."""
    p = running(play, me=me, restarts=2, restart_backoff=3, **settings)
    if me == 1:
        p.at(5, ended("worker/0", signal=9))
    else:
        p.at(5, informed(attempt=1, go=False, ready=frozenset()))
        p.at(5.1, ended("worker/1", signal=15))
    return p


def test_a_killed_script_is_tried_again_everywhere(play):
    p = tried_again(play)
    assert p.policy.facts.outcome is None
    assert p.since(5) == ["5.0 sweep, keep nothing"]
    assert (p.last_told.attempt, p.last_told.go) == (1, False)
    p.at(5.5, reported(2, attempt=1), reported(3, attempt=0, cause=cause(3)))  # an echo of the old attempt
    p.at(8.5, reported(2, attempt=1), reported(3, attempt=0))
    assert not p.last_told.go, "algo-3 is not clear yet"
    p.at(9, reported(3, attempt=1))
    assert p.since(8) == ["9.0 start worker/0"]
    assert (p.last_told.attempt, p.last_told.go) == (1, True)
    p.at(12, ended("worker/0"), reported(2, attempt=1, done=True), reported(3, attempt=1, done=True))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_the_back_off_is_kept_and_doubles(play):
    p = tried_again(play)
    p.at(5.5, reported(2, attempt=1), reported(3, attempt=1))
    p.at(9, reported(2, attempt=1), reported(3, attempt=1))
    assert p.since(5.1) == ["8.0 start worker/0"]
    p.at(10, ended("worker/0", signal=11))
    p.at(10.5, reported(2, attempt=2), reported(3, attempt=2))
    heartbeats(p, 17, 2, 3, attempt=2)
    assert p.since(10.1) == ["16.0 start worker/0"]
    p.at(18, ended("worker/0", signal=11))
    assert p.blamed == "algo-1 worker/0 (killed by SIGSEGV)", "no third restart"


def test_a_follower_clears_and_waits_for_go(play):
    p = tried_again(play, me=2)
    assert p.since(3) == ["5.0 ask worker/1", "5.1 sweep, keep nothing"]
    assert p.last_told.attempt == 1 and not p.last_told.done and p.last_told.cause is None
    p.at(8, informed(attempt=1, go=False))
    assert p.since(5.5) == []
    p.at(9, informed(attempt=1))
    assert p.since(5.5) == ["9.0 start worker/1"]


def test_a_follower_that_is_not_clear_says_nothing_of_the_new_attempt(play):
    p = running(play, me=2, restarts=1)
    p.at(5, informed(attempt=1, go=False, ready=frozenset()))
    assert p.last_told.attempt == 0
    p.at(5 + GRACE)
    assert p.since(5) == ["5.0 ask worker/1", "7.0 force worker/1"]


NOT_AGAIN = {
    "an exception": ended("worker/0", 1, RAISED),
    "another exit code": ended("worker/0", 3),
    "an installation that fails": events.Broken(why="x", code=70),
}


@pytest.mark.parametrize("event", NOT_AGAIN.values(), ids=NOT_AGAIN)
def test_what_would_only_happen_again_is_not_tried_again(play, event):
    p = running(play, restarts=5)
    p.at(5, event)
    assert p.policy.facts.outcome is not None


def test_an_exit_code_that_the_user_names_is_tried_again(play):
    p = running(play, restarts=5, restart_codes="3,99")
    p.at(5, ended("worker/0", 3))
    assert p.policy.facts.attempt == 1


def test_a_lost_host_is_not_tried_again(play):
    p = running(play, restarts=5)
    heartbeats(p, 12, 3)
    assert p.blamed.startswith("algo-2 (lost")


def test_a_stop_between_two_attempts_ends_the_job(play):
    p = tried_again(play)
    p.at(6, STOP, reported(2, attempt=1, done=True, clean=False, stopping=True))
    p.at(6.1, reported(3, attempt=1, done=True, clean=False, stopping=True))
    p.at(6.2, reported(2, gone=True), reported(3, gone=True))
    assert p.what[-1] == "finish stopped 143"


def test_ssh_daemons_stay_over_a_restart(play):
    p = play(2, mode="mpi", restarts=1)
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "sshd"})
    p.at(2, reported(2, ready=up), events.RankStarted(name="rank 0", pid=1))
    p.at(5, ended("rank 0", signal=9))
    p.at(5.6, ended("mpirun", 1))
    assert p.since(5) == ["5.3 force mpirun", "5.6 sweep, keep sshd"]
    heartbeats(p, 10, 2, ready=up, attempt=1)
    assert p.since(6) == ["8.3 start mpirun"]


def test_a_worker_server_is_started_again_alone(play):
    p = play(2, 2, mode="ps", ps_workers="server", restarts=2)
    p.at(1, ended("prepare"), informed())
    p.at(5, ended("worker/0", signal=9))
    assert p.policy.facts.own_cause() is None
    heartbeats(p, 10, 1)
    assert p.since(2) == ["8.0 start worker/0"]
    assert p.policy.facts.times_restarted("worker/0") == 1
    p.at(11, ended("worker/0", signal=9))
    heartbeats(p, 18, 1)
    p.at(19, ended("worker/0", signal=9))
    assert p.last_told.cause.headline == "algo-2 worker/0 (ended too early, killed by SIGKILL)"


# --- the evaluator ---


def with_evaluator(play, me: int = 1) -> Play:
    p = play(2, me, evaluator="last", evaluator_grace=60)
    p.at(1, ended("prepare"))
    p.at(2, reported(2) if me == 1 else informed())
    return p


def test_the_evaluator_has_time_after_the_others_success(play):
    p = with_evaluator(play)
    p.at(5, ended("worker/0"), reported(2, done=True, lingering=True))
    heartbeats(p, 30, 2, done=True, lingering=True)
    assert p.policy.facts.outcome is None
    p.at(31, reported(2, done=True))
    assert p.policy.facts.outcome == outcome.succeeded()


def test_the_evaluator_does_not_hold_the_job_for_ever(play):
    p = with_evaluator(play)
    p.at(5, ended("worker/0"), reported(2, done=True, lingering=True))
    heartbeats(p, 70, 2, done=True, lingering=True)
    assert p.policy.facts.outcome == outcome.succeeded()
    assert p.policy.facts.outcome_at == pytest.approx(65, abs=1)


@pytest.mark.parametrize("silent", [False, True])
def test_what_happens_to_the_evaluator_while_we_stand_still_counts(play, silent):
    """Its time is over when we go on, and what we hear first is old."""
    p = with_evaluator(play)
    p.at(5, ended("worker/0"), reported(2, done=True, lingering=True))
    heartbeats(p, 20, 2, done=True, lingering=True)
    p.now = 70  # nothing woke us
    p._on(events.Due())
    assert p.policy.facts.outcome is None
    if not silent:
        p.at(70.01, reported(2, done=True, lingering=True))
        p.at(70.02, reported(2, done=True, cause=cause(process="evaluator/0"), gone=True))
    p.at(90)
    assert p.blamed.startswith("algo-2 (lost" if silent else "algo-2 evaluator/0 (exit code 3)")


def test_the_evaluators_host_says_that_it_still_evaluates(play):
    p = with_evaluator(play, me=2)
    assert p.since(2) == ["2.0 start worker/1", "2.0 start evaluator/0"]
    p.at(5, ended("worker/1"))
    assert p.last_told.done and p.last_told.lingering
    p.at(9, ended("evaluator/0"))
    assert not p.last_told.lingering


def test_an_evaluator_that_saves_has_its_time_though_the_coordinator_is_lost_meanwhile(play):
    p = with_evaluator(play, me=2)
    p.at(5, ended("worker/1"), STOP)
    assert p.since(5) == ["5.0 ask evaluator/0"]
    p.at(60)  # nobody is heard
    assert p.policy.facts.lost() and "force evaluator/0" not in p.what
    p.at(61, ended("evaluator/0"))
    assert p.what[-1] == "finish stopped 143"


def test_a_stop_is_no_success_where_a_host_is_lost_whose_evaluator_still_worked(play):
    p = with_evaluator(play)
    p.at(5, reported(2, done=True, lingering=True))
    p.at(6, STOP)
    p.at(7, ended("worker/0"))
    p.at(30)  # the evaluator's host is not heard any more
    assert p.policy.facts.lost() == {"algo-2"}
    assert p.policy.facts.outcome.exit_code == 143


def test_an_evaluator_that_fails_fails_the_job(play):
    p = with_evaluator(play, me=2)
    p.at(5, ended("evaluator/0", 1, RAISED))
    assert p.last_told.cause.headline == "algo-2 evaluator/0 (exit code 1): ValueError: x"


# --- maximum runtime ---


def test_the_job_is_stopped_before_its_maximum_runtime_is_over(play):
    p = running(play, max_runtime=600, stop_early=120)
    heartbeats(p, 479, 2, 3)
    assert p.since(3) == []
    heartbeats(p, 481, 2, 3)
    assert p.since(3) == ["480.0 ask worker/0"]
    assert p.last_told.stopping


# --- mpirun's daemons, and a coordinator that hears nobody ---


def test_a_daemon_that_dies_is_named_and_not_mpirun_that_fails_of_it(play):
    p = play(2, 1, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "sshd"})
    p.at(2, reported(2, ready=up), events.RankStarted(name="rank 0", pid=1))
    p.at(5, ended("mpirun", 1, "ORTE has lost communication with a remote daemon.\n"))
    p.at(5.1, reported(2, ready=up, cause=cause(2, Strength.WEAK, process="orted", what="ended too early", code=1)))
    p.at(6)
    assert p.blamed.startswith("algo-2 orted (ended too early)")


def test_a_follower_reports_that_its_daemon_is_gone(play):
    p = play(2, 2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(2, events.RankStarted(name="rank 1", pid=1))
    p.at(5, events.RankOrphaned(name="rank 1"))
    assert p.last_told.cause.headline.startswith("algo-2 orted (ended too early): Open MPI's daemon")


def test_a_follower_whose_daemon_goes_after_the_stop_reports_nothing(play):
    p = play(2, 2, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(2, events.RankStarted(name="rank 1", pid=1), STOP)
    p.at(5, events.RankOrphaned(name="rank 1"))
    assert p.last_told.cause is None


def test_mpirun_that_is_killed_is_the_cause(play):
    p = play(2, 1, mode="mpi")
    p.at(1, ended("prepare"), ended("host-key"), ended("client-key"), events.Listening(name="sshd"))
    up = frozenset({"prepare", "preflight", "sshd"})
    p.at(2, reported(2, ready=up), events.RankStarted(name="rank 0", pid=1))
    p.at(5, ended("rank 0", signal=9), ended("mpirun", signal=9))
    assert p.blamed == "algo-1 mpirun (killed by SIGKILL)"


def test_who_is_cut_off_from_all_blames_its_own_process_that_ended_before_it_missed_them(play):
    p = running(play)
    p.at(3, reported(2, answers=0))
    p.at(3.3, reported(3, answers=0))
    p.at(3.5, ended("worker/0", signal=9))
    p.at(4.6, unreached(2), unreached(3))
    for now in (5.05, 5.35, 6):
        p.at(now)
    assert p.policy.facts.lost() == {"algo-2", "algo-3"}
    assert p.blamed == "algo-1 worker/0 (killed by SIGKILL)"


def test_a_follower_that_knows_what_failed_tells_it_to_a_coordinator_that_was_cut_off_for_a_moment(play):
    p = running(play, me=2)
    p.at(3, informed())
    p.at(3.5, ended("worker/1", 1, RAISED))
    p.at(4.6, unreached(1))
    p.at(5.5)
    assert p.policy.facts.outcome is None
    p.at(5.8, informed())
    assert p.last_told.cause.headline == "algo-2 worker/1 (exit code 1): ValueError: x"
    assert p.policy.facts.lost() == set()


def test_a_coordinator_that_hears_nobody_says_so(play):
    p = running(play)
    p.at(3, reported(3))
    p.at(3.9, reported(2))
    p.at(20)
    assert p.blamed == (
        "algo-3 (lost: not heard for 5 s): nor is any other host; algo-1 itself may be cut off the network"
    )
    assert p.policy.facts.outcome.exit_code == ExitCode.HOST_LOST


def test_a_stop_before_the_hosts_have_met_is_not_held_up_by_those_that_never_came(play):
    p = play(3)
    p.at(0.5, STOP)
    p.at(0.6, ended("prepare", signal=15))
    p.at(10)
    assert p.did[-1] == (pytest.approx(2.1, abs=0.1), "finish stopped 143")


def test_a_lack_of_memory_is_said_where_the_kernel_says_so_and_is_no_chance(play):
    p = play(2, 2, mode="mpi", restarts=3)
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(2, events.RankStarted(name="rank 1", pid=1))
    p.at(5, events.Ended(name="rank 1", exit=Exit(code=137, signal=9), memory="the kernel killed 1 process"))
    told = p.last_told.cause
    assert told.headline == "algo-2 rank 1 (killed by SIGKILL, out of memory): the kernel killed 1 process"
    assert (told.strength, told.restartable) == (Strength.STRONG, False)


# --- what others feel before the process itself has ended ---

DYING = events.Looked(found=(("worker/1", "ValueError: x", "Traceback"),))


def test_an_echo_waits_for_a_process_that_has_said_why_it_ends(play):
    """Horovod says good-bye while Python unwinds: the others' processes are gone before the one that raised."""
    p = running(play)
    p.at(5, ended("worker/0", 1, ECHO))
    p.at(5.1, reported(2, dying=True), reported(3))
    p.at(6, reported(2, dying=True), reported(3))
    assert p.policy.facts.outcome is None
    p.at(6.5, reported(2, cause=cause(2)))
    assert p.blamed.startswith("algo-2 worker/1 (exit code 3)")


def test_an_echo_does_not_wait_for_ever(play):
    p = running(play)
    p.at(5, ended("worker/0", 1, ECHO))
    p.at(5.1, reported(2, dying=True), reported(3))
    heartbeats(p, 7.5, 2, 3, dying=True)
    assert p.policy.facts.outcome is None
    p.at(8.1)
    assert "Socket closed" in p.blamed


def test_a_host_that_is_asked_looks_at_what_its_processes_print(play):
    p = running(play, me=2)
    assert not p.looked
    p.at(5, informed(question=1))
    p.at(5.5)
    assert p.looked[0] == ("worker/1",) and len(p.looked) in (5, 6)
    p.at(5.6, DYING)
    assert p.last_told.dying
    p.at(6, ended("worker/1", 1, RAISED))
    assert not p.last_told.dying and p.last_told.cause.headline == "algo-2 worker/1 (exit code 1): ValueError: x"


def test_a_process_that_raised_and_hangs_is_named(play):
    """MPI_Abort can wait for ever."""
    p = running(play, me=2)
    p.at(5, informed(question=1), DYING)
    p.at(6, DYING)
    p.at(7.1, DYING)
    assert p.last_told.cause.headline == "algo-2 worker/1 (raised, and did not end): ValueError: x"


def test_a_process_that_got_over_what_it_printed_is_left_alone(play):
    p = running(play, me=2)
    p.at(5, informed(question=1), DYING)
    p.at(6, events.Looked(found=()))
    assert not p.last_told.dying
    p.at(8, events.Looked(found=()))
    assert p.last_told.cause is None


def test_nobody_looks_when_nothing_is_wrong(play):
    p = running(play)
    heartbeats(p, 20, 2, 3)
    assert not p.looked


# --- found by a review ---


@pytest.mark.parametrize("start_timeout, appears", [(60, 1), (1200, 1100)])
def test_a_preflight_that_never_ends_is_somebodys_fault(play, start_timeout, appears):
    p = play(2, start_timeout=start_timeout)
    p.reachable = {"algo-2": "port 7979: No route to host"}
    p.at(1, ended("prepare"))
    heartbeats(p, appears - 1)
    while p.now < appears + 130:
        p.at(p.now + 1, reported(2, ready=frozenset({"prepare"})))
    assert p.blamed.startswith("algo-1 (cannot reach algo-2)")


def test_there_is_no_next_attempt_without_a_host_that_has_left(play):
    p = running(play, restarts=3)
    killed = cause(2, code=137, what="killed by SIGKILL", restartable=True)
    p.at(5, reported(2, cause=killed, done=True, gone=True), reported(3))
    assert p.policy.facts.attempt == 0 and p.policy.facts.outcome is not None


def test_last_words_about_an_old_attempt_end_the_job(play):
    p = tried_again(play)
    p.at(6, reported(2, attempt=0, cause=cause(2), gone=True), reported(3, attempt=1))
    p.at(7)
    assert p.blamed == "algo-2 (left before the end of the job)"


def test_a_rank_of_an_old_attempt_is_none_of_the_new_one(play):
    p = play(2, 2, mode="mpi", restarts=2)
    p.at(1, ended("prepare"), ended("host-key"), events.Listening(name="sshd"), informed())
    p.at(5, informed(attempt=1, go=False, ready=frozenset()))
    p.at(6, events.RankStarted(name="rank 1", pid=1, attempt=0))
    p.at(6.1, events.Ended(name="rank 1", exit=Exit(code=137, signal=9)))
    assert p.last_told.cause is None
    p.at(7, informed(attempt=1), events.RankStarted(name="rank 1", pid=1, attempt=1))
    assert "rank 1" in p.policy.facts.started


def test_one_refusal_that_passed_is_no_reason(play):
    p = play(2)
    p.at(1, ended("prepare"), events.Rejected(host="algo-2", why="404"))
    p.at(20)
    assert p.policy.facts.outcome is None


def test_a_thousand_causes_are_not_a_thousand_questions(play):
    p = running(play)
    p.at(2.1, reported(2, answers=0), reported(3, answers=0))
    for number in range(20):
        error = f"Socket closed {number}"
        p.at(5 + number / 1000, reported(2, answers=0, cause=cause(2, Strength.WEAK, error=error)))
    assert p.last_told.question == 1


# --- what hosts leave ---


def done(host: int, **facts) -> list[events.Reported]:
    """All that a host says after its script ended well, and when the outcome was told."""
    return [reported(host, done=True), reported(host, done=True, gone=True, **facts)]


def warned(p: Play) -> list[str]:
    return [line.removeprefix("warning: ") for line in p.said if line.startswith("warning: ")]


NOTHING = Artifacts(model=False)


def test_the_coordinator_says_what_all_hosts_left_before_it_leaves(play):
    p = running(play)
    p.leaves = NOTHING
    p.at(5, ended("worker/0"), reported(2, done=True), *done(3, artifacts=NOTHING))
    assert not any(what.startswith("finish") for what in p.what)
    p.at(6, *done(2, artifacts=NOTHING))
    assert p.what[-1] == "finish succeeded 0"
    (warning,) = warned(p)
    assert warning.startswith("/opt/ml/model is empty")


@pytest.mark.parametrize("mine, others, said", [
    (Artifacts(model=True, saved="model/1"), NOTHING, 0),
    (NOTHING, Artifacts(model=True, saved="model/1"), 0),
    (NOTHING, None, 0),  # a host that could not see what it leaves
    (None, NOTHING, 0),
    (NOTHING, Artifacts(model=True), 1),
    (Artifacts(model=True, saved="model/1", files=(File(path="model/1/x", size=1),)),
     Artifacts(model=True, saved="model/1", files=(File(path="model/1/x", size=2),)), 1),
])  # fmt: skip
def test_what_hosts_left_is_compared(play, mine, others, said):
    p = running(play, 2)
    p.leaves = mine
    p.at(5, ended("worker/0"), *done(2, artifacts=others))
    assert p.what[-1] == "finish succeeded 0"
    assert len(warned(p)) == said


def test_a_follower_tells_what_it_leaves_with_its_last_words(play):
    p = running(play, 2, me=2)
    p.at(5, ended("worker/1"))
    assert p.last_told.done and not p.last_told.gone and p.last_told.artifacts is None
    p.at(6, informed(outcome=outcome.succeeded()))
    assert p.last_told.gone and p.last_told.artifacts == p.leaves
    assert p.what[-1] == "finish succeeded 0"
    assert warned(p) == []  # one host says it for all


@pytest.mark.parametrize("me", [1, 2])
def test_a_disk_that_does_not_answer_holds_nobody_up(play, me):
    p = running(play, 2, me=me)
    p.sees = False
    p.at(5, ended(f"worker/{me - 1}"))
    p.at(6, *(done(2, artifacts=NOTHING) if me == 1 else [informed(outcome=outcome.succeeded())]))
    assert not any(what.startswith("finish") for what in p.what)
    p.at(30)
    assert p.since(6) == [f"{6 + INVENTORY:.1f} finish succeeded 0"]
    assert me == 1 or (p.last_told.gone and p.last_told.artifacts is None)
    assert warned(p) == []


def test_nobody_looks_while_something_runs(play):
    """A parameter server may still write what the script saved."""
    p = play(2, 1, "ps", ps_workers="script")
    p.sees = False
    p.at(1, ended("prepare"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "ps/1"})), events.Listening(name="ps/0"))
    p.at(5, ended("chief/0"), reported(2, done=True))
    assert p.what[-1] == "ask ps/0" and p.policy._inventory_since is None
    p.at(6, ended("ps/0", signal=15))
    assert p.policy._inventory_since == 6


@pytest.mark.parametrize("happened", [[ended("worker/0", 3, RAISED)], [STOP, ended("worker/0", 143)]])
def test_after_another_end_nobody_looks(play, happened):
    p = running(play, 2)
    p.sees, p.leaves = False, NOTHING
    p.at(5, *happened, *done(2, artifacts=NOTHING))
    p.at(30)
    assert p.what[-1].startswith(("finish failed", "finish stopped"))
    assert p.policy._inventory_since is None and warned(p) == []


def test_what_a_script_wrote_to_the_failure_file_is_the_jobs_explanation(play):
    p = running(play, 2)
    wrote = events.Ended(name="worker/0", exit=Exit(code=4), output=RAISED, wrote="the data is bad\nrow 7\n")
    p.at(5, wrote, reported(2, gone=True))
    assert p.blamed == "algo-1 worker/0 (exit code 4): the data is bad"
    assert p.policy.facts.outcome.failure_text().splitlines()[1:] == ["row 7"]
