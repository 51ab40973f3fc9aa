"""Test every row of the outcome table, tests/outcomes/table.py, with `entrypoint local`, several at a time.

docs/outcomes.md shows the same table. At the end, worst and median times of the cases are printed.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from control_group import why_not as why_no_group
from open_mpi import DAEMON
from outcomes.case import Case, Way
from outcomes.judge import complaints, figures, replays
from outcomes.run import ALONE, Result, run
from outcomes.table import CASES, PAIRS
from silent_disk import why_not as why_no_disk

AT_ONCE = int(os.environ.get("OUTCOMES_AT_ONCE") or 3 * (os.cpu_count() or 1))


def why_not(case: Case) -> str:
    """Return what this machine lacks to run a case; "" if nothing."""
    if case.way is Way.MPI and not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        return "needs Open MPI and an ssh daemon"
    if case.disk and why_no_disk():
        return why_no_disk()
    controller = case.few.partition("=")[0]
    if controller in ("pids", "memory") and (why := why_no_group(controller)):
        return why
    if case.engine == "netns" and os.geteuid() != 0:
        return "needs root, for network namespaces"
    return ""


@pytest.fixture(scope="session")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, tell: Callable[[str], None]
) -> Iterator[Callable[[Case], Result]]:
    """Run all selected cases in a few threads at the first use; return case to result."""
    items = [
        item
        for item in request.session.items
        if getattr(item, "function", None) is test_job_ends_as_in_the_outcome_table
    ]
    asked = [item.callspec.params["case"] for item in items]
    folder = tmp_path_factory.mktemp("outcomes")
    started: dict[str, Future[Result]] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        # In any order, but the same each time: rows of one kind, which stand together, wait together.
        for number, case in enumerate(random.Random(1).sample(asked, len(asked))):
            if not why_not(case):
                started[case.name] = pool.submit(run, case, folder / str(number))
        yield lambda case: started[case.name].result()
        pool.shutdown(cancel_futures=True)
    ended = [future.result() for future in started.values() if not (future.cancelled() or future.exception())]
    if ended:
        tell(f"{len(ended)} cases, {AT_ONCE} at a time\n{figures(ended)}")


def as_here(case: Case) -> Case:
    """Replace the daemon's name by this machine's Open MPI's; the page is written for version 4."""
    faults = tuple(fault.replace(":orted ", f":{DAEMON} ") for fault in case.faults)
    return replace(case, faults=faults, text=case.text.replace(" orted ", f" {DAEMON} "))


@pytest.mark.parametrize(
    "case",
    [pytest.param(as_here(case), id=case.name, marks=() if case.name in PAIRS else pytest.mark.more) for case in CASES],
)
def test_job_ends_as_in_the_outcome_table(case: Case, outcomes: Callable[[Case], Result]) -> None:
    if why := why_not(case):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    result = outcomes(case)
    print(result.terminal.text)
    assert complaints(result) == []
    shutil.rmtree(result.folder)


# --- a table whose tests could not fail would be worth nothing ---


def test_wrong_row_of_the_outcome_table_fails(tmp_path: Path) -> None:
    row = next(case for case in CASES if case.does.get("do") == "raises" and case.way is Way.SINGLE)
    result = run(row, tmp_path)
    assert complaints(result) == []
    for wrong, said in (
        ({"code": 2}, "ended with 1; wanted 2"),
        ({"text": "{who} (exit code 1): KeyError"}, "wanted one that begins with"),
        ({"text": ""}, "wanted none"),
        ({"says": "no such line"}, "does not say"),
    ):
        (complaint,) = complaints(replace(result, case=replace(row, **wrong)))
        assert said in complaint
    assert len(replays(result)) == len(row.names), "each host leaves what can be played again"
    (complaint,) = complaints(replace(result, left=("sleep 600",)))
    assert "left behind: sleep 600" in complaint


@pytest.mark.parametrize("way", ["orphan", "moves"])
def test_hidden_process_is_found_and_killed(tmp_path: Path, no_leftovers: str, way: str) -> None:
    """This includes a process that changes its pid all the time, by forking and exiting."""
    moves = (
        "import os, time; end = time.monotonic() + 1\n"
        "while time.monotonic() < end:\n    if os.fork(): os._exit(3)\n"
        f"os.execvp('sh', ['sh', '-c', 'sleep 600 & : {tmp_path}; wait'])"
    )
    hides = {"orphan": f"setsid sh -c 'sleep 600 & : {tmp_path}' & exit 3", "moves": f'exec python3 -c "{moves}"'}[way]
    subprocess.run([sys.executable, "-I", ALONE, tmp_path / "left.json", "sh", "-c", hides], check=True, timeout=60)
    report = json.loads((tmp_path / "left.json").read_text())
    assert report["code"] == 3
    assert report["left"]
    assert way == "moves" or "sleep 600" in report["left"].values()
