"""Define the launcher's exceptions, and the exit codes of failures that are not the user's process's own.

A user's process keeps its own code (or 128 + signal). The codes below follow sysexits.h, so that they do not collide
with what scripts commonly return. tests/unit/launcher/outcome/test_outcome.py checks that they are unique.
"""

import importlib
import json
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, TypeVar, cast

T = TypeVar("T")

FAULT = "fault of the launcher"  # `what` of a cause when the launcher itself is to blame
WHEEL = "sagemaker-tf-entrypoint"


class ExitCode(IntEnum):
    """List the exit codes that the launcher itself chooses."""

    SUCCESS = 0
    CODE = 65  # the user's code could not be fetched, installed or found
    START_TIMEOUT = 68  # not every host came up in time
    HOST_LOST = 69  # a host of the job stopped answering
    INTERNAL = 70  # the launcher has a fault
    HUNG = 72  # training makes no progress, and the settings call that a failure
    NOT_ENDED = 71  # a process survives SIGKILL, so no other attempt can start beside it
    CONFIG = 78  # the job's configuration is wrong
    STOPPED = 143  # SIGTERM: StopTrainingJob, or the maximum runtime


class _OneLine(Exception):
    """Hold a message of one line: what was found, what was wanted, where, and what to do.

    Characters that a terminal would interpret are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class ConfigError(_OneLine):
    """Report that the job's description is wrong."""


class ConfigErrors(list[ConfigError]):
    """Collect the errors of a job's description, so that the rest of it can still be read."""

    def instead(self, otherwise: Any, read: Callable[..., T], *what: Any) -> T:
        """Return what `read(*what)` returns. If it raises ConfigError, note the error and return `otherwise`."""
        try:
            return read(*what)
        except ConfigError as error:
            self.append(error)
            return cast(T, otherwise)


class CodeError(_OneLine):
    """Report that the user's code is not at the place that the job names."""


def printable(text: str) -> str:
    """Return a text in which every character that a terminal would interpret as a command is escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(value: object) -> str:
    """Return a value as short JSON, for a message that shows what was found."""
    return clip(json.dumps(value, default=str))


def did_you_mean(word: str, names: Iterable[str], form: str = "{}") -> str:
    """Return `; did you mean NAME?` for the name nearest to `word`, as `form` formats it; "" if no name is near."""
    near = nearest(word, names)
    return f"; did you mean {form.format(near)}?" if near else ""


def nearest(word: str, names: Iterable[str], least: float = 0.6) -> str:
    """Return the name nearest to `word`, "" if none is near. Upper and lower case do not differ.

    `least`: how near it must be, from 0 to 1.
    """
    from difflib import get_close_matches

    lower = {str(name).lower(): str(name) for name in names}
    near = get_close_matches(word.lower(), lower, n=1, cutoff=least)
    return lower[near[0]] if near else ""


def clip(text: str, limit: int = 200) -> str:
    """Return the first `limit` characters, with a mark if something was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 3)] + "..."


def imported(module: str, extra: str, what: str) -> Any:
    """Import a module by its full name.

    If it is missing, raise ConfigError. Its text begins with `what`, and names our extra `extra` as the remedy.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise ConfigError(f"{what} takes {package}, which is not installed: pip install '{WHEEL}[{extra}]'") from None
