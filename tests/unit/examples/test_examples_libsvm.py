"""Test examples/deepfm: rows are kept or an error names the line; what is trained on, what is kept."""

import gzip
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.unmeasured]
DEEPFM = Path(__file__).resolve().parents[3] / "examples" / "deepfm"


@pytest.fixture(scope="module")
def deepfm():
    """Return the example's modules; remove them from `sys.modules` afterwards, since their names are common ones."""
    pytest.importorskip("tensorflow")  # here and not above: collecting the tests stays quick
    sys.path.insert(0, str(DEEPFM))
    try:
        import libsvm_to_tfrecord

        import data
        import kept
        import model
        import parameter_servers
        import settings

        modules = {"kept": kept, "model": model, "servers": parameter_servers, "settings": settings}
        yield SimpleNamespace(data=data, converter=libsvm_to_tfrecord, **modules)
    finally:
        sys.path.remove(str(DEEPFM))
        for name in ("data", "kept", "libsvm_to_tfrecord", "model", "parameter_servers", "settings"):
            sys.modules.pop(name, None)


def compiled(deepfm, *words):
    """Return a model and the hyperparameters that it is made by."""
    args = deepfm.settings.parse_args([*words])
    return deepfm.model.compiled(args), args


def line(label=1, first=1, fields=39):
    return f"{label} " + " ".join(f"{first + index}:{index / 4}" for index in range(fields))


def rows_in(deepfm, folder, monkeypatch):
    monkeypatch.setenv("SM_CHANNEL_TRAINING", str(folder))
    rows = []
    for features, labels in deepfm.data.batches(deepfm.data.Rows("training"), batch_size=2):
        columns = labels, features["ids"], features["values"]
        rows += zip(*(column.numpy().tolist() for column in columns), strict=True)
    return rows


def test_rows_survive_and_shards_differ_by_one_row_at_most(deepfm, tmp_path, monkeypatch):
    source = tmp_path / "a.libsvm"
    source.write_text("\n".join(line(label=index % 2, first=index) for index in range(11)) + "\n")
    written = deepfm.converter.convert([source], tmp_path / "out", shards=4)
    assert [path.name for path, _ in written] == [f"part-{index:05d}-of-00004.tfrecords" for index in range(4)]
    assert [rows for _, rows in written] == [3, 3, 3, 2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [path.name for path, _ in written]

    rows = rows_in(deepfm, tmp_path / "out", monkeypatch)
    assert deepfm.data.count(deepfm.data.Rows("training")) == len(rows)
    assert sorted(ids[0] for _, ids, _ in rows) == list(range(11))
    for label, ids, values in rows:
        assert label == ids[0] % 2
        assert ids == list(range(ids[0], ids[0] + 39))
        assert values == [index / 4 for index in range(39)]


def test_reads_gzip_several_files_comments_and_both_kinds_of_labels(deepfm, tmp_path, monkeypatch):
    with gzip.open(tmp_path / "a.libsvm.gz", "wt") as file:
        file.write(f"# a comment\n\n{line(-1)} # another\r\n")
    (tmp_path / "b.libsvm").write_text(line("+1").replace(" ", "\t"))  # no newline at the end
    sources = [tmp_path / "a.libsvm.gz", tmp_path / "b.libsvm"]
    [(_, rows)] = deepfm.converter.convert(sources, tmp_path / "out", shards=1)
    assert rows == 2
    assert [label for label, _, _ in rows_in(deepfm, tmp_path / "out", monkeypatch)] == [0.0, 1.0]


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
        (line().replace("7:1.5", "7:"), "the value of id 7 must be a number, not ''"),
    ],
)
def test_a_bad_row_is_named_and_leaves_no_files(deepfm, tmp_path, capsys, bad, message):
    source = tmp_path / "a.libsvm"
    source.write_text(f"{line()}\n\n{bad}\n")
    assert deepfm.converter.main([str(source), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert f"{source}:3: " in error and message in error
    assert list((tmp_path / "out").iterdir()) == []


def test_whoever_looks_before_the_end_sees_no_file(deepfm, tmp_path, monkeypatch):
    source, output = tmp_path / "a.libsvm", tmp_path / "out"
    source.write_text(f"{line()}\n{line()}\n")
    serialize, seen = deepfm.converter.serialize, []

    def watched(*row):
        seen.append((len(list(output.iterdir())), list(output.glob(deepfm.data.Rows("training").pattern))))
        return serialize(*row)

    monkeypatch.setattr(deepfm.converter, "serialize", watched)
    deepfm.converter.convert([source], output, shards=3)
    assert seen == [(3, [])] * 2


def test_a_gzip_file_that_was_cut_off_is_an_error(deepfm, tmp_path, capsys):
    whole = gzip.compress((line() + "\n").encode() * 1000)
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    assert deepfm.converter.main([str(tmp_path / "a.gz"), "--output", str(tmp_path / "out")]) == 1
    assert "libsvm_to_tfrecord: " in capsys.readouterr().err
    assert list((tmp_path / "out").iterdir()) == []


def test_does_not_mix_with_another_conversion_but_replaces_its_own(deepfm, tmp_path):
    source = tmp_path / "a.libsvm"
    source.write_text(line())
    deepfm.converter.convert([source], tmp_path / "out", shards=1)
    deepfm.converter.convert([source], tmp_path / "out", shards=1)
    with pytest.raises(FileExistsError, match="part-00000-of-00001"):
        deepfm.converter.convert([source], tmp_path / "out", shards=2)


@pytest.fixture
def channels(tmp_path, monkeypatch):
    """Give the job a channel with files of these names, or a pipe: `channels("training", "a.tfrecords")`."""
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


def read(rows):
    """Return the names of the files that are read."""
    return sorted(Path(path).name for path in rows.files())


def test_no_file_is_in_both_parts_of_the_split(deepfm, channels):
    folder = channels("training", "b.tfrecords", "a.tfrecords", "c.tfrecord")
    training, evaluation = deepfm.data.split()
    assert (read(training), read(evaluation)) == (["a.tfrecords", "b.tfrecords"], ["c.tfrecord"])

    other = channels("evaluation", "d.tfrecords")
    training, evaluation = deepfm.data.split()
    assert (read(training), read(evaluation)) == (["a.tfrecords", "b.tfrecords", "c.tfrecord"], ["d.tfrecords"])

    (other / "d.tfrecords").unlink()
    (other / "a.tfrecords").symlink_to(folder / "a.tfrecords")
    with pytest.raises(SystemExit, match="both trained and evaluated on"):
        deepfm.data.split()


def test_what_is_kept_aside_is_not_read(deepfm, channels):
    folder = channels("train")
    for name, first in (("a", 0), ("b", 100)):
        source = folder / f"{name}.libsvm"
        source.write_text(f"{line(first=first)}\n{line(first=first)}\n")
        deepfm.converter.convert([source], folder / name, shards=1, prefix=name)
    training, evaluation = deepfm.data.split()
    ids = [
        sorted({int(features["ids"][0, 0]) for features, _ in batches})
        for batches in (deepfm.data.shuffled_batches(training, 1), deepfm.data.batches(evaluation, 1))
    ]
    assert ids == [[0], [100]]
    assert deepfm.data.count(training) == 2


@pytest.mark.parametrize(
    "description, why",
    [({"TrainingInputMode": "Pipe"}, "a pipe"), ({"S3DistributionType": "ShardedByS3Key"}, "other files on each host")],
)
def test_where_no_file_can_be_kept_aside_a_channel_is_wanted(deepfm, channels, description, why):
    channels("training", "a.tfrecords", "b.tfrecords", **description)
    with pytest.raises(SystemExit, match=f"{why}.* wanted a channel named 'evaluation'"):
        deepfm.data.split()
    channels("evaluation", "c.tfrecords")
    training, _ = deepfm.data.split()
    assert training.pipe == ("TrainingInputMode" in description)


def test_evaluates_on_all_rows_or_not_at_all(deepfm, channels, monkeypatch):
    def rank_of_four(rank):
        for name, value in (("SIZE", 4), ("RANK", rank), ("LOCAL_SIZE", 2), ("LOCAL_RANK", rank % 2)):
            monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", str(value))
        monkeypatch.setenv("SM_HOSTS", '["algo-1", "algo-2"]')

    channels("training", "a.tfrecords")
    channels("evaluation", "b.tfrecords", S3DistributionType="ShardedByS3Key")
    assert read(deepfm.data.split()[1]) == ["b.tfrecords"]  # one host has it all
    rank_of_four(3)
    with pytest.raises(SystemExit, match="has only a part of channel 'evaluation': wanted it FullyReplicated"):
        deepfm.data.split()
    channels("evaluation-2", "c.tfrecords", S3DistributionType="ShardedByS3Key")  # a channel for each rank
    with pytest.raises(SystemExit, match="has only a part of channel 'evaluation'"):
        deepfm.data.split()


def test_a_channel_is_known_by_its_whole_name(deepfm, channels):
    channels("trainval", "a.tfrecords")
    with pytest.raises(SystemExit, match="no data: give the job a channel named 'training' or 'train'"):
        deepfm.data.split()


def test_who_resumes_keeps_the_learning_rate_of_the_job(deepfm, tmp_path):
    def progress(rate):
        words = ["--epochs", "2", "--learning-rate", str(rate), "--checkpoints", str(tmp_path)]
        return deepfm.kept.Progress(*compiled(deepfm, *words))

    progress(0.5).reached(1, loss=0.0, rows_per_step=1)
    resumed = progress(0.25)
    assert list(resumed.epochs_left()) == [2]
    assert float(resumed.model.optimizer.learning_rate) == 0.25


@pytest.mark.parametrize("optimizer", ["adagrad", "ftrl"])
def test_variables_survive_the_way_to_parameter_servers_and_back(deepfm, optimizer):
    """The table is cut there, into pieces of different lengths; of each, the optimizer has all that it remembers of it
    before what it remembers of the next: that is one thing with Adagrad, two with FTRL.
    """
    import tensorflow as tf

    def cut(variable):
        is_table = variable.shape.rank and variable.shape[0] == 117_600
        pieces = tf.split(variable, [50_000, 50_000, 17_600]) if is_table else [variable]
        name = variable.name.removesuffix(":0") + ("/part_{}" if is_table else "")
        for number, piece in enumerate(pieces):
            yield tf.Variable(tf.zeros_like(piece), name=name.format(number))

    def cut_all(variables):
        """Cut as Keras orders them: `variables` are all memories of one weight, and so on."""
        yield from (piece for pieces in zip(*map(cut, variables), strict=True) for piece in pieces)

    def variables_of(model):
        return [*model.variables, *model.optimizer.variables]

    words = ["--optimizer", optimizer]
    here, _ = compiled(deepfm, *words)
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
    deepfm.servers.send(here, there)
    back, _ = compiled(deepfm, *words)
    deepfm.servers.fetch(there, back)
    for sent, came in zip(variables_of(here), variables_of(back), strict=True):
        assert (sent.numpy() == came.numpy()).all(), sent.name


def test_layers_of_one_shape_begin_with_different_weights(deepfm):
    import tensorflow as tf

    network = deepfm.model.Network([8, 8, 8], dropout=[0.0] * 3)
    network(tf.zeros([1, 8]))
    kernels = tf.reshape(network.packed[: 3 * 64], [3, 64]).numpy().tolist()
    assert len({tuple(kernel) for kernel in kernels}) == 3
    assert not network.packed[3 * 64 + 8 :].numpy().any(), "the biases, behind the last kernel"
