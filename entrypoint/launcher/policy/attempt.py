"""Hold what one host knows of this attempt: what is ready, what failed, what was asked. The next attempt forgets it."""

from collections.abc import Iterable, Mapping

from entrypoint.base.values import State, Value, fresh
from entrypoint.launcher.outcome.outcome import Cause


class Noted(Value):
    """Hold a cause that was reported. Times are of our clock; `at` is when it happened, as exactly as that is known."""

    cause: Cause
    noted_at: float
    at: float
    attempt: int = 0
    error: float = 0.0  # seconds by which `at` may be wrong, since another host's clock measured it


class Attempt(State):
    """Hold the facts of one attempt. A new attempt begins with the processes that stay ready."""

    number: int = 0
    clearing: bool = False  # processes of the last attempt are still being ended
    go: bool = True  # the processes of this attempt may start
    ready: set[tuple[str, str]] = fresh(set)  # (host or ALL_HOSTS, process)
    causes: list[Noted] = fresh(list)  # in the order in which they were reported
    poll: int = 0  # number of the last poll that was asked, or received
    poll_at: float | None = None  # when
    dying: dict[str, tuple[float, str, str]] = fresh(dict)  # own -> (since when it is about to end, error, details)
    resting: dict[str, float] = fresh(dict)  # own process that only serves -> seconds for which that must stay so
    decided_since: float | None = None  # since when all deciding processes of all hosts have ended well

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
        """Note since when all have decided. A process that seemed only to serve may have begun to work."""
        self.decided_since = None if not decided else now if self.decided_since is None else self.decided_since

    def note_clear(self) -> None:
        self.clearing = False

    def note_go(self, may: bool) -> None:
        self.go = self.go or may

    def polled_within(self, seconds: float, now: float) -> bool:
        return self.poll_at is not None and now < self.poll_at + seconds
