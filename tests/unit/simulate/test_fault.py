"""Test how faults are written, when they are injected, and how they are logged."""

import os
import signal
import subprocess
import sys
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.errors import ConfigError
from entrypoint.cli.main import run
from entrypoint.simulate.docker_engine import DockerEngine
from entrypoint.simulate.engine import FaultFailed, HostsFiles
from entrypoint.simulate.fault import ALL, FOLDERS, Action, Fault, parse_fault
from entrypoint.simulate.injector import Injector
from entrypoint.simulate.run import refuse_faults
from entrypoint.simulate.spec import LocalJob

HOSTS = ("algo-1", "algo-2", "algo-3")


def parse(text: str) -> Fault:
    return parse_fault(text, HOSTS)


# --- what can be asked for ---


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kill algo-2", Fault(action=Action.KILL, host="algo-2")),
        ("kill all at 3", Fault(action=Action.KILL, host=ALL, at=3.0)),
        ("stop algo-2:ps/1 at 2.5", Fault(action=Action.STOP, host="algo-2", process="ps/1", at=2.5)),
        (
            "kill 'algo-2:rank 3' when \"epoch 2\"",
            Fault(action=Action.KILL, host="algo-2", process="rank 3", when="epoch 2"),
        ),
        ("pause algo-1", Fault(action=Action.PAUSE, host="algo-1")),
        ("pause algo-1 for 3 at 1", Fault(action=Action.PAUSE, host="algo-1", at=1.0, lasts=3.0)),
        ("cut algo-2 when at for 4", Fault(action=Action.CUT, host="algo-2", when="at", lasts=4.0)),
        ("late algo-2 for 10", Fault(action=Action.LATE, host="algo-2", lasts=10.0)),
        ("hide algo-2 for 10", Fault(action=Action.HIDE, host="algo-2", lasts=10.0)),
        ("fill algo-2:output at 3", Fault(action=Action.FILL, host="algo-2", folder="output", at=3.0)),
    ],
)
def test_fault_texts_are_parsed(text, wanted):
    assert parse(text) == wanted
    assert parse(str(wanted)) == wanted


names = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1, max_size=20)
seconds = st.floats(0.001, 1e4).map(lambda value: float(f"{value:g}"))


@given(st.sampled_from(Action), st.sampled_from(HOSTS), names, st.none() | seconds, st.none() | names, seconds)
def test_printed_fault_parses_to_the_same_fault(action, host, process, at, when, lasts):
    ends = action in (Action.PAUSE, Action.STALL, Action.CUT, Action.LATE, Action.HIDE)
    from_start = action is Action.LATE or (action is Action.HIDE and not (at or when))
    fault = Fault(
        action=action,
        host=host,
        process=process if action in (Action.KILL, Action.STOP, Action.PAUSE) else "",
        folder=FOLDERS[0] if action in (Action.FILL, Action.READONLY) else "",
        at=0.0 if from_start or when else at or 0.0,
        when="" if from_start else when or "",
        lasts=lasts if ends else None,
    )
    assert parse(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "is empty"),
        ("explode algo-2", "found 'explode'; wanted one of kill, stop, pause, stall, cut, late, hide, fill, readonly"),
        ("kill", "found nothing after kill; wanted HOST or HOST:PROCESS or all"),
        ("kill algo-9", "found 'algo-9' as the host; wanted all or algo-1, algo-2, algo-3"),
        ("cut all", "found 'all' as the host; wanted algo-1, algo-2, algo-3"),
        ("kill algo-2:", "found nothing after 'algo-2:'"),
        ("kill 'algo-2", "cannot be split into words: no closing quotation"),
        (
            "kill algo-2:rank 3",
            "found '3' after 'algo-2:rank'; wanted at, when or for; quote a TARGET that contains a space",
        ),
        ("cut algo-2:script", "cut is for whole hosts: wanted HOST"),
        ("fill algo-2", "found 'algo-2'; wanted HOST:output or HOST:model"),
        ("fill algo-2:code", "found 'algo-2:code'; wanted HOST:output or HOST:model"),
        ("kill algo-2 at", "found nothing after at; wanted seconds"),
        ("kill algo-2 when ''", "found nothing after when; wanted text"),
        ("kill algo-2 at noon", "found 'noon' after at; wanted seconds"),
        ("kill algo-2 at -1", "found '-1' after at; wanted seconds"),
        ("kill algo-2 at nan", "found 'nan' after at; wanted seconds"),
        ("kill algo-2 at inf", "found 'inf' after at; wanted seconds"),
        ("pause algo-2 for 0", "found '0' after for; wanted seconds above 0"),
        ("kill algo-2 at 1 when x", "found a second clause 'when'; wanted one of at and when"),
        ("kill algo-2 at 1 at 2", "found a second clause 'at'"),
        ("kill algo-2 for 2", "kill is permanent; wanted no `for`"),
        ("fill algo-2:model for 2", "fill is permanent; wanted no `for`"),
        ("late algo-2", "late is temporary; wanted `for SECONDS`"),
        ("late algo-2 at 2 for 2", "late counts from the start of the first host; wanted neither at nor when"),
        ("hide algo-2", "hide is temporary; wanted `for SECONDS`"),
        ("kill algo-2 when 'two\nlines'", "wanted text of one line"),
    ],
)
def test_malformed_fault_is_refused_in_one_line(text, found):
    with pytest.raises(ConfigError) as refused:
        parse(text)
    message = str(refused.value)
    assert found in message and "\n" not in message
    grammar = "(ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]; see `entrypoint help faults`)"
    assert message.startswith("--fault ") and message.endswith(grammar)


def test_error_lists_only_some_of_many_hosts():
    with pytest.raises(ConfigError) as refused:
        parse_fault("cut me", [f"algo-{number}" for number in range(250)])
    assert "wanted algo-0, algo-1, algo-2, algo-3, algo-4, algo-5, ..., algo-249 (" in str(refused.value)


def test_unsupported_fault_is_refused_naming_capable_engines():
    with pytest.raises(ConfigError) as refused:
        refuse_faults([parse("kill algo-2"), parse("cut algo-2 for 3")], "process")
    assert str(refused.value) == (
        "--fault 'cut algo-2 for 3': engine process cannot cut; wanted --engine netns or --engine docker"
    )
    for engine in ("netns", "docker"):
        refuse_faults([parse(f"{action} algo-2:output") for action in ("fill", "readonly")], engine)


def test_namespaces_without_root_are_refused(tmp_path, monkeypatch, capsys):
    program = tmp_path / "code" / "train.py"
    program.parent.mkdir()
    program.touch()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert run(["local", str(program), "--engine", "netns", "--output", str(tmp_path / "out")], {}) == 78
    wanted = "error: --engine netns needs root, to make namespaces; or use --engine process or docker\n"
    assert capsys.readouterr().err == wanted
    assert not (tmp_path / "out").exists()


# --- when they are injected ---


class Recorder:
    """An engine that records its calls; `there` holds the hosts and processes that exist."""

    name, faults, look_again = "recorder", frozenset(Action), 0.05

    def __init__(self, *there: str) -> None:
        self.there, self.done = set(there), []

    def inject(self, fault, host, pid):
        if (fault.process or host) not in self.there:
            return False
        self.done.append((str(fault.action), host))
        return True

    def heal(self, fault, host, pid):
        self.done.append(("heal", host))


class Story:
    """An injector with its engine and its log lines."""

    def __init__(self, *texts: str, there: tuple[str, ...] = HOSTS) -> None:
        self.engine, self.said = Recorder(*there), []
        self.injector = Injector([parse(text) for text in texts], self.engine, self.said.append)

    def at(self, now: float, *running: str) -> list:
        """Run `act` for that time; return the engine's calls."""
        self.engine.done.clear()
        self.injector.act(now, dict.fromkeys(running or HOSTS, 100))
        return list(self.engine.done)


def test_fault_is_injected_once_at_its_time():
    story = Story("kill algo-2 at 3")
    assert story.injector.next_look() == 3.0
    assert story.at(2.99) == []
    assert story.at(3.01) == [("kill", "algo-2")]
    assert story.at(3.1) == [] and story.injector.next_look() == inf
    assert story.said == ["fault after 3.01 s: kill algo-2 at 3"]
    assert story.injector.report() == ["fault: kill algo-2 at 3, after 3.01 s"]


def test_all_hosts_are_frozen_before_the_first_is_killed():
    """Otherwise, on a busy machine, a host killed late would end by itself because another host is lost."""
    done = Story("kill all at 1").at(1.0)
    assert sorted(done[:3]) == [("pause", host) for host in HOSTS]
    assert sorted(done[3:]) == [("kill", host) for host in HOSTS]


def test_temporary_fault_ends_after_the_given_seconds():
    story = Story("cut algo-2 at 1 for 2")
    assert story.at(1.5) == [("cut", "algo-2")]
    assert story.injector.next_look() == 3.5
    assert story.at(3.49) == []
    assert story.at(3.5) == [("heal", "algo-2")]
    assert story.at(9.0) == []
    assert story.said[1] == "fault over after 3.50 s: cut algo-2 at 1 for 2"
    assert story.injector.report() == ["fault: cut algo-2 at 1 for 2, from 1.50 s to 3.50 s"]


def test_fault_waits_for_log_text_of_any_host():
    story = Story("kill algo-2 when 'epoch 2'")
    assert story.injector.next_look() == inf
    assert not story.injector.note_output(b"[algo-1 script] epoch 1\n[algo-1 script] epoch 11")
    assert story.at(1.0) == []
    assert story.injector.note_output(b"[algo-3 script] epoch 20")
    assert story.at(2.0) == [("kill", "algo-2")]
    assert not story.injector.note_output(b"[algo-3 script] epoch 21")  # nobody waits for it any more


def test_injector_retries_missing_host_or_process():
    story = Story("kill algo-2:orted", there=())
    assert story.at(0.0, "algo-1", "algo-3") == [] and story.injector.next_look() == pytest.approx(0.05)
    assert story.at(1.0) == [] and story.injector.next_look() == pytest.approx(1.05)
    story.engine.there.add("orted")
    assert story.at(1.01) == []
    assert story.at(1.06) == [("kill", "algo-2")]


def test_fault_that_never_happened_is_reported():
    story = Story("kill algo-2:nobody", "stop algo-1 when never", there=())
    story.at(5.0)
    assert story.said == []
    assert story.injector.report() == [
        "fault never happened: kill algo-2:nobody",
        "fault never happened: stop algo-1 when never",
    ]


def test_fault_on_all_reaches_each_host_once():
    story = Story("stop all at 1", there=("algo-1", "algo-3"))
    assert story.at(1.0) == [("stop", "algo-1"), ("stop", "algo-3")]
    story.engine.there.add("algo-2")
    assert story.at(1.1, "algo-2", "algo-3") == [("stop", "algo-2")]
    assert story.injector.report() == ["fault: stop all at 1, after 1.00 s"]


def test_fault_on_all_counts_although_last_host_ended_before():
    story = Story("stop all at 1", there=("algo-1",))
    story.at(1.0)
    story.injector.act(1.1, {})
    assert story.injector.report() == ["fault: stop all at 1, after 1.00 s; the others ended before it reached them"]


def test_late_hosts_start_late_and_hidden_hosts_reappear():
    story = Story("late algo-2 for 3", "hide algo-3 for 2")
    assert [story.injector.starts_at(host) for host in HOSTS] == [0.0, 3.0, 0.0]
    assert story.at(0.01, "algo-1") == []
    assert story.injector.next_look() == 2.0
    assert story.at(2.0) == [("heal", "algo-3")]
    assert story.at(3.0) == []
    assert story.said == [
        "fault after 0.00 s: late algo-2 for 3",
        "fault after 0.00 s: hide algo-3 for 2",
        "fault over after 2.00 s: hide algo-3 for 2",
        "fault over after 3.00 s: late algo-2 for 3",
    ]


def test_output_of_a_stalled_host_is_not_read():
    story = Story("stall algo-2 at 1 for 2")
    assert not story.injector.stalls("algo-2")
    assert story.at(1.0) == []  # no engine is asked
    assert story.injector.stalls("algo-2") and not story.injector.stalls("algo-1")
    assert story.at(3.0) == []
    assert not story.injector.stalls("algo-2")
    assert story.injector.report() == ["fault: stall algo-2 at 1 for 2, from 1.00 s to 3.00 s"]


def test_fault_that_fails_is_reported():
    story = Story("cut algo-2", "kill algo-3")
    plain = story.engine.inject

    def inject(fault, *rest):
        if fault.action is Action.CUT:
            raise FaultFailed("the knife is blunt")
        return plain(fault, *rest)

    story.engine.inject = inject
    assert story.at(0.0) == [("kill", "algo-3")]
    assert story.at(1.0) == []
    assert story.injector.report()[0] == "fault failed: cut algo-2: the knife is blunt"
    assert "fault failed: cut algo-2: the knife is blunt" in story.said


def test_permanently_paused_hosts_are_listed():
    story = Story("pause algo-1", "pause algo-2 for 3", "pause algo-3:script", there=(*HOSTS, "script"))
    assert story.injector.frozen_for_good() == set()
    story.at(0.0)
    assert story.injector.frozen_for_good() == {"algo-1"}


# --- names that are hidden ---


def test_hidden_name_stays_only_in_its_own_hosts_file(tmp_path):
    job = LocalJob(program="t.py", source=tmp_path, hosts=3, output=tmp_path, faults=(parse("hide algo-2 for 3"),))
    files = HostsFiles(job, {host: [f"10.0.1.{number}", f"fd00::{number}"] for number, host in enumerate(HOSTS, 1)})
    for host in HOSTS[:2]:
        files.write(host, tmp_path / host, f"ip-of-{host}")
    mounted = (tmp_path / "algo-1").open()  # as a mount holds on to the file, and not to its name
    assert "\n10.0.1.2 algo-2" not in mounted.read()
    assert "\n10.0.1.2 algo-2 ip-of-algo-2\n" in (tmp_path / "algo-2").read_text()
    own = ["127.0.0.1 localhost", "::1 localhost", "10.0.1.1 algo-1 ip-of-algo-1", "fd00::1 algo-1 ip-of-algo-1"]
    for _ in range(2):
        files.hide("algo-2", hidden=False)
        mounted.seek(0)
        others = ["10.0.1.2 algo-2", "fd00::2 algo-2", "10.0.1.3 algo-3", "fd00::3 algo-3"]
        assert mounted.read().splitlines() == [*own, *others]
        files.hide("algo-2")
        mounted.seek(0)
        others[:2] = ["#0.0.1.2 algo-2", "#d00::2 algo-2"]
        assert mounted.read().splitlines() == [*own, *others]
    files.hide("algo-2", hidden=False)
    files.write("algo-3", tmp_path / "algo-3")  # a host that comes late
    assert "\n10.0.1.2 algo-2\n" in (tmp_path / "algo-3").read_text()
    mounted.close()


DOCKER = """#!/bin/sh
# A daemon that has just made the container: it says that it runs, a moment after it did not know it.
if [ "$1" = inspect ]; then echo true; exit; fi
if mkdir "{noted}" 2>/dev/null; then echo "Error: No such container: x" >&2; exit 1; fi
exit {then}
"""


ENDS_WITH_IT = """#!/bin/sh
# A container that ends as soon as its launcher hears the signal, and whoever sends it from within ends with it.
# For a moment it still counts as running, and takes no more commands.
if [ "$1" = inspect ]; then mkdir "{noted}" 2>/dev/null && echo true || echo false; exit; fi
if [ -d "{noted}" ]; then echo "container is not running" >&2; exit 1; fi
{says}
exit 137
"""
SENDS_TO_ITSELF = """
import os, sys
from entrypoint.simulate import processes
processes.find = lambda *_: os.getpid()
sys.argv[1:] = ["script", "9"]
processes.main()
"""


@pytest.fixture
def inject(tmp_path, monkeypatch):
    """Return a function that injects a fault, with a shell script as `docker`, and returns whether it happened."""

    def inject(docker: str, fault: str, **values: object) -> bool:
        (tmp_path / "docker").write_text(docker.format(noted=tmp_path / "noted", **values))
        (tmp_path / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        job = LocalJob(program="t.py", source=tmp_path, hosts=2, output=tmp_path)
        return DockerEngine(job, {}, "image", None).inject(parse(fault), "algo-2", 1)

    return inject


@pytest.mark.parametrize("then, there", [(0, True), (75, False)])
def test_fault_on_a_starting_container_is_retried(inject, then, there):
    assert inject(DOCKER, "kill algo-2:script", then=then) is there


@pytest.mark.parametrize("killed_at_work", [True, False], ids=["it was at work", "it had not begun"])
def test_fault_that_ends_its_container_counts_as_injected(inject, killed_at_work):
    says = ""
    if killed_at_work:  # what our helper says before a signal that ends it, too
        helper = subprocess.run([sys.executable, "-c", SENDS_TO_ITSELF], capture_output=True, text=True)
        assert helper.returncode == -signal.SIGKILL
        says = f"echo '{helper.stdout}'"
    assert inject(ENDS_WITH_IT, "stop algo-2", says=says) is killed_at_work
