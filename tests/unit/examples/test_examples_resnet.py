"""Test examples/resnet: learning rate, batch normalization averages, conversion of images, and batches."""

import json
import os
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from named_pipes import feeding

pytestmark = pytest.mark.tensorflow
EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "resnet"


# --- the learning rate


@pytest.mark.parametrize(
    ("schedule", "ranks", "rates"),
    [
        ("step", 8, {0: 0.0125, 2.5: 0.05625, 5: 0.1, 29.9: 0.1, 30: 0.01, 59.9: 0.01, 60: 0.001, 80: 0.0001}),
        ("cosine", 8, {0: 0.0125, 2.5: 0.05625, 5: 0.1, 47.5: 0.05, 90: 0}),
        ("step", 1, {0: 0.0125, 2.5: 0.0125, 5: 0.0125}),
    ],
)
def test_learning_rate_warms_up_to_all_ranks_and_falls(load, schedule, ranks, rates):
    """The rate is 0.1 for the 256 images in a step of eight ranks, and an eighth of that for one rank."""
    args = SimpleNamespace(learning_rate=0.1, batch_size=32, epochs=90, warmup_epochs=5.0, schedule=schedule)
    assert [load("schedule").learning_rate(each, args, ranks) for each in rates] == pytest.approx([*rates.values()])


# --- from folders of images to files


@pytest.fixture(scope="module")
def converter(load):
    return load("folder_to_tfrecord")


@pytest.fixture
def photos(tmp_path):
    """Make two classes of three images; each image has one shade of gray."""
    import tensorflow as tf

    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(3):
            jpeg = tf.io.encode_jpeg(tf.fill([8, 12, 3], tf.constant(100 * number, tf.uint8)))
            (tmp_path / "photos" / name / f"{index}.jpg").write_bytes(jpeg.numpy())
    return tmp_path / "photos"


def run(converter, source, output, *more):
    return converter.main([str(source), "--output", str(output), "--shards", "2", *more])


def images_in(path):
    """Return (JPEG, label, class) of each image of a TFRecord file."""
    import tensorflow as tf

    rows = [tf.train.Example.FromString(each.numpy()).features.feature for each in tf.data.TFRecordDataset(str(path))]
    return [
        (row["image/encoded"].bytes_list.value[0], row["image/class/label"].int64_list.value[0],
         row["image/class/text"].bytes_list.value[0].decode())
        for row in rows
    ]  # fmt: skip


def test_jpegs_are_unchanged_and_classes_numbered_by_name(converter, photos, tmp_path):
    assert run(converter, photos, tmp_path / "data/training") == 0
    paths = sorted(path for path in (tmp_path / "data/training").iterdir())
    assert [path.name for path in paths] == ["part-00000-of-00002.tfrecords", "part-00001-of-00002.tfrecords"]
    shards = [images_in(path) for path in paths]
    assert [len(shard) for shard in shards] == [3, 3]
    wanted = [((photos / name / "0.jpg").read_bytes(), label, name) for label, name in enumerate(("cat", "dog"))]
    assert sorted(chain(*shards)) == sorted(3 * wanted)
    assert (tmp_path / "data/labels.txt").read_text() == "cat\ndog\n"

    (photos / "cat").rename(photos / "cow")
    assert run(converter, photos, tmp_path / "data/validation") == 1  # numbered as the first time, or not at all


def test_shards_get_final_names_only_when_all_are_complete(converter, photos, tmp_path, monkeypatch):
    output, serialize, seen = tmp_path / "data/training", converter.serialize, []

    def watched(*row):
        seen.append((len(list(output.iterdir())), list(output.glob("*.tfrecord*"))))
        return serialize(*row)

    monkeypatch.setattr(converter, "serialize", watched)
    assert run(converter, photos, output) == 0
    assert seen == [(2, [])] * 6


def test_conversion_errors_name_the_file_and_leave_no_shards(converter, photos, tmp_path, capsys):
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


def test_folder_with_other_shards_is_refused(converter, photos, tmp_path, capsys):
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
    """Make a folder with four small images and a file that is not an image."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "val"
    folder.mkdir()
    for number in range(1, 5):
        (folder / f"ILSVRC2012_val_{number:08d}.JPEG").write_bytes(b"\xff\xd8\xff image %d" % number)
    (folder / "readme.txt").write_text("not an image")
    return folder


def sort(load, flat, form, *more):
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
def test_validation_images_move_to_their_class_folders(load, form, flat, capsys):
    assert sort(load, flat, form, "--dry-run") == 0
    said = capsys.readouterr().out
    assert said.endswith("sorted: 4 images, 3 classes, if done\n") and f"{KIT_FOX}: 2 images" in said
    assert not Path("sorted").exists()

    assert sort(load, flat, form) == sort(load, flat, form) == 0  # what is done already is no error
    assert sorted_images() == WHERE
    assert len([*flat.iterdir()]) == 5  # nothing has left its place
    assert capsys.readouterr().out.endswith("sorted: 4 images, 3 classes\n")


def test_interrupted_move_loses_no_image(load, flat, monkeypatch):
    module, rename, done = load("sort_into_classes"), Path.rename, []

    def twice(self, target):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", twice)
    with pytest.raises(KeyboardInterrupt):
        sort(load, flat, "Kaggle's", "--move")
    assert len(sorted_images()) == 2 and len([*flat.glob("*.JPEG")]) == 2
    monkeypatch.undo()
    monkeypatch.chdir(flat.parent)
    assert sort(load, flat, "Kaggle's", "--move") == 0
    assert sorted_images() == WHERE
    assert [path.name for path in flat.iterdir()] == ["readme.txt"]
    assert module.sort(flat, "sorted", "LOC_val_solution.csv") == {TENCH: 1, SETTER: 1, KIT_FOX: 2}


def test_images_are_copied_if_links_are_impossible(load, flat, monkeypatch):
    def no_links(*_):
        raise OSError("Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", no_links)
    assert sort(load, flat, "of names") == 0
    assert sorted_images() == WHERE


def test_mismatched_ground_truth_is_refused_before_sorting(load, flat, capsys):
    def fails(message, form, **changed):
        files, arguments = FORMS[form]
        files = {**files, **{f"{name}.txt": content for name, content in changed.items()}}
        assert sort(load, flat, (files, arguments)) == 1
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
    assert sort(load, flat, "Kaggle's", "--partial") == 0
    assert len(sorted_images()) == 3


def test_class_numbers_are_read_from_meta_mat(load, flat):
    scipy_io, np = pytest.importorskip("scipy.io"), pytest.importorskip("numpy")
    rows = [(1, KIT_FOX, "kit fox"), (2, SETTER, "English setter"), (3, TENCH, "tench")]
    kinds = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)]
    scipy_io.savemat("meta.mat", {"synsets": np.array([rows], kinds).reshape(-1, 1)})
    Path("truth.txt").write_text("2\n1\n3\n1\n")
    assert load("sort_into_classes").sort(flat, "sorted", "truth.txt", "meta.mat") == {TENCH: 1, SETTER: 1, KIT_FOX: 2}
    assert sorted_images() == WHERE


def test_validation_images_are_converted_directly_into_shards(converter, photos, tmp_path, capsys):
    """Shards are TFRecord or RecordIO, with the class numbers of the training images. A dry run writes nothing."""
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
    images = list(chain.from_iterable(map(images_in, (tmp_path / "tfrecord").iterdir())))
    assert wanted == sorted((jpeg, label) for jpeg, label, _ in images)
    assert {name for _, _, name in images} == {KIT_FOX, TENCH}
    assert run(converter, flat, tmp_path / "tfrecord", *more, "--format", "rec") == 1
    assert "already holds other TFRecord or RecordIO files" in capsys.readouterr().err


# --- the averages of batch normalizations


def test_batch_norm_averages_converge_to_the_batch_means(load):
    import tensorflow as tf

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


# --- from files to batches

FILES = {"tfrecord": "part-{}.tfrecords", "rec": "part-{}.rec"}
GRAYS = [10 * number for number in range(12)]  # one image of each; its label is its number
ARGS = SimpleNamespace(batch_size=2, classes=12, first_label=0, format="auto", image_size=8, shuffle=4)


@pytest.fixture(scope="module")
def shards(converter, tmp_path_factory):
    """Return, for each format, the contents of three files of four images each from the example's converter."""
    import tensorflow as tf

    folder = tmp_path_factory.mktemp("shards")
    made = {}
    for form in FILES:
        made[form] = []
        for number in range(3):
            path = folder / FILES[form].format(number)
            with converter.WRITERS[form](path) as writer:
                for label in range(4 * number, 4 * number + 4):
                    jpeg = tf.io.encode_jpeg(tf.fill([10, 12, 3], tf.constant(GRAYS[label], tf.uint8))).numpy()
                    writer.write(converter.serialize(jpeg, label, "gray", path, form))
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
    """Return the labels read; check that each batch has the pixels of its labels."""
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
def test_ranks_together_read_each_image_once(load, shards, job, form, ranks):
    for number in range(3):
        (job() / FILES[form].format(number)).write_bytes(shards[form][number])
    (job() / "part-0.lst").write_text("what im2rec writes beside its files")
    training, judged = [], []
    for rank in range(ranks):
        job(index=rank, count=ranks)
        assert load("images").steps("training", ARGS) == 12 // ranks // 2
        training.append(labels(load("images").training_batches("training", ARGS)))
        judged.append(labels(load("images").evaluation_batches("training", ARGS)))
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
def test_each_rank_reads_its_part_of_a_pipe(load, shards, job, form, content_type, asked):
    args = SimpleNamespace(**{**vars(ARGS), "format": asked})
    folder = job("Pipe", index=1, count=2, content_type=content_type)
    with feeding(folder, b"".join(shards[form])):
        assert labels(load("images").evaluation_batches("training", args)) == list(range(1, 12, 2))


def test_channel_without_a_single_format_is_refused(load, shards, job):
    from sagemaker_tf_data import DataError

    job()
    with pytest.raises(DataError, match=r"has neither \*\.tfrecord\* nor \*\.rec in "):
        load("images").steps("training", ARGS)
    for form in FILES:
        (job() / FILES[form].format(0)).write_bytes(shards[form][0])
    with pytest.raises(DataError, match=r"has \*\.tfrecord\* and \*\.rec in .*; wanted files of one format"):
        load("images").steps("training", ARGS)
    for form in FILES:
        args = SimpleNamespace(**{**vars(ARGS), "format": form})
        assert sorted(labels(load("images").training_batches("training", args))) == [0, 1, 2, 3]


@pytest.mark.more
def test_label_out_of_range_is_an_error_in_both_formats(load, shards, job):
    import tensorflow as tf

    for form in FILES:
        args = SimpleNamespace(**{**vars(ARGS), "format": form, "classes": 3})
        (job() / FILES[form].format(0)).write_bytes(shards[form][0])
        with pytest.raises(tf.errors.InvalidArgumentError, match="wanted 3 labels from 0 on"):
            labels(load("images").evaluation_batches("training", args))
