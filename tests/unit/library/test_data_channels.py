"""Test sagemaker_tf_data: channels, and the shard that each process reads."""

import json
import logging

import pytest

from sagemaker_tf_data import DataError, channels, count_records, files, places
from sagemaker_tf_data.channels import Part

REPLICATED, SHARDED = "FullyReplicated", "ShardedByS3Key"


def environ(config, **variables):
    return {"SM_INPUT_DATA_CONFIG": json.dumps(config), "SM_INPUT_DIR": "/none", **variables}


def ranks(size, rank, local_size):
    """Set Open MPI's variables for a rank on hosts with `local_size` ranks."""
    return {
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank % local_size),
    }


def processes(size, rank, local_size):
    """Set the launcher's variables for a process of JAX."""
    return {
        "JAX_NUM_PROCESSES": str(size),
        "JAX_PROCESS_ID": str(rank),
        "JAX_LOCAL_NUM_PROCESSES": str(local_size),
        "JAX_LOCAL_PROCESS_ID": str(rank % local_size),
    }


def several(*names, distribution=REPLICATED, mode="Pipe"):
    return {name: {"TrainingInputMode": mode, "S3DistributionType": distribution} for name in names}


# --- which channels there are


def test_channels_follow_the_order_of_sm_channels():
    found = channels.all_channels(environ(several("training", "training-2", "evaluation")))
    assert list(found) == ["evaluation", "training", "training-2"]
    assert str(found["training-2"].fifo(3)) == "/none/data/training-2_3"


def test_channels_of_local_mode_have_defaults():
    config = {"train": {"TrainingInputMode": "File"}, "test": None, "x.y": {"ContentType": None}}
    for each in channels.all_channels(environ(config)).values():
        assert (each.mode, each.distribution, each.record_wrapper) == ("File", REPLICATED, "None")


def test_channels_are_found_by_config_file_folders_or_variables(tmp_path):
    for name in ("train", "eval", ".ipynb_checkpoints"):  # the last is no channel
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / "train-manifest").write_text("")
    here = {"SM_INPUT_DIR": str(tmp_path)}
    assert list(channels.all_channels(here)) == ["eval", "train"]
    big = channels.all_channels({**here, "SM_CHANNEL_BIG-ONE": "/data/big"})["big-one"]
    assert big.folder.as_posix() == "/data/big"
    (tmp_path / "config").mkdir()
    (tmp_path / "config/inputdataconfig.json").write_text(json.dumps(several("stream")))
    assert channels.all_channels(here)["stream"].mode == "Pipe"


def test_missing_channel_or_wrong_mode_is_reported_with_remedy():
    here = environ(several("training", "evaluation", mode="File"))
    with pytest.raises(DataError, match=r"the job has 'evaluation', 'training'\. Did you mean 'training'"):
        channels.channel("trainig", here)
    with pytest.raises(DataError, match="the job has no channels"):
        channels.channel("training", environ({}))
    with pytest.raises(DataError, match=r"in File mode; wanted Pipe mode: read its files, or .*input_mode='Pipe'"):
        channels.channel("training", here).need("Pipe")


def test_default_channel_is_train_or_the_single_channel():
    assert channels.key(None, environ(several("anything"))) == "anything"
    assert channels.key(None, environ(several("train", "test"))) == "train"
    assert channels.key(None, environ(several("rows", "code", "sm_drivers"))) == "rows"
    with pytest.raises(DataError, match="no channel given"):
        channels.key(None, environ(several("a", "b")))


def test_first_of_returns_the_first_existing_channel():
    here = environ(several("trainval", "test", "evaluation-1", "evaluation-2"), **ranks(4, 1, 2))
    assert channels.first_of("evaluation", "test", environ=here) == "evaluation"  # a group
    assert channels.first_of("validation", "test", "evaluation", environ=here) == "test"
    assert channels.first_of("training", "train", environ=here) is None  # trainval is another


def test_first_of_returns_the_same_channel_on_chief_and_worker():
    cluster = {"chief": ["a:1"], "ps": ["a:9"], "worker": ["b:1", "b:2"]}
    config = several("train-1", "train-2", "trainval")

    def first(kind):
        task = {"cluster": cluster, "task": {"type": kind, "index": 0}}
        return channels.first_of("training", "train", environ=environ(config, TF_CONFIG=json.dumps(task)))

    assert (first("chief"), first("worker"), first("evaluator")) == ("train", "train", None)


@pytest.mark.parametrize("text", ["[]", "nonsense", '{"a": 1}', '{"a": {"channel": "a"}}', '{"a": {"count": "x"}}'])
def test_malformed_shards_are_refused(text):
    with pytest.raises(DataError, match="ENTRYPOINT_SHARDS is"):
        channels.parts({"ENTRYPOINT_SHARDS": text})


@pytest.mark.parametrize("text", ["[]", "{", '{"cluster": {"worker": ["a:1"]}}', '{"cluster": 1, "task": {}}'])
def test_malformed_tf_config_is_refused(text):
    with pytest.raises(DataError, match="TF_CONFIG is"):
        places.here({"TF_CONFIG": text})


# --- what of them this process reads


def test_shards_set_by_the_launcher_take_precedence():
    said = {"training": {"channel": "training-2", "mode": "Pipe", "count": 3, "index": 2}}
    here = environ(several("training", "training-2"), ENTRYPOINT_SHARDS=json.dumps(said), **ranks(4, 1, 2))
    assert channels.part("training", here) == Part(channel="training-2", mode="Pipe", count=3, index=2)
    assert channels.part("training-2", here).count == 3  # its own, by its own name
    assert channels.channel("training", here).name == "training-2"


def test_channel_of_another_local_rank_is_refused():
    here = environ(several("training-1", "training-2"), **ranks(4, 1, 2))
    said = {"training": {"channel": "training-2", "mode": "Pipe", "count": 1, "index": 0}}
    here["ENTRYPOINT_SHARDS"] = json.dumps(said)
    with pytest.raises(DataError, match=r"'training-1' belongs to another process.*ask for 'training'"):
        channels.part("training-1", here)


@pytest.mark.parametrize(
    ("names", "distribution", "expected"),
    [  # (count, index) of ranks 0 to 3, on two hosts
        (("train", "train-1"), SHARDED, [(1, 0)] * 4),
        (("train", "train-1"), REPLICATED, [(2, 0), (2, 0), (2, 1), (2, 1)]),
        (("train",), SHARDED, [(2, 0), (2, 1), (2, 0), (2, 1)]),
        (("train",), REPLICATED, [(4, 0), (4, 1), (4, 2), (4, 3)]),
    ],
)
def test_shards_follow_distribution_and_channel_count(names, distribution, expected):
    config = several(*names, distribution=distribution)
    parts = [channels.part("train", environ(config, **ranks(4, rank, 2))) for rank in range(4)]
    assert parts == [channels.part("train", environ(config, **processes(4, rank, 2))) for rank in range(4)]
    assert [(part.count, part.index) for part in parts] == expected
    assert [part.channel for part in parts] == [names[rank % 2 % len(names)] for rank in range(4)]


def test_shard_index_follows_tf_config():
    def place(kind, index, **cluster):
        return places.here({"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})})

    workers = ["a:1", "a:2", "b:1", "b:2"]
    expected = places.Place(size=4, rank=2, local_size=2, local_rank=0, hosts=2, host=1)
    assert place("worker", 2, worker=workers) == expected
    assert place("worker", 0, chief=["a:1"], worker=["b:1"]).rank == 1
    ps = {"ps": ["a:9"], "worker": ["b:1", "c:1"]}
    assert place("worker", 1, chief=["a:1"], **ps) == place("worker", 1, **ps)  # a chief coordinates
    assert place("worker", 1, master=["a:1"], **ps).rank == 2  # a master trains
    for kind in ("chief", "evaluator", "ps"):
        assert place(kind, 0, chief=["a:1"], **ps) == places.Place()


def test_files_are_found_at_any_depth_and_sorted(tmp_path, monkeypatch):
    for name in ("b.tfrecord", "deep/er/a.tfrecord", "c.txt"):
        path = tmp_path / "data/train" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path))
    folder = tmp_path / "data/train"
    assert files(pattern="*.tfrecord") == [f"{folder}/b.tfrecord", f"{folder}/deep/er/a.tfrecord"]
    assert len(files("train")) == 3
    with pytest.raises(DataError, match=r"no file in .* is called \*.csv"):
        files(pattern="*.csv")


LEFT_BEHIND = (
    "_SUCCESS", ".part-0.tfrecord.crc", "._a.tfrecord", "desktop.ini", "deep/Thumbs.db", ".DS_Store",
    ".ipynb_checkpoints/a-checkpoint.tfrecord", "__MACOSX/deep/._b.tfrecord", "_temporary/0/part-0.tfrecord",
)  # fmt: skip


@pytest.fixture
def channel_with_rests(tmp_path, monkeypatch):
    """Make a channel of two data files, one empty, and leftovers of notebooks, Spark, macOS and Windows."""
    folder = tmp_path / ".job/data/train"
    for name in ("a.tfrecord", "deep/er/empty.tfrecord", *LEFT_BEHIND):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"" if "empty" in name else b"x")
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path / ".job"))
    return folder


@pytest.mark.parametrize("pattern", ["*", "*.tfrecord", "**/*.tfrecord"])
def test_non_data_files_are_skipped_and_logged_once(channel_with_rests, caplog, pattern):
    for _ in range(2):
        files("train", ".part*")
        with caplog.at_level(logging.WARNING):
            found = files("train", pattern)
        assert found == [f"{channel_with_rests}/{name}" for name in ("a.tfrecord", "deep/er/empty.tfrecord")]
        files("train", "a*")
    (said,) = caplog.messages
    assert "channel 'train': ignored, as they are not data: " in said
    assert ".ipynb_checkpoints/a-checkpoint.tfrecord" in said
    assert "and 6 more" in said or "and 1 more" in said


@pytest.mark.parametrize(
    ("pattern", "name"),
    [("_SUCCESS", "_SUCCESS"), (".part-*", ".part-0.tfrecord.crc"), ("desktop.ini", "desktop.ini"),
     (".ipynb_checkpoints/*.tfrecord", ".ipynb_checkpoints/a-checkpoint.tfrecord"),
     ("_temporary/**/*.tfrecord", "_temporary/0/part-0.tfrecord")],
)  # fmt: skip
def test_hidden_files_are_recognised_by_name(channel_with_rests, pattern, name):
    assert files("train", pattern) == [f"{channel_with_rests}/{name}"]


def test_channel_without_data_is_refused(channel_with_rests):
    with pytest.raises(DataError, match=r"\*\.crc, but ignored, as they are not data: \.part-0\.tfrecord\.crc"):
        files("train", "*.crc")


def test_empty_file_has_no_records(channel_with_rests):
    assert count_records([path for path in files("train") if path.endswith("empty.tfrecord")]) == 0
