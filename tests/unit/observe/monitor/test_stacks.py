"""Test that two samples of a real process show its place and activity: sleep, wait, spin, compute, ended."""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from waiting import eventually

from entrypoint.observe.monitor.stacks import take
from entrypoint.observe.monitor.wait_sites import LOOKS_ON, OUR_THREAD, Doing, without_ours
from entrypoint.record.lines import Stacks

PROGRAM = """
import ctypes, hashlib, os, select, socket, subprocess, sys, threading, time

def compute():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"x", b"y", 10**5)  # in C, without Python's lock

def named(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
    compute()

def upload():
    ours, theirs = socket.socketpair()
    ours.recv(1)

def main(what):
    lock = threading.Lock()
    lock.acquire()
    pair = socket.socketpair()
    if what == "has a thread that computes":
        threading.Thread(target=compute).start()
    if what.startswith("spins as "):
        for name in what.removeprefix("spins as ").split(", "):
            threading.Thread(target=named, args=[name], daemon=True).start()
    if what == "has ended but for a thread":
        threading.Thread(target=upload, name="uploader").start()
    print(flush=True)
    if what == "computes":
        compute()
    if what == "has ended but for a thread":
        return
    if what in ("sleeps",) or what.startswith("spins as "):
        time.sleep(1000)
    if what == "reads a pipe":
        os.read(os.pipe()[0], 1)
    if what == "reads a socket":
        pair[0].recv(1)
    if what == "polls a socket":
        select.select([pair[0]], [], [])
    if what == "waits for a child":
        subprocess.run([sys.executable, "-c", "import time; print(); time.sleep(1000)"])
    lock.acquire()

main(sys.argv[1])
"""
STANDS = {
    "sleeps": (Doing.SLEEPS, "main"),
    "takes a lock twice": (Doing.LOCK, "main"),
    "reads a pipe": (Doing.PIPE, "main"),
    "reads a socket": (Doing.SOCKET, "main"),
    "polls a socket": (Doing.POLL, "main"),
    "waits for a child": (Doing.CHILD, "main"),
    "has ended but for a thread": (Doing.ENDED, "upload"),
    "is stopped": (Doing.STOPPED, "code"),
    # The last ones, since they take processors from what still starts.
    "computes": (Doing.WORKS, "compute"),
    "has a thread that computes": (Doing.WORKS, "main"),
    "spins as horovod, NCCL Progress 0, cuda-EvtHandlr, collective_ops": (Doing.SLEEPS, "main"),
}


@pytest.fixture(scope="module")
def stacks(tmp_path_factory):
    program = tmp_path_factory.mktemp("stacks") / "program.py"
    program.write_text(PROGRAM)
    started: dict[str, subprocess.Popen] = {}

    def start(*those: str) -> None:
        for what in those:
            command = [sys.executable, str(program), what]
            started[what] = subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0)
        for what in those:
            started[what].stdout.readline()

    try:
        start(*[what for what in STANDS if "comput" not in what and "spins" not in what])
        start(*[what for what in STANDS if what not in started])
        os.kill(started["is stopped"].pid, signal.SIGSTOP)
        taken: dict[str, Stacks] = {}

        def all_have_come_there() -> bool:
            found = take({what: [process.pid] for what, process in started.items()}, {})
            taken.update({line.process: line for line in found})
            return {what: stands(stack) for what, stack in taken.items()} == STANDS

        with contextlib.suppress(AssertionError):  # a test below says which has not
            eventually(all_have_come_there, within=60)
        yield taken
    finally:
        for process in started.values():
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def stands(stack: Stacks) -> tuple[Doing, str]:
    return Doing(stack.doing), stack.place.split()[-1]


@pytest.mark.parametrize("what", STANDS)
def test_stacks_show_what_a_process_does(stacks, what):
    assert stands(stacks[what]) == STANDS[what]


def test_launcher_frames_are_not_shown():
    def thread(name, *files):
        return {"thread_name": name, "frames": [{"filename": file, "line": 1, "name": "f"} for file in files]}

    ours = f"/opt/x{LOOKS_ON}"
    threads = [thread(OUR_THREAD, "threading.py", ours), thread(None, "a.py"), thread("MainThread", ours, "train.py")]
    assert without_ours(threads) == [thread("MainThread", "train.py"), thread(None, "a.py")]


def test_printed_stacks_name_threads_and_files(stacks):
    """They name the thread that an ending script waits for. The text has the files of the frames."""
    place = stacks["has ended but for a thread"].place
    assert place.startswith("the end of the script, which waits for its thread uploader in program.py:")
    assert "program.py" in stacks["sleeps"].text
