"""Read a process's shard with operations of the graph that the process runs.

The dataset function of a ClusterCoordinator is traced on the chief and runs in the workers' servers, without the
script's Python. A worker's own values are in its environment, which Linux shows as a file.
"""

from sagemaker_tf_data.channels import SHARDS
from sagemaker_tf_data.lazy import tf


def part(key: str) -> "tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]":
    """Return (channel, mode, count, index) of `channels.part(key)` as scalar tensors: two strings, two int64.

    If the launcher did not start the process, the graph fails with an InvalidArgumentError that names the reason.
    """
    text = variable(SHARDS)
    fields = []
    for field in ("channel", "mode", "count", "index"):
        pattern = f'.*"{_literal(key)}": *{{[^}}]*"{field}": *"?([^",}} ]+).*'
        known = tf.debugging.Assert(
            tf.strings.regex_full_match(text, pattern),
            [
                f"channel {key}: the reading process has no shard for it in {SHARDS}; only workers started by the "
                "launcher have one. Found:",
                text,
            ],
        )
        with tf.control_dependencies([known] if known is not None else []):
            fields.append(tf.strings.regex_replace(text, pattern, r"\1"))
    channel, mode, count, index = fields
    return channel, mode, tf.strings.to_number(count, tf.int64), tf.strings.to_number(index, tf.int64)


def variable(name: str) -> "tf.Tensor":
    """Return the environment variable as a scalar string, with its value at the process's start; empty if not set.

    The kernel reports a size of 0 for the file, so operations that rely on the size read nothing; the reader of text
    lines does not.
    """
    lines = tf.data.TextLineDataset("/proc/self/environ")
    text = lines.reduce(tf.constant(""), lambda before, line: tf.strings.join([before, "\n", line]))
    entries = tf.strings.split(tf.strings.substr(text, 1, -1), "\0")
    mine = tf.boolean_mask(entries, tf.strings.regex_full_match(entries, rf"(?s)^{_literal(name)}=.*"))
    return tf.strings.regex_replace(tf.strings.reduce_join(mine[:1]), f"^{_literal(name)}=", "")


def input_folder() -> "tf.Tensor":
    """Return `channels.input_folder()` of the process that runs the graph."""
    named, base = variable("SM_INPUT_DIR"), variable("SAGEMAKER_BASE_DIR")
    base = tf.where(tf.equal(base, ""), "/opt/ml", base)
    return tf.where(tf.equal(named, ""), tf.strings.join([base, "/input"]), named)


def _literal(text: str) -> str:
    """Escape `text` for RE2: channel names may have dots and hyphens."""
    return "".join(c if c.isalnum() or c == "_" else f"\\{c}" for c in text)
