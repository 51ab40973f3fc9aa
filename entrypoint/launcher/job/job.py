"""Hold the job as a finished value: what the user asked for. Later steps read no file and no variable."""

from functools import cached_property
from pathlib import Path
from typing import Any

from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value, fresh
from entrypoint.launcher.job.channels import Channels
from entrypoint.launcher.job.cluster import Cluster
from entrypoint.launcher.job.open_mpi import ORTE
from entrypoint.launcher.job.settings import Settings

MARKS = "ENTRYPOINT_MARKS"  # environment variable: the socket where a script's library reports its steps to the monitor


class Mode(StrEnum):
    """Name how the work is spread over the hosts."""

    SINGLE = "single"  # the script on every host, nothing shared
    PS = "ps"  # TensorFlow parameter servers, a chief and workers
    MWMS = "mwms"  # MultiWorkerMirroredStrategy
    MPI = "mpi"  # mpirun and Horovod
    JAX = "jax"  # jax.distributed, for JAX, Flax and Keras 3 with the JAX backend


class Tree(Value):
    """Name the files that SageMaker mounts below `base`: /opt/ml, unless SAGEMAKER_BASE_DIR names another folder."""

    base: Path

    @property
    def config(self) -> Path:
        return self.base / "input" / "config"

    @cached_property  # cached, since each of thousands of ranks uses it
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
        """Return the folder for what is kept beside the model."""
        return self.output / "data"

    def evidence(self, host: str) -> Path:
        """Return a host's evidence file, named for it: SageMaker packs the data of all hosts into one archive."""
        return self.data / f"entrypoint-{host}.txt"

    @property
    def records(self) -> Path:
        """Return the folder for the monitor's records; on the coordinator it holds those of all hosts."""
        return self.data / "record"

    @property
    def report(self) -> Path:
        """Return the file of the page that is made from the records."""
        return self.data / "report.html"


class Paths(Tree):
    """Name the files of SageMaker's tree and the launcher's own files of this run."""

    run: Path  # folder for sockets and keys; never uploaded
    # They replace the tree's folders where this user cannot write to those.
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
        """Return the socket where the ranks that mpirun starts on this host report."""
        return self.run / "ranks.sock"

    @property
    def marks(self) -> Path:
        """Return the socket where scripts report their steps to the monitor."""
        return self.run / "marks.sock"

    @property
    def public_keys(self) -> Path:
        """Return the folder of the public keys of all hosts, one file per kind of key."""
        return self.run / "public_keys"

    @property
    def ssh(self) -> Path:
        return self.run / "ssh"


class Program(Value):
    """Name the user's program: a file in the code folder, and where the code comes from."""

    name: str
    source: str  # s3:// URI, folder or archive; the code folder itself if the code is in it already
    arguments: tuple[str, ...]


class Job(Value):
    """Hold everything that the plan is made from."""

    name: str = ""  # given by SageMaker, or by whoever started the job
    mode: Mode
    cluster: Cluster
    program: Program
    paths: Paths
    settings: Settings
    processes_per_host: int
    mpi_options: tuple[str, ...] = ()
    open_mpi: int = ORTE  # ORTE or PRRTE: what mpirun starts ranks on other hosts with
    smdistributed: bool = False  # the script is for SageMaker's data-parallel library
    evaluator: str = ""  # the host that runs an evaluator
    channels: Channels = fresh(Channels)
    warnings: tuple[str, ...] = ()
    # As SageMaker gave them; for the environment of the user's script.
    resource_config: dict[str, Any]
    input_data_config: dict[str, Any]
    hyperparameters: dict[str, Any]
