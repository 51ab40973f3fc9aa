"""Test which connections of a job are found in the kernel's list."""

import json
import os
import socket
from collections import Counter

import pytest
from builders import read
from waiting import eventually

from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.observe.monitor.sampling import Sampling
from entrypoint.observe.monitor.traffic import Exchange

HOSTS = tuple(Host(name=f"algo-{rank + 1}", rank=rank, address=f"127.45.0.{rank + 1}") for rank in range(3))


@pytest.fixture
def connected():
    """Return a connection from algo-1's address to algo-2's."""
    with socket.create_server((HOSTS[1].address, 0)) as server:
        ours = socket.create_connection(server.getsockname(), source_address=(HOSTS[0].address, 0))
        theirs, _ = server.accept()
        with ours, theirs:
            yield ours, theirs


def send(sender: socket.socket, receiver: socket.socket, count: int) -> None:
    sender.sendall(bytes(count))
    while count:
        count -= len(receiver.recv(count))


def test_bytes_exchanged_with_each_host_are_counted(connected):
    ours, theirs = connected
    exchange = Exchange(Cluster(hosts=HOSTS, me=HOSTS[0]))
    eventually(lambda: len(exchange.host_at) == 2, within=60)
    exchange.look([os.getpid()])
    received = sent = 0
    send(theirs, ours, 123_456)
    send(ours, theirs, 700)

    def seen():
        nonlocal received, sent
        more = exchange.look([os.getpid()]).get("algo-2", [0, 0])
        received, sent = received + more[0], sent + more[1]
        # The kernel counts the opening of a connection as a byte; what was sent counts once it is confirmed.
        return received in (123_456, 123_457) and sent in (700, 701)

    eventually(seen, within=60)
    assert exchange.look([os.getpid()]) == {}, "nothing since"
    send(theirs, ours, 1000)
    assert exchange.look([]) == {}, "of no process of the job"


def test_connections_between_two_samples_are_noticed(monkeypatch):
    monkeypatch.setattr("entrypoint.observe.monitor.traffic.EVERY_SECONDS", 0.0)
    with socket.create_server((HOSTS[1].address, 0)) as server, socket.create_server((HOSTS[1].address, 0)) as control:
        ours = (control.getsockname()[1],)
        exchange = Exchange(Cluster(hosts=HOSTS, me=HOSTS[0]), ours)
        eventually(lambda: len(exchange.host_at) == 2, within=60)

        def look() -> bool:
            exchange.look([os.getpid()])
            return exchange.is_blind

        def connect(to: socket.socket, looks: bool = False) -> None:
            client = socket.create_connection(to.getsockname(), source_address=(HOSTS[0].address, 0))
            accepted, _ = to.accept()
            assert not (looks and look())
            client.close()
            accepted.close()

        assert not look()
        connect(server)
        assert eventually(look, within=60) and not look()
        connect(server, looks=True)
        assert not look(), "one that a look has seen is counted"
        connect(control)
        assert not look(), "the launcher's own"


def test_traffic_of_mpirun_does_not_count_as_training(connected, tmp_path):
    """Open MPI sends all output of ranks to the coordinator. The monitor once took these bytes for gradients."""
    ours, theirs = connected
    addresses = {host.name: host.address for host in HOSTS[:2]}
    sampling = Sampling(read(tmp_path, 2, environment={"ENTRYPOINT_HOST_ADDRESSES": json.dumps(addresses)}))
    running = {"mpirun": os.getpid()}
    eventually(lambda: len(sampling.exchange.host_at) == 1, within=60)
    send(theirs, ours, 5000)
    assert sampling.look(running, [], Counter()).peers == {}
    send(theirs, ours, 5000)
    seen = eventually(lambda: sampling.look(running, ["mpirun"], Counter()).peers, within=60)
    assert seen["algo-2"][0] >= 5000
