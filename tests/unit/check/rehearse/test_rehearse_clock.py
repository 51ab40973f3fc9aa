"""Test that setting the wall clock during a rehearsal changes none of its durations."""

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from entrypoint.check.rehearse import runs
from entrypoint.check.rehearse.runs import TrainingTime
from entrypoint.record import lines
from entrypoint.record.write import Record


@pytest.fixture(params=[60.0, -60.0])
def set_if(request, monkeypatch):
    """Return a function that sets the wall clock once a file exists."""
    real, monotonic = time.time, time.monotonic

    def set_clock(path: Path) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + (request.param if path.exists() else 0.0))

    monkeypatch.setattr(lines, "ZERO", real() - monotonic(), raising=False)
    return set_clock


def test_wall_clock_change_does_not_alter_training_seconds(tmp_path, set_if):
    set_if(tmp_path / "set")
    began = time.monotonic()
    folder = tmp_path / "algo-1/ml/output/data/record"
    record = Record(folder / "algo-1.jsonl.gz", pytest.fail)
    record.add(lines.ProcessLine(process="script", role="script"))
    record.close()
    progress = TrainingTime(tmp_path, by_steps=False)
    (tmp_path / "set").touch()
    assert -0.01 <= progress.seconds <= time.monotonic() - began + 0.01


def test_wall_clock_change_does_not_alter_run_times(tmp_path, set_if, monkeypatch):
    kept = tmp_path / "kept"
    kept.mkdir()
    set_if(kept / "checkpoint")

    def run_local(job: Any, engine: Any) -> int:
        """Stand in for a job that is stopped and then saves."""
        assert engine.inject(None, "algo-1", os.getpid())
        (kept / "checkpoint").write_text("weights")
        return 0

    monkeypatch.setattr(runs, "run_local", run_local)
    engine: Any = SimpleNamespace(inject=lambda fault, host, pid: True)
    job: Any = SimpleNamespace(timeout=60.0)
    began = time.monotonic()
    ended = runs.run(job, engine, tmp_path / "plain.log", lambda: True, [kept], own_files=False)
    assert ended.acted is not None
    ((at, _),) = ended.kept
    assert ended.code == 0
    assert ended.began <= ended.acted <= at <= ended.ended <= ended.began + time.monotonic() - began
