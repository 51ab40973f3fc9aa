"""Make the head of every benchmark's JSON: subject, time, commit, command and machine.

    record = machine.head("many-hosts", limits={"seconds": 60})  # first of all: takes the date and the load before
    record["runs"] = [...]
    machine.write(Path("many-hosts.json"), record)               # as often as wanted: takes the load after

It has no host names, and no paths outside of the repository.
"""

import datetime
import json
import os
import platform
import shlex
import signal
import statistics
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")
COMMIT = "BENCHMARKS_COMMIT"  # a variable: the commit, for a benchmark that runs where no git is
# Changing these, as a report does, changes no figure.
NOT_CODE = (":!docs", ":!*.md", ":!tests/full_run.json", ":!tests/unit", ":!tests/local", ":!tests/cluster/test_*.py")


def head(what: str, limits: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "what": what,
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "command": command(sys.orig_argv),
        "machine": {
            "cpus": cpus(),
            "cpu": cpu_model(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
            "kernel": f"{platform.system()} {platform.release()}",
            "docker": said("docker", "version", "-f", "{{.Server.Version}}"),
            "load_before": load(),
        },
        "limits": limits or {},
        "runs": [],
    }


def parser(about: str | None, rounds: int | None = None, counted: str = "of all cases, in turns") -> ArgumentParser:
    """Return a parser with the options of every benchmark: `--json FILE`, and `--rounds N` unless `rounds` is None.

    From now on SIGTERM raises SystemExit, so that containers, networks and folders are removed, as on Ctrl-C.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    made = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    if rounds is not None:
        made.add_argument("--rounds", type=int, default=rounds, help=f"{counted}; default: {rounds}")
    made.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, after every run")
    return made


def run_gently(command: list[str], **more: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command that cleans up on SIGINT, as `entrypoint local` does. Before this process ends, wait for that.

    `subprocess.run` would kill the command, and its containers would stay.
    """
    with subprocess.Popen(command, text=True, **more) as process:
        try:
            printed, errors = process.communicate()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
    return subprocess.CompletedProcess(command, process.returncode, printed, errors)


def write(path: Path, record: dict[str, Any]) -> None:
    record["machine"]["load_after"] = load()
    keep(path, record)


def add(record: dict[str, Any], run: dict[str, Any], path: Path | None) -> None:
    """Add a run to the record, print it, and write the record's file, if any, so that no measurement is lost."""
    record["runs"].append(run)
    print(run, file=sys.stderr, flush=True)
    if path:
        write(path, record)


def turned(sides: Collection[T], number: int) -> list[T]:
    """Return the order of sides in a round; each round begins with another side."""
    first = number % len(sides)
    return [*sides][first:] + [*sides][:first]


def keep(path: Path, record: dict[str, Any]) -> None:
    """Write one line for each field and for each run, so that a changed figure is a changed line."""
    fields = []
    for name, value in record.items():
        if name == "runs" and value:
            fields.append('"runs": [\n' + ",\n".join(json.dumps(run) for run in value) + "\n]")
        else:
            fields.append(f"{json.dumps(name)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n")


def commit() -> str:
    """Return the last commit that changed code, with a + after uncommitted changes; "unknown" outside of a checkout."""
    if given := os.environ.get(COMMIT):
        return given
    found = said("git", "-C", str(ROOT), "log", "-1", "--format=%h", "--", str(ROOT), *NOT_CODE)
    changed = said("git", "-C", str(ROOT), "status", "--porcelain", "--", str(ROOT), *NOT_CODE)
    return f"{found}{'+' if changed else ''}" if found else "unknown"


def command(words: list[str]) -> str:
    """Return the command that repeats this run from the root of the repository."""
    return shlex.join(["python", *(_without_place(word) for word in words[1:])])


def _without_place(word: str) -> str:
    option, equals, value = word.rpartition("=")
    if not value.startswith("/"):
        return word
    path = Path(value)
    return option + equals + (str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name)


def cpus() -> float:
    """Return the CPUs that this process may use: the affinity mask's, or less if the control group has a quota."""
    allowed = len(os.sched_getaffinity(0))
    try:
        from entrypoint.launcher.host.machine import this_machine
    except ImportError:  # a benchmark that runs as a file in a container
        return allowed
    here = this_machine().cpus
    return int(here) if here == int(here) else here


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def load() -> float:
    return round(os.getloadavg()[0], 1)


def is_wide(values: Collection[float]) -> bool:
    """Return whether a value differs from the median by more than a tenth; only then pages show the spread."""
    middle = statistics.median(values)
    return any(abs(value - middle) > 0.1 * abs(middle) for value in values)


def said(*words: str) -> str:
    """Return a command's output; empty if it fails or is not installed."""
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
