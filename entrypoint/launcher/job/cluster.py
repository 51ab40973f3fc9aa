"""Who takes part in the job, in which order, and which one this host is."""

import ipaddress
from functools import cached_property

from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value


class Part(StrEnum):
    """What a host does in the job, in rank order; all TRAIN, unless instance groups say otherwise."""

    TRAINS = "trains"  # the scripts, workers or ranks of the distribution; parameter servers, if no others SERVE
    SERVES = "serves"  # parameter servers alone
    OUTSIDE = "outside"  # outside the distribution: the script alone


class Host(Value):
    """One host of the job.

    `address` is what others connect to: its name, unless hosts are simulated on one machine.
    `ports_from` is added to every port of the host, for the same case: TensorFlow's servers listen on
    all addresses, so hosts that share a machine cannot share a port.
    """

    name: str
    rank: int
    address: str
    ports_from: int = 0
    part: Part = Part.TRAINS

    @cached_property
    def is_at_number(self) -> bool:
        """Whether its address is one, which nobody has to look up, and no name."""
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            return False
        return True

    def port(self, port: int) -> int:
        return self.ports_from + port

    def at(self, port: int) -> str:
        """Write its address and one of its true ports as programs do: an address of IPv6 stands in brackets."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


class Cluster(Value):
    """All hosts in rank order and this one.

    Rank order is the lexicographic order of names, as SageMaker sorts them, with hosts that train before the others:
    so the coordinator is the host of the chief, of rank 0 and of mpirun, in whichever instance group that is.
    """

    hosts: tuple[Host, ...]
    me: Host
    interface: str | None = None  # network interface to use, None if the named one is absent

    @property
    def coordinator(self) -> Host:
        return self.hosts[0]

    @property
    def followers(self) -> tuple[Host, ...]:
        return self.hosts[1:]

    @property
    def is_coordinator(self) -> bool:
        return self.me.rank == 0

    @property
    def training(self) -> tuple[Host, ...]:
        return self._with(Part.TRAINS)

    @property
    def serving(self) -> tuple[Host, ...]:
        """The hosts of parameter servers."""
        return self._with(Part.SERVES) or self.training

    @property
    def outside(self) -> tuple[Host, ...]:
        return self._with(Part.OUTSIDE)

    def _with(self, part: Part) -> tuple[Host, ...]:
        return tuple(host for host in self.hosts if host.part is part)
