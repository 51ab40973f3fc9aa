"""Define the messages between the supervisor's loop and the policy: events in, actions out. Types only."""

from collections.abc import Mapping

from entrypoint.base.values import Value
from entrypoint.launcher.outcome.outcome import Cause, Exit, Outcome
from entrypoint.launcher.plan.plan import ProcessSpec
from entrypoint.launcher.policy.artifacts import Artifacts

# --- messages between hosts (peers.py sends them) ---


class Reach(Value):
    """Report an attempt to reach a host: the address of its name, and why it was not reached."""

    host: str
    address: str = ""  # empty: the name does not resolve
    why: str = ""  # empty: its control port answers

    @property
    def reached(self) -> bool:
        return bool(self.address) and not self.why


class Report(Value):
    """Report all facts of a host to the coordinator. Facts are whole, so a lost or repeated report does no harm."""

    host: str
    attempt: int = 0  # the rest is of this attempt; the host has ended everything of earlier ones
    ready: frozenset[str] = frozenset()  # names of its processes
    public_keys: tuple[tuple[str, str], ...] = ()  # (name, public key)
    fingerprints: tuple[tuple[str, str], ...] = ()  # (what must be the same on all hosts, version or digest)
    unused_gpus: str = ""  # its GPUs, and why TensorFlow cannot use them
    unreached: tuple[Reach, ...] = ()  # hosts that it tried and did not reach
    done: bool = False  # every deciding process of the host has ended
    clean: bool = True  # ... all with exit code 0
    lingering: bool = False  # a process that does not decide, such as an evaluator, may still have work
    rests: float | None = None  # seconds for which what remains must only serve; 0: all has ended; None: some may work
    stopping: bool = False  # SIGTERM was received
    stopping_at: float | None = None  # when, by the coordinator's clock, if that is known
    cause: Cause | None = None  # what went wrong here
    cause_at: float | None = None  # when, by the coordinator's clock, if that is known
    clock_error: float = 0.0  # seconds by which both times may be wrong, in the same direction
    exits: tuple[tuple[str, str, float], ...] = ()  # (process, how it ended, seconds since the host's start)
    ack: int = 0  # the last poll that it received
    dying: bool = False  # a process here has printed why it ends, and has not ended yet
    artifacts: Artifacts | None = None  # what the host leaves after a success; None before that, or if it is not known
    gone: bool = False  # the host's last report


class News(Value):
    """Report all facts of the job to the followers."""

    attempt: int = 0  # the rest is of this attempt; end what is left of earlier ones
    go: bool = True  # the processes of this attempt may start
    ready: frozenset[tuple[str, str]] = frozenset()  # (host or ALL_HOSTS, process)
    public_keys: tuple[tuple[str, str], ...] = ()
    assembled: bool = False  # all hosts have reported
    poll: int = 0  # number of the last poll, to answer at once: something failed, and it matters who answers
    stopping: bool = False
    outcome: Outcome | None = None


# --- events: what happened ---


class Ended(Value):
    """Report that a process of this host has ended."""

    name: str
    exit: Exit
    output: str = ""  # its last output
    memory: str = ""  # what the kernel reports about a lack of memory
    wrote: str = ""  # the failure file that it has written


class NotStarted(Value):
    name: str
    why: str
    code: int = 127


class RankStarted(Value):
    """Report that mpirun has started a rank on this host, in an attempt."""

    name: str
    pid: int
    attempt: int = 0


class RankOrphaned(Value):
    """Report that the process that started a rank here has ended, while the rank still runs."""

    name: str


class Listening(Value):
    """Report that a process listens on the port that makes it ready."""

    name: str


class Prepared(Value):
    """Report the prepare step's findings about the user's code and the software around it."""

    flags: frozenset[str]
    fingerprints: tuple[tuple[str, str], ...] = ()
    unused_gpus: str = ""
    other_mode: str = ""  # where the code makes the strategy of another mode than the job's


class Fingerprinted(Value):
    """Report the values of this host that must be equal on all hosts and are known before the prepare step ends."""

    fingerprints: Mapping[str, str]


class PublicKey(Value):
    """Report that a public key of this host can be sent to others."""

    name: str
    key: str


class Signalled(Value):
    number: int


class Reported(Value):
    report: Report


class Informed(Value):
    """Report that a follower received news. `offset`: the coordinator's clock minus ours in seconds, if measured."""

    news: News
    offset: float | None = None
    error: float = 0.0  # seconds by which `offset` may be wrong


class Unreached(Value):
    """Report that a host did not take our connection: refused, no route, or no answer from its kernel."""

    host: str


class LinkEnded(Value):
    """Report that a host has closed the connection that it kept to us: its launcher has ended, or has lost it."""

    host: str


class Replaced(Value):
    """Report that another launcher answers on a host: it was restarted, and knows nothing of the job's state."""

    host: str


class Rejected(Value):
    """Report that this host refused a host of the job; on a follower, that the coordinator refuses us."""

    host: str
    why: str


class Answered(Value):
    """Report that the coordinator answered a follower, perhaps without knowing its address (yet, or any more)."""

    host: str


class Looked(Value):
    """Answer a Look: (process, error, details) of processes that have printed that they are about to end."""

    found: tuple[tuple[str, str, str], ...]


class Resting(Value):
    """Report scripts whose processes only serve: (process, seconds for which it must continue to serve)."""

    found: tuple[tuple[str, float], ...]


class Probed(Value):
    found: tuple[Reach, ...]


class Survived(Value):
    """Answer an Inspect: each process that is left, and its state in the kernel."""

    name: str
    left: tuple[str, ...]


class Swept(Value):
    """Answer a Sweep: each process that is left, and its state in the kernel. Usually there is none."""

    left: tuple[str, ...] = ()


class Inventoried(Value):
    """Answer a TakeInventory; None if the files could not be listed."""

    artifacts: Artifacts | None


class Due(Value):
    """Report that a deadline of the policy has come, and nothing else happened."""


class Broken(Value):
    """Report that this host cannot do its part, and no process of it is to blame."""

    why: str
    code: int
    what: str = "the launcher failed"


class Found(Value):
    """Report a failure that the coordinator's monitor found while all processes run, as the settings ask."""

    cause: Cause


Event = (
    Ended | NotStarted | RankStarted | RankOrphaned | Listening | Fingerprinted | Prepared | PublicKey | Signalled
    | Reported | Informed | Unreached | LinkEnded | Replaced | Rejected | Answered | Looked | Resting | Probed
    | Survived | Swept | Inventoried | Due | Broken | Found
)  # fmt: skip


# --- actions: what to do about it ---


class Start(Value):
    spec: ProcessSpec
    restarted: int = 0  # how often the process was started again


class Ask(Value):
    """Send SIGTERM to a process and its descendants. `grace` (seconds) decides which of them gets it when."""

    name: str
    grace: float


class Force(Value):
    """Send SIGKILL to a process and its descendants."""

    name: str


class Sweep(Value):
    """Send SIGKILL to everything that an attempt has left behind, before the next one. Answered by Swept."""

    keep: frozenset[str]  # processes that keep running
    within: float  # seconds after which a process that is still there counts as one that SIGKILL does not end


class Inspect(Value):
    """Look at the remaining processes of one that SIGKILL has not ended. Answered by Survived."""

    name: str


class Look(Value):
    """Check whether these processes have printed that they are about to end. Answered by Looked."""

    names: tuple[str, ...]


class Probe(Value):
    """Check whether these hosts can be reached. Answered by Probed."""

    hosts: tuple[str, ...]


class Knock(Value):
    """Check whether a host whose connection has ended takes a new one. Answered by Unreached if it does not."""

    host: str


class TakeInventory(Value):
    """List this host's files in the folders that SageMaker packs. Answered by Inventoried."""


class WritePublicKeys(Value):
    """Write the file of a public key, with the keys of the hosts that have reported so far, in rank order."""

    key_name: str
    keys: tuple[tuple[str, str], ...]  # (host, public key)


class TellCoordinator(Value):
    report: Report


class TellFollowers(Value):
    news: News


class Say(Value):
    message: str


class Finish(Value):
    """End the loop with this outcome: nothing is left to do."""

    outcome: Outcome


Action = (
    Start | Ask | Force | Sweep | Inspect | Look | Probe | Knock | TakeInventory | WritePublicKeys | TellCoordinator
    | TellFollowers | Say | Finish
)  # fmt: skip
