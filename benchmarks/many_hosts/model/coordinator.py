"""The coordinator: one core, on which its server, the reader of its links, its loop and its probes take turns.

As control/server.py, control/links.py, supervisor.py and control/probe.py do it; every decision is the policy's.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.many_hosts.model.core import Core, Thread
from benchmarks.many_hosts.model.network import CONFIRMED_WITHIN, RTO_MIN
from entrypoint.launcher.control import probe, server
from entrypoint.launcher.policy import events

if TYPE_CHECKING:
    from benchmarks.many_hosts.model.follower import Follower
    from benchmarks.many_hosts.model.job import World

OPENS = 0.05  # seconds until its server listens, which is imported beside the first process
BASE = 40  # file descriptors that it has open for itself
HEARD = (events.Reported, events.LinkEnded)  # events that the loop takes together, as host/inbox.py has it


@dataclass(eq=False, slots=True)
class Link:
    """A connection that stays. Either end may not know yet that it is over."""

    follower: "Follower"
    up_clear: float = 0.0  # when what was said before has arrived: later words wait for it
    down_clear: float = 0.0


@dataclass(eq=False, slots=True)
class Connection:
    """A new one, until it is closed or kept."""

    follower: "Follower"
    what: str  # "report", "record" or "probe"
    stay: bool = False
    report: events.Report | None = None
    size: int = 0  # bytes
    came: float | None = None  # when what it says was there
    is_there: bool = False  # in the kernel, as a whole connection
    taken: bool = False
    given_up: bool = False  # by the follower
    answered: Callable[..., None] | None = None


class Server(Thread):
    """Takes connections that the kernel has, so many at once, and then answers what is there of them."""

    def __init__(self, coordinator: "Coordinator") -> None:
        super().__init__(coordinator.core)
        self.coordinator, self.world = coordinator, coordinator.world
        self.backlog: deque[Connection] = deque()  # in the kernel
        self.open = 0
        self.dropped = self.most_waiting = 0

    def has_work(self) -> bool:
        return bool(self.queue or self.backlog)

    def is_full(self) -> bool:
        full = len(self.backlog) > self.world.case.backlog
        self.dropped += full
        return full

    def connected(self, connection: Connection, again: float = RTO_MIN) -> None:
        """Hear the end of a handshake, for which the queue may be full by now: then what follows says it again."""
        if self.is_full():
            if again < CONFIRMED_WITHIN / 2:
                self.agenda.at(self.agenda.now + again, self.connected, connection, 2 * again)
            return
        connection.is_there = True
        self.backlog.append(connection)
        self.most_waiting = max(self.most_waiting, len(self.backlog))
        self.world.count("connections")
        self.core.wake()

    def arrived(self, connection: Connection) -> None:
        connection.came = self.agenda.now
        if connection.taken:
            self.add(connection)

    def step(self) -> float:
        costs = self.world.costs
        if self.queue:
            connection = self.queue.popleft()
            return self._answer(connection)
        taken = [self.backlog.popleft() for _ in range(min(server._AT_ONCE, len(self.backlog)))]
        for connection in taken:
            connection.taken = True
            if connection.what != "probe":
                self.open += 1
                if connection.came is not None:
                    self.queue.append(connection)
        return costs.scaled("accept") * len(taken)

    def _answer(self, connection: Connection) -> float:
        self.open -= 1
        costs, coordinator = self.world.costs, self.coordinator
        self.world.count("requests")
        self.world.count("bytes_in", connection.size)
        if connection.what == "record":
            return costs.scaled("record") - costs.scaled("accept")
        seconds = costs.scaled("request")
        if coordinator.is_over:
            return seconds
        assert connection.report and connection.came is not None and connection.answered
        coordinator.happen(events.Reported(report=connection.report), came=connection.came)
        keeps = connection.stay and BASE + len(coordinator.links) + self.open < self.world.case.descriptors // 2
        link = Link(connection.follower) if keeps else None
        if link:
            coordinator.links[connection.follower.name] = link
            if connection.given_up:  # what is read of it first is its end
                self.agenda.at(self.agenda.now + seconds, coordinator.reader.add, (link, None, self.agenda.now))
        if not connection.given_up:
            coordinator.tell(connection.follower, link, self.agenda.now + seconds, connection.answered)
        return seconds


class Reader(Thread):
    """Reads what comes over links: (link, report or None for its end, when it came)."""

    def step(self) -> float:
        link, report, came = self.queue.popleft()
        return self.coordinator.read(link, report, came)

    def __init__(self, coordinator: "Coordinator") -> None:
        super().__init__(coordinator.core)
        self.coordinator = coordinator


class Loop(Thread):
    """Gives the policy what happened: (event, when it came)."""

    def __init__(self, coordinator: "Coordinator") -> None:
        super().__init__(coordinator.core)
        self.coordinator = coordinator

    def step(self) -> float:
        taken = [self.queue.popleft()]
        while isinstance(taken[-1][0], HEARD) and self.queue and isinstance(self.queue[0][0], HEARD):
            taken.append(self.queue.popleft())
        self.coordinator.waited = max(self.coordinator.waited, self.agenda.now - min(came for _, came in taken))
        return self.coordinator.decide([event for event, _ in taken])


class Probes(Thread):
    """Looks for followers, so many at once."""

    def __init__(self, coordinator: "Coordinator") -> None:
        super().__init__(coordinator.core)
        self.coordinator, self.world = coordinator, coordinator.world
        self.under_way, self.found = 0, list[events.Reach]()

    def has_work(self) -> bool:
        return bool(self.queue) and self.under_way < probe.AT_ONCE

    def look_for(self, hosts: tuple[str, ...]) -> None:
        self.queue.extend(hosts)
        self.core.wake()

    def step(self) -> float:
        host, seconds = self.queue.popleft(), self.world.costs.scaled("probe")
        self.under_way += 1
        took = self.world.network.connect(probe.PATIENCE)
        reach = self.world.reach(host, took)
        self.agenda.at(self.agenda.now + seconds + (probe.PATIENCE if took is None else took), self._note, reach)
        return seconds

    def _note(self, reach: events.Reach) -> None:
        self.under_way -= 1
        self.found.append(reach)
        if not self.queue and not self.under_way:
            found, self.found = tuple(self.found), []
            self.coordinator.happen(events.Probed(found=found))
        self.core.wake()


class Coordinator:
    def __init__(self, world: "World", policy: Any) -> None:
        self.world, self.agenda, self.policy = world, world.agenda, policy
        self.name = policy.facts.host
        self.core = Core(self.agenda)
        self.server, self.reader, self.loop, self.probes = Server(self), Reader(self), Loop(self), Probes(self)
        self.links: dict[str, Link] = {}
        self.news, self.said = events.News(), world.size_of(events.News())
        self.is_over, self.listens = False, False
        self.waited = 0.0  # the longest that something waited until the policy had it
        self._due = 0.0

    def boot(self) -> None:
        self.happen(events.Due())
        self.agenda.at(self.agenda.now + OPENS, self._open)
        self.agenda.at(self.agenda.now + self.world.fingerprint_s, self.happen, self.world.fingerprinted())
        self._wake_at(self.agenda.now)

    def _open(self) -> None:
        self.listens = True

    # --- events in ---

    def happen(self, event: events.Event, came: float | None = None) -> None:
        self.loop.add((event, self.agenda.now if came is None else came))

    def decide(self, happened: list[events.Event]) -> float:
        """Return the time that the policy takes, and the telling that follows."""
        if self.is_over:
            return 0.0
        now = self.agenda.now
        (actions, due), seconds = self.world.costs.of(
            lambda: (self.policy.on(happened, now), self.policy.deadline(now))
        )
        for action in actions:
            seconds += self._carry_out(action, now + seconds)
        self.world.note(self)
        self._due = due
        return seconds

    def _wake_at(self, when: float) -> None:
        self.agenda.at(when, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        if self.is_over:
            return
        if self.agenda.now >= self._due and not self.loop.queue:
            self.happen(events.Due())
        self._wake_at(max(self._due, self.agenda.now + 0.01))

    def read(self, link: Link, report: events.Report | None, came: float) -> float:
        """Read what came over a link."""
        seconds = self.world.costs.scaled("link")
        if self.links.get(link.follower.name) is not link or self.is_over:
            return seconds
        if report is None:
            del self.links[link.follower.name]
            self.happen(events.LinkEnded(host=link.follower.name), came=came)
            return seconds
        self.world.count("requests")
        hosts = self.policy.facts.hosts
        if self.world.is_long and report is hosts.reports.get(report.host):  # what the policy would make of it
            hosts.note_heard(report.host, self.agenda.now)
        else:
            self.happen(events.Reported(report=report), came=came)
        self.tell(link.follower, link, self.agenda.now + seconds, link.follower.hear_answer)
        return seconds

    # --- actions out ---

    def _carry_out(self, action: events.Action, now: float) -> float:
        """Return the processor time that it takes, beginning now."""
        match action:
            case events.Start(spec=spec):
                self.world.start(self, spec, now)
            case events.Ask(name=name) | events.Force(name=name):
                self.world.end_process(self, name, now)
            case events.Probe(hosts=hosts):
                self.agenda.at(now, self.probes.look_for, hosts)
            case events.TellFollowers(news=news):
                self.news, self.said = news, self.world.size_of(news)
                each = self.world.costs.scaled("tell")
                for number, link in enumerate(list(self.links.values()), 1):
                    self.tell(link.follower, link, now + number * each, link.follower.hear_news)
                return each * len(self.links)
            case events.Finish():
                self.is_over = True
                self.world.ended(self, now)
        return 0.0

    def tell(self, follower: "Follower", link: Link | None, when: float, hear: Callable[..., None]) -> None:
        """Say what is new; over a link behind what was said before."""
        self.world.count("bytes_out", self.said)
        takes, is_confirmed = self.world.network.say()
        if takes is not None:
            arrives = when + takes
            if link:
                arrives = link.down_clear = max(arrives, link.down_clear)
            self.agenda.at(arrives, hear, self.news, link)
        if link and not is_confirmed:
            self.agenda.at(when + CONFIRMED_WITHIN, self._lose, link)

    def _lose(self, link: Link) -> None:
        """Hear from the kernel that a follower did not confirm what we said."""
        if self.links.get(link.follower.name) is link:
            del self.links[link.follower.name]
            self.happen(events.Unreached(host=link.follower.name))
