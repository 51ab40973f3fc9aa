"""Numbers and tables, as the pages show them."""

import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.report.figures import Measured, Ratio

TITLES = {
    "start_s": "Start",
    "tail_s": "Tail",
    "gone_s": "Until all hosts are gone",
    "told_s": "Until it is heard",
    "wall_s": "Whole job",
    "launcher_memory_bytes": "Most memory",
    "launcher_cpu_s": "CPU time",
    "auc": "AUC",
    "split_share": "Split lines",
    "mislabelled_share": "Lines with a wrong label",
    "unlabelled_share": "Lines without a label",
    "rendezvous_s": "Rendezvous",
    "told_all_s": "Failure to all hosts told",
    "coordinator_cpu_share": "Coordinator's CPU",
    "memory_per_host_bytes": "Memory per host",
    "verdict_s": "Failure to the verdict",
    "all_ended_s": "Failure to all hosts ended",
    "coordinator_memory_bytes": "Coordinator's memory",
    "plan_s": "Plan, MPI",
    "plan_ps_s": "Plan, parameter servers",
    "plan_mwms_s": "Plan, MultiWorkerMirrored",
    "plan_digest_s": "Digest of the plan, MPI",
    "plan_ps_digest_s": "Digest of the plan, parameter servers",
    "plan_mwms_digest_s": "Digest of the plan, MultiWorkerMirrored",
}
UNITS = {"bytes": "MB", "share": "%", "s": "s"}


def unit(measure: str) -> str:
    if "_us_per_" in measure:
        return "µs"
    if measure.endswith("_per_s"):
        return f"{measure.removesuffix('_per_s').replace('_', ' ')} per second"
    return UNITS.get(measure.rpartition("_")[2], "")


def title(measure: str) -> str:
    if measure in TITLES:
        return TITLES[measure]
    if "_us_per_" in measure:
        return f"{measure.partition('_us_per_')[0].replace('cpu', 'CPU time')} per {measure.partition('_us_per_')[2]}"
    name, _, last = measure.removesuffix("_per_s").rpartition("_")
    return (name if name and last in UNITS else measure.removesuffix("_per_s")).replace("_", " ").capitalize()


def heading(measure: str) -> str:
    if measure.endswith("_per_s") and measure not in TITLES:
        return "MB per second" if measure == "bytes_per_s" else f"{title(measure)} per second"
    return f"{title(measure)}, {unit(measure)}" if unit(measure) else title(measure)


def in_unit(value: float, measure: str) -> float:
    if measure.endswith(("_bytes", "bytes_per_s")):
        return value / 1e6
    if measure.endswith("_share"):
        return 100 * value
    return value


def number(value: float) -> str:
    """Two or three digits that count: 0.048, 0.48, 4.80, 48.0, 480, 4,800."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    if size < 0.1:
        return f"{value:.{1 - math.floor(math.log10(size))}f}"
    return f"{value:.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def shown(value: float, measure: str) -> str:
    return f"{value:.4f}" if measure == "auc" else number(in_unit(value, measure))


def quotient(value: float) -> str:
    """Three digits behind the point, as aims are that close: 0.048, 0.247, 1.53; 0.0012."""
    return f"{value:.3f}" if 0.01 <= value < 1 else number(value)


def spread(figure: Measured | None, measure: str, runs: int | None = None) -> str:
    """The median (least to most). `runs`: the usual number of rounds; any other is said."""
    if figure is None:
        return "not measured"
    n = "" if runs == figure.runs else f"; n = {figure.runs}"
    if not figure.values:
        whose = "" if figure.bound else "job "
        return f"{whose}not ended after {figure.limit:g} s{f' (n = {figure.runs})' if n else ''}"
    low, high = (shown(edge(figure.values), measure) for edge in (min, max))
    middle = figure.median
    if figure.cut:
        beyond = f"more than {figure.limit:g}" if figure.bound else "no end"
        middle_words = beyond if middle is None else shown(middle, measure)
        return f"{middle_words} ({low} to {high}; {figure.cut} of {figure.runs} not ended after {figure.limit:g} s)"
    return f"{shown(middle, measure)} ({low} to {high}{n})" if figure.runs > 1 else f"{low} (n = 1)"


def ratio_words(found: Ratio | None, rounds: Sequence[float] = ()) -> str:
    if found is None:
        return ""
    words = f"{found.bound} {quotient(found.value)}".strip()
    return f"{words} ({quotient(rounds[0])} to {quotient(rounds[1])})" if rounds and not found.bound else words


def times(found: Ratio | None, measure: str) -> str:
    """A ratio of ours to another's for people: `2,400 times sooner`, `1.7 times as long`."""
    if found is None:
        return ""
    if 0.95 < found.value < 1.05 and not found.bound:
        return "as good"
    less, more = ("sooner", "as long") if measure.endswith("_s") else ("less", "as much")
    if found.value > 1:
        return f"{'more than ' * (found.bound == '>')}{_round(found.value)} times {more}"
    if not found.value:
        return "none"
    return f"{'more than ' * (found.bound == '<')}{_round(1 / found.value)} times {less}"


def _round(value: float) -> str:
    """Two digits that count: 1.4, 18, 2,400."""
    value = float(f"{value:.2g}")
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def verdict(met: bool | None) -> str:
    return {True: "met", False: "**missed**", None: "not shown"}[met]


def prose(text: str, bullet: bool = False) -> list[str]:
    """A paragraph, in lines that are no longer than those of the other docs."""
    indent = ("- ", "  ") if bullet else ("", "")
    lines = textwrap.wrap(
        " ".join(text.split()), 128, initial_indent=indent[0], subsequent_indent=indent[1],
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return lines if bullet or not lines else [*lines, ""]


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def provenance(record: dict[str, Any], name: str) -> list[str]:
    """What was measured when, of which commit, on which machine, by which command."""
    machine = record["machine"]
    dirty = " with changes that were not committed" if record["commit"].endswith("+") else ""
    here = [
        f"{plural(machine['cpus'], 'CPU')} ({machine['cpu']})",
        f"{machine['memory_gib']} GiB of memory",
        machine["kernel"],
        *([f"Docker {machine['docker']}"] if machine.get("docker") else []),
    ]
    load = f"load {machine['load_before']} before and {machine.get('load_after', '?')} after"
    lines = prose(
        f"Measured on {record['date']}, commit `{record['commit'].rstrip('+')}`{dirty}; {', '.join(here)}; {load}. "
        f"Raw figures: [{name}]({name}). To repeat it:"
    )
    lines += [f"    {record['command']}", ""]
    given = [
        f"{key.replace('_', ' ')} {'none' if value is None else value if isinstance(value, str) else f'{value:g}'}"
        for key, value in record.get("limits", {}).items()
    ]
    return lines + (prose(f"With: {', '.join(given)}.") if given else [])
