"""Find the processes that train, and so share the records of the job's channels; for every way of distributing."""

from collections.abc import Container

from entrypoint.base.values import replace
from entrypoint.launcher.job.channels import Reader, complaints, readers
from entrypoint.launcher.job.choices import ChiefName, PsProgram
from entrypoint.launcher.job.cluster import Part
from entrypoint.launcher.job.job import Job, Mode
from entrypoint.launcher.plan.plan import Flag, Plan, Role

_TRAINS = (Role.RANK, Role.WORKER)


def with_readers(job: Job, plan: Plan) -> Plan:
    """Return the plan with a reader for each process that trains, and with notes about the channels.

    Scripts that share nothing get none: each reads everything. With parameter servers, the chief trains if it is TF1's;
    in TensorFlow 2 only the workers do.
    """
    chief_may = job.mode is Mode.PS and job.settings.ps_workers is PsProgram.SCRIPT
    chief_does = chief_may and job.settings.ps_chief_name is ChiefName.MASTER
    usual = _readers(plan, (*_TRAINS, Role.CHIEF) if chief_does else _TRAINS)
    other = _readers(plan, (*_TRAINS, Role.CHIEF)) if chief_may and not chief_does else {}
    rows = []
    for spec in plan.processes:
        mine = (spec.host, spec.name)
        if mine in usual or mine in other:
            flagged = (Flag.TF1_SESSIONS, other[mine]) if mine in other else None
            spec = spec.but(reader=usual.get(mine), reader_if=flagged)
        rows.append(spec)
    here: dict[str, list[Reader]] = {host.name: [] for host in job.cluster.hosts if host.part is not Part.OUTSIDE}
    for (host, _), reader in usual.items():
        here[host].append(reader)
    notes = (*plan.notes, *complaints(job.channels, here))
    return replace(plan, processes=tuple(rows), channels=job.channels, notes=notes)


def _readers(plan: Plan, roles: Container[Role]) -> dict[tuple[str, str], Reader]:
    """Return readers by host and name of process. The rows of a plan are in rank order."""
    rows = [spec for spec in plan.processes if spec.role in roles]
    return {(row.host, row.name): each for row, each in zip(rows, readers([r.host for r in rows]), strict=True)}
