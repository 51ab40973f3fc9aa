"""Make the file of the report from records: read them, apply all rules, write the page.

The page is one HTML file that contains style, script, uPlot and the job's figures, and loads nothing.
"""

import gc
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from html import escape, unescape
from pathlib import Path
from typing import Any

from entrypoint.observe.report.content import content
from entrypoint.observe.report.ending import ending
from entrypoint.observe.report.job_record import JobRecord, gather
from entrypoint.observe.report.rules import resources, steps
from entrypoint.observe.report.rules.judging import Verdict, worst_first

PAGE = Path(__file__).with_name("page")
MOST_HEAD = 1 << 16  # bytes in which a page's head lies
Check = Callable[[JobRecord, float], Iterator[Verdict]]
_ALL: tuple[Check, ...] = (
    steps.apart, resources.input_bound, resources.cpu_starved, resources.gpu_starved, resources.memory, steps.straggler,
    resources.ps_unbalanced, steps.loss, steps.step_growth, steps.checkpoint, resources.disk, resources.network,
    resources.small_files, steps.idle,
)  # fmt: skip
CHECKS = {check.__name__: check for check in _ALL}  # a rule has the name of its function


def make(
    records: Mapping[str, bytes],
    output: Path,
    price: float | None = None,
    rules: Mapping[str, float] | None = None,
    within: float = 0.0,
) -> list[str]:
    """Write the report of these records {host: bytes}; return the three worst verdicts, a line each.

    `price` (USD per host-hour) and `rules` (thresholds) replace the job's own; `within`: seconds in which the records
    should be read, 0 for no limit. Raise OSError if the file cannot be written.
    """
    is_on = gc.isenabled()
    gc.disable()  # it would visit a million numbers repeatedly, and no cycles are made here
    try:
        job = gather(records, within)
        verdicts = judge(job, {**job.rules, **(rules or {})})
        page = content(job, verdicts, ending(job), job.price if price is None else price)
    finally:
        if is_on:
            gc.enable()
    scratch = output.with_name(f".{output.name}.new")
    try:
        scratch.write_text(render(page), encoding="utf-8")
        scratch.replace(output)
    finally:
        scratch.unlink(missing_ok=True)
    return [line_of(verdict) for verdict in page["verdicts"][:3]]


def judge(job: JobRecord, thresholds: Mapping[str, float]) -> list[Verdict]:
    """Return the verdicts on a job, the worst first. A rule with an infinite threshold is off."""
    wanted = [(check, thresholds[name]) for name, check in CHECKS.items() if math.isfinite(thresholds[name])]
    return worst_first(verdict for check, threshold in wanted for verdict in check(job, threshold))


def render(content: dict[str, Any]) -> str:
    """Return the page. A job's texts cannot become HTML, nor end the script element that holds them."""
    job = content["job"]
    outcome = job["outcome"]["kind"] if job["outcome"] else "end unknown"
    endings = [content["ending"]["line"]] if content["ending"] else []
    verdicts = [
        f'<meta name="{name}" content="{escape(words, quote=True)}">'
        for name, found in (("ending", endings), ("verdict", map(line_of, content["verdicts"][:3])))
        for words in found
    ]
    title = f"{job['name'] or 'Training job'}: {outcome}"
    licence = (PAGE / "uPlot.LICENSE").read_text("utf-8").strip()
    parts = {
        "title": escape(title),
        "verdicts": "\n".join(verdicts),
        "styles": _file("uPlot.min.css") + "\n" + _file("page.css"),
        "uplot": f"/* uPlot, {licence.replace('*/', '')} */\n{_file('uPlot.iife.min.js')}",
        "program": _file("page.js"),
        "data": as_script(content),
    }
    page = _file("page.html")
    return re.sub(r"<!--(\w+)-->", lambda found: parts[found[1]], page)


def _file(name: str) -> str:
    return (PAGE / name).read_text("utf-8")


def as_script(value: Any) -> str:
    """Return JSON for a script element, without any character that has a meaning in HTML."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def line_of(verdict: dict[str, Any]) -> str:
    """Return a verdict as one log line, without characters that control a terminal."""
    process, host = verdict["process"], verdict["host"]
    where = f"{process} on {host}: " if process and host else f"{process or host}: " if process or host else ""
    line = f"{verdict['severity']}: {verdict['rule']}: {where}{verdict['text']}; {verdict['advice']}"
    return "".join(c if c.isprintable() else " " for c in line)[:1000]


def told_in(page: Path, name: str) -> list[str]:
    """Return lines from the head of a report's page; [] if there is no page.

    `name`: "verdict" for the worst verdicts, "ending" for the end of a job that did not simply succeed.
    """
    try:
        with page.open(encoding="utf-8", errors="replace") as file:
            head = file.read(MOST_HEAD)
    except OSError:
        return []
    return [unescape(words) for words in re.findall(rf'<meta name="{name}" content="([^"]*)">', head)]
