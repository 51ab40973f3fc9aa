"""Test the search for other hosts, whose names may not resolve and whose ports answer, refuse, or stay silent."""

import contextlib
import socket
import threading
import time

import pytest

from entrypoint.launcher.control import probe
from entrypoint.launcher.control.probe import look_for
from entrypoint.launcher.job.cluster import Cluster, Host


@pytest.fixture
def cluster():
    """Return four hosts on loopback: this one, a listening one, a silent one, and one with an unknown name."""
    with socket.create_server(("127.61.0.2", 0)) as server:
        port = server.getsockname()[1]
        where = {f"algo-{number}": f"127.61.0.{number}" for number in (1, 2, 3)}
        where["algo-4"] = "no-such-host.invalid"
        hosts = tuple(Host(name=name, rank=rank, address=at) for rank, (name, at) in enumerate(where.items()))
        yield Cluster(hosts=hosts, me=hosts[0]), port


def test_answering_hosts_are_found_and_unreachable_ones_reported(cluster):
    job, port = cluster
    found = {reach.host: reach for reach in look_for(job, ["algo-2", "algo-3", "algo-4"], port)}
    assert found["algo-2"].reached and found["algo-2"].address == "127.61.0.2"
    assert (found["algo-3"].address, found["algo-3"].why) == ("127.61.0.3", f"port {port}: Connection refused")
    assert not found["algo-4"].address and found["algo-4"].why


def test_hosts_are_checked_from_the_launchers_own_address(cluster):
    """Connect from our own address: where hosts share a machine, the other side identifies us by it."""
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


def test_hosts_are_checked_in_parallel_and_silent_ones_delay_no_other(monkeypatch):
    monkeypatch.setattr(probe, "PATIENCE_SECONDS", 2.0)
    hosts = tuple(Host(name=f"algo-{n}", rank=n, address=f"127.61.1.{n}") for n in range(1, 2 * probe.AT_ONCE))
    silent = [hosts[5].address, hosts[100].address]
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.61.1.1", 0), backlog=200))
        port = server.getsockname()[1]
        for host in hosts[1:]:
            of_it = stack.enter_context(socket.create_server((host.address, port), backlog=0))
            if host.address in silent:  # a full queue: the kernel drops what comes
                for _ in range(3):
                    full = stack.enter_context(socket.socket())
                    full.setblocking(False)
                    full.connect_ex(of_it.getsockname())
        began = time.monotonic()
        found = look_for(Cluster(hosts=hosts, me=hosts[0]), [host.name for host in hosts], port)
        assert time.monotonic() < began + 60  # the kernel would wait for 127 s
    assert [reach.host for reach in found] == [host.name for host in hosts]
    assert {reach.address: reach.why for reach in found if not reach.reached} == dict.fromkeys(
        silent, f"port {port} does not answer within 2 s"
    )


def test_second_connection_is_opened_before_the_kernel_resends_a_packet(cluster):
    """The launcher opens another connection; the kernel would send the packet again only after 1 s."""
    job, port = cluster
    took = [seconds_with_a_lost_word(job, port)]
    while took[-1] >= 0.9 and len(took) < 10:  # the best counts: a busy machine adds time and takes none away
        took.append(seconds_with_a_lost_word(job, port))
    assert 0.1 < took[-1] < 0.9, took


def seconds_with_a_lost_word(job: Cluster, port: int) -> float:
    """Return how many seconds the search takes for a host that accepts connections only after 0.1 s."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.61.0.3", port), backlog=0))
        for _ in range(3):  # a full queue: the kernel drops what comes
            full = stack.enter_context(socket.socket())
            full.setblocking(False)
            full.connect_ex(server.getsockname())

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].close()

        later = threading.Timer(0.1, accept)
        later.daemon = True
        began = time.monotonic()
        later.start()
        (found,) = look_for(job, ["algo-3"], port)
        assert found.reached
        return time.monotonic() - began
