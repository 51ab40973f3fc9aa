"""What the supervisor's loop and the policy say to one another. Types only."""

from dataclasses import dataclass

from entrypoint.outcome import Cause, Exit, Outcome
from entrypoint.plan import ProcessSpec

# --- what one host tells another (see peers.py for how) ---


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a host says of itself. Whole facts, so a lost or repeated report does no harm."""

    host: str
    ready: frozenset[str] = frozenset()  # names of its processes
    cards: tuple[tuple[str, str], ...] = ()  # (card, line)
    done: bool = False  # every deciding process of the host has ended
    clean: bool = True  # ... all with exit code 0
    stopping: bool = False  # SIGTERM was heard
    cause: Cause | None = None  # what went wrong here
    gone: bool = False  # last words


@dataclass(frozen=True, kw_only=True)
class News:
    """All that the coordinator says of the job."""

    ready: frozenset[tuple[str, str]] = frozenset()  # (host or ALL_HOSTS, process)
    cards: tuple[tuple[str, str], ...] = ()
    stopping: bool = False
    outcome: Outcome | None = None


# --- events: what happened ---


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A process of this host has ended. `output` is its last output."""

    name: str
    exit: Exit
    output: str = ""


@dataclass(frozen=True, kw_only=True)
class NotStarted:
    """A process could not be started."""

    name: str
    why: str


@dataclass(frozen=True, kw_only=True)
class RankStarted:
    """mpirun has started a rank on this host."""

    name: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The port that makes a process ready answers."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Flags:
    """What the prepare step found in the user's code."""

    flags: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card of this host is there to be made known."""

    name: str
    line: str


@dataclass(frozen=True, kw_only=True)
class Signalled:
    """SIGTERM or SIGINT reached us."""

    number: int


@dataclass(frozen=True, kw_only=True)
class Reported:
    """The coordinator heard a follower."""

    report: Report


@dataclass(frozen=True, kw_only=True)
class Informed:
    """A follower heard the coordinator."""

    news: News


@dataclass(frozen=True, kw_only=True)
class Due:
    """Nothing happened, but a deadline of the policy has come."""


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A part of the launcher itself failed."""

    why: str
    code: int


@dataclass(frozen=True, kw_only=True)
class ChildrenChanged:
    """SIGCHLD: the loop turns it into Ended events before the policy sees anything."""


Event = (
    Ended | NotStarted | RankStarted | Listening | Flags | Card | Signalled | Reported | Informed | Due | Broken
    | ChildrenChanged
)  # fmt: skip


# --- actions: what to do about it ---


@dataclass(frozen=True, kw_only=True)
class Start:
    """Start a process of this host."""

    spec: ProcessSpec


@dataclass(frozen=True, kw_only=True)
class Ask:
    """SIGTERM to a process and its group."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Force:
    """SIGKILL to a process and its group."""

    name: str


@dataclass(frozen=True, kw_only=True)
class WriteCards:
    """Write the file of a card: the lines of the hosts heard so far, in rank order."""

    card: str
    lines: tuple[tuple[str, str], ...]  # (host, line)


@dataclass(frozen=True, kw_only=True)
class TellCoordinator:
    report: Report


@dataclass(frozen=True, kw_only=True)
class TellFollowers:
    news: News


@dataclass(frozen=True, kw_only=True)
class Say:
    """A line for the log."""

    message: str


@dataclass(frozen=True, kw_only=True)
class Finish:
    """Nothing is left to do: leave with this outcome."""

    outcome: Outcome


Action = Start | Ask | Force | WriteCards | TellCoordinator | TellFollowers | Say | Finish
