"""What a network does to what hosts say: it takes its time, and loses some of it. TCP says that again.

When, is Linux's way of RFC 6298: a SYN after 1 s, then after twice as long each time (RFC 6298 5.7; since Linux 6.5 the
first four come each second, which is sooner); data after the round trip and 0.2 s, the least that Linux takes for the
retransmission timeout, and then after twice as long each time. A connection ends when nothing of what was said is
confirmed within TCP_USER_TIMEOUT (tcp(7)), which the launcher sets. Each message is one segment, and whatever is lost
waits for the timeout: a lost word behind which others come would be repaired sooner.
"""

import random
from dataclasses import dataclass, field

from entrypoint.launcher.control.client import NEXT, UNHEARD

SYN_AGAIN = 1.0  # seconds
RTO_MIN = 0.2  # seconds, of Linux
CONFIRMED_WITHIN = UNHEARD / 1000


@dataclass
class Network:
    latency: float = 0.0005  # seconds, one way
    loss: float = 0.01  # of packets, in both directions
    dice: random.Random = field(default_factory=random.Random)

    def loses(self) -> bool:
        return self.loss > 0 and self.dice.random() < self.loss

    def say(self) -> tuple[float | None, bool]:
        """Return the seconds until a message over a connection arrives, and whether it is confirmed in time.

        None: it does not before the connection ends.
        """
        arrives, said, patience = None, 0.0, RTO_MIN + 2 * self.latency
        while said < CONFIRMED_WITHIN:
            if not self.loses():
                arrives = said + self.latency if arrives is None else arrives
                if not self.loses():
                    return arrives, True
            said, patience = said + patience, 2 * patience
        return arrives, False

    def connect(self, patience: float) -> float | None:
        """Return the seconds until a host that is there has taken a connection. None: it has not within `patience`.

        As control/probe.py tries: each connection for twice as long as the one before.
        """
        began, waits = 0.0, NEXT
        while began < patience:
            if (took := self._handshake(min(waits, patience - began))) is not None:
                return began + took
            began, waits = began + waits, 2 * waits
        return None

    def _handshake(self, patience: float) -> float | None:
        said, again = 0.0, SYN_AGAIN
        while said + 2 * self.latency < patience:
            if not self.loses() and not self.loses():
                return said + 2 * self.latency
            said, again = said + again, 2 * again
        return None
