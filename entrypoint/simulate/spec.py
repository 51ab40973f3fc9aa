"""Define a job on simulated hosts, and write SageMaker's description of it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrypoint.base.errors import CodeError, ConfigError
from entrypoint.base.python310 import process_cpu_count
from entrypoint.launcher.job import params
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.config import SWITCHES
from entrypoint.launcher.job.files import MAX_HOSTS
from entrypoint.launcher.job.groups import Group, groups_of, resource_config
from entrypoint.launcher.job.settings import ENVIRONMENT_PREFIX, SET_BY_US
from entrypoint.simulate.fault import Fault
from entrypoint.simulate.local_channels import LocalChannel, check_together

MANY = 10  # hosts per CPU; if there are more, their start delays one another's heartbeats
# Settings that we make for each host, and that a user cannot set for all.
INTERNAL = SET_BY_US | {
    f"{ENVIRONMENT_PREFIX}{name}" for name in ("RUN_DIR", "SUMMARY", "HOST_ADDRESSES", "PORT_STRIDE", "PORT_BASE")
}

PEER_TIMEOUT = "sagemaker_entrypoint_peer_timeout"  # a hyperparameter, so that the user's variable overrides it
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class LocalJob:
    """Describe a job on hosts algo-1 ... algo-N. Paths are absolute."""

    program: str  # a file in `source`, the value of hyperparameter sagemaker_program
    source: Path  # the code folder
    hosts: int = 1
    groups: tuple[Group, ...] = ()  # instance groups of all hosts; empty without groups
    mode: str = Mode.AUTO
    processes_per_host: int | None = None
    channels: tuple[LocalChannel, ...] = ()
    checkpoints: Path | None = None  # a folder of this machine that is /opt/ml/checkpoints on all hosts
    hyperparameters: tuple[tuple[str, str], ...] = ()  # as typed
    environment: tuple[tuple[str, str], ...] = ()  # for all hosts
    output: Path
    timeout: float | None = None
    faults: tuple[Fault, ...] = ()
    notes_reads: bool = False  # channels are writable: file systems note no reads on read-only mounts
    watch: int | None = None  # this machine's port for the live page; 0: any
    tensorboard: int | None = None  # this machine's port for TensorBoard; 0: any

    def __post_init__(self) -> None:
        """Raise ConfigError if the values cannot describe a job; files are not checked."""
        if not 1 <= self.hosts <= MAX_HOSTS:
            raise ConfigError(f"--hosts is {self.hosts}; wanted a whole number from 1 to {MAX_HOSTS}")
        if self.timeout is not None and not self.timeout > 0:
            raise ConfigError(f"--timeout is {self.timeout:g}; wanted seconds above 0")
        if self.processes_per_host is not None and self.mode in (Mode.AUTO, Mode.SINGLE):
            raise ConfigError(
                f"--processes-per-host is for --mode ps, mwms, mpi and jax; the mode is {self.mode}, "
                "in which each host runs the script once"
            )
        for option, port in (("--watch", self.watch), ("--tensorboard", self.tensorboard)):
            if port is not None and not 0 <= port < 1 << 16:
                raise ConfigError(f"{option} is {port}; wanted a port of this machine, or 0 for any")
        check_together(self.channels)
        for name, _ in self.environment:
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(f"--env sets {name!r}; wanted the name of an environment variable")

    @property
    def names(self) -> list[str]:
        return host_names(self.hosts)

    @property
    def name(self) -> str:
        """Return the training job's name, in the characters that SageMaker allows."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.output.name).strip("-")[:63] or "local"

    def check_files(self) -> None:
        """Raise CodeError or ConfigError if the program or a channel is not there."""
        if not self.source.is_dir():
            raise CodeError(f"the code folder {self.source} does not exist")
        if not (self.source / self.program).is_file():
            raise CodeError(f"there is no program {self.source / self.program}; wanted the path of a .py or .sh file")
        for channel in self.channels:
            channel.check()
        if self.checkpoints:
            try:
                self.checkpoints.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"--checkpoints {self.checkpoints} is no folder, and none can be made: {error}"
                ) from None

    def config_files(self, host: str) -> dict[str, dict[str, Any]]:
        """Return the files of one host's input/config as {file name: content}."""
        groups = self.groups or (Group(name="homogeneousCluster", instance_type="local", hosts=tuple(self.names)),)
        return {
            "resourceconfig.json": resource_config(host, groups),
            "hyperparameters.json": {
                "sagemaker_program": json.dumps(self.program),
                "sagemaker_job_name": json.dumps(self.name),
                **({PEER_TIMEOUT: f"{self.patience:g}"} if self.patience else {}),
                **self._switches(),
                **{name: encode(text) for name, text in self.hyperparameters},
            },
            "inputdataconfig.json": {channel.name: channel.described() for channel in self.channels},
            **({"checkpointconfig.json": {"LocalPath": "/opt/ml/checkpoints"}} if self.checkpoints else {}),
        }

    @property
    def patience(self) -> float:
        """Return the peer timeout in seconds: the number of hosts per CPU if that is large, else 0."""
        hosts_on_each = self.hosts / process_cpu_count()
        return hosts_on_each if hosts_on_each > MANY else 0.0

    def _switches(self) -> dict[str, str]:
        """Return the hyperparameters that choose the mode: switches of SageMaker's SDK, or else our settings."""
        if self.mode == Mode.AUTO:
            return {}
        switch = SWITCHES.get(Mode(self.mode))
        count = params.MPI_PROCESSES_PER_HOST if self.mode == Mode.MPI else "sagemaker_entrypoint_processes_per_host"
        return {
            **({switch: "true"} if switch else {"sagemaker_entrypoint_mode": str(self.mode)}),
            **({} if self.processes_per_host is None else {count: str(self.processes_per_host)}),
        }


def host_names(count: int) -> list[str]:
    """Return the hosts in rank order, which is SageMaker's: algo-10 comes before algo-2."""
    return sorted(f"algo-{number + 1}" for number in range(count))


def instance_groups(words: Sequence[str]) -> tuple[Group, ...]:
    """Read `NAME=COUNT[:TYPE]` words as groups of algo-1, algo-2 and so on. Raise ConfigError if one is malformed."""
    given = pairs(words, "--group")
    if len(given) < len(words):
        raise ConfigError("--group names a group twice; wanted each once")
    found = []
    for name, text in given:
        number, _, type_ = text.partition(":")
        count = int(number) if re.fullmatch("[0-9]{1,4}", number) else 0
        if not 1 <= count <= MAX_HOSTS:
            raise ConfigError(f"--group has {name}={text!r}; wanted NAME=COUNT or NAME=COUNT:TYPE, such as gpus=2")
        found.append((name, type_ or "local", count))
    return groups_of(found)


def encode(text: str) -> str:
    """Return a hyperparameter as SageMaker's SDK writes it: as JSON that gives the script exactly `text`.

    Numbers and lists stay as they are if the script gets the same characters: 3 but not 3e0, which would become 3.0.
    All else becomes a JSON string.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return json.dumps(text)
    return text if type(value) in (int, float, list) and str(value) == text else json.dumps(text)


def pairs(words: Iterable[str], option: str) -> tuple[tuple[str, str], ...]:
    """Read `name=value` words. Raise ConfigError if one is malformed. A value may contain anything, also =."""
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option} has {word!r}; wanted name=value")
        found[name] = value
    return tuple(found.items())


def settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's ENTRYPOINT_* settings, which hold for simulated hosts, too."""
    return {k: v for k, v in environment.items() if k.startswith(ENVIRONMENT_PREFIX) and k not in INTERNAL}
