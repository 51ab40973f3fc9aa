"""Test the examples that readers copy, in containers on several hosts: they learn, and their model can be used."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import BUSY, PROGRAMS, Cluster, Ending, run_alone
from endpoint import ask, serving

from entrypoint.simulate.local_channels import ChannelMode, LocalChannel
from images import DEFAULT_LINE, LINE

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 420.0
# From TensorFlow 2.16 on, `fit` on several hosts takes Keras 2 (docs/matrix.md).
KERAS_2 = {} if LINE == DEFAULT_LINE else {"TF_USE_LEGACY_KERAS": "1"}
LEARNED = 0.63  # both ways reach 0.65 to 0.67; what has learned nothing has 0.5


def predict(image: str, ml: Path, inputs: Any) -> tuple[list, list[str]]:
    """Return the predictions of the model in a host's /opt/ml/model, by another container of the same image."""
    mounts = {ml / "model": "/opt/ml/model", PROGRAMS / "predicts.py": "/predicts.py"}
    result = run_alone(image, "python", "/predicts.py", "/opt/ml/model/1", json.dumps(inputs), mounts=mounts)
    assert result.returncode == 0, result.stdout
    outputs, names = json.loads(result.stdout.splitlines()[-1])
    return outputs, names


def a_digit_of_each_class(image: str) -> tuple[list[int], list]:
    """Return ten digits, and their pictures as examples/digits has them; scikit-learn is in the image."""
    program = """if True:
        import json
        from sklearn.datasets import load_digits
        digits = load_digits()
        print(json.dumps([digits.target[:10].tolist(), (digits.images[:10, ..., None] / 16).tolist()]))
    """
    result = run_alone(image, "python", "-c", program, network="none")
    assert result.returncode == 0, result.stdout
    digits, pictures = json.loads(result.stdout.splitlines()[-1])
    return digits, pictures


def number(ending: Ending, pattern: str) -> float:
    found = re.findall(pattern, ending.log)
    assert len(found) == 1, f"{pattern} is there {len(found)} times"
    return float(found[0])


def pipe(name: str, folder: Path) -> LocalChannel:
    return LocalChannel(name=name, source=folder, mode=ChannelMode.PIPE)


def only_the_first_saved(endings: dict[str, Ending]) -> None:
    """Check that only the first host saved: SageMaker packs the model folders of all hosts into one archive."""
    for host, ending in endings.items():
        assert ending.exit_code == 0
        assert bool(list((ending.ml / "model").iterdir())) == (host == "algo-1")


PIPES = {
    "parameter servers": {
        "mode": "ps",
        "hyperparameters": {
            "sagemaker_entrypoint_ps_workers": "server",
            "sagemaker_entrypoint_ps_count": 1,
            "steps-per-epoch": 94,
        },
        "environment": {**KERAS_2, **BUSY},
        "channels": ["training", "evaluation"],
    },
    # A channel for each rank of a host. Both hold all the rows, as in "no multi-path" of AWS's own example.
    "horovod, a pipe for each rank": {
        "mode": "mpi",
        "hosts": 2,
        "hyperparameters": {"sagemaker_mpi_num_of_processes_per_host": 2},
        "environment": {"ENTRYPOINT_CHANNEL_GROUPS": "same", **KERAS_2, **BUSY},
        "channels": ["training", "training-2", "evaluation"],
    },
}
if KERAS_2:
    PIPES["parameter servers, Keras 3"] = {**PIPES["parameter servers"], "environment": BUSY}


@pytest.mark.more  # SageMaker's SDKs run it from files, too, test_cluster_sharding.py and resnet have pipes
@pytest.mark.parametrize("way", PIPES)
def test_deepfm_from_pipes(
    image: str, cluster: StartCluster, figure: Figure, clicks: Path, tmp_path: Path, way: str
) -> None:
    """Train on files without an evaluation channel as test_cluster_restarts.py does."""
    *training, evaluation = sorted(clicks.iterdir())
    for name, files in (("training", training), ("evaluation", [evaluation])):
        for file in files:
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / file.name).symlink_to(file)
    options = {
        **PIPES[way],
        "channels": {name: pipe(name, tmp_path / name.split("-")[0]) for name in PIPES[way]["channels"]},
    }
    with cluster(program="train.py", code=ROOT / "examples/deepfm", **options) as job:
        endings = job.wait(within=PATIENCE)
        only_the_first_saved(endings)
        auc = number(endings["algo-1"], r"evaluation auc=(\d\.\d+)")
        figure(f"DeepFM, {way}: AUC {auc} after", endings["algo-1"].finished - endings["algo-1"].started)
        assert auc >= LEARNED
        rows = {"ids": [list(range(39)), list(range(100, 139))], "values": [[1.0] * 39] * 2}
        outputs, names = predict(image, endings["algo-1"].ml, rows)
        assert names == ["probability"]
        assert len(outputs) == 2 and all(0 < probability < 1 for probability in outputs)


@pytest.mark.more  # SageMaker's SDKs run it, too: sdk/test_local_mode.py
def test_digits_on_two_workers(image: str, cluster: StartCluster, figure: Figure) -> None:
    environment = {**KERAS_2, **BUSY}
    with cluster(
        program="train.py", code=ROOT / "examples/digits", mode="mwms", hosts=2, environment=environment
    ) as job:
        endings = job.wait(within=PATIENCE)
        only_the_first_saved(endings)
        accuracy = number(endings["algo-1"], r"test accuracy=(\d\.\d+)")
        figure(f"digits: accuracy {accuracy} after", endings["algo-1"].finished - endings["algo-1"].started)
        assert accuracy >= 0.95
        image_of_nothing = [[[0.0]] * 8] * 8
        outputs, _ = predict(image, endings["algo-1"].ml, [image_of_nothing])
        assert len(outputs) == 1 and len(outputs[0]) == 10
        assert abs(sum(outputs[0]) - 1) < 1e-3


@pytest.mark.more
@pytest.mark.skipif(LINE == DEFAULT_LINE, reason="the default line has Keras 2, which the test above saves by")
def test_digits_saved_by_keras_3(image: str, cluster: StartCluster) -> None:
    options: dict[str, Any] = {"hyperparameters": {"epochs": 1}, "environment": BUSY}
    with cluster(program="train.py", code=ROOT / "examples/digits", mode="single", hosts=1, **options) as job:
        endings = job.wait(within=PATIENCE)
        only_the_first_saved(endings)
        outputs, _ = predict(image, endings["algo-1"].ml, [[[[0.0]] * 8] * 8])
        assert len(outputs[0]) == 10 and abs(sum(outputs[0]) - 1) < 1e-3


@pytest.mark.more
@pytest.mark.skipif(LINE == DEFAULT_LINE, reason="the image of the default line has no jax")
@pytest.mark.timeout(1800)  # two jobs and an endpoint
def test_digits_on_jax_resume_after_a_kill_and_are_served(image: str, tmp_path: Path, figure: Figure) -> None:
    """A host is lost, which ends the job; the next one goes on from the checkpoint that both share, and learns."""
    epochs = 20  # long enough to be killed halfway
    options: dict[str, Any] = {"program": "train_jax.py", "code": ROOT / "examples/digits", "mode": "jax", "hosts": 2}
    options |= {"hyperparameters": {"epochs": epochs}, "environment": BUSY, "shared": tmp_path / "checkpoints"}
    options["shared"].mkdir()
    with Cluster(image, tmp_path / "killed", **options) as job:
        job.sees(f"Epoch 3/{epochs}", "algo-1", within=PATIENCE)  # two epochs are over, and saved
        job.kill("algo-1")
        endings = job.wait(within=PATIENCE)
        assert 0 not in [ending.exit_code for ending in endings.values()]
        assert (endings["algo-2"].failure or "").startswith("algo-1 (lost")
    with Cluster(image, tmp_path / "resumed", **options) as job:
        endings = job.wait(within=2 * PATIENCE)
        only_the_first_saved(endings)
        first = endings["algo-1"]
        done = int(number(first, r"goes on after (\d+) epochs"))
        assert 2 <= done < epochs
        trained = [int(each) for each in re.findall(rf"Epoch (\d+)/{epochs}\b", first.log)]
        assert trained == [*range(done + 1, epochs + 1)]
        accuracy = number(first, r"test accuracy=(\d\.\d+)")
        took = first.finished - first.started
        figure(f"digits on JAX, from epoch {done} of {epochs}: accuracy {accuracy} after", took)
        assert accuracy >= 0.95
        digits, drawn = a_digit_of_each_class(image)
        with serving(image, first.ml / "model") as (_, url):
            answer = ask(f"{url}/invocations", json.dumps({"instances": drawn}).encode())
        found = [max(range(10), key=each.__getitem__) for each in answer["predictions"]]
        assert sum(map(int.__eq__, found, digits)) >= 9, (found, digits)
