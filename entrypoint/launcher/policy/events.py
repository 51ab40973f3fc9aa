"""What the supervisor's loop and the policy say to one another. Types only."""

from collections.abc import Callable, Mapping

from entrypoint.base.values import Value
from entrypoint.launcher.outcome.outcome import Cause, Exit, Outcome
from entrypoint.launcher.plan.plan import ProcessSpec
from entrypoint.launcher.policy.artifacts import Artifacts

# --- what one host tells another (see peers.py for how) ---


class Reach(Value):
    """What came of looking for a host: the address that its name resolves to, and why it was not reached."""

    host: str
    address: str = ""  # empty: the name does not resolve
    why: str = ""  # empty: its control port answers

    @property
    def reached(self) -> bool:
        return bool(self.address) and not self.why


class Report(Value):
    """All that a host says of itself. Whole facts, so a lost or repeated report does no harm."""

    host: str
    attempt: int = 0  # what follows is of this attempt; the host is clear of earlier ones
    ready: frozenset[str] = frozenset()  # names of its processes
    public_keys: tuple[tuple[str, str], ...] = ()  # (name, public key)
    fingerprints: tuple[tuple[str, str], ...] = ()  # (what must be the same on all hosts, version or digest)
    unused_gpus: str = ""  # its GPUs, and why TensorFlow cannot use them
    unreached: tuple[Reach, ...] = ()  # hosts that it looked for and did not reach
    done: bool = False  # every deciding process of the host has ended
    clean: bool = True  # ... all with exit code 0
    lingering: bool = False  # a process that does not decide may still have work, such as an evaluator
    rests: float | None = None  # all that has not ended only serves: seconds in which that must not change; 0: all has
    stopping: bool = False  # SIGTERM was heard
    stopping_at: float | None = None  # when, by the coordinator's clock, as far as that is known
    cause: Cause | None = None  # what went wrong here
    cause_at: float | None = None  # when, by the coordinator's clock, as far as that is known
    exits: tuple[tuple[str, str, float], ...] = ()  # (process, how it ended, seconds since the host's start)
    ack: int = 0  # the last question heard
    dying: bool = False  # a process here has printed why it ends, and has not ended yet
    artifacts: Artifacts | None = None  # what the host leaves of a success; None before that, and if it cannot tell
    gone: bool = False  # last words


class News(Value):
    """All that the coordinator says of the job."""

    attempt: int = 0  # what follows is of this attempt; end what is left of earlier ones
    go: bool = True  # the processes of this attempt may start
    ready: frozenset[tuple[str, str]] = frozenset()  # (host or ALL_HOSTS, process)
    public_keys: tuple[tuple[str, str], ...] = ()
    assembled: bool = False  # all hosts have been heard
    poll: int = 0  # answer at once: something went wrong, and who still says something matters
    stopping: bool = False
    outcome: Outcome | None = None


# --- events: what happened ---


class Ended(Value):
    """A process of this host has ended. `output` is its last output; `memory` what the kernel says of a lack of it;
    `wrote` what it left in the failure file."""

    name: str
    exit: Exit
    output: str = ""
    memory: str = ""
    wrote: str = ""


class NotStarted(Value):
    name: str
    why: str
    code: int = 127


class RankStarted(Value):
    """mpirun has started a rank on this host, in an attempt."""

    name: str
    pid: int
    attempt: int = 0


class RankOrphaned(Value):
    """The process that started a rank on this host has ended, and the rank has not."""

    name: str


class Listening(Value):
    """The port that makes a process ready answers."""

    name: str


class Prepared(Value):
    """What the prepare step found out about the user's code and the software around it."""

    flags: frozenset[str]
    fingerprints: tuple[tuple[str, str], ...] = ()
    unused_gpus: str = ""


class Fingerprinted(Value):
    """What must be the same on all hosts, as far as it is known before the prepare step ends."""

    fingerprints: Mapping[str, str]


class PublicKey(Value):
    """A public key of this host is there to be made known."""

    name: str
    key: str


class Signalled(Value):
    number: int


class Reported(Value):
    report: Report


class Informed(Value):
    """A follower heard the coordinator. `offset` is the coordinator's clock minus ours, in seconds, where measured."""

    news: News
    offset: float | None = None


class Unreached(Value):
    """A host took no connection of ours: refused, no way to it, or no answer from its kernel."""

    host: str


class LinkEnded(Value):
    """The connection that a host kept open to us is closed at its end: its launcher has ended, or has lost it."""

    host: str


class Replaced(Value):
    """Where the launcher of a host was, another one speaks now: it was started again, and knows of nothing."""

    host: str


class Rejected(Value):
    """A host of the job, by its address, was refused; or, on a follower, the coordinator refuses us."""

    host: str
    why: str


class Answered(Value):
    """The coordinator answered a follower, if only that it does not know its address (yet, or no more): it is there."""

    host: str


class Looked(Value):
    """What came of a Look: (process, error, details) of those that have printed that they are about to end."""

    found: tuple[tuple[str, str, str], ...]


class Resting(Value):
    """Scripts that do nothing but serve, by what their processes do: (process, seconds for which it must stay so)."""

    found: tuple[tuple[str, float], ...]


class Probed(Value):
    found: tuple[Reach, ...]


class Survived(Value):
    """What came of an Inspect: each process that is left, and what the kernel says of it."""

    name: str
    left: tuple[str, ...]


class Swept(Value):
    """What came of a Sweep: each process that is left, and what the kernel says of it. None, as a rule."""

    left: tuple[str, ...] = ()


class Inventoried(Value):
    """What came of a TakeInventory; None if it could not be seen."""

    artifacts: Artifacts | None


class Due(Value):
    """Nothing happened, but a deadline of the policy has come."""


class Broken(Value):
    """This host cannot do its part, and no process of it is to blame."""

    why: str
    code: int
    what: str = "the launcher failed"


class Found(Value):
    """The coordinator's monitor has found what is a failure, by the settings, though no process has ended of it."""

    cause: Cause


class RankEnded(Value):
    """A rank on this host has ended: the loop turns it into an Ended event before the policy sees anything.

    Until `let_go` is called, mpirun does not know.
    """

    name: str
    exit: Exit
    let_go: Callable[[], None]


class ChildrenChanged(Value):
    """SIGCHLD: the loop turns it into Ended events before the policy sees anything."""


Event = (
    Ended | NotStarted | RankStarted | RankOrphaned | Listening | Fingerprinted | Prepared | PublicKey | Signalled
    | Reported | Informed | Unreached | LinkEnded | Replaced | Rejected | Answered | Looked | Resting | Probed
    | Survived | Swept | Inventoried | Due | Broken | Found | RankEnded | ChildrenChanged
)  # fmt: skip


# --- actions: what to do about it ---


class Start(Value):
    spec: ProcessSpec


class Ask(Value):
    """SIGTERM to a process and what descends from it; who of them hears it when, hangs on its grace in seconds."""

    name: str
    grace: float


class Force(Value):
    """SIGKILL to a process and what descends from it."""

    name: str


class Sweep(Value):
    """SIGKILL whatever an attempt has left behind, before the next one; answered by Swept."""

    keep: frozenset[str]  # processes that stay
    within: float  # seconds until what is still there counts as what SIGKILL does not end


class Inspect(Value):
    """See what is left of a process that SIGKILL has not ended; answered by Survived."""

    name: str


class Look(Value):
    """See whether these processes have printed that they are about to end; answered by Looked."""

    names: tuple[str, ...]


class Probe(Value):
    """See whether these hosts can be reached; answered by Probed."""

    hosts: tuple[str, ...]


class Knock(Value):
    """See whether this host, whose connection has ended, takes another one; Unreached if it does not."""

    host: str


class TakeInventory(Value):
    """See what this host leaves in the folders that SageMaker packs; answered by Inventoried."""


class WritePublicKeys(Value):
    """Write the file of a public key: the keys of the hosts heard so far, in rank order."""

    key_name: str
    keys: tuple[tuple[str, str], ...]  # (host, public key)


class TellCoordinator(Value):
    report: Report


class TellFollowers(Value):
    news: News


class Say(Value):
    message: str


class Finish(Value):
    """Nothing is left to do: leave with this outcome."""

    outcome: Outcome


Action = (
    Start | Ask | Force | Sweep | Inspect | Look | Probe | Knock | TakeInventory | WritePublicKeys
    | TellCoordinator | TellFollowers | Say | Finish
)  # fmt: skip
