"""Test when the weights of all processes are reported as equal or as different."""

import math

import pytest

from entrypoint.observe.monitor.trained_model import WeightSums

ONE, OTHER = ("algo-1", "rank 0"), ("algo-2", "rank 1")
EQUAL = "equal weights on all 2 processes after step "
DIFFERS = [(step, 12.5, 12.9) for step in (500, 1000, 1500)]


def told(sums: WeightSums, *rows: tuple[int, float | None, float | None]) -> tuple[bool, str] | None:
    """Pass on rows of (step, norms of both processes; None if not reported); return the verdict."""
    for step, *norms in rows:
        for who, norm in zip((ONE, OTHER), norms, strict=True):
            if norm is not None:
                sums.note(who, step, norm, norm / 2)
    return sums.look()


@pytest.mark.parametrize(
    "rows, equal",
    [
        ([(500, 12.5, 12.5)], True),
        ([(5, 12.5, 12.500001)], True),  # rounding
        ([(5, math.nan, math.nan)], True),
        ([(step, math.nan, 1.0) for step in (5, 6, 7)], False),
        (DIFFERS, False),
        (DIFFERS[:2], None),  # weights that are averaged now and then differ in between
        ([*DIFFERS[:2], (1500, 12.5, 12.5)], True),
        ([(500, 12.5, None), (400, None, 9.0)], None),  # they are compared after the same step
        ([(400, 9.0, None), (500, 12.5, None), (400, None, 9.0)], True),
        ([(500, 12.5, None)], None),  # one alone
    ],
)
def test_weights_are_compared_at_the_same_step(rows, equal):
    found = told(WeightSums(), *rows)
    assert (found and found[0]) is equal


def test_equal_weights_are_reported_once_and_finally():
    sums = WeightSums()
    assert told(sums, (500, 12.5, 12.5)) == (True, f"{EQUAL}500")
    assert told(sums) is None
    assert told(sums, (2000, 12.5, 12.9), (2500, 12.5, 12.9), (3000, 12.5, 12.9)) is None


def test_different_weights_are_reported_once_and_withdrawn_if_equal_later():
    sums = WeightSums()
    assert told(sums, *DIFFERS) == (
        False,
        "distributed: NO: weights differ 3 times in a row, now after step 1500: their norm is rank 0 on algo-1 12.5, "
        "rank 1 on algo-2 12.9",
    )
    assert told(sums, (2000, 12.5, 12.9), (2500, 12.5, 12.9), (3000, 12.5, 12.9)) is None
    after_all = EQUAL.replace("weights", "weights after all")
    assert told(sums, (3500, 12.5, 12.5)) == (True, f"{after_all}3500")


def test_restarted_process_is_not_compared_with_earlier_weights():
    sums = WeightSums()
    for step, one, other in DIFFERS:
        sums.note(ONE, step, one, one / 2)
        sums.note(OTHER, step, other, other / 2)
    sums.forget(OTHER)
    assert sums.look() is None
