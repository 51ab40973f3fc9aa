"""Test artifacts.py and inventory.py, the policy's warnings about files that hosts leave, and model_dir."""

import json
import os
import shutil

import pytest
from builders import read
from plays import RAISED, STOP, Play, ended, informed, reported, running

from entrypoint.launcher.control.access import MESSAGE_BYTES
from entrypoint.launcher.control.wire import report_from_json, to_json
from entrypoint.launcher.host import inventory
from entrypoint.launcher.job.files import MAX_HOSTS
from entrypoint.launcher.job.job import Tree
from entrypoint.launcher.outcome import outcome
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.artifacts import Artifacts, File, warnings
from entrypoint.launcher.policy.events import Report
from entrypoint.launcher.policy.termination import INVENTORY_SECONDS

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
    """Return the warnings about hosts that left these files."""
    left = {
        f"algo-{number}": inventory.take(leave(tmp_path / str(number), files), len(hosts))
        for number, files in enumerate(hosts, 1)
    }
    return list(warnings(left))


def named(warnings: list[str]) -> list[str]:
    """Return the part of each warning before its colon, which names the subject."""
    return [line.partition(":")[0] for line in warnings]


# --- the model ---


@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_job_without_a_model_causes_one_warning(tmp_path, hosts):
    (warning,) = said(tmp_path, *[{}] * hosts)
    assert warning.startswith("/opt/ml/model is empty: no model was saved")
    assert ("on any host" in warning) == (hosts > 1)


def test_folders_without_files_are_no_model(tmp_path):
    (tmp_path / "1" / "model" / "1" / "assets").mkdir(parents=True)
    assert named(said(tmp_path, {"output/data/x": "x"})) == ["/opt/ml/model is empty"]


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
def test_servable_model_on_any_host_causes_no_warning(tmp_path, files, followers):
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
def test_model_that_serving_cannot_find_causes_one_warning(tmp_path, files, found):
    (warning,) = said(tmp_path, files, {})
    assert warning.startswith(found)
    assert "TensorFlow Serving" in warning and "\n" not in warning


# --- the same name twice ---


LARGE = bytes(300_000)
MANY = [
    {f"model/{number}/saved_model.pb": f"of {host}" for number in range(1, 9)} | {"output/data/h": str(host)}
    for host in range(5)
]
RECORD, SCRATCH = "output/data/record/algo-2.jsonl.gz", "output/data/.report.html.new"
COLLISIONS = {
    # what each host leaves: the beginnings of the warnings
    "a file that differs on the third of three": (
        [SAVED | {"output/data/log": "a"}, {"output/data/log": "a", "output/data/own": "x"}, {"output/data/log": "b"}],
        [f"/opt/ml/output/data/log: different on algo-1, algo-3. {PACKED}"]),
    "many files that differ on many hosts": (
        MANY,
        ["/opt/ml/model/1/saved_model.pb, /opt/ml/model/2/saved_model.pb, /opt/ml/model/3/saved_model.pb and 6 more: "
         "different on algo-1, algo-2, algo-3 and 2 more. "]),
    # So it is in the SDK's local mode, where all hosts share one folder.
    "the same files on all hosts": ([{**SAVED, "output/data/seen": "x"}] * 3, []),
    "the same large file": ([SAVED, {"model/1/data": LARGE}, {"model/1/data": LARGE}], []),
    "a large file that is longer elsewhere": (
        [SAVED, {"model/1/data": LARGE}, {"model/1/data": LARGE + b"\0"}], ["/opt/ml/model/1/data: "]),
    "a large file that begins otherwise elsewhere": (
        [SAVED, {"model/1/data": LARGE}, {"model/1/data": b"1" + LARGE[1:]}], ["/opt/ml/model/1/data: "]),
    "a large file that ends otherwise elsewhere": (
        [SAVED, {"model/1/data": LARGE}, {"model/1/data": LARGE[1:] + b"1"}], ["/opt/ml/model/1/data: "]),
    # A host that is done sees the record that another still writes, where they share a folder.
    "the launcher's own files": (
        [{**SAVED, RECORD: "half", SCRATCH: "half"}, {**SAVED, RECORD: "whole", SCRATCH: "x"}], []),
    "a file that is called like the folder of records": (
        [{**SAVED, "output/data/x/record": "1"}, {**SAVED, "output/data/x/record": "2"}],
        ["/opt/ml/output/data/x/record: "]),
}  # fmt: skip


@pytest.mark.parametrize("hosts, begins", COLLISIONS.values(), ids=COLLISIONS)
def test_files_that_differ_between_hosts_cause_one_warning(tmp_path, hosts, begins):
    found = said(tmp_path, *hosts)
    assert [line[: len(begin)] for line, begin in zip(found, begins, strict=True)] == begins


def test_links_are_compared_by_their_targets(tmp_path):
    for host, target in ((1, "2"), (2, "3")):
        leave(tmp_path / str(host), SAVED)
        (tmp_path / str(host) / "model" / "latest").symlink_to(target)
        (tmp_path / str(host) / "model" / "loop").symlink_to(".")
    assert named(said(tmp_path, {}, {})) == ["/opt/ml/model/latest"]


def test_pipe_in_the_model_folder_is_not_opened(tmp_path):
    leave(tmp_path / "1", SAVED)
    os.mkfifo(tmp_path / "1" / "model" / "pipe")  # to open it would be to wait
    assert said(tmp_path, {}) == []


# --- bounds ---


def test_missing_report_of_a_host_hides_no_other_warning(tmp_path):
    left = {"algo-1": Artifacts(model=False), "algo-2": None}
    assert list(warnings(left)) == []  # the model may be there
    file = File(path="output/data/x", size=1)
    left |= {f"algo-{n}": Artifacts(model=False, files=(File(path=file.path, size=n),)) for n in (3, 4)}
    assert named(list(warnings(left))) == ["/opt/ml/output/data/x"]
    assert list(warnings({"algo-1": Artifacts(model=True, whole=False)})) == []


def test_unread_files_are_compared_by_size_only():
    known = File(path="x", size=1, digest="a")
    assert not known.differs(File(path="x", size=1)) and not File(path="x", size=1).differs(known)
    assert known.differs(File(path="x", size=2)) and known.differs(File(path="x", size=1, digest="b"))


def test_inventory_reads_only_some_megabytes(tmp_path):
    """The test uses sparse files of 20 GB in all."""
    tree = leave(tmp_path, SAVED)
    for number in range(100):
        with (tmp_path / "model" / f"checkpoint-{number:03}").open("wb") as file:
            file.truncate(200 << 20)
    took = inventory.take(tree, 2)
    digests = [file.digest for file in took.files if file.size == 200 << 20]
    assert took.whole and len(digests) == 100
    assert digests[0] and not digests[-1]
    assert len([digest for digest in digests if digest]) <= inventory.READ_BYTES // (2 * inventory.END_BYTES) + 1


def test_model_is_found_beyond_the_limit_of_listed_files(tmp_path):
    files = {f"model/cache/{number:0200}": "" for number in range(600)}
    tree = leave(tmp_path, {**files, "model/zoo/7/saved_model.pb": "x", "output/data/x": "x"})
    took = inventory.take(tree, 2)
    assert 100 < len(took.files) < 600
    assert took.servable and took.whole and took.files[-1].path == "output/data/x"


def test_slow_disk_causes_no_warning(tmp_path, monkeypatch):
    monkeypatch.setattr(inventory, "SECONDS", -1)
    took = inventory.take(leave(tmp_path, SAVED), 2)
    assert took == Artifacts(model=False, whole=False)
    assert list(warnings({"algo-1": took})) == []


def test_file_in_place_of_model_folder_is_no_model(tmp_path):
    (tmp_path / "model").write_text("a file")
    assert inventory.take(Tree(base=tmp_path), 1) == Artifacts(model=False)


@pytest.mark.parametrize("hosts", [2, MAX_HOSTS])
def test_list_of_a_hosts_files_fits_into_a_message(tmp_path, hosts):
    long = "é" * 120  # six bytes each
    tree = leave(tmp_path, {f"{part}/{long}/{n}{long}": "" for part in ("model", "output/data") for n in range(100)})
    message = len(json.dumps(to_json(Report(host="algo-2", artifacts=inventory.take(tree, hosts)))))
    assert message < MESSAGE_BYTES / 4
    assert message * hosts < 8 << 20  # all that the coordinator has to read when the job ends


def test_report_keeps_file_names_that_are_not_utf8(tmp_path):
    folder = leave(tmp_path / "1", {"model/1/x": ""}).model
    os.close(os.open(os.fsencode(folder) + b"/\xff", os.O_CREAT))
    shutil.copytree(tmp_path / "1", tmp_path / "2")
    (tmp_path / "2" / "model" / os.fsdecode(b"\xff")).write_text("more")
    one, two = (inventory.take(Tree(base=tmp_path / host), 2) for host in ("1", "2"))
    report = Report(host="algo-2", artifacts=two)
    assert report_from_json(json.loads(json.dumps(to_json(report))), {"algo-2"}) == report
    *_, collision = warnings({"algo-1": one, "algo-2": two})
    assert collision.startswith("'/opt/ml/model/\\udcff': different")


# --- in the job ---

NOTHING = Artifacts(model=False)
SERVABLE = Artifacts(model=True, saved="model/1")


def file_of(size: int) -> Artifacts:
    return Artifacts(model=True, saved="model/1", files=(File(path="model/1/x", size=size),))


def warned(p: Play) -> list[str]:
    return [line.removeprefix("warning: ") for line in p.said if line.startswith("warning: ")]


def done(host: int, **facts) -> list[events.Reported]:
    """Return two reports of a host: its script has ended well; later, the host knows the outcome and has left."""
    return [reported(host, done=True), reported(host, done=True, gone=True, **facts)]


def test_coordinator_warns_after_all_hosts_reported_their_files(play):
    p = running(play)
    p.leaves = NOTHING
    p.at(5, ended("worker/0"), reported(2, done=True), *done(3, artifacts=NOTHING))
    assert not any(what.startswith("finish") for what in p.what)
    p.at(6, *done(2, artifacts=NOTHING))
    assert p.what[-1] == "finish succeeded 0"
    assert named(warned(p)) == ["/opt/ml/model is empty"]


@pytest.mark.parametrize("mine, others, warns", [
    (SERVABLE, NOTHING, False),
    (NOTHING, SERVABLE, False),
    (NOTHING, None, False),  # a host that could not see what it leaves
    (None, NOTHING, False),
    (NOTHING, Artifacts(model=True), True),
    (file_of(1), file_of(2), True),
])  # fmt: skip
def test_coordinator_compares_files_of_all_hosts(play, mine, others, warns):
    p = running(play, 2)
    p.leaves = mine
    p.at(5, ended("worker/0"), *done(2, artifacts=others))
    assert p.what[-1] == "finish succeeded 0" and len(warned(p)) == warns


def test_last_report_of_a_follower_lists_its_files(play):
    p = running(play, 2, me=2).at(5, ended("worker/1"))
    assert p.last_told.done and not p.last_told.gone and p.last_told.artifacts is None
    p.at(6, informed(outcome=outcome.succeeded()))
    assert p.last_told.gone and p.last_told.artifacts == p.leaves
    assert p.what[-1] == "finish succeeded 0" and warned(p) == []  # one host warns for all


@pytest.mark.parametrize("me", [1, 2])
def test_unresponsive_disk_delays_the_end_by_bounded_time(play, me):
    p = running(play, 2, me=me)
    p.sees = False
    p.at(5, ended(f"worker/{me - 1}"))
    p.at(6, *(done(2, artifacts=NOTHING) if me == 1 else [informed(outcome=outcome.succeeded())])).at(30)
    assert p.since(6) == [f"{6 + INVENTORY_SECONDS:.1f} finish succeeded 0"] and warned(p) == []
    assert me == 1 or (p.last_told.gone and p.last_told.artifacts is None)


def test_files_are_listed_only_when_no_process_runs(play):
    """A parameter server may still be writing what the script saved."""
    p = play(2, 1, "ps", ps_workers="script")
    p.sees = False
    p.at(1, ended("prepare"))
    p.at(2, reported(2, ready=frozenset({"prepare", "preflight", "ps/1"})), events.Listening(name="ps/0"))
    p.at(5, ended("chief/0"), reported(2, done=True))
    assert p.what[-1] == "ask ps/0" and p.policy.termination._inventory_since is None
    p.at(6, ended("ps/0", signal=15))
    assert p.policy.termination._inventory_since == 6


@pytest.mark.parametrize("happened", [[ended("worker/0", 3, RAISED)], [STOP, ended("worker/0", 143)]])
def test_files_are_not_listed_after_a_failure_or_a_stop(play, happened):
    p = running(play, 2)
    p.sees, p.leaves = False, NOTHING
    p.at(5, *happened, *done(2, artifacts=NOTHING)).at(30)
    assert p.what[-1].startswith(("finish failed", "finish stopped"))
    assert p.policy.termination._inventory_since is None and warned(p) == []


# --- model_dir ---

S3 = "s3://bucket/prefix/job/model"
TUNING = {"_tuning_objective_metric": "auc"}
NAMED = {"TRAINING_JOB_NAME": "tuned-007-ab12"}


def model_dir(tmp_path, hyperparameters, variables=NAMED):
    """Return the script's arguments, and the value of SM_HP_MODEL_DIR, for a job with these hyperparameters."""
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
def test_each_trial_of_a_tuning_job_has_own_model_dir(tmp_path, sent, value, of_tuning):
    given = {"model_dir": sent.format(value)}
    assert model_dir(tmp_path, given) == (["--model_dir", value], value)
    assert model_dir(tmp_path, given | TUNING) == (["--model_dir", of_tuning], of_tuning)
    assert model_dir(tmp_path, given | TUNING, {}) == (["--model_dir", value], value)  # a job without a name


@pytest.mark.parametrize("tuning", [{}, TUNING])
def test_null_model_dir_does_not_become_a_folder(tmp_path, tuning):
    """SageMaker's toolkit would use the folder `None/JOB/model`."""
    none = {"null": "", "None": "None", "false": "False", "False": "False", '""': "", "": ""}
    for sent, argument in none.items():
        assert model_dir(tmp_path, {"model_dir": sent} | tuning)[0] == ["--model_dir", argument], sent
    assert model_dir(tmp_path, tuning) == ([], None)
