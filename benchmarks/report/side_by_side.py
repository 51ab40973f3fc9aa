"""The page about the launcher and the AWS toolkit, in turns on one machine."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import Measured, Ratio, measured, ratio, ratio_of_rounds
from benchmarks.side_by_side.aims import AIMS, Aim, aim

TEXT = """
Both images have the same base layers and ran in turns, {rounds} of each case. Figures are medians (least to most); a
ratio is ours to the toolkit's, of medians (least to most of the rounds by themselves). A job that had not ended at its
limit, in seconds above, was cut there: such a run counts as longer than any that ended, and a ratio to it is a bound.
"""
LAUNCHER = "launcher"


@dataclass(frozen=True)
class Section:
    heading: str
    text: str
    measures: tuple[str, ...]  # those that are shown
    plotted: tuple[str, ...]  # and these of them in a plot, a panel for each
    codes: bool = False  # are exit codes shown?


SECTIONS = {
    "start and tail": Section(
        "Start and tail",
        "The script imports nothing. Start: from the last container's start to the script's first line, of the last "
        "process to get there. Tail: from the script's last end to the last container's exit.",
        ("start_s", "tail_s"),
        ("start_s", "tail_s"),
    ),
    "failure": Section(
        "When something fails",
        "From the event until the last container of the job is gone; one that was killed is not counted.",
        ("gone_s",),
        ("gone_s",),
        codes=True,
    ),
    "stop": Section(
        "When the job is stopped",
        "SIGTERM to all hosts, as StopTrainingJob sends it. Heard: by all scripts.",
        ("told_s", "gone_s"),
        ("gone_s",),
        codes=True,
    ),
    "real job": Section(
        "Real jobs",
        "Start: to the first line of the script, before it imports TensorFlow. Whole job: from the first container's "
        "start to the last one's exit.",
        ("wall_s", "start_s", "tail_s"),
        ("wall_s", "tail_s"),
        codes=True,
    ),
    LAUNCHER: Section(
        "The launcher itself",
        "All processes of all hosts that are not the user's: the most memory that they had at a time, and CPU time.",
        ("launcher_memory_bytes", "launcher_cpu_s"),
        ("launcher_memory_bytes", "launcher_cpu_s"),
    ),
    "log": Section(
        "The log",
        "Scripts that write lines as fast as they can.",
        ("lines_per_s", "cpu_us_per_line", "split_share", "mislabelled_share", "unlabelled_share"),
        ("lines_per_s", "cpu_us_per_line"),
    ),
}
MORE_IS_BETTER = ("lines_per_s",)
MUST_FAIL = "failure"  # the group whose jobs have failed, so that exit code 0 of a host is a false report


@dataclass(frozen=True)
class Row:
    """One measure of one case, both sides."""

    case: str
    title: str
    section: str
    measure: str
    ours: Measured | None
    toolkit: Measured | None
    rounds: tuple[float, ...]  # least and most of the rounds' ratios
    aim: Aim | None

    @property
    def ratio(self) -> Ratio | None:
        return ratio(self.ours, self.toolkit)

    @property
    def met(self) -> bool | None:
        return self.ratio.meets(self.aim.ratio) if self.ratio and self.aim else None

    @property
    def no_end(self) -> bool:
        """Has the toolkit's job not ended, so that it has no figure to be compared with, while ours has one?"""
        return self.ratio is None and bool(self.ours and self.toolkit and self.ours.values and self.toolkit.cut)

    @property
    def is_worse(self) -> bool:
        """Does the toolkit do better?"""
        return bool(self.ratio) and (self.ratio.value < 1 if self.measure in MORE_IS_BETTER else self.ratio.value > 1)

    @property
    def judged(self) -> str:
        if self.aim is None:
            return ""
        return f"{words.number(self.aim.ratio)}: {'no end to compare with' if self.no_end else words.verdict(self.met)}"


def rows(runs: list[dict[str, Any]]) -> list[Row]:
    """What is shown, in the order in which the cases were run."""
    found = []
    for case in dict.fromkeys(run["case"] for run in runs):
        of_case = [run for run in runs if run["case"] == case]
        group, title = of_case[0]["group"], of_case[0]["title"]
        for section, shown in SECTIONS.items():
            if section != group and (section, group) != (LAUNCHER, "start and tail"):
                continue
            for measure in shown.measures:
                of_side = [[run for run in of_case if run["side"] == side] for side in ("ours", "toolkit")]
                sides = [measured(of_each, measure) for of_each in of_side]
                if any(sides):
                    rounds = tuple(ratio_of_rounds(runs, case, measure))
                    found.append(Row(case, title, section, measure, *sides, rounds, aim(case, measure)))
    return found


def plots(all_rows: list[Row]) -> dict[str, tuple[list[Row], list[str]]]:
    """file: (rows, measures, a panel for each)."""
    found = {}
    for name, section in SECTIONS.items():
        of_section = [row for row in all_rows if row.section == name]
        if measures := [measure for measure in section.plotted if any(row.measure == measure for row in of_section)]:
            found[plot_of(name)] = (of_section, measures)
    return found


def plot_of(section: str) -> str:
    return f"side-by-side-{section.replace(' ', '-')}.svg"


def page(record: dict[str, Any]) -> list[str]:
    runs = record["runs"]
    all_rows = rows(runs)
    plotted = plots(all_rows)
    rounds = usual_rounds(runs)
    lines = ["# The launcher and the AWS toolkit, side by side", ""]
    lines += words.provenance(record, "side-by-side.json")
    lines += words.prose(TEXT.format(rounds=words.plural(rounds, "round")) + record.get("order", ""))
    lines += [*aims_table(all_rows), *other_way(all_rows)]
    for name, section in SECTIONS.items():
        of_section = [row for row in all_rows if row.section == name]
        if not of_section:
            continue
        lines += [f"## {section.heading}", "", *words.prose(section.text)]
        if (plot := plot_of(name)) in plotted:
            lines += [f"![{section.heading}]({plot})", ""]
        for measure in dict.fromkeys(row.measure for row in of_section):
            head = [words.heading(measure), "ours", "toolkit", "ratio", "aim"]
            lines += words.table(head, [cells(row, rounds) for row in of_section if row.measure == measure])
        if section.codes:
            lines += exit_codes([run for run in runs if run["group"] == name], name == MUST_FAIL)
    return [*lines, *images(record.get("images", {}))]


def usual_rounds(runs: list[dict[str, Any]]) -> int:
    of_each = Counter((run["case"], run["side"]) for run in runs)
    return max(Counter(of_each.values()).items(), key=lambda found: found[::-1], default=(0, 0))[0]


def cells(row: Row, rounds: int) -> list[str]:
    sides = [
        "never" if side is None and row.measure == "told_s" else words.spread(side, row.measure, rounds)
        for side in (row.ours, row.toolkit)
    ]
    return [row.title, *sides, words.ratio_words(row.ratio, row.rounds), row.judged]


def aims_table(all_rows: list[Row]) -> list[str]:
    """Whether each aim is met by all of its cases; those that are not shown to meet it by name."""
    body, met = [], 0
    for aimed in AIMS:
        judged = [row for row in all_rows if row.aim is aimed and not row.no_end]
        missed, open_ = ([row for row in judged if row.met is kind] for kind in (False, None))
        met += bool(judged) and not missed and not open_
        said = [
            f"{words.verdict(some[0].met)}: "
            + ", ".join(f"{row.title} ({words.ratio_words(row.ratio) or 'no ratio'})" for row in some)
            for some in (missed, open_)
            if some
        ]
        said = said or [words.verdict(True if judged else None)]
        body.append([aimed.words, words.number(aimed.ratio), found_by(judged), "; ".join(said)])
    lines = words.prose(
        f"**{met} of {words.plural(len(AIMS), 'aim')} met.** All cases of an aim have to meet it, but for "
        "those where the toolkit's job did not end and has no figure to compare with."
    )
    return [*lines, *words.table(["aim", "at most", "found", ""], body)]


def other_way(all_rows: list[Row]) -> list[str]:
    """Where the toolkit does better."""
    better = [
        f"{words.title(row.measure).lower()}, {row.title} ({words.ratio_words(row.ratio)})"
        for row in all_rows
        if row.is_worse
    ]
    return words.prose(f"**The toolkit does better** in: {'; '.join(better)}.") if better else []


def found_by(judged: list[Row]) -> str:
    ratios = sorted((row.ratio for row in judged if row.ratio), key=lambda found: found.value)
    if not ratios:
        return "not measured"
    ends = [words.ratio_words(found) for found in (ratios[0], ratios[-1])]
    return f"{' to '.join(dict.fromkeys(ends))} ({words.plural(len(ratios), 'case')})"


def exit_codes(runs: list[dict[str, Any]], must_fail: bool) -> list[str]:
    head = ["exit codes of the hosts", "ours", "toolkit", "all hosts as the job: ours", "toolkit"]
    if must_fail:
        head.append("success reported of a failed job")
    body = []
    for case in dict.fromkeys(run["case"] for run in runs):
        of_case = [run for run in runs if run["case"] == case]
        sides = {side: [run for run in of_case if run["side"] == side] for side in ("ours", "toolkit")}
        row = [of_case[0]["title"], *map(codes, sides.values()), *map(right, sides.values())]
        if must_fail:
            false = {side: ", ".join(false_reports(of_side)) for side, of_side in sides.items()}
            row.append("; ".join(f"{side}: {hosts}" for side, hosts in false.items() if hosts) or "none")
        body.append(row)
    return words.table(head, body)


def codes(runs: list[dict[str, Any]]) -> str:
    """`1, 1`, or all that were seen with how often: `1, 0 (4 times); 1, 1`."""
    seen: dict[str, int] = {}
    for run in runs:
        cut = f" (cut after {run['cut_at_s']:g} s)" if run.get("cut_at_s") is not None else ""
        shown = ", ".join("still there" if code is None else str(code) for code in run.get("exit_codes", [])) + cut
        seen[shown] = seen.get(shown, 0) + 1
    if len(seen) < 2:
        return "".join(seen) or "not measured"
    return "; ".join(f"{words_} ({words.plural(count, 'time')})" for words_, count in seen.items())


def right(runs: list[dict[str, Any]]) -> str:
    judged = [run["right"] for run in runs if run.get("right") is not None]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def false_reports(runs: list[dict[str, Any]]) -> Iterator[str]:
    for host in range(max((len(run.get("exit_codes", [])) for run in runs), default=0)):
        times = sum(1 for run in runs if run.get("exit_codes", [])[host : host + 1] == [0])
        if times:
            yield f"algo-{host + 1} ({times} of {len(runs)})"


def images(sizes: dict[str, dict[str, Any]]) -> list[str]:
    body = []
    for name, said in (("bytes", "image"), ("files_bytes", "files in it")):
        ours, toolkit = (sizes.get(side, {}).get(name) for side in ("ours", "toolkit"))
        if ours or toolkit:
            shown = [f"{words.number(value / 1e6)} MB" if value else "not measured" for value in (ours, toolkit)]
            body.append([said, *shown, words.quotient(ours / toolkit) if ours and toolkit else ""])
    return ["## Image size", "", *words.table(["", "ours", "toolkit", "ratio"], body)] if body else []
