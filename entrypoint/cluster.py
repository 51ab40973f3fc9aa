"""Who takes part in the job, in which order, and which one this host is."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Host:
    """One host of the job.

    `address` is what others connect to: its name, unless hosts are simulated on one machine.
    `ports_from` is added to every port of the host, for the same case: TensorFlow's servers listen on
    all addresses, so hosts that share a machine cannot share a port.
    """

    name: str
    rank: int
    address: str
    ports_from: int = 0

    def port(self, port: int) -> int:
        return self.ports_from + port


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """All hosts in rank order (lexicographic order of names, as SageMaker sorts them) and this one."""

    hosts: tuple[Host, ...]
    me: Host
    interface: str | None = field(default=None)  # network interface to use, None if the named one is absent

    @property
    def coordinator(self) -> Host:
        return self.hosts[0]

    @property
    def followers(self) -> tuple[Host, ...]:
        return self.hosts[1:]

    @property
    def is_coordinator(self) -> bool:
        return self.me.rank == 0
