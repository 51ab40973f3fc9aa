"""Test the server of a TF_CONFIG task with a stand-in for TensorFlow; tests/cluster/test_image.py has the real one."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import write_files
from ports import unused_port

SERVER = Path(__file__).parents[3] / "entrypoint/programs/tf_server.py"
STAND_IN = Path(__file__).parents[2] / "stand_ins/tensorflow"


@contextmanager
def serving(packages: Path, role: str):
    """Start a server; yield its line of output, its command line at that time, and its port."""
    port = unused_port()
    config = {"cluster": {role: [f"localhost:{port}"]}, "task": {"type": role, "index": 0}}
    environment = {"TF_CONFIG": json.dumps(config), "PYTHONPATH": str(packages), "PATH": os.environ["PATH"]}
    with subprocess.Popen([sys.executable, str(SERVER)], env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            yield line, Path(f"/proc/{process.pid}/cmdline").read_text(), port
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def packages(tmp_path):
    """Make a folder with a TensorFlow that prints a line when it is imported whole."""
    shutil.copytree(STAND_IN, tmp_path / "tensorflow", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "tensorflow/__init__.py").open("a") as file:
        file.write("print('whole', flush=True)\n")
    return tmp_path


@pytest.mark.parametrize("role, said", [("ps", "serving ps 0 at grpc://localhost:{port}\n"), ("worker", "whole\n")])
def test_worker_server_imports_all_of_tensorflow_unlike_ps(packages, role, said):
    with serving(packages, role) as (line, _, port):
        assert line == said.format(port=port)


@pytest.mark.parametrize("broken", ["no such part", "no file system", "plugins"])
def test_tensorflow_is_imported_whole_if_a_part_is_missing(packages, broken):
    """This happens in the same process, because other processes watch its pid."""
    if broken == "no file system":
        write_files(packages, {"tensorflow_io/__init__.py": ""})
    elif broken == "plugins":
        (packages / "tensorflow-plugins").mkdir()
    else:  # one that needs what the package itself defines
        with (packages / "tensorflow/python/training/server_lib.py").open("a") as file:
            file.write("import tensorflow\nassert tensorflow.__file__\n")
    with serving(packages, "ps") as (line, command, _):
        assert line == "whole\n" and command.endswith("--whole\0")


def test_file_systems_are_registered_without_importing_tensorflow_io(packages):
    session = "def TF_RegisterFilesystemPlugin(name):\n    print(name, flush=True)\n"
    io = "raise SystemExit('imported')\n"
    write_files(packages, {"tensorflow/python/client/pywrap_tf_session.py": session, "tensorflow_io/__init__.py": io})
    with serving(packages, "ps") as (line, _, _):
        assert line == f"{packages}/tensorflow_io/python/ops/libtensorflow_io_plugins.so\n"
