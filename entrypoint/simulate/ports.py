"""Choose ports and addresses for hosts that share this machine with one another and with other runs.

TensorFlow's servers listen on all addresses, so every host needs ports of its own. A run adds one number, the base, to
all its ports, and a stride times the rank to each host's.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence

from entrypoint.base.errors import ConfigError
from entrypoint.launcher.job.job import Job
from entrypoint.launcher.plan.plan import Plan
from entrypoint.simulate.local_python import allow_files

LOWEST, HIGHEST = 10_000, 65_535  # lower ports are often in use by services
_STEP = 61  # distance between two bases that are tried


def ports_by_host(job: Job, plan: Plan) -> list[list[int]]:
    """Return the ports that each host of the plan listens on, hosts in rank order."""
    control = job.settings.control_port
    return [
        [host.port(control), *(port for spec in plan.on(host.name) for port in spec.ports)]
        for host in job.cluster.hosts
    ]


def stride(ports: Sequence[Sequence[int]]) -> int:
    """Return the least stride that keeps the ports of all hosts apart."""
    for wanted in range(1, 5001):
        moved = [port + rank * wanted for rank, own in enumerate(ports) for port in own]
        if len(set(moved)) == len(moved):
            return wanted
    raise ConfigError("too few free ports for so many processes on so many simulated hosts; wanted fewer")


@contextlib.contextmanager
def reserved(ports: Sequence[int]) -> Iterator[int]:
    """Yield a base with which all `ports` are free, and reserve them against other runs until the end.

    Low bases come first: by default, the kernel may give any port of the upper half to an outgoing connection.
    """
    allow_files(len(ports))
    for base in range(max(0, LOWEST - min(ports)), HIGHEST + 1 - max(ports), _STEP):
        with contextlib.ExitStack() as held:
            if all(_take(port + base, held) for port in ports):
                yield base
                return
    raise ConfigError(f"no {len(ports)} free ports between {LOWEST} and {HIGHEST}; are other local jobs running?")


def _take(port: int, held: contextlib.ExitStack) -> bool:
    """Reserve a port against other runs by an abstract socket, which ends with us; return whether the port is free."""
    name = held.enter_context(socket.socket(socket.AF_UNIX))
    probe = socket.socket()
    with probe, contextlib.suppress(OSError):
        name.bind(f"\0sagemaker-tf-entrypoint port {port}")
        probe.bind(("0.0.0.0", port))
        return True
    return False


def addresses(names: Sequence[str], control_port: int, stride: int) -> Mapping[str, str]:
    """Make a loopback address for each host from its control port, which no other run on this machine has."""
    moved = {name: control_port + rank * stride for rank, name in enumerate(names)}
    return {name: f"127.{port >> 8}.{port & 255}.1" for name, port in moved.items()}
