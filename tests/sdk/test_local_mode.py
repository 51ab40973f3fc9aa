"""Test that SageMaker's own SDKs run jobs on the image in local mode: users' calls and their results.

Local mode is not quite SageMaker: with SDK 2 hosts are called algo-1-xxxxx, with SDK 3 the network interface does not
exist and the image is started without the word `train`; all hosts share one model folder; and the first container to
end stops the others. test_submit.py trains, and runs other modes; cluster/test_cluster_examples.py has the models.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_mode import Job
from variants import variants

Run = Callable[[str, dict[str, Any]], Job]

PROGRAMS = Path(__file__).parent / "programs"


def v2(image: str, program: str) -> dict[str, Any]:
    """Return Estimator(...).fit() of SDK 2, on two hosts."""
    source = {"entry_point": program, "source_dir": str(PROGRAMS)}
    return {"estimator": "Estimator", "arguments": {"image_uri": image, "instance_count": 2, **source}, "inputs": None}


def v3(image: str, program: str, command: str = "", **more: Any) -> dict[str, Any]:
    """Return ModelTrainer(...).train() of SDK 3 on two hosts: a command, or a channel of code and our entrypoint."""
    # How SDK 3 is told which program to run: it has no word for it but for its own launchers.
    told = {"sagemaker_program": program, "sagemaker_submit_directory": "/opt/ml/input/data/code"}
    return {
        "hosts": 2,
        "source_code": {"source_dir": str(PROGRAMS), "command": command} if command else None,
        "arguments": {"training_image": image, "hyperparameters": {**told, **more}},
        "inputs": {} if command else {"code": str(PROGRAMS)},
    }


def v3_launcher(image: str, program: str, **launcher: Any) -> dict[str, Any]:
    """Return ModelTrainer(source_code=SourceCode(...), distributed=Launcher(...)).train() of SDK 3, on two hosts."""
    return {
        "hosts": 2,
        "source_code": {"source_dir": str(PROGRAMS), "entry_script": program},
        "launcher": launcher,
        "arguments": {"training_image": image},
        "inputs": {},
    }


def test_v3_runs_ranks_on_two_hosts(run: Run, image: str) -> None:
    """mpirun must not use the interface of resourceconfig.json, which does not exist here."""
    switches = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 1}
    job = run("v3", v3(image, "takes_part.py", **switches))
    assert job.exit_code == 0, job.output
    assert re.search(r"\[algo-2[ \]].*added up to 3", job.output), job.output
    assert "network interface ethwe named in resourceconfig.json does not exist here" in job.output


def test_v3_launcher_class_runs_ranks_on_two_hosts(run: Run, image: str) -> None:
    """The class Launcher starts ranks on all hosts, unlike the SDK's own MPI()."""
    job = run("v3", v3_launcher(image, "takes_part.py", mode="mpi", process_count_per_node=2))
    assert job.exit_code == 0, job.output
    for host, rank in (("algo-1", 0), ("algo-1", 1), ("algo-2", 2), ("algo-2", 3)):
        assert len(re.findall(rf"\[{host} rank {rank}\] added up to 10$", job.output, re.M)) == 1, job.output


WAYS = {
    "v2": lambda image: ("v2", v2(image, "last.py")),
    # SDK 3 starts a shell, which hears no SIGTERM and tells nobody of it; with `exec` the launcher takes its place.
    "v3, command": lambda image: ("v3", v3(image, "last.py", "exec train")),
    "v3, ours": lambda image: ("v3", v3_launcher(image, "last.py", mode="single")),
}


@pytest.mark.parametrize("call", variants(WAYS, "v3, command"))
def test_no_host_ends_before_all_scripts_have_ended(
    run: Run, image: str, call: Callable[[str], tuple[str, dict]]
) -> None:
    """The first container to end stops the others, so the host that ends early must wait for the one that saves."""
    job = run(*call(image))
    assert job.exit_code == 0, job.output
    assert (job.artifact("model") / "weights.txt").read_text() == "1 2 3\n"
    assert job.output.count("my parent is process 1") == 2, job.output


# All look at the same lines; with a command, the exit code has to pass the SDK's own shell, too.
def test_sdk_shows_the_exception_of_the_script(run: Run, image: str) -> None:
    """The SDK raises its error. The user's output and the failure file have place and reason."""
    job = run("v3", v3(image, "raises.py", "train"))
    assert job.exit_code == 1
    assert "RuntimeError: Failed to run: " in job.output and "Process exited with code: 1\n" in job.output, job.output
    cause = re.compile(r"algo-2\S* .*ValueError: row 17 of algo-2\S* has no label")
    assert cause.search(job.output), job.output
    failure = (job.artifact("output") / "failure").read_text()
    assert cause.search(failure), failure
