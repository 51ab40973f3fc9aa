"""Limit the requests of each address, and of all strangers together."""

import threading
import time
from collections.abc import Callable, Collection

LOOPBACK = ("127.0.0.1", "::1")  # people on the host itself

# A host sends a heartbeat a second and a report for each change; while it is refused, 20 reports a second.
RATE, BURST = 100.0, 200.0  # requests a second of one address, and at once
MESSAGE_BYTES = 1 << 20  # bytes
PAID_BY_BYTES = 1 << 14  # bytes of a message that count as one more request
STRANGERS_RATE, STRANGERS_BURST = 20.0, 40.0  # of all strangers together: while they are few, they get an answer
OPEN = 32  # open connections of one address, and of all strangers together


class Bucket:
    """Limit requests to a rate, with a burst. `charge` may overdraw it by as much as the burst."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = burst, clock()
        self._lock = threading.Lock()

    def take(self, size: int = 0) -> bool:
        """Return whether one more request is allowed. If it is, charge for it and for its message of `size` bytes."""
        with self._lock:
            self._fill()
            if self._left < 1:
                return False
            self._left = max(-self._burst, self._left - 1 - size / PAID_BY_BYTES)
            return True

    def charge(self, size: int) -> None:
        """Charge for a message of `size` bytes that was read already."""
        with self._lock:
            self._fill()
            self._left = max(-self._burst, self._left - size / PAID_BY_BYTES)

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now


class Limits:
    """Limit each caller. A host that sends too much is refused for a moment; other hosts are not affected."""

    def __init__(self, hosts_at: Callable[[str], Collection[str]]) -> None:
        """Take `hosts_at`, which returns the hosts of the job that have an address."""
        self._hosts_at = hosts_at
        self._strangers = Bucket(STRANGERS_RATE, STRANGERS_BURST)
        self._known: dict[str, Bucket] = {}  # at most one for each address of the job

    def party(self, address: str) -> str:
        """Return the key of the limits that apply: the address, or "" for all strangers together."""
        return address if address in LOOPBACK or self._hosts_at(address) else ""

    def of(self, party: str) -> Bucket:
        return self._known.setdefault(party, Bucket(RATE, BURST)) if party else self._strangers
