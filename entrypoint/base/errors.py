"""Our own exceptions and the exit code of each class of failure that is not a user process's own.

A user's process keeps its code (or 128 + signal); the codes below follow sysexits.h, so that they
do not collide with what scripts commonly return. tests/unit/launcher/outcome/test_outcome.py holds them unique.
"""

import json
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, TypeVar, cast

T = TypeVar("T")


FAULT = "fault of the launcher"  # what a cause is where the launcher itself is to blame


class ExitCode(IntEnum):
    """Exit codes that the launcher itself chooses."""

    SUCCESS = 0
    CODE = 65  # the user's code could not be fetched, installed or found
    START_TIMEOUT = 68  # not every host came up in time
    HOST_LOST = 69  # a host of the job stopped answering
    INTERNAL = 70  # a fault of ours
    HUNG = 72  # no process of training gets on, and the settings say that this is a failure
    NOT_ENDED = 71  # a process survives SIGKILL, and no other attempt can start beside it
    CONFIG = 78  # the job's configuration is wrong
    STOPPED = 143  # SIGTERM: StopTrainingJob, or the maximum runtime


class _OneLine(Exception):
    """What was found, what was wanted, where, what to do: in one line, whatever was found."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class ConfigError(_OneLine):
    """The job was described wrongly."""


class ConfigErrors(list[ConfigError]):
    """What is wrong with a description of which the rest is read all the same."""

    def instead(self, otherwise: Any, read: Callable[..., T], *what: Any) -> T:
        """Read; where that is an error, note it and go on with another value."""
        try:
            return read(*what)
        except ConfigError as error:
            self.append(error)
            return cast(T, otherwise)


class CodeError(_OneLine):
    """The user's code is not where it was said to be."""


def printable(text: str) -> str:
    """Return a text as a terminal may have it: what would be a command to that, as an escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(value: object) -> str:
    """Return a value that was found, for a message about it."""
    return shorten(json.dumps(value, default=str))


def did_you_mean(word: str, names: Iterable[str], form: str = "{}") -> str:
    """Return `; did you mean NAME?` for the name nearest to `word`, as `form` writes it; nothing if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(names), n=1)
    return f"; did you mean {form.format(near[0])}?" if near else ""


def shorten(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "..."
