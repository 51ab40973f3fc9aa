"""Define a fault (action, target, moment, duration) and parse it. Pure: engines inject it."""

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from entrypoint.base.errors import ConfigError, did_you_mean
from entrypoint.base.python310 import StrEnum

GRAMMAR = "ACTION TARGET [at SECONDS | when TEXT] [for SECONDS]"
ALL = "all"
FOLDERS = ("output", "model")


class Action(StrEnum):
    """Name what a fault does to a host, a process, or a folder."""

    KILL = "kill"  # SIGKILL
    STOP = "stop"  # SIGTERM
    PAUSE = "pause"  # freeze it: it does nothing, and its connections stay open
    STALL = "stall"  # stop reading its output
    CUT = "cut"  # disconnect it from the network, without closing connections
    LATE = "late"  # start it after the others
    HIDE = "hide"  # make its name unknown to other hosts
    FILL = "fill"  # leave no space in a folder of /opt/ml
    READONLY = "readonly"  # make a folder of /opt/ml read-only


_ON_PROCESSES = (Action.KILL, Action.STOP, Action.PAUSE)
_ON_ALL = (Action.KILL, Action.STOP)
_ON_FOLDERS = (Action.FILL, Action.READONLY)
_HAS_TO_END = (Action.STALL, Action.LATE, Action.HIDE)
_MAY_END = (Action.PAUSE, Action.CUT, *_HAS_TO_END)


@dataclass(frozen=True, kw_only=True)
class Fault:
    action: Action
    host: str  # or ALL
    process: str = ""  # its name in `entrypoint plan`, or a program's name; "": the whole host
    folder: str = ""  # one of FOLDERS, for actions on folders
    at: float = 0.0  # seconds from the start of the first host
    when: str = ""  # in place of `at`: once any host prints a line with this text
    lasts: float | None = None  # seconds; None: permanent

    @property
    def from_the_start(self) -> bool:
        """Return whether the fault exists before the first host starts."""
        return self.action is Action.LATE or (self.action is Action.HIDE and not (self.at or self.when))

    def __str__(self) -> str:
        """Return the fault in the grammar of `--fault`."""
        part = self.process or self.folder
        words = [str(self.action), f"{self.host}:{part}" if part else self.host]
        if self.when:
            words += ["when", self.when]
        elif self.at:
            words += ["at", f"{self.at:g}"]
        if self.lasts is not None:
            words += ["for", f"{self.lasts:g}"]
        return shlex.join(words)


def parse_fault(text: str, hosts: Sequence[str]) -> Fault:
    """Return the fault that `text` describes for a job on `hosts`. Raise ConfigError in one line if it is malformed."""
    try:
        return _parse(text, hosts)
    except ValueError as problem:
        raise ConfigError(f"--fault {text!r}: {problem} ({GRAMMAR}; see `entrypoint help faults`)") from None


def _parse(text: str, hosts: Sequence[str]) -> Fault:
    try:
        words = shlex.split(text)
    except ValueError as error:  # an unclosed quotation mark
        raise ValueError(f"cannot be split into words: {str(error).lower()}") from None
    if not words:
        raise ValueError(f"is empty; wanted one of {_list(Action)} and a host")
    if words[0] not in list(Action):
        raise ValueError(f"found {words[0]!r}; wanted one of {_list(Action)}{did_you_mean(words[0], Action)}")
    action = Action(words[0])
    if len(words) == 1:
        raise ValueError(f"found nothing after {action}; wanted {_whom(action)}")
    host, process, folder = _parse_whom(action, words[1], hosts)
    fault = Fault(action=action, host=host, process=process, folder=folder)
    return _with_clauses(fault, words[2:], after=words[1])


def _parse_whom(action: Action, word: str, hosts: Sequence[str]) -> tuple[str, str, str]:
    """Return (host, process, folder) of TARGET."""
    if word == ALL and action in _ON_ALL:
        return ALL, "", ""
    host, colon, part = word.partition(":")
    if host not in hosts:
        everyone = [ALL] if action in _ON_ALL else []
        near = "" if host.startswith("algo-") else did_you_mean(host, [*everyone, *hosts])
        raise ValueError(f"found {host!r} as the host; wanted {'all or ' if everyone else ''}{_list(hosts)}{near}")
    if colon and not part:
        raise ValueError(f"found nothing after {word!r}; wanted {_whom(action)}")
    if action in _ON_FOLDERS:
        if part not in FOLDERS:
            raise ValueError(f"found {word!r}; wanted {_whom(action)}{did_you_mean(part, FOLDERS)}")
        return host, "", part
    if part and action not in _ON_PROCESSES:
        raise ValueError(f"found {word!r}; {action} is for whole hosts: wanted {_whom(action)}")
    return host, part, ""


def _with_clauses(fault: Fault, words: Sequence[str], after: str) -> Fault:
    action, found = fault.action, set[str]()
    while words:
        name, *rest = words
        if name not in ("at", "when", "for"):
            hint = "; quote a TARGET that contains a space" if ":" in after else ""
            hint += did_you_mean(name, ("at", "when", "for"))
            raise ValueError(f"found {name!r} after {after!r}; wanted at, when or for{hint}")
        if not rest or not rest[0]:
            raise ValueError(f"found nothing after {name}; wanted {'text' if name == 'when' else 'seconds'}")
        if name in found or (name != "for" and found & {"at", "when"}):
            raise ValueError(f"found a second clause {name!r}; wanted one of at and when, and one for, at most")
        found.add(name)
        match name:
            case "at":
                fault = replace(fault, at=_seconds(name, rest[0]))
            case "when":
                if "\n" in rest[0]:
                    raise ValueError(f"found {rest[0]!r} after when; wanted text of one line")
                fault = replace(fault, when=rest[0])
            case "for":
                fault = replace(fault, lasts=_seconds(name, rest[0]))
        after, words = rest[0], rest[1:]
    if action is Action.LATE and found & {"at", "when"}:
        raise ValueError(f"{action} counts from the start of the first host; wanted neither at nor when")
    if (fault.from_the_start or action is Action.STALL) and "for" not in found:
        raise ValueError(f"{action} is temporary; wanted `for SECONDS`")
    if action not in _MAY_END and "for" in found:
        raise ValueError(f"{action} is permanent; wanted no `for`")
    return fault


def _seconds(clause: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds) or seconds < 0 or (clause == "for" and seconds == 0):
        raise ValueError(f"found {text!r} after {clause}; wanted seconds{' above 0' if clause == 'for' else ''}")
    return seconds


def _whom(action: Action) -> str:
    if action in _ON_FOLDERS:
        return " or ".join(f"HOST:{folder}" for folder in FOLDERS)
    forms = ["HOST"]
    forms += ["HOST:PROCESS"] if action in _ON_PROCESSES else []
    forms += [ALL] if action in _ON_ALL else []
    return " or ".join(forms)


def targets(action: Action, hosts: Sequence[str]) -> list[str]:
    """Return the targets that an action accepts, other than processes."""
    folders = [f"{host}:{folder}" for host in hosts for folder in FOLDERS]
    return folders if action in _ON_FOLDERS else [*hosts, *([ALL] if action in _ON_ALL else [])]


def _list(names: Sequence[str] | type[Action]) -> str:
    shown = [str(name) for name in names]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", shown[-1]])
