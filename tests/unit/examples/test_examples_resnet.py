"""examples/resnet: learning rate, averages of batch normalizations, images into files or an error that names one."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

RESNET = Path(__file__).resolve().parents[3] / "examples" / "resnet"


def load(name):
    """A module of the example. Their names are common ones, so it leaves `sys.modules` again."""
    sys.path.insert(0, str(RESNET))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(RESNET))
        sys.modules.pop(name, None)


# --- the learning rate


def rates(schedule, *epochs, ranks=8):
    args = SimpleNamespace(learning_rate=0.1, batch_size=32, epochs=90, warmup_epochs=5.0, schedule=schedule)
    learning_rate = load("schedule").learning_rate
    return [learning_rate(each, args, ranks) for each in epochs]


def test_the_learning_rate_is_warmed_up_from_that_of_one_rank_to_that_of_all():
    """0.1 for 256 images in a step: eight ranks have as many, one an eighth of it."""
    assert rates("step", 0, 2.5, 5, 29.9) == pytest.approx([0.0125, 0.05625, 0.1, 0.1])
    assert rates("cosine", 0, 2.5, 5) == pytest.approx([0.0125, 0.05625, 0.1])
    assert rates("step", 0, 2.5, 5, ranks=1) == pytest.approx([0.0125] * 3)


def test_steps_to_a_tenth_and_a_cosine_to_zero():
    assert rates("step", 30, 59.9, 60, 80, 89.9) == pytest.approx([0.01, 0.01, 0.001, 0.0001, 0.0001])
    assert rates("cosine", 47.5, 90) == pytest.approx([0.05, 0])


# --- from folders of images to files


@pytest.fixture(scope="module")
def converter():
    pytest.importorskip("tensorflow")  # here and not above: collecting the tests stays quick
    return load("folder_to_tfrecord")


@pytest.fixture
def photos(tmp_path):
    """Two classes with three images of one gray each."""
    import tensorflow as tf

    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(3):
            jpeg = tf.io.encode_jpeg(tf.fill([8, 12, 3], tf.constant(100 * number, tf.uint8)))
            (tmp_path / "photos" / name / f"{index}.jpg").write_bytes(jpeg.numpy())
    return tmp_path / "photos"


def run(converter, source, output, *more):
    return converter.main([str(source), "--output", str(output), "--shards", "2", *more])


@pytest.mark.tensorflow
def test_jpegs_survive_and_classes_are_numbered_by_name(converter, photos, tmp_path):
    import tensorflow as tf

    assert run(converter, photos, tmp_path / "data/training") == 0
    paths = sorted(path for path in (tmp_path / "data/training").iterdir())
    assert [path.name for path in paths] == ["part-00000-of-00002.tfrecords", "part-00001-of-00002.tfrecords"]
    shards = [[tf.train.Example.FromString(each.numpy()) for each in tf.data.TFRecordDataset(str(p))] for p in paths]
    assert [len(shard) for shard in shards] == [3, 3]
    rows = [example.features.feature for shard in shards for example in shard]
    found = sorted(
        (row["image/class/label"].int64_list.value[0], row["image/encoded"].bytes_list.value[0]) for row in rows
    )
    assert [label for label, _ in found] == [0, 0, 0, 1, 1, 1]
    assert (found[0][1], found[3][1]) == tuple((photos / name / "0.jpg").read_bytes() for name in ("cat", "dog"))
    assert (tmp_path / "data/labels.txt").read_text() == "cat\ndog\n"

    (photos / "cat").rename(photos / "cow")
    assert run(converter, photos, tmp_path / "data/validation") == 1  # numbered as the first time, or not at all


@pytest.mark.tensorflow
def test_whoever_looks_before_the_end_sees_no_file(converter, photos, tmp_path, monkeypatch):
    output, serialize, seen = tmp_path / "data/training", converter.serialize, []

    def watched(*row):
        seen.append((len(list(output.iterdir())), list(output.glob("*.tfrecord*"))))
        return serialize(*row)

    monkeypatch.setattr(converter, "serialize", watched)
    assert run(converter, photos, output) == 0
    assert seen == [(2, [])] * 6


@pytest.mark.tensorflow
def test_errors_name_the_file_and_leave_none(converter, photos, tmp_path, capsys):
    def fails(source, message, *more):
        assert run(converter, source, tmp_path / "data/training", *more) == 1
        error = capsys.readouterr().err
        assert error.startswith("folder_to_tfrecord: ") and message in error and error.count("\n") == 1
        assert not list((tmp_path / "data").glob("training/*"))

    fails(tmp_path / "none", "none is no folder; wanted one with a folder of images for each class")
    fails(photos / "cat", "no images in")
    fails(photos, "shards must be 1 or more, not 0", "--shards=0")
    (photos / "dog/2.jpg").write_bytes(b"no image")
    fails(photos, f"{photos}/dog/2.jpg: ")
    (tmp_path / "data/labels.txt").write_text("cat\n")
    fails(photos, "does not name the class 'dog'")


@pytest.mark.tensorflow
def test_does_not_mix_with_another_conversion(converter, photos, tmp_path, capsys):
    assert run(converter, photos, tmp_path / "data") == run(converter, photos, tmp_path / "data") == 0
    assert run(converter, photos, tmp_path / "data", "--shards=3") == 1
    assert "already holds other TFRecord files, such as part-00000-of-00002.tfrecords" in capsys.readouterr().err


# --- the averages of batch normalizations


@pytest.mark.tensorflow
def test_the_averages_become_those_of_the_batches():
    tf = pytest.importorskip("tensorflow")
    layers = tf.keras.layers
    inner = tf.keras.Sequential([layers.BatchNormalization(momentum=0.9, input_shape=[4, 4, 3])])
    pixels = tf.keras.Input([4, 4, 3])
    model = tf.keras.Model(pixels, inner(pixels))  # a network in a network, as the example's
    batches = [
        tf.random.stateless_normal([8, 4, 4, 3], [0, number], mean=5.0 * number, stddev=2.0) for number in (1, 2)
    ]
    settle = load("settle").make_settle(model)
    settle(batches)
    settle(batches)  # whatever they were before

    norm = inner.layers[0]
    moments = [tf.nn.moments(batch, axes=[0, 1, 2]) for batch in batches]
    means, variances = ([found[part].numpy() for found in moments] for part in (0, 1))
    assert norm.moving_mean.numpy() == pytest.approx(sum(means) / 2, rel=1e-4)
    assert norm.moving_variance.numpy() == pytest.approx(sum(variances) / 2, rel=0.02)  # n or n - 1
