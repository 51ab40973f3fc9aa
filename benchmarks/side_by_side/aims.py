"""List the aims, our figure divided by the toolkit's, in one table for the report and for `--quick`."""

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Aim:
    measure: str
    cases: tuple[str, ...]  # patterns of names
    ratio: float  # at most
    words: str

    @property
    def limit(self) -> float:
        """Return the ratio beyond which noise is no explanation: half of the aim's distance to 1."""
        return 1 - (1 - self.ratio) / 2


AIMS = (
    Aim("start_s", ("start-mpi-*",), 0.3, "start, MPI"),
    Aim("start_s", ("start-*",), 0.25, "start, single host and parameter servers"),
    Aim("tail_s", ("start-mpi-*",), 0.02, "tail, MPI"),
    Aim("launcher_tail_s", ("real-horovod-*", "real-maskrcnn-*"), 0.02, "tail, MPI, without what TensorFlow takes"),
    Aim("tail_s", ("start-*", "real-ps-*", "real-deepfm-*"), 0.5, "tail, otherwise"),
    Aim("gone_s", ("kill-mpi-2-worker",), 0.3, "MPI's other host killed to all hosts gone"),
    Aim("gone_s", ("raise-mpi-*", "cut-mpi-*", "kill-mpi-*", "stop-mpi-*"), 0.02, "failure to all hosts gone, MPI"),
    Aim("launcher_memory_bytes", ("start-mpi-*", "start-ps-*"), 0.1, "the launcher's memory, MPI and PS"),
    Aim("launcher_memory_bytes", ("start-*",), 0.15, "the launcher's memory, otherwise"),
    Aim("cpu_us_per_line", ("log-*",), 0.3, "CPU per line of the log"),
    Aim("install_s", ("packages-110-*",), 0.15, "install of 110 packages"),
    Aim("install_s", ("packages-*",), 1.0, "install of 1 and of 10 packages"),
)


def aim(case: str, measure: str) -> Aim | None:
    """Return the first aim that applies to the case."""
    of_measure = (each for each in AIMS if each.measure == measure)
    return next((each for each in of_measure if any(fnmatchcase(case, pattern) for pattern in each.cases)), None)
