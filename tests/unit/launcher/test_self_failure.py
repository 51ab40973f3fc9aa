"""Test launcher/self_failure.py: how the launcher ends after a fault that prevents even its log."""

import fcntl
import os
import subprocess
import sys

import pytest

PROGRAM = (
    "import os; from entrypoint.launcher import self_failure; "
    "os._exit(self_failure.end_without_log(OSError('no log'), []))"
)


@pytest.mark.parametrize("is_read", [True, False])
def test_fault_without_a_log_reaches_stdout_and_failure_file(tmp_path, is_read):
    (tmp_path / "output").mkdir()
    reader, writer = os.pipe()
    full = b"-" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
    if not is_read:
        os.write(writer, full)
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], stdout=writer, env=environment, timeout=240)
    os.close(writer)
    with open(reader, "rb") as stdout:
        assert (b"OSError: no log" in stdout.read()) is is_read
    assert ended.returncode == 70 and "no log" in (tmp_path / "output" / "failure").read_text()
