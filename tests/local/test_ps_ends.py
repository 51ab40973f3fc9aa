"""Test when worker scripts of parameter server jobs count as over: by what they do, never by files."""

import pytest
from hosts import LISTENS

PS = {"sagemaker_parameter_server_enabled": "true"}
SHORT = {**LISTENS, "ENTRYPOINT_PS_QUIET": "3"}

# The worker does DEED from before the chief's end on, and saves.
PROGRAM = '''
"""Once this ran a tf.distribute.Server in each worker: server = tf.distribute.Server(...); server.join()"""
import json, os, pathlib, signal, socket, sys, threading, time
shared = pathlib.Path(os.environ["TEST_FOLDER"])
config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
if task["type"] == "chief":
    while not (shared / "begun").exists():
        time.sleep(0.05)
    sys.exit()

def save(*_):
    time.sleep(4)
    pathlib.Path(os.environ["SM_MODEL_DIR"], "saved").touch()
    print("saved", flush=True)
    sys.exit(0)

def listen():
    port = int(config["cluster"]["worker"][task["index"]].rpartition(":")[2])
    return socket.create_server(("", port))

def compute(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10000))

match os.environ["DEED"]:
    case "sleeps":
        (shared / "begun").touch()
        save()
    case "serves and computes":
        server = listen()
        (shared / "begun").touch()
        compute(5)  # longer than ENTRYPOINT_PS_QUIET
        save()
    case "waits for the chief, and computes then":
        server = listen()
        (shared / "begun").touch()
        time.sleep(2.5)  # shorter than ENTRYPOINT_PS_QUIET
        compute(5)
        save()
    case "looks for a file that never comes":
        signal.signal(signal.SIGTERM, save)
        server = listen()
        (shared / "begun").touch()
        while not (shared / "done").exists():
            time.sleep(0.5)
    case "is killed":
        (shared / "begun").touch()
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGKILL)
    case "never ends":
        (shared / "begun").touch()
        time.sleep(600)
'''


def job_of(hosts, deed: str, **settings: str):
    environment = {**SHORT, "DEED": deed, **settings}
    return hosts(
        2, "train.py", code={"train.py": PROGRAM, "old/unused.py": PROGRAM}, hyperparameters=PS, environment=environment
    )


@pytest.mark.parametrize(
    "deed",
    [
        "sleeps",
        "serves and computes",
        pytest.param("waits for the chief, and computes then", marks=pytest.mark.more),
    ],
)
def test_a_worker_that_still_works_is_waited_for(hosts, deed):
    job = job_of(hosts, deed)
    assert job.end() == [0, 0]
    assert (job[2].base / "model/saved").exists()
    assert "worker/0 ended: exit code 0" in job[2].log


def test_a_worker_that_serves_and_does_nothing_is_ended_in_its_time(hosts):
    job = job_of(hosts, "looks for a file that never comes")
    assert job.end() == [0, 0]
    assert (job[2].base / "model/saved").exists()  # it takes longer than after a failure
    assert "worker/0: only serves processes that have ended; terminated" in job[2].log


def test_a_worker_that_is_killed_after_the_chiefs_end_fails_the_job(hosts):
    job = job_of(hosts, "is killed")
    assert job.end() == [137, 137]
    assert {text.splitlines()[0] for text in job.failures} == {"algo-2 worker/0 (killed by SIGKILL)"}


def test_workers_that_only_serve_by_the_users_word_end_with_the_chief(hosts):
    job = job_of(hosts, "never ends", ENTRYPOINT_PS_WORKER_END="chief")
    assert job.end() == [0, 0]
