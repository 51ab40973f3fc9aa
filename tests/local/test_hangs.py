"""Test that silent work with a slow disk or store is not taken for a hang."""

import socket
import threading
import time

import pytest
from silent_disk import why_not
from slow_disk import SlowDisk
from waiting import eventually

SOON = {"HANG_AFTER": 2, "HANG_ACTION": "fail"}
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


@pytest.fixture
def slow_disk(tmp_path):
    if problem := why_not():
        pytest.skip(problem)
    folder = tmp_path / "job0" / "disk"
    folder.mkdir(parents=True)
    disk = SlowDisk(folder)
    yield disk
    disk.close()


def test_slow_checkpoint_in_pieces_is_not_reported_as_a_hang(hosts, slow_disk):
    """The checkpoint is written in pieces, for more than six times the hang limit."""
    job = hosts(1, code=SAVES.format(48, 1 << 17), **SOON)
    job.must_end(0)
    assert "saved" in job[1].log and "no progress" not in job[1].log


def test_slow_checkpoint_in_one_write_is_not_reported_as_a_hang(hosts, slow_disk):
    """The process sleeps uninterruptibly until the write ends. py-spy, which has to stop the process, waits as long."""
    job = hosts(1, code=SAVES.format(1, 1 << 26), **SOON)
    stacks = job[1].base / "output/data/stacks-algo-1.txt"

    def is_looked_at_again() -> bool:
        """Return whether stacks were taken a second time; that happens only if the first led to no hang report."""
        return job[1].process.poll() is not None or (
            stacks.exists() and stacks.read_text().count(": no progress\n") > 1
        )

    eventually(is_looked_at_again, within=240)
    slow_disk.is_fast.set()
    job.must_end(0)
    assert "saved" in job[1].log and "no progress" not in job[1].log


def test_slow_upload_from_memory_is_not_reported_as_a_hang(hosts):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take():
            store, _ = server.accept()
            with store:
                store.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
                while store.recv(1 << 17, socket.MSG_WAITALL):
                    time.sleep(0.25)

        threading.Thread(target=take, daemon=True).start()
        store = {"STORE": "{}:{}".format(*server.getsockname())}
        job = hosts(1, code=UPLOADS, environment=store, **SOON)
        job.must_end(0)
    assert "saved" in job[1].log and "no progress" not in job[1].log
