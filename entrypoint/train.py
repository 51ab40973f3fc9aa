"""Run `train`: read the config, plan, run, report, exit. Only this module ends the process of `train`."""

import contextlib
import gc
import os
import signal
import time
from typing import TYPE_CHECKING

from entrypoint.base.errors import ConfigError
from entrypoint.base.secrets import Secrets
from entrypoint.launcher import epilogue, places, self_failure, surroundings
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.observe.monitor.feed import Feed
from entrypoint.record import lines

if TYPE_CHECKING:  # `train` and `entrypoint` import each module only when they need it
    from entrypoint.launcher.control.pages import Routes
    from entrypoint.launcher.host.process import Process
    from entrypoint.launcher.job.job import Job
    from entrypoint.launcher.plan.plan import Plan
    from entrypoint.launcher.supervisor import Supervisor


def train() -> None:
    """Run as the command `train`, which SageMaker starts on every host. Does not return."""
    began = time.monotonic()
    gc.disable()  # what is imported now stays; _supervisor enables it again
    signals: list[int] = []  # PID 1 ignores signals without handlers, and the imports take a moment
    self_failure.note_signals(signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the image blocks it until here
    code = _train(began, signals)
    surroundings.remove_temporary()
    # Threads of the control channel may still wait for a socket: exit without joining them.
    os._exit(code)


def _train(began: float, signals: list[int]) -> int:
    """Return the exit code of this host. Every error on the way becomes an Outcome."""
    spare = self_failure.Spare()
    try:
        spare.hold()
        return _with_log(began, signals, spare)
    except Exception as error:
        spare.free()
        return self_failure.end_without_log(error, signals)


def _with_log(began: float, signals: list[int], spare: self_failure.Spare) -> int:
    from entrypoint.launcher.host import descendants
    from entrypoint.launcher.host.machine import count_gpus
    from entrypoint.launcher.job.choices import LogPrefix
    from entrypoint.launcher.job.config import read_job, this_host
    from entrypoint.launcher.job.job import Tree
    from entrypoint.launcher.outcome import report

    base = places.base_folder()
    host = this_host(base) or os.environ.get("HOSTNAME", "this host")
    supervisor = feed = None
    log = Log(host, secret=Secrets(os.environ))
    try:
        try:
            job = surroundings.with_run_folder(read_job(base, os.environ, places.DEFAULT_RUN, count_gpus()), os.environ)
            secret = Secrets(os.environ, job.hyperparameters)
            prefix = job.settings.log_prefix
            log = Log(host, prefix=prefix is not LogPrefix.OFF, streams=prefix is LogPrefix.STREAMS, secret=secret)
            job = surroundings.settled(job, os.environ, log.print)
            plan = _plan(job, log)
            feed = Feed(job, plan, began)  # fork before a second thread exists
            log.show = feed.show
            supervisor = _supervisor(began, job, plan, log, spare, feed)
            feed.listen(supervisor.host.inbox.put, log.print, log.write, supervisor.host.inbox.ask)
            outcome = supervisor.run(signals)
        except ConfigError as error:
            log.print(f"error: {error}")
            outcome = self_failure.end_misconfigured(error, host, log, spare, signals)
    except Exception as error:
        spare.free()
        settled = supervisor.facts.outcome if supervisor else None  # the other hosts know this one
        outcome = settled or self_failure.outcome_of_fault(error, host, log.print)
        descendants.end_descendants(within=10.0)
        self_failure.report_to_others(outcome, supervisor, signals, log.print)
    tree = Tree(base=base)
    complaints = [report.write_failure(tree.failure, outcome, log.secret), report.write_success(tree.success, outcome)]
    for complaint in filter(None, complaints):
        log.print(complaint)
    if supervisor is not None and supervisor.outcome is not None:
        epilogue.log_evidence(supervisor, supervisor.outcome, log)
    if feed:
        _end_record(feed, outcome, supervisor, log)
    epilogue.write_out(log, host, supervisor, signals)
    return outcome.exit_code


def _plan(job: "Job", log: Log) -> "Plan":
    from entrypoint.launcher.plan.planner import plan_for

    plan = plan_for(job)
    log.print(plan.title)
    if job.cluster.is_coordinator:  # one host logs them for all
        for note in plan.notes:
            log.print(f"warning: {note}")
    _look_for_programs(job, plan)
    return plan


def _supervisor(
    began: float, job: "Job", plan: "Plan", log: Log, spare: self_failure.Spare, feed: "Feed"
) -> "Supervisor":
    begun = _begin(job, plan, log)
    from entrypoint.launcher.host.host import ThisHost  # here: these take as long as the prepare step
    from entrypoint.launcher.supervisor import Supervisor

    gc.freeze()
    gc.enable()
    return Supervisor(ThisHost(job, plan, os.environ, log, begun, feed.record), spare.free, began, _pages)


def _pages() -> "Routes":
    """Return what the coordinator shows of the job while it runs."""
    from entrypoint.observe.live.serve import ROUTES

    return ROUTES


def _look_for_programs(job: "Job", plan: "Plan") -> None:
    """Raise ConfigError if this host lacks a program that its part of the plan starts."""
    from entrypoint.launcher.host.required_programs import lacking, programs

    if absent := lacking(programs(plan.on(job.cluster.me.name), plan.daemon)):
        raise ConfigError(f"mode {job.mode} needs what {job.cluster.me.name} does not have: {', '.join(absent)}")


def _begin(job: "Job", plan: "Plan", log: Log) -> "dict[str, Process]":
    """Start this host's prepare step, which waits for nothing, before the imports for the supervisor."""
    from entrypoint.launcher.host.fork import fork
    from entrypoint.launcher.job.settings import of_programs
    from entrypoint.launcher.plan.plan import ATTEMPT, PREPARE

    begun = {}
    for spec in plan.on(job.cluster.me.name):
        if spec.name == PREPARE:
            with contextlib.suppress(OSError, ValueError):  # the supervisor tries again, and reports the error
                environment = {**of_programs(os.environ), ATTEMPT: "0", **spec.environment(())}
                begun[spec.name] = fork(spec, environment, log)
    return begun


def _end_record(feed: "Feed", outcome: Outcome, supervisor: "Supervisor | None", log: Log) -> None:
    """Report to the monitor how the job ended, and which hosts' monitors can still be reached.

    The coordinator waits for the monitors of hosts that have left in good order; a follower's waits for the
    coordinator.
    """
    masked = outcome.with_texts(log.secret.mask)
    cause, there = masked.cause, list[str]()
    if supervisor and supervisor.facts.is_coordinator:
        there = [host for host in supervisor.facts.others if supervisor.facts.report_of(host).gone]
    elif supervisor and supervisor.facts.coordinator not in supervisor.facts.lost():
        there = [supervisor.facts.coordinator]
    blamed = {"host": cause.host, "process": cause.process, "what": cause.what, "error": cause.error} if cause else None
    feed.record(lines.OutcomeLine(kind=str(masked.kind), exit_code=masked.exit_code, cause=blamed, there=there))
    if why := feed.finish():
        log.print(f"the record of this host is incomplete: {why}")
