"""Compare docs/libraries.md with the zoo's cases and what ran of them (tests/zoo)."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE, ZOO = ROOT / "docs/libraries.md", ROOT / "tests/zoo"
sys.path.insert(0, str(ZOO))
from case import results  # noqa: E402 - after the path is set
from cases_others import CASES as OTHERS  # noqa: E402
from cases_tensorflow import CASES as TENSORFLOW  # noqa: E402
from page import page  # noqa: E402

CASES = [*TENSORFLOW, *OTHERS]
LONGEST = 40  # lines of a script


def test_the_page_of_the_docs_shows_what_ran(request: pytest.FixtureRequest) -> None:
    """After a run of the zoo: --refresh, then read the diff."""
    if request.config.getoption("--refresh"):
        PAGE.write_text(page(CASES, results()))
    assert PAGE.read_text() == page(CASES, results())


def test_each_case_has_run() -> None:
    keys = [case.key(line) for case in CASES for line in case.lines]
    assert sorted(results()) == sorted(keys)


def test_each_case_has_a_short_script() -> None:
    scripts = {ZOO / "scripts" / case.script for case in CASES}
    assert {*(ZOO / "scripts").glob("*.py")} - {ZOO / "scripts/shown.py"} == scripts
    assert not [path.name for path in scripts if len(path.read_text().splitlines()) > LONGEST]
