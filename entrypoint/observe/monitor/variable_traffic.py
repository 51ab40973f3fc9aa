"""What one host has exchanged with the others while it trained, and what that shows. Pure.

A *large* exchange is one that could have been the gradients, or the weights. One alone, such as a broadcast of the
weights at the beginning, is no training together; several apart are, as where weights are averaged now and then.
"""

from entrypoint.base.values import State
from entrypoint.observe.monitor.model import LITTLE, SMALL, Model

WIDTH_BYTES = 4.0  # bytes of a number
STEPS, SLOW_STEPS, SLOW_SECONDS = 500.0, 50.0, 1800.0  # alone: so many steps, or so few in so long a time
LEAST_SECONDS = 20.0  # of training, until anything is judged
WORKED = 60.0  # CPU seconds, for programs that do not say their steps
FIRST_EPOCH = 4.0  # times as many steps, while that has not ended: hosts may average their weights after each epoch
SILENT, FEW = 2.0, 10.0  # bytes a step, where the number of weights says nothing, and in all: less is nothing
SERVED_BYTES = (
    100.0  # bytes a step: with parameter servers, a worker may sit beside the one that holds nearly all weights
)
LARGE_SECOND, LARGE_STEP = 2000.0, 1000.0  # bytes, where the number of weights is not known
LOOK_SECONDS = 2.0  # what is exchanged in it is one exchange; as often as exchange.py looks
WINDOW_SECONDS, WINDOW_STEPS = 10.0, 5.0  # for a rate
GOOD, BURSTS = 2, 3  # windows in a row, or large exchanges apart, that show training together
BY_FRAMEWORK, BY_HAND = 0.02, 0.25  # of the weights, in each step: where the framework reduces gradients, or else
KEPT = ("part", "is_shared", "trains", "is_blind", "ran", "worked", "ever")  # when the training begins
STANDS_OUT = 10.0  # times as much as is exchanged in between


class Exchanged(State):
    """Of one host, since its hosts began to train; `part` is what it is to exchange of all weights."""

    part: float = 1.0
    is_shared: bool = False  # the weights lie on parameter servers
    trains: bool = False  # it has told steps, or weights, of its own
    is_blind: bool = False  # it does not see all that is exchanged
    missed: bool = False  # something was exchanged since the last look, and nobody knows how much
    ran: float = 0.0  # seconds since its last process of training was started
    worked: float = 0.0  # CPU seconds in these
    ever: float = 0.0  # bytes in these
    seconds: float = 0.0
    steps: float = 0.0
    bytes: float = 0.0
    large_seconds: float = 0.0  # when the last large exchange was
    large_steps: float = 0.0
    since: float = 0.0  # bytes after that
    looks: int = 0  # after that
    bursts: int = 0
    good: int = 0
    _look: tuple[float, float, float] = (0.0, 0.0, 0.0)  # seconds, steps, bytes when it began
    _window: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rate: float | None = None  # bytes a step, in the last window

    def begin(self) -> None:
        """Begin to train."""
        kept = {name: getattr(self, name) for name in KEPT}
        self.__dict__.update(Exchanged(**kept).__dict__)

    def advance(self, steps: float, model: Model) -> None:
        """Note how many steps it has taken now, and judge what was exchanged since it was looked at last."""
        self.steps = steps
        seconds, before, count = self._look
        if self.seconds - seconds < LOOK_SECONDS:
            return
        exchanged, took, taken = self.bytes - count, self.seconds - seconds, steps - before
        self._look = self.seconds, steps, self.bytes
        if self.missed or exchanged >= self._large(model, took, taken):
            quiet = self.since / self.looks if self.looks else exchanged
            self.bursts += exchanged >= STANDS_OUT * quiet and not self.missed
            self.missed = False
            self.large_seconds, self.large_steps, self.since, self.looks = self.seconds, steps, 0.0, 0
        else:
            self.since, self.looks = self.since + exchanged, self.looks + 1
        self._close_window(model)

    def _large(self, model: Model, seconds: float, steps: float) -> float:
        if model.weights and not self.is_shared:
            return max(FEW, WIDTH_BYTES * model.dense / 2)
        return max(LARGE_SECOND * seconds, LARGE_STEP * steps)

    def _close_window(self, model: Model) -> None:
        seconds, steps, count = self._window
        if self.seconds - seconds < WINDOW_SECONDS or 0 < self.steps < steps + WINDOW_STEPS:
            return
        exchanged, taken = self.bytes - count, self.steps - steps
        self.rate = exchanged / taken if taken else None
        self._window = self.seconds, self.steps, self.bytes
        self.good = self.good + 1 if self._is_good(model, exchanged) else 0

    def _is_good(self, model: Model, exchanged: float) -> bool:
        """Return whether as much was exchanged in a window as the gradients of each step are."""
        dense = WIDTH_BYTES * model.dense * self.part
        if model.has_gradients_reduced and self.is_shared:
            return (exchanged if self.rate is None else self.rate) >= SERVED_BYTES
        if model.has_gradients_reduced:
            return exchanged > FEW and (exchanged >= dense if self.rate is None else self.rate >= BY_FRAMEWORK * dense)
        if self.rate is None or model.dense < SMALL or (model.horovod and not model.asks_for_weights):
            return False  # Horovod's own messages can be as many as a small model's gradients
        return self.rate >= BY_HAND * min(dense, WIDTH_BYTES * model.asked if model.horovod else dense)

    def is_together(self, model: Model) -> bool:
        """Return whether it was seen to exchange the gradients, or the weights again and again."""
        again = self.bursts >= BURSTS and model.dense >= SMALL and not (model.horovod or self.is_shared)
        return self.seconds >= LEAST_SECONDS and (self.good >= GOOD or again)

    def is_quiet(self, model: Model) -> bool:
        """Return whether it has exchanged no gradients since the last large exchange."""
        steps = self.steps - self.large_steps
        if model.weights and not self.is_shared:
            return self.since <= max(FEW, LITTLE * WIDTH_BYTES * model.dense * steps)
        return self.since <= max(FEW, SILENT * (steps or self.seconds - self.large_seconds))

    def may_be_alone(self, model: Model) -> bool:
        """Return whether more will be known soon: it is idle, or has exchanged something large once or twice."""
        return self.is_idle(model) or 0 < self.bursts < BURSTS or self.has_only_scalars(model)

    def is_idle(self, model: Model) -> bool:
        """Return whether it exchanges nothing, and has not done so for half of its training."""
        recent = self.large_steps > self.steps / 2 if self.steps else self.large_seconds > self.seconds / 2
        return self.is_quiet(model) and not recent

    def has_only_scalars(self, model: Model) -> bool:
        """Return whether Horovod was asked for none of the weights, and nothing else can have exchanged them."""
        return model.asks_for_scalars and self.rate is not None and self.rate < WIDTH_BYTES * model.dense / 2

    def is_alone(self, model: Model, needed: float) -> bool:
        """Return whether it has trained for long enough, in `needed` steps or a long time, and exchanged nothing."""
        if self.is_blind or (not self.trains and (self.is_shared or self.worked < WORKED)):
            return False  # as a parameter server that has none of the variables
        if self.has_only_scalars(model):
            return self._has_trained(needed, 0.0, 0.0)
        return self.is_quiet(model) and self._has_trained(needed, self.large_steps, self.large_seconds)

    def _has_trained(self, needed: float, large_steps: float, large_seconds: float) -> bool:
        """After an exchange, it takes three times as long as until then: the next may come as late again."""
        steps, slow = self.steps - 3 * large_steps, SLOW_SECONDS * needed / STEPS + 3 * large_seconds
        if self.steps:
            few = SLOW_STEPS * needed / STEPS
            least = LEAST_SECONDS * needed / STEPS
            return self.seconds >= least and steps >= (few if self.seconds >= slow else needed)
        return self.seconds >= slow and self.worked >= WORKED
