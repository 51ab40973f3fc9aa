"""Feed Pipe mode channels, read them with another reader in each pass, and print the records.

Without sagemaker-tensorflow's operator, the launcher's reader reads all passes.
"""

import json
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from sagemaker_tf_data import pipe_dataset, serve_pipes

try:
    from sagemaker_tensorflow import PipeModeDataset
except ImportError:
    PipeModeDataset = None

RECORDS = [b"%d " % n + bytes([1 + n % 9]) * (n * 37 % 3000) for n in range(1500)] + [
    bytes([65]) * 2_000_000,
    b"",
    b"end",
]
BASE = Path(os.environ["SAGEMAKER_BASE_DIR"])
STATE = BASE / "pipe_state"


def by_operator(record_format: str) -> tf.data.Dataset:
    return pipe_dataset(record_format, record_format, reader="operator")


def by_ours(record_format: str) -> tf.data.Dataset:
    return pipe_dataset(record_format, record_format, reader="own")


def by_whichever(record_format: str) -> tf.data.Dataset:
    return pipe_dataset(record_format, record_format)


def by_aws(record_format: str) -> tf.data.Dataset:
    """Read as scripts for AWS's images do."""
    return PipeModeDataset(
        record_format,
        record_format,
        state_dir=str(STATE),
        pipe_dir=str(BASE / "input/data"),
        config_dir=str(BASE / "input/config"),
    )


READERS = (
    (by_operator, by_ours, by_operator, by_aws, by_ours, by_ours) if PipeModeDataset else 3 * (by_ours, by_whichever)
)


def encoded(records: list[bytes], record_format: str) -> bytes:
    if record_format == "TFRecord":
        with tf.io.TFRecordWriter("/tmp/records") as writer:
            for one in records:
                writer.write(one)
        return Path("/tmp/records").read_bytes()
    if record_format == "RecordIO":
        return b"".join(struct.pack("<II", 0xCED7230A, len(one)) + one + bytes(-len(one) % 4) for one in records)
    return b"\n".join(records)


def of_pass(number: int) -> list[bytes]:
    """Read in another order in each pass."""
    return RECORDS[number * 100 :] + RECORDS[: number * 100]


def feed(record_format: str, passes: int) -> None:
    for number in range(passes):
        pipe = BASE / "input/data" / f"{record_format}_{number}"
        content = encoded(of_pass(number), record_format)
        os.mkfifo(pipe)
        with open(pipe, "wb") as stream:
            stream.write(content)
        pipe.unlink()


def read(record_format: str, number: int, reader: Callable[[str], tf.data.Dataset]) -> str:
    got = [one.numpy() for one in reader(record_format).prefetch(2)]
    state = (STATE / f".{record_format}-pipe_mode-state").read_text()
    right = got == of_pass(number) and state == str(number + 1)
    return f"{record_format} pass {number} {reader.__name__}: {len(got)} records, {'right' if right else 'WRONG'}"


def in_graph(number: int) -> str:
    """Read as a worker's server does when it runs what a ClusterCoordinator's chief has traced."""
    serve_pipes()
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"chief": ["a:1"], "ps": ["a:2"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    )
    got = tf.function(lambda: pipe_dataset("TFRecord", "TFRecord").batch(len(RECORDS)).get_single_element())()
    return f"TFRecord pass {number} in a graph: {'right' if got.numpy().tolist() == of_pass(number) else 'WRONG'}"


for kind in ("TFRecord", "RecordIO", "TextLine"):
    feeder = threading.Thread(target=feed, args=(kind, len(READERS) + (kind == "TFRecord")), daemon=True)
    feeder.start()
    for turn, chosen in enumerate(READERS):
        print(read(kind, turn, chosen), flush=True)
    if kind == "TFRecord":
        print(in_graph(len(READERS)), flush=True)
    feeder.join()
