"""Test the reading of records that are whole, truncated, broken, forged, or of hosts with different clocks."""

import pytest
from records import GB, HostRecord, packed, trained

from entrypoint.base.series import Series
from entrypoint.observe.report.columns import Columns, rates
from entrypoint.observe.report.job_record import gather


def lines(*texts: str) -> bytes:
    return packed("".join(text + "\n" for text in texts).encode())


def test_whole_record_is_read():
    job = gather({"algo-1": trained(seconds=60).data})
    (host,) = job.hosts
    assert job.notes == [] and job.missing == []
    assert job.outcome == {"kind": "succeeded", "code": 0, "cause": None}
    assert host.cpus == 8 and host.about.memory_limit == 16 * GB
    assert host.columns.total(("cpu", "user")) == pytest.approx(4.0 * 65)
    assert host.columns.total(("process", "script", "cpu")) == pytest.approx(4.0 * 60)
    assert list(host.processes["script"].steps.values)[-1] == 600


def test_truncated_record_is_read_to_its_end():
    data = trained(seconds=600).data
    job = gather({"algo-1": data[: len(data) // 2]})
    assert 100 < job.seconds < 600
    assert any("no record says how the job ended" in note for note in job.notes)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it is empty, or not a record"),
        (b"no gzip at all", "a part of it is broken"),
        (lines("nonsense", '["host"]', "[]", "{}", "7", '["host", 1, 2]'), "6 lines could not be understood"),
    ],
)
def test_report_notes_a_broken_record(data, words):
    job = gather({"algo-1": data, "algo-2": trained("algo-2", 2).data})
    assert any(words in note and "algo-1" in note for note in job.notes)
    assert job.outcome["kind"] == "succeeded"


def test_host_without_a_record_is_listed_as_missing():
    job = gather({"algo-1": trained("algo-1", 3).data, "algo-3": trained("algo-3", 3).data})
    assert job.missing == ["algo-2"] and "no record of algo-2" in job.notes


def test_clock_offset_of_a_host_is_corrected():
    late = trained("algo-2", 2)
    for line in late.lines:
        line[1] -= 1_000_000
    job = gather({"algo-1": trained("algo-1", 2).data, "algo-2": late.data})
    assert job.seconds == pytest.approx(66)
    assert any("the clock of algo-2 is -1000000 s off" in note for note in job.notes)


def test_number_of_processes_and_metrics_is_limited():
    record = trained(seconds=10)
    for number in range(5000):
        record.add("process", 6, f"p{number}", {"pid": 1, "role": "rank", "task": ""})
        record.add("metric", 7, "script", {f"m{number}": 1.0})
    job = gather({"algo-1": record.data})
    assert len(job.hosts[0].processes) <= 1024 and len(job.hosts[0].processes["script"].metrics) <= 24


def test_processes_are_in_order_of_their_numbers_and_servers_last():
    record = HostRecord()
    for at, (name, role) in enumerate(
        [("ps/0", "ps"), ("rank 10", "rank"), ("rank 9", "rank"), ("prepare", "prepare")]
    ):
        record.runs(name, at, 20, role)
    assert list(gather({"algo-1": record.data}).hosts[0].processes) == ["prepare", "rank 9", "rank 10", "ps/0"]


def test_metric_with_a_long_name_keeps_all_its_values():
    record = trained(seconds=9)
    for second in range(6, 12):
        record.add("metric", second, "script", {f"validation/{'top_5_' * 12}accuracy": 0.1 * second})
    (host,) = gather({"algo-1": record.data}).hosts
    (name,) = [name for name in host.processes["script"].metrics if name.startswith("validation/")]
    assert len(host.processes["script"].metrics[name]) == 6


def test_endless_record_is_read_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("entrypoint.record.read.MOST_BYTES", 1 << 22)
    first, line = b'["host",1800000000,{}]\n', b'["said",1800000001,"' + b" " * 1000 + b'"]\n'
    (host,) = gather({"algo-1": packed(first + line * 10_000)}).hosts
    assert "it is longer than the limit" in host.problems and len(host.logged) == 2000


def test_reading_stops_after_many_wrong_lines():
    (host,) = gather({"algo-1": packed(b"\n" * (64 << 20))}).hosts
    assert "the rest was not read" in host.problems


def test_part_of_a_long_record_is_read_quickly(monkeypatch):
    monkeypatch.setattr("entrypoint.observe.report.job_record.QUICK_LINES", 1000)
    job = gather({"algo-1": trained(seconds=600).data}, within=1.0)
    (host,) = job.hosts
    assert host.every > 1 and any("one of every" in note for note in job.notes)
    used = [rate for rate in host.columns.per_second(("cpu", "user")) if rate is not None]
    assert used and all(rate == pytest.approx(4.0) for rate in used), "what is read in part is as high"


class TestColumns:
    def test_amounts_are_spread_over_their_interval(self):
        columns = Columns(1.0, 8)
        columns.add(0.5, 2.5, {("cpu",): 4.0}, {("memory",): 7.0})
        assert list(columns.amounts["cpu",])[:4] == [1.0, 2.0, 1.0, 0.0]
        assert columns.per_second(("cpu",))[:4] == [2.0, 2.0, 2.0, None]
        assert columns.levels(("memory",))[:4] == [7.0, 7.0, 7.0, None]

    def test_column_count_does_not_grow_with_job_length(self):
        columns = Columns(1.0, 16)
        for at in range(1, 1000):
            columns.add(at - 1, at, {("cpu",): 3.0}, {("memory",): float(at)})
        assert len(columns.seconds) == 16 and columns.width == 64
        assert columns.total(("cpu",)) == pytest.approx(3.0 * 999)
        assert columns.between(columns.per_second(("cpu",)), 0, 999) == pytest.approx([3.0] * 16)
        assert columns.levels(("memory",))[-1] == 999

    def test_resource_use_before_the_job_start_is_left_out(self):
        columns = Columns(1.0, 8)
        columns.add(-3.0, -1.0, {("cpu",): 1.0}, {})
        assert columns.total(("cpu",)) == 0


class TestSeries:
    def test_series_length_is_bounded(self):
        series = Series()
        for at in range(100_000):
            series.add(float(at), float(at))
        assert len(series) <= series.most and max(series.values) > 99_000

    def test_rates_skip_a_restart(self):
        series = Series()
        for at, step in enumerate([0, 10, 20, 0, 10, 20]):
            series.add(float(at), float(step))
        assert rates(series, 1.0, 6) == pytest.approx([10, 10, None, 10, 10, None])

    def test_series_keeps_the_first_nan_value(self):
        series = Series()
        for at, value in enumerate([1.0, float("nan"), float("inf")]):
            series.add(float(at), value)
        assert series.broken[0] == 1.0 and list(series.values) == [1.0]


def test_hosts_are_in_rank_order():
    job = gather({name: HostRecord(name, 12).data for name in ("algo-10", "algo-2", "algo-1")})
    assert [host.name for host in job.hosts] == ["algo-1", "algo-2", "algo-10"]
