"""Test successful jobs: the host, the arguments and the environment of each process."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from containers import PROGRAMS, Cluster, sh

from images import ROOT

# What a shell, a JSON reader or a careless join of words would damage; 2,500 characters is SageMaker's limit.
NASTY = 'it\'s "$(touch /tmp/harm)" `id` $HOME \\ * ; & | <é 日本 \U0001f600>\n\tsecond line\n--not-an-option '
NASTY = (NASTY * 60)[:2500]


# Of the other modes tests/configs has the plans; training in them: test_cluster_foreign.py, test_cluster_compose.py.
def test_ranks_have_the_environment_of_their_host(
    cluster: Callable[..., Cluster], figure: Callable[[str, float], None]
) -> None:
    options = "-x FROM_OPTIONS=yes --mca btl_base_verbose 0"
    colours = {"algo-1": "blue", "algo-10": "red $HOME", "algo-2": "green"}  # in the order of their names
    with cluster(
        program="tells.py",
        mode="mpi",
        hosts=colours,
        hyperparameters={
            "text": NASTY,
            "epochs": 3,
            "flag": True,
            "sagemaker_mpi_num_of_processes_per_host": 2,
            "sagemaker_mpi_custom_mpi_options": options,
        },
        environment={"COLOUR": "blue", "TEXT": 'multi\nline "$(id)"'},
        host_environment={host: {"COLOUR": colours[host]} for host in ("algo-10", "algo-2")},
    ) as job:
        endings = job.all_end()
        assert not any("Traceback" in ending.log for ending in endings)
        ends = [ending.finished for ending in endings]
        assert max(ends) - min(ends) < 60, "hosts of one job end together"
        figure("from the first container's start to the last one's end", max(ends) - min(e.started for e in endings))
        for number, ending in enumerate(endings):
            # Beside them the coordinator's has what the monitor leaves: test_cluster_monitor.py.
            assert list(ending.told) == [f"rank-{number * 2}", f"rank-{number * 2 + 1}"]
            for local, facts in enumerate(ending.told.values()):
                assert (facts["size"], facts["sum"]) == (6, 21)
                env = facts["env"]
                assert env["SM_CURRENT_HOST"] == ending.host
                assert json.loads(env["SM_HOSTS"]) == list(colours)
                assert env["COLOUR"] == colours[ending.host]
                assert env["TEXT"] == 'multi\nline "$(id)"'
                assert env["OMPI_COMM_WORLD_LOCAL_RANK"] == str(local)
                assert env["FROM_OPTIONS"] == "yes"
                assert facts["argv"] == ["--epochs", "3", "--flag", "True", "--text", NASTY]
                assert facts["cwd"] == "/opt/ml/code"
                assert json.loads(env["SM_HPS"])["text"] == NASTY
                assert facts["hostname"] == f"ip-10-0-0-{number + 1}.ec2.internal"
        command = endings[0].line("running mpirun")
        assert 0 < command.index("--bind-to") < command.index(options), "the user's options come last"


def test_entrypoint_local_runs_hosts_as_containers(image: str, tmp_path: Path) -> None:
    """A user with Docker does this before sending a job to SageMaker."""
    command = (str(Path(sys.executable).with_name("entrypoint")), "local", str(PROGRAMS / "tells.py"))
    words = ("--engine", "docker", "--image", image, "--hosts", "2", "--mode", "mwms", "--output", "out")
    more = ("--hyperparameters", "epochs=3", "--env", "COLOUR=deep blue")
    result = sh(*command, *words, *more, within=120, cwd=tmp_path)
    for number, host in enumerate(("algo-1", "algo-2")):
        assert f"[{host} worker/{number}] told" in result.stdout
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").rglob("alone.json"))]
    assert [each["argv"] for each in found] == [["--epochs", "3"]] * 2
    assert {each["env"]["SM_CURRENT_HOST"] for each in found} == {"algo-1", "algo-2"}
    assert {each["env"]["COLOUR"] for each in found} == {"deep blue"}


def test_hosts_are_containers_on_macos(image: str, tmp_path: Path) -> None:
    """Run a job with a Python that lacks what a Mac's does. What else differs there is not here."""
    places = os.pathsep.join(map(str, (ROOT / "tests/macos", ROOT)))
    mac = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": places}, "within": 120}
    (tmp_path / "train.py").write_text("import os\nprint('step=1 on', os.environ['SM_CURRENT_HOST'])\n")
    words = ("train.py", "--hosts", "2", "--mode", "single", "--image", image, "--output", "out")
    result = sh(sys.executable, "-m", "entrypoint", "local", *words, **mac)
    assert "engine docker" in result.stdout and "step=1 on algo-2" in result.stdout
    assert "exit code 0" in sh(sys.executable, "-m", "entrypoint", "top", "out", "--once", **mac).stdout
