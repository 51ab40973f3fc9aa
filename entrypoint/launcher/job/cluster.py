"""Hold the hosts of the job in rank order, the part of each host, and this host's place among them."""

import ipaddress
from functools import cached_property

from entrypoint.base.python310 import StrEnum
from entrypoint.base.values import Value


class Part(StrEnum):
    """Name a host's part in the job, in rank order. All hosts train, unless instance groups have other parts."""

    TRAINS = "trains"  # runs scripts, workers or ranks; also parameter servers, if no host SERVES
    SERVES = "serves"  # runs parameter servers only
    OUTSIDE = "outside"  # takes no part in the distribution: runs the script alone


class Host(Value):
    """Hold one host of the job.

    `address` is what others connect to: its name, unless hosts are simulated on one machine. `ports_from` is added to
    every port of a simulated host: TensorFlow's servers listen on all addresses, so hosts that share a machine cannot
    share a port.
    """

    name: str
    rank: int
    address: str
    ports_from: int = 0
    part: Part = Part.TRAINS

    @cached_property
    def is_at_number(self) -> bool:
        """Return whether the address is a number, so that no name must be resolved."""
        try:
            ipaddress.ip_address(self.address)
        except ValueError:
            return False
        return True

    def port(self, port: int) -> int:
        return self.ports_from + port

    def at(self, port: int) -> str:
        """Return the address with a true port, as programs write it: an IPv6 address stands in brackets."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"


class Cluster(Value):
    """Hold all hosts in rank order, and this one.

    Rank order is the lexicographic order of names, as SageMaker sorts them, with training hosts before the others. So
    the coordinator is the host of the chief, of rank 0 and of mpirun, whatever its instance group.
    """

    hosts: tuple[Host, ...]
    me: Host
    interface: str | None = None  # network interface to use; None if the named one does not exist

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
        """Return the hosts of parameter servers."""
        return self._with(Part.SERVES) or self.training

    @property
    def outside(self) -> tuple[Host, ...]:
        return self._with(Part.OUTSIDE)

    def is_elsewhere(self, host: Host) -> bool:
        """Return whether `host` is another machine; simulated hosts share one, and differ in their ports."""
        return host.name != self.me.name and host.ports_from == self.me.ports_from

    def _with(self, part: Part) -> tuple[Host, ...]:
        return tuple(host for host in self.hosts if host.part is part)
