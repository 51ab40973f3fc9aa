"""Test that SageMaker's own SDKs run jobs on the image in local mode: what a user calls, and the model that he gets.

Local mode is not quite SageMaker: with SDK 2 hosts are called algo-1-xxxxx, with SDK 3 the network interface does not
exist and the image is started without the word `train`; all hosts share one model folder; and the first container to
end stops the others.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_mode import Job

Run = Callable[[str, dict[str, Any]], Job]

HERE = Path(__file__).parent
DIGITS, DEEPFM, PROGRAMS = HERE.parents[1] / "examples/digits", HERE.parents[1] / "examples/deepfm", HERE / "programs"
SHARED_CORES = "--mca mpi_yield_when_idle 1"  # ranks that wait leave their core to others
# How SDK 3 is told which program to run: it has no word for it but for its own launchers.
IN_CHANNEL = {"sagemaker_program": "train.py", "sagemaker_submit_directory": "/opt/ml/input/data/code"}


def estimator_call(image: str, hosts: int, source: Path, program: str, **more: Any) -> dict[str, Any]:
    """Return Estimator(...).fit() of SDK 2."""
    arguments = {"image_uri": image, "instance_count": hosts, "entry_point": program, "source_dir": str(source)}
    return {"estimator": "Estimator", "arguments": {**arguments, **more}, "inputs": None}


def trainer_call(
    image: str, hosts: int, source: Path, command: str | None, hyperparameters: dict[str, Any], **inputs: Path
) -> dict[str, Any]:
    """Return ModelTrainer(...).train() of SDK 3: with a command, or a channel of code and the image's entrypoint."""
    channels = {name: str(folder) for name, folder in inputs.items()}
    return {
        "hosts": hosts,
        "source_code": {"source_dir": str(source), "command": command} if command else None,
        "arguments": {"training_image": image, "hyperparameters": {**IN_CHANNEL, **hyperparameters}},
        "inputs": channels if command else {"code": str(source), **channels},
    }


def launcher_call(image: str, program: str, **launcher: Any) -> dict[str, Any]:
    """Return ModelTrainer(source_code=SourceCode(...), distributed=Launcher(...)).train() of SDK 3, on two hosts."""
    return {
        "hosts": 2,
        "source_code": {"source_dir": str(PROGRAMS), "entry_script": program},
        "launcher": launcher,
        "arguments": {"training_image": image},
        "inputs": {},
    }


def model_of(job: Job) -> Any:
    """Return the model in the SDK's archive, after a success without warnings."""
    import tensorflow as tf

    assert job.exit_code == 0, job.output
    assert "SageMaker packs" not in job.output, job.output  # files of one name that differ: hosts see the same folder
    return tf.saved_model.load(str(job.artifact("model") / "1")).signatures["serving_default"]


def tells_digits_apart(job: Job) -> None:
    import tensorflow as tf

    (chances,) = model_of(job)(tf.zeros([2, 8, 8, 1])).values()
    assert chances.shape == (2, 10)
    assert all(abs(float(total) - 1) < 1e-3 for total in tf.reduce_sum(chances, 1))


def predicts_clicks(job: Job) -> None:
    import tensorflow as tf

    chances = model_of(job)(ids=tf.zeros([3, 39], tf.int64), values=tf.ones([3, 39]))["probability"]
    assert chances.shape == (3,)
    assert all(0 < float(chance) < 1 for chance in chances)


def lines_of(job: Job, host: str) -> str:
    """Return what a host's launcher and its processes printed."""
    return "\n".join(re.findall(rf"\[{host}[ \]].*", job.output))


@pytest.mark.more  # two hosts take more, below
@pytest.mark.tensorflow
def test_v2_estimator_on_one_host(run: Run, image: str) -> None:
    job = run("v2", estimator_call(image, 1, DIGITS, "train.py", hyperparameters={"epochs": 1}))
    tells_digits_apart(job)
    assert "digits: test accuracy=" in lines_of(job, r"algo-1-\w{5}")


@pytest.mark.more  # the SDK's part is its request (test_doctor_of_sdks.py); ours is in tests/cluster
@pytest.mark.tensorflow
def test_v2_tensorflow_with_parameter_servers(run: Run, image: str, clicks: Path) -> None:
    call = estimator_call(
        image,
        2,
        DEEPFM,
        "train.py",
        distribution={"parameter_server": {"enabled": True}},
        hyperparameters={"epochs": 1, "sagemaker_entrypoint_ps_workers": "server"},
    )
    job = run("v2", {**call, "estimator": "TensorFlow", "inputs": {"training": f"file://{clicks}"}})
    predicts_clicks(job)


@pytest.mark.more  # SDK 3 does it below, and test_submit.py has more ranks of SDK 2 without TensorFlow
@pytest.mark.tensorflow
def test_v2_tensorflow_with_mpi(run: Run, image: str, clicks: Path) -> None:
    call = estimator_call(
        image,
        2,
        DEEPFM,
        "train.py",
        distribution={"mpi": {"enabled": True, "processes_per_host": 1, "custom_mpi_options": SHARED_CORES}},
        hyperparameters={"epochs": 1},
    )
    job = run("v2", {**call, "estimator": "TensorFlow", "inputs": {"training": f"file://{clicks}"}})
    predicts_clicks(job)
    assert "rank 1" in lines_of(job, r"algo-2-\w{5}")


@pytest.mark.more  # the SDK's part of it is the one of parameter servers; tests/cluster has the workers
@pytest.mark.tensorflow
def test_v2_tensorflow_with_mirrored_workers(run: Run, image: str) -> None:
    call = estimator_call(
        image,
        2,
        DIGITS,
        "train.py",
        distribution={"multi_worker_mirrored_strategy": {"enabled": True}},
        framework_version="2.14",
        hyperparameters={"epochs": 1},
    )
    job = run("v2", {**call, "estimator": "TensorFlow"})
    tells_digits_apart(job)


@pytest.mark.more  # two hosts take more, below; with a command, in test_submit.py
@pytest.mark.tensorflow
@pytest.mark.parametrize("command", [None, "train"], ids=["no source code", "command train"])
def test_v3_on_one_host(run: Run, image: str, command: str | None) -> None:
    job = run("v3", trainer_call(image, 1, DIGITS, command, {"epochs": 1}))
    tells_digits_apart(job)


def test_v3_on_two_hosts_with_mpi(run: Run, image: str) -> None:
    """mpirun must not get the interface that resourceconfig.json names."""
    switches = {"sagemaker_mpi_enabled": True, "sagemaker_mpi_num_of_processes_per_host": 1}
    switches["sagemaker_program"] = "takes_part.py"
    job = run("v3", trainer_call(image, 2, PROGRAMS, None, switches))
    assert job.exit_code == 0, job.output
    assert "added up to 3" in lines_of(job, "algo-2"), job.output
    assert "network interface ethwe named in resourceconfig.json does not exist here" in job.output


def test_v3_with_a_launcher_of_ours(run: Run, image: str) -> None:
    """Our Launcher does what the SDK's own MPI() does not: ranks on all hosts, by the launcher of the image."""
    job = run("v3", launcher_call(image, "takes_part.py", mode="mpi", process_count_per_node=2))
    assert job.exit_code == 0, job.output
    for host, rank in (("algo-1", 0), ("algo-1", 1), ("algo-2", 2), ("algo-2", 3)):
        assert len(re.findall(rf"\[{host} rank {rank}\] added up to 10$", job.output, re.M)) == 1, job.output


@pytest.mark.more  # of modes, the request and the plan are in test_submit.py
@pytest.mark.parametrize("mode", ["ps", "mwms"])
def test_v3_with_a_launcher_of_ours_in_other_modes(run: Run, image: str, mode: str) -> None:
    job = run("v3", launcher_call(image, "takes_part.py" if mode == "ps" else "last.py", mode=mode))
    assert job.exit_code == 0, job.output
    assert len(re.findall("reached 2 parameter servers|my parent is process 1", job.output)) == 2, job.output


@pytest.mark.more  # the commands show that it is process 1
def test_v3_says_why_a_launcher_of_ours_does_not_start(run: Run, image: str) -> None:
    call = launcher_call(image, "last.py", mode="ps")
    call["arguments"]["environment"] = {"ENTRYPOINT_MODE": "mpi"}
    job = run("v3", call)
    problem = "environment has ENTRYPOINT_MODE=mpi, and Launcher(...) asks for ps; wanted one of them"
    assert job.exit_code != 0 and f"tf_launcher: {problem}" in job.output, job.output
    assert (job.artifact("output") / "failure").read_text() == problem


@pytest.mark.parametrize(
    "way", [pytest.param("v2", marks=pytest.mark.more), "v3, command", pytest.param("v3, ours", marks=pytest.mark.more)]
)
def test_no_host_ends_before_all_have(run: Run, image: str, way: str) -> None:
    """The first container to end stops the others: the host that is done at once must wait for the one that saves.

    SDK 3 starts a shell, which hears no SIGTERM and tells nobody of it; with `exec` the launcher takes its place.
    """
    if way == "v2":
        job = run("v2", estimator_call(image, 2, PROGRAMS, "last.py"))
    elif way == "v3, ours":
        job = run("v3", launcher_call(image, "last.py", mode="single"))
    else:
        job = run("v3", trainer_call(image, 2, PROGRAMS, "exec train", {"sagemaker_program": "last.py"}))
    assert job.exit_code == 0, job.output
    assert (job.artifact("model") / "weights.txt").read_text() == "1 2 3\n"
    assert job.output.count("my parent is process 1") == 2, job.output


# All look at the same lines; with a command, the exit code has to pass the SDK's own shell, too.
@pytest.mark.parametrize(
    "way",
    [
        pytest.param("v2", marks=pytest.mark.more),
        pytest.param("v3, no source code", marks=pytest.mark.more),
        "v3, command train",
    ],
)
def test_a_script_that_raises(run: Run, image: str, way: str) -> None:
    """The SDK raises its error; what the user sees and the failure file say where and why."""
    sdk, _, rest = way.partition(", ")
    if sdk == "v2":
        job = run("v2", estimator_call(image, 2, PROGRAMS, "raises.py"))
    else:
        command = rest.removeprefix("command ") if "command" in rest else None
        job = run("v3", trainer_call(image, 2, PROGRAMS, command, {"sagemaker_program": "raises.py"}))
    assert job.exit_code == 1
    assert "RuntimeError: Failed to run: " in job.output and "Process exited with code: 1\n" in job.output, job.output
    cause = re.compile(r"algo-2\S* .*ValueError: row 17 of algo-2\S* has no label")
    assert cause.search(job.output), job.output
    failure = (job.artifact("output") / "failure").read_text()
    assert cause.search(failure), failure
