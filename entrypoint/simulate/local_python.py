"""Help engines that run this machine's Python: environment, missing software, and signals to processes."""

import importlib.util
import os
import resource
import signal
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.host import required_programs
from entrypoint.launcher.plan.distributions.common import modules
from entrypoint.launcher.plan.plan import Plan
from entrypoint.simulate import processes
from entrypoint.simulate.fault import Action, Fault

PACKAGE = Path(__file__).resolve().parents[2]
SPARE_FILES = 100
_NOT_INHERITED = ("SM_", "SAGEMAKER_", "TRAINING_JOB_", "ENTRYPOINT_", "TF_CONFIG")
_SIGNALS = {Action.KILL: signal.SIGKILL, Action.STOP: signal.SIGTERM, Action.PAUSE: signal.SIGSTOP}
_INSTALL = {
    "tensorflow": "TensorFlow for its parameter servers (pip install 'sagemaker-tf-entrypoint[tensorflow]')",
    "jax": "jax (pip install jax)",
    "mpi4py": "mpi4py (pip install 'sagemaker-tf-entrypoint[mpi]')",
}


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that a host inherits: all but variables of a job."""
    return {k: v for k, v in environment.items() if not k.startswith(_NOT_INHERITED)}


def allow_files(count: int) -> None:
    """Raise this process's limit of open files by `count`; ConfigError if the hard limit is too low."""
    wanted = len(os.listdir("/proc/self/fd")) + count + SPARE_FILES  # noqa: PTH208
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


def inject(fault: Fault, launcher: int) -> bool:
    """Kill, stop or pause a host, given by its launcher, or one of its processes. False if it does not exist yet."""
    if fault.process:
        pid = processes.find(launcher, fault.process)
        return pid is not None and processes.send(pid, _SIGNALS[fault.action])
    if fault.action is Action.KILL:
        for pid in processes.family(launcher):
            processes.send(pid, signal.SIGKILL)
        return True
    if not processes.is_up(launcher):  # it has no handler of SIGTERM yet, or has not become the launcher
        return False
    if fault.action is Action.PAUSE:
        processes.freeze(launcher)
        return True
    return processes.send(launcher, signal.SIGTERM)


def resume(fault: Fault, launcher: int) -> None:
    """Resume a paused host or process."""
    if not fault.process:
        processes.thaw(launcher)
    elif pid := processes.find(launcher, fault.process):
        processes.send(pid, signal.SIGCONT)
