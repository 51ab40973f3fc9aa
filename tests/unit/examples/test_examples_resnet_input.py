"""Test examples/resnet/images.py: TFRecord and im2rec's RecordIO give the same batches, in File and in Pipe mode."""

import importlib
import json
import os
import sys
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from named_pipes import feeding

pytestmark = pytest.mark.tensorflow
RESNET = Path(__file__).resolve().parents[3] / "examples" / "resnet"
FILES = {"tfrecord": "part-{}.tfrecords", "rec": "part-{}.rec"}
GRAYS = [10 * number for number in range(12)]  # one image of each; its label is its number
ARGS = SimpleNamespace(batch_size=2, classes=12, first_label=0, format="auto", image_size=8, shuffle=4)


@pytest.fixture(scope="module")
def example():
    """Return the modules `images` and `folder_to_tfrecord`; remove them from `sys.modules` afterwards."""
    pytest.importorskip("tensorflow")
    sys.path.insert(0, str(RESNET))
    try:
        return SimpleNamespace(**{n: importlib.import_module(n) for n in ("images", "folder_to_tfrecord")})
    finally:
        sys.path.remove(str(RESNET))
        for name in ("images", "folder_to_tfrecord"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def shards(example, tmp_path_factory):
    """Return format -> contents of three files of four images each, as the example's converter writes them."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("shards")
    made = {}
    for form in FILES:
        made[form] = []
        for number in range(3):
            path = folder / FILES[form].format(number)
            with example.folder_to_tfrecord.WRITERS[form](path) as writer:
                for label in range(4 * number, 4 * number + 4):
                    jpeg = tf.io.encode_jpeg(tf.fill([10, 12, 3], tf.constant(GRAYS[label], tf.uint8))).numpy()
                    writer.write(example.folder_to_tfrecord.serialize(jpeg, label, "gray", path, form))
            made[form].append(path.read_bytes())
    return made


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Make this process rank `index` of `count` in a job with channel `training` in that mode; return its folder."""
    for name in list(os.environ):
        if name.startswith(("SM_", "ENTRYPOINT_", "TF_CONFIG", "SAGEMAKER_TF_DATA")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path))

    def make(mode="File", index=0, count=1, content_type=""):
        folder = tmp_path / "input/data/training"
        (folder.parent if mode == "Pipe" else folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "input/config").mkdir(exist_ok=True)
        channel = {"TrainingInputMode": mode, "ContentType": content_type}
        (tmp_path / "input/config/inputdataconfig.json").write_text(json.dumps({"training": channel}))
        part = {"channel": "training", "mode": mode, "count": count, "index": index}
        monkeypatch.setenv("ENTRYPOINT_SHARDS", json.dumps({"training": part}))
        return folder

    return make


def labels(batches):
    """Return the labels that came; each batch's pixels must be those of its labels."""
    found = []
    for pixels, numbers in batches:
        assert pixels.shape[1:] == (8, 8, 3)
        for image, label in zip(pixels.numpy(), numbers.numpy(), strict=True):
            assert abs(image.astype(int) - GRAYS[label]).max() <= 2, label
            found.append(int(label))
    return found


@pytest.mark.parametrize("form", FILES)
@pytest.mark.parametrize(
    "ranks",
    [
        pytest.param(1, marks=pytest.mark.more, id="alone"),
        pytest.param(3, marks=pytest.mark.more, id="files dealt out"),
        pytest.param(2, id="records dealt out"),
    ],
)
def test_ranks_together_see_each_image_once(example, shards, job, form, ranks):
    for number in range(3):
        (job() / FILES[form].format(number)).write_bytes(shards[form][number])
    (job() / "part-0.lst").write_text("what im2rec writes beside its files")
    training, judged = [], []
    for rank in range(ranks):
        job(index=rank, count=ranks)
        assert example.images.steps("training", ARGS) == 12 // ranks // 2
        training.append(labels(example.images.training_batches("training", ARGS)))
        judged.append(labels(example.images.evaluation_batches("training", ARGS)))
    assert [len(each) for each in training] == [12 // ranks] * ranks
    assert sorted(chain(*training)) == sorted(chain(*judged)) == list(range(12))


@pytest.mark.parametrize(
    "form, content_type, asked",
    [
        pytest.param("rec", "application/x-recordio", "auto", id="rec by its content type"),
        pytest.param("rec", "", "rec", marks=pytest.mark.more, id="rec by the option"),
        pytest.param("tfrecord", "", "auto", marks=pytest.mark.more, id="tfrecord"),
    ],
)
def test_pipes_are_read_with_a_part_for_each_rank(example, shards, job, form, content_type, asked):
    args = SimpleNamespace(**{**vars(ARGS), "format": asked})
    folder = job("Pipe", index=1, count=2, content_type=content_type)
    with feeding(folder, b"".join(shards[form])):
        assert labels(example.images.evaluation_batches("training", args)) == list(range(1, 12, 2))


def test_what_is_no_data_is_said_before_anything_is_read(example, shards, job):
    from sagemaker_tf_data import DataError

    job()
    with pytest.raises(DataError, match=r"has neither \*\.tfrecord\* nor \*\.rec in "):
        example.images.steps("training", ARGS)
    for form in FILES:
        (job() / FILES[form].format(0)).write_bytes(shards[form][0])
    with pytest.raises(DataError, match=r"has \*\.tfrecord\* and \*\.rec in .*; wanted files of one format"):
        example.images.steps("training", ARGS)
    for form in FILES:
        args = SimpleNamespace(**{**vars(ARGS), "format": form})
        assert sorted(labels(example.images.training_batches("training", args))) == [0, 1, 2, 3]


@pytest.mark.more
def test_a_label_beyond_the_classes_is_an_error_of_both_formats(example, shards, job):
    import tensorflow as tf

    for form in FILES:
        args = SimpleNamespace(**{**vars(ARGS), "format": form, "classes": 3})
        (job() / FILES[form].format(0)).write_bytes(shards[form][0])
        with pytest.raises(tf.errors.InvalidArgumentError, match="wanted 3 labels from 0 on"):
            labels(example.images.evaluation_batches("training", args))
