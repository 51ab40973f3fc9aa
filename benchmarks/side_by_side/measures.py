"""Compute what a job did, from the marks of its script and the ends of its hosts. Pure."""

import re
from collections.abc import Iterable

from benchmarks.side_by_side.cases import FAILURE, LOG, START, STOP, UNREAD, Case
from benchmarks.side_by_side.job import Ending, Mark
from benchmarks.side_by_side.lines import log_measures

FILLING = re.compile(r"\d{8}\.{91}$", re.MULTILINE)  # a line of programs/fills.py
COSTS_FROM = 10_000  # lines of each process: with fewer, other things than lines cost more


def measures(
    case: Case,
    marks: Iterable[Mark],
    endings: list[Ending],
    event_at: float | None,  # None: the script marks it itself, or nothing happens
    killed: str | None,
    cpu_s: float,
    printing_cpu_s: float | None,
    peak_bytes: int,
    left_at: float | None = None,  # when the scripts' last process was gone, of real jobs
) -> dict[str, float]:
    """Return only what could be measured. A job that was cut has no end."""
    by_name: dict[str, list[float]] = {}
    for mark in marks:
        by_name.setdefault(mark.what, []).append(mark.value)
    began = max(ending.started for ending in endings)
    ends = [ending.finished for ending in endings if ending.host != killed]
    over = max([end for end in ends if end is not None]) if ends and None not in ends else None
    all_there = len(by_name.get("first", [])) == case.processes
    found: dict[str, float] = {}
    if all_there and case.group not in (FAILURE, STOP, UNREAD):
        found["start_s"] = max(by_name["first"]) - began
    if case.group in (FAILURE, STOP) or case.event == "stop":
        event_at = max(by_name["fails"]) if "fails" in by_name else event_at
        if over is not None and event_at is not None:
            found["gone_s"] = over - event_at
        told = {"heard": "told_s"} if case.group == STOP else {"heard": "told_s", "saved": "saved_s"}
        for what, measure in told.items() if case.event == "stop" and event_at is not None else ():
            if len(by_name.get(what, [])) == case.processes:
                found[measure] = max(by_name[what]) - event_at
        return found
    if case.group == UNREAD:
        return _of_unread(case, by_name, endings, over)
    if over is not None and len(by_name.get("last", [])) == case.processes:
        found["wall_s"] = over - min(ending.started for ending in endings)
        found["tail_s"] = over - max(by_name["last"])
        if left_at is not None:
            found |= {"leaving_s": left_at - max(by_name["last"]), "launcher_tail_s": over - left_at}
        found["launcher_cpu_s"] = cpu_s - sum(by_name["cpu"])
    if case.group == START:
        found["launcher_memory_bytes"] = peak_bytes
    if case.group == LOG and all_there and "prints" in by_name:
        lines = int(dict(case.arguments)["lines"])
        found |= log_measures(
            {ending.host: ending.log for ending in endings}, case.processes * lines, min(by_name["prints"])
        )
        if lines < COSTS_FROM:
            del found["lines_per_s"]
        elif printing_cpu_s is not None:
            scripts = sum(by_name["cpu"]) - sum(by_name["cpu-before"])
            found["cpu_us_per_line"] = (printing_cpu_s - scripts) / (case.processes * lines) * 1e6
    return found


def _of_unread(
    case: Case, by_name: dict[str, list[float]], endings: list[Ending], over: float | None
) -> dict[str, float]:
    found: dict[str, float] = {}
    if "last" in by_name:
        found["held_s"] = max(by_name["last"]) - min(by_name["trains"])
    if over is not None:
        whole = sum(len(FILLING.findall(ending.log)) for ending in endings)
        found["gone_s"] = over - min(by_name["trains"])
        found["lost_share"] = 1 - whole / (int(dict(case.arguments)["megabytes"]) * 10_000)
    return found


def ended_well(case: Case, marks: Iterable[Mark], endings: list[Ending], killed: str | None) -> bool:
    """Return whether all hosts ended as the job did: 0 after a success, else not 0; all saved after SIGTERM."""
    codes = [ending.exit_code for ending in endings if ending.host != killed]
    if None in codes:
        return False
    if case.group == FAILURE:
        return 0 not in codes
    what = "saved" if case.event == "stop" else "last"
    done = sum(mark.what == what for mark in marks) == case.processes
    return done and (case.event == "stop" or set(codes) == {0})
