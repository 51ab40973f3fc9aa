"""What is known of the model that is trained: as the processes of training were seen by programs/on_path/. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from entrypoint.base.values import Value

MOST = 1e15  # of any number
SCALARS = 16  # numbers in a tensor: no more are a loss, or a few metrics
LITTLE = 1e-3  # of the weights: less is no gradient, however it is compressed
SMALL = 1000  # weights: of fewer, the size of a tensor or of an exchange says nothing


class Model(Value):
    """What one process trains, or what is known of all together. All counts are of numbers, not of bytes."""

    weights: float = 0.0  # that are trained
    dense: float = 0.0  # of these, without embeddings, of which each step has some rows only
    steps: float = 0.0  # of Keras' `fit`, or of an optimizer that is called in each step
    horovod: float = 0.0  # 1: it is imported, and all that it reduces is seen; 2: it is imported
    tensors: float = 0.0  # gradients of variables that go through Horovod's own tapes and optimizers
    gradients: float = 0.0  # of how many weights these are, without embeddings
    asked: float = 0.0  # in all tensors that Horovod was asked to reduce
    largest: float = 0.0  # of these tensors
    reduced: float = 0.0  # until now, in reductions that are no part of a graph
    workers: float = 0.0  # that TensorFlow's strategy knows
    strategy: str = ""

    @property
    def has_gradients_reduced(self) -> bool:
        """Whether the framework itself was told to exchange the gradients."""
        if self.strategy.startswith("ParameterServer"):  # of one worker, too: the servers are elsewhere
            return True
        return self.workers > 1 or (self.tensors > 0 and self.gradients >= self.dense / 2)

    @property
    def asks_for_weights(self) -> bool:
        """Whether Horovod is asked for as much as half of the weights, by whatever name."""
        return self.dense >= SMALL and self.asked >= self.dense / 2

    @property
    def asks_for_scalars(self) -> bool:
        """Whether Horovod is there, and all that it is asked for is much too small for the gradients."""
        small = self.largest <= SCALARS or self.asked <= LITTLE * self.weights
        return self.horovod == 1 and self.weights >= SMALL and not self.tensors and small


def model_of(told: object) -> Model:
    """Return what a record or a message tells; what is no number there, or none that can be, is 0."""
    values = told if isinstance(told, Mapping) else {}
    numbers = {name: _number(values.get(name)) for name in Model.fields if name != "strategy"}
    return Model(strategy=str(values.get("strategy", ""))[:60], **numbers)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or value != value or value < 0:
        return 0.0
    return float(min(value, MOST))


def of_all(models: Iterable[Model]) -> Model:
    """Return what is known of the model from all who train it."""
    known = list(models)
    numbers = {
        name: max((getattr(each, name) for each in known), default=0.0) for name in Model.fields if name != "strategy"
    }
    return Model(strategy=next((each.strategy for each in known if each.strategy), ""), **numbers)
