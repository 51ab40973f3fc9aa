"""Which pages and plots there are: all that docs/benchmarks and the README show, of the JSON files that lie there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.report import chaos, cost, many_hosts, plain, profile, side_by_side, words
from benchmarks.report.figures import BadRecord, Ratio, read
from benchmarks.side_by_side.aims import AIMS

FOLDER = "docs/benchmarks"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
MADE = "<!-- Made by `python -m benchmarks.report` from the JSON beside it; changes to this file are lost. -->"
IN_BLOCKS = (f"{FOLDER}/profile.md", f"{FOLDER}/README.md", "README.md")  # the rest of these files is written by hand
COST_PLOT = "cost.svg"
PAGES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "side-by-side": side_by_side.page,
    "many-hosts": many_hosts.page,
    "profile": profile.page,
    "chaos": chaos.page,
}
HEADLINES = (  # (case, measure, what the README says of it)
    ("start-single-1", "start_s", "start, single host"),
    ("start-mpi-2x1", "start_s", "start, MPI, 2 hosts"),
    ("start-mpi-2x1", "tail_s", "tail, MPI, 2 hosts"),
    ("raise-mpi-2-rank-0", "gone_s", "MPI: a rank raises, until all hosts are gone"),
    ("raise-ps-2-worker", "gone_s", "parameter servers: a worker raises, until all hosts are gone"),
    ("kill-mpi-2-coordinator", "gone_s", "MPI: the first host is killed, until all hosts are gone"),
    ("start-mpi-2x1", "launcher_memory_bytes", "memory of the launcher, MPI, 2 hosts"),
)
LOST = "**Slower, or short of our aim:**"


def records(folder: Path) -> dict[str, dict[str, Any]]:
    """what: the record, of all JSON files."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        record = read(path)
        if path.stem != record["what"]:
            raise BadRecord(f"{path} is of {record['what']!r}; wanted: the file {record['what']}.json")
        found[path.stem] = record
    return found


def pages(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """path below the root: text; of a file that is in IN_BLOCKS, the text of its block."""
    texts = {f"{FOLDER}/{what}.md": PAGES.get(what, plain.page)(record) for what, record in found.items()}
    sides = found.get("side-by-side")
    if sides and cost.lines_of(sides["runs"], cost.Growth(), cost.Assumed()):
        texts[f"{FOLDER}/cost.md"] = cost.page(sides, found.get("many-hosts"), cost.Assumed(), COST_PLOT)
    made = {
        path: "\n".join(lines[2:] if path in IN_BLOCKS else [MADE, "", *lines]).rstrip("\n") + "\n"
        for path, lines in texts.items()
    }
    made[f"{FOLDER}/README.md"] = "\n".join(index(found, texts))
    made["README.md"] = "\n".join(headlines(sides, found.get("many-hosts"))) if sides else ""
    return made


def whole(path: str, text: str, root: Path) -> str:
    """What the file is to be: in IN_BLOCKS, what it is, with this text between the marks."""
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


def index(found: dict[str, dict[str, Any]], texts: dict[str, list[str]]) -> list[str]:
    body = []
    for path, lines in texts.items():
        name = Path(path).name
        record = found.get(Path(path).stem) or found["side-by-side"]
        command = record["command"] if Path(path).stem in found else "python -m benchmarks.report.cost"
        title = lines[0].removeprefix("# ")
        body.append([f"[{title}]({name})", record["date"], f"`{record['commit']}`", f"`{command}`"])
    return words.table(["page", "measured on", "commit", "command"], body) if body else []


def headlines(record: dict[str, Any], many: dict[str, Any] | None) -> list[str]:
    rows = {(row.case, row.measure): row for row in side_by_side.rows(record["runs"])}
    lost = [row for row in rows.values() if row.is_worse or row.met is False]
    chosen = [(rows.get((case, measure)), said) for case, measure, said in HEADLINES]
    body = [_compared(row, said) for row, said in chosen if row and row not in lost]
    if lost:
        body.append([LOST, "", "", ""])
        body += [_compared(row, f"{words.title(row.measure).lower()}, {row.title}") for row in lost]
    lines = words.table(["median", "this image", "AWS toolkit", "this image is"], body)
    machine = record["machine"]
    return lines + words.prose(
        "Start: to the script's first line. Tail: from the script's end to the container's. "
        f"{_aims_missed(lost)} of {len(AIMS)} aims are missed. "
        + _cost(cost.lines_of(record["runs"], cost.growth(many), cost.Assumed(failed_share=0)))
        + f"Measured on {record['date']}, commit `{record['commit']}`, on one machine of "
        f"{words.plural(machine['cpus'], 'CPU')}: [all figures, and what they do not show](docs/benchmarks/README.md)."
    )


def _cost(lines: list[cost.Line]) -> str:
    """One example of the page about the cost."""
    jobs = cost.Assumed.jobs_per_day
    for line in lines:
        if (line.mode, line.hosts) == ("mpi", 16):
            ours, toolkit = (words.number(line.per_year(side, jobs)) for side in cost.SIDES)
            return (
                f"{jobs:g} MPI jobs a day on 16 hosts cost {ours} idle host-hours a year, with the toolkit {toolkit} "
                f"([an estimate]({FOLDER}/cost.md)). "
            )
    return ""


def _compared(row: side_by_side.Row, said: str) -> list[str]:
    cells = [_short(side, row.measure) for side in (row.ours, row.toolkit)]
    aim = f" (aim: {words.times(Ratio(row.aim.ratio), row.measure)})" if row.aim and row.met is False else ""
    return [f"{said}, {words.unit(row.measure)}", *cells, words.times(row.ratio, row.measure) + aim]


def _aims_missed(lost: list[side_by_side.Row]) -> int:
    return sum(any(row.aim is aimed and row.met is False for row in lost) for aimed in AIMS)


def _short(figure: Any, measure: str) -> str:
    if figure is None:
        return "not measured"
    if figure.median is None:
        return f"not ended after {figure.limit:g}"
    return words.shown(figure.median, measure)


def draw(folder: Path, found: dict[str, dict[str, Any]]) -> list[str]:
    """Makes the plots; their names."""
    from benchmarks.report import plots  # and with it matplotlib

    made = []
    if sides := found.get("side-by-side"):
        for name, (rows, measures) in side_by_side.plots(side_by_side.rows(sides["runs"])).items():
            plots.sides(folder / name, rows, measures)
            made.append(name)
        assumed = cost.Assumed(failed_share=0)
        lines = cost.lines_of(sides["runs"], cost.growth(found.get("many-hosts")), assumed)
        if rows := cost.plotted(lines, assumed):
            plots.sides(folder / COST_PLOT, rows, list(dict.fromkeys(row.measure for row in rows)), False)
            made.append(COST_PLOT)
    if "many-hosts" in found:
        plots.growth(folder / many_hosts.PLOT, found["many-hosts"]["runs"])
        made.append(many_hosts.PLOT)
    return made
