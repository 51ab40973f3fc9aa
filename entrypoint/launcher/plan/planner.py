"""Choose the way of distributing a job, make its plan, and divide the hosts and the channels among the processes.

distributions/ has the ways. The processes that train divide a host's CPUs and GPUs equally. A process that serves,
evaluates or coordinates beside them computes now and then: it gets as many threads as a process that trains, reduces no
other process's part, and gets no GPU. If nothing trains on a host, its servers share it.
"""

from collections.abc import Container

from entrypoint.base.errors import ConfigError
from entrypoint.base.values import replace
from entrypoint.launcher.job.channels import Reader, complaints, readers
from entrypoint.launcher.job.choices import ChiefName, Mode, PsProgram, When
from entrypoint.launcher.job.cluster import Part
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import mpi, parameter_server, workers
from entrypoint.launcher.plan.plan import NO_GPU, Flag, Plan, ProcessSpec, Role

LAST_PORT = 65535
_WAYS = {
    Mode.SINGLE: workers.single,
    Mode.PS: parameter_server.plan,
    Mode.MWMS: workers.mirrored,
    Mode.MPI: mpi.plan,
    Mode.JAX: workers.jax,
}
_COMPUTES = (Role.SCRIPT, Role.RANK, Role.CHIEF, Role.WORKER, Role.PS, Role.EVALUATOR)
_TRAINS = (Role.RANK, Role.WORKER)


def plan_for(job: Job) -> Plan:
    """Return the full plan of the job, the same on every host. Raise ConfigError if its ports clash."""
    plan = _WAYS[job.mode](job)
    _check_ports(job, plan)
    return _with_readers(job, _divided(job, plan))


def _check_ports(job: Job, plan: Plan) -> None:
    """Raise ConfigError if settings have moved two ports of a host to one number, or a port beyond the last."""
    wanted = [(host.name, "the control channel", host.port(job.settings.control_port)) for host in job.cluster.hosts]
    wanted += [(spec.host, spec.name, port) for spec in plan.processes for port in spec.ports]
    taken: dict[tuple[str, int], str] = {}
    for host, name, port in wanted:
        other = taken.setdefault((host, port), name)
        if other != name or port > LAST_PORT:
            clash = f"and so has {other}" if other != name else f"beyond {LAST_PORT}"
            raise ConfigError(
                f"{name} of {host} has port {port}, {clash}; wanted other values of ENTRYPOINT_CONTROL_PORT, "
                "ENTRYPOINT_PORT_BASE or ENTRYPOINT_PORT_STRIDE"
            )


def _divided(job: Job, plan: Plan) -> Plan:
    """Return the plan with each process's share of its host's CPUs and GPUs."""
    on_host: dict[str, list[ProcessSpec]] = {}
    for spec in plan.processes:
        if spec.role in _COMPUTES:
            on_host.setdefault(spec.host, []).append(spec)
    # TensorFlow's strategies want equally many GPUs for each worker: hosts with fewer workers leave some unused.
    most = max((sum(_trains(job, spec) for spec in rows) for rows in on_host.values()), default=0)
    part = {(spec.host, spec.name): spec for rows in on_host.values() for spec in _shares(job, rows, most)}
    return replace(plan, processes=tuple(part.get((spec.host, spec.name), spec) for spec in plan.processes))


def _shares(job: Job, computing: list[ProcessSpec], most: int) -> list[ProcessSpec]:
    training = [spec.name for spec in computing if _trains(job, spec)]
    sharing = len(training) or sum(spec.role is Role.PS for spec in computing) or len(computing)
    # Horovod's scripts choose a GPU by local rank among all of the host: they must see all of them.
    asked = job.settings.pin_gpus
    pins = asked is When.ALWAYS or (asked is When.AUTO and job.mode is not Mode.MPI)
    rows = []
    for spec in computing:
        gpu_share = spec.gpu_share
        if pins and spec.name in training and most > 1:
            gpu_share = (training.index(spec.name), most)
        elif pins and training and spec.role in (Role.CHIEF, Role.EVALUATOR) and spec.name not in training:
            gpu_share = NO_GPU  # it would take GPU memory from the processes that train here
        rows.append(spec.but(cpu_share=sharing, gpu_share=gpu_share))
    return rows


def _trains(job: Job, spec: ProcessSpec) -> bool:
    """Return whether the process computes gradients all the time.

    A chief does not if TensorFlow servers are the workers.
    """
    if spec.role is Role.CHIEF:
        return job.settings.ps_workers is PsProgram.SCRIPT
    return spec.role in (Role.SCRIPT, Role.RANK, Role.WORKER)


def _with_readers(job: Job, plan: Plan) -> Plan:
    """Return the plan with a reader for each process that trains, and with notes about the channels.

    Scripts that share nothing get no reader: each reads everything. With parameter servers, a chief of TF1 trains; in
    TensorFlow 2 only the workers do.
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
