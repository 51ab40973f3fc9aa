"""What to do about an event. Pure: no clock, no process, no socket; facts and events in, actions out.

The policy keeps facts (what was started, what has ended, who was heard when) and derives from them what
is to be done; there is no state beside the facts. The outcome of the job is made on the coordinator, at
the first event that settles it, and followers adopt it.

    running --cause settled--> failed     --nothing left to stop--> finished
       |  \\--SIGTERM--> stopping --all scripts ended--> stopped or succeeded
       |                                                      --nothing left to stop--> finished
       \\--all deciding processes of all hosts ended with 0--> succeeded --> finished
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, assert_never

from entrypoint import events, outcome
from entrypoint.errors import ExitCode
from entrypoint.events import Action, Event, News, Report
from entrypoint.outcome import Cause, Exit, Kind, Outcome, Strength
from entrypoint.plan import ALL_HOSTS, Duty, Need, Plan, ProcessSpec, Ready
from entrypoint.settings import Settings

SETTLE = 0.3  # seconds that a cause which looks like an echo waits for the one behind it
LEAVE = 3.0  # seconds beyond the grace in which the coordinator waits for followers' last words
LINGER = 30.0  # seconds that a host with bad news waits for hosts that have not appeared yet
NAG = 10.0  # seconds between two lines about who is missing
ABORT = 0.5  # seconds that mpirun has, when ranks that were told to stop have all ended, some of them badly
UNWIND = 10.0  # the same, when all of them ended well
PAUSE = 2.0  # seconds: a longer gap between two events means that we ourselves stood still


class Policy:
    """Decisions for one host of a plan. Times are seconds of one monotonic clock, ours."""

    def __init__(self, plan: Plan, host: str, settings: Settings, now: float) -> None:
        self.plan, self.host, self.settings, self.began = plan, host, settings, now
        self.specs = {spec.name: spec for spec in plan.on(host)}
        self.coordinator = plan.hosts[0]
        self.is_coordinator = host == self.coordinator
        self.others = [name for name in plan.hosts if name != host]
        self._shared_needs = {
            (need.host, need.process)
            for spec in plan.processes
            for need in spec.needs
            if spec.host != self.coordinator and need.host != spec.host
        }
        # Facts of this host.
        self.started: dict[str, float] = {}
        self.ended: dict[str, Exit] = {}
        self.ended_at: dict[str, float] = {}
        self.ready: set[tuple[str, str]] = set()
        self.cards: dict[str, dict[str, str]] = {}
        self.flags: frozenset[str] | None = None
        self.asked: dict[str, float] = {}
        self.forced: set[str] = set()
        self.held_since: dict[str, float] = {}
        # Facts of the job.
        self.heard: dict[str, float] = {}
        self.first_heard: dict[str, float] = {}
        self.reports: dict[str, Report] = {}
        self.causes: list[tuple[float, Cause]] = []
        self.stopping_since: float | None = None
        self.ranks_over_since: float | None = None
        self.outcome: Outcome | None = None
        self.outcome_at = now
        # What was said already.
        self._told_report: Report | None = None
        self._told_news: News | None = None
        self._nag_at = now + NAG
        self._last = now
        self._finished = False

    # --- events in, actions out ---

    def on(self, event: Event, now: float) -> list[Action]:
        """Note the event, then everything that follows from the facts as they are now."""
        self._notice_own_pause(now)
        actions = list(self._note(event, now))
        actions += self._advance(now)
        return actions

    def _note(self, event: Event, now: float) -> Iterator[Action]:
        match event:
            case events.Ended():
                yield from self._note_end(event, now)
            case events.NotStarted(name=name, why=why):
                self.ended[name] = Exit(code=127)
                self.ended_at[name] = now
                self._blame(now, name, what="cannot be started", error=why, code=127)
            case events.RankStarted(name=name):
                self.specs.setdefault(name, self._rank_from_elsewhere(name))
                self.started[name] = now
                self.ready.add((self.host, name))
            case events.Listening(name=name):
                self.ready.add((self.host, name))
            case events.Flags(flags=flags):
                self.flags = flags
            case events.Card(name=card, line=line):
                yield from self._note_cards(self.host, ((card, line),))
            case events.Signalled(number=number):
                if self.stopping_since is None and self.outcome is None:
                    yield events.Say(message=f"signal {number}: stopping; scripts have {self.settings.stop_grace:g} s")
                    self.stopping_since = now
            case events.Reported(report=report):
                yield from self._note_report(report, now)
            case events.Informed(news=news):
                yield from self._note_news(news, now)
            case events.Broken(why=why, code=code):
                self._blame(now, "", what="the launcher failed", error=why, code=code)
            case events.Due() | events.ChildrenChanged():
                pass
            case _:
                assert_never(event)

    def _rank_from_elsewhere(self, name: str) -> ProcessSpec:
        """The user's own options made mpirun place a rank here that the plan has on another host."""
        rank = next(spec for spec in self.plan.processes if spec.duty is Duty.RANK)
        return replace(rank, host=self.host, name=name, task="placed by the user's options")

    def _note_end(self, event: events.Ended, now: float) -> Iterator[Action]:
        name, exit = event.name, event.exit
        spec = self.specs.get(name)
        if spec is None or name in self.ended:
            return
        self.ended[name] = exit
        self.ended_at[name] = now
        if exit.clean and (spec.ready is Ready.ENDED or spec.decides):
            self.ready.add((self.host, name))  # a script that ended well holds nobody up
        ours = name in self.asked or name in self.forced
        if spec.duty is not Duty.STEP:
            yield events.Say(message=f"{name} {'stopped' if ours else 'ended'}: {exit}")
        wrong = spec.duty is Duty.SERVER or not exit.clean
        if not wrong or ours or self.stopping_since is not None or self.outcome is not None:
            return
        error, details, strength = outcome.explain(exit, event.output, first_line=spec.duty is Duty.LAUNCHER)
        if spec.duty is Duty.LAUNCHER or (spec.duty is Duty.RANK and exit.signal == 9 and not error):
            strength = Strength.WEAK  # mpirun fails because a rank did, and kills the others
        what = f"ended too early, {exit}" if spec.duty is Duty.SERVER else str(exit)
        self._blame(now, name, what=what, error=error, details=details, code=exit.code or 1, strength=strength)

    def _note_report(self, report: Report, now: float) -> Iterator[Action]:
        host = report.host
        before = self.reports.get(host)
        self.reports[host] = report
        self.heard[host] = now
        self.first_heard.setdefault(host, now)
        self.ready |= {(host, process) for process in report.ready}
        yield from self._note_cards(host, report.cards)
        if report.stopping and self.stopping_since is None and self.outcome is None:
            self.stopping_since = now
            yield events.Say(message=f"{host} was told to stop: so is the whole job")
        if report.cause and report.cause != (before and before.cause):  # an echo first, then what is behind it
            self.causes.append((now, report.cause))
        if report.gone and self.outcome is None and not report.cause:
            # It took us for lost, while we stood still perhaps. What it was to do will not be done.
            self._blame_host(now, host, "left before the end of the job", ExitCode.HOST_LOST)

    def _note_news(self, news: News, now: float) -> Iterator[Action]:
        self.heard[self.coordinator] = now
        self.ready |= news.ready
        yield from self._note_cards(self.coordinator, news.cards)
        if news.stopping and self.stopping_since is None and self.outcome is None:
            self.stopping_since = now
            yield events.Say(message="the coordinator says: stop")
        if news.outcome and self.outcome is None:
            yield from self._settle_on(news.outcome, now)

    def _note_cards(self, host: str, cards: tuple[tuple[str, str], ...]) -> Iterator[Action]:
        for card, line in cards:
            lines = self.cards.setdefault(card, {})
            if lines.get(host) != line:
                lines[host] = line
                ordered = tuple((name, lines[name]) for name in self.plan.hosts if name in lines)
                yield events.WriteCards(card=card, lines=ordered)

    def _notice_own_pause(self, now: float) -> None:
        # If this process was stopped (SIGSTOP, a frozen machine), nobody was silent: we were deaf.
        gap = now - self._last
        settings = self.settings
        if gap > max(1.5 * settings.heartbeat, min(PAUSE + settings.heartbeat, 0.8 * settings.peer_timeout)):
            self.heard = {host: heard + gap for host, heard in self.heard.items()}
        self._last = now

    def repeat(self) -> list[Action]:
        """Say again what was said before anybody could be reached."""
        self._told_report = self._told_news = None
        return list(self._tell())

    # --- what follows from the facts ---

    def _advance(self, now: float) -> Iterator[Action]:
        if self._finished:
            return
        yield from self._nag(now)
        if self.outcome is None:
            self._watch_others(now)
            yield from self._decide(now)
        if self.outcome is None and self.stopping_since is None and not self._own_cause():
            yield from self._start_what_can(now)
        yield from self._stop_what_must(now)
        yield from self._tell()
        yield from self._finish(now)

    def _start_what_can(self, now: float) -> Iterator[Action]:
        progress = True
        while progress:  # a start may be what another process needs
            progress = False
            for spec in self.specs.values():
                if spec.duty is not Duty.RANK and spec.name not in self.started and self._may_start(spec, now):
                    self.started[spec.name] = now
                    if spec.ready is Ready.STARTED:
                        self.ready.add((self.host, spec.name))
                    progress = True
                    yield events.Start(spec=spec)

    def _may_start(self, spec: ProcessSpec, now: float) -> bool:
        if not all(self._met(need) for need in spec.needs if need.at_most is None):
            return False
        since = self.held_since.setdefault(spec.name, now)
        limited = [need for need in spec.needs if need.at_most is not None]
        return all(self._met(need) or now >= since + (need.at_most or 0) for need in limited)

    def _met(self, need: Need) -> bool:
        if need.only_if is not None and self.flags is not None and need.only_if not in self.flags:
            return True
        if (need.host, need.process) in self.ready:
            return True
        return (
            need.host == ALL_HOSTS
            and self.is_coordinator
            and all((host, need.process) in self.ready for host in self.plan.hosts)
        )

    def _watch_others(self, now: float) -> None:
        """Hosts that fell silent, or never came."""
        watched = self.others if self.is_coordinator else [self.coordinator]
        for host in watched if self.others else []:
            heard = self.heard.get(host)
            if heard is None:
                if now >= self.began + self.settings.start_timeout:
                    self._blame_host(
                        now,
                        host,
                        f"did not appear within {self.settings.start_timeout:g} s",
                        ExitCode.START_TIMEOUT,
                    )
            elif now >= heard + self.settings.peer_timeout and not self._is_gone(host):
                self._blame_host(now, host, f"lost: not heard for {self.settings.peer_timeout:g} s", ExitCode.HOST_LOST)
        if self.is_coordinator and now >= self.began + self.settings.start_timeout:
            for spec in self.plan.processes:
                if spec.duty is Duty.STEP and (spec.host, spec.name) not in self.ready:
                    what = f"{spec.name} did not end within {self.settings.start_timeout:g} s"
                    self._blame_host(now, spec.host, what, ExitCode.START_TIMEOUT)

    def _decide(self, now: float) -> Iterator[Action]:
        """The verdict: the coordinator's, or ours if the coordinator is lost."""
        if not self.is_coordinator:
            lost = [cause for _, cause in self.causes if cause.host == self.coordinator]
            if lost:
                yield from self._settle_on(self._without_coordinator(lost[0]), now)
            elif self.coordinator not in self.heard:  # nobody there, yet, whose verdict to wait for
                if self.stopping_since is not None and self._done():
                    yield from self._settle_on(outcome.stopped(), now)
                elif (cause := self._own_cause()) and now >= self.causes[0][0] + LINGER:
                    yield from self._settle_on(outcome.failed(cause), now)
            return
        if self.stopping_since is not None:
            lost_hosts = {cause.host for _, cause in self.causes if cause.code == ExitCode.HOST_LOST}
            there = [host for host in self.others if host in self.heard and host not in lost_hosts]
            if self._done() and all(self._report(host).done or self._is_gone(host) for host in there):
                clean = self._clean() and there == self.others and all(self._report(h).clean for h in there)
                clean = clean and not self.causes  # what had gone wrong before the stop
                yield from self._settle_on(outcome.succeeded() if clean else outcome.stopped(), now)
            return
        cause = self._settled_cause(now)
        if cause is not None:
            yield from self._settle_on(outcome.failed(cause), now)
        elif not self.causes and self._done() and all(self._report(h).done for h in self.others):
            yield from self._settle_on(outcome.succeeded(), now)

    def _settled_cause(self, now: float) -> Cause | None:
        """The first cause that is not an echo; an echo if, after a moment, there is nothing better."""
        strong = [cause for _, cause in self.causes if cause.strength is Strength.STRONG]
        if strong:
            return strong[0]
        if not self.causes:
            return None
        since = self.causes[0][0]
        cause = min((cause for _, cause in self.causes), key=self._how_surely_an_echo)
        all_heard = all(self.heard.get(host, now) >= since + SETTLE / 3 for host in self.others)
        late = now >= since + self.settings.peer_timeout + self.settings.heartbeat
        return cause if now >= since + SETTLE and (all_heard or late) else None

    def _how_surely_an_echo(self, cause: Cause) -> int:
        """Nothing but an echo: 2 for mpirun, 1 for what mpirun ended; 0 for what may have come first."""
        process = (cause.host, cause.process)
        duty = next((spec.duty for spec in self.plan.processes if (spec.host, spec.name) == process), None)
        return 2 if duty is Duty.LAUNCHER else int(cause.what == str(Exit(code=143, signal=15)))

    def _without_coordinator(self, lost: Cause) -> Outcome:
        """The coordinator is lost. What failed here while it was still heard came first; an echo did not."""
        heard = self.heard.get(self.coordinator, self.began)
        own = [
            cause
            for at, cause in self.causes
            if cause.host == self.host and cause.strength is Strength.STRONG and at < heard
        ]
        if self.stopping_since is not None:
            return outcome.stopped()
        return outcome.failed(own[0] if own else lost)

    def _settle_on(self, verdict: Outcome, now: float) -> Iterator[Action]:
        self.outcome, self.outcome_at = verdict, now
        text = f"job {verdict.kind}"
        if verdict.cause:
            text += f": {verdict.cause.headline}"
        yield events.Say(message=text)

    def _stop_what_must(self, now: float) -> Iterator[Action]:
        running = self.running()
        scripts = [n for n in running if self.specs[n].duty in (Duty.SCRIPT, Duty.RANK, Duty.STEP)]
        launchers = [n for n in running if self.specs[n].duty is Duty.LAUNCHER]
        ranks = [n for n in scripts if self.specs[n].duty is Duty.RANK]
        # What looks like an echo stops nothing before the verdict: the one behind it may still have to speak.
        cause = self._own_cause()
        ending = self.outcome is not None or (cause is not None and cause.strength is Strength.STRONG)
        if self.stopping_since is not None and self.outcome is None:
            # Servers stay: a script may still want to save through them. mpirun ends by itself when the ranks of
            # all hosts have: asked, it would kill those that still save.
            has_ranks = any(spec.duty is Duty.RANK and name in self.started for name, spec in self.specs.items())
            yield from self._ask(scripts if has_ranks else [*scripts, *launchers], now)
            if now >= self.stopping_since + self.settings.stop_grace:
                yield from self._force([*scripts, *launchers])
            if launchers and self._ranks_are_over():
                # A rank that SIGTERM ended makes mpirun abort; its daemons then sleep all the time that we told them
                # to leave ranks for saving, though none is left.
                self.ranks_over_since = now if self.ranks_over_since is None else self.ranks_over_since
                if now >= self.ranks_over_since + (UNWIND if self._ranks_ended_well() else ABORT):
                    yield from self._force(launchers)
        elif ending:
            servers = [n for n in running if self.specs[n].duty is Duty.SERVER]
            yield from self._ask([*scripts, *(servers if self.outcome is not None else [])], now)
            waited = [n for n in running if n in self.asked and now >= self.asked[n] + self.settings.failure_grace]
            yield from self._force(waited)
            # mpirun has no work of its own left: it goes when the ranks have had their time.
            others_left = self.outcome is not None and all(self._is_gone(h) for h in self.others)
            out_of_time = self.outcome is not None and now >= self.outcome_at + self.settings.failure_grace
            if launchers and not ranks and (others_left or out_of_time):
                yield from self._force(launchers)

    def _ask(self, names: list[str], now: float) -> Iterator[Action]:
        for name in names:
            if name not in self.asked:
                self.asked[name] = now
                yield events.Ask(name=name)

    def _force(self, names: list[str]) -> Iterator[Action]:
        for name in names:
            if name not in self.forced:
                self.forced.add(name)
                yield events.Force(name=name)

    def _tell(self) -> Iterator[Action]:
        if not self.others:
            return
        if self.is_coordinator:
            news = self._news()
            if news != self._told_news:
                self._told_news = news
                yield events.TellFollowers(news=news)
        else:
            report = self._own_report()
            if report != self._told_report:
                self._told_report = report
                yield events.TellCoordinator(report=report)

    def _finish(self, now: float) -> Iterator[Action]:
        """Leave when nothing runs here; the coordinator when the others have left, or had time to."""
        if self.outcome is None or self.running():
            return
        if self.is_coordinator:
            lost = {cause.host for _, cause in self.causes if not cause.process}
            left = [host for host in self.others if not self._is_gone(host) and host not in lost]
            if any(now < self._wait_until(host, self.outcome) for host in left):
                return
        self._finished = True
        yield events.Finish(outcome=self.outcome)

    def _wait_until(self, host: str, verdict: Outcome) -> float:
        """How long the coordinator waits for a follower's last words."""
        if host not in self.heard and verdict.kind is Kind.FAILED:
            return self.outcome_at + LINGER  # else it would wait for us until the start timeout
        # One that appears after the verdict has yet to hear it: our answer to its first report may be lost.
        return max(self.outcome_at, self.first_heard.get(host, 0)) + self.settings.failure_grace + LEAVE

    def _nag(self, now: float) -> Iterator[Action]:
        missing = [host for host in self.others if host not in self.heard]
        watched = missing if self.is_coordinator else [host for host in missing if host == self.coordinator]
        if watched and now >= self._nag_at and self.outcome is None:
            self._nag_at = now + NAG
            yield events.Say(message=f"waiting for {', '.join(watched)} to appear ({now - self.began:.0f} s)")

    # --- questions about the facts ---

    def awaited(self) -> list[ProcessSpec]:
        """Processes of this host that somebody waits for until they listen."""
        return [
            self.specs[name]
            for name in self.running()
            if self.specs[name].ready is Ready.LISTENING
            and (self.host, name) not in self.ready
            and any(need.process == name and not self._met(need) for s in self.plan.processes for need in s.needs)
        ]

    def running(self) -> list[str]:
        """Names of the processes of this host that were started and have not ended."""
        return [name for name in self.specs if name in self.started and name not in self.ended]

    def _done(self) -> bool:
        """Every deciding process of this host has ended (or, when stopping, will never start), and no rank runs."""
        stopping = self.stopping_since is not None
        return all(
            name in self.ended or (stopping and name not in self.started)
            for name, spec in self.specs.items()
            if spec.decides
        ) and not any(self.specs[name].duty is Duty.RANK for name in self.running())

    def _clean(self) -> bool:
        deciding = (name for name, spec in self.specs.items() if spec.decides)
        return all(name in self.ended and self.ended[name].clean for name in deciding) and self._own_ranks_ended_well()

    def _own_ranks_ended_well(self) -> bool:
        ranks = [name for name, spec in self.specs.items() if spec.duty is Duty.RANK and name in self.started]
        return all(name in self.ended and self.ended[name].clean for name in ranks)

    def _ranks_are_over(self) -> bool:
        """While stopping: no rank runs here, nor on a host that can still tell."""
        lost = {cause.host for _, cause in self.causes if not cause.process}
        there = [self._report(host) for host in self.others if host in self.heard and host not in lost]
        here = any(self.specs[name].duty is Duty.RANK for name in self.running())
        return not here and all((report.done and report.stopping) or report.gone for report in there)

    def _ranks_ended_well(self) -> bool:
        return self._own_ranks_ended_well() and all(self._report(host).clean for host in self.others)

    def _report(self, host: str) -> Report:
        return self.reports.get(host) or Report(host=host)

    def _is_gone(self, host: str) -> bool:
        return self._report(host).gone

    def _own_cause(self) -> Cause | None:
        own = [cause for _, cause in self.causes if cause.host == self.host]
        strong = [cause for cause in own if cause.strength is Strength.STRONG]
        return next(iter(strong or own), None)

    def _own_report(self) -> Report:
        return Report(
            host=self.host,
            ready=frozenset(process for host, process in self.ready if host == self.host),
            cards=tuple((card, lines[self.host]) for card, lines in self.cards.items() if self.host in lines),
            done=self._done(),
            clean=self._clean(),
            stopping=self.stopping_since is not None,
            cause=self._own_cause(),
            gone=self.outcome is not None and not self.running(),
        )

    def _news(self) -> News:
        known = {(host, process) for host, process in self._shared_needs if self._met(Need(host=host, process=process))}
        return News(
            ready=frozenset(known),
            cards=tuple((card, lines[self.host]) for card, lines in self.cards.items() if self.host in lines),
            stopping=self.stopping_since is not None,
            outcome=self.outcome,
        )

    def _blame(self, now: float, process: str, **what: Any) -> None:
        self.causes.append((now, Cause(host=self.host, process=process, **what)))

    def _blame_host(self, now: float, host: str, what: str, code: int) -> None:
        if not any(cause.host == host and not cause.process for _, cause in self.causes):
            self.causes.append((now, Cause(host=host, process="", what=what, code=code)))

    def deadline(self, now: float) -> float:
        """When to be called again with Due, if nothing happens before."""
        times = [now + self.settings.heartbeat]
        if self.outcome is not None or self.stopping_since is not None or self.causes:
            times.append(now + 0.05)  # the end is near: several short limits are running
        times += [
            since + need.at_most
            for name, since in self.held_since.items()
            if name not in self.started
            for need in self.specs[name].needs
            if need.at_most is not None
        ]
        if self.outcome is None:
            times += [heard + self.settings.peer_timeout for heard in self.heard.values()]
            times.append(self.began + self.settings.start_timeout)
        # What was due at the last event has been seen to.
        return max(now + 0.001, min(time for time in times if time > self._last))

    def status(self, now: float) -> dict[str, Any]:
        """For people and probes: this host, its processes and the hosts that it hears."""
        phase = str(self.outcome.kind) if self.outcome else ("stopping" if self.stopping_since else "running")
        if phase == "running" and not any(n in self.started for n, s in self.specs.items() if s.duty.is_users):
            phase = "starting"
        return {
            "host": self.host,
            "rank": self.plan.hosts.index(self.host),
            "role": "coordinator" if self.is_coordinator else "follower",
            "phase": phase,
            "outcome": self.outcome.to_json() if self.outcome else None,
            "processes": [self._process_status(name, spec, now) for name, spec in self.specs.items()],
            "peers": {
                host: {
                    "heard_seconds_ago": round(now - self.heard[host], 3) if host in self.heard else None,
                    "done": self._report(host).done,
                    "gone": self._report(host).gone,
                }
                for host in (self.others if self.is_coordinator else [self.coordinator])
            },
        }

    def _process_status(self, name: str, spec: ProcessSpec, now: float) -> dict[str, Any]:
        state = "ended" if name in self.ended else "running" if name in self.started else "waiting"
        return {
            "name": name,
            "role": str(spec.role),
            "task": spec.task,
            "state": state,
            "ready": (self.host, name) in self.ready,
            "seconds": round(self.ended_at.get(name, now) - self.started[name], 3) if name in self.started else None,
            "exit": str(self.ended[name]) if name in self.ended else None,
        }
