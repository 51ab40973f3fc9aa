"""Test that busy-waiting threads of real processes are recognised, and that their earlier CPU use is dropped."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

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


@contextlib.contextmanager
def running(program: str, least: float, **options: bool) -> Iterator[tuple[int, Threads]]:
    """Run a program until its thread is recognised as waiting; yield its pid and the observing `Threads`."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        threads = Threads()
        threads.look([process.pid], **options)

        def is_recognised():
            time.sleep(0.3)
            work = threads.look([process.pid], **options)
            return work.waiters > least and work.main < 0.05

        try:
            eventually(is_recognised, within=60)
            yield process.pid, threads
        finally:
            process.kill()


def test_polling_thread_only_waits_and_earlier_use_is_dropped():
    """Horovod's thread does this: it takes much CPU time while its rank waits for other ranks."""
    with running(CYCLES, 0.05, ranks=True) as (pid, threads):
        assert Threads().look([pid]).waiters == 0.0  # of what are no ranks
        time.sleep(0.5)  # the job gets on, and nobody looks
        threads.begin_anew()
        assert threads.look([pid], ranks=True).waiters == 0.0


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


def test_spinning_nccl_thread_counts_as_waiting():
    """On an H200 on 2026-11-27, a thread of NCCL busy-waited under the name of the thread that had started it."""
    with running(NCCL_SPINS, 0.1):
        pass
