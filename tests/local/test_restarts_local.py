"""Test restarts: of all processes of a job, or of one worker server. Processes are real, and their work small."""

import re
import signal

import pytest
from hosts import LISTENS
from variants import variants

MWMS = {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}
PS = {"sagemaker_parameter_server_enabled": "true"}
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
SINGLE = {"sagemaker_entrypoint_mode": "single"}
QUICK = {"ENTRYPOINT_RESTART_BACKOFF": "0.2"}


@pytest.mark.parametrize("mode", variants({"single": SINGLE, "mwms": MWMS, "ps": PS, "mpi": MPI}, "mpi"))
def test_a_job_is_tried_again_until_it_ends_well(hosts, mode):
    """Killed on a follower, then on the coordinator with a code that the user has named."""
    environment = {**QUICK, "ENTRYPOINT_RESTARTS": "2", **LISTENS}
    asked = {**mode, "fails": "algo-2:SIGKILL,algo-1:75"}
    job = hosts(2, "fails_at_first.py", hyperparameters=asked, environment=environment)
    assert job.end() == [0, 0]
    per_host = 2 if mode is MPI else 1
    for host in job.hosts.values():
        for attempt in range(3):
            assert len(re.findall(rf"\] attempt {attempt} of {host.name}\n", host.log)) == per_host
        assert host.log.count(f"attempt 2 of {host.name} is over") == per_host
        assert host.failure is None
    said = [line for line in job[1].log.splitlines() if "failed: " in line]
    assert re.search(r"attempt 0 failed: algo-2 (script|worker/\d|rank \d) \(killed by SIGKILL\)", said[0])
    assert re.search(r"attempt 1 failed: algo-1 (script|worker/\d|chief/0|rank \d) \(exit code 75\)", said[1])


def test_the_last_attempt_is_the_outcome(hosts):
    job = hosts(
        2,
        "fails_at_first.py",
        hyperparameters={**MWMS, "fails": "algo-2:SIGKILL,algo-2:SIGSEGV"},
        environment={**QUICK, "ENTRYPOINT_RESTARTS": "1"},
    )
    assert job.end() == [139, 139]
    assert {text.splitlines()[0] for text in job.failures} == {"algo-2 worker/1 (killed by SIGSEGV)"}


def test_an_exception_is_not_tried_again(hosts):
    environment = {**QUICK, "ENTRYPOINT_RESTARTS": "5"}
    job = hosts(2, "raises.py", hyperparameters={**MWMS, "on": "algo-2"}, environment=environment)
    assert job.end() == [1, 1]
    assert "started again" not in job[1].log


def test_without_the_setting_nothing_is_tried_again(hosts):
    job = hosts(2, "fails_at_first.py", hyperparameters={**MWMS, "fails": "algo-2:SIGKILL"})
    assert job.end() == [137, 137]
    assert "started again" not in job[1].log


def test_sigterm_between_two_attempts_ends_the_job(hosts):
    job = hosts(
        2,
        "fails_at_first.py",
        hyperparameters={**MWMS, "fails": "algo-2:SIGKILL"},
        environment={"ENTRYPOINT_RESTART_BACKOFF": "100", "ENTRYPOINT_RESTARTS": "5"},
    )
    job.says("all processes restart in 100 s")
    job.signal(signal.SIGTERM)
    assert job.end(within=90) == [143, 143]  # less than the backoff


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


def test_ends_that_were_heard_of_together_hold_up_nothing_in_the_next_attempt(hosts):
    job = hosts(
        1, "train.py", code={"train.py": KILLED_TOGETHER},
        environment={
            **QUICK, "ENTRYPOINT_MODE": "mwms", "ENTRYPOINT_PROCESSES_PER_HOST": "2", "ENTRYPOINT_RESTARTS": "1"
        },
    )  # fmt: skip
    assert job.end() == [0]
    assert len(re.findall(r"worker \d leaves", job[1].log)) == 2
