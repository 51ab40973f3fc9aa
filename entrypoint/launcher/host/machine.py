"""Find this host's CPUs and GPUs, and divide them among processes by environment variables.

The plan is the same on every host and only names shares. The numbers are each host's own.

TensorFlow's wheels for x86 read TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS for their two thread pools, in eager
code, functions, sessions and servers, unless the program itself sets a number. They are not built with OpenMP, so
OMP_NUM_THREADS does not affect them; it affects NumPy, SciPy and scikit-learn. KMP_* affects Intel's OpenMP only. A
rank that waits in Open MPI polls as fast as a CPU can, unless it is set to yield.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from entrypoint.base.values import Value
from entrypoint.launcher.host.cgroups import groups, read
from entrypoint.launcher.plan.plan import NO_GPU, Duty, ProcessSpec

GPUS = "CUDA_VISIBLE_DEVICES"
YIELD = "OMPI_MCA_mpi_yield_when_idle"
# With one thread, an operation that waits for another one of its process waits for ever: parameter servers on hosts of
# one CPU hung at the first step.
LEAST_INTEROP = 2


class Machine(Value):
    """Hold what this host may use."""

    allowed: int  # CPUs of the affinity mask: by default, a program starts as many threads
    quota: float | None = None  # CPUs' time that the control group may use
    gpus: int = 0

    @property
    def cpus(self) -> float:
        return min(self.allowed, self.quota or self.allowed)

    def __str__(self) -> str:
        quota = f" by quota, of {self.allowed}" if self.cpus < self.allowed else ""
        gpus = f", {self.gpus} GPU{'s' * (self.gpus > 1)}" if self.gpus else ""
        return f"{self.cpus:g} CPU{'s' * (self.cpus != 1)}{quota}{gpus}"

    def part_of(self, spec: ProcessSpec, given: Mapping[str, str], allowed: int | None = None) -> dict[str, str]:
        """Return the environment of a process for its part of this host. What is `given` stays as the user has it.

        Nothing is set that the process would find by itself. `allowed`: CPUs of its own affinity mask, if mpirun has
        bound it to some.
        """
        part = self._threads(spec, allowed or self.allowed) if spec.cpu_share else {}
        if spec.cpu_share and spec.duty is Duty.RANK and not self.gpus:
            # A thread that waits for other ranks would take a CPU from those that compute. On hosts with GPUs, CPUs
            # compute little, and the effect was not measured.
            part[YIELD] = "1"
        if GPUS not in given:
            part |= self._gpus(spec)
        return {name: value for name, value in part.items() if name not in given}

    def _threads(self, spec: ProcessSpec, allowed: int) -> dict[str, str]:
        threads = max(1, int(min(allowed, self.cpus / spec.cpu_share) + 0.5))
        if threads >= allowed:
            return {"TF_NUM_INTEROP_THREADS": str(LEAST_INTEROP)} if allowed < LEAST_INTEROP else {}
        return {
            "TF_NUM_INTRAOP_THREADS": str(threads),
            "TF_NUM_INTEROP_THREADS": str(max(threads, LEAST_INTEROP)),
            "OMP_NUM_THREADS": str(threads),
        }

    def _gpus(self, spec: ProcessSpec) -> dict[str, str]:
        if not (self.gpus and spec.gpu_share):
            return {}
        index, of = spec.gpu_share
        if spec.gpu_share == NO_GPU:
            return {GPUS: "-1"}
        if of > self.gpus:
            # TensorFlow and jax take most of a GPU's memory at their start, unless they are to take what they need.
            sparing = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
            return {GPUS: str(index * self.gpus // of), **sparing}
        each = self.gpus // of
        return {GPUS: ",".join(str(number) for number in range(index * each, (index + 1) * each))}


def this_machine() -> Machine:
    return Machine(allowed=len(os.sched_getaffinity(0)), quota=cpu_quota(), gpus=count_gpus())


def cpu_quota(process: Path = Path("/proc/self")) -> float | None:
    """Return the CPUs' time that our control group and its ancestors may use; None if there is no limit."""
    # "150000 100000", or in version 1 two files; "max" and -1 are no limit.
    names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    found = [read(folder, *names).split() for group in groups("cpu", process) for folder in group]
    numbers = [tuple(map(int, words)) for words in found if len(words) == 2 and all(map(str.isdecimal, words))]
    return min((quota / period for quota, period in numbers if quota and period), default=None)


def count_gpus() -> int:
    """Return the number of GPUs that the container sees, from their device files: no process is started for it."""
    return sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())
