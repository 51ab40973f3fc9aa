"""Test `entrypoint local --engine docker --fault`: what each fault does to containers, and that nothing is left."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from containers import sh

LOCAL_PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
BEFORE = "step 3;"  # a line that says that all is well under way
PATIENT = "ENTRYPOINT_PEER_TIMEOUT=60"  # for hosts that a busy machine may bring back later than asked
LABEL = "label=sagemaker-tf-entrypoint=local"
LONG = 180.0  # seconds; says when to give up


@dataclass
class Run:
    """What a finished `entrypoint local` left."""

    code: int
    terminal: str
    folder: Path

    def ml(self, number: int) -> Path:
        return self.folder / f"algo-{number}" / "ml"

    @property
    def exits(self) -> list[str]:
        return re.findall(r"^algo-\d+ +(\S+)", self.terminal.partition("tail s")[2], re.MULTILINE)

    @property
    def cause(self) -> str:
        return self.terminal.partition("\nfailed: ")[2].partition("\n")[0]

    @property
    def faults(self) -> list[str]:
        return re.findall(r"^fault.*$", self.terminal.partition("tail s")[2], re.MULTILINE)


def left_by(pid: int) -> list[str]:
    """Return the containers, networks and volumes of the local run with this pid, which is in their names."""
    found: list[str] = []
    for words in (
        ("ps", "--all", "--format", "{{.Names}}"),
        ("network", "ls", "--format", "{{.Name}}"),
        ("volume", "ls", "--format", "{{.Name}}"),
    ):
        found += sh("docker", *words, "--filter", LABEL).stdout.split()
    return [name for name in found if name.startswith(f"entrypoint-{pid}-")]


@pytest.fixture
def local(image: str, tmp_path: Path) -> Callable[..., Run]:
    """Run a job on three containers to its end."""

    def start(*faults: str, steps: int = 1200, program: Path = LOCAL_PROGRAMS / "beats.py", env: str = "") -> Run:
        command = [str(Path(sys.executable).with_name("entrypoint")), "local", str(program), "--hosts", "3"]
        command += ["--mode", "mwms", "--engine", "docker", "--image", image, "--output", str(tmp_path / "out")]
        command += ["--hyperparameters", f"steps={steps}"] if program.name == "beats.py" else []
        command += [word for fault in faults for word in ("--fault", fault)] + (["--env", env] if env else [])
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=tmp_path, text=True
        ) as run:
            try:
                terminal, _ = run.communicate(timeout=LONG)
            finally:
                run.terminate()
        print(terminal)
        assert not left_by(run.pid)
        return Run(run.returncode, terminal, tmp_path / "out")

    return start


@pytest.mark.parametrize(
    ("victim", "exits"),
    [(2, ["69", "137", "69"]), pytest.param(1, ["137", "69", "69"], marks=pytest.mark.more)],
)
def test_kill_a_host(local, victim, exits):
    run = local(f"kill algo-{victim} when '{BEFORE}'")
    assert run.exits == exits and run.code == int(exits[0])
    assert f"algo-{victim} (lost" in run.cause
    assert run.faults[0].startswith(f"fault: kill algo-{victim} when '{BEFORE}', after ")


@pytest.mark.more  # one after the other, below
# As the plan calls it, and by its program.
@pytest.mark.parametrize("process", ["worker/1", pytest.param("beats.py", marks=pytest.mark.more)])
def test_kill_a_process(local, process):
    run = local(f"kill algo-2:{process} when '{BEFORE}'")
    assert run.exits == ["137"] * 3
    assert run.cause == "algo-2 worker/1 (killed by SIGKILL)"


@pytest.mark.parametrize("whom", [pytest.param("algo-3", marks=pytest.mark.more), "all"])
def test_stop(local, whom):
    run = local(f"stop {whom} when 'step 10;'", steps=600)  # by then, all hosts have been at work for a while
    assert run.code == 143 and run.exits == ["143"] * 3
    assert run.faults[0].startswith(f"fault: stop {whom} when 'step 10;', after ")


@pytest.mark.more  # one after the other, below
def test_pause_for_less_than_the_peer_timeout(local):
    run = local(f"pause algo-2 when '{BEFORE}' for 2", steps=60, env=PATIENT)
    assert run.code == 0 and run.exits == ["0"] * 3
    assert "fault over after" in run.terminal


def test_pause_for_good(local):
    run = local(f"pause algo-2 when '{BEFORE}'")
    assert run.exits == ["69", "137", "69"]
    assert "only permanently paused hosts are left: killing algo-2" in run.terminal


@pytest.mark.more  # local/test_faults.py has it without containers
def test_pause_a_process(local):
    run = local(f"pause algo-2:worker/1 when '{BEFORE}' for 2", steps=30)
    assert run.code == 0
    assert "fault over after" in run.terminal


@pytest.mark.more  # one after the other, below
def test_cut_for_less_than_the_peer_timeout(local):
    run = local(f"cut algo-2 when '{BEFORE}' for 3", steps=300, env=PATIENT)
    assert run.code == 0 and run.exits == ["0"] * 3
    assert "fault over after" in run.terminal


@pytest.mark.more  # local/test_faults.py has it without containers
@pytest.mark.parametrize("victim", [1, 3])
def test_cut_for_good(local, victim):
    run = local(f"cut algo-{victim} when '{BEFORE}'")
    assert run.code == 69 and run.exits == ["69"] * 3


@pytest.mark.more  # one after the other, below
def test_late(local):
    run = local("late algo-2 for 5", steps=3)
    assert run.code == 0
    before = run.terminal.partition("\nfault over after ")[0]
    assert "[algo-2]" not in before and "started, pid" not in before


def test_faults_one_after_the_other(local):
    """The last one waits for a step that is a long way off, as a busy machine takes its time for each."""
    faults = [
        "late algo-3 for 3",
        f"pause algo-2 when '{BEFORE}' for 2",
        "cut algo-2 when 'step 60;' for 3",
        "kill algo-3:worker/2 when 'step 300;'",
    ]
    run = local(*faults, steps=1200, env=PATIENT)
    assert run.exits == ["137"] * 3
    assert run.cause == "algo-3 worker/2 (killed by SIGKILL)"
    assert [fault.split()[1] for fault in run.faults] == ["late", "pause", "cut", "kill"]
    assert run.terminal.count("fault over after") == 3
    before = run.terminal.partition("\nfault over after ")[0]
    assert "[algo-3]" not in before and "started, pid" not in before


def test_hide(local):
    run = local("hide algo-2 for 8", steps=3)
    assert run.code == 0
    assert "started, pid" not in run.terminal.partition("\nfault over after ")[0]
    names = (run.folder / "algo-1" / "hosts").read_text()
    assert re.search(r"^[\d.]+ algo-2$", names, re.MULTILINE)


FULL = """
import os, sys, time
folder = os.environ["SM_MODEL_DIR"]
open_one = open(folder + "/open", "w")
open(folder + "/before", "w").write("before")
print("written", flush=True)
for number in range(600):
    try:
        with open(f"{folder}/{number}", "w") as file:
            file.write("x" * 5000)
    except OSError:
        open_one.write("x" * 5000)
        open_one.flush()
        print("the open one takes more", flush=True)
        raise
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("fill", "No space left on device"),
        pytest.param("readonly", "Read-only file system", marks=pytest.mark.more),
    ],
)
def test_a_model_folder_that_takes_no_more(local, tmp_path, action, error):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(FULL)
    run = local(f"{action} algo-2:model when 'worker/1] written'", program=tmp_path / "code" / "train.py")
    assert run.code == 1 and run.exits == ["1"] * 3
    assert run.cause.startswith("algo-2 worker/1 (exit code 1): OSError: ") and error in run.cause
    assert ("the open one takes more" in run.terminal) == (action == "readonly")
    assert (run.ml(2) / "model" / "before").read_text() == "before"
    assert not list(run.ml(2).rglob(".full"))


@pytest.mark.more  # the outcome table has it; a model folder is above
@pytest.mark.parametrize("action", [pytest.param("fill", marks=pytest.mark.more), "readonly"])
def test_a_failed_job_with_an_output_folder_that_takes_no_more(local, tmp_path, action):
    """The failure file cannot be written: the job fails all the same, with the same cause."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(
        "import time\nprint('here', flush=True)\ntime.sleep(4)\nraise ValueError('row 17')\n"
    )
    run = local(f"{action} algo-2:output when 'worker/1] here'", program=tmp_path / "code" / "train.py")
    assert run.code == 1 and run.exits == ["1"] * 3
    assert "ValueError: row 17" in run.cause


@pytest.mark.more  # local/test_faults.py has it without containers
def test_what_never_happens_is_said(local):
    run = local("kill algo-2:nobody", "kill algo-1 when 'a text that nobody writes'", steps=3)
    assert run.code == 0
    assert run.faults == [
        "fault never happened: kill algo-2:nobody",
        "fault never happened: kill algo-1 when 'a text that nobody writes'",
    ]
