"""A pass in pieces that end where records end, for tf.data to take apart.

A piece is large enough for a call of Python to cost next to nothing, and small enough for the processor's caches, as
every byte of it is soon read again.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from sagemaker_tf_data import recordio, tfrecord
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.fifo import Fifo

if TYPE_CHECKING:
    import numpy as np

SIZE, FILE_SIZE = 1 << 20, 8 << 20  # bytes of an array of records, of a file of TFRecords
LINGER = 0.02  # seconds without a byte after which a piece goes out as it is: a slow pipe does not hold records back
LONGEST_LINE = 256 << 20
# What TensorFlow reads TFRecords by: small ones through a buffer, larger ones straight into their tensors.
BUFFER, DIRECT = 256 << 10, 32 << 10

Buffer = mmap.mmap | bytearray
Split = Callable[[Buffer, int, bool], tuple[list[Any], int]]


class Source(Protocol):
    """Bytes that come one after another: a `Fifo`, or a file."""

    path: Path
    cut: str  # what to say if they end in the middle of a record

    def read_into(self, view: memoryview, linger: float | None = None) -> int | None:
        """Number of bytes read, 0 at the end; None where none came for `linger` seconds."""


def of_records(fifo: Source, split: Split, kind: str) -> "Iterator[np.ndarray]":
    """Arrays of records; errors as for `lists`."""
    import numpy as np

    for records in lists(fifo, split, kind):
        array = np.empty(len(records), object)
        array[:] = records
        yield array


def lists(fifo: Source, split: Split, kind: str) -> Iterator[list[Any]]:
    """Lists of what `split` makes of records.

    Raises:
        DataError: The pass is not of this kind, or ends in the middle of a record.
    """
    # Of whole pages: a bytearray begins 16 bytes behind a page's start, to which the kernel copies four times as slowly
    # on some processors.
    buffer = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE)
    have, ended, progress = 0, False, _Progress(fifo, kind)
    while not ended:
        with memoryview(buffer) as view:
            have, ended = _fill(fifo, view, have)
        again = True
        while again:
            try:
                records, used = split(buffer, have, ended)
            except DataError as error:
                raise progress.broken(str(error), buffer[:have]) from None
            if records:
                yield records
            progress.add(len(records), used)
            have -= used
            buffer.move(0, used, have)
            again = ended and used > 0  # what follows may be wrong rather than short
        if have == len(buffer):
            buffer.resize(2 * len(buffer))
    if have:
        raise progress.broken(fifo.cut, buffer[:have])


def split_lines(buffer: Buffer, end: int, last: bool) -> tuple[list[bytes], int]:
    r"""Return lines without their "\n", which is all that ends one: a "\r" stays. The last line may lack it."""
    used = end if last else buffer.rfind(b"\n", 0, end) + 1
    if not used:
        if end > LONGEST_LINE:
            raise DataError(f"no line ends in {end} bytes")
        return [], 0
    with memoryview(buffer) as view:
        lines = bytes(view[:used]).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines, used


def of_tfrecords(fifo: Fifo) -> Iterator[tuple[str, int]]:
    """(path of a file in memory that is TFRecords and nothing else, the size of the buffer to read them with).

    A path is good until the next but one is asked for: tf.data reads one while we fill another, and the third is spare.
    TensorFlow's reader of TFRecords wants to seek, which a pipe cannot. It is worth the detour, as it checks contents'
    checksums and takes no time of Python's.

    Raises:
        DataError: The pass is not TFRecord, or ends in the middle of a record.
    """
    slots = [_Slot() for _ in range(3)]
    progress = _Progress(fifo, "TFRecord")
    rest, size, ended = b"", FILE_SIZE, False
    try:
        for slot in cycle(slots):
            slot.grow(size)
            slot.memory[: len(rest)] = rest
            have, number, end = len(rest), 0, 0
            while not (number or ended):
                with memoryview(slot.memory) as view:
                    have, ended = _fill(fifo, view, have)
                    number, end = tfrecord.whole(view, have)
                if not number and have >= tfrecord.HEADER:
                    try:
                        size = max(size, 2 * tfrecord.size(slot.memory))
                    except DataError:  # said below
                        ended = True
                    else:
                        slot.grow(size)
            rest = slot.memory[end:have]
            if not number:
                break
            slot.cut(end)
            yield slot.path, 0 if end > number * DIRECT else BUFFER
            progress.add(number, end)
        # We are asked for one more while the last one is read, and go on, and close the slots, when it has been.
        yield os.devnull, BUFFER
        if rest:
            what = fifo.cut
            if len(rest) >= tfrecord.HEADER:
                try:
                    tfrecord.size(rest)
                except DataError as error:
                    what = str(error)
            raise progress.broken(what, rest)
    finally:
        for slot in slots:
            slot.close()


class _Slot:
    """A file in memory that we see as memory, and TensorFlow as a file."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pipe_dataset")
        os.ftruncate(self.descriptor, FILE_SIZE)
        self.memory = mmap.mmap(self.descriptor, FILE_SIZE)
        self.path = f"/proc/self/fd/{self.descriptor}"

    def grow(self, size: int) -> None:
        """At least `size` bytes of memory, all of them in the file again."""
        os.ftruncate(self.descriptor, len(self.memory))
        if size > len(self.memory):
            self.memory.resize(size)

    def cut(self, end: int) -> None:
        """The file ends there, and so does what may be touched of the memory."""
        os.ftruncate(self.descriptor, end)

    def close(self) -> None:
        self.memory.close()
        os.close(self.descriptor)


class _Progress:
    """What was handed on, for messages."""

    def __init__(self, fifo: Source, kind: str) -> None:
        self.path, self.kind, self.records, self.bytes = fifo.path, kind, 0, 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size

    def broken(self, what: str, found: bytes | bytearray) -> DataError:
        known = {
            recordio.MAGIC.to_bytes(4, "little"): "RecordIO, in which the channel wraps objects (record_wrapper)",
            b"\x1f\x8b": "gzip: give the channel compression='Gzip'",
        }
        looks = next((f" It looks like {name}." for magic, name in known.items() if found.startswith(magic)), "")
        return DataError(
            f"{self.path} is not, or not all, {self.kind}: after {self.records} records, at byte {self.bytes}: {what}."
            + ("" if "RecordIO" in self.kind and "RecordIO" in looks else looks)
        )


def _fill(fifo: Source, view: memoryview, have: int) -> tuple[int, bool]:
    """(bytes in `view`, whether the pass has ended): full, ended, or nothing more came for a while."""
    came = False
    while have < len(view):
        with view[have:] as room:
            read = fifo.read_into(room, LINGER if came else None)
        if read is None:
            break
        if not read:
            return have, True
        have += read
        came = True
    return have, False
