"""Provide the local ring: real processes and sockets on loopback."""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from hosts import PROGRAMS, ROOT, Hosts, Run, clean_environment, need_mpi, write

# Files of tests whose launchers are measured: all of them would take a third more time.
COVERED = ("test_one_host", "test_several_hosts")

# Files of tests whose jobs run without the monitor, which costs a fifth of a small job and is not their subject. Jobs
# of the outcome table, of chaos, of `entrypoint local` and of the other files here have it, as users have.
WITHOUT_MONITOR = (
    "test_descendants", "test_doctor_remedies", "test_evaluator", "test_foreign_local", "test_gpu_check",
    "test_hyperparameters", "test_instance_groups", "test_mpi", "test_outputs", "test_ps_ends", "test_shards",
    "test_user_code_local",
)  # fmt: skip


@pytest.fixture(autouse=True)
def covered(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processes of some tests record their coverage, if tests/run.sh wants it."""
    if (settings := os.environ.get("TEST_COVERAGE")) and request.path.stem in COVERED:
        monkeypatch.setenv("COVERAGE_PROCESS_START", settings)


@pytest.fixture(autouse=True)
def tensorflow(request: pytest.FixtureRequest) -> None:
    """Skip tests that need TensorFlow if it is not installed. Do not import it, which takes seconds."""
    if request.node.get_closest_marker("tensorflow") and not find_spec("tensorflow"):
        pytest.skip("needs TensorFlow")


@pytest.fixture
def hosts(tmp_path, no_leftovers, request):
    """Start hosts of one job. Print all logs if the test fails, and end all processes after the test."""
    made: list[Hosts] = []

    monitor = {"ENTRYPOINT_MONITOR": "false"} if request.path.stem in WITHOUT_MONITOR else {}

    def start(count: int = 1, program: str = "train.py", **options) -> Hosts:
        options["environment"] = {**monitor, **(options.get("environment") or {})}
        job = Hosts(tmp_path / f"job{len(made)}", count, program, **options)
        made.append(job)
        return job.__enter__()

    yield start
    for job in made:
        job.close()
        alive = [host.name for host in job.hosts.values() if host.process.poll() is None]
        print(job)
        for name in alive:
            job.hosts[name].process.kill()
            job.hosts[name].process.wait()
        if alive:  # the test failed before they ended: nobody is there to end their processes
            job.__exit__()


@pytest.fixture
def local(tmp_path, no_leftovers):
    """Start `entrypoint local`; kill it if the test did not wait for its end.

    `program` is a path, one of tests/programs, or the text of a script. `env`: variables of the hosts alone.
    """
    runs = []

    def start(
        program: Path | str, *words: str, count: int = 0, mode: str = "", engine: str = "", faults=(), output="out",
        env: dict[str, str] | None = None, **environment: str,
    ) -> Run:  # fmt: skip
        if mode == "mpi":
            need_mpi()
        folder = tmp_path / f"run{len(runs)}"
        folder.mkdir()
        if "\n" in str(program):
            program = write(folder / "code/train.py", str(program))
        elif (PROGRAMS / program).is_file():
            program = PROGRAMS / program
        for option, values in {
            "--hosts": [count] if count else [], "--mode": [mode] if mode else [], "--fault": faults,
            "--engine": [engine] if engine else [], "--env": [f"{name}={value}" for name, value in (env or {}).items()],
        }.items():  # fmt: skip
            words += tuple(word for value in values for word in (option, str(value)))
        command = [sys.executable, "-m", "entrypoint", "local", str(program), "--output", str(folder / output), *words]
        with (folder / "terminal.txt").open("wb") as terminal:
            process = subprocess.Popen(
                command, env=clean_environment(**{"PYTHONPATH": str(ROOT), **environment}), cwd=tmp_path,
                stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.STDOUT,
            )  # fmt: skip
        runs.append(Run(process, folder))
        return runs[-1]

    yield start
    for run in runs:
        print(run.terminal)
        if run.process.poll() is None:  # the test failed before it ended
            run.process.kill()
            run.process.wait()


def why_no_netns() -> str:
    if os.geteuid() != 0:
        return "--engine netns needs root"
    lacks = [tool for tool in ("ip", "nsenter") if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin:/sbin")]
    return f"--engine netns lacks {', '.join(lacks)}" if lacks else ""


@pytest.fixture
def shared():
    """Return a folder that all hosts see, even if each has its own /tmp."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def engine() -> str:
    """Return the namespace engine, or the process engine on a machine without namespaces."""
    return "process" if why_no_netns() else "netns"


@pytest.fixture
def netns() -> str:
    """Return the namespace engine. Without root, a user's machine skips the test; with CI=true it fails."""
    if problem := why_no_netns():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(problem)
    return "netns"
