"""Test when worker scripts of ps jobs count as ended: the launcher observes their activity, never files."""

import pytest
from hosts import LISTENS

# The worker does DEED from before the chief's end on, and saves.
PROGRAM = '''
"""Once this ran a tf.distribute.Server in each worker: server = tf.distribute.Server(...); server.join()"""
import ctypes, json, os, pathlib, signal, socket, sys, threading, time
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
        compute(3)  # longer than ENTRYPOINT_PS_QUIET
        save()
    case "looks for a file that never comes":
        signal.signal(signal.SIGTERM, save)
        server = listen()
        (shared / "begun").touch()
        while not (shared / "done").exists():
            time.sleep(0.5)
    case "joins":
        libc, thread, semaphore = ctypes.CDLL(None), ctypes.c_ulong(), ctypes.create_string_buffer(64)
        libc.pthread_create(ctypes.byref(thread), None, libc.sem_wait, semaphore)
        server = listen()
        (shared / "begun").touch()
        libc.pthread_join(thread, None)
    case "is killed":
        (shared / "begun").touch()
        time.sleep(3)
        os.kill(os.getpid(), signal.SIGKILL)
    case "never ends":
        (shared / "begun").touch()
        time.sleep(600)
'''


@pytest.fixture
def job_of(hosts):
    """Start a chief that ends as soon as the worker has begun its action."""

    def start(deed: str, **settings: object):
        code = {"train.py": PROGRAM, "old/unused.py": PROGRAM}
        return hosts(2, code=code, mode="ps", environment={**LISTENS, "DEED": deed}, **{"PS_QUIET": 2, **settings})

    return start


@pytest.mark.parametrize("deed", ["sleeps", "serves and computes"])
def test_job_waits_for_a_worker_that_still_computes(job_of, deed):
    job = job_of(deed)
    job.must_end(0)
    assert (job[2].base / "model/saved").exists()
    assert "worker/0 ended: exit code 0" in job[2].log


def test_a_worker_that_joins_its_server_is_ended_before_ps_quiet_is_over(job_of):
    """The worker's main thread joins another thread without a timeout, as `tf.distribute.Server.join()` does."""
    job = job_of("joins", PS_QUIET=600)
    job.must_end(0)
    assert "worker/0 stopped: killed by SIGTERM" in job[2].log


def test_idle_worker_server_is_ended_after_ps_quiet(job_of):
    job = job_of("looks for a file that never comes")
    job.must_end(0)
    assert (job[2].base / "model/saved").exists()  # it takes longer than after a failure
    assert "worker/0: only serves processes that have ended; terminated" in job[2].log


def test_a_worker_that_is_killed_after_the_chiefs_end_fails_the_job(job_of):
    assert job_of("is killed").must_end(137) == "algo-2 worker/0 (killed by SIGKILL)"


def test_workers_declared_as_servers_end_with_the_chief(job_of):
    job_of("never ends", PS_WORKER_END="chief").must_end(0)
