"""What all rings share: import paths, and the check that no test leaves a process behind."""

import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "tests"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from processes import processes_with  # noqa: E402  (after the path is set)
from waiting import eventually  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # the ring may be run beside another conftest that has it
        parser.addoption(
            "--refresh", action="store_true", help="write tests/configs/*/plan.txt anew (then read the diff)"
        )


@pytest.fixture
def no_leftovers(tmp_path: Path):
    """Fails the test if a process that it started, directly or not, is still there when it ends.

    Everything a test starts has its own temporary folder in its environment or command line.
    """
    mark = str(tmp_path)
    yield mark
    try:
        eventually(lambda: not processes_with(mark), within=5, what="no process left behind")
    except AssertionError:
        left = processes_with(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes left behind: {left}")
