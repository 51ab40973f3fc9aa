"""Provide import paths for all rings, and check that no test leaves a process."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
for folder in (ROOT, ROOT / "tests"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import hiccups  # noqa: E402  (after the path is set)
from processes import processes_with  # noqa: E402
from waiting import eventually  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    with contextlib.suppress(ValueError):  # the ring may be run beside another conftest that has it
        parser.addoption(
            "--refresh", action="store_true", help="write tests/configs/*/plan.txt anew (then read the diff)"
        )


# Figures that a test measured are printed at the end, though it passed: `tell(text)`. With pytest-xdist they come from
# another process.
FIGURES = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    if hasattr(config, "workeroutput"):
        config.workeroutput["figures"] = config.stash[FIGURES]


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[FIGURES] += hiccups.SAID


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node) -> None:
    node.config.stash[FIGURES] += getattr(node, "workeroutput", {}).get("figures", [])


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if config.stash[FIGURES]:
        terminalreporter.section("figures")
    for text in config.stash[FIGURES]:
        terminalreporter.write_line(text)


@pytest.fixture(autouse=True)
def tensorflow(request: pytest.FixtureRequest) -> None:
    """Import TensorFlow before a test that needs it, as warnings of the import would fail the first such test."""
    if request.node.get_closest_marker("tensorflow"):
        pytest.importorskip("tensorflow")


@pytest.fixture(autouse=True)
def temporary_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give a test with TensorFlow its own temporary folder, in which killed processes leave files of AutoGraph.

    Its path is short, as sockets may lie in it.
    """
    if not request.node.get_closest_marker("tensorflow"):
        yield
        return
    request.getfixturevalue("tmp_path_factory").getbasetemp()  # pytest's own folder is not to be made in this one
    with tempfile.TemporaryDirectory(prefix="test-", ignore_cleanup_errors=True) as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    return request.config.stash[FIGURES].append


@pytest.fixture
def figure(tell: Callable[[str], None]) -> Callable[[str, float], None]:
    """Print a measured number, by default in seconds."""
    return lambda what, value: tell(f"{what}: {value:.2f} s")


@pytest.fixture
def no_leftovers(tmp_path: Path):
    """Fail the test if a process that it started, directly or not, still exists when it ends.

    Everything a test starts has its own temporary folder in its environment or command line.
    """
    mark = str(tmp_path)
    yield mark
    try:
        eventually(lambda: not processes_with(mark), within=30, what="no process left behind")
    except AssertionError:
        left = processes_with(mark)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pytest.fail(f"processes left behind: {left}")
