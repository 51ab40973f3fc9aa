"""Write what is measured into the pages of docs/benchmarks, and into README, from the JSON files of benchmarks.

    python -m benchmarks.report side-by-side.json many-hosts.json

Each FILE is first kept as docs/benchmarks/WHAT.json. Then the text between the marks of each page is made anew from the
JSON file of its name; the rest of a page is written by hand.
"""

import argparse
import json
import math
import shutil
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.compare import (
    FIRST,
    NAMES,
    NEVER,
    PROMISES,
    SECTIONS,
    Compared,
    compared,
    find,
    judged,
    losses,
)
from benchmarks.figures import (
    MEASURES,
    Run,
    figure,
    heading,
    in_unit,
    number,
    plural,
    ratio,
    short,
    shown,
    times,
    title,
    unit,
    where,
)
from benchmarks.machine import ROOT

Record = dict[str, Any]
FOLDER = "docs/benchmarks"
BEGIN, END = "<!-- benchmarks:begin -->", "<!-- benchmarks:end -->"
AIMED_AT = 1000  # hosts, of which many hosts has aims: at most
OF_MANY_HOSTS = {"rendezvous_s": 10.0, "coordinator_cpu_share": 0.20, "told_all_s": 2.0, "plan_s": 0.5}
LEAST_S = 0.0005  # phases that are shorter on every side are not shown
CODES = ("0", "143", "69")  # those that a random job is most likely to end with


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; "" without lines."""
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *rows]) if rows else ""


def by(runs: list[Run], keys: Sequence[str], measures: Sequence[str]) -> str:
    """Return a table with a row for each combination of the keys' values, and a column for each measure."""
    combinations = list(dict.fromkeys(tuple(run[key] for key in keys) for run in runs))
    lines = []
    for values in combinations:
        of = dict(zip(keys, values, strict=True))
        lines.append([*map(str, values), *(shown(figure(runs, measure, **of), measure) for measure in measures)])
    return table([*keys, *map(heading, measures)], lines)


# ---- pages ----------------------------------------------------------------------------------------------------------


def side_by_side(record: Record) -> list[str]:
    """Show the aims, and then a table of all sides for each measure of each group of cases."""
    runs = record["runs"]
    of_each = Counter((run["case"], run["side"]) for run in runs)
    usual = Counter(of_each.values()).most_common(1)[0][0]
    aims, to_toolkit = list(judged(runs)), compared(runs, "toolkit")
    worse = sum(each.is_worse for each in to_toolkit)
    blocks = [
        f"**{sum(not missed for _, _, missed in aims)} of {plural(len(aims), 'aim')} met.** The toolkit does better in "
        f"{plural(worse, 'comparison')}. Figures are medians of {plural(usual, 'round')}."
    ]
    lines = []
    for aimed, ratios, missed in aims:
        cases = ", ".join(f"{each.title} ({each.ratio})" for each in missed[:2]) if len(missed) < 3 else "several cases"
        lost = "**missed**" if any(each.met is False for each in missed) else "not shown"
        verdict = f"{lost} by {cases}" if missed else "met"
        ends = " to ".join(dict.fromkeys(map(str, (ratios[0], ratios[-1]))))
        lines.append([aimed.words, number(aimed.ratio), f"{ends} ({plural(len(ratios), 'case')})", verdict])
    blocks.append(table(("aim, ours to the toolkit's", "at most", "found", "verdict"), lines))
    for group, (name, measures) in SECTIONS.items():
        of_group = where(runs, group=group)
        if of_group:
            blocks += [f"## {name}", *(of_sides(of_group, measure, to_toolkit, usual) for measure in measures)]
            blocks.append(ended_well(of_group))
    return blocks


def of_sides(runs: list[Run], measure: str, to_toolkit: list[Compared], usual: int) -> str:
    """Return a measure's table: cases, sides, and our ratio to the toolkit's, bold if it misses its aim."""
    names = {run["case"]: run["title"] for run in runs if figure([run], measure)}
    ratios = {each.case: each for each in to_toolkit if each.case in names and each.measure == measure and each.ratio}
    lines, used = [], set()
    for case, name in names.items():
        cells, of_case = {}, where(runs, case=case)
        for side in NAMES:
            found = figure(of_case, measure, side=side)
            never = not found and measure in NEVER and where(of_case, side=side)
            cells[side] = "never" if never else shown(found, measure, usual)
        used |= {side for side, cell in cells.items() if cell}
        each = ratios.get(case)
        against = "" if each is None else f"**{each.ratio}**" if each.met is False else str(each.ratio)
        lines.append((name, cells, against))
    sides = [side for side in NAMES if side in used]
    last = ["ours to the toolkit's"] if ratios else []
    heads = [heading(measure), *(NAMES[side] for side in sides), *last]
    rows = ([name, *(cells[side] for side in sides), *([against] if ratios else [])] for name, cells, against in lines)
    return table(heads, rows)


def ended_well(runs: list[Run]) -> str:
    counts = []
    for side in NAMES:
        right = [run["right"] for run in where(runs, side=side) if run.get("right") is not None]
        counts += [f"{NAMES[side]} {sum(right)} of {len(right)}"] if right else []
    return f"Runs in which every host ended as the job did: {', '.join(counts)}."


def profile(record: Record) -> list[str]:
    """Show the phases of start and end, on each side, by case."""
    blocks = []
    for case, name in {run["case"]: run["title"] for run in record["runs"]}.items():
        runs = [_with_phases(run) for run in where(record["runs"], case=case)]
        sides = list(dict.fromkeys(run["side"] for run in runs))
        lines = []
        for part, total in (("start: ", "start_s"), ("end: ", "tail_s")):
            phases = dict.fromkeys(name for run in runs for name in run["measures"] if name.startswith(part))
            for phase in phases:
                medians = medians_of(runs, phase, "side", sides)
                if max(filter(None, medians), default=0) >= LEAST_S:
                    lines.append([phase.removeprefix(part), *map(milliseconds, medians)])
            lines.append([f"**{title(total).lower()}**", *map(milliseconds, medians_of(runs, total, "side", sides))])
        blocks += [f"## {name}", table(["ms", *sides], lines)]
    return blocks


def medians_of(runs: list[Run], measure: str, field: str, values: Iterable[Any]) -> list[float | None]:
    """Return the median of a measure for each value of a field; None without a measurement."""
    return [found.median if (found := figure(runs, measure, **{field: value})) else None for value in values]


def milliseconds(seconds: float | None) -> str:
    """Return seconds as milliseconds: whole ones, or tenths below ten."""
    if seconds is None:
        return ""
    return f"{1000 * seconds:.{0 if seconds >= 0.01 else 1}f}"


def _with_phases(run: Run) -> Run:
    """Return the run with its phases as measures. Phases of one name, as of several ranks, are added up."""
    measures = dict(run["measures"])
    for part, phases in run.get("phases", {}).items():
        for name, seconds in phases:
            measures[f"{part}: {name}"] = measures.get(f"{part}: {name}", 0.0) + seconds
    return {**run, "measures": measures}


def many_hosts(record: Record) -> list[str]:
    """Show the aims at a thousand hosts, and how each figure grows with the hosts."""
    runs = record["runs"]
    aims = []
    for measure, most in OF_MANY_HOSTS.items():
        (found,) = medians_of(runs, measure, "hosts", [AIMED_AT])
        verdict = "not measured" if found is None else "met" if found <= most else "**missed**"
        aims.append([heading(measure), in_unit(most, measure), verdict])
    hosts = sorted({run["hosts"] for run in runs})
    lines = []
    for measure in (name for name in runs[0]["measures"] if name in MEASURES):
        cells = [shown(figure(runs, measure, hosts=count), measure) for count in hosts]
        medians = medians_of(runs, measure, "hosts", hosts)
        lines.append([heading(measure), *cells, _power(hosts[-2:], medians[-2:])])
    heads = ["measure", *(f"{count:,} hosts" for count in hosts), "power"]
    return [table((f"at {AIMED_AT:,} hosts", "at most", "verdict"), aims), table(heads, lines)]


def _power(hosts: list[int], medians: list[float | None]) -> str:
    """Return the exponent p of growth as hosts ** p; "" with fewer than two figures."""
    known = [value for value in medians if value]
    return f"{math.log(known[1] / known[0]) / math.log(hosts[1] / hosts[0]):.2f}" if len(known) == 2 else ""


def chaos(record: Record) -> list[str]:
    """Show the drawn random jobs, their ends, and the violated rules."""
    runs, least = record["runs"], record["limits"].get("least_faults", 0)
    enough = [run for run in runs if len(run["happened"]) >= least]
    bad = [run for run in runs if run["violations"]]
    lines = []
    for mode in sorted({run["mode"] for run in runs}):
        of_mode = where(runs, mode=mode)
        ends = Counter(_end(run["exits"]) for run in of_mode)
        counts = [len(of_mode), *(ends[code] for code in CODES), sum(ends.values()) - sum(ends[code] for code in CODES)]
        lines.append([mode, *map(str, counts), _typical(of_mode, "wall_s"), _typical(of_mode, "end_s")])
    kinds = sorted({kind for run in runs for kind in run["drawn"]})
    faults = [
        [kind, *(str(sum(run[what].count(kind) for run in runs)) for what in ("drawn", "happened"))] for kind in kinds
    ]
    heads = ["mode", "jobs", f"ended with {CODES[0]}", *CODES[1:], "another", "whole job, s (worst)", "end, s (worst)"]
    return [
        f"**{plural(len(enough), 'job')} with {plural(least, 'fault')} or more, {len(runs) - len(enough)} with fewer: "
        f"{plural(len(bad), 'violation')}.**",
        table(("case", "rules that were violated"), ([run["case"], ", ".join(run["violations"])] for run in bad)),
        table(heads, lines),
        table(("fault", "drawn", "happened"), faults),
    ]


def _end(exits: list[str]) -> str:
    """Return the job's exit code. Code 69 of cut-off or lost hosts counts only if all others were killed."""
    codes = [exit for exit in exits if exit.isdigit()]
    others = [code for code in codes if code != "69"]
    return (others or codes or ["killed"])[0]


def _typical(runs: list[Run], measure: str) -> str:
    known = [run["measures"][measure] for run in runs if measure in run["measures"]]
    return f"{number(median(known))} ({number(max(known))})" if known else ""


def monitor(record: Record) -> list[str]:
    measures = ("cpu_share", "memory_bytes", "bytes_per_hour", "step_ms")
    return [by(record["runs"], ("processes", "name"), measures)]


def pipe(record: Record) -> list[str]:
    """Show each reader's speed, also as a multiple of the file in the page cache."""
    runs, kinds = record["runs"], ("format", "record")
    lines = []
    for of in ({key: run[key] for key in kinds} for run in where(runs, reader="file", round=1)):
        speeds = {reader: figure(runs, "records_per_s", reader=reader, **of) for reader in ("our reader", "operator")}
        ratios = [ratio(speed, figure(runs, "records_per_s", reader="file", **of)) for speed in speeds.values()]
        lines.append([*of.values(), *("" if each is None else f"{each.value:.2f}" for each in ratios)])
    heads = [*kinds, "our reader, times the file's speed", "the operator, times that"]
    return [table(heads, lines), by(runs, (*kinds, "reader"), ("records_per_s", "cpu_s_per_gb"))]


def deepfm(record: Record) -> list[str]:
    scaling, changed = (where(record["runs"], part=part) for part in ("scaling", "hyperparameters"))
    return [
        "## By parameter servers and by Horovod",
        by(scaling, ("mode", "batch", "embedding", "processes"), ("examples_per_s", "auc")),
        "## What the hyperparameters are worth",
        by(sorted(changed, key=lambda run: run["name"] != "the defaults"), ("name",), ("auc", "examples_per_s")),
    ]


PAGES: dict[str, tuple[str, Callable[[Record], list[str]]]] = {  # what: (title, what makes its blocks)
    "side-by-side": ("The launcher and the AWS toolkit, side by side", side_by_side),
    "installs": ("Installing requirements, beside the AWS toolkit's pip", side_by_side),
    "profile": ("Where the time goes", profile),
    "many-hosts": ("Many hosts on one machine", many_hosts),
    "chaos": ("Random jobs under random faults", chaos),
    "monitor": ("What the monitor costs", monitor),
    "pipe": ("Pipe mode", pipe),
    "deepfm": ("DeepFM", deepfm),
}


# ---- what the first pages show --------------------------------------------------------------------------------------


def index(records: dict[str, Record]) -> list[str]:
    """Return the blocks of docs/benchmarks/README.md: promises, losses, and the list of pages."""
    found = [find(promise, records) for promise in PROMISES]
    unknown = sum(each.ours is None for each in found)
    heads = ("README promises", "it says", "this image", "best peer", "this image is", "measured")
    blocks = [
        "## What README promises",
        table(heads, (each.cells() for each in found)),
        f"Of {plural(len(found), 'promise')}, {unknown} were not measured, {sum(each.is_broken for each in found)} are "
        f"not kept, and in {sum(each.is_beaten for each in found)} a peer does better. Of several cases, the row has "
        "the one in which this image is worst, and its best peer there.",
        "## Slower, or short of our aim",
    ]
    if "side-by-side" in records:
        lost = losses(records["side-by-side"]["runs"])
        blocks.append(table(("median", "this image", "peer", "ratio of ours to it"), lost) or "Nothing.")
    commits = sorted({record["commit"] for record in records.values()})
    blocks += ["## All pages", f"The pages are of {plural(len(commits), 'commit')}: `{'`, `'.join(commits)}`."]
    blocks.append("\n".join(f"- [{PAGES[what][0]}]({what}.md), {each['date']}" for what, each in records.items()))
    return blocks


def readme(record: Record) -> list[str]:
    """Return the blocks of README: its three rows, and one line on lost comparisons."""
    runs = record["runs"]
    lines = []
    for promise in FIRST:
        of = {"measure": promise.measure, "case": promise.cases}
        ours, theirs = (figure(runs, **of, side=side) for side in ("ours", "toolkit"))
        if ours and theirs:
            name = f"{promise.row}, {unit(promise.measure)}"
            figures = [short(each, promise.measure).removesuffix(" s") for each in (ours, theirs)]
            lines.append([name, *figures, times(ratio(ours, theirs), promise.measure)])
    with_ratio = [each for peer in ("toolkit", "drivers") for each in compared(runs, peer) if each.ratio]
    return [
        table(("median", "this image", "AWS toolkit", "this image is"), lines),
        f"MPI on two hosts, which are containers of one machine of {plural(record['machine']['cpus'], 'CPU')}; "
        f"{record['date']}, commit `{record['commit']}`. **It loses {sum(each.is_worse for each in with_ratio)} of "
        f"{len(with_ratio)} comparisons** with the toolkit and with what SageMaker's SDK 3 starts by itself: [all "
        f"figures]({FOLDER}/README.md#slower-or-short-of-our-aim).",
    ]


# ---- files ----------------------------------------------------------------------------------------------------------


def page(record: Record) -> str:
    """Return the text between a page's marks: the figures and their origin."""
    of = record["machine"]
    machine = (
        f"{plural(of['cpus'], 'CPU')} ({of['cpu']}), {of['memory_gib']} GiB, {of['kernel']}, Docker {of['docker']}"
    )
    load = f"load {of['load_before']} before, {of.get('load_after', 'unknown')} after"
    said = f"Measured on {record['date']}, commit `{record['commit']}`; {machine}, {load}; "
    said += f"[raw figures]({record['what']}.json). To repeat it:"
    return joined([*PAGES[record["what"]][1](record), said, f"    {record['command']}"])


def joined(blocks: Iterable[str]) -> str:
    """Join the non-empty blocks with wrapped paragraphs."""
    wrapped = [
        block if block.startswith(("|", "#", "-", " ")) else textwrap.fill(block, 128, break_on_hyphens=False)
        for block in blocks
        if block
    ]
    return "\n\n".join(wrapped)


def made(records: dict[str, Record]) -> dict[str, str]:
    """Return the text between the marks of each page, by its path below the root."""
    found = {f"{FOLDER}/{what}.md": page(record) for what, record in records.items()}
    found[f"{FOLDER}/README.md"] = joined(index(records))
    if "side-by-side" in records:
        found["README.md"] = joined(readme(records["side-by-side"]))
    return found


def whole(path: Path, text: str) -> str:
    """Return the page with this text between its marks; raise ValueError without marks."""
    head, begin, rest = path.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{path}: wanted {BEGIN} and {END} around what is made")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def read(folder: Path) -> dict[str, Record]:
    """Return the records of the folder by subject, in the order of PAGES."""
    found = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
    return {what: found[what] for what in PAGES if what in found}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("files", type=Path, nargs="*", metavar="FILE", help="JSON that a benchmark wrote")
    for file in options.parse_args().files:
        shutil.copy(file, ROOT / FOLDER / f"{json.loads(file.read_text())['what']}.json")
    for path, text in made(read(ROOT / FOLDER)).items():
        (ROOT / path).write_text(whole(ROOT / path, text))
        print(path)


if __name__ == "__main__":
    main()
