"""Looking for other hosts: names that resolve and that do not, ports that answer, refuse, or stay silent."""

import socket
import threading

import pytest

from entrypoint.control.probe import look_for
from entrypoint.job.cluster import Cluster, Host


@pytest.fixture
def cluster():
    """me, a host that listens, one that does not, and one whose name nobody knows; all on loopback."""
    with socket.create_server(("127.61.0.2", 0)) as server:
        port = server.getsockname()[1]
        where = {f"algo-{number}": f"127.61.0.{number}" for number in (1, 2, 3)}
        where["algo-4"] = "no-such-host.invalid"
        hosts = tuple(Host(name=name, rank=rank, address=at) for rank, (name, at) in enumerate(where.items()))
        yield Cluster(hosts=hosts, me=hosts[0]), port


def test_hosts_are_found_or_not(cluster):
    job, port = cluster
    found = {reach.host: reach for reach in look_for(job, ["algo-2", "algo-3", "algo-4"], port)}
    assert found["algo-2"].reached and found["algo-2"].address == "127.61.0.2"
    assert (found["algo-3"].address, found["algo-3"].why) == ("127.61.0.3", f"port {port}: Connection refused")
    assert not found["algo-4"].address and found["algo-4"].why


def test_the_host_sees_who_looks_for_it(cluster):
    """From our own address: where hosts share a machine, the other side knows us by it."""
    job, port = cluster
    callers = []
    listener = socket.create_server(("127.61.0.3", port))

    def accept() -> None:
        connection, address = listener.accept()
        connection.close()
        callers.append(address[0])

    with listener:
        thread = threading.Thread(target=accept)
        thread.start()
        look_for(job, ["algo-3"], port)
        thread.join(10)
    assert callers == ["127.61.0.1"]
