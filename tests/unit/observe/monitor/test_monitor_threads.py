"""Test threads of real processes: those that only busy-wait, and that earlier use does not count for later silence."""

import subprocess
import sys
import time

import pytest
from waiting import eventually

from entrypoint.observe.monitor.threads import Threads

CYCLES = """
import sys, threading, time

def cycle():
    while True:
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
        time.sleep(0.001)

threading.Thread(target=cycle, daemon=True).start()
print(flush=True)
time.sleep(600)
"""


@pytest.fixture
def cycling():
    """Spin as Horovod's thread does, which takes much CPU time while its rank waits for others."""
    with subprocess.Popen([sys.executable, "-c", CYCLES], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield process.pid
        process.kill()


def test_a_thread_that_asks_again_and_again_only_waits(cycling):
    threads = Threads()
    threads.look([cycling], ranks=True)

    def is_recognised():
        time.sleep(0.3)
        work = threads.look([cycling], ranks=True)
        return work.waiters > 0.05 and work.main < 0.05

    eventually(is_recognised, within=60)
    assert Threads().look([cycling]).waiters == 0.0  # of what are no ranks


NCCL_SPINS = """
import ctypes, hashlib, threading, time

def spin():
    ctypes.CDLL(None).prctl(15, b"collective_ops", 0, 0, 0)
    while True:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**4)  # in C, without Python's lock

threading.Thread(target=spin, daemon=True).start()
print(flush=True)
time.sleep(600)
"""


def test_nccl_in_a_collective_of_tensorflow_only_waits():
    """On an H200, 2026-11-27: a thread of NCCL spun in vain, with the name of the thread that had started it."""
    with subprocess.Popen([sys.executable, "-c", NCCL_SPINS], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        threads = Threads()
        threads.look([process.pid])

        def is_recognised():
            time.sleep(0.3)
            work = threads.look([process.pid])
            return work.waiters > 0.1 and work.main < 0.05

        try:
            eventually(is_recognised, within=60)
        finally:
            process.kill()


def test_earlier_use_of_a_thread_does_not_count(cycling):
    threads = Threads()

    def is_recognised():
        time.sleep(0.3)
        return threads.look([cycling], ranks=True).waiters > 0.05

    eventually(is_recognised, within=60)
    time.sleep(0.5)  # the job gets on, and nobody looks
    threads.begin_anew()
    assert threads.look([cycling], ranks=True).waiters == 0.0
