"""Describe the job's request for its record: enough to make the same plan again, without secrets."""

import json
from collections.abc import Mapping
from typing import Any

from entrypoint.base.secrets import Secrets
from entrypoint.launcher.job.job import Job
from entrypoint.record.lines import Described

KEPT = ("ENTRYPOINT_", "SAGEMAKER_", "SM_", "TRAINING_JOB_")  # prefixes of the variables that describe a job
LONGEST_CHARS = 4096  # characters of a value; of a longer one nothing is kept


def described(job: Job, environment: Mapping[str, str]) -> Described:
    """Return the values of SageMaker's three files and of the environment, secrets masked; long ones are left out."""
    given = {name: value for name, value in environment.items() if name.startswith(KEPT)}
    found = {
        "base": str(job.paths.base),
        "resourceconfig": job.resource_config,
        "inputdataconfig": job.input_data_config,
        "hyperparameters": {name: value for name, value in job.hyperparameters.items() if _is_short(value)},
        "environment": {name: value for name, value in given.items() if _is_short(value)},
        "open_mpi": job.open_mpi,
    }
    return Described(**Secrets(environment, job.hyperparameters).mask_all(found))


def _is_short(value: Any) -> bool:
    return len(value if isinstance(value, str) else json.dumps(value)) <= LONGEST_CHARS
