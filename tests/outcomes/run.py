"""Run one case with `entrypoint local`; return its Result: output, leftovers and times."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    """The result of a case's run."""

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
        """Return the seconds until every host had logged the end of the job."""
        return self._last(self.terminal.told)

    @property
    def gone(self) -> float | None:
        """Return the seconds until the last host was gone."""
        return self._last(self.gone_at)

    @property
    def heard(self) -> float | None:
        """Return the seconds until the last script had received SIGTERM."""
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
    """Yield the argument for few/sitecustomize.py that limits a resource of the case's host."""
    what, _, limit = case.few.partition("=")
    if what in ("", "files"):
        yield f"{what}:{limit}"
    else:
        with control_group(what, int(limit)) as group:
            yield f"group:{group}"


def _run(case: Case, folder: Path, meeting: str, few: str) -> Result:
    began = time.time()
    seen = watched(command(case, folder, meeting, few), environment(case), folder, case.engine)
    return Result(
        case=case,
        folder=folder,
        terminal=seen.terminal,
        ended=seen.ended,
        code=seen.code,
        failures={host: text_of(folder / "out" / host / "ml/output/failure") for host in case.names},
        gone_at=seen.gone,
        # A process that asks a disk that does not answer cannot be killed.
        left=tuple(what for what in seen.left if not (case.disk and PROGRAM.name in what)),
        began=began,
    )


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The observations of a command of `entrypoint local`."""

    terminal: Terminal
    ended: bool  # by itself
    code: int
    came: Mapping[str, float]  # host -> when its process was there first
    gone: Mapping[str, float]  # host -> when its process was gone
    waits: list[tuple[float, float]]  # (until, seconds) for which one of the threads had no CPU
    left: tuple[str, ...]  # what is still there and should not be


def watched(
    words: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    engine: str,
    is_over: Callable[[], object] = lambda: False,
) -> Watched:
    """Run a command with its output in `folder`/out to its end; terminate it after LONG seconds, or once `is_over`."""
    process = subprocess.Popen(
        [sys.executable, "-I", str(ALONE), str(folder / "left.json"), *words],
        env=environment,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    terminal, run_folder = Terminal(), RunFolder(folder, engine)
    assert process.stdout
    with process.stdout:
        reader = threading.Thread(target=terminal.read, args=(process.stdout.fileno(), run_folder.look), daemon=True)
        reader.start()
        ended = _ends(process, is_over)
        reader.join(LONG)
    report = json.loads((folder / "left.json").read_text())
    left = (*report.pop("left").values(), *run_folder.left(), *keys(folder), *mounts(folder))
    return Watched(terminal=terminal, ended=ended, left=left, **report)


def _ends(process: subprocess.Popen[bytes], is_over: Callable[[], object]) -> bool:
    """Wait for the end, and return whether the command ended by itself."""
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline and not is_over():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return True
    process.terminate()
    process.wait()
    return False


def command(case: Case, folder: Path, meeting: str, few: str) -> list[str]:
    """Return the command line of a case."""
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
    """Return this process's environment without variables of hosts; in mode ps, with a stand-in for TensorFlow."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("ENTRYPOINT_", "SM_", "TEST_"))}
    stand_ins = [str(TESTS / "stand_ins")] if case.way in (Way.PS, Way.PS_SERVER, Way.JAX) else []
    stand_ins += [str(FEW)] if case.few else []
    path = os.pathsep.join([*stand_ins, str(TESTS.parent)])
    return {**own, "PYTHONPATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}


class RunFolder:
    """The folder of keys and sockets that the hosts of a run share, found in the environment of processes.

    In network namespaces each host has a /run of its own, which vanishes with its processes.
    """

    def __init__(self, folder: Path, engine: str) -> None:
        self._mark, self._sought, self._found = str(folder).encode(), engine == "process", ""

    def look(self) -> None:
        """Search the folder after each printed line, since the hosts exist from their first lines on."""
        if not self._sought or self._found:
            return
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environ = (entry / "environ").read_bytes()
                if self._mark in environ and (match := _RUN_DIR.search(environ)):
                    self._found = str(Path(match[1].decode()).parent)
                    return

    def left(self) -> list[str]:
        """Return the folder if it still exists."""
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


def text_of(path: Path) -> str | None:
    return path.read_text("utf-8", "replace") if path.is_file() else None
