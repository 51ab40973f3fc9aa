"""Define the lines of a record: a type for each kind. The table of README.md is made from these types."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from entrypoint.record.line import MOST_NUMBER, Line, Part, made, number, plainly

# Metrics that count or time something must be finite. Others, such as a loss, may be NaN or infinite, and are shown so.
COUNTS = {
    "step", "epoch", "epochs", "epoch_step", "epoch_steps", "steps_per_second", "step_seconds",
    "max_steps", "total_steps", "train_steps", "num_steps", "steps",
}  # fmt: skip


# --- the job and its host ---


class Limits(Part):
    """Limits of the job."""

    stop: float = 0.0  # seconds from SIGTERM to SIGKILL


class Channel(Part):
    """An input channel."""

    mode: str = ""  # File, Pipe or FastFile
    distribution: str = ""  # FullyReplicated or ShardedByS3Key
    files: int | None = None
    bytes: int | None = None
    more: bool | None = None  # true if not all files were counted


class About(Line, kind="host", positional=0):
    """Describe the host and its job; later lines add what takes longer to find out, or replace it."""

    version: int | None = None  # of the format: 1
    host: str | None = None
    rank: int | None = None
    hosts: Sequence[str] | None = None  # all, in rank order
    coordinator: str | None = None
    job: str | None = None  # its name
    mode: str | None = None
    instance_type: str | None = None
    cpus: float | None = None
    gpus: int | None = None
    interval: float | None = None  # seconds between two samples
    limits: Limits | None = None
    price: float | None = None  # ENTRYPOINT_PRICE, if it is set
    rules: str | None = None  # ENTRYPOINT_RULES, if it is set
    memory_limit: int | None = None  # bytes
    disk_size: int | None = None  # bytes where models go
    channels: Mapping[str, Channel] | None = None

    def updated(self, later: "About") -> "About":
        """Return these facts, with those of a later line."""
        new = {name: value for name in self.fields[1:] if (value := getattr(later, name)) is not None}
        return type(self)(**{**self.__dict__, **new})


class Described(Line, kind="described", positional=0):
    """Hold the job's request, as far as the same plan can be made of it: secrets masked, long values left out."""

    base: str  # the folder of SageMaker's files
    resourceconfig: Mapping[str, Any]
    inputdataconfig: Mapping[str, Any]
    hyperparameters: Mapping[str, Any]
    environment: Mapping[str, Any]
    open_mpi: int  # major version


class Call(Part):
    """One call of the policy, as launcher/policy/history.py records it. Times are the loop's clock."""

    number: int = 0  # 1 for the first call
    began: float = 0.0  # when the policy was made
    at: float = 0.0
    events: Sequence[Any] = ()  # [name, fields] of each
    actions: Sequence[Any] = ()  # names, with as much as two actions are compared by
    quiet: Sequence[Any] = ()  # [at, [event, ...]] of the calls before that had no consequence
    dropped: int = 0  # such calls that were not kept


class Decided(Line, kind="decided", positional=1):
    """Record one call of the policy, for the replay."""

    call: Call


class Started(Line, kind="process", positional=1):
    """Note that a process was started."""

    process: str  # its name, such as worker/1 or rank 3
    pid: int = 0
    role: str = ""  # as in launcher/plan/plan.py
    task: str = ""


class Ended(Line, kind="ended"):
    """Note that a process has ended."""

    process: str
    how: str  # such as "exit code 0"


class PhaseBegan(Line, kind="phase"):
    """Note the host's phase."""

    phase: str  # as in launcher/policy/phase.py


class Logged(Line, kind="said"):
    """Keep a line that the launcher has logged."""

    text: str


class Reason(Part):
    """Why a job failed or was stopped."""

    host: str = ""
    process: str = ""
    what: str = ""
    error: str = ""


class JobEnded(Line, kind="outcome", positional=0):
    """Note how the job ended."""

    kind: str  # succeeded, failed or stopped
    exit_code: int = 0
    cause: Reason | None
    there: Sequence[
        str
    ] = ()  # hosts whose last records are due, as they left in good order; on a follower, the coordinator


# --- what the host and its processes use ---


# The parts of a sample stay JSON's objects and arrays, since records have more samples than all other lines: to make
# values of them takes the report 40 % longer.


class HostUse(TypedDict, total=False):
    """What a host used; a figure that could not be read is left out."""

    cpu: Sequence[float]  # [user, system, waiting for disks, stolen, throttled] seconds
    memory: Sequence[int]  # [anonymous, page cache, what counts against the limit] bytes
    oom: int  # processes that the kernel killed for memory, if any
    disk: Sequence[int]  # [read, written] bytes
    net: Sequence[int]  # [received, sent] bytes
    free: int  # bytes left where models go
    gpus: Sequence[Sequence[float]]  # [busy 0 to 1, bytes used, of, watts, memory's activity 0 to 1] of each
    fifos: Mapping[str, Sequence[int]]  # by channel: [bytes waiting, capacity]
    unseen: bool  # true if `peers` may lack some bytes


class ProcessUse(TypedDict, total=False):
    """What a process and its descendants used; zeros are left out."""

    cpu: float  # seconds
    threads: int
    memory: int  # bytes
    wait: float  # seconds for disks
    read: int  # bytes
    written: int  # bytes
    stored: int  # bytes to and from disks
    output: int  # bytes printed


class Sample(Line, kind="sample"):
    """Measure what was used in the `seconds` before this time."""

    seconds: float
    host: HostUse
    processes: Mapping[str, ProcessUse]
    peers: Mapping[str, Sequence[int]]  # by host: [received, sent] bytes between training processes here and there

    @classmethod
    def of(cls, at: float, values: Sequence[Any]) -> "Line":
        seconds, host, processes, *more = values
        peers = more[0] if more else {}
        for figure in (*host.values(), *peers.values()):
            _check(figure)
        for figures in processes.values():
            if not -MOST_NUMBER < sum(figures.values()) < MOST_NUMBER:
                raise ValueError(f"{figures!r}: no numbers")
        return made(cls, {"at": at, "seconds": number(seconds), "host": host, "processes": processes, "peers": peers})


def _check(figure: Any) -> None:
    """Raise one of WRONG if this is no number, nor an array or object of such. Adding is faster than a look at each."""
    if type(figure) is dict:
        figure = list(figure.values())
    if type(figure) is list:
        if figure and type(figure[0]) is list:
            for each in figure:
                _check(each)
            return
        figure = sum(figure)
    if not -MOST_NUMBER < figure < MOST_NUMBER:
        raise ValueError(f"{figure!r} is no number")


# --- what programs report and print ---


class Metrics(Line, kind="metric"):
    """Hold the last value of each metric of a process since the last sample; a loss may be NaN or infinite."""

    process: str
    values: Mapping[str, float]

    @classmethod
    def of(cls, at: float, values: Sequence[Any]) -> "Line":
        process, found, *_ = values
        for name, value in found.items():
            if not is_value(name, value):
                raise ValueError(f"{name} is {value!r}")
        return made(cls, {"at": at, "process": plainly(str, process), "values": found})


def is_value(name: str, value: Any) -> bool:
    """Return whether a metric of this name may have this value."""
    if type(value) is float:
        return -MOST_NUMBER < value < MOST_NUMBER or name not in COUNTS
    return type(value) is int and -MOST_NUMBER < value < MOST_NUMBER


class Mark(Line, kind="mark", positional=1):
    """Sum up messages of a process's script since the last sample."""

    process: str
    what: str  # such as data_wait, step or checkpoint
    seconds: float = 0.0  # in all
    times: int = 1  # messages


class WeightSums(Line, kind="weights"):
    """Hold sums of a process's trained weights, which are NaN if the training has diverged."""

    process: str
    step: int
    norm: float
    total: float

    @classmethod
    def of(cls, at: float, values: Sequence[Any]) -> "Line":
        process, step, norm, total, *_ = values
        if not (type(norm) in (int, float) and type(total) in (int, float)):
            raise ValueError("no weights")
        return cls(at=at, process=plainly(str, process), step=int(number(step)), norm=norm, total=total)


class ModelSeen(Line, kind="model"):
    """Describe what a process trains, and what Horovod reduces."""

    process: str
    model: Mapping[str, Any]  # fields of observe/monitor/model.py:Model


class LastLines(Line, kind="lines"):
    """Keep a process's last lines of output: at its end, and while the live page is open."""

    process: str
    lines: Sequence[str]


# --- signs of a hang ---


class Still(NamedTuple):
    """A process without progress, and what it used per second meanwhile."""

    seconds: float  # without a sign of progress
    cpus: float = 0.0
    waiters: float = 0.0  # part of `cpus` used by threads that only wait busily
    main: float = 0.0  # part of `cpus` used by the main thread
    ran: float = 0.0  # part of `main` in which it ran, and did not wait for a CPU
    wakes: float = 0.0  # how often the main thread went to sleep


class Silent(Line, kind="still"):
    """Name the processes that show no progress; none if there is progress again."""

    processes: Mapping[str, Still]


class Stalled(Line, kind="stalled"):
    """Keep a stall warning of Horovod in the output of a rank of this host."""

    ranks: Sequence[int]  # that it reports missing
    words: str = ""


class Stacks(Line, kind="stacks", positional=1):
    """Tell where a process stands."""

    process: str
    by: str = ""  # the tool
    place: str = ""
    inside: str = ""
    doing: str = ""  # a value of Doing in observe/monitor/wait_sites.py
    text: str = ""
