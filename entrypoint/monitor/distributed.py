"""Do the hosts train one model together, or each its own? By what can be seen from outside: bytes between them. Pure.

Not judged: what has hardly begun, and what does not go over TCP, where exchange.py is blind.
"""

from collections.abc import Collection, Mapping
from typing import Any

from entrypoint.values import State, replace

STEPS = 50  # of a host, after which it must have exchanged something
WORKED, SECONDS = 60.0, 120.0  # CPU seconds, and seconds, for programs that do not say their steps
PER_STEP, PER_SECOND = 100.0, 200.0  # bytes: less are no gradients, but signs of life
TOGETHER = 20.0  # seconds in which all have exchanged more than that, until it is said


class Seen(State):
    """What was seen of the processes of training of one host, since the last of them started."""

    bytes: int = 0  # received from and sent to training processes of other hosts
    steps: int = 0  # that its programs have said to have taken
    worked: float = 0.0  # CPU seconds
    seconds: float = 0.0

    @property
    def exchanges(self) -> bool:
        """Whether it exchanges more than signs of life."""
        return self.bytes > max(PER_SECOND * self.seconds, PER_STEP * self.steps)

    @property
    def is_alone(self) -> bool:
        """Whether it has trained for long enough to have exchanged something, and has not."""
        return self.has_trained() and not self.exchanges

    def has_trained(self, times: int = 1) -> bool:
        """Return whether it has trained for so many times as long as it takes to judge it."""
        return self.steps >= times * STEPS or (self.worked >= times * WORKED and self.seconds >= times * SECONDS)


def verdict(seen: Mapping[str, Seen]) -> bool | None:
    """Return whether these hosts train together; None while that is not known."""
    alone = [host for host in seen.values() if host.is_alone]
    known = all(host.is_alone or host.exchanges for host in seen.values())
    # The records of others come some seconds later; but one that only waits may never be known.
    if alone and (known or any(host.has_trained(2) for host in alone)):
        return False
    if all(host.exchanges and host.seconds >= TOGETHER for host in seen.values()):
        return True
    return None


def in_words(seen: Mapping[str, Seen], together: bool) -> str:
    """Say so, with the figures that it rests on."""
    if together:
        steps = max(host.steps for host in seen.values())
        total = sum(host.bytes for host in seen.values()) / 2
        seconds = max(host.seconds for host in seen.values())
        rate = f"{_size(total / steps)} a step" if steps >= STEPS else f"{_size(total / seconds)} a second"
        return f"distributed: yes: {len(seen)} hosts exchange {rate}"
    alone = [name for name, host in seen.items() if host.is_alone]
    who = "every host trains" if len(alone) == len(seen) else f"{', '.join(alone[:10])} train{'s' * (len(alone) == 1)}"
    first = seen[alone[0]]
    since = f"{first.steps} steps" if first.steps >= STEPS else f"{first.seconds:.0f} s"
    what = "nothing" if not first.bytes else f"{_size(first.bytes)}, and no gradients,"
    return f"distributed: NO: {who} alone (exchanged {what} with other hosts in {since})"


class Together:
    """What is known of each host, as the records tell it, until there is a verdict. Times are each host's own."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._seen = {host: Seen() for host in hosts}
        self._since: dict[str, float] = {}  # when the last process of training was started
        self._first: dict[tuple[str, str], float] = {}  # of a process: the first step that it has said
        self._steps: dict[tuple[str, str], float] = {}
        self._to: dict[tuple[str, str], int] = {}  # bytes as the first has counted them, with the second
        self.told = False

    def note(self, host: str, at: float, kind: str, *values: Any) -> None:
        """Note a line of a record."""
        match kind, values:
            case "process", (name, *_):
                self._since[host] = at
                self._seen[host] = Seen()
                self._first = {who: step for who, step in self._first.items() if who != (host, name)}
                self._to = {pair: count for pair, count in self._to.items() if host not in pair}
            case "sample", (_, _, processes, peers) if host in self._since:
                seen = self._seen[host]
                seen.seconds = at - self._since[host]
                seen.worked += sum(used.get("cpu", 0.0) for used in processes.values())
                for peer, (received, sent) in peers.items():
                    self._to[host, peer] = self._to.get((host, peer), 0) + received + sent
            case "metric", (name, {"step": step}) if host in self._since:
                self._first.setdefault((host, name), step)
                self._steps[host, name] = step

    def look(self) -> tuple[bool, str] | None:
        """Return (whether they train together, words), once."""
        if self.told or len(self._since) < len(self._seen):
            return None
        seen = {host: self._of(host) for host in self._seen}
        together = verdict(seen)
        if together is None:
            return None
        self.told = True
        return together, in_words(seen, together)

    def _of(self, host: str) -> Seen:
        # Both ends have counted, or only that which could tell whose the other is.
        others = [other for other in self._seen if other != host]
        count = sum(max(self._to.get((host, other), 0), self._to.get((other, host), 0)) for other in others)
        steps = [self._steps[who] - first for who, first in self._first.items() if who[0] == host]
        return replace(self._seen[host], bytes=count, steps=int(max(steps, default=0)))


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
