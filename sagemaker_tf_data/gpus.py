"""Choose this process's GPUs among those of the host."""

import os
from collections.abc import Mapping
from typing import Any

from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import tf

LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"


def pin_gpu(environ: Mapping[str, str] = os.environ) -> list[Any]:
    """Make only this process's GPUs visible to TensorFlow, let their memory grow as needed, and return them.

    Under mpirun that is one, by local rank, of those that the process sees: all of the host, or the part that the
    launcher assigned (ENTRYPOINT_PIN_GPUS=always). Otherwise it is all that the process sees, as the launcher has
    divided them. Call it before TensorFlow uses a device.

    Raises:
        DataError: TensorFlow has initialised its devices already.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus and LOCAL_RANK in environ:
        gpus = [gpus[int(environ[LOCAL_RANK]) % len(gpus)]]
    try:
        tf.config.set_visible_devices(gpus, "GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise DataError(
            f"pin_gpu() was called too late: TensorFlow has initialised its devices ({error}); call it first, before "
            "the first tensor and the strategy"
        ) from None
    return list(gpus)
