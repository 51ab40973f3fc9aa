"""In which order cases run. Sides take turns: ours, the toolkit, ours, the toolkit.

Nothing runs beside a run, but for one kind: after the failure or the stop of several hosts the toolkit waits, asleep,
for up to minutes. These runs, and only these, run side by side at the end of a round, begun one after another.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from benchmarks import docker
from benchmarks.side_by_side.cases import FAILURE, START, STOP, TOOLKIT, Case

ORDER = (
    "One warm-up of start cases, not in the figures; then rounds. In a round each case runs on our side, then on the "
    "toolkit's, with nothing beside it. But failures of several hosts and stops first run on our side, one after "
    "another, and then on the toolkit's side by side, up to {together} at once, each begun when the failure of the one "
    "before has happened: what the toolkit does then is waiting on timers, asleep. What was cut in {cuts} rounds, as "
    "it did not end, is not run again."
)
TOGETHER = 16
CUTS = 2

Run = dict[str, Any]
Signal = threading.Event | None
Do = Callable[[Case, str, Signal], Run]


def waits(case: Case) -> bool:
    return case.group in (FAILURE, STOP) and (case.hosts > 1 or case.group == STOP)


def waits_in_its_tail(case: Case) -> bool:
    """Also after a success, in the toolkit's half a minute behind mpirun; what starts before that is undisturbed."""
    return waits(case) or (case.group == START and case.mode == "mpi" and case.hosts > 1)


def one_round(due: Iterable[tuple[Case, str]], do: Do, waits: Callable[[Case], bool] = waits) -> Iterator[Run]:
    """`due`: what is to run, and on which side, in order."""
    due = list(due)
    for case, side in due:
        if not waits(case):
            yield do(case, side, None)
    for case, side in due:
        if waits(case) and side != TOOLKIT:
            yield do(case, side, None)
    longest_first = sorted(
        [case for case, side in due if waits(case) and side == TOOLKIT],
        key=lambda case: (case.group != START, -case.limit_s),  # nothing runs beside a start
    )
    yield from together(longest_first, do)


def together(cases: list[Case], do: Do) -> Iterator[Run]:
    """Side by side, each begun when the event of the one before has happened (or it has ended without)."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        try:
            running = []
            for case in cases:
                at_work = threading.Event()
                running.append(future := pool.submit(do, case, "toolkit", at_work))
                while not at_work.wait(0.1) and not future.done():
                    pass
            for future in as_completed(running):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            docker.remove_all()  # so that what the threads wait for is over
            raise
