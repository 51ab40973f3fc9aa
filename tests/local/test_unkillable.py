"""Test that the log names processes that survive SIGKILL. The outcome table has more cases."""

import re

import pytest
from processes import processes_with
from silent_disk import SilentDisk, why_not
from waiting import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
LEFT = r"pid {} \(python3?[0-9.]*\), state D \(uninterruptible sleep\), waits in \w*wait\w*"

# On the host STUCK it asks the disk and never comes back; on the others it waits for that and then does DEED.
PROGRAM = """
import os, pathlib, threading, time
host, shared = os.environ["SM_CURRENT_HOST"], pathlib.Path(os.environ["TEST_FOLDER"])
rank = os.environ.get("OMPI_COMM_WORLD_RANK", "0")
def ask_the_disk():
    print("asks, pid", os.getpid(), flush=True)
    os.stat(shared / "disk" / "file")
if host == os.environ["STUCK"] and rank == "0":
    if os.environ["DEED"] == "leave it":
        if os.fork() == 0:
            os.setsid()
            ask_the_disk()
    elif os.environ["DEED"] == "wait in a thread":
        threading.Thread(target=ask_the_disk).start()
        time.sleep(600)
    else:
        ask_the_disk()
while not list(shared.glob("disk-has-*")):
    time.sleep(0.05)
match os.environ["DEED"]:
    case "raise":
        raise ValueError("the loss is not a number")
    case "wait" | "wait in a thread":
        print("waits", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def stuck(hosts, tmp_path):
    """Start a job with a process that cannot be killed on one of its hosts."""
    disks = []

    def start(count: int, deed: str, host: int, **options):
        folder = tmp_path / "job0"
        (folder / "disk").mkdir(parents=True)
        disks.append(SilentDisk(folder / "disk"))
        environment = {"DEED": deed, "STUCK": f"algo-{host}"}
        return hosts(count, code=PROGRAM, environment=environment, KILL_TIMEOUT=1, STOP_GRACE=1, **options)

    yield start
    for disk in disks:
        disk.close()
    eventually(lambda: not processes_with(str(tmp_path)), within=60, what="what could not be killed to go")


def is_named(log: str) -> bool:
    """Return whether the log names the process that waits for the disk, and the kernel function in which it waits."""
    pid = re.search(r"asks, pid (\d+)", log)[1]
    return bool(re.search(LEFT.format(pid), log))


@pytest.mark.parametrize("deed", ["wait", "wait in a thread"])
def test_a_process_that_survives_the_stop_of_a_job_is_named(stuck, deed):
    """If a secondary thread waits, /proc shows the state of the main thread, which SIGKILL has ended."""
    job = stuck(2, deed, 2)
    job.says("waits", host=1)
    job.stop()
    job.must_end(143)
    assert is_named(job[2].log)


def test_unkillable_rank_is_named_but_not_as_the_cause(stuck):
    job = stuck(1, "raise", 1, mode="mpi", each=2)
    job.must_end(1, "algo-1 rank 1 (exit code 1): ValueError: the loss is not a number")
    assert is_named(job[1].log)


def test_unkillable_process_that_a_script_left_is_named(stuck):
    job = stuck(1, "leave it", 1)
    job.must_end(0)
    assert "left behind after SIGKILL: pid " in job[1].log
    assert is_named(job[1].log)
