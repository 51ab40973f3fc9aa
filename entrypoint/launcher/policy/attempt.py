"""What one host knows of this attempt: what is ready, what went wrong, who was asked. The next attempt forgets it."""

from collections.abc import Iterable, Mapping

from entrypoint.base.values import State, Value, fresh
from entrypoint.launcher.outcome.outcome import Cause


class Noted(Value):
    """A cause that was heard of. Times are of our clock; `at` is when it happened, as well as that is known."""

    cause: Cause
    heard: float
    at: float
    attempt: int = 0


class Attempt(State):
    """What the next attempt forgets. It begins with what stays ready."""

    number: int = 0
    clearing: bool = False  # what is left of the last attempt is being ended
    go: bool = True  # the processes of this attempt may start
    ready: set[tuple[str, str]] = fresh(set)  # (host or ALL_HOSTS, process)
    causes: list[Noted] = fresh(list)  # in the order in which they were heard
    poll: int = 0  # the last one asked, or heard
    poll_at: float | None = None  # when
    dying: dict[str, tuple[float, str, str]] = fresh(dict)  # own -> since when it is to end, why
    resting: dict[str, float] = fresh(dict)  # own that only serve -> seconds in which that must stay so
    decided_since: float | None = None  # all deciding processes of all hosts have ended well

    def note_ready(self, *ready: tuple[str, str]) -> None:
        self.ready.update(ready)

    def note_poll(self, number: int, now: float) -> None:
        if number > self.poll:
            self.poll, self.poll_at = number, now

    def note_dying(self, found: Iterable[tuple[str, str, str]], now: float) -> None:
        since = {name: at for name, (at, _, _) in self.dying.items()}
        self.dying = {name: (since.get(name, now), error, details) for name, error, details in found}

    def note_resting(self, found: Mapping[str, float]) -> None:
        self.resting = dict(found)

    def note_decided(self, decided: bool, now: float) -> None:
        """Note since when all have decided: who seemed only to serve may have begun to work."""
        self.decided_since = None if not decided else now if self.decided_since is None else self.decided_since

    def note_clear(self) -> None:
        self.clearing = False

    def note_go(self, may: bool) -> None:
        self.go = self.go or may

    def polled_within(self, seconds: float, now: float) -> bool:
        return self.poll_at is not None and now < self.poll_at + seconds
