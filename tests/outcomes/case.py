"""Define a case: the kind of job, its event, its end and its time limits. Types only."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

PEER_TIMEOUT, START_TIMEOUT, STOP_GRACE, FAILURE_GRACE, KILL_TIMEOUT = 5.0, 6.0, 2.0, 2.0, 1.0  # seconds


class Way(StrEnum):
    """A kind of job."""

    SINGLE = "single"
    SCRIPTS = "several hosts"
    PS = "ps script"
    PS_SERVER = "ps server"
    MWMS = "mwms"
    MPI = "mpi"
    JAX = "jax"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options for `entrypoint local`."""
        mode, _, workers = ("single" if self is Way.SCRIPTS else self).partition(" ")
        return ("--mode", mode, *(("--env", f"ENTRYPOINT_PS_WORKERS={workers}") if workers else ()))


ALL = tuple(way for way in Way if way is not Way.JAX)  # table.py gives mode jax the rows of mwms that matter to it
SEVERAL = tuple(way for way in ALL if way is not Way.SINGLE)
SCRIPT_EVERYWHERE = tuple(way for way in SEVERAL if way is not Way.PS_SERVER)  # a script of the user's on each host

COORDINATOR, FOLLOWER, EVERYWHERE = "coordinator", "follower", "every host"


class Since(StrEnum):
    """The moment from which a bound counts."""

    START = "start"  # of the job
    FAULT = "fault"  # the first
    LAST = "last"  # deed of a script, or fault


@dataclass(frozen=True)
class Bound:
    """Limits in seconds: until all hosts have logged the end of the job, and until the last host is gone."""

    name: str
    since: Since
    told: float
    gone: float
    meaning: str


START_OF_JOB, FAULT, LAST = Since.START, Since.FAULT, Since.LAST
KILLED_TOO = FAILURE_GRACE + KILL_TIMEOUT
BOUNDS = (
    Bound("process", LAST, 0.5, 3, "from the end of the process; the others obey SIGTERM"),
    Bound("stubborn", LAST, 0.5, 3 + FAILURE_GRACE, "from the end of the process; the others ignore SIGTERM and are "
          "killed after ENTRYPOINT_FAILURE_GRACE"),
    Bound("host", FAULT, 8, 8, "from the last moment at which the host was there; includes ENTRYPOINT_PEER_TIMEOUT"),
    Bound("start", START_OF_JOB, START_TIMEOUT + 2, START_TIMEOUT + 5, "from the start of the job, with "
          f"ENTRYPOINT_START_TIMEOUT={START_TIMEOUT:g}"),
    Bound("shortage", START_OF_JOB, 8, 11, "from the start of the job; a host lacks processes or file descriptors for "
          "it"),
    Bound("end", LAST, 0.5, 3, "from the end of the last script"),
    Bound("stop", LAST, 3, 3, "from the end of the last script (from SIGTERM, if no script handles it)"),
    Bound("stubborn stop", FAULT, STOP_GRACE + 3, STOP_GRACE + 3, f"from SIGTERM, with ENTRYPOINT_STOP_GRACE="
          f"{STOP_GRACE:g}; scripts ignore it"),
    Bound("stuck", LAST, 0.5, 3 + KILLED_TOO, "from the end of the process; another survives SIGKILL (limit in tests: "
          f"{KILL_TIMEOUT:g} s)"),
    Bound("stuck attempt", LAST, 3 + KILLED_TOO, 5 + KILLED_TOO, "from the end of the process, until it is known that "
          "no other attempt can begin"),
    Bound("mpirun", LAST, 11, 14, "from the end of the last rank; mpirun has 10 s"),
)  # fmt: skip
PROCESS, STUBBORN, HOST, START, SHORTAGE, END, STOP, STUBBORN_STOP, STUCK, STUCK_ATTEMPT, MPIRUN = BOUNDS


@dataclass(frozen=True, kw_only=True)
class Own:
    """The end of the affected host, if it differs from the job's outcome."""

    exits: tuple[str, ...]  # what may be: exit codes, or a signal's name
    text: str | None = None  # first line of its failure text; None: any
    timed: bool = False  # whether the bound holds for it, too
    words: str  # for the page


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run and its required end.

    In texts {who} is host and process of the event, {host} the host alone, and ... any text.
    """

    way: Way
    event: str
    where: str
    when: str  # start, run or end
    does: dict[str, str] = field(default_factory=dict)  # hyperparameters of programs/acts/acts.py
    faults: tuple[str, ...] = ()  # as --fault takes them
    settings: dict[str, str] = field(default_factory=dict)  # ENTRYPOINT_*
    files: dict[str, str] = field(default_factory=dict)  # beside the program
    hosts: int
    code: int
    text: str = ""  # first line of the failure text; "" if there is none
    bound: Bound
    hit: dict[str, Own] = field(default_factory=dict)  # hosts that end by a rule of their own
    says: str = ""  # what the log has
    disk: bool = False  # that does not answer: a process that asks it stays when the job has left
    few: str = ""  # what the host has too little of: files=N, pids=N or memory=BYTES

    @property
    def engine(self) -> str:
        """Return the simplest engine that can inject the faults."""
        words = {fault.split()[0] for fault in self.faults}
        return "netns" if words & {"cut", "hide", "fill", "readonly"} else "process"

    @property
    def timed(self) -> list[str]:
        """Return the hosts for which the bound holds."""
        return [host for host in self.names if host not in self.hit or self.hit[host].timed]

    @property
    def name(self) -> str:
        words = f"{self.way}-{self.event}-{self.where}-{self.when}"
        return re.sub(r"[^a-z0-9-]+", "_", words.lower()).strip("_")

    @property
    def host(self) -> str:
        """Return the host of the event, or the first host if the event affects all."""
        return host_of(self.where)

    @property
    def names(self) -> list[str]:
        return [f"algo-{number + 1}" for number in range(self.hosts)]

    @property
    def scripts(self) -> int:
        """Return how many user programs run."""
        return 1 if self.way is Way.PS_SERVER else self.hosts

    def fill_in(self, text: str) -> str:
        return text.format(who=f"{self.host} {script_of(self.way, self.host)}", host=self.host)


def case(way: Way, event: str, where: str, when: str, *faults: str, **more: Any) -> Case:
    """Return a case on one or two hosts, or as many as `more` has. {host} in a fault is the host of the event."""
    named = tuple(fault.format(host=host_of(where)) for fault in faults)
    return Case(
        way=way, event=event, where=where, when=when, faults=named, **{"hosts": 1 if way is Way.SINGLE else 2, **more}
    )


def host_of(where: str) -> str:
    return "algo-2" if where == FOLLOWER else "algo-1"


def script_of(way: Way, host: str) -> str:
    """Return the name that the plan gives the user's program on a host."""
    rank = int(host.removeprefix("algo-")) - 1
    match way:
        case Way.PS | Way.PS_SERVER:
            return f"worker/{rank - 1}" if rank else "chief/0"
        case Way.MWMS | Way.JAX:
            return f"worker/{rank}"
        case Way.MPI:
            return f"rank {rank}"
        case _:
            return "script"


def places(way: Way) -> tuple[str, ...]:
    """Return the places in which a user's script can fail."""
    return (COORDINATOR, FOLLOWER) if way in SCRIPT_EVERYWHERE else (COORDINATOR,)
