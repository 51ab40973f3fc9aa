"""Record the events that the policy was given, so that they can be replayed (see observe/replay/). Pure.

Most events only show that a host is alive. These are kept for the last calls alone, and are written with the next event
that has consequences. Older ones are dropped and counted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from entrypoint.base.codec import plain
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.events import Action, Event, News, Report

QUIET_SECONDS, MOST_QUIET = 15, 1000  # how long calls without consequence are kept, and how many at most
A_SECOND = 12  # such calls beside those of other hosts, which have about one a second: Due comes each 0.1 s at the end
MOST_HOSTS = 200  # of the largest job whose history is kept: its coordinator reads thousands of reports at its start
REPEAT = "Repeat"  # in place of an event: the policy was asked to repeat its messages


class History:
    """Record calls of the policy; for the loop only.

    `write` gets a `Call` of record/lines.py. A quiet call names a repeated report or news, and does not copy it:
    ["Reported", host], ["Informed", the clock's offset, its error].
    """

    def __init__(self, hosts: int, began: float, write: Callable[[dict[str, Any]], None], wanted: bool = True) -> None:
        self._is_kept, self._began, self._write = wanted and hosts <= MOST_HOSTS, began, write
        self._quiet: deque[list[Any]] = deque(maxlen=min(MOST_QUIET, QUIET_SECONDS * (hosts + A_SECOND)))
        self._dropped, self._number = 0, 0
        self._reports: dict[str, Report] = {}
        self._news: News | None = None

    def note(self, happened: Sequence[Event], now: float, actions: list[Action]) -> list[Action]:
        """Note one call of the policy. Return its actions."""
        if self._is_kept:
            shorts = [self._short(event) for event in happened]
            if actions or None in shorts:
                self._add(now, [[type(event).__name__, plain(event)] for event in happened], actions)
            else:
                self._dropped += len(self._quiet) == self._quiet.maxlen
                self._quiet.append([now, shorts])
        return actions

    def note_repeat(self, now: float, actions: list[Action]) -> list[Action]:
        """Note that the policy was asked to repeat its messages. Return its actions."""
        if self._is_kept:
            self._add(now, [[REPEAT, {}]], actions)
        return actions

    def _short(self, event: Event) -> list[Any] | None:
        """Return a short form of an event that usually has no consequence; None for other events."""
        match event:
            case events.Due():
                return ["Due"]
            case events.Answered(host=host):
                return ["Answered", host]
            case events.Reported(report=report):
                same = report == self._reports.get(report.host)
                self._reports[report.host] = report
                return ["Reported", report.host] if same else None
            case events.Informed(news=news, offset=offset, error=error):
                same, self._news = news == self._news, news
                return ["Informed", offset, error] if same else None
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
    """Return the name and the fields of an action, by which a replay compares it."""
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
