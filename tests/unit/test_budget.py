"""Test tests/budget.py: time limits of a run, lines of code in each part, and image lines that have passed."""

import json
import subprocess
from pathlib import Path

import pytest
from budget import PARTS, RECORD, WORK_SECONDS, judge, lines, slowness, why_again, work


@pytest.mark.parametrize(
    ("spent", "slow", "within"), [(109.0, 1.0, True), (111.0, 1.0, False), (218.0, 2.0, True), (230.0, 2.0, False)]
)
def test_run_may_exceed_its_scaled_budget_by_a_tenth(spent, slow, within) -> None:
    text, found = judge(spent, 100.0, slow)
    assert found is within
    assert ("budget.json" in text) is not within


def test_slowness_is_the_median_time_of_a_fixed_piece_of_work() -> None:
    assert slowness([WORK_SECONDS, 3 * WORK_SECONDS, 9 * WORK_SECONDS]) == pytest.approx(3.0)
    assert work() > 0


def test_lines_of_python_are_counted_by_part(tmp_path: Path) -> None:
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_one.py").write_text("a = 1\n\nb = 2\n")
    (tmp_path / "tests/README.md").write_text("text\n")
    assert lines(("tests", "examples"), tmp_path) == {"tests": 3, "examples": 0}
    assert json.loads(RECORD.read_text())["lines"].keys() == set(PARTS)


def test_image_line_is_tested_again_if_its_pins_changed(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=n", "-c", "user.email=n@localhost")
        return subprocess.check_output(["git", "-C", str(tmp_path), *identity, *words], text=True).strip()

    for name in ("Dockerfile", "container/lines/2.21/requirements.txt", "container/gpu/check.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "pins")
    passed = {"date": "2026-11-29", "commit": git("rev-parse", "HEAD")}
    (record := tmp_path / "full_run.json").write_text(json.dumps({"line-2.21": passed, "line-2.21-gpu": passed}))
    assert why_again("2.21", record, tmp_path) == why_again("2.21-gpu", record, tmp_path) == ""
    assert why_again("2.30", record, tmp_path) == "it has not passed yet"
    (tmp_path / "container/gpu/check.py").write_text("2\n")
    assert why_again("2.21", record, tmp_path) == ""
    assert "changed since 2026-11-29" in why_again("2.21-gpu", record, tmp_path)
    (tmp_path / "container/lines/2.21/requirements.txt").write_text("2\n")
    assert "changed since 2026-11-29" in why_again("2.21", record, tmp_path)
