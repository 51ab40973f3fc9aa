"""Choose the way of distributing a job and make its plan. distributions/ has the ways."""

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.distributions import mpi, parameter_server, parts, workers
from entrypoint.launcher.plan.plan import Plan

LAST_PORT = 65535
_WAYS = {
    Mode.SINGLE: workers.single,
    Mode.PS: parameter_server.plan,
    Mode.MWMS: workers.mirrored,
    Mode.MPI: mpi.plan,
    Mode.JAX: workers.jax,
}


def plan_for(job: Job) -> Plan:
    """Return the full plan of the job, the same on every host. Raise ConfigError if its ports clash."""
    plan = _WAYS[job.mode](job)
    _check_ports(job, plan)
    return parts.with_readers(job, parts.divided(job, plan))


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
