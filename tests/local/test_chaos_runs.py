"""Test that benchmarks/chaos, stopped while a job runs, leaves nothing."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import ROOT
from processes import processes_with
from waiting import eventually

from benchmarks.chaos.case import Case, Fault
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
    ("fault", "kind"),
    [
        pytest.param(STALL, "", id="working"),
        pytest.param(FREEZE, "freezer", id="frozen", marks=needs_groups),
        pytest.param(FEW, "pids", id="short of pids", marks=needs_groups),
    ],
)
def test_terminated_chaos_run_leaves_nothing(tmp_path, fault, kind):
    case = Case(mode="single", hosts=2, seconds=300.0, netns=bool(kind), faults=(fault,))
    (tmp_path / "case.json").write_text(case.to_json())
    before = set(Path("/tmp").glob("entrypoint-*"))
    program = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.chaos", "--repeat", str(tmp_path / "case.json"), "--keep", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        folder = eventually(lambda: job_folder(program.pid), LONG)
        if kind:
            eventually(lambda: groups(kind, program.pid), LONG, "a control group")
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
    """Return whether a process of the job uses this folder of keys and sockets."""
    for pid in processes_with(str(folder)):
        with contextlib.suppress(OSError):
            if f"ENTRYPOINT_RUN_DIR={run_folder}" in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                return True
    return False


def groups(kind: str, pid: int) -> list[Path]:
    return list(Path("/sys/fs/cgroup", kind).glob(f"chaos-{pid}-*"))
