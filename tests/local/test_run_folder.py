"""Test the folder of keys and sockets if it is full or unavailable, and its removal from /tmp."""

import os
import subprocess
import sys

import pytest
from waiting import eventually

NOTHING = "print('done')\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small folder")
def test_a_full_run_folder_is_reported_as_the_cause(hosts):
    job = hosts(1, code=NOTHING, absent=("algo-1",))
    run = job.base("algo-1") / "run"
    run.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "none", run], check=True)
    try:
        (run / "filler").write_bytes(bytes(8192))
        job.start("algo-1")
        first = job.must_end(65)
    finally:
        eventually(lambda: subprocess.run(["umount", run]).returncode == 0, within=60, what="the folder to be free")
    assert first.startswith(f"algo-1 prepare (exit code 65): nothing can be written to {run}: [Errno 28] No space left")


def test_job_with_a_broken_configuration_leaves_no_folder_in_tmp(hosts, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    job = hosts(2, code=NOTHING, environment={"TMPDIR": str(temporary)}, MODE="none such")
    assert job.end() == [78, 78]
    assert list(temporary.iterdir()) == []


def test_a_run_folder_in_tmp_is_removed_at_the_end(hosts, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    job = hosts(1, code=NOTHING, absent=("algo-1",))
    environment = {**job.environment, "SAGEMAKER_BASE_DIR": str(job.base("algo-1")), "TMPDIR": str(temporary)}
    code = (
        "from pathlib import Path; from entrypoint import train; from entrypoint.launcher import places; "
        "places.DEFAULT_RUN = Path('/proc/nowhere'); train.train()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "] done" in done.stdout
    assert list(temporary.iterdir()) == []
