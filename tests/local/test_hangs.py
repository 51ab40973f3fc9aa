"""Test that silent work is not taken for a hang, and a hang for work, in jobs with real frameworks and a slow disk."""

import socket
import threading
import time

import pytest
from silent_disk import why_not
from slow_disk import SlowDisk
from waiting import eventually

SOON = {"ENTRYPOINT_HANG_AFTER": "2", "ENTRYPOINT_HANG_ACTION": "fail"}
MIRRORED = """
import time
import numpy as np
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
@tf.function
def train():
    return strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1000])))
def evaluate():
    rows, until, used = tf.ones([400, 400]), time.monotonic() + 8, time.process_time() + 8
    while time.monotonic() < until or time.process_time() < used:
        rows = tf.linalg.matmul(rows, np.linalg.qr(rows)[0])
def read_data():
    time.sleep(600)
for step in range(100_000):
    if step == 20 and strategy.cluster_resolver.task_id == 0:
        evaluate()
        print("has evaluated", flush=True)
        read_data()
    train()
"""
SAVES = """
import os
print("begins", flush=True)
with open(os.environ["TEST_FOLDER"] + "/disk/checkpoint", "wb", buffering=0) as file:
    for _ in range({}):
        file.write(b"x" * {})
print("saved", flush=True)
"""
UPLOADS = """
import os, socket
print("begins", flush=True)
host, port = os.environ["STORE"].split(":")
store = socket.create_connection((host, int(port)))
store.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
store.sendall(bytes(5 << 20))
print("saved", flush=True)
"""


@pytest.mark.more  # test_jax_local.py has it in mode jax, and test_monitor_local.py for ranks of MPI
@pytest.mark.tensorflow
def test_a_worker_that_evaluates_silently_is_none_and_one_that_sleeps_is_one(hosts):
    """The other one waits in a collective of TensorFlow meanwhile."""
    job = hosts(2, "train.py", code={"train.py": MIRRORED}, environment={**SOON, "ENTRYPOINT_MODE": "mwms"})
    assert job.end() == [72, 72]
    assert "has evaluated" in job[1].log
    assert job[2].failure.startswith("algo-1 worker/0 (no progress): no progress in any process for 2 s: worker/0 on ")
    assert "worker/0 on algo-1 is in train.py:14 read_data (sleeps), worker/1 on algo-2 is in train.py:20" in (
        job[2].failure
    )
    assert job[2].failure.splitlines()[0].endswith("(waits in TensorFlow)")


@pytest.fixture
def slow_disk(tmp_path):
    if problem := why_not():
        pytest.skip(problem)
    folder = tmp_path / "job0" / "disk"
    folder.mkdir(parents=True)
    disk = SlowDisk(folder)
    yield disk
    disk.close()


def test_a_checkpoint_to_a_slow_disk_is_none(hosts, slow_disk):
    """It is written in pieces, for six times the limit and more."""
    job = hosts(1, "train.py", code={"train.py": SAVES.format(48, 1 << 17)}, environment=SOON)
    assert job.end() == [0]
    assert "saved" in job[1].log and "no progress" not in job[1].log


def test_a_checkpoint_in_one_write_to_a_slow_disk_is_none(hosts, slow_disk):
    """The process sleeps beyond any signal until all of it is written: py-spy, which would stop it, waits as long."""
    job = hosts(1, "train.py", code={"train.py": SAVES.format(1, 1 << 26)}, environment=SOON)
    stacks = job[1].base / "output/data/stacks-algo-1.txt"

    def is_looked_at_again() -> bool:
        """Return whether it was looked at twice: after the first time nothing was told, then."""
        return job[1].process.poll() is not None or (
            stacks.exists() and stacks.read_text().count(": no progress\n") > 1
        )

    eventually(is_looked_at_again, within=240)
    slow_disk.is_fast.set()
    assert job.end() == [0]
    assert "saved" in job[1].log and "no progress" not in job[1].log


def test_an_upload_from_memory_to_a_slow_store_is_none(hosts):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take():
            store, _ = server.accept()
            with store:
                store.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                while store.recv(1 << 17, socket.MSG_WAITALL):
                    time.sleep(0.25)

        threading.Thread(target=take, daemon=True).start()
        environment = {**SOON, "STORE": "{}:{}".format(*server.getsockname())}
        job = hosts(1, "train.py", code={"train.py": UPLOADS}, environment=environment)
        assert job.end() == [0]
    assert "saved" in job[1].log and "no progress" not in job[1].log
