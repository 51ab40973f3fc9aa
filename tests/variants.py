"""Select the cases of a test that a default run includes."""

from collections.abc import Mapping
from typing import Any

import pytest


def variants(cases: Mapping[str, Any], *first: str) -> list[Any]:
    """Return cases for `parametrize`: those named `first` always run, the others with `tests/run.sh --all`."""
    assert set(first) <= set(cases)
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), id=name, marks=marks)
        for name, case in cases.items()
        for marks in [() if name in first else pytest.mark.more]
    ]
