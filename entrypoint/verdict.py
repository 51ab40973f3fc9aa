"""Which outcome the facts settle. Pure questions; the coordinator's answer is the job's.

A cause that looks like the echo of another one waits a moment for it: until every host was heard after it.
"""

from entrypoint import outcome
from entrypoint.facts import Facts
from entrypoint.outcome import Cause, Exit, Outcome, Strength
from entrypoint.plan import Duty
from entrypoint.settings import Settings

SETTLE = 0.3  # seconds that a cause which looks like an echo waits for the one behind it
LINGER = 30.0  # seconds that a host with bad news waits for hosts that have not appeared yet


def verdict(facts: Facts, settings: Settings, now: float) -> Outcome | None:
    """The outcome that this host may settle on by itself now; None while there is none."""
    if not facts.is_coordinator:
        return _followers(facts, now)
    if facts.stopping_since is not None:
        return _of_a_stop(facts)
    cause = settled_cause(facts, settings, now)
    if cause is not None:
        return outcome.failed(cause)
    all_done = facts.done() and all(facts.report_of(host).done for host in facts.others)
    if not all_done or facts.causes:
        return None
    return _of_mpirun_alone(facts, settings, now) if _no_rank_came(facts) else outcome.succeeded()


def _no_rank_came(facts: Facts) -> bool:
    return any(spec.duty is Duty.LAUNCHER for spec in facts.specs.values()) and not facts.any_rank_started()


def _of_mpirun_alone(facts: Facts, settings: Settings, now: float) -> Outcome | None:
    """mpirun ended with 0 and started nothing (`--version` among the user's options, say): not a success.

    News of a short rank on another host may still be on its way.
    """
    name = next(name for name, spec in facts.specs.items() if spec.duty is Duty.LAUNCHER)
    if now < facts.ended_at[name] + settings.heartbeat + SETTLE:
        return None
    error = "it started no rank; look at its options"
    return outcome.failed(Cause(host=facts.host, process=name, what="exit code 0", error=error, code=1))


def settled_cause(facts: Facts, settings: Settings, now: float) -> Cause | None:
    """The first cause that is not an echo; an echo if, after a moment, there is nothing better."""
    causes = [cause for _, cause in facts.causes]
    strong = [cause for cause in causes if cause.strength is Strength.STRONG]
    if strong or not causes:
        return next(iter(strong), None)
    since = facts.causes[0][0]
    all_heard = all(facts.heard.get(host, now) >= since + SETTLE / 3 for host in facts.others)
    late = now >= since + settings.peer_timeout + settings.heartbeat
    if now < since + SETTLE or not (all_heard or late):
        return None
    return min(causes, key=lambda cause: _how_surely_an_echo(facts, cause))


def _how_surely_an_echo(facts: Facts, cause: Cause) -> int:
    """Nothing but an echo: 2 for mpirun, 1 for what mpirun ended; 0 for what may have come first."""
    process = (cause.host, cause.process)
    duty = next((spec.duty for spec in facts.plan.processes if (spec.host, spec.name) == process), None)
    return 2 if duty is Duty.LAUNCHER else int(cause.what == str(Exit(code=143, signal=15)))


def _of_a_stop(facts: Facts) -> Outcome | None:
    """After SIGTERM: when every script of every host that is left has ended."""
    lost = facts.lost()
    there = [host for host in facts.others if host in facts.heard and host not in lost]
    if not facts.done() or not all(facts.report_of(host).done or facts.is_gone(host) for host in there):
        return None
    clean = facts.clean() and there == facts.others and all(facts.report_of(host).clean for host in there)
    return outcome.succeeded() if clean and not facts.causes else outcome.stopped()


def _followers(facts: Facts, now: float) -> Outcome | None:
    """A follower decides only where there is no coordinator whose verdict it could wait for."""
    lost = [cause for _, cause in facts.causes if cause.host == facts.coordinator]
    if lost:
        return _without_coordinator(facts, lost[0])
    if facts.coordinator not in facts.heard:
        if facts.stopping_since is not None and facts.done():
            return outcome.stopped()
        cause = facts.own_cause()
        if cause and now >= facts.causes[0][0] + LINGER:
            return outcome.failed(cause)
    return None


def _without_coordinator(facts: Facts, lost: Cause) -> Outcome | None:
    """The coordinator is lost. What failed here while it was still heard came first; an echo did not."""
    if facts.stopping_since is not None:  # scripts keep the time that they were promised
        return outcome.stopped() if facts.done() else None
    heard = facts.heard.get(facts.coordinator, facts.began)
    own = [
        cause
        for at, cause in facts.causes
        if cause.host == facts.host and cause.strength is Strength.STRONG and at < heard
    ]
    return outcome.failed(own[0] if own else lost)
