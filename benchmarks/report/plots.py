"""Draw the plots, as SVG that is legible on white and on dark pages."""

import io
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from benchmarks.many_hosts.aims import AIMED_AT, AIMS
from benchmarks.report import words
from benchmarks.report.figures import Measured, Run
from benchmarks.report.many_hosts import by_hosts
from benchmarks.report.side_by_side import SIDES, Row
from benchmarks.side_by_side.cases import DRIVERS

matplotlib.use("svg")
INK = "#747c85"  # as far from white as from the dark of GitHub's pages
COLOURS = {"ours": "#2f81d0", "toolkit": "#d9822b", DRIVERS: "#3c9a5f"}
NAMES = {DRIVERS: "SDK 3's drivers"}
GROWING = (
    "rendezvous_s", "told_all_s", "coordinator_cpu_share", "requests_per_s", "coordinator_memory_bytes", "plan_s",
)  # fmt: skip
LOG_FROM = 40  # most to least, from which a scale is logarithmic
STYLE = {
    "svg.hashsalt": "sagemaker-tf-entrypoint",  # with no date, too, the same figures make the same file
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": f"{INK}40",
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), INK),
}
TICKS = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}")
TEXT = {"va": "center", "fontsize": 8.5}


def sides(rows: list[Row], may_be_logarithmic: bool = True) -> str:
    """Draw a panel for each measure, with a line for each case and all sides in it."""
    measures, cases = (list(dict.fromkeys(getattr(row, name) for row in rows)) for name in ("measure", "title"))
    width = 3.0 + len(measures) * {1: 4.5, 2: 3.6}.get(len(measures), 2.5)
    with figure(1, len(measures), width, 1.0 + 0.21 * len(_sides(rows)) * len(cases)) as (drawn, axes, svg):
        for ax, measure in zip(axes, measures, strict=True):
            of_measure = [row for row in rows if row.measure == measure]
            _panel(ax, of_measure, _sides(rows), cases, measure, may_be_logarithmic)
        axes[0].set_yticklabels(cases)
        marks = [_mark(NAMES.get(side, side), "s", color=COLOURS[side]) for side in _sides(rows)]
        if any(side.cut for row in rows for side in (row.ours, row.toolkit, row.drivers) if side):
            marks.append(_mark("not ended at the limit", ">", color=INK, markerfacecolor="none"))
        drawn.legend(handles=marks, loc="outside upper right", ncols=len(marks), frameon=False)
    return svg.getvalue()


def _sides(rows: list[Row]) -> tuple[str, ...]:
    return (*SIDES, DRIVERS) if any(row.drivers for row in rows) else SIDES


def _mark(label: str, marker: str, **look: str) -> Line2D:
    return Line2D([], [], label=label, marker=marker, linestyle="", markersize=8, **look)


def _panel(
    ax: Axes, rows: list[Row], names: tuple[str, ...], cases: list[str], measure: str, may_be_logarithmic: bool
) -> None:
    step = 0.76 / len(names)  # from one side's middle to the next one's
    offset = {side: step * (number - (len(names) - 1) / 2) for number, side in enumerate(names)}
    both = [(row, side, found) for row in rows for side in names if (found := getattr(row, side))]
    shown = [value for _, _, found in both for value in _reached(found, measure)]
    least, most = min((value for value in shown if value > 0), default=1), max(shown, default=1) or 1
    logarithmic = may_be_logarithmic and most > LOG_FROM * least
    for row, side, found in both:
        _draw(ax, cases.index(row.title) + offset[side], found, measure, COLOURS[side], logarithmic, step - 0.04)
    if logarithmic:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xlim(*((least / 2, most * 4) if logarithmic else (0, 1.25 * most)))
    ax.xaxis.set_major_locator(LogLocator(numticks=6) if logarithmic else MaxNLocator(4))
    ax.xaxis.set_major_formatter(TICKS)
    ax.set_ylim(len(cases) - 0.5, -0.5)
    ax.set_yticks(range(len(cases)), [""] * len(cases))
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(not logarithmic)
    ax.grid(axis="x")
    ax.set_title(words.heading(measure) + (", log scale" if logarithmic else ""))


def _draw(ax: Axes, y: float, found: Measured, measure: str, colour: str, logarithmic: bool, height: float) -> None:
    """Draw the median with the spread; an arrow from the limit on if runs were cut there."""
    if found.at_least is None:
        ax.annotate("job not ended", (0.02, y), xycoords=("axes fraction", "data"), **TEXT)
        return
    reached, middle = _reached(found, measure), words.in_unit(found.at_least, measure)
    if not logarithmic:
        ax.barh(y, middle, height=height, color=colour, linewidth=0)
    elif found.median is not None:
        ax.plot(middle, y, "o", color=colour, markersize=6)
    if len(reached) > 1:
        ax.hlines(y, min(reached), max(reached), color=colour if logarithmic else INK)
    if len(reached) > len(found.values):
        ax.plot(reached[-1], y, ">", color=colour, markersize=8, markerfacecolor="none")
    text = f"{'> ' * (found.median is None)}{words.number(middle)}"
    ax.annotate(text, (max(reached), y), (6, 0), textcoords="offset points", **TEXT)


def _reached(found: Measured, measure: str) -> list[float]:
    """Return what was measured, and last the limit if runs were cut at it."""
    limit = [found.limit] if found.cut and found.limit and found.bound else []
    return [words.in_unit(value, measure) for value in (*found.values, *limit)]


def growth(runs: list[Run]) -> str:
    """Draw measures over the number of hosts, both scales logarithmic, with a dotted line for linear growth."""
    found = {measure: figures for measure, figures in by_hosts(runs).items() if measure in GROWING}
    lines = -(-len(found) // 3)
    with figure(lines, 3, 10, 2.7 * lines) as (_, axes, svg):
        for ax in axes[len(found) :]:
            ax.set_visible(False)
        for ax, (measure, figures) in zip(axes, found.items(), strict=False):
            _grow(ax, measure, figures)
    return svg.getvalue()


def _grow(ax: Axes, measure: str, figures: dict[int, Measured]) -> None:
    hosts = list(figures)
    middles = [words.in_unit(figures[count].median or 0, measure) for count in hosts]
    ends = [[words.in_unit(edge(figures[count].values), measure) for count in hosts] for edge in (min, max)]
    ax.plot(hosts, middles, "o-", color=COLOURS["ours"], markersize=5)
    ax.vlines(hosts, *ends, color=COLOURS["ours"])
    ax.plot(hosts, [middles[-1] * count / hosts[-1] for count in hosts], ":", color=INK, linewidth=1)
    if measure in AIMS:
        most = words.in_unit(AIMS[measure], measure)
        ax.hlines(most, AIMED_AT * 0.7, AIMED_AT * 1.4, color=COLOURS["toolkit"], linewidth=2.5)
        ax.annotate("aim", (AIMED_AT * 0.65, most), ha="right", **TEXT)
    ax.loglog()
    ax.minorticks_off()
    ax.set_xticks(hosts, [f"{count:,}" for count in hosts])
    ax.yaxis.set_major_locator(LogLocator(subs=(1,) if max(middles) > 30 * min(middles) else (1, 2, 5)))
    ax.yaxis.set_major_formatter(TICKS)
    ax.grid()
    ax.set_title(words.heading(measure))


@contextmanager
def figure(lines: int, columns: int, width: float, height: float) -> Iterator[tuple[Figure, list[Axes], io.StringIO]]:
    """Yield a figure, its axes and a buffer, which holds the SVG after the block."""
    svg = io.StringIO()
    with matplotlib.rc_context(STYLE):
        drawn, axes = pyplot.subplots(lines, columns, figsize=(width, height), squeeze=False, layout="constrained")
        yield drawn, list(axes.flat), svg
        drawn.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(drawn)
