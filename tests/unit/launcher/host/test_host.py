"""Test ThisHost, which carries out actions and returns events. No policy runs."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest
from builders import read
from waiting import eventually

from entrypoint.base.values import replace
from entrypoint.launcher.host.host import ThisHost
from entrypoint.launcher.host.inbox import ChildrenChanged, Inbox, RankEnded
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan.plan import Duty, Plan, ProcessSpec, Ready, Role
from entrypoint.launcher.policy import events
from entrypoint.record.lines import Line, ProcessLine

HOST, OTHER = "algo-1", "algo-2"
NOBODY = 2**22 + 1  # no process has this number
WELL, KILLED = Exit(code=0), Exit(code=137, signal=9)


def spec(name: str, *command: str, duty: Duty = Duty.SCRIPT, **more) -> ProcessSpec:
    host = more.pop("host", HOST)
    return ProcessSpec(host=host, name=name, role=Role.SCRIPT, duty=duty, argv=("sh", "-c", *command), **more)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Return one log for all tests: it keeps its thread and its file descriptors."""
    return Log(HOST, fd=os.open(tmp_path_factory.mktemp("log") / "log", os.O_CREAT | os.O_WRONLY))


@pytest.fixture
def start(tmp_path: Path, log: Log, monkeypatch):
    """Return a function that makes the host of a plan. The host reaps only its own children, and leaves no process."""

    def reap() -> list[tuple[int, int]]:
        ended = []
        for process in [process for host in hosts for process in host.processes.values()]:
            with contextlib.suppress(ChildProcessError):  # reaped before
                ended.append(os.waitpid(process.pid, os.WNOHANG))
        return [each for each in ended if each != (0, 0)]

    monkeypatch.setattr("entrypoint.launcher.host.process.reap", reap)
    (tmp_path / "run").mkdir()
    hosts: list[ThisHost] = []

    def make(*specs: ProcessSpec) -> ThisHost:
        plan = Plan(title="", hosts=(HOST, OTHER), processes=specs)
        told.clear()
        hosts.append(ThisHost(read(tmp_path), plan, os.environ, log, Inbox(), told.append))
        return hosts[-1]

    yield make
    for process in [process for host in hosts for process in host.processes.values()]:
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)


told: list[Line] = []


def event(host: ThisHost, kind: type, hold_ranks: bool = False, awaited: tuple[ProcessSpec, ...] = ()):
    """Return the next event of this kind, and drop others."""

    def come():
        host.inbox.put(ChildrenChanged())
        came = [each for some in host.next_events(0.0, awaited, 0, hold_ranks) for each in some]
        return next((each for each in came if isinstance(each, kind)), None)

    return eventually(come, within=60)


def test_event_of_a_process_end_contains_the_last_output(start: Callable) -> None:
    script = spec("script", "echo restarted $ENTRYPOINT_RESTART_COUNT; exit 3")
    host = start(script)
    host.start(script, 2)
    ended = event(host, events.Ended)
    assert (ended.name, ended.exit, ended.output) == ("script", Exit(code=3), "restarted 2\n")
    assert [replace(line, at=0.0) for line in told] == [
        ProcessLine(at=0.0, process="script", pid=host.processes["script"].pid, role="script")
    ]


def test_program_that_cannot_start_is_an_event(start: Callable) -> None:
    script = spec("script").but(argv=("/no/such/program",))
    host = start(script)
    host.start(script, 0)
    assert event(host, events.NotStarted).why.startswith("/no/such/program: No such file")


def test_process_killed_by_launcher_is_not_out_of_memory(start: Callable, monkeypatch) -> None:
    """The kernel's counter is read only for a process that others killed, even if an earlier one had the same name."""
    script = spec("script", "kill -9 $$")
    held = script.but(argv=("sleep", "600"))
    host = start(script)
    monkeypatch.setattr(host._meter, "killed_since", lambda: "the kernel did it")
    host.start(held, 0)
    host.force("script")
    ended = event(host, events.Ended)
    assert (ended.exit, ended.memory) == (KILLED, "")
    host.start(script, 0)
    ended = event(host, events.Ended)
    assert (ended.exit, ended.memory) == (KILLED, "the kernel did it")


def test_ended_rank_is_released_when_ranks_need_not_be_held(start: Callable) -> None:
    host = start(spec("rank 0", duty=Duty.RANK))
    gone = threading.Event()
    host.inbox.put(RankEnded(name="rank 0", exit=WELL, let_go=gone.set))
    assert event(host, events.Ended, hold_ranks=True).name == "rank 0" and not gone.is_set()
    host.next_events(0.0, (), 0, hold_ranks=False)
    assert gone.is_set()


def test_rank_planned_on_another_host_may_end_here(start: Callable) -> None:
    host = start(spec("rank 0", duty=Duty.RANK, host=OTHER))
    host.inbox.put(events.RankStarted(name="rank 7", pid=NOBODY))
    assert event(host, events.RankStarted).name == "rank 7"
    host.inbox.put(RankEnded(name="rank 7", exit=WELL, let_go=lambda: None))
    assert event(host, events.Ended).name == "rank 7"


@pytest.mark.parametrize("attempt", [0, 2, None])
def test_rank_of_another_attempt_is_refused(start: Callable, attempt: int | None) -> None:
    host = start(spec("rank 0", duty=Duty.RANK))
    host.next_events(0.0, (), attempt, hold_ranks=False)
    assert host._spawner.order(0, 1, None, ()) == {"refused": "attempt 1 is over"}
    host.next_events(0.0, (), 1, hold_ranks=False)
    assert host._spawner.order(0, 1, None, ()) == {"refused": f"{HOST} has not prepared the user's code"}


def test_awaited_process_is_checked_until_it_listens(start: Callable, monkeypatch) -> None:
    server = spec("ps/0", "sleep 600", ready=Ready.LISTENING, ports=(7000,))
    host = start(server)
    host.start(server, 0)
    looks = iter([False, False, True])
    monkeypatch.setattr("entrypoint.launcher.host.process.listening", lambda port: next(looks))
    assert host.next_events(inf, (server,), 0, hold_ranks=False) == [(events.Due(),)]
    assert event(host, events.Listening, awaited=(server,)).name == "ps/0" and list(looks) == []


def test_recovery_from_an_exception_is_reported_once(start: Callable, monkeypatch) -> None:
    host = start(script := spec("script", "exit 0"))
    outputs = ["", 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nValueError: bad\n', "", ""]
    monkeypatch.setattr(host.log, "tail", lambda name: outputs.pop(0))
    for _ in range(4):
        host.look_for_dying([script.name])
    (first,), *others = [host.inbox.take(0.0) for _ in range(3)]
    assert first.found[0][:2] == ("script", "ValueError: bad")
    assert others == [(events.Looked(found=()),), (events.Due(),)]
