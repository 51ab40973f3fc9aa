"""Test restarts of all processes of a job. The outcome table has more cases, and restarts of a worker server."""

import re

import pytest


@pytest.fixture
def restarted(hosts):
    """Start jobs of two hosts that may be restarted."""
    return lambda *words, **options: hosts(2, "fails_at_first.py", *words, **{"RESTART_BACKOFF": 0.2, **options})


def test_ranks_are_restarted_until_the_job_succeeds(restarted):
    """First a rank on a follower is killed; then one on the coordinator exits with a code that the user has listed."""
    job = restarted(mode="mpi", each=2, hyperparameters={"fails": "algo-2:SIGKILL,algo-1:75"}, RESTARTS=2)
    job.must_end(0)
    for host in job.hosts.values():
        for attempt in range(3):
            assert len(re.findall(rf"\] attempt {attempt} of {host.name}\n", host.log)) == 2
        assert host.log.count(f"attempt 2 of {host.name} is over") == 2
    said = [line for line in job[1].log.splitlines() if "failed: " in line]
    assert re.search(r"attempt 0 failed: algo-2 rank \d \(killed by SIGKILL\)", said[0])
    assert re.search(r"attempt 1 failed: algo-1 rank \d \(exit code 75\)", said[1])


def test_sigterm_between_two_attempts_ends_the_job(restarted):
    job = restarted(mode="mwms", hyperparameters={"fails": "algo-2:SIGKILL"}, RESTART_BACKOFF=100, RESTARTS=5)
    job.says("all processes restart in 100 s")
    job.stop()
    job.must_end(143, within=90)  # less than the backoff


# Both workers of a host are killed while the launcher does not look: it hears of both ends at once.
KILLED_TOGETHER = """
import json, os, pathlib, signal, subprocess, sys, time
launcher, index = os.getppid(), json.loads(os.environ["TF_CONFIG"])["task"]["index"]
if os.environ["ENTRYPOINT_RESTART_COUNT"] == "0":
    pathlib.Path(f"pid{index}").write_text(str(os.getpid()))
    other = pathlib.Path("pid1")
    while index == 1 or not (other.exists() and other.read_text()):
        time.sleep(0.05)
    if os.fork() == 0:
        os.setsid()
        os.kill(launcher, signal.SIGSTOP)
        for pid in (os.getppid(), int(other.read_text())):
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        os.kill(launcher, signal.SIGCONT)
        os._exit(0)
    time.sleep(600)
subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(f"worker {index} leaves", flush=True)
"""


def test_simultaneous_exits_do_not_delay_the_next_attempt(hosts):
    job = hosts(1, code=KILLED_TOGETHER, mode="mwms", each=2, RESTARTS=1, RESTART_BACKOFF=0.2)
    job.must_end(0)
    assert len(re.findall(r"worker \d leaves", job[1].log)) == 2
