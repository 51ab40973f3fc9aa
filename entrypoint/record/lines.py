"""Define the lines of a record: a type for each kind. README.md has a table of them, which is made from these types.

A line is a JSON array: its kind, which is the name of its type; its time; and the values of its type's fields.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from entrypoint.base.values import Value, fresh, replace

WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
MOST_NUMBER = 1e20  # the most in an honest line; file systems without a limit report 8 EiB
# Metrics that count or time something must be finite. Others, such as a loss, may be NaN or infinite, and are shown so.
COUNTS = {
    "step", "epoch", "epochs", "epoch_step", "epoch_steps", "steps_per_second", "step_seconds",
    "max_steps", "total_steps", "train_steps", "num_steps", "steps",
}  # fmt: skip
KINDS: dict[str, type["Line"]] = {}


def number(value: Any) -> float:
    """Return a finite number of a sane size as it is; raise ValueError for anything else."""
    if type(value) in (int, float) and -MOST_NUMBER < value < MOST_NUMBER:
        return value  # type: ignore[no-any-return]
    raise ValueError(f"{value!r} is no number")


def is_value(name: str, value: Any) -> bool:
    """Return whether a metric of this name may have this value."""
    if type(value) is float:
        return -MOST_NUMBER < value < MOST_NUMBER or name not in COUNTS
    return type(value) is int and -MOST_NUMBER < value < MOST_NUMBER


class Line(Value):
    """A line of a record; one of a kind that this version does not know has its time only.

    `positional`: the fields in the array itself; one object after them has the others, `named`. A field whose default
    is None is left out while it is None.
    """

    KIND: ClassVar[str] = ""
    positional: ClassVar[tuple[str, ...]] = ()
    named: ClassVar[tuple[str, ...]] = ()
    at: float = fresh(time.time)  # seconds since the epoch by the host's clock

    def __init_subclass__(cls, positional: int = 99) -> None:
        """Register a type of lines."""
        super().__init_subclass__()
        cls.KIND, cls.positional, cls.named = (
            cls.__name__.lower(),
            cls.fields[1:][:positional],
            cls.fields[1:][positional:],
        )
        KINDS[cls.KIND] = cls

    def to_json(self) -> bytes:
        """Return the line as it stands in a record."""
        known, defaults = self.__dict__, self.defaults
        array = [self.KIND, round(self.at, 3), *[known[name] for name in self.positional]]
        if self.named:
            array.append({k: known[k] for k in self.named if known[k] is not None or defaults.get(k, "") is not None})
        return _encoded(array).encode()


_encoded = json.JSONEncoder(separators=(",", ":")).encode


def line_of(found: Any) -> Line:
    """Return the line of a parsed array; raise one of WRONG if it is malformed."""
    kind, at, *values = found
    of = KINDS.get(kind, Line)
    line = object.__new__(of)
    known = line.__dict__
    known.update(of.defaults)
    known["at"] = number(at)
    known.update(zip(of.positional, values, strict=False))
    if of.named:
        known.update({name: value for name, value in values[len(of.positional)].items() if name in of.named})
    for name, check in _checks(of):  # type: ignore[arg-type]
        if not check(known[name]):
            raise ValueError(f"{kind}: {name} is {known[name]!r}")
    return line


@cache
def _checks(of: type[Line]) -> list[tuple[str, Callable[[Any], bool]]]:
    hints = get_type_hints(of, include_extras=True)
    return [(name, _check(hints[name])) for name in of.fields[1:]]


def _check(kind: Any) -> Callable[[Any], bool]:
    """Return the function that tells whether a value of JSON is of this type; it may raise one of WRONG instead."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return kind.__metadata__[0]  # type: ignore[no-any-return]
    if origin is UnionType:  # a type or None
        check = _check(inner[0])
        return lambda value: value is None or check(value)
    if origin is Mapping:
        check = _check(Sequence[inner[1]])  # type: ignore[valid-type]
        return lambda value: check(list(value.values()))
    if origin is Sequence:
        check = _check(inner[0])
        if inner[0] in (int, float):  # adding is faster than a look at each
            return lambda value: type(value) in (list, tuple) and sum(map(abs, value)) < MOST_NUMBER
        return lambda value: type(value) in (list, tuple) and all(map(check, value))
    if is_typeddict(kind):
        of = {name: _check(hint) for name, hint in get_type_hints(kind).items()}
        return lambda value: all(of[name](each) for name, each in value.items() if name in of)
    if kind in (int, float):
        return lambda value: type(value) in (int, float) and -MOST_NUMBER < value < MOST_NUMBER
    return lambda value: kind is Any or type(value) is kind


# --- the job and its host ---


class Channel(TypedDict, total=False):  # an input channel
    mode: str  # File, Pipe or FastFile
    distribution: str  # FullyReplicated or ShardedByS3Key
    files: int
    bytes: int
    more: bool  # true if not all files were counted


class Host(Line, positional=0):  # the host and its job; later lines add what takes longer to find out, or replace it
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
    limits: Mapping[str, float] | None = None  # `stop`: seconds from SIGTERM to SIGKILL
    price: float | None = None  # ENTRYPOINT_PRICE, if it is set
    rules: str | None = None  # ENTRYPOINT_RULES, if it is set
    memory_limit: int | None = None  # bytes
    disk_size: int | None = None  # bytes where models go
    channels: Mapping[str, Channel] | None = None

    def updated(self, later: "Host") -> "Host":
        """Return these facts, with those of a later line."""
        return replace(self, **{name: value for name in self.named if (value := getattr(later, name)) is not None})


class Described(Line, positional=0):  # the job's request, to make the same plan: secrets masked, long values left out
    base: str  # the folder of SageMaker's files
    resourceconfig: Mapping[str, Any]
    inputdataconfig: Mapping[str, Any]
    hyperparameters: Mapping[str, Any]
    environment: Mapping[str, Any]
    open_mpi: int  # major version


class Call(TypedDict):  # one call of the policy, by launcher/policy/history.py; times are the loop's clock
    number: int  # 1 for the first
    began: float  # when the policy was made
    at: float
    events: Sequence[Any]  # [name, fields] of each
    actions: Sequence[Any]  # of each its name, and as much as two actions are compared by
    quiet: Sequence[Any]  # calls before without consequence: [at, [event, ...]]; see history.py
    dropped: int  # how many such calls were not kept


class Decided(Line):  # a call of the policy that had consequences
    call: Call


class Process(Line, positional=1):  # a process was started
    process: str  # its name, such as worker/1 or rank 3
    pid: int = 0
    role: str = ""  # as in launcher/plan/plan.py
    task: str = ""


class Ended(Line):  # a process has ended
    process: str
    how: str  # such as "exit code 0"


class Phase(Line):  # the host's phase has changed
    phase: str  # as in launcher/policy/phase.py


class Said(Line):  # the launcher has logged a line
    text: str


class Outcome(Line, positional=0):  # how the job ended
    kind: str  # succeeded, failed or stopped
    exit_code: int
    cause: Mapping[str, str] | None  # `host`, `process`, `what` and `error`
    there: Sequence[str] = ()  # hosts whose last records are due, as they left in good order; a follower's coordinator


LIVES = (Process, Ended, Phase, Outcome)  # lines that a restarted monitor needs; its launcher may send them twice


# --- what the host and its processes use ---


class HostUse(TypedDict, total=False):  # what a host used; a figure that could not be read is left out
    cpu: Sequence[float]  # [user, system, waiting for disks, stolen, throttled] seconds
    memory: Sequence[int]  # [anonymous, page cache, what counts against the limit] bytes
    oom: int  # processes that the kernel killed for memory, if any
    disk: Sequence[int]  # [read, written] bytes
    net: Sequence[int]  # [received, sent] bytes
    free: int  # bytes left where models go
    gpus: Sequence[Sequence[float]]  # [busy 0 to 1, bytes used, of, watts, memory's activity 0 to 1] of each
    fifos: Mapping[str, Sequence[int]]  # by channel: [bytes waiting, capacity]
    unseen: bool  # true if `peers` may lack some bytes


class Sample(Line):  # what was used in the `seconds` before this time
    seconds: float
    host: HostUse
    # Of each: `cpu` and `wait` for disks in seconds, `threads`; bytes of `memory`, `read`, `written`, `stored` (to and
    # from disks), `output` (printed). Zeros are left out.
    processes: Mapping[str, Mapping[str, float]]
    peers: Mapping[str, Sequence[int]]  # by host: [received, sent] bytes between training processes here and there


# --- what programs report and print ---


class Metric(Line):  # the last value of each metric of a process since the last sample
    process: str
    values: Annotated[Mapping[str, float], lambda found: all(is_value(*each) for each in found.items())]


class Mark(Line, positional=1):  # messages of a process's script since the last sample
    process: str
    what: str  # such as data_wait, step or checkpoint
    seconds: float = 0.0  # in all
    times: int = 1  # messages


_Sum = Annotated[float, lambda value: type(value) in (int, float)]  # NaN if a training has diverged


class Weights(Line):  # sums of a process's trained weights
    process: str
    step: int
    norm: _Sum
    total: _Sum


class Model(Line):  # what a process trains, and what Horovod reduces
    process: str
    model: Mapping[str, Any]  # fields of observe/monitor/model.py:Model


class Lines(Line):  # a process's last lines of output: at its end, and while the live page is open
    process: str
    lines: Sequence[str]


# --- signs of a hang ---


class Silent(NamedTuple):  # a process without progress, and what it used per second meanwhile
    seconds: float  # without a sign of progress
    cpus: float = 0.0
    waiters: float = 0.0  # part of `cpus` used by threads that only wait busily
    main: float = 0.0  # part of `cpus` used by the main thread
    ran: float = 0.0  # part of `main` in which it ran, and did not wait for a CPU
    wakes: float = 0.0  # how often the main thread went to sleep


class Still(Line):  # the processes that show no progress; none if there is progress again
    figures: Mapping[str, Sequence[float]]

    @property
    def processes(self) -> dict[str, Silent]:
        return {name: Silent(*figures[:6]) for name, figures in self.figures.items()}


class Stalled(Line):  # a stall warning of Horovod in the output of a rank of this host
    ranks: Sequence[int]  # that it reports missing
    words: str = ""


class Stacks(Line, positional=1):  # where a process stands
    process: str
    by: str = ""  # the tool
    place: str = ""
    inside: str = ""
    doing: str = ""  # a value of Doing in observe/monitor/wait_sites.py
    text: str = ""
