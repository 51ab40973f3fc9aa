"""Run a case once on one side, from the first container to its figures."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.profile_start.kernel import Kernel
from benchmarks.side_by_side import index
from benchmarks.side_by_side.cases import INSTALL, LOG, REAL, START, UNREACHED, Case
from benchmarks.side_by_side.job import Job
from benchmarks.side_by_side.measures import ended_well, measures
from benchmarks.side_by_side.usage import is_script

SETTLE_S = 1.0  # between the last process's first mark and the case's event


class Scripts(Kernel):
    """Watch all processes of this machine that run a program of this name, while `with` lasts. Takes root.

    The kernel reports their ends, which are later than their last lines by the exit time of TensorFlow. This is for
    jobs whose ranks all end by themselves.
    """

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program.encode()

    def ended_at(self) -> float | None:
        """Return the `time.time()` at which all of them were gone; None if unknown."""
        ends = [
            seen.ended
            for seen in self.seen
            if any(is_script([word.encode() for word in each.argv], self._program) for each in seen.executions)
        ]
        gone = [end for end in ends if end is not None]
        if self.is_deaf or not gone or None in ends:
            return None
        return max(gone) / 1e9 + time.time() - time.monotonic()


def run_packages(case: Case, side: str, images: Mapping[str, str]) -> dict[str, Any]:
    """Run a job without packages, then with packages; `install_...` are the additional times of the second."""
    bare = run(dataclasses.replace(case, packages=0, cached=False), side, images)
    if case.cached and not list(Path(index.cache(case.name, side).name).iterdir()):
        run(case, side, images)
    result = run(case, side, images)
    found, without = result["measures"], bare["measures"]
    for measure, of in (("install_s", "start_s"), ("install_cpu_s", "launcher_cpu_s")):
        if of in found and of in without:
            found[measure] = round(found[of] - without[of], 4)
    return result


def run(
    case: Case,
    side: str,
    images: Mapping[str, str],
    at_work: threading.Event | None = None,
) -> dict[str, Any]:
    """Run the case. Set `at_work` after the case's event, or the end of its script."""
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(Job(case, side, images))
        watched = case.group == REAL and case.mode == "mpi"
        scripts = stack.enter_context(Scripts(case.program)) if watched else None
        limit_s, after_s = case.limit_s, case.after_s or case.limit_s
        cut_at = time.monotonic() + limit_s
        job.start()
        event_at, printing_cpu_s = None, None
        if case.group == LOG and job.see("first", case.limit_s):
            before = job.usage.cpu_s()
            job.tell("go")
            if job.see("last", case.limit_s):
                job.drain(case.limit_s)
                printing_cpu_s = job.usage.cpu_s() - before
        if case.event == INSTALL:
            if job.see("fails", case.limit_s, processes=1):
                cut_at = time.monotonic() + after_s
        elif case.event and case.event not in UNREACHED and job.see("trains", case.limit_s):
            time.sleep(SETTLE_S)
            event_at = befall(job, case)
            limit_s, cut_at = after_s, time.monotonic() + after_s
        elif case.after_s and case.group == START and job.see("last", case.limit_s):
            limit_s, cut_at = after_s, time.monotonic() + after_s
        if at_work:
            at_work.set()
        gone = job.wait(cut_at - time.monotonic())
        marks, endings = job.marks(), job.endings()
        killed = job.hosts[case.host] if case.event == "kill" else None
        left_at = scripts.ended_at() if scripts else None
        figures = measures(
            case, marks, endings, event_at, killed, job.usage.cpu_s(), printing_cpu_s, job.usage.peak_bytes, left_at
        )
        return {
            "case": case.name,
            "title": case.title,
            "group": case.group,
            "hosts": case.hosts,
            "side": side,
            "measures": {name: round(value, 4) for name, value in figures.items()},
            "cut_at_s": None if gone else limit_s,
            "exit_codes": [ending.exit_code for ending in endings],
            "right": ended_well(case, marks, endings, killed),
        }


def befall(job: Job, case: Case) -> float | None:
    """Cause the case's event; return its time, or None if the script marks it."""
    host = job.hosts[case.host]
    match case.event:
        case "raise":
            job.tell("raise", host)
            return None
        case "hang":
            return None
        case "kill":
            return job.kill(host)
        case "cut":
            return job.cut(host)
        case "stop":
            return job.terminate()
    raise ValueError(case.event)
