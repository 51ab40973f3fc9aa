"""Make a host's report and the coordinator's news from the facts as they are. Pure."""

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
