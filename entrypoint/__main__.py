"""The story: read the config, plan, run, report, exit. The one place that touches the process's own state."""

import os
import sys
import tempfile
import traceback
from pathlib import Path

from entrypoint.errors import CodeError, ConfigError, ExitCode
from entrypoint.logs import Log
from entrypoint.outcome import Cause, Outcome, failed

DEFAULT_BASE = "/opt/ml"
DEFAULT_RUN = "/run/entrypoint"


def train() -> None:
    """What SageMaker calls on every host, as `train`. Does not return."""
    sys.stdout.flush()
    code = _train()
    # Threads of the control channel may still wait for a socket: leave without asking them.
    os._exit(code)


def _train() -> int:
    from entrypoint import report

    base = base_folder()
    log = Log(os.environ.get("HOSTNAME", "host"))
    supervisor = None
    try:
        job = _read_job(base)
        log = Log(job.cluster.me.name, prefix=job.settings.log_prefix, streams=job.settings.log_streams)
        supervisor = _supervisor(job, log)
        outcome = supervisor.run()
    except (ConfigError, CodeError) as error:
        outcome = _own_failure("configuration", str(error), ExitCode.CONFIG)
        log.say(f"error: {error}")
    except Exception as error:
        outcome = _own_failure("fault of the launcher", f"{type(error).__name__}: {error}", ExitCode.INTERNAL)
        log.say(traceback.format_exc())
    complaint = report.write_failure(base / "output" / "failure", outcome)
    if complaint:
        log.say(complaint)
    if supervisor is not None and supervisor.outcome is not None:
        summary = supervisor.summary()
        seconds = [f"{key} {value}" for key, value in summary["seconds"].items() if value is not None]
        if seconds:
            log.say("seconds: " + ", ".join(seconds))
        if supervisor.job.settings.summary:
            report.write_summary(Path(supervisor.job.settings.summary), summary)
    return outcome.exit_code


def _read_job(base: Path):  # type: ignore[no-untyped-def]
    from entrypoint.config import read_job

    return read_job(base, os.environ, run_folder(), count_gpus())


def _supervisor(job, log):  # type: ignore[no-untyped-def]
    from entrypoint.distributions import plan_for
    from entrypoint.supervisor import Supervisor

    plan = plan_for(job)
    log.say(plan.title)
    if job.cluster.is_coordinator:  # one host says it for all
        for note in plan.notes:
            log.say(f"warning: {note}")
    return Supervisor(job, plan, os.environ, log)


def _own_failure(what: str, why: str, code: int) -> Outcome:
    return failed(Cause(host=os.environ.get("HOSTNAME", "this host"), process="", what=what, error=why, code=code))


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
        folder = Path(tempfile.mkdtemp(prefix="entrypoint-"))
    return folder


def count_gpus() -> int:
    """GPUs that the container sees, by their device files: no process is started for it."""
    return sum(1 for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdigit())


def main() -> None:
    """What people call: `entrypoint plan`, `entrypoint local`, ..."""
    from entrypoint.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
