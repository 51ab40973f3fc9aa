"""Combine what programs/on_path/ has seen of the trained model in each training process. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from entrypoint.base.values import Value

MOST = 1e15  # limit of every number in a message
SCALARS = 16  # numbers in a tensor: so few are a loss or some metrics
LITTLE = 1e-3  # share of the weights: less cannot be their gradients, however they are compressed
SMALL = 1000  # weights: in a smaller model, the size of a tensor or of an exchange proves nothing


class Model(Value):
    """Describe the model that one process trains, or all together. All counts are of numbers, not of bytes."""

    weights: float = 0.0  # trained weights
    dense: float = 0.0  # trained weights without embeddings: a step touches only some rows of an embedding
    steps: float = 0.0  # steps of Keras' `fit`, or of an optimizer that is called in each step
    horovod: float = 0.0  # 1: Horovod is imported, and all that it reduces is seen; 2: it is imported
    tensors: float = 0.0  # gradient tensors that go through Horovod's own tapes and optimizers
    gradients: float = 0.0  # weights that belong to these tensors, without embeddings
    asked: float = 0.0  # numbers in all tensors that Horovod was asked to reduce
    largest: float = 0.0  # numbers in the largest of these tensors
    reduced: float = 0.0  # numbers reduced until now by calls outside of a graph
    workers: float = 0.0  # workers in TensorFlow's strategy
    strategy: str = ""

    @property
    def has_gradients_reduced(self) -> bool:
        """Return whether the framework itself exchanges the gradients."""
        if self.strategy.startswith("ParameterServer"):  # even with one worker: the servers are elsewhere
            return True
        return self.workers > 1 or (self.tensors > 0 and self.gradients >= self.dense / 2)

    @property
    def asks_for_weights(self) -> bool:
        """Return whether the tensors given to Horovod hold at least half of the weights, whatever their names."""
        return self.dense >= SMALL and self.asked >= self.dense / 2

    @property
    def asks_for_scalars(self) -> bool:
        """Return whether Horovod is imported, and all tensors given to it are much too small for the gradients."""
        small = self.largest <= SCALARS or self.asked <= LITTLE * self.weights
        return self.horovod == 1 and self.weights >= SMALL and not self.tensors and small


def model_of(told: object) -> Model:
    """Read a model from a record or a message. A value that is not a possible number becomes 0."""
    values = told if isinstance(told, Mapping) else {}
    numbers = {name: _number(values.get(name)) for name in Model.fields if name != "strategy"}
    return Model(strategy=str(values.get("strategy", ""))[:60], **numbers)


def _number(value: Any) -> float:
    if not isinstance(value, (int, float)) or value != value or value < 0:
        return 0.0
    return float(min(value, MOST))


def of_all(models: Iterable[Model]) -> Model:
    """Combine the models that all processes report: the largest of each number."""
    known = list(models)
    numbers = {
        name: max((getattr(each, name) for each in known), default=0.0) for name in Model.fields if name != "strategy"
    }
    return Model(strategy=next((each.strategy for each in known if each.strategy), ""), **numbers)
