"""Test entrypoint/programs/prepare/unsupported.py: which scripts are warned before they train that they will fail."""

from pathlib import Path

import pytest
from findings import texts

from entrypoint.usercode.reader import UserCode
from entrypoint.usercode.unsupported import doubts
from entrypoint.usercode.words import without_comments

FIT = "import tensorflow as tf\nmodel = tf.keras.Sequential()\nmodel.fit(data)\n"
LOOP = "import keras\nwith tf.GradientTape() as tape:\n    loss = step(model)\n"
OTHERS_FIT = "from sklearn.svm import SVC\nSVC().fit(x, y)\n"
HOROVOD_FIT = f"import horovod.tensorflow.keras as hvd\nhvd.init()\n{FIT}"
ESTIMATOR = "tf.estimator.train_and_evaluate(estimator, train, test)\n"


def of(tmp_path: Path, text: str, mode: str, tensorflow: str = "2.21.0", workers: str = "script", **env: str) -> str:
    (tmp_path / "lib").mkdir()
    (tmp_path / "train.py").write_text("from lib import models\n")
    (tmp_path / "lib/models.py").write_text(text)
    found = doubts(UserCode.of(texts(tmp_path), "train.py"), mode, workers, tensorflow, env)
    assert len(found) <= 1
    return str(found[0]) if found else ""


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (FIT, "ps", "lib/models.py:3 calls fit, and that of Keras 3, which TensorFlow 2.21.0 has, knows no parameter"),
        (FIT, "mwms", "lib/models.py:3 calls fit, and that of Keras 3, which TensorFlow 2.21.0 has, does not train on"),
    ],
)
def test_what_keras_3_does_not_do(tmp_path: Path, text: str, mode: str, says: str) -> None:
    found = of(tmp_path, text, mode)
    assert found.startswith(says) and "set TF_USE_LEGACY_KERAS=1" in found
    assert "Set ENTRYPOINT_MODE=jax" in found and "DataParallel(auto_shard_dataset=False)" in found
    assert "ENTRYPOINT_MODE=mpi" in found and "hvd.DistributedOptimizer(optimizer)" in found


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (LOOP, "ps"),
        (LOOP, "mwms"),
        (OTHERS_FIT, "ps"),
        (HOROVOD_FIT, "mpi"),
        (FIT, "mpi"),
        (FIT, "jax"),
        (FIT, "single"),
    ],
)
def test_what_it_does(tmp_path: Path, text: str, mode: str) -> None:
    assert of(tmp_path, text, mode) == ""


STRATEGY_OF_WORKERS = "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
LOOP_OF_KERAS = f"import tensorflow as tf\n{STRATEGY_OF_WORKERS}model = tf.keras.Sequential()\nloop(model)\n"
NETS = "import tensorflow as tf\n\n\ndef build():\n    return tf.keras.Sequential()\n"
SKLEARN = "from sklearn import svm\nfrom sklearn.preprocessing import StandardScaler\n"


def lines_of_fit(*files: tuple[str, str], program: str = "train.py") -> list[tuple[str, int]]:
    """Return where fit of Keras 3 is reported."""
    found = doubts(UserCode.of(files, program), "mwms", "script", "2.21.0", {})
    return [(each.place.file, each.place.line) for each in found]


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
        f"{SKLEARN}import tensorflow as tf\n# tf.keras would train it\nfor each in kinds:\n    each.fit(x)\n",
        f"{LOOP_OF_KERAS}this is no Python, model.fit(x)\n",
    ],
)
def test_fit_of_another_object_or_of_code_that_does_not_run(text: str) -> None:
    assert lines_of_fit(("train.py", text)) == []


def test_files_that_the_program_does_not_import_do_not_count() -> None:
    launch = "import nets\nfrom sagemaker.tensorflow import TensorFlow\nTensorFlow('train.py').fit('s3://bucket')\n"
    alone = f"{NETS}\n\nif __name__ == '__main__':\n    build().fit(x)\n"
    program = ("train.py", f"from nets import build\n{LOOP_OF_KERAS}")
    assert lines_of_fit(program, ("nets.py", alone), ("launch.py", launch), ("old/train_by_fit.py", FIT)) == []


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
def test_fit_of_keras_is_found_by_its_line(program: str, file: str, text: str, place: tuple[str, int]) -> None:
    assert lines_of_fit(("train.py", program), (file, text)) == [place]


def test_each_file_counts_where_the_program_is_no_python() -> None:
    assert lines_of_fit(("train.py", FIT), program="train.sh") == [("train.py", 3)]


def test_a_number_sign_in_a_string_is_no_comment() -> None:
    text = "a = 'one # two'  # 'three'\nb = \"\"\"\n# four's\n\"\"\"\n# five's\nc = '\\'#' #\nd = '' # six\n"
    found = without_comments(text)
    assert found == "a = 'one # two'\nb = \"\"\"\n# four's\n\"\"\"\n\nc = '\\'#'\nd = ''\n"


@pytest.mark.parametrize("version", ["2.14.1", "2.15.0", ""])
def test_an_older_tensorflow_has_keras_2(tmp_path: Path, version: str) -> None:
    assert of(tmp_path, FIT, "ps", version) == ""


@pytest.mark.parametrize("version", ["2.16.1", "2.21.0rc1", "3.0"])
def test_a_newer_one_has_keras_3(tmp_path: Path, version: str) -> None:
    assert of(tmp_path, FIT, "ps", version)


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_keras_2_is_chosen_by_the_environment(tmp_path: Path, value: str) -> None:
    assert of(tmp_path, FIT, "mwms", TF_USE_LEGACY_KERAS=value) == ""


@pytest.mark.parametrize("line", ["os.environ['TF_USE_LEGACY_KERAS'] = '1'\n", "import tf_keras as keras\n"])
def test_keras_2_is_chosen_by_the_script(tmp_path: Path, line: str) -> None:
    assert of(tmp_path, line + FIT, "mwms") == ""


def test_an_estimator_beside_worker_servers(tmp_path: Path) -> None:
    assert "Set ENTRYPOINT_PS_WORKERS=script" in of(tmp_path, ESTIMATOR, "ps", "2.14.1", workers="server")


def test_an_estimator_whose_workers_run_the_script(tmp_path: Path) -> None:
    assert of(tmp_path, ESTIMATOR, "ps", "2.14.1") == ""


STRATEGY = "strategy = tf.distribute.ParameterServerStrategy(resolver)\n"


def of_xla(text: str, *, tensorflow: str = "2.14.1", gpus: int = 1, servers: int = 2, **env: str) -> list[str]:
    files = [("train.py", STRATEGY), ("lib/models.py", text)]
    return [
        str(each)
        for each in doubts(UserCode.of(files, "train.py"), "ps", "script", tensorflow, env, gpus=gpus, servers=servers)
    ]


@pytest.mark.parametrize(
    ("text", "written", "instead"),
    [
        ("tf.keras.optimizers.SGD(0.1)", "SGD(0.1)", "tf.keras.optimizers.SGD(0.1, jit_compile=False)"),
        ("x = optimizers.experimental.Adam()", "Adam()", "optimizers.experimental.Adam(jit_compile=False)"),
        ("tf.optimizers.Adagrad(rate(3), name='a')", "rate(3)", "rate(3), name='a', jit_compile=False)"),
        (
            "from tensorflow.keras.optimizers import (Adam,\n SGD)\n\nx = Adam(1e-3)",
            "has Adam(1e-3)",
            "Write Adam(1e-3, jit",
        ),
        ("model.compile('adam', 'mse')", "adam", "tf.keras.optimizers.Adam(jit_compile=False) in place of 'adam'"),
        ("model.compile(loss=f('adam'), optimizer=\"rmsprop\")", "rmsprop", "tf.keras.optimizers.RMSprop(jit_"),
        (f"tf.keras.optimizers.SGD({'x' * 200})", "SGD(...)", "tf.keras.optimizers.SGD(..., jit_compile=False)"),
    ],
)
def test_an_optimizer_that_xla_compiles_for_parameter_servers(text: str, written: str, instead: str) -> None:
    (said,) = of_xla(f"import tensorflow as tf\n\n{text}\n")
    line = 6 if "\n" in text else 3
    assert said.startswith(f"lib/models.py:{line} has ") and written in said and instead in said


def test_the_first_of_several_in_a_file_is_told() -> None:
    (said,) = of_xla("a = tf.keras.optimizers.SGD(0.1)\nb = tf.keras.optimizers.Adam()\nm.compile('sgd')\n")
    assert said.startswith("lib/models.py:1 has tf.keras.optimizers.SGD(0.1) (and 2 more): ")


@pytest.mark.parametrize(
    "text",
    [
        "tf.keras.optimizers.SGD(0.1, jit_compile=False)",
        "tf.keras.optimizers.SGD(0.1, **how)",
        "o = tf.keras.optimizers.SGD(0.1)\no.jit_compile = False",
        "tf.keras.optimizers.legacy.SGD(0.1)",
        "from tensorflow.keras.optimizers.legacy import Adam\nAdam(0.1)",
        "tf.compat.v1.train.AdagradOptimizer(0.1)",
        "tf.keras.optimizers.schedules.CosineDecay(0.1, 10)",
        "re.compile('adam')",
        "model.compile(optimizer, 'mse')",
        "torch.optim.SGD(0.1)",
    ],
)
def test_one_that_it_does_not(text: str) -> None:
    assert of_xla(text) == []


@pytest.mark.parametrize(
    "job",
    [
        {"gpus": 0},
        {"servers": 1},
        {"servers": 0},
        {"tensorflow": "2.21.0"},
        {"tensorflow": "2.10.0"},
        {"tensorflow": ""},
    ],
)
def test_where_xla_meets_nothing_of_another_device(job: dict) -> None:
    assert of_xla("tf.keras.optimizers.SGD(0.1)", **job) == []


def test_keras_2_beside_a_newer_tensorflow_has_xla_too() -> None:
    assert of_xla("tf.keras.optimizers.SGD(0.1)", tensorflow="2.21.0", TF_USE_LEGACY_KERAS="1")
    assert of_xla("import tf_keras\ntf_keras.optimizers.SGD(0.1)", tensorflow="2.21.0")


def test_without_parameter_servers_it_may_compile() -> None:
    files = [("train.py", "tf.keras.optimizers.SGD(0.1)")]
    assert doubts(UserCode.of(files, "train.py"), "ps", "script", "2.14.1", {}, gpus=1, servers=2) == []


@pytest.mark.parametrize(
    ("ranks", "gpus", "told"), [(2, 1, True), (8, 4, True), (4, 4, False), (1, 8, False), (4, 0, False)]
)
def test_more_ranks_than_gpus_with_horovod(ranks: int, gpus: int, told: bool) -> None:
    files = [("train.py", "import horovod.tensorflow as hvd\n")]
    found = doubts(UserCode.of(files, "train.py"), "mpi", "script", "2.14.1", {}, gpus=gpus, ranks=ranks)
    assert bool(found) == told
    if told:
        words = str(found[0])
        assert words.startswith(f"{ranks} ranks are to train on each host, where ") and "invalid usage" in words
        assert f"ENTRYPOINT_PROCESSES_PER_HOST={gpus}" in words
    assert (
        doubts(
            UserCode.of([("train.py", "from mpi4py import MPI\n")], ""), "mpi", "script", "", {}, gpus=gpus, ranks=ranks
        )
        == []
    )


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
        (COORDINATOR, "mwms", ":2 makes ClusterCoordinator, and the mode is mwms"),
    ],
)
def test_the_strategy_of_another_mode(tmp_path: Path, text: str, mode: str, says: str) -> None:
    (tmp_path / "train.py").write_text(text)
    (found,) = doubts(UserCode.of(texts(tmp_path), "train.py"), mode, "script", "2.14.1", {})
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
        WORKERS.replace("\nmain()\n", ""),  # nothing calls it
        "from strategies import choose\nchoose(MultiWorkerMirroredStrategy, ParameterServerStrategy)\n",
        "import tensorflow as tf\ntry:\n    tf.MultiWorkerMirroredStrategy()\nexcept Exception:\n    s = 0\n",
    ],
)
def test_a_script_that_chooses_its_strategy_or_cluster_is_not_warned(tmp_path: Path, text: str, mode: str) -> None:
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "other.py").write_text(f"{SERVERS}{WORKERS}")
    assert doubts(UserCode.of(texts(tmp_path), "train.py"), mode, "script", "2.14.1", {}) == []


@pytest.mark.parametrize(("text", "mode"), [(WORKERS, "mwms"), (WORKERS, "single"), (WORKERS, "mpi"), (SERVERS, "ps")])
def test_the_strategy_of_the_mode_is_right(tmp_path: Path, text: str, mode: str) -> None:
    (tmp_path / "train.py").write_text(text)
    assert doubts(UserCode.of(texts(tmp_path), "train.py"), mode, "script", "2.14.1", {}) == []
