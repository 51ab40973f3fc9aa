"""Define the base of both engines that run this machine's Python: environment, missing software, signals.

Report for each mode what this machine or image has for it, with the checks that a job makes at its start.
"""

import contextlib
import importlib.util
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.python310 import SAFE_PATH
from entrypoint.launcher.host import required_programs
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.distributions.common import modules
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.plan.render import render
from entrypoint.simulate import processes
from entrypoint.simulate.engine import SIGNALS, Engine, HostCommand
from entrypoint.simulate.fault import Action, Fault
from entrypoint.simulate.spec import LocalJob
from entrypoint.simulate.tree import read

PACKAGE = Path(__file__).resolve().parents[2]
SPARE_FILES = 100
_NOT_INHERITED = ("SM_", "SAGEMAKER_", "TRAINING_JOB_", "ENTRYPOINT_", "TF_CONFIG")
_INSTALL = {
    "tensorflow": "TensorFlow for its parameter servers (pip install 'sagemaker-tf-entrypoint[tensorflow]')",
    "jax": "jax (wanted a Python with TensorFlow 2.21 and jax: beside TensorFlow 2.14, jax of today breaks it)",
    "mpi4py": "mpi4py (pip install 'sagemaker-tf-entrypoint[mpi]')",
}
SHOWN = ("tensorflow", "tensorflow-cpu", "keras", "tf-keras", "horovod", "mpi4py", "jax", "numpy", "protobuf")


def allow_files(count: int) -> None:
    """Raise this process's limit of open files by `count`. Raise ConfigError if the hard limit is too low."""
    wanted = len(os.listdir("/dev/fd")) + count + SPARE_FILES  # noqa: PTH208
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise ConfigError(
            f"so many simulated hosts and processes take {wanted} open files, and this machine allows {hard} "
            "(ulimit -Hn); wanted fewer hosts, or a higher limit"
        )
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def missing(plan: Plan) -> list[str]:
    """Return what the plan needs and this machine lacks, each with what to do about it."""
    absent = [name for name in modules(plan.processes) if not importlib.util.find_spec(name)]
    return [
        *(_INSTALL[name] for name in absent),
        *required_programs.lacking(required_programs.programs(plan.processes, plan.daemon)),
    ]


class PythonEngine(Engine):
    """Run the hosts of a job with this Python. A host's command is its launcher, or has it as its first descendant."""

    look_again = 0.05
    where: str  # the software that a job needs is looked for
    program: str  # for `python -c`; its first argument is our package's folder, since scripts would inherit PYTHONPATH

    def __init__(self, job: LocalJob, environment: Mapping[str, str], gpus: int) -> None:
        super().__init__(job, environment)
        self.gpus = gpus
        # Hosts inherit our environment, but for variables of a job.
        self._inherited = {k: v for k, v in environment.items() if not k.startswith(_NOT_INHERITED)}

    @abstractmethod
    def read(self) -> Job:
        """Return the job as its first host will read it; the plan is the same on all hosts."""

    @abstractmethod
    def launcher_of(self, pid: int) -> int | None:
        """Return the launcher of the host whose command has this pid; None if it does not run."""

    def check(self) -> None:
        job = self.read()
        if lacks := missing(plan_for(job)):
            # mpi4py is ours. What the script needs itself is more, and is found only when the ranks run.
            imports = re.search(r"(?m)^\s*(import|from) horovod\b", self._script()) if job.mode is Mode.MPI else None
            if imports and not importlib.util.find_spec("horovod"):
                lacks = ["horovod, which the script imports", *lacks]
            raise ConfigError(f"mode {job.mode} {self.where} lacks {', '.join(lacks)}; or use --engine docker")

    def _script(self) -> str:
        with contextlib.suppress(OSError):
            return (self.job.source / self.job.program).read_text(errors="replace")
        return ""

    def plan(self, whole: bool) -> str:
        return render(plan_for(self.read()), whole=whole)

    def started(self, own: Mapping[str, str], like_a_container: Mapping[str, str] | None = None) -> HostCommand:
        """Return the command of a host. The user's settings come after `like_a_container` and before `own`."""
        made = {"PYTHONUNBUFFERED": "1", "TRAINING_JOB_NAME": self.job.name}  # the first as in the image
        return HostCommand(
            argv=(sys.executable, *SAFE_PATH, "-c", self.program, str(PACKAGE)),
            environment={**self._inherited, **made, **(like_a_container or {}), **self.settings, **own},
        )

    def signal(self, running: Mapping[str, int], number: int) -> None:
        for pid in running.values():
            if (launcher := self.launcher_of(pid)) or number == signal.SIGKILL:
                processes.send(launcher or pid, number)

    def inject(self, fault: Fault, host: str, pid: int) -> bool:
        if (launcher := self.launcher_of(pid)) is None:
            return False
        if fault.process:
            found = processes.find(launcher, fault.process)
            return found is not None and processes.send(found, SIGNALS[fault.action])
        if fault.action is Action.KILL:
            processes.send_all(launcher, signal.SIGKILL)
            return True
        if not processes.is_up(launcher):  # it has no handler of SIGTERM yet, or has not become the launcher
            return False
        if fault.action is Action.PAUSE:
            processes.freeze(launcher)
            return True
        return processes.send(launcher, signal.SIGTERM)

    def heal(self, fault: Fault, host: str, pid: int | None) -> None:
        launcher = None if pid is None else self.launcher_of(pid)
        if launcher is not None and not fault.process:
            processes.send_all(launcher, signal.SIGCONT)
        elif launcher is not None and (found := processes.find(launcher, fault.process)):
            processes.send(found, signal.SIGCONT)


# --- `entrypoint doctor` without a file ---


def examine(path: str) -> Iterator[str]:
    """Yield lines for people: Python, packages and MPI in `path`, then each mode."""
    packages = []
    for name in SHOWN:
        with contextlib.suppress(PackageNotFoundError):
            packages.append(f"{name} {version(name)}")
    yield f"Python {sys.version.split()[0]}: {sys.executable}"
    if (machine := platform.machine()) != "x86_64":
        yield f"processor: {machine}; an image for it ends with 'exec format error' on SageMaker, whose hosts are amd64"
    yield f"packages: {', '.join(packages) or 'no TensorFlow, Horovod or mpi4py'}"
    if sys.platform == "darwin":
        yield f"Docker: {shutil.which('docker') or 'none'}; on macOS jobs run in containers (--engine docker), and"
        yield "`docker run --rm IMAGE entrypoint doctor` prints what an image has for each mode"
        return
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
