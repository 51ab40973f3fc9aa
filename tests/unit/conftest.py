"""Order the unit tests so that their run is quick."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine is decides no test.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that need TensorFlow first: one of two processes gets them all, and imports it once."""
    items.sort(key=lambda item: item.get_closest_marker("tensorflow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Skip counting branches in tests of thousands of cases: it takes three times as long and shows nothing more."""
    coverage = sys.modules.get("coverage")  # only if tests/run.sh wants to know
    counter = coverage and item.get_closest_marker("unmeasured") and coverage.Coverage.current()
    if counter:
        counter.stop()
    try:
        return (yield)
    finally:
        if counter:
            counter.start()
