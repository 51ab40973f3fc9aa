"""Report this launcher's end to the other hosts if nothing else works, from the main thread, with one socket at a time.

A host with too few processes, threads or file descriptors for a control channel can usually still send a message.
Otherwise the others would wait for it until the start timeout, and then blame a wrong cause.
"""

import json
import time
from collections.abc import Callable

from entrypoint.launcher.control.host_calls import Calls
from entrypoint.launcher.control.wire import Refused, to_json
from entrypoint.launcher.job.cluster import Cluster
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.launcher.policy.events import News, Report

AGAIN_SECONDS = 0.2  # seconds between two attempts
ANSWERING_SECONDS = 1.0  # seconds


def send(
    cluster: Cluster, settings: Settings, outcome: Outcome, attempt: int, within: float, enough: Callable[[], bool]
) -> list[str]:
    """Report our end to the coordinator, which informs all others; as the coordinator, report it to all.

    A host that does not answer may only be starting: it is tried again for `within` seconds, or until `enough()`.
    Return the hosts that were not reached.
    """
    if cluster.is_coordinator:
        path, waiting = "/news", list(cluster.followers)
        message = json.dumps(to_json(News(attempt=attempt, outcome=outcome)))
    else:
        path, waiting = "/report", [cluster.coordinator]
        report = Report(host=cluster.me.name, attempt=attempt, clean=False, cause=outcome.cause, gone=True)
        message = json.dumps(to_json(report))
    call = Calls(cluster, settings)
    deadline = time.monotonic() + within
    while waiting and time.monotonic() < deadline and not enough():
        for host in list(waiting):
            try:
                call(host, path, message.encode(), timeout=ANSWERING_SECONDS)
                waiting.remove(host)
            except (OSError, ValueError, Refused):  # ValueError: DNS cannot have such a name
                if enough():
                    break
        time.sleep(AGAIN_SECONDS if waiting else 0.0)
    return [host.name for host in waiting]
