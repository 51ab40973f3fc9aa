"""Run Python's generators in TensorFlow servers that are workers of a ClusterCoordinator.

A dataset function is traced on the chief, and its graph runs in the workers. Operations that call Python
(`Dataset.from_generator`, `tf.py_function`) use a name that TensorFlow generates, and that only the tracing process
knows. Here the names are fixed: the worker registers its functions under them, and the chief's graph calls them.
"""

import itertools
from collections.abc import Callable, Generator
from typing import Any

from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.lazy import np, tf

# A worker without these functions has the name in its error.
NAME = "pipe_dataset (only the launcher's servers have it; a script that is a worker calls serve_pipes() first)"

_functions: dict[str, Callable[..., Any]] = {}  # kept alive here: TensorFlow has weak references
_running: dict[int, Generator[Any, None, None]] = {}
_numbers = itertools.count(1)


def serve(generate: Callable[..., Generator[Any, None, None]]) -> None:
    """Let the graphs that this process runs iterate over `generate(words)`, until it exits.

    Raises:
        DataError: This TensorFlow has another registry of Python functions.
    """

    def begin(words: Any) -> Any:
        number = next(_numbers)
        _running[number] = generate(*(word.decode() for word in words))
        return np.int64(number)

    def proceed(number: Any) -> list[Any]:
        return list(next(_running[int(number)]))

    def end(number: Any) -> Any:
        _running.pop(int(number)).close()
        return np.int64(0)

    _functions.update({f"{NAME}: begin": begin, f"{NAME}: proceed": proceed, f"{NAME}: end": end})
    try:
        from tensorflow.python.ops import script_ops

        script_ops._py_funcs._funcs.update(_functions)
    except (ImportError, AttributeError) as error:
        raise DataError(f"pipes cannot be served by TensorFlow {tf.__version__} ({error})") from None


def dataset(words: "list[str]", signature: "tuple[tf.TensorSpec, ...]") -> "tf.data.Dataset":
    """Return a dataset of the values of `generate(words)`, called for each iterator in the process of the graph."""

    def call(function: str, argument: Any, types: list[Any]) -> Any:
        return tf.raw_ops.PyFunc(input=[argument], token=f"{NAME}: {function}", Tout=types)

    def generated(_: Any) -> "tf.data.Dataset":
        number = tf.TensorSpec([], tf.int64)
        types = [each.dtype for each in signature]
        begin = tf.function(lambda: call("begin", tf.constant(words), [tf.int64]))
        proceed = tf.function(lambda number: call("proceed", number, types))
        end = tf.function(lambda number: call("end", number, [tf.int64]))
        variant = tf.raw_ops.GeneratorDataset(
            init_func=begin.get_concrete_function(), init_func_other_args=[],
            next_func=proceed.get_concrete_function(number), next_func_other_args=[],
            finalize_func=end.get_concrete_function(number), finalize_func_other_args=[],
            output_types=types, output_shapes=[each.shape for each in signature],
        )  # fmt: skip
        return tf.data.experimental.from_variant(variant, signature)

    return tf.data.Dataset.from_tensors(0).flat_map(generated)
