"""Collect what is known of a job when its script is checked: from its request, else from what the script uses."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from entrypoint.check.doctor.planned_job import Described
from entrypoint.check.doctor.source import Code, UseKind
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.plan import Role

HOROVOD = ("horovod.*", "smdistributed.dataparallel.*")
WORKERS = (".MultiWorkerMirroredStrategy", ".CollectiveAllReduceStrategy")
SERVERS = (".ParameterServerStrategy", ".ParameterServerStrategyV2", ".replica_device_setter")
PROCESSES = (".initialize_jax", "jax.distributed.initialize", ".distribution.initialize", ".distribution.DataParallel")
SESSIONS = (".MonitoredTrainingSession", ".train_and_evaluate", "tensorflow.*estimator.*", ".replica_device_setter")
LINES = ((2, 14), (2, 21))  # versions of TensorFlow that our image has
TRAINING = (Role.RANK, Role.CHIEF, Role.WORKER, Role.SCRIPT)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Pair a program with the job that it is for, as far as the job is known."""

    code: Code
    job: Job | None = None
    described: Described | None = None
    tensorflow: tuple[int, int] = (2, 14)
    ways: frozenset[Mode] = frozenset()  # the modes that the program is written for
    environment: Mapping[str, str] = field(default_factory=dict)  # the job's
    image: str = ""  # the one that the job is to run on

    @property
    def known(self) -> bool:
        """Return whether there is a request, so that mode and hosts are known rather than guessed."""
        return self.job is not None

    @property
    def mode(self) -> Mode | None:
        return self.job.mode if self.job else None

    @property
    def hosts(self) -> int:
        return len(self.job.cluster.hosts) if self.job else 1

    @property
    def gpus(self) -> int | None:
        """Return the number of GPUs of each host; None if unknown."""
        return self.described.gpus if self.described else None

    @property
    def hides_gpus(self) -> bool:
        """Return whether the job hides all GPUs from its processes."""
        return self.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")

    @property
    def processes(self) -> int:
        """Return how many processes train together; 0 if unknown."""
        if self.job is None or self.described is None or self.described.plan is None:
            return 0
        return sum(spec.role in TRAINING for spec in self.described.plan.processes)

    def may_be(self, mode: Mode) -> bool:
        """Return whether the job has this mode; without a job, whether the program is written for it."""
        return self.job.mode is mode if self.job else mode in self.ways

    def together(self, mode: Mode) -> bool:
        """Return whether several processes train in this mode; if their number is unknown, whether they may."""
        return self.may_be(mode) and self.processes != 1

    @property
    def several(self) -> bool:
        return any(self.together(mode) for mode in (Mode.MPI, Mode.MWMS, Mode.PS, Mode.JAX))

    @property
    def channels(self) -> frozenset[str]:
        """Return the names of the job's channels."""
        if self.job is None:
            return frozenset()
        return frozenset(self.job.input_data_config)


def ways_of(code: Code) -> frozenset[Mode]:
    """Return the modes that a program is written for; only `single` if it uses no way of distributing."""
    found = {
        Mode.MPI: code.has(*HOROVOD, "mpi4py.*", kind=UseKind.IMPORT),
        Mode.MWMS: code.has(*WORKERS),
        Mode.PS: code.has(*SERVERS),
        Mode.JAX: code.has(*PROCESSES),
    }
    return frozenset(mode for mode, there in found.items() if there) or frozenset([Mode.SINGLE])


def tensorflow_of(image: str) -> tuple[int, int] | None:
    """Return TensorFlow's version from an image's tag: ours, `2.21-gpu`, or AWS's, `2.14.1-cpu-py310-...`.

    Return None if the tag may be a version of the user's own, such as `1.0`.
    """
    found = re.search(r":(\d+)\.(\d+)(?:\.\d+)?(-[cg]pu\b.*)?$", image)
    version = (int(found[1]), int(found[2])) if found else None
    return version if found and (found[3] or version in LINES) else None
