"""Write the page docs/outcomes.md from the table (test_pages.py --refresh)."""

import re
from collections.abc import Iterable

from outcomes.case import BOUNDS, COORDINATOR, FOLLOWER, Case, Way
from outcomes.table import CASES, PARTS

_INTRO = """\
# How jobs end

Look up an event to see how the job ends: the [exit code](exit-codes.md) of all hosts, the first line of
`/opt/ml/output/failure`, which becomes the job's `FailureReason`, and how soon the hosts are gone. The tests run
every event in each of its modes, on several hosts and at several moments: {cases} runs.

In all rows:

- Every host exits by itself, with the same exit code and failure text; of a HOST that was killed, paused or cut off,
  the row says how it ends.
- A failed job never exits with 0, and a job that succeeded always does.
- No process, private key, socket, container or network is left.

HOST and PROCESS are where the event happens, OTHER is another host; C: the coordinator (algo-1), F: a follower.
`...` is some text. Without a failure text there is no failure file. *Soon* names a [bound](#how-soon). An event has
its modes in brackets, unless it was run in all.

| mode | what runs | PROCESS |
|---|---|---|
{ways}
"""

_OUTRO = """\
## How soon

Seconds until all hosts know the outcome, and until the last of them is gone, on an idle machine.

| bound | all know | all gone | counted |
|---|---|---|---|
{bounds}

## Try it

List the cases of a row (`tests/outcomes` makes this page), run one of them, in seconds, or do it by hand, with a
[fault](local.md#inject-faults) of your own:

    python -m pytest tests/local/test_outcome_table.py --collect-only -q -k mwms-script_raises
    python -m pytest tests/local/test_outcome_table.py -k mwms-script_raises-follower-end
    entrypoint local train.py --hosts 3 --mode mwms --fault 'kill algo-2 at 10'
"""

_WAYS = {  # (in the tables, what runs, PROCESS)
    Way.SINGLE: ("1 host", "one script", "`script`"),
    Way.SCRIPTS: ("single", "the same script on several hosts", "`script`"),
    Way.PS: ("ps", "parameter servers, scripts as workers", "`chief/0` on C, `worker/N` on F"),
    Way.PS_SERVER: ("ps-server", "`ps` with `ENTRYPOINT_PS_WORKERS=server`: a script on C alone", "`chief/0`"),
    Way.MWMS: ("mwms", "MultiWorkerMirrored", "`worker/N`"),
    Way.MPI: ("mpi", "MPI and Horovod", "`rank N`"),
    Way.JAX: ("jax", "[JAX](jax.md)", "`worker/N`"),
}
_PLACES = {COORDINATOR: "C", FOLLOWER: "F"}
_HEAD = "| event | exit code | failure text | soon |\n|---|---|---|---|"


def page() -> str:
    ways = "\n".join(f"| {' | '.join(_WAYS[way])} |" for way in Way)
    bounds = "\n".join(f"| {b.name} | {b.told:g} | {b.gone:g} | {b.meaning} |" for b in BOUNDS)
    tables = [f"## {title}\n\n{_table(cases)}" for title, cases in PARTS.items()]
    return "\n".join([_INTRO.format(cases=len(CASES), ways=ways), *tables, _OUTRO.format(bounds=bounds)])


def _table(cases: Iterable[Case]) -> str:
    """Return a table of cases; those that differ only in mode, place, moment or event are one row."""
    rows: dict[str, dict[tuple[str, ...], list[Case]]] = {}
    for case in cases:
        rows.setdefault(case.event, {}).setdefault(_row(case), []).append(case)
    events: dict[tuple[str, ...], list[str]] = {}
    for event, kinds in rows.items():
        for cells, same in kinds.items():
            modes = _modes(same, len(kinds) > 1)
            events.setdefault(cells, []).append(_cell(event) + (f" ({modes})" if modes else ""))
    lines = [f"| {' | '.join(['<br>'.join(alike), *cells])} |" for cells, alike in events.items()]
    return "\n".join([_HEAD, *lines]) + "\n"


def _row(case: Case) -> tuple[str, ...]:
    """Return all cells except the event and its place."""
    return (str(case.code), _texts(case), case.bound.name)


def _modes(cases: Iterable[Case], with_places: bool) -> str:
    """Return the modes of cases: `1 host, ps, mwms`; "" for all; `mwms: C, F` if other places have another row."""
    ways = {case.way for case in cases}
    modes = "" if ways == set(Way) else ", ".join(_WAYS[way][0] for way in Way if way in ways)
    places = [name for where, name in _PLACES.items() if any(case.where == where for case in cases)]
    return f"{modes}: {', '.join(places)}" if with_places and places else modes


def _texts(case: Case) -> str:
    text = _general(case.text, case).replace(_LOSS, "...")
    texts = [f"`{text}`"] if case.text else []
    own = [f"{'HOST' if host == case.host else host}: {own.words}" for host, own in case.hit.items()]
    return _cell("; ".join([*texts, *own]))


_LOSS = "the loss is not a number"  # what a script of the tests says
_NUMBER = re.compile(r"\b(ps|worker)/\d+")
_SCRIPT = re.compile(r"^(algo-\d+) (?:script|chief/0|worker/\d+|rank \d+|\.\.\.)(?= \()")
_HOST = re.compile(r"^algo-\d+")


def _general(text: str, case: Case) -> str:
    """Return a text with general words in place of a case's names."""
    text = _HOST.sub(lambda found: "HOST" if found[0] == case.host else "OTHER", _SCRIPT.sub(r"\1 PROCESS", text))
    return _NUMBER.sub(r"\1/N", text.format(who="HOST PROCESS", host="HOST"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
