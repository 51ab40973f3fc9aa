"""Test `entrypoint local --engine docker --fault`: the effect of each fault on containers, and the clean-up."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from containers import repeated, sh
from variants import variants

LOCAL_PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
BEFORE = "step 3;"  # a line that says that all is well under way
PATIENT = "ENTRYPOINT_PEER_TIMEOUT=60"  # for hosts that a busy machine may bring back later than asked
LABEL = "label=sagemaker-tf-entrypoint=local"
LONG = 180.0  # seconds; says when to give up


@dataclass
class Run:
    """The result of a finished `entrypoint local`."""

    code: int
    terminal: str
    folder: Path

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
        command += [*repeated("--fault", faults), *(["--env", env] if env else [])]
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


# Faults of processes, and pauses and cuts of some seconds, are in the test below these.
FATAL = {
    # fault: exit code of each host, and what is said
    f"kill algo-2 when '{BEFORE}'": (["69", "137", "69"], "failed: algo-2 (lost"),
    f"pause algo-2 when '{BEFORE}'": (
        ["69", "137", "69"],
        "only permanently paused hosts are left: killing algo-2",
    ),
    "stop all when 'step 10;'": (["143"] * 3, ""),  # by then, all hosts have been at work for a while
}


@pytest.mark.parametrize("fault", FATAL)
def test_a_fault_ends_the_job(local, fault):
    exits, says = FATAL[fault]
    run = local(fault)
    assert run.exits == exits and run.code == int(exits[0])
    assert says in run.terminal
    assert run.faults[0].startswith(f"fault: {fault}, after ")


def test_several_faults_happen_in_their_order(local):
    """The last fault waits for a late step, so that the earlier ones are over even on a busy machine."""
    faults = [
        "late algo-3 for 3",
        f"pause algo-2 when '{BEFORE}' for 2",
        "cut algo-2 when 'step 60;' for 3",
        "kill algo-3:worker/2 when 'step 300;'",
    ]
    run = local(*faults, env=PATIENT)
    assert run.exits == ["137"] * 3
    assert run.cause == "algo-3 worker/2 (killed by SIGKILL)"
    assert [fault.split()[1] for fault in run.faults] == ["late", "pause", "cut", "kill"]
    assert run.terminal.count("fault over after") == 3
    before = run.terminal.partition("\nfault over after ")[0]
    assert "[algo-3]" not in before and "started, pid" not in before


def test_job_waits_for_a_host_without_a_name(local):
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
ERRORS = {"fill": "No space left on device", "readonly": "Read-only file system"}


# The same faults of an output folder are rows of the outcome table.
@pytest.mark.parametrize("action", variants({action: action for action in ERRORS}, "fill"))
def test_full_model_folder_fails_the_script(local, tmp_path, action):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(FULL)
    run = local(f"{action} algo-2:model when 'worker/1] written'", program=tmp_path / "code" / "train.py")
    assert run.code == 1 and run.exits == ["1"] * 3
    assert run.cause.startswith("algo-2 worker/1 (exit code 1): OSError: ") and ERRORS[action] in run.cause
    assert ("the open one takes more" in run.terminal) == (action == "readonly")
    model = run.folder / "algo-2/ml/model"
    assert (model / "before").read_text() == "before"
    assert not list(model.rglob(".full"))
