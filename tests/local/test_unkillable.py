"""Test processes that survive SIGKILL: each wait for one has a limit, and what is left is named."""

import re
import shutil
import signal
from pathlib import Path

import pytest
from processes import processes_with
from silent_disk import SilentDisk, why_not
from waiting import eventually

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not())
QUICK = {"ENTRYPOINT_KILL_TIMEOUT": "1", "ENTRYPOINT_STOP_GRACE": "1", "ENTRYPOINT_RESTART_BACKOFF": "0.2"}
LEFT = r"pid {} \(python3?[0-9.]*\), state D \(uninterruptible sleep\), waits in \w*wait\w*"

# On the host STUCK it asks the disk and never comes back; on the others it waits for that and then does DEED.
PROGRAM = """
import os, pathlib, signal, subprocess, sys, threading, time
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
    elif os.environ.get("IN_A_THREAD"):
        threading.Thread(target=ask_the_disk).start()
        time.sleep(600)
    else:
        ask_the_disk()
while not list(shared.glob("disk-has-*")):
    time.sleep(0.05)
match os.environ["DEED"]:
    case "raise":
        raise ValueError("the loss is not a number")
    case "die":
        os.kill(os.getpid(), signal.SIGKILL)
    case "wait":
        print("waits", flush=True)
        time.sleep(600)
"""


@pytest.fixture
def stuck(hosts, tmp_path):
    """Start a job with a process that cannot be killed on one of its hosts."""
    disks = []

    def start(count: int, deed: str, host: str = "algo-2", **environment: str):
        folder = tmp_path / "job0"
        (folder / "disk").mkdir(parents=True)
        disks.append(SilentDisk(folder / "disk"))
        mode = environment.pop("mode", "")
        hyperparameters = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
        return hosts(
            count,
            "train.py",
            code={"train.py": PROGRAM},
            hyperparameters=hyperparameters if mode == "mpi" else {},
            environment={**QUICK, "DEED": deed, "STUCK": host, **environment},
        )

    yield start
    for disk in disks:
        disk.close()
    eventually(lambda: not processes_with(str(tmp_path)), within=60, what="what could not be killed to go")


def named(job, host: int, log: str) -> bool:
    pid = re.search(r"asks, pid (\d+)", log)[1]
    return bool(re.search(LEFT.format(pid), log))


@pytest.mark.more  # the outcome table has it
def test_another_host_raises(stuck):
    job = stuck(2, "raise")
    assert job.end() == [1, 1]
    assert {text.splitlines()[0] for text in job.failures} == {
        "algo-1 script (exit code 1): ValueError: the loss is not a number"
    }
    assert "script survives SIGKILL for 1 s and is left behind: pid" in job[2].log
    assert named(job, 2, job[2].log)
    evidence = (job[2].base / "output/data/entrypoint-algo-2.txt").read_text()
    assert named(job, 2, evidence + re.search(r"asks, pid (\d+)", job[2].log)[0])


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("thread", [pytest.param("", marks=pytest.mark.more), "yes"], ids=["alone", "in a thread"])
def test_the_job_was_to_be_tried_again(stuck, thread):
    """If a thread waits, the process has the state of its main thread, which SIGKILL has ended."""
    job = stuck(2, "die", ENTRYPOINT_RESTARTS="2", IN_A_THREAD=thread)
    assert job.end() == [71, 71]
    assert len(set(job.failures)) == 1
    cause = "algo-2 script (survives SIGKILL, so the job cannot restart): still running 1 s after SIGKILL: pid "
    assert job.failures[0].startswith(cause)
    assert "state D (uninterruptible sleep), waits in " in job.failures[0]


def test_the_job_is_stopped(stuck):
    job = stuck(2, "wait")
    job.says("waits", host=1)
    job.signal(signal.SIGTERM)
    assert job.end() == [143, 143]
    assert named(job, 2, job[2].log)


def test_a_rank_while_another_raises(stuck):
    pytest.importorskip("mpi4py")
    if not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        pytest.skip("needs Open MPI and an ssh daemon")
    job = stuck(1, "raise", "algo-1", mode="mpi")
    assert job.end() == [1]
    assert job.failures[0].startswith("algo-1 rank 1 (exit code 1): ValueError: the loss is not a number")
    assert named(job, 1, job[1].log)


def test_a_script_leaves_it_and_ends_well(stuck):
    job = stuck(1, "leave it", "algo-1")
    assert job.end() == [0]
    assert "left behind after SIGKILL: pid " in job[1].log
    assert named(job, 1, job[1].log)
