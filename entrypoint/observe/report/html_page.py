"""Render the report as one HTML file that contains style, script, uPlot and the job's figures, and loads nothing."""

import json
import re
from html import escape, unescape
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("page")
MOST_HEAD = 1 << 16


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
    """Return from a page's head its worst verdicts ("verdict"), or how the job ended ("ending"), unless it succeeded.

    Return [] if there is no page.
    """
    try:
        with page.open(encoding="utf-8", errors="replace") as file:
            head = file.read(MOST_HEAD)
    except OSError:
        return []
    return [unescape(words) for words in re.findall(rf'<meta name="{name}" content="([^"]*)">', head)]
