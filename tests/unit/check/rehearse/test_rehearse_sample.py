"""Test samples of channels: records stay whole, files keep their shares, and unreadable data are reported."""

import gzip
import json
import os
from pathlib import Path

import pytest
from builders import write_files
from epochs import tfrecord
from moto_server import moto

from entrypoint.base.errors import ConfigError
from entrypoint.check.doctor.request import Request
from entrypoint.check.rehearse.data_sources import origins
from entrypoint.check.rehearse.sample import spread, take
from sagemaker_tf_data import recordio

KEYS = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "eu-west-1"}


def request(uri: str = "s3://rehearsed/rows/", **more: str) -> Request:
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, **more}
    return Request(
        body={"InputDataConfig": [{"ChannelName": "training", "DataSource": {"S3DataSource": source}}]}, file="x"
    )


def sample(folder: Path, data: Path, records: int, room: int = 1 << 20):
    (origin,) = origins(request(), {"training": data}, folder / "samples")
    return take(origin, records, room)


RECORDS = {
    "rows.tfrecord": ("TFRecord", [tfrecord(bytes([number]) * number) for number in range(1, 60)]),
    "images.rec": ("RecordIO", [recordio.frame(bytes([number]) * number) for number in range(1, 60)]),
    "split.rec": ("RecordIO", [recordio.frame(b"abcd" + recordio.WORD + bytes([number])) for number in range(60)]),
    "rows.csv": ("lines", [f"{number},{number}\n".encode() for number in range(60)]),
    "rows.jsonl": ("lines", [json.dumps({"row": number}).encode() + b"\n" for number in range(60)]),
}


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("name", RECORDS)
def test_sampled_files_end_between_records(tmp_path: Path, name: str, packed: bool) -> None:
    kind, records = RECORDS[name]
    content = b"".join(records)
    at = f"{name}.gz" if packed else name
    taken = sample(tmp_path, write_files(tmp_path / "data", {at: gzip.compress(content) if packed else content}), 7)
    assert (taken.kind, taken.records, taken.files, taken.of_files) == (kind, 7, 1, 1)
    cut = (tmp_path / "samples/training" / at).read_bytes()
    assert (gzip.decompress(cut) if packed else cut) == b"".join(records[:7])
    assert packed or taken.part == pytest.approx(len(cut) / len(content))


def test_small_file_is_sampled_whole(tmp_path: Path) -> None:
    taken = sample(tmp_path, write_files(tmp_path / "data", {"rows.csv": b"1\n2\n3"}), 2000)
    assert (taken.records, taken.part) == (3, 1.0)
    assert (tmp_path / "samples/training/rows.csv").read_text() == "1\n2\n3"


def test_each_file_gives_records_by_size_and_at_least_one(tmp_path: Path) -> None:
    rows = {"a.csv": 600, "b.csv": 300, "deep/c.csv": 100, "d.csv": 1}
    taken = sample(
        tmp_path, write_files(tmp_path / "data", {name: b"row\n" * count for name, count in rows.items()}), 100
    )
    got = {
        str(path.relative_to(tmp_path / "samples/training")): path.read_text().count("\n")
        for path in (tmp_path / "samples/training").rglob("*.csv")
    }
    assert got == {"a.csv": 60, "b.csv": 30, "deep/c.csv": 10, "d.csv": 1}
    assert [entry.key for entry in taken.channel.entries] == ["a.csv", "b.csv", "d.csv", "deep/c.csv"]


def test_surplus_files_are_sampled_evenly(tmp_path: Path) -> None:
    names = [f"{kind}/{number:02}.png" for kind in ("cats", "dogs") for number in range(50)]
    taken = sample(tmp_path, write_files(tmp_path / "data", dict.fromkeys(names, b"image")), 10)
    assert (taken.records, taken.kind, taken.of_files, taken.part) == (10, "whole files", 100, pytest.approx(0.1))
    assert [entry.key[:4] for entry in taken.channel.entries] == ["cats"] * 5 + ["dogs"] * 5


def test_few_files_are_all_sampled() -> None:
    assert spread((), 5) == ()
    assert spread("abc", 5) == "abc"  # type: ignore[arg-type]


def test_whole_files_over_the_size_limit_are_left_out(tmp_path: Path) -> None:
    data = write_files(tmp_path / "data", {"a.npz": b"x" * 5000, "b.npz": b"x" * 500})
    taken = sample(tmp_path, data, 10, room=1000)
    assert (taken.files, taken.left_out) == (1, 1)
    assert [path.name for path in (tmp_path / "samples/training").iterdir()] == ["b.npz"]
    (data / "b.npz").unlink()
    with pytest.raises(ConfigError, match=r"a\.npz and the like are larger.*--channel training=FOLDER"):
        sample(tmp_path / "again", data, 10, room=1000)


def test_non_data_files_are_dropped_and_empty_ones_kept(tmp_path: Path) -> None:
    data = write_files(
        tmp_path / "data", {".ipynb_checkpoints/a-checkpoint.csv": b"1\n2\n", "_SUCCESS": b"", "empty": b""}
    )
    with pytest.raises(ConfigError, match=r"no file in it holds data; pass a local copy"):
        sample(tmp_path, data, 10)
    (data / "a.csv").write_text("1\n2\n")
    taken = sample(tmp_path, data, 10)
    assert (taken.kind, taken.records, taken.of_files, taken.part) == ("lines", 2, 2, 1.0)
    assert [entry.key for entry in taken.channel.entries] == ["a.csv", "empty"]
    assert taken.no_data == (".ipynb_checkpoints/a-checkpoint.csv", "_SUCCESS")


def test_truncated_record_is_refused(tmp_path: Path) -> None:
    data = write_files(tmp_path / "data", {"rows.tfrecord": b"".join(RECORDS["rows.tfrecord"][1])[:-3]})
    with pytest.raises(ConfigError, match=r"rows\.tfrecord: record 58 is cut off"):
        sample(tmp_path, data, 1000)


def test_sample_follows_the_distribution_of_the_request(tmp_path: Path) -> None:
    data = write_files(tmp_path / "data", {f"{number}.csv": b"1\n" for number in range(4)})
    (origin,) = origins(request(S3DataDistributionType="ShardedByS3Key"), {"training": data}, tmp_path / "samples")
    channel = take(origin, 10).channel
    assert [[entry.key for entry in channel.of_host(rank, 2)] for rank in range(2)] == [
        ["0.csv", "2.csv"], ["1.csv", "3.csv"]
    ]  # fmt: skip
    assert channel.described()["S3DistributionType"] == "ShardedByS3Key"


@pytest.mark.parametrize(
    ("asked", "given", "words"),
    [
        (request(), ["other"], "--channel names other, and the request has training"),
        (request(), ["training"], "there is no such folder"),
        (request("file:///nowhere/at/all"), [], "there is no such folder"),
        (request("fsx://somewhere"), [], "not an S3 path; pass a local copy"),
        (request(S3DataType="ManifestFile"), [], "a ManifestFile, and cannot be sampled"),
    ],
)
def test_channel_that_cannot_be_sampled_is_refused(
    tmp_path: Path, asked: Request, given: list[str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        origins(asked, dict.fromkeys(given, tmp_path / "nowhere"), tmp_path)


@pytest.fixture(scope="module")
def url():
    import boto3

    with moto() as served:
        client = boto3.client("s3", **KEYS, endpoint_url=served)
        client.create_bucket(Bucket="rehearsed", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        for number in range(3):
            client.put_object(Bucket="rehearsed", Key=f"rows/part-{number}.csv", Body=b"row of s3\n" * 1000)
        client.put_object(Bucket="rehearsed", Key="rows/", Body=b"")
        yield served


class TestOfS3:
    @pytest.fixture
    def answered(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Direct boto3 to the stand-in for S3."""
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
        for name, value in zip(names, [*KEYS.values(), url], strict=True):
            monkeypatch.setenv(name, value)
        monkeypatch.setattr("boto3.DEFAULT_SESSION", None)

    def test_s3_objects_are_read_in_part(self, tmp_path: Path, answered: None) -> None:
        (origin,) = origins(request(), {}, tmp_path / "samples")
        taken = take(origin, 30)
        assert (taken.records, taken.files, taken.of_files, taken.of_size) == (30, 3, 3, 30_000)
        assert taken.part == pytest.approx(0.01)
        assert (tmp_path / "samples/training/part-2.csv").read_bytes() == b"row of s3\n" * 10

    @pytest.mark.parametrize("uri", ["s3://rehearsed/nothing/here", "s3://no-such-bucket/rows"])
    def test_missing_s3_objects_are_reported(self, tmp_path: Path, answered: None, uri: str) -> None:
        words = r"(no object below it|NoSuchBucket).*--channel training=FOLDER"
        with pytest.raises(ConfigError, match=words):
            origins(request(uri), {}, tmp_path / "samples")

    def test_missing_credentials_are_reported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
        with pytest.raises(ConfigError, match=r"Unable to locate credentials; pass a local copy"):
            origins(request(), {}, tmp_path / "samples")
