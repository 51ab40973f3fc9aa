"""What is known of a job when its script is looked at: by its request, else by what the script is made for."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from entrypoint.check.lint.planned_job import Described
from entrypoint.check.lint.source import Code
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.plan import Role

HOROVOD = ("horovod.*", "smdistributed.dataparallel.*")
WORKERS = (".MultiWorkerMirroredStrategy", ".CollectiveAllReduceStrategy")
SERVERS = (".ParameterServerStrategy", ".ParameterServerStrategyV2", ".replica_device_setter")
SESSIONS = (".MonitoredTrainingSession", ".train_and_evaluate", "tensorflow.*estimator.*", ".replica_device_setter")
LINES = ((2, 14), (2, 21))  # of our image
TRAINING = (Role.RANK, Role.CHIEF, Role.WORKER, Role.SCRIPT)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program and the job that it is for, as far as that is known."""

    code: Code
    job: Job | None = None
    described: Described | None = None
    tensorflow: tuple[int, int] = (2, 14)
    ways: frozenset[Mode] = frozenset()  # what the program is made for
    environment: Mapping[str, str] = field(default_factory=dict)  # of the job
    image: str = ""  # that the job is to run on

    @property
    def known(self) -> bool:
        """Return whether there is a request, so that mode and hosts are no guess."""
        return self.job is not None

    @property
    def mode(self) -> Mode | None:
        return self.job.mode if self.job else None

    @property
    def hosts(self) -> int:
        return len(self.job.cluster.hosts) if self.job else 1

    @property
    def gpus(self) -> int | None:
        """Return GPUs of each host; None where nobody knows."""
        return self.described.gpus if self.described else None

    @property
    def hides_gpus(self) -> bool:
        """Return whether the job keeps its processes from all GPUs."""
        return self.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1")

    @property
    def processes(self) -> int:
        """Return how many processes train together; 0 where nobody knows."""
        if self.job is None or self.described is None or self.described.plan is None:
            return 0
        return sum(spec.role in TRAINING for spec in self.described.plan.processes)

    def may_be(self, mode: Mode) -> bool:
        """Return whether the job is of that mode, or, where that is not known, the program made for it."""
        return self.job.mode is mode if self.job else mode in self.ways

    def together(self, mode: Mode) -> bool:
        """Return whether several processes train in that mode, or, where that is not known, may."""
        return self.may_be(mode) and self.processes != 1

    @property
    def several(self) -> bool:
        return any(self.together(mode) for mode in (Mode.MPI, Mode.MWMS, Mode.PS))

    @property
    def channels(self) -> frozenset[str]:
        """Return the names of the job's channels, and of groups of them."""
        if self.job is None:
            return frozenset()
        return frozenset(self.job.input_data_config)


def ways_of(code: Code) -> frozenset[Mode]:
    """Return the ways of distributing that a program is made for; `single` alone if there are none."""
    found = {
        Mode.MPI: code.has(*HOROVOD, "mpi4py.*", kind="import"),
        Mode.MWMS: code.has(*WORKERS),
        Mode.PS: code.has(*SERVERS),
    }
    return frozenset(mode for mode, there in found.items() if there) or frozenset([Mode.SINGLE])


def tensorflow_of(image: str) -> tuple[int, int] | None:
    """Return TensorFlow's version as an image's tag has it: ours, `2.21-gpu`, or AWS's, `2.14.1-cpu-py310-...`.

    None where the tag may be a version of the user's own, such as `1.0`.
    """
    found = re.search(r":(\d+)\.(\d+)(?:\.\d+)?(-[cg]pu\b.*)?$", image)
    version = (int(found[1]), int(found[2])) if found else None
    return version if found and (found[3] or version in LINES) else None
