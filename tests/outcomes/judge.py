"""Compare runs with the table, one line for each difference, and sum up the figures of all cases by bound."""

import re
from collections.abc import Iterable
from statistics import median

from entrypoint.observe.replay.timeline import Played, play, read
from outcomes.case import BOUNDS, Case
from outcomes.run import LONG, Result

# A machine that does something else besides is no failure: the limits say that it was not a hang, the figures say how
# fast it was.
MOST = 60.0  # seconds; without a limit it would be 100 s (a stop), 1,200 s (a start) or for ever


def complaints(result: Result) -> list[str]:
    """Return the differences from the row; empty if there are none."""
    if not result.ended:
        return [f"not ended within {LONG:g} s"]
    found = [*_exits(result), *_texts(result), *_late(result)]
    found += result.terminal.not_done()
    found += [f"left behind: {what}" for what in result.left]
    found += _replayed(result)
    if result.case.says and not _like(result.case.fill_in(result.case.says), result.terminal.text, anywhere=True):
        found.append(f"the log does not say: {result.case.fill_in(result.case.says)}")
    return found


def _exits(result: Result) -> Iterable[str]:
    case, exits = result.case, result.terminal.exits()
    for host in case.names:
        wanted = case.hit[host].exits if host in case.hit else (str(case.code),)
        if exits.get(host) not in wanted:
            yield f"{host} ended with {exits.get(host)}; wanted {' or '.join(wanted)}"
    if (result.code == 0) != all(exits.get(host) == "0" for host in case.names):
        yield f"`entrypoint local` ended with {result.code}, the hosts with {exits}"


def _texts(result: Result) -> Iterable[str]:
    case = result.case
    for host in case.names:
        text, wanted = result.failures[host], wanted_text(case, host)
        if wanted is None:
            continue
        if not wanted and text is not None:
            yield f"{host} has the failure text {text!r}; wanted none"
        if wanted and not (text and _like(wanted, text.split("\n")[0])):
            yield f"{host} has the failure text {text!r}; wanted one that begins with {wanted!r}"
    shared = {result.failures[host] for host in case.names if host not in case.hit}
    if len(shared) > 1:
        yield f"the hosts' failure texts differ: {shared}"


def wanted_text(case: Case, host: str) -> str | None:
    """Return the required first line of a host's failure text; "" means no failure text, None any."""
    text = case.hit[host].text if host in case.hit else case.text
    return None if text is None else case.fill_in(text)


def _like(pattern: str, text: str, anywhere: bool = False) -> bool:
    expression = ".*".join(map(re.escape, pattern.split("...")))
    return bool(re.search(expression, text) if anywhere else re.fullmatch(expression, text))


def _late(result: Result) -> Iterable[str]:
    bound = result.case.bound
    for what, seconds, limit in (("told", result.told, bound.told), ("gone", result.gone, bound.gone)):
        if seconds is None:
            yield f"nothing says when all hosts were {what}"
        elif seconds > MOST:
            yield f"all hosts were {what} {seconds:.1f} s {bound.meaning}; wanted {limit:g} s"


def figures(results: Iterable[Result]) -> str:
    """Return worst and median times of each bound, and the worst case."""
    ended = [result for result in results if result.ended]
    lines = []
    for bound in BOUNDS:
        of_bound = [result for result in ended if result.case.bound is bound]
        for what, limit in (("told", bound.told), ("gone", bound.gone)):
            lines += _line(f"{bound.name}: all {what}", limit, {r.case.name: getattr(r, what) for r in of_bound})
    lines += _line("stop: scripts hear it", 1.0, {r.case.name: r.heard for r in ended})
    return "\n".join([f"{'seconds':<28}{'cases':>6}{'bound':>8}{'median':>8}{'worst':>8}", *lines])


def _line(label: str, limit: float, seconds: dict[str, float | None]) -> list[str]:
    known = {name: value for name, value in seconds.items() if value is not None}
    if not known:
        return []
    worst = max(known, key=lambda name: known[name])
    middle = median(known.values())
    return [f"{label:<28}{len(known):>6}{limit:>8.1f}{middle:>8.2f}{known[worst]:>8.2f}  {worst}"]


def _replayed(result: Result) -> Iterable[str]:
    """Replay the recorded history of a row's hosts; yield each decision of the policy that differs.

    A host leaves an incomplete history or none if it could not write, was killed, or could not read its job.
    """
    for played in replays(result):
        host, step = played.recorded.about.host, played.differs
        if step and not played.incomplete:
            yield f"{host}, replayed, decides otherwise at its second {step.at:.3f}: {step.actions}; then: {step.then}"
        if not (step or played.incomplete or played.same_outcome):
            yield f"{host}, replayed, ends with {played.outcome}; the record has {played.recorded.outcome}"


def replays(result: Result) -> list[Played]:
    """Replay each host of a row that left a record."""
    records = {
        path.name.removesuffix(".jsonl.gz"): path.read_bytes()
        for folder in result.folder.glob("**/output/data/record")
        for path in folder.glob("*.jsonl.gz")
    }
    return [play(recorded) for record in records.values() if (recorded := read(record))]
