"""Run `train`: read the config, plan, run, report, exit. Only this module ends the process of `train`."""

import gc
import os
import signal
import time
from typing import TYPE_CHECKING

from entrypoint.base.errors import ConfigError
from entrypoint.base.secrets import Secrets
from entrypoint.launcher import epilogue, places, self_failure
from entrypoint.launcher.host import folders, proxies
from entrypoint.launcher.host.host import ThisHost
from entrypoint.launcher.host.inbox import Inbox
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.machine import count_gpus
from entrypoint.launcher.host.required_programs import lacking, programs
from entrypoint.launcher.job.choices import LogPrefix, NoProxy
from entrypoint.launcher.job.config import read_job, this_host
from entrypoint.launcher.job.job import Job, Tree
from entrypoint.launcher.outcome import report
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.supervisor import Supervisor
from entrypoint.observe.monitor.feed import Feed

if TYPE_CHECKING:  # the control channel is imported after the first processes have started
    from entrypoint.launcher.control.pages import Routes


def train() -> None:
    """Run as the command `train`, which SageMaker starts on every host. Does not return."""
    began = time.monotonic()
    gc.disable()  # until the plan is made, all stays: of 2,400 processes, collections would take 60 ms
    inbox = Inbox()
    inbox.catch_signals()  # PID 1 ignores signals without handlers
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the image blocks it until here
    spare = self_failure.Spare()
    try:
        spare.hold()
        code = _run(began, inbox, spare)
    except Exception as error:
        spare.free()
        code = self_failure.end_without_log(error, inbox.signals)
    folders.remove_temporary()
    # Threads of the control channel may still wait for a socket: exit without joining them.
    os._exit(code)


def _run(began: float, inbox: Inbox, spare: self_failure.Spare) -> int:
    """Read the config, plan, run, and report. Return this host's exit code. Every error becomes an Outcome."""
    base = places.base_folder()
    host = this_host(base) or os.environ.get("HOSTNAME", "this host")
    supervisor = feed = None
    log = Log(host, secret=Secrets(os.environ))
    try:
        job = folders.with_run_folder(read_job(base, os.environ, places.DEFAULT_RUN, count_gpus()), os.environ)
        secret, prefix = Secrets(os.environ, job.hyperparameters), job.settings.log_prefix
        log = Log(host, prefix=prefix is not LogPrefix.OFF, streams=prefix is LogPrefix.STREAMS, secret=secret)
        job, notes = folders.settled(job, os.environ)
        if job.settings.no_proxy is NoProxy.HOSTS:
            notes += proxies.exempt(job.cluster, os.environ)
        for note in notes:
            log.print(note)
        plan = _plan(job, log)
        gc.enable()
        gc.freeze()  # a collection writes to what it visits: these pages are also the monitor's
        feed = Feed(job, plan, began)  # forks, before a second thread exists
        log.show = feed.show
        this = ThisHost(job, plan, os.environ, log, inbox, feed.record)
        supervisor = Supervisor(this, spare.free, began, _pages)
        feed.listen(inbox.put, log.print, log.write, inbox.ask)
        outcome = supervisor.run()
    except Exception as error:
        outcome = self_failure.outcome_of(error, host, supervisor, log, inbox, spare)
    tree = Tree(base=base)
    complaints = [report.write_failure(tree.failure, outcome, log.secret), report.write_success(tree.success, outcome)]
    for complaint in filter(None, complaints):
        log.print(complaint)
    if supervisor is not None and supervisor.outcome is not None:
        epilogue.log_evidence(supervisor, supervisor.outcome, log)
    if feed:
        feed.record(epilogue.end_of_record(outcome, supervisor, log.secret.mask))
        if why := feed.finish():
            log.print(f"the record of this host is incomplete: {why}")
    epilogue.write_out(log, host, supervisor, inbox.signals)
    return outcome.exit_code


def _plan(job: Job, log: Log) -> Plan:
    """Return the plan. Raise ConfigError if this host lacks a program that its part of the plan starts."""
    plan, me = plan_for(job), job.cluster.me.name
    log.print(plan.title)
    if job.cluster.is_coordinator:  # one host logs them for all
        for note in plan.notes:
            log.print(f"warning: {note}")
    if absent := lacking(programs(plan.on(me), plan.daemon)):
        raise ConfigError(f"mode {job.mode} needs what {me} does not have: {', '.join(absent)}")
    return plan


def _pages() -> "Routes":
    """Return the routes of the pages that the coordinator serves while the job runs."""
    from entrypoint.observe.live.serve import ROUTES

    return ROUTES
