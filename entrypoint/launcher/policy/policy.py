"""Decide what to do about events. Pure: no clock, no process, no socket; facts and events in, actions out.

The policy notes facts (what was started, what has ended, when each host reported last) and derives from them what to
do. Beside the facts it remembers only its last messages and its timers. The coordinator makes the job's outcome at the
first event that settles it; followers adopt it. facts.py has the chart, README.md the other modules.
"""

from collections.abc import Iterator, Sequence
from math import inf

from entrypoint.base.errors import ExitCode
from entrypoint.base.python310 import assert_never
from entrypoint.launcher.job.settings import Settings
from entrypoint.launcher.outcome.outcome import Exit, Outcome
from entrypoint.launcher.plan.plan import Plan
from entrypoint.launcher.policy import events, messages
from entrypoint.launcher.policy.events import Action, Event, News, Report
from entrypoint.launcher.policy.facts import Facts, Phase
from entrypoint.launcher.policy.known import PEER_SECONDS
from entrypoint.launcher.policy.liveness import Liveness
from entrypoint.launcher.policy.process_exits import Ends
from entrypoint.launcher.policy.rendezvous import Rendezvous
from entrypoint.launcher.policy.starting import Starting
from entrypoint.launcher.policy.termination import Termination
from entrypoint.launcher.policy.verdict import all_decided, verdict


class Policy:
    """Decide for one host of a plan. Times are seconds of our own monotonic clock."""

    def __init__(self, plan: Plan, host: str, settings: Settings, now: float) -> None:
        self.facts, self.settings = Facts(plan, host, now), settings
        self.rendezvous = Rendezvous(self.facts, settings)
        self.liveness = Liveness(self.facts, settings, now)
        self.termination = Termination(self.facts, settings, self.liveness)
        self.starting = Starting(self.facts, settings)
        self.ends = Ends(self.facts, settings, self.starting, now)
        # The last messages that were sent.
        self._sent_report: Report | None = None
        self._sent_news: News | None = None
        self.deadline = now  # when to be called with Due, if nothing happens before
        self._new_public_keys: list[str] = []  # keys whose files must be written
        self._public_keys = {(spec.host, spec.key_name) for spec in plan.processes if spec.key_name}
        self._stop_at = now + settings.max_runtime - settings.stop_early_seconds if settings.max_runtime else inf
        self._lingers = {spec.lingers for spec in plan.processes}

    def on(self, happened: Sequence[Event], now: float) -> list[Action]:
        """Note events that came together. Return the actions that follow from the facts after that."""
        self.liveness.notice_own_pause(now)
        quiet = now < self.deadline and self._are_signs_of_life(happened)
        actions = [action for event in happened for action in self._note(event, now)]
        if not quiet:
            actions += self._advance(now)
            self.deadline = self._next_deadline(now)  # here, so that a replay has the same one
        return actions

    def _are_signs_of_life(self, happened: Sequence[Event]) -> bool:
        """Return whether the events only show that hosts are alive, and no other work is due.

        This holds for most events.
        """
        facts, hosts = self.facts, self.facts.hosts
        if facts.attempt.causes or facts.attempt.decided_since is not None or not facts.phase.is_active:
            return False
        for event in happened:
            match event:
                case events.Unreached(host=host) if host not in hosts.link_ended:  # else it matters after a failure
                    continue
                case events.Reported(report=report) if hosts.reports.get(report.host) == report:
                    continue
                case events.Informed(news=news) if hosts.news == news:
                    continue
            return False
        return True

    def _note(self, event: Event, now: float) -> Iterator[Action]:
        facts = self.facts
        match event:
            case events.Ended():
                yield from self.ends.note(event, now)
            case events.NotStarted(name=name, why=why, code=code):
                facts.own.note_ended(name, Exit(code=code), now)
                facts.blame(now, name, what="cannot be started", error=why, code=code)
            case events.RankStarted(attempt=attempt) if attempt != facts.attempt.number:
                pass  # too late: the process that started it is gone
            case events.RankStarted(name=name):
                elsewhere = facts.ranks[0].but(host=facts.host, name=name, task="placed by the user's options")
                facts.own.note_started(facts.own.specs.get(name, elsewhere), now)
                facts.attempt.note_ready((facts.host, name))
            case events.RankOrphaned():
                self.ends.note_orphan(now)
            case events.Listening(name=name):
                facts.attempt.note_ready((facts.host, name))
            case events.Fingerprinted(fingerprints=fingerprints):
                facts.fingerprints |= fingerprints
            case events.Prepared():
                facts.flags, facts.unused_gpus, facts.other_mode = event.flags, event.unused_gpus, event.other_mode
                facts.fingerprints |= dict(event.fingerprints)
                if facts.is_coordinator:
                    yield from self.rendezvous.note_fingerprints(facts.host, facts.fingerprints, now)
            case events.PublicKey(name=key_name, key=key):
                self._note_public_keys(facts.host, ((key_name, key),))
            case events.Signalled(number=number):
                if facts.note_stop(now):
                    grace = f"{self.settings.stop_grace:g} s"
                    yield events.Say(message=f"signal {number}: stopping; scripts have {grace} to save")
            case events.Reported(report=report):
                yield from self._note_report(report, now)
            case events.Informed(news=news, offset=offset, error=error):
                if offset is not None:
                    facts.offset, facts.offset_error = offset, error
                yield from self._note_news(news, now)
            case events.Unreached(host=host):
                self.liveness.note_unreached(host, now)
            case events.LinkEnded(host=host):
                self.liveness.note_link_ended(host, now)
            case events.Replaced(host=host):
                facts.blame_host(now, host, "lost: its launcher was restarted", ExitCode.HOST_LOST)
            case events.Answered(host=host):
                if host in facts.hosts.last_contact:  # otherwise it has not reported yet
                    facts.hosts.note_contact(host, now)
            case events.Rejected(host=host, why=why):
                facts.hosts.note_rejected(host, why, now)
            case events.Looked(found=found):
                facts.attempt.note_dying(found, now)
            case events.Resting(found=found):
                facts.attempt.resting = dict(found)
            case events.Probed(found=found):
                yield from self.rendezvous.note_probed(found, now)
            case events.Survived(name=name):
                if name in facts.own.running():
                    yield from self.termination.note_survived(event)
            case events.Swept(left=left):
                self.starting.note_swept(left, now)
            case events.Inventoried(artifacts=found):
                facts.inventoried, facts.artifacts = True, found
            case events.Broken(why=why, code=code, what=what):
                facts.blame(now, "", what=what, error=why, code=code)
            case events.Found(cause=cause):
                if facts.phase.is_active:
                    facts.note_cause(cause, now)
            case events.Due():
                pass
            case _:
                assert_never(event)

    def _note_report(self, report: Report, now: float) -> Iterator[Action]:
        facts = self.facts
        host = report.host
        before = facts.hosts.reports.get(host)
        facts.hosts.note_report(report, now)
        self._note_public_keys(host, report.public_keys)
        if report.fingerprints and report.fingerprints != (before and before.fingerprints):
            yield from self.rendezvous.note_fingerprints(host, dict(report.fingerprints), now)
        stopped_by = None if report.stopping_at is None else report.stopping_at + report.clock_error
        if report.stopping and facts.note_stop(now, stopped_by):
            yield events.Say(message=f"{host} got SIGTERM: the whole job stops")
        if report.attempt == facts.attempt.number:
            facts.attempt.note_ready(*((host, process) for process in report.ready))
            if report.cause and report.cause != (before and before.cause):  # a symptom may come before its cause
                facts.note_cause(report.cause, now, report.cause_at, report.clock_error)
        if report.gone and facts.outcome is None and (not report.cause or report.attempt != facts.attempt.number):
            # It took us for lost, perhaps while we were paused. Its part of the work will not be done.
            self.liveness.blame_own_pause(host, now, now)
            facts.blame_host(now, host, "left before the end of the job", ExitCode.HOST_LOST)

    def _note_news(self, news: News, now: float) -> Iterator[Action]:
        facts = self.facts
        facts.hosts.note_news(news, facts.coordinator, now, answers=facts.offset is not None)
        facts.attempt.note_poll(news.poll, now)
        if news.attempt > facts.attempt.number:
            facts.begin_attempt(news.attempt)
            yield events.Say(message=f"the coordinator starts attempt {news.attempt}")
        if news.attempt == facts.attempt.number:
            facts.attempt.note_ready(*news.ready)
            facts.attempt.go = facts.attempt.go or news.go
        self._note_public_keys(facts.coordinator, news.public_keys)
        if news.stopping and facts.note_stop(now):
            yield events.Say(message="the coordinator stops the job")
        if news.outcome and facts.outcome is None:
            yield from self._settle_on(news.outcome, now)

    def _note_public_keys(self, host: str, public_keys: tuple[tuple[str, str], ...]) -> None:
        if not (public_keys and any(spec.key_name for spec in self.facts.own.specs.values())):
            return  # this host needs no keys of others
        for key_name, key in public_keys:
            # Accept keys only from the hosts of the plan: such a key opens ssh.
            if (host, key_name) in self._public_keys and self.facts.note_public_key(key_name, host, key):
                self._new_public_keys.append(key_name)

    def _write_public_keys(self) -> Iterator[Action]:
        public_keys, self._new_public_keys = dict.fromkeys(self._new_public_keys), []
        for key_name in public_keys:
            keys = self.facts.public_keys[key_name]
            ordered = tuple((name, keys[name]) for name in self.facts.plan.hosts if name in keys)
            yield events.WritePublicKeys(key_name=key_name, keys=ordered)

    def repeat(self) -> list[Action]:
        """Repeat all messages that were sent before any host could be reached."""
        self._sent_report = self._sent_news = None
        return list(self._send_changes())

    def _advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
        if facts.phase is Phase.ENDED:
            return
        yield from self._write_public_keys()
        yield from self.rendezvous.advance(now)
        yield from self.liveness.knock(now)
        if facts.outcome is None:
            yield from self._watch_the_clock(now)
            yield from self.rendezvous.check_gpus(now)
            self.rendezvous.watch(now)
            self.liveness.watch(now)
            yield from self.ends.watch(now)
            facts.attempt.note_decided(facts.is_coordinator and all_decided(facts), now)
            settled = verdict(self.facts, self.settings, now)
            if settled is not None and self.starting.may_try_again(settled):
                yield from self.starting.try_again(settled, now)
            elif settled is not None:
                yield from self._settle_on(settled, now)
        yield from self.starting.advance(now)
        yield from self.termination.advance(now)
        yield from self.termination.take_inventory(now)
        yield from self._send_changes()
        yield from self.termination.finish(now)

    def _watch_the_clock(self, now: float) -> Iterator[Action]:
        """Stop the job before SageMaker ends it, which would come later and leave less time to save."""
        if self.facts.is_coordinator and now >= self._stop_at and self.facts.note_stop(now):
            early, limit = self.settings.stop_early_seconds, self.settings.max_runtime
            yield events.Say(message=f"stopping {early:g} s before the maximum runtime of {limit:g} s")

    def _settle_on(self, settled: Outcome, now: float) -> Iterator[Action]:
        self.facts.outcome, self.facts.outcome_at = settled, now
        yield events.Say(message=f"job {settled.kind}" + (f": {settled.cause.headline}" if settled.cause else ""))

    def _send_changes(self) -> Iterator[Action]:
        facts = self.facts
        if not facts.others:
            return
        if facts.is_coordinator:
            news = messages.news(facts)
            if news != self._sent_news:
                self._sent_news = news
                yield events.TellFollowers(news=news)
        else:
            report = messages.report(facts)
            if report != self._sent_report:
                self._sent_report = report
                yield events.TellCoordinator(report=report)

    def _next_deadline(self, now: float) -> float:
        facts = self.facts
        times = [now + self.settings.heartbeat]
        if facts.attempt.causes or facts.own.forced or not facts.phase.is_active:
            times.append(now + 0.05)  # the end is near: several short limits are running
        elif facts.attempt.polled_within(PEER_SECONDS, now):
            times.append(self.ends.look_at)
        times += self.starting.deadlines()
        if facts.outcome is None:
            times += [self.liveness.look_at, facts.began + self.settings.start_timeout]
            times += self.rendezvous.deadlines()
            times.append(self._stop_at)
            if facts.attempt.decided_since is not None:
                times += {facts.attempt.decided_since + seconds for seconds in self._lingers}
                times.append(now + 0.1)
        # Deadlines before the last event were handled then.
        return max(now + 0.001, min(time for time in times if time > self.liveness.last))
