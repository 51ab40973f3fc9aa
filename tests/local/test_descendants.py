"""Test that all descendants of the user's programs get SIGTERM once, and time to end."""

import re

import pytest

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
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "save.py"], start_new_session=True)
child.wait()
"""
IN_BACKGROUND = "#!/bin/sh\n(setsid python3 save.py &)\nsleep 600\necho over\n"
BY_TIMEOUT = "#!/bin/sh\ntimeout 100 python3 save.py\necho over\n"


# What has a session of its own, what has lost its parents, and what hears SIGTERM from others, too: `timeout` sends it
# to its child and to its group.
@pytest.mark.parametrize(
    "mode, program, text, times",
    [
        ("mpi", "train.sh", IN_BACKGROUND, "1"),
        ("single", "train.py", PYTHON, "1"),
        ("single", "train.sh", BY_TIMEOUT, "12"),
    ],
    ids=["in the background, twice removed", "in a session of its own, below one that ignores SIGTERM", "timeout"],
)
def test_process_outside_the_process_group_saves_after_sigterm(hosts, mode, program, text, times):
    count, scripts = (2, 2) if mode == "mpi" else (1, 1)
    job = hosts(
        count, program, code={program: text, "save.py": SAVES}, mode=mode, each=2 if mode == "mpi" else 0, STOP_GRACE=20
    )
    job.stop(when="trains" if scripts == 1 else r"trains(.|\n)*trains")
    codes = job.end()
    assert len(set(codes)) == 1 and codes[0] in (0, 143)
    for host in job.hosts.values():
        saved = sorted((host.base / "model").glob("saved*"))
        assert len(saved) == scripts and all(path.read_text() in times for path in saved)
        assert len(re.findall(r"\] saved", host.log)) == scripts
        assert not re.search("(script|rank .) stopped: killed by SIGKILL", host.log)


def test_log_names_the_daemon_of_a_script_that_is_terminated(hosts):
    code = """
import subprocess
print("pid", subprocess.Popen(["sleep", "600"], start_new_session=True).pid, flush=True)
"""
    job = hosts(1, code=code)
    job.must_end(0)
    pid = job.says(r"\] pid (\d+)")[1]
    assert f"killed processes that scripts left running: pid {pid} (sleep)\n" in job[1].log


def test_program_started_by_a_sigterm_handler_gets_no_sigterm(hosts):
    """A handler saves, then starts a program that copies the files. SIGTERM would kill that program."""
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
    job = hosts(1, code=code, STOP_GRACE=20)
    job.stop(when="trains")
    job.must_end(0)
    assert (job[1].base / "model/saved").exists()


def test_daemon_without_a_known_script_gets_sigterm_once(hosts):
    """The daemon was started with a clean environment, which does not show to which script it belongs."""
    train = """
import json, os, signal, subprocess, sys, time
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 0:
    clean = f"SM_MODEL_DIR={os.environ['SM_MODEL_DIR']}"
    subprocess.run(["sh", "-c", f"setsid env -i {clean} {sys.executable} -u save.py &"], check=True)
signal.signal(signal.SIGTERM, lambda *_: time.sleep(2) or sys.exit(0))
time.sleep(600)
"""
    job = hosts(1, code={"train.py": train, "save.py": SAVES}, mode="mwms", each=2, STOP_GRACE=30)
    job.stop(when="trains")
    job.end()
    assert (job[1].base / "model/saved").read_text() == "1"
