"""Decide which outcome follows from the facts. Pure; the coordinator's answer is the job's outcome.

After a failure, every host is asked whether it knows more. Of the causes reported by then, the first that is not a
symptom counts: first by the time at which it happened, not at which it was reported. If all are symptoms, they wait for
a better one while a process runs whose end may bring it. How many seconds they wait depends on the symptoms' texts.
"""

from collections.abc import Sequence
from signal import SIGTERM

from entrypoint.base.errors import ExitCode
from entrypoint.base.values import replace
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.outcome.outcome import Cause, Confidence, Exit, Outcome
from entrypoint.launcher.plan.plan import USERS, Duty, Role
from entrypoint.launcher.policy.facts import Facts, Phase
from entrypoint.launcher.policy.known import SETTLE_SECONDS, Noted

DYING_SECONDS = 3.0  # seconds that a symptom waits, at least, for a process that has printed why it ends
NO_CONTACT_SECONDS = 3.0  # seconds for a host that was stopped to find the coordinator and report it
UNEVEN = (
    "different numbers of batches? Each must take as many steps, and part in what needs all, as a save of "
    "BatchNormalization does"
)
LINGER_SECONDS = 30.0  # seconds that a failed host waits for hosts that have not reported yet


def verdict(facts: Facts, settings: Settings, now: float) -> Outcome | None:
    """Return the outcome that this host may settle on by itself now; None if there is none yet."""
    if not facts.is_coordinator:
        return _followers(facts, now)
    if facts.phase is Phase.STOPPING:
        return _of_a_stop(facts)
    cause = settled_cause(facts, settings, now)
    if cause is not None:
        return outcome.failed(cause)
    if not all_decided(facts):
        return None
    if facts.own.having(Duty.LAUNCHER) and not facts.any_rank_came():
        return _of_mpirun_alone(facts, settings, now)
    if _may_still_work(facts, settings, now) or _waits_for_sidecars(facts, settings, now):
        return None
    return outcome.succeeded()


def all_decided(facts: Facts) -> bool:
    """Return whether nothing failed, and all deciding processes have ended or only serve others."""
    if facts.attempt.causes or facts.rests() is None:
        return False
    return all(report.done or report.rests is not None for report in map(facts.report_of, facts.others))


def _may_still_work(facts: Facts, settings: Settings, now: float) -> bool:
    """Return whether a script that seems only to serve must still be watched after the others have ended."""
    reports = {host: facts.report_of(host) for host in facts.others}
    resting = {host: report.rests or 0.0 for host, report in reports.items() if not report.done}
    patience = max([facts.rests() or 0.0, *resting.values()])
    since = now if facts.attempt.decided_since is None else facts.attempt.decided_since
    is_silent = any(facts.hosts.last_contact.get(host, now) < now - 2 * settings.heartbeat for host in resting)
    return patience > 0 and (now < since + patience or is_silent or now < facts.hosts.woke + settings.heartbeat)


def lingering_hosts(facts: Facts) -> set[str]:
    """Return the hosts on which a process that does not decide may still have work, by their reports."""
    found = {host for host in facts.others if facts.report_of(host).lingering}
    return found | {facts.host} if facts.lingering() else found


def _waits_for_sidecars(facts: Facts, settings: Settings, now: float) -> bool:
    """Return whether a process that does not decide may have work left, and time for it."""
    lingering = lingering_hosts(facts)
    if not lingering:
        return False
    since = now if facts.attempt.decided_since is None else facts.attempt.decided_since
    in_time = any(spec.host in lingering and now < since + spec.lingers for spec in facts.plan.processes)
    # After a pause of ours, the hosts' reports are still on their way, or the hosts are lost.
    just_woke = now < facts.hosts.woke + settings.heartbeat
    is_silent = any(facts.hosts.last_contact.get(host, now) <= facts.hosts.woke for host in lingering)
    return in_time or just_woke or is_silent


def _of_mpirun_alone(facts: Facts, settings: Settings, now: float) -> Outcome | None:
    """Fail if mpirun exited with 0 and started no rank, as with `--version` in the user's options: that is no success.

    The report of a short rank on another host may still be on its way.
    """
    name = facts.own.having(Duty.LAUNCHER)[0]
    if now < facts.own.ended_at[name] + settings.heartbeat + SETTLE_SECONDS:
        return None
    error = "it started no rank; check its options"
    return outcome.failed(Cause(host=facts.host, process=name, what="exit code 0", error=error, code=1))


def settled_cause(facts: Facts, settings: Settings, now: float) -> Cause | None:
    """Return the first cause that is not a symptom; a symptom if nothing better came in time."""
    if not facts.attempt.causes:
        return None
    since = facts.attempt.causes[0].noted_at
    # A host that does not answer may be the reason for the others' failures, whatever these report.
    late = now >= since + settings.peer_timeout + settings.heartbeat
    if not (late or facts.all_acked()):
        return None
    # Others may fail because of an end before that end is reported.
    if patience := min(noted.patience for noted in facts.attempt.causes):
        if facts.is_dying() or any(facts.report_of(host).dying for host in facts.others):
            patience = max(patience, DYING_SECONDS)
        if now < since + SETTLE_SECONDS or (now < since + patience and _a_better_one_may_come(facts)):
            return None
    return _named(facts, facts.attempt.causes)


def _named(facts: Facts, causes: Sequence[Noted]) -> Cause:
    """Return the cause for people. Add how the code's strategy or an uneven end led to it."""
    cause = _explained(facts, _first(facts, causes))
    if facts.other_mode and cause.process:
        cause = replace(cause, error="; ".join(filter(None, [cause.error, facts.other_mode])))
    return cause


def _explained(facts: Facts, cause: Cause) -> Cause:
    """Return the cause.

    For a symptom, name the process that ended too early for the others, or mark it as a symptom.
    """
    from entrypoint.launcher.outcome.symptoms import lost_contact, out_of_step, peer_ended  # here: most never need it

    if cause.confidence is Confidence.HIGH:
        return replace(cause, error=f"{UNEVEN}. {cause.error}") if out_of_step(cause.error) else cause
    # During a stop, scripts that have saved end with 0.
    early = _ended_well_of_those_that_train_together(facts) if facts.phase is not Phase.STOPPING else []
    if early and peer_ended(cause.error, cause.details):
        (host, process), more = early[0], f", as did {len(early) - 1} more," if len(early) > 1 else ""
        what = f"ended with 0{more} while {cause.process} still trained"
        error = f"{UNEVEN}. {cause.process}: {cause.error}"
        return replace(cause, host=host, process=process, what=what, error=error, confidence=Confidence.HIGH, exit=None)
    return replace(cause, error=f"{cause.error} (probably a symptom)") if lost_contact(cause.error) else cause


def _ended_well_of_those_that_train_together(facts: Facts) -> list[tuple[str, str]]:
    """Return (host, process) of ranks and workers that ended with 0; none if each trains by itself."""
    if any(spec.role is Role.PS for spec in facts.plan.processes):
        return []
    exits = {host: facts.report_of(host).exits for host in facts.others} | {facts.host: facts.own.exits(facts.began)}
    well = {(host, name) for host, ends in exits.items() for name, how, _ in ends if how == str(Exit(code=0))}
    together = [spec for spec in facts.plan.processes if spec.role in (Role.RANK, Role.WORKER)]
    return [who for spec in together if (who := (spec.host, spec.name)) in well]


def _a_better_one_may_come(facts: Facts) -> bool:
    """Return whether a user's process still runs, or is still to start, so that its end may show the cause."""
    own = facts.own
    if own.running(*USERS) or (own.running(Duty.LAUNCHER) and facts.ranks_to_come()):
        return True
    lost = facts.lost()
    return any(not (facts.report_of(host).done or facts.hosts.is_gone(host) or host in lost) for host in facts.others)


def _first(facts: Facts, causes: Sequence[Noted]) -> Cause:
    """Return the cause that most likely came first, of the causes that are no symptoms if there are any."""
    strong = [noted for noted in causes if noted.cause.confidence is Confidence.HIGH]
    return min(strong or causes, key=lambda noted: (_how_surely_a_symptom(facts, noted.cause), noted.at)).cause


def _how_surely_a_symptom(facts: Facts, cause: Cause) -> int:
    """Return 3 for mpirun, 2 for a process that mpirun ended, 1 for a lost connection, 0 for a possible first cause."""
    if cause.confidence is Confidence.HIGH:
        return 0
    duty = facts.duties.get((cause.host, cause.process))
    if duty is Duty.LAUNCHER:
        return 3
    if cause.exit and cause.exit.signal == SIGTERM and duty is not Duty.SERVER:
        return 2
    from entrypoint.launcher.outcome.symptoms import lost_contact  # here, since most jobs never need it

    return int(lost_contact(cause.error))


def _of_a_stop(facts: Facts) -> Outcome | None:
    """Return the outcome after SIGTERM, once all remaining scripts have ended.

    A cause from before the stop still counts.
    """
    lost = facts.lost()
    there = [host for host in facts.others if host in facts.hosts.last_contact and host not in lost]
    here_over = facts.done() and not facts.lingering()
    if not here_over or not all(_is_over(facts, host) for host in there):
        return None
    if cause := known_before_the_stop(facts):
        return outcome.failed(cause)
    # A host that is lost now may have reported before that nothing was left to do there.
    clean = facts.clean() and all(_is_over(facts, host) and facts.report_of(host).clean for host in facts.others)
    wrong = [noted for noted in facts.attempt.causes if noted.cause.host not in lost]
    return outcome.succeeded() if clean and not wrong else outcome.stopped()


def known_before_the_stop(facts: Facts) -> Cause | None:
    """Return the causes from before SIGTERM came to the first host; later causes are effects of the stop."""
    asked_at = facts.stop_asked_at
    causes = [noted for noted in facts.attempt.causes if asked_at is not None and _was_before(facts, noted, asked_at)]
    return _named(facts, causes) if causes else None


def _was_before(facts: Facts, noted: Noted, asked_at: float) -> bool:
    if not noted.cause.process and noted.cause.code == ExitCode.HOST_LOST:  # lost when its link ended, if it did
        if facts.report_of(noted.cause.host).stopping and facts.hosts.is_gone(noted.cause.host):
            return False  # it left because it was stopped; we are late, and read of the stop and of its end at once
        return min(noted.noted_at, facts.hosts.link_ended.get(noted.cause.host, noted.noted_at)) <= asked_at
    if noted.cause.confidence is Confidence.HIGH:  # of two hosts' times, whose order is in doubt, the failure's counts
        return noted.at - noted.error <= asked_at
    # A likely symptom may come from the stop, which reaches programs before it reaches us.
    return noted.at <= asked_at - SETTLE_SECONDS


def _is_over(facts: Facts, host: str) -> bool:
    report = facts.report_of(host)
    return facts.hosts.is_gone(host) or (report.done and not report.lingering)


def _followers(facts: Facts, now: float) -> Outcome | None:
    """Return a follower's own outcome if it lost the coordinator, or never reached it; else None."""
    lost = [noted.cause for noted in facts.attempt.causes if noted.cause.host == facts.coordinator]
    if lost:
        return _without_coordinator(facts, lost[0])
    if facts.coordinator not in facts.hosts.last_contact:
        if facts.stopping_since is not None and facts.done() and now >= facts.stopping_since + NO_CONTACT_SECONDS:
            return _stopped_alone(facts)
        own = facts.own_failure()
        lingered = own and now >= facts.attempt.causes[0].noted_at + LINGER_SECONDS
        if own and (facts.coordinator in facts.hosts.rejected or lingered):
            return outcome.failed(own.cause)
    return None


def _without_coordinator(facts: Facts, lost: Cause) -> Outcome | None:
    """Return the outcome if the coordinator is lost. An earlier failure here counts, unless it is a symptom."""
    if facts.phase is Phase.STOPPING:  # scripts keep the time that they were promised
        return _stopped_alone(facts) if facts.done() and not facts.lingering() else None
    contact = facts.hosts.last_contact.get(facts.coordinator, facts.began)
    own = facts.own_failure(Confidence.HIGH)
    return outcome.failed(own.cause if own and own.noted_at < contact else lost)


def _stopped_alone(facts: Facts) -> Outcome:
    cause = known_before_the_stop(facts)
    return outcome.failed(cause) if cause else outcome.stopped()
