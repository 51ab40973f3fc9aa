"""Test benchmarks/chaos with real jobs: stopped, it leaves nothing; a fault of the launcher is found and shrunk."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import ROOT
from processes import processes_with
from waiting import eventually

from benchmarks.chaos import __main__ as chaos
from benchmarks.chaos import run
from benchmarks.chaos.case import Case, Fault, Script
from benchmarks.chaos.outside import FREEZER, PIDS

LONG = 240.0  # seconds until a test gives up
STALL = Fault(kind="stall", host="algo-2", when="step 1 .", lasts=0.5)
FREEZE = Fault(kind="freeze", host="algo-1", process="script", at=0.1, lasts=8.0)
FEW = Fault(kind="pids", host="algo-1", at=0.1)
needs_groups = pytest.mark.skipif(
    os.geteuid() != 0 or not (os.access(FREEZER, os.W_OK) and os.access(PIDS, os.W_OK)),
    reason="takes root and control groups of version 1",
)


def working(folder: Path) -> bool:
    return any(" lines " in path.read_text() for path in folder.glob("meeting/*.journal"))


@pytest.mark.parametrize(
    "faults",
    [pytest.param((STALL,), id="working"), pytest.param((FREEZE, FEW), id="frozen, short of pids", marks=needs_groups)],
)
def test_a_run_that_is_told_to_end_leaves_nothing(tmp_path, faults):
    case = Case(mode="single", hosts=2, seconds=300.0, netns=FREEZE in faults, faults=faults)
    (tmp_path / "case.json").write_text(case.to_json())
    before = set(Path("/tmp").glob("entrypoint-*"))
    program = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.chaos", "--repeat", str(tmp_path / "case.json"), "--keep", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        folder = eventually(lambda: job_folder(program.pid), LONG)
        if FREEZE in faults:
            eventually(lambda: groups("freezer", program.pid) and groups("pids", program.pid), LONG, "control groups")
        else:
            eventually(lambda: working(folder), LONG, "scripts that work")
        shared = {path for path in Path("/tmp").glob("entrypoint-*") if path not in before and is_of(path, folder)}
        program.send_signal(signal.SIGINT)
        assert program.wait(LONG) != 0
    finally:
        program.kill()
    assert not processes_with(str(folder))
    assert not folder.exists()
    assert not [path for path in shared if path.exists()]
    assert not [*groups("freezer", program.pid), *groups("pids", program.pid)]


def job_folder(pid: int) -> Path | None:
    """Return the folder of the job that a program runs, from its child's command line."""
    for child in Path(f"/proc/{pid}/task").glob("*/children"):
        for own in child.read_text().split():
            words = Path(f"/proc/{own}/cmdline").read_text().split("\0")
            reports = [Path(word).parent for word in words if word.endswith("/left.json")]
            if reports:
                return reports[0]
    return None


def is_of(run_folder: Path, folder: Path) -> bool:
    """Return whether a folder of keys and sockets belongs to processes of the job."""
    return any(f"ENTRYPOINT_RUN_DIR={run_folder}" in environ_of(pid) for pid in processes_with(str(folder)))


def environ_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace")
    except OSError:
        return ""


def groups(kind: str, pid: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup", kind).glob(f"chaos-{pid}-*"))


# In a copy of the launcher: it breaks on a script that was killed, however fast or slow the machine is.
BROKEN = """
_headline = Cause.headline.fget
Cause.headline = property(lambda self: {"exit code": _headline(self)}[self.what[:9]])
"""


@pytest.fixture
def handlers():
    """Restore the signal handlers of this process."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def test_a_fault_of_the_launcher_is_found_and_shrunk(tmp_path, monkeypatch, capsys, handlers):
    copy = tmp_path / "planted"
    shutil.copytree(ROOT / "entrypoint", copy / "entrypoint", ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "entrypoint" / "launcher" / "outcome" / "outcome.py").open("a") as file:
        file.write(BROKEN)
    late = Fault(kind="late", host="algo-2", lasts=0.2)
    scripts = {"algo-1 script": Script(seconds=0.3, do="killed", flood=3), "algo-2 script": Script(seconds=0.3)}
    big = Case(name="7/0", mode="single", hosts=2, netns=False, scripts=scripts, seconds=0.3, faults=(late,))
    monkeypatch.setattr(run, "ROOT", copy)
    monkeypatch.setattr(chaos, "draw", lambda *_, **__: big)

    def main(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["chaos", "--keep", str(tmp_path), *words])
        return chaos.main(), capsys.readouterr().out

    status, said = main("--seed", "7", "--jobs", "1", "--at-once", "1", "--shrink-seconds", "300")
    assert status == 1
    assert "seed 7," in said and "VIOLATION own_fault: algo-1" in said
    path = tmp_path / "7-0-shrunk.json"
    assert f"--repeat {path}" in said
    small = Case.from_json(path.read_text())
    assert small.to_json() in said
    assert (small.hosts, small.faults) == (1, ())
    assert small.scripts == {"algo-1 script": Script(seconds=0.3, do="killed")}
    status, said = main("--repeat", str(path))
    assert (status, "VIOLATION own_fault" in said) == (1, True)
    assert "script 0.0: kills 9" in said  # its history
    monkeypatch.setattr(run, "ROOT", ROOT)
    assert main("--repeat", str(path))[0] == 0
