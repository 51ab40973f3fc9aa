"""Test logs.py: lines of many writers stay whole and in order, and have labels. Pipes are real; no process runs."""

import fcntl
import os
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from growth import grows_no_faster_than_its_input
from waiting import eventually

from entrypoint.base.secrets import Secrets
from entrypoint.launcher.host import logs
from entrypoint.launcher.host.logs import Log

KEY = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SECRET = Secrets({"AWS_SECRET_ACCESS_KEY": KEY.decode(), "API_TOKEN": "disabled"})


class Output:
    """An output for a Log: a pipe, or a socket, to which only a thread can write. `read` starts to read it."""

    def __init__(self, kind: str = "pipe") -> None:
        self.reader, self.fd = os.pipe() if kind == "pipe" else [end.detach() for end in socket.socketpair()]
        self.got = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def read(self) -> "Output":
        if self._thread.ident is None:
            self._thread.start()
        return self

    def _read(self) -> None:
        while block := os.read(self.reader, 1 << 20):
            self.got += block

    def in_pipe(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.reader, termios.FIONREAD, bytes(4)), sys.byteorder)

    def close(self, *logs: Log) -> bytes:
        """Close the output, and return everything that was written."""
        for log in logs:
            assert log.finish() == 0
        os.close(self.fd)
        self._thread.join(timeout=240)
        os.close(self.reader)
        return bytes(self.got)


def write_and_close(fd: int, data: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(data)


def open_stdout(log: Log, name: str = "p") -> int:
    """Open the pipes of a process. Close its stderr, and return its stdout."""
    out, err = log.open_pipes(name)
    os.close(err)
    return out


class Logged:
    """A log whose output is always read, with the stdout of a process `p`."""

    def __init__(self, **options) -> None:
        self.sink = Output().read()
        self.log = Log("h", fd=self.sink.fd, **options)
        self.out = open_stdout(self.log)

    def prints(self, data: bytes) -> None:
        os.write(self.out, data)

    def shows(self, text: bytes) -> None:
        eventually(lambda: self.sink.got == text, within=240, what=f"{text!r} in {self.sink.got!r}")

    def ends(self) -> bytes:
        """Let the process end. Return everything that was written."""
        os.close(self.out)
        self.log.drain()
        return self.sink.close(self.log)


def logged(outputs: dict[str, bytes], **options) -> bytes:
    """Return what a Log writes if processes print these outputs to stdout at the same time."""
    job = Logged(**options)
    writers = [
        threading.Thread(target=write_and_close, args=(open_stdout(job.log, name), data))
        for name, data in outputs.items()
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=240)
    return job.ends()


def test_lines_of_five_writers_stay_whole_ordered_and_masked():
    lines = [b"line %d AWS_SECRET_ACCESS_KEY=%b %b\n" % (number, KEY, b"x" * (number % 50)) for number in range(40_000)]
    outputs = {
        name: b"".join(name.encode() + b" " + line for line in lines) for name in map("rank {}".format, range(5))
    }
    got: dict[str, list[bytes]] = {name: [] for name in outputs}
    for line in logged(outputs, secret=SECRET).splitlines(keepends=True):
        label, _, rest = line.removeprefix(b"[h ").partition(b"] ")
        got[label.decode()].append(rest)
    shown = {name: text.replace(KEY, b"***") for name, text in outputs.items()}
    assert {name: b"".join(lines) for name, lines in got.items()} == shown


CASES = {
    # what a process writes: what the log shows
    "one line": (b"hello\n", b"[h p] hello\n"),
    "no end of line": (b"a\nb", b"[h p] a\n[h p] b\n"),
    "empty lines": (b"\n\na\n", b"[h p] \n[h p] \n[h p] a\n"),
    "nothing": (b"", b""),
    "not UTF-8": (b"caf\xe9 \xff\n", "[h p] caf\ufffd \ufffd\n".encode()),
    "UTF-8": ("é😀\n".encode(), "[h p] é😀\n".encode()),
    "line separators that are none": ("a\u2028b\x0bc\n".encode(), "[h p] a\u2028b\x0bc\n".encode()),
    "progress bar": (b"1/3\r2/3\r3/3\n", b"[h p] 1/3\r2/3\r3/3\n"),
    "a line of 3 million": (b"x" * 3_000_000 + b"\n", b"[h p] " + b"x" * 3_000_000 + b"\n"),
}


@pytest.mark.parametrize("written, shown", CASES.values(), ids=CASES)
def test_lines_are_whole_and_have_labels_on_request(written, shown):
    assert logged({"p": written}) == shown
    assert logged({"p": written}, prefix=False) == shown.replace(b"[h p] ", b"")


def test_character_that_arrives_in_parts_is_written_whole():
    job = Logged()
    for byte in "é😀\n".encode():
        job.prints(bytes([byte]))
    assert job.ends() == "[h p] é😀\n".encode()


def test_endless_line_is_written_in_parts():
    text = logged({"p": b"x" * 30_000_000})
    assert text.replace(b"[h p] ", b"").replace(b"\n", b"") == b"x" * 30_000_000
    assert text.count(b"\n") > 1


def test_stdout_and_stderr_have_own_labels_on_request():
    job = Logged(streams=True)
    out, err = job.log.open_pipes("worker/0")
    write_and_close(out, b"to stdout\n")
    write_and_close(err, b"to stderr\n")
    assert sorted(job.ends().splitlines()) == [b"[h worker/0 stderr] to stderr", b"[h worker/0 stdout] to stdout"]


def test_stdout_and_stderr_of_a_process_keep_their_order():
    job = Logged()
    both = job.log.open_pipes("q")
    for number in range(1000):
        os.write(both[number % 2], b"%d\n" % number)
    for fd in both:
        os.close(fd)
    assert job.ends() == b"".join(b"[h q] %d\n" % number for number in range(1000))


def test_tail_is_last_output_of_its_process():
    job = Logged()
    write_and_close(open_stdout(job.log, "b"), b"other\n")
    write_and_close(open_stdout(job.log, "a"), b"x\n" * 100_000 + b"the end\n")
    job.ends()
    assert job.log.tail("a").endswith("x\nthe end\n") and len(job.log.tail("a")) < 100_000
    assert (job.log.tail("b"), job.log.tail("never seen")) == ("other\n", "")


def test_orphan_with_open_pipe_does_not_delay_the_end():
    job = Logged()
    job.prints(b"last words, no end of line")
    began = time.monotonic()
    job.log.drain("p")  # all that was printed is there, though the pipe is open
    assert time.monotonic() - began < 60
    assert job.log.tail("p") == "last words, no end of line"
    job.log.flush_unfinished()
    assert job.ends() == b"[h p] last words, no end of line\n"


# --- output that nobody reads ---


class Writer:
    """A process that prints as fast as it can."""

    def __init__(self, log: Log, name: str, data: bytes) -> None:
        self.written, self.done = 0, False
        threading.Thread(target=self._write, args=(open_stdout(log, name), memoryview(data)), daemon=True).start()

    def _write(self, out: int, data: memoryview) -> None:
        while self.written < len(data):
            self.written += os.write(out, data[self.written : self.written + 4096])
        os.close(out)
        self.done = True

    def has_stopped(self) -> bool:
        before = self.written
        time.sleep(0.5)
        return before == self.written


@pytest.fixture(params=["pipe", "socket"])
def unread(request):
    made = Output(request.param)
    yield made
    made.read()  # whoever still writes may end


LINE = b"." * 99 + b"\n"


def test_unread_output_blocks_no_process_and_lost_bytes_are_counted(unread):
    log = Log("h", fd=unread.fd)
    writer = Writer(log, "p", LINE * 20_000)
    eventually(lambda: writer.done, within=240)
    log.print("ours")
    log.drain()
    assert log.tail("p").endswith(LINE.decode())
    assert log.finish(patience=0.2) == 20_000 * len("[h p] " + LINE.decode()) + len("[h] ours\n") - unread.in_pipe()


def test_full_buffer_pauses_processes_without_loss_of_output(unread):
    log = Log("h", fd=unread.fd, prefix=False)
    writer = Writer(log, "p", LINE * 300_000)
    eventually(lambda: writer.written and writer.has_stopped(), within=240)
    assert writer.written < 16 << 20
    log.print("not held up")
    unread.read()
    eventually(lambda: writer.done, within=240)
    log.drain()
    assert log.finish() == 0
    eventually(lambda: len(unread.got) >= len(LINE) * 300_000 + len("not held up\n"), within=240)
    assert bytes(unread.got).replace(b"not held up\n", b"", 1) == LINE * 300_000


def test_tail_is_complete_if_nothing_reads_the_log(unread):
    log = Log("h", fd=unread.fd)
    flood = Writer(log, "p", LINE * 300_000)
    out = open_stdout(log, "q")
    fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 1 << 20)  # so that several readings lie before it
    eventually(lambda: flood.written and flood.has_stopped(), within=240)
    os.write(out, LINE * 5000 + b"ValueError: the loss is not a number\n")
    os.close(out)
    log.drain("q")
    assert log.tail("q").endswith("ValueError: the loss is not a number\n")


def test_ending_process_is_not_delayed_and_missing_bytes_are_logged(unread, monkeypatch):
    monkeypatch.setattr(logs, "_SHOW_SECONDS", 3600.0)  # a busy machine takes a second to read the rest of a line
    log = Log("h", fd=unread.fd, prefix=False)
    writer, other = Writer(log, "p", LINE * 200_000), Writer(log, "other", LINE * 200_000)
    eventually(lambda: writer.written and writer.has_stopped() and other.has_stopped(), within=240)
    log.hold_up_no_more("p")
    eventually(lambda: writer.done, within=240)
    log.print("how the job ends")
    assert not other.done
    # All of it is in the pipe; the reader of the pipe may have some of it before it still.
    eventually(lambda: log.tail("p").endswith("\n" + LINE.decode()), within=240)
    unread.read()
    eventually(lambda: other.done, within=240)
    log.drain()
    missing = log.finish()
    eventually(lambda: b"missing here" in unread.got, within=240)
    eventually(lambda: bytes(unread.got).count(LINE) * len(LINE) == 400_000 * len(LINE) - missing, within=240)
    assert f"\n{missing} bytes of output are missing here: they could not be written\n".encode() in unread.got
    assert set(bytes(unread.got).splitlines(keepends=True)) - {LINE} == {
        f"{missing} bytes of output are missing here: they could not be written\n".encode(),
        b"how the job ends\n",
    }


def test_full_disk_stops_no_process_and_lost_bytes_are_counted():
    with open("/dev/full", "wb") as full:
        log = Log("h", fd=full.fileno())
        logged_in_full = Writer(log, "p", LINE * 50_000)
        eventually(lambda: logged_in_full.done, within=240)
        log.drain()
        assert log.finish() >= 50_000 * len(LINE)
    assert log.tail("p").endswith(LINE.decode())


def test_lines_stay_whole_after_the_disk_was_full(tmp_path):
    code = f"""if True:
        import os, resource, signal, time
        from entrypoint.launcher.host.logs import Log
        file = os.open({str(tmp_path / "log")!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        log = Log("h", fd=file, prefix=False)
        def say(text):
            log.print(text)
            while log._sink.waiting:
                time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
        say("x" * 6000)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        say("there is room again")
        say("and more")
        print(log.finish())
    """
    missing = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    first, note, *rest = (tmp_path / "log").read_text().splitlines()
    assert set(first) == {"x"} and len(first) + int(missing) == 6001
    assert note == f"{int(missing)} bytes of output are missing here: they could not be written"
    assert rest == ["there is room again", "and more"]


# --- lines without an end ---


LONG, TOKEN = b"x" * 5000, b"API_TOKEN=disabled"
GROWING = {
    # steps of what a process prints, and what the log shows of it then
    "a progress bar": [
        (b"\r 10%|# |\r 20%|##|", b"[h p]  10%|# |\r 20%|##|\n"),
        (b"\r 30%|##|\r 40", b"[h p]  30%|##|\r 40\n"),
        (b"%|##|", b"[h p]  40%|##|\n"),  # a state that was cut is shown again, whole
        (b"\r100%|##|\ndone\n", b"[h p] 100%|##|\n[h p] done\n"),
    ],
    "the progress bar of Keras": [
        (b"1/3 [===>....] - ETA: 1s - loss: 1.0000", b"[h p] 1/3 [===>....] - ETA: 1s - loss: 1.0000\n"),
        (b"\b" * 39 + b"\r2/3 [=====>..] - loss: 0.7500", b"[h p] 2/3 [=====>..] - loss: 0.7500\n"),
        (b"\b" * 39 + b"\r3/3 [========] - loss: 0.6111" + b"\b" * 42 + b"\r3/3 [========]\n",
         b"[h p] 3/3 [========] - loss: 0.6111\r3/3 [========]\n"),
    ],
    "a line whose end comes later": [
        (b"one\nval_loss: 0.5", b"[h p] one\n[h p] val_loss: 0.5\n"),
        (b"43\ntwo\nthree", b"[h p] val_loss: 0.543\n[h p] two\n[h p] three\n"),
        (b"\r\nfour\n", b"[h p] four\n"),  # nothing has come to `three`
    ],
    "a long line": [
        (LONG + "é".encode()[:1], b"[h p] " + LONG + b"\n"),
        ("é".encode()[1:] + LONG, "[h p] é".encode() + LONG + b"\n"),
        (b"z\n", b"[h p] z\n"),
    ],
    **{
        f"secrets, the first cut after {cut} bytes": [
            (b"key " + KEY[:cut], b"[h p] key \n"),
            (KEY[cut:] + b" end", b"[h p] key *** end\n"),
            (b"\rAPI_TOKEN=disa", b"[h p] API_TOKEN\n"),
            (b"bled\n", b"[h p] API_TOKEN=***\n"),
        ]
        for cut in (1, 5, len(KEY) - 1)
    },
    **{
        f"a long line, a secret cut after {cut} bytes": [
            (LONG + TOKEN[:cut], b"[h p] " + LONG + b"\n"),
            (TOKEN[cut:] + b"\n", b"[h p] API_TOKEN=***\n"),
        ]
        for cut in (0, 1, 5, 9, 10, 12)
    },
}  # fmt: skip


@pytest.mark.parametrize("steps", GROWING.values(), ids=GROWING)
def test_growing_line_is_shown_without_loss(steps):
    job, shown = Logged(secret=SECRET), b""
    for printed, shows in steps:
        job.prints(printed)
        shown += shows
        job.shows(shown)
    assert job.ends() == shown
    printed = b"".join(printed for printed, _ in steps).replace(KEY, b"***").replace(b"disabled", b"***")
    assert job.log.tail("p").encode() == printed


def test_tail_of_an_endless_line_is_short():
    bar = Logged(secret=SECRET)
    writer = Writer(bar.log, "q", b"y" * (7 << 20) + KEY + b"x" * 16_370)
    eventually(lambda: writer.done, within=240)
    bar.log.drain()
    assert bar.log.tail("q").endswith("x" * 16_000 + "\n")
    bar.prints(b"y" * 1000 + KEY + b"x" * 16_370)  # the secret is cut there
    bar.log.drain("p")
    assert 16_300 <= len(bar.log.tail("p")) <= 1 << 14 and KEY[-4:].decode() not in bar.log.tail("p")
    bar.ends()


@pytest.mark.parametrize("cut", range(3, 18, 3))
def test_tail_cut_near_a_secret_does_not_show_the_secret(cut):
    bar = Logged(secret=Secrets({"API_TOKEN": "disabled"}))
    bar.prints(b"y" * 1000 + TOKEN + b" " + b"x" * ((1 << 14) - 1 - len(TOKEN) + cut))
    bar.log.drain("p")
    assert "disabled" not in bar.log.tail("p") and bar.log.tail("p").endswith("x" * 1000)
    bar.ends()


@pytest.mark.parametrize("line", [b"git+https://me:Zq7-Lw0Xk@x/a", b"https://x/?a=1&X-Amz-Signature=Zq7-Lw0Xk&b"])
@pytest.mark.parametrize("before", [0, 5000], ids=["short", "long"])
def test_url_cut_anywhere_shows_no_password(before, line):
    """No part of the line, nor the whole line, shows the password, though it is in no list of secrets."""
    for cut in range(1, len(line)):
        sink = Output().read()
        log = Log("h", fd=sink.fd, prefix=False)
        pipe = logs._Pipe(prefix=b"", owner="p", unfinished=bytearray(b"x" * before + line[:cut]), grown=True)
        log._tails["p"] = logs.Tail()
        log._show(pipe)
        log._emit(pipe, bytes(pipe.unfinished) + line[cut:] + b"\n")
        text = sink.close(log)
        assert not any(part in text for part in (b"Zq", b"Xk", b"Lw")), (cut, text)
        assert b"***" in text
        assert "Xk" not in log._tails["p"].whole().decode()


def test_each_line_of_the_launcher_has_a_label():
    sink = Output().read()
    labelled, plain = Log("h", fd=sink.fd), Log("h", fd=sink.fd, prefix=False)
    labelled.print("one\ntwo")
    plain.print("three")
    assert sink.close(labelled, plain) == b"[h] one\n[h] two\nthree\n"


def test_launchers_lines_do_not_split_lines_of_processes():
    job = Logged()
    writer = threading.Thread(target=write_and_close, args=(open_stdout(job.log, "q"), (b"y" * 70_000 + b"\n") * 200))
    writer.start()
    for _ in range(500):
        job.log.print("ours")
    writer.join(timeout=240)
    lines = job.ends().splitlines()
    assert set(lines) == {b"[h] ours", b"[h q] " + b"y" * 70_000}
    assert len(lines) == 700


def test_stdout_closed_by_its_reader_does_not_stop_job():
    reader, writer = os.pipe()
    os.close(reader)
    log = Log("h", fd=writer)
    log.print("to nobody")
    write_and_close(open_stdout(log), b"to nobody\n")
    log.drain()
    os.close(writer)


def test_nonblocking_stdout_loses_no_output():
    output = Output()
    os.set_blocking(output.fd, False)
    log = Log("h", fd=output.fd)
    writer = Writer(log, "p", LINE * 10_000)
    eventually(lambda: writer.done, within=240)
    log.drain()
    assert output.in_pipe() < 10_000 * len(LINE)
    output.read()
    assert output.close(log) == (b"[h p] " + LINE) * 10_000


def test_ended_processes_leave_no_open_pipes():
    job = Logged()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(500):
        write_and_close(open_stdout(job.log, f"p{number}"), b"x\n")
    job.log.drain()
    eventually(lambda: len(list(Path("/proc/self/fd").iterdir())) <= before, within=60)
    assert job.ends().count(b"\n") == 500


# --- secrets ---


def test_secrets_in_lines_of_processes_and_launcher_are_masked():
    job = Logged(secret=SECRET)
    job.prints(b"AWS_SECRET_ACCESS_KEY=" + KEY + b"\nAPI_TOKEN=disabled\ndropout disabled\n")
    job.log.print(f"running with {KEY.decode()}")
    assert sorted(job.ends().splitlines()) == [
        b"[h p] API_TOKEN=***",
        b"[h p] AWS_SECRET_ACCESS_KEY=***",
        b"[h p] dropout disabled",
        b"[h] running with ***",
    ]
    assert KEY.decode() not in job.log.tail("p")


@pytest.mark.parametrize("cut", range(0, len(KEY) + 1, 5))
def test_secret_that_arrives_in_two_parts_is_masked(cut):
    job = Logged(secret=SECRET)
    job.prints(b"key " + KEY[:cut])
    job.log.drain()
    assert cut < len(KEY) or KEY.decode() not in job.log.tail("p")  # what is read so far is masked, too
    job.prints(KEY[cut:] + b" end\n")
    assert job.ends() == b"[h p] key *** end\n"


def test_secret_in_unfinished_last_line_is_masked():
    job = Logged(secret=SECRET)
    job.prints(KEY)
    job.log.drain()
    job.log.flush_unfinished()
    assert job.ends() == b"[h p] ***\n"


@pytest.mark.parametrize("before", [0, 1, 5, 39, 40, 41, 100])
def test_secret_across_cut_of_endless_line_is_masked(before, monkeypatch):
    """The log writes such a line in parts, which end where a read ends. The secret may lie across a cut."""
    monkeypatch.setattr("entrypoint.launcher.host.logs._LONGEST_LINE_BYTES", 100_000)
    data = b"x" * (100_001 - before) + KEY + b"y" * 250_000 + KEY + b"z" * 150_000
    job = Logged(secret=SECRET)
    for at in range(0, len(data), 1 << 12):  # as small as a read may be
        job.prints(data[at : at + (1 << 12)])
        job.log.drain()
    text = job.ends()
    assert text.replace(b"[h p] ", b"").replace(b"\n", b"") == data.replace(KEY, b"***")
    assert text.count(b"\n") > 2


def test_time_for_backspaces_grows_no_faster_than_their_number():
    """The thread that reads all pipes removes backspaces. Its time is not measurable here, so the pattern is tested."""
    grows_no_faster_than_its_input(lambda size: logs._BACK.sub(b"\r", b"\b" * size + b"x\b\r"), 20_000)
    assert logs._BACK.sub(b"\r", b"1/2\b\b\b\r2/2\b\b\r\n\b\n") == b"1/2\r2/2\r\n\b\n"
