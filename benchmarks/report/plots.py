"""The plots, as SVG that can be read on white pages and on dark ones. The only module that needs matplotlib."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from benchmarks.many_hosts.aims import AIMED_AT, AIMS
from benchmarks.report import words
from benchmarks.report.figures import Measured
from benchmarks.report.many_hosts import by_hosts
from benchmarks.report.side_by_side import Row

matplotlib.use("svg")
INK = "#747c85"  # as far from white as from the dark of GitHub's pages
FAINT = "#747c8540"
COLOURS = {"ours": "#2f81d0", "toolkit": "#d9822b"}
OFFSET = {"ours": -0.19, "toolkit": 0.19}
GROWING = (
    "rendezvous_s", "told_all_s", "coordinator_cpu_share", "requests_per_s", "coordinator_memory_bytes", "plan_s",
)  # fmt: skip
LOG_FROM = 40  # most to least, from which a scale is logarithmic
STYLE = {
    "svg.hashsalt": "sagemaker-tf-entrypoint",  # with no date, too, the same figures make the same file
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "lines.solid_capstyle": "butt",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK),
}


@contextmanager
def figure(path: Path, lines: int, columns: int, width: float, height: float) -> Iterator[tuple[Figure, list[Axes]]]:
    with matplotlib.rc_context(STYLE):
        drawn, axes = pyplot.subplots(lines, columns, figsize=(width, height), squeeze=False, layout="constrained")
        yield drawn, list(axes.flat)
        drawn.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(drawn)
    lines = (line.strip() for line in path.read_text().splitlines())
    path.write_text("".join(f"{line}\n" for line in lines))  # a quarter of it were blanks


def sides(path: Path, rows: list[Row], measures: list[str], may_be_logarithmic: bool = True) -> None:
    """A panel for each measure, a line for each case, both sides in it."""
    cases = list(dict.fromkeys(row.title for row in rows if row.measure in measures))
    height = 1.0 + 0.42 * len(cases)
    width = 3.0 + len(measures) * {1: 4.5, 2: 3.6}.get(len(measures), 2.5)
    with figure(path, 1, len(measures), width, height) as (drawn, axes):
        for ax, measure in zip(axes, measures, strict=True):
            _panel(ax, [row for row in rows if row.measure == measure], cases, measure, may_be_logarithmic)
            ax.set_yticks(range(len(cases)), cases if ax is axes[0] else [""] * len(cases))
        legend(drawn, any(side.cut for row in rows for side in (row.ours, row.toolkit) if side))


def _panel(ax: Axes, rows: list[Row], cases: list[str], measure: str, may_be_logarithmic: bool) -> None:
    both = [(row, side, found) for row in rows for side in OFFSET if (found := getattr(row, side))]
    shown = [words.in_unit(value, measure) for _, _, found in both for value in (*found.values, *_limit(found))]
    least = min((value for value in shown if value > 0), default=1)
    logarithmic = may_be_logarithmic and max(shown, default=0) > LOG_FROM * least
    for row, side, found in both:
        _mark(ax, cases.index(row.title) + OFFSET[side], found, measure, COLOURS[side], logarithmic)
    if logarithmic:
        ax.set_xscale("log")
        ax.set_xlim(least / 2, max(shown) * 4)
        ax.xaxis.set_major_locator(LogLocator(numticks=6))
        ax.minorticks_off()
    else:
        ax.set_xlim(0, 1.25 * max(shown, default=1) or 1)
        ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(_tick))
    ax.set_ylim(len(cases) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(not logarithmic)
    ax.grid(axis="x")
    ax.set_title(words.heading(measure) + (", log scale" if logarithmic else ""))


def _tick(value: float, _: int) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def _limit(found: Measured) -> list[float]:
    return [found.limit] if found.cut and found.limit and found.bound else []


def _mark(ax: Axes, y: float, found: Measured, measure: str, colour: str, logarithmic: bool) -> None:
    """The median with the spread; an arrow from the limit on where runs were cut there."""
    values = [words.in_unit(value, measure) for value in found.values]
    limit = _limit(found)
    middle = found.median if found.median is not None or not limit else found.limit
    if middle is None:
        ax.annotate("job not ended", (0.02, y), xycoords=("axes fraction", "data"), va="center", fontsize=8.5)
        return
    middle = words.in_unit(middle, measure)
    if not logarithmic:
        ax.barh(y, middle, height=0.34, color=colour, linewidth=0)
    elif found.median is not None:
        ax.plot([middle], [y], "o", color=colour, markersize=6)
    if len(values) + len(limit) > 1:
        ends = [min(values + limit), max(values + limit)]
        ax.plot(ends, [y, y], color=colour if logarithmic else INK, linewidth=1.5)
    if limit:
        ax.plot(limit, [y], ">", color=colour, markersize=8, markerfacecolor="none")
    right = max([middle, *values, *limit])
    text = words.number(middle) if found.median is not None else f"> {words.number(middle)}"
    ax.annotate(text, (right, y), (6, 0), textcoords="offset points", va="center", fontsize=8.5)


def legend(drawn: Figure, cut: bool) -> None:
    marks: list[Any] = [
        Line2D([], [], color=colour, marker="s", linestyle="", markersize=8, label=name)
        for name, colour in COLOURS.items()
    ]
    if cut:
        marks.append(
            Line2D([], [], color=INK, marker=">", linestyle="", markerfacecolor="none", markersize=8,
                   label="not ended at the limit")
        )  # fmt: skip
    drawn.legend(handles=marks, loc="outside upper right", ncols=len(marks), frameon=False)


def growth(path: Path, runs: list[dict[str, Any]]) -> None:
    """Measures over the number of hosts, both scales logarithmic, with a dotted line for growth as the hosts."""
    found = {measure: figures for measure, figures in by_hosts(runs).items() if measure in GROWING}
    lines = -(-len(found) // 3)
    with figure(path, lines, 3, 10, 2.7 * lines) as (_, axes):
        for ax in axes[len(found) :]:
            ax.set_visible(False)
        for ax, (measure, figures) in zip(axes, found.items(), strict=False):
            _grow(ax, measure, figures)


def _grow(ax: Axes, measure: str, figures: dict[int, Measured]) -> None:
    hosts = list(figures)
    values = [[words.in_unit(value, measure) for value in figures[count].values] for count in hosts]
    middles = [words.in_unit(figures[count].median or 0, measure) for count in hosts]
    colour = COLOURS["ours"]
    ax.plot(hosts, middles, "o-", color=colour, markersize=5)
    for count, of_count in zip(hosts, values, strict=True):
        ax.plot([count, count], [min(of_count), max(of_count)], color=colour, linewidth=1.5)
    linear = [middles[-1] * count / hosts[-1] for count in hosts]
    ax.plot(hosts, linear, ":", color=INK, linewidth=1)
    if measure in AIMS:
        most = words.in_unit(AIMS[measure], measure)
        ax.plot([AIMED_AT * 0.7, AIMED_AT * 1.4], [most, most], color=COLOURS["toolkit"], linewidth=2.5)
        ax.annotate("aim", (AIMED_AT * 0.65, most), ha="right", va="center", fontsize=8.5)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(hosts, [f"{count:,}" for count in hosts])
    ax.yaxis.set_major_locator(LogLocator(subs=(1,) if max(middles) > 30 * min(middles) else (1, 2, 5)))
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(FuncFormatter(_tick))
    ax.grid()
    ax.set_title(words.heading(measure))
