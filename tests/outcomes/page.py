"""docs/outcomes.md: the table for people. Written by `pytest test_outcomes_page.py --refresh`."""

import re
from collections.abc import Iterable
from itertools import groupby

from outcomes.case import BOUNDS, COORDINATOR, EVERYWHERE, FOLLOWER, Case, Way
from outcomes.table import CASES

_INTRO = """\
# How jobs end

What happens to a job when something goes wrong in it, for each way of distributing and each event: the exit code of
every host, the first line of `/opt/ml/output/failure`, which becomes the job's `FailureReason`, and how soon.
This page is written from the table in `tests/outcomes`, and the tests run every row of it, {cases} runs in all.

These hold for all rows:

- Every host exits by itself, with the same exit code and the same failure text. If a host differs, because it was
  killed, frozen or cut off, the row says so.
- A failed job never exits with 0, and a job that succeeded never with anything else.
- No process, private key, socket, container or network is left.
- Exit codes are the process's own, or 128 + the signal that killed it (137 is SIGKILL, 139 a segmentation fault);
  65 is code that cannot be installed, 68 a host that did not appear, 69 a lost host, 71 a process that cannot be
  killed, 143 a job that was stopped.
- The coordinator is the first host of the list (algo-1), a follower any other.

In the tables, HOST and PROCESS are where the event happens, and `...` is some text. A dash means that there is
no failure file. *When* is the start (before the script of every host runs), the run (all of them run), or the end (the
others' scripts have succeeded).

## How soon

Until all hosts know the outcome (told), and until the last of them is gone. These bounds are for an idle machine; the
tests print what they measured.

| | told | gone | counted |
|---|---|---|---|
{bounds}

## To see for yourself

`entrypoint local` runs a job on simulated hosts and injects faults. The *try* column goes with
`tests/programs/acts/acts.py`, a script that acts by its arguments. Words with `=` are hyperparameters; add `on=` (the
host that acts) and `when=` (start, run or end), without which every host acts in the run. The other words are
for `--fault`. They need a moment: `when 'all are here'` for the run, `when 'acts at'` for the end, `at SECONDS` or
`when 'NAME started'` for the start. Some faults take `--engine netns` (root, no Docker) or `--engine docker`.

    entrypoint local tests/programs/acts/acts.py --hosts 3 --mode mwms --hyperparameters do=raises on=algo-2 when=run
    entrypoint local tests/programs/acts/acts.py --hosts 3 --mode mpi --hyperparameters do=waits \\
        --fault "kill algo-2 when 'all are here'"
    entrypoint local tests/programs/acts/acts.py --hosts 3 --mode mwms --hyperparameters do=waits \\
        --engine netns --fault "cut algo-3 when 'all are here'"
"""

_TITLES = {
    Way.SINGLE: ("One host", "`--hosts 1`. PROCESS is `script`."),
    Way.SCRIPTS: ("The same script on several hosts", "`--mode single`. PROCESS is `script`."),
    Way.PS: (
        "Parameter servers, scripts as workers",
        "`--mode ps`. PROCESS is `chief/0` on the coordinator, `worker/N` on a follower.",
    ),
    Way.PS_SERVER: (
        "Parameter servers, servers as workers",
        "`--mode ps --env ENTRYPOINT_PS_WORKERS=server`. PROCESS is `chief/0`; followers run no script.",
    ),
    Way.MWMS: ("MultiWorkerMirrored", "`--mode mwms`. PROCESS is `worker/N`."),
    Way.MPI: ("MPI and Horovod", "`--mode mpi`. PROCESS is `rank N`."),
}
_WHERE = {COORDINATOR: 0, FOLLOWER: 1, EVERYWHERE: 2}
_WHEN = {"start": 0, "run": 1, "end": 2}


def page() -> str:
    bounds = "\n".join(f"| {b.name} | {b.told:g} s | {b.gone:g} s | {b.meaning} |" for b in BOUNDS)
    parts = [_INTRO.format(cases=len(CASES), bounds=bounds)]
    for way, (title, how) in _TITLES.items():
        parts.append(f"## {title}\n\n{how}\n\n{_table([case for case in CASES if case.way is way])}")
    return "\n".join(parts)


def _table(cases: list[Case]) -> str:
    """Cases that differ in where and when only are one row."""
    order = list(dict.fromkeys(case.event for case in cases))
    cases = sorted(cases, key=lambda case: (order.index(case.event), _row(case)))
    rows = ["| event | where, when | exit code | failure text | how soon | try |", "|---|---|---|---|---|---|"]
    for row, same in groupby(cases, key=_row):
        event, *rest = row
        rows.append("| " + " | ".join([event, _places(same, cases[0].way), *rest]) + " |")
    return "\n".join(rows) + "\n"


def _row(case: Case) -> tuple[str, ...]:
    """All cells but where and when."""
    return (_cell(case.event), str(case.code), _texts(case), case.bound.name, _try(case))


def _places(cases: Iterable[Case], way: Way) -> str:
    """`coordinator: run; follower: start, run`"""
    places: dict[str, list[str]] = {}
    for case in cases:
        places.setdefault(case.where, []).append(case.when)
    whens = {where: ", ".join(sorted(places[where], key=_WHEN.__getitem__)) for where in sorted(places, key=_WHERE.get)}
    if way is Way.SINGLE:
        return ", ".join(whens.values())
    return "; ".join(f"{where}: {when}" for where, when in whens.items())


def _texts(case: Case) -> str:
    text = f"`{_general(case.text)}`" if case.text else "-"
    return _cell("; HOST: ".join([text, *(own.words for own in case.hit.values())]))


def _try(case: Case) -> str:
    if case.few:  # a limit of the host, which no option of `entrypoint local` sets
        return ""
    does = [f"{k}={v}" for k, v in case.does.items() if k not in ("on", "when")]
    faults = [_general(_MOMENT.sub("", fault)) for fault in case.faults]
    if case.where != EVERYWHERE:
        faults = [fault.replace(case.host, "HOST") for fault in faults]
    return _cell("<br>".join(f"`{words}`" for words in [" ".join(does), *faults] if words))


_MOMENT = re.compile(r" (when '.*'|at [0-9.]+)")
_NUMBER = re.compile(r"\b(ps|worker)/\d+")


def _general(text: str) -> str:
    """Without the names of one case."""
    return _NUMBER.sub(r"\1/N", text.format(who="HOST PROCESS", host="HOST"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
