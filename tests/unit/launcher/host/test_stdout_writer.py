"""Test the stdout writer: output is written once, in order, and each wait for a reader is bounded. Pipes are real."""

import fcntl
import os
import threading

from entrypoint.launcher.host.stdout_writer import Sink

SIZE = 4096  # bytes that the pipe holds
FULL = b"-" * SIZE
FIRST = b"first\n" * 5_000


class Full:
    """A full pipe, which is read only on request."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        fcntl.fcntl(self.writer, fcntl.F_SETPIPE_SZ, SIZE)
        os.write(self.writer, FULL)

    def read(self, size: int) -> bytes:
        text = b""
        while len(text) < size and (block := os.read(self.reader, 1 << 16)):
            text += block
        return text

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)


def no_more_threads(monkeypatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_wait_for_a_reader_is_bounded_without_a_thread(monkeypatch):
    pipe = Full()
    sink = Sink(pipe.writer)
    sink.put(FIRST)

    def end() -> None:
        with monkeypatch.context() as patch:
            no_more_threads(patch)
            sink.hand_over()
            missing.append(sink.finish(patience=0.1))

    missing: list[int] = []
    ends = threading.Thread(target=end, daemon=True)
    ends.start()
    ends.join(60)
    assert missing == [len(FIRST)]
    pipe.close()


def test_waiting_output_reaches_its_reader_without_a_thread(monkeypatch):
    pipe, read = Full(), bytearray()
    sink = Sink(pipe.writer)
    sink.put(FIRST)
    reads = threading.Thread(target=lambda: read.extend(pipe.read(SIZE + len(FIRST))), daemon=True)
    reads.start()
    with monkeypatch.context() as patch:
        no_more_threads(patch)
        assert sink.finish(patience=60) == 0
    reads.join(60)
    assert read == FULL + FIRST
    pipe.close()
