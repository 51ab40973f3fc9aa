"""Define a case: a job, the actions of its scripts, and its faults. Only values and their JSON."""

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import Any

MODES = ("single", "ps", "ps server", "mwms", "mpi", "jax")  # from which each case draws
OWN_FAULTS = ("slow", "pids", "freeze", "hangup")  # done by outside.py; all others are --fault of `entrypoint local`
DEFAULTS = {"HEARTBEAT": 1.0, "PEER_TIMEOUT": 5.0, "START_TIMEOUT": 13.0, "STOP_GRACE": 3.0, "FAILURE_GRACE": 1.5,
            "KILL_TIMEOUT": 4.0, "RESTARTS": 0.0, "RESTART_BACKOFF": 0.3}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Script:
    """The actions of one user process."""

    seconds: float = 2.0  # of work
    do: str = "ends"  # afterwards: ends, raises, exits, killed, segfaults, model, pool, forges
    code: int = 3  # of exits
    times: int = 99  # in so many attempts; in later ones it ends
    sigterm: str = ""  # "", saves, ignores, fails
    saving: float = 0.3  # seconds
    flood: int = 0  # more lines, of 200 bytes, every tenth of a second
    orphans: bool = False
    needs: str = ""  # "algo-2 rank 1": when that ends with 0, this one fails, as collectives make it


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, in the grammar of --fault, or one of OWN_FAULTS."""

    kind: str
    host: str  # or all
    process: str = ""  # or a folder
    at: float = 0.0  # seconds from the job's start, of freeze from the script's
    when: str = ""  # a line has this text, or pids: a script of the host has started
    lasts: float | None = None

    @property
    def text(self) -> str:
        words = [self.kind, f"{self.host}:{self.process}" if self.process else self.host]
        if self.when:
            words += ["when", self.when]
        elif self.at:
            words += ["at", f"{self.at:g}"]
        if self.lasts is not None:
            words += ["for", f"{self.lasts:g}"]
        return shlex.join(words)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job and its faults, as drawn."""

    name: str = "case"  # SEED/NUMBER
    mode: str = "single"
    hosts: int = 1
    each: int = 1  # processes per host
    netns: bool = True
    token: str = ""  # ENTRYPOINT_TOKEN of the job
    wrap: str = ""  # how the program is started: "" (Python), sh, timeout, setsid
    settings: dict[str, float] = field(default_factory=dict)  # beside DEFAULTS
    scripts: dict[str, Script] = field(default_factory=dict)  # "algo-1 rank 0": what it does, if not as the others
    seconds: float = 2.0  # of work, of the others
    faults: tuple[Fault, ...] = ()

    def setting(self, name: str) -> float:
        return self.settings.get(name, DEFAULTS[name])

    @property
    def names(self) -> list[str]:
        return [f"algo-{number + 1}" for number in range(self.hosts)]

    @property
    def engine(self) -> str:
        return "netns" if self.netns else "process"

    @property
    def processes(self) -> list[tuple[str, str]]:
        """Return (host, process) of every user program, as named in the plan."""
        found = []
        for number in range(self.hosts * self.each):
            host = self.names[number // self.each]
            match self.mode:
                case "single":
                    found.append((host, "script"))
                case "ps" if self.hosts == 1:  # nothing to distribute
                    found.append((host, "script"))
                case "ps" | "ps server":
                    found.append((host, f"worker/{number - 1}" if number else "chief/0"))
                case "mwms" | "jax":
                    found.append((host, f"worker/{number}"))
                case _:
                    found.append((host, f"rank {number}"))
        return found[:1] if self.mode == "ps server" else found

    def script(self, host: str, process: str) -> Script:
        return self.scripts.get(f"{host} {process}", Script(seconds=self.seconds))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Case":
        data: dict[str, Any] = json.loads(text)
        data["scripts"] = {name: Script(**script) for name, script in data["scripts"].items()}
        data["faults"] = tuple(Fault(**fault) for fault in data["faults"])
        return cls(**data)
