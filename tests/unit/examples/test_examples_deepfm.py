"""Test examples/deepfm: errors of hyperparameters, sizes of models, and predictions."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from ports import unused_port

pytestmark = pytest.mark.unmeasured
EXAMPLE = DEEPFM = Path(__file__).resolve().parents[3] / "examples" / "deepfm"


# ---- hyperparameters, without TensorFlow


@pytest.fixture
def parse(load):
    return lambda *words: load("settings").parse_args([str(word) for word in words])


def test_what_is_not_given_has_a_default(parse):
    args = parse()
    assert (args.task, args.optimizer, args.learning_rate, args.batch_size) == ("train", "adagrad", 0.1, 64)
    assert (args.sizes.field_size, args.sizes.feature_size, args.sizes.embedding_size) == (39, 117_600, 8)
    assert (args.sizes.deep_layers, args.sizes.batch_norm, args.dropout) == ((64, 32), False, (0.5,))
    assert args.sizes_given == {}


@pytest.mark.parametrize("spelled", ["--deep-layers", "--deep_layers"])
@pytest.mark.parametrize("value", ["128,64", "[128, 64]", "128 64"])
def test_both_spellings_and_lists_as_people_and_sdks_write_them(parse, spelled, value):
    args = parse(spelled, value)
    assert args.sizes.deep_layers == (128, 64) and args.sizes_given == {"deep_layers": (128, 64)}


def test_the_rate_follows_the_optimizer_unless_it_is_given(parse):
    assert parse("--optimizer", "adam").learning_rate == 0.001
    assert parse("--optimizer", "adam", "--learning-rate", "0.01").learning_rate == 0.01


@pytest.mark.parametrize("words, value", [(["--batch-norm"], True), (["--batch-norm", "true"], True),
                                          (["--batch_norm", "False"], False)])  # fmt: skip
def test_a_switch_stands_alone_or_has_a_value(parse, words, value):
    assert parse(*words).sizes.batch_norm is value


def test_names_of_the_original_are_known_and_others_are_told(parse):
    args = parse("--task_type", "infer", "--num_epochs", 2, "--l2_reg", 0, "--model_dir", "s3://b", "--epoks", 3)
    assert (args.task, args.epochs, args.l2_reg, args.unknown) == ("infer", 2, 0.0, ["--epoks"])


@pytest.mark.parametrize(
    "words, said",
    [
        ("--embedding-size 0", "--embedding-size/--embedding_size: found '0'; wanted a whole number of 1 or more"),
        ("--feature-size 1e5", "found '1e5'; wanted a whole number of 1 or more"),
        ("--deep-layers 64,x", "found 'x'; wanted a whole number of 1 or more"),
        ("--deep-layers []", "found '[]'; wanted one or more, as in 64,32"),
        ("--dropout 1", "found '1'; wanted a share of 0 or more, and less than 1"),
        ("--dropout 0.1,0,0.3", "found 3 shares (0.1,0,0.3); wanted one, or one for each of the 2 deep-layers (64,32)"),
        ("--batch-norm-decay nan", "found 'nan'; wanted a share"),
        ("--batch-norm maybe", "found 'maybe'; wanted true or false"),
        ("--learning-rate 0", "found '0'; wanted a number above 0"),
        ("--learning-rate inf", "found 'inf'; wanted a number above 0"),
        ("--l2-reg -1", "found '-1'; wanted a number of 0 or more"),
        ("--optimizer lamb", "choose from 'adagrad', 'adam', 'momentum', 'sgd', 'ftrl'"),
        ("--task predict", "choose from 'train', 'eval', 'infer', 'export'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(parse, capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        parse(*words.split(" "))
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_dropout_is_of_no_matter_to_who_does_not_train(parse):
    assert parse("--task", "eval", "--dropout", "0.1,0.2,0.3").task == "eval"


def test_sizes_survive_json_and_tell_their_differences(load):
    sizes = load("settings").Sizes(deep_layers=(9, 7, 5), batch_norm=True)
    assert load("settings").Sizes.from_json(sizes.to_json()) == sizes
    assert sizes.differences({"deep_layers": (9, 7, 5), "batch_norm": True}) == ""
    assert sizes.differences({"deep_layers": (4,), "batch_norm": False, "field_size": 39}) == (
        "found deep-layers 9,7,5, wanted 4; found batch-norm true, wanted false"
    )


# ---- models that know their sizes


SMALL = ("--field-size", 3, "--feature-size", 20, "--embedding-size", 2, "--deep-layers", "4,3")


@pytest.fixture
def kept(load, tmp_path, monkeypatch):
    """Return the module, in a job without channels, with its checkpoints in tmp_path/checkpoints."""
    pytest.importorskip("tensorflow")
    for name in ("SM_CHANNELS", "SM_CHANNEL_MODEL", "TF_CONFIG", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path / "input"))
    monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path / "model"))
    return load("kept")


@pytest.fixture
def job(kept, load, parse, tmp_path):
    """Return a model and its training's place: `job("--optimizer", "adam")`."""

    def start(*words):
        args = parse(*SMALL, "--checkpoints", tmp_path / "checkpoints", *words)
        model = load("model").compiled(args)
        return model, kept.Progress(model, args)

    return start


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "words, said",
    [
        (["--embedding-size", 3], "found embedding-size 2, wanted 3"),
        pytest.param(["--deep-layers", "5,3"], "found deep-layers 4,3, wanted 5,3", marks=pytest.mark.more),
        pytest.param(["--batch-norm"], "found batch-norm false, wanted true", marks=pytest.mark.more),
        pytest.param(["--optimizer", "adam"], "found optimizer adagrad, wanted adam", marks=pytest.mark.more),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(job, words, said):
    _, progress = job()
    progress.reached(1, loss=0.5, rows_per_step=1)
    with pytest.raises(SystemExit, match=f"is not of this job's model: {said}. Give the job the same hyperparameters"):
        job(*words)
    job("--dropout", 0.1, "--l2-reg", 0, "--learning-rate", 0.5)  # what may be another in the next job


@pytest.mark.tensorflow
def test_batch_normalizations_do_not_vanish_silently(job):
    _, progress = job("--batch-norm")
    progress.reached(1, loss=0.5, rows_per_step=1)
    with pytest.raises(SystemExit, match="found batch-norm true, wanted false"):
        job()


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "optimizer",
    ["adam", *(pytest.param(name, marks=pytest.mark.more) for name in ("adagrad", "momentum", "sgd", "ftrl"))],
)
def test_an_optimizers_memory_survives(job, optimizer):
    import numpy as np
    import tensorflow as tf

    model, progress = job("--optimizer", optimizer, "--batch-norm")
    for number, variable in enumerate([*model.variables, *model.optimizer.variables]):
        variable.assign(tf.cast(tf.fill(variable.shape, number + 1), variable.dtype))
    progress.reached(1, loss=0.5, rows_per_step=1)
    again, resumed = job("--optimizer", optimizer, "--batch-norm")
    assert int(resumed.over) == 1
    rate = again.optimizer.learning_rate
    for one, other in zip(
        [*model.variables, *model.optimizer.variables], [*again.variables, *again.optimizer.variables], strict=True
    ):
        if other is not rate:
            np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.tensorflow
def test_a_model_is_found_in_every_form_that_a_job_leaves(kept, job, load, parse, tmp_path, monkeypatch):
    import tensorflow as tf

    model, progress = job("--batch-norm")
    progress.reached(1, loss=0.5, rows_per_step=1)
    kept.save(model, tmp_path / "model/1", parse(*SMALL, "--batch-norm").sizes)
    rows = {"ids": tf.constant([[0, 1, 2], [17, 18, 19]], tf.int64), "values": tf.ones([2, 3])}
    wanted = model(rows, training=False)[:, 0].numpy()

    packed = tmp_path / "packed"
    packed.mkdir()
    with tarfile.open(packed / "model.tar.gz", "w:gz") as tar:  # as SageMaker packs /opt/ml/model
        tar.add(tmp_path / "model", ".")
    args = parse("--task", "eval", "--checkpoints", tmp_path / "checkpoints")
    for folder in (None, tmp_path / "model", packed, tmp_path / "checkpoints"):
        if folder:
            monkeypatch.setenv("SM_CHANNEL_MODEL", str(folder))
        found = kept.earlier(args)
        assert found.sizes.embedding_size == 2 and found.sizes.batch_norm
        assert found.predict(rows).numpy() == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(SystemExit, match="of other sizes: found field-size 3, wanted 4"):
        kept.earlier(parse("--task", "eval", "--field-size", 4))


@pytest.mark.tensorflow
def test_without_a_model_it_says_where_it_looked(kept, parse, tmp_path, monkeypatch):
    args = parse("--task", "infer", "--checkpoints", tmp_path / "none")
    with pytest.raises(SystemExit, match=r"nothing to infer: found no channel 'model', and no checkpoint in .*none"):
        kept.earlier(args)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/saved_model.pb").touch()
    monkeypatch.setenv("SM_CHANNEL_MODEL", str(tmp_path / "other"))
    with pytest.raises(SystemExit, match="wanted a model that this example has saved"):
        kept.earlier(args)


@pytest.mark.tensorflow
def test_an_archive_writes_nothing_outside_of_its_folder(kept, tmp_path):
    (tmp_path / "evil").write_text("evil")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "evil", "../evil-too")
        tar.add(tmp_path / "evil", "1/good")
    folder = kept.unpacked(tmp_path)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["good"]
    assert not (folder.parent / "evil-too").exists()


# ---- GPUs


@pytest.mark.tensorflow
def test_a_step_on_parameter_servers_where_keras_believes_in_a_gpu():
    """Keras 2 has XLA compile an optimizer's steps there, and XLA takes no variable of another parameter server."""
    program = Path(__file__).with_name("gpu_steps.py")
    command = [sys.executable, program, EXAMPLE, *(str(unused_port()) for _ in range(4))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    compiles, why = told["keras"]
    assert compiles and "Trying to access resource" in why, "else this test shows nothing"
    compiles, loss = told["example"]
    assert not compiles and 0 < loss < 10


# ---- what is foretold


@pytest.mark.tensorflow
def test_probabilities_are_in_the_order_of_the_rows_of_their_file(kept, load, job, parse, tmp_path, monkeypatch):
    import numpy as np

    converter, data, tasks = load("libsvm_to_tfrecord"), load("data"), load("tasks")
    rows = tmp_path / "input/data/inference"
    for name, start in (("a", 0), ("deep/b", 9)):
        source = tmp_path / "rows.libsvm"
        source.write_text("".join(f"0 {n}:1 {n + 1}:0.5 {n + 2}:1\n" for n in range(start, start + 7)))
        converter.convert([source], (rows / name).parent, shards=1, prefix=Path(name).name, fields=3, features=20)
    monkeypatch.setenv("SM_OUTPUT_DATA_DIR", str(tmp_path / "out"))
    model, progress = job()
    model.variables[0].assign(np.random.default_rng(1).normal(size=model.variables[0].shape))
    progress.reached(1, loss=0.5, rows_per_step=1)
    tasks.infer_task(parse("--task", "infer", "--checkpoints", tmp_path / "checkpoints"))

    out = tmp_path / "out/probabilities"
    written = {str(path.relative_to(out)): path for path in out.rglob("*") if path.is_file()}
    assert sorted(written) == ["a-00000-of-00001.tfrecords.txt", "deep/b-00000-of-00001.tfrecords.txt"]
    for name, start in (("a", 0), ("deep/b", 9)):
        ids = np.arange(start, start + 7)[:, None] + np.arange(3)
        wanted = model({"ids": ids, "values": np.float32([[1, 0.5, 1]] * 7)}, training=False)[:, 0].numpy()
        found = [float(line) for line in written[f"{name}-00000-of-00001.tfrecords.txt"].read_text().splitlines()]
        assert found == pytest.approx(wanted, rel=1e-5)
        assert len(set(found)) == 7

    sizes = load("settings").Sizes(field_size=4)
    with pytest.raises(SystemExit, match="rows of channel 'inference' have 3 fields; wanted the field-size, 4"):
        data.check(data.for_inference(), sizes)
    few = data.unlabelled_batches(data.Rows("inference"), sizes=load("settings").Sizes(field_size=3, feature_size=11))
    with pytest.raises(load("tensorflow").errors.InvalidArgumentError, match="found ids from"):
        list(few)
