"""Report what this machine or image has for each mode, with the checks that a job makes at its start."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.simulate.local_python import missing
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import read

SHOWN = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "horovod", "mpi4py", "jax", "numpy", "protobuf")


def examine(path: str) -> Iterator[str]:
    """Yield lines for people: Python, packages and MPI in that PATH, then each mode."""
    packages = []
    for name in SHOWN:
        with contextlib.suppress(PackageNotFoundError):
            packages.append(f"{name} {version(name)}")
    yield f"Python {sys.version.split()[0]}: {sys.executable}"
    yield f"packages: {', '.join(packages) or 'no TensorFlow, Horovod or mpi4py'}"
    if mpirun := shutil.which("mpirun"):
        said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
        yield f"MPI: {mpirun}, {said.strip().partition(chr(10))[0] or 'version unknown'}"
    for mode in Mode:
        one, several = (missing(_plan(mode, hosts, path)) for hosts in (1, 2))
        if one == several:
            yield f"mode {mode}: {_told(one)}"
        else:
            yield f"mode {mode}: {_told(one)} on one host; {_told(several)} on several"


def _told(absent: list[str]) -> str:
    return f"refused, lacks {', '.join(absent)}" if absent else "ready"


def _plan(mode: Mode, hosts: int, path: str) -> Plan:
    job = LocalJob(program="train.py", source=Path(), hosts=hosts, mode=mode, output=Path("doctor"))
    return plan_for(read(job, job.names[0], Path("/opt/ml"), {"PATH": path}))
