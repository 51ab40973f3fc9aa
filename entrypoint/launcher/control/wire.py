"""Convert reports and news to JSON and back, by their types. Refuse messages that no host of this job would send."""

import re
from collections.abc import Container
from typing import Any

from entrypoint.base.codec import plain, reader
from entrypoint.launcher.policy.events import News, Report

PROTOCOL = 13

_KEY = re.compile(r"[a-z0-9-]+ [A-Za-z0-9+/]+={0,3}")  # as in a .pub file


class Refused(Exception):
    """Report a message that no host of this job would send. `status` is HTTP's, 400 and up."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


def to_json(message: Report | News) -> dict[str, Any]:
    """Return a message without fields that have their defaults: a coordinator reads messages of a thousand hosts."""
    known = message.defaults
    values = {name: getattr(message, name) for name in message.fields}
    told = {name: plain(value) for name, value in values.items() if name not in known or value != known[name]}
    return {"protocol": PROTOCOL, **told}


def report_from_json(data: Any, followers: Container[str]) -> Report:
    """Return the report in `data`, as to_json wrote it. Raise Refused if none of these hosts would have sent it."""
    report: Report = _message(Report, data)
    if report.host not in followers:
        raise Refused(f"{report.host!r} is not a follower in this job")
    return report


def news_from_json(data: Any) -> News:
    """Return the news in `data`, as to_json wrote it. Raise Refused if the coordinator would not have sent it."""
    return _message(News, data)


def _message(kind: Any, data: Any) -> Any:
    try:
        if data["protocol"] != PROTOCOL:
            found = data["protocol"]
            raise Refused(f"protocol {found!r}, wanted {PROTOCOL}: the hosts of one job must run the same image")
        message = reader(kind, whole=False)(data)
        for name, key in message.public_keys:
            # Other text could become another line of ssh's files, or an option in one.
            if not _KEY.fullmatch(key):
                raise ValueError(f"public key {name!r} is no public key")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed {kind.__name__.lower()}: {error!r}") from None
    return message
