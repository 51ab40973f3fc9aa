"""Test examples/resnet: learning rate, averages of batch normalizations, images into files or an error on one."""

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

RESNET = Path(__file__).resolve().parents[3] / "examples" / "resnet"


def load(name):
    """Return a module of the example, and remove it from `sys.modules` afterwards, since its name is a common one."""
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
    """Make two classes with three images of one gray each."""
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
    assert (
        "already holds other TFRecord or RecordIO files, such as part-00000-of-00002.tfrecords"
        in capsys.readouterr().err
    )


# --- ImageNet's validation images

KIT_FOX, SETTER, TENCH = "n02119789", "n02100735", "n01440764"  # 1 and 2 of the development kit, and by name the first
TRUTH = [SETTER, KIT_FOX, TENCH, KIT_FOX]
KAGGLES = "ImageId,PredictionString\n" + "".join(
    f"ILSVRC2012_val_{number:08d},{name} 85 1 499 272 {name} 1 2 3 4 \n"
    for number, name in reversed([*enumerate(TRUTH, 1)])
)
FORMS = {  # of the ground truth: file -> content, and the arguments that go with it
    "Kaggle's": ({"LOC_val_solution.csv": KAGGLES}, []),
    "of names": ({"labels.txt": "".join(f"{name}\n" for name in TRUTH)}, []),
    "of numbers": (
        {"truth.txt": "2\n1\n3\n1\n", "list.txt": f"{KIT_FOX}\n{SETTER}\n{TENCH}\n"},
        ["--synsets", "list.txt"],
    ),
    "of numbers, with map_clsloc.txt": (
        {"truth.txt": "2\n1\n449\n1\n", "map.txt": f"{KIT_FOX} 1 kit_fox\n{TENCH} 449 tench\n{SETTER} 2 setter\n"},
        ["--synsets", "map.txt"],
    ),
}


@pytest.fixture
def flat(tmp_path, monkeypatch):
    """Make four small images in one folder, and a file that is no image."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "val"
    folder.mkdir()
    for number in range(1, 5):
        (folder / f"ILSVRC2012_val_{number:08d}.JPEG").write_bytes(b"\xff\xd8\xff image %d" % number)
    (folder / "readme.txt").write_text("not an image")
    return folder


def sort(flat, form, *more):
    files, arguments = FORMS[form] if isinstance(form, str) else form
    for name, content in files.items():
        (flat.parent / name).write_text(content)
    return load("sort_into_classes").main(
        [str(flat), "--output", "sorted", "--ground-truth", next(iter(files)), *arguments, *more]
    )


def sorted_images():
    return {str(path.relative_to("sorted")): path.read_bytes() for path in Path("sorted").glob("*/*")}


WHERE = {
    f"{name}/ILSVRC2012_val_{number:08d}.JPEG": b"\xff\xd8\xff image %d" % number
    for number, name in enumerate(TRUTH, 1)
}


@pytest.mark.parametrize("form", FORMS)
def test_validation_images_get_the_folders_of_their_classes(form, flat, capsys):
    assert sort(flat, form, "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.endswith("sorted: 4 images, 3 classes, if done\n") and f"{KIT_FOX}: 2 images" in said
    assert not Path("sorted").exists()

    assert sort(flat, form) == sort(flat, form) == 0  # what is done already is no error
    assert sorted_images() == WHERE
    assert len([*flat.iterdir()]) == 5  # nothing has left its place
    assert capsys.readouterr().out.endswith("sorted: 4 images, 3 classes\n")


def test_moving_images_loses_none_when_it_is_interrupted(flat, monkeypatch):
    module, rename, done = load("sort_into_classes"), Path.rename, []

    def twice(self, target):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", twice)
    with pytest.raises(KeyboardInterrupt):
        sort(flat, "Kaggle's", "--move")
    assert len(sorted_images()) == 2 and len([*flat.glob("*.JPEG")]) == 2
    monkeypatch.undo()
    monkeypatch.chdir(flat.parent)
    assert sort(flat, "Kaggle's", "--move") == 0
    assert sorted_images() == WHERE
    assert [path.name for path in flat.iterdir()] == ["readme.txt"]
    assert module.sort(flat, "sorted", "LOC_val_solution.csv") == {TENCH: 1, SETTER: 1, KIT_FOX: 2}


def test_where_there_are_no_links_images_are_copied(flat, monkeypatch):
    def no_links(*_):
        raise OSError("Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert sort(flat, "of names") == 0
    assert sorted_images() == WHERE


def test_ground_truth_that_does_not_fit_is_refused_before_anything_is_done(flat, capsys):
    def fails(message, form, **changed):
        files, arguments = FORMS[form]
        files = {**files, **{f"{name}.txt": content for name, content in changed.items()}}
        assert sort(flat, (files, arguments)) == 1
        error = capsys.readouterr().err
        assert error.startswith("sort_into_classes: ") and message in error and error.count("\n") == 1, error
        assert sorted_images() in ({}, {f"{SETTER}/ILSVRC2012_val_00000001.JPEG": b"another"})

    by_name = "".join(f"n{number:08d}\n" for number in range(1000))
    fails("has the classes by name; wanted them as the development kit", "of numbers", list=by_name)
    fails("line 3: found '4'; wanted a number of list.txt, 1 to 3", "of numbers", truth="2\n1\n4\n1\n")
    fails("numbers need --synsets", "of names", labels="1\n2\n3\n4\n")
    fails("has no class for ILSVRC2012_val_00000004 of", "of names", labels=f"{TENCH}\n" * 3)
    fails("lacks ILSVRC2012_val_00000005, ILSVRC2012_val_00000006", "of names", labels=f"{TENCH}\n" * 6)
    Path("sorted", SETTER).mkdir(parents=True)
    Path("sorted", SETTER, "ILSVRC2012_val_00000001.JPEG").write_bytes(b"another")
    fails("is another image than", "Kaggle's")
    Path("sorted", SETTER, "ILSVRC2012_val_00000001.JPEG").unlink()
    (flat / "ILSVRC2012_val_00000004.JPEG").unlink()
    assert sort(flat, "Kaggle's", "--partial") == 0
    assert len(sorted_images()) == 3


def test_numbers_of_the_development_kits_meta_mat(flat):
    scipy_io, np = pytest.importorskip("scipy.io"), pytest.importorskip("numpy")
    rows = [(1, KIT_FOX, "kit fox"), (2, SETTER, "English setter"), (3, TENCH, "tench")]
    kinds = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)]
    scipy_io.savemat("meta.mat", {"synsets": np.array([rows], kinds).reshape(-1, 1)})
    Path("truth.txt").write_text("2\n1\n3\n1\n")
    assert load("sort_into_classes").sort(flat, "sorted", "truth.txt", "meta.mat") == {TENCH: 1, SETTER: 1, KIT_FOX: 2}
    assert sorted_images() == WHERE


@pytest.mark.tensorflow
def test_validation_images_go_straight_into_shards(converter, photos, tmp_path, capsys):
    """Of TFRecord and of RecordIO, numbered as the training images were; a dry run writes nothing."""
    import tensorflow as tf

    from sagemaker_tf_data import image_records

    flat, truth = tmp_path / "val", tmp_path / "truth.txt"
    flat.mkdir()
    for number, path in enumerate(sorted(photos.glob("*/*")), 1):
        path.rename(flat / f"ILSVRC2012_val_{number:08d}.JPEG")
    truth.write_text("".join(f"{name}\n" for name in (KIT_FOX, TENCH, KIT_FOX, TENCH, TENCH, TENCH)))
    (tmp_path / "labels.txt").write_text(f"{TENCH}\n{SETTER}\n{KIT_FOX}\n")
    more = ["--ground-truth", str(truth), "--labels", str(tmp_path / "labels.txt")]

    assert run(converter, flat, tmp_path / "none", *more, "--dry-run") == 0
    assert capsys.readouterr().out.count(": 3 images\n") == 2
    assert not (tmp_path / "none").exists()
    assert run(converter, flat, tmp_path / "rec", *more, "--format", "rec") == 0
    assert run(converter, flat, tmp_path / "tfrecord", *more) == 0

    wanted = sorted(
        (path.read_bytes(), label) for path, label in zip(sorted(flat.iterdir()), [2, 0, 2, 0, 0, 0], strict=True)
    )
    shards = sorted((tmp_path / "rec").iterdir())
    assert [path.name for path in shards] == ["part-00000-of-00002.rec", "part-00001-of-00002.rec"]
    assert sorted((image.numpy(), int(label)) for image, label in image_records(shards)) == wanted
    rows = [
        tf.train.Example.FromString(each.numpy()).features.feature
        for path in (tmp_path / "tfrecord").iterdir()
        for each in tf.data.TFRecordDataset(str(path))
    ]
    assert wanted == sorted(
        (row["image/encoded"].bytes_list.value[0], row["image/class/label"].int64_list.value[0]) for row in rows
    )
    assert {row["image/class/text"].bytes_list.value[0].decode() for row in rows} == {KIT_FOX, TENCH}
    assert run(converter, flat, tmp_path / "tfrecord", *more, "--format", "rec") == 1
    assert "already holds other TFRecord or RecordIO files" in capsys.readouterr().err


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
