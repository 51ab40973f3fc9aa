"""What makes the unit ring quick (the order of its tests, which are not measured)."""

import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# How fast a machine is decides no test.
settings.register_profile("here", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs TensorFlow comes first: one of two processes has it all then, and the import only once."""
    items.sort(key=lambda item: item.get_closest_marker("tensorflow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Counting branches makes thousands of cases take three times as long, and shows nothing that few do not."""
    coverage = sys.modules.get("coverage")  # only if tests/run.sh wants to know
    counter = coverage and item.get_closest_marker("unmeasured") and coverage.Coverage.current()
    if counter:
        counter.stop()
    try:
        return (yield)
    finally:
        if counter:
            counter.start()
