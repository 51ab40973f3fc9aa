"""Test the outcome table, which tests/local/test_outcome_table.py runs; test_pages.py compares its page with it."""

from outcomes.case import Way
from outcomes.table import CASES, PARTS


def test_each_case_is_in_exactly_one_part_of_page() -> None:
    assert sorted(case.name for cases in PARTS.values() for case in cases) == sorted(case.name for case in CASES)


def test_every_case_has_its_own_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_outcome_table_has_150_cases_and_every_way() -> None:
    assert len(CASES) >= 150
    assert {case.way for case in CASES} == set(Way)


def test_failing_case_has_exit_code_and_text() -> None:
    assert [case.name for case in CASES if case.code == 0 and case.text] == []
    assert [case.name for case in CASES if case.code not in (0, 143) and not case.text] == []  # 143: stopped
