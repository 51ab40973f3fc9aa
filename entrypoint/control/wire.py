"""Reports and news as JSON and back. What is not what a host of this job would send is Refused."""

import math
import re
from collections.abc import Container
from dataclasses import asdict
from typing import Any

from entrypoint.outcome.outcome import Outcome, cause_from_json
from entrypoint.policy.artifacts import Artifacts, File
from entrypoint.policy.events import News, Reach, Report

PROTOCOL = 10

_KEY = re.compile(r"[a-z0-9-]+ [A-Za-z0-9+/]+={0,3}")  # as in a .pub file


class Refused(Exception):
    """A message that is not what a host of this job would send; `status` is HTTP's, 400 and up."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


def report_to_json(report: Report) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "host": report.host,
        "attempt": report.attempt,
        "ready": sorted(report.ready),
        "public_keys": list(report.public_keys),
        "fingerprints": list(report.fingerprints),
        "unused_gpus": report.unused_gpus,
        "unreached": [[reach.host, reach.address, reach.why] for reach in report.unreached],
        "done": report.done,
        "clean": report.clean,
        "lingering": report.lingering,
        "rests": report.rests,
        "stopping": report.stopping,
        "stopping_at": report.stopping_at,
        "cause": None if report.cause is None else asdict(report.cause),
        "cause_at": report.cause_at,
        "exits": list(report.exits),
        "ack": report.ack,
        "dying": report.dying,
        "artifacts": None if report.artifacts is None else _artifacts_to_json(report.artifacts),
        "gone": report.gone,
    }


def report_from_json(data: Any, followers: Container[str]) -> Report:
    """Inverse of report_to_json; Refused if none of these hosts would have sent `data`."""
    try:
        _check_protocol(data)
        host = str(data["host"])
        if host not in followers:
            raise Refused(f"{host!r} is not a follower in this job")
        return Report(
            host=host,
            attempt=int(data["attempt"]),
            ready=frozenset(str(name) for name in data["ready"]),
            public_keys=_public_keys(data["public_keys"]),
            fingerprints=_pairs(data["fingerprints"]),
            unused_gpus=str(data["unused_gpus"]),
            unreached=tuple(
                Reach(host=str(name), address=str(address), why=str(why)) for name, address, why in data["unreached"]
            ),
            done=_truth(data["done"]),
            clean=_truth(data["clean"]),
            lingering=_truth(data["lingering"]),
            rests=None if data["rests"] is None else _time(data["rests"]),
            stopping=_truth(data["stopping"]),
            stopping_at=None if data["stopping_at"] is None else _time(data["stopping_at"]),
            cause=None if data["cause"] is None else cause_from_json(data["cause"]),
            cause_at=None if data["cause_at"] is None else _time(data["cause_at"]),
            exits=tuple((str(process), str(exit), _time(at)) for process, exit, at in data["exits"]),
            ack=int(data["ack"]),
            dying=_truth(data["dying"]),
            artifacts=None if data["artifacts"] is None else _artifacts_from_json(data["artifacts"]),
            gone=_truth(data["gone"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed report: {error!r}") from None


def news_to_json(news: News) -> dict[str, Any]:
    return {
        "protocol": PROTOCOL,
        "attempt": news.attempt,
        "go": news.go,
        "ready": sorted(news.ready),
        "public_keys": list(news.public_keys),
        "assembled": news.assembled,
        "poll": news.poll,
        "stopping": news.stopping,
        "outcome": None if news.outcome is None else news.outcome.to_json(),
    }


def news_from_json(data: Any) -> News:
    """Inverse of news_to_json; Refused if the coordinator would not have sent `data`."""
    try:
        _check_protocol(data)
        return News(
            attempt=int(data["attempt"]),
            go=_truth(data["go"]),
            ready=frozenset(_pairs(data["ready"])),
            public_keys=_public_keys(data["public_keys"]),
            assembled=_truth(data["assembled"]),
            poll=int(data["poll"]),
            stopping=_truth(data["stopping"]),
            outcome=None if data["outcome"] is None else Outcome.from_json(data["outcome"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"malformed news: {error!r}") from None


def _artifacts_to_json(artifacts: Artifacts) -> dict[str, Any]:
    files = [[file.path, file.size, file.digest] for file in artifacts.files]
    return {**vars(artifacts), "files": files}


def _artifacts_from_json(data: Any) -> Artifacts:
    return Artifacts(
        files=tuple(File(path=str(path), size=int(size), digest=str(digest)) for path, size, digest in data["files"]),
        model=_truth(data["model"]),
        saved=str(data["saved"]),
        whole=_truth(data["whole"]),
    )


def _pairs(data: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(key), str(value)) for key, value in data)


def _public_keys(data: Any) -> tuple[tuple[str, str], ...]:
    """Return names and keys of ssh. What is no key could become another line of a file, or an option in one."""
    public_keys = _pairs(data)
    for key_name, key in public_keys:
        if not _KEY.fullmatch(key):
            raise ValueError(f"public key {key_name!r} is no public key")
    return public_keys


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not true or false")
    return value


def _time(value: Any) -> float:
    seconds = float(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{value!r} is no time")
    return seconds


def _check_protocol(data: Any) -> None:
    if data["protocol"] != PROTOCOL:
        raise Refused(f"protocol {data['protocol']!r}, wanted {PROTOCOL}: the hosts of one job must run the same image")
