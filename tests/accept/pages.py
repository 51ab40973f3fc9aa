"""Write the result as JSON and as one HTML page, by default without names of the account."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from accept.beliefs import Found, facts_of
from accept.judging import FIGURES, Ran, complaints, figures, outcome
from accept.requests import Where

PATTERNS = (  # of what identifies an account
    (r"arn:[\w-]+:[^\s\"',\]]+", "ARN"),
    (r"\b\d{12}\b", "ACCOUNT"),
    (r"\b(subnet|sg|vpc|eni|i)-[0-9a-f]{8,17}\b", r"\1-ID"),
    (r"\bip-\d+-\d+-\d+-\d+[\w.-]*", "ip-ADDRESS"),
    (r"\b\d{1,3}(\.\d{1,3}){3}\b", "ADDRESS"),
    (r"/v2/credentials/[\w-]+", "/v2/credentials/ID"),
    (r"\b(AKIA|ASIA)[A-Z0-9]{16}\b", "KEY"),
)
LONG = 160  # characters
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:75em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #bbb;padding:.3em .6em}
td,th{text-align:left;vertical-align:top}
.bad{background:#fdd}.none{color:#666}
td{overflow-wrap:anywhere}
td:first-child{white-space:nowrap}@media print{body{font-size:11px}}"""


def result(
    where: Where, region: str, jobs: Sequence[Ran], left_out: Sequence[str], beliefs: Sequence[Found], **more: Any
) -> dict[str, Any]:
    """Return all results of the run as JSON."""
    rows = [
        {
            "case": job.case.name,
            "shows": job.case.shows,
            "outcome": (came := outcome(job)),
            "complaints": complaints(job) if came == "FAILED" else [],
            "status": job.status,
            "reason": job.reason,
            "figures": figures(job),
        }
        for job in jobs
    ]
    facts = {job.case.name: found for job in jobs if any((found := facts_of(job)).values())}
    return {
        "run": where.run,
        "image": where.image,
        "region": region,
        "types": where.types,
        "cases": rows,
        "left_out": list(left_out),
        "beliefs": [vars(each) for each in beliefs],
        "facts": facts,
        **more,
    }


def anonymous(value: Any, where: Where) -> Any:
    """Replace names of account, role, bucket, network and addresses in a JSON value; return the new value."""
    if isinstance(value, dict):
        return {name: anonymous(each, where) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [anonymous(each, where) for each in value]
    if not isinstance(value, str):
        return value
    value = value.replace(where.bucket, "BUCKET")
    value = re.sub(rf"(?<=role/){re.escape(where.role.rpartition('/')[2])}\b", "ROLE", value)
    for pattern, word in PATTERNS:
        value = re.sub(pattern, word, value)
    return value


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the cases as a table for a terminal."""
    width = max((len(row["case"]) for row in rows), default=0)
    return "\n".join(
        f"{row['case']:{width}}  {row['outcome']}" + "".join(f"\n{'':{width}}    {each}" for each in row["complaints"])
        for row in rows
    )


def page(found: Mapping[str, Any]) -> str:
    """Return the result as HTML."""
    cases = [
        [
            row["case"],
            row["shows"],
            "\n".join([row["outcome"], *row["complaints"]]),
            *(row["figures"].get(name, "") for name in FIGURES),
            row["reason"],
        ]
        for row in found["cases"]
    ]
    marks = ["bad" if row["outcome"] == "FAILED" else "" for row in found["cases"]]
    beliefs = [
        [each["text"], each["source"], each["found"], {True: "yes", False: "NO", None: "not seen"}[each["so"]]]
        for each in found["beliefs"]
    ]
    shown = ["bad" if each["so"] is False else "none" if each["so"] is None else "" for each in found["beliefs"]]
    head = (
        f"{found['run']}: {found['image']} in {found['region']}, on {', '.join(sorted(set(found['types'].values())))}"
    )
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{_text(found['run'])}</title><style>{STYLE}</style>",
        f"<h1>Acceptance run on SageMaker</h1><p>{_text(head)}; {_text(found['verdict'])}</p>",
        "<h2>Cases</h2>" + _rows(["case", "shows", "outcome", *FIGURES, "FailureReason"], cases, marks),
        "<h2>What we believe of SageMaker</h2>" + _rows(["belief", "source", "found", "so?"], beliefs, shown),
        "<h2>Left out</h2>" + _rows(["case and reason"], [[each] for each in found["left_out"]], []),
        f"<h2>Facts</h2><pre>{html.escape(json.dumps(found['facts'], indent=1))}</pre></html>",
    ]
    return "\n".join(parts) + "\n"


def _text(value: Any) -> str:
    """Return a cell of a table. A long one shows its first words, and the rest after a click."""
    text = str(value)
    shown = html.escape(text).replace("\n", "<br>")
    if len(text) < LONG:
        return shown
    return f"<details><summary>{html.escape(text.splitlines()[0][:LONG])} ...</summary>{shown}</details>"


def _rows(head: Sequence[str], rows: Sequence[Sequence[Any]], marks: Sequence[str]) -> str:
    if not rows:
        return "<p>none</p>"
    lines = ["<tr>" + "".join(f"<th>{_text(each)}</th>" for each in head) + "</tr>"]
    for number, row in enumerate(rows):
        mark = f" class={marks[number]}" if marks and marks[number] else ""
        lines.append(f"<tr{mark}>" + "".join(f"<td>{_text(each)}</td>" for each in row) + "</tr>")
    return f"<table>{''.join(lines)}</table>"


def write(folder: Path, found: Mapping[str, Any]) -> tuple[Path, Path]:
    """Write accept.json and accept.html; return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, shown = folder / "accept.json", folder / "accept.html"
    data.write_text(json.dumps(found, indent=1) + "\n")
    shown.write_text(page(found))
    return data, shown


def stamp(now: datetime) -> str:
    """Return the name of a run that begins now. All job names of the run begin with it."""
    return f"accept-{now:%m%d-%H%M%S}"
