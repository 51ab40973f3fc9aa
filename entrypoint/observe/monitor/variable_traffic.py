"""Judge by the exchanged bytes whether one host trains with the others, and put that into words. Pure.

A *large* exchange is one that could have been the gradients or the weights. A single one, such as a broadcast of the
weights at the beginning, does not prove joint training; several at intervals do, as when weights are averaged.
"""

from collections.abc import Mapping, Sequence

from entrypoint.base.values import State
from entrypoint.base.wording import size
from entrypoint.observe.monitor.trained_model import LITTLE, SMALL, TrainedModel

WIDTH_BYTES = 4.0  # bytes of a number
STEPS, SLOW_STEPS, SLOW_SECONDS = 500.0, 50.0, 1800.0  # proof of training alone: so many steps, or few in a long time
LEAST_SECONDS = 20.0  # of training before anything is judged
LEAST_STEPS = 50.0  # of a training that has ended
# Share of its time in which a training that has ended may have had large exchanges, and still was alone: as far as
# traffic shows, or if the framework exchanged nothing. Weights may be broadcast before a slow first step.
EARLY_SHARE, EARLY_SHARE_OF_ALONE = 0.1, 0.5
WORKED = 60.0  # CPU seconds required of programs that do not report steps
FIRST_EPOCH = 4.0  # factor on the steps during the first epoch: hosts may average their weights after each epoch
SILENT, FEW = 2.0, 10.0  # bytes per step (if the number of weights is no help), and in all: less counts as nothing
SERVED_BYTES = 100.0  # a step: with parameter servers, a worker may sit beside the one that holds nearly all weights
LARGE_SECOND, LARGE_STEP = 2000.0, 1000.0  # bytes per second and step of a large exchange, if weights are unknown
LOOK_SECONDS = 2.0  # bytes within this time are one exchange; traffic.py looks as often
WINDOW_SECONDS, WINDOW_STEPS = 10.0, 5.0  # least length of a window, over which a rate is computed
GOOD, BURSTS = 2, 3  # proof of joint training: good windows in a row, or separate large exchanges
BY_FRAMEWORK, BY_HAND = 0.02, 0.25  # share of the weights per step: if the framework reduces gradients, or else
KEPT = ("part", "is_shared", "trains", "is_blind", "ran", "worked", "ever")  # fields kept when the training begins
MOST_NAMES = 10  # hosts that are named
STANDS_OUT = 10.0  # factor of a large exchange over what is exchanged in between


class Exchanged(State):
    """Sum up the exchange of one host since the training began; `part`: share of all weights that it exchanges."""

    part: float = 1.0
    is_shared: bool = False  # the weights lie on parameter servers
    trains: bool = False  # it has reported steps or weights of its own
    is_blind: bool = False  # it cannot count all that is exchanged
    missed: bool = False  # an unknown amount was exchanged since the last look
    ran: float = 0.0  # seconds since its last process of training was started
    worked: float = 0.0  # CPU seconds in that time
    ever: float = 0.0  # bytes in that time
    seconds: float = 0.0
    steps: float = 0.0
    bytes: float = 0.0
    large_seconds: float = 0.0  # `seconds` at the last large exchange
    large_steps: float = 0.0
    since: float = 0.0  # bytes after that exchange
    looks: int = 0  # looks after that exchange
    noisy_seconds: float = 0.0  # `seconds` at the last look at which any gradients may have been exchanged
    noisy_steps: float = 0.0
    averaged: float = 0.0  # `steps` at the last look at which weights may have been averaged; seconds if none are told
    bursts: int = 0
    good: int = 0
    _look: tuple[float, float, float] = (0.0, 0.0, 0.0)  # seconds, steps, bytes at its begin
    _window: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rate: float | None = None  # bytes per step in the last window

    def begin(self) -> None:
        """Reset the figures of the training, which begins now."""
        kept = {name: getattr(self, name) for name in KEPT}
        self.__dict__.update(Exchanged(**kept).__dict__)

    def advance(self, steps: float, model: TrainedModel) -> None:
        """Note the number of steps so far. After LOOK_SECONDS, judge the bytes exchanged since the last look."""
        self.steps = steps
        seconds, before, count = self._look
        if self.seconds - seconds < LOOK_SECONDS:
            return
        exchanged, took, taken = self.bytes - count, self.seconds - seconds, steps - before
        self._look = self.seconds, steps, self.bytes
        if self.missed or exchanged > self._noise(model, took, taken):
            self.noisy_seconds, self.noisy_steps = self.seconds, steps
        if exchanged >= _weights(model):
            self.averaged = steps or self.seconds
        if self.missed or exchanged >= self._large(model, took, taken):
            quiet = self.since / self.looks if self.looks else exchanged
            self.bursts += exchanged >= STANDS_OUT * quiet and not self.missed
            self.missed = False
            self.large_seconds, self.large_steps, self.since, self.looks = self.seconds, steps, 0.0, 0
        else:
            self.since, self.looks = self.since + exchanged, self.looks + 1
        if taken or not steps:  # steps may be told seldom: a rate holds from one report of them to another
            self._close_window(model)

    def _large(self, model: TrainedModel, seconds: float, steps: float) -> float:
        if model.weights and not self.is_shared:
            return max(FEW, WIDTH_BYTES * model.dense / 2)
        return max(LARGE_SECOND * seconds, LARGE_STEP * steps)

    def _close_window(self, model: TrainedModel) -> None:
        seconds, steps, count = self._window
        if self.seconds - seconds < WINDOW_SECONDS or 0 < self.steps < steps + WINDOW_STEPS:
            return
        exchanged, taken = self.bytes - count, self.steps - steps
        self.rate = exchanged / taken if taken else None
        self._window = self.seconds, self.steps, self.bytes
        self.good = self.good + 1 if self._is_good(model, exchanged) else 0

    def _is_good(self, model: TrainedModel, exchanged: float) -> bool:
        """Return whether enough was exchanged in a window for the gradients of each step."""
        dense = WIDTH_BYTES * model.dense * self.part
        if model.has_gradients_reduced and self.is_shared:
            return (exchanged if self.rate is None else self.rate) >= SERVED_BYTES
        if model.has_gradients_reduced:
            return exchanged > FEW and (exchanged >= dense if self.rate is None else self.rate >= BY_FRAMEWORK * dense)
        if self.rate is None or model.dense < SMALL or (model.horovod and not model.asks_for_weights):
            return False  # Horovod's own messages can be as large as a small model's gradients
        return self.rate >= BY_HAND * min(dense, WIDTH_BYTES * model.asked if model.horovod else dense)

    def is_together(self, model: TrainedModel) -> bool:
        """Return whether the host's traffic proves that it exchanges gradients, or weights repeatedly."""
        again = self.bursts >= BURSTS and model.dense >= SMALL and not (model.horovod or self.is_shared)
        return self.seconds >= LEAST_SECONDS and (self.good >= GOOD or again)

    def is_quiet(self, model: TrainedModel) -> bool:
        """Return whether the host has exchanged no gradients since the last large exchange."""
        return self.since <= self._noise(model, self.seconds - self.large_seconds, self.steps - self.large_steps)

    def _noise(self, model: TrainedModel, seconds: float, steps: float) -> float:
        """Return the number of bytes, in these seconds and steps, up to which traffic is too small for gradients."""
        if model.weights and not self.is_shared:
            return max(FEW, LITTLE * WIDTH_BYTES * model.dense * steps)
        return max(FEW, SILENT * (steps or seconds))

    def is_idle(self, model: TrainedModel) -> bool:
        """Return whether the host is quiet, and its last large exchange lies in the first half of its training."""
        recent = self.large_steps > self.steps / 2 if self.steps else self.large_seconds > self.seconds / 2
        return self.is_quiet(model) and not recent

    def has_only_scalars(self, model: TrainedModel) -> bool:
        """Return whether Horovod reduces only scalars, and the traffic is too small for any exchange of gradients."""
        return model.asks_for_scalars and self.rate is not None and self.rate < WIDTH_BYTES * model.dense / 2

    def is_alone(self, model: TrainedModel, needed: float) -> bool:
        """Return whether the host has trained for `needed` steps, or a long time, and exchanged no gradients."""
        if self.is_blind or (not self.trains and (self.is_shared or self.worked < WORKED)):
            return False  # for example, a parameter server without variables
        if self.has_only_scalars(model):
            return self._has_trained(needed, 0.0, 0.0)
        return self.is_quiet(model) and self._has_trained(needed, self.large_steps, self.large_seconds)

    def was_alone(self, model: TrainedModel, unseen: bool = False) -> bool:
        """Return whether the host has trained alone until its end: no exchange can follow.

        `model`: the host's model; `unseen`: hosts may exchange what is not counted, so little traffic proves nothing.
        """
        if model.leaves_strategy and self.trains:
            late = self.averaged > (self.steps or self.seconds) / 2 or self.bytes - self._look[2] >= _weights(model)
            return unseen or self.is_blind or not late
        if not self.trains:
            return False
        if self.steps < LEAST_STEPS or unseen:
            return self.steps >= LEAST_STEPS and model.is_alone
        if self.is_blind or self.missed:
            return False
        if model.asks_for_scalars:
            return self.bytes / self.steps < WIDTH_BYTES * model.dense / 2
        seconds, steps, count = self._look
        pending = self.bytes - count > self._noise(model, self.seconds - seconds, self.steps - steps)
        early = self.noisy_seconds <= self.seconds * (EARLY_SHARE_OF_ALONE if model.is_alone else EARLY_SHARE)
        long = self.steps - self.noisy_steps >= LEAST_STEPS and (model.is_alone or self.seconds >= LEAST_SECONDS)
        return early and long and not pending

    def _has_trained(self, needed: float, large_steps: float, large_seconds: float) -> bool:
        """Return whether the host has trained long enough, both in all and after its last large exchange.

        The time until that exchange counts three times: the next one may come as late again.
        """
        steps, slow = self.steps - 3 * large_steps, SLOW_SECONDS * needed / STEPS + 3 * large_seconds
        if self.steps:
            few = SLOW_STEPS * needed / STEPS
            least = LEAST_SECONDS * needed / STEPS
            return self.seconds >= least and steps >= (few if self.seconds >= slow else needed)
        return self.seconds >= slow and self.worked >= WORKED


def _weights(model: TrainedModel) -> float:
    """Return half of the bytes of the model's weights, counted as at least SMALL weights."""
    return WIDTH_BYTES * max(SMALL, model.dense) / 2


def yes(hosts: Mapping[str, Exchanged], model: TrainedModel) -> str:
    """Describe the hosts' exchange, and the size of the model."""
    return f"{_figure(hosts, has_begun=True)}{_of(model, ' for {} weights')}"


def no(hosts: Mapping[str, Exchanged], model: TrainedModel, alone: Sequence[str], unseen: bool = False) -> str:
    """Name the hosts that train alone, and describe their exchange, which is no exchange of gradients."""
    first = hosts[alone[0]]
    names = f"{', '.join(alone[:MOST_NAMES])}{' and others' if len(alone) > MOST_NAMES else ''}"
    who = "every host trains" if len(alone) == len(hosts) else f"{names} train{'s' * (len(alone) == 1)}"
    steps, seconds = first.steps - first.large_steps, first.seconds - first.large_seconds
    last = f"{steps:.0f} steps" if first.steps else f"{seconds:.0f} s"
    if model.leaves_strategy:
        made = f"a strategy of {model.made:.0f} workers was made, and gradients are applied outside of it"
        steps = max(first.steps, model.steps)  # those of a short job may not all have been noted
        return f"{who} alone ({made}{f', in {steps:.0f} steps' * (steps >= LEAST_STEPS)})"
    if unseen and not model.horovod:
        return f"{who} alone (neither a strategy nor Horovod exchanged gradients, in {first.steps:.0f} steps)"
    if first.has_only_scalars(model) or unseen:
        return f"{who} alone ({_of_horovod(model)}, in {first.steps:.0f} steps)"
    what = f"{size(first.since)}, and no gradients{_of(model, ' of {} weights')}," if first.since else "nothing"
    return f"{who} alone (exchanged {what} with other hosts in {'the last ' * bool(first.large_seconds)}{last})"


def unclear(hosts: Mapping[str, Exchanged], model: TrainedModel, has_begun: bool) -> str:
    """Describe the hosts' exchange, the model's size if this were gradients, and the unknown facts."""
    said = _figure(hosts, has_begun)
    if not has_begun:
        return f"{said}; no step was printed with its loss, so it is not known whether they train"
    steps, total = max(host.steps for host in hosts.values()), _total(hosts, has_begun)
    if steps and total:
        weights = total / steps / (2 * WIDTH_BYTES * max(1, len(hosts) - 1))  # each host sends them and receives them
        said += f", as the gradients of {_count(weights)} weights would be"
    if model.asks_for_scalars:
        return f"{said}; {_of_horovod(model)}"
    return f"{said}; {_of(model, '{} weights are trained') or 'how many are trained is not known'}"


def _of_horovod(model: TrainedModel) -> str:
    what = f"{_count(model.asked)} number{'s' * (model.asked != 1)}" if model.asked else "nothing"
    return f"Horovod was asked to reduce {what}, and no gradients{_of(model, ' of {} weights')}"


def _of(model: TrainedModel, words: str) -> str:
    return words.format(_count(model.weights)) if model.weights else ""


def _total(hosts: Mapping[str, Exchanged], has_begun: bool) -> float:
    return sum(host.bytes if has_begun else host.ever for host in hosts.values()) / 2


def _figure(hosts: Mapping[str, Exchanged], has_begun: bool) -> str:
    rates = [host.rate for host in hosts.values() if host.rate and host.good]
    steps = max(host.steps for host in hosts.values())
    seconds = max(host.seconds if has_begun else host.ran for host in hosts.values())
    total = _total(hosts, has_begun)
    if len(rates) == len(hosts):
        rate = f"{size(sum(rates) / 2)} a step"
    else:
        rate = f"{size(total / steps)} a step" if steps else f"{size(total / max(1.0, seconds))} a second"
    return f"{len(hosts)} hosts exchange {rate}"


def _count(number: float) -> str:
    for least, word in ((1e9, "billion"), (1e6, "million")):
        if number >= least:
            return f"{number / least:.3g} {word}"
    return f"{number:,.0f}"
