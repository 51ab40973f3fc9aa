"""A host that allows the launcher too few processes, threads or file descriptors: the others hear of it in seconds.

Root is bound by no RLIMIT_NPROC, so processes are limited by a control group.
"""

import contextlib
import os
import uuid
from pathlib import Path

import pytest
from waiting import eventually

SLEEPS = "import time\ntime.sleep(600)\n"
SHELL = ["sh", "-c"]


@pytest.fixture
def group():
    """A control group for processes; where none can be made, the test says so."""
    roots = [Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")]
    made, why = None, "there is no control group for processes"
    for root in roots:
        folder = root / f"entrypoint-test-{uuid.uuid4().hex[:8]}"
        with contextlib.suppress(FileNotFoundError):
            try:
                folder.mkdir()
                (folder / "pids.max").write_text("max")
                (folder / "cgroup.procs").write_text("")
            except FileNotFoundError:
                folder.rmdir()
            except OSError as error:
                why = f"{root} cannot be written: {error}"
                with contextlib.suppress(OSError):
                    folder.rmdir()
            else:
                made = folder
                break
    if made is None:
        why = f"cannot limit the processes of a host here: {why}"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(why)
    yield made

    def gone() -> bool:
        with contextlib.suppress(OSError):
            made.rmdir()
        return not made.exists()

    eventually(gone, within=60)


def check(job, victim: str) -> None:
    """All hosts end, with the same code and words, which name who lacks what."""
    codes = job.end(within=120)  # the start timeout is ten times as long
    assert len(set(codes)) == 1 and codes[0] in (1, 70, 127), str(job)
    assert len({text.splitlines()[0] for text in job.failures}) == 1, str(job)
    text = job.failures[0]
    assert text.startswith(victim), text
    if codes[0] == 70:
        assert "(fault of the launcher)" in text and "this host allows" in text
    elif codes[0] == 127:
        assert "(cannot be started)" in text
    else:  # the first of our programs was started, and could start nothing itself
        assert " prepare (exit code 1): " in text and "Resource temporarily unavailable" in text


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_too_few_processes(hosts, group, victim, most):
    (group / "pids.max").write_text(str(most))
    enter = [*SHELL, f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    job = hosts(3, "train.py", code={"train.py": SLEEPS}, before={victim: enter})
    check(job, victim)


@pytest.mark.parametrize("most", [6, 10, 16, 20, 24, 26, 28])
@pytest.mark.parametrize("victim", ["algo-1", "algo-2"])
def test_too_few_file_descriptors(hosts, victim, most):
    job = hosts(
        3, "train.py", code={"train.py": SLEEPS}, before={victim: [*SHELL, f'ulimit -n {most}; exec "$@"', "sh"]}
    )
    check(job, victim)


def test_a_job_of_one_host_says_what_it_lacks(hosts):
    job = hosts(1, "train.py", code={"train.py": SLEEPS}, before={"algo-1": [*SHELL, 'ulimit -n 10; exec "$@"', "sh"]})
    assert job.end() == [70]
    assert "this host allows 10 open files" in job.failures[0]
