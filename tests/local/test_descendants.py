"""Test that a stop reaches all descendants of the user's programs and gives them time; each gets SIGTERM once."""

import re
import shutil
import signal
from pathlib import Path

import pytest
from variants import variants

SINGLE: dict[str, str] = {}
MPI = {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}

# As people write it: SIGTERM is an exception in the training loop, and saving takes its time.
SAVES = """
import os, pathlib, signal, sys, time
heard = []
def stop(*_):
    heard.append(time.time())
    print("hears SIGTERM", flush=True)
    if len(heard) == 1:
        sys.exit(0)
signal.signal(signal.SIGTERM, stop)
try:
    print("trains", flush=True)
    time.sleep(600)
finally:
    end = time.monotonic() + 2.5
    while time.monotonic() < end:
        time.sleep(0.1)
    rank = os.environ.get("OMPI_COMM_WORLD_RANK", "")
    pathlib.Path(os.environ["SM_MODEL_DIR"], "saved" + rank).write_text(str(len(heard)))
    print("saved", flush=True)
"""
PYTHON = """
import signal, subprocess, sys
{first}
child = subprocess.Popen([sys.executable, "save.py"], start_new_session=True)
child.wait()
"""
SHELL = "#!/bin/sh\n{}\necho over\n"
PROGRAMS = {
    "timeout": ("train.sh", SHELL.format("timeout 100 python3 save.py")),
    "setsid -w": ("train.sh", SHELL.format("setsid -w python3 save.py")),
    "no exec": ("train.sh", SHELL.format("python3 save.py")),
    "a shell that is told and waits": ("train.sh", SHELL.format("trap 'echo told' TERM\nsetsid -w python3 save.py")),
    "in the background, twice removed": (
        "train.sh",
        SHELL.format("(setsid python3 save.py &)\nsleep 600"),
    ),
    "start_new_session": ("train.py", PYTHON.format(first="")),
    "start_new_session, and SIGTERM ignored": (
        "train.py",
        PYTHON.format(first="signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
    ),
    "start_new_session, and passed on": (
        "train.py",
        PYTHON.format(first="signal.signal(signal.SIGTERM, lambda *_: child.terminate())"),
    ),
}


BOTH = {f"{way}, {mode}": (way, how) for way in PROGRAMS for mode, how in (("single", SINGLE), ("mpi", MPI))}
# The launcher finds what has a session of its own, what has lost its parents, and what hears SIGTERM from others, too.
ALWAYS = ("in the background, twice removed, mpi", "start_new_session, and SIGTERM ignored, single", "timeout, single")


@pytest.mark.parametrize("way, mode", variants(BOTH, *ALWAYS))
def test_work_outside_the_process_group_is_saved(hosts, way, mode):
    if mode is MPI and not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()):
        pytest.skip("needs Open MPI and an ssh daemon")
    name, text = PROGRAMS[way]
    count = 2 if mode is MPI else 1
    if mode is MPI:
        pytest.importorskip("mpi4py")
    job = hosts(count, name, code={name: text, "save.py": SAVES}, hyperparameters=mode,
                environment={"ENTRYPOINT_STOP_GRACE": "20"})  # fmt: skip
    scripts = 2 if mode is MPI else 1
    job.all_say("trains" if scripts == 1 else r"trains(.|\n)*trains")
    job.signal(signal.SIGTERM)
    codes = job.end()
    assert len(set(codes)) == 1 and codes[0] in (0, 143)
    for host in job.hosts.values():
        saved = sorted((host.base / "model").glob("saved*"))
        times = "12" if way == "timeout" else "1"  # it sends SIGTERM to its child and to its group
        assert len(saved) == scripts and all(path.read_text() in times for path in saved)
        assert len(re.findall(r"\] saved", host.log)) == scripts
        assert not re.search("(script|rank .) stopped: killed by SIGKILL", host.log)


def test_a_daemon_that_a_script_leaves_is_named_when_it_is_ended(hosts):
    job = hosts(1, "train.py", code={"train.py": """
import subprocess
print("pid", subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
"""})  # fmt: skip
    assert job.end() == [0]
    pid = job.says(r"\] pid (\d+)")[1]
    assert f"killed processes that scripts left running: pid {pid} (sleep)\n" in job[1].log


def test_what_saving_starts_is_left_to_it(hosts):
    """A handler copies what it saved by a program of its own, which would die of SIGTERM."""
    code = """
import os, signal, subprocess, sys, time
def stop(*_):
    time.sleep(0.1)
    path = os.path.join(os.environ["SM_MODEL_DIR"], "saved")
    subprocess.run(["sh", "-c", f"sleep 4; touch {path}"], start_new_session=True, check=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
print("trains", flush=True)
time.sleep(600)
"""
    job = hosts(1, "train.py", code={"train.py": code}, environment={"ENTRYPOINT_STOP_GRACE": "20"})
    job.says("trains")
    job.signal(signal.SIGTERM)
    assert job.end() == [0]
    assert (job[1].base / "model/saved").exists()


def test_what_belongs_to_none_of_several_scripts_hears_sigterm_once(hosts):
    """Its environment does not show whose it is: a daemon that was started with a clean one."""
    train = """
import json, os, signal, subprocess, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    clean = f"SM_MODEL_DIR={os.environ['SM_MODEL_DIR']}"
    subprocess.run(["sh", "-c", f"setsid env -i {clean} {sys.executable} -u save.py &"], check=True)
signal.signal(signal.SIGTERM, lambda *_: time.sleep(2) or sys.exit(0))
time.sleep(600)
"""
    job = hosts(1, "train.py", code={"train.py": train, "save.py": SAVES}, environment={
        "ENTRYPOINT_STOP_GRACE": "30", "ENTRYPOINT_MODE": "mwms", "ENTRYPOINT_PROCESSES_PER_HOST": "2",
    })  # fmt: skip
    job.says("trains")
    job.signal(signal.SIGTERM)
    job.end()
    assert (job[1].base / "model/saved").read_text() == "1"
