"""Test entrypoint/usercode/unsupported.py: which scripts get a warning before training that they will fail."""

import pytest

from entrypoint.usercode.reader import UserProgram
from entrypoint.usercode.unsupported import Doubt, doubts
from entrypoint.usercode.words import without_comments

FIT = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit(data)\n"
LOOP = "import keras\nwith tf.GradientTape() as tape:\n    loss = step(model)\n"
SKLEARN = "from sklearn import svm\nfrom sklearn.preprocessing import StandardScaler\n"
ESTIMATOR = "tf.estimator.train_and_evaluate(estimator, train, test)\n"


def doubts_of(text: str, mode: str, tensorflow: str = "2.21.0", workers: str = "script", **job) -> list[Doubt]:
    """Return the doubts about a program. `job` has arguments of doubts(), variables, and other files by name."""
    numbers = {key: job.pop(key) for key in ("gpus", "servers", "ranks") if key in job}
    program, files = job.pop("program", "train.py"), job.pop("files", {})
    texts = [(name, without_comments(each)) for name, each in {"train.py": text, **files}.items()]
    return doubts(UserProgram.of(texts, program), mode, workers, tensorflow, job, **numbers)


# --- fit of Keras 3 ---


@pytest.mark.parametrize(
    ("mode", "version", "why"),
    [("ps", "2.16.1", "knows no parameter servers"), ("mwms", "2.21.0rc1", "does not train on several")],
)
def test_fit_of_keras_3_is_named_with_remedies(mode: str, version: str, why: str) -> None:
    (found,) = doubts_of("from lib import models\n", mode, version, files={"lib/models.py": FIT})
    said = str(found)
    assert said.startswith(f"lib/models.py:3 calls fit, and that of Keras 3, which TensorFlow {version} has, {why}")
    assert "Set ENTRYPOINT_MODE=jax" in said and "DataParallel(auto_shard_dataset=False)" in said
    assert "ENTRYPOINT_MODE=mpi" in said and "hvd.DistributedOptimizer(optimizer)" in said
    assert "set TF_USE_LEGACY_KERAS=1" in said


@pytest.mark.parametrize(
    ("text", "mode", "job"),
    [
        (LOOP, "ps", {}),
        ("from sklearn.svm import SVC\nSVC().fit(x, y)\n", "ps", {}),
        *((FIT, mode, {}) for mode in ("mpi", "jax", "single")),
        *((FIT, "ps", {"tensorflow": version}) for version in ("2.15.0", "")),
        *((FIT, "mwms", {"TF_USE_LEGACY_KERAS": value}) for value in ("1", "true", "True")),
        (f"os.environ['TF_USE_LEGACY_KERAS'] = '1'\n{FIT}", "mwms", {}),
        (f"import tf_keras as keras\n{FIT}", "mwms", {}),
    ],
)
def test_keras_2_loops_and_other_modes_are_not_reported(text: str, mode: str, job: dict[str, str]) -> None:
    assert doubts_of(text, mode, **job) == []


LOOP_OF_KERAS = (
    "import tensorflow as tf\nstrategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
    "model = tf.keras.Sequential()\nloop(model)\n"
)
NETS = "import tensorflow as tf\n\n\ndef build():\n    return tf.keras.Sequential()\n"


@pytest.mark.parametrize(
    "text",
    [
        f"{SKLEARN}{LOOP_OF_KERAS}scaler = StandardScaler()\nscaler.fit(x)\n",
        f"{SKLEARN}{LOOP_OF_KERAS}svm.SVC().fit(x, y)\n",
        f"{LOOP_OF_KERAS}rows = tf.keras.preprocessing.image.ImageDataGenerator()\nrows.fit(x)\n",
        f'"""Unlike model.fit(x), this is a loop."""\n{LOOP_OF_KERAS}print("no model.fit(x) here")\n',
        f"{LOOP_OF_KERAS}if False:\n    model.fit(x)\n",
        f"{LOOP_OF_KERAS}def on_one_host(model):\n    model.fit(x)\n",
        f"{LOOP_OF_KERAS}class Loop:\n    def fit(self, x): pass\n    def all(self): self.fit(x)\nLoop().fit(x)\n",
        f"{LOOP_OF_KERAS}kind = model.fit\n",
        f"{LOOP_OF_KERAS}this is no Python, model.fit(x)\n",
        f"{SKLEARN}import tensorflow as tf\n# tf.keras would train it\nx, kind = parts()\nkind.fit(x)\n",
    ],
)
def test_fit_of_other_objects_or_dead_code_is_not_reported(text: str) -> None:
    assert doubts_of(text, "mwms") == []


def test_files_not_imported_by_the_program_do_not_count() -> None:
    launch = "import nets\nfrom sagemaker.tensorflow import TensorFlow\nTensorFlow('train.py').fit('s3://bucket')\n"
    alone = f"{NETS}\n\nif __name__ == '__main__':\n    build().fit(x)\n"
    files = {"nets.py": alone, "launch.py": launch, "old/train_by_fit.py": FIT}
    assert doubts_of(f"from nets import build\n{LOOP_OF_KERAS}", "mwms", files=files) == []


@pytest.mark.parametrize(
    ("program", "file", "text", "place"),
    [
        ("from nets import build\nmodel = build()\nmodel.fit(x)\n", "nets.py", NETS, ("train.py", 3)),
        ("import lib.loop\n", "lib/loop.py", f"{NETS}\n\ndef main():\n    build().fit(x)\n", ("lib/loop.py", 9)),
        ("import sys\nsys.path.append('src')\nimport fits\n", "src/fits.py", FIT, ("src/fits.py", 3)),
        ("import subprocess\nsubprocess.run(['python', 'by_fit.py'])\n", "by_fit.py", FIT, ("by_fit.py", 3)),
        (f"{SKLEARN}StandardScaler().fit(x)\ndef main(a: keras.Model):\n    a.fit(x)\n", "a.py", "", ("train.py", 5)),
        ("print('step # 1')  # a comment\n" + FIT, "a.py", "", ("train.py", 4)),
        ("class Net(tf.keras.Model): pass\n\nnet = Net()\nnet.fit(x)\n", "a.py", "", ("train.py", 4)),
    ],
)  # fmt: skip
def test_keras_fit_is_reported_by_its_line(program: str, file: str, text: str, place: tuple[str, int]) -> None:
    assert [each.place for each in doubts_of(program, "mwms", files={file: text})] == [place]


def test_every_file_counts_if_the_program_is_not_python() -> None:
    assert [each.place for each in doubts_of(FIT, "mwms", program="train.sh")] == [("train.py", 3)]


def test_estimator_with_worker_servers_is_reported_as_waiting_forever() -> None:
    (found,) = doubts_of(ESTIMATOR, "ps", "2.14.1", "server")
    assert "Set ENTRYPOINT_PS_WORKERS=script" in str(found)
    assert doubts_of(ESTIMATOR, "ps", "2.14.1") == []


# --- XLA and parameter servers ---


def compiled(text: str, **job) -> list[str]:
    job = {"tensorflow": "2.14.1", "gpus": 1, "servers": 2, "files": {"lib/models.py": text}, **job}
    strategy = "strategy = tf.distribute.ParameterServerStrategy(resolver)\n"
    return [str(each) for each in doubts_of(strategy, "ps", **job)]


SGD = "tf.keras.optimizers.SGD(0.1)"


@pytest.mark.parametrize(
    ("text", "written", "instead"),
    [
        (SGD, "SGD(0.1)", "tf.keras.optimizers.SGD(0.1, jit_compile=False)"),
        ("x = optimizers.experimental.Adam()", "Adam()", "optimizers.experimental.Adam(jit_compile=False)"),
        ("tf.optimizers.Adagrad(rate(3), name='a')", "rate(3)", "rate(3), name='a', jit_compile=False)"),
        ("from keras.optimizers import (Adam,\n SGD)\n\nx = Adam(1e-3)", "has Adam(1e-3)", "Write Adam(1e-3, jit"),
        ("model.compile('adam', 'mse')", "adam", "tf.keras.optimizers.Adam(jit_compile=False) in place of 'adam'"),
        ("model.compile(loss=f('adam'), optimizer=\"rmsprop\")", "rmsprop", "tf.keras.optimizers.RMSprop(jit_"),
        (f"tf.keras.optimizers.SGD({'x' * 200})", "SGD(...)", "tf.keras.optimizers.SGD(..., jit_compile=False)"),
    ],
)
def test_optimizer_compiled_by_xla_is_reported_by_line(text: str, written: str, instead: str) -> None:
    (said,) = compiled(f"import tensorflow as tf\n\n{text}\n")
    line = 6 if "\n" in text else 3
    assert said.startswith(f"lib/models.py:{line} has ") and written in said and instead in said


def test_first_optimizer_of_a_file_is_reported() -> None:
    (said,) = compiled(f"a = {SGD}\nb = tf.keras.optimizers.Adam()\nm.compile('sgd')\n")
    assert said.startswith(f"lib/models.py:1 has {SGD} (and 2 more): ")


@pytest.mark.parametrize(
    ("text", "job"),
    [
        ("tf.keras.optimizers.SGD(0.1, jit_compile=False)", {}),
        ("tf.keras.optimizers.SGD(0.1, **how)", {}),
        ("o = tf.keras.optimizers.SGD(0.1)\no.jit_compile = False", {}),
        ("tf.keras.optimizers.legacy.SGD(0.1)", {}),
        ("from tensorflow.keras.optimizers.legacy import Adam\nAdam(0.1)", {}),
        ("re.compile('adam')", {}),
        ("model.compile(optimizer, 'mse')", {}),
        ("torch.optim.SGD(0.1)", {}),
        (SGD, {"gpus": 0}),
        (SGD, {"servers": 1}),
        (SGD, {"tensorflow": "2.21.0"}),
        (SGD, {"tensorflow": "2.10.0"}),
        (SGD, {"tensorflow": ""}),
    ],
)
def test_optimizer_not_compiled_by_xla_is_not_reported(text: str, job: dict) -> None:
    assert compiled(text, **job) == []


def test_keras_2_beside_newer_tensorflow_uses_xla() -> None:
    assert compiled(SGD, tensorflow="2.21.0", TF_USE_LEGACY_KERAS="1")
    assert compiled("import tf_keras\ntf_keras.optimizers.SGD(0.1)", tensorflow="2.21.0")


def test_xla_optimizer_without_parameter_servers_is_not_reported() -> None:
    assert doubts_of(SGD, "ps", "2.14.1", gpus=1, servers=2) == []


@pytest.mark.parametrize(
    ("ranks", "gpus", "told"), [(2, 1, True), (8, 4, True), (4, 4, False), (1, 8, False), (4, 0, False)]
)
def test_more_ranks_than_gpus_are_reported_with_horovod(ranks: int, gpus: int, told: bool) -> None:
    found = doubts_of("import horovod.tensorflow as hvd\n", "mpi", "2.14.1", gpus=gpus, ranks=ranks)
    assert bool(found) == told
    if told:
        words = str(found[0])
        assert words.startswith(f"{ranks} ranks are to train on each host, where ") and "invalid usage" in words
        assert f"ENTRYPOINT_PROCESSES_PER_HOST={gpus}" in words
    assert doubts_of("from mpi4py import MPI\n", "mpi", "", gpus=gpus, ranks=ranks) == []


# --- strategies of other modes ---

SERVERS = "import tensorflow as tf\nd = tf.distribute\nc = d.cluster_resolver.TFConfigClusterResolver()\n"
SERVERS += "strategy = d.ParameterServerStrategy(c)\n"
COORDINATOR = "from tensorflow.distribute.coordinator import ClusterCoordinator\nClusterCoordinator(strategy)\n"
WORKERS = "import tensorflow as tf\n\n\ndef main():\n    s = tf.distribute.MultiWorkerMirroredStrategy()\n\n\nmain()\n"
ROLE = "import json, os\ntask = json.loads(os.environ['TF_CONFIG'])['task'] if 'TF_CONFIG' in os.environ else None\n"


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (WORKERS, "ps", ":5 makes MultiWorkerMirroredStrategy, and the mode is ps, whose TF_CONFIG has"),
        (ROLE + WORKERS, "ps", ":7 makes MultiWorkerMirroredStrategy, and the mode is ps"),
        (WORKERS.replace("MultiWorkerMirrored", "experimental.CollectiveAllReduce"), "ps", ":5 makes CollectiveAll"),
        (SERVERS, "mwms", ":4 makes ParameterServerStrategy, and the mode is mwms, which starts no parameter servers"),
        (SERVERS + COORDINATOR, "single", ":4 makes ParameterServerStrategy, and the mode is single, which starts no"),
        (SERVERS, "mpi", ":4 makes ParameterServerStrategy, and the mode is mpi, which starts no parameter servers"),
        (SERVERS, "", ":4 makes ParameterServerStrategy, and the job has one host, which starts no parameter servers"),
        (WORKERS, "mpi", ":5 makes MultiWorkerMirroredStrategy, and the mode is mpi, which sets no TF_CONFIG"),
        (WORKERS, "jax", ":5 makes MultiWorkerMirroredStrategy, and the mode is jax, which sets no TF_CONFIG"),
        (COORDINATOR, "mwms", ":2 makes ClusterCoordinator, and the mode is mwms"),
    ],
)
def test_strategy_of_another_mode_is_reported(text: str, mode: str, says: str) -> None:
    (found,) = doubts_of(text, mode, "2.14.1")
    assert str(found).startswith(f"train.py{says}") and "Set ENTRYPOINT_MODE=" in found.instead


@pytest.mark.parametrize("mode", ["ps", "mwms", "single", "mpi", ""])
@pytest.mark.parametrize(
    "text",
    [
        f"{SERVERS}{WORKERS}",  # which of them, the script knows
        f"import sys\n{WORKERS.replace('s = tf', 's = None if sys.argv else tf')}",
        "import tensorflow as tf\nif ps:\n    tf.distribute.ParameterServerStrategy(r)\nelse:\n    tf.distribute."
        "MultiWorkerMirroredStrategy()\n",
        f"{WORKERS}def alone():\n    return tf.distribute.MirroredStrategy()\n",
        f"import os\nos.environ['TF_CONFIG'] = make()\n{WORKERS}",
        f"import os\nos.environ.setdefault('TF_CONFIG', make())\n{SERVERS}",
        f"import os\nos.environ.update({{'TF_CONFIG': make()}})\n{SERVERS}",
        f"import os\nos.environ.pop('TF_CONFIG', None)\n{WORKERS}",
        SERVERS.replace("TFConfigClusterResolver()", "SimpleClusterResolver(spec)"),
        f"import horovod.tensorflow as hvd\n{WORKERS}",  # which of them, the script knows
        WORKERS.replace("\nmain()\n", ""),  # nothing calls it
        "from strategies import choose\nchoose(MultiWorkerMirroredStrategy, ParameterServerStrategy)\n",
        "import tensorflow as tf\ntry:\n    tf.MultiWorkerMirroredStrategy()\nexcept Exception:\n    s = 0\n",
    ],
)
def test_script_choosing_its_strategy_or_cluster_is_not_reported(text: str, mode: str) -> None:
    assert doubts_of(text, mode, "2.14.1", files={"other.py": f"{SERVERS}{WORKERS}"}) == []
