"""Exempt the job's hosts, this host and AWS's services on a host from the environment's proxy.

A proxy of the job's environment leads out of a VPC. TensorFlow's gRPC would use it for other hosts, too, and wait for
ever. gRPC reads its variables in small letters only, prefers `no_grpc_proxy`, and takes each entry as the end of a name
or of an address (IPv6 without brackets), and `*` for a name. The gRPC of TensorFlow 2.14 takes blanks for a part of an
entry and does not know networks; that of 2.21 does. So the variables get whole names and addresses.
"""

import contextlib
import socket
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from urllib.parse import urlsplit

from entrypoint.launcher.job.cluster import Cluster

NAMES = ("no_proxy", "NO_PROXY")
OF_GRPC = "no_grpc_proxy"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Of an EC2 instance's metadata, and of a container's credentials. The variables below may name other places.
AWS = ("169.254.169.254", "169.254.170.2")
AWS_AT = ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_EC2_METADATA_SERVICE_ENDPOINT")
LONGEST_BYTES = 1 << 16  # bytes of addresses that are added to the names, well below what Linux passes to a program


def exempt(cluster: Cluster, environment: MutableMapping[str, str]) -> list[str]:
    """Exempt the job's hosts from the environment's proxy, if it has one. Return lines for the log."""
    found = proxies_in(environment)
    if found:
        environment.update(spared(environment, names_of(cluster, environment)))
    return [describe(found, len(cluster.hosts))] if found else []


def describe(found: Sequence[str], hosts: int) -> str:
    """Return the line for the log."""
    whose = "the job's host" if hosts == 1 else f"the {hosts} hosts of the job"
    return (
        f"{', '.join(found)} {'name' if len(found) > 1 else 'names'} a proxy, which no program may use for {whose}, "
        f"loopback and {', '.join(AWS)}: these are added to no_proxy and NO_PROXY (ENTRYPOINT_NO_PROXY=off prevents it)"
    )


def proxies_in(environment: Mapping[str, str]) -> list[str]:
    """Return the variables that name a proxy. Their values may hold a password."""
    return [name for each in PROXIES for name in (each, each.upper()) if environment.get(name)]


def spared(environment: Mapping[str, str], more: Iterable[str]) -> dict[str, str]:
    """Return the variables that exempt from proxies: the environment's own entries in either spelling, and `more`.

    `*`, for everything, must stand alone for programs to read it; gRPC gets the names in a variable of its own.
    """
    given = [entry for name in NAMES for entry in _entries(environment.get(name, ""))]
    whole = list(dict.fromkeys([*given, *more]))
    variables = dict.fromkeys(NAMES, "*" if "*" in given else ",".join(whole))
    if OF_GRPC in environment or "*" in given:
        of_grpc = [*_entries(environment.get(OF_GRPC, "")), *whole]
        variables[OF_GRPC] = ",".join(entry for entry in dict.fromkeys(of_grpc) if entry != "*")
    return variables


def names_of(cluster: Cluster, environment: Mapping[str, str]) -> list[str]:
    """Return the names known from the beginning: the hosts' names, the loopback, and AWS's services on this host."""
    hosts = [name for host in cluster.hosts for name in (host.name, host.address)]
    ours = [_host_in(environment.get(variable, "")) for variable in AWS_AT]
    return list(dict.fromkeys([*hosts, *LOOPBACK, *AWS, *filter(None, ours)]))


def addresses_with(found: Iterable[str]) -> list[str]:
    """Return the addresses of other hosts, and our own address by which the kernel would reach them."""
    addresses = list(dict.fromkeys(address.partition("%")[0] for address in found if address))
    own = dict.fromkeys(address for each in addresses[:1] if (address := _ours_towards(each)))
    known, size = list[str](), 0
    for address in (*own, *addresses):
        size += len(address) + 1
        if size <= LONGEST_BYTES:
            known.append(address)
    return known


def _host_in(url: str) -> str:
    with contextlib.suppress(ValueError):
        return urlsplit(url).hostname or ""
    return ""


def _ours_towards(address: str) -> str:
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as to,
    ):
        to.connect((address, 9))  # this sends nothing
        return str(to.getsockname()[0])
    return ""


def _entries(text: str) -> list[str]:
    return [entry for entry in (word.strip() for word in text.split(",")) if entry]
