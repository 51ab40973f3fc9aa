"""Test how the coordinator reports hosts that train alone, and when it ends the job. Records are made up."""

import json
import time

import pytest
from builders import read

from entrypoint.observe.live.serve import STATE, WATCHED
from entrypoint.observe.monitor import job_watch
from entrypoint.observe.monitor.job_watch import JobWatch
from entrypoint.record.lines import line_of
from entrypoint.record.write import Record

REQUIRED = {"ENTRYPOINT_REQUIRE_DISTRIBUTED": "true"}
TRAINS = {"algo-1": {"worker/0"}, "algo-2": {"worker/1"}}
MWMS = {
    "sagemaker_multi_worker_mirrored_strategy_enabled": "true",
    "sagemaker_distribution_instance_groups": '["workers"]',
}
GROUPS = {"workers": ["algo-1", "algo-2"], "data": ["algo-3"]}


class Watched:
    """A job of two hosts that take 10 steps a second; their records are read every two seconds."""

    def __init__(self, tmp_path, environment):
        job = read(tmp_path, 3, MWMS, environment, groups=GROUPS)
        self.sent = []
        self.watch = JobWatch(job, {**TRAINS, "algo-3": {"script"}}, self.sent.append, tracked=False)
        self.records = job.paths.records
        self.other = Record(self.records / "algo-2.jsonl.gz", pytest.fail)
        self.now, self.own, self.found = 0, [], []
        self.write(["process", 0, "worker/0", {"pid": 1}], ["process", 0, "worker/1", {"pid": 1}])

    def write(self, mine, others):
        self.own.append(mine)
        self.other.add(line_of(others))
        self.other.flush()
        self.found += self.watch.look([line_of(mine)])

    def train(self, seconds, exchange=0, **told):
        for _ in range(seconds // 2):
            self.now += 2
            sides = []
            for host, peer in (("algo-1", "algo-2"), ("algo-2", "algo-1")):
                (worker,) = TRAINS[host]
                sides.append([
                    ["metric", self.now, worker, {"step": 10 * self.now, "loss": 1.0}],
                    ["sample", self.now, 2.0, {}, {worker: {"cpu": 1.8}}, {peer: [exchange, exchange]}],
                    *([["model", self.now, worker, told]] if told else []),
                ])  # fmt: skip
            for mine, others in zip(*sides, strict=True):
                self.write(mine, others)

    def end(self, *more, kind="succeeded"):
        """End the job, with more lines of the coordinator's record."""
        own = [["outcome", self.now, {"kind": kind, "exit_code": 0, "cause": None}], *more]
        self.own += own
        record = Record(self.records / "algo-1.jsonl.gz", pytest.fail)
        for line in self.own:
            record.add(line_of(line))
        record.close()
        self.found += self.watch.look_last([line_of(line) for line in own])

    @property
    def said(self):
        return [each["say"] for each in self.sent if "say" in each]

    @property
    def blamed(self):
        return [each["blame"] for each in self.sent if "blame" in each]


@pytest.fixture
def watched(tmp_path):
    made = []

    def make(environment=REQUIRED):
        made.append(Watched(tmp_path, environment))
        return made[-1]

    yield make
    for job in made:
        job.other.close()


@pytest.mark.parametrize("environment, blamed", [(REQUIRED, [("trains alone", 78)]), ({}, [])])
def test_separate_training_is_reported_and_ends_job_if_required(watched, environment, blamed):
    job = watched(environment)
    job.train(60)
    (said,) = job.said
    assert "distributed: NO: every host trains alone" in said and job.blamed == []
    assert "tf.distribute.MultiWorkerMirroredStrategy" in said
    job.train(50)
    assert [(each["what"], each["code"]) for each in job.blamed] == blamed
    assert job.said == [said] and all(each["error"] == said for each in job.blamed)


def test_hosts_that_later_train_together_are_not_ended(watched):
    job = watched()
    job.train(80)
    job.train(200, exchange=10**8, weights=10**6, dense=10**6, workers=2)
    assert ["NO" in job.said[0], "yes after all" in job.said[1]] == [True, True] and job.blamed == []


OUTSIDE = {"weights": 10**6, "dense": 10**6, "made": 2, "made_at": "train.py:31"}
INSIDE = {**OUTSIDE, "exchange": 10**7, "workers": 2, "strategy": "CollectiveAllReduceStrategy"}


def test_separate_training_of_a_short_job_is_reported_at_its_end(watched):
    job = watched({})
    job.train(6, **OUTSIDE)
    assert job.said == []
    job.end()
    (said,) = job.said
    assert said.startswith("distributed: NO: every host trains alone (a strategy of 2 workers was made")
    assert ": train.py:31 makes the model outside of strategy.scope()" in said and job.blamed == []
    (line,) = job.found
    assert (line.together, line.since) == (False, 2.0)
    assert f"distributed: NO: {line.words}: {line.advice}" == said


@pytest.mark.parametrize("kind, trained", [("failed", OUTSIDE), ("stopped", OUTSIDE), ("succeeded", INSIDE)])
def test_short_failed_or_distributed_job_gets_no_warning(watched, kind, trained):
    job = watched({})
    job.train(6, **trained)
    job.end(kind=kind)
    assert job.said == [] and job.found == []


def test_late_records_are_ordered_by_their_times(watched):
    """A follower's record comes in pieces, the last ones at its end. Its processes start with the others."""
    job = watched({})
    for now in range(2, 42, 2):
        job.own += [
            ["metric", now, "worker/0", {"step": 10 * now, "loss": 1.0}],
            ["sample", now, 2.0, {}, {"worker/0": {"cpu": 1.8}}, {}],
        ]
        job.other.add(line_of(["metric", now, "worker/1", {"step": 10 * now, "loss": 1.0}]))
        job.other.add(line_of(["sample", now, 2.0, {}, {"worker/1": {"cpu": 1.8}}, {}]))
    job.other.flush()
    job.end()
    assert len(job.said) == 1 and "every host trains alone (exchanged nothing with other hosts" in job.said[0]


@pytest.mark.parametrize("workers", [1, 2])
def test_verdict_does_not_wait_for_an_evaluator_host(workers, tmp_path):
    job = read(tmp_path, 3, MWMS, {}, groups={"workers": ["algo-1", "algo-2", "algo-3"]})
    names = {f"algo-{n}": f"worker/{n - 1}" if n <= workers else "evaluator/0" for n in (1, 2, 3)}
    sent = []
    watching = JobWatch(job, {host: {name} for host, name in names.items()}, sent.append, tracked=False)
    for host, name in names.items():
        watching._judge(host, line_of(["process", 0, name, {"pid": 1}]))
    for now in range(2, 80, 2):
        for host, name in names.items():
            watching._judge(host, line_of(["metric", now, name, {"step": 10 * now, "loss": 1.0}]))
            watching._judge(host, line_of(["sample", now, 2.0, {}, {name: {"cpu": 1.8}}, {}]))
        watching.look([])
    assert [each["say"][:45] for each in sent] == ["distributed: NO: every host trains alone (exc"] * (workers - 1)


def test_unclear_verdict_does_not_end_the_job(watched):
    job = watched()
    job.train(400, exchange=2000)
    assert len(job.said) == 1 and job.said[0].startswith("distributed: unclear: 2 hosts exchange") and job.blamed == []


def differ(job, *steps):
    for step in steps:
        job.write(["weights", 0, "worker/0", step, 1.0, 1.0], ["weights", 0, "worker/1", step, 2.0, 2.0])


def test_evaluator_and_undistributed_hosts_get_no_warning(watched):
    job = watched()
    outside = Record(job.records / "algo-3.jsonl.gz", pytest.fail)
    outside.add(line_of(["process", 0, "script", {"pid": 1}]))
    job.write(["process", 0, "evaluator/0", {"pid": 2}], ["ended", 0, "evaluator/0", "exit code 0"])
    for _ in range(120):
        job.train(2, exchange=10**8, weights=10**6, dense=10**6, workers=2)
        outside.add(line_of(["metric", job.now, "script", {"step": 20 * job.now, "loss": 1.0}]))
        outside.add(line_of(["sample", job.now, 2.0, {}, {"script": {"cpu": 1.8}}, {}]))
        outside.flush()
    outside.close()
    assert [words[:16] for words in job.said] == ["distributed: yes"] and job.blamed == []


def test_different_weights_end_the_job(watched):
    job = watched()
    differ(job, 100, 200)
    assert job.said == []
    differ(job, 300)
    assert "distributed: NO: weights differ" in job.said[0] and [each["code"] for each in job.blamed] == [78]


def test_periodically_averaged_weights_do_not_end_the_job(watched):
    job = watched()
    for _ in range(4):
        job.train(18, weights=10**6, dense=10**6)
        job.train(2, exchange=8 * 10**6)
    differ(job, 100, 200, 300, 400)
    assert "distributed: yes" in job.said[0] and "weights differ" in job.said[1] and job.blamed == []


def test_malformed_lines_of_a_host_hide_no_lines_of_others(watched):
    job = watched()
    (job.records / WATCHED).touch()
    for line in (b'["process",1,7,8]', b'["still', b'["still",1,{"a":[]}]', b'["sample",1,1,{},{},{"algo-1":[1]}]'):
        job.other.add(line)
    job.write(["said", 1.0, "mine"], ["said", 2.0, "hello"])
    assert "hello" in (job.records / STATE).read_text()


def test_long_records_are_processed_line_by_line(watched, monkeypatch):
    """A restarted monitor reads whole records of all hosts. Each may expand to a gigabyte."""
    watch, noted = watched().watch, []
    monkeypatch.setattr(watch._view, "note", lambda host, line: noted.append(line.at))

    def lines(wanted):
        for at in (1.0, 2.0, 3.0):
            yield line_of(["phase", at, "running"])
            assert noted[-1] == at

    monkeypatch.setattr(watch._tails["algo-2"], "lines", lines)
    watch.look([])
    assert noted == [1.0, 2.0, 3.0]


def test_wall_clock_change_affects_neither_page_visits_nor_silence(watched, monkeypatch):
    job, real = watched(), time.time
    (job.records / WATCHED).touch()
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    job.train(2)
    assert job.watch.live
    state = json.loads((job.records / STATE).read_text())
    silent = [state["at"] - host["heard"] for host in state["hosts"]]
    assert len(silent) == 2 and all(0 <= seconds < 600 for seconds in silent), "their lines are of 1970"
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    monkeypatch.setattr(job_watch, "STILL_WATCHED_SECONDS", 0.0)
    job.train(2)
    assert not job.watch.live
