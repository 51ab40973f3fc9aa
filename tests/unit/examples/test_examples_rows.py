"""Test examples/deepfm/make_rows.py: rows in Criteo's shape, equal for a seed, in which pairs of categories matter."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = [pytest.mark.tensorflow, pytest.mark.unmeasured]
DEEPFM = Path(__file__).resolve().parents[3] / "examples" / "deepfm"
ROWS = 20_000


@pytest.fixture(scope="module")
def deepfm():
    """Return the example's modules; remove them from `sys.modules` afterwards, since their names are common ones."""
    pytest.importorskip("tensorflow")  # here and not above: collecting the tests stays quick
    sys.path.insert(0, str(DEEPFM))
    try:
        import libsvm_to_tfrecord
        import make_rows

        import data

        yield SimpleNamespace(data=data, converter=libsvm_to_tfrecord, maker=make_rows)
    finally:
        sys.path.remove(str(DEEPFM))
        for name in ("data", "libsvm_to_tfrecord", "make_rows"):
            sys.modules.pop(name, None)


def make(deepfm, folder, *options):
    assert deepfm.maker.main(["--output", str(folder), *map(str, options)]) == 0
    return folder


@pytest.fixture(scope="module")
def made(deepfm, tmp_path_factory):
    """Return a folder of ROWS rows in four files, and its labels, ids and values as training reads them."""
    folder = make(deepfm, tmp_path_factory.mktemp("made"), "--rows", ROWS, "--seed", 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SM_CHANNEL_TRAINING", str(folder))
        found = [
            (labels.numpy(), features["ids"].numpy(), features["values"].numpy())
            for features, labels in deepfm.data.batches(deepfm.data.Rows("training"), batch_size=1000)
        ]
    labels, ids, values = (np.concatenate(column) for column in zip(*found, strict=True))
    return SimpleNamespace(folder=folder, labels=labels, ids=ids, values=values)


def test_rows_have_criteos_shape(deepfm, made):
    assert made.ids.shape == made.values.shape == (ROWS, 39)
    assert set(made.labels.tolist()) == {0.0, 1.0}
    assert 0.22 < made.labels.mean() < 0.28
    assert made.ids.min() >= 0 and made.ids.max() < deepfm.data.FEATURES
    assert len({id_ for field in range(39) for id_ in np.unique(made.ids[:, field])}) == sum(
        len(np.unique(made.ids[:, field])) for field in range(39)
    ), "no id is in two fields"
    assert (made.values[:, 13:] == 1).all()


def test_counts_have_many_zeros_and_long_tails(made):
    counts = made.values[:, :13]
    assert all(len(np.unique(made.ids[:, field])) == 1 for field in range(13))
    assert (counts >= 0).all()
    assert np.median((counts == 0).mean(axis=0)) > 0.15, (
        "in half of the fields a count is 0 in 15 % of the rows and more"
    )
    assert (counts.max(axis=0) > 20 * counts.mean(axis=0)).sum() > 6


def test_few_categories_are_frequent_and_many_rare(made):
    large = 0
    for field in range(13, 39):
        times = np.sort(np.unique(made.ids[:, field], return_counts=True)[1])[::-1]
        assert times[0] > 0.1 * ROWS
        if len(times) > 1000:
            large += 1
            assert times[:10].sum() > 0.3 * ROWS
            assert (times == 1).sum() > 100
    assert large > 10


@pytest.mark.more  # statistics of many rows, which local/test_deepfm.py learns from
def test_pairs_tell_what_no_feature_tells_by_itself(deepfm, made):
    """The best that whoever adds up features can do is the first order, and the best of all is both orders."""
    from sklearn.metrics import roc_auc_score

    clicks = deepfm.maker.Clicks(7)
    first, second = clicks.first_order(made.ids, made.values), clicks.second_order(made.ids)
    assert roc_auc_score(made.labels, first + second) > roc_auc_score(made.labels, first) + 0.07
    for (begin, end), shares in zip(clicks.categories, clicks.shares, strict=True):
        assert np.allclose(shares @ clicks.vectors[begin:end], 0), "on average a category's pairs say nothing"
    common = [np.bincount(made.ids[:, field]).argmax() for field in range(13, 39)]
    for field, id_ in zip(range(13, 39), common, strict=True):
        assert abs(second[made.ids[:, field] == id_].mean()) < 0.1 * second.std()


def test_the_seed_decides_everything_in_so_many_files(deepfm, tmp_path):
    def contents(name, seed):
        folder = make(deepfm, tmp_path / name, "--rows", 1000, "--seed", seed, "--shards", 3)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    first, again, other = contents("first", 7), contents("again", 7), contents("other", 8)
    files = sorted((tmp_path / "first").iterdir())
    assert [deepfm.data.count_records([str(path)]) for path in files] == [334, 333, 333]
    assert again == first
    assert other.keys() == first.keys()
    assert all(other[name] != first[name] for name in first)


@pytest.mark.parametrize(
    "options, wanted",
    [
        (["--rows", "0"], "1 row or more"),
        (["--seed", "-1"], "seed of 0 or more"),
        (["--rows", "5", "--shards", "0"], "shards must be 1 or more"),
    ],
)
def test_what_cannot_be_made_is_refused(deepfm, tmp_path, capsys, options, wanted):
    assert deepfm.maker.main(["--output", str(tmp_path / "out"), *options]) == 1
    assert wanted in capsys.readouterr().err
    assert not list(tmp_path.glob("out/*"))


def test_records_are_what_tensorflow_writes(deepfm):
    """And as many bytes; only the order of the three features is free."""
    import tensorflow as tf

    ids, values = [0, 127, 128, 16_383, 16_384, 117_599], [0.0, 1.0, 0.25, -3.5, 1e-30, 145.66]
    example = tf.train.Example.FromString(deepfm.converter.serialize(1.0, ids, values))
    feature = example.features.feature
    assert sorted(feature) == ["ids", "label", "values"]
    assert feature["label"].float_list.value == [1.0]
    assert feature["ids"].int64_list.value == ids
    assert np.array_equal(feature["values"].float_list.value, np.float32(values))
    features = {
        "label": tf.train.Feature(float_list=tf.train.FloatList(value=[1.0])),
        "ids": tf.train.Feature(int64_list=tf.train.Int64List(value=ids)),
        "values": tf.train.Feature(float_list=tf.train.FloatList(value=values)),
    }
    assert example == tf.train.Example(features=tf.train.Features(feature=features))
    assert len(example.SerializeToString()) == len(deepfm.converter.serialize(1.0, ids, values))
