"""Reports and news as JSON and back. What is not what a host of this job would send is Refused.

The types of `Report` and `News` say what may stand in a message: an object for a dataclass, by its fields' names, all
of them; an array for a tuple or a set.
"""

import math
import re
from collections.abc import Callable, Container
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from entrypoint.policy.events import News, Report

PROTOCOL = 11

_KEY = re.compile(r"[a-z0-9-]+ [A-Za-z0-9+/]+={0,3}")  # as in a .pub file


class Refused(Exception):
    """A message that is not what a host of this job would send; `status` is HTTP's, 400 and up."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


def to_json(message: Report | News) -> dict[str, Any]:
    return {"protocol": PROTOCOL, **_plain(message)}


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
        message = _reader(kind)(data)
        for name, key in message.public_keys:
            # What is no key could become another line of a file, or an option in one.
            if not _KEY.fullmatch(key):
                raise ValueError(f"public key {name!r} is no public key")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed {kind.__name__.lower()}: {error!r}") from None
    return message


def _plain(value: Any) -> Any:
    """Return what JSON can hold; sets in order, so that equal messages are the same text."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    kind: Any = type(value)
    return {name: _plain(getattr(value, name)) for name in _types(kind)}


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of this type from JSON; it raises KeyError, TypeError or ValueError if it cannot.

    Made once for each type: a coordinator reads the reports of a thousand hosts.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:  # of a type and None
        read = _reader(next(each for each in inner if each is not NoneType))
        return lambda value: None if value is None else read(value)
    if origin in (tuple, frozenset):
        readers = [_reader(each) for each in inner if each is not ...]
        if origin is tuple and inner[-1] is not ...:
            return lambda value: tuple([read(part) for read, part in zip(readers, _array(value), strict=True)])
        return lambda value: origin(map(readers[0], _array(value)))
    if is_dataclass(kind):
        make: Any = kind
        of_fields = {name: _reader(each) for name, each in _types(make).items()}
        return lambda value: make(**{name: read(value[name]) for name, read in of_fields.items()})
    return kind if issubclass(kind, Enum) else _finite if kind is float else partial(_plainly, kind)


def _array(value: Any) -> list[Any]:
    return value if isinstance(value, list) else _plainly(list, value)


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no time")
    return float(value)


def _plainly(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


@cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
