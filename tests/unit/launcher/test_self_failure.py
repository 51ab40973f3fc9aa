"""Test launcher/self_failure.py: a fault that leaves not even a log."""

import fcntl
import os
import subprocess
import sys

PROGRAM = (
    "import os; from entrypoint.launcher import self_failure; "
    "os._exit(self_failure.end_without_log(OSError('no log'), []))"
)


def test_a_fault_without_a_log_ends_though_nobody_reads_stdout(tmp_path):
    (tmp_path / "output").mkdir()
    reader, writer = os.pipe()
    os.write(writer, b"-" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=writer, env=environment) as process:
        try:
            assert process.wait(timeout=240) == 70
        finally:
            process.kill()
            os.close(reader)
            os.close(writer)
    assert "no log" in (tmp_path / "output" / "failure").read_text()


def test_a_fault_without_a_log_is_printed_to_stdout(tmp_path):
    (tmp_path / "output").mkdir()
    environment = {**os.environ, "SAGEMAKER_BASE_DIR": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, env=environment, timeout=240)
    assert ended.returncode == 70 and b"OSError: no log" in ended.stdout
