"""examples/deepfm/libsvm_to_tfrecord.py: rows in, the same rows out, or an error that names the line."""

import gzip
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tensorflow
DEEPFM = Path(__file__).resolve().parents[2] / "examples" / "deepfm"


@pytest.fixture(scope="module")
def deepfm():
    """The example's modules. Their names are common ones, so they leave `sys.modules` again."""
    pytest.importorskip("tensorflow")  # here and not above: collecting the tests stays quick
    sys.path.insert(0, str(DEEPFM))
    try:
        import libsvm_to_tfrecord

        import data

        yield type("Deepfm", (), {"data": data, "converter": libsvm_to_tfrecord})
    finally:
        sys.path.remove(str(DEEPFM))
        for name in ("data", "libsvm_to_tfrecord"):
            sys.modules.pop(name, None)


def line(label=1, first=1, fields=39):
    return f"{label} " + " ".join(f"{first + index}:{index / 4}" for index in range(fields))


def rows_of(deepfm, *paths):
    rows = []
    for features, labels in deepfm.data.batches([str(path) for path in paths], batch_size=2):
        columns = labels, features["ids"], features["values"]
        rows += zip(*(column.numpy().tolist() for column in columns), strict=True)
    return rows


def test_rows_survive_and_shards_differ_by_one_row_at_most(deepfm, tmp_path):
    source = tmp_path / "a.libsvm"
    source.write_text("\n".join(line(label=index % 2, first=index) for index in range(11)) + "\n")
    written = deepfm.converter.convert([source], tmp_path / "out", shards=4)
    assert [path.name for path, _ in written] == [
        f"part-{index:05d}-of-00004.tfrecords" for index in range(4)
    ]
    assert [rows for _, rows in written] == [3, 3, 3, 2]
    assert [deepfm.data.count_rows([path]) for path, _ in written] == [3, 3, 3, 2]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [path.name for path, _ in written]

    rows = rows_of(deepfm, *(path for path, _ in written))
    assert sorted(ids[0] for _, ids, _ in rows) == list(range(11))
    for label, ids, values in rows:
        assert label == ids[0] % 2
        assert ids == list(range(ids[0], ids[0] + 39))
        assert values == [index / 4 for index in range(39)]


def test_reads_gzip_several_files_comments_and_both_kinds_of_labels(deepfm, tmp_path):
    with gzip.open(tmp_path / "a.libsvm.gz", "wt") as file:
        file.write(f"# a comment\n\n{line(-1)} # another\r\n")
    (tmp_path / "b.libsvm").write_text(line("+1").replace(" ", "\t"))  # no newline at the end
    sources = [tmp_path / "a.libsvm.gz", tmp_path / "b.libsvm"]
    [(path, rows)] = deepfm.converter.convert(sources, tmp_path / "out", shards=1)
    assert rows == 2
    assert [label for label, _, _ in rows_of(deepfm, path)] == [0.0, 1.0]


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


def test_counting_rows_notices_a_file_that_was_cut_off(deepfm, tmp_path):
    source = tmp_path / "a.libsvm"
    source.write_text(line())
    [(path, _)] = deepfm.converter.convert([source], tmp_path / "out", shards=1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SystemExit, match="ends in the middle of a record"):
        deepfm.data.count_rows([path])


def test_no_file_is_in_both_parts_of_the_split(deepfm, tmp_path, monkeypatch):
    training, evaluation = tmp_path / "training", tmp_path / "evaluation"
    training.mkdir(), evaluation.mkdir()
    monkeypatch.setenv("SM_CHANNEL_TRAINING", str(training))
    for other in ("EVALUATION", "EVAL", "TEST", "VALIDATION"):
        monkeypatch.setenv(f"SM_CHANNEL_{other}", str(tmp_path / "none"))
    for name in ("b", "a", "c"):
        (training / f"{name}.tfrecords").touch()
    assert deepfm.data.split() == (
        [f"{training}/a.tfrecords", f"{training}/b.tfrecords"],
        [f"{training}/c.tfrecords"],
    )

    monkeypatch.setenv("SM_CHANNEL_EVALUATION", str(evaluation))
    (evaluation / "d.tfrecords").touch()
    assert deepfm.data.split() == (
        [f"{training}/{name}.tfrecords" for name in "abc"],
        [f"{evaluation}/d.tfrecords"],
    )

    (evaluation / "d.tfrecords").unlink()
    (evaluation / "a.tfrecords").symlink_to(training / "a.tfrecords")
    with pytest.raises(SystemExit, match="both trained and evaluated on"):
        deepfm.data.split()
