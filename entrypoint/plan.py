"""The plan: which processes run on which host, with what, after what. Types, and nothing that runs.

Every host computes the same plan from the same job and takes its own rows. What differs between the ways
of distributing (whose end decides, what must be ready first) is data here, so the supervisor knows
neither TensorFlow nor mpirun.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from entrypoint.channels import Channels, Reader, matrix, matrix_lines, reads
from entrypoint.secret_names import is_secret
from entrypoint.secrets import MASK

ALL_HOSTS = "*"
ANY = "*"  # what a host says of a thing that must be the same on other hosts, and not here
CLUSTER = '"@cluster"'  # in TF_CONFIG: stands for all addresses, a text that the tasks of a job share
ATTEMPT = "ENTRYPOINT_RESTART_COUNT"  # environment variable: how often the process was started again
FEW_HOSTS = 4  # whose processes are printed one by one
LONGEST_LINE = 160  # characters, in a plan of many hosts
NO_GPU = (0, 0)  # a `gpu_share`
PREPARE = "prepare"  # the step that fetches and installs the user's code, once per host
PREFLIGHT = "preflight"  # not a process: a host is ready with it when it has found and reached all others


class Role(StrEnum):
    """What a process is to the job, in the words of the field."""

    PREPARE = "prepare"
    KEY = "key"
    SSHD = "sshd"
    LAUNCHER = "mpirun"
    RANK = "rank"
    PS = "ps"
    CHIEF = "chief"
    WORKER = "worker"
    EVALUATOR = "evaluator"
    SCRIPT = "script"


class Duty(StrEnum):
    """What the end of a process means, and when it is stopped."""

    STEP = "step"  # ends with 0 before others start
    SCRIPT = "script"  # user's program: its end decides; hears SIGTERM first
    LAUNCHER = "launcher"  # starts ranks: its end decides, but its failure only echoes theirs
    RANK = "rank"  # user's program, started by the launcher: a failure counts, success does not decide
    SIDECAR = "sidecar"  # user's program: a failure counts, success does not decide; has time after the others' success
    SERVER = "server"  # runs until every deciding process of every host has ended

    @property
    def decides(self) -> bool:
        return self in (Duty.SCRIPT, Duty.LAUNCHER)

    @property
    def is_users(self) -> bool:
        return self in (Duty.SCRIPT, Duty.RANK, Duty.SIDECAR)


class Serves(StrEnum):
    """Whether a script may have nothing to do but to let TensorFlow serve others, so that it never ends by itself."""

    NEVER = "never"
    MAYBE = "maybe"  # what its process does tells
    ALWAYS = "always"  # by the user's word: its end does not decide


class Restart(StrEnum):
    """What becomes of a process when the job is tried again."""

    KEEP = "keep"  # it stays
    GROUP = "group"  # ends and starts again with all others
    ALONE = "alone"  # as GROUP; and if it dies, it is started again without the others


class Ready(StrEnum):
    """How we know that a process is up."""

    STARTED = "started"
    ENDED = "ended"  # ended with exit code 0
    LISTENING = "listening"  # something listens on `ready_port` of this host


class Flag(StrEnum):
    """What only a look at the user's code can tell; found by the prepare step."""

    TF1_SESSIONS = "tf1-sessions"
    TF1_MASTER = "tf1-master"  # written for AWS's images, where rank 0 of parameter servers is the task `master`


@dataclass(frozen=True, kw_only=True)
class Need:
    """A process that must be ready first, on one host or on all of them.

    With `only_if`, the need counts only where the prepare step found that flag. With `at_most` (seconds),
    it is dropped after that time: better early than never.
    """

    host: str
    process: str
    only_if: Flag | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        where = "every host" if self.host == ALL_HOSTS else self.host
        condition = f" if {self.only_if}" if self.only_if else ""
        limit = f", at most {self.at_most:g} s" if self.at_most else ""
        return f"{self.process} of {where}{condition}{limit}"


@dataclass(frozen=True, kw_only=True)
class ProcessSpec:
    """What should run; as a class is to an object, so is this to a Process."""

    host: str
    name: str  # unique on the host: "ps/0", "worker/1", "rank 3", "mpirun"
    role: Role
    duty: Duty
    task: str = ""  # "worker 0 of 2", "rank 3, local rank 1"
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()  # what we set beyond the container's environment and SM_*
    cluster: str = ""  # JSON, what stands for CLUSTER in `env`
    env_if: tuple[Flag, str, str] | None = None  # with this flag, `env` has the second text in place of the first
    serves: Serves = Serves.NEVER
    runs_program: bool = False  # argv ends in the user's program, and its environment has SM_*
    reader: Reader | None = None  # which of the processes that train and share the channels; None: it reads all
    reader_if: tuple[Flag, Reader] | None = None  # with this flag, the second in place of `reader`
    cwd: Path | None = None
    stdin: str = field(default="", compare=False)  # only on the host that plans
    ports: tuple[int, ...] = ()
    needs: tuple[Need, ...] = ()
    ready: Ready = Ready.STARTED
    ready_port: int | None = None
    restart: Restart = Restart.GROUP
    cpu_share: int = 0  # it may keep one part in so many of the host's CPUs busy; 0: that is not our business
    gpu_share: tuple[int, int] | None = None  # (index, of how many): its part of the host's GPUs; None: it sees all
    lingers: float = 0.0  # a sidecar's: seconds that it may still run after all deciding processes have ended well
    card: str = ""  # name under which `card_source` is made known to the hosts that need this process
    card_source: Path | None = None

    @property
    def decides(self) -> bool:
        return self.duty.decides and self.serves is not Serves.ALWAYS

    def but(self, **changes: Any) -> "ProcessSpec":
        """A copy with other values. dataclasses.replace takes twenty times as long: half a second for 8,000."""
        copy = object.__new__(ProcessSpec)
        copy.__dict__.update(self.__dict__ | changes)
        return copy

    def environment(self, flags: Collection[str]) -> dict[str, str]:
        """`env`, whole, as these flags have it."""
        flag, old, new = self.env_if or (None, "", "")
        whole = {key: value.replace(CLUSTER, self.cluster) for key, value in self.env}
        return {key: value.replace(old, new) if flag in flags else value for key, value in whole.items()}

    @property
    def reads(self) -> bool:
        """Whether it is told what to read of the channels.

        A script that shares nothing is not: it may well start ranks or a cluster of its own, which then share.
        """
        return self.reader is not None or (self.runs_program and self.role is not Role.SCRIPT)

    def reader_with(self, flags: Collection[str]) -> Reader | None:
        return self.reader_if[1] if self.reader_if and self.reader_if[0] in flags else self.reader


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All processes of all hosts, in rank order."""

    title: str  # "parameter servers: 3 ps, 1 chief, 2 workers on 3 hosts"
    hosts: tuple[str, ...]
    processes: tuple[ProcessSpec, ...]
    notes: tuple[str, ...] = ()
    hosts_meet: bool = True  # processes of one host connect to another's, so each host must reach all
    channels: Channels = field(default_factory=Channels)  # of the host that plans

    def on(self, host: str) -> tuple[ProcessSpec, ...]:
        """The rows of one host, in the order in which they are started."""
        return tuple(spec for spec in self.processes if spec.host == host)

    @property
    def readers(self) -> list[Reader]:
        return [spec.reader for spec in self.processes if spec.reader]


Here = Callable[[ProcessSpec], Mapping[str, str]]
"""The environment that makes a process's part of this machine's CPUs and GPUs."""


def render(plan: Plan, only_host: str | None = None, here: Here | None = None, whole: bool = True) -> str:
    """Render the plan as text for people: one block per process. The secrets of the environment are not in it.

    Not `whole`, and with many hosts: one block per role.
    """
    lines = [plan.title, *(f"note: {note}" for note in plan.notes)]
    if rows := matrix(plan.channels, plan.readers):
        lines += ["", "channels", *matrix_lines(rows)]
    if not whole and only_host is None and len(plan.hosts) > FEW_HOSTS:
        return "\n".join([*lines, *_summary(plan, here)])
    for rank, host in enumerate(plan.hosts):
        if only_host not in (None, host):
            continue
        lines += ["", f"host {host}, rank {rank}" + (" (coordinator)" if rank == 0 else "")]
        for spec in plan.on(host):
            lines += _block(spec, plan.channels, here)
    return "\n".join(lines)


def as_json(plan: Plan, only_host: str | None = None, here: Here | None = None) -> dict[str, Any]:
    """The plan as a value for programs, with the same content as `render`."""
    ranks = {host: rank for rank, host in enumerate(plan.hosts)}
    return {
        "title": plan.title,
        "notes": list(plan.notes),
        "hosts": [host for host in plan.hosts if only_host in (None, host)],
        "channels": matrix(plan.channels, plan.readers),
        "processes": [
            {
                "host": spec.host,
                "rank": ranks[spec.host],
                "name": spec.name,
                "role": str(spec.role),
                "task": spec.task,
                "decides": spec.decides,
                "command": _masked(spec.argv),
                "env": spec.environment(()),
                "env_if": list(spec.env_if or ()),
                "shards": plan.channels.shards(spec.reader) if spec.reads else {},
                "cpu_share": spec.cpu_share,
                "gpu_share": list(spec.gpu_share or ()),
                **({"env_here": dict(here(spec))} if here else {}),
                "ports": list(spec.ports),
                "needs": [str(need) for need in spec.needs],
            }
            for spec in plan.processes
            if only_host in (None, spec.host)
        ],
    }


def _summary(plan: Plan, here: Here | None) -> list[str]:
    """Render a block for the processes of each role, whatever the number of hosts."""
    kinds: dict[tuple[Role, str, bool], list[ProcessSpec]] = {}
    for spec in plan.processes:
        kinds.setdefault((spec.role, spec.name.rstrip("0123456789"), spec.decides), []).append(spec)
    lines = ["", f"{len(plan.hosts)} hosts in rank order, {_ends(plan.hosts)}; {plan.hosts[0]} is the coordinator"]
    for specs in kinds.values():
        count = f"{len(specs)} x " if len(specs) > 1 else ""
        names, where = _ends([spec.name for spec in specs]), _hosts_of(specs, plan.hosts)
        lines += ["", f"{count}{specs[0].role}: {names}, on {where}{_remarks(specs[0])}"]
        lines += _merged([_block(spec, plan.channels, here)[1:] for spec in specs])
    return [*lines, "", "--all prints every process"]


def _merged(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Merge the blocks of processes of one role: of lines that differ the first, and how many there are."""
    counts = Counter(line for block in blocks for line in block)
    kinds: dict[str, list[str]] = {}
    for line, count in counts.items():
        name = line.partition("=")[0] if line.startswith("    env ") else line[:14]
        kinds.setdefault(line if count == len(blocks) else name, []).append(line)
    merged = []
    for found in kinds.values():
        line = found[0] if len(found[0]) <= LONGEST_LINE else f"{found[0][:LONGEST_LINE]} ..."
        differ = f"   (the first of {len(found)} that differ)" if len(found) > 1 else ""
        some = f"   (of {counts[found[0]]})" if len(found) == 1 and counts[found[0]] < len(blocks) else ""
        merged.append(line + differ + some)
    return merged


def _hosts_of(specs: Sequence[ProcessSpec], hosts: Sequence[str]) -> str:
    """Name the hosts that have these processes, in few words."""
    counts = Counter(spec.host for spec in specs)  # in rank order
    found, others, (least, most) = list(counts), set(hosts) - set(counts), (min(counts.values()), max(counts.values()))
    each = "" if most == 1 else f", {most} on each" if least == most else f", {least} to {most} on each"
    if not others:
        return f"all {len(hosts)} hosts{each}"
    if len(others) == 1 < len(found):
        return f"all hosts but {others.pop()}{each}"
    return (found[0] if len(found) == 1 else f"{len(found)} hosts, {_ends(found)}") + each


def _ends(names: Sequence[str]) -> str:
    """Name the first and the last."""
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"


def _masked(argv: tuple[str, ...]) -> list[str]:
    """The words with `***` for values of `--api_key VALUE` and `NAME_SECRET=VALUE`: plans get pasted into tickets."""
    words: list[str] = []
    for word in argv:
        name, equals, _ = word.partition("=")
        if words and words[-1].startswith("-") and is_secret(words[-1]):
            word = MASK
        elif equals and is_secret(name):
            word = f"{name}={MASK}"
        words.append(word)
    return words


def _block(spec: ProcessSpec, channels: Channels, here: Here | None) -> list[str]:
    lines = [f"  {spec.name:<12} {spec.role}" + (f", {spec.task}" if spec.task else "") + _remarks(spec)]
    lines.append("    command   " + command_line(spec.argv))
    lines += [f"    env       {key}={_quote(value)}" for key, value in spec.environment(()).items()]
    if spec.env_if:
        lines.append(f"    if {spec.env_if[0]}, {spec.env_if[2]} stands there for {spec.env_if[1]}")
    if spec.serves is Serves.MAYBE:
        lines.append("    its end does not decide where it is seen to do no more than serve")
    if spec.runs_program:
        lines.append("    env       SM_* of this host, from sagemaker-training")
    lines += _data(spec, channels)
    lines += _part(spec, here(spec) if here else {})
    if spec.ports:
        lines.append("    ports     " + ", ".join(map(str, spec.ports)))
    lines += [f"    waits for {need}" for need in spec.needs]
    return lines


def _remarks(spec: ProcessSpec) -> str:
    decides = "   its end decides" if spec.decides else ""
    return decides + ("   started by mpirun" if spec.duty is Duty.RANK else "")


def _part(spec: ProcessSpec, env: Mapping[str, str]) -> list[str]:
    """Its part of the host; the numbers, where they are known, are this machine's."""
    shares = [f"1 of {spec.cpu_share} parts of the host's CPUs"] if spec.cpu_share > 1 else []
    if spec.gpu_share == NO_GPU:
        shares.append("none of its GPUs")
    elif spec.gpu_share:
        shares.append(f"part {spec.gpu_share[0] + 1} of {spec.gpu_share[1]} of its GPUs")
    numbers = [f"{key}={_quote(value)}" for key, value in env.items()]
    if not (shares or numbers):
        return []
    here = f"; here {' '.join(numbers)}" if numbers else ""
    return ["    part      " + ", ".join(shares or ["all of the host's CPUs"]) + here]


def _data(spec: ProcessSpec, channels: Channels) -> list[str]:
    """What it reads of the channels; the shards of a channel are numbered from 0."""
    if not (spec.reads and channels.all):
        return []
    lines = ["    reads     " + reads(channels.shards(spec.reader))]
    if spec.reader_if:
        lines.append(f"    if {spec.reader_if[0]}, it reads {reads(channels.shards(spec.reader_if[1]))}")
    return lines


def command_line(argv: tuple[str, ...]) -> str:
    """A command as one would type it, secrets masked."""
    return " ".join(_quote(word) for word in _masked(argv))


def _quote(word: str) -> str:
    """A word as a shell would need it; control characters made visible."""
    if word and all(c.isalnum() or c in "@%+=:,./-_" for c in word):
        return word
    return "'" + word.replace("\n", "\\n").replace("\r", "\\r").replace("'", "'\\''") + "'"
