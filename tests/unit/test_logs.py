"""logs.py: lines of many writers, whole, in order, labelled. Real pipes, no process."""

import contextlib
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest
from waiting import eventually

from entrypoint.logs import Log
from entrypoint.secrets import Secrets


class Sink:
    """Where a Log writes: a pipe that is read all the time, so that it never fills."""

    def __init__(self) -> None:
        self._reader, self.fd = os.pipe()
        self._parts: list[bytes] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while block := os.read(self._reader, 1 << 20):
            self._parts.append(block)

    def close(self) -> bytes:
        """Everything that was written."""
        os.close(self.fd)
        self._thread.join(timeout=60)
        os.close(self._reader)
        return b"".join(self._parts)


def write_and_close(fd: int, data: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(data)


def logged(outputs: dict[str, bytes], **options) -> bytes:
    """What a Log makes of the stdout of some processes that write at the same time."""
    sink = Sink()
    log = Log("algo-1", fd=sink.fd, **options)
    writers = []
    for process, data in outputs.items():
        out, err = log.open_pipes(process)
        os.close(err)
        writers.append(threading.Thread(target=write_and_close, args=(out, data)))
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=120)
    log.drain()
    return sink.close()


def test_a_million_lines_of_five_writers_stay_whole_and_in_order():
    count = 200_000
    names = [f"rank {number}" for number in range(5)]
    outputs = {
        name: b"".join(b"%s line %d %s\n" % (name.encode(), i, b"x" * (i % 50)) for i in range(count)) for name in names
    }
    text = logged(outputs)
    got: dict[bytes, list[bytes]] = {name.encode(): [] for name in names}
    for line in text.splitlines(keepends=True):
        assert line.startswith(b"[algo-1 ")
        label, _, rest = line[len(b"[algo-1 ") :].partition(b"] ")
        got[label].append(rest)
    for name in names:
        assert b"".join(got[name.encode()]) == outputs[name]


CASES = {
    # what a process writes: what the log shows
    "one line": (b"hello\n", b"[algo-1 script] hello\n"),
    "no end of line": (b"a\nb", b"[algo-1 script] a\n[algo-1 script] b\n"),
    "empty lines": (b"\n\na\n", b"[algo-1 script] \n[algo-1 script] \n[algo-1 script] a\n"),
    "nothing": (b"", b""),
    "not UTF-8": (b"caf\xe9 \xff\n", "[algo-1 script] caf\ufffd \ufffd\n".encode()),
    "UTF-8": ("é😀\n".encode(), "[algo-1 script] é😀\n".encode()),
    "line separators that are none": ("a\u2028b\x0bc\n".encode(), "[algo-1 script] a\u2028b\x0bc\n".encode()),
    "progress bar": (b"1/3\r2/3\r3/3\n", b"[algo-1 script] 1/3\r2/3\r3/3\n"),
    "a line of 3 million": (b"x" * 3_000_000 + b"\n", b"[algo-1 script] " + b"x" * 3_000_000 + b"\n"),
}


@pytest.mark.parametrize("written, shown", CASES.values(), ids=CASES)
def test_lines(written, shown):
    assert logged({"script": written}) == shown


@pytest.mark.parametrize("written", [case[0] for case in CASES.values()], ids=CASES)
def test_without_prefix_text_passes_as_it_is(written):
    shown = written.decode("utf-8", "replace").encode()
    assert logged({"script": written}, prefix=False) == shown + (
        b"" if written.endswith(b"\n") or not written else b"\n"
    )


def test_a_character_that_arrives_in_two_halves_is_one():
    sink = Sink()
    log = Log("h", fd=sink.fd)
    out, err = log.open_pipes("p")
    os.close(err)
    for byte in "é😀\n".encode():
        os.write(out, bytes([byte]))
    os.close(out)
    log.drain()
    assert sink.close() == "[h p] é😀\n".encode()


def test_a_line_without_end_is_not_kept_in_memory_for_ever():
    text = logged({"script": b"x" * 30_000_000})
    assert text.replace(b"[algo-1 script] ", b"").replace(b"\n", b"") == b"x" * 30_000_000
    assert text.count(b"\n") > 1


def test_streams_are_told_apart_if_asked():
    sink = Sink()
    log = Log("h", fd=sink.fd, streams=True)
    out, err = log.open_pipes("worker/0")
    write_and_close(out, b"to stdout\n")
    write_and_close(err, b"to stderr\n")
    log.drain()
    assert sorted(sink.close().splitlines()) == [b"[h worker/0 stderr] to stderr", b"[h worker/0 stdout] to stdout"]


def test_stdout_and_stderr_of_a_process_keep_their_order():
    sink = Sink()
    log = Log("h", fd=sink.fd)
    out, err = log.open_pipes("p")
    for number in range(1000):
        os.write((out, err)[number % 2], b"%d\n" % number)
    os.close(out)
    os.close(err)
    log.drain()
    assert sink.close() == b"".join(b"[h p] %d\n" % number for number in range(1000))


def test_the_tail_is_the_last_output_of_that_process():
    sink = Sink()
    log = Log("h", fd=sink.fd)
    writers = []
    for process, data in (("a", b"x\n" * 100_000 + b"the end\n"), ("b", b"other\n")):
        out, err = log.open_pipes(process)
        os.close(err)
        writers.append(threading.Thread(target=write_and_close, args=(out, data)))
        writers[-1].start()
    for writer in writers:
        writer.join(timeout=30)
    log.drain()
    assert log.tail("a").endswith("x\nthe end\n")
    assert len(log.tail("a")) < 100_000
    assert log.tail("b") == "other\n"
    assert log.tail("never seen") == ""
    sink.close()


def test_an_orphan_that_holds_the_pipe_does_not_hold_up_the_end():
    sink = Sink()
    log = Log("h", fd=sink.fd)
    out, err = log.open_pipes("script")
    other, other_err = log.open_pipes("other")
    os.write(out, b"last words, no end of line")
    for fd in (err, other, other_err):
        os.close(fd)
    log.drain("other")  # only `script` is held
    began = time.monotonic()
    log.drain("script")  # all that was printed is there, though the pipe is open
    assert time.monotonic() - began < 10
    assert log.tail("script") == "last words, no end of line"
    log.flush_unfinished()
    os.close(out)
    log.drain()
    assert sink.close() == b"[h script] last words, no end of line\n"


def test_last_words_are_heard_however_slowly_our_output_is_read():
    reader, writer = os.pipe()
    log = Log("h", fd=writer)
    out, err = log.open_pipes("script")
    os.close(err)
    fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 1 << 20)  # so that several readings lie before them
    os.write(out, (b"." * 99 + b"\n") * 5000 + b"ValueError: the loss is not a number\n")

    def read_slowly() -> None:
        while os.read(reader, 1 << 14):
            time.sleep(0.02)

    slow = threading.Thread(target=read_slowly, daemon=True)
    slow.start()
    log.drain("script")
    assert log.tail("script").endswith("ValueError: the loss is not a number\n")
    os.close(out)
    log.drain()
    os.close(writer)
    slow.join(timeout=60)
    os.close(reader)


def test_what_we_say_is_labelled_line_by_line():
    sink = Sink()
    Log("h", fd=sink.fd).say("one\ntwo")
    Log("h", fd=sink.fd, prefix=False).say("three")
    assert sink.close() == b"[h] one\n[h] two\nthree\n"


def test_what_we_say_does_not_cut_into_lines_of_processes():
    sink = Sink()
    log = Log("h", fd=sink.fd)
    out, err = log.open_pipes("p")
    os.close(err)
    writer = threading.Thread(target=write_and_close, args=(out, (b"y" * 70_000 + b"\n") * 200))
    writer.start()
    for _ in range(500):
        log.say("ours")
    writer.join(timeout=60)
    log.drain()
    lines = sink.close().splitlines()
    assert set(lines) == {b"[h] ours", b"[h p] " + b"y" * 70_000}
    assert len(lines) == 700


def test_a_stdout_that_nobody_reads_any_more_does_not_stop_the_job():
    reader, writer = os.pipe()
    os.close(reader)
    log = Log("h", fd=writer)
    log.say("to nobody")
    out, err = log.open_pipes("p")
    os.close(err)
    write_and_close(out, b"to nobody\n")
    log.drain()
    os.close(writer)


def test_a_stdout_that_does_not_block_loses_nothing():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    log = Log("h", fd=writer)
    out, err = log.open_pipes("p")
    os.close(err)
    data = b"z" * 999 + b"\n"
    threading.Thread(target=write_and_close, args=(out, data * 1000)).start()
    got = bytearray()

    def read_all() -> bool:
        with contextlib.suppress(BlockingIOError):
            got.extend(os.read(reader, 1 << 16))
        return len(got) == 1000 * (len("[h p] ") + 1000)

    os.set_blocking(reader, False)
    eventually(read_all, within=60)
    assert bytes(got) == (b"[h p] " + data) * 1000
    log.drain()


def test_many_processes_come_and_go_without_leaking_pipes():
    sink = Sink()
    log = Log("h", fd=sink.fd)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(500):
        out, err = log.open_pipes(f"p{number}")
        os.close(err)
        write_and_close(out, b"x\n")
    log.drain()
    eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before, within=10)
    assert sink.close().count(b"\n") == 500


# --- secrets ---

KEY = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SECRET = Secrets({"AWS_SECRET_ACCESS_KEY": KEY.decode(), "API_TOKEN": "disabled"})


def test_secrets_of_processes_and_of_ours_are_masked():
    sink = Sink()
    log = Log("h", fd=sink.fd, secret=SECRET)
    out, err = log.open_pipes("p")
    write_and_close(out, b"AWS_SECRET_ACCESS_KEY=" + KEY + b"\nAPI_TOKEN=disabled\ndropout disabled\n")
    write_and_close(err, b"")
    log.say(f"running with {KEY.decode()}")
    log.drain()
    assert KEY.decode() not in log.tail("p")
    assert sorted(sink.close().splitlines()) == [
        b"[h p] API_TOKEN=***",
        b"[h p] AWS_SECRET_ACCESS_KEY=***",
        b"[h p] dropout disabled",
        b"[h] running with ***",
    ]


@pytest.mark.parametrize("cut", range(0, len(KEY) + 1, 5))
def test_a_secret_that_arrives_in_two_parts_is_masked(cut):
    sink = Sink()
    log = Log("h", fd=sink.fd, secret=SECRET)
    out, err = log.open_pipes("p")
    os.close(err)
    os.write(out, b"key " + KEY[:cut])
    log.drain()
    assert cut < len(KEY) or KEY.decode() not in log.tail("p")  # what is read so far is masked, too
    os.write(out, KEY[cut:] + b" end\n")
    os.close(out)
    log.drain()
    assert sink.close() == b"[h p] key *** end\n"


def test_a_secret_without_end_of_line_is_masked_at_the_end():
    sink = Sink()
    log = Log("h", fd=sink.fd, secret=SECRET)
    out, err = log.open_pipes("p")
    os.write(out, KEY)
    log.drain()
    log.flush_unfinished()
    for fd in (out, err):
        os.close(fd)
    log.drain()
    assert sink.close() == b"[h p] ***\n"


@pytest.mark.parametrize("before", [0, 1, 5, 39, 40, 41, 100])
def test_a_secret_where_a_line_without_end_is_cut_is_masked(before, monkeypatch):
    """Such a line is written in parts, wherever reading happens to stand: the secret may lie across."""
    monkeypatch.setattr("entrypoint.logs._LONGEST_LINE", 100_000)
    data = b"x" * (100_001 - before) + KEY + b"y" * 250_000 + KEY + b"z" * 150_000
    sink = Sink()
    log = Log("h", fd=sink.fd, secret=SECRET)
    out, err = log.open_pipes("p")
    os.close(err)
    for at in range(0, len(data), 1 << 12):  # as small as a read may be
        os.write(out, data[at : at + (1 << 12)])
        log.drain()
    os.close(out)
    log.drain()
    text = sink.close()
    joined = text.replace(b"[h p] ", b"").replace(b"\n", b"")
    assert joined == data.replace(KEY, b"***")
    assert text.count(b"\n") > 2


def test_many_lines_of_many_processes_with_secrets():
    line = b"%d AWS_SECRET_ACCESS_KEY=" + KEY + b" and on\n"
    outputs = {f"rank {n}": b"".join(line % i for i in range(20_000)) for n in range(3)}
    text = logged(outputs, secret=SECRET)
    assert KEY not in text
    assert text.count(b" AWS_SECRET_ACCESS_KEY=*** and on\n") == 60_000
