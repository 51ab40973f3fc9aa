"""Test channels of `entrypoint local`: options, the objects of each host, and the contents of FIFOs."""

import contextlib
import gzip
import os
import re
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import write_files
from hypothesis import given
from hypothesis import strategies as st
from waiting import eventually

from entrypoint.base.errors import ConfigError
from entrypoint.cli import main
from entrypoint.launcher.job.channels import Distribution, Wrapper
from entrypoint.simulate.local_channels import (
    ChannelMode,
    Compression,
    LocalChannel,
    check_together,
    is_data,
    parse_channel,
)
from entrypoint.simulate.pipe_writer import Stream, feeding
from entrypoint.simulate.tree import deliver, shown
from sagemaker_tf_data import hidden

LONG = 60.0  # seconds; says when to give up
SHARDED = Distribution.SHARDED


def pipe(folder: Path, **options) -> LocalChannel:
    return LocalChannel(name="train", source=folder, mode=ChannelMode.PIPE, **options)


@pytest.fixture
def rows(tmp_path) -> Path:
    """Make a folder of five objects; in S3's order of keys, B comes before a, and a/z before a0."""
    return write_files(tmp_path / "rows", {key: f"<{key}>" for key in ("a0", "B", "b", "a/z", "a/y")})


KEYS = ["B", "a/y", "a/z", "a0", "b"]


def objects(tmp_path: Path, *contents: bytes) -> Path:
    """Make a folder of objects with these contents, in order of their keys; return its path."""
    return write_files(tmp_path / "objects", {str(number): content for number, content in enumerate(contents)})


# --- what is asked for ---


def test_channel_options_are_parsed_after_its_folder(tmp_path):
    word = "train=rows,mode=Pipe,distribution=ShardedByS3Key,shuffle=7,compression=Gzip,wrapper=RecordIO"
    assert parse_channel(word) == LocalChannel(
        name="train", source=Path("rows").absolute(), mode=ChannelMode.PIPE, distribution=SHARDED, shuffle=7,
        compression=Compression.GZIP, wrapper=Wrapper.RECORD_IO,
    )  # fmt: skip
    assert parse_channel("a=m.jsonl,mode=Pipe,attributes=x-ref:y").attributes == ("x-ref", "y")


@pytest.mark.parametrize("word, folder", [
    ("train=rows", "rows"), ("train=a,b", "a,b"), ("train=a=b,c=d/e", "a=b,c=d/e"), ("train=,", ","),
    ("train=odd,mode=Pipe/", "odd,mode=Pipe"), ("train=a,b=c/,mode=File", "a,b=c"), ("train=x,Y=z", "x,Y=z"),
])  # fmt: skip
def test_channel_folder_may_have_any_name(word, folder):
    assert parse_channel(word) == LocalChannel(name="train", source=Path(folder).absolute())


def test_input_mode_applies_to_channels_without_a_mode():
    assert parse_channel("train=rows", ChannelMode.PIPE).mode is ChannelMode.PIPE
    assert parse_channel("train=rows,mode=FastFile", ChannelMode.PIPE).mode is ChannelMode.FAST_FILE


@pytest.mark.parametrize(
    "word, says",
    [
        ("train", "wanted name=value"),
        ("train=", "wanted name=value"),
        ("train=,mode=Pipe", "the value a folder"),
        ("a/b=rows", "wanted 1 to 64 letters"),
        ("train=rows,mode=pipe", "mode='pipe'; wanted one of File, FastFile, Pipe"),
        ("train=rows,mod=Pipe", "option 'mod'; wanted one of mode, "),
        ("train=rows,mode=Pipe,shuffle=yes", "shuffle='yes'; wanted a seed"),
        ("train=rows,shuffle=7", "has shuffle, and its mode is File; wanted mode=Pipe"),
        ("train=rows,wrapper=RecordIO", "has wrapper, and its mode is File"),
        ("train=rows,mode=FastFile,compression=Gzip", "has compression, and its mode is FastFile"),
        ("train=m,attributes=a", "has attributes, and its mode is File"),
        ("train=m,mode=Pipe,attributes=a::b", "wanted 1 to 16 names"),
    ],
)
def test_malformed_channel_is_refused(word, says):
    with pytest.raises(ConfigError) as error:
        parse_channel(word)
    assert says in str(error.value)


def test_channels_with_clashing_names_are_refused(rows):
    def check(*channels: tuple[str, ChannelMode]) -> None:
        check_together([LocalChannel(name=name, source=rows, mode=mode) for name, mode in channels])

    check(("train", ChannelMode.PIPE), ("train_1", ChannelMode.PIPE), ("train_x", ChannelMode.FILE))
    check(("train", ChannelMode.FILE), ("train_1", ChannelMode.FILE))
    for other in ("train_1", "train-manifest"):
        with pytest.raises(ConfigError, match="wanted another name"):
            check(("train", ChannelMode.PIPE), (other, ChannelMode.FILE))
    with pytest.raises(ConfigError, match="train twice"):
        check(("train", ChannelMode.PIPE), ("train", ChannelMode.FILE))


@pytest.mark.parametrize(
    "channel, mode", [(ChannelMode.FILE, "File"), (ChannelMode.FAST_FILE, "File"), (ChannelMode.PIPE, "Pipe")]
)
def test_launcher_reads_the_simulated_channel_config(rows, channel, mode):
    described = LocalChannel(name="train", source=rows, mode=channel, distribution=SHARDED).described()
    assert described == {"TrainingInputMode": mode, "S3DistributionType": "ShardedByS3Key", "RecordWrapperType": "None"}


# --- who gets what ---


def keys(channel: LocalChannel, *where: int) -> list[str]:
    return [entry.key for entry in channel.of_host(*where)]


def test_objects_are_distributed_to_hosts_in_order_of_keys(rows):
    assert keys(pipe(rows), 1, 2) == KEYS
    sharded = pipe(rows, distribution=SHARDED)
    assert [keys(sharded, rank, 2) for rank in range(2)] == [["B", "a/z", "b"], ["a/y", "a0"]]
    assert keys(sharded, 6, 7) == []


@given(st.integers(1, 7), st.integers(0, 50), st.integers(0, 3))
def test_each_object_goes_to_one_host_in_each_pass(tmp_path_factory, hosts, seed, number):
    folder = write_files(tmp_path_factory.getbasetemp() / "dealt", dict.fromkeys(map(str, range(10)), ""))
    sharded = pipe(folder, distribution=SHARDED, shuffle=seed)
    found = [keys(sharded, rank, hosts, number) for rank in range(hosts)]
    assert Counter(key for own in found for key in own) == Counter(map(str, range(10)))
    assert max(map(len, found)) - min(map(len, found)) <= 1


def test_shuffle_seed_gives_one_order_per_pass_on_all_hosts(tmp_path):
    write_files(tmp_path, dict.fromkeys(map(str, range(20)), ""))
    passes = [keys(pipe(tmp_path, shuffle=7), 0, 2, number) for number in range(3)]
    assert passes == [keys(pipe(tmp_path, shuffle=7), 1, 2, number) for number in range(3)]
    assert len({tuple(each) for each in passes}) == 3
    assert keys(pipe(tmp_path, shuffle=8), 0, 2) != passes[0]


def test_host_gets_its_files_and_manifests(rows, tmp_path):
    whole = LocalChannel(name="whole", source=rows)
    part = LocalChannel(name="part", source=rows, distribution=SHARDED)
    data = tmp_path / "data"
    data.mkdir()
    channels = [whole, part, pipe(rows)]
    deliver(channels, data, tmp_path / "parts", 1, 2)
    assert shown(channels, tmp_path / "parts") == [("whole", rows), ("part", tmp_path / "parts/part")]
    found = sorted((tmp_path / "parts/part").rglob("*"))
    assert [path.relative_to(tmp_path / "parts/part").as_posix() for path in found] == ["a", "a/y", "a0"]
    assert (tmp_path / "parts/part/a/y").read_text() == "<a/y>"
    assert (data / "part-manifest").read_text() == "part\ns3://local/part/a/y\ns3://local/part/a0\n"
    assert sorted(path.name for path in data.iterdir()) == ["part-manifest", "train-manifest", "whole-manifest"]


LEFT_BEHIND = dict.fromkeys(("_SUCCESS", "a/.y.crc", ".ipynb_checkpoints/B-checkpoint", "desktop.ini"), "x")


def test_non_data_files_are_reported_and_left_out(rows, tmp_path):
    assert pipe(rows).summary == ""
    write_files(rows, LEFT_BEHIND)
    sharded = LocalChannel(name="train", source=rows, distribution=SHARDED)
    for channel in (pipe(rows), sharded):
        assert keys(channel, 0, 1) == KEYS
        assert channel.summary == (
            "channel train: .ipynb_checkpoints/B-checkpoint, _SUCCESS, a/.y.crc and 1 more are ignored, as they are "
            "not data: SageMaker would deliver them, so keep them out of S3"
        )
    whole = LocalChannel(name="train", source=rows)
    assert whole.is_whole  # it is shown as it is
    assert "are in the folder, as on SageMaker: sagemaker_tf_data ignores them" in whole.summary


def test_multi_record_examples_are_reported(tmp_path):
    told = pipe(tmp_path / "m", wrapper=Wrapper.RECORD_IO, attributes=("source-ref", "label")).summary
    assert told.startswith("channel train: each example is 2 records; read it with attributes=['source-ref', 'label']")
    assert pipe(tmp_path / "m", wrapper=Wrapper.RECORD_IO, attributes=("source-ref",)).summary == ""


@pytest.mark.parametrize("name", [*KEYS, *LEFT_BEHIND, "a_b", "a.b/c.d", "Thumbs.db/x", "d/THUMBS.DB", "_a/b", "é/_"])
def test_library_and_simulator_agree_on_data_files(name):
    in_library = re.fullmatch(hidden.data("*"), f"/{name}") and not re.fullmatch(hidden.OF_WINDOWS, f"/{name}")
    assert is_data(name) == bool(in_library)


def test_empty_object_beside_gzip_is_streamed(fed, tmp_path):
    channel = pipe(objects(tmp_path, b"", gzip.compress(b"two")), compression=Compression.GZIP)
    channel.check()
    with fed(channel) as job:
        assert job.read(0) == b"two"


def listed(tmp_path: Path, text: str, **options) -> LocalChannel:
    """Return a channel whose manifest has this text."""
    (tmp_path / "list").write_text(text)
    return LocalChannel(name="train", source=tmp_path / "list", **options)


def test_channel_has_only_the_objects_of_its_manifest(rows, tmp_path):
    channel = listed(tmp_path, '[{"prefix": "rows/"}, "b", "a/z"]', distribution=SHARDED)
    channel.check()
    assert keys(channel, 0, 2) == ["b"]
    deliver([channel], tmp_path, tmp_path / "parts", 1, 2)
    assert (tmp_path / "parts/train/a/z").read_text() == "<a/z>"


def test_manifest_may_name_an_object_twice(rows, tmp_path):
    deliver([listed(tmp_path, '[{"prefix": "rows/"}, "b", "b"]')], tmp_path, tmp_path / "parts", 0, 1)
    assert [path.name for path in (tmp_path / "parts/train").iterdir()] == ["b"]


def test_manifest_of_s3_names_copies_beside_it(rows, tmp_path):
    (tmp_path / "bucket").symlink_to(rows)
    assert listed(tmp_path, '[{"prefix": "s3://bucket/a/"}, "z"]').entries[0].parts == (tmp_path / "bucket/a/z",)


AUGMENTED = """\
{"text": "é", "row-ref": "rows/b", "label": {"a": [1, 2]}}

{"row-ref": "rows/B", "label": 3, "text": ""}
"""


def augmented(tmp_path: Path, text: str = AUGMENTED, **options) -> LocalChannel:
    (tmp_path / "lines").write_text(text)
    return pipe(tmp_path / "lines", attributes=("label", "row-ref", "text"), **options)


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda t: LocalChannel(name="train", source=t / "absent"), "no such folder"),
        (lambda t: pipe(t / "absent", attributes=("a",)), "no such file; wanted an augmented manifest"),
        (lambda t: pipe(t / "left"), "holds no file with data"),
        (lambda t: pipe(t / "rows", compression=Compression.GZIP), "B is not a gzip file"),
        (lambda t: LocalChannel(name="train", source=t / "rows/b", mode=ChannelMode.FAST_FILE), "its mode is FastFile"),
        (lambda t: pipe(t / "rows/b"), "not JSON"),
        (lambda t: listed(t, "[" * 100_000, mode=ChannelMode.PIPE), "; wanted"),
        (lambda t: listed(t, '{"prefix": "rows/"}', mode=ChannelMode.PIPE), "; wanted"),
        (lambda t: listed(t, '["a"]', mode=ChannelMode.PIPE), "; wanted"),
        (lambda t: listed(t, '[{"prefix": "rows/"}, 5]', mode=ChannelMode.PIPE), "; wanted"),
        (lambda t: listed(t, '[{"prefix": "rows/"}, "absent"]', mode=ChannelMode.PIPE), "and there is no file"),
        (lambda t: pipe(t / "huge", wrapper=Wrapper.RECORD_IO), "larger than a record may be"),
        (lambda t: augmented(t, "[1]"), "has [1] in line 1; wanted a JSON object"),
        (lambda t: augmented(t, "{}\n"), "no attribute 'label' in line 1"),
        (lambda t: augmented(t, AUGMENTED + "{"), "no JSON in line 4"),
        (lambda t: augmented(t, '{"label": 1, "row-ref": "s3://b/k", "text": ""}'), "copy in BUCKET/KEY beside"),
        (lambda t: augmented(t, '{"label": 1, "row-ref": 5, "text": ""}'), "wanted the URI of an object"),
    ],
)
def test_channel_source_conflicting_with_options_is_refused(rows, tmp_path, make, says):
    write_files(tmp_path / "left", LEFT_BEHIND)
    (tmp_path / "huge").mkdir()
    with (tmp_path / "huge/file").open("wb") as file:
        file.truncate(1 << 29)
    with pytest.raises(ConfigError) as error:
        make(tmp_path).check()
    message = str(error.value)
    assert message.startswith("--channel train=") and says in message and "\n" not in message


def test_key_outside_the_channel_is_refused(rows, tmp_path):
    with pytest.raises(ConfigError, match="leads out"):
        deliver([listed(tmp_path, '[{"prefix": "rows/a/"}, "../b"]')], tmp_path, tmp_path / "parts", 0, 1)


# --- what comes out of the FIFOs ---


class Fed:
    """The FIFOs of the channel "train", one for each pass."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.problems = folder, list[str]()

    def open(self, number: int):
        path = self.folder / f"train_{number}"
        eventually(path.exists, LONG, f"FIFO {path}")
        return path.open("rb")

    def read(self, number: int) -> bytes:
        with self.open(number) as file:
            return file.read()


@pytest.fixture
def fed(tmp_path):
    """Return a context that feeds a channel of one host; check that nothing is left behind."""
    before = set(threading.enumerate())
    folder = tmp_path / "input"
    folder.mkdir()

    @contextlib.contextmanager
    def fed(channel: LocalChannel) -> Iterator[Fed]:
        job = Fed(folder)
        with feeding([Stream(channel=channel, folder=folder, rank=0, hosts=1)], job.problems.append):
            yield job
        assert set(threading.enumerate()) == before
        assert not list(folder.iterdir())

    return fed


def records(stream: bytes) -> list[bytes]:
    """Return the records of RecordIO, read as MXNet's "recordio.h" defines it."""
    found = []
    while stream:
        magic, length = struct.unpack_from("<II", stream)
        assert magic == 0xCED7230A
        found.append(stream[8 : 8 + length])
        filled = -length % 4
        assert stream[8 + length : 8 + length + filled] == bytes(filled)
        stream = stream[8 + length + filled :]
    return found


@pytest.mark.parametrize("shuffle", [None, 3])
def test_each_pass_has_its_own_fifo_and_order(fed, rows, shuffle):
    channel = pipe(rows, shuffle=shuffle)
    with fed(channel) as job:
        streams = [job.read(number) for number in range(4)]
    assert streams == ["".join(f"<{key}>" for key in keys(channel, 0, 1, n)).encode() for n in range(4)]
    assert (len(set(streams)) > 1) is bool(shuffle)


def test_large_and_empty_objects_arrive_whole(fed, tmp_path):
    content = os.urandom(5_000_001)
    with fed(pipe(objects(tmp_path, b"", content), wrapper=Wrapper.RECORD_IO)) as job:
        assert records(job.read(0)) == [b"", content]


@pytest.mark.parametrize("wrapper", Wrapper)
def test_gzip_objects_are_expanded(fed, tmp_path, wrapper):
    texts = [b"one\n" * 1_000_000, b"two"]
    source = objects(tmp_path, *(gzip.compress(text, 1) for text in texts))
    with fed(pipe(source, compression=Compression.GZIP, wrapper=wrapper)) as job:
        found = job.read(0)
    assert records(found) == texts if wrapper is Wrapper.RECORD_IO else found == b"".join(texts)


def test_manifest_attributes_are_streamed_in_requested_order(fed, rows, tmp_path):
    with fed(augmented(tmp_path, wrapper=Wrapper.RECORD_IO)) as job:
        assert records(job.read(0)) == [b'{"a": [1, 2]}', b"<b>", "é".encode(), b"3", b"<B>", b""]
    with fed(augmented(tmp_path)) as job:
        assert job.read(0) == '{"a": [1, 2]}<b>é3<B>'.encode()


def test_reader_that_closed_early_gets_the_next_pass(fed, tmp_path):
    with fed(pipe(objects(tmp_path, bytes(8_000_000)))) as job:
        with job.open(0) as file:
            assert file.read(10) == bytes(10)
        assert len(job.read(1)) == 8_000_000
        with pytest.raises(FileNotFoundError), (tmp_path / "input/train_0").open("rb"):
            pass


def test_feeding_ends_without_waiting_for_readers(fed, tmp_path, rows):
    with fed(pipe(rows)):
        pass
    (tmp_path / "rows/large").write_bytes(bytes(8_000_000))
    with fed(pipe(rows)) as job:
        job.read(0)
        file = job.open(1)
        assert file.read(3) == b"<B>"
        file.close()  # in the midst of it, as by a process that is killed


def test_truncated_object_is_reported(fed, tmp_path):
    source = objects(tmp_path, gzip.compress(os.urandom(100_000))[:50_000])
    with fed(pipe(source, compression=Compression.GZIP)) as job:
        job.read(0)
        assert "channel train, pass 0" in eventually(lambda: "".join(job.problems), LONG)


def test_feeding_without_pipes_starts_no_thread(rows, tmp_path):
    before = threading.active_count()
    stream = Stream(channel=LocalChannel(name="train", source=rows), folder=tmp_path, rank=0, hosts=1)
    with feeding([stream], print):
        assert threading.active_count() == before


def test_plan_without_config_folder_accepts_channels(capsys):
    words = ["--hosts", "2", "--channel", "train=rows,distribution=ShardedByS3Key", "--input-mode", "Pipe"]
    assert main.run(["plan", *words], {}) == 0
    assert "train        Pipe, ShardedByS3Key" in capsys.readouterr().out
    assert main.run(["plan", *words[2:]], {}) == 78
    assert "wanted --hosts N" in capsys.readouterr().err
