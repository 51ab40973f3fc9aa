"""Make one host's report, the coordinator's news, and the status and summary for people from the facts. Pure."""

from typing import Any

from entrypoint.base.codec import plain
from entrypoint.launcher.outcome.outcome import Outcome
from entrypoint.launcher.plan.plan import Need
from entrypoint.launcher.policy.events import News, Report
from entrypoint.launcher.policy.facts import Facts


def report(facts: Facts) -> Report:
    noted, attempt, hosts = facts.own_failure(), facts.attempt, facts.hosts
    return Report(
        host=facts.host,
        # A host that is not clear of the last attempt has nothing to report of the next.
        attempt=attempt.number - attempt.clearing,
        ready=frozenset(name for host, name in attempt.ready if host == facts.host and name not in facts.unasked),
        public_keys=_own_public_keys(facts),
        fingerprints=tuple(sorted(facts.fingerprints.items())),
        unused_gpus=facts.unused_gpus,
        unreached=tuple(reach for reach in hosts.reach.values() if not reach.reached) if hosts.assembled else (),
        done=facts.done(),
        clean=facts.clean(),
        lingering=facts.lingering(),
        rests=facts.rests(),
        stopping=facts.stopping_since is not None,
        stopping_at=facts.by_the_coordinators_clock(facts.stop_asked_at),
        cause=noted.cause if noted else None,
        cause_at=facts.by_the_coordinators_clock(noted.at if noted else None),
        clock_error=facts.clock_error(),
        exits=facts.own.exits(facts.began),
        ack=attempt.poll,
        dying=facts.is_dying(),
        artifacts=facts.artifacts,
        gone=facts.leaving(),
    )


def news(facts: Facts) -> News:
    attempt, needs = facts.attempt, facts.shared_needs
    known = {(host, process) for host, process in needs if facts.met(Need(host=host, process=process))}
    return News(
        attempt=attempt.number,
        go=attempt.go,
        ready=frozenset() if attempt.causes else frozenset(known),  # after a failure, nothing more starts
        public_keys=_own_public_keys(facts),
        assembled=facts.hosts.assembled,
        poll=attempt.poll,
        stopping=facts.stopping_since is not None,
        outcome=facts.outcome,
    )


def _own_public_keys(facts: Facts) -> tuple[tuple[str, str], ...]:
    return tuple((key_name, keys[facts.host]) for key_name, keys in facts.public_keys.items() if facts.host in keys)


def status(facts: Facts, now: float) -> dict[str, Any]:
    hosts = facts.hosts
    return {
        "host": facts.host,
        "rank": facts.plan.hosts.index(facts.host),
        "role": "coordinator" if facts.is_coordinator else "follower",
        "phase": str(facts.phase),
        "attempt": facts.attempt.number,
        "outcome": plain(facts.outcome) if facts.outcome else None,
        "processes": _processes(facts, now),
        "peers": {
            host: {
                "heard_seconds_ago": round(now - hosts.last_contact[host], 3) if host in hosts.last_contact else None,
                "done": facts.report_of(host).done,
                "gone": facts.report_of(host).gone,
            }
            for host in (facts.others if facts.is_coordinator else [facts.coordinator])
        },
    }


def _processes(facts: Facts, now: float) -> list[dict[str, Any]]:
    own = facts.own
    return [
        {
            "name": name,
            "role": str(spec.role),
            "task": spec.task,
            "state": "ended" if name in own.ended else "running" if name in own.started else "waiting",
            "ready": (facts.host, name) in facts.attempt.ready,
            "seconds": round(own.ended_at.get(name, now) - own.started[name], 3) if name in own.started else None,
            "exit": str(own.ended[name]) if name in own.ended else None,
        }
        for name, spec in own.specs.items()
    ]


def summary(facts: Facts, outcome: Outcome, now: float) -> dict[str, Any]:
    """Return how the job ended, and its seconds: before the user's first process, of training, and after that."""
    own = facts.own
    users = [name for name, spec in own.specs.items() if spec.duty.is_users and name in own.started]
    first = min((own.started[name] for name in users), default=None)
    last = max((own.ended_at.get(name, now) for name in users), default=None)
    return {
        "host": facts.host,
        "exit_code": outcome.exit_code,
        "outcome": str(outcome.kind),
        "cause": outcome.cause.headline if outcome.cause else None,
        "seconds": {
            "start": None if first is None else round(first - facts.began, 3),
            "train": None if first is None or last is None else round(last - first, 3),
            "tail": None if last is None else round(now - last, 3),
        },
        "processes": _processes(facts, now),
        "succeeded": facts.succeeded(),
    }
