"""Numbers and names of measures as the pages show them."""

import math
from collections.abc import Sequence

from benchmarks.machine import is_wide
from benchmarks.report.figures import Measured, Ratio

MEASURES = {  # title, unit
    "start_s": ("Start", "s"),
    "tail_s": ("Tail", "s"),
    "install_s": ("Install", "s"),
    "install_cpu_s": ("CPU time of the install", "s"),
    "gone_s": ("Until all hosts are gone", "s"),
    "told_s": ("Until the script gets SIGTERM", "s"),
    "hang_told_s": ("Until the log reports the hang", "s"),
    "again_s": ("Crash to the next attempt's first step", "s"),
    "own_s": ("The script's own part", "s"),
    "resumed_s": ("The launcher's part", "s"),
    "left_s": ("Until the old processes are gone", "s"),
    "saved_s": ("Until a model is saved", "s"),
    "held_s": ("Script's own time", "s"),
    "lost_share": ("Lost output", "%"),
    "wall_s": ("Whole job", "s"),
    "launcher_tail_s": ("Tail after the scripts' processes are gone", "s"),
    "launcher_memory_bytes": ("Most memory", "MB"),
    "launcher_cpu_s": ("CPU time", "s"),
    "lines_per_s": ("Lines per second", ""),
    "cpu_us_per_line": ("CPU time per line", "µs"),
    "split_share": ("Split lines", "%"),
    "mislabelled_share": ("Lines with a wrong label", "%"),
    "unlabelled_share": ("Lines without a label", "%"),
    "plan_s": ("Plan, MPI", "s"),
    "plan_digest_s": ("Digest of the plan, MPI", "s"),
    "plan_mwms_s": ("Plan, MultiWorkerMirrored", "s"),
    "plan_mwms_digest_s": ("Digest of the plan, MultiWorkerMirrored", "s"),
    "plan_ps_s": ("Plan, parameter servers", "s"),
    "plan_ps_digest_s": ("Digest of the plan, parameter servers", "s"),
    "read_config_s": ("Read config", "s"),
    "rendezvous_s": ("Rendezvous", "s"),
    "rendezvous_cpu_s": ("CPU time of all hosts, to the rendezvous", "s"),
    "rendezvous_coordinator_cpu_s": ("CPU time of the coordinator, to the rendezvous", "s"),
    "requests_per_s": ("Heartbeats per second", ""),
    "coordinator_cpu_share": ("Coordinator's CPU", "%"),
    "coordinator_memory_bytes": ("Coordinator's memory", "MB"),
    "memory_per_host_bytes": ("Memory per host", "MB"),
    "verdict_s": ("Failure to the verdict", "s"),
    "told_all_s": ("Failure until all hosts know", "s"),
    "end_cpu_s": ("CPU time of all hosts, from the failure to the end", "s"),
    "end_coordinator_cpu_s": ("CPU time of the coordinator, from the failure to the end", "s"),
    "all_ended_s": ("Failure until all hosts have ended", "s"),
}
SCALE = {"MB": 1e-6, "%": 100}


def title(measure: str) -> str:
    return MEASURES.get(measure, (measure, ""))[0]


def unit(measure: str) -> str:
    return MEASURES.get(measure, (measure, ""))[1]


def heading(measure: str) -> str:
    return ", ".join(filter(None, (title(measure), unit(measure))))


def in_unit(value: float, measure: str) -> float:
    return value * SCALE.get(unit(measure), 1)


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
    return number(in_unit(value, measure))


def quotient(value: float) -> str:
    """Three digits behind the point, as aims are that close: 0.048, 0.247, 1.53; 0.0012."""
    return f"{value:.3f}" if 0.01 <= value < 1 else number(value)


def spread(figure: Measured | None, measure: str, runs: int) -> str:
    """The median, and (least-most) if they are wide apart; `*` after one round where `runs` are usual; `>60` if cut."""
    if figure is None:
        return "not measured"
    if figure.median is not None:
        middle = shown(figure.median, measure)
    else:
        middle = f">{figure.limit:g}" if figure.bound else "no end"
    ends = [shown(edge(figure.values), measure) for edge in (min, max)] if figure.values else []
    said = ["-".join(dict.fromkeys(ends))] if ends and (figure.cut or is_wide(figure.values)) else []
    said += [f"{figure.cut} of {figure.runs} cut"] if ends and figure.cut else []
    said += [f"n={figure.runs}"] if figure.runs not in (1, runs) else []
    return middle + r"\*" * (figure.runs == 1 < runs) + (f" ({', '.join(said)})" if said else "")


def short(figure: Measured | None, measure: str) -> str:
    """The median alone."""
    if figure is None:
        return "not measured"
    return f"not ended after {figure.limit:g}" if figure.median is None else shown(figure.median, measure)


def milliseconds(figure: Measured | None) -> str:
    """The median: whole ones, or tenths below ten."""
    if figure is None or figure.median is None:
        return ""
    value = 1000 * figure.median
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:.1f}"


def ratio(found: Ratio | None, rounds: Sequence[float] = ()) -> str:
    if found is None:
        return ""
    value = f"{found.bound}{quotient(found.value)}"
    return f"{value} ({quotient(rounds[0])}-{quotient(rounds[1])})" if rounds and not found.bound else value


def times(found: Ratio | None, measure: str) -> str:
    """A ratio of ours to another's for people: `2,400 times sooner`, `1.7 times as long`."""
    if found is None:
        return ""
    if 0.95 < found.value < 1.05 and not found.bound:
        return "as good"
    less, more = ("sooner", "as long") if unit(measure) == "s" else ("less", "as much")
    if not found.value:
        return "none"
    factor = float(f"{max(found.value, 1 / found.value):.2g}")  # two digits that count: 1.4, 18, 2,400
    shown = f"{factor:.1f}" if factor < 10 else f"{factor:,.0f}"
    return f"{'more than ' * bool(found.bound)}{shown} times {more if found.value > 1 else less}"


def verdict(met: bool | None) -> str:
    return {True: "met", False: "**missed**", None: "not shown"}[met]


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"
