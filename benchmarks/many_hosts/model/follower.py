"""A follower: its policy, and what brings its reports to the coordinator, as control/peers.py and client.py do it."""

from typing import TYPE_CHECKING, Any

from benchmarks.many_hosts.model.coordinator import Connection, Link
from benchmarks.many_hosts.model.network import CONFIRMED_WITHIN
from entrypoint.launcher.control import client, peers, probe
from entrypoint.launcher.policy import events

if TYPE_CHECKING:
    from benchmarks.many_hosts.model.job import World

LAST_WORDS = 1.0  # seconds that a host waits until its last report has been answered
HEAD = 150  # bytes of a request beside the report


class Follower:
    """Its core is one that does what comes in order, and has hardly anything to do."""

    def __init__(self, world: "World", name: str, policy: Any) -> None:
        self.world, self.agenda, self.name, self.policy = world, world.agenda, name, policy
        self.is_over = False
        self.free_at = 0.0  # its core
        self._due, self._tick_at = 0.0, float("inf")
        self._report: events.Report | None = None
        self._last: events.Report | None = None  # that was answered
        self._size = 0  # bytes of the report
        self._asking = 0  # number of the report that is under way; 0: none is
        self._number = 0
        self._timer = 0
        self._again, self._link_again = peers.RETRY, 0.0
        self._link: Link | None = None
        self._said: events.Report | None = None  # over the link
        self._reports = False  # whether there is what brings reports
        self._gives_up_at = float("inf")

    def boot(self) -> None:
        self.happen(events.Due())
        self.agenda.at(self.agenda.now + self.world.fingerprint_s, self._meet)

    def _meet(self) -> None:
        """Begin to report: what was said before anybody could be reached is said again."""
        self._reports = True
        self.happen(self.world.fingerprinted())
        self._carry_out(self.policy.repeat(), self.free_at)

    # --- events in, actions out ---

    def happen(self, event: events.Event) -> None:
        if self.is_over:
            return
        now, policy = self.agenda.now, self.policy
        (actions, self._due), seconds = self.world.costs.of(lambda: (policy.on((event,), now), policy.deadline(now)))
        self.free_at = max(now, self.free_at) + seconds
        if actions:
            self._carry_out(actions, self.free_at)
        self.world.note(self)
        if self._due < self._tick_at:
            self._tick_at = self._due
            self.agenda.at(self._due, self._tick)

    def _tick(self) -> None:
        """Look whether the policy is due: what happened meanwhile has put it off, mostly."""
        if self._tick_at > self.agenda.now:  # of an earlier time
            return
        self._tick_at = float("inf")
        if self.agenda.now >= self._due:
            self.happen(events.Due())
        elif not self.is_over:
            self._tick_at = self._due
            self.agenda.at(self._due, self._tick)

    def _carry_out(self, actions: list[events.Action], now: float) -> None:
        for action in actions:
            match action:
                case events.Start(spec=spec):
                    self.world.start(self, spec, now)
                case events.Ask(name=name) | events.Force(name=name):
                    self.world.end_process(self, name, now)
                case events.Probe(hosts=hosts):
                    self._look_for(hosts, now)
                case events.TellCoordinator(report=report):
                    self._report, self._size = report, self.world.size_of(report)
                    if not self._asking and self._reports:
                        self._timer += 1
                        self.agenda.at(now, self._send, self._timer)
                case events.Finish():
                    self.is_over = True
                    self._gives_up_at = now + LAST_WORDS
                    self.agenda.at(self._gives_up_at, self._leave)

    def _look_for(self, hosts: tuple[str, ...], now: float) -> None:
        network = self.world.network
        took = [network.connect(probe.PATIENCE) for _ in hosts]
        found = tuple(self.world.reach(host, each) for host, each in zip(hosts, took, strict=True))
        slowest = max((probe.PATIENCE if each is None else each for each in took), default=0.0)
        done = now + slowest + len(hosts) * self.world.costs.scaled("probe")
        self.agenda.at(done, self.happen, events.Probed(found=found))
        if self.world.coordinator.name in hosts:
            self.world.count("probes")
            looked = Connection(self, "probe")
            self.agenda.at(now + 2 * network.latency, self.world.coordinator.server.connected, looked)

    # --- reports ---

    def _send(self, timer: int) -> None:
        if timer != self._timer or self._asking or self._report is None or self._has_left():
            return
        self._number += 1
        self._asking = self._number
        if self._link:
            self._say_over(self._link)
        else:
            stay = self.agenda.now >= self._link_again
            _Call(self, self._number, stay).begin()
        self.agenda.at(self.agenda.now + self.patience, self._fail, self._number, "no answer")

    def _has_left(self) -> bool:
        return self.agenda.now > self._gives_up_at

    @property
    def patience(self) -> float:
        return float(self.world.settings.peer_timeout) / 2

    @property
    def report(self) -> tuple[events.Report, int]:
        assert self._report
        return self._report, self._size

    def _say_over(self, link: Link) -> None:
        coordinator, report, number = self.world.coordinator, self._report, self._number
        said = self.agenda.now + self.world.costs.scaled("say")
        if coordinator.links.get(self.name) is not link:  # its kernel says so
            self.agenda.at(said + 2 * self.world.network.latency, self._lose, link, events.LinkEnded, number)
            return
        self.world.count("bytes_in", self._size)
        self._said = report
        takes, is_confirmed = self.world.network.say()
        if takes is not None:
            link.up_clear = max(said + takes, link.up_clear)
            self.agenda.at(link.up_clear, coordinator.reader.add, (link, report, link.up_clear))
        if not is_confirmed:
            self.agenda.at(said + CONFIRMED_WITHIN, self._lose, link, events.Unreached, number)

    def _lose(self, link: Link, event: type, number: int) -> None:
        if self._link is link:
            self._link = None
            self.world.count("links_lost")
            self.happen(event(host=self.world.coordinator.name))
            self._fail(number, "link")

    def hear_answer(self, news: events.News, link: Link | None) -> None:
        """Hear the answer to a report over the link."""
        if link is self._link and self._asking:
            self._delivered(news, self._said)

    def hear_news(self, news: events.News, link: Link | None) -> None:
        if link is self._link:
            self._inform(news)

    def take_answer(self, number: int, report: events.Report, news: events.News, link: Link | None) -> None:
        """Hear the answer to a POST."""
        if number != self._asking:
            return
        if link:
            self._link, self._link_again = link, self.agenda.now + self.world.settings.heartbeat
        self._delivered(news, report)

    def _delivered(self, news: events.News, report: events.Report | None) -> None:
        self._asking, self._last, self._again = 0, report, peers.RETRY
        self._inform(news)
        if self.is_over and self._report is report:
            self._leave()
        elif not self._asking:  # else what was heard has changed what is to be said
            self._timer += 1
            later = 0.0 if self._report is not report else self.world.settings.heartbeat
            self.agenda.at(max(self.agenda.now + later, self.free_at), self._send, self._timer)

    def _inform(self, news: events.News) -> None:
        facts, now = self.policy.facts, self.agenda.now
        if self.world.is_steady and news is facts.hosts.news:
            # What the policy would make of it, a million times an hour: it need only look when the time is up.
            facts.hosts.note_heard(facts.coordinator, now)
            self.policy.liveness.last, self._due = now, now + self.world.settings.peer_timeout
            return
        self.happen(events.Informed(news=news, offset=0.0))

    def _fail(self, number: int, why: str) -> None:
        """Try again, after a while."""
        if number != self._asking:
            return
        self._asking, self._link = 0, None
        self.world.count("failed_calls")
        if why == "unreachable":
            self.happen(events.Unreached(host=self.world.coordinator.name))
        wait, hosts = self._again, len(self.world.plan.hosts)
        self._again = max(peers.RETRY, min(2 * wait, hosts / peers.TRIES))
        if self._report is self._last:
            wait += peers.RETRY
        self._timer += 1
        self.agenda.at(self.agenda.now + wait, self._send, self._timer)

    def _leave(self) -> None:
        """End: the kernel ends the link, behind what was said over it."""
        if self._gives_up_at < float("inf"):
            self._gives_up_at = float("-inf")
            self._timer += 1
            self.world.ended(self, self.agenda.now)
            if (link := self._link) and self.world.coordinator.links.get(self.name) is link:
                arrives = max(self.agenda.now + self.world.network.latency, link.up_clear)
                self.agenda.at(arrives, self.world.coordinator.reader.add, (link, None, arrives))
            self._link = None


class _Call:
    """A POST: tries to connect, each for twice as long, within CONNECTING; says the report and waits for its answer."""

    def __init__(self, follower: Follower, number: int, stay: bool) -> None:
        self.follower, self.number, self.world = follower, number, follower.world
        self.agenda, self.network = follower.agenda, follower.world.network
        self.report, size = follower.report
        self.connection = Connection(follower, "report", stay, self.report, size + HEAD, answered=self.answered)
        self.until = 0.0
        self.try_number = 0
        self.is_connected = False

    def begin(self) -> None:
        self.until = self.agenda.now + client.CONNECTING
        self._try(client.NEXT)

    def _try(self, patience: float) -> None:
        if self.is_connected or self.follower._asking != self.number:
            return
        now, latency = self.agenda.now, self.network.latency
        if now >= self.until - 1e-9:
            self.follower._fail(self.number, "unreachable")
            return
        self.try_number += 1
        self.world.count("syns")
        if not self.network.loses():
            self.agenda.at(now + latency, self._knock, self.try_number)
        self.agenda.at(min(now + patience, self.until), self._try, 2 * patience)

    def _knock(self, try_number: int) -> None:
        """Reach the coordinator's kernel."""
        coordinator, now, latency = self.world.coordinator, self.agenda.now, self.network.latency
        if not coordinator.listens or coordinator.is_over:
            self.agenda.at(now + latency, self.follower._fail, self.number, "unreachable")
        elif not coordinator.server.is_full() and not self.network.loses():
            self.agenda.at(now + latency, self._connected, try_number)

    def _connected(self, try_number: int) -> None:
        if try_number != self.try_number or self.is_connected or self.follower._asking != self.number:
            return  # it was given up, and closed
        self.is_connected = True
        server, now = self.world.coordinator.server, self.agenda.now
        self.agenda.at(now + self.network.latency, server.connected, self.connection)
        said = now + self.world.costs.scaled("ask")
        takes, is_confirmed = self.network.say()
        if takes is not None:
            self.agenda.at(said + takes, server.arrived, self.connection)
        self.agenda.at(said + CONFIRMED_WITHIN, self._hear_the_kernel, is_confirmed)
        self.agenda.at(now + self.follower.patience, self._give_up)

    def _hear_the_kernel(self, is_confirmed: bool) -> None:
        """Hear that nothing was confirmed: all was lost, or there was no room for the connection."""
        if not (is_confirmed and self.connection.is_there):
            self._give_up()
            self.follower._fail(self.number, "no answer")

    def _give_up(self) -> None:
        if self.follower._asking == self.number:
            self.connection.given_up = True

    def answered(self, news: events.News, link: Link | None) -> None:
        self.follower.take_answer(self.number, self.report, news, link)
