"""Describe how a job ended, for the beginning of the report, unless the job simply succeeded."""

import signal
import time

from entrypoint.base.errors import ExitCode
from entrypoint.base.remedies import REMEDIES
from entrypoint.base.severity import Severity
from entrypoint.base.values import Value
from entrypoint.base.wording import duration, listed
from entrypoint.observe.report.job_record import JobRecord
from entrypoint.record import lines

APART_SECONDS = 10.0  # seconds that a record ends before the others', from which its host was lost
PREPARE = "prepare"  # the launcher's own program that fetches the code, and chooses its exit code as the launcher does
_ADVICE = {  # by exit codes of the launcher; of others, what a program printed is to be read
    ExitCode.CODE: "correct the code or its requirements; `entrypoint doctor` and `entrypoint local` show most of it",
    ExitCode.START_TIMEOUT: "see below what each host was waiting for, and its log",
    ExitCode.HOST_LOST: "start the job again, from its checkpoints; below, the host's memory and disk until then",
    ExitCode.INTERNAL: "report the fault, with the records and the logs",
    ExitCode.HUNG: "see the stacks of the hang",
    ExitCode.CONFIG: "correct the setting; `entrypoint doctor` checks it before a job",
    128 + signal.SIGKILL: (
        "if its host's memory was full, which the report shows, the kernel killed it; else somebody did"
    ),
}


class Ending(Value):
    """Describe how a job ended."""

    severity: Severity
    text: str
    advice: str
    before: str = ""  # the attempts that failed before
    output: tuple[str, ...] = ()  # of the process that failed first: the end of its traceback, or its last lines

    @property
    def line(self) -> str:
        """Return the ending as one line, without characters that control a terminal."""
        line = "; ".join(filter(None, (self.text, self.before, self.advice)))
        return "".join(c if c.isprintable() else " " for c in line)[:2000]


def ending(job: JobRecord) -> Ending | None:
    """Return how the job ended; None if it succeeded at its first attempt, without being stopped."""
    outcome = job.outcome
    if not job.hosts:
        return None
    if outcome is None:
        return _unknown(job)
    took = f"after {duration(job.seconds)}"
    attempts = [f"{words} (after {duration(at)})" for host in job.hosts for at, words in host.logged
                if lines.ATTEMPT_FAILED.match(words)]  # fmt: skip
    asked = min((at for host in job.hosts for at, phase in host.phases if phase == "stopping"), default=None)
    severity, output = Severity.WARNING, tuple[str, ...]()
    if outcome["kind"] == "failed":
        cause = outcome["cause"]
        what = lines.headline(cause) if cause else f"exit code {outcome['code']}"
        outputs = {(host.name, name): last for host in job.hosts for name, last in host.output.items()}
        if cause:
            output = tuple(cause["details"].splitlines()) or outputs.get((cause["host"], cause["process"]), ())
        where = f"what {cause['process']} printed last, in the log of {cause['host']}" if cause else "the logs"
        own = cause and cause["process"] != PREPARE and "exit code" in cause["what"]  # a program chose that code
        advice = f"see {where}" if own else _ADVICE.get(outcome["code"], f"see {where}")
        severity, text = Severity.ERROR, f"failed: {what}; {took}"
    elif outcome["kind"] == "stopped":
        left = [f"{process.name} on {host.name}" for host in job.hosts for process in host.trainers
                if process.runs and "SIGKILL" in process.runs[-1].how]  # fmt: skip
        killed = f"; {listed(left, 3)} had not ended in time and were killed" if left else ""
        since = duration(job.seconds if asked is None else asked)
        text = (
            f"stopped: SIGTERM after {since}, as by StopTrainingJob, the maximum runtime or the end of a spot "
            f"instance, and not every script ended with 0{killed}"
        )
        advice = f"if the time was over, raise max_run; so that nothing is lost, {REMEDIES['no-sigterm']}"
    elif asked is not None:
        severity, text = Severity.NOTE, f"stopped: SIGTERM after {duration(asked)}; all scripts then ended with 0"
        advice = "raise max_run, if the training was to go on"
    elif attempts:
        text, advice = f"restarted: it succeeded {took}", "correct what failed: each restart is paid for"
    else:
        return None
    return Ending(severity=severity, text=text, before=listed(attempts, 3), advice=advice, output=output)


def _unknown(job: JobRecord) -> Ending:
    """Describe a job without an outcome by its last signs of life."""
    last = max(job.hosts, key=lambda host: host.end)
    early = [f"{host.name} ({duration(last.end - host.end)} before)" for host in job.hosts
             if last.end - host.end > APART_SECONDS]  # fmt: skip
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(min(job.zero + last.end, 4e9)))
    lost = f"; records that end earlier: {listed(early, 4)}" if early else ""
    missing = f"; hosts without a record: {listed(job.missing, 4)}" if job.missing else ""
    if 0 <= lines.now() - (job.zero + last.end) < lines.ALIVE_SECONDS:
        return Ending(
            severity=Severity.NOTE,
            text=f"running: the last sign of life came seconds ago, at {when} from {last.name}{lost}{missing}",
            advice="make the report again when the job has ended; `entrypoint top` shows it meanwhile",
        )
    return Ending(
        severity=Severity.WARNING,
        text=f"end unknown: the last sign of life came at {when} from {last.name}, {duration(last.end)} after the start"
        f"{lost}{missing}",
        advice="launchers were killed, machines lost, or the records cut short: see SageMaker's status and the logs",
    )
