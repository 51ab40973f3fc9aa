"""Test each rule on a record with the problem, and on one without."""

import math
import re
from pathlib import Path

import pytest
from records import GB, HostRecord, trained

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.rules import RULES, in_words, parse_rules, thresholds
from entrypoint.launcher.job.settings import read_settings
from entrypoint.observe.report.job import gather
from entrypoint.observe.report.rules.judge import CHECKS, judge
from entrypoint.observe.report.rules.verdict import Verdict

PAGE = Path(__file__).resolve().parents[4] / "docs" / "report.md"


def verdicts(*records: HostRecord, **given: float) -> dict[str, Verdict]:
    job = gather({record.name: record.data for record in records})
    return {verdict.rule: verdict for verdict in judge(job, thresholds(given))}


def test_a_healthy_job_is_told_nothing():
    assert verdicts(trained("algo-1", 2), trained("algo-2", 2)) == {}


def test_nothing_is_said_of_nothing():
    assert verdicts() == {} and verdicts(HostRecord()) == {}


class TestInputBound:
    @staticmethod
    def waits(share: float) -> HostRecord:
        record = trained(seconds=60)
        for second in range(8, 65):
            record.add("mark", second, "script", {"what": "data_wait", "seconds": share})
        return record

    def test_by_marks(self):
        found = verdicts(self.waits(0.5))["input_bound"]
        assert found.process == "script" and re.search(r"waits for data for (49|50) % of its training", found.text)
        assert "input_bound" not in verdicts(self.waits(0.2))
        assert "input_bound" in verdicts(self.waits(0.2), input_bound=0.1)

    @staticmethod
    def pipe(waiting: int, cpu: float) -> HostRecord:
        return trained(sample={"cpu": [cpu, 0, 0, 0, 0], "fifos": {"train": [waiting, 65536]}})

    def test_by_an_empty_pipe(self):
        assert "channel train is empty for 100 %" in verdicts(self.pipe(0, 0.8))["input_bound"].text
        assert "input_bound" not in verdicts(self.pipe(60_000, 0.8))
        assert "input_bound" not in verdicts(self.pipe(0, 7.5)), "it is the processors that are slow"

    def test_by_waits_for_disks(self):
        record = trained(seconds=60)
        for line in record.lines:
            if line[0] == "sample" and "script" in line[4]:
                line[4]["script"]["wait"] = 0.6
        assert "waits for disks for 60 %" in verdicts(record)["input_bound"].text


class TestProcessors:
    def test_a_quota(self):
        found = verdicts(trained(sample={"cpu": [4.0, 0.5, 0, 0, 1.5]}))["cpu_starved"]
        assert "did not get 25 % of the CPU time" in found.text and "throttled" in found.text
        assert "cpu_starved" not in verdicts(trained(sample={"cpu": [4.0, 0.5, 0, 0, 0.2]}))

    def test_other_guests(self):
        assert "other virtual machines" in verdicts(trained(sample={"cpu": [4.0, 0.5, 0, 1.5, 0]}))["cpu_starved"].text

    @pytest.mark.parametrize(("busy", "told"), [(0.2, True), (0.9, False)])
    def test_gpus_that_wait(self, busy, told):
        gpus = [[busy, 8 * GB, 16 * GB, 100.0]] * 2
        assert ("gpu_starved" in verdicts(trained(gpus=2, sample={"gpus": gpus}))) == told

    def test_a_gpu_that_nobody_uses(self):
        gpus = [[0.9, 8 * GB, 16 * GB, 200.0], [0.0, 0, 16 * GB, 30.0]]
        found = verdicts(trained(gpus=2, sample={"gpus": gpus}))["gpu_starved"]
        assert "GPU 1 not at all" in found.text and "one process for each GPU" in found.advice

    def test_cpus_that_cannot_feed_them(self):
        record = trained(gpus=1, sample={"cpu": [7.8, 0.1, 0, 0, 0], "gpus": [[0.2, 8 * GB, 16 * GB, 90.0]]})
        assert "the CPUs prepare the input too slowly" in verdicts(record)["gpu_starved"].advice


class TestMemory:
    @staticmethod
    def grows(a_second: float, oom: int = 0) -> HostRecord:
        record = trained(seconds=100)
        for line in record.lines:
            if line[0] == "sample":
                second = line[1] - record.lines[0][1]
                line[3]["memory"][0] = 2 * GB + a_second * second
        if oom:
            record.sample(105, oom=oom)
        return record

    def test_it_is_full(self):
        found = verdicts(trained(sample={"programs": 15 * GB}))["memory"]
        assert "15 GB, 94 % of the host's memory" in found.text

    def test_it_will_be(self):
        found = verdicts(self.grows(0.1 * GB))["memory"]
        assert "grows by 6 GB a minute" in found.text and "full in" in found.text
        assert "memory" not in verdicts(self.grows(0.01 * GB))

    def test_the_kernel_has_killed(self):
        found = verdicts(self.grows(0, oom=2))["memory"]
        assert str(found.severity) == "error" and "killed 2 processes" in found.text

    def test_a_limit_that_nobody_knows(self):
        assert "memory" not in verdicts(trained(memory_limit=0, sample={"programs": 15 * GB}))


class TestStraggler:
    @staticmethod
    def hosts(*steps: float) -> list[HostRecord]:
        return [trained(f"algo-{n + 1}", len(steps), step=step, process=f"rank {n}") for n, step in enumerate(steps)]

    def test_one_that_is_slower(self):
        found = verdicts(*self.hosts(0.1, 0.1, 0.2, 0.1))["straggler"]
        assert (found.host, found.process) == ("algo-3", "rank 2")
        assert "2.0 times the median of 4 processes" in found.text

    def test_of_two(self):
        assert verdicts(*self.hosts(0.3, 0.1))["straggler"].host == "algo-1"

    def test_all_alike(self):
        assert "straggler" not in verdicts(*self.hosts(0.1, 0.12, 0.1, 0.11))

    def test_by_marks_of_steps(self):
        """In synchronous training all take as many steps; marks show how long each worked itself."""
        records = self.hosts(0.1, 0.1, 0.1)
        for record, seconds in zip(records, (0.05, 0.09, 0.05), strict=True):
            for second in range(8, 60):
                record.add("mark", second, f"rank {record.name[-1:]}", {"what": "step", "seconds": seconds})
        for record in records:
            for line in record.lines:
                if line[0] == "mark":
                    line[2] = f"rank {int(record.name[-1]) - 1}"
        assert verdicts(*records)["straggler"].host == "algo-2"


class TestServers:
    @staticmethod
    def servers(*cpu: float) -> list[HostRecord]:
        records = []
        for number, each in enumerate(cpu):
            record = trained(f"algo-{number + 1}", len(cpu), process=f"worker/{number}", role="worker")
            record.runs(f"ps/{number}", 4, 65, "ps")
            for second in range(5, 65):
                record.sample(second + 0.5, seconds=0.001, processes={f"ps/{number}": {"cpu": each}})
            records.append(record)
        return records

    def test_one_has_the_work_of_all(self):
        found = verdicts(*self.servers(2.0, 0.1, 0.1))["ps_unbalanced"]
        assert found.process == "ps/0" and "times the average of 3 parameter servers" in found.text

    def test_balanced(self):
        assert "ps_unbalanced" not in verdicts(*self.servers(1.0, 1.2, 0.9))

    @staticmethod
    def alone(*sent: int) -> list[HostRecord]:
        records = []
        for number, each in enumerate(sent):
            record = HostRecord(f"algo-{number + 1}", len(sent), mode="ps")
            record.runs(f"ps/{number}", 4, 65, "ps")
            for second in range(5, 65):
                record.sample(second, peers={"algo-9": [each, each]})
            records.append(record)
        return records

    def test_by_bytes_where_they_have_hosts_of_their_own(self):
        assert "exchanges" in verdicts(*self.alone(10**6, 10**8, 10**6))["ps_unbalanced"].text
        assert "ps_unbalanced" not in verdicts(*self.alone(10**8, 10**8, 10**8))

    @pytest.mark.parametrize(
        ("rate", "cpu", "told"), [(1.2 * GB, 1.0, True), (1.2 * GB, 7.0, False), (1e6, 1.0, False)]
    )
    def test_the_network(self, rate, cpu, told):
        found = verdicts(trained(sample={"net": [int(rate), 1000], "cpu": [cpu, 0, 0, 0, 0]}))
        assert ("network" in found) == told

    def test_a_network_that_is_used_now_and_then(self):
        record = trained()
        for number, line in enumerate(line for line in record.lines if line[0] == "sample"):
            line[3] |= {"net": [int(1.2 * GB) if number % 4 == 0 else 0, 0], "cpu": [1.0, 0, 0, 0, 0]}
        assert "network" not in verdicts(record)


class TestLoss:
    @staticmethod
    def losses(*values: float, name: str = "loss") -> HostRecord:
        record = HostRecord()
        record.runs("script", 2, 2 + len(values), "script")
        for number, value in enumerate(values):
            record.sample(3 + number)
            record.add("metric", 3 + number, "script", {"step": number * 10.0, name: value})
        return record

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_no_number(self, value):
        found = verdicts(self.losses(1.0, 0.9, value, value))["loss"]
        assert str(found.severity) == "error" and f"loss is {value} 5 s after the start" in found.text

    def test_it_does_not_fall(self):
        assert "rises from 1 to 1.5" in verdicts(self.losses(*[1.0] * 25, *[1.5] * 25))["loss"].text
        assert "loss" in verdicts(self.losses(*[1.0] * 50))

    def test_it_falls(self):
        assert "loss" not in verdicts(self.losses(*[1.0 - 0.01 * n for n in range(50)]))

    def test_below_zero_it_falls_too(self):
        assert "loss" not in verdicts(self.losses(*[-1.0 - 0.01 * n for n in range(50)]))

    def test_too_few_to_tell(self):
        assert "loss" not in verdicts(self.losses(1.0, 1.1, 1.2))

    def test_that_of_an_evaluation_may_rise(self):
        assert "loss" not in verdicts(self.losses(*[1.0 + 0.01 * n for n in range(50)], name="val_loss"))


class TestSteps:
    @staticmethod
    def paced(seconds_of_step) -> HostRecord:
        record = HostRecord()
        record.runs("script", 2, 122, "script")
        done = 0.0
        for second in range(3, 122):
            done += 1 / seconds_of_step(second)
            record.sample(second)
            record.add("metric", second, "script", {"step": float(round(done))})
        return record

    def test_ever_slower(self):
        found = verdicts(self.paced(lambda second: 0.1 + second * 0.003))["step_growth"]
        assert re.search(r"a step takes \d+ ms at the end, [23]\.\d times", found.text)

    def test_steady(self):
        assert "step_growth" not in verdicts(self.paced(lambda second: 0.1))

    def test_a_slow_begin_is_none(self):
        assert "step_growth" not in verdicts(self.paced(lambda second: 0.5 if second < 10 else 0.1))

    def test_by_marks(self):
        record = trained(seconds=60)
        for second in range(6, 60):
            record.add("mark", second, "script", {"what": "step", "seconds": 0.1 + 0.01 * second})
        assert "step_growth" in verdicts(record)


class TestEnds:
    @pytest.mark.parametrize(("seconds", "severity"), [(20, None), (60, "warning"), (110, "error")])
    def test_a_checkpoint_and_the_time_for_one(self, seconds, severity):
        record = trained(seconds=200)
        record.add("mark", 190, "script", {"what": "checkpoint", "seconds": seconds})
        found = verdicts(record).get("checkpoint")
        assert (str(found.severity) if found else None) == severity

    def test_hosts_that_wait_at_the_end(self):
        early = trained("algo-2", 2, seconds=20)
        for second in range(26, 66):
            early.sample(second)
        found = verdicts(trained("algo-1", 2, seconds=60), early)["idle"]
        assert found.host == "algo-2" and "after their own programs ended" in found.text

    def test_hosts_that_wait_for_one(self):
        found = verdicts(trained("algo-1", seconds=60, begins=50.0))["idle"]
        assert "waiting for other hosts to start" in found.text

    def test_a_wait_of_a_moment_is_no_matter_though_the_job_is_short(self):
        assert "idle" not in verdicts(trained("algo-1", seconds=10, begins=3.0), idle=0.001)
        assert "idle" in verdicts(trained("algo-1", seconds=10, begins=9.5), idle=0.001)

    def test_disk(self):
        found = verdicts(trained(sample={"free": 5 * GB}))["disk"]
        assert str(found.severity) == "warning" and "5 GB of 100 GB are free" in found.text
        assert verdicts(trained(sample={"free": 0.5 * GB}))["disk"].severity.name == "ERROR"

    def test_a_disk_that_will_be_full(self):
        record = trained(seconds=100)
        for line in record.lines:
            if line[0] == "sample":
                line[3]["free"] = 90 * GB - 0.6 * GB * (line[1] - record.lines[0][1])
        assert "full in" in verdicts(record)["disk"].text

    @pytest.mark.parametrize(("files", "size", "told"), [(50_000, 2e9, True), (50_000, 5e11, False), (100, 1e6, False)])
    def test_small_files(self, files, size, told):
        channels = {"train": {"mode": "FastFile", "distribution": "", "files": files, "bytes": int(size)}}
        assert ("small_files" in verdicts(trained(channels=channels))) == told

    def test_hosts_that_served_an_outsider_are_told_nothing_of_even_shares(self):
        """A script outside of the distribution, such as one of tf.data's service, has its time after the others."""
        trains, serves = (trained(f"algo-{n}", 2, seconds=20) for n in (1, 2))
        for record in (trains, serves):
            for second in range(26, 66):
                record.sample(second)
            record.ends(66)
        serves.lines = [line for line in serves.lines if line[0] not in ("metric", "process", "ended")]
        serves.add("process", 5, "script", {"pid": 7, "role": "script", "task": "outside the distribution"})
        serves.add("ended", 65, "script", "killed by SIGTERM")
        assert "idle" not in verdicts(trains, serves)

    def test_who_ran_on_without_a_step_is_named_where_no_distribution_says_it(self):
        trains, serves = trained("algo-1", 2, seconds=20), trained("algo-2", 2, seconds=60)
        serves.lines = [line for line in serves.lines if line[0] != "metric"]
        for second in range(26, 66):
            trains.sample(second)
        found = verdicts(trains, serves)["idle"]
        assert "the others waited for script on algo-2, which reported no step" in found.advice
        assert "evenly" not in found.advice


class TestApart:
    """What the monitor found of hosts that did not train together."""

    ADVICE = "train.py:31 makes the model outside of the scope"

    def records(self, *told: bool | None, host: int = 0) -> list[HostRecord]:
        found = [trained("algo-1", 2, loss=math.nan), trained("algo-2", 2)]
        for at, together in enumerate(told, 30):
            words = {"words": "every host trains alone (nothing)", "advice": self.ADVICE}
            found[host].add("distributed", at, together, {**words, "since": found[0].lines[0][1] + 12.0})
        return found

    def test_it_is_the_first_verdict(self):
        rule, found = next(iter(verdicts(*self.records(False)).items()))
        assert (rule, str(found.severity), found.advice) == ("apart", "error", self.ADVICE)
        assert found.text.startswith(
            "the hosts trained apart since 12 s after the start, each a model of its own: every"
        )

    @pytest.mark.parametrize("told", [(), (None,), (True,), (False, True)])
    def test_it_is_none_where_they_trained_together_or_it_is_unclear(self, told):
        assert "apart" not in verdicts(*self.records(*told))

    def test_it_is_the_coordinators_to_say(self):
        assert "apart" not in verdicts(*self.records(False, host=1))


class TestWords:
    def test_of_many_hosts_the_worst_is_named_and_the_others_counted(self):
        records = [trained(f"algo-{n + 1}", 6, sample={"programs": (10 + n) * GB}) for n in range(6)]
        found = verdicts(*records, memory=0.6)["memory"]
        assert found.host == "algo-6" and "; the same holds for algo-1, algo-2, algo-3 and 2 more hosts" in found.text

    def test_errors_come_first(self):
        record = TestLoss.losses(1.0, math.nan)
        channels = {"train": {"files": 10**6, "bytes": 10**6}}
        record.add("host", 1, {"channels": channels})
        assert list(verdicts(record)) == ["loss", "small_files"]

    def test_what_is_off_is_silent(self):
        assert "memory" not in verdicts(trained(sample={"programs": 15.9 * GB}), memory=math.inf)


class TestThresholds:
    def test_each_rule_has_one_and_the_page_has_all(self):
        assert list(CHECKS) == list(RULES)
        rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
        assert [row[:2] for row in rows] == [(name, f"{rule.default:g}") for name, rule in RULES.items()]

    def test_what_is_given(self):
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
    def test_what_is_none(self, text, wanted):
        _, _, errors = read_settings({"ENTRYPOINT_RULES": text}, {})
        (error,) = errors
        assert isinstance(error, ConfigError) and wanted in str(error) and "ENTRYPOINT_RULES" in str(error)

    def test_a_record_says_its_own(self):
        record = trained(sample={"programs": 15 * GB}, rules="memory=off")
        job = gather({"algo-1": record.data})
        assert judge(job, job.rules) == []
