"""Find what C libraries, interpreters, assertions and Open MPI print before a crash. Pure."""

import re
from collections.abc import Sequence

from entrypoint.launcher.outcome.symptoms import reads_like_symptom

NEAR_LINES = 30  # lines that may follow what ended a program
DETAILS_LINES = 20  # lines
STACK_LINES = 10  # lines of a stack of C functions
ABORTED = "Fatal Python error: Aborted"  # faulthandler prints it after an abort() whose caller has printed the reason

FATAL = re.compile(
    r"^Fatal Python error: |^terminate called |^(free|malloc\w*|realloc|munmap_chunk)\(\): |^double free or corruption"
    r"|^corrupted (size|double)|^\*\*\* (stack smashing|buffer overflow|bit out of range) |: Assertion [`'].*' failed"
    r"|^thread '.*' panicked at |^(panic|fatal error|runtime error): |: F [\w/.]+:\d+\] |^F\d{4} .*\] "
    r"|^# A fatal error has been detected by the Java |^(OpenBLAS|OMP): Error|^Check failed"
    r"|^\[libprotobuf FATAL |^Timeout \(\d+:\d\d:\d\d(\.\d+)?\)!$"
)
# The interpreter is already ending: the reason stands before this.
_AT_EXIT = re.compile(r"^Fatal Python error: .*(at interpreter shutdown|finaliz)|^Python runtime state: finalizing")
_STACK = re.compile(r'^  File ".*", line \d+ in |^(Current t|T)hread 0x\w+|^  <no Python frame>|^  \.\.\.$|^$')
_FRAME_OF_MODULE = re.compile(r'^  File ".*", line \d+ in <module>$')
_MPI_ERROR = re.compile(r"^(?:\[[^\]]*\] )?\*\*\* (An error occurred in |MPI_ERR_)(.*)")
_HANDLER = re.compile(r"\*\*\* Process received signal \*\*\*")  # of Open MPI, before a stack of C functions

Reason = tuple[str, str, bool]  # error line, details, whether it reads like a symptom


def fatal(lines: Sequence[str], after: int | None = None) -> Reason | None:
    """Return the last error of a C library, an interpreter or an assertion. `after`: lines that may follow it."""
    found = [number for number, line in enumerate(lines) if FATAL.search(line)]
    if not found:
        return None
    start = found[-1]
    if after is not None and sum(not _STACK.match(line) for line in lines[start + 1 :]) > after:
        return None
    if lines[start].startswith(ABORTED) and found[:-1] and start - found[-2] <= STACK_LINES:
        start = found[-2]
    error = lines[start].strip()
    follows = [line.strip() for line in lines[start + 1 : start + 2]]
    if follows and (error.endswith(":") or follows[0].startswith("what():")):
        error = f"{error} {follows[0]}"
    details = "\n".join(line for line in lines[start : start + DETAILS_LINES] if line.strip())
    return error, details, reads_like_symptom("", error)


def still_worked(lines: Sequence[str]) -> bool:
    """Return whether a crash shows Python functions that were running, and not an interpreter that ends."""
    start = next((n for n in range(len(lines) - 1, -1, -1) if lines[n].startswith("Fatal Python error: ")), None)
    if start is None or any(_AT_EXIT.match(line) for line in lines[start : start + 5]):
        return False
    # A module's own frame is gone when the interpreter cleans up.
    return any(_FRAME_OF_MODULE.match(line) for line in lines[start:])


def mpi_error(lines: Sequence[str], last_lines: str) -> Reason | None:
    """Return what Open MPI prints before it aborts: `*** An error occurred in MPI_Recv`, then `*** MPI_ERR_...`."""
    found = [(match[1], match[2]) for line in lines if (match := _MPI_ERROR.match(line))]
    where = next((text for kind, text in reversed(found) if kind.startswith("An")), "")
    what = next((kind + text for kind, text in reversed(found) if kind.startswith("MPI")), "")
    if not where or not what:
        return None
    error = f"{where}: {what}"
    symptom = any(reads_like_symptom("", line) for line in [error, *lines[-40:]])
    return error, last_lines, symptom


def of_handler(lines: Sequence[str]) -> Reason | None:
    """Return the first lines of the stack that Open MPI's signal handler prints."""
    start = next((n for n in range(len(lines) - 1, -1, -1) if _HANDLER.search(lines[n])), None)
    return None if start is None else ("", "\n".join(lines[start : start + STACK_LINES]), False)
