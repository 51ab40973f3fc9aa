"""Test `entrypoint host`: its files in /opt/ml, its refusals, and its exec of the launcher."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import write

from entrypoint.simulate.tree import MARKER

ENTRYPOINT = Path(sys.executable).with_name("entrypoint")


TRAINS = """
import os, pathlib, sys
rows = sorted(path.name for path in pathlib.Path(os.environ['SM_CHANNEL_TRAINING']).iterdir())
print('trains', sys.argv[1:], rows, os.environ['GREETING'])
pathlib.Path(os.environ['SM_MODEL_DIR'], 'model.txt').write_text('trained')
"""


@pytest.fixture
def project(tmp_path):
    """Make a folder with a script and rows."""
    write(tmp_path / "src/train.py", TRAINS)
    for name in "abc":
        write(tmp_path / "rows" / name, name)
    return tmp_path


def host(project, *words):
    """Run `entrypoint host WORDS` in the project's folder, with /opt/ml in its `ml`."""
    path = f"{ENTRYPOINT.parent}{os.pathsep}{os.environ['PATH']}"
    ours = {"SAGEMAKER_BASE_DIR": str(project / "ml"), "ENTRYPOINT_RUN_DIR": str(project / "run"), "PATH": path}
    return subprocess.run(
        [ENTRYPOINT, "host", *words], cwd=project, env={**os.environ, **ours}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240,
    )  # fmt: skip


ALONE = ("algo-1", "src/train.py", "--hosts", "1", "--mode", "single")


def test_entrypoint_host_becomes_the_launcher_in_an_emptied_opt_ml(project):
    for channel in ("training=rows", "training=rows/,mode=FastFile"):
        ended = host(project, *ALONE, "--hyperparameters", "lr=0.1", "--env", "GREETING=hi", "--channel", channel)
        assert ended.returncode == 0, ended.stdout
        assert "trains ['--lr', '0.1'] ['a', 'b', 'c'] hi" in ended.stdout
        assert (project / "ml/model/model.txt").read_text() == "trained"
        assert not (project / "ml/model/old").exists()
        (project / "ml/model/old").write_text("of this run")


@pytest.mark.parametrize(
    "words, code, says",
    [
        (["--hosts", "0"], 78, "the number of hosts (COMPOSE_PROFILES) is '0'; wanted a whole number"),
        (["--hosts", "many"], 78, "the number of hosts (COMPOSE_PROFILES) is 'many'; wanted a whole number"),
        (["--hosts", "9", "--most", "8"], 78, "is '9'; wanted a whole number from 1 to 8"),
        (["--mode", "mwsm"], 78, "--mode is 'mwsm'; wanted one of auto, single, ps, mwms, mpi"),
        (["--channel", "training=nosuch"], 78, "there is no such folder"),
        (["--channel", "a=rows,mode=Pipe"], 78, "--channel a has mode Pipe"),
        (["--hyperparameters", "epochs"], 78, "--hyperparameters has 'epochs'; wanted name=value"),
        (["--source", "nosuch"], 65, "there is no program src/train.py in --source nosuch"),
    ],
)
def test_options_that_describe_no_job_are_refused(project, words, code, says):
    (project / "ml/model").mkdir(parents=True)
    (project / "ml" / MARKER).touch()
    (project / "ml/model/kept").touch()
    ended = host(project, "algo-1", "src/train.py", *words)
    assert (ended.returncode, ended.stdout.count("\n")) == (code, 1), ended.stdout
    assert ended.stdout.startswith("error: ")
    assert says in ended.stdout
    assert (project / "ml/model/kept").exists(), "a job that cannot be leaves an earlier run's model alone"


def test_a_service_beyond_the_number_of_hosts_is_refused(project):
    ended = host(project, "algo-3", "src/train.py", "--hosts", "2")
    assert ended.returncode == 78
    assert "this is algo-3, and the job has 2 host(s)" in ended.stdout


def test_folder_with_other_files_is_refused_and_kept(project):
    (project / "ml").mkdir()
    (project / "ml/thesis.txt").write_text("all of it")
    ended = host(project, *ALONE)
    assert ended.returncode == 78
    assert "is not empty (it has thesis.txt)" in ended.stdout
    assert (project / "ml/thesis.txt").read_text() == "all of it"
