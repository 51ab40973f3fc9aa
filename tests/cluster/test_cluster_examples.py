"""Test the examples that readers copy, in containers on several hosts: they learn, and their model can be used."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from containers import BUSY, PROGRAMS, Cluster, Ending, run_alone
from endpoint import predictions

from images import DEFAULT_LINE, LINE

StartCluster = Callable[..., Cluster]
Figure = Callable[[str, float], None]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 420.0
# Files and modes are also shown by SageMaker's SDKs (sdk/test_local_mode.py) and local/test_deepfm.py, pipes by
# test_cluster_sharding.py and resnet.
pytestmark = pytest.mark.more


def predict(image: str, ml: Path, inputs: Any) -> tuple[list, list[str]]:
    """Return predictions of the model in a host's /opt/ml/model, made in another container of the same image."""
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


def only_the_first_saved(job: Cluster, within: float) -> Ending:
    """Check that only the first host saved, as SageMaker packs all model folders into one archive; return its end."""
    endings = job.all_end(within=within)
    saved = [ending.host for ending in endings if list((ending.ml / "model").iterdir())]
    assert saved == ["algo-1"]
    return endings[0]


def test_deepfm_on_horovod_resumes_from_its_checkpoint(
    image: str, cluster: StartCluster, figure: Figure, clicks: Path
) -> None:
    """A rank dies on a host without checkpoints. Only rank 0 has and reads them."""
    with cluster(
        code=ROOT / "examples/deepfm",
        mode="mpi",
        hosts=2,
        hyperparameters={"batch-size": 32},  # long enough to be killed after an epoch
        environment={**BUSY, "ENTRYPOINT_RESTARTS": "1", "ENTRYPOINT_RESTART_BACKOFF": "0.5"},
        channels={"training": clicks},
    ) as job:
        job.sees("epoch 1/4 is over", "algo-1", within=PATIENCE)
        job.exec("algo-2", "pkill", "-KILL", "-f", "train.py")
        first = only_the_first_saved(job, PATIENCE)
        assert "attempt 0 failed: algo-2 rank 1 (killed by SIGKILL)" in first.log
        assert number(first, r"begins at step (\d+): resumed behind epoch") > 0
        assert first.log.count("epoch 1/4 is over") == 1
        auc = number(first, r"evaluation auc=(\d\.\d+)")
        figure(f"DeepFM, mpi, tried again: AUC {auc} after", first.seconds)
        assert auc >= 0.66, "nobody dead, it is 0.69 to 0.71 after all four epochs, 0.65 after one, and 0.5 after none"
        rows = {"ids": [list(range(39)), list(range(100, 139))], "values": [[1.0] * 39] * 2}
        outputs, names = predict(image, first.ml, rows)
        assert names == ["probability"]
        assert len(outputs) == 2 and all(0 < probability < 1 for probability in outputs)


# From TensorFlow 2.16 on, `fit` on several hosts takes Keras 2 (docs/matrix.md); the default line has no other.
KERAS_2 = {} if LINE == DEFAULT_LINE else {"TF_USE_LEGACY_KERAS": "1"}
DIGITS: dict[str, dict[str, Any]] = {"two workers": {"mode": "mwms", "hosts": 2, "environment": {**KERAS_2, **BUSY}}}
if KERAS_2:
    DIGITS["Keras 3"] = {"mode": "single", "hosts": 1, "environment": BUSY}


@pytest.mark.parametrize("way", DIGITS)
def test_digits_example_reaches_95_percent_accuracy(
    image: str, cluster: StartCluster, figure: Figure, way: str
) -> None:
    with cluster(code=ROOT / "examples/digits", **DIGITS[way]) as job:
        first = only_the_first_saved(job, PATIENCE)
        accuracy = number(first, r"test accuracy=(\d\.\d+)")
        figure(f"digits, {way}: accuracy {accuracy} after", first.seconds)
        assert accuracy >= 0.95
        outputs, _ = predict(image, first.ml, [[[[0.0]] * 8] * 8])
        assert len(outputs) == 1 and len(outputs[0]) == 10
        assert abs(sum(outputs[0]) - 1) < 1e-3


@pytest.mark.skipif(LINE == DEFAULT_LINE, reason="the image of the default line has no jax")
@pytest.mark.timeout(1800)  # two jobs and an endpoint
def test_digits_on_jax_resume_after_a_kill_and_are_served(image: str, tmp_path: Path, figure: Figure) -> None:
    """A lost host ends the job. The next job resumes from the checkpoint that all hosts share, and learns."""
    epochs = 20  # long enough to be killed halfway
    options: dict[str, Any] = {"program": "train_jax.py", "code": ROOT / "examples/digits", "mode": "jax", "hosts": 2}
    options |= {"hyperparameters": {"epochs": epochs}, "environment": BUSY, "shared": tmp_path / "checkpoints"}
    with Cluster(image, tmp_path / "killed", **options) as job:
        job.sees(f"Epoch 3/{epochs}", "algo-1", within=PATIENCE)  # two epochs are over, and saved
        job.kill("algo-1")
        endings = job.wait(within=PATIENCE)
        assert 0 not in [ending.exit_code for ending in endings.values()]
        assert (endings["algo-2"].failure or "").startswith("algo-1 (lost")
    with Cluster(image, tmp_path / "resumed", **options) as job:
        first = only_the_first_saved(job, 2 * PATIENCE)
        done = int(number(first, r"goes on after (\d+) epochs"))
        assert 2 <= done < epochs
        trained = [int(each) for each in re.findall(rf"Epoch (\d+)/{epochs}\b", first.log)]
        assert trained == [*range(done + 1, epochs + 1)]
        accuracy = number(first, r"test accuracy=(\d\.\d+)")
        figure(f"digits on JAX, from epoch {done} of {epochs}: accuracy {accuracy} after", first.seconds)
        assert accuracy >= 0.95
        digits, drawn = a_digit_of_each_class(image)
        answers = predictions(image, first.ml / "model", drawn)
        found = [max(range(10), key=each.__getitem__) for each in answers]
        assert sum(map(int.__eq__, found, digits)) >= 9, (found, digits)
