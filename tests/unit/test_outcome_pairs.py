"""Test which rows of the outcome table always run."""

from outcomes.table import CASES, HEAVY, PAIRS, pairs_of


def test_rows_that_always_run_cover_each_event_exit_code_and_pair() -> None:
    """The rows cover each event and exit code, and each way with each place, moment and kind of exit code."""
    light = [case for case in CASES if case.event not in HEAVY]
    few = [case for case in light if case.name in PAIRS]
    assert {pair for case in few for pair in pairs_of(case)} == {pair for case in light for pair in pairs_of(case)}
    assert {case.event for case in few} == {case.event for case in light}
    assert {case.code for case in few} == {case.code for case in CASES}
    assert {(case.way, case.where) for case in few} == {(case.way, case.where) for case in CASES}
    assert len(few) < 0.4 * len(CASES)
