"""Run a case on this machine and collect its result."""

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu import card
from gpu.cases import ON_THE_GPU, Case, Command
from gpu.judge import Ran, Row, complaints, seen

HERE = Path(__file__).resolve().parent
ENDS_SECONDS = 15.0  # that `entrypoint local` has to end its hosts


@dataclass(frozen=True)
class Here:
    """Settings of all runs on this machine: `image` is its name in the table, `output` a folder for jobs and logs."""

    image: str
    gpu: bool
    output: Path
    until: float = float("inf")  # by time.monotonic()

    @property
    def places(self) -> dict[str, str]:
        """Return the values of words in braces. The folders are beside tests/gpu, or in its checkout."""
        beside = [HERE.parent, HERE.parents[1]]
        examples = next((each / "examples" for each in beside if (each / "examples").is_dir()), Path("examples"))
        found = {"programs": HERE / "programs", "examples": examples, "packages": HERE.parent / "packages"}
        checkout = os.environ.get("HOROVOD_SOURCES")
        found["horovod"] = Path(checkout, "test") if checkout else HERE.parent / "horovod/test"
        return {name: str(path) for name, path in found.items()}


def run(case: Case, here: Here) -> Row:
    """Run a case with its output in OUTPUT/CASE.log, or return why it cannot run."""
    wanted = case.gpu if here.gpu else case.cpu
    limit = min(case.limit, here.until - time.monotonic())
    if wanted is None:
        return Row(here.image, case.name, not_run="needs a GPU")
    if lacking := [need for need in case.needs if not is_here(need, here)]:
        lacks = f"there is no {lacking[0]}"
        if here.gpu:  # the image is to have it
            return Row(here.image, case.name, complaints=(lacks,))
        return Row(here.image, case.name, not_run=lacks)
    if limit <= 0:
        return Row(here.image, case.name, not_run="no time is left")
    try:
        ran = _run(case, here, limit)
    except OSError as error:
        return Row(here.image, case.name, complaints=(str(error),))
    (here.output / f"{_file(case)}.log").write_text(ran.log)
    found = complaints(wanted, ran, len(case.commands), limit)
    return Row(here.image, case.name, ran.seconds, complaints=found, seen=seen(case.shows, ran.log))


def is_here(need: str, here: Here) -> bool:
    """Return whether this machine has a module, a program or Horovod's tests."""
    if need == "horovod's tests":
        return Path(here.places["horovod"], "parallel").is_dir()
    return bool(shutil.which(need) or importlib.util.find_spec(need))


def entrypoint() -> list[str]:
    """Return the command `entrypoint` of this Python, or else that on PATH, as in other people's images."""
    own = Path(sys.executable).with_name("entrypoint")
    return [str(own) if own.exists() else shutil.which("entrypoint") or "entrypoint"]


def _run(case: Case, here: Here, limit: float) -> Ran:
    scratch = here.output / _file(case)
    scratch.mkdir()
    places = {**here.places, "scratch": str(scratch)}
    environment = {**os.environ, "TMPDIR": "/tmp", "PYTHONUNBUFFERED": "1", **case.environment}
    if not here.gpu:
        environment["CUDA_VISIBLE_DEVICES"] = "-1"
    codes, log, began = list[int | None](), "", time.monotonic()
    before = card.memory_used()
    watch = card.Watch(scratch) if here.gpu and case.asks_who else contextlib.nullcontext()
    with taken_away(case.without), watch as watched:
        for number, command in enumerate(case.commands):
            left = limit - (time.monotonic() - began)
            code, printed = _command(_words(command, places), environment, scratch / f"{number}.log", left)
            codes.append(code)
            log += printed
            if code is None:
                break
    seconds = time.monotonic() - began
    if watched:
        log += "".join(f"{ON_THE_GPU}: {who}\n" for who in sorted(watched.who))
    if here.gpu and case.alone:
        log += f"GPU memory: {max(0, card.memory_used() - before)} MiB more than before\n"
    return Ran(tuple(codes), log, seconds)


def _words(command: Command, places: dict[str, str]) -> list[str]:
    first = [*entrypoint(), "local"] if command[0] == "local" else [sys.executable, command[0].format(**places)]
    rest = [entrypoint() if word == "{entrypoint}" else [word.format(**places)] for word in command[1:]]
    return [*first, *(word for words in rest for word in words)]


def _command(words: list[str], environment: dict[str, str], log: Path, limit: float) -> tuple[int | None, str]:
    """Run a command; return (exit code, or None after the time limit; its output)."""
    with log.open("wb") as file:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=environment,
            cwd=log.parent, start_new_session=True,
        )  # fmt: skip
        code = _ending(process, limit)
        if code is None:
            for number in (signal.SIGINT, signal.SIGKILL):  # `entrypoint local` ends its hosts at the first
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                if _ending(process, ENDS_SECONDS) is not None:
                    break
    return code, log.read_text("utf-8", errors="replace")


def _ending(process: "subprocess.Popen[bytes]", limit: float) -> int | None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(max(0.0, limit))
    return None


@contextlib.contextmanager
def taken_away(pattern: str) -> Iterator[None]:
    """Rename the files of this pattern in the Python packages until the block ends."""
    packages = Path(sysconfig.get_paths()["purelib"])
    files = list(packages.glob(pattern)) if pattern else []
    if pattern and not files:
        raise FileNotFoundError(f"found no {pattern} in {packages}; wanted the files that this case takes away")
    away = {each: each.with_name(f"away-{each.name}") for each in files}
    try:
        for path, name in away.items():
            path.rename(name)
        yield
    finally:
        for path, name in away.items():
            if name.is_symlink() or name.exists():
                name.rename(path)


def _file(case: Case) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in case.name)
