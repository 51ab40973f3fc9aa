"""Test each rule on jobs with and without its problem, and on jobs whose outcome makes its advice pointless."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from records import GB, HostRecord, trained

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.rules import RULES, in_words, parse_rules, thresholds
from entrypoint.launcher.job.settings import read_settings
from entrypoint.observe.report.job_record import JobRecord, gather
from entrypoint.observe.report.make import CHECKS, judge, line_of

PAGE = Path(__file__).resolve().parents[4] / "docs" / "report.md"
H100 = Path(__file__).parent / "records"  # of jobs on one H100, 2026-11-26: as the monitor wrote them, but for paths
LONG, SHORT = 120, 4  # seconds of training
QUIET = 90  # seconds in which a job hangs before it is ended
TRAINERS = ("script", "rank", "worker")
WAYS = ("succeeded", "stopped", "failed", "hung", "ended as hung", "short")
ALWAYS, WELL = frozenset(WAYS), frozenset({"succeeded", "stopped"})
Records = list[HostRecord]


def job_of(*records: HostRecord) -> JobRecord:
    return gather({record.name: record.data for record in records})


def told(job: JobRecord, **given: float) -> dict[str, str]:
    """Return {rule: its verdict as a line of the log}, with the thresholds of `given`."""
    found = judge(job, thresholds(given))
    return {each.rule: line_of({**vars(each), "severity": str(each.severity)}) for each in found}


def verdicts(*records: HostRecord, **given: float) -> dict[str, str]:
    return told(job_of(*records), **given)


def sampled(seconds: int = LONG, **sample: object) -> Records:
    """Return the record of a host with this usage in each second."""
    return [trained(seconds=seconds, gpus=len(list(sample.get("gpus", []))), sample=sample)]


def marked(what: str, took: Callable[[int], float], seconds: int = LONG) -> Records:
    record = trained(seconds=seconds)
    for second in range(8, seconds + 5):
        record.add("mark", second, "script", {"what": what, "seconds": took(second)})
    return [record]


def grows(part: str, at_first: float, by: float, seconds: int = LONG) -> Records:
    """Return a host whose memory or disk gets `by` bytes closer to its limit each second."""
    (record,) = sampled(seconds)
    for line in record.of("sample"):
        value = at_first + by * (line[1] - record.lines[0][1])
        line[3] |= {"free": value} if part == "free" else {"memory": [value, 3 * GB, value + 3 * GB]}
    return [record]


def killed_for_memory() -> Records:
    (record,) = grows("memory", 2 * GB, 0)
    record.sample(LONG + 5, oom=2)
    return [record]


def ranks(*steps: float, seconds: int = LONG) -> Records:
    """Return hosts with one rank each; rank n takes the n-th number of seconds for a step."""
    return [
        trained(f"algo-{n + 1}", len(steps), seconds=seconds, step=step, process=f"rank {n}", role="rank")
        for n, step in enumerate(steps)
    ]


def ranks_by_marks(*steps: float) -> Records:
    """Return hosts in synchronous training: all take equal steps, and marks show each rank's own work."""
    records = ranks(*[0.1] * len(steps))
    for number, seconds in enumerate(steps):
        for second in range(8, 60):
            records[number].add("mark", second, f"rank {number}", {"what": "step", "seconds": seconds})
    return records


def servers(*cpu: float, seconds: int = LONG) -> Records:
    """Return hosts with a worker and a parameter server each; the servers use so much CPU time a second."""
    records = [
        trained(f"algo-{n + 1}", len(cpu), seconds=seconds, process=f"worker/{n}", role="worker", mode="ps")
        for n in range(len(cpu))
    ]
    for number, each in enumerate(cpu):
        records[number].runs(f"ps/{number}", 4, seconds + 5, "ps")
        for second in range(5, seconds + 5):
            records[number].sample(second + 0.5, seconds=0.001, processes={f"ps/{number}": {"cpu": each}})
    return records


def servers_alone(*sent: int) -> Records:
    """Return hosts with only a parameter server each, which exchanges so many bytes a second."""
    records = [HostRecord(f"algo-{n + 1}", len(sent), mode="ps") for n in range(len(sent))]
    for number, each in enumerate(sent):
        records[number].runs(f"ps/{number}", 4, 65, "ps")
        for second in range(5, 65):
            records[number].sample(second, peers={"algo-9": [each, each]})
    return records


def paced(pace: Callable[[float], float], seconds: int = LONG) -> Records:
    """Return a host whose step takes `pace(second)` seconds, with a report four times a second."""
    record = trained(seconds=seconds, step=1e9)
    record.drop("metric")
    done = 0.0
    for tick in range(4 * seconds):
        done += 0.25 / pace(tick / 4)
        record.add("metric", 5.2 + tick / 4, "script", {"step": float(round(done))})
    return [record]


def losses(*values: float, name: str = "loss") -> Records:
    """Return a host that reports these values of its loss, one a second."""
    record = HostRecord()
    record.runs("script", 2, 2 + len(values), "script")
    for number, value in enumerate(values):
        record.sample(3 + number)
        record.add("metric", 3 + number, "script", {"step": number * 10.0, name: value})
    record.ends(3 + len(values))
    return [record]


def saves(took: float, seconds: int = LONG) -> Records:
    """Return a host whose last checkpoint takes so long; a stopped job has 100 s for it."""
    record = trained(seconds=seconds)
    record.add("mark", seconds + 4, "script", {"what": "checkpoint", "seconds": took})
    return [record]


def channel(files: int, size: float, seconds: int = LONG) -> Records:
    train = {"mode": "FastFile", "distribution": "", "files": files, "bytes": int(size)}
    return [trained(seconds=seconds, channels={"train": train})]


def one_ends_early(seconds: int = LONG) -> Records:
    first, second = ranks(0.1, 0.1, seconds=seconds)
    for line in second.of("ended"):
        line[1] -= 0.75 * seconds * (line[2] == "rank 1")
    return [first, second]


def serves_others(role: str) -> Records:
    """Return a host that trains for 20 s, and one that reports no step and runs 40 s longer."""
    trains, serves = (trained(f"algo-{n}", 2, seconds=20) for n in (1, 2))
    serves.drop("metric", "process", "ended")
    serves.add("process", 5, "script", {"pid": 7, "role": "script", "task": role})
    serves.add("ended", 65, "script", "killed by SIGTERM")
    for record in (trains, serves):
        for second in range(26, 66):
            record.sample(second)
        record.ends(66)
    return [trains, serves]


ADVICE = "train.py:31 makes the model outside of the scope"


def apart(*found: bool | None, by: int = 0, seconds: int = LONG) -> Records:
    """Return hosts of which one records these verdicts: train together (True), apart (False), or unclear (None)."""
    records = [trained("algo-1", 2, seconds=seconds, loss=math.nan), trained("algo-2", 2, seconds=seconds)]
    for at, together in enumerate(found):
        words = {"words": "every host trains alone (nothing)", "advice": ADVICE, "since": records[0].lines[0][1] + 12.0}
        records[by].add("distributed", seconds + at, together, words)
    return records


IDLE_GPU = [[0.2, 8 * GB, 16 * GB, 100.0]]
UNUSED_GPU = [[0.0, 0.5 * GB, 80 * GB, 72.0]]
TWO_GPUS = [[0.9, 8 * GB, 16 * GB, 200.0], [0.0, 0, 16 * GB, 30.0]]
FULL_NETWORK = {"net": [int(1.2 * GB), 9], "cpu": [1.0, 0, 0, 0, 0]}
APART = (
    "^error: apart: the hosts trained apart since 12 s after the start, each a model of its own: every host trains "
    rf"alone \(nothing\); {ADVICE}$"
)
# Jobs that are ill, by the rule that speaks of it: what makes the records of so many seconds of training, what the rule
# then says, as a regular expression, and the ends of the job after which it speaks, if that is tried.
ILL: dict[str, list[Any]] = {
    "apart": [(lambda s: apart(False, seconds=s), APART, ALWAYS)],
    "input_bound": [
        (lambda s: marked("data_wait", lambda _: 0.9, s),
         "script on algo-1: waits for data for (89|90) % of its training", WELL),
        (lambda s: sampled(s, cpu=[0.8, 0, 0, 0, 0], fifos={"train": [0, 65536]}),
         "algo-1: channel train is empty for 100 %"),
        (lambda s: [trained(seconds=s, used={"wait": 0.6})], "waits for disks for 60 %"),
    ],
    "cpu_starved": [
        (lambda s: sampled(s, cpu=[4.0, 0.5, 0, 0, 1.5]),
         "did not get 25 % of the CPU time.*throttled", WELL | {"failed"}),
        (lambda s: sampled(s, cpu=[4.0, 0.5, 0, 1.5, 0]), "other virtual machines"),
    ],
    "gpu_starved": [
        (lambda s: sampled(s, gpus=IDLE_GPU), "busy for 20 %.*larger batches", WELL),
        # A GPU is "busy" while any kernel runs; its power and memory say how much that was.
        (lambda s: sampled(s, gpus=[[0.4, 20 * GB, 80 * GB, 130.0]]),
         "busy for 40 % of the training at 130 W, with up to 25 % of the memory held"),
        (lambda s: sampled(s, gpus=TWO_GPUS), "GPU 1 not at all.*MirroredStrategy"),
        (lambda s: sampled(s, cpu=[7.8, 0.1, 0, 0, 0], gpus=IDLE_GPU), "the CPUs prepare the input too slowly"),
        (lambda s: sampled(s, gpus=UNUSED_GPU), "not used at all(?!.*batches)"),
    ],
    "memory": [
        (lambda s: sampled(s, programs=15 * GB), "15 GB, 94 % of the host's memory", ALWAYS),
        (lambda s: grows("memory", 2 * GB, 0.07 * GB, s), "grows by 4.2 GB a minute.*full in", WELL | {"failed"}),
        (lambda _: killed_for_memory(), "^error.*killed 2 processes"),
    ],
    "straggler": [
        (lambda s: ranks(0.1, 0.1, 0.2, 0.1, seconds=s),
         "rank 2 on algo-3: takes .* for a step, 2.0 times the median of 4 processes"),
        (lambda s: ranks(0.3, 0.1, seconds=s), "rank 0 on algo-1", WELL),
        (lambda _: ranks_by_marks(0.05, 0.09, 0.05), "rank 1 on algo-2"),
    ],
    "ps_unbalanced": [
        (lambda s: servers(20.0, 0.1, 0.1, seconds=s),
         r"ps/0 on algo-1: uses [\d,]+ CPU-seconds, .* times the average of 3 parameter servers", WELL),
        (lambda _: servers_alone(10**6, 10**8, 10**6), "ps/1 on algo-2: exchanges"),
    ],
    "network": [(lambda s: sampled(s, **FULL_NETWORK), "1.2 GB a second are received", WELL)],
    "loss": [
        (lambda _: losses(1.0, 0.9, math.nan), "^error.*loss is nan 5 s after", ALWAYS),
        (lambda _: losses(1.0, 0.9, math.inf), "^error.*loss is inf 5 s after"),
        (lambda _: losses(*[1.0] * 25, *[1.5] * 25), "rises from 1 to 1.5"),
        (lambda s: losses(*[1.0] * s), "falls from 1 to 1 ", WELL),
    ],
    "step_growth": [
        (lambda s: paced(lambda at: (0.1 + at / s) / 120, s), "a step takes 7.84 ms at the end, 2.9 times", WELL),
        (lambda s: marked("step", lambda at: 0.1 + 0.01 * at, s), "a step takes"),
    ],
    "checkpoint": [
        (lambda s: saves(110, s), "^error.*takes 110 s", ALWAYS),
        (lambda s: saves(60, s), "^warning"),
    ],
    "disk": [
        (lambda s: sampled(s, free=5 * GB), "^warning.*5 GB of 100 GB are free"),
        (lambda s: sampled(s, free=0.5 * GB), "^error", ALWAYS),
        (lambda s: grows("free", 90 * GB, -0.5 * GB, s), "full in", WELL),
    ],
    "small_files": [(lambda s: channel(50_000, 1e9, s), "50,000 files of 20 kB", ALWAYS)],
    "idle": [
        # A host that hangs is idle for that.
        (one_ends_early, "algo-2: hosts are idle.*after their own programs ended", ALWAYS - {"failed"}),
        (lambda s: [trained(seconds=s, begins=50.0)], "waiting for other hosts to start"),
        (lambda _: serves_others("script"),
         "the others waited for script on algo-2, which reported no step(?!.*evenly)"),
    ],
}  # fmt: skip
HEALTHY = {
    "nothing is recorded": list,
    "a host has said nothing": lambda: [HostRecord()],
    "two hosts": lambda: [trained("algo-1", 2), trained("algo-2", 2)],
    "a script waits for a fifth": lambda: marked("data_wait", lambda _: 0.2),
    "a pipe is full": lambda: sampled(cpu=[0.8, 0, 0, 0, 0], fifos={"train": [60_000, 65536]}),
    "a pipe is empty, but the CPUs are slow": lambda: sampled(cpu=[7.5, 0, 0, 0, 0], fifos={"train": [0, 65536]}),
    "a quota throttles little": lambda: sampled(cpu=[4.0, 0.5, 0, 0, 0.2]),
    "GPUs are busy": lambda: sampled(gpus=[[0.9, 8 * GB, 16 * GB, 100.0]] * 2),
    "memory grows slowly": lambda: grows("memory", 2 * GB, 0.01 * GB),
    "nobody knows the limit of memory": lambda: [trained(memory_limit=0, sample={"programs": 15 * GB})],
    "all ranks are alike": lambda: ranks(0.1, 0.12, 0.1, 0.11),
    "servers are balanced": lambda: servers(1.0, 1.2, 0.9),
    "servers send alike": lambda: servers_alone(10**8, 10**8, 10**8),
    "the network is full, but CPUs are busy": lambda: sampled(**{**FULL_NETWORK, "cpu": [7.0, 0, 0, 0, 0]}),
    "the network is slow": lambda: sampled(**{**FULL_NETWORK, "net": [10**6, 9]}),
    "the loss falls": lambda: losses(*[1.0 - 0.01 * n for n in range(50)]),
    "the loss falls below zero": lambda: losses(*[-1.0 - 0.01 * n for n in range(50)]),
    "the loss has too few values": lambda: losses(1.0, 1.1, 1.2),
    "the loss of an evaluation rises": lambda: losses(*[1.0 + 0.01 * n for n in range(50)], name="val_loss"),
    "steps are steady": lambda: paced(lambda _: 0.1),
    "only the first steps are slow": lambda: paced(lambda at: 0.5 if at < 8 else 0.1),
    "a checkpoint takes a fifth of a stop": lambda: saves(20),
    "files are large": lambda: channel(50_000, 5e11),
    "files are few": lambda: channel(100, 1e6),
    "hosts wait for a moment": lambda: [trained(seconds=10, begins=3.0)],
    "hosts served one outside of the distribution": lambda: serves_others("outside the distribution"),
}


@pytest.mark.parametrize(
    "rule, make, said",
    [
        pytest.param(rule, make, said, id=f"{rule}: {said[:60]}")
        for rule, rows in ILL.items()
        for make, said, *_ in rows
    ],
)
def test_report_rule_names_the_problem(rule, make, said):
    assert re.search(said, verdicts(*make(LONG)).get(rule, ""))


@pytest.mark.parametrize("name", HEALTHY)
def test_job_without_problems_triggers_no_rule(name):
    assert verdicts(*HEALTHY[name]()) == {}


def test_sporadic_network_use_is_not_the_bottleneck():
    (record,) = sampled()
    for line in record.of("sample")[::4]:
        line[3] |= FULL_NETWORK
    assert verdicts(record) == {}


# --- thresholds ---


@pytest.mark.parametrize(
    "records, given, rules",
    [
        (marked("data_wait", lambda _: 0.2), {"input_bound": 0.1}, ["input_bound"]),
        ([trained(seconds=10, begins=3.0)], {"idle": 0.001}, []),  # a wait of a moment, though the job is short
        ([trained(seconds=10, begins=9.5)], {"idle": 0.001}, ["idle"]),
        (sampled(programs=15.9 * GB), {"memory": math.inf}, []),
    ],
    ids=["lower", "a short wait", "a longer wait", "off"],
)
def test_rule_triggers_at_its_threshold(records, given, rules):
    assert list(verdicts(*records, **given)) == rules


def test_thresholds_are_read_from_the_jobs_record():
    job = job_of(trained(sample={"programs": 15 * GB}, rules="memory=off"))
    assert judge(job, job.rules) == [] and list(told(job)) == ["memory"]


def test_each_rule_has_threshold_failing_case_and_page_row():
    assert list(CHECKS) == list(RULES)
    assert {rule for rule, rows in ILL.items() if any(len(row) == 3 for row in rows)} == set(RULES)
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [row[:2] for row in rows] == [(name, f"{rule.default:g}") for name, rule in RULES.items()]


def test_thresholds_are_read_from_a_setting():
    given = parse_rules(" input_bound=0.2, straggler=off ,")
    assert given == (("input_bound", 0.2), ("straggler", math.inf))
    assert parse_rules(in_words(given)) == given
    assert thresholds(dict(given)) == {name: rule.default for name, rule in RULES.items()} | dict(given)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("stragler=2", "did you mean straggler?"),
        ("straggler", "straggler=NUMBER from 0 to 1000"),
        ("straggler=fast", "straggler=NUMBER"),
        ("straggler=nan", "straggler=NUMBER"),
        ("straggler=inf=1", "straggler=NUMBER"),
        ("memory=1.5", "memory=NUMBER from 0 to 1"),
        ("memory=-1", "memory=NUMBER"),
        ("memory=0.5,memory=0.6", "once"),
    ],
)
def test_wrong_threshold_is_refused(text, wanted):
    _, _, errors = read_settings({"ENTRYPOINT_RULES": text}, {})
    (error,) = errors
    assert isinstance(error, ConfigError) and wanted in str(error) and "ENTRYPOINT_RULES" in str(error)


# --- order and words of several verdicts ---


def test_separate_training_comes_first_then_other_errors():
    (record,) = losses(1.0, math.nan)
    record.add("host", 1, {"channels": {"train": {"files": 10**6, "bytes": 10**6}}})
    assert list(verdicts(record)) == ["loss", "small_files"]
    assert list(verdicts(*apart(False)))[:2] == ["apart", "loss"]


@pytest.mark.parametrize("found, by", [((), 0), ((None,), 0), ((True,), 0), ((False, True), 0), ((False,), 1)])
def test_separate_training_needs_coordinators_final_verdict(found, by):
    assert "apart" not in verdicts(*apart(*found, by=by))


def test_worst_of_many_hosts_is_named_and_others_counted():
    records = [trained(f"algo-{n + 1}", 6, sample={"programs": (10 + n) * GB}) for n in range(6)]
    found = verdicts(*records, memory=0.6)["memory"]
    assert "memory: algo-6: " in found and "; the same holds for algo-1, algo-2, algo-3 and 2 more hosts" in found


# --- the end of a job ---


def ended(records: Records, way: str) -> JobRecord:
    """Return the same job with another outcome. In a hung job, all hosts are silent for long before they are killed."""
    kind, code = {"succeeded": ("succeeded", 0), "short": ("succeeded", 0), "failed": ("failed", 1)}.get(
        way, ("failed", 72) if way == "ended as hung" else ("stopped", 143)
    )
    more = QUIET if "hung" in way else 0
    for record in records:
        began, end = record.lines[0][1], max(line[1] for line in record.lines)
        names = [line[2] for line in record.of("process") if line[3]["role"] in TRAINERS]
        last = record.of("sample")[-1][3]
        for line in record.of("outcome"):
            line[1] += more
            line[2] |= {"kind": kind, "exit_code": code}
        for line in record.of("ended"):
            line[1] += more * (line[2] in names)
        for second in range(1, more):
            record.add("sample", end - began + second, 1.0, {**last, "cpu": [0.01, 0, 0, 0, 0]}, {}, {})
            if second > 10 and second % 5 == 0:
                record.add("still", end - began + second, {name: [float(second), 0.01, 0.0] for name in names})
        if way == "stopped":
            record.add("phase", end - began, "stopping")
    return job_of(*records)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "rule, make, speaks",
    [(rule, row[0], row[2]) for rule, rows in ILL.items() for row in rows if len(row) == 3],
)
def test_rule_applies_only_to_fitting_job_outcomes(rule, make, speaks, way):
    found = told(ended(make(SHORT if way == "short" else LONG), way))
    assert (rule in found) == (way in speaks), found


def test_time_without_progress_of_a_hung_job_is_reported():
    found = told(ended(ranks(0.1, 0.1), "hung"))["idle"]
    assert "without any progress" in found and "stacks" not in found, "there are none"
    first, second = ranks(0.1, 0.1)
    first.add("stacks", LONG + 60, "rank 0", {"by": "py-spy", "place": "train.py:7", "text": "..."})
    assert "the stacks show" in told(ended([first, second], "hung"))["idle"]
    assert "a smaller ENTRYPOINT_HANG_AFTER" in told(ended(ranks(0.1, 0.1), "ended as hung"))["idle"]


def test_wait_that_ended_before_the_job_is_not_a_hang():
    """All hosts were silent for a while and then continued; the job was stopped a minute later."""
    (record,) = sampled(gpus=IDLE_GPU)
    for second in range(40, 75, 5):
        record.add("still", second, {"script": [float(second - 30), 0.01, 0.0]})
    record.add("stalled", 60, [1])
    record.add("stacks", 70, "script", {"by": "py-spy", "text": "..."})
    assert "gpu_starved" in told(ended([record], "stopped"))


def test_job_waiting_for_its_last_evaluation_is_not_a_hang():
    """Horovod warns that rank 0 is missing until the end of a job that succeeds."""
    records = ranks(0.1, 0.3)
    records[1].add("stalled", LONG + 1, [0])
    assert "straggler" in told(ended(records, "succeeded"))


def test_final_horovod_stall_warning_shows_a_hang_of_spinning_processes():
    records = ranks(0.1, 0.3)
    for record in records:
        record.lines = [line for line in record.lines if line[0] != "metric" or line[1] % 1000 < LONG - 20]
    records[1].add("stalled", LONG - 5, [0])
    assert "straggler" not in told(ended(records, "stopped"))


def test_missing_hosts_get_no_advice_on_preparation():
    record = HostRecord("algo-1", 2)
    record.runs("prepare", 0.2, 1.0, "prepare")
    for second in range(1, 100):
        record.sample(second)
    record.ends(100, "stopped", 143)
    assert "idle" not in verdicts(record)


def test_saving_during_stop_is_not_reported_as_idle():
    records = one_ends_early(80)
    for record in records:
        record.add("phase", 24, "stopping")
    assert "idle" not in told(ended(records, "succeeded"))


def test_gpus_without_loaded_libraries_get_no_advice():
    (record,) = sampled(gpus=UNUSED_GPU)
    why = "1 GPU: tensorflow 2.21.0 cannot load libcusolver.so.11"
    record.add("decided", 2, {"number": 2, "events": [["Prepared", {"flags": [], "unused_gpus": why}]]})
    assert verdicts(record) == {}


@pytest.mark.parametrize("name", sorted({path.name.partition("-")[0] for path in H100.glob("*.gz")}))
def test_recorded_h100_jobs_trigger_only_the_hang_rule(name):
    """These jobs lasted seconds, failed, hung, or trained on CPUs; one trained well for 25 s."""
    paths = H100.glob(f"{name}-*.gz")
    job = gather({path.name.split("-", 1)[1].partition(".")[0]: path.read_bytes() for path in paths})
    assert job.outcome and job.notes == []
    assert list(told(job)) == (["idle"] if name == "hang" else [])
