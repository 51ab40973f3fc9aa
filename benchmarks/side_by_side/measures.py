"""Compute the measures of a job from the marks of its script and the ends of its hosts. Pure."""

import re
from collections.abc import Iterable, Mapping

from benchmarks.docker import seconds
from benchmarks.side_by_side.cases import FAILURE, HANG, LOG, START, STOP, UNREACHED, Case
from benchmarks.side_by_side.job import Ending, Mark

TOLD = "no progress in any process for"  # our launcher's line of a hang; no other side has one
COSTS_FROM = 10_000  # lines of each process: with fewer, other things than lines cost more

WHOLE = re.compile(
    r"^(?P<label>[^<]*(?:<std...>)?[^<]*)<(?P<host>algo-\d+) (?P<rank>\d+|-) (?P<number>\d+)>   [^<]* </(?P=number)>$"
)
TOOLKIT_LABEL = re.compile(r"\[\d+,mpirank:(?P<rank>\d+),(?P<host>algo-\d+)\]")
DRIVERS_LABEL = re.compile(r"\[\d+,(?P<rank>\d+)\]<std...>")  # mpirun's own, which names no host
GLOO_LABEL = re.compile(r"\[(?P<rank>\d+)\]<std...>")  # horovodrun's with Gloo, which names no host, either
OUR_LABEL = re.compile(r"\[(?P<host>algo-\d+) (?:rank (?P<rank>\d+)|[^]]+)\]")


def measures(
    case: Case,
    marks: Iterable[Mark],
    endings: list[Ending],
    event_at: float | None,  # None: the script marks it itself, or nothing happens
    killed: str | None,
    cpu_s: float,
    printing_cpu_s: float | None,
    peak_bytes: int,
    left_at: float | None = None,  # when the last process of the scripts was gone, in real jobs
) -> dict[str, float]:
    """Return the available measures. A job that was cut has no end."""
    by_name: dict[str, list[float]] = {}
    for mark in marks:
        by_name.setdefault(mark.what, []).append(mark.value)
    began = max(ending.started for ending in endings)
    ends = [ending.finished for ending in endings if ending.host != killed]
    over = max([end for end in ends if end is not None]) if ends and None not in ends else None
    all_there = len(by_name.get("first", [])) == case.processes
    if case.group == HANG:
        return _of_hang(by_name, endings, over)
    found: dict[str, float] = {}
    if all_there and case.group not in (FAILURE, STOP):
        found["start_s"] = max(by_name["first"]) - began
    if case.group in (FAILURE, STOP) or case.event in UNREACHED:
        # A build that fails may be tried again, by another tool.
        event_at = began if case.event in UNREACHED else min(by_name.get("fails", [event_at]))
        if over is not None and event_at is not None:
            found["gone_s"] = over - event_at
        if case.group == STOP and event_at is not None and len(by_name.get("heard", [])) == case.processes:
            found["told_s"] = max(by_name["heard"]) - event_at
        return found
    if over is not None and len(by_name.get("last", [])) == case.processes:
        found["wall_s"] = over - min(ending.started for ending in endings)
        found["tail_s"] = over - max(by_name["last"])
        if left_at is not None:
            found["launcher_tail_s"] = over - left_at
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


def _of_hang(by_name: dict[str, list[float]], endings: list[Ending], over: float | None) -> dict[str, float]:
    found: dict[str, float] = {}
    if "hangs" not in by_name:
        return found
    at = by_name["hangs"][0]
    said = [seconds(line.partition(" ")[0]) for each in endings for line in each.log.splitlines() if TOLD in line]
    if said:
        found["hang_told_s"] = min(said) - at
    if over is not None:
        found["gone_s"] = over - at
    return found


def ended_well(case: Case, marks: Iterable[Mark], endings: list[Ending], killed: str | None) -> bool:
    """Return whether all hosts ended correctly.

    After a success: exit code 0 and all last marks. After a failure or a hang: no exit code 0. After SIGTERM: all
    scripts have saved.
    """
    codes = [ending.exit_code for ending in endings if ending.host != killed]
    if None in codes:
        return False
    if case.group in (FAILURE, HANG) or case.event in UNREACHED:
        return 0 not in codes
    what = "saved" if case.group == STOP else "last"
    done = sum(mark.what == what for mark in marks) == case.processes
    return done and (case.group == STOP or set(codes) == {0})


def log_measures(logs: Mapping[str, str], wanted: int, began: float) -> dict[str, float]:
    """Return the measures of a job's log.

    `logs`: the lines of each host, each behind the engine's time. `wanted`: lines printed from `began` on.
    """
    whole, wrong, unlabelled, last = 0, 0, 0, began
    for log in logs.values():
        for line in log.splitlines():
            time, _, text = line.partition(" ")
            if "<algo-" not in text and "</" not in text:
                continue
            last = max(last, seconds(time))
            if not (found := WHOLE.match(text)):
                continue
            whole += 1
            named = label(found["label"])
            if named is None:
                unlabelled += 1
            elif any(said not in ("", found[what]) for what, said in zip(("host", "rank"), named, strict=True)):
                wrong += 1
    return {
        "lines_per_s": wanted / (last - began) if last > began else 0.0,
        "split_share": 1 - whole / wanted,
        "mislabelled_share": wrong / whole if whole else 0.0,
        "unlabelled_share": unlabelled / whole if whole else 0.0,
    }


def label(text: str) -> tuple[str, str] | None:
    """Return the (host, rank) that the label of a line names; None if the line has no label.

    A label without a host gives the host "", and one without a rank the rank "-".
    """
    if found := TOOLKIT_LABEL.search(text):
        return found["host"], found["rank"]
    if found := DRIVERS_LABEL.search(text) or GLOO_LABEL.search(text):
        return "", found["rank"]
    if found := OUR_LABEL.search(text):
        return found["host"], found["rank"] or "-"
    return None
