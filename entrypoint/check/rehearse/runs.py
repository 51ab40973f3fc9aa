"""Run a job in a child process, with its output in a file, and faults at moments that depend on its progress."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.record import lines
from entrypoint.record.read import RecordTail
from entrypoint.simulate.engine import Engine, HostCommand
from entrypoint.simulate.fault import Fault
from entrypoint.simulate.run import run_local
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import HostFolder

LOOK_SECONDS = 0.2  # seconds between two looks at a job
LEAST_SECONDS = 240.0  # seconds beyond a job's own limit in which it has ended, killed if it must be
Moment = Callable[[], bool]
NOT_TRAINING = ("prepare", "key", "sshd", "mpirun", "ps", "evaluator")  # roles that do not train
OLD = 1.0  # access time that sample files get before a run: 1970


@dataclass(frozen=True, kw_only=True)
class RunEnd:
    """Describe the end of a run, as its parent process saw it. Times are those of record/lines.py:now."""

    code: int
    began: float
    ended: float
    acted: float | None  # when its fault was due
    kept: tuple[tuple[float, str], ...] = ()  # (time, file) for each change in the folders that outlast the hosts


def run(job: LocalJob, engine: Engine, log: Path, moment: Moment, kept: list[Path], own_files: bool) -> RunEnd:
    """Run the job to its end with its output in `log`. Inject its faults once `moment`, which is polled, returns True.

    `own_files`: each host gets copies of its channels' files, whose access times show which ones it reads.
    KeyboardInterrupt is raised again once the job has been stopped. Raise ConfigError or CodeError if it cannot start.
    """
    result = log.with_suffix(".json")
    lines.set_zero()  # by the wall clock, as the launchers of this run do
    began, keeping = lines.now(), _Keeping(kept)
    pid = os.fork()
    if not pid:
        _be_the_run(job, _Held(engine, moment, own_files), log, result)
    code = _wait(pid, (job.timeout or 0.0) + LEAST_SECONDS, keeping.look)
    keeping.look()
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(result.read_text())
        if found.get("refused"):
            raise (CodeError if found["kind"] == "CodeError" else ConfigError)(found["refused"])
        return RunEnd(code=code, began=began, ended=lines.now(), acted=found.get("acted"), kept=tuple(keeping.found))
    return RunEnd(code=code or 1, began=began, ended=lines.now(), acted=None, kept=tuple(keeping.found))


def _be_the_run(job: LocalJob, engine: "_Held", log: Path, result: Path) -> None:
    """Run the job in the child process, and exit."""
    found: dict[str, Any] = {}
    code = 1
    try:
        os.setsid()  # Ctrl-C reaches our parent, which sends us SIGTERM
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG: the parent may be killed
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        sys.stdout.flush()
        with log.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = run_local(job, cast(Engine, engine))
    except (ConfigError, CodeError) as problem:
        found = {"refused": str(problem), "kind": type(problem).__name__}
    except BaseException:  # otherwise the child would continue the parent's code
        import traceback

        traceback.print_exc()
    finally:
        result.write_text(json.dumps({**found, "acted": engine.acted}))
        os._exit(code)


def _wait(pid: int, limit: float, look: Callable[[], None]) -> int:
    """Wait for a run; return its exit code. Ctrl-C stops the run, and is raised again when it has ended."""
    deadline = time.monotonic() + limit
    interrupted = False
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
            look()
        except KeyboardInterrupt:
            interrupted = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    if interrupted:
        raise KeyboardInterrupt
    return os.waitstatus_to_exitcode(status)


class _Keeping:
    """Note files that appear or change in the folders that outlast the hosts."""

    def __init__(self, folders: list[Path]) -> None:
        self._folders, self.found = folders, list[tuple[float, str]]()
        self._known = self._files()

    def look(self) -> None:
        files = self._files()
        self.found += [(lines.now(), name) for name, at in files.items() if self._known.get(name) != at]
        self._known = files

    def _files(self) -> dict[str, float]:
        found = {}
        for path in files_in(self._folders):
            with contextlib.suppress(OSError):  # the script deletes old checkpoints meanwhile
                found[str(path)] = path.stat().st_mtime
        return found


def files_in(folders: list[Path]) -> list[Path]:
    """Return the files in these folders. Leave out empty and unfinished files, and event files of TensorBoard.

    TensorFlow writes saved_model.pb last: without it, the variables beside it are half a model.
    """
    found = []
    for folder in folders:
        for parent, _, names in os.walk(folder):
            if Path(parent).name == "variables" and not Path(parent).with_name("saved_model.pb").exists():
                continue
            for path in (Path(parent, name) for name in names):
                with contextlib.suppress(OSError):
                    if path.stat().st_size and not (path.suffix in (".tmp", ".part") or "tfevents" in path.name):
                        found.append(path)
    return found


class _Held:
    """Wrap an engine, and hold its faults back until `moment`."""

    def __init__(self, engine: Engine, moment: Moment, own_files: bool) -> None:
        self._engine, self._moment, self._own_files = engine, moment, own_files
        self._looked = 0.0
        self.acted: float | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def command(self, folder: HostFolder) -> HostCommand:
        if self._own_files:
            own_files(folder.parts)
        return self._engine.command(folder)

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        if self.acted is None:
            if time.monotonic() < self._looked + LOOK_SECONDS:
                return False
            self._looked = time.monotonic()
            if not self._moment():
                return False
            self.acted = lines.now()
        return self._engine.inject(fault, host, pid)


def own_files(parts: Path) -> None:
    """Replace the files of a host's channels by copies with access time OLD."""
    for parent, _, names in os.walk(parts):
        for path in (Path(parent, name) for name in names):
            scratch = path.with_name(f".{path.name}.copy")
            shutil.copyfile(path, scratch)
            scratch.replace(path)
            os.utime(path, (OLD, path.stat().st_mtime))


def shows_reads(folder: Path) -> bool:
    """Return whether the file system updates access times."""
    probe = folder / ".probe"
    probe.write_text("probe")
    os.utime(probe, (OLD, probe.stat().st_mtime))
    probe.read_text()
    told = probe.stat().st_atime != OLD
    probe.unlink()
    return told


class TrainingTime:
    """Measure how long a job has trained: since its first step (`by_steps`), or since its programs began."""

    def __init__(self, output: Path, by_steps: bool) -> None:
        self._output, self._by_steps = output, by_steps
        self._tails: dict[Path, RecordTail] = {}
        self._since: float | None = None

    @property
    def seconds(self) -> float | None:
        """Return the seconds of training until now; None before it has begun."""
        if self._since is None:
            self._read()
        return None if self._since is None else lines.now() - self._since

    def _read(self) -> None:
        for path in self._output.glob("algo-*/ml/output/data/record/*.jsonl.gz"):
            for line in self._tails.setdefault(path, RecordTail(path)).lines((lines.ProcessLine, lines.Metric)):
                match line:
                    case lines.ProcessLine(role=role) if role not in NOT_TRAINING and not self._by_steps:
                        self._since = min(line.at, self._since or line.at)
                    case lines.Metric(values=found) if self._by_steps and ("step" in found or "epoch" in found):
                        self._since = min(line.at, self._since or line.at)


def after(progress: TrainingTime, seconds: float) -> Moment:
    """Return a moment that comes when the job has trained for `seconds`."""
    return lambda: (progress.seconds or -1.0) >= seconds


def after_keeping(progress: TrainingTime, seconds: float, folders: list[Path]) -> Moment:
    """Return a moment that comes after `seconds` of training, and a second after the first checkpoint."""
    since: list[float] = []

    def reached() -> bool:
        if not since and files_in(folders):
            since.append(time.monotonic())
        return bool(since) and time.monotonic() >= since[0] + 1.0 and (progress.seconds or -1.0) >= seconds

    return reached
