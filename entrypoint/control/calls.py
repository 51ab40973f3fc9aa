"""Calls to other hosts of the job: where they are, what we show them, and what their answer says."""

import json

from entrypoint.control.addresses import Addresses
from entrypoint.control.client import CONNECTING, Answer, Unreachable, connected, post
from entrypoint.control.handlers import TOKEN_HEADER
from entrypoint.control.wire import Refused
from entrypoint.job.cluster import Cluster, Host
from entrypoint.job.settings import Settings


class Calls:
    """POSTs of one host to the others."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._settings = settings
        self._source = cluster.me.address if cluster.me.address.startswith("127.") else ""
        self._headers = f"{TOKEN_HEADER}: {settings.token}\r\n" if settings.token else ""
        self._addresses = Addresses()

    def __call__(self, host: Host, path: str, message: bytes, timeout: float, stay: bool = False) -> Answer:
        """POST to another host. Unreachable if it takes no connection, OSError if it does not answer, Refused if it
        says no."""
        try:
            addresses, port = self._addresses.of(host, within=CONNECTING), host.port(self._settings.control_port)
            answer = post(
                addresses, port, path, message, timeout, source=self._source, headers=self._headers, stay=stay
            )
        except Unreachable:
            self._addresses.look_for(host)  # and go on with what is known meanwhile
            raise
        self._addresses.note(host, answer.address)
        if answer.status != 200:
            raise Refused(_reason(answer.body) or f"it answered {answer.status}", answer.status)
        return answer

    def takes_connection(self, host: Host, address: str, within: float) -> bool:
        """Return whether a host's kernel takes a connection for its launcher, which may be too busy to say a word."""
        port = host.port(self._settings.control_port)
        try:
            connected([address], port, within, self._source).close()
        except Unreachable:
            return False
        return True


def _reason(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return ""
