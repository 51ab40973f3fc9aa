"""Define how processes and jobs end: Exit, Cause and Outcome, the failure text, and the output that explains an end."""

import os
import signal
from collections.abc import Callable

from entrypoint.base.errors import ExitCode, clip
from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value, replace
from entrypoint.base.wording import blamed

FAILURE_TEXT_CHARS = 1024  # characters of /opt/ml/output/failure that reach FailureReason (API reference)
GAP = "[... output that was not kept ...]"  # stands between the beginning of a traceback and the last output
LAST_BYTES = 1 << 14  # bytes of the last output that are kept
_BEGINNING_BYTES = 1 << 14  # bytes of the last traceback that are kept, from its beginning
_BEFORE_BYTES = 1 << 11  # bytes before it: the exception that it came of, an allocator's report of the memory
_HEADER = b"Traceback (most recent call last)"  # followed by a colon, or by the border of a box


class Exit(Value):
    """Describe how one process ended: by an exit code, or by the signal that killed it."""

    code: int  # as a shell reports it: 0-255, or 128 + signal
    signal: int | None = None

    @classmethod
    def from_wait_status(cls, status: int) -> "Exit":
        """Return the Exit for a status of os.waitpid."""
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            return cls(code=128 + number, signal=number)
        return cls(code=os.WEXITSTATUS(status))

    @property
    def clean(self) -> bool:
        return self.code == 0

    @property
    def killed_by(self) -> int | None:
        """Return the signal that killed the process, or a program that it ran, as a shell's exit code shows."""
        if self.signal is not None:
            return self.signal
        return self.code - 128 if self.code - 128 in {*signal.Signals} else None

    @property
    def short(self) -> str:
        """Return the code, or the signal's name."""
        if self.signal is None:
            return str(self.code)
        return next((known.name for known in signal.Signals if known == self.signal), f"signal {self.signal}")

    def __str__(self) -> str:
        return f"{'exit code' if self.signal is None else 'killed by'} {self.short}"


class Confidence(StrEnum):
    """Rate how sure it is that a failure came first, and is no symptom of another failure."""

    HIGH = "high"
    LOW = "low"


class Cause(Value):
    """Describe what went wrong, and on which host. `process` is "" if it concerns the whole host."""

    host: str
    process: str
    what: str  # "exit code 1", "killed by SIGSEGV", "does not answer", ...
    error: str = ""  # the exception's line, or the message
    details: str = ""  # last lines of the traceback
    code: int = ExitCode.INTERNAL
    confidence: Confidence = Confidence.HIGH
    restartable: bool = False  # looks transient: it may end well next time
    exit: Exit | None = None  # of the process, if its end is what went wrong

    @property
    def headline(self) -> str:
        """Return one line: host and process, how it ended, and the exception."""
        return blamed(self.host, self.process, self.what, self.error)

    def with_texts(self, change: Callable[[str], str]) -> "Cause":
        """Return a copy with each text changed, for example masked."""
        return replace(self, what=change(self.what), error=change(self.error), details=change(self.details))


class Kind(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class Outcome(Value):
    """Describe how the job ended, the same on every host."""

    kind: Kind
    exit_code: int
    cause: Cause | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.exit_code < 256:  # the kernel would keep only the last eight bits
            raise ValueError(f"an exit code is from 0 to 255, not {self.exit_code}")
        if (self.exit_code == 0) != (self.kind is Kind.SUCCEEDED):
            raise ValueError(f"an outcome '{self.kind}' cannot have exit code {self.exit_code}")

    def failure_text(self, limit: int = FAILURE_TEXT_CHARS) -> str:
        """Return the text for /opt/ml/output/failure: the cause in the first line, then the end of the traceback."""
        if self.cause is None:
            return str(self.kind)
        text = clip(self.cause.headline, limit)
        details = self.cause.details.strip()
        left = limit - len(text) - 1
        if details and left > 40:
            text += "\n" + clip_head(details, left)
        return text

    def with_texts(self, change: Callable[[str], str]) -> "Outcome":
        """Return a copy with each text of its cause changed."""
        return self if self.cause is None else replace(self, cause=self.cause.with_texts(change))


def succeeded() -> Outcome:
    return Outcome(kind=Kind.SUCCEEDED, exit_code=ExitCode.SUCCESS)


def stopped() -> Outcome:
    return Outcome(kind=Kind.STOPPED, exit_code=ExitCode.STOPPED)


def failed(cause: Cause) -> Outcome:
    """Return a failure. Its exit code is never 0, whatever the process that caused it returned."""
    return Outcome(kind=Kind.FAILED, exit_code=cause.code if 0 < cause.code < 256 else 1, cause=cause)


def clip_head(text: str, limit: int) -> str:
    """Return the last `limit` characters, with a mark if something was cut."""
    return text if len(text) <= limit else "..." + text[-(limit - 3) :]


class Tail:
    """Keep a process's last lines, and the beginning of its last traceback, which may stand long before them."""

    def __init__(self) -> None:
        self._last = b""
        self._traceback = b""
        self._since = 0  # bytes since the traceback began

    def add(self, lines: bytes) -> None:
        found = lines.rfind(_HEADER)
        if found >= 0:
            begins = lines.rfind(b"\n", 0, found) + 1
            before = (self._last + lines[:begins])[-_BEFORE_BYTES:]
            self._traceback = before + lines[begins : begins + _BEGINNING_BYTES - len(before)]
            self._since = len(before) + len(lines) - begins
        elif self._traceback:
            self._traceback += lines[: _BEGINNING_BYTES - len(self._traceback)]
            self._since += len(lines)
        self._last = (self._last + lines[-LAST_BYTES:])[-LAST_BYTES:]

    def whole(self, unfinished: bytes = b"") -> bytes:
        """Return everything that is kept; a line marks a gap."""
        last = (self._last + unfinished)[-LAST_BYTES:]
        since = self._since + len(unfinished)
        if not self._traceback or since <= LAST_BYTES:
            return last
        missing = since - len(self._traceback) - len(last)
        if missing <= 0:
            return self._traceback + last[-missing:]
        return self._traceback + b"\n" + GAP.encode() + b"\n" + last
