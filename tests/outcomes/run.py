"""Run one case with `entrypoint local`, and return its Result: output, what was left behind, and times."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from control_group import control_group
from silent_disk import SilentDisk

from outcomes.case import Case, Since, Way
from outcomes.terminal import Terminal

TESTS = Path(__file__).resolve().parents[1]
PROGRAM = TESTS / "programs" / "acts" / "acts.py"
ALONE = Path(__file__).with_name("alone.py")
FEW = Path(__file__).with_name("few")
LONG = 240.0  # seconds; says when to give up on a busy machine, not how fast anything is


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a case went."""

    case: Case
    folder: Path
    terminal: Terminal
    ended: bool  # by itself
    code: int  # of `entrypoint local`
    failures: Mapping[str, str | None]  # host -> text of its failure file
    gone_at: Mapping[str, float]  # host -> when its process was gone
    left: tuple[str, ...]  # what is still there and should not be
    began: float

    @property
    def event_at(self) -> float | None:
        """Return the moment from which the case's bound counts."""
        faults = [at for at, _ in self.terminal.faults]
        match self.case.bound.since:
            case Since.START:
                return self.began
            case Since.FAULT:
                return min(faults, default=None)
            case Since.LAST:
                return max([*faults, *(at for times in self.terminal.deeds.values() for at in times)], default=None)

    def _last(self, times: Mapping[str, float]) -> float | None:
        own = [times[host] for host in self.case.timed if host in times]
        return None if self.event_at is None or not own else max(own) - self.event_at

    @property
    def told(self) -> float | None:
        """Return seconds until every host had logged how the job ended."""
        return self._last(self.terminal.told)

    @property
    def gone(self) -> float | None:
        """Return seconds until the last host was gone."""
        return self._last(self.gone_at)

    @property
    def heard(self) -> float | None:
        """Return seconds until the last script had got SIGTERM."""
        heard = self.terminal.deeds.get("hears SIGTERM")
        sent = [at for at, fault in self.terminal.faults if ": stop " in fault]
        return max(heard) - sent[0] if heard and sent else None


def run(case: Case, folder: Path) -> Result:
    """Run `case` with all its files in `folder`."""
    (folder / "code").mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "code")
    for name, text in case.files.items():
        (folder / "code" / name).write_text(text)
    # Not in /tmp, of which the hosts of some engines have their own.
    with contextlib.ExitStack() as stack:
        meeting = stack.enter_context(tempfile.TemporaryDirectory(prefix="outcomes-", dir="/var/tmp"))
        if case.disk:
            Path(meeting, "disk").mkdir()
            stack.callback(SilentDisk(Path(meeting, "disk")).close)
        return _run(case, folder, meeting, stack.enter_context(few(case)))


@contextlib.contextmanager
def few(case: Case) -> Iterator[str]:
    """Yield the argument for few/sitecustomize.py by which the case's host has too little of something."""
    what, _, limit = case.few.partition("=")
    if what in ("", "files"):
        yield f"{what}:{limit}"
    else:
        with control_group(what, int(limit)) as group:
            yield f"group:{group}"


def _run(case: Case, folder: Path, meeting: str, few: str) -> Result:
    began = time.time()
    process = subprocess.Popen(
        [sys.executable, "-I", str(ALONE), str(folder / "left.json"), *command(case, folder, meeting, few)],
        env=environment(case),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    terminal, run_folder = Terminal(), RunFolder(case, folder)
    assert process.stdout
    with process.stdout:
        reader = threading.Thread(target=terminal.read, args=(process.stdout.fileno(), run_folder.look), daemon=True)
        reader.start()
        try:
            process.wait(LONG)
            ended = True
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait(LONG)
            ended = False
        reader.join(5)
    report = json.loads((folder / "left.json").read_text())
    # A process that asks a disk that does not answer cannot be killed.
    left = [what for what in report["left"].values() if not (case.disk and PROGRAM.name in what)]
    ml = {host: folder / "out" / host / "ml" for host in case.names}
    return Result(
        case=case,
        folder=folder,
        terminal=terminal,
        ended=ended,
        code=report["code"],
        failures={host: _text(tree / "output" / "failure") for host, tree in ml.items()},
        gone_at=report["gone"],
        left=(*left, *run_folder.left(), *keys(folder), *mounts(folder)),
        began=began,
    )


def command(case: Case, folder: Path, meeting: str, few: str) -> list[str]:
    """Return the command of a case, as a person would type it."""
    words = ["local", str(folder / "code" / PROGRAM.name), "--hosts", str(case.hosts), *case.way.options]
    for name, value in case.settings.items():
        words += ["--env", f"ENTRYPOINT_{name}={value}"]
    if case.few:
        words += ["--env", f"TEST_FEW={case.host}={few}"]
    words += ["--env", f"TEST_MEETING={meeting}", "--output", str(folder / "out")]
    words += ["--hyperparameters", f"of={case.scripts}", *(f"{name}={value}" for name, value in case.does.items())]
    if case.engine != "process":
        words += ["--engine", case.engine]
    for fault in case.faults:
        words += ["--fault", fault]
    return [sys.executable, "-m", "entrypoint", *words]


def environment(case: Case) -> dict[str, str]:
    """Return our environment without hosts' variables; parameter servers get a stand-in for TensorFlow."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("ENTRYPOINT_", "SM_", "TEST_"))}
    stand_ins = [str(TESTS / "stand_ins")] if case.way in (Way.PS, Way.PS_SERVER, Way.JAX) else []
    stand_ins += [str(FEW)] if case.few else []
    path = os.pathsep.join([*stand_ins, str(TESTS.parent)])
    return {**own, "PYTHONPATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}


class RunFolder:
    """Finds the folder of keys and sockets that the hosts of a run share, in the environment of its processes.

    In network namespaces each host has a /run of its own, which vanishes with its processes.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self._mark, self._sought, self._found = str(folder).encode(), case.engine == "process", ""

    def look(self) -> None:
        """Look for the folder, whenever something was printed: the hosts are there from their first lines on."""
        if not self._sought or self._found:
            return
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes()
                if self._mark in environ and (match := _RUN_DIR.search(environ)):
                    self._found = str(Path(match[1].decode()).parent)
                    return

    def left(self) -> list[str]:
        """Return the folder, if it is still there."""
        if self._sought and not self._found:
            return ["perhaps the run's folder in /tmp, which was never seen"]
        return [self._found] if self._found and Path(self._found).exists() else []


_RUN_DIR = re.compile(rb"\0ENTRYPOINT_RUN_DIR=([^\0]+)\0")


def keys(folder: Path) -> list[str]:
    """Return files with a private key."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size < 1 << 16]
    return [f"key {path}" for path in files if b"PRIVATE KEY" in path.read_bytes()]


def mounts(folder: Path) -> list[str]:
    return [f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines() if str(folder) in line]


def _text(path: Path) -> str | None:
    return path.read_text("utf-8", "replace") if path.is_file() else None
