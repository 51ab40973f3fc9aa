"""Call other hosts of the job: find them, show them our token, and read their refusals."""

import json
import time

from entrypoint.launcher.control.addresses import Addresses
from entrypoint.launcher.control.client import CONNECTING_SECONDS, Answer, Unreachable, connected, post
from entrypoint.launcher.control.handlers import TOKEN_HEADER
from entrypoint.launcher.control.wire import Refused
from entrypoint.launcher.job.cluster import Cluster, Host
from entrypoint.launcher.job.settings import Settings

AGAIN_SECONDS = 0.02  # seconds between two attempts to reach a host that hangs up


class Calls:
    """Send POSTs from one host to the others."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._settings = settings
        self._source = cluster.me.address if cluster.me.address.startswith("127.") else ""
        self._headers = f"{TOKEN_HEADER}: {settings.token}\r\n" if settings.token else ""
        self._addresses = Addresses()

    def __call__(self, host: Host, path: str, message: bytes, timeout: float, stay: bool = False) -> Answer:
        """POST to a host. Raise Unreachable without a connection, OSError without an answer, or Refused."""
        try:
            addresses = self._addresses.of(host, within=CONNECTING_SECONDS)
            port, more = host.port(self._settings.control_port), {"source": self._source, "headers": self._headers}
            answer = post(addresses, port, path, message, timeout, stay=stay, **more)
        except Unreachable:
            self._addresses.look_for(host)  # and use the known addresses meanwhile
            raise
        self._addresses.note(host, answer.address)
        if answer.status != 200:
            raise Refused(_reason(answer.body) or f"it answered {answer.status}", answer.status)
        return answer

    def takes_connection(self, host: Host, address: str, within: float) -> bool:
        """Return whether a host's kernel takes a connection for its launcher, even if that is too busy to answer.

        A launcher that is being killed may close its connection before it stops listening: the kernel then resets the
        new connection and refuses the next. So the new one is watched for a moment.
        """
        port, deadline = host.port(self._settings.control_port), time.monotonic() + within
        while (left := deadline - time.monotonic()) > 0:
            try:
                with connected([address], port, left, self._source) as connection:
                    connection.settimeout(max(AGAIN_SECONDS, deadline - time.monotonic()))
                    connection.recv(1)
            except Unreachable:
                return False
            except TimeoutError:  # it is still open
                return True
            except OSError:
                pass
            time.sleep(AGAIN_SECONDS)
        return True


def _reason(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
