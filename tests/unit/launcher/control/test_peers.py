"""Test client.py and peers.py on loopback: messages arrive, and odd answers do no harm."""

import contextlib
import itertools
import json
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest
from ports import unused_port
from waiting import eventually

from entrypoint.launcher.control import client
from entrypoint.launcher.control.access import BURST, PAID_BY_BYTES
from entrypoint.launcher.control.client import Unreachable, post
from entrypoint.launcher.control.handlers import Control
from entrypoint.launcher.control.host_names import HostNames
from entrypoint.launcher.control.links import LONGEST_BYTES, Links, messages
from entrypoint.launcher.control.peers import Peers
from entrypoint.launcher.control.server import ControlServer
from entrypoint.launcher.control.wire import to_json
from entrypoint.launcher.host.resource_limits import Shortage
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.policy.events import Answered, Event, Informed, LinkEnded, News, Report, Reported, Unreached

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


class Answering:
    """A server that accepts one connection after another and sends these blocks over each, with pauses between them."""

    def __init__(self, *blocks: bytes, pause: float = 0.0, host: str = "127.0.0.1", port: int = 0) -> None:
        self.asked: list[bytes] = []
        self.socket = socket.create_server((host, port))
        self.address = self.socket.getsockname()
        self._blocks, self._pause = blocks, pause
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for a call
        self.socket.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                with connection, contextlib.suppress(OSError):
                    self.asked.append(connection.recv(1 << 16))
                    for block in self._blocks:
                        connection.sendall(block)
                        time.sleep(self._pause)


def ask(address: tuple[str, int], *words, **named):
    return post([address[0]], address[1], *words, **named)


def test_post_returns_answer_with_its_times():
    server = Answering(ANSWER[:20], ANSWER[20:], pause=0.01)
    answer = ask(server.address, "/news", b'{"a": 1}', 20, headers="X-Token: t\r\n")
    assert (answer.status, answer.body) == (200, b"{}")
    assert answer.asked < answer.received
    assert server.asked[0].startswith(b"POST /news HTTP/1.1\r\n")
    assert b"\r\nContent-Length: 8\r\n" in server.asked[0] and b"\r\nX-Token: t\r\n\r\n" in server.asked[0]


@pytest.mark.parametrize(
    "blocks", [(), (b"",), (b"hello\r\n\r\n",), (b"HTTP/1.1 200 OK\r\n",), (b"HTTP/1.1 x\r\n\r\n",)]
)
def test_malformed_answer_raises_connection_error(blocks):
    with pytest.raises(ConnectionError):
        ask(Answering(*blocks).address, "/news", b"{}", 20)


def test_endless_answer_raises_timeout_error():
    server = Answering(*[b"x"] * 10_000, pause=0.01)
    with pytest.raises(TimeoutError):
        ask(server.address, "/news", b"{}", 0.3)
    endless = Answering(*[b"x" * (1 << 20)] * 100)
    with pytest.raises(TimeoutError):
        ask(endless.address, "/news", b"{}", 60)


RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing resets the connection


def reset(connection: socket.socket) -> None:
    """Close a connection as the kernel does for a process that is killed before it has read everything."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def pair(server_address: str = "127.0.0.1", source: str = "") -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection: ours, and the one that a server has accepted."""
    with socket.create_server((server_address, 0)) as server:
        end = socket.create_connection(server.getsockname(), 20, (source, 0) if source else None)
        return end, server.accept()[0]


def linked():
    """Return a net, its coordinator, a follower's host and the follower's end of a link. No follower runs."""
    net = Net(2)
    coordinator, follower = net.peers(0), net.hosts[1]
    link, taken = pair(net.hosts[0].address, follower.address)
    coordinator._links.keep("algo-2", taken, bytes)
    return net, coordinator, follower, link


def test_host_killed_during_its_check_is_unreachable(monkeypatch):
    """Its kernel closes one socket after another. Connections accepted before the listener closes are reset."""
    monkeypatch.setattr("entrypoint.launcher.control.peers.KNOCK_SECONDS", 60.0)
    net, coordinator, follower, link = linked()
    taken, connected = threading.Event(), client.connected

    def connects(*where):
        connection = connected(*where)
        taken.set()
        return connection

    monkeypatch.setattr(client, "connected", connects)
    with link, socket.create_server((follower.address, follower.port(net.settings.control_port))) as server:
        coordinator.knock("algo-2")
        assert taken.wait(60)  # by the kernel, and who knocks knows it
        server.close()
        eventually(lambda: Unreached(host="algo-2") in net.heard["algo-1"], within=60)


@pytest.mark.parametrize("is_there", [True, False])
def test_host_without_link_is_checked_by_new_connection(is_there):
    """A launcher may be busy, or have no thread left for a link. Its kernel still accepts connections."""
    net, coordinator, follower, link = linked()
    with link, socket.create_server((follower.address, follower.port(net.settings.control_port))) as server:
        if not is_there:
            server.close()
        coordinator.knock("algo-2")
        eventually(lambda: "knock" not in {thread.name for thread in threading.enumerate()}, within=60)
    assert (Unreached(host="algo-2") in net.heard["algo-1"]) is not is_there


class Net:
    """Hosts of one job on loopback addresses. `peers` makes one of them listen."""

    def __init__(self, count: int) -> None:
        net, port = f"127.{random.randint(16, 250)}.{random.randint(1, 250)}", random.randint(20_000, 30_000)
        self.hosts = tuple(Host(name=f"algo-{n + 1}", rank=n, address=f"{net}.{n + 1}") for n in range(count))
        self.settings = Settings(control_port=port, heartbeat=60, peer_timeout=300)
        self.heard: dict[str, list] = {host.name: [] for host in self.hosts}

    def peers(self, number: int) -> Peers:
        me = self.hosts[number]
        return Peers(Cluster(hosts=self.hosts, me=me), self.settings, self.heard[me.name].append, dict, print)


def heard_of(net: "Net", host: str) -> list[News]:
    return [event.news for event in net.heard[host] if isinstance(event, Informed)]


def test_last_news_reach_all_present_hosts():
    """Most hosts are absent. Older news may arrive after the last news, or not at all."""
    net = Net(250)
    coordinator, there = net.peers(0), range(1, 12)
    followers = [net.peers(number) for number in there]
    for number, follower in zip(there, followers, strict=True):
        follower.report(Report(host=net.hosts[number].name))
    eventually(lambda: all(heard_of(net, net.hosts[number].name) for number in there), within=60)
    for poll in range(1, 20):
        coordinator.announce(News(poll=poll))
    eventually(lambda: all(News(poll=19) in heard_of(net, net.hosts[number].name) for number in there), within=60)


@pytest.mark.parametrize("delay", [step / 10_000 for step in range(12)])
def test_news_sent_during_a_first_report_arrive_at_once(delay):
    """The next heartbeat is a minute away, so news from before the link exists must be sent over the link."""
    net = Net(2)

    def put(event) -> None:
        if isinstance(event, Reported) and said.ident is None:
            said.start()

    def say() -> None:
        time.sleep(delay)
        coordinator.announce(News(poll=1))

    said = threading.Thread(target=say)
    coordinator = Peers(Cluster(hosts=net.hosts, me=net.hosts[0]), net.settings, put, dict, print)
    net.peers(1).report(Report(host="algo-2"))
    eventually(lambda: News(poll=1) in heard_of(net, "algo-2"), within=60)


@contextlib.contextmanager
def silent_port():
    """Return a port of 127.0.0.9 that never answers: its backlog is full, and the kernel drops further connections."""
    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.socket())
        server.bind(("127.0.0.9", 0))
        server.listen(0)
        for _ in range(4):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with socket.socket() as one_more:
            one_more.settimeout(0.5)
            with pytest.raises(TimeoutError):
                one_more.connect(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize("others", [["127.0.0.9"], ["127.0.0.8", "127.0.0.9"], ["2001:db8::1", "127.0.0.9"]])
def test_post_uses_the_address_that_works(others):
    """No address that is silent, refuses or is unreachable delays the connection by its whole timeout."""
    with silent_port() as port, socket.create_server(("127.0.0.1", port)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.sendall(ANSWER)

        threading.Thread(target=serve, daemon=True).start()
        answer = post([*others, "127.0.0.1"], port, "/news", b"{}", 20)
        assert (answer.status, answer.address) == (200, "127.0.0.1")


def test_host_without_working_address_is_unreachable():
    with silent_port() as port, pytest.raises(Unreachable):
        post(["127.0.0.8", "127.0.0.9"], port, "/news", b"{}", 20)


def test_moved_host_is_called_at_its_new_address(monkeypatch):
    where, real = {"n2": "127.0.0.1"}, socket.getaddrinfo
    monkeypatch.setattr(
        "entrypoint.launcher.control.host_names.socket.getaddrinfo",
        lambda name, *words, **named: real(where.get(name, name), *words, **named),
    )
    me, other = Host(name="algo-1", rank=0, address="127.0.0.1"), Host(name="algo-2", rank=1, address="n2")
    server = Answering(ANSWER, port=unused_port())
    call = client.Calls(Cluster(hosts=(me, other), me=me), Settings(control_port=server.address[1]))
    assert call(other, "/news", b"{}", timeout=20).status == 200
    server.close()
    where["n2"] = "127.0.0.2"
    moved = Answering(ANSWER, host="127.0.0.2", port=server.address[1])

    def reached() -> bool:
        with contextlib.suppress(Unreachable):
            return call(other, "/news", b"{}", timeout=20).status == 200
        return False

    eventually(reached, within=60)
    moved.close()


def follower_of(port: int, put: Callable[[Event], object], count: int = 2, **settings) -> Peers:
    """Return a follower that reports to a stand-in for the coordinator at this port."""
    hosts = tuple(Host(name=f"algo-{n + 1}", rank=n, address=f"127.0.0.{1 + (n == 1)}") for n in range(count))
    given = {"heartbeat": 60, "peer_timeout": 300, **settings}
    follower = Peers(Cluster(hosts=hosts, me=hosts[1]), Settings(control_port=port, **given), put, dict, print)
    follower.report(Report(host="algo-2"))
    return follower


def kept(body: bytes) -> bytes:
    """Return an answer that keeps the connection open."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: keep-alive\r\n\r\n%b" % (len(body), body)


def report_in_json(host: str) -> bytes:
    return json.dumps(to_json(Report(host=host))).encode()


def news_in_json(**facts) -> bytes:
    return json.dumps(to_json(News(**facts))).encode()


def test_coordinator_gets_report_and_follower_gets_answer():
    net = Net(2)
    net.peers(0)
    follower, report = net.peers(1), Report(host="algo-2", done=True)
    follower.report(report)

    def answers() -> list[Informed]:  # others are news, and before, it may say that there was no connection yet
        return [each for each in net.heard["algo-2"] if isinstance(each, Informed) and each.offset is not None]

    event, *_ = eventually(answers, within=60)
    assert net.heard["algo-1"][0] == Reported(report=report)
    assert event.news == News() and abs(event.offset) < 60  # one clock, here


class Link:
    """A link: the coordinator's `links`, their events (`heard`), and the follower's end."""

    def __init__(self) -> None:
        self.heard: list = []
        self.links = Links(self.heard.append)
        self.ends: list[socket.socket] = []
        self.end = self.another()

    def another(self) -> socket.socket:
        end, taken = pair()
        self.links.keep("algo-2", taken, lambda report: report.upper() if report != b"bad" else b"")
        self.ends.append(end)
        return end


@pytest.fixture
def link():
    made = Link()
    yield made
    for end in made.ends:
        end.close()


@pytest.mark.parametrize("end", [socket.socket.close, reset])
def test_link_carries_news_and_its_end_is_an_event(link, end):
    assert link.links.send("algo-2", b"news")
    assert next(messages(link.end, b"")) == b"news"
    assert not link.heard and not link.links.send("algo-3", b"news")
    end(link.end)
    eventually(lambda: link.heard == [LinkEnded(host="algo-2")], within=60)
    assert not link.links.send("algo-2", b"news")


def test_connection_reset_before_becoming_a_link_is_an_event():
    heard = []
    end, taken = pair()
    reset(end)
    select.select([taken], [], [], 60)
    with pytest.raises(OSError):
        taken.getpeername()
    Links(heard.append).keep("algo-2", taken, bytes)
    eventually(lambda: heard == [LinkEnded(host="algo-2")], within=60)


def test_failed_answer_over_closed_link_is_an_event():
    """A launcher may be killed after its report, while the report is answered."""
    heard = []
    end, taken = pair()

    def answer(report: bytes) -> bytes:
        reset(end)
        return report

    Links(heard.append).keep("algo-2", taken, answer)
    end.sendall(b"a\n")
    eventually(lambda: heard == [LinkEnded(host="algo-2")], within=60)


def test_new_link_of_a_host_replaces_the_old_link(link):
    new = link.another()
    assert not list(messages(link.end, b""))  # it is closed
    assert link.links.send("algo-2", b"news")
    assert next(messages(new, b"")) == b"news"
    new.close()
    eventually(lambda: link.heard == [LinkEnded(host="algo-2")], within=60)


def test_link_answers_reports_in_order_until_one_is_refused(link):
    for part in (b"a\nb\nc", b"d", b"\n", b"e\nbad\nf\n"):
        link.end.sendall(part)
    assert list(messages(link.end, b"")) == [b"A", b"B", b"CD", b"E"]
    assert not link.links.send("algo-2", b"news")
    assert not link.heard  # it has not hung up on us


def test_endless_report_closes_the_link(link):
    with contextlib.suppress(OSError):
        while True:
            link.end.sendall(b"x" * (1 << 16))
    eventually(lambda: not link.links.send("algo-2", b"news"), within=60)
    assert not link.heard


def test_host_that_does_not_read_blocks_no_sender(link):
    """The host gets whole messages, and then the end of its link."""
    assert not link.links.send("algo-2", b"x" * (LONGEST_BYTES + 1))
    told = [b"%d" % number * (LONGEST_BYTES // 8) for number in range(100)]
    taken = sum(link.links.send("algo-2", message) for message in told)
    assert 0 < taken < 100
    heard = list(messages(link.end, b""))
    assert heard == told[: len(heard)] and len(heard) <= taken


@contextlib.contextmanager
def by_hand(net: "Net", report: bytes):
    """Send a first report, and yield its answer, whose connection stays open."""

    def asked():
        with contextlib.suppress(OSError):  # it is not open yet
            where = (net.hosts[0].address, net.settings.control_port)
            return ask(where, "/report", report, 20, source=net.hosts[1].address, stay=True)

    answer = eventually(asked, within=60)
    with answer.link:
        answer.link.settimeout(20)
        yield answer


def test_link_accepts_reports_of_its_own_host_only():
    net = Net(3)
    coordinator = net.peers(0)
    own, others = (report_in_json(host.name) for host in net.hosts[1:])
    with by_hand(net, own) as answer:
        heard = messages(answer.link, answer.rest)
        answer.link.sendall(own + b"\n")
        assert next(message for message in heard if "clock" in json.loads(message))  # others are news
        reports = [Reported(report=Report(host="algo-2"))] * 2
        assert net.heard["algo-1"] == reports
        answer.link.sendall(others + b"\n" + own + b"\n")
        assert not list(heard)
        assert net.heard["algo-1"][:2] == reports and Reported(report=Report(host="algo-3")) not in net.heard["algo-1"]
    del coordinator


def test_rate_of_reports_over_a_link_is_limited():
    net = Net(2)
    coordinator = net.peers(0)
    own = report_in_json("algo-2")
    with by_hand(net, own) as answer:
        with contextlib.suppress(OSError):
            answer.link.sendall((own + b"\n") * 5000)
        with contextlib.suppress(OSError):
            list(messages(answer.link, answer.rest))
    at_once = BURST / (1 + len(own) / PAID_BY_BYTES)
    assert at_once - 1 <= net.heard["algo-1"].count(Reported(report=Report(host="algo-2"))) < 5000
    del coordinator


def test_follower_sends_later_reports_over_its_link():
    """Here, the coordinator accepts no second connection."""
    first, answer = threading.Event(), news_in_json()[:-1] + b', "clock": 5.0}'
    reports, heard = list[bytes](), list[Event]()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        server.close()
        with connection:
            while not connection.recv(1 << 16).endswith(b"}"):
                pass
            connection.sendall(kept(answer))
            first.set()
            for line in connection.makefile("rb"):
                reports.append(line)
                connection.sendall(answer + b"\n")

    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(server,), daemon=True).start()
    follower = follower_of(server.getsockname()[1], heard.append)
    assert first.wait(60)
    for ready in ("a", "b", "c"):
        follower.report(Report(host="algo-2", ready=frozenset({ready})))
        follower.flush(within=60)
    assert [json.loads(line)["ready"] for line in reports] == [["a"], ["b"], ["c"]]
    answers = [event for event in heard if isinstance(event, Informed)]
    assert len(answers) == 4 and answers[-1].offset is not None


def test_refusal_of_unknown_address_counts_as_answer():
    """The follower's name does not resolve on the coordinator, perhaps only for a moment."""
    net = Net(2)
    elsewhere = (net.hosts[0], Host(name="algo-2", rank=1, address=net.hosts[1].address[:-1] + "9"))
    there = Cluster(hosts=elsewhere, me=elsewhere[0])
    control = Control(there, HostNames(there), "", print, dict, lambda: b"{}")
    door = ControlServer(control, Shortage(print), elsewhere[0].address, net.settings.control_port)
    threading.Thread(target=door.run, daemon=True).start()
    net.peers(1).report(Report(host="algo-2"))
    eventually(lambda: net.heard["algo-2"].count(Answered(host="algo-1")) > 1, within=60)


@pytest.mark.parametrize(("count", "least", "most"), [(2, 0.05, 0.3), (1000, 0.5, 1.0)])
def test_followers_of_a_large_job_retry_more_slowly(count, least, most):
    """The shortest gap counts: a busy machine makes gaps longer, and none shorter."""
    times = []

    def put(event: Event) -> None:
        if isinstance(event, Unreached):
            times.append(time.monotonic())

    follower_of(unused_port(), put, count, heartbeat=1, peer_timeout=5)

    def least_gap() -> float:
        return min(later - sooner for sooner, later in itertools.pairwise(times[5:]))

    eventually(lambda: len(times) >= 9 and least_gap() <= most, within=60)
    assert least_gap() >= least


def test_follower_repeats_report_if_its_answer_is_lost():
    """The network may be down for a second. A coordinator that cannot deliver its answer closes the connection."""
    patience, times = 12.0, []
    with contextlib.ExitStack() as held:
        server = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        server.settimeout(60)
        follower_of(server.getsockname()[1], [].append, heartbeat=0.2, peer_timeout=patience)
        while len(times) < 2:
            connection = held.enter_context(server.accept()[0])
            if connection.recv(1 << 16).startswith(b"POST /report"):
                times.append(time.monotonic())
    assert times[1] - times[0] < patience


def test_end_of_link_makes_follower_report_at_once():
    """The follower does not wait for its next heartbeat, which is a minute away."""
    server, heard = Answering(kept(news_in_json()), news_in_json(poll=3) + b"\n"), list[Event]()
    follower_of(server.address[1], heard.append)
    eventually(lambda: LinkEnded(host="algo-1") in heard and len(server.asked) >= 2, within=60)
    assert Informed(news=News(poll=3)) in heard
    assert b"keep-alive" in server.asked[0] and b"keep-alive" not in server.asked[1]  # not as fast as it can


def test_failed_report_over_closed_link_is_an_event(monkeypatch):
    """On a busy machine the reading thread runs late. Without the event, only missing heartbeats would show the end."""
    reads, asked = threading.Event(), threading.Event()

    def late(connection: socket.socket, said: bytes):
        reads.wait(60)
        yield from messages(connection, said)

    def serve() -> None:
        connection, _ = server.accept()
        connection.recv(1 << 16)
        connection.sendall(kept(news_in_json()))
        assert asked.wait(60)
        server.close()
        reset(connection)
        follower.report(Report(host="algo-2", ready=frozenset({"a"})))
        eventually(lambda: follower._asked, within=60)
        time.sleep(0.5)  # in which the report fails; if that takes longer, the order is the usual one
        reads.set()

    monkeypatch.setattr("entrypoint.launcher.control.peers.messages", late)
    server = socket.create_server(("127.0.0.1", 0))
    heard = list[Event]()
    threading.Thread(target=serve, daemon=True).start()
    follower = follower_of(server.getsockname()[1], heard.append)
    eventually(lambda: any(isinstance(event, Informed) for event in heard), within=60)
    asked.set()
    eventually(lambda: LinkEnded(host="algo-1") in heard, within=60)
    eventually(lambda: Unreached(host="algo-1") in heard[heard.index(LinkEnded(host="algo-1")) :], within=60)


@pytest.mark.parametrize("hosts, heartbeat, timeout", [(1, 1, 5), (250, 1, 5), (300, 1.2, 5), (1000, 4, 12)])
def test_hosts_of_a_large_job_have_slower_heartbeats(hosts, heartbeat, timeout):
    paced = Settings().paced(hosts)
    assert (paced.heartbeat, paced.peer_timeout) == (heartbeat, timeout)
    patient = Settings(heartbeat=5, peer_timeout=60)
    assert patient.paced(hosts) == patient
