"""Test rules whose premise does not hold: jobs that failed, hung, were stopped, or were over before they began."""

from collections.abc import Callable
from pathlib import Path

import pytest
from records import GB, HostRecord, trained

from entrypoint.launcher.job.rules import RULES, thresholds
from entrypoint.observe.report.job_record import JobRecord, gather
from entrypoint.observe.report.make import judge
from entrypoint.observe.report.rules.judging import Verdict

H100 = Path(__file__).parent / "records"  # of jobs on one H100, 2026-11-26: as the monitor wrote them, but for paths
LONG, SHORT = 120, 4  # seconds of training
QUIET = 90  # seconds in which a job hangs before it is ended
TRAINERS = ("script", "rank", "worker")
WAYS = ("succeeded", "stopped", "failed", "hung", "ended as hung", "short")


def job_of(*records: HostRecord) -> JobRecord:
    return gather({record.name: record.data for record in records})


def told(job: JobRecord, *only: str) -> dict[str, Verdict]:
    return {verdict.rule: verdict for verdict in judge(job, thresholds({})) if not only or verdict.rule in only}


# --- a job with each illness ---


def waits_for_data(seconds: int) -> list[HostRecord]:
    record = trained(seconds=seconds)
    for second in range(8, seconds + 5):
        record.add("mark", second, "script", {"what": "data_wait", "seconds": 0.9})
    return [record]


def sampled(seconds: int, **sample: object) -> list[HostRecord]:
    return [trained(seconds=seconds, gpus=len(list(sample.get("gpus", []))), sample=sample)]


def grows(seconds: int, part: str, at_first: float, by: float) -> list[HostRecord]:
    """Return a host on which memory or disk gets `by` bytes nearer to its limit each second."""
    (record,) = sampled(seconds)
    for line in record.lines:
        if line[0] == "sample":
            value = at_first + by * (line[1] - record.lines[0][1])
            line[3] |= {"free": value} if part == "free" else {"memory": [value, 3 * GB, value + 3 * GB]}
    return [record]


def two(seconds: int, **second: object) -> list[HostRecord]:
    return [
        trained("algo-1", 2, seconds=seconds, process="rank 0", role="rank"),
        trained("algo-2", 2, seconds=seconds, process="rank 1", role="rank", **second),
    ]


def one_ends_early(seconds: int) -> list[HostRecord]:
    first, second = two(seconds)
    for line in second.lines:
        if line[0] == "ended" and line[2] == "rank 1":
            line[1] -= 0.75 * seconds
    return [first, second]


def one_server_works(seconds: int) -> list[HostRecord]:
    records = [
        trained(f"algo-{n + 1}", 3, seconds=seconds, process=f"worker/{n}", role="worker", mode="ps") for n in range(3)
    ]
    for number, (record, cpu) in enumerate(zip(records, (2.0, 0.1, 0.1), strict=True)):
        record.runs(f"ps/{number}", 4, seconds + 5, "ps")
        for second in range(5, seconds + 5):
            record.sample(second + 0.5, seconds=0.001, processes={f"ps/{number}": {"cpu": cpu}})
    return records


def slower_and_slower(seconds: int) -> list[HostRecord]:
    record = trained(seconds=seconds, step=1e9)
    record.lines = [line for line in record.lines if line[0] != "metric"]
    done = 0.0
    for tick in range(4 * seconds):  # so that the short one has values enough
        done += 30 / (0.1 + tick / seconds)
        record.add("metric", 5.2 + tick / 4, "script", {"step": float(round(done))})
    return [record]


def takes_long_to_save(seconds: int) -> list[HostRecord]:
    record = trained(seconds=seconds, limits={"stop": 4.0})
    record.add("mark", seconds + 4, "script", {"what": "checkpoint", "seconds": 5.0})
    return [record]


def loses(*values: float) -> Callable[[int], list[HostRecord]]:
    def make(seconds: int) -> list[HostRecord]:
        record = trained(seconds=seconds)
        for line in record.lines:
            if line[0] == "metric":
                line[3]["loss"] = values[min(len(values) - 1, int(line[1]) % 1000 // 10)]
        return [record]

    return make


def trains_apart(seconds: int) -> list[HostRecord]:
    first, second = two(seconds)
    told = {"since": first.lines[0][1] + 5.0, "words": "every host trains alone", "advice": "a scope"}
    first.add("distributed", seconds, False, told)
    return [first, second]


ALWAYS, WELL = frozenset(WAYS), frozenset({"succeeded", "stopped"})
# Illness: the rule, how a job gets it, and how such a job may end for the rule to speak.
TABLE: dict[str, tuple[str, Callable[[int], list[HostRecord]], frozenset[str]]] = {
    "trains apart": ("apart", trains_apart, ALWAYS),
    "waits for data": ("input_bound", waits_for_data, WELL),
    "throttled": ("cpu_starved", lambda s: sampled(s, cpu=[4.0, 0.5, 0, 0, 1.5]), WELL | {"failed"}),
    "idle GPUs": ("gpu_starved", lambda s: sampled(s, gpus=[[0.2, 8 * GB, 16 * GB, 100.0]]), WELL),
    "full memory": ("memory", lambda s: sampled(s, programs=15 * GB), ALWAYS),
    "memory grows": ("memory", lambda s: grows(s, "memory", 2 * GB, 8 * GB / LONG), WELL | {"failed"}),
    "a slow rank": ("straggler", lambda s: two(s, step=0.3), WELL),
    "one server works": ("ps_unbalanced", one_server_works, WELL),
    "loss does not fall": ("loss", loses(1.0), WELL),
    "no number": ("loss", loses(float("nan")), ALWAYS),
    "slower and slower": ("step_growth", slower_and_slower, WELL),
    "a long checkpoint": ("checkpoint", takes_long_to_save, ALWAYS),
    "full disk": ("disk", lambda s: sampled(s, free=0.5 * GB), ALWAYS),
    "the disk fills": ("disk", lambda s: grows(s, "free", 90 * GB, -60 * GB / LONG), WELL),
    "the network is full": ("network", lambda s: sampled(s, net=[int(1.2 * GB), 9], cpu=[1.0, 0, 0, 0, 0]), WELL),
    "small files": (
        "small_files",
        lambda s: [trained(seconds=s, channels={"train": {"files": 50_000, "bytes": 10**9}})],
        ALWAYS,
    ),
    "a host ends early": ("idle", one_ends_early, ALWAYS - {"failed"}),  # of those that hang, for that
}


def ended(records: list[HostRecord], way: str) -> JobRecord:
    """Return the same job with another end.

    In one that hangs, all processes are quiet for long before they are killed.
    """
    kind, code = {"succeeded": ("succeeded", 0), "short": ("succeeded", 0), "failed": ("failed", 1)}.get(
        way, ("failed", 72) if way == "ended as hung" else ("stopped", 143)
    )
    for record in records:
        began, end = record.lines[0][1], max(line[1] for line in record.lines)
        more = QUIET if "hung" in way else 0
        names = [line[2] for line in record.lines if line[0] == "process" and line[3]["role"] in TRAINERS]
        last = next(line for line in reversed(record.lines) if line[0] == "sample")[3]
        for line in record.lines:
            if line[0] == "outcome":
                line[1] += more
                line[2] |= {"kind": kind, "exit_code": code}
            elif line[0] == "ended" and line[2] in names and more:
                line[1] += more
        for second in range(1, more):
            record.add("sample", end - began + second, 1.0, {**last, "cpu": [0.01, 0, 0, 0, 0]}, {}, {})
            if second > 10 and second % 5 == 0:
                record.add("still", end - began + second, {name: [float(second), 0.01, 0.0] for name in names})
        if way == "stopped":
            record.add("phase", end - began, "stopping")
    return job_of(*records)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("illness", TABLE)
def test_a_rule_speaks_where_its_premise_holds(illness, way):
    rule, make, speaks = TABLE[illness]
    found = told(ended(make(SHORT if way == "short" else LONG), way), rule)
    assert bool(found) == (way in speaks), found


def test_the_table_has_every_rule():
    assert {rule for rule, _, _ in TABLE.values()} == set(RULES)


# --- what kind of end it was ---


def test_of_a_job_that_hung_the_time_without_progress_is_told():
    job = ended(two(LONG), "hung")
    assert "without any progress" in told(job)["idle"].text
    assert "stacks" not in told(job)["idle"].advice, "there are none"
    first, second = two(LONG)
    first.add("stacks", LONG + 60, "rank 0", {"by": "py-spy", "place": "train.py:7", "text": "..."})
    assert "the stacks show" in told(ended([first, second], "hung"))["idle"].advice


def test_a_wait_that_was_over_before_the_end_is_no_hang():
    """All were quiet for a while, went on, and the job was stopped a minute later."""
    (record,) = sampled(LONG, gpus=[[0.2, 8 * GB, 16 * GB, 100.0]])
    for second in range(40, 75, 5):
        record.add("still", second, {"script": [float(second - 30), 0.01, 0.0]})
    record.add("stalled", 60, [1])
    record.add("stacks", 70, "script", {"by": "py-spy", "text": "..."})
    assert "gpu_starved" in told(ended([record], "stopped"))


def test_a_job_that_waits_for_its_last_evaluation_has_not_hung():
    """Horovod says that rank 0 is missing, to the end of a job that succeeds."""
    records = two(LONG, step=0.3)
    records[1].add("stalled", LONG + 1, [0])
    assert "straggler" in told(ended(records, "succeeded"))


def test_horovods_word_before_the_end_tells_a_hang_though_processes_spin():
    records = two(LONG, step=0.3)
    for record in records:
        record.lines = [line for line in record.lines if line[0] != "metric" or line[1] % 1000 < LONG - 20]
    records[1].add("stalled", LONG - 5, [0])
    assert "straggler" not in told(ended(records, "stopped"))


def test_hosts_that_never_came_are_not_told_to_prepare_less():
    record = HostRecord("algo-1", 2)
    record.runs("prepare", 0.2, 1.0, "prepare")
    for second in range(1, 100):
        record.sample(second)
    record.ends(100, "stopped", 143)
    assert told(job_of(record), "idle") == {}


def test_a_host_that_saves_while_the_job_is_stopped_keeps_nobody_idle():
    first, second = two(LONG)
    for line in second.lines:
        if line[0] == "ended" and line[2] == "rank 1":
            line[1] -= 60
    for record in (first, second):
        record.add("phase", LONG + 5 - 61, "stopping")
    assert told(ended([first, second], "succeeded"), "idle") == {}


# --- GPUs ---


def test_nothing_is_said_of_gpus_whose_libraries_did_not_load():
    (record,) = sampled(LONG, gpus=[[0.0, 0.5 * GB, 80 * GB, 72.0]])
    why = "1 GPU: tensorflow 2.21.0 cannot load libcusolver.so.11"
    record.add("decided", 2, {"number": 2, "events": [["Prepared", {"flags": [], "unused_gpus": why}]]})
    assert told(job_of(record)) == {}


def test_gpus_that_no_program_has_taken_are_not_advised_larger_batches():
    found = told(job_of(*sampled(LONG, gpus=[[0.0, 0.5 * GB, 80 * GB, 72.0]])))["gpu_starved"]
    assert "not used at all" in found.text and "batches" not in found.advice


def test_what_else_is_known_of_a_gpu_stands_beside_how_busy_it_was():
    """A GPU is "busy" while any kernel runs; its power and memory say how much that was."""
    (record,) = sampled(LONG, gpus=[[0.4, 20 * GB, 80 * GB, 130.0]])
    found = told(job_of(record))["gpu_starved"]
    assert "busy for 40 % of the training at 130 W, with up to 25 % of the memory held" in found.text


RECORDED = sorted({path.name.partition("-")[0] for path in H100.glob("*.gz")})


@pytest.mark.parametrize("name", RECORDED)
def test_the_jobs_of_the_h100(name):
    """They lasted seconds, failed, hung, or trained on CPUs; one trained well, for 25 s."""
    job = gather(
        {path.name.split("-", 1)[1].partition(".")[0]: path.read_bytes() for path in H100.glob(f"{name}-*.gz")}
    )
    assert job.outcome and job.notes == []
    assert list(told(job)) == (["idle"] if name == "hang" else [])
