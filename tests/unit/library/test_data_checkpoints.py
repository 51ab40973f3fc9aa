"""Test sagemaker_tf_data: the folder of checkpoints, the process that writes them, and resuming."""

import json
from pathlib import Path

import pytest

from sagemaker_tf_data import DataError, checkpoints


def config(folder, text):
    (folder / "config").mkdir()
    (folder / "config/checkpointconfig.json").write_text(text)
    return {"SM_INPUT_DIR": str(folder)}


def test_checkpoints_go_to_the_folder_copied_by_sagemaker(tmp_path):
    assert checkpoints.folder({}) == Path("/opt/ml/checkpoints")
    assert checkpoints.folder({"SM_INPUT_DIR": "/opt/ml/input"}) == Path("/opt/ml/checkpoints")
    here = tmp_path / "ml"  # a host that is no container
    assert checkpoints.folder({"SM_INPUT_DIR": f"{here}/input"}) == here / "checkpoints"
    assert checkpoints.folder(config(tmp_path, '{"LocalPath": "/somewhere"}')) == Path("/somewhere")


@pytest.mark.parametrize("text", ["", "[1]", '{"LocalPath": 3}'])
def test_malformed_checkpoint_config_is_refused(tmp_path, text):
    with pytest.raises(DataError, match=r"checkpointconfig\.json holds .*; wanted"):
        checkpoints.folder(config(tmp_path, text))


def test_one_process_of_a_job_writes_checkpoints():
    def writes(kind, index, **cluster):
        return checkpoints.writer(
            {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})}
        )

    workers = {"worker": ["a:1", "b:1"]}
    assert [writes("worker", index, **workers) for index in (0, 1)] == [True, False]
    ps = {"chief": ["a:1"], **workers, "ps": ["a:2"]}
    assert writes("chief", 0, **ps)
    assert not any((writes("worker", 0, **ps), writes("ps", 0, **ps), writes("evaluator", 0, **ps)))
    assert checkpoints.writer({})
    ranks = {f"OMPI_COMM_WORLD_{name}": "2" for name in ("SIZE", "LOCAL_SIZE")}
    for rank in "01":
        mine = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        assert checkpoints.writer({**ranks, **mine}) is (rank == "0")


@pytest.fixture
def saved(tmp_path):
    """Save three checkpoints, of which two are kept; return (saver, its variable, the folder)."""
    tf = pytest.importorskip("tensorflow")
    value = tf.Variable(tf.zeros(1000))
    saver = checkpoints.manager(tf.train.Checkpoint(value=value), tmp_path)
    assert saver.restore() is None
    for number in (1, 2, 3):
        value.assign(tf.fill([1000], float(number)))
        assert saver.save() == f"{tmp_path}/ckpt-{number}"
    return saver, value, tmp_path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)


DATA, INDEX = "ckpt-3.data-00000-of-00001", "ckpt-3.index"


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("harm", "resumed"),
    [
        (lambda folder: None, 3),
        (lambda folder: (folder / DATA).unlink(), 2),
        (lambda folder: (folder / DATA).write_bytes((folder / DATA).read_bytes()[:2000]), 2),
        (lambda folder: flip(folder / DATA), 2),
        (lambda folder: (folder / INDEX).unlink(), 2),
        (lambda folder: (folder / INDEX).write_bytes(b""), 2),
        (lambda folder: (folder / "checkpoint").write_bytes(b"\0rubbish"), 3),
        (lambda folder: (folder / "checkpoint").unlink(), 3),
        (lambda folder: [path.unlink() for path in folder.iterdir()], 0),
    ],
)
def test_training_resumes_from_the_latest_complete_checkpoint(saved, harm, resumed):
    _, value, folder = saved
    harm(folder)
    (folder / "ckpt-4_temp").mkdir()  # of a save that was cut off
    value.assign(value * 0)
    again = checkpoints.manager(saved[0].checkpoint, folder)
    assert again.restore() == (f"{folder}/ckpt-{resumed}" if resumed else None)
    assert float(value[0]) == float(value[999]) == resumed
    for _ in range(3):
        latest = again.save()
    assert again.latest == latest
    assert not (folder / "ckpt-4_temp").exists()
    assert len({path.name.partition(".")[0] for path in folder.iterdir()}) == 3  # two of them, and `checkpoint`


@pytest.mark.tensorflow
def test_checkpoint_of_another_model_is_refused(saved):
    import tensorflow as tf

    other = tf.train.Checkpoint(value=tf.Variable([1.0]))
    with pytest.raises(DataError, match=r"ckpt-3 belongs to another model: .*\(1000,\)"):
        checkpoints.manager(other, saved[2]).restore()


@pytest.mark.tensorflow
def test_folder_not_writable_for_tensorflow_is_refused(saved):
    with pytest.raises(DataError, match=r"cannot go to s3://bucket/x: .* no file system for s3://.*tensorflow-io"):
        checkpoints.manager(saved[0].checkpoint, "s3://bucket/x")
    with pytest.raises(DataError, match=r"cannot go to s3://bucket/\[x\]: TensorFlow reads .* as a pattern"):
        checkpoints.manager(saved[0].checkpoint, "s3://bucket/[x]")
    (saved[2] / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot go to .*file/x"):
        checkpoints.manager(saved[0].checkpoint, saved[2] / "file/x")


@pytest.mark.tensorflow
def test_trailing_slash_of_checkpoint_folder_changes_nothing(saved):
    import tensorflow as tf

    _, value, folder = saved
    again = checkpoints.manager(tf.train.Checkpoint(value=value), f"{folder}/")
    assert again.restore() == f"{folder}/ckpt-3"


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["lr=[0.1, 0.2]", "a[1]b", "x[", "st*r", "wh?t", r"back\slash"])
def test_checkpoint_folder_name_may_look_like_a_pattern(tmp_path, name):
    """In such a folder, TensorFlow's own functions find nothing and would delete files of another folder."""
    tf = pytest.importorskip("tensorflow")
    folder, value = tmp_path / name, tf.Variable(0.0)
    (tmp_path / "st-and-more-r").mkdir()
    (tmp_path / "st-and-more-r" / "ckpt-1.index").write_text("another's")
    saver = checkpoints.manager(tf.train.Checkpoint(value=value), folder, keep=2)
    assert saver.restore() is None
    for number in (1, 2, 3):
        value.assign(float(number))
        assert saver.save() == f"{folder}/ckpt-{number}"
    value.assign(9.0)
    again = checkpoints.manager(tf.train.Checkpoint(value=value), folder, keep=2)
    assert again.restore() == f"{folder}/ckpt-3"
    assert float(value) == 3.0
    assert again.save() == f"{folder}/ckpt-4"
    assert sorted(path.name for path in folder.glob("*.index")) == ["ckpt-3.index", "ckpt-4.index"]
    assert (tmp_path / "st-and-more-r" / "ckpt-1.index").exists()


EQUAL = [0, 1, 1_700_000_000, 4_000_000_000, 1 << 42, (1 << 63) - 1]
DIFFERENT = [[1, 1, 1, 2], [0, 7, 7, 7], [3, 1 << 21, 1 << 42, 0], [1 << 62, (1 << 62) + 1] * 2]


@pytest.mark.parametrize("numbers", [*([number] * 1000 for number in EQUAL), *DIFFERENT])
def test_workers_checkpoints_are_compared_exactly(numbers):
    """Each worker gets only the sums. Four times the square of 1.6e9 is more than 64 bits hold."""
    each = [checkpoints.squared(number) for number in numbers]
    pieces, squares = ([sum(values) for values in zip(*column, strict=True)] for column in zip(*each, strict=True))
    assert checkpoints.are_equal(pieces, squares, len(numbers)) is (numbers not in DIFFERENT)
    assert max(pieces + squares) < 1 << 63
