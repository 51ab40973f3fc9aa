"""Read pipes in TensorFlow servers, for the graphs that a ClusterCoordinator sends to them."""

from collections.abc import Generator
from typing import Any

from sagemaker_tf_data import on_workers, pipe, recordio_datasets


def serve_pipes() -> None:
    """Register our own reader in this process, a TensorFlow server, so that it reads pipes for a ClusterCoordinator.

    The launcher's servers do so. A script that is a worker itself calls this before `server.join()`; to use the
    operator it imports sagemaker_tensorflow instead.
    """

    def pieces(channel: str, record_format: str, patience: str, *more: str) -> Generator[Any, None, None]:
        if more:
            yield from recordio_datasets.serve(channel, record_format, float(patience), *more)
        else:
            yield from pipe.serve(channel, record_format, float(patience))

    on_workers.serve(pieces)
