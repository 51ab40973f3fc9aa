"""Test that replay/ leads from a host's recorded events to the same decisions and outcome."""

import gzip
import json
import re

import pytest
from builders import read as job_of

from entrypoint.base.codec import plain, reader
from entrypoint.base.errors import FAULT, ConfigError
from entrypoint.base.values import replace
from entrypoint.cli.main import run
from entrypoint.launcher.outcome.outcome import Cause, Exit, failed
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.artifacts import Artifacts, File
from entrypoint.launcher.policy.events import News, Reach, Report
from entrypoint.launcher.policy.history import MOST_HOSTS, History
from entrypoint.launcher.policy.policy import Policy
from entrypoint.observe.monitor.record_header import described
from entrypoint.observe.replay import timeline
from entrypoint.observe.replay.play import EVENTS
from entrypoint.observe.replay.rerun import arguments, faults
from entrypoint.observe.replay.timeline import Narrator
from entrypoint.record.lines import Line, OutcomeLine, line_of

CAUSE = Cause(host="algo-2", process="script", what="exit code 1", error="ValueError: x", code=1, exit=Exit(code=1))
BEGAN = 1000.0


class Life:
    """The policy of one host, with the record that its launcher would have written."""

    def __init__(self, folder, hosts=2):
        self.job = job_of(folder, hosts, {"sagemaker_program": "train.py"}, {"ENTRYPOINT_MODE": "single"})
        self.policy = Policy(plan_for(self.job), "algo-1", self.job.settings, BEGAN)
        self.written = []
        self.history = History(hosts, BEGAN, self.written.append)
        names = [host.name for host in self.job.cluster.hosts]
        about = {"host": "algo-1", "coordinator": "algo-1", "hosts": names, "gpus": 0}
        told = described(self.job, {"ENTRYPOINT_MODE": "single", "HOME": "/root"})
        self.lines = [["host", BEGAN, about], json.loads(told.to_json())]
        self.outcome = None

    def on(self, at: float, *happened: events.Event):
        actions = self.policy.on(happened, BEGAN + at)
        assert self.history.note(happened, BEGAN + at, actions) == actions
        self.lines += [["decided", BEGAN + at, line] for line in self.written]
        self.written.clear()
        for action in actions:
            if isinstance(action, events.Finish):
                self.outcome = action.outcome
                told = {"kind": str(action.outcome.kind), "exit_code": action.outcome.exit_code, "cause": None}
                self.lines.append(["outcome", BEGAN + at, told])
        return actions

    @property
    def record(self) -> bytes:
        return gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in self.lines))

    @property
    def decisions(self) -> list[dict]:
        return [line[2] for line in self.lines if line[0] == "decided"]


@pytest.fixture
def life(tmp_path):
    """Return a coordinator whose follower fails after two quiet minutes."""
    life = Life(tmp_path)
    life.on(0.1, events.Prepared(flags=frozenset()), events.Ended(name="prepare", exit=Exit(code=0)))
    met = Report(host="algo-2", ready=frozenset({"prepare", "preflight"}))
    life.on(0.2, events.Reported(report=met))
    life.on(0.3, events.Probed(found=(Reach(host="algo-2", address="127.0.0.2"),)))
    running = Report(host="algo-2", ready=frozenset({"prepare", "preflight", "script"}), ack=1)
    life.on(0.5, events.Reported(report=running))
    for second in range(1, 120):
        life.on(second, events.Reported(report=running))
        life.on(second + 0.5, events.Due())
    life.on(121, events.Reported(report=Report(host="algo-2", done=True, clean=False, cause=CAUSE, ack=1)))
    life.on(121.2, events.Reported(report=Report(host="algo-2", done=True, clean=False, cause=CAUSE, ack=9)))
    life.on(123, events.Due())
    life.on(123.1, events.Ended(name="script", exit=Exit(code=143, signal=15)))
    life.on(123.2, events.Reported(report=Report(host="algo-2", done=True, clean=False, cause=CAUSE, ack=9, gone=True)))
    for tenth in range(40):
        if life.outcome is None:
            life.on(123.3 + tenth / 10, events.Due())
    assert life.outcome == failed(CAUSE)
    return life


def test_replayed_history_gives_the_same_decisions(life):
    """The replay adds ticks that were not recorded; without them the policy would take the host for lost."""
    assert sum(line["dropped"] for line in life.decisions) > 20 and len(life.record) < 6000
    played = timeline.play(timeline.read(life.record))
    assert played.differs is None and played.same_outcome and played.incomplete == []
    assert (played.outcome.kind, played.outcome.exit_code) == ("failed", 1)
    assert len(played.steps) == len(life.decisions)


def test_report_before_the_deadline_triggers_no_replayed_decision(tmp_path):
    life = Life(tmp_path, hosts=3)
    life.on(0.1, events.Prepared(flags=frozenset()), events.Ended(name="prepare", exit=Exit(code=0)))
    met = [Report(host=f"algo-{n}", ready=frozenset({"prepare", "preflight"})) for n in (2, 3)]
    life.on(0.2, *(events.Reported(report=report) for report in met))
    life.on(0.3, events.Probed(found=tuple(Reach(host=report.host, address="127.0.0.2") for report in met)))
    assert events.Knock(host="algo-2") in life.on(1.0, events.LinkEnded(host="algo-2"))
    life.on(1.9, events.Due())
    assert not life.on(2.5, events.Reported(report=met[1]))  # another check is due, but not before the deadline
    assert life.on(2.9, events.Due()) == [events.Knock(host="algo-2")]
    played = timeline.play(timeline.read(life.record))
    assert played.differs is None and played.incomplete == []


def test_history_keeps_all_calls_of_the_last_seconds():
    """A limit of 10 s, such as that for the end of mpirun, may start at a call without actions."""
    written = []
    history = History(2, 0.0, written.append)
    for tenth in range(110):  # near its end, a job is looked at each 0.1 s
        history.note([events.Due()], tenth / 10, [])
        if tenth % 5 == 0:
            history.note([events.Reported(report=Report(host="algo-2"))], tenth / 10, [])
    history.note([events.Signalled(number=15)], 11.0, [events.Say(message="x")])
    assert written[-1]["dropped"] == 0


def test_differing_replayed_decision_is_reported(life, capsys):
    text = gzip.decompress(life.record).decode().replace('"ValueError: x"', '"KeyError: y"')
    text = text.replace('"exit_code": 1, "cause": null', '"exit_code": 2, "cause": null')
    code = timeline.replay({"algo-1": gzip.compress(text.encode())}, None)
    assert code == 1
    told = capsys.readouterr().out
    assert told.startswith("failed, exit code 2\n\n"), "without a cause, too, it begins with the end"
    assert "the job's was failed, exit code 2: this version decides otherwise" in told


def test_replay_is_printed_in_words(life, capsys):
    cause = '{"host": "algo-2", "process": "script", "what": "exit code 1", "error": "ValueError: x"}'
    before, end, outcome = gzip.decompress(life.record).decode().rpartition('["outcome"')
    text = before + end + outcome.replace('"cause": null', f'"cause": {cause}')
    assert timeline.replay({"algo-1": gzip.compress(text.encode())}, None) == 0
    told = capsys.readouterr().out
    assert re.search(
        r"12\d\.\d+ algo-1  algo-2 reports .*done=True.*cause=algo-2 script \(exit code 1\): ValueError: x", told
    )
    assert told.splitlines()[:2] == ["failed, exit code 1: algo-2 script (exit code 1): ValueError: x", ""]
    assert "-> SIGTERM to script" in told and "-> exits: failed, exit code 1" in told
    assert "algo-1: failed, exit code 1, as then, by the same" in told


def test_values_of_events_are_printed_in_words() -> None:
    files = (File(path="model/1/saved_model.pb", size=1, digest="d"),)
    there = events.Inventoried(artifacts=Artifacts(files=files, model=True))
    assert Narrator().describe(there) == "inventoried: model/1/saved_model.pb"
    same = events.Fingerprinted(fingerprints={"the plan": "2 workers"})
    assert Narrator().describe(same) == "fingerprinted: the plan 2 workers"
    narrator, waits = Narrator(), events.Unreached(host="algo-1")
    assert [narrator.describe(each) for each in (waits, waits, there)] == [
        "unreached: algo-1", "", "inventoried: model/1/saved_model.pb",
    ]  # fmt: skip


def test_missing_events_are_reported(life, capsys):
    del life.lines[4]
    timeline.replay({"algo-1": life.record}, None)
    assert "incomplete: algo-1: 1 events are not in the record" in capsys.readouterr().out


def test_unusable_records_are_refused_by_replay(tmp_path, life):
    with pytest.raises(ConfigError, match="no record says what its job was"):
        timeline.replay({"algo-1": gzip.compress(b'["host", 1, {"host": "algo-1"}]\n')}, None)
    with pytest.raises(ConfigError, match="--host is 'algo-7'; the records are of algo-1"):
        timeline.replay({"algo-1": life.record}, "algo-7")


def test_truncated_record_is_replayed_to_its_end(life):
    played = timeline.play(timeline.read(life.record[: len(life.record) * 2 // 3]))
    assert played.differs is None and played.steps


def test_replayed_job_description_has_no_secrets(tmp_path):
    job = job_of(tmp_path, 1, {"sagemaker_program": "train.py", "api_key": "k-17-hidden-91"})
    environment = {"ENTRYPOINT_TOKEN": "t-23-hidden-55", "SM_X": "holds k-17-hidden-91", "PATH": "/bin"}
    environment["SM_Y"] = "y" * 9999
    told = described(job, environment).to_json().decode()
    assert "hidden" not in told and "/bin" not in told and "yyy" not in told


def test_jobs_of_very_many_hosts_record_no_history():
    written = []
    history = History(MOST_HOSTS + 1, 0.0, written.append)
    history.note([events.Signalled(number=15)], 1.0, [events.Say(message="x")])
    assert written == []


SAMPLES = [
    events.Ended(name="script", exit=Exit(code=1), output="x"),
    events.Reported(report=Report(host="algo-2", cause=CAUSE, unreached=(Reach(host="algo-3", why="no"),), rests=2.0)),
    events.Informed(news=News(outcome=failed(CAUSE), ready=frozenset({("*", "prepare")})), offset=0.25),
    events.Fingerprinted(fingerprints={"code": "ab12"}),
    events.Looked(found=(("script", "error", "details"),)),
    events.Resting(found=(("ps/0", 1.5),)),
    events.Found(cause=CAUSE),
    events.Inventoried(artifacts=None),
]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_events_survive_json(event):
    name, fields = type(event).__name__, json.loads(json.dumps(plain(event)))
    assert reader(EVENTS[name])(fields) == event


# --- rerun.py ---


def told(*lines) -> list[Line]:
    first = ["process", 100.0, "script", {"pid": 1}]
    last = ["outcome", 190.0, {"kind": "failed", "exit_code": 1, "cause": None}]
    return [line_of(line) for line in (first, *lines, last)]


def decision(at: float, *happened, actions=(), quiet=()) -> list:
    return ["decided", at, {"at": at, "events": list(happened), "actions": list(actions), "quiet": list(quiet)}]


KILLED = ["Ended", {"name": "rank 1", "exit": {"code": 137, "signal": 9}}]


def printed(*output: str) -> list[Line]:
    return told(decision(130.0, KILLED), ["lines", 130.0, "rank 1", [*output]])


ASKED = decision(129.0, actions=[["Ask", {"name": "rank 1", "grace": 2}]])
BY_ITSELF = ["Ended", {"name": "script", "exit": {"code": 1, "signal": None}}]
HEARD = [[119.0, [["Reported", "algo-3"]]]]
LEFT = told(decision(120.0, ["LinkEnded", {"host": "algo-2"}]), decision(125.0, quiet=HEARD))
ALONE = [line_of(["process", 100.0, "script", {"pid": 1}])]  # its record just ends


@pytest.mark.parametrize(
    "records, wanted",
    [
        ([printed("step=6 loss=2", "step=7 loss=1")], ["kill 'algo-1:rank 1' when '[algo-1 rank 1] step=7 loss=1'"]),
        ([printed("still here")], ["kill 'algo-1:rank 1' at 30.0"]),  # no number says which step
        ([told(ASKED, decision(130.0, KILLED), decision(131.0, BY_ITSELF))], []),
        ([told(decision(110.0, ["Signalled", {"number": 15}]))], ["stop algo-1 at 10.0"]),
        ([LEFT, ALONE, ALONE], ["kill algo-2 at 20.0", "pause algo-3 at 19.0"]),
    ],
    ids=[
        "killed at a step",
        "killed",
        "ended by the launcher and by itself",
        "stopped",
        "a lost host and a frozen one",
    ],
)
def test_recorded_failures_become_injected_faults(records, wanted):
    assert list(faults({f"algo-{n}": record for n, record in enumerate(records, 1)})) == wanted


def test_rerun_command_has_the_jobs_settings(life):
    environment = {"ENTRYPOINT_RESTARTS": "2", "ENTRYPOINT_TOKEN": "***", "ENTRYPOINT_CONTROL_PORT": "7", "SM_X": "1"}
    asked = replace(
        line_of(life.lines[1]), environment=environment, hyperparameters={"sagemaker_program": "a.py", "lr": 0.1}
    )
    assert arguments(asked, "ps", 2, "src/train.py", ["kill algo-2 at 3"]) == [
        "src/train.py", "--hosts", "2", "--mode", "ps", "--processes-per-host", "2", "--env", "ENTRYPOINT_RESTARTS=2",
        "--hyperparameters", "lr=0.1", "--fault", "kill algo-2 at 3",
    ]  # fmt: skip
    given = {"a": None, "b": {"x": 1}, "c": [1, "y"], "d": "as it is", "e": False}
    words = arguments(replace(asked, hyperparameters=given), "ps", 1, "train.py", [])
    assert words[-5:] == ["a=", "b=x=1", "c=[1, 'y']", "d=as it is", "e=False"], "as the script got them"


def test_rerun_lists_options_that_the_command_still_needs(life):
    """The user gets this list instead of a KeyError of the script."""
    life.lines[1][2]["inputdataconfig"] = {"training": {}}
    life.lines[1][2]["hyperparameters"] |= {"password": "***"}
    told = timeline.lacks({"algo-1": life.record})
    assert "--channel training=DIR" in told and "--hyperparameters password=..." in told and "--env" in told


def test_missing_program_of_a_rerun_is_one_error(life, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "algo-1.jsonl.gz").write_bytes(life.record)
    assert run(["replay", str(tmp_path), "--rerun", "nothere.py"], {}) != 0
    said = capsys.readouterr()
    assert said.err.count("error: ") == 1 and "there is no program" in said.err


def test_outcome_of_a_launcher_fault_needs_no_replayed_decision():
    cause = {"host": "algo-1", "process": "", "what": FAULT, "error": "RuntimeError: can't start new thread"}
    outcome = OutcomeLine(kind="failed", exit_code=70, cause=cause)
    recorded = timeline.Recorded(about=None, described=None, decided=[], outcome=outcome)
    played = timeline.Played(recorded=recorded, steps=[], incomplete=[], outcome=None)
    assert played.same_outcome


CALL = {"number": 3, "began": BEGAN, "at": BEGAN, "events": [], "actions": [], "quiet": [], "dropped": 0}
HOSTILE = [
    None, 7, {}, {"number": 1}, CALL | {"number": "x"}, CALL | {"at": 1e15, "dropped": 1},
    CALL | {"events": [["Ended", {}]]}, CALL | {"events": [["Comet", {}]]},
    CALL | {"events": [7], "actions": 7, "quiet": [[1]]}, CALL | {"dropped": 10**400},
    *({name: value for name, value in CALL.items() if name != gone} for gone in ("actions", "number", "dropped")),
]  # fmt: skip


def test_replay_skips_only_unreadable_lines(life, capsys):
    """Records may come from any source."""
    hostile = [["decided", BEGAN + 3, line] for line in HOSTILE]
    more = [["host", BEGAN, 7], ["described", BEGAN, "x"], ["outcome", BEGAN, {}], ["outcome", BEGAN, 5],
            ["process", BEGAN, [], {}], ["lines", BEGAN, [], ["a"]], ["lines", BEGAN, "script", {"a": "b"}],
            ["decided", "x", {}], ["decided"]]  # fmt: skip
    life.lines = [*life.lines[:3], *hostile, *more, *life.lines[3:], *more]
    assert timeline.replay({"algo-1": life.record}, None) == 0
    said = capsys.readouterr().out
    assert said.count("a line of its history cannot be read") == 8, "all that are lines of a record"
    assert "as then, by the same" in said
    assert timeline.once_more({"algo-1": life.record}, "train.py")
    assert timeline.compare({"algo-1": life.record}, {"algo-1": life.record}) == 0


def test_replay_escapes_terminal_control_sequences(life, capsys):
    life.on(125.0, events.Broken(what="\x1b]0;owned\x07", why="\x9b31m", code=1))
    timeline.replay({"algo-1": life.record}, None)
    said = capsys.readouterr().out
    assert "\\x1b]0;owned" in said and all(c.isprintable() or c == "\n" for c in said)
