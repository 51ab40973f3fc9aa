"""Test the phases of hosts and processes, and the cost of each phase."""

import pytest
from records import HostRecord, trained

from entrypoint.observe.report.content import content
from entrypoint.observe.report.job_record import gather
from entrypoint.observe.report.phases import of_process


def spans(record_or_job, host: str = "algo-1") -> list[tuple[str, float, float]]:
    job = gather({record_or_job.name: record_or_job.data}) if isinstance(record_or_job, HostRecord) else record_or_job
    return [(span.phase, round(span.start, 1), round(span.end, 1)) for span in job.spans[host]]


def test_host_phases_are_in_order():
    assert spans(trained(seconds=60, begins=5.0)) == [
        ("start", 0.0, 0.2), ("prepare", 0.2, 1.5), ("rendezvous", 1.5, 5.0), ("import", 5.0, 6.0),
        ("first step", 6.0, 7.0), ("train", 7.0, 65.0), ("end", 65.0, 66.0),
    ]  # fmt: skip


def test_marks_divide_the_training_phase():
    record = trained(seconds=60)
    record.add("mark", 30, "script", {"what": "checkpoint", "seconds": 4})
    record.add("mark", 50, "script", {"what": "evaluation", "seconds": 10})
    record.add("mark", 45, "script", {"what": "evaluation", "seconds": 2})
    assert [span for span in spans(record) if span[1] > 6.5] == [
        ("train", 7.0, 26.0), ("checkpoint", 26.0, 30.0), ("train", 30.0, 40.0), ("evaluation", 40.0, 50.0),
        ("train", 50.0, 65.0), ("end", 65.0, 66.0),
    ]  # fmt: skip


def test_host_with_ended_program_is_idle_while_others_run():
    job = gather({"algo-1": trained("algo-1", 2, seconds=60).data, "algo-2": trained("algo-2", 2, seconds=20).data})
    job_of_two = spans(job, "algo-2")
    assert ("idle", 25.0, 26.0) in job_of_two, "its own record ends there"


def test_rendezvous_ends_when_the_worker_beside_a_server_runs():
    """In such a job the recorded phase of the host stays `starting`."""
    record = HostRecord("algo-2", 2, mode="ps")
    record.add("phase", 0.1, "starting")
    record.runs("prepare", 0.2, 1.0, "prepare")
    record.runs("ps/1", 2.0, 60.0, "ps")
    record.runs("worker/0", 8.0, 60.0, "worker")
    for second in range(1, 61):
        record.sample(second, processes={"worker/0": {"output": 5}} if second > 8 else {})
    record.ends(61)
    assert spans(record, "algo-2") == [
        ("start", 0.0, 0.2), ("prepare", 0.2, 1.0), ("rendezvous", 1.0, 8.0), ("import", 8.0, 9.0),
        ("train", 9.0, 60.0), ("end", 60.0, 61.0),
    ]  # fmt: skip


def test_script_has_not_spoken_while_tensorflow_logs_its_start():
    record = HostRecord("algo-1", 1)
    record.runs("script", 2.0, 60.0, "script")
    for second in range(1, 61):
        startup = {"startup": 5} if second < 9 else {}
        record.sample(second, processes={"script": {"output": 5, **startup}} if second > 4 else {})
    record.ends(61)
    assert ("import", 2.0, 9.0) in spans(record)


def test_parameter_server_host_is_in_phase_serving():
    record = HostRecord(mode="ps")
    record.runs("ps/0", 2.0, 60.0, "ps")
    record.ends(61)
    assert spans(record) == [("start", 0.0, 2.0), ("serve", 2.0, 60.0), ("end", 60.0, 61.0)]


@pytest.mark.parametrize(
    ("cpus", "doing", "is_idle"),
    [
        (0.001, None, True),
        (3.5, None, False),
        (1.0, "waits in a collective", True),
        (0.01, "works", False),
        (0.01, "", True),
        (1.0, "", False),
    ],
)
def test_stack_overrides_cpu_time_in_judging_silent_process(cpus, doing, is_idle):
    record = trained(seconds=60)
    record.add("still", 50, {"script": [30.0, cpus]})
    if doing is not None:
        record.add("stacks", 52, "script", {"by": "py-spy", "place": "train.py:3 f", "doing": doing})
    assert [span for span in spans(record) if span[0] == "still"] == [("still", 20.0, 50.0)] * is_idle


def test_time_between_attempts_is_phase_restart():
    record = HostRecord()
    record.runs("script", 5, 20, "script", "exit code 75")
    record.add("phase", 20, "restarting")
    record.runs("script", 30, 50, "script")
    record.add("phase", 30, "running")
    record.ends(51)
    assert ("restart", 20.0, 30.0) in spans(record)


def test_process_without_a_recorded_end_ends_with_the_record():
    record = HostRecord()
    record.runs("script", 5, None, "script")
    record.sample(40)
    (host,) = gather({"algo-1": record.data}).hosts
    assert [(span.phase, span.end) for span in of_process(host.processes["script"], host)] == [("train", 40.0)]


def test_totals_of_steps_and_epochs_are_no_metrics():
    record = trained(seconds=20)
    record.add("metric", 9, "script", {"steps": 900.0, "max_steps": 900.0, "epochs": 3.0, "accuracy": 0.5})
    assert [metric["name"] for metric in content(gather({"algo-1": record.data}), [])["metrics"]] == [
        "loss",
        "accuracy",
    ]


def test_cost_covers_all_host_seconds():
    job = gather({"algo-1": trained("algo-1", 2, seconds=60).data, "algo-2": trained("algo-2", 2, seconds=20).data})
    bill = content(job, [])["bill"]
    assert bill["total"] == pytest.approx(66 + 26)
    assert dict(bill["phases"])["train"] == pytest.approx(58 + 18)
    assert bill["idle"] == pytest.approx(3.5 + 3.5 + 1.0)
    assert (bill["price"], content(job, [], price=3.6)["bill"]["price"]) == (None, 3.6)
