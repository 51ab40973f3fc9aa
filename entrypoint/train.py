"""Run `train`: read the config, plan, run, report, exit. Only this module ends the process of `train`."""

import contextlib
import gc
import importlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.base.errors import FAULT, ConfigError, ExitCode
from entrypoint.base.secrets import Secrets
from entrypoint.launcher import surroundings
from entrypoint.launcher.host.logs import Log
from entrypoint.launcher.outcome.outcome import Cause, Outcome, failed
from entrypoint.observe.monitor.feed import Feed

if TYPE_CHECKING:  # `train` and `entrypoint` import each module only when they need it
    from entrypoint.launcher.control.pages import Routes
    from entrypoint.launcher.host.process import Process
    from entrypoint.launcher.job.job import Job
    from entrypoint.launcher.plan.plan import Plan
    from entrypoint.launcher.supervisor import Supervisor

DEFAULT_BASE = "/opt/ml"
DEFAULT_RUN = "/run/entrypoint"
COMING = 30.0  # seconds during which we report a fault of our own to hosts that are still starting
THERE = 3.0  # the same, to hosts that were up and may have ended since
SPARE = 12  # file descriptors
STDERR = 0.5  # seconds to write to stderr what stdout did not take


def train() -> None:
    """Run as the command `train`, which SageMaker starts on every host. Does not return."""
    began = time.monotonic()
    gc.disable()  # what is imported now stays; _supervisor enables it again
    signals: list[int] = []  # PID 1 ignores signals without handlers, and the imports take a moment
    _note_signals(signals)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the image blocks it until here
    code = _train(began, signals)
    surroundings.remove_temporary()
    # Threads of the control channel may still wait for a socket: exit without joining them.
    os._exit(code)


def _note_signals(signals: list[int]) -> None:
    """Collect SIGTERM and SIGINT in a list, instead of ending the process."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))


def _train(began: float, signals: list[int]) -> int:
    """Return the exit code of this host. Every error on the way becomes an Outcome."""
    spare = _Spare()
    try:
        spare.hold()
        return _with_log(began, signals, spare)
    except Exception as error:
        spare.free()
        return _without_log(error, signals)


def _with_log(began: float, signals: list[int], spare: "_Spare") -> int:
    from entrypoint.launcher.host import descendants
    from entrypoint.launcher.host.machine import count_gpus
    from entrypoint.launcher.job.config import read_job, this_host
    from entrypoint.launcher.job.job import Tree
    from entrypoint.launcher.outcome import report

    base = base_folder()
    host = this_host(base) or os.environ.get("HOSTNAME", "this host")
    supervisor = feed = None
    log = Log(host, secret=Secrets(os.environ))
    try:
        try:
            job = surroundings.with_run_folder(read_job(base, os.environ, Path(DEFAULT_RUN), count_gpus()), os.environ)
            secret = Secrets(os.environ, job.hyperparameters)
            prefix = job.settings.log_prefix
            log = Log(host, prefix=prefix != "false", streams=prefix == "streams", secret=secret)
            job = surroundings.settled(job, os.environ, log.say)
            plan = _plan(job, log)
            feed = Feed(job, plan, began)  # fork before a second thread exists
            log.show = feed.show
            supervisor = _supervisor(began, job, plan, log, spare, feed)
            feed.listen(supervisor.inbox.put, log.say, log.write, supervisor.inbox.ask)
            outcome = supervisor.run(signals)
        except ConfigError as error:
            log.say(f"error: {error}")
            outcome = _tell_of(error, host, log, spare, signals)
    except Exception as error:
        spare.free()
        settled = supervisor.facts.outcome if supervisor else None  # the other hosts know this one
        outcome = settled or _of_fault(error, host, log.say)
        descendants.end_descendants(within=10.0)
        _tell_others(outcome, supervisor, signals, log.say)
    tree = Tree(base=base)
    complaints = [report.write_failure(tree.failure, outcome, log.secret), report.write_success(tree.success, outcome)]
    for complaint in filter(None, complaints):
        log.say(complaint)
    if supervisor is not None and supervisor.outcome is not None:
        _say_more(supervisor, supervisor.outcome, log)
    if feed:
        _end_record(feed, outcome, supervisor, log)
    _finish(log, host, supervisor, signals)
    return outcome.exit_code


class _Spare:
    """Hold spare file descriptors: logging and reporting a fault of our own takes some."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def hold(self) -> None:
        for _ in range(SPARE):
            self._held.append(os.open(os.devnull, os.O_RDONLY))

    def free(self) -> None:
        while self._held:
            os.close(self._held.pop())
        importlib.invalidate_caches()  # Python takes a folder that it could not open for an empty one


def _of_fault(error: Exception, host: str, say: Callable[[str], None]) -> Outcome:
    """Return the outcome of a fault of ours, or of a container that refuses to run us."""
    import traceback

    from entrypoint.launcher.host.resource_limits import in_words, refused

    if why := refused(error):
        say(f"error: {why}")
        return _own_failure(host, "configuration", why, ExitCode.CONFIG)
    say("".join(traceback.format_exception(error)))
    return _own_failure(host, FAULT, in_words(error), ExitCode.INTERNAL)


def _tell_others(
    outcome: Outcome, supervisor: "Supervisor | None", signals: list[int], say: Callable[[str], None]
) -> None:
    """Report a fault of ours to the other hosts, since the control channel may never have been opened."""
    from entrypoint.launcher.control import emergency_report
    from entrypoint.launcher.job.config import read_what_can_be

    facts = supervisor.facts if supervisor else None
    # They know the outcome already, unless this host settled on it without reaching anybody.
    if facts and facts.outcome is not None and (facts.is_coordinator or facts.coordinator in facts.hosts.heard):
        return
    heard = len(signals)
    _note_signals(signals)
    try:
        job = supervisor.job if supervisor else read_what_can_be(base_folder(), os.environ, Path(DEFAULT_RUN))[0]
        if job is None or len(job.cluster.hosts) == 1:
            return
        attempt = supervisor.facts.attempt.number if supervisor else 0
        within = COMING if supervisor is None or supervisor.peers is None else THERE
        secret = Secrets(os.environ, job.hyperparameters)
        left = emergency_report.tell(
            job.cluster, job.settings, outcome.with_texts(secret.mask), attempt, within, lambda: len(signals) > heard
        )
        if left:
            say(f"not reached: {', '.join(left)}")
    except Exception as error:
        say(f"the other hosts could not be informed: {type(error).__name__}: {error}")


def _without_log(error: Exception, signals: list[int]) -> int:
    """Return the exit code if the log could not be opened, or if its last lines failed."""
    from entrypoint.launcher.host.stdout_writer import Sink
    from entrypoint.launcher.job.config import this_host
    from entrypoint.launcher.job.job import Tree
    from entrypoint.launcher.outcome import report

    base, stdout = base_folder(), Sink(1)
    host = this_host(base) or os.environ.get("HOSTNAME", "this host")

    def say(message: str) -> None:
        stdout.put(f"[{host}] {message}\n".encode("utf-8", "replace"))
        stdout.hand_over()

    mask = Secrets(os.environ).mask
    outcome = _of_fault(error, host, lambda message: say(mask(message)))
    _tell_others(outcome, None, signals, say)
    if complaint := report.write_failure(Tree(base=base).failure, outcome):
        say(complaint)
    stdout.finish(hurries=lambda: bool(signals))
    return outcome.exit_code


def _tell_of(error: ConfigError, host: str, log: Log, spare: _Spare, signals: list[int]) -> Outcome:
    """Return the outcome of a wrong configuration. It is reported to the other hosts, which may not see the fault."""
    from entrypoint.launcher.job.config import read_what_can_be
    from entrypoint.launcher.plan.plan import Plan
    from entrypoint.launcher.policy import events
    from entrypoint.launcher.supervisor import Supervisor

    job, _ = read_what_can_be(base_folder(), os.environ, Path(DEFAULT_RUN))
    if job is None or len(job.cluster.hosts) == 1:
        return _own_failure(host, "configuration", str(error), ExitCode.CONFIG)
    with contextlib.suppress(ConfigError):  # the report to the others needs no folder
        job = surroundings.with_temporary_folder(job, os.environ)
    nothing = Plan(title="", hosts=tuple(host.name for host in job.cluster.hosts), processes=())
    wrong = events.Broken(what="configuration", why=str(error), code=ExitCode.CONFIG)
    return Supervisor(job, nothing, os.environ, log, spare=spare.free).run(signals, [wrong])


def _plan(job: "Job", log: Log) -> "Plan":
    from entrypoint.launcher.plan.planner import plan_for

    plan = plan_for(job)
    log.say(plan.title)
    if job.cluster.is_coordinator:  # one host logs them for all
        for note in plan.notes:
            log.say(f"warning: {note}")
    _look_for_programs(job, plan)
    return plan


def _supervisor(began: float, job: "Job", plan: "Plan", log: Log, spare: _Spare, feed: "Feed") -> "Supervisor":
    begun = _begin(job, plan, log)
    from entrypoint.launcher.supervisor import Supervisor  # here: it takes half as long as the prepare step

    gc.freeze()
    gc.enable()
    return Supervisor(job, plan, os.environ, log, begun, spare.free, feed.tell, began, _pages)


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
    from entrypoint.launcher.plan.plan import ATTEMPT, PREPARE

    begun = {}
    for spec in plan.on(job.cluster.me.name):
        if spec.name == PREPARE:
            with contextlib.suppress(OSError, ValueError):  # the supervisor tries again, and reports the error
                environment = {**os.environ, ATTEMPT: "0", **spec.environment(())}
                begun[spec.name] = fork(spec, environment, log)
    return begun


def _say_more(supervisor: "Supervisor", outcome: Outcome, log: Log) -> None:
    """Log and write what is known about the end: evidence if it was no success, the times, the summary."""
    from entrypoint.launcher.outcome import report
    from entrypoint.launcher.outcome.outcome import Kind
    from entrypoint.launcher.policy.status import summary

    facts, paths, now = supervisor.facts, supervisor.job.paths, time.monotonic()
    complaints = []
    if outcome.kind is not Kind.SUCCEEDED:
        from entrypoint.launcher.policy import evidence

        for line in evidence.in_short(facts, outcome):
            log.say(line)
        tails = {name: log.tail(name) for name in supervisor.processes}
        text = evidence.in_full(facts, outcome, tails, now)
        complaints.append(report.write_evidence(paths.evidence(supervisor.host), text, log.secret))
    told = {**summary(facts, outcome, now), "pid": os.getpid()}
    if seconds := [f"{key} {value}" for key, value in told["seconds"].items() if value is not None]:
        log.say("seconds: " + ", ".join(seconds))
    if where := supervisor.job.settings.summary:
        complaints.append(report.write_summary(Path(where), told, log.secret))
    for complaint in filter(None, complaints):
        log.say(complaint)


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
    told = {"host": cause.host, "process": cause.process, "what": cause.what, "error": cause.error} if cause else None
    feed.tell("outcome", {"kind": str(masked.kind), "exit_code": masked.exit_code, "cause": told, "there": there})
    if why := feed.finish():
        log.say(f"the record of this host is not whole: {why}")


def _finish(log: Log, host: str, supervisor: "Supervisor | None", signals: list[int]) -> None:
    """Write the remaining output. If nobody reads stdout, report the loss in the evidence file and on stderr."""
    stops = supervisor is not None and supervisor.facts.stopping_since is not None
    missing = log.finish(hurries=lambda: stops or bool(signals))
    if not missing:
        return
    from entrypoint.launcher.outcome import report

    words = f"{missing} bytes of the output of this host were not written: nobody read them, or there was no room"
    if supervisor is not None:
        report.add_evidence(supervisor.job.paths.evidence(host), words)
    with contextlib.suppress(OSError):
        if not os.path.samestat(os.fstat(1), os.fstat(2)):
            stderr = Log(host, fd=2)
            stderr.say(words)
            stderr.finish(patience=STDERR)


def _own_failure(host: str, what: str, why: str, code: int) -> Outcome:
    return failed(Cause(host=host, process="", what=what, error=why, code=code))


def base_folder() -> Path:
    """Return /opt/ml, or the folder in SAGEMAKER_BASE_DIR, as sagemaker-training does."""
    return Path(os.environ.get("SAGEMAKER_BASE_DIR") or DEFAULT_BASE)
