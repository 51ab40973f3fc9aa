"""Which hosts are still there. Pure, like the policy that asks it.

A host is lost when it was silent for too long. What its kernel tells says so sooner than silence does, in two cases:
the connection that its launcher kept to us has ended, and a launcher that runs says at once that it is there; or it
takes no connection, while a host that is only busy or paused takes one, which counts where the job is failing already.
"""

from entrypoint.errors import ExitCode
from entrypoint.facts import Facts
from entrypoint.outcome import Cause, Strength
from entrypoint.settings import Settings

MISSED = 2  # heartbeats; who missed them may be gone
HANG_UP = 0.5  # seconds beyond a heartbeat in which a launcher that has lost its connection is heard again
PAUSE = 2.0  # seconds: a longer gap between two events means that we ourselves stood still


class Watching:
    """Remembers only until when there is nothing to look for, and when it last looked."""

    def __init__(self, facts: Facts, settings: Settings, now: float) -> None:
        self.facts, self.settings = facts, settings
        self.last = now
        self.look_at = now  # no host can have been silent for too long before

    def notice_own_pause(self, now: float) -> None:
        """If this process was stopped (SIGSTOP, a frozen machine), nobody was silent: we were deaf."""
        gap, settings, facts = now - self.last, self.settings, self.facts
        if gap > 1.25 * settings.heartbeat:
            facts.line_ended = {host: ended + gap for host, ended in facts.line_ended.items()}
        if gap > max(1.5 * settings.heartbeat, min(PAUSE + settings.heartbeat, 0.8 * settings.peer_timeout)):
            facts.heard = {host: heard + gap for host, heard in facts.heard.items()}
            facts.woke, facts.slept = now, gap
        self.last = now

    def note_unreached(self, host: str, now: float) -> None:
        facts = self.facts
        facts.unreached[host] = now
        if facts.causes or host in facts.line_ended:
            self.look_at = now

    def note_line_ended(self, host: str, now: float) -> None:
        if not self.facts.is_gone(host):  # else it has said its last words
            self.facts.line_ended[host] = self.look_at = now

    def watch(self, now: float) -> None:
        """Note who is lost."""
        facts = self.facts
        if now < self.look_at:
            return
        self.look_at = now + self.settings.peer_timeout  # of one that is not heard yet
        watched = facts.others if facts.is_coordinator else [facts.coordinator]
        for host in watched if facts.others else []:
            if host not in facts.heard or facts.is_gone(host) or host in facts.lost():
                continue
            limit, words = self._patience_with(host, hurried=bool(facts.causes) and not self._has_to_tell())
            if now < limit:
                self.look_at = min(self.look_at, limit)
            else:
                nobody = len(facts.others) > 1 and self._all_silent(now)
                error = f"nor is any other host; {facts.host} itself may be cut off the network" if nobody else ""
                cause = Cause(host=host, process="", what=f"lost: {words}", error=error, code=ExitCode.HOST_LOST)
                self.blame_own_pause(host, facts.line_ended.get(host, now), now)
                # Of one host alone: it may have gone at once. Who is cut off from all misses them when they were due.
                at = max(facts.heard.values()) + self.settings.heartbeat if nobody else facts.heard[host]
                facts.note_cause(cause, now, at=at)

    def blame_own_pause(self, host: str, left: float, now: float) -> None:
        """If we, the coordinator, stood still so long that a host took us for lost, that it left only follows of it."""
        facts, settings = self.facts, self.settings
        long = facts.slept + MISSED * settings.heartbeat >= settings.peer_timeout
        if facts.is_coordinator and long and left <= facts.woke + settings.heartbeat:
            what, error = f"stood still for {facts.slept:.0f} s", f"{host} has left meanwhile"
            cause = Cause(host=facts.host, process="", what=what, error=error, code=ExitCode.HOST_LOST)
            facts.note_cause(cause, now, at=facts.woke - facts.slept)

    def away(self, now: float) -> set[str]:
        """Hosts that are lost, or would be if the job were not at its end."""
        return self.facts.lost() | {host for host in self.facts.heard if now >= self._patience_with(host)[0]}

    def _patience_with(self, host: str, hurried: bool = False) -> tuple[float, str]:
        """Until when a host that was heard may be silent, and what it is if it still is, then."""
        facts, settings = self.facts, self.settings
        heard = facts.heard[host]
        patience = [(heard + settings.peer_timeout, f"not heard for {settings.peer_timeout:g} s")]
        ended, away = facts.line_ended.get(host), facts.unreached.get(host, float("-inf"))
        # A coordinator that others on our host ask too much of may hang up on us, but it takes our next connection.
        if ended is not None and (facts.is_coordinator or away >= ended):
            seconds = settings.heartbeat + HANG_UP
            patience.append((ended + seconds, f"its connection ended, and it was not heard for {seconds:g} s"))
        if hurried and away > heard:
            missed = MISSED * settings.heartbeat
            patience.append((heard + missed, f"not heard for {missed:g} s, and it takes no connection"))
        return min(patience)

    def _has_to_tell(self) -> bool:
        """Whether this follower knows what went wrong: the coordinator may only be cut off, and is to hear it."""
        cause = None if self.facts.is_coordinator else self.facts.own_cause()
        return cause is not None and cause.strength is Strength.STRONG

    def _all_silent(self, now: float) -> bool:
        """Whether the coordinator hears nobody any more, of hosts that should be there."""
        facts, missed = self.facts, MISSED * self.settings.heartbeat
        there = [host for host in facts.others if not facts.is_gone(host) and host in facts.heard]
        silent = (
            now >= facts.heard[host] + missed or facts.unreached.get(host, float("-inf")) > facts.heard[host]
            for host in there
        )
        return facts.is_coordinator and all(silent)
