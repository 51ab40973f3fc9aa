"""Define what a model looks like from outside: signatures with named tensors, and one method that predicts."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

DEFAULT_SIGNATURE = "serving_default"


class Declined(Exception):
    """Report why a request is not answered, with the HTTP status."""

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Tensor:
    """Describe one input or output. Text has dtype object. None as a shape, or as a size, stands for any."""

    name: str
    dtype: np.dtype
    shape: tuple[int | None, ...] | None

    @property
    def is_text(self) -> bool:
        return self.dtype == np.dtype(object)

    def fits(self, shape: tuple[int, ...]) -> bool:
        if self.shape is None:
            return True
        return len(shape) == len(self.shape) and all(w in (None, s) for w, s in zip(self.shape, shape, strict=True))

    def __str__(self) -> str:
        kind = "text" if self.is_text else self.dtype.name
        if self.shape is None:
            return f"{self.name}: {kind}"
        sizes = ["n" if size is None and place == 0 else size or "?" for place, size in enumerate(self.shape)]
        return f"{self.name}: {kind} [{', '.join(map(str, sizes))}]"


@dataclass(frozen=True)
class Signature:
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.inputs))}) -> {', '.join(map(str, self.outputs))}"

    @property
    def wants(self) -> str:
        """Return what a request must bring, for an error message."""
        return f"{self.name} wants {', '.join(map(str, self.inputs))}"


class ServedModel(Protocol):
    """Describe a loaded model. Several threads call `predict` at once; it raises Declined if the input is at fault."""

    name: str
    version: str
    signatures: Mapping[str, Signature]

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]: ...


def choose(signatures: Mapping[str, Signature], name: object = None) -> Signature:
    """Return the signature of that name; without a name the default one, or the only one."""
    if name is None:
        name = DEFAULT_SIGNATURE if DEFAULT_SIGNATURE in signatures or len(signatures) != 1 else next(iter(signatures))
    if not isinstance(name, str) or name not in signatures:
        wanted = " or ".join(signatures)
        raise Declined(f"there is no signature {str(name)[:100]!r}; wanted signature_name to be {wanted}")
    return signatures[name]
