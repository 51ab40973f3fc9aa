"""Share the fixture with which tests import the modules of an example."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def load(request: pytest.FixtureRequest) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the test's EXAMPLE; remove it from `sys.modules` afterwards, as examples share names."""
    if request.node.get_closest_marker("tensorflow"):
        pytest.importorskip("tensorflow")
    folder: Path = request.module.EXAMPLE
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    yield importlib.import_module
    sys.path.remove(str(folder))
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == folder:
            del sys.modules[name]
