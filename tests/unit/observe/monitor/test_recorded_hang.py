"""Test that the watch finds a hang recorded on an H100 (2026-11-26, commit c5e62bb) and acts on it.

Two ranks of Horovod with ENTRYPOINT_HANG_AFTER=20. Rank 1 sleeps in Python and never enters a broadcast, in which rank
0 waits. One CPU is busy all the time: the thread of Horovod that reaches Open MPI first spins in it, at first rank 1's.
The record has no data on threads, and no stacks can be taken when it is replayed.
"""

from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import read

from entrypoint.observe.monitor.job_watch import JobWatch
from entrypoint.observe.monitor.silence import LastSigns
from entrypoint.record import lines
from entrypoint.record.read import lines_of

AFTER, REVIEW = 20.0, 5.0
RECORD = Path(__file__).parents[1] / "report" / "records" / "hang-algo-1.jsonl.gz"


def play(tmp_path, monkeypatch, **environment: str) -> list[tuple[float, dict]]:
    """Replay the record to the coordinator's watch.

    Return the messages to the launcher, each with the seconds since the last progress.
    """
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, time=lambda: clock.now)  # the record's
    monkeypatch.setattr("entrypoint.observe.monitor.job_watch.time", clock)
    environment = {"ENTRYPOINT_HANG_AFTER": f"{AFTER:g}", **environment}
    job = read(tmp_path, 1, {"sagemaker_mpi_enabled": "true"}, environment, gpus=1)
    sent: list[tuple[float, dict]] = []
    last = due = taken = 0.0
    watch = JobWatch(job, {"algo-1": set()}, lambda message: sent.append((clock.now - last, message)), tracked=False)
    progress, running, fresh = LastSigns(AFTER), dict[str, int](), list[lines.Line]()
    for line in lines_of(RECORD.read_bytes()):
        clock.now = line.at
        if not isinstance(line, lines.Still):  # today's is made below
            fresh.append(line)
        if isinstance(line, lines.ProcessLine) and line.role == "rank":
            running[line.process] = line.pid
        elif isinstance(line, lines.EndedLine):
            running.pop(line.process, None)
        elif isinstance(line, lines.SampleLine):
            progress.look(line.at, running, line)
            if any(line.processes.get(name, {}).get("output") for name in running):
                last = line.at
            if line.at >= due:
                due = line.at + REVIEW
                fresh.append(lines.Still(figures=progress.still(line.at, AFTER / 2)))
                if watch.wanted > taken:
                    taken = watch.wanted
                    fresh += [lines.Stacks(process=name) for name in running]
                watch.look(fresh)
                fresh.clear()
    return sent


def test_recorded_hang_is_reported_once_and_in_time(tmp_path, monkeypatch):
    ((seconds, message),) = play(tmp_path, monkeypatch)
    assert list(message) == ["say"] and AFTER <= seconds <= AFTER + 30
    assert message["say"].startswith("warning: no progress in any process for 20 s: rank 0 on algo-1, rank 1 on algo-1")


@pytest.mark.parametrize(("action", "again"), [("fail", False), ("restart", True)])
def test_hang_action_ends_the_job_and_names_the_missing_rank(tmp_path, monkeypatch, action, again):
    (_, warning), (seconds, message) = play(tmp_path, monkeypatch, ENTRYPOINT_HANG_ACTION=action)
    cause = message["blame"]
    assert f"warning: {cause.pop('error')}; all stacks are in" in warning["say"] and seconds <= AFTER + 30
    assert cause == {"host": "algo-1", "process": "rank 1", "what": "no progress", "code": 72, "restartable": again}
