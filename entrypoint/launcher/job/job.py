"""Hold the job as the user described it. Later steps read no file and no variable."""

from functools import cached_property
from pathlib import Path
from typing import Any

from entrypoint.base.values import Value, fresh
from entrypoint.launcher.job.channels import Channels
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.cluster import Cluster
from entrypoint.launcher.job.open_mpi import ORTE
from entrypoint.launcher.job.settings import Settings

MARKS = "ENTRYPOINT_MARKS"  # environment variable: the socket where a script's library reports its steps to the monitor


class Below:
    """Name a file or folder of a Tree by one of its folders and the rest of the path."""

    def __init__(self, folder: str, rest: str) -> None:
        self._folder, self._rest = folder, rest

    def __get__(self, tree: "Tree", _: type) -> Path:
        folder: Path = getattr(tree, self._folder)
        return folder / self._rest


class Tree(Value):
    """Name the files that SageMaker mounts below `base`: /opt/ml, unless SAGEMAKER_BASE_DIR names another folder."""

    base: Path

    config = Below("base", "input/config")
    input_data = Below("base", "input/data")
    model = Below("base", "model")
    output = Below("base", "output")
    failure = Below("output", "failure")
    success = Below("output", "success")
    records = Below("data", "record")  # of the monitor; on the coordinator it holds those of all hosts
    report = Below("data", "report.html")  # the page that is made from the records

    @cached_property  # cached, since each of thousands of ranks uses it
    def code(self) -> Path:
        return self.base / "code"

    @property
    def data(self) -> Path:
        """Return the folder for files that are kept beside the model."""
        return self.output / "data"

    def evidence(self, host: str) -> Path:
        """Return a host's evidence file, named for it: SageMaker packs the data of all hosts into one archive."""
        return self.data / f"entrypoint-{host}.txt"


class Paths(Tree):
    """Name the files of SageMaker's tree and the launcher's own files of this run."""

    run: Path  # folder for sockets and keys; never uploaded
    # They replace the tree's folders where this user cannot write to those.
    other_code: Path | None = None
    other_data: Path | None = None

    prepared = Below("run", "prepared.json")  # the result of the prepare step
    ranks = Below("run", "ranks.sock")  # where the ranks that mpirun starts on this host report
    marks = Below("run", "marks.sock")  # where scripts report their steps to the monitor
    public_keys = Below("run", "public_keys")  # a folder with those of all hosts, one file per kind of key
    ssh = Below("run", "ssh")

    @cached_property
    def code(self) -> Path:
        return self.other_code or self.base / "code"

    @property
    def data(self) -> Path:
        return self.other_data or self.output / "data"


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
