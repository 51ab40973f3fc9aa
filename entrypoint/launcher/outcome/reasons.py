"""Find why a program ended, in its output: an exception that left it, or arguments that it refused. Pure.

Python prints an uncaught exception with frames from the program's first line on, and then runs what was registered for
the end. So that exception is the reason, even if other lines and exceptions follow. When a program refuses its
arguments, the line with the reason stands among usage and hints.
"""

import re
import signal
from collections.abc import Sequence

from entrypoint.base.errors import clip
from entrypoint.base.values import replace
from entrypoint.launcher.outcome.forms import TRACEBACK, boxes
from entrypoint.launcher.outcome.native import NEAR_LINES, complaint, has_words, still_worked
from entrypoint.launcher.outcome.outcome import GAP, Exit
from entrypoint.launcher.outcome.symptoms import reads_like_symptom, without_goodbyes
from entrypoint.launcher.outcome.tracebacks import NOISE, Link, Raised, tracebacks

Chain = tuple[Raised, ...]

AFTER_ONE = {1, 120}  # Python's exit codes after an exception; 120: it could also not write its last output
CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}
NESTED_LINES = 3  # lines between an exception's own line and a traceback in its message

# What a shell prints about a program that it ran.
SHELL = re.compile(
    r"^(?:.*: line \d+: +\d+ )?(Killed|Terminated|Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating point exception|Trace/breakpoint trap)( \(core dumped\))?(?:$| +)"
)
_OF_CHILDREN = {"CalledProcessError", "ChildFailedError"}  # they report a failed program, which has printed its reason
# Raised by who waits for a thread or a process that has ended: that one's exception is the reason.
_WAITED = {"Empty", "Full", "BrokenBarrierError", "BrokenProcessPool", "BrokenThreadPool"}
_OF_A_PROGRAM = re.compile(r"[\w./-]+: [^\d\s]")  # "prepare: no rows"
_ELSEWHERE = re.compile(r"^(Exception in thread |Process \S+:$)")
REFUSAL_LINES = 100  # last lines in which a refusal is looked for
CODES = {2, 64}  # exit codes that mean a refusal, whatever is printed after it; some libraries end with 1
_HYDRA = "Set the environment variable HYDRA_FULL_ERROR=1 "

_ABSL = re.compile(r"^FATAL Flags parsing error:")
_USAGE = re.compile(r"^ *usage:", re.IGNORECASE)
_ERROR = re.compile(r"^([^\s:][^:]*: )?(error|ERROR|Error): ?\S")
_UNMATCHED = re.compile(r"^(ERROR|Error|error|Warning): |: error: |^--?\w")
_OF_USAGE = re.compile(r"$|[ \t]|[A-Za-z][\w ]*:$")  # a line of a usage: empty, indented, or a title
_TITLE = re.compile(r"\b(error|options?|arguments?|invalid|missing|required|unrecognized|unknown)\b", re.IGNORECASE)
_MORE = re.compile(r"[ \t]+\S")
_STEPS = (":", ",")  # ends of a line that continues in the next one


class PrintedOutput:
    """Hold the output of a program, with the exceptions in it."""

    def __init__(self, lines: list[str], arguments: Sequence[str] = ()) -> None:
        found = tracebacks(lines)
        self.lines, self.arguments = lines, arguments
        # With "" for each line that cannot be the reason of an end.
        self.meaningful = without_goodbyes(_without_ignored(lines, found))
        # Those that Python did not ignore, without lines of endings behind their messages.
        self.chains = [tuple(map(_without_goodbyes, chain)) for chain in found if not chain[-1].ignored]

    @property
    def last(self) -> Chain | None:
        """Return the last exception, unless more lines follow than a program prints at its end."""
        if not self.chains or self.lines_after(self.chains[-1]) > NEAR_LINES:
            return None
        return self.chains[-1]

    def lines_after(self, chain: Chain) -> float:
        """Return how many lines follow an exception and may matter; infinity if output is missing there."""
        rest = self.meaningful[chain[-1].last + 1 :]
        if cut := GAP in rest:
            at = rest.index(GAP)
            rest = [*rest[: max(0, at - 1)], *rest[at + 2 :]]  # the lines beside the gap may be halves
        count = sum(not (NOISE.match(line) or SHELL.match(line)) for line in rest)
        return float("inf") if cut and count else count


def _without_goodbyes(raised: Raised) -> Raised:
    kept = zip(raised.lines, without_goodbyes(raised.lines), strict=True)
    return replace(raised, lines=tuple(line for line, keep in kept if keep or not line))


def that_ended_it(exit: Exit, printed: PrintedOutput) -> Chain | None:
    """Return the exception that ended the program; None if there was another reason."""
    chains = printed.chains
    if exit.signal == signal.SIGKILL or not chains:
        return None  # no exception ends so
    last = len(chains) - 1
    at = next((n for n in range(last, -1, -1) if came_out(chains[n]).of_program), None)
    if at is not None and (exit.code in AFTER_ONE or exit.killed_by in CRASHES):
        if not _went_on(exit, chains[at], printed):
            inner = _with_child(chains, _inside(printed, at))
            if chains[at][-1].shows_users_code and not inner[-1].shows_users_code:
                inner = (*inner[:-1], replace(inner[-1], lines=chains[at][-1].lines))
            return inner
        if at == last:
            return None
    after = printed.lines_after(chains[last])
    if not after or (exit.code in AFTER_ONE and came_out(chains[last]).outermost and after <= NEAR_LINES):
        return _with_child(chains, last)
    return None


def printed_before(exit: Exit, printed: PrintedOutput) -> str:
    """Return the exception after which a program printed more lines, if it ended as Python does after one."""
    if exit.code not in AFTER_ONE or not printed.last:
        return ""
    raised = came_out(printed.last)
    return "" if reads_like_symptom(raised.name, raised.message) else clip(raised.line, 200)


def came_out(chain: Chain) -> Raised:
    """Return the exception that came out of the program. In a chain, the members of a group stand behind it."""
    return next((raised for raised in reversed(chain) if raised.link is not Link.MEMBER), chain[-1])


def printed_first(chains: Sequence[Chain], chain: Chain) -> Chain | None:
    """Return the exception that a symptom follows: one that was printed shortly before, or that left a thread."""
    raised = came_out(chain)
    waited = raised.name.rpartition(".")[2] in _WAITED
    if not waited and not all(reads_like_symptom(each.name, each.message) for each in chain):
        return None
    for earlier in reversed(chains):
        before = came_out(earlier)
        distance = chain[0].first - earlier[-1].last
        ended = distance > 0 and (distance <= NEAR_LINES or (before.outermost and not before.of_program))
        if ended and not reads_like_symptom(before.name, before.message):
            return earlier
    return None


def of_child(chains: Sequence[Chain], chain: Chain) -> Raised | None:
    """Return the exception that left a thread or a process shortly before another one ended the program."""
    earlier = next((each for each in reversed(chains) if each[-1].last < chain[0].first), None)
    if earlier is None or chain[0].first - earlier[-1].last > NESTED_LINES:
        return None
    raised = came_out(earlier)
    left = raised.outermost and not raised.of_program and not reads_like_symptom(raised.name, raised.message)
    return raised if left and raised.line not in {each.line for each in chain} else None


def said_by_child(chain: Chain, meaningful: Sequence[str]) -> str:
    """Return the line before an exception about a failed child: the child may have printed it."""
    if len(chain) > 1 or chain[0].name.rpartition(".")[2] not in _OF_CHILDREN:
        return ""
    before = [line for line in meaningful[max(0, chain[0].first - 3) : chain[0].first] if has_words(line)]
    line = before[-1].strip() if before else ""
    return line if complaint([line]) or (_OF_A_PROGRAM.match(line) and not NOISE.match(line)) else ""


def _went_on(exit: Exit, chain: Chain, printed: PrintedOutput) -> bool:
    """Return whether the program, or its shell, continued after an exception and ended for another reason."""
    rest = printed.lines[chain[-1].last + 1 :]
    if printed.lines_after(chain) == float("inf"):
        return True
    return bool(refusal(rest, exit.code)) if exit.killed_by is None else still_worked(rest)


def _inside(printed: PrintedOutput, at: int) -> int:
    """Return the index of a traceback in the message of exception `at`, printed by another process; else `at`."""
    chains = printed.chains
    while at + 1 < len(chains):
        between = [line for line in printed.meaningful[chains[at][-1].last + 1 : chains[at + 1][0].first] if line]
        announced = len(between) == 1 and between[0].endswith(":") and not _ELSEWHERE.match(between[0])
        if chains[at + 1][0].first - chains[at][-1].last > NESTED_LINES or not (announced or not between):
            break
        at += 1
    return at


def _with_child(chains: Sequence[Chain], at: int) -> Chain:
    """Return a chain. If it reports a failed child program, put that program's exception before it."""
    chain = chains[at]
    if at and len(chain) == 1 and chain[0].name.rpartition(".")[2] in _OF_CHILDREN:
        before = chains[at - 1]
        if came_out(before).of_program and chain[0].first - before[-1].last <= NEAR_LINES:
            return (*before, replace(chain[0], link=Link.CAUSE))
    return chain


def _without_ignored(lines: Sequence[str], found: Sequence[Chain]) -> list[str]:
    """Return the lines, with "" where Python reports exceptions that it ignored."""
    kept = list(lines)
    for raised in (raised for chain in found for raised in chain if raised.ignored):
        start = next(n for n in range(raised.first, -1, -1) if n == 0 or has_words(lines[n - 1]))
        start, end = max(0, start - 1), _end_of_logging(lines, raised.last + 1)
        kept[start:end] = [""] * (end - start)
    return kept


def _end_of_logging(lines: Sequence[str], at: int) -> int:
    """Return where a report of logging's own error ends; it includes the place of the call."""
    if at < len(lines) and lines[at] == "Call stack:":
        return next((n + 1 for n in range(at, min(at + 100, len(lines))) if lines[n].startswith("Arguments: ")), at)
    return at


def refusal(lines: Sequence[str], code: int) -> str:
    """Return why a program refused its arguments; "" if it ended for another reason."""
    lines = lines[-REFUSAL_LINES:]
    meaningful = without_goodbyes(lines)
    for find in (_of_absl, _of_usage, _of_box):
        found = find(lines, code)
        if found and (code in CODES or not any(map(has_words, meaningful[found[1] + 1 :]))):
            return found[0]
    return _of_hydra(lines)


Found = tuple[str, int]  # the reason, and the index of the last line of the refusal


def _of_absl(lines: Sequence[str], _: int) -> Found | None:
    start = _last(lines, _ABSL)
    return None if start is None else _whole(lines, start)


def _of_usage(lines: Sequence[str], code: int) -> Found | None:
    """Find an error beside a usage text. Most programs print the usage first; Fire and others print the error first."""
    usage = _last(lines, _USAGE)
    if usage is None:
        return None
    start = next((n for n in range(usage + 1, len(lines)) if _ERROR.match(lines[n])), None)
    if start is not None:
        return _whole(lines, start)
    before = lines[usage - 1] if usage else ""
    end = next((n for n in range(len(lines) - 1, usage, -1) if lines[n]), usage)
    if has_words(before) and (code in CODES or _UNMATCHED.search(before)):
        return before.strip(), end
    if code not in (1, *CODES) or not all(map(_OF_USAGE.match, without_goodbyes(lines[usage + 1 :]))):
        return None
    shown = lines[usage : next((n for n in range(usage, end) if not lines[n]), end + 1)]
    return f"it printed its usage and ended: {' '.join(line.strip() for line in shown)}", end


def _of_box(lines: Sequence[str], _: int) -> Found | None:
    """Find a reason in a box, as Typer, rich-click, tyro and Cyclopts print it."""
    found = [box for box in boxes(lines) if box.title != TRACEBACK and _TITLE.search(box.title) and box.paragraph]
    if not found:
        return None
    box = found[-1]
    text = box.paragraph
    return (text if text.lower().startswith(box.title.lower()) else f"{box.title}: {text}"), box.last


def _of_hydra(lines: Sequence[str]) -> str:
    """Return the paragraph before Hydra's hint."""
    filled = [number for number, line in enumerate(lines) if line]
    if not filled or not lines[filled[-1]].startswith(_HYDRA):
        return ""
    end = next((n for n in range(filled[-1] - 1, -1, -1) if lines[n]), None)
    if end is None:
        return ""
    start = next((n for n in range(end, -1, -1) if not lines[n]), -1) + 1
    return " ".join(line.strip() for line in lines[max(start, end - 7) : end + 1])


def _whole(lines: Sequence[str], start: int) -> Found:
    """Return (message, index of its last line).

    The message continues on indented lines, and after lines that introduce more.
    """
    end = start
    while end + 1 < len(lines) and (_MORE.match(lines[end + 1]) or (lines[end].endswith(_STEPS) and lines[end + 1])):
        end += 1
    return " ".join(line.strip() for line in lines[start : end + 1]), end


def _last(lines: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    return next((n for n in range(len(lines) - 1, -1, -1) if pattern.match(lines[n])), None)
