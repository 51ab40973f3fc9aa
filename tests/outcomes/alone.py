"""Run a command and report the processes that it left: `python -I alone.py REPORT COMMAND...`.

The report also has start and end of each child whose environment has the folder of a host, .../out/HOST/ml, and how
long processes waited for a CPU.

This process adopts each process that the command leaves (PR_SET_CHILD_SUBREAPER), names it in the JSON file REPORT and
kills it. SIGTERM is passed on to the command until it ends; after CLEANS_UP seconds everything is killed.
"""

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
import time

import psutil

MOVING = 10  # seconds
CLEANS_UP = 5  # seconds for the command to end on SIGTERM, a second one or a third
EACH = 0.25  # seconds in which the longest wait for a CPU is noted


def descendants():
    """Return the living descendants of this process: pid to command line."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = " ".join(process.cmdline())[:200]
    return found


def is_anybody_left():
    """Return whether descendants are left. waitpid notices even a process that forks during a listing."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Hosts:
    """Record when each child process that simulates a host was first and last seen."""

    def __init__(self, pid):
        self.list = f"/proc/{pid}/task/{pid}/children"
        self.names, self.came, self.gone = {}, {}, {}

    def look(self):
        there, now = read(self.list).split(), time.time()
        for pid in there:
            if self.names.get(pid) is None:  # its environment is its parent's, for a moment
                self.names[pid] = self.name(pid)
                if self.names[pid]:
                    self.came[self.names[pid]] = now
        for pid, name in self.names.items():
            if name and pid not in there:
                self.gone.setdefault(name, now)

    @staticmethod
    def name(pid):
        found = re.search(r"/out/(algo-\d+)/ml", read(f"/proc/{pid}/environ"))
        return found and found[1]


class Waits:
    """Record how long threads of descendants waited for a CPU: the longest wait of one thread in each EACH seconds."""

    def __init__(self, pid):
        self.pid, self.before, self.at, self.found = pid, {}, time.monotonic(), []

    def look(self):
        if time.monotonic() < self.at + EACH:
            return
        self.at, now = time.monotonic(), {}
        pids = [self.pid]
        while pids:
            folder = f"/proc/{pids.pop()}/task"
            for thread in names(folder):
                pids += read(f"{folder}/{thread}/children").split()
                fields = read(f"{folder}/{thread}/schedstat").split()
                now[thread] = int(fields[1]) / 1e9 if fields else 0.0
        longest = max((waited - self.before.get(thread, 0.0) for thread, waited in now.items()), default=0.0)
        self.before = now
        if longest > EACH / 10:
            self.found.append((round(time.time(), 2), round(longest, 3)))


def names(folder):
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def main(report, *argv):
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(time.monotonic()))
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG: also if our parent is killed
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.execvp(argv[0], argv)
    hosts, waits = Hosts(child), Waits(child)
    while True:
        hosts.look()
        waits.look()
        if told:
            hurries = time.monotonic() > told[0] + CLEANS_UP
            kill(descendants()) if hurries else os.kill(child, signal.SIGTERM)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == child:
            break
        time.sleep(0.02)
    left, deadline = {}, time.monotonic() + 0.5  # what was killed a moment ago may still be on its way out
    while is_anybody_left() and not (left and time.monotonic() > deadline):
        left = descendants()
        if time.monotonic() > deadline + MOVING:
            left = left or {0: "a process that moves too fast to be named"}
        time.sleep(0.02)
    left = left if is_anybody_left() else {}
    with open(report, "w") as file:
        code = os.waitstatus_to_exitcode(status)
        json.dump({"code": code, "came": hosts.came, "gone": hosts.gone, "waits": waits.found, "left": left}, file)
    deadline = time.monotonic() + 10
    while is_anybody_left() and time.monotonic() < deadline:
        kill(descendants())
        time.sleep(0.01)


main(*sys.argv[1:])
