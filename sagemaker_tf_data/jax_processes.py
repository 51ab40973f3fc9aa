"""Start this process's part in a JAX job, once, and exchange numbers with the other processes."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from sagemaker_tf_data import places
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import np

COORDINATOR = "JAX_COORDINATOR_ADDRESS"  # set by the launcher in mode jax


def initialize_jax(environ: Mapping[str, str] = os.environ) -> places.Place:
    """Join the other processes of a job in mode `jax`, print what was found, and return this process's place.

    Call it at the beginning, after `import keras` if the script uses Keras, and before jax computes anything. With
    Keras 3 on its JAX backend it calls `keras.distribution.initialize`, which also gives all processes the same seed;
    without Keras, `jax.distributed.initialize`. Without the launcher's variables, and when it is called again, it
    changes nothing, so the same script trains alone.

    Raises:
        DataError: jax is not installed, its devices are in use already, or Keras has another backend.
    """
    if COORDINATOR in environ:
        try:
            import jax
        except ImportError as error:
            raise DataError(
                f"initialize_jax() needs jax ({error}); wanted it in the image or in requirements.txt"
            ) from None
        keras = sys.modules.get("keras")
        if not is_initialized():
            _initialize(jax, keras, environ)
        backend = f", Keras {keras.__version__}" if keras is not None else ""
        print(
            f"jax {jax.__version__}{backend}: process {jax.process_index()} of {jax.process_count()}, with "
            f"{jax.local_device_count()} of {jax.device_count()} devices ({jax.default_backend()})",
            flush=True,
        )
    return places.here(environ)


def is_initialized() -> bool:
    """Return whether this process has joined a job of several processes, or of one that was started so."""
    distributed = sys.modules.get("jax._src.distributed")
    return distributed is not None and distributed.global_state.client is not None


def gather(numbers: Sequence[int]) -> list[list[int]]:
    """Return the numbers of all processes, in their order. All must call it."""
    from jax.experimental.multihost_utils import process_allgather

    halves = np.asarray(numbers, np.int64).view(np.int32)  # jax would cut an int64 to its lower half
    found = np.asarray(process_allgather(halves)).reshape(places.ranks(), -1)
    return [row.view(np.int64).tolist() for row in np.ascontiguousarray(found, np.int32)]


def _initialize(jax: Any, keras: Any, environ: Mapping[str, str]) -> None:
    if keras is not None and keras.config.backend() != "jax":
        raise DataError(
            f"initialize_jax() was called with Keras on its {keras.config.backend()} backend; wanted KERAS_BACKEND=jax "
            "or no other value of it in the job's environment or the script"
        )
    place = places.here(environ)
    try:
        if keras is not None:
            keras.distribution.initialize(environ[COORDINATOR], place.size, place.rank)
        else:
            jax.distributed.initialize(environ[COORDINATOR], place.size, place.rank)
    except RuntimeError as error:
        if "must be called before" not in str(error):
            raise
        raise DataError(
            f"initialize_jax() was called too late: jax has initialised its devices ({error}); call it first, before "
            "jax.devices(), a computation or a Keras model"
        ) from None
