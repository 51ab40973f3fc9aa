"""What was asked for: the job as a finished value. Nobody reads a file or a variable after this."""

from functools import cached_property
from pathlib import Path
from typing import Any

from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value, fresh
from entrypoint.launcher.job.channels import Channels
from entrypoint.launcher.job.cluster import Cluster
from entrypoint.launcher.job.open_mpi import ORTE
from entrypoint.launcher.job.settings import Settings

MARKS = "ENTRYPOINT_MARKS"  # environment variable: the socket where a script's library tells the monitor of its steps


class Mode(StrEnum):
    """How the work is spread over the hosts."""

    SINGLE = "single"  # the script on every host, nothing shared
    PS = "ps"  # TensorFlow parameter servers, a chief and workers
    MWMS = "mwms"  # MultiWorkerMirroredStrategy
    MPI = "mpi"  # mpirun and Horovod


class Tree(Value):
    """What SageMaker mounts below `base`: /opt/ml, unless SAGEMAKER_BASE_DIR says otherwise."""

    base: Path

    @property
    def config(self) -> Path:
        return self.base / "input" / "config"

    @cached_property  # each of thousands of ranks has it
    def code(self) -> Path:
        return self.base / "code"

    @property
    def model(self) -> Path:
        return self.base / "model"

    @property
    def output(self) -> Path:
        return self.base / "output"

    @property
    def failure(self) -> Path:
        return self.output / "failure"

    @property
    def success(self) -> Path:
        return self.output / "success"

    @property
    def data(self) -> Path:
        """Return the folder of what is kept beside the model."""
        return self.output / "data"

    def evidence(self, host: str) -> Path:
        """Return its folder, named by host: SageMaker puts the data folders of all hosts into one archive."""
        return self.data / f"entrypoint-{host}.txt"

    @property
    def records(self) -> Path:
        """Return the folder of what the monitor has seen: on the coordinator, of all hosts."""
        return self.data / "record"

    @property
    def report(self) -> Path:
        """Return the page that is made of them."""
        return self.data / "report.html"


class Paths(Tree):
    """SageMaker's tree, and our own files of this run."""

    run: Path  # sockets, keys; never uploaded
    # In place of the tree's, where that cannot be written to.
    other_code: Path | None = None
    other_data: Path | None = None

    @cached_property
    def code(self) -> Path:
        return self.other_code or self.base / "code"

    @property
    def data(self) -> Path:
        return self.other_data or self.output / "data"

    @property
    def prepared(self) -> Path:
        return self.run / "prepared.json"

    @property
    def ranks(self) -> Path:
        """The socket where the ranks that mpirun starts on this host report."""
        return self.run / "ranks.sock"

    @property
    def marks(self) -> Path:
        """The socket where scripts tell the monitor of their steps."""
        return self.run / "marks.sock"

    @property
    def public_keys(self) -> Path:
        """What hosts make known to one another, one file per kind (public keys)."""
        return self.run / "public_keys"

    @property
    def ssh(self) -> Path:
        return self.run / "ssh"


class Program(Value):
    """The user's program: a file name in the code folder, and where the code comes from."""

    name: str
    source: str  # s3:// URI, folder or archive; the code folder itself if the code is there already
    arguments: tuple[str, ...]


class Job(Value):
    """Everything the plan is made from."""

    name: str = ""  # that SageMaker, or whoever started it, has given it
    mode: Mode
    cluster: Cluster
    program: Program
    paths: Paths
    settings: Settings
    processes_per_host: int
    mpi_options: tuple[str, ...] = ()
    open_mpi: int = ORTE  # or PRRTE: what mpirun starts ranks with on other hosts
    smdistributed: bool = False  # the script is for SageMaker's data-parallel library
    evaluator: str = ""  # the host that runs one
    channels: Channels = fresh(Channels)
    warnings: tuple[str, ...] = ()
    # As SageMaker gave them, for the environment of the user's script.
    resource_config: dict[str, Any]
    input_data_config: dict[str, Any]
    hyperparameters: dict[str, Any]
