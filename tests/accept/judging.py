"""Compare the result of a case's job with the expected one, and measure it. Pure: values in, values out."""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from accept.account import advice
from accept.cases import RECORDS, Case

Line = tuple[str, float, str]  # host, seconds since the epoch, text
FIGURES = FIRST, LAST, APART, BILLED = (
    "Training to first line, s",
    "last line to end, s",
    "hosts' last lines apart, s",
    "billed, s",
)
SHOWN = 300  # characters of a FailureReason in a complaint


@dataclass
class Ran:
    """The result of a case's job. `not_run`: why there is no job; `excused`: its absence is no failure.

    `names`: of the files in model.tar.gz and output.tar.gz.
    """

    case: Case
    job: str = ""
    not_run: str = ""
    excused: bool = False
    description: dict[str, Any] = field(default_factory=dict)
    log: list[Line] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)

    @property
    def status(self) -> str:
        return str(self.description.get("TrainingJobStatus", ""))

    @property
    def reason(self) -> str:
        return str(self.description.get("FailureReason", ""))

    def has(self, pattern: str) -> bool:
        """Return whether a line of the log matches."""
        return any(re.search(pattern, text) for _, _, text in self.log)

    def last_lines(self) -> dict[str, float]:
        """Return when each host printed its last line, in seconds since the epoch."""
        return {host: at for host, at, _ in self.log}

    def phase(self, name: str) -> datetime | None:
        """Return when the job first reached a secondary status."""
        rows = self.description.get("SecondaryStatusTransitions", ())
        return next((row["StartTime"] for row in rows if row["Status"] == name), None)


def outcome(ran: Ran) -> str:
    """Return the entry of the table: "as expected", "FAILED", or why the case was not run."""
    if ran.not_run:
        return f"not run: {ran.not_run}"
    if ran.case.optional and re.search(ran.case.optional, ran.reason):
        return "not run: the image lacks what it needs"
    if ran.description.get("SecondaryStatus") == "MaxWaitTimeExceeded":
        return "not run: AWS had no spot machines in time"
    return "FAILED" if complaints(ran) else "as expected"


def complaints(ran: Ran) -> list[str]:
    """Return each difference from the expected result."""
    wanted, found = ran.case.expected, []
    if ran.status == "Failed" and not ran.reason.startswith("AlgorithmError"):  # it never came to our launcher
        told = advice(ran.reason)
        return [f"SageMaker ended it: {ran.reason[:SHOWN]}" + f" -- {told}" * bool(told)]
    if ran.status != wanted.status:
        why = f": {ran.reason[:SHOWN]}" if ran.reason else ""
        found.append(f"found status {ran.status or 'none'}, wanted {wanted.status}{why}")
    secondary = ran.description.get("SecondaryStatus", "")
    if wanted.secondary and secondary != wanted.secondary:
        found.append(f"found secondary status {secondary}, wanted {wanted.secondary}")
    if wanted.reason and not re.search(wanted.reason, ran.reason):
        found.append(f"FailureReason lacks /{wanted.reason}/: {ran.reason[:SHOWN] or 'it is empty'}")
    found += [f"the log lacks /{each}/" for each in wanted.says if not ran.has(each)]
    found += [f"the log has /{each}/" for each in wanted.never if ran.has(each)]
    for archive, patterns in (("model", wanted.model), ("output", wanted.output)):
        names = ran.names.get(archive, [])
        found += [f"{archive}.tar.gz lacks /{each}/" for each in patterns if not any(re.search(each, n) for n in names)]
    metrics = {each["MetricName"] for each in ran.description.get("FinalMetricDataList", ())}
    found += [f"SageMaker has found no metric {each}" for each in wanted.metrics if each not in metrics]
    ends = ran.last_lines().values()
    if wanted.together_s and ends and max(ends) - min(ends) > wanted.together_s:
        found.append(f"the hosts ended {max(ends) - min(ends):.0f} s apart, wanted at most {wanted.together_s:g}")
    silent = [f"algo-{number}" for number in range(1, ran.case.hosts + 1) if f"algo-{number}" not in ran.last_lines()]
    found += [f"CloudWatch has no line of {host}" for host in silent]
    return found + (misread(ran) if ran.case.channels else [])


def misread(ran: Ran) -> list[str]:
    """Return the records, by channel and pass, that were missed or read more than once."""
    wanted, found = Counter(range(sum(RECORDS))), []
    for channel in ran.case.channels:
        passes = [each for each in objects_after(ran.log, "accept-numbers") if each["channel"] == channel.name]
        if len(passes) != 2:
            found.append(f"channel {channel.name} was read {len(passes)} times, wanted 2")
        for each in passes:
            read = Counter(each["records"])
            if read != wanted:
                missing, more = sorted((wanted - read).elements()), sorted((read - wanted).elements())
                found.append(f"channel {channel.name}, pass {each['pass']}: missing {missing}, too often {more}")
    return found


def objects_after(log: Sequence[Line], word: str) -> list[dict[str, Any]]:
    """Return the JSON objects that follow the given word in log lines."""
    found = []
    for _, _, text in log:
        with contextlib.suppress(ValueError):  # no JSON: another line, or a part of one that CloudWatch has split
            found.append(json.loads(text.partition(f"{word} ")[2]))
    return found


def figures(ran: Ran) -> dict[str, float]:
    """Return the job's durations in seconds by name, without unknown ones."""
    found: dict[str, float] = {}
    training, ended = ran.phase("Training"), ran.description.get("TrainingEndTime")
    if ran.log:
        first, last = ran.log[0][1], ran.log[-1][1]
        if training:
            found[FIRST] = first - training.timestamp()
        if ended:
            found[LAST] = ended.timestamp() - last
        ends = ran.last_lines().values()
        found[APART] = max(ends) - min(ends)
    if "BillableTimeInSeconds" in ran.description:
        found[BILLED] = float(ran.description["BillableTimeInSeconds"])
    return {name: round(value, 1) for name, value in found.items()}
