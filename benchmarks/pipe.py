"""Measure Pipe mode: records and bytes per second of the operator, of our reader, and of reading the same from a file.

TFRecord and RecordIO, records of 1 KB and 100 KB. A process of its own feeds the named pipes by splice(), from files in
the page cache, as fast as they are read. The readers take turns, round by round; what is read is counted. In the image,
which has sagemaker-tensorflow's operator, or anywhere with TensorFlow, then without it:

    docker run --rm -w / -v "$PWD/benchmarks:/benchmarks:ro" -v "$PWD/docs/benchmarks:/out" \\
        sagemaker-tf-entrypoint:latest python -m benchmarks.pipe --megabytes 1600 --json /out/pipe.json
    python -m benchmarks.pipe

Our reader's parser reads a file of RecordIO, since TensorFlow has none.
"""

import argparse
import json
import os
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.report import page

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # with the operator, TensorFlow logs at each use what it lacks
FORMATS = ("TFRecord", "RecordIO")
SIZES = {"1 KB": (1_000, 256), "100 KB": (100_000, 16)}  # bytes of a record, records of a batch


def feed(file: Path, pipe: Path) -> None:
    """Feed the passes of a channel, one after another, until terminated."""
    source = os.open(file, os.O_RDONLY)
    size = os.fstat(source).st_size
    number = 0
    while True:
        path = Path(f"{pipe}_{number}")
        os.mkfifo(path)
        target = os.open(path, os.O_WRONLY)  # waits for the reader
        at = 0
        while at < size:
            at += os.splice(source, target, 1 << 20, offset_src=at)
        path.unlink()
        os.close(target)
        number += 1


def write(file: Path, record_format: str, size: int, total: int) -> int:
    """Write a file, and return the number of its records. Their sizes differ by an eighth to either side."""
    import tensorflow as tf

    chance = random.Random(1)
    content = chance.randbytes(2 * size)
    number = total // size
    with tf.io.TFRecordWriter(str(file)) if record_format == "TFRecord" else open(file, "wb") as stream:
        for _ in range(number):
            length = size + chance.randrange(-size // 8, size // 8)
            start = chance.randrange(2 * size - length)
            record = content[start : start + length]
            if record_format == "RecordIO":
                record = struct.pack("<II", 0xCED7230A, length) + record + bytes(-length % 4)
            stream.write(record)
    return number


def readers(record_format: str, channel: str, file: Path, base: Path) -> dict[str, Callable[[], Any]]:
    """Return {name: function that makes the dataset}."""
    import tensorflow as tf

    from sagemaker_tf_data import pipe_dataset
    from sagemaker_tf_data.fifo import Fifo
    from sagemaker_tf_data.pipe import records

    def from_file() -> Any:
        if record_format == "TFRecord":
            return tf.data.TFRecordDataset(str(file))
        return records(Fifo(file, os.open(file, os.O_RDONLY), 60), record_format)

    found = {"our reader": lambda: pipe_dataset(channel, record_format, reader="own"), "file": from_file}
    try:
        from sagemaker_tensorflow import PipeModeDataset
    except (ImportError, tf.errors.OpError) as error:
        print(f"without sagemaker-tensorflow's operator: {error}\n")
        return found
    places = {
        "state_dir": str(base / "pipe_state"),
        "pipe_dir": str(base / "input/data"),
        "config_dir": str(base / "input/config"),
    }
    return {"operator": lambda: PipeModeDataset(channel, record_format, **places), **found}


def measure(make: Callable[[], Any], batch: int, wanted: int) -> tuple[float, float]:
    """Return (seconds, CPU seconds of this process) of one pass."""
    dataset = make().batch(batch)
    used = resource.getrusage(resource.RUSAGE_SELF)
    began, before = time.perf_counter(), used.ru_utime + used.ru_stime
    found = sum(len(one) for one in dataset)
    seconds = time.perf_counter() - began
    used = resource.getrusage(resource.RUSAGE_SELF)
    if found != wanted:
        raise SystemExit(f"{found} records came, wanted {wanted}")
    return seconds, used.ru_utime + used.ru_stime - before


def main() -> None:
    parser = machine.parser(__doc__, rounds=5, counted="counted ones, after one that is not")
    parser.add_argument("--megabytes", type=int, default=256, help="size of each file")
    parser.add_argument("--feed", nargs=2, type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.feed:
        feed(*arguments.feed)
    record = machine.head("pipe", limits={"megabytes": arguments.megabytes})
    with tempfile.TemporaryDirectory(prefix="bench-pipe-") as folder:
        run(Path(folder), arguments.rounds, arguments.megabytes * 1_000_000, record, arguments.json)
    print(page(record))


def run(base: Path, rounds: int, total: int, record: dict[str, Any], json_file: Path | None) -> None:
    """Put each pass on record."""
    os.environ["SAGEMAKER_BASE_DIR"] = str(base)
    (base / "input/config").mkdir(parents=True)
    (base / "input/data").mkdir()
    (base / "pipe_state").mkdir()
    names = {(kind, size): f"{kind}-{size.replace(' ', '')}" for kind in FORMATS for size in SIZES}
    config = {name: {"TrainingInputMode": "Pipe"} for name in names.values()}
    (base / "input/config/inputdataconfig.json").write_text(json.dumps(config))
    for (kind, size), name in names.items():
        length, batch = SIZES[size]
        file = base / name
        number = write(file, kind, length, total)
        size_of_all = file.stat().st_size
        feeder = subprocess.Popen([sys.executable, "-m", "benchmarks.pipe", "--feed", file, base / "input/data" / name])
        try:
            makers = readers(kind, name, file, base)
            for turn in range(rounds + 1):
                for reader, make in makers.items():
                    seconds, cpu = measure(make, batch, number)
                    case = {"format": kind, "record": size, "reader": reader, "round": turn, "load": machine.load()}
                    measures = {
                        "records_per_s": number / seconds,
                        "mb_per_s": size_of_all / 1e6 / seconds,
                        "cpu_s_per_gb": cpu / size_of_all * 1e9,
                    }
                    if turn:
                        machine.add(record, {**case, "measures": measures}, json_file)
        finally:
            feeder.kill()
            feeder.wait()
            file.unlink()


if __name__ == "__main__":
    main()
