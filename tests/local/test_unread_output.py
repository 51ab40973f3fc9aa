"""Test that a job whose output is not read continues, stops and fails as usual. The outcome table has more cases."""

import os
import re
import signal
import time
from pathlib import Path

import pytest
from hosts import LONG
from waiting import eventually

MEGABYTE = 10_000  # lines

# Prints megabytes; says in a file how far it has come. On SIGTERM it ends its loop, saves, and says so.
PRINTS = """
import os, signal, sys, time
from pathlib import Path
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
model, lines = Path(os.environ["SM_MODEL_DIR"]), int(os.environ["MEGABYTES"]) * 10_000
for number in range(lines):
    print(f"{number:08d}" + "." * 91)
    if number % 1000 == 0 or number == lines - 1:
        (model / "printed").write_text(str(number))
    if stopped:
        break
sys.stdout.flush()
while os.environ["THEN"] == "waits" and not stopped:
    time.sleep(0.05)
if stopped:
    print("saving")
    (model / "saved").touch()
elif os.environ["THEN"] == "raises":
    raise ValueError("the loss is not a number")
"""


@pytest.fixture
def unread(hosts):
    """Start a host whose script prints megabytes without a reader, and then runs the given code."""

    def start(megabytes: int, then: str):
        environment = {"MEGABYTES": str(megabytes), "THEN": then, "PYTHONUNBUFFERED": ""}
        return hosts(1, code=PRINTS, environment=environment, unread=("algo-1",))

    return start


def printed(job) -> int:
    """Return how many lines the script has printed, as soon as the number is stable."""
    path = job[1].base / "model/printed"

    def settled() -> int:
        before = path.read_text() if path.exists() else ""
        time.sleep(1)
        still = before and int(before) > MEGABYTE and path.read_text() == before  # before that it is only slow
        return int(before) if still else 0

    return eventually(settled, within=LONG)


def lost(job) -> int:
    """Return the number of lost bytes of output that the file of evidence reports."""
    evidence = (job[1].base / "output/data/entrypoint-algo-1.txt").read_text()
    return int(re.search(r"(\d+) bytes of the output of this host were not written", evidence)[1])


def test_script_blocked_in_print_saves_after_sigterm(unread, figure):
    """The signal handler runs inside the blocked `print`."""
    job = unread(60, "waits")
    assert printed(job) < 60 * MEGABYTE - 1
    sent = time.monotonic()
    job.stop()
    eventually((job[1].base / "model/saved").exists, within=LONG)
    figure("60 MB unread: from SIGTERM to a saved model", time.monotonic() - sent)
    job.must_end(0)
    figure("60 MB unread: from SIGTERM to the host's end", time.monotonic() - sent)
    assert lost(job) > 1e6


def test_late_reader_gets_all_output_while_memory_stays_bounded(unread):
    job = unread(60, "ends")
    at_first = memory(job)
    assert printed(job) < 200_000
    assert memory(job) - at_first < 40e6
    job.read(job[1])
    assert job.end() == [0]
    lines = [line.removeprefix("[algo-1 script] ") for line in job[1].log.splitlines() if line.endswith("." * 91)]
    assert lines == [f"{number:08d}" + "." * 91 for number in range(600_000)]
    assert not (job[1].base / "output/data/entrypoint-algo-1.txt").exists()


def memory(job) -> int:
    """Return the launcher's peak memory in bytes."""
    status = Path(f"/proc/{job[1].process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1000


def test_job_with_unread_output_succeeds_and_reports_the_loss(unread):
    job = unread(2, "ends")
    job.must_end(0)
    assert lost(job) > 1e6


def test_progress_bar_without_a_line_end_is_forwarded_at_once(hosts):
    code = """if True:
        import time
        for percent in (10, 20):
            print(f"\\r{percent}%|##", end="", flush=True)
        time.sleep(600)
    """
    job = hosts(1, code=code)
    script = job.pid_of("script")
    job.says(r"^\[algo-1 script\] 10%\|##\r20%\|##$")
    job[1].kill()
    job.end()
    os.kill(script, signal.SIGKILL)


def test_returning_reader_gets_the_last_lines(unread):
    """An example is a log driver whose network fails for some seconds."""
    job = unread(2, "raises")
    eventually((job[1].base / "output/failure").exists, within=LONG)
    time.sleep(7)  # more than SageMaker's stop leaves; a reader that comes within 20 s is early enough
    job.read(job[1])
    assert job.end() == [1]
    lines = [line for line in job[1].log.splitlines() if line.endswith("." * 91)]
    assert [int(line[-99:-91]) for line in lines] == list(range(20_000))
    assert "bytes of output" not in job[1].log


def test_sigterm_shortens_the_wait_for_a_reader(unread):
    """The script has ended. The launcher waits 20 s for the reader, or less if SageMaker ends the host earlier."""
    job = unread(2, "ends")
    eventually((job[1].base / "output/data/report.html").exists, within=LONG)
    time.sleep(7)  # more than a stop leaves
    assert job[1].process.poll() is None
    job.stop()
    eventually(lambda: job[1].process.poll() is not None, within=12)  # 13 s were left
    assert job.end() == [0]
