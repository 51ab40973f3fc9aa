"""Reports and news as JSON and back. What is not what a host of this job would send is Refused."""

from typing import Any

from entrypoint.cluster import Cluster
from entrypoint.events import News, Report
from entrypoint.outcome import Outcome, cause_from_json

PROTOCOL = 1


class Refused(Exception):
    """A message that is not what a host of this job would send."""


def report_to_json(report: Report) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "host": report.host,
        "ready": sorted(report.ready),
        "cards": list(report.cards),
        "done": report.done,
        "clean": report.clean,
        "stopping": report.stopping,
        "cause": None if report.cause is None else vars(report.cause),
        "gone": report.gone,
    }


def report_from_json(data: Any, cluster: Cluster) -> Report:
    """Inverse of report_to_json; Refused if a host of this cluster would not have sent `data`."""
    try:
        _check_protocol(data)
        host = str(data["host"])
        if host not in {follower.name for follower in cluster.followers}:
            raise Refused(f"{host!r} is not a follower in this job")
        return Report(
            host=host,
            ready=frozenset(str(name) for name in data["ready"]),
            cards=tuple((str(card), str(line)) for card, line in data["cards"]),
            done=bool(data["done"]),
            clean=bool(data["clean"]),
            stopping=bool(data["stopping"]),
            cause=None if data["cause"] is None else cause_from_json(data["cause"]),
            gone=bool(data["gone"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed report: {error!r}") from None


def news_to_json(news: News) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "ready": sorted(news.ready),
        "cards": list(news.cards),
        "stopping": news.stopping,
        "outcome": None if news.outcome is None else news.outcome.to_json(),
    }


def news_from_json(data: Any) -> News:
    """Inverse of news_to_json; Refused if the coordinator would not have sent `data`."""
    try:
        _check_protocol(data)
        return News(
            ready=frozenset((str(host), str(process)) for host, process in data["ready"]),
            cards=tuple((str(card), str(line)) for card, line in data["cards"]),
            stopping=bool(data["stopping"]),
            outcome=None if data["outcome"] is None else Outcome.from_json(data["outcome"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed news: {error!r}") from None


def _check_protocol(data: Any) -> None:
    if data["protocol"] != PROTOCOL:
        raise Refused(f"protocol {data['protocol']!r}, wanted {PROTOCOL}: the hosts of one job must run the same image")
