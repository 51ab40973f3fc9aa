"""Test the facts that hosts compare: fingerprints, the prepare step's digests, and the clocks (peers.Clock)."""

import runpy
from pathlib import Path

import pytest
from builders import read

from entrypoint.launcher.control.peers import Clock
from entrypoint.launcher.plan.fingerprint import fingerprint
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy.rendezvous import different

PREPARE = Path(__file__).resolve().parents[4] / "entrypoint" / "programs" / "prepare"


def fingerprints(base: Path, *, me: str = "algo-1", hyperparameters=None, **environment: str) -> dict[str, str]:
    job = read(base, 2, hyperparameters or {}, {"ENTRYPOINT_MODE": "mpi", **environment}, me=me)
    return fingerprint(job, plan_for(job))


DIFFERENT = {
    # what is not the same on one host: the thing that is named
    "nothing": ({}, set()),
    "an argument": ({"rate": "1"}, {"the plan"}),
    "ranks": ({"ENTRYPOINT_PROCESSES_PER_HOST": "2"}, {"the plan", "the set of settings"}),
    "a setting that no row shows": ({"ENTRYPOINT_PEER_TIMEOUT": "9"}, {"the set of settings"}),
    "a port": ({"ENTRYPOINT_SSH_PORT": "7000"}, {"the plan", "the set of settings"}),
    "a token, which the hosts show to one another": ({"ENTRYPOINT_TOKEN": "geheim"}, set()),
    "where the summary is written": ({"ENTRYPOINT_SUMMARY": "/tmp/x"}, set()),
}


@pytest.mark.parametrize("other, named", DIFFERENT.values(), ids=DIFFERENT)
def test_fingerprints_show_the_difference_between_hosts(tmp_path, other, named):
    """Different folders are no difference: hosts that share a machine have folders of their own."""
    environment = {name: value for name, value in other.items() if name.isupper()}
    hyperparameters = {name: value for name, value in other.items() if name.islower()}
    ours = fingerprints(tmp_path / "a")
    theirs = fingerprints(tmp_path / "b", me="algo-2", hyperparameters=hyperparameters, **environment)
    assert {thing for thing in ours if ours[thing] != theirs[thing]} == named


def test_different_daemons_of_open_mpi_are_named_first(tmp_path):
    (tmp_path / "prted").touch(mode=0o755)
    ours, theirs = fingerprints(tmp_path), fingerprints(tmp_path, PATH=str(tmp_path))
    things = sorted(thing for thing in ours if ours[thing] != theirs[thing])
    assert things[0] == "Open MPI's daemon"
    assert different("algo-1", things[0], {"algo-1": ours[things[0]], "algo-2": theirs[things[0]]}) == [
        ("algo-2", "Open MPI's daemon is prted; on algo-1 it is orted")
    ]


@pytest.mark.parametrize("mode, matters", [("mpi", True), ("ps", True), ("single", False)])
def test_channels_are_compared_if_hosts_train_together(tmp_path, mode, matters):
    def channels(listed: dict, me: str = "algo-2") -> str:
        job = read(tmp_path, 3, {}, {"ENTRYPOINT_MODE": mode}, me=me, channels=listed)
        return fingerprint(job, plan_for(job))["the set of channels"]

    some = {"train": {"TrainingInputMode": "Pipe"}, "test": None}
    assert channels(some) == channels(some, me="algo-3")
    assert (channels(some) != channels({**some, "train": {}})) is matters
    assert (channels(some) != channels({"train": some["train"]})) is matters
    assert (channels(some, me="algo-1") == "*") is (mode != "mpi")  # a chief whose workers train for it


def test_no_secret_is_in_a_fingerprint(tmp_path):
    shown = fingerprints(tmp_path, ENTRYPOINT_TOKEN="geheim", hyperparameters={"api_key": "geheim-2"})
    assert "geheim" not in str(shown)


@pytest.fixture(scope="module")
def prepare():
    return runpy.run_path(str(PREPARE))


def test_digest_of_code_depends_on_names_and_contents(prepare, tmp_path):
    def digest(**files: str) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return prepare["digest_of_code"](folder)

    plain = digest(**{"train.py": "a", "lib/x.py": "b"})
    assert plain == digest(**{"lib/x.py": "b", "train.py": "a"})
    assert plain == digest(**{"train.py": "a", "lib/x.py": "b", "lib/__pycache__/x.pyc": "1", "my.egg-info/PKG": "2"})
    others = [{"train.py": "a", "lib/y.py": "b"}, {"train.py": "b", "lib/x.py": "b"}, {"train.py": "a"}]
    assert plain not in [digest(**files) for files in others]


def test_installed_software_is_listed_with_its_versions(prepare, monkeypatch):
    import numpy

    here = prepare["installed"]()
    for told, shown in (("unknown unknown", ""), ("0.1.0 unknown", "0.1.0")):  # by `docker build` and without git
        monkeypatch.setenv("SAGEMAKER_TF_ENTRYPOINT_IMAGE", told)
        assert prepare["software"](here, here)["image"] == shown
    monkeypatch.setenv("SAGEMAKER_TF_ENTRYPOINT_IMAGE", "0.1.0 e30f56")
    found = prepare["software"](here, here)
    assert (found["image"], found["numpy"]) == ("0.1.0 e30f56", numpy.__version__)
    assert found["Python"].startswith("3.")
    assert found["horovod"] == "" or found["horovod"][0].isdigit()


def test_packages_installed_by_requirements_are_listed(prepare):
    """If hosts get different versions, the log can name the package."""
    here = prepare["installed"]()
    before = dict(here)
    numpy = before.pop("numpy").version
    before["pytest"] = before["pytest"]._replace(version="0")
    found = prepare["software"](here, before)["installed by requirements"].splitlines()
    assert found == [f"numpy {numpy}", f"pytest {pytest.__version__}"]


TABLE = {
    # values by host: who differs from whom
    "all alike": ({"a": "1", "b": "1", "c": "1"}, []),
    "one of three": ({"a": "1", "b": "2", "c": "1"}, [("b", "x is 2; on a it is 1")]),
    "the coordinator": ({"a": "2", "b": "1", "c": "1"}, [("a", "x is 2; on b it is 1")]),
    "one of two: the coordinator is right": ({"a": "2", "b": "1"}, [("b", "x is 1; on a it is 2")]),
    "absent": ({"a": "1", "b": "", "c": "1"}, [("b", "x is absent; on a it is 1")]),
    "some lines of many": (
        {"a": "u 1\nv 1\nw 1", "b": "t 1\nu 2\nw 1", "c": "u 1\nv 1\nw 1"},
        [("b", "x is t 1, u 2; on a it is u 1, v 1")],
    ),
    "one line more": ({"a": "u 1", "b": "u 1\nv 2"}, [("b", "x is v 2; on a it is absent")]),
    "all different": ({"a": "1", "b": "2", "c": "3"}, [("b", "x is 2; on a it is 1"), ("c", "x is 3; on a it is 1")]),
}


@pytest.mark.parametrize("values, named", TABLE.values(), ids=TABLE)
def test_hosts_that_differ_from_the_majority_are_named(values, named):
    assert different("a", "x", values) == named


def test_quickest_exchange_gives_the_difference_of_clocks():
    clock = Clock()
    assert clock.offset is None
    clock.compare(10.0, 1010.9, 11.0)  # slow: the other's time may have been read anywhere between
    clock.compare(20.0, 1020.005, 20.01)
    clock.compare(30.0, 1030.4, 30.5)
    assert clock.offset == pytest.approx(1000.0, abs=0.001)
    assert clock.error == pytest.approx(0.005)  # half of that exchange


@pytest.mark.parametrize("nonsense", [None, "12", float("nan"), float("inf"), []])
def test_invalid_time_of_another_host_is_ignored(nonsense):
    clock = Clock()
    clock.compare(1.0, nonsense, 2.0)
    assert clock.offset is None
