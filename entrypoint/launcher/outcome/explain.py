"""Explain why a process failed, from its last output. Pure.

ENDINGS lists what ends programs, the surest first: an exception that left the program; an mpirun that it called; a
signal; a crash of a library or an interpreter; a command line that it refused; or else what it printed last.
"""

import re
import signal
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from entrypoint.base.errors import clip
from entrypoint.launcher.outcome.forms import as_python_prints
from entrypoint.launcher.outcome.native import (
    ILLEGAL,
    LAST_LINES,
    NEAR_LINES,
    Reason,
    complaint,
    fatal,
    has_words,
    is_severe,
    last_lines,
    meaning,
    mpi_error,
    of_handler,
)
from entrypoint.launcher.outcome.outcome import GAP, Confidence, Exit, clip_head
from entrypoint.launcher.outcome.reasons import (
    SHELL,
    Chain,
    PrintedOutput,
    came_out,
    of_child,
    printed_before,
    printed_first,
    refusal,
    said_by_child,
    that_ended_it,
)
from entrypoint.launcher.outcome.symptoms import MILD, SENT, banners, reads_like_symptom
from entrypoint.launcher.outcome.tracebacks import LIBRARY, Link, Raised, announced

ARGUMENTS_CHARS = 120  # characters of the arguments that a program refuses
WIDTH_CHARS = 4000  # characters of a line that are read: some patterns are tried at each of them
LONGEST_CHARS = 400  # characters of the line with the error
LONG_LINES = 12  # lines of a message that are shown whole; a longer one is shown by its beginning and end
FRAMES = 6  # frames of a traceback that are shown whole; of a longer one, those of the user's code

# Terminal sequences and other control characters: a failure text is for people.
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0e-\x1f\x7f-\x9f]")

# Open MPI warns so if ssh started before mpirun (EACCES of setpgid), and goes on: nothing is wrong.
_OF_NO_CONSEQUENCE = re.compile(r"plm:\w+: Warning: setpgid\(")

# PrintedOutput by mpirun and ssh beside the actual error.
_BESIDE = re.compile(
    r"ORTE_ERROR_LOG|PRTE ERROR: |^Warning: Permanently added|^Connection to \S+ closed|^Authorized |^PMIX ERROR"
)

_OF_GRAPH = re.compile(r" ?(\[\[.*?\]\]|\[Op:\w+\])(?= |$)")  # where TensorFlow's error was raised
_GOES_ON = re.compile(r"[ \t]+\S|[-*] ")  # an indented line, which belongs to the one before
_LEADS_ON = (":", ",", "(", "[", "{")  # ends of a line that continues in the next one

_SHOWN_WITH_CODE = {"AssertionError", "NotImplementedError", "StopIteration"}
_FRAME = re.compile(r'^ +File "(?P<file>[^"]*)"')
_RUNNER = re.compile(r"^<frozen runpy>|/mpi4py/(__main__|run)\.py$|/entrypoint/programs/as_tf1\.py$")


class Explanation(NamedTuple):
    """Hold the line with the error, more lines about it, and whether it may be a symptom of something else."""

    error: str
    details: str
    confidence: Confidence


def explain(exit: Exit, output: str, wrote: str = "", arguments: Sequence[str] = ()) -> Explanation:
    """Explain the end of a program from its last output, or from what it wrote to the failure file itself.

    `arguments`: the program's arguments, with secrets masked. If the program refused them, the error shows them, as the
    program may not have printed them.
    """
    printed = PrintedOutput(_readable(output), arguments)
    reason = next(found for find in ENDINGS if (found := find(exit, printed)))
    error, details, is_symptom = reason.error, reason.details, reason.is_symptom or exit.killed_by in SENT
    if wrote := "\n".join(_readable(wrote)).strip():
        error, _, rest = wrote.partition("\n")
        details, is_symptom = rest.strip("\n") or details, is_symptom or reads_like_symptom("", error)
    return _explanation(error, "" if details.strip() == error else details, is_symptom, printed.lines[: reason.end])


def dying(output: str) -> Explanation | None:
    """Explain why a program that still runs is about to end: its last output is an uncaught exception.

    Other processes may fail before this one has ended: Horovod and TensorFlow close connections while Python unwinds.
    """
    printed = PrintedOutput(_readable(output))
    if not printed.last or not came_out(printed.last).outermost or printed.lines_after(printed.last):
        return None
    reason = _of_chain(printed.last)
    return None if reason.is_symptom else _explanation(reason.error, reason.details, False, printed.lines)


def explain_mpirun(output: str) -> Explanation:
    """Explain mpirun's end, mostly as a symptom of a rank. mpirun prints the fault first, then a remedy."""
    lines = [line for line in _readable(output) if not _OF_NO_CONSEQUENCE.search(line)]
    meaningful = [line if not _BESIDE.search(line) else "" for line in lines]
    if not any(map(has_words, meaningful)):
        meaningful = lines
    start = next((number for number, line in enumerate(meaningful) if has_words(line)), len(meaningful))
    end = next((n for n in range(start, len(meaningful)) if not has_words(meaningful[n])), len(meaningful))
    error = " ".join(line.strip() for line in meaningful[start:end])
    details = "\n".join([line for line in meaningful[end:] if has_words(line)][: 2 * LAST_LINES])
    return Explanation(_with_meaning(error, lines), clip(details, 2000), Confidence.LOW)


def _explanation(error: str, details: str, symptom: bool, lines: Sequence[str]) -> Explanation:
    confidence = Confidence.LOW if symptom else Confidence.HIGH
    return Explanation(_with_meaning(error, lines), clip_head(details, 2000), confidence)


def _with_meaning(error: str, lines: Sequence[str]) -> str:
    means = meaning(error, lines)
    return f"{clip(error, LONGEST_CHARS - len(means) - 3)} ({means})" if means else clip(error, LONGEST_CHARS)


# --- the endings ---


def _exception(exit: Exit, printed: PrintedOutput) -> Reason | None:
    """Find the exception that left the program, with its causes in other threads, processes and programs."""
    chain = that_ended_it(exit, printed)
    if not chain:
        return None
    reason = _of_chain(chain)
    if earlier := printed_first(printed.chains, chain):
        # It may have been handled, and have nothing to do with the end: so what another process says counts more.
        first = _of_chain(earlier)
        reason = Reason(first.then(reason.error), first.details, reason.is_symptom)
    elif child := of_child(printed.chains, chain):
        reason = reason._replace(error=f"{clip(reason.error, 200)} (after {clip(child.line, 200)})")
    elif said := said_by_child(chain, printed.meaningful):
        reason = reason._replace(error=f"{clip(reason.error, 200)} (the line before: {clip(said, 150)})")
    return reason._replace(end=chain[-1].last + 1)


def _mpirun(exit: Exit, printed: PrintedOutput) -> Reason | None:
    """Find the error of an mpirun that a script called; lines that follow from a rank's failure count last."""
    if exit.signal is not None:
        return None
    lines, meaningful = printed.lines, printed.meaningful
    for banner in reversed([*banners(lines)]):
        if not any(map(has_words, meaningful[banner.last :] if not banner.is_symptom else meaningful)):
            return Reason(banner.words, last_lines(lines[banner.first :]), banner.is_symptom)
    return None


def _signal(exit: Exit, printed: PrintedOutput) -> Reason | None:
    """Find the last message before the signal that killed the program, or a program that it ran."""
    number = exit.killed_by
    if number is None:
        return None
    reason, last = _of_signal(printed.lines, number), printed.last
    if reason.is_symptom and last and not _is_symptom(came_out(last)):
        first = _of_chain(last)
        reason = first._replace(error=first.then(reason.error))
    if number == signal.SIGILL and not reason.error:
        reason = reason._replace(error=ILLEGAL)
    if exit.signal is None:
        child = f"{exit.code} is 128 + {number}: a shell's program was killed by {signal.Signals(number).name}"
        reason = reason._replace(error=f"{reason.error} ({child})" if reason.error else child)
    return reason


def _of_signal(lines: list[str], number: int) -> Reason:
    by_itself = number not in (signal.SIGKILL, signal.SIGTERM)
    if by_itself and (found := fatal(lines)):
        return found
    stack = of_handler(lines) if by_itself else None
    if number not in (*SENT, signal.SIGKILL) and (said := complaint(lines)):
        return Reason(said.strip(), stack.details if stack else last_lines(lines))
    if stack:
        return stack
    by_shell = next((line.strip() for line in reversed(lines) if SHELL.match(line)), "")
    of_rank = next((banner.words for banner in reversed([*banners(lines)])), "")
    return Reason(by_shell or of_rank, last_lines(lines))


def _crash(_: Exit, printed: PrintedOutput) -> Reason | None:
    """Find the last message of a C library, an interpreter or Open MPI before a crash."""
    return fatal(printed.lines, NEAR_LINES) or mpi_error(printed.lines)


def _refusal(exit: Exit, printed: PrintedOutput) -> Reason | None:
    """Find why the program refused its arguments."""
    lines, chains = printed.lines, printed.chains
    refused = refusal(lines[chains[-1][-1].last + 1 :] if chains else lines, exit.code)
    if not refused:
        return None
    if printed.arguments:
        refused = f"{clip(refused, 250)} (its arguments: {_first_of(printed.arguments)})"
    return Reason(clip(refused, LONGEST_CHARS), last_lines(lines))


def _last_line(exit: Exit, printed: PrintedOutput) -> Reason:
    """Find the last text of a program that ends itself, as by `sys.exit("text")`.

    The text may have several lines. Only indented lines, and lines that lead on to the next, show where it begins.
    """
    lines, meaningful = printed.lines, printed.meaningful
    words = [line for line in meaningful[meaningful.index(GAP) + 2 if GAP in meaningful else 0 :] if has_words(line)]
    words = words or [line for line in lines if " ERROR" in line]  # those of a tracker, for example
    belongs = [False, *(_GOES_ON.match(line) or before.endswith(_LEADS_ON) for before, line in pairwise(words))]
    first = next((n for n in range(len(words) - 1, max(-1, len(words) - LAST_LINES), -1) if not belongs[n]), -1)
    error = _OF_GRAPH.sub("", " ".join(line.strip() for line in words[first:]))
    # A program may log its reason, and then how it ends.
    logged = (each for each in reversed(words[-LAST_LINES:first]) if is_severe(each))
    severe = announced(words[-NEAR_LINES:]) or next(
        (each.strip() for each in logged if not reads_like_symptom("", each)), ""
    )
    symptom = reads_like_symptom("", error)
    if severe not in error and not is_severe(error):
        symptom = symptom and not MILD.search(error)
        error = severe if MILD.search(error) else f"{clip(error, 200)} (after {clip(severe, 200)})"
    if before := printed_before(exit, printed):
        error = f"{clip(error, 250)} (after {before})"
    return Reason(error, last_lines(lines), symptom)


# What ends a program, the surest first. The first that finds its reason in the output explains the end.
ENDINGS: tuple[Callable[[Exit, PrintedOutput], Reason | None], ...] = (
    _exception,
    _mpirun,
    _signal,
    _crash,
    _refusal,
    _last_line,  # finds one in any output
)


# --- exceptions ---


def _of_chain(chain: Chain) -> Reason:
    """Explain an exception that left a program.

    For a symptom, explain the last earlier exception that is no symptom.
    """
    own = [raised for raised in chain if raised.link is not Link.MEMBER]
    members = chain[chain.index(own[-1]) + 1 :] if own else chain
    if members:
        return _of_group(own[-1:], members)
    meaningful = [raised for raised in own if not _is_symptom(raised)] or own
    chosen = meaningful[-1]
    error = chosen.line if chosen.message else _with_code(chosen)
    if whys := _came_of(own[: own.index(chosen) + 1], error):
        error = f"{clip(error, 250)} ({', '.join(whys)})"
    # an exception that came of a symptom may be one itself
    return Reason(error, _details(chosen), _is_symptom(own[0]))


def _came_of(chain: Sequence[Raised], error: str) -> list[str]:
    """Return the causes of a chain's last exception: the exception before it, and the first one."""
    words = {Link.CAUSE: "because of", Link.CONTEXT: "while handling"}
    found: list[str] = []
    for number in sorted({len(chain) - 2, 0} - {-1, len(chain) - 1}, reverse=True):
        why, link = chain[number], chain[number + 1].link
        new = (why.message or why.name) not in " ".join([error, *found])
        if link in words and new and (link is Link.CAUSE or not _is_symptom(why)):
            found.append(f"{words[link]} {clip(why.line, 250)}")
    return found


def _with_code(raised: Raised) -> str:
    """Return the line of an exception that has no message, with the code that raised it, such as an assertion."""
    frames = [number for number, line in enumerate(raised.lines) if _FRAME.match(line)]
    code = raised.lines[frames[-1] + 1].strip() if frames and frames[-1] + 1 < len(raised.lines) else ""
    is_code = raised.name in _SHOWN_WITH_CODE and not code.endswith("(")
    return f"{raised.line}: {clip(code, 200)}" if is_code and code else raised.line


def _of_group(group: Sequence[Raised], members: Sequence[Raised]) -> Reason:
    """Explain a group of exceptions by its members; symptoms are named only if there is nothing else."""
    meaningful = [member for member in members if not _is_symptom(member)] or members
    error = ": ".join([*[raised.line for raised in group], "; ".join(member.line for member in meaningful)])
    return Reason(error, "\n".join(map(_details, [*group, *meaningful])), all(map(_is_symptom, members)))


def _is_symptom(raised: Raised) -> bool:
    return reads_like_symptom(raised.name, raised.message)


def _details(raised: Raised) -> str:
    """Return a traceback as a short text: without marks, and only with the user's frames if it is long."""
    lines = [line for line in raised.lines if not re.match(r"^[ |]+[~^]+$", line)]
    frames: list[tuple[str, list[str]]] = []
    others: list[str] = []
    for line in lines:
        if found := _FRAME.match(line):
            frames.append((found["file"], [line]))
        elif frames and line.startswith("    ") and not others:
            frames[-1][1].append(line)
        elif frames:
            others.append(line)
    frames = [frame for frame in frames if not _RUNNER.search(frame[0])]
    shown = frames
    if len(frames) > FRAMES:
        shown = [frame for frame in frames[:-1] if not LIBRARY.search(frame[0])] + frames[-1:]
    head = [] if not lines or _FRAME.match(lines[0]) else lines[:1]
    left_out = [f"  ... {len(frames) - len(shown)} frames of libraries"] if len(shown) < len(frames) else []
    body = [line for _, frame in shown for line in frame]
    message = [clip(line, 300) for line in others if line.strip()]
    if len(message) > LONG_LINES:
        message = [*message[:3], f"... {len(message) - 5} lines", *message[-2:]]
    return "\n".join([*head, *left_out, *body, *message])


# --- texts ---


def _first_of(arguments: Sequence[str]) -> str:
    """Return as many of the first arguments as fit into ARGUMENTS_CHARS.

    No argument is cut, since half a secret would not be recognised and masked later.
    """
    shown: list[str] = []
    for word in arguments:
        if sum(map(len, shown)) + len(shown) + len(word) > ARGUMENTS_CHARS:
            return " ".join([*shown, "..."])
        shown.append(word)
    return " ".join(shown)


def _readable(output: str) -> list[str]:
    lines = re.split(r"\r\n|[\n\r\x0b\x0c\x85\u2028\u2029]", output)
    lines = [_CONTROL.sub("", line[: None if line[:1] == "{" else WIDTH_CHARS]).rstrip() for line in lines]
    return [line[:WIDTH_CHARS] for line in as_python_prints(lines)]
