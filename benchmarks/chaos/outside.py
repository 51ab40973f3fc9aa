"""Faults that `entrypoint local` has no words for: slow look-ups of names, and few pids."""

import contextlib
import json
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from benchmarks.chaos.case import Case, Fault

SLOW_NAMES = Path(__file__).with_name("slow_names")
SPARE = 2  # processes and threads that a host may still start


@contextlib.contextmanager
def injected(case: Case, folder: Path, meeting: Path) -> Iterator[list[tuple[float, Fault]]]:
    """While a job runs; the list says which were injected, and when. Leaves no control group."""
    done: list[tuple[float, Fault]] = []
    over = threading.Event()
    began = time.time()
    slow = [fault for fault in case.faults if fault.kind == "slow"]
    windows = [(fault.host, began + fault.at, began + fault.at + (fault.lasts or 0)) for fault in slow]
    (meeting / "slow.json").write_text(json.dumps(windows))
    done += [(began + fault.at, fault) for fault in slow]
    limited = [fault for fault in case.faults if fault.kind == "pids"]
    groups = [Path(f"/sys/fs/cgroup/pids/chaos-{uuid.uuid4().hex[:12]}") for _ in limited]
    threads = [
        threading.Thread(target=_limit, args=(fault, group, folder, began + fault.at, over, done))
        for fault, group in zip(limited, groups, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        yield done
    finally:
        over.set()
        for thread in threads:
            thread.join()
        for group in groups:
            _remove(group)


def _limit(
    fault: Fault, group: Path, folder: Path, at: float, over: threading.Event, done: list[tuple[float, Fault]]
) -> None:
    """Put a host's processes into a control group that allows hardly any more."""
    over.wait(max(0.0, at - time.time()))
    while not over.is_set():
        if members := _members(folder, fault.host):
            with contextlib.suppress(OSError):
                group.mkdir()
                for pid in members:
                    with contextlib.suppress(OSError):
                        (group / "cgroup.procs").write_text(str(pid))
                (group / "pids.max").write_text(str(int((group / "pids.current").read_text()) + SPARE))
                done.append((time.time(), fault))
            return
        over.wait(0.05)


def _members(folder: Path, host: str) -> list[int]:
    mark = str(folder / "out" / host / "ml").encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def _remove(group: Path) -> None:
    deadline = time.monotonic() + 5  # what has ended counts until it is reaped
    while group.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)
