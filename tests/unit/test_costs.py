"""Test tests/costs.py: what tests cost, and the budget of a run of all of them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import costs
import pytest

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--override-ini", "addopts="]
# Its second test has a child spend its time, as the tests of the launcher do.
TESTS = """
import subprocess, sys, time, pytest

def spend(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

@pytest.mark.parametrize("seconds", [0.1, 0.3])
def test_spends(seconds):
    spend(seconds)

def test_has_a_child_spend():
    program = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", program], check=True)

def test_sleeps():
    time.sleep(1)
"""


def ring(cpu: float, **tests: list[float]) -> dict[str, Any]:
    return {"cpu_seconds": cpu, "seconds": 60, "slowness": 1.0, "costs": tests}


def record(budget: dict[str, float], tests: dict[str, list[float]] | None = None) -> dict[str, Any]:
    recorded = {"date": "2026-11-27", "commit": "abcdef1", "rings": budget, "tests": tests or {}}
    return {"budget": budget, "recorded": recorded}


@pytest.mark.parametrize("processes", [pytest.param(0, marks=pytest.mark.more), 2])
def test_what_tests_cost_is_measured(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(Path(costs.__file__).with_name("conftest.py").read_text())
    command = [*PYTEST, "-n", str(processes), "--rootdir", str(tmp_path), str(tmp_path)]
    path = {"PYTHONPATH": str(Path(costs.__file__).parent), "PATH": "/usr/bin:/bin"}
    subprocess.run(command, env={**path, "TEST_RING": "unit", "TEST_COUNTS": str(tmp_path / "counts")}, check=True)
    found = costs.read(tmp_path / "counts")["unit"]
    cpu = {name.rpartition("::")[2]: cost[0] * found["slowness"] for name, cost in found["costs"].items()}
    assert list(cpu) == ["test_spends", "test_has_a_child_spend", "test_sleeps"] or processes
    # pytest's own share of each is larger on a slower machine.
    assert 0.38 < cpu["test_spends"] < 1.1, "the cases of one function are counted together"
    assert cpu["test_has_a_child_spend"] >= 0.45
    assert cpu["test_sleeps"] < 0.9, "less than it sleeps"
    total = found["cpu_seconds"] * found["slowness"]
    assert sum(cpu.values()) - 0.2 < total < sum(cpu.values()) + 60, "with what pytest takes, and no test twice"


def test_a_run_within_a_tenth_of_the_budget_passes() -> None:
    table, complaints = costs.judge({"unit": ring(109.0), "local": ring(109.0)}, record({"unit": 100, "local": 100}))
    assert complaints == []
    assert table[1].split() == ["unit", "60", "109", "100", "100", "+9%", "1.00"]
    assert table[3].split() == ["sum", "120", "218", "200", "200", "+9%"]


def test_a_run_that_costs_more_fails_with_the_tests_that_are_new_or_slower() -> None:
    before = {"a.py::test_same": [50.0, 50.0], "a.py::test_slower": [5.0, 5.0], "c.py::test_cluster": [1.0, 40.0]}
    tests = {"a.py::test_same": [50.2, 70.0], "a.py::test_slower": [9.0, 9.0], "b.py::test_new": [60.0, 80.0]}
    rings = {"unit": ring(125.0, **tests), "cluster": ring(5.0, **{"c.py::test_cluster": [1.0, 70.0]})}
    _, complaints = costs.judge(rings, record({"unit": 100, "cluster": 5}, before))
    assert complaints[0] == "the tests cost 130 CPU seconds; the budget of tests/costs.json is 105"
    assert complaints[1:4] == [
        "  b.py::test_new: 60.0 s (before: new, or less than could be recorded)",
        "  c.py::test_cluster: 70.0 s (before: 40.0)",
        "  a.py::test_slower: 9.0 s (before: 5.0)",
    ]
    assert "raise the budget" in complaints[4]


def test_rings_that_were_left_out_take_their_budget_along() -> None:
    budget = record({"unit": 100, "cluster": 1000})
    assert costs.judge({"unit": ring(105.0)}, budget)[1] == []
    assert costs.judge({"unit": ring(115.0)}, budget)[1]


def test_a_slow_machine_is_no_reason_to_fail() -> None:
    """The same tests on a machine that takes twice as long for any work."""
    fast = {"costs": {"test_a": [10.0, 10.0]}, "work": [costs.WORK_SECONDS] * 3, "cpu": 12.0}
    slow = {"costs": {"test_a": [20.0, 20.0]}, "work": [2 * costs.WORK_SECONDS] * 3, "cpu": 24.0}
    assert costs.ring_of([fast])["cpu_seconds"] == costs.ring_of([slow])["cpu_seconds"] == 12.0
    assert costs.ring_of([fast])["costs"]["test_a"][0] == costs.ring_of([slow])["costs"]["test_a"][0] == 10.0


def test_containers_cost_what_they_took_between_two_notes(tmp_path: Path) -> None:
    lines = [
        {"ring": "containers", "cpu_seconds_so_far": 1000.0},
        {"ring": "cluster", "tests": 1, "seconds": 60, "cpu_seconds": 5.0, "slowness": 2.0, "costs": {}},
        {"ring": "containers", "cpu_seconds_so_far": 1600.0},
    ]
    (tmp_path / "counts").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rings = costs.read(tmp_path / "counts")
    assert {name: each["cpu_seconds"] for name, each in rings.items()} == {"cluster": 5.0, "containers": 300.0}


def test_a_command_that_is_no_test_is_measured_too(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass\nraise SystemExit(3)"]
    ours = [sys.executable, costs.__file__, "run", "chaos", str(tmp_path / "counts"), "--", *command]
    assert subprocess.run(ours).returncode == 3
    found = costs.read(tmp_path / "counts")["chaos"]
    assert found["cpu_seconds"] * found["slowness"] >= 0.5


def test_the_costs_that_are_kept_leave_the_budget_alone(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(record({"unit": 100})))
    costs.keep({"unit": ring(90.0, **{"a.py::test_a": [60.0, 1.0], "a.py::test_quick": [0.1, 0.1]})}, path)
    kept = json.loads(path.read_text())
    assert kept["budget"] == {"unit": 100}
    assert kept["recorded"]["rings"] == {"unit": 90.0}
    assert kept["recorded"]["tests"] == {"a.py::test_a": [60.0, 1.0]}


def test_each_ring_of_a_default_run_has_a_budget() -> None:
    kept = json.loads(costs.RECORD.read_text())
    rings = {"unit", "local", "table", "chaos", "cluster", "sdk", "benchmarks", "containers"}
    assert kept["budget"].keys() == rings >= kept["recorded"]["rings"].keys()
