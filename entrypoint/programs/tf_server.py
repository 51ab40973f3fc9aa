"""Run one TensorFlow server, as the task that TF_CONFIG names, until it is ended.

The server itself is no Python code. A parameter server imports only the TensorFlow modules that start the server:
that takes a seventh of the CPU time and a third of the memory. All ops and kernels are there, except those in libraries
of their own: AudioMicrofrontend, and in TensorFlow 2.14 SobolSample. All of TensorFlow is imported if the part cannot
be imported, or if TensorFlow loads more than its own files: plugins, or a file system for gs://.
"""

import contextlib
import importlib.util
import json
import os
import sys
import types
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
WHOLE = "--whole"


def main() -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    if task["type"] != "ps" or WHOLE in sys.argv:
        server, cluster, session = _import_all(reads=task["type"] != "ps")
    else:
        try:
            server, cluster, session = _import_what_serves()
        except Exception:  # in a new process: what was imported by now would disturb the full import
            os.execv(sys.executable, [*sys.orig_argv, WHOLE])
    options = session()
    if task["type"] == "ps":
        options.device_count["GPU"] = 0
    its = server(
        cluster(config["cluster"]),
        job_name=task["type"],
        task_index=task["index"],
        protocol="grpc",
        config=options,
        start=True,
    )
    print(f"serving {task['type']} {task['index']} at {its.target}", flush=True)
    its.join()


def _import_what_serves() -> tuple[Any, Any, Any]:
    """Import Server, ClusterSpec and ConfigProto, and return them. The packages around them stay empty."""
    found = importlib.util.find_spec("tensorflow")
    folders = (found and found.submodule_search_locations) or ()
    modular = os.environ.get("TF_USE_MODULAR_FILESYSTEM") in ("1", "true")
    if modular or any((Path(folder).parent / "tensorflow-plugins").exists() for folder in folders):
        raise ImportError("TensorFlow's package loads more than its own")
    top, python = types.ModuleType("tensorflow"), types.ModuleType("tensorflow.python")
    top.__path__, python.__path__ = [*folders], [f"{folder}/python" for folder in folders]
    top.python = python  # type: ignore[attr-defined]
    sys.modules.update({each.__name__: each for each in (top, python)})
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.training import server_lib

    # If a script keeps checkpoints in S3, the servers write their parts there, too. TensorFlow 1 could do so by itself.
    io = importlib.util.find_spec("tensorflow_io")
    if io and io.origin:
        from tensorflow.python.client import pywrap_tf_session

        plugins = Path(io.origin).parent / "python" / "ops" / "libtensorflow_io_plugins.so"
        pywrap_tf_session.TF_RegisterFilesystemPlugin(str(plugins))
    return server_lib.Server, server_lib.ClusterSpec, config_pb2.ConfigProto


def _import_all(reads: bool) -> tuple[Any, Any, Any]:
    """Return the same three from the whole TensorFlow.

    `reads`: this server may read the chief's datasets of channels.
    """
    import tensorflow as tf

    # s3://, as above; there may be none, or one of another TensorFlow
    with contextlib.suppress(ImportError, NotImplementedError, tf.errors.OpError):
        import tensorflow_io  # noqa: F401

    if reads and '"Pipe"' in os.environ.get("ENTRYPOINT_SHARDS", ""):
        # A dataset that the chief makes of a Pipe mode channel is read here; the operator does it if it is installed.
        with contextlib.suppress(ImportError, AttributeError, tf.errors.OpError):
            import sagemaker_tensorflow  # noqa: F401
        with contextlib.suppress(ImportError):
            import sagemaker_tf_data

            try:
                sagemaker_tf_data.serve_pipes()
            except sagemaker_tf_data.DataError as error:  # the operator may still read them
                print(error, flush=True)
    return tf.distribute.Server, tf.train.ClusterSpec, tf.compat.v1.ConfigProto


if __name__ == "__main__":
    main()
