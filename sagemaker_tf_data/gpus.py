"""Which of the host's GPUs are this process's."""

import os
from collections.abc import Mapping
from typing import Any

from sagemaker_tf_data.errors import DataError

LOCAL_RANK = "OMPI_COMM_WORLD_LOCAL_RANK"


def pin_gpu(environ: Mapping[str, str] = os.environ) -> list[Any]:
    """Let TensorFlow see this process's GPUs only, and take of their memory what it needs. Returns them.

    Under mpirun that is one, by local rank, of those that the process sees: all of the host, or the part that the
    launcher has given it (ENTRYPOINT_PIN_GPUS=always). Elsewhere it is all that it sees, since the launcher has divided
    them. Call it before TensorFlow has done anything with a device.
    """
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if gpus and LOCAL_RANK in environ:
        gpus = [gpus[int(environ[LOCAL_RANK]) % len(gpus)]]
    try:
        tf.config.set_visible_devices(gpus, "GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise DataError(
            f"pin_gpu() comes too late, TensorFlow has its devices already ({error}); call it first, before the first "
            "tensor and the strategy"
        ) from None
    return list(gpus)
