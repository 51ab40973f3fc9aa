"""Read a pass in pieces that end where records end; tf.data separates their records.

A piece is large enough that a call of Python costs next to nothing, and small enough for the CPU's caches, as every
byte of it is soon read again.
"""

import mmap
import os
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any, Protocol

from sagemaker_tf_data import recordio, tfrecord
from sagemaker_tf_data.errors import DataError
from sagemaker_tf_data.fifo import Fifo
from sagemaker_tf_data.lazy import np

SIZE, FILE_SIZE = 1 << 20, 8 << 20  # bytes of an array of records, of a file of TFRecords
LINGER = 0.02  # seconds without a byte until a piece is yielded as it is, so that a slow pipe does not delay records
LONGEST_LINE = 256 << 20  # bytes
# Sizes for TensorFlow's reader: a file of small TFRecords is read through a buffer, one of larger ones without it.
BUFFER, DIRECT = 256 << 10, 32 << 10

Buffer = mmap.mmap | bytearray
Split = Callable[[Buffer, int, bool], tuple[list[Any], int]]


class Source(Protocol):
    """Provide bytes in order: a `Fifo`, or a file."""

    path: Path
    cut: str  # the error's text if they end in the middle of a record

    def read_into(self, view: memoryview, linger: float | None = None) -> int | None:
        """Return the number of bytes read: 0 at the end, None if none came within `linger` seconds."""


def of_records(fifo: Source, split: Split, kind: str) -> "Iterator[np.ndarray]":
    """Yield arrays of records; errors as for `lists`."""
    for records in lists(fifo, split, kind):
        array = np.empty(len(records), object)
        array[:] = records
        yield array


def lists(fifo: Source, split: Split, kind: str) -> Iterator[list[Any]]:
    """Yield lists of what `split` returns for records.

    Raises:
        DataError: The pass is not of this kind, or ends in the middle of a record.
    """
    # A buffer of whole pages: a bytearray begins 16 bytes behind the start of a page, and on some processors the kernel
    # copies four times more slowly to there.
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
            again = ended and used > 0  # what follows may be invalid, and not just incomplete
        if have == len(buffer):
            buffer.resize(2 * len(buffer))
    if have:
        raise progress.broken(fifo.cut, buffer[:have])


def split_lines(buffer: Buffer, end: int, last: bool) -> tuple[list[bytes], int]:
    r"""Return lines without their "\n", and the bytes used. A "\r" stays. The last line may lack the "\n"."""
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
    """Yield (path of a file in memory with whole TFRecords only, size of the buffer to read it with).

    A path is valid until the next but one is requested: tf.data reads one file while this fills another, and the third
    is spare. TensorFlow's reader of TFRecords seeks, which a pipe does not allow. The copy is worth it: that reader
    checks the contents' checksums, and does not hold Python's lock.

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
                    except DataError:  # raised below
                        ended = True
                    else:
                        slot.grow(size)
            rest = slot.memory[end:have]
            if not number:
                break
            slot.cut(end)
            yield slot.path, 0 if end > number * DIRECT else BUFFER
            progress.add(number, end)
        # tf.data requests one more while it reads the last one. So yield an empty file first; the slots close after it.
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
    """Share memory with TensorFlow: TensorFlow reads it as a file, and we write to its mapping."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("pipe_dataset")
        os.ftruncate(self.descriptor, FILE_SIZE)
        self.memory = mmap.mmap(self.descriptor, FILE_SIZE)
        self.path = f"/proc/self/fd/{self.descriptor}"

    def grow(self, size: int) -> None:
        """Make the memory at least `size` bytes, and the file as long as the memory."""
        os.ftruncate(self.descriptor, len(self.memory))
        if size > len(self.memory):
            self.memory.resize(size)

    def cut(self, end: int) -> None:
        """End the file at `end`; memory beyond that must not be touched until `grow`."""
        os.ftruncate(self.descriptor, end)

    def close(self) -> None:
        """Release the memory and the file."""
        self.memory.close()
        os.close(self.descriptor)


class _Progress:
    """Count the records and bytes that were yielded, for error messages."""

    def __init__(self, fifo: Source, kind: str) -> None:
        self.path, self.kind, self.records, self.bytes = fifo.path, kind, 0, 0

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size

    def broken(self, what: str, found: bytes | bytearray) -> DataError:
        """Return an error with the place of the fault, and the format that `found`, the bytes there, looks like."""
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
    """Fill `view` until it is full, or the pass ends or pauses. Return (bytes in `view`, whether the pass ended)."""
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
