"""Make the pages and plots of docs/benchmarks, and the figures in the README, from the JSON files that lie there."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks import machine
from benchmarks.report import (
    allreduce,
    chaos,
    cost,
    deepfm,
    kills,
    many_hosts,
    monitor,
    pipe,
    profile,
    promises,
    pull,
    side_by_side,
    words,
)
from benchmarks.report.figures import BadRecord, read
from benchmarks.side_by_side.aims import AIMS

Records = dict[str, dict[str, Any]]
FOLDER = "docs/benchmarks"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
MADE = "<!-- Made by `python -m benchmarks.report`: changes are lost. -->"
IN_BLOCKS = (f"{FOLDER}/profile.md", f"{FOLDER}/README.md", "README.md")  # the rest of these files is written by hand
BY_HAND = (f"{FOLDER}/gpu.md",)  # pages of what was seen once, without a JSON record
PAGES = {  # what: (title, what its template takes beside the record)
    "side-by-side": ("The launcher and the AWS toolkit, side by side", side_by_side.context),
    "side-by-side-on": ("The launcher and the AWS toolkit on one image", side_by_side.context),
    "installs": ("Installing requirements, beside the AWS toolkit's pip", side_by_side.context),
    "many-hosts": ("Many hosts on one machine", many_hosts.context),
    "profile": ("Where the time goes", profile.context),
    "chaos": ("Random jobs under random faults", chaos.context),
    "deepfm": ("DeepFM", deepfm.context),
    "monitor": ("What the monitor costs", monitor.context),
    "allreduce": ("Horovod's allreduce under our launcher and by hand", allreduce.context),
    "pull": ("What is pulled", pull.context),
    "pipe": ("Pipe mode", pipe.context),
    "kills": ("Trainings that are killed, and go on", kills.context),
}
LOST = "## Slower, or short of our aim"  # README links to it
COST = "What a job costs beside its script"
TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {name: each for name, each in vars(words).items() if callable(each)}


def records(folder: Path, more: Sequence[Path] = ()) -> Records:
    """Return the records of all JSON files of the folder, by what they are of; keep those of `more` there first."""
    for path in more:
        record = read(path, PAGES)
        machine.keep(folder / f"{record['what']}.json", record)
    return {path.stem: read(path, PAGES) for path in sorted(folder.glob("*.json"))}


def render(name: str, **given: Any) -> str:
    """Fill in a template, and wrap its paragraphs as those of the other docs."""
    blocks = re.split(r"\n{2,}", TEMPLATES.get_template(f"{name}.md.j2").render(given).strip("\n"))
    return "\n\n".join(block if block.startswith(("|", "#", " ", "!")) else _wrapped(block) for block in blocks) + "\n"


def _wrapped(block: str) -> str:
    return "\n".join(
        textwrap.fill(
            " ".join(part.split()),
            128,
            subsequent_indent="  " if part.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in re.split(r"\n(?=- )", block)
    )


def page(record: dict[str, Any]) -> str:
    """Return the page of a record, without its title."""
    return render(record["what"], record=record, **PAGES[record["what"]][1](record))


def pages(found: Records) -> dict[str, str]:
    """Return the text of each page, by its path below the root; of a file in IN_BLOCKS, the text of its block."""
    commits = commits_of(found)
    found = {what: {**record, "mixed": len(commits) > 1} for what, record in found.items()}
    sides = found.get("side-by-side")
    of_cost = cost.context(sides, found.get("many-hosts"), found.get("pull")) if sides else {}
    listed = [(what, PAGES[what][0], record, page(record)) for what, record in found.items()]
    if sides and of_cost["lines"]:
        record = {**sides, "command": "python -m benchmarks.report"}
        listed.append(("cost", COST, record, render("cost", record=record, **of_cost)))
    of_sides = headlines(sides, of_cost) if sides else {}
    made = {
        f"{FOLDER}/README.md": "\n".join(
            [
                render("promises", **promises.context(found)),
                *([render("headlines", **of_sides)] if sides else []),
                render("index", pages=listed, commits=commits),
            ]
        ),
        "README.md": render("readme", **of_sides) if sides else "",
    }
    for what, title, _, text in listed:
        path = f"{FOLDER}/{what}.md"
        made[path] = text if path in IN_BLOCKS else f"{MADE}\n\n# {title}\n\n{text}"
    return made


def commits_of(found: Records) -> dict[str, list[str]]:
    """Return {commit: what was measured on it}."""
    commits: dict[str, list[str]] = {}
    for what, record in found.items():
        commits.setdefault(record["commit"], []).append(what)
    return commits


def headlines(record: dict[str, Any], of_cost: dict[str, Any]) -> dict[str, Any]:
    """Return what the templates of the two first pages take: wins, losses and their counts."""
    rows = side_by_side.rows(record["runs"])
    lost = [row for row in rows if row.is_worse or row.met is False]
    return {
        "record": record,
        "won": {(row.case, row.measure): row for row in rows if row not in lost},
        "lost": lost,
        "worse": sum(row.is_worse for row in lost),
        "missed": sum(any(row.aim is aimed and row.met is False for row in lost) for aimed in AIMS),
        "aims": len(AIMS),
        "to_toolkit": [row for row in rows if row.ratio],
        "drivers": [row for row in rows if row.ratio_to_drivers],
        "to_drivers": [row for row in rows if row.is_worse_than_drivers],
        "slower": LOST,
        "anchor": re.sub(r"[^\w -]", "", LOST.lstrip("# ")).lower().replace(" ", "-"),
        "folder": FOLDER,
        "first": [(*promise.key, promise.row) for promise in promises.FIRST],
        "headlines": promises.HEADLINES,
        **of_cost,
    }


def whole(path: str, text: str, root: Path) -> str:
    """Return what the file is to hold. Of a file in IN_BLOCKS only the text between the marks changes."""
    if path not in IN_BLOCKS:
        return text
    file = root / path
    old = file.read_text() if file.exists() else f"{BEGIN}\n{END}\n"
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise BadRecord(f"{file}: has no lines {BEGIN} and {END}; wanted: both, around what is to be made")
    block = f"\n\n{text.strip()}\n\n" if text.strip() else "\n"
    return head + BEGIN + block + END + tail


def draw(folder: Path, found: Records) -> list[str]:
    """Make the plots, and return their names."""
    from benchmarks.report import plots  # here and not above: matplotlib takes longer to import than pages to make

    made = {}
    if sides := found.get("side-by-side"):
        for section, rows in side_by_side.plots(side_by_side.rows(sides["runs"])).items():
            made[side_by_side.plot_of(section)] = plots.sides(rows)
        if rows := cost.plotted(cost.context(sides, found.get("many-hosts"))["lines"]):
            made[cost.PLOT] = plots.sides(rows, may_be_logarithmic=False)
    if many := found.get("many-hosts"):
        made[many_hosts.PLOT] = plots.growth(many["runs"])
    for name, text in made.items():
        lines = (line.strip() for line in text.splitlines())  # a quarter of it are blanks
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return list(made)
