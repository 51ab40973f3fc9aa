"""Summarise a local run as a table for people."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.observe.report.make import told_in
from entrypoint.simulate.engine import last_line
from entrypoint.simulate.tree import HostFolder

APART = "error: apart: "  # the report's verdict that stands first here, as the table looks like a success
_COLUMNS = ("host", "exit", "start s", "train s", "tail s")


def exit_code(folders: Sequence[HostFolder], exits: Mapping[str, Exit]) -> int:
    """Return 0 if every host exited with 0, else the first other code in rank order; 1 if one was never started."""
    codes = [exits[folder.host].code if folder.host in exits else 1 for folder in folders]
    return next((code for code in codes if code), 0)


def summary(folders: Sequence[HostFolder], exits: Mapping[str, Exit], faults: Sequence[str] = ()) -> str:
    """Return causes of failure, the table of hosts, faults, the end and verdicts by the report, and paths."""
    reports = {folder.host: _report(folder) for folder in folders}
    rows = [_COLUMNS, *(_row(folder.host, exits.get(folder.host), reports[folder.host]) for folder in folders)]
    width = max(len(row[0]) for row in rows)
    verdicts = [words for folder in folders for words in told_in(folder.report, "verdict")]
    apart = [words.replace(APART, "error: ", 1) for words in verdicts if words.startswith(APART)]
    failed = [f"failed: {cause}" for cause in _causes(folders, exits, reports)]
    lines = ["", *apart, *failed, *([""] if apart or failed else [])]
    lines += [*(f"{row[0]:<{width}}" + "".join(f"{cell:>10}" for cell in row[1:]) for row in rows), ""]
    # The causes say how a failed job ended.
    ends = [] if failed else [words for folder in folders for words in told_in(folder.report, "ending")]
    rest = [f"report: {words}" for words in [*ends, *verdicts] if not words.startswith(APART)]
    return "\n".join([*lines, *faults, *rest, *_places(folders)])


def _report(folder: HostFolder) -> dict[str, Any]:
    """Return the host's own summary; {} if it has not written one."""
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(folder.summary.read_text("utf-8")))
    return {}


def _row(host: str, exit: Exit | None, report: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = report.get("seconds") or {}
    times = [seconds.get(part) for part in ("start", "train", "tail")]
    return (host, exit.short if exit else "-", *("-" if time is None else f"{time:.2f}" for time in times))


def _causes(
    folders: Sequence[HostFolder], exits: Mapping[str, Exit], reports: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Return the distinct causes that hosts report; if there are none, the last line of each failed host."""
    causes = dict.fromkeys(str(report["cause"]) for report in reports.values() if report.get("cause"))
    if causes:
        return list(causes)
    failed = [f for f in folders if f.host in exits and exits[f.host].code and not reports[f.host]]
    return [f"{folder.host} ({exits[folder.host]}): {_last_words(folder)}" for folder in failed]


def _last_words(folder: HostFolder) -> str:
    with contextlib.suppress(OSError):
        if folder.failure.exists():
            return folder.failure.read_text("utf-8", errors="replace").split("\n")[0]
        with folder.log.open("rb") as log:
            log.seek(max(0, folder.log.stat().st_size - 4096))
            return last_line(log.read(), "it printed nothing")
    return "it printed nothing"


def _places(folders: Sequence[HostFolder]) -> list[str]:
    found = {
        "model": [folder.model for folder in folders if folder.model.is_dir() and any(folder.model.iterdir())],
        "failure": [folder.failure for folder in folders if folder.failure.exists()],
        "report": [folder.report for folder in folders if folder.report.exists()],
        "logs": [folder.log for folder in folders],
    }
    return [place(what, paths) for what, paths in found.items() if paths]


def place(what: str, paths: Sequence[Path]) -> str:
    """Return the first path, and how many more there are."""
    shown = f"{paths[0]}" + (f" (and {len(paths) - 1} more, one for each host)" if len(paths) > 1 else "")
    with contextlib.suppress(ValueError):
        shown = shown.replace(str(paths[0]), str(paths[0].relative_to(Path.cwd())))
    return f"{what:<9}{shown}"
