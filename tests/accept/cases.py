"""List the cases of the acceptance run: the training job of each, and its expected result.

A case's `program` is in `programs/`, or one of the tests' own programs (`SHARED`). Channel `code` of each job has
all programs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
OWN = Path(__file__).resolve().parent / "programs"
SHARED = (
    TESTS / "cluster" / "programs" / "cell.py",
    TESTS / "programs" / "jax_cell.py",
    TESTS / "programs" / "saves.py",
    TESTS / "cluster" / "programs" / "raises.py",
    TESTS / "programs" / "mpi_sum.py",
)
JAX_MISSING = r"mode jax|jax is not"  # in the failure of an image without jax


@dataclass(frozen=True)
class Expected:
    """The expected result of a job. All texts are regular expressions.

    `reason`: in FailureReason. `says`: each in the log; `never`: not in the log. `model`, `output`: names of files in
    model.tar.gz and output.tar.gz. `metrics`: names in FinalMetricDataList. `together_s`: the hosts' last lines
    are at most so many seconds apart.
    """

    status: str = "Completed"
    secondary: str = ""
    reason: str = ""
    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    together_s: float = 0.0


@dataclass(frozen=True)
class Channel:
    """A channel of numbered records, below the run's prefix in S3."""

    name: str
    mode: str
    sharded: bool = False


@dataclass(frozen=True)
class Case:
    """A training job on two hosts.

    `max_run`: MaxRuntimeInSeconds, which also bounds the cost. `stop_at`: StopTrainingJob is called when the log has
    this text. `after`: the case that must have ended. `bare`: the container runs `program` without our launcher.
    `code`: the folder in S3 that becomes the channel `code`. `sdk`: "v2" or "v3" submits the job. `optional`: this text
    in the failure means that the image lacks a package that the case needs. `only_with`: the option of the command
    that adds the case.
    """

    name: str
    shows: str
    program: str
    mode: str = "single"
    arguments: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    expected: Expected = Expected()
    channels: tuple[Channel, ...] = ()
    code: str = "code"
    max_run: int = 900
    stop_at: str = ""
    after: str = ""
    bare: bool = False
    spot: bool = False
    checkpoints: bool = False
    keep_alive: int = 0
    sdk: str = ""
    optional: str = ""
    only_with: str = ""

    hosts = 2


def trained(*says: str, **others: tuple[str, ...]) -> Expected:
    """Return the expected result of a job that learns the three weights."""
    learned = r'"weights": \[(1\.0\d?|0\.9\d), (2\.0\d?|1\.9\d), (3\.0\d?|2\.9\d)\]'
    return Expected(says=(learned, *says), **others)


def cell(name: str, shows: str, mode: str, way: str, **environment: str) -> Case:
    """Return a case that trains three weights in a mode."""
    return Case(name, shows, "cell.py", mode, {"api": "loop", "way": way}, environment, trained())


TWO_RANKS = {"ENTRYPOINT_PROCESSES_PER_HOST": "2"}
REPORT = r"report.*\.html$"
DATA = (
    Channel("whole", "File"),
    Channel("fast", "FastFile", sharded=True),
    Channel("piped", "Pipe", sharded=True),
)
RECORDS = (13, 7, 1, 20, 6)  # in the objects of each channel, so that nothing comes out even
DIGITS = r"test accuracy=0\.9\d|test accuracy=1\.0"

CASES = (
    Case(
        "single",
        "every host trains for itself; report, model, output and metrics arrive",
        "facts.py",
        expected=Expected(
            says=("accept-fact", "accuracy=0.5"),
            model=(r"from-algo-1\.txt", r"from-algo-2\.txt"),
            output=(r"from-algo-1\.txt", r"from-algo-2\.txt", REPORT),
            metrics=("accuracy",),
        ),
    ),
    cell("ps-script", "parameter servers, the script on every host", "ps", "ps_script"),
    cell(
        "ps-server",
        "parameter servers, the script on the chief only",
        "ps",
        "ps_server",
        ENTRYPOINT_PS_WORKERS="server",
    ),
    cell("mwms", "MultiWorkerMirroredStrategy", "mwms", "mwms"),
    cell("mpi-2x1", "Horovod, one rank on each host", "mpi", "horovod"),
    cell("mpi-2x2", "Horovod, two ranks on each host", "mpi", "horovod", **TWO_RANKS),
    Case(
        "jax",
        "mode jax, if the image has JAX",
        "jax_cell.py",
        "jax",
        {"api": "jit"},
        expected=trained(),
        optional=JAX_MISSING,
    ),
    Case(
        "raises",
        "a script raises on the second host: FailureReason names it, both hosts end together",
        "raises.py",
        "mwms",
        {"on": "algo-2"},
        expected=Expected("Failed", reason=r"algo-2.*row 17 of algo-2 has no label", together_s=30),
    ),
    Case(
        "killed",
        "a rank is killed: FailureReason names rank and signal",
        "mpi_sum.py",
        "mpi",
        {"kill": "1"},
        expected=Expected("Failed", reason=r"rank 1.*(SIGKILL|killed)", together_s=30),
    ),
    Case(
        "stopped",
        "StopTrainingJob: every host saves within the grace period",
        "saves.py",
        stop_at="asleep",
        expected=Expected("Stopped", says=("saved",), model=("saved-algo-1", "saved-algo-2")),
    ),
    Case(
        "max-runtime",
        "the end of MaxRuntimeInSeconds: every host saves within the grace period",
        "saves.py",
        max_run=300,
        expected=Expected("Stopped", "MaxRuntimeExceeded", says=("saved",), model=("saved-algo-1", "saved-algo-2")),
    ),
    Case(
        "requirement",
        "a requirement that does not exist: FailureReason names it",
        "facts.py",
        code="code-with-requirement",
        expected=Expected("Failed", reason="no-such-package-of-accept", never=("accept-fact",), together_s=60),
    ),
    Case(
        "spot",
        "managed spot instances with checkpoints",
        "resumes.py",
        arguments={"steps": "600"},
        stop_at="step 5 is saved",
        spot=True,
        checkpoints=True,
        expected=Expected("Stopped", says=("begins at step 0",)),
    ),
    Case(
        "spot-resumed",
        "a second job resumes from the first one's checkpoints, which are in S3",
        "resumes.py",
        arguments={"steps": "20"},
        after="spot",
        spot=True,
        checkpoints=True,
        expected=Expected(says=(r"begins at step [1-9]", "ends at step"), never=("begins at step 0$",)),
    ),
    Case(
        "channels",
        "File, FastFile and Pipe channels, the last two sharded by key: each record is read once in each pass",
        "reads.py",
        "mpi",
        {"names": ",".join(each.name for each in DATA)},
        channels=DATA,
        expected=Expected(says=("accept-numbers",)),
    ),
    Case(
        "warm",
        "a job keeps its machines, and fills their cache",
        "warm.py",
        keep_alive=900,
        expected=Expected(says=("the cache has 0 files",)),
    ),
    Case(
        "warm-again",
        "the next job finds the machines and their cache",
        "warm.py",
        after="warm",
        keep_alive=60,
        expected=Expected(says=("the cache has 1 files",), never=("the cache has 0 files",)),
    ),
    Case("sdk-v2", "SageMaker's SDK v2 submits the job", "", "mwms", sdk="v2", expected=Expected(says=(DIGITS,))),
    Case("sdk-v3", "SageMaker's SDK v3 submits the job", "", "mwms", sdk="v3", expected=Expected(says=(DIGITS,))),
    Case(
        "peer-fails",
        "without our launcher: what happens to a host when the other fails",
        "bare.py",
        arguments={"leaves": "algo-2", "code": "1"},
        bare=True,
        expected=Expected("Failed", says=("accept-alive",)),
    ),
    Case(
        "peer-ends",
        "without our launcher: what happens to a host when the other ends with 0",
        "bare.py",
        arguments={"leaves": "algo-2", "code": "0"},
        bare=True,
        expected=Expected(says=("accept-alive",)),
    ),
    Case(
        "grace",
        "without our launcher: the seconds from SIGTERM to SIGKILL",
        "bare.py",
        bare=True,
        max_run=600,
        stop_at="accept-alive 5 ",
        expected=Expected("Stopped", says=("accept-since-sigterm",)),
    ),
    replace(cell("gpu-mpi", "Horovod on GPUs, a rank on each", "mpi", "horovod"), only_with="gpu"),
    replace(cell("gpu-mwms", "MultiWorkerMirroredStrategy on GPUs", "mwms", "mwms"), only_with="gpu"),
    replace(
        cell("efa-mpi", "Horovod on GPUs over EFA", "mpi", "horovod", NCCL_DEBUG="INFO"),
        expected=trained(r"(?i)NET/OFI.*efa|Using network.*(OFI|Libfabric)"),
        only_with="efa",
    ),
)


def chosen(names: Sequence[str], sdks: Sequence[str], options: Sequence[str]) -> tuple[list[Case], list[str]]:
    """Return the cases to run, and a line for each omitted one. Raise ValueError for an unknown name."""
    known = {case.name: case for case in CASES}
    for name in names:
        if name not in known:
            raise ValueError(f"found the case {name!r}; wanted some of {', '.join(known)}")
    wanted = set(names) | {known[name].after for name in names} if names else set(known)
    cases, left_out = [], []
    for case in CASES:
        if case.name not in wanted:
            continue
        if case.only_with and case.only_with not in options:
            left_out.append(f"{case.name}: wanted --{case.only_with} TYPE")
        elif case.sdk and case.sdk not in sdks:
            left_out.append(f"{case.name}: found no SDK {case.sdk}; wanted --sdk-python PYTHON, one that has it")
        else:
            cases.append(case)
    return cases, left_out
