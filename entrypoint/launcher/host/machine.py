"""Find this host's CPUs, GPUs and memory, and divide them among processes by environment variables.

The plan is the same on every host and only names shares. The numbers are each host's own.

TensorFlow's wheels for x86 read TF_NUM_INTRAOP_THREADS and TF_NUM_INTEROP_THREADS for their two thread pools, in eager
code, functions, sessions and servers, unless the program itself sets a number. They are not built with OpenMP, so
OMP_NUM_THREADS does not affect them; it affects NumPy, SciPy and scikit-learn. KMP_* affects Intel's OpenMP only. A
rank that waits in Open MPI polls as fast as a CPU can, unless it is set to yield.

Control groups, of version 1 or 2, limit CPUs, memory and processes: see the kernel's admin-guide/cgroup-v2 and
cgroup-v1. A container sees its own group at the mount point.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrypoint.base.python310 import process_cpu_count
from entrypoint.base.values import Value
from entrypoint.launcher.plan.plan import NO_GPU, Duty, ProcessSpec

GPUS = "CUDA_VISIBLE_DEVICES"
YIELD = "OMPI_MCA_mpi_yield_when_idle"
# With one thread, an operation that waits for another one of its process waits for ever: parameter servers on hosts of
# one CPU hung at the first step.
LEAST_INTEROP = 2
_UNLIMITED_BYTES = 1 << 60  # bytes; version 1 writes "no limit" as a number of this size


class Machine(Value):
    """Hold the CPUs, GPUs and memory that this host may use."""

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
        """Return the environment of a process for its part of this host. Variables in `given` keep the user's values.

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
    return Machine(allowed=process_cpu_count(), quota=cpu_quota(), gpus=count_gpus())


def cpu_quota(process: Path = Path("/proc/self")) -> float | None:
    """Return the CPUs that our control group and its ancestors may use, as a number; None without a limit."""
    # "150000 100000", or in version 1 two files; "max" and -1 are no limit.
    names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
    found = [read(folder, *names).split() for group in groups("cpu", process) for folder in group]
    numbers = [tuple(map(int, words)) for words in found if len(words) == 2 and all(map(str.isdecimal, words))]
    return min((quota / period for quota, period in numbers if quota and period), default=None)


def count_gpus() -> int:
    """Return the number of GPUs that the container sees, from their device files: no process is started for it."""
    return sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())


def groups(controller: str, process: Path = Path("/proc/self")) -> Iterator[list[Path]]:
    """Yield the folders of our group and its ancestors for each hierarchy that may have this controller."""
    try:
        own = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    for mount in mounts:
        root, point, rest = mount[3].rstrip("/"), Path(mount[4]), mount[mount.index("-") + 1 :]
        if rest[0] == "cgroup2":
            paths = [path for _, controllers, path in own if not controllers]
        elif rest[0] == "cgroup" and controller in rest[-1].split(","):
            paths = [path for _, controllers, path in own if controller in controllers.split(",")]
        else:
            continue
        for path in paths[:1]:
            below = path.removeprefix(root).strip("/") if f"{path}/".startswith(f"{root}/") else ""
            folder = point / below
            yield [each for each in (folder, *folder.parents) if each.is_relative_to(point)]


def read(folder: Path, *names: str) -> str:
    """Return the contents of these files, without those that are missing.

    Each version of control groups has its own names of files.
    """
    found = ""
    for name in names:
        with contextlib.suppress(OSError):
            found += (folder / name).read_text() + "\n"
    return found


def most_processes() -> int | None:
    """Return the lowest limit of processes and threads in our group and its ancestors; None without a limit."""
    limits = [read(folder, "pids.max").strip() for group in groups("pids") for folder in group]
    return min((int(most) for most in limits if most.isdecimal()), default=None)  # "max" is no limit


class Meter:
    """Read our control group's counter of processes that the kernel killed, since SIGKILL may come from elsewhere, too.

    `oom_kill` is in memory.events, or in memory.oom_control of version 1 since Linux 4.13. Without it, nothing is ever
    reported.
    """

    def __init__(self, process: Path = Path("/proc/self")) -> None:
        folders = [group[0] for group in groups("memory", process)]
        self._folder = next((folder for folder in folders if _count(folder) is not None), None)
        self._seen = _count(self._folder) or 0

    def killed_since(self) -> str:
        """Return a line about processes killed since the last call; "" if there are none, or no counter."""
        new = (_count(self._folder) or 0) - self._seen
        if self._folder is None or new <= 0:
            return ""
        self._seen += new
        limit = _megabytes(self._folder, "limit", "memory.max", "memory.limit_in_bytes")
        peak = _megabytes(self._folder, "peak", "memory.peak", "memory.max_usage_in_bytes")
        shown = f" ({', '.join([*limit, *peak])})" if limit or peak else ""
        return f"the kernel killed {new} process{'es' * (new > 1)} of this host for lack of memory{shown}"


def _count(folder: Path | None) -> int | None:
    text = read(folder, "memory.events", "memory.oom_control") if folder else ""
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else None


def _megabytes(folder: Path, what: str, *names: str) -> list[str]:
    size = read(folder, *names).strip()
    return [f"{int(size) / (1 << 20):,.0f} MiB {what}"] if size.isdecimal() and 0 < int(size) < _UNLIMITED_BYTES else []
