"""Run a case with `entrypoint local` in real processes, and return it as Observed."""

import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from budget import slowness, work
from outcomes.run import text_of, watched

from benchmarks.chaos import ROOT
from benchmarks.chaos.case import DEFAULTS, OWN_FAULTS, Case
from benchmarks.chaos.machine import Heart, pressure
from benchmarks.chaos.observed import Observed, read_faults, read_journals
from benchmarks.chaos.outside import CONTROL_PORT, SLOW_NAMES, injected
from entrypoint.launcher.control.wire import PROTOCOL

SCRIPT = Path(__file__).with_name("script.py")
WRAPS = {
    "sh": "'{python}' '{script}' \"$@\"",
    "timeout": "timeout 200 '{python}' '{script}' \"$@\"",
    "setsid": "setsid -w '{python}' '{script}' \"$@\"",
}


class Interrupted(Exception):
    """This program received SIGTERM or SIGINT."""


_told: list[int] = []  # a signal handler may not wait, as for the lock of an Event


def end_on(number: int, _: object = None) -> None:
    """Handle a signal: end running jobs without leftovers, and make `run` raise Interrupted from now on."""
    _told.append(number)


def run(case: Case, heart: Heart) -> Observed:
    """Run the case; leave nothing, even on Interrupted."""
    if _told:
        raise Interrupted
    # Not in /tmp, of which the hosts of an engine have their own.
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        return _run(case, heart, Path(name))


def _run(case: Case, heart: Heart, folder: Path) -> Observed:
    meeting, code = folder / "meeting", folder / "code"
    for path in (meeting, code):
        path.mkdir()
    scripts = {f"{host} {process}": asdict(case.script(host, process)) for host, process in case.processes}
    for who, script in scripts.items():  # what a forger could find out by itself
        others = [host for host in case.names if not who.startswith(f"{host} ")]
        script.update(protocol=PROTOCOL, port=CONTROL_PORT, blames=others[-1] if others else "")
    (meeting / "scripts.json").write_text(json.dumps(scripts))
    shutil.copy(SCRIPT, code)
    if case.wrap:
        words = WRAPS[case.wrap].format(python=sys.executable, script="script.py")
        (code / "train.sh").write_text(f"#!/bin/sh\n{words}\n")
    timings, began, waited = [work()], time.time(), pressure()
    with injected(case, folder, meeting) as done:
        seen = watched(command(case, folder, meeting), environment(case), folder, case.engine, lambda: _told)
    if _told:
        raise Interrupted
    ml = {host: folder / "out" / host / "ml" for host in case.names}
    logs = {host: text_of(folder / "out" / host / "log.txt") or "" for host in case.names}
    first = min(seen.came.values(), default=began)
    return Observed(
        case=case,
        began=began,
        ended=seen.ended,
        seconds=time.time() - began,
        exits=seen.terminal.exits(),
        gone=seen.gone,
        told=seen.terminal.told,
        failures={host: text_of(tree / "output" / "failure") for host, tree in ml.items()},
        evidence={host: text_of(tree / f"output/data/entrypoint-{host}.txt") or "" for host, tree in ml.items()},
        logs=logs,
        deeds=read_journals(meeting),
        injected=(*done, *read_faults(case, seen.terminal.text.rpartition("tail s\n")[2], first)),
        left=seen.left if seen.ended else (),
        gaps=heart.since(began),
        waits=tuple((at, seconds) for at, seconds in seen.waits),
        pressure=pressure() - waited,
        slowness=max(1.0, slowness([*timings, work()])),
        terminal=seen.terminal.text,
    )


def command(case: Case, folder: Path, meeting: Path) -> list[str]:
    """Return the command line."""
    mode, _, workers = case.mode.partition(" ")
    program = "train.sh" if case.wrap else SCRIPT.name
    words = ["local", str(folder / "code" / program), "--hosts", str(case.hosts), "--mode", mode]
    words += ["--engine", case.engine, "--output", str(folder / "out"), "--env", f"CHAOS_FOLDER={meeting}"]
    words += ["--env", f"ENTRYPOINT_PS_WORKERS={workers}"] if workers else []
    words += ["--env", f"ENTRYPOINT_TOKEN={case.token}"] if case.token else []
    words += ["--processes-per-host", str(case.each)] if case.each > 1 else []
    for name in DEFAULTS:
        words += ["--env", f"ENTRYPOINT_{name}={case.setting(name):g}"]
    for fault in case.faults:
        words += [] if fault.kind in OWN_FAULTS else ["--fault", fault.text]
    return [sys.executable, "-m", "entrypoint", *words]


def environment(case: Case) -> dict[str, str]:
    """Return this process's environment without variables of hosts, with stand-ins for TensorFlow and jax if needed."""
    # Without files of bytecode every process compiles our modules again: half of a job's CPU time.
    foreign = ("ENTRYPOINT_", "SM_", "CHAOS_", "PYTHONDONTWRITEBYTECODE")
    own = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
    path = [str(ROOT / "tests" / "stand_ins")] if case.mode.startswith("ps") or case.mode == "jax" else []
    path += [str(SLOW_NAMES)] if any(fault.kind == "slow" for fault in case.faults) else []
    return {**own, "PYTHONPATH": os.pathsep.join([*path, str(ROOT)]), "PIP_NO_INDEX": "1"}
