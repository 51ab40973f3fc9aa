"""Test examples/deepfm: data files, channels, hyperparameters, and the model that one job leaves to the next.

tests/local/test_deepfm.py tests training, resuming, evaluation, inference and export.
"""

import gzip
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from ports import unused_port

pytestmark = [pytest.mark.tensorflow, pytest.mark.unmeasured]
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "deepfm"


# ---- data files


def line(label=1, first=1, fields=39):
    return f"{label} " + " ".join(f"{first + index}:{index / 4}" for index in range(fields))


def rows_in(load, folder, monkeypatch):
    """Return (label, ids, values) of all rows of the files, read as in training."""
    monkeypatch.setenv("SM_CHANNEL_TRAINING", str(folder))
    data, rows = load("data"), []
    for features, labels in data.batches(data.Rows("training"), batch_size=2):
        columns = labels, features["ids"], features["values"]
        rows += zip(*(column.numpy().tolist() for column in columns), strict=True)
    return rows


def test_converted_rows_are_unchanged_and_shards_are_even(load, tmp_path, monkeypatch):
    """The input is gzip and plain files with comments and the labels -1, 0 and +1."""
    with gzip.open(tmp_path / "a.libsvm.gz", "wt") as file:
        file.write("# a comment\n\n" + "".join(f"{line(-1, first=n)} # another\r\n" for n in range(6)))
    rest = "\n".join(line("+1" if n % 2 else "0", first=n).replace(" ", "\t") for n in range(6, 11))
    (tmp_path / "b.libsvm").write_text(rest)  # no newline at the end
    sources = [tmp_path / "a.libsvm.gz", tmp_path / "b.libsvm"]
    written = load("libsvm_to_tfrecord").convert(sources, tmp_path / "out", shards=4)
    assert [(path.name, rows) for path, rows in written] == [
        (f"part-0000{index}-of-00004.tfrecords", rows) for index, rows in enumerate((3, 3, 3, 2))
    ]
    rows = sorted(rows_in(load, tmp_path / "out", monkeypatch), key=lambda row: row[1])
    assert [ids for _, ids, _ in rows] == [list(range(n, n + 39)) for n in range(11)]
    assert [label for label, _, _ in rows] == [0] * 6 + [0, 1, 0, 1, 0]
    assert all(values == [index / 4 for index in range(39)] for _, _, values in rows)


@pytest.mark.parametrize(
    "bad, message",
    [
        (line("yes"), "the label must be a number, not 'yes'"),
        (line("2"), "the label must be 0 or 1, not '2'"),
        (line(fields=38), "39 pairs of id:value are expected, but there are 38"),
        (line().replace("7:", "7="), "expected id:value, not '7=1.5'"),
        (line(first=117_562), "the id must be a whole number from 0 to 117599, not '117600'"),
        (line().replace(" 1:", " -1:"), "not '-1'"),
        (line().replace("7:1.5", "7:nan"), "the value of id 7 must be a number, not 'nan'"),
    ],
)
def test_bad_row_is_named_and_leaves_no_files(load, tmp_path, capsys, bad, message):
    source = tmp_path / "a.libsvm"
    source.write_text(f"{line()}\n\n{bad}\n")
    assert load("libsvm_to_tfrecord").main([str(source), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert f"{source}:3: " in error and message in error
    assert list((tmp_path / "out").iterdir()) == []


def test_truncated_gzip_file_is_an_error(load, tmp_path, capsys):
    whole = gzip.compress((line() + "\n").encode() * 1000)
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    assert load("libsvm_to_tfrecord").main([str(tmp_path / "a.gz"), "--output", str(tmp_path / "out")]) == 1
    assert "libsvm_to_tfrecord: " in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_shards_are_renamed_when_complete_and_never_mixed_with_others(load, tmp_path, monkeypatch):
    converter, source, output, seen = load("libsvm_to_tfrecord"), tmp_path / "a.libsvm", tmp_path / "out", []
    source.write_text(f"{line()}\n{line()}\n")
    serialize = converter.serialize

    def watched(*row):
        seen.append((len(list(output.iterdir())), list(output.glob(load("data").Rows("training").pattern))))
        return serialize(*row)

    monkeypatch.setattr(converter, "serialize", watched)
    converter.convert([source], output, shards=3)
    assert seen == [(3, [])] * 2
    converter.convert([source], output, shards=3)  # its own are replaced
    with pytest.raises(FileExistsError, match="part-00000-of-00003"):
        converter.convert([source], output, shards=2)


def test_converted_records_equal_those_of_tensorflow(load):
    """The lengths are equal as well. Only the order of the three features may differ."""
    import tensorflow as tf

    ids, values = [0, 127, 128, 16_383, 16_384, 117_599], [0.0, 1.0, 0.25, -3.5, 1e-30, 145.66]
    features = {
        "label": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0])),
        "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids)),
        "values": tf.train.Feature(float_list=tf.train.FloatList(value=values)),
    }
    written, wanted = load("libsvm_to_tfrecord").serialize(1.0, ids, values), tf.train.Example()
    wanted.features.CopyFrom(tf.train.Features(feature=features))
    assert tf.train.Example.FromString(written) == wanted
    assert len(written) == len(wanted.SerializeToString())


def test_generated_rows_have_criteo_shape_and_predictive_feature_pairs(load, tmp_path, monkeypatch):
    from sklearn.metrics import roc_auc_score

    maker = load("make_rows")
    assert maker.main(["--output", str(tmp_path / "made"), "--rows", "20000", "--seed", "7"]) == 0
    rows = rows_in(load, tmp_path / "made", monkeypatch)
    labels, ids, values = (np.array(column) for column in zip(*rows, strict=True))
    assert ids.shape == values.shape == (20_000, 39) and 0.22 < labels.mean() < 0.28
    in_fields = [set(ids[:, field].tolist()) for field in range(39)]
    assert [len(each) for each in in_fields[:13]] == [1] * 13, "of a count"
    assert len(set.union(*in_fields)) == sum(map(len, in_fields)), "no id is in two fields"
    counts = values[:, :13]
    assert (values[:, 13:] == 1).all() and np.median((counts == 0).mean(axis=0)) > 0.15
    assert (counts.max(axis=0) > 20 * counts.mean(axis=0)).sum() > 6, "they have long tails"
    clicks = maker.Clicks(7)
    first, second = clicks.first_order(ids, values), clicks.second_order(ids)
    assert roc_auc_score(labels, first + second) > roc_auc_score(labels, first) + 0.07
    for (begin, end), shares in zip(clicks.categories, clicks.shares, strict=True):
        assert np.allclose(shares @ clicks.vectors[begin:end], 0), "on average a category's pairs say nothing"


def test_seed_determines_every_byte_of_generated_rows(load, tmp_path):
    def contents(name, seed):
        words = ["--output", tmp_path / name, "--rows", 1000, "--seed", seed, "--shards", 3]
        assert load("make_rows").main([str(word) for word in words]) == 0
        return {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}

    first, again, other = contents("first", 7), contents("again", 7), contents("other", 8)
    assert again == first and len(first) == 3
    assert all(other[name] != first[name] for name in first)


@pytest.mark.parametrize(
    "options, wanted",
    [
        (["--rows", "0"], "1 row or more"),
        (["--seed", "-1"], "seed of 0 or more"),
        (["--rows", "5", "--shards", "0"], "shards must be 1 or more"),
    ],
)
def test_impossible_sizes_of_generated_rows_are_refused(load, tmp_path, capsys, options, wanted):
    assert load("make_rows").main(["--output", str(tmp_path / "out"), *options]) == 1
    assert wanted in capsys.readouterr().err
    assert not list(tmp_path.glob("out/*"))


# ---- channels


@pytest.fixture
def channels(tmp_path, monkeypatch):
    """Give the job a channel with these files, such as `channels("training", "a.tfrecords")`, or a pipe."""
    described = {}

    def add(name, *files, **description):
        folder = tmp_path / "input/data" / name
        folder.mkdir(parents=True)
        for file in files:
            (folder / file).touch()
        described[name] = {"TrainingInputMode": "File", **description}
        (tmp_path / "input/config/inputdataconfig.json").write_text(json.dumps(described))
        return folder

    (tmp_path / "input/config").mkdir(parents=True)
    for variable in [name for name in os.environ if name.startswith(("SM_", "ENTRYPOINT_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path / "input"))
    return add


def names(rows):
    """Return the names of the files that the job reads."""
    return sorted(Path(path).name for path in rows.files())


def test_no_file_is_used_for_training_and_evaluation(load, channels):
    split = load("data").split
    folder = channels("training", "b.tfrecords", "a.tfrecords", "c.tfrecord")
    assert [names(rows) for rows in split()] == [["a.tfrecords", "b.tfrecords"], ["c.tfrecord"]]
    other = channels("evaluation", "d.tfrecords")
    assert [names(rows) for rows in split()] == [["a.tfrecords", "b.tfrecords", "c.tfrecord"], ["d.tfrecords"]]
    (other / "d.tfrecords").unlink()
    (other / "a.tfrecords").symlink_to(folder / "a.tfrecords")
    with pytest.raises(SystemExit, match="both trained and evaluated on"):
        split()


def test_held_out_file_is_not_trained_on(load, channels):
    data, folder = load("data"), channels("train")
    for name, first in (("a", 0), ("b", 100)):
        source = folder / f"{name}.libsvm"
        source.write_text(f"{line(first=first)}\n{line(first=first)}\n")
        load("libsvm_to_tfrecord").convert([source], folder / name, shards=1, prefix=name)
    training, evaluation = data.split()
    ids = [
        sorted({int(features["ids"][0, 0]) for features, _ in batches})
        for batches in (data.shuffled_batches(training, 1), data.batches(evaluation, 1))
    ]
    assert ids == [[0], [100]]
    assert data.count(training) == 2


@pytest.mark.parametrize(
    "description, why",
    [({"TrainingInputMode": "Pipe"}, "a pipe"), ({"S3DistributionType": "ShardedByS3Key"}, "other files on each host")],
)
def test_evaluation_channel_is_required_without_a_held_out_file(load, channels, description, why):
    channels("training", "a.tfrecords", "b.tfrecords", **description)
    with pytest.raises(SystemExit, match=f"{why}.* wanted a channel named 'evaluation'"):
        load("data").split()
    channels("evaluation", "c.tfrecords")
    training, _ = load("data").split()
    assert training.pipe == ("TrainingInputMode" in description)


def test_partial_evaluation_rows_are_refused(load, channels, monkeypatch):
    channels("training", "a.tfrecords")
    channels("evaluation", "b.tfrecords", S3DistributionType="ShardedByS3Key")
    assert names(load("data").split()[1]) == ["b.tfrecords"]  # one host has it all
    for name, value in (("SIZE", 4), ("RANK", 3), ("LOCAL_SIZE", 2), ("LOCAL_RANK", 1)):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
    monkeypatch.setenv("SM_HOSTS", '["algo-1", "algo-2"]')
    with pytest.raises(SystemExit, match="has only a part of channel 'evaluation': wanted it FullyReplicated"):
        load("data").split()


def test_channel_is_matched_by_its_whole_name(load, channels):
    channels("trainval", "a.tfrecords")
    with pytest.raises(SystemExit, match="no data: give the job a channel named 'training' or 'train'"):
        load("data").split()


# ---- hyperparameters


@pytest.fixture
def parse(load):
    return lambda *words: load("settings").parse_args([str(word) for word in words])


DEFAULTS = {"task": "train", "optimizer": "adagrad", "learning_rate": 0.1, "batch_size": 64, "dropout": (0.5,),
            "field_size": 39, "feature_size": 117_600, "embedding_size": 8, "deep_layers": (64, 32),
            "batch_norm": False, "sizes_given": {}, "unknown": []}  # fmt: skip
LAYERS = {"deep_layers": (128, 64), "sizes_given": {"deep_layers": (128, 64)}}


@pytest.mark.parametrize(
    "words, wanted",
    [
        ([], DEFAULTS),
        (["--optimizer", "adam"], {"learning_rate": 0.001}),
        (["--optimizer", "adam", "--learning-rate", "0.01"], {"learning_rate": 0.01}),
        (["--task", "eval", "--dropout", "0.1,0.2,0.3"], {"task": "eval"}),  # where dropout is of no matter
        (["--deep-layers", "128,64"], LAYERS),
        (["--deep_layers", "[128, 64]"], LAYERS),
        (["--deep-layers", "128 64"], LAYERS),
        (["--batch-norm"], {"batch_norm": True}),
        (["--batch-norm", "true"], {"batch_norm": True}),
        (["--batch_norm", "False"], {"batch_norm": False}),
        (["--task_type", "infer", "--num_epochs", 2, "--l2", 0], {"task": "infer", "epochs": 2, "l2_reg": 0.0}),
        (["--model_dir", "s3://b", "--epoks", 3], {"unknown": ["--epoks"]}),
    ],
)
def test_hyperparameters_are_read_in_all_spellings(parse, words, wanted):
    """Both spellings and the names of the original program are accepted. Each one has a default."""
    args = parse(*words)
    found = {**vars(args), **vars(args.sizes)}
    assert {name: found[name] for name in wanted} == wanted


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
    ],
)  # fmt: skip
def test_wrong_hyperparameter_is_reported_in_one_line(parse, capsys, words, said):
    with pytest.raises(SystemExit) as ended:
        parse(*words.split(" "))
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_model_sizes_survive_json_and_list_differences(load):
    sizes = load("settings").Sizes(deep_layers=(9, 7, 5), batch_norm=True)
    assert load("settings").Sizes.from_json(sizes.to_json()) == sizes
    assert sizes.differences({"deep_layers": (9, 7, 5), "batch_norm": True}) == ""
    assert sizes.differences({"deep_layers": (4,), "batch_norm": False, "field_size": 39}) == (
        "found deep-layers 9,7,5, wanted 4; found batch-norm true, wanted false"
    )


# ---- what one job keeps for another


SMALL = ("--field-size", 3, "--feature-size", 20, "--embedding-size", 2, "--deep-layers", "4,3")


@pytest.fixture
def kept(load, tmp_path, monkeypatch):
    """Return the module in a job without channels that keeps its checkpoints in tmp_path/checkpoints."""
    for name in ("SM_CHANNELS", "SM_CHANNEL_MODEL", "TF_CONFIG", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path / "input"))
    monkeypatch.setenv("SM_MODEL_DIR", str(tmp_path / "model"))
    return load("kept")


@pytest.fixture
def job(kept, load, parse, tmp_path):
    """Return a model and its place of training, for arguments such as `job("--optimizer", "adam")`."""

    def start(*words):
        args = parse(*SMALL, "--checkpoints", tmp_path / "checkpoints", *words)
        model = load("model").compiled(args)
        return model, kept.Progress(model, args)

    return start


def test_foreign_checkpoint_is_refused_and_learning_rate_is_kept(job):
    _, progress = job("--batch-norm", "--epochs", 2)
    progress.reached(1, loss=0.5, rows_per_step=1)
    with pytest.raises(SystemExit, match="is not of this job's model: found batch-norm true, wanted false"):
        job()
    with pytest.raises(SystemExit, match="found optimizer adagrad, wanted adam"):
        job("--batch-norm", "--optimizer", "adam")
    model, resumed = job("--batch-norm", "--epochs", 2, "--dropout", 0.1, "--l2-reg", 0, "--learning-rate", 0.25)
    assert list(resumed.epochs_left()) == [2] and float(model.optimizer.learning_rate) == 0.25


def test_earlier_model_is_found_or_error_lists_searched_places(kept, job, parse, tmp_path, monkeypatch):
    import tensorflow as tf

    args = parse("--task", "infer", "--checkpoints", tmp_path / "checkpoints")
    with pytest.raises(SystemExit, match=r"nothing to infer: found no channel 'model', and no checkpoint in .*points"):
        kept.earlier(args)
    model, progress = job("--batch-norm")
    progress.reached(1, loss=0.5, rows_per_step=1)
    kept.save(model, tmp_path / "model/1", parse(*SMALL, "--batch-norm").sizes)
    rows = {"ids": tf.constant([[0, 1, 2], [17, 18, 19]], tf.int64), "values": tf.ones([2, 3])}
    wanted = model(rows, training=False)[:, 0].numpy()
    for folder in (None, tmp_path / "model", tmp_path / "checkpoints"):  # a model.tar.gz: local/test_deepfm.py
        if folder:
            monkeypatch.setenv("SM_CHANNEL_MODEL", str(folder))
        found = kept.earlier(args)
        assert found.sizes.embedding_size == 2 and found.sizes.batch_norm
        assert found.predict(rows).numpy() == pytest.approx(wanted, rel=1e-5)
    with pytest.raises(SystemExit, match="of other sizes: found field-size 3, wanted 4"):
        kept.earlier(parse("--task", "eval", "--field-size", 4))
    (tmp_path / "model/1/assets.extra/deepfm.json").unlink()
    monkeypatch.setenv("SM_CHANNEL_MODEL", str(tmp_path / "model"))
    with pytest.raises(SystemExit, match="wanted a model that this example has saved"):
        kept.earlier(args)


def test_archive_writes_nothing_outside_its_folder(kept, tmp_path):
    (tmp_path / "evil").write_text("evil")
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "evil", "../evil-too")
        tar.add(tmp_path / "evil", "1/good")
    folder = kept.unpacked(tmp_path)
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["good"]
    assert not (folder.parent / "evil-too").exists()


def test_probabilities_follow_the_row_order_of_their_file(kept, load, job, parse, tmp_path, monkeypatch):
    converter, data = load("libsvm_to_tfrecord"), load("data")
    rows = tmp_path / "input/data/inference"
    for name, start in (("a", 0), ("deep/b", 9)):
        source = tmp_path / "rows.libsvm"
        source.write_text("".join(f"0 {n}:1 {n + 1}:0.5 {n + 2}:1\n" for n in range(start, start + 7)))
        converter.convert([source], (rows / name).parent, shards=1, prefix=Path(name).name, fields=3, features=20)
    monkeypatch.setenv("SM_OUTPUT_DATA_DIR", str(tmp_path / "out"))
    model, progress = job()
    model.variables[0].assign(np.random.default_rng(1).normal(size=model.variables[0].shape))
    progress.reached(1, loss=0.5, rows_per_step=1)
    load("train").infer_task(parse("--task", "infer", "--checkpoints", tmp_path / "checkpoints"))

    out = tmp_path / "out/probabilities"
    for name, start in (("a", 0), ("deep/b", 9)):
        ids = np.arange(start, start + 7)[:, None] + np.arange(3)
        wanted = model({"ids": ids, "values": np.float32([[1, 0.5, 1]] * 7)}, training=False)[:, 0].numpy()
        lines = (out / f"{name}-00000-of-00001.tfrecords.txt").read_text().splitlines()
        assert [float(each) for each in lines] == pytest.approx(wanted, rel=1e-5) and len(set(lines)) == 7

    sizes = load("settings").Sizes(field_size=4)
    with pytest.raises(SystemExit, match="rows of channel 'inference' have 3 fields; wanted the field-size, 4"):
        data.check(data.for_inference(), sizes)
    few = data.unlabelled_batches(data.Rows("inference"), sizes=load("settings").Sizes(field_size=3, feature_size=11))
    with pytest.raises(load("tensorflow").errors.InvalidArgumentError, match="found ids from"):
        list(few)


# ---- parameter servers


@pytest.mark.parametrize("optimizer", ["adagrad", "ftrl"])
def test_variables_survive_transfer_to_parameter_servers_and_back(load, parse, optimizer):
    """Parameter servers hold the table in pieces of different lengths. The optimizer orders its slots by piece:
    all slots of a piece (one with Adagrad, two with FTRL) come before those of the next piece.
    """
    import tensorflow as tf

    def compiled():
        return load("model").compiled(parse("--optimizer", optimizer))

    def cut(variable):
        is_table = variable.shape.rank and variable.shape[0] == 117_600
        pieces = tf.split(variable, [50_000, 50_000, 17_600]) if is_table else [variable]
        name = variable.name.removesuffix(":0") + ("/part_{}" if is_table else "")
        for number, piece in enumerate(pieces):
            yield tf.Variable(tf.zeros_like(piece), name=name.format(number))

    def cut_all(variables):
        """Cut variables in the order of Keras: all slots of the first weight, then those of the second."""
        yield from (piece for pieces in zip(*map(cut, variables), strict=True) for piece in pieces)

    def variables_of(model):
        return [*model.variables, *model.optimizer.variables]

    here = compiled()
    for number, variable in enumerate(variables_of(here)):
        variable.assign(tf.reshape(tf.range(tf.size(variable), dtype=variable.dtype) + number, variable.shape))
    weights, (steps, *memories) = here.trainable_variables, here.optimizer.variables
    each = len(memories) // len(weights)
    memories = [memories[at : at + each] for at in range(0, len(memories), each)]
    there = SimpleNamespace(
        variables=[piece for variable in here.variables for piece in cut(variable)],
        optimizer=SimpleNamespace(variables=[*cut(steps), *(piece for group in memories for piece in cut_all(group))]),
    )
    assert len(there.variables) == len(here.variables) + 2
    load("parameter_servers").send(here, there)
    back = compiled()
    load("parameter_servers").fetch(there, back)
    for sent, came in zip(variables_of(here), variables_of(back), strict=True):
        assert (sent.numpy() == came.numpy()).all(), sent.name


def test_layers_of_equal_shape_start_with_different_weights(load):
    import tensorflow as tf

    network = load("model").Network([8, 8, 8], dropout=[0.0] * 3)
    network(tf.zeros([1, 8]))
    kernels = tf.reshape(network.packed[: 3 * 64], [3, 64]).numpy().tolist()
    assert len({tuple(kernel) for kernel in kernels}) == 3
    assert not network.packed[3 * 64 + 8 :].numpy().any(), "the biases, behind the last kernel"


def test_ps_step_runs_where_keras_sees_a_gpu():
    """With a GPU, Keras 2 compiles an optimizer's step by XLA. The example must not compile it.

    XLA cannot use a variable of another parameter server.
    """
    program = Path(__file__).with_name("gpu_steps.py")
    command = [sys.executable, program, EXAMPLE, *(str(unused_port()) for _ in range(4))]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    compiles, why = told["keras"]
    assert compiles and "Trying to access resource" in why, "else this test shows nothing"
    compiles, loss = told["example"]
    assert not compiles and 0 < loss < 10
