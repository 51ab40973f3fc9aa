"""Order the runs. Sides take turns: ours, the toolkit, the SDK's drivers, ours, and so on.

Nothing runs beside a run, with one exception: after a hang, a stop, or the failure of several hosts the peers wait,
asleep, for up to minutes. These runs, and only these, run side by side at the end of a round, begun one after another.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from benchmarks import docker
from benchmarks.side_by_side.cases import FAILURE, OURS, START, UNWATCHED, Case

TOGETHER = 16
CUTS = 2

Run = dict[str, Any]
Signal = threading.Event | None
Do = Callable[[Case, str, Signal], Run]


def waits(case: Case) -> bool:
    return case.event in ("stop", "hang") or (case.group == FAILURE and case.hosts > 1)


def waits_in_its_tail(case: Case) -> bool:
    """Return whether peers wait long at the end of the case, as the toolkit does even after a success of mpirun."""
    return waits(case) or (case.group == START and case.mode == "mpi" and case.hosts > 1)


def one_round(due: Iterable[tuple[Case, str]], do: Do, waits: Callable[[Case], bool] = waits) -> Iterator[Run]:
    """Run the cases and sides in `due`, and yield their results. The runs that `together` makes come last."""
    due = list(due)
    for case, side in due:
        if not waits(case):
            yield do(case, side, None)
    for case, side in due:
        if waits(case) and side in (OURS, UNWATCHED):
            yield do(case, side, None)
    longest_first = sorted(
        [(case, side) for case, side in due if waits(case) and side not in (OURS, UNWATCHED)],
        key=lambda each: (each[0].group != START, -each[0].limit_s),  # nothing runs beside a start
    )
    yield from together(longest_first, do)


def together(due: list[tuple[Case, str]], do: Do) -> Iterator[Run]:
    """Run jobs side by side. Each starts after the event or the end of the one before."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        try:
            running = []
            for case, side in due:
                at_work = threading.Event()
                running.append(future := pool.submit(do, case, side, at_work))
                while not at_work.wait(0.1) and not future.done():
                    pass
            for future in as_completed(running):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            docker.remove_all()  # so that what the threads wait for is over
            raise
