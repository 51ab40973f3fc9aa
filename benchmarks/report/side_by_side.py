"""Fill the page that compares the launcher with the AWS toolkit and, if measured, with SageMaker's SDK 3."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report import words
from benchmarks.report.figures import Measured, Ratio, Run, measured, ratio, ratio_of_rounds, where
from benchmarks.side_by_side.aims import AIMS, INSTALL_AIMS, RESUMED_S, UNREACHED_S, Aim, aim
from benchmarks.side_by_side.cases import BY_HAND, DRIVERS, HANG, HANG_AFTER_S, PACKAGES, RESTART, START, UNWATCHED
from benchmarks.side_by_side.rounds import CUTS, ORDER, TOGETHER

SIDES = ("ours", "toolkit")
NAMES = {DRIVERS: "SDK 3's drivers", UNWATCHED: "ours, without its monitor"}
LAUNCHER = "launcher"  # a section of its own, of the jobs in the first
SECTIONS = {  # the group of cases: what is shown of it
    "start and tail": ("start_s", "tail_s"),
    "failure": ("gone_s",),
    RESTART: ("again_s", "own_s", "resumed_s", "left_s"),
    HANG: ("hang_told_s", "gone_s"),
    "stop": ("told_s", "gone_s"),
    "real job": ("wall_s", "start_s", "tail_s", "launcher_tail_s"),
    "unread output": ("told_s", "saved_s", "held_s", "gone_s", "lost_share"),
    LAUNCHER: ("launcher_memory_bytes", "launcher_cpu_s"),
    PACKAGES: ("install_s", "install_cpu_s", "gone_s"),
    "log": ("lines_per_s", "cpu_us_per_line", "split_share", "mislabelled_share", "unlabelled_share"),
}
NOT_PLOTTED = (
    ("stop", "told_s"),
    *((section, each) for section in (RESTART, HANG) for each in SECTIONS[section]),
    ("real job", "start_s"),
    *(("unread output", each) for each in SECTIONS["unread output"]),
    *(("log", each) for each in SECTIONS["log"][2:]),
)
NEVER = ("told_s", "saved_s", "hang_told_s")  # what a run without it did not come to, however long it ran
WATCHED = ("start_s", "tail_s", "gone_s", "launcher_memory_bytes", "launcher_cpu_s")
MORE_IS_BETTER = ("lines_per_s",)
PAIRS = (  # measures that share a table
    ("start_s", "tail_s"), ("launcher_memory_bytes", "launcher_cpu_s"),
    ("lines_per_s", "cpu_us_per_line"), ("told_s", "saved_s"), ("told_s", "gone_s"),
    ("hang_told_s", "gone_s"),
)  # fmt: skip
FEW = 2  # cases that the table of aims names


@dataclass(frozen=True)
class Row:
    """One measure of one case, with all sides."""

    case: str
    title: str
    section: str
    measure: str
    ours: Measured | None
    toolkit: Measured | None
    rounds: tuple[float, ...] = ()  # least and most of the rounds' ratios
    aim: Aim | None = None
    drivers: Measured | None = None
    drivers_cannot: str = ""
    never: tuple[str, ...] = ()  # sides that ran and did not come to it

    @property
    def ratio_to_drivers(self) -> Ratio | None:
        return ratio(self.ours, self.drivers)

    @property
    def ratio(self) -> Ratio | None:
        return ratio(self.ours, self.toolkit)

    @property
    def aimed(self) -> Ratio | None:
        return Ratio(self.aim.ratio) if self.aim else None

    @property
    def met(self) -> bool | None:
        return self.ratio.meets(self.aim.ratio) if self.ratio and self.aim else None

    @property
    def no_end(self) -> bool:
        """Return whether the toolkit's job did not end, so that it has no figure to compare ours with."""
        return self.ratio is None and bool(self.ours and self.toolkit and self.ours.values and self.toolkit.cut)

    @property
    def is_share(self) -> bool:
        return self.measure.endswith("_share")

    @property
    def is_worse(self) -> bool:
        """Return whether the toolkit does better."""
        return self._is_loss(self.ratio, self.toolkit)

    @property
    def is_worse_than_drivers(self) -> bool:
        return self._is_loss(self.ratio_to_drivers, self.drivers)

    def _is_loss(self, to: Ratio | None, other: Measured | None) -> bool:
        if to is None:  # a ratio to a share of 0 does not exist
            found = self.ours and other and self.is_share and other.median == 0
            return bool(found and self.ours and self.ours.median)
        return to.value < 1 if self.measure in MORE_IS_BETTER else to.value > 1

    @property
    def shown(self) -> str:
        """Return the ratio: bold if it misses its aim, with the rounds' ratios if these disagree on a verdict."""
        if self.ratio is None:
            return ""
        limits = (1.0, self.aim.ratio) if self.aim else (1.0,)
        disagree = self.rounds and any(self.rounds[0] <= limit < self.rounds[1] for limit in limits)
        said = words.ratio(self.ratio, self.rounds if disagree else ())
        if self.aim and self.met is None:
            return f"{said}, {words.verdict(None)}"
        return f"**{said}**" if self.met is False else said


def rows(runs: list[Run], cannot: Mapping[str, str] | None = None) -> list[Row]:
    """Return what is shown, in the order in which the cases ran. `cannot`: {case: why the drivers do not have it}."""
    found = []
    for case, (group, title) in {run["case"]: (run["group"], run["title"]) for run in runs}.items():
        for section in sections(group):
            for measure in SECTIONS[section]:
                *sides, third = [measured(runs, measure, case=case, side=side) for side in (*SIDES, DRIVERS)]
                if any(sides) or third:
                    rounds = tuple(ratio_of_rounds(runs, measure, case=case))
                    why = (cannot or {}).get(case, "")
                    never = tuple(side for side in (*SIDES, DRIVERS) if _found(runs, measure, case, side) == "never")
                    goal = aim(case, measure)
                    found.append(Row(case, title, section, measure, *sides, rounds, goal, third, why, never))
    return found


def sections(group: str) -> tuple[str, ...]:
    """Return the sections that show the cases of this group."""
    return (group, LAUNCHER) if group == START else (group,)


def paired(of_section: list[Row]) -> list[tuple[list[str], dict[str, dict[str, Row]]]]:
    """Return the tables of a section: their measures, one or a pair, and {case: {measure: row}}."""
    there = {row.measure for row in of_section if not row.is_share}
    left = [measure for measure in SECTIONS[of_section[0].section] if measure in there]
    found = []
    while left:
        both = next((pair for pair in PAIRS if left[0] == pair[0] and pair[1] in left), (left[0],))
        cases: dict[str, dict[str, Row]] = {}
        for row in of_section:
            if row.measure in both:
                cases.setdefault(row.case, {})[row.measure] = row
        left = [measure for measure in left if measure not in both]
        found.append((list(both), cases))
    return found


def plots(all_rows: list[Row]) -> dict[str, list[Row]]:
    """Return {section: the rows that its plot shows}."""
    found: dict[str, list[Row]] = {}
    for row in all_rows:
        if (row.section, row.measure) not in NOT_PLOTTED:
            found.setdefault(row.section, []).append(row)
    return found


def plot_of(section: str) -> str:
    return f"side-by-side-{section.replace(' ', '-')}.svg"


def context(record: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's template takes beside the record."""
    cannot = drivers_cannot(record)
    all_rows = rows(record["runs"], cannot)
    drivers = has_drivers(record["runs"])
    order = ORDER.format(together=TOGETHER, cuts=CUTS)
    return {
        "has_drivers": drivers,
        "rows": all_rows,
        "plots": {section: plot_of(section) for section in plots(all_rows)} if record["what"] == "side-by-side" else {},
        "rounds": usual_rounds(record["runs"]),
        "slept": slept(record),
        "aims": aims(all_rows, INSTALL_AIMS if record["what"] == "installs" else AIMS),
        "unreached": UNREACHED_S,
        "exits": exits(record["runs"], cannot),
        "endings": endings,
        "paired": paired,
        "cannot": list(dict.fromkeys(_why_not(all_rows))) if drivers else [],
        "restarted": restarted(record["runs"]),
        "watching": watching(record["runs"]),
        "hang_after": HANG_AFTER_S,
        "by_hand": by_hand(record),
        "is_as_side_by_side": record["what"] == "side-by-side-on" and record.get("order") == order,
    }


def _why_not(all_rows: list[Row]) -> Iterator[str]:
    return (row.drivers_cannot for row in all_rows if row.drivers_cannot and row.section != RESTART)


def restarted(runs: list[Run]) -> dict[str, Any]:
    """Return the table of restarts, which our launcher alone has, and its aim; empty if there is none."""
    cases = {run["case"]: run["title"] for run in where(runs, group=RESTART, side="ours")}
    shown = {
        title: {measure: measured(runs, measure, case=case, side="ours") for measure in SECTIONS[RESTART]}
        for case, title in cases.items()
    }
    if not shown:
        return {}
    parts = [each["resumed_s"].median if each["resumed_s"] else None for each in shown.values()]
    met = None if None in parts else max(part for part in parts if part is not None) <= RESUMED_S
    return {"measures": SECTIONS[RESTART], "cases": shown, "aim": RESUMED_S, "met": met}


def watching(runs: list[Run]) -> dict[str, Any]:
    """Return what was measured with and without our monitor, and of SDK 3's drivers; empty if nothing was."""
    cases = {run["case"]: run["title"] for run in where(runs, side=UNWATCHED)}
    sides = [side for side in ("ours", UNWATCHED, DRIVERS) if any(where(runs, side=side))]
    tables: dict[str, dict[str, list[Measured | None]]] = {}
    for measure in WATCHED:
        for case, title in cases.items():
            found = {side: measured(runs, measure, case=case, side=side) for side in sides}
            if found[UNWATCHED]:
                tables.setdefault(measure, {})[title] = list(found.values())
    return {"sides": [NAMES.get(side, side) for side in sides], "tables": tables} if cases else {}


def by_hand(record: dict[str, Any]) -> dict[str, Any]:
    """Return what was measured of jobs that were started by hand, beside ours; empty if nothing was."""
    runs = record["runs"]
    there = {run["side"] for run in runs}
    sides = ["ours", *(side for side in BY_HAND if side in there)]
    if sides == ["ours"]:
        return {}
    cases = {run["case"]: (run["title"], sections(run["group"])) for run in runs if run["side"] in BY_HAND}
    reasons = {case["name"]: case.get("cannot", {}) for case in record.get("cases", [])}
    tables: dict[str, dict[str, list[Measured | str | None]]] = {}  # by measure and case: a cell for each side
    for section, measures in SECTIONS.items():
        for measure in measures:
            for case, title in ((case, title) for case, (title, shown) in cases.items() if section in shown):
                found = [_found(runs, measure, case, side) for side in sides]
                if any(found[1:]):
                    why = [reasons.get(case, {}).get(side) for side in sides]
                    tables.setdefault(measure, {})[title] = [
                        "" if no else each for each, no in zip(found, why, strict=True)
                    ]
    right = {
        side: [run["right"] for run in where(runs, side=side) if run["case"] in cases and "right" in run]
        for side in sides
    }
    cannot = {
        side: list(dict.fromkeys(why for each in reasons.values() if (why := each.get(side)))) for side in BY_HAND
    }
    return {
        "sides": sides,
        "tables": tables,
        "endings": endings([{"right": right}]),
        "cannot": {side: why for side, why in cannot.items() if why},
    }


def _found(runs: list[Run], measure: str, case: str, side: str) -> Measured | str | None:
    """Return what was measured; `never` if the side ran and did not come to it."""
    found = measured(runs, measure, case=case, side=side)
    return "never" if found is None and measure in NEVER and where(runs, case=case, side=side) else found


def slept(record: dict[str, Any]) -> str:
    """Return how many seconds the script of start cases sleeps; older files do not have it."""
    given = [case.get("arguments", {}).get("seconds") for case in record.get("cases", ()) if case.get("group") == START]
    return next(filter(None, given), "0.5")


def has_drivers(runs: list[Run]) -> bool:
    return any(run["side"] == DRIVERS for run in runs)


def drivers_cannot(record: dict[str, Any]) -> dict[str, str]:
    """Return {case: why the SDK's drivers do not have it}."""
    cases = record.get("cases", [])
    return {case["name"]: why for case in cases if (why := case.get("cannot", {}).get(DRIVERS))}


def usual_rounds(runs: list[Run]) -> int:
    of_each = Counter((run["case"], run["side"]) for run in runs)
    return max(Counter(of_each.values()).items(), key=lambda found: found[::-1], default=(0, 0))[0]


def aims(all_rows: list[Row], of: Sequence[Aim] = AIMS) -> list[dict[str, Any]]:
    """Return whether each aim is met by all of its cases, and the names of the cases that do not meet it."""
    found = []
    for aimed in of:
        judged = [row for row in all_rows if row.aim is aimed and not row.no_end]
        lost = [some for met in (False, None) if (some := [row for row in judged if row.met is met])]
        met = bool(judged) and not lost
        ratios = sorted((row.ratio for row in judged if row.ratio), key=lambda each: each.value)
        ends = dict.fromkeys(words.ratio(each) for each in (*ratios[:1], *ratios[-1:]))
        said = [f"{words.verdict(some[0].met)} {_named(some)}" for some in lost]
        found.append(
            {
                "aim": aimed,
                "met": met,
                "said": "; ".join(said) or words.verdict(met or None),
                "found": f"{' to '.join(ends)} ({words.plural(len(ratios), 'case')})" if ratios else "not measured",
            }
        )
    return found


def _named(missed: list[Row]) -> str:
    """Return the cases that miss an aim, or how many they are: the tables below show them in bold."""
    if len(missed) > FEW:
        return f"by {len(missed)} cases"
    return "by " + ", ".join(f"{row.title} ({words.ratio(row.ratio) or 'no ratio'})" for row in missed)


def exits(runs: list[Run], cannot: Mapping[str, str] | None = None) -> dict[str, dict[str, dict[str, Any]]]:
    """Return {group: {case: exit codes, and in which runs of each side all hosts ended as the job did}}."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for case, (group, title) in {run["case"]: (run["group"], run["title"]) for run in runs}.items():
        names = (*SIDES, DRIVERS) if has_drivers(runs) else SIDES
        sides = {side: where(runs, case=case, side=side) for side in names}
        why = (cannot or {}).get(case, "")
        found.setdefault(group, {})[case] = {
            "title": title,
            "codes": ["" if side == DRIVERS and why else codes(each, group) for side, each in sides.items()],
            "right": {side: [run["right"] for run in each if run.get("right") is not None]
                      for side, each in sides.items()},
            "wrong": any(run.get("right") is False for each in sides.values() for run in each),
        }  # fmt: skip
    return found


def endings(of_section: list[dict[str, Any]]) -> str:
    """Return in how many runs all hosts ended as their job did: `ours 8 of 8, toolkit 2 of 8`."""
    judged = {side: [each for case in of_section for each in case["right"][side]] for side in of_section[0]["right"]}
    return ", ".join(f"{NAMES.get(side, side)} {sum(each)} of {len(each)}" for side, each in judged.items() if each)


def codes(runs: list[Run], group: str = "") -> str:
    """Return `1, 1`, or all codes that were seen and how often: `1, 0 (4 times); 1, 1 (1 time)`; bold: a wrong 0."""
    shown_as = {None: "none", **({0: "**0**"} if group == "failure" else {})}
    seen: Counter[str] = Counter()
    for run in runs:
        seen[", ".join(shown_as.get(code, str(code)) for code in run.get("exit_codes", []))] += 1
    if len(seen) < 2:
        return "".join(seen) or "not measured"
    return "; ".join(f"{shown} ({words.plural(count, 'time')})" for shown, count in seen.items())
