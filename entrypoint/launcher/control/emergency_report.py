"""What a launcher that can do nothing else tells the other hosts: from its main thread, with one socket at a time.

A host with too few processes, threads or file descriptors for a control channel can still send a message mostly. Else
the others would wait for it until the start timeout, and then name the wrong cause.
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

AGAIN = 0.2  # seconds between two tries
ANSWERING = 1.0  # seconds


def tell(
    cluster: Cluster, settings: Settings, outcome: Outcome, attempt: int, within: float, enough: Callable[[], bool]
) -> list[str]:
    """Tell the coordinator, which tells all others, of our end; as the coordinator, tell everybody.

    Who does not answer, since it is about to start perhaps, is asked again for `within` seconds, or until it is
    `enough`. The hosts that have not heard it.
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
                call(host, path, message.encode(), timeout=ANSWERING)
                waiting.remove(host)
            except (OSError, ValueError, Refused):  # ValueError: nothing of that name can be in DNS
                if enough():
                    break
        time.sleep(AGAIN if waiting else 0.0)
    return [host.name for host in waiting]
