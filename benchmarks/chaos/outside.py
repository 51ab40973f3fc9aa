"""Inject faults that `entrypoint local` lacks.

These are slow name look-ups, few pids, unkillable processes, and closed connections between launchers.
"""

import contextlib
import json
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.chaos.case import Case, Fault
from benchmarks.chaos.observed import Injected

SLOW_NAMES = Path(__file__).with_name("slow_names")
PIDS, FREEZER = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup/freezer")  # of cgroup v1
SPARE = 2  # processes and threads that a host may still start
AGAIN = 0.05  # seconds between two looks
CONTROL_PORT = 7979
HANG_UP_AGAIN = 0.3  # seconds


@contextlib.contextmanager
def injected(case: Case, folder: Path, meeting: Path) -> Iterator[list[Injected]]:
    """Inject the case's faults while its job runs, and unfreeze all at the end; yield faults with their times."""
    done: list[Injected] = []
    over = threading.Event()
    began = time.time()
    slow = {
        str(number): Injected(fault=fault, at=began + fault.at, over=began + fault.at + (fault.lasts or 0))
        for number, fault in enumerate(case.faults)
        if fault.kind == "slow"
    }
    windows = [(number, each.fault.host, each.at, each.over) for number, each in slow.items()]
    (meeting / "slow.json").write_text(json.dumps(windows))
    how: dict[str, Callable[..., None]] = {"pids": _limit, "freeze": _freeze, "hangup": _hang_up}
    threads = [
        threading.Thread(target=how[fault.kind], args=(fault, folder, began + fault.at, over, done))
        for fault in case.faults
        if fault.kind in how
    ]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        over.set()
        for thread in threads:
            thread.join()
        done += [each for number, each in slow.items() if (meeting / f"slow-{number}").exists()]


def _limit(fault: Fault, folder: Path, at: float, over: threading.Event, done: list[Injected]) -> None:
    """Put a host's processes into a control group that allows only few more."""
    over.wait(max(0.0, at - time.time()))
    _wait_for_script(folder, f"{fault.host}," if fault.when else "", over)
    while not over.is_set():
        if members := _members(f"{folder}/out/{fault.host}/ml"):
            with _group(PIDS) as group:
                _move(members, group)
                (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + SPARE))
                done.append(Injected(fault=fault, at=time.time()))
                over.wait()
            return
        over.wait(AGAIN)


def _freeze(fault: Fault, folder: Path, at: float, over: threading.Event, done: list[Injected]) -> None:
    """Freeze a script, like a disk that does not answer. Even SIGKILL has no effect until the end."""
    name = f"{fault.host},{fault.process.replace('/', '=')},"
    _wait_for_script(folder, name, over)
    over.wait(fault.at)
    while not over.is_set():
        if writers := [pid for pid in _members(f"{folder}/meeting") if _has_open(pid, f"{folder}/meeting/{name}")]:
            with _group(FREEZER) as group:
                _move(writers, group)
                (group / "freezer.state").write_text("FROZEN")
                began = time.time()
                over.wait(fault.lasts)
                (group / "freezer.state").write_text("THAWED")
                done.append(Injected(fault=fault, at=began, over=time.time()))
            return
        over.wait(AGAIN)


def _hang_up(fault: Fault, folder: Path, at: float, over: threading.Event, done: list[Injected]) -> None:
    """Close the connections between a host's launcher and others, like a router that forgets them; both ends notice."""
    _wait_for_script(folder, f"{fault.host},", over)
    over.wait(fault.at)
    began, until = 0.0, time.time() + (fault.lasts or 0)
    while members := [] if over.is_set() else _members(f"{folder}/out/{fault.host}/ml"):
        for end in ("sport", "dport"):
            command = ["nsenter", f"--net=/proc/{members[0]}/ns/net", "ss", "-HKtn", f"{end} = :{CONTROL_PORT}"]
            ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60).stdout
            began = began or (time.time() if ended else 0.0)
        if time.time() > until:
            break
        over.wait(HANG_UP_AGAIN)
    if began:
        done.append(Injected(fault=fault, at=began, over=time.time()))


def _wait_for_script(folder: Path, name: str, over: threading.Event) -> None:
    """Wait until a journal of that name exists, or the job is over."""
    while name and not over.is_set() and not any((folder / "meeting").glob(f"{name}*.journal")):
        over.wait(AGAIN)


def _members(mark: str) -> list[int]:
    """Return the processes whose environment contains `mark`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _has_open(pid: int, path: str) -> bool:
    """Return whether the process has an open file whose path begins with `path`."""
    with contextlib.suppress(OSError):
        return any(str(link.readlink()).startswith(path) for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


@contextlib.contextmanager
def _group(kind: Path) -> Iterator[Path]:
    """Make a control group. At its end the processes end, or return to the root group."""
    group = kind / f"chaos-{os.getpid()}-{uuid.uuid4().hex[:12]}"
    group.mkdir()
    try:
        yield group
    finally:
        if (group / "pids.max").exists():
            (group / "pids.max").write_text("max")
        deadline = time.monotonic() + 5  # what has ended counts until it is reaped
        while group.exists() and time.monotonic() < deadline:
            _move([int(pid) for pid in (group / "cgroup.procs").read_text().split()], kind)
            with contextlib.suppress(OSError):
                group.rmdir()
            time.sleep(AGAIN)


def _move(pids: list[int], group: Path) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):  # it is gone
            (group / "cgroup.procs").write_text(str(pid))
