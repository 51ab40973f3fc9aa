"""Test the measured usage of a process, its descendants and its pipes against their real work."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from waiting import eventually

from entrypoint.observe.monitor import sampling
from entrypoint.observe.monitor.process_usage import SEARCH_AGAIN, ProcessUsage, families, fifos_filled, parents
from entrypoint.observe.monitor.sampling import HostUsage, memory_limit

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


def work(worker: subprocess.Popen) -> None:
    """Let the worker fork a child; wait until both have worked."""
    worker.stdin.write(b"\n")
    worker.stdin.flush()
    for _ in range(2):
        worker.stdout.readline()


@pytest.fixture
def worker():
    with subprocess.Popen(
        [sys.executable, "-c", WORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        yield process
        os.killpg(process.pid, 9)


def test_usage_of_a_process_includes_its_child(worker):
    usage = ProcessUsage()
    running = {"worker/0": worker.pid}
    before = usage.look(running)["worker/0"]
    assert "cpu" not in before, "the first look knows no difference"
    work(worker)
    found = {}
    for _ in range(SEARCH_AGAIN + 1):
        for key, value in usage.look(running)["worker/0"].items():
            found[key] = max(found.get(key, 0), value) if key in ("memory", "threads") else found.get(key, 0) + value
    assert len(usage.families["worker/0"]) == 2
    assert found["cpu"] >= 0.4, "half a second of the parent's"
    assert found["memory"] > 30 << 20 and found["threads"] == 2
    usage.families = {"worker/0": [worker.pid]}  # the child is no more of it
    assert usage.look(running)["worker/0"].get("cpu", 0) < 0.1


def test_host_figures_equal_those_of_psutil(tmp_path):
    def counters() -> list[int]:
        whole = {path.parent.name for path in Path("/sys/block").glob("*/device")}
        disks = [each for name, each in psutil.disk_io_counters(perdisk=True, nowrap=False).items() if name in whole]
        # Loopback is no network.
        links = [each for name, each in psutil.net_io_counters(pernic=True, nowrap=False).items() if name != "lo"]
        sums = [sum(disk.read_bytes for disk in disks), sum(disk.write_bytes for disk in disks)]
        return [*sums, sum(link.bytes_recv for link in links), sum(link.bytes_sent for link in links)]

    usage = HostUsage(tmp_path)
    before = counters()
    usage.look()
    least = counters()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs, (tmp_path / "file").open("wb") as file:
            ours.sendall(bytes(100_000))
            assert len(theirs.recv(100_000, socket.MSG_WAITALL)) == 100_000
            file.write(bytes(1 << 20))
            os.fsync(file.fileno())
    ends = time.process_time() + 0.3
    while time.process_time() < ends:
        pass
    least = [now - then for now, then in zip(counters(), least, strict=True)]
    found = usage.look()
    most = [now - then for now, then in zip(counters(), before, strict=True)]
    figures = [*found["disk"], *found["net"]]
    assert all(low <= figure <= high for low, figure, high in zip(least, figures, most, strict=True))
    assert sum(found["cpu"][:2]) >= 0.25 and found["memory"][0] > 0 and found["free"] > 0
    assert memory_limit() <= psutil.virtual_memory().total


def test_each_disk_counts_once(tmp_path, monkeypatch):
    """Partitions, LVM, RAID and loop devices are not counted: they lie on disks that are."""
    for name in ("nvme0n1/device", "nvme1n1/device", "dm-0/slaves", "md127/md", "loop3/loop", "zram0/queue"):
        (tmp_path / "block" / name).mkdir(parents=True)
    monkeypatch.setattr(sampling, "BLOCKS", tmp_path / "block")
    sampling.is_disk.cache_clear()
    names = ("nvme0n1", "nvme0n1p1", "nvme1n1", "dm-0", "md127", "loop3", "zram0")
    assert [name for name in names if sampling.is_disk(name)] == ["nvme0n1", "nvme1n1"]
    sampling.is_disk.cache_clear()


def test_family_gains_new_children_and_drops_orphans(worker):
    known = parents()
    assert families({"worker/0": worker.pid}, known) == {"worker/0": [worker.pid]}
    work(worker)
    known = parents(known)
    pid, child = families({"worker/0": worker.pid}, known)["worker/0"]
    assert (pid, known[child]) == (worker.pid, worker.pid)
    os.kill(worker.pid, 9)
    worker.wait()
    known = parents(known)
    assert known[child] != worker.pid and worker.pid not in known
    assert families({"worker/0": worker.pid}, known) == {"worker/0": []}


def waits_in_open(pid: int) -> bool:
    return Path(f"/proc/{pid}/wchan").read_text() in ("wait_for_partner", "fifo_open")


def test_pipe_is_measured_through_its_reader_without_opening(tmp_path):
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
