"""Define the plan: the processes of each host, their commands, and their order. Types only; nothing here runs.

Every host computes the same plan from the same job and takes its own rows. The ways of distributing differ only in data
of the plan, such as which processes decide the job's end and which must be ready first. So the supervisor knows nothing
of TensorFlow, and little of mpirun (docs/decisions.md).
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value, fresh
from entrypoint.launcher.job.channels import Channels, Reader
from entrypoint.launcher.job.choices import WorkerEnd

ALL_HOSTS = "*"
ANY = "*"  # a host's value for a thing that must be the same on other hosts, but not here
CLUSTER = '"@cluster"'  # in TF_CONFIG: stands for all addresses, a text that the tasks of a job share
ADDRESS = "ENTRYPOINT_ADDRESS"  # environment variable: by which the other hosts know this one; for as_jax.py
ATTEMPT = "ENTRYPOINT_RESTART_COUNT"  # environment variable: how often the process was started again
NO_GPU = (0, 0)  # a `gpu_share`
PREPARE = "prepare"  # the step that fetches and installs the user's code, once per host
PREFLIGHT = "preflight"  # not a process: a host is ready with it when it has found and reached all others


class Role(StrEnum):
    """Name the role of a process in the job."""

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
    """Define what the end of a process means, and when the process is stopped."""

    STEP = "step"  # exits with 0 before others start
    SCRIPT = "script"  # user's program: its end decides; it gets SIGTERM first
    LAUNCHER = "launcher"  # starts ranks: its end decides, but it only fails because they did
    RANK = "rank"  # user's program, started by the launcher: a failure counts, success does not decide
    SIDECAR = "sidecar"  # user's program: as RANK, but it gets time after the success of the others
    SERVER = "server"  # runs until every deciding process of every host has ended

    @property
    def decides(self) -> bool:
        return self in (Duty.SCRIPT, Duty.LAUNCHER)

    @property
    def is_users(self) -> bool:
        return self in (Duty.SCRIPT, Duty.RANK, Duty.SIDECAR)


USERS = tuple(duty for duty in Duty if duty.is_users)


class Restart(StrEnum):
    """Define what happens to a process when the job is tried again."""

    KEEP = "keep"  # keeps running
    GROUP = "group"  # ends and starts again with all others
    ALONE = "alone"  # as GROUP; but if it fails, it is started again without the others


class Ready(StrEnum):
    """Define when a process counts as ready."""

    STARTED = "started"
    ENDED = "ended"  # ended with exit code 0
    LISTENING = "listening"  # something listens on the first of its ports


class Flag(StrEnum):
    """Name a fact about the user's code that only the prepare step can find."""

    TF1_SESSIONS = "tf1-sessions"
    TF1_TRAIN = "tf1-train"  # calls an Estimator's train, and nothing that would start the server it connects to
    TF1_MASTER = "tf1-master"  # written for AWS's images, where rank 0 of parameter servers is the task `master`


class Need(Value):
    """Name a process that must be ready first, on one host or on all of them.

    With `only_if`, the need counts only if the prepare step found that flag. With `at_most`, it is dropped after that
    many seconds: an early start is better than none.
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


class Command(Value):
    """Hold the user's program: a file, until the prepare step finds that it is a package."""

    file: str
    arguments: tuple[str, ...]
    python: tuple[str, ...]  # the interpreter with its options

    def argv(self, module: str = "") -> tuple[str, ...]:
        """Return the command as a list, which no shell reads. A `module` runs in place of the file."""
        if module or self.file.endswith(".py"):
            return (*self.python, *(("-m", module) if module else (self.file,)), *self.arguments)
        # A shell runs the file, as in sagemaker-training, but gets the words as "$@".
        return ("/bin/sh", "-c", 'exec "$0" "$@"', f"./{self.file}", *self.arguments)


class ProcessSpec(Value):
    """Describe a process that should run. A Process is a running one."""

    apart: ClassVar = frozenset({"stdin"})

    host: str
    name: str  # unique on the host: "ps/0", "worker/1", "rank 3", "mpirun"
    role: Role
    duty: Duty
    task: str = ""  # "worker 0 of 2", "rank 3, local rank 1"
    argv: tuple[str, ...] = ()  # the program's, if empty
    program: Command | None = None  # the user's program, whose environment has SM_*
    env: tuple[tuple[str, str], ...] = ()  # what we set, beyond the container's environment and SM_*
    env_defaults: tuple[tuple[str, str], ...] = ()  # what we set where the container's environment has no value
    cluster: str = ""  # JSON that replaces CLUSTER in `env`
    env_if: tuple[Flag, str, str] | None = None  # with this flag, the second text replaces the first in `env`
    ends: WorkerEnd = WorkerEnd.OWN  # unless it is OWN, the script may only serve, and its end does not decide then
    reader: Reader | None = None  # its place among the processes that train and share the channels; None: it reads all
    reader_if: tuple[Flag, Reader] | None = None  # with this flag, this reader replaces `reader`
    cwd: Path | None = None
    stdin: str = ""  # set only on the host that plans
    ports: tuple[int, ...] = ()
    needs: tuple[Need, ...] = ()
    ready: Ready = Ready.STARTED
    restart: Restart = Restart.GROUP
    cpu_share: int = 0  # it may keep one part in so many of the host's CPUs busy; 0: no limit is set
    gpu_share: tuple[int, int] | None = None  # (index, of how many): its part of the host's GPUs; None: it sees all
    lingers: float = 0.0  # of a sidecar: seconds that it may run after all deciding processes have ended well
    key_name: str = ""  # name under which `public_key_file` is sent to the hosts that need this process
    public_key_file: Path | None = None

    def __post_init__(self) -> None:
        if self.program and not self.argv:
            object.__setattr__(self, "argv", self.program.argv())

    @property
    def runs_program(self) -> bool:
        return self.program is not None

    @property
    def decides(self) -> bool:
        return self.duty.decides and self.ends is not WorkerEnd.CHIEF

    def but(self, **changes: Any) -> "ProcessSpec":
        """Return a copy with other values. values.replace also checks them, and takes six times as long."""
        copy = object.__new__(ProcessSpec)
        copy.__dict__.update(self.__dict__ | changes)
        return copy

    def environment(self, flags: Collection[str]) -> dict[str, str]:
        """Return `env` for these flags, with CLUSTER replaced."""
        flag, old, new = self.env_if or (None, "", "")
        whole = {key: value.replace(CLUSTER, self.cluster) for key, value in self.env}
        return {key: value.replace(old, new) if flag in flags else value for key, value in whole.items()}

    @property
    def reads(self) -> bool:
        """Return whether the process gets ENTRYPOINT_SHARDS, which lists its shards of the channels.

        A script on hosts that share nothing does not get it: it may start ranks or a cluster of its own, which then
        share the channels.
        """
        return self.reader is not None or (self.runs_program and self.role is not Role.SCRIPT)

    def reader_with(self, flags: Collection[str]) -> Reader | None:
        return self.reader_if[1] if self.reader_if and self.reader_if[0] in flags else self.reader


class Plan(Value):
    """Hold all processes of all hosts, in rank order."""

    title: str  # "parameter servers: 3 ps, 1 chief, 2 workers on 3 hosts"
    hosts: tuple[str, ...]
    processes: tuple[ProcessSpec, ...]
    notes: tuple[str, ...] = ()
    daemon: str = ""  # with which mpirun starts ranks on other hosts
    hosts_meet: bool = True  # processes of different hosts connect, so each host must reach all others
    channels: Channels = fresh(Channels)  # those of the host that plans

    def on(self, host: str) -> tuple[ProcessSpec, ...]:
        """Return the processes of one host in the order in which they are started."""
        return tuple(spec for spec in self.processes if spec.host == host)

    @property
    def readers(self) -> list[Reader]:
        return [spec.reader for spec in self.processes if spec.reader]
