"""Combine the training processes' reports of the model, and compare the weights of all ranks. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from entrypoint.base.values import Value
from entrypoint.base.wording import listed

Who = tuple[str, str]  # host, process
MOST = 1e15  # limit of every number in a message
SCALARS = 16  # numbers in a tensor: so few are a loss or some metrics
LITTLE = 1e-3  # share of the weights: less cannot be their gradients, however they are compressed
CLOSE = 1e-3  # share of a sum: two GPUs may differ by less than that
KEPT = 20  # steps kept until processes that are behind have reported them
IN_A_ROW = 3  # differing steps until it is reported: weights that are averaged now and then may differ in between
MOST_TEXT = 160  # characters
SMALL = 1000  # weights: in a smaller model, the size of a tensor or of an exchange proves nothing


class TrainedModel(Value):
    """Describe the model that one process trains, or that all train. Counts are of numbers, not of bytes."""

    weights: float = 0.0  # trained weights
    dense: float = 0.0  # trained weights without embeddings: a step touches only some rows of an embedding
    steps: float = 0.0  # steps of Keras' `fit`, or of an optimizer that is called in each step
    horovod: float = 0.0  # 1: Horovod is imported, and all that it reduces is seen; 2: it is imported
    tensors: float = 0.0  # gradient tensors that go through Horovod's own tapes and optimizers
    gradients: float = 0.0  # weights that belong to these tensors, without embeddings
    asked: float = 0.0  # numbers in all tensors that Horovod was asked to reduce
    largest: float = 0.0  # numbers in the largest of these tensors
    reduced: float = 0.0  # numbers reduced until now by calls outside of a graph
    workers: float = 0.0  # workers in TensorFlow's strategy, in which gradients are applied
    made: float = 0.0  # workers in the largest strategy that was made
    others: float = 0.0  # 1: it uses a library, such as mpi4py, that may exchange gradients unseen
    strategy: str = ""
    made_at: str = ""  # line of the script that makes the model, if it is outside of every strategy
    trained_at: str = ""  # line of the script that trains it there

    @property
    def has_gradients_reduced(self) -> bool:
        """Return whether the framework itself exchanges the gradients."""
        if self.strategy.startswith("ParameterServer"):  # even with one worker: the servers are elsewhere
            return True
        return self.workers > 1 or (self.tensors > 0 and self.gradients >= self.dense / 2)

    @property
    def is_alone(self) -> bool:
        """Return whether gradients were applied that neither the framework nor Horovod had exchanged before."""
        without = self.horovod == 0 or self.asks_for_scalars or (self.horovod == 1 and not (self.asked or self.tensors))
        return self.weights > 0 and not self.has_gradients_reduced and without and not self.others

    @property
    def leaves_strategy(self) -> bool:
        """Return whether a strategy of several hosts was made, and the gradients were applied outside of it."""
        return self.made > 1 and self.is_alone

    @property
    def asks_for_weights(self) -> bool:
        """Return whether the tensors given to Horovod hold at least half of the weights, whatever their names."""
        return self.dense >= SMALL and self.asked >= self.dense / 2

    @property
    def asks_for_scalars(self) -> bool:
        """Return whether Horovod is imported, and all tensors given to it are much too small for the gradients."""
        small = self.largest <= SCALARS or self.asked <= LITTLE * self.weights
        return self.horovod == 1 and self.weights >= SMALL and not self.tensors and small


TEXTS = tuple(name for name in TrainedModel.fields if isinstance(TrainedModel.defaults[name], str))
NUMBERS = tuple(name for name in TrainedModel.fields if name not in TEXTS)


def model_of(told: object) -> TrainedModel:
    """Read a model from a record or a message. A value that is not a possible number becomes 0."""
    values = told if isinstance(told, Mapping) else {}
    found: dict[str, Any] = {name: _number(values.get(name)) for name in NUMBERS}
    for name in TEXTS:
        found[name] = "".join(c for c in str(values.get(name, ""))[:MOST_TEXT] if c.isprintable())
    return TrainedModel(**found)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or value != value or value < 0:
        return 0.0
    return float(min(value, MOST))


def of_all(models: Iterable[TrainedModel]) -> TrainedModel:
    """Combine the models that all processes report: take the largest value of each number."""
    known = list(models)
    found: dict[str, Any] = {name: max((getattr(each, name) for each in known), default=0.0) for name in NUMBERS}
    found |= {name: next((text for each in known if (text := getattr(each, name))), "") for name in TEXTS}
    return TrainedModel(**found)


class WeightSums:
    """Collect the sums of weights that training processes report after the same step, and compare them."""

    def __init__(self) -> None:
        self._told: dict[int, dict[Who, tuple[float, float]]] = {}  # step -> who -> (norm, sum)
        self._who: set[Who] = set()
        self._said: bool | None = None
        self._looked, self._differ = -1, 0  # the last step that was compared, and how often they differed until then

    def note(self, who: Who, step: int, norm: float, total: float) -> None:
        """Note the norm and the sum of one process's weights after a step."""
        self._who.add(who)
        self._told.setdefault(step, {})[who] = (norm, total)
        while len(self._told) > KEPT:
            del self._told[min(self._told)]

    def forget(self, who: Who) -> None:
        """Forget a process that has ended or starts again."""
        self._looked, self._differ = -1, 0
        self._who.discard(who)
        for told in self._told.values():
            told.pop(who, None)

    def look(self) -> tuple[bool, str] | None:
        """Return (whether the weights are equal, words) when that becomes known or changes, else None.

        Once they were equal, return None for good: weights that are averaged now and then differ in between.
        """
        if self._said:
            return None
        steps = sorted(step for step, told in self._told.items() if step > self._looked and told.keys() >= self._who)
        for step in steps if len(self._who) > 1 else ():
            self._looked, told = step, self._told[step]
            self._differ = 0 if are_equal(told) else self._differ + 1
            if not self._differ:
                after_all, self._said = " after all" if self._said is False else "", True
                return True, f"equal weights{after_all} on all {len(told)} processes after step {step}"
            if self._said is None and self._differ >= IN_A_ROW:
                self._said = False
                shown = [f"{process} on {host} {norm:.6g}" for (host, process), (norm, _) in sorted(told.items())]
                words = (
                    f"weights differ {IN_A_ROW} times in a row, now after step {step}: their norm is {listed(shown, 6)}"
                )
                return False, f"distributed: NO: {words}"
        return None


def are_equal(told: Mapping[Who, tuple[float, float]]) -> bool:
    """Return whether all sums are equal up to rounding. NaN and infinity equal one another."""
    first, *others = [[each if math.isfinite(each) else math.inf for each in sums] for sums in told.values()]
    scale = max(1e-12, CLOSE * (abs(first[0]) if first[0] < math.inf else 1.0))
    pairs = [pair for other in others for pair in zip(first, other, strict=True)]
    return all(one == other or abs(one - other) <= scale for one, other in pairs)
