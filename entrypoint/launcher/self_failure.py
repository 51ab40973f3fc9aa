"""End the job on every host when the launcher itself fails, or its configuration is wrong.

The failure may leave the launcher without a log, a control channel or file descriptors: nothing here needs them.
"""

import contextlib
import importlib
import json
import os
import time
import traceback
from collections.abc import Callable

from entrypoint.base.errors import FAULT, ConfigError, ExitCode
from entrypoint.base.secrets import Secrets
from entrypoint.launcher import places
from entrypoint.launcher.host.descendants import end_descendants
from entrypoint.launcher.host.folders import with_temporary_folder
from entrypoint.launcher.host.host import ThisHost
from entrypoint.launcher.host.inbox import Inbox
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.host.resource_limits import in_words, refused
from entrypoint.launcher.host.stdout_writer import Sink
from entrypoint.launcher.job.config import read_what_can_be, this_host
from entrypoint.launcher.job.job import Job, Tree
from entrypoint.launcher.outcome import report
from entrypoint.launcher.outcome.outcome import Cause, Outcome, failed
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.policy.events import Broken, News, Report
from entrypoint.launcher.supervisor import Supervisor

STARTING_SECONDS = 30.0  # during which we report a fault of our own to hosts that are still starting
RUNNING_SECONDS = 3.0  # the same, to hosts that were up and may have ended since
AGAIN_SECONDS = 0.2  # seconds between two attempts to reach them
ANSWERING_SECONDS = 1.0  # seconds for an answer
SPARE_DESCRIPTORS = 12


class Spare:
    """Hold spare file descriptors, since logging and reporting a fault of our own takes some."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def hold(self) -> None:
        for _ in range(SPARE_DESCRIPTORS):
            self._held.append(os.open(os.devnull, os.O_RDONLY))

    def free(self) -> None:
        while self._held:
            os.close(self._held.pop())
        importlib.invalidate_caches()  # Python takes a folder that it could not open for an empty one


def outcome_of(
    error: Exception, host: str, supervisor: Supervisor | None, log: Log, inbox: Inbox, spare: Spare
) -> Outcome:
    """Return the outcome of a job that ends by a wrong configuration or a fault of ours. Report it to all hosts."""
    try:
        if isinstance(error, ConfigError):
            log.print(f"error: {error}")
            return _end_misconfigured(error, host, log, inbox, spare)
    except Exception as fault:
        error = fault
    spare.free()
    settled = supervisor.facts.outcome if supervisor else None  # the other hosts know this one
    outcome = settled or _outcome_of_fault(error, host, log.print)
    end_descendants(within=10.0)
    _report_to_others(outcome, supervisor, inbox.signals, log.print)
    return outcome


def _end_misconfigured(error: ConfigError, host: str, log: Log, inbox: Inbox, spare: Spare) -> Outcome:
    """Return the outcome of a wrong configuration. Report it to the other hosts, which may not see the fault."""
    job = _known_job()
    if job is None or len(job.cluster.hosts) == 1:
        return _own_failure(host, "configuration", str(error), ExitCode.CONFIG)
    with contextlib.suppress(ConfigError):  # the report to the others needs no folder
        job = with_temporary_folder(job, os.environ)
    nothing = Plan(title="", hosts=tuple(host.name for host in job.cluster.hosts), processes=())
    inbox.put(Broken(what="configuration", why=str(error), code=ExitCode.CONFIG))
    return Supervisor(ThisHost(job, nothing, os.environ, log, inbox), spare.free).run()


def _outcome_of_fault(error: Exception, host: str, log: Callable[[str], None]) -> Outcome:
    """Return the outcome of a fault of ours, or of a container that refuses to run us."""
    if why := refused(error):
        log(f"error: {why}")
        return _own_failure(host, "configuration", why, ExitCode.CONFIG)
    log("".join(traceback.format_exception(error)))
    return _own_failure(host, FAULT, in_words(error), ExitCode.INTERNAL)


def _report_to_others(
    outcome: Outcome, supervisor: Supervisor | None, signals: list[int], log: Callable[[str], None]
) -> None:
    """Report a fault of ours to the other hosts, since the control channel may never have been opened."""
    facts = supervisor.facts if supervisor else None
    # They know the outcome already, unless this host settled on it without reaching anybody.
    if facts and facts.outcome is not None and (facts.is_coordinator or facts.coordinator in facts.hosts.last_contact):
        return
    received = len(signals)
    try:
        job = supervisor.job if supervisor else _known_job()
        if job is None or len(job.cluster.hosts) == 1:
            return
        attempt = supervisor.facts.attempt.number if supervisor else 0
        within = STARTING_SECONDS if supervisor is None or supervisor.peers is None else RUNNING_SECONDS
        secret = Secrets(os.environ, job.hyperparameters)
        left = _send(job, outcome.with_texts(secret.mask), attempt, within, lambda: len(signals) > received)
        if left:
            log(f"not reached: {', '.join(left)}")
    except Exception as error:
        log(f"the other hosts could not be informed: {type(error).__name__}: {error}")


def _send(job: Job, outcome: Outcome, attempt: int, within: float, enough: Callable[[], bool]) -> list[str]:
    """Report our end to the coordinator, which informs all others; as the coordinator, report it to all.

    This takes no thread, and one socket at a time: a host that has too few for a control channel can usually still do
    it. Otherwise the others would wait for it until the start timeout, and then blame a wrong cause. A host that does
    not answer may only be starting: it is tried again for `within` seconds, or until `enough()`. Return the hosts that
    were not reached.
    """
    from entrypoint.launcher.control.client import Calls  # late: see train.py
    from entrypoint.launcher.control.wire import Refused, to_json

    cluster = job.cluster
    if cluster.is_coordinator:
        path, waiting = "/news", list(cluster.followers)
        message = to_json(News(attempt=attempt, outcome=outcome))
    else:
        path, waiting = "/report", [cluster.coordinator]
        message = to_json(Report(host=cluster.me.name, attempt=attempt, clean=False, cause=outcome.cause, gone=True))
    call, deadline = Calls(cluster, job.settings), time.monotonic() + within
    while waiting and time.monotonic() < deadline and not enough():
        for host in list(waiting):
            try:
                call(host, path, json.dumps(message).encode(), timeout=ANSWERING_SECONDS)
                waiting.remove(host)
            except (OSError, ValueError, Refused):  # ValueError: DNS cannot have such a name
                if enough():
                    break
        time.sleep(AGAIN_SECONDS if waiting else 0.0)
    return [host.name for host in waiting]


def end_without_log(error: Exception, signals: list[int]) -> int:
    """End the job on all hosts if the log could not be opened or its last lines failed; return the exit code."""
    base, stdout = places.base_folder(), Sink(1)
    host = this_host(base) or os.environ.get("HOSTNAME", "this host")
    mask = Secrets(os.environ).mask

    def log(message: str) -> None:
        stdout.put(f"[{host}] {mask(message)}\n".encode("utf-8", "replace"))
        stdout.hand_over()

    outcome = _outcome_of_fault(error, host, log)
    _report_to_others(outcome, None, signals, log)
    if complaint := report.write_failure(Tree(base=base).failure, outcome):
        log(complaint)
    stdout.finish(hurries=lambda: bool(signals))
    return outcome.exit_code


def _known_job() -> Job | None:
    """Return the job as far as it can be read in spite of a wrong configuration."""
    return read_what_can_be(places.base_folder(), os.environ, places.DEFAULT_RUN)[0]


def _own_failure(host: str, what: str, why: str, code: int) -> Outcome:
    return failed(Cause(host=host, process="", what=what, error=why, code=code))
