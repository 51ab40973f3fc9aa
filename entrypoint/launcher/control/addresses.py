"""Look up the addresses of hosts. Threads ask the name servers, so that a known address needs no waiting.

An address that was found stays known, even if its name stops resolving or resolves slowly. When the host is not
reached, the name is looked up again, and the result replaces the old one.
"""

import socket
import threading

from entrypoint.launcher.control.client import Unreachable
from entrypoint.launcher.job.cluster import Host


class Addresses:
    """Hold the IPv4 and IPv6 addresses of other hosts. The first is the one by which a host was reached last."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, ...]] = {}  # by host
        self._why: dict[str, str] = {}
        self._looking: set[str] = set()
        self._changed = threading.Condition()

    def of(self, host: Host, within: float) -> tuple[str, ...]:
        """Return a host's addresses. If none is known, look for up to `within` seconds, then raise Unreachable."""
        if host.is_at_number:
            return (host.address,)
        with self._changed:
            if host.name not in self._found:
                self.look_for(host)
                self._changed.wait_for(lambda: host.name in self._found or host.name not in self._looking, within)
            if found := self._found.get(host.name):
                return found
            raise Unreachable(self._why.get(host.name, f"no address of {host.address} within {within:g} s"))

    def note(self, host: Host, address: str) -> None:
        with self._changed:
            others = [each for each in self._found.get(host.name, ()) if each != address]
            self._found[host.name] = (address, *others)

    def look_for(self, host: Host) -> None:
        """Look up a host's name, unless that is under way."""
        with self._changed:
            if host.name in self._looking or host.is_at_number:
                return
            self._looking.add(host.name)
        try:
            threading.Thread(target=self._look, args=(host,), name="look up", daemon=True).start()
        except RuntimeError:  # no thread is left, so the caller has to wait
            self._look(host)

    def _look(self, host: Host) -> None:
        found: list[str] = []
        try:
            answers = socket.getaddrinfo(host.address, None, type=socket.SOCK_STREAM)
            found, why = [str(answer[4][0]) for answer in answers], ""
        except (OSError, ValueError) as error:  # ValueError: DNS cannot have such a name
            why = f"{host.address}: {getattr(error, 'strerror', None) or error}"
        with self._changed:
            if found:
                known = self._found.get(host.name, ())
                self._found[host.name] = tuple(sorted(dict.fromkeys(found), key=lambda each: each not in known[:1]))
            self._why[host.name] = why
            self._looking.discard(host.name)
            self._changed.notify_all()
