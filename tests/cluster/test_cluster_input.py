"""Test wrong input: a non-zero exit code, and one line with what was found, what was wanted and where."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from containers import Cluster, resources, run_alone, write_config

StartCluster = Callable[..., Cluster]

CONFIG, CODE = 78, 65
HOSTS = ["algo-1", "algo-2", "algo-3"]


def wrong(words: Iterable[str], **how: Any) -> dict[str, Any]:
    """Return a row of the table: words that the line has, and the differences from a correct job."""
    return {"words": words, "exit": CONFIG, **how}


BAD = {
    "no resourceconfig.json": wrong(["resourceconfig.json", "missing"], resources=None),
    "an empty one": wrong(["resourceconfig.json", "empty"], resources=" \n"),
    "not JSON": wrong(["resourceconfig.json", "not JSON"], resources='{"hosts": ["algo-1",'),
    "a list": wrong(["resourceconfig.json", "list", "object"], resources="[]"),
    "no hosts": wrong(["hosts"], resources={"current_host": "algo-1"}),
    "an empty list of hosts": wrong(["hosts"], resources={"current_host": "algo-1", "hosts": []}),
    "a host that is no text": wrong(["hosts"], resources={"current_host": "algo-1", "hosts": ["algo-1", 2]}),
    "current host is not one of them": wrong(["algo-9", "algo-1"], resources=resources(HOSTS, "algo-9")),
    "a host twice": wrong(["algo-2", "more than once"], resources=resources([*HOSTS, "algo-2"], "algo-1")),
    "unknown mode": wrong(["ENTRYPOINT_MODE", "'horo'", "mpi"], environment={"ENTRYPOINT_MODE": "horo"}),
    "two modes": wrong(
        ["two modes", "sagemaker_mpi_enabled", "sagemaker_parameter_server_enabled"],
        hyperparameters={"sagemaker_mpi_enabled": True, "sagemaker_parameter_server_enabled": True},
    ),
    "two modes, in two ways": wrong(
        ["two modes", "ENTRYPOINT_MODE=ps", "sagemaker_mpi_enabled"],
        hyperparameters={"sagemaker_mpi_enabled": "True"},
        environment={"ENTRYPOINT_MODE": "ps"},
    ),
    "a mode that is neither on nor off": wrong(
        ["sagemaker_mpi_enabled", "maybe"], hyperparameters={"sagemaker_mpi_enabled": "maybe"}
    ),
    "no program named": wrong(["sagemaker_program"], program=None),
    "no process per host": wrong(
        ["sagemaker_mpi_num_of_processes_per_host", "0", "from 1 to"],
        hyperparameters={"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 0},
    ),
    "ten thousand processes per host": wrong(
        ["ENTRYPOINT_PROCESSES_PER_HOST", "10000", "from 1 to"], environment={"ENTRYPOINT_PROCESSES_PER_HOST": "10000"}
    ),
    "open quotation mark in mpi options": wrong(
        ["sagemaker_mpi_custom_mpi_options", "quotation"],
        hyperparameters={"sagemaker_mpi_enabled": True, "sagemaker_mpi_custom_mpi_options": "-x A='b"},
    ),
    "a setting that there is not": wrong(
        ["sagemaker_entrypoint_speed"], hyperparameters={"sagemaker_entrypoint_speed": "fast"}
    ),
    "a number of seconds that is none": wrong(
        ["ENTRYPOINT_PEER_TIMEOUT", "soon"], environment={"ENTRYPOINT_PEER_TIMEOUT": "soon"}
    ),
    "program is not there": wrong(
        ["absent.py", "/opt/ml/code", "here.py"],
        program="absent.py",
        exit=CODE,
    ),
    "code cannot be fetched": wrong(
        ["/opt/nowhere.tar.gz", "fetched"],
        hyperparameters={"sagemaker_submit_directory": "/opt/nowhere.tar.gz"},
        no_code=True,  # code that is there already is taken, as sagemaker-training does
        exit=CODE,
    ),
    "requirements that do not exist": wrong(
        ["requirements.txt", "no-such-distribution-of-ours"],
        requirements="--no-index\nno-such-distribution-of-ours\n",
        exit=CODE,
    ),
}


@pytest.fixture(scope="session")
def answers(image: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[CompletedProcess[str], Path]]:
    """Return what the container of each row printed. A few run at a time, since each only starts and ends."""
    tmp_path_factory.getbasetemp()  # made on first use, which must not be in two threads at once

    def answer(number: int, row: dict[str, Any]) -> tuple[CompletedProcess[str], Path]:
        folder = tmp_path_factory.mktemp(f"input{number}")
        for part in ("config", "code", "output"):
            (folder / part).mkdir()
        program = row.get("program", "here.py")
        write_config(
            folder / "config",
            resources=row.get("resources", resources(["algo-1"], "algo-1")),  # others would be waited for, to be told
            hyperparameters={**({"sagemaker_program": program} if program else {}), **row.get("hyperparameters", {})},
        )
        if "no_code" not in row:
            (folder / "code/here.py").write_text("print('trained')\n")
        if "requirements" in row:
            (folder / "code/requirements.txt").write_text(row["requirements"])
        mounts = {
            folder / "config": "/opt/ml/input/config",
            folder / "code": "/opt/ml/code",
            folder / "output": "/opt/ml/output",
        }
        return run_alone(image, "train", mounts=mounts, environment=row.get("environment")), folder / "output"

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(BAD, pool.map(answer, range(len(BAD)), BAD.values()), strict=True))


@pytest.mark.parametrize("what", BAD)
def test_wrong_input(answers: dict[str, tuple[CompletedProcess[str], Path]], what: str) -> None:
    result, output = answers[what]
    row = BAD[what]
    assert result.returncode == row["exit"], result.stdout
    assert "Traceback" not in result.stdout
    assert "trained" not in result.stdout
    said = [line for line in result.stdout.splitlines() if all(word in line for word in row["words"])]
    assert said, f"no line with {row['words']} in:\n{result.stdout}"
    if row["exit"] == CONFIG:
        assert len([line for line in result.stdout.splitlines() if "error:" in line]) == 1, result.stdout
    first, *_ = (output / "failure").read_text().splitlines()
    assert all(word in first for word in row["words"]), first
    assert len((output / "failure").read_text()) <= 1024


@pytest.mark.parametrize("what", ["two modes", pytest.param("unknown mode", marks=pytest.mark.more)])
def test_wrong_input_on_all_hosts(cluster: StartCluster, what: str) -> None:
    """No host waits for another: each finds the error itself."""
    row = BAD[what]
    how = {key: row[key] for key in ("hyperparameters", "environment") if key in row}
    with cluster(program="tells.py", **how) as job:
        endings = job.wait(within=60)
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(HOSTS, CONFIG)
        for ending in endings.values():
            assert all(word in ending.line("error:") for word in row["words"])
            assert "Traceback" not in ending.log


@pytest.mark.more  # the outcome table has it
@pytest.mark.parametrize("mode", [pytest.param("mwms", marks=pytest.mark.more), "mpi"])
def test_requirements_that_fail_on_one_host(cluster: StartCluster, mode: str) -> None:
    """No script starts anywhere, and every host reports the reason."""
    # pip fills in the variable: on algo-3 the wanted version is one that is not there.
    requirements = "--no-index\nnumpy>=${LEAST}\n"
    with cluster(
        program="tells.py",
        mode=mode,
        files={"requirements.txt": requirements},
        environment={"LEAST": "1"},
        host_environment={"algo-3": {"LEAST": "999"}},
    ) as job:
        endings = job.wait()
        assert {host: ending.exit_code for host, ending in endings.items()} == dict.fromkeys(HOSTS, CODE)
        texts = {ending.failure for ending in endings.values()}
        assert len(texts) == 1
        first = str(texts.pop()).splitlines()[0]
        assert first.startswith("algo-3 prepare")
        assert "numpy>=999" in first
        assert not any("told" in ending.log for ending in endings.values())
