"""Judge the cases: expected result, actual result, and a table of all. Pure: values in, values out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

SHOWN = 200  # characters of what was seen, in a row of the table


@dataclass(frozen=True)
class Outcome:
    """The expected result of a case. `codes`: exit codes of its commands, by default 0 of each.

    `says`: regular expressions that the log must match; `never`: those that it must not match.
    """

    says: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ran:
    """The actual result of a case. `codes`: of the commands that ran; None for one that reached its limit."""

    codes: tuple[int | None, ...]
    log: str
    seconds: float


@dataclass(frozen=True)
class Row:
    """A case in the table. `not_run`: why it did not run; `complaints`: differences; `seen`: figures."""

    root: str
    case: str
    seconds: float = 0.0
    not_run: str = ""
    complaints: tuple[str, ...] = ()
    seen: tuple[str, ...] = field(default=())

    @property
    def outcome(self) -> str:
        if self.not_run:
            return f"not run: {self.not_run}"
        return "FAILED" if self.complaints else "as expected"


def complaints(wanted: Outcome, ran: Ran, commands: int, limit: float) -> tuple[str, ...]:
    """Return the differences from the expected result, () if none. `limit`: seconds for all commands of the case."""
    codes: tuple[int | None, ...] = wanted.codes or (0,) * commands
    found = []
    if None in ran.codes:
        found.append(f"it had not ended after {limit:g} s")
    elif ran.codes != codes:
        found.append(f"found exit code {_listed(ran.codes)}, wanted {_listed(codes)}")
    found += [f"the log lacks /{each}/" for each in wanted.says if not re.search(each, ran.log, re.MULTILINE)]
    for each in wanted.never:
        if met := re.search(each, ran.log, re.MULTILINE):
            found.append(f"the log has {_line(ran.log, met.start())!r}")
    return tuple(found)


def seen(shows: Sequence[str], log: str) -> tuple[str, ...]:
    """Return the log's last match of each regular expression, or of one with a group all different matches."""
    found = []
    for each in shows:
        pattern = re.compile(each, re.MULTILINE)
        matches = [match.group(pattern.groups and 1) for match in pattern.finditer(log)]
        found += dict.fromkeys(matches) if pattern.groups else matches[-1:]
    return tuple(found)


def table(rows: Sequence[Row]) -> str:
    """Return the table of all cases in Markdown."""
    lines = ["| image | case | outcome | s | what was seen |", "|---|---|---|---|---|"]
    for row in rows:
        words = "; ".join((*row.complaints, *row.seen)).replace("|", "\\|")
        words = words if len(words) <= SHOWN or row.complaints else words[: SHOWN - 3] + "..."
        seconds = "" if row.not_run else f"{row.seconds:.0f}"
        lines.append(f"| {row.root} | {row.case} | {row.outcome} | {seconds} | {words} |")
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> tuple[int, str]:
    """Return the exit code and the last line. A case that did not run is no failure, unless none ran."""
    failed = [row.case for row in rows if row.complaints]
    run = sum(not row.not_run for row in rows)
    if failed:
        return 1, f"failed: {', '.join(failed)}"
    if not run:
        return 1, "nothing was run"
    return 0, f"all {run} cases that were run came out as expected; {len(rows) - run} were not run"


def _listed(codes: Sequence[int | None]) -> str:
    return ", ".join("none" if code is None else str(code) for code in codes)


def _line(log: str, at: int) -> str:
    return log[log.rfind("\n", 0, at) + 1 :].partition("\n")[0][:SHOWN]
