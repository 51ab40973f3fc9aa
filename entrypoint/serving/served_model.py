"""Define the interface of a model: signatures with named tensors, and one method that predicts.

Load one with TensorFlow: a SavedModel with its signatures, or a file of Keras, which is converted first.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from entrypoint.base.errors import CodeError
from entrypoint.serving.serving_config import FoundModel

DEFAULT_SIGNATURE = "serving_default"
_SHOWN_CHARS = 500  # characters of TensorFlow's message


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
        """Return a description of the wanted request, for an error message."""
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


# --- by TensorFlow ---


def load(found: FoundModel) -> "TensorFlowModel":
    """Load the model, which imports TensorFlow and takes seconds. Raise CodeError if it cannot be used."""
    import tensorflow as tf

    try:
        loaded = tf.saved_model.load(str(found.path)) if found.path.is_dir() else _through_keras(tf, found.path)
        signatures = {name: _signature(name, function) for name, function in loaded.signatures.items()}
    except BaseException as error:  # whatever it is, it is the model's; there are many kinds, and a model may hold code
        raise CodeError(f"the model {found.path} cannot be loaded: {type(error).__name__}: {_brief(error)}") from error
    if not signatures:
        raise CodeError(
            f"the model {found.path} has no signature to call; wanted it saved with one: model.save(FOLDER), "
            "model.export(FOLDER), or tf.saved_model.save(module, FOLDER, signatures=...)"
        )
    return TensorFlowModel(found, loaded, signatures)


def _through_keras(tf: Any, path: Path) -> Any:
    """Return a file of Keras as a SavedModel, since only that has signatures with named inputs and outputs."""
    model = tf.keras.models.load_model(str(path), compile=False)
    with tempfile.TemporaryDirectory() as folder:
        if getattr(tf.keras, "__version__", "2.").startswith("2."):
            model.save(folder, save_format="tf")
        else:
            model.export(folder, verbose=False)  # Keras 3 saves in no other format than its own
        return tf.saved_model.load(folder)


class TensorFlowModel:
    """Call the model's functions from several threads at once; TensorFlow releases Python's GIL while it computes."""

    def __init__(self, found: FoundModel, loaded: Any, signatures: Mapping[str, Signature]) -> None:
        self.name, self.version, self.signatures = found.name, found.version, signatures
        self._loaded = loaded  # owns the variables that its functions use

    def predict(self, signature: str, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        import tensorflow as tf

        specs = self._loaded.signatures[signature].structured_input_signature[1]
        tensors = {name: tf.constant(array, dtype=specs[name].dtype) for name, array in inputs.items()}
        try:
            outputs = self._loaded.signatures[signature](**tensors)
            return {name: tensor.numpy() for name, tensor in sorted(outputs.items())}
        except (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError) as error:
            raise Declined(f"the model cannot take this input: {_brief(error)}") from error


def _signature(name: str, function: Any) -> Signature:
    inputs = function.structured_input_signature[1]
    return Signature(
        name,
        tuple(_tensor(key, spec) for key, spec in sorted(inputs.items())),
        tuple(_tensor(key, spec) for key, spec in sorted(function.structured_outputs.items())),
    )


def _tensor(name: str, spec: Any) -> Tensor:
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    return Tensor(name, np.dtype(spec.dtype.as_numpy_dtype), shape)


def _brief(error: BaseException) -> str:
    """Return TensorFlow's message without the graph and the places in its sources."""
    text = str(getattr(error, "message", "") or error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip() and "node " not in line]
    return " ".join(lines[:3])[:_SHOWN_CHARS] or type(error).__name__
