"""Define the lines of a record: a type for each kind. README.md has a table of them, which is made from these types.

A line is a JSON array: its kind, which is the name of its type (without `Line`); its time; and the values of its
type's fields.
"""

import json
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, ClassVar, TypedDict, get_args, get_origin, get_type_hints, is_typeddict

from entrypoint.base.values import Value, fresh, replace
from entrypoint.base.wording import blamed

WRONG = (ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
MOST_NUMBER = 1e20  # the most in an honest line; file systems without a limit report 8 EiB
# Metrics that count or time something must be finite. Others, such as a loss, may be NaN or infinite, and are shown so.
COUNTS = {
    "step", "epoch", "epochs", "epoch_step", "epoch_steps", "steps_per_second", "step_seconds",
    "max_steps", "total_steps", "train_steps", "num_steps", "steps",
}  # fmt: skip
ALIVE_SECONDS = 60.0  # seconds after the last line of a job's records, in which it may still run
KINDS: dict[str, type["Line"]] = {}
ZERO = time.time() - time.monotonic()  # the zero of `now`, in seconds since the epoch


def now() -> float:
    """Return seconds since the epoch: the wall clock's when ZERO was set, plus the monotonic clock's since then.

    Differences of two such times are durations, even if the wall clock is set in between.
    """
    return ZERO + time.monotonic()


def set_zero(zero: float | None = None) -> None:
    """Set ZERO to the value of another process of this host, or by the wall clock as it is now."""
    global ZERO
    ZERO = time.time() - time.monotonic() if zero is None else zero


def number(value: Any) -> float:
    """Return a value that is a finite number of a sane size; raise ValueError for any other."""
    if type(value) in (int, float) and -MOST_NUMBER < value < MOST_NUMBER:
        return value  # type: ignore[no-any-return]
    raise ValueError(f"{value!r} is no number")


def is_value(name: str, value: Any) -> bool:
    """Return whether a metric of this name may have this value."""
    if type(value) is float:
        return -MOST_NUMBER < value < MOST_NUMBER or name not in COUNTS
    return type(value) is int and -MOST_NUMBER < value < MOST_NUMBER


class Line(Value):
    """Hold a line of a record. A line of a kind that this version does not know has its time only.

    `positional`: the fields in the array itself; one object after them has the others, `named`. A field whose default
    is None is left out while it is None.
    """

    KIND: ClassVar[str] = ""
    positional: ClassVar[tuple[str, ...]] = ("at",)
    named: ClassVar[tuple[str, ...]] = ()
    at: float = fresh(now)  # seconds since the epoch by the host's clock, as its launcher found it

    def __init_subclass__(cls, positional: int = 99) -> None:
        super().__init_subclass__()
        cls.KIND = cls.__name__.removesuffix("Line").lower()
        cls.positional, cls.named = cls.fields[: positional + 1], cls.fields[positional + 1 :]
        KINDS[cls.KIND] = cls

    def to_json(self) -> bytes:
        known, named = self.__dict__, self.named
        array: list[Any] = [self.KIND, *map(known.get, self.positional)]
        array[1] = round(array[1], 3)
        if named:
            array.append({k: known[k] for k in named if known[k] is not None or self.defaults.get(k, "") is not None})
        return _encoded(array).encode()


_encoded = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def line_of(found: Any) -> Line:
    """Return the line of a parsed array; raise one of WRONG if it is malformed."""
    of = KINDS.get(found[0], Line)
    line = object.__new__(of)
    known = line.__dict__
    known.update(of.defaults)
    known.update(zip(of.positional, found[1:], strict=False))
    if of.named:
        known.update({name: value for name, value in found[len(of.positional) + 1].items() if name in of.named})
    if not _test(of)(known):  # type: ignore[arg-type]
        raise ValueError(f"no line of kind {of.KIND}")
    return line


@cache
def _test(of: type[Line]) -> Callable[[dict[str, Any]], bool]:
    """Return a function that checks the types of a line's fields, or raises one of WRONG."""
    hints = get_type_hints(of, include_extras=True)
    tests = " and ".join(_source(hints[name], f"line[{name!r}]") for name in of.fields)
    # Compiled, since a report takes an eighth longer with a function for each field.
    return eval(f"lambda line: {tests}", {**globals(), "hypot": math.hypot})  # type: ignore[no-any-return]


def _source(kind: Any, value: str) -> str:
    """Return Python source that checks the type of a JSON value. `value`: the source of the value itself."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return str(kind.__metadata__[0].format(value))
    if origin is UnionType:  # a type or None
        return f"({value} is None or {_source(inner[0], value)})"
    if origin in (Sequence, Mapping):
        values = f"{value}.values()" if origin is Mapping else value
        if inner[-1] in (int, float):  # one call for all of them; it is NaN if one of them is
            return f"hypot(*{values}) < {MOST_NUMBER}"
        each = f"all([{_source(inner[-1], 'each')} for each in {values}])"
        return each if origin is Mapping else f"type({value}) in (list, tuple) and {each}"
    if is_typeddict(kind):
        hints = get_type_hints(kind)
        tests = [f"({name!r} not in {value} or {_source(hints[name], f'{value}[{name!r}]')})" for name in hints]
        return f"type({value}) is dict and {' and '.join(tests)}"
    if kind in (int, float):
        return f"type({value}) in (int, float) and -{MOST_NUMBER} < {value} < {MOST_NUMBER}"
    return "True" if kind is Any else f"type({value}) is {kind.__name__}"


class ChannelFacts(TypedDict, total=False):  # a channel; one in Pipe mode has no files
    mode: str
    distribution: str
    files: int
    bytes: int
    more: bool  # true if not all files were counted


class HostLine(Line, positional=0):  # the host and its job; later lines add what is found out later, or replace it
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
    channels: Mapping[str, ChannelFacts] | None = None  # by name

    def updated(self, later: "HostLine") -> "HostLine":
        """Return a line with these facts and those of a later line."""
        return replace(self, **{name: value for name in self.named if (value := getattr(later, name)) is not None})


class DescribedLine(Line, positional=0):  # the job's request, to make the same plan; secrets masked, no long values
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


class ProcessLine(Line, positional=1):  # a process was started
    process: str  # its name, such as worker/1 or rank 3
    pid: int = 0
    role: str = ""  # as in launcher/plan/plan.py
    task: str = ""


SERVES, HELPS = {"ps"}, {"prepare", "key", "sshd", "mpirun"}  # roles of processes that do not run the user's program


def place(name: str) -> int:
    """Return the number at the end of a process's name, by which processes are shown in order; 0 if it has none."""
    found = re.search(r"[0-9]{1,9}$", name)
    return int(found[0]) if found else 0


class EndedLine(Line):  # a process has ended
    process: str
    how: str  # such as "exit code 0"


class PhaseLine(Line):  # the host's phase has changed
    phase: str  # as in launcher/policy/facts.py


class Said(Line):  # the launcher has logged a line
    text: str


ATTEMPT_FAILED = re.compile(r"attempt \d+ failed: ")  # what the launcher logs before a restart, and then the cause


class OutcomeLine(Line, positional=0):  # how the job ended
    kind: str  # succeeded, failed or stopped
    exit_code: int
    cause: Mapping[str, str] | None  # `host`, `process`, `what`, `error`, and `details`: the end of the traceback
    there: Sequence[str] = ()  # hosts whose last records are due, as they left in good order; a follower's coordinator


CAUSE = ("host", "process", "what", "error", "details")


def headline(cause: Mapping[str, Any]) -> str:
    """Return an outcome's cause in one line."""
    return blamed(*(str(cause.get(part, "")) for part in CAUSE[:4]))


# Lines that a restarted monitor needs; its launcher may send them twice.
LIVES = (ProcessLine, EndedLine, PhaseLine, OutcomeLine)


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


class SampleLine(Line):  # what was used in the `seconds` before this time
    seconds: float
    host: HostUse
    # Of each: `cpu` and `wait` for disks in seconds, `threads`; bytes of `memory`, `read`, `written`, `stored` (to and
    # from disks), `output` (printed), `startup` (of it TensorFlow's, before the script's own). Zeros are left out.
    processes: Mapping[str, Mapping[str, float]]
    peers: Mapping[str, Sequence[int]]  # by host: [received, sent] bytes between training processes here and there


class Metric(Line):  # the last value of each metric of a process since the last sample
    process: str
    values: Annotated[Mapping[str, float], "all([is_value(*each) for each in {}.items()])"]


class MarkLine(Line, positional=1):  # messages of a process's script since the last sample
    process: str
    what: str  # such as data_wait, step or checkpoint
    seconds: float = 0.0  # in all
    times: int = 1  # messages


class WeightsLine(Line):  # sums of a process's trained weights
    process: str
    step: int
    norm: Annotated[float, "type({}) in (int, float)"]  # NaN if the training has diverged
    total: Annotated[float, "type({}) in (int, float)"]


class ModelLine(Line):  # what a process trains, and what Horovod reduces
    process: str
    model: Mapping[str, Any]  # fields of observe/monitor/trained_model.py:TrainedModel


class Distributed(Line, positional=1):  # whether the hosts train together, on the coordinator; a later line replaces it
    together: bool | None  # null: unclear
    since: float = 0.0  # when the training began, in seconds since the epoch
    words: str = ""
    advice: str = ""  # if they do not: what is missing, by file and line where the code shows it


class Lines(Line):  # a process's last lines of output: at its end, and while the live page is open
    process: str
    lines: Sequence[str]


class Silent(Value):  # a process without progress, and what it used per second meanwhile
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
        of = {name: zip(Silent.fields, figures, strict=False) for name, figures in self.figures.items()}
        return {name: Silent(**dict(values)) for name, values in of.items()}


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
