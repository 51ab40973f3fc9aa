"""Test that jobs of which the doctor finds an error fail, and run after its remedy."""

import sys
from typing import Any

import pytest
from hosts import ROOT

sys.path.insert(0, str(ROOT / "tests/unit/check/doctor"))
from looking import fixed, mended, script_of

RUNS = [
    pytest.param(
        example,
        id=f"{rule} {example.get('variant', '')}",
        marks=[pytest.mark.tensorflow] if "tensorflow" in script_of(example) else [],
    )
    for rule, example in fixed()
    if example.get("runs")
]


@pytest.mark.parametrize("example", RUNS)
def test_job_fails_before_the_remedy_and_runs_after_it(hosts, example: dict[str, Any]) -> None:
    given = [(script_of(case), case.get("hyperparameters", {})) for case in (example, mended(example))]
    before, after = (hosts(1, code=script, hyperparameters=asked) for script, asked in given)
    after.must_end(0)
    assert before.end() != [0]
