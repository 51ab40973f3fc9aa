"""Rebuild the job and the plan that a record describes, with the same code that made them then."""

import json
import tempfile
from pathlib import Path

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.job.config import read_job
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.record.lines import WRONG, Described

FILES = ("resourceconfig", "inputdataconfig", "hyperparameters")
RUN = Path("/run/entrypoint")


def rebuild(described: Described, gpus: int) -> tuple[Job, Plan]:
    """Return the job of one host and its plan; `gpus`: the host's number. ConfigError if they cannot be rebuilt."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name in FILES:
                Path(folder, f"{name}.json").write_text(json.dumps(getattr(described, name)))
            environment = {str(name): str(value) for name, value in described.environment.items()}
            job = read_job(Path(described.base), environment, RUN, gpus, config=Path(folder))
            job = replace(job, open_mpi=int(described.open_mpi))
        return job, plan_for(job)
    except (OSError, *WRONG) as error:
        raise ConfigError(f"the record does not describe its job: {error!r}") from None
