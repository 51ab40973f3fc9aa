"""Check the stop, kill and resume runs: whether the job stops in time, and continues from its checkpoints. Pure."""

import math
import re
from collections.abc import Iterator

from entrypoint.base.wording import duration
from entrypoint.check.doctor.rulebook import remedy
from entrypoint.check.finding import Finding, error, fine, note, warning
from entrypoint.check.rehearse.rehearsal import Rehearsal
from entrypoint.check.rehearse.results import RunName, SeenRun
from entrypoint.launcher.outcome.outcome import Kind

SAGEMAKER_GRACE_SECONDS = 120.0  # seconds from SIGTERM to SIGKILL of StopTrainingJob, and of a spot instance's end
_MORE_OFTEN = "write checkpoints more often, to /opt/ml/checkpoints"


def of_stop(case: Rehearsal) -> Iterator[Finding]:
    """Check whether SIGTERM ends the job in time, and list the files that the job leaves."""
    run = case.stopped
    if run is None:
        return
    acted = run.ended.acted
    if acted is None:
        yield _ended_before("stop", run, "it could be stopped")
        return
    if run.name is RunName.STOP and run.has_failed:
        yield error("stop", f"it failed when it was stopped: {run.cause}", f"see {run.log}")
        return
    took = run.ended.ended - acted
    killed = [f"{host.name} {each.name}" for host in run.hosts for each in host.processes if "SIGKILL" in each.how]
    if killed:
        # A warning: often nothing needs saving.
        yield (error if case.request.spot else warning)(
            "stop",
            f"SIGTERM does not end it: {', '.join(killed[:4])} had to be killed after "
            f"{duration(case.request.stop_grace)}",
            _catch(case),
        )
    elif took > SAGEMAKER_GRACE_SECONDS:
        yield error(
            "stop",
            f"it took {duration(took)} to end; SageMaker kills after {SAGEMAKER_GRACE_SECONDS:.0f} s",
            _catch(case),
        )
    else:
        yield fine("stop", f"SIGTERM ended it within {duration(took)}")
    yield from _of_what_it_left(case, run, acted)


def _ended_before(check: str, run: SeenRun, what: str) -> Finding:
    """Return a finding on a run that ended before its fault was injected."""
    if run.has_failed:
        found = f"this time it failed by itself, before anything was done to it: {run.cause}"
        return warning(check, found, f"see {run.log}")
    return note(check, f"it ended before {what}", "a larger sample: --records")


def _of_what_it_left(case: Rehearsal, run: SeenRun, acted: float) -> Iterator[Finding]:
    responded = any("SIGTERM" not in process.how for process in run.processes)
    last = acted if responded else math.inf  # a process that the signal ended at once has saved nothing in response
    since = [at for at, _ in run.ended.kept if at >= last]
    before = [at for at, _ in run.ended.kept if at < last]
    models = sum(host.saved for host in run.hosts)
    if since:
        yield fine("stop", "it saved a checkpoint after the SIGTERM")
    elif models:
        yield fine("stop", f"it left a model of {models} files")
    elif before:
        yield warning(
            "stop",
            "it saves nothing when it is stopped: the last checkpoint was "
            f"{duration(max(0.0, acted - max(before)))} old",
            _catch(case),
        )
    else:
        lacks = "; ".join([_catch(case), *_lacks(case)])
        yield warning("stop", "it saves neither a checkpoint nor a model when it is stopped", lacks)


def _catch(case: Rehearsal) -> str:
    if case.request.handles_sigterm:
        return "the script names SIGTERM: what it does then must save a checkpoint and exit, in each process, in time"
    return remedy("no-sigterm")


def _lacks(case: Rehearsal) -> list[str]:
    """Return how to keep checkpoints, without what the request and the script have already."""
    config = [] if case.request.keeps_checkpoints else [remedy("no-checkpoint-config")]
    return config if case.request.writes_checkpoints else [*config, remedy("no-checkpoint")]


def of_keeping(case: Rehearsal) -> Iterator[Finding]:
    """Check whether checkpoints outlast the job's hosts."""
    run = case.plain
    if run.has_failed:
        return
    severe = error if case.request.spot else warning
    acted = run.ended.acted or run.ended.ended + 1
    before = [at for at, _ in run.ended.kept if at < acted]
    if not before and not case.request.keeps_checkpoints:
        yield severe(
            "checkpoints", "the request has no CheckpointConfig: a job that loses a host starts from the beginning, "
            "and is paid for twice", "; ".join(_lacks(case)),
        )  # fmt: skip
    elif before:
        first = max(0.0, min(before) - run.began)
        yield fine("checkpoints", f"the first is written {duration(first)} after the script's start")
    elif run.ended.acted is None:
        lacks = "; ".join(_lacks(case)) or _MORE_OFTEN
        yield error("checkpoints", "it ran to its end without writing a checkpoint", lacks)
    else:
        yield severe(
            "checkpoints",
            f"none was written within {duration(run.trained)}: a job that loses a host loses at least that",
            "; ".join([f"{_MORE_OFTEN}, or a longer --seconds to see the first", *_lacks(case)]),
        )  # fmt: skip


def of_kill(case: Rehearsal) -> Iterator[Finding]:
    """Check whether the other hosts end when one is lost."""
    run = case.run(RunName.KILL)
    if run is None:
        return
    if run.ended.acted is None:
        yield _ended_before("kill", run, "a host could be killed")
    elif run.kind is Kind.SUCCEEDED:
        yield note("kill", "it ran to its end without the killed host")
    else:
        took = run.ended.ended - run.ended.acted
        others = "the others" if len(run.hosts) > 1 else "the job"
        yield fine("kill", f"a host was killed, and {others} had ended {duration(took)} later")


def of_resume(case: Rehearsal) -> Iterator[Finding]:
    """Check whether the next run continues from the killed run's checkpoints, or starts again."""
    killed, run = case.run(RunName.KILL), case.run(RunName.RESUME)
    if killed is None or run is None or killed.ended.acted is None:
        return
    if run.has_failed:
        yield error("resume", f"with the checkpoints of the killed run it fails: {run.cause}", f"see {run.log}")
        return
    anew = "after a lost host the next job starts from the beginning"
    count = killed.counts
    first, reached = (killed.first(count), killed.last(count)) if count else (None, None)
    if first is not None and reached is not None:
        again = run.first(count)
        if again is None:
            yield (fine if run.kind is Kind.SUCCEEDED else note)(
                "resume", f"the next run printed no {count}; the killed one had reached {count} {reached:g}"
            )
        elif again > first:
            yield fine("resume", f"it continued from {count} {again:g}; the killed run had reached {reached:g}")
        else:
            yield error(
                "resume", f"{anew}: its first {count} is {again:g}, though the killed run had reached {reached:g} and "
                "kept checkpoints", _restore(case),
            )  # fmt: skip
        return
    yield from _by_names(case, killed, run, anew)


def _restore(case: Rehearsal) -> str:
    if case.request.reads_checkpoints:
        return "restore the newest file of /opt/ml/checkpoints, and train on from its step (fit: initial_epoch=)"
    return remedy("no-resume")


def _by_names(case: Rehearsal, killed: SeenRun, run: SeenRun, anew: str) -> Iterator[Finding]:
    """Judge by the numbers in the names of checkpoints, if the script reports no steps."""
    before, after = (_numbers(each) for each in (killed, run))
    if before and after and min(after) > min(before):
        yield fine("resume", f"it continued: its first checkpoint is number {min(after)}, after {max(before)}")
    elif before and after and min(before) < max(before):
        yield error(
            "resume", f"{anew}: its first checkpoint is number {min(after)}, though there was {max(before)}",
            _restore(case),
        )  # fmt: skip
    else:
        why, instead = case.no_rate(run)
        yield note("resume", f"it is not known whether it continues from the checkpoint: {why}", instead)


def _numbers(run: SeenRun) -> list[int]:
    found = []
    for _, name in run.ended.kept:
        numbers = re.findall(r"\d+", name.rpartition("/")[2].partition(".data-")[0])
        found += [int(numbers[-1])] if numbers else []
    return found


CHECKS = (of_stop, of_keeping, of_kill, of_resume)
