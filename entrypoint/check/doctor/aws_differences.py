"""List how our launcher differs for a job that was written for AWS's images.

docs/differences.md and docs/scripts.md have the whole list.
"""

from entrypoint.check.doctor.check_request import AWS_IMAGE
from entrypoint.check.doctor.planned_job import Described
from entrypoint.launcher.job.job import Mode
from entrypoint.launcher.job.params import PREFIX

_ALWAYS = (
    "arguments reach the script as they are; AWS's images pass them through a shell",
    "a failure ends all hosts, with one exit code and one FailureReason; SIGTERM reaches the script",
    "lines of the log begin with [host process]",
)
_OF_MODES = {
    Mode.SINGLE: (),
    Mode.PS: (
        "rank 0 is `chief` for TensorFlow 2, and `master` only for TensorFlow 1's sessions and Estimators",
        "parameter servers leave last, and workers that only serve are ended with the chief",
    ),
    Mode.MWMS: ("several workers on a host are possible, each with its GPUs (ENTRYPOINT_PROCESSES_PER_HOST)",),
    Mode.MPI: (
        "each rank has the SM_* of its own host, not those of the first",
        "hosts end with mpirun, not half a minute later",
    ),
    Mode.JAX: (),
}


def differences_of(job: Described) -> tuple[str, ...]:
    """Return a sentence for each difference; none for a job that uses neither AWS's images nor their switches."""
    switched = any(key.startswith(PREFIX) and key.endswith("_enabled") for key in job.request.hyperparameters)
    if job.job is None or not (switched or AWS_IMAGE.match(job.request.image)):
        return ()
    return (*_OF_MODES[job.job.mode], *_ALWAYS)
