"""Define pages for browsers safely: their routes, the headers of answers, and the host names that requests may have."""

import contextlib
import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path

from entrypoint.base.values import Value

_HEADERS = [
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
]


class Route(Value):
    """Describe a page or data that people may GET from the coordinator's control port."""

    body: Callable[[Path], bytes]  # made from the folder of the job's records, without waiting for anything
    is_page: bool = False  # HTML that holds nothing of the job, so that it needs no token; else JSON


Routes = Mapping[str, Route]  # by path


def headers(body: bytes, is_page: bool = False) -> list[tuple[str, str]]:
    """Return the headers of an answer: HTML if it is a page, else JSON."""
    kind = "text/html; charset=utf-8" if is_page else "application/json"
    return [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS]


def is_this_machine(host: str) -> bool:
    """Return whether the header `Host` of a browser's request means this machine: localhost, or an address.

    The name server of a hostile page may give our address to a name of its own.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_address(name.strip("[]")))
    return name.lower() == "localhost"
