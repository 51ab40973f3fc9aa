"""Test artifacts.py and inventory.py: what hosts leave for SageMaker to pack; and model_dir."""

import json
import os
import shutil

import pytest
from builders import read
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.launcher.control.access import MESSAGE_BYTES
from entrypoint.launcher.control.wire import Refused, report_from_json, to_json
from entrypoint.launcher.host import inventory
from entrypoint.launcher.job.files import MAX_HOSTS
from entrypoint.launcher.job.job import Tree
from entrypoint.launcher.policy.artifacts import Artifacts, File, warnings
from entrypoint.launcher.policy.events import Report

SAVED = {"model/1/saved_model.pb": "graph", "model/1/variables/variables.index": "index"}
PACKED = "SageMaker packs the folders of all hosts into one archive"


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    monkeypatch.setattr(inventory, "SECONDS", 60)  # whatever else runs on this machine


def leave(base, files: dict[str, str | bytes]) -> Tree:
    for name, content in files.items():
        path = base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Tree(base=base)


def said(tmp_path, *hosts: dict[str, str | bytes]) -> list[str]:
    """Return the messages about hosts that left these files."""
    left = {
        f"algo-{number}": inventory.take(leave(tmp_path / str(number), files), len(hosts))
        for number, files in enumerate(hosts, 1)
    }
    return list(warnings(left))


# --- the model ---


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_no_model_on_any_host_is_said_once(tmp_path, hosts):
    (warning,) = said(tmp_path, *[{}] * hosts)
    assert warning.startswith("/opt/ml/model is empty: no model was saved")
    assert ("on any host" in warning) == (hosts > 1)


def test_folders_without_files_are_no_model(tmp_path):
    (tmp_path / "1" / "model" / "1" / "assets").mkdir(parents=True)
    assert [line.partition(":")[0] for line in said(tmp_path, {"output/data/x": "x"})] == ["/opt/ml/model is empty"]


@pytest.mark.parametrize("followers", [0, 1, 3])
@pytest.mark.parametrize(
    "files",
    [
        SAVED,
        {"model/export/Servo/1700000000/saved_model.pb": "x"},
        {"model/1/saved_model.pbtxt": "x"},
        {"model/best/saved_model.pb": "x", "model/2/saved_model.pb": "x", "model/a.keras": "x"},
        {"model/0/saved_model.pb": "x", "model/best/saved_model.pb": "x"},
    ],
)
def test_a_model_for_serving_on_one_host_is_well(tmp_path, files, followers):
    assert said(tmp_path, files, *[{}] * followers) == []
    assert said(tmp_path / "turned", *[{}] * followers, files) == []


@pytest.mark.parametrize("files, found", [
    ({"model/model.keras": "x"}, "/opt/ml/model holds no SavedModel in a numbered folder"),
    ({"model/1/model.h5": "x"}, "/opt/ml/model holds no SavedModel in a numbered folder"),
    ({"model/saved_model.pb": "x"}, "the SavedModel in /opt/ml/model is not in a numbered folder"),
    ({"model/best/saved_model.pb": "x"}, "the SavedModel in /opt/ml/model/best is not in a numbered folder"),
    ({"model/v1/saved_model.pb": "x"}, "the SavedModel in /opt/ml/model/v1 is not in a numbered folder"),
    ({"model/1/best/saved_model.pb": "x"}, "the SavedModel in /opt/ml/model/1/best is not in a numbered folder"),
    # an Arabic 1
    ({"model/\u0661/saved_model.pb": "x"}, "the SavedModel in /opt/ml/model/\u0661 is not in a numbered folder"),
    ({"model/a\n/saved_model.pb": "x"}, "the SavedModel in '/opt/ml/model/a\\n' is not in a numbered folder"),
])  # fmt: skip
def test_a_model_that_serving_does_not_find_is_one_line(tmp_path, files, found):
    (warning,) = said(tmp_path, files, {})
    assert warning.startswith(found)
    assert "TensorFlow Serving" in warning and "\n" not in warning


# --- the same name twice ---


def test_different_files_of_one_name_are_named_with_their_hosts(tmp_path):
    (warning,) = said(
        tmp_path,
        {**SAVED, "output/data/log": "a"},
        {"output/data/log": "a", "output/data/own-2": "x"},
        {"output/data/log": "b"},
    )
    assert warning.startswith(f"/opt/ml/output/data/log: different on algo-1 and algo-3. {PACKED}")


def test_many_collisions_are_one_line(tmp_path):
    hosts = [
        {f"model/{number}/saved_model.pb": f"of {host}" for number in range(1, 9)} | {"output/data/h": str(host)}
        for host in range(5)
    ]
    (warning,) = said(tmp_path, *hosts)
    named = "/opt/ml/model/1/saved_model.pb, /opt/ml/model/2/saved_model.pb, /opt/ml/model/3/saved_model.pb and 6 more"
    assert warning.startswith(f"{named}: different on algo-1, algo-2, algo-3 and 2 more. ")


def test_the_same_files_everywhere_are_well(tmp_path):
    """So it is in the SDK's local mode, where all hosts share one folder."""
    assert said(tmp_path, *[{**SAVED, "output/data/seen": "x"}] * 3) == []


LARGE = bytes(300_000)


@pytest.mark.parametrize(
    "other, differ",
    [
        (LARGE, False),
        (LARGE + b"\0", True),
        (b"1" + LARGE[1:], True),
        (LARGE[1:] + b"1", True),
    ],
    ids=["the same", "longer", "begins otherwise", "ends otherwise"],
)
def test_large_files_are_told_by_size_and_ends(tmp_path, other, differ):
    lines = said(tmp_path, {**SAVED, "model/1/data": LARGE}, {"model/1/data": other})
    assert [line.partition(":")[0] for line in lines] == ["/opt/ml/model/1/data"] * differ


def test_links_are_told_by_where_they_point(tmp_path):
    for host, target in ((1, "2"), (2, "3")):
        leave(tmp_path / str(host), SAVED)
        (tmp_path / str(host) / "model" / "latest").symlink_to(target)
        (tmp_path / str(host) / "model" / "loop").symlink_to(".")
    assert [line.partition(":")[0] for line in said(tmp_path, {}, {})] == ["/opt/ml/model/latest"]


def test_what_is_no_file_is_not_opened(tmp_path):
    leave(tmp_path / "1", SAVED)
    os.mkfifo(tmp_path / "1" / "model" / "pipe")  # to open it would be to wait
    assert said(tmp_path, {}) == []


# --- bounds ---


def test_a_host_that_did_not_tell_stops_no_other_warning(tmp_path):
    left = {"algo-1": Artifacts(model=False), "algo-2": None}
    assert list(warnings(left)) == []  # the model may be there
    file = File(path="output/data/x", size=1)
    left |= {f"algo-{n}": Artifacts(model=False, files=(File(path=file.path, size=n),)) for n in (3, 4)}
    assert [line.partition(":")[0] for line in warnings(left)] == ["/opt/ml/output/data/x"]
    assert list(warnings({"algo-1": Artifacts(model=True, whole=False)})) == []


def test_a_file_that_was_not_read_differs_by_size_only():
    known = File(path="x", size=1, digest="a")
    assert not known.differs(File(path="x", size=1)) and not File(path="x", size=1).differs(known)
    assert known.differs(File(path="x", size=2)) and known.differs(File(path="x", size=1, digest="b"))


def test_no_more_than_some_megabytes_are_read(tmp_path):
    """Sparse files of 20 GB in all."""
    tree = leave(tmp_path, SAVED)
    for number in range(100):
        with (tmp_path / "model" / f"checkpoint-{number:03}").open("wb") as file:
            file.truncate(200 << 20)
    took = inventory.take(tree, 2)
    digests = [file.digest for file in took.files if file.size == 200 << 20]
    assert took.whole and len(digests) == 100
    assert digests[0] and not digests[-1]
    assert len([digest for digest in digests if digest]) <= inventory.READ_BYTES // (2 * inventory.END_BYTES) + 1


def test_many_files_are_not_listed_but_seen(tmp_path):
    files = {f"model/cache/{number:0200}": "" for number in range(600)}
    tree = leave(tmp_path, {**files, "model/zoo/7/saved_model.pb": "x", "output/data/x": "x"})
    took = inventory.take(tree, 2)
    assert 100 < len(took.files) < 600
    assert took.servable and took.whole and took.files[-1].path == "output/data/x"


def test_what_the_launcher_writes_itself_is_no_collision(tmp_path):
    """A host that is done sees the record that another still writes, where they share a folder."""
    record, scratch = "output/data/record/algo-2.jsonl.gz", "output/data/.report.html.new"
    assert said(tmp_path, {**SAVED, record: "half", scratch: "half"}, {**SAVED, record: "whole", scratch: "x"}) == []
    (warning,) = said(tmp_path / "2", {**SAVED, "output/data/x/record": "1"}, {**SAVED, "output/data/x/record": "2"})
    assert PACKED in warning


def test_a_disk_that_takes_too_long_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory, "SECONDS", -1)
    took = inventory.take(leave(tmp_path, SAVED), 2)
    assert took == Artifacts(model=False, whole=False)
    assert list(warnings({"algo-1": took})) == []


def test_folders_that_are_none_hold_nothing(tmp_path):
    (tmp_path / "model").write_text("a file")
    assert inventory.take(Tree(base=tmp_path), 1) == Artifacts(model=False)


@pytest.mark.parametrize("hosts", [2, MAX_HOSTS])
def test_what_a_host_tells_fits_into_a_message(tmp_path, hosts):
    long = "é" * 120  # six bytes each
    tree = leave(tmp_path, {f"{part}/{long}/{n}{long}": "" for part in ("model", "output/data") for n in range(100)})
    message = len(json.dumps(to_json(Report(host="algo-2", artifacts=inventory.take(tree, hosts)))))
    assert message < MESSAGE_BYTES / 4
    assert message * hosts < 8 << 20  # all that the coordinator has to read when the job ends


NAME = st.text(max_size=8)
FOLLOWERS = frozenset({"algo-2"})


@given(st.lists(st.tuples(NAME, st.integers(0, 1 << 62), NAME)), st.booleans(), NAME, st.booleans())
def test_what_a_host_leaves_comes_through_the_wire(files, model, saved, whole):
    left = Artifacts(
        files=tuple(File(path=path, size=size, digest=digest) for path, size, digest in files),
        model=model,
        saved=saved,
        whole=whole,
    )
    report = Report(host="algo-2", artifacts=left)
    assert report_from_json(json.loads(json.dumps(to_json(report))), FOLLOWERS) == report


@pytest.mark.parametrize("wrong", [
    {}, [], "x", {"files": [["a", 1]]}, {"files": [["a", "x", ""]]}, {"files": 3}, {"model": "yes"}, {"whole": None},
])  # fmt: skip
def test_what_no_host_would_tell_is_refused(wrong):
    message = to_json(Report(host="algo-2", artifacts=Artifacts(model=True)))
    artifacts = {**message["artifacts"], **wrong} if wrong and isinstance(wrong, dict) else wrong
    with pytest.raises(Refused):
        report_from_json({**message, "artifacts": artifacts}, FOLLOWERS)


def test_names_that_utf8_cannot_hold_come_through(tmp_path):
    folder = leave(tmp_path / "1", {"model/1/x": ""}).model
    os.close(os.open(os.fsencode(folder) + b"/\xff", os.O_CREAT))
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    (tmp_path / "2" / "model" / os.fsdecode(b"\xff")).write_text("more")
    one, two = (inventory.take(Tree(base=tmp_path / host), 2) for host in ("1", "2"))
    report = Report(host="algo-2", artifacts=two)
    assert report_from_json(json.loads(json.dumps(to_json(report))), FOLLOWERS) == report
    *_, collision = warnings({"algo-1": one, "algo-2": two})
    assert collision.startswith("'/opt/ml/model/\\udcff': different")


# --- model_dir ---

S3 = "s3://bucket/prefix/job/model"
TUNING = {"_tuning_objective_metric": "auc"}
NAMED = {"TRAINING_JOB_NAME": "tuned-007-ab12"}


def told(tmp_path, hyperparameters, variables=NAMED):
    """Return (arguments, what SM_HP_MODEL_DIR is made of) of a job with these hyperparameters."""
    job = read(tmp_path, 2, hyperparameters, variables)
    return list(job.program.arguments), job.hyperparameters.get("model_dir")


@pytest.mark.parametrize("sent", ["{}", '"{}"'])  # plain, and as the SDK's TensorFlow class sends texts
@pytest.mark.parametrize(
    "value, of_tuning",
    [
        (S3, f"{S3}/tuned-007-ab12/model"),
        ("s3://bucket/", "s3://bucket//tuned-007-ab12/model"),  # as the toolkit has it
        ("/elsewhere", "/elsewhere/tuned-007-ab12/model"),
        ("/opt/ml/model", "/opt/ml/model"),
        ("/opt/ml/shared/model", "/opt/ml/shared/model"),
    ],
)
def test_model_dir(tmp_path, sent, value, of_tuning):
    given = {"model_dir": sent.format(value)}
    assert told(tmp_path, given) == (["--model_dir", value], value)
    assert told(tmp_path, given | TUNING) == (["--model_dir", of_tuning], of_tuning)


@pytest.mark.parametrize("tuning", [{}, TUNING])
@pytest.mark.parametrize(
    "sent, argument", [("null", ""), ("None", "None"), ("false", "False"), ("False", "False"), ('""', ""), ("", "")]
)
def test_no_model_dir_is_no_folder_of_that_name(tmp_path, sent, argument, tuning):
    """Where SageMaker's toolkit would make `None/JOB/model` of it."""
    assert told(tmp_path, {"model_dir": sent} | tuning)[0] == ["--model_dir", argument]


@pytest.mark.parametrize("tuning", [{}, TUNING])
def test_without_model_dir_none_is_made_up(tmp_path, tuning):
    assert told(tmp_path, tuning) == ([], None)


def test_a_tuning_job_without_a_name_keeps_its_model_dir(tmp_path):
    assert told(tmp_path, {"model_dir": S3} | TUNING, {})[0] == ["--model_dir", S3]
