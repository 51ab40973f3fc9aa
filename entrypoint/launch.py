"""The story of `train`: read the config, plan, run, report, exit. The one place that ends the process."""

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from entrypoint.errors import ConfigError, ExitCode
from entrypoint.logs import Log
from entrypoint.outcome import Cause, Outcome, failed
from entrypoint.secrets import Secrets

if TYPE_CHECKING:  # `train` and `entrypoint` import no more than they need, when they need it
    from entrypoint.job import Job
    from entrypoint.plan import Plan
    from entrypoint.process import Process
    from entrypoint.supervisor import Supervisor

DEFAULT_BASE = "/opt/ml"
DEFAULT_RUN = "/run/entrypoint"
STDERR = 0.5  # seconds for words about stdout to be written elsewhere


def train() -> None:
    """What SageMaker calls on every host, as `train`. Does not return."""
    early: list[int] = []  # PID 1 ignores SIGTERM unless it says otherwise, and importing takes a moment
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: early.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])  # the image blocks it until here
    code = _train(early)
    # Threads of the control channel may still wait for a socket: leave without asking them.
    os._exit(code)


def _train(early_signals: list[int]) -> int:
    """The exit code of this host. Whatever goes wrong on the way becomes an Outcome, too."""
    from entrypoint import kin, report
    from entrypoint.config import read_job, this_host
    from entrypoint.job import Tree
    from entrypoint.machine import count_gpus

    base = base_folder()
    host = this_host(base) or os.environ.get("HOSTNAME", "this host")
    log = Log(host, secret=Secrets(os.environ))
    supervisor = None
    try:
        try:
            job = read_job(base, os.environ, run_folder(), count_gpus())
            secret = Secrets(os.environ, job.hyperparameters)
            log = Log(host, prefix=job.settings.log_prefix, streams=job.settings.log_streams, secret=secret)
            supervisor = _supervisor(job, log)
            outcome = supervisor.run(early_signals)
        except ConfigError as error:
            log.say(f"error: {error}")
            outcome = _tell_of(error, host, log, early_signals)
    except Exception as error:
        import traceback

        log.say(traceback.format_exc())
        why = f"{type(error).__name__}: {error}"
        outcome = _own_failure(host, "fault of the launcher", why, ExitCode.INTERNAL)
        kin.end_descendants(within=10.0)
    tree = Tree(base=base)
    for complaint in (
        report.write_failure(tree.failure, outcome, log.secret),
        report.write_success(tree.success, outcome),
    ):
        if complaint:
            log.say(complaint)
    if supervisor is not None and supervisor.outcome is not None:
        _leave_evidence(supervisor, log)
        _say_how_long(supervisor, log)
    _finish(log, host, supervisor)
    return outcome.exit_code


def _tell_of(error: ConfigError, host: str, log: Log, early_signals: list[int]) -> Outcome:
    """The outcome of a job that is described wrongly. Other hosts may not see what is wrong: they are told."""
    import tempfile

    from entrypoint import events
    from entrypoint.config import salvage_job
    from entrypoint.plan import Plan
    from entrypoint.supervisor import Supervisor

    job = salvage_job(base_folder(), os.environ, Path(tempfile.mkdtemp(prefix="entrypoint-")))
    if job is None or len(job.cluster.hosts) == 1:
        return _own_failure(host, "configuration", str(error), ExitCode.CONFIG)
    nothing = Plan(title="", hosts=tuple(host.name for host in job.cluster.hosts), processes=())
    wrong = events.Broken(what="configuration", why=str(error), code=ExitCode.CONFIG)
    return Supervisor(job, nothing, os.environ, log).run(early_signals, [wrong])


def _supervisor(job: "Job", log: Log) -> "Supervisor":
    from entrypoint.distributions import plan_for

    plan = plan_for(job)
    log.say(plan.title)
    if job.cluster.is_coordinator:  # one host says it for all
        for note in plan.notes:
            log.say(f"warning: {note}")
    begun = _begin(job, plan, log)
    from entrypoint.supervisor import Supervisor  # here, since this takes as long as half of what was begun

    return Supervisor(job, plan, os.environ, log, begun)


def _begin(job: "Job", plan: "Plan", log: Log) -> "dict[str, Process]":
    """This host's prepare step, which waits for nothing: it is long on the way when there is somebody to watch it."""
    from entrypoint import process
    from entrypoint.plan import ATTEMPT, Duty

    begun = {}
    for spec in plan.on(job.cluster.me.name):
        if spec.duty is Duty.STEP and not spec.needs and not spec.card:
            with contextlib.suppress(OSError, ValueError):  # the supervisor tries again, and says why
                environment = {**os.environ, ATTEMPT: "0", **spec.environment(())}
                begun[spec.name] = process.spawn(spec, spec.argv, environment, log)
    return begun


def _leave_evidence(supervisor: "Supervisor", log: Log) -> None:
    """What is known of an end that was no success, beyond its cause."""
    from entrypoint import report
    from entrypoint.outcome import Kind

    if supervisor.outcome is None or supervisor.outcome.kind is Kind.SUCCEEDED:
        return
    short, full = supervisor.evidence()
    for line in short:
        log.say(line)
    complaint = report.write_evidence(supervisor.job.paths.evidence(supervisor.host), full, log.secret)
    if complaint:
        log.say(complaint)


def _say_how_long(supervisor: "Supervisor", log: Log) -> None:
    from entrypoint import report

    summary = supervisor.summary()
    seconds = [f"{key} {value}" for key, value in summary["seconds"].items() if value is not None]
    if seconds:
        log.say("seconds: " + ", ".join(seconds))
    if supervisor.job.settings.summary:
        complaint = report.write_summary(Path(supervisor.job.settings.summary), summary, log.secret)
        if complaint:
            log.say(complaint)


def _finish(log: Log, host: str, supervisor: "Supervisor | None") -> None:
    """Give output that is still to be written its time. Where nobody reads it, that is said where it may be seen."""
    missing = log.finish()
    if not missing:
        return
    from entrypoint import report

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
    """/opt/ml, or what SAGEMAKER_BASE_DIR says, as sagemaker-training takes it."""
    return Path(os.environ.get("SAGEMAKER_BASE_DIR") or DEFAULT_BASE)


def run_folder() -> Path:
    """A private folder for keys and sockets, 0700."""
    asked = os.environ.get("ENTRYPOINT_RUN_DIR")
    try:
        folder = Path(asked or DEFAULT_RUN)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        if asked:
            raise ConfigError(f"ENTRYPOINT_RUN_DIR is {asked!r}, which cannot be used: {error}") from None
        import tempfile

        folder = Path(tempfile.mkdtemp(prefix="entrypoint-"))
    return folder
