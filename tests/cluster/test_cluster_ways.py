"""Test jobs that end well, one for each mode: where each process runs, and what it is given."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from containers import PROGRAMS, Cluster, Ending, run_alone, sh

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

# What a shell, a JSON reader or a careless join of words would damage; 2,500 characters is SageMaker's limit.
NASTY = 'it\'s "$(touch /tmp/harm)" `id` $HOME \\ * ; & | <é 日本 \U0001f600>\n\tsecond line\n--not-an-option '
NASTY = (NASTY * 60)[:2500]
WORKERS = [f"worker/{number}" for number in range(3)]


def told(ending: Ending, name: str = "alone") -> dict:
    return json.loads((ending.ml / f"output/data/{name}.json").read_text())


def all_well(endings: dict[str, Ending]) -> None:
    for ending in endings.values():
        assert ending.exit_code == 0, ending.host
        assert ending.failure is None
        assert "Traceback" not in ending.log
    ends = [ending.finished for ending in endings.values()]
    assert max(ends) - min(ends) < 60, "hosts of one job end together"


@pytest.mark.parametrize("mode", [*(pytest.param(mode, marks=pytest.mark.more) for mode in ("single", "mwms")), "ps"])
def test_script_runs_once_on_every_host(cluster: StartCluster, figure: Figure, mode: str) -> None:
    # By name, algo-10 comes before algo-2.
    with cluster(
        program="tells.py",
        mode=mode,
        hosts=["algo-1", "algo-2", "algo-10"],
        hyperparameters={"text": NASTY, "epochs": 3, "flag": True},
        environment={"COLOUR": "blue"},
        host_environment={"algo-10": {"COLOUR": "red $HOME"}},
    ) as job:
        endings = job.wait()
        all_well(endings)
        roles = []
        names = {"single": ["script"] * 3, "ps": ["chief/0", "worker/0", "worker/1"], "mwms": WORKERS}[mode]
        for (host, ending), name in zip(endings.items(), names, strict=True):
            assert ending.line("told") == f"[{host} {name}] told"
            facts = told(ending)
            env = facts["env"]
            assert env["SM_CURRENT_HOST"] == host
            assert json.loads(env["SM_HOSTS"]) == ["algo-1", "algo-10", "algo-2"]
            assert env["COLOUR"] == ("red $HOME" if host == "algo-10" else "blue")
            assert facts["argv"] == ["--epochs", "3", "--flag", "True", "--text", NASTY]
            assert facts["hostname"].endswith(".ec2.internal")
            assert facts["cwd"] == "/opt/ml/code"
            roles.append(json.loads(env["TF_CONFIG"]) if "TF_CONFIG" in env else None)
        if mode == "single":
            assert roles == [None, None, None]
        else:
            tasks = [(each["task"]["type"], each["task"]["index"]) for each in roles]
            assert all(each["cluster"] == roles[0]["cluster"] for each in roles)
            if mode == "mwms":
                assert roles[0]["cluster"] == {"worker": ["algo-1:8890", "algo-10:8890", "algo-2:8890"]}
                assert tasks == [("worker", 0), ("worker", 1), ("worker", 2)]
            else:
                assert roles[0]["cluster"] == {
                    "chief": ["algo-1:2222"],
                    "worker": ["algo-10:2222", "algo-2:2222"],
                    "ps": ["algo-1:2223", "algo-10:2223", "algo-2:2223"],
                }
                assert tasks == [("chief", 0), ("worker", 0), ("worker", 1)]
        figure(f"{mode}, from the first container's start to the last one's end", duration(endings))


def duration(endings: dict[str, Ending]) -> float:
    return max(e.finished for e in endings.values()) - min(e.started for e in endings.values())


def test_mpi_ranks_are_told_of_their_hosts_efa(cluster: StartCluster, tmp_path: Path) -> None:
    """EFA's device files are faked; there is no adapter, and nothing uses one."""
    vendor, uverbs = tmp_path / "class/infiniband/rdmap0s6/device/vendor", tmp_path / "dev/uverbs0"
    for file, text in ((vendor, "0x1d0f\n"), (uverbs, "")):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    mounts = [f"{tmp_path}/class:/sys/class:ro", f"{tmp_path}/dev:/dev/infiniband:ro"]
    own = {"algo-2": {"FI_PROVIDER": "sockets"}}
    with cluster(program="tells.py", mode="mpi", hosts=2, mounts=mounts, host_environment=own) as job:
        endings = job.wait()
        all_well(endings)
        for number, (host, provider, made) in enumerate(
            [("algo-1", "efa", "FI_PROVIDER=efa"), ("algo-2", "sockets", "nothing, as the job does it")]
        ):
            assert told(endings[host], f"rank-{number}")["env"]["FI_PROVIDER"] == provider
            assert f"EFA: rdmap0s6; set for it: {made}" in endings[host].log
            assert "warning: NCCL" not in endings[host].log  # without GPUs it is not used


def test_mpi_ranks_have_their_own_hosts_environment(cluster: StartCluster, figure: Figure) -> None:
    options = "-x FROM_OPTIONS=yes --mca btl_base_verbose 0"
    with cluster(
        program="tells.py",
        mode="mpi",
        hyperparameters={
            "text": NASTY,
            "sagemaker_mpi_num_of_processes_per_host": 2,
            "sagemaker_mpi_custom_mpi_options": options,
        },
        environment={"COLOUR": "blue", "TEXT": 'multi\nline "$(id)"'},
        host_environment={"algo-2": {"COLOUR": "green"}, "algo-3": {"COLOUR": "red"}},
    ) as job:
        endings = job.wait()
        all_well(endings)
        colours = {"algo-1": "blue", "algo-2": "green", "algo-3": "red"}
        for number, (host, ending) in enumerate(endings.items()):
            for local in (0, 1):
                facts = told(ending, f"rank-{number * 2 + local}")
                assert (facts["size"], facts["sum"]) == (6, 21)
                env = facts["env"]
                assert env["SM_CURRENT_HOST"] == host
                assert env["COLOUR"] == colours[host]
                assert env["TEXT"] == 'multi\nline "$(id)"'
                assert env["OMPI_COMM_WORLD_LOCAL_RANK"] == str(local)
                assert env["FROM_OPTIONS"] == "yes"
                assert facts["argv"] == ["--text", NASTY]
                assert json.loads(env["SM_HPS"])["text"] == NASTY
                assert facts["hostname"] == f"ip-10-0-0-{number + 1}.ec2.internal"
            # Beside them the coordinator's has what the monitor leaves: test_cluster_monitor.py.
            files = sorted(path.name for path in (ending.ml / "output/data").glob("*.json"))
            assert files == [f"rank-{number * 2}.json", f"rank-{number * 2 + 1}.json"]
        command = endings["algo-1"].line("running mpirun")
        assert 0 < command.index("--bind-to") < command.index(options), "the user's options come last"
        figure("mpi, from the first container's start to the last one's end", duration(endings))


# ---- the image by hand


def test_train_by_hand_says_what_is_missing(image: str) -> None:
    for command in ([], ["train"]):
        result = run_alone(image, *command)
        assert result.returncode == 78
        assert "/opt/ml/input/config/resourceconfig.json is missing" in result.stdout
        assert "Traceback" not in result.stdout
        assert len(result.stdout.splitlines()) == 1


def test_other_commands_run_as_they_stand(image: str) -> None:
    assert run_alone(image, "python", "-V").stdout.startswith("Python 3.11.")


def test_a_quota_of_cpu_time_is_seen(image: str) -> None:
    """TensorFlow sees the CPUs, not how much of their time the container may use."""
    for limits, threads in ((["--cpus", "1", "--cpuset-cpus", "0,1"], "1"), (["--cpuset-cpus", "0"], None)):
        result = run_alone(image, "entrypoint", "plan", "--hosts", "1", "--mode", "single", limits=limits)
        assert result.returncode == 0, result.stdout
        told = re.findall("TF_NUM_INTRAOP_THREADS=(.*?) TF_NUM_INTEROP_THREADS=2", result.stdout)
        assert told == ([threads] if threads else [])


def test_plan_is_printed(image: str) -> None:
    result = run_alone(image, "entrypoint", "plan", "--hosts", "2", "--mode", "ps")
    assert result.returncode == 0, result.stdout
    assert "parameter servers: 2 ps, 1 chief, 1 worker" in result.stdout
    assert "algo-2:2223" in result.stdout


def from_the_command_line(image: str, program: str, mode: str, folder: Path, *more: str, check: bool = True):
    """Run `entrypoint local` with two hosts as containers; its output is in folder/out."""
    words = ("--engine", "docker", "--image", image, "--hosts", "2", "--mode", mode, "--output", str(folder / "out"))
    command = (str(Path(sys.executable).with_name("entrypoint")), "local", str(PROGRAMS / program))
    return sh(*command, *words, *more, within=120, cwd=folder, check=check)


def test_job_in_containers_from_the_command_line(image: str, tmp_path: Path) -> None:
    """What a user does on a machine with Docker before sending a job to SageMaker."""
    more = ("--hyperparameters", "epochs=3", "--env", "COLOUR=deep blue")
    result = from_the_command_line(image, "tells.py", "mwms", tmp_path, *more)
    for number, host in enumerate(("algo-1", "algo-2")):
        assert f"[{host} worker/{number}] told" in result.stdout
    found = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").rglob("alone.json"))]
    assert [each["argv"] for each in found] == [["--epochs", "3"]] * 2
    assert {each["env"]["SM_CURRENT_HOST"] for each in found} == {"algo-1", "algo-2"}
    assert {each["env"]["COLOUR"] for each in found} == {"deep blue"}


@pytest.mark.more  # test_cluster_faults.py fails such jobs
def test_failed_job_from_the_command_line(image: str, tmp_path: Path) -> None:
    result = from_the_command_line(image, "raises.py", "ps", tmp_path, "--hyperparameters", "on=algo-2", check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "algo-2 worker/0 (exit code 1): ValueError: row 17 of algo-2 has no label" in result.stdout
