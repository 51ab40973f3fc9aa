"""Test a recorded hang of a job on an H100 (2026-11-26, commit c5e62bb): the watch must find it.

Two ranks of Horovod with ENTRYPOINT_HANG_AFTER=20. Rank 1 sleeps in Python and never enters a broadcast, in which rank
0 waits. One CPU is busy all the time: the thread of Horovod that reaches Open MPI first spins in it, at first rank 1's.
The record of that time knows nothing of threads; and when it is played, nobody may look at the stacks.
"""

from pathlib import Path

from entrypoint.observe.monitor.hang import Hangs, Who, missing
from entrypoint.observe.monitor.progress import Progress
from entrypoint.record import lines
from entrypoint.record.read import lines_of

AFTER, REVIEW = 20.0, 5.0
RECORD = Path(__file__).parents[1] / "report" / "records" / "hang-algo-1.jsonl.gz"


def play() -> tuple[float, float, Hangs, dict[Who, object]]:
    """Return the time of the last progress, the time of the finding, what is known then, and each rank's position."""
    progress, hangs, running, due = Progress(AFTER), Hangs(AFTER, may_spin=True), dict[str, int](), 0.0
    last = 0.0
    for line in lines_of(RECORD.read_bytes()):
        at = line.at
        if isinstance(line, lines.Process) and line.process.startswith("rank"):
            running[line.process] = line.pid
            hangs.note("algo-1", line)
        elif isinstance(line, lines.Stalled):
            hangs.note("algo-1", line)
        elif isinstance(line, lines.Sample):
            progress.look(at, running, line.processes, line.host.get("gpus", ()))
            if any(line.processes.get(name, {}).get("output") for name in running):
                last = at
            if at >= due:
                due = at + REVIEW
                for name in running if hangs.asked else ():
                    hangs.note("algo-1", lines.Stacks(process=name))
                hangs.note("algo-1", lines.Still(figures=progress.still(at, AFTER / 2)))
                if stands := hangs.look(at):
                    return last, at, hangs, stands
    raise AssertionError("nothing is told")


def test_it_is_told_in_time_with_the_rank_that_does_not_come():
    last, told, hangs, stands = play()
    assert missing(stands, hangs.stall) == [("algo-1", "rank 1")]
    assert told - last <= AFTER + 30
