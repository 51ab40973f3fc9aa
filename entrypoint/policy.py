"""What to do about an event. Pure: no clock, no process, no socket; facts and events in, actions out.

The policy notes facts (what was started, what has ended, who was heard when) and derives from them what
is to be done; beside them it remembers only what it has said, and since when it waits. The outcome of the job
is made on the coordinator, at the first event that settles it, and followers adopt it.

    running --cause settled--> failed     --nothing left to stop--> finished
       |  \\--SIGTERM--> stopping --all scripts ended--> stopped or succeeded
       |                                                      --nothing left to stop--> finished
       \\--all deciding processes of all hosts ended with 0--> succeeded --> finished

With restarts to spare, a cause that may be chance settles no outcome but begins a new attempt: attempts.py. What comes
before the user's programs start: rendezvous.py. Who is lost: watching.py. How processes are ended: stopping.py. What
settles: verdict.py.
"""

from collections.abc import Iterator, Sequence
from signal import SIGKILL
from typing import assert_never

from entrypoint import artifacts, events
from entrypoint.attempts import Attempts
from entrypoint.errors import ExitCode
from entrypoint.events import Action, Event, News, Report
from entrypoint.facts import Facts
from entrypoint.gpu_check import GpuCheck
from entrypoint.outcome import Exit, Kind, Outcome, Strength
from entrypoint.plan import Duty, Plan, ProcessSpec, Ready, Restart, Serves
from entrypoint.rendezvous import Rendezvous
from entrypoint.settings import Settings
from entrypoint.stopping import Stopping
from entrypoint.verdict import DYING, LINGER, all_decided, verdict
from entrypoint.watching import Watching

LOOK_AGAIN = 0.1  # seconds between two looks at what processes print while something goes wrong
UNENDING = 2.0  # seconds that a process has from its last words to its end
STRAGGLER = 1.5  # seconds that the coordinator of a stopped job waits for hosts that never appeared
LEAVE = 3.0  # seconds beyond the grace in which the coordinator waits for followers' last words
SAY_WHO_WORKS = 30.0  # seconds after the chief's end, when its workers still work
INVENTORY = 2.0  # seconds in which a host may see what it leaves; a disk that does not answer holds nobody up


class Policy:
    """Decisions for one host of a plan. Times are seconds of one monotonic clock, ours."""

    def __init__(self, plan: Plan, host: str, settings: Settings, now: float) -> None:
        self.facts, self.settings = Facts(plan, host, now), settings
        self.rendezvous = Rendezvous(self.facts, settings)
        self.gpu_check = GpuCheck(self.facts, settings)
        self.stopping = Stopping(self.facts, settings)
        self.attempts = Attempts(self.facts, settings)
        self.watching = Watching(self.facts, settings, now)
        # When limited waits began.
        self.held_since: dict[tuple[int, str], float] = {}  # (attempt, process)
        # What was said already.
        self._told_report: Report | None = None
        self._told_news: News | None = None
        self._due: float | None = None  # the next deadline, as far as it is known
        self._look_at = now
        self._new_cards: list[str] = []  # that are to be written
        self._cards = {(spec.host, spec.card) for spec in plan.processes if spec.card}
        self._lingers = {spec.lingers for spec in plan.processes}
        self._inventory_since: float | None = None
        self._may_serve = any(spec.serves is Serves.MAYBE for spec in plan.processes)
        self._rests_since = now
        self._ranks_came: int | None = None  # the attempt in which all ranks have come up
        self._finished = False

    # --- events in, actions out ---

    def on(self, event: Event, now: float) -> list[Action]:
        """Note the event, then everything that follows from the facts as they are now."""
        return self.on_all((event,), now)

    def on_all(self, happened: Sequence[Event], now: float) -> list[Action]:
        """The same for events that came together: what follows from all of them is looked for once."""
        self.watching.notice_own_pause(now)
        if self._due is not None and now < self._due and all(self._is_only_a_sign_of_life(each) for each in happened):
            for event in happened:
                self._note_sign_of_life(event, now)
            return []
        actions = [action for event in happened for action in self._note(event, now)]
        actions += self._advance(now)
        self._due = None
        return actions

    def _is_only_a_sign_of_life(self, event: Event) -> bool:
        """Whether nothing follows from an event but that somebody is there, and nothing is going on. Most are such."""
        facts = self.facts
        ending = facts.stopping_since is not None or facts.decided_since is not None or facts.outcome is not None
        if facts.causes or facts.clearing or ending:
            return False
        match event:
            case events.Unreached(host=host):
                return host not in facts.line_ended  # else it matters where something has failed
            case events.Reported(report=report):
                return facts.reports.get(report.host) == report
            case events.Informed(news=news):
                return facts.last_news == news
        return False

    def _note_sign_of_life(self, event: Event, now: float) -> None:
        match event:
            case events.Unreached(host=host):
                self.watching.note_unreached(host, now)
            case events.Reported(report=report):
                self.facts.note_heard(report.host, now)
            case events.Informed(offset=offset):
                self.facts.note_heard(self.facts.coordinator, now)
                self.facts.offset = self.facts.offset if offset is None else offset

    def _note(self, event: Event, now: float) -> Iterator[Action]:
        facts = self.facts
        match event:
            case events.Ended():
                yield from self._note_end(event, now)
            case events.NotStarted(name=name, why=why):
                facts.ended[name] = Exit(code=127)
                facts.ended_at[name] = now
                facts.blame(now, name, what="cannot be started", error=why, code=127)
            case events.RankStarted(attempt=attempt) if attempt != facts.attempt:
                pass  # too late; what started it is gone, and so is what it waits for
            case events.RankStarted(name=name):
                facts.specs.setdefault(name, facts.rank_from_elsewhere(name))
                facts.started[name] = now
                facts.ready.add((facts.host, name))
            case events.RankOrphaned():
                self._note_orphan(now)
            case events.Listening(name=name):
                facts.ready.add((facts.host, name))
            case events.Prepared(flags=flags, things=things, unused_gpus=unused_gpus):
                facts.flags, facts.unused_gpus = flags, unused_gpus
                facts.things |= dict(things)
                if facts.is_coordinator:
                    yield from self.rendezvous.note_things(facts.own_report())
            case events.Card(name=card, key=key):
                self._note_cards(facts.host, ((card, key),))
            case events.Signalled(number=number):
                if facts.stopping_since is None and facts.outcome is None:
                    yield events.Say(message=f"signal {number}: stopping; scripts have {self.settings.stop_grace:g} s")
                    facts.note_stop(now)
            case events.Reported(report=report):
                yield from self._note_report(report, now)
            case events.Informed(news=news, offset=offset):
                facts.offset = facts.offset if offset is None else offset
                yield from self._note_news(news, now)
            case events.Unreached(host=host):
                self.watching.note_unreached(host, now)
            case events.LineEnded(host=host):
                self.watching.note_line_ended(host, now)
            case events.Replaced(host=host):
                facts.blame_host(now, host, "lost: its launcher was started again", ExitCode.HOST_LOST)
            case events.Rejected(host=host, why=why):
                self.rendezvous.note_rejected(host, why, now)
            case events.Looked(found=found):
                since = {name: at for name, (at, _, _) in facts.dying.items()}
                facts.dying = {name: (since.get(name, now), error, details) for name, error, details in found}
            case events.Resting(found=found):
                facts.resting = dict(found)
            case events.Probed(found=found):
                yield from self.rendezvous.note_probed(found)
            case events.Survived(name=name):
                if name in facts.running():
                    yield from self.stopping.note_survived(event)
            case events.Swept(left=left):
                self.attempts.note_swept(left, now)
            case events.Inventoried(artifacts=found):
                facts.inventoried, facts.artifacts = True, found
            case events.Broken(why=why, code=code, what=what):
                facts.blame(now, "", what=what, error=why, code=code)
            case events.Due() | events.ChildrenChanged():
                pass
            case _:
                assert_never(event)

    def _note_end(self, event: events.Ended, now: float) -> Iterator[Action]:
        facts = self.facts
        name, exit = event.name, event.exit
        spec = facts.specs.get(name)
        if spec is None or name in facts.ended:
            return
        if spec.duty is Duty.RANK and name not in facts.started:
            return  # it came too late for its attempt, see RankStarted
        facts.ended[name] = exit
        facts.ended_at[name] = now
        if exit.clean and (spec.ready is Ready.ENDED or spec.decides):
            facts.ready.add((facts.host, name))  # a script that ended well holds nobody up
        ours = name in facts.asked or name in facts.forced
        if spec.duty is not Duty.STEP:
            yield events.Say(message=f"{name} {'stopped' if ours else 'ended'}: {exit}")
        wrong = spec.duty is Duty.SERVER or not exit.clean
        expected = ours or facts.clearing or facts.stopping_since is not None or facts.outcome is not None
        if not wrong or expected:
            return
        chance = spec.restart is not Restart.KEEP and self.attempts.may_be_chance(exit) and not event.memory
        if chance and (again := list(self.attempts.start_alone(spec, now))):
            yield from again
            return
        from entrypoint.explain import explain, explain_mpirun  # here, since most jobs never need it

        if spec.duty is Duty.LAUNCHER:  # it fails because a rank did, or falls over its own feet then
            error, details, strength = explain_mpirun(event.output)
            strength = Strength.STRONG if exit.signal == SIGKILL else strength
        else:
            error, details, strength = explain(exit, event.output, event.wrote)
        if spec.duty is Duty.RANK and exit.signal == SIGKILL and not error:
            strength = Strength.WEAK  # mpirun kills the other ranks when one fails
        what = f"ended too early, {exit}" if spec.duty is Duty.SERVER else str(exit)
        if event.memory:
            what, error, strength = f"{what}, out of memory", event.memory, Strength.STRONG
        facts.blame(
            now, name, what=what, error=error, details=details, code=exit.code or 1, strength=strength,
            restartable=chance,
        )  # fmt: skip

    def _note_orphan(self, now: float) -> None:
        """What mpirun starts ranks with on other hosts is gone. On mpirun's own host, its own end says so."""
        facts = self.facts
        over = facts.clearing or facts.stopping_since is not None or facts.outcome is not None or facts.own_cause()
        if not over and not any(spec.duty is Duty.LAUNCHER for spec in facts.specs.values()):
            facts.blame(
                now,
                "orted",
                what="ended too early",
                error="Open MPI's daemon is gone from this host, and its ranks cannot go on without it",
                code=1,
                strength=Strength.WEAK,
                restartable=True,
            )

    def _note_report(self, report: Report, now: float) -> Iterator[Action]:
        facts = self.facts
        host = report.host
        before = facts.reports.get(host)
        facts.reports[host] = report
        facts.note_heard(host, now)
        facts.first_heard.setdefault(host, now)
        self._note_cards(host, report.cards)
        if report.things and report.things != (before and before.things):
            yield from self.rendezvous.note_things(report)
        if report.stopping and facts.outcome is None:
            if facts.stopping_since is None:
                yield events.Say(message=f"{host} was told to stop: so is the whole job")
            facts.note_stop(now, report.stopping_at)
        if report.attempt == facts.attempt:
            facts.ready |= {(host, process) for process in report.ready}
            if report.cause and report.cause != (before and before.cause):  # an echo first, then what is behind it
                facts.note_cause(report.cause, now, report.cause_at)
        if report.gone and facts.outcome is None and (not report.cause or report.attempt != facts.attempt):
            # It took us for lost, while we stood still perhaps. What it was to do will not be done.
            self.watching.blame_own_pause(host, now, now)
            facts.blame_host(now, host, "left before the end of the job", ExitCode.HOST_LOST)

    def _note_news(self, news: News, now: float) -> Iterator[Action]:
        facts = self.facts
        facts.note_heard(facts.coordinator, now)
        facts.last_news = news
        facts.note_question(news.question, now)
        facts.assembled = facts.assembled or news.assembled
        if news.attempt > facts.attempt:
            facts.begin_attempt(news.attempt)
            yield events.Say(message=f"the coordinator says: attempt {news.attempt}")
        if news.attempt == facts.attempt:
            facts.ready |= news.ready
            facts.go = facts.go or news.go
        self._note_cards(facts.coordinator, news.cards)
        if news.stopping and facts.stopping_since is None and facts.outcome is None:
            facts.note_stop(now)
            yield events.Say(message="the coordinator says: stop")
        if news.outcome and facts.outcome is None:
            yield from self._settle_on(news.outcome, now)

    def _note_cards(self, host: str, cards: tuple[tuple[str, str], ...]) -> None:
        reads_them = any(spec.card for spec in self.facts.specs.values())  # who shows none has no use for any
        for card, key in cards:
            if (host, card) not in self._cards:  # of nobody else is it asked: with such a key one could come in
                continue
            keys = self.facts.cards.setdefault(card, {})
            if keys.get(host) != key and reads_them:
                keys[host] = key
                self._new_cards.append(card)

    def _write_cards(self) -> Iterator[Action]:
        cards, self._new_cards = dict.fromkeys(self._new_cards), []
        for card in cards:
            keys = self.facts.cards[card]
            ordered = tuple((name, keys[name]) for name in self.facts.plan.hosts if name in keys)
            yield events.WriteCards(card=card, keys=ordered)

    def repeat(self) -> list[Action]:
        """Say again what was said before anybody could be reached."""
        self._told_report = self._told_news = None
        return list(self._tell())

    # --- what follows from the facts ---

    def _advance(self, now: float) -> Iterator[Action]:
        facts = self.facts
        if self._finished:
            return
        yield from self._write_cards()
        yield from self.rendezvous.advance(now)
        if facts.outcome is None:
            yield from self._watch_the_clock(now)
            yield from self.gpu_check.advance(now)
            self.rendezvous.watch(now)
            self.watching.watch(now)
            self._watch_mpirun(now)
            yield from self._watch_the_dying(now)
            if facts.is_coordinator and not all_decided(facts):
                facts.decided_since = None  # who seemed only to serve may have begun to work
            elif facts.is_coordinator and facts.decided_since is None:
                facts.decided_since = now
            yield from self._say_who_is_waited_for(now)
            settled = verdict(self.facts, self.settings, now)
            if settled is not None and self.attempts.may_try_again(settled):
                yield from self.attempts.try_again(settled, now)
            elif settled is not None:
                yield from self._settle_on(settled, now)
        yield from self.attempts.advance(now)
        if facts.outcome is None and facts.stopping_since is None and facts.go and not facts.causes:
            yield from self._start_what_can(now)
        yield from self.stopping.advance(now)
        yield from self._take_inventory(now)
        yield from self._tell()
        yield from self._finish(now)

    def _watch_the_clock(self, now: float) -> Iterator[Action]:
        """Stop in time before SageMaker ends the job: it would be the same, later and with less time to save."""
        facts, limit = self.facts, self.settings.max_runtime
        if not limit or not facts.is_coordinator or facts.stopping_since is not None:
            return
        if now >= facts.began + limit - self.settings.stop_early:
            facts.note_stop(now)
            early = f"{self.settings.stop_early:g} s before the maximum runtime of {limit:g} s"
            yield events.Say(message=f"stopping {early}")

    def _start_what_can(self, now: float) -> Iterator[Action]:
        facts = self.facts
        progress = True
        while progress:  # a start may be what another process needs
            progress = False
            for spec in facts.specs.values():
                if spec.duty is not Duty.RANK and spec.name not in facts.started and self._may_start(spec, now):
                    facts.started[spec.name] = now
                    if spec.ready is Ready.STARTED:
                        facts.ready.add((facts.host, spec.name))
                    progress = True
                    yield events.Start(spec=spec)

    def _may_start(self, spec: ProcessSpec, now: float) -> bool:
        facts = self.facts
        if not all(facts.met(need) for need in spec.needs if need.at_most is None):
            return False
        if now < facts.not_before.get(spec.name, now):
            return False
        since = self.held_since.setdefault((facts.attempt, spec.name), now)
        limited = [need for need in spec.needs if need.at_most is not None]
        return all(facts.met(need) or now >= since + (need.at_most or 0) for need in limited)

    def _watch_the_dying(self, now: float) -> Iterator[Action]:
        """Where something went wrong: see who is about to end of it; blame who does not get to its end."""
        facts = self.facts
        if not facts.asked_within(DYING, now) or facts.clearing or facts.stopping_since is not None:
            return
        users = [name for name in facts.running() if facts.specs[name].duty.is_users and name not in facts.asked]
        if users and now >= self._look_at:
            # Words that matter come at once, mostly; and a thousand hosts may be waiting for one that does not answer.
            self._look_at = now + max(LOOK_AGAIN, (now - (facts.question_at or now)) / 2)
            yield events.Look(names=tuple(users))
        for name, (since, error, details) in facts.dying.items():
            if name in users and now >= since + UNENDING and facts.own_cause() is None:
                what = "raised, and did not end"  # unless it got over what it printed; so somebody else may be right
                facts.blame(now, name, what=what, error=error, details=details, code=1, strength=Strength.WEAK)

    def _say_who_is_waited_for(self, now: float) -> Iterator[Action]:
        """Once, if workers that may only serve still work when the chief has ended."""
        facts = self.facts
        if not self._may_serve or not facts.is_coordinator or facts.causes or facts.rests() is None:
            self._rests_since = now
        elif now >= self._rests_since + SAY_WHO_WORKS:
            self._may_serve = False
            reports = {host: facts.report_of(host) for host in facts.others}
            if left := [host for host, report in reports.items() if not report.done and report.rests is None]:
                yield events.Say(message=f"waiting for the scripts of {', '.join(left)} (ENTRYPOINT_PS_WORKER_END)")

    def _watch_mpirun(self, now: float) -> None:
        """Bound what mpirun can wait for: daemons that do not reach it, a rank that a host has no process left for."""
        limit = self.settings.start_timeout
        for name in self.facts.running():
            is_launcher = self.facts.specs[name].duty is Duty.LAUNCHER
            late = is_launcher and now >= self.facts.started[name] + limit
            if not late or self.facts.causes or self._ranks_came == self.facts.attempt:
                continue
            if missing := self.facts.ranks_to_come():
                what, error = "started no rank", "do the hosts reach one another on all ports?"
                if self.facts.any_rank_started():
                    what = f"did not start {missing[0].name} of {missing[0].host}"
                    error = "are that host's limits of processes and memory too low?"
                what = f"{what} within {limit:g} s"
                self.facts.blame(now, name, what=what, error=error, code=ExitCode.START_TIMEOUT)
            else:
                self._ranks_came = self.facts.attempt

    def _settle_on(self, settled: Outcome, now: float) -> Iterator[Action]:
        self.facts.outcome, self.facts.outcome_at = settled, now
        text = f"job {settled.kind}"
        if settled.cause:
            text += f": {settled.cause.headline}"
        yield events.Say(message=text)

    def _take_inventory(self, now: float) -> Iterator[Action]:
        """After a success: see what this host leaves, before its last words."""
        if not self.facts.is_over() or not self.facts.succeeded():
            return
        if self._inventory_since is None:
            self._inventory_since = now
            yield events.TakeInventory()
        elif now >= self._inventory_since + INVENTORY:
            self.facts.inventoried = True

    def _say_what_is_left(self) -> Iterator[Action]:
        """The coordinator's: what hosts left for SageMaker to pack, where that is not what they may have meant."""
        facts = self.facts
        if facts.is_coordinator and facts.succeeded():
            left = {host: facts.report_of(host).artifacts for host in facts.others}
            for warning in artifacts.warnings({facts.host: facts.artifacts, **left}):
                yield events.Say(message=f"warning: {warning}")

    def _tell(self) -> Iterator[Action]:
        facts = self.facts
        if not facts.others:
            return
        if facts.is_coordinator:
            news = facts.news()
            if news != self._told_news:
                self._told_news = news
                yield events.TellFollowers(news=news)
        else:
            report = facts.own_report()
            if report != self._told_report:
                self._told_report = report
                yield events.TellCoordinator(report=report)

    def _finish(self, now: float) -> Iterator[Action]:
        """Leave when nothing runs here; the coordinator when the others have left, or had time to."""
        facts = self.facts
        if facts.outcome is None or not facts.leaving():
            return
        if facts.is_coordinator:
            away = self.watching.away(now)
            left = [host for host in facts.others if not facts.is_gone(host) and host not in away]
            if any(now < self._wait_until(host, facts.outcome) for host in left):
                return
        self._finished = True
        yield from self._say_what_is_left()
        yield events.Finish(outcome=facts.outcome)

    def _wait_until(self, host: str, settled: Outcome) -> float:
        """How long the coordinator waits for a follower's last words."""
        facts = self.facts
        if host not in facts.heard:
            # It would wait for us until the start timeout. But who stops a job stops all of its hosts, most likely.
            return facts.outcome_at + (LINGER if settled.kind is Kind.FAILED else STRAGGLER)
        # One that appears after the verdict has yet to hear it: our answer to its first report may be lost.
        serves = facts.succeeded() and not facts.report_of(host).done
        grace = max(self.settings.failure_grace, self.settings.stop_grace if serves else 0.0)
        return max(facts.outcome_at, facts.first_heard.get(host, 0)) + grace + LEAVE

    def deadline(self, now: float) -> float:
        """When to be called again with Due, if nothing happens before."""
        if self._due is None:
            self._due = self._next_deadline(now)
        return self._due

    def _next_deadline(self, now: float) -> float:
        facts = self.facts
        times = [now + self.settings.heartbeat]
        told = facts.outcome is not None or facts.stopping_since is not None
        if told or facts.causes or facts.clearing or facts.forced:
            times.append(now + 0.05)  # the end is near: several short limits are running
        elif facts.asked_within(DYING, now):
            times.append(self._look_at)
        times += [
            since + need.at_most
            for (attempt, name), since in self.held_since.items()
            if attempt == facts.attempt and name not in facts.started
            for need in facts.specs[name].needs
            if need.at_most is not None
        ]
        if facts.outcome is None:
            times += [self.watching.look_at, facts.began + self.settings.start_timeout]
            times += [*self.rendezvous.deadlines(), *self.attempts.deadlines()]
            if self.settings.max_runtime:
                times.append(facts.began + self.settings.max_runtime - self.settings.stop_early)
            if facts.decided_since is not None:
                times += {facts.decided_since + seconds for seconds in self._lingers}
                times.append(now + 0.1)
        # What was due at the last event has been seen to.
        return max(now + 0.001, min(time for time in times if time > self.watching.last))
