"""Reports and news as JSON and back. What is not what a host of this job would send is Refused.

The types of `Report` and `News` say what may stand in a message: `base/codec.py` reads it by them.
"""

import re
from collections.abc import Container
from typing import Any

from entrypoint.base.codec import plain, reader
from entrypoint.launcher.policy.events import News, Report

PROTOCOL = 11

_KEY = re.compile(r"[a-z0-9-]+ [A-Za-z0-9+/]+={0,3}")  # as in a .pub file


class Refused(Exception):
    """A message that is not what a host of this job would send; `status` is HTTP's, 400 and up."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


def to_json(message: Report | News) -> dict[str, Any]:
    return {"protocol": PROTOCOL, **plain(message)}


def report_from_json(data: Any, followers: Container[str]) -> Report:
    """Read what to_json wrote; Refused if none of these hosts would have sent `data`."""
    report: Report = _message(Report, data)
    if report.host not in followers:
        raise Refused(f"{report.host!r} is not a follower in this job")
    return report


def news_from_json(data: Any) -> News:
    """Read what to_json wrote; Refused if the coordinator would not have sent `data`."""
    news: News = _message(News, data)
    return news


def _message(kind: Any, data: Any) -> Any:
    try:
        if data["protocol"] != PROTOCOL:
            found = data["protocol"]
            raise Refused(f"protocol {found!r}, wanted {PROTOCOL}: the hosts of one job must run the same image")
        message = reader(kind)(data)
        for name, key in message.public_keys:
            # What is no key could become another line of a file, or an option in one.
            if not _KEY.fullmatch(key):
                raise ValueError(f"public key {name!r} is no public key")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed {kind.__name__.lower()}: {error!r}") from None
    return message
