"""The events that the policy was given, written down so that they can be played again: see replay/. Pure.

Most events only say that somebody is there. They are kept for the last calls alone, and written with the next event of
which something follows; what was dropped before is counted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from entrypoint.base.codec import plain
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action, Event, News, Report

QUIET_SECONDS, MOST_QUIET = 30, 1000  # calls without consequence that are kept: a host has one a second, about
MOST_HOSTS = 200  # of a job whose history is kept: its coordinator hears thousands of reports at its start
REPEAT = "Repeat"  # in place of an event: the policy was asked to say all again


class History:
    """Belongs to the loop. Each line is {"number", "began", "at", "events", "actions", "quiet", "dropped"}.

    Times are the loop's clock; `began` is when the policy was made. `events` are [name, fields]; `actions` names, with
    what can be compared of them. A quiet call is [at, [event, ...]], where a report or news that was heard before is
    named and not repeated: ["Reported", host], ["Informed", the clock's offset].
    """

    def __init__(self, hosts: int, began: float, write: Callable[[dict[str, Any]], None], wanted: bool = True) -> None:
        self._is_kept, self._began, self._write = wanted and hosts <= MOST_HOSTS, began, write
        self._quiet: deque[list[Any]] = deque(maxlen=min(MOST_QUIET, QUIET_SECONDS * (hosts + 2)))
        self._dropped, self._number = 0, 0
        self._reports: dict[str, Report] = {}
        self._news: News | None = None

    def note(self, happened: Sequence[Event], now: float, actions: list[Action]) -> list[Action]:
        """Note one call of the policy, and what followed of it, which is returned."""
        if self._is_kept:
            shorts = [self._short(event) for event in happened]
            if actions or None in shorts:
                self._add(now, [[type(event).__name__, plain(event)] for event in happened], actions)
            else:
                self._dropped += len(self._quiet) == self._quiet.maxlen
                self._quiet.append([now, shorts])
        return actions

    def note_repeat(self, now: float, actions: list[Action]) -> list[Action]:
        """Note that the policy was asked to say again what it has said."""
        if self._is_kept:
            self._add(now, [[REPEAT, {}]], actions)
        return actions

    def _short(self, event: Event) -> list[Any] | None:
        """Return what stands for an event of which, as a rule, nothing follows; None for another."""
        match event:
            case events.Due():
                return ["Due"]
            case events.Answered(host=host):
                return ["Answered", host]
            case events.Reported(report=report):
                same = report == self._reports.get(report.host)
                self._reports[report.host] = report
                return ["Reported", report.host] if same else None
            case events.Informed(news=news, offset=offset):
                same, self._news = news == self._news, news
                return ["Informed", offset] if same else None
        return None

    def _add(self, now: float, happened: list[Any], actions: Sequence[Action]) -> None:
        quiet, dropped = list(self._quiet), self._dropped
        self._quiet.clear()
        self._dropped, self._number = 0, self._number + 1
        self._write(
            {
                "number": self._number,
                "began": self._began,
                "at": now,
                "events": happened,
                "actions": [in_short(action) for action in actions],
                "quiet": quiet,
                "dropped": dropped,
            }
        )


def in_short(action: Action) -> list[Any]:
    """Return what an action is, and so much of it as two may be compared by."""
    name = type(action).__name__
    match action:
        case events.Start(spec=spec):
            return [name, spec.name]
        case events.TellCoordinator() | events.TellFollowers() | events.WritePublicKeys():
            return [name]
        case events.Say(message=message):
            return [name, message]
        case _:
            return [name, plain(action)]
