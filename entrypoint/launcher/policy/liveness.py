"""Decide which hosts are lost. Pure, like the policy that asks it.

A host is lost if it was silent for too long. Its kernel shows the loss sooner in two cases. If the connection of its
launcher has ended and the host refuses a new one, it is lost; a launcher that is only busy or paused still accepts
connections. And while the job already fails, a host that refuses connections is lost after two missed heartbeats.
"""

from collections.abc import Iterator

from entrypoint.base.errors import ExitCode
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Cause, Confidence
from entrypoint.launcher.policy.events import Knock
from entrypoint.launcher.policy.facts import Facts

MISSED_HEARTBEATS = 2  # heartbeats; a host that missed them may be gone
HANG_UP_SECONDS = 0.5  # seconds for a launcher that has lost its connection to report again, or to take a new one
PAUSE_SECONDS = 2.0  # seconds: a longer gap between two events means that this process was paused


class Liveness:
    """Watch the hosts. The only state is the times of past checks and of the next one."""

    def __init__(self, facts: Facts, settings: Settings, now: float) -> None:
        self.facts, self.hosts, self.settings = facts, facts.hosts, settings
        self.last = now
        self.look_at = now  # no host can have been silent for too long before
        self._knocked: dict[str, float] = {}  # when we last checked whether a host takes a new connection

    def notice_own_pause(self, now: float) -> None:
        """Notice that this process was paused (SIGSTOP, a frozen machine). Then no host counts as silent."""
        gap, settings = now - self.last, self.settings
        if gap > 1.25 * settings.heartbeat:
            self.hosts.excuse_lines(gap)
        if gap > max(1.5 * settings.heartbeat, min(PAUSE_SECONDS + settings.heartbeat, 0.8 * settings.peer_timeout)):
            self.hosts.excuse_silence(gap, now)
        self.last = now

    def note_unreached(self, host: str, now: float) -> None:
        self.hosts.unreached[host] = now
        if self.facts.attempt.causes or host in self.hosts.link_ended:
            self.look_at = now

    def note_link_ended(self, host: str, now: float) -> None:
        if not self.hosts.is_gone(host):  # else it has sent its last report
            self.hosts.link_ended[host] = now
            self.look_at = now
            self._knocked.pop(host, None)

    def knock(self, now: float) -> Iterator[Knock]:
        """Have the coordinator check whether a host takes a new connection after its old one has ended.

        A follower needs no check, since it reports again at once. The check is repeated with each heartbeat until the
        host reports or refuses. A host that is being killed may still take a connection for a while: its kernel closes
        one socket after another.
        """
        ended = self.hosts.link_ended if self.facts.is_coordinator else {}
        for host, at in ended.items():
            refused = self.hosts.unreached.get(host, float("-inf")) >= at
            due = now >= self._knocked.get(host, float("-inf")) + self.settings.heartbeat
            if due and not refused and not self.hosts.is_gone(host):
                self._knocked[host] = now
                yield Knock(host=host)

    def watch(self, now: float) -> None:
        facts = self.facts
        if now < self.look_at:
            return
        self.look_at = now + self.settings.peer_timeout  # of a host that has not reported yet
        watched = facts.others if facts.is_coordinator else [facts.coordinator]
        # A coordinator may only be cut off. Then a follower should still report what it knows of a failure.
        has_failed = not facts.is_coordinator and facts.own_failure(Confidence.HIGH)
        for host in watched if facts.others else []:
            if host not in self.hosts.last_contact or self.hosts.is_gone(host) or host in facts.lost():
                continue
            limit, words = self._patience_with(host, hurried=bool(facts.attempt.causes) and not has_failed)
            if now < limit:
                self.look_at = min(self.look_at, limit)
            else:
                nobody = len(facts.others) > 1 and self._all_silent(now)
                error = f"no other host reports either; {facts.host} itself may be cut off" if nobody else ""
                cause = Cause(host=host, process="", what=f"lost: {words}", error=error, code=ExitCode.HOST_LOST)
                self.blame_own_pause(host, self.hosts.link_ended.get(host, now), now)
                # If a host ends, its kernel closes all connections, and programs fail at once. If it is cut off, they
                # notice nothing for long: a failure before the next heartbeat was due has another reason.
                last_report = max(self.hosts.last_contact.values()) if nobody else self.hosts.last_contact[host]
                closed = host in self.hosts.link_ended and not nobody
                facts.note_cause(cause, now, at=last_report if closed else last_report + self.settings.heartbeat)

    def blame_own_pause(self, host: str, left: float, now: float) -> None:
        """Blame this coordinator if it was paused for so long that a host took it for lost and left."""
        facts, settings = self.facts, self.settings
        long = self.hosts.slept + MISSED_HEARTBEATS * settings.heartbeat >= settings.peer_timeout
        if facts.is_coordinator and long and left <= self.hosts.woke + settings.heartbeat:
            what, error = f"was paused for {self.hosts.slept:.0f} s", f"{host} left meanwhile"
            cause = Cause(host=facts.host, process="", what=what, error=error, code=ExitCode.HOST_LOST)
            facts.note_cause(cause, now, at=self.hosts.woke - self.hosts.slept)

    def is_silent(self, host: str, now: float) -> bool:
        """Return whether a host has been silent for so long that it would be lost, if the job were not ending."""
        return host in self.hosts.last_contact and now >= self._patience_with(host)[0]

    def _patience_with(self, host: str, hurried: bool = False) -> tuple[float, str]:
        """Return (time until which a host that has reported may be silent, the words for its loss after that)."""
        settings = self.settings
        last_report = self.hosts.last_contact[host]
        patience = [(last_report + settings.peer_timeout, f"no report for {settings.peer_timeout:g} s")]
        ended, away = self.hosts.link_ended.get(host), self.hosts.unreached.get(host, float("-inf"))
        if ended is not None and away >= ended:
            patience.append((ended + HANG_UP_SECONDS, "its connection closed, and it accepts no new one"))
        if hurried and away > last_report:
            missed = MISSED_HEARTBEATS * settings.heartbeat
            patience.append((last_report + missed, f"no report for {missed:g} s, and it accepts no connection"))
        return min(patience)

    def _all_silent(self, now: float) -> bool:
        """Return whether this is the coordinator and no expected host has reported lately."""
        facts, missed = self.facts, MISSED_HEARTBEATS * self.settings.heartbeat
        there = (host for host in facts.others if not self.hosts.is_gone(host) and host in self.hosts.last_contact)
        contact, unreached = self.hosts.last_contact, self.hosts.unreached
        silent = (now >= contact[host] + missed or unreached.get(host, float("-inf")) > contact[host] for host in there)
        return facts.is_coordinator and all(silent)
