"""Test what a process, its descendants and its pipes use, beside what they do."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import eventually

from entrypoint.observe.monitor.process_usage import SEARCH_AGAIN, ProcessUsage, fifos_filled
from entrypoint.observe.monitor.sampling import HostUsage

WORKS = """
import os, sys, time
sys.stdin.readline()  # until it was looked at once
child = os.fork()
ends = time.process_time() + 0.5
while time.process_time() < ends: pass
held = bytearray(30 << 20) if child else None
print("done", flush=True)
time.sleep(600)
"""


@pytest.fixture
def worker():
    with subprocess.Popen(
        [sys.executable, "-c", WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        yield process
        os.killpg(process.pid, 9)


def test_a_process_with_its_child(worker):
    usage = ProcessUsage()
    running = {"worker/0": worker.pid}
    before = usage.look(running)["worker/0"]
    assert "cpu" not in before, "the first look knows no difference"
    worker.stdin.write(b"\n")
    worker.stdin.flush()
    for _ in range(2):
        worker.stdout.readline()
    found = {}
    for _ in range(SEARCH_AGAIN + 1):
        for key, value in usage.look(running)["worker/0"].items():
            found[key] = max(found.get(key, 0), value) if key in ("memory", "threads") else found.get(key, 0) + value
    assert len(usage.families["worker/0"]) == 2
    assert found["cpu"] >= 0.4, "half a second of the parent's"
    assert found["memory"] > 30 << 20 and found["threads"] == 2
    usage.families = {"worker/0": [worker.pid]}  # the child is no more of it
    assert usage.look(running)["worker/0"].get("cpu", 0) < 0.1


def test_a_host(tmp_path):
    usage = HostUsage(tmp_path)
    usage.look()
    ends = time.process_time() + 0.3
    while time.process_time() < ends:
        pass
    found = usage.look()
    assert sum(found["cpu"][:2]) >= 0.25
    assert found["memory"][0] > 0 and found["free"] > 0


def waits_in_open(pid: int) -> bool:
    return Path(f"/proc/{pid}/wchan").read_text() in ("wait_for_partner", "fifo_open")


def test_a_pipe_is_looked_at_by_its_reader_and_never_by_us(tmp_path):
    fifo = tmp_path / "train_0"
    os.mkfifo(fifo)
    pipes = {"train": f"{tmp_path}/train_"}
    writes = subprocess.Popen([sys.executable, "-c", f"open({str(fifo)!r}, 'w').write('x' * 1000); print('written')"],
                              stdout=subprocess.PIPE)  # fmt: skip
    try:
        eventually(lambda: waits_in_open(writes.pid), within=60)
        assert fifos_filled(pipes, [os.getpid(), writes.pid]) == {}
        assert waits_in_open(writes.pid), "for its first reader, who is not the monitor"
        reader = os.open(fifo, os.O_RDONLY)
        writes.wait(60)
        assert eventually(lambda: fifos_filled(pipes, [os.getpid()]).get("train", [0])[0] == 1000, within=60)
        assert os.read(reader, 2000) == b"x" * 1000
        os.close(reader)
    finally:
        writes.kill()
        writes.communicate()
