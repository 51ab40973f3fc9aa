"""One file per way of spreading a job; each makes the rows of *all* hosts. A new way is one new file."""

from typing import assert_never

from entrypoint.distributions import mirrored, mpi, parameter_server, single
from entrypoint.job import Job, Mode
from entrypoint.plan import Plan


def plan_for(job: Job) -> Plan:
    """The full plan of the job; the same on every host."""
    match job.mode:
        case Mode.SINGLE:
            return single.plan(job)
        case Mode.PS:
            return parameter_server.plan(job)
        case Mode.MWMS:
            return mirrored.plan(job)
        case Mode.MPI:
            return mpi.plan(job)
        case _:
            assert_never(job.mode)
