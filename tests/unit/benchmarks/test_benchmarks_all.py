"""Test benchmarks/all: it goes on where it stopped, mixes nothing, and leaves nothing behind.

The benchmarks here are small programs; the repository is one of the test's own.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import machine
from benchmarks.all import plan, state
from benchmarks.report import pages

ROOT = Path(__file__).resolve().parents[3]
LIMIT = 300.0
# A benchmark: it appends its words to `ran`, fails as long as the file `fails-NAME` is there, and adds a run.
BENCHMARK = """
import json, sys
from pathlib import Path
what, name, file, base = *sys.argv[1:4], Path(sys.argv[4])
with (base / "ran").open("a") as ran:
    print(name, file=ran)
if (base / ("fails-" + name)).exists():
    sys.exit(name + " has no luck")
head = json.loads((base / "head").read_text()) | {"what": what}
record = json.loads(Path(file).read_text()) if Path(file).exists() else head
record["parts"] = [*record.get("parts", []), name]
Path(file).write_text(json.dumps(record))
"""
# One that waits for ever, as a process of another session does that ignores signals to end.
STUBBORN = """
import signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
time.sleep(3600)
"""
WAITING = """
import subprocess, sys, time
from pathlib import Path
from benchmarks import docker
base = Path(sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
try:
    (base / "new").write_text(f"{child.pid} {docker.SESSION}")
    (base / "new").rename(base / "waits")
    time.sleep(3600)
finally:
    (base / "cleaned").touch()
"""
DRIVER = """
import sys
from pathlib import Path
from benchmarks import docker, machine
from benchmarks.all import __main__ as command, child, plan
base, code, waiting, stubborn = Path(sys.argv[1]), *sys.argv[2:5]
del sys.argv[1:5]
machine.ROOT = child.ROOT = base / "repository"
command.LOOK_SECONDS, child.LEFT_SECONDS = 0.05, 1.0
print("session", docker.SESSION, flush=True)

def one(name, what, *parts, **more):
    commands = tuple(("python", "-c", code, what, part, plan.FILE, str(base)) for part in parts)
    return plan.Step(name=name, what=what, minutes=1, commands=lambda _: commands, **more)

steps = (one("first", "chaos", "a"), one("second", "deepfm", "b", "c", resumes=True), one("third", "kills", "d"))
waits = plan.Step(
    name="waits", what="pipe", minutes=1, commands=lambda _: (("python", "-c", waiting, str(base), stubborn),)
)
sys.exit(command.main(steps + ((waits,) if (base / "with-waiting").exists() else ())))
"""


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


class Tree:
    """A repository with one commit, the folder of JSON files, and the command on them."""

    def __init__(self, base: Path) -> None:
        self.base, self.repository, self.folder = base, base / "repository", base / "figures"
        self.repository.mkdir()
        self.folder.mkdir()
        git(self.repository, "init", "--quiet")
        (self.repository / "README.md").write_text(f"{pages.BEGIN}\n{pages.END}\n")
        self.commit("first")

    def commit(self, text: str) -> None:
        (self.repository / "code").write_text(text)
        git(self.repository, "add", ".")
        git(self.repository, "commit", "--quiet", "--message", text)
        self.head = machine.said("git", "-C", str(self.repository), "log", "-1", "--format=%h")
        (self.base / "head").write_text(json.dumps({**machine.head("any"), "commit": self.head}))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", DRIVER, str(self.base), BENCHMARK, WAITING, STUBBORN]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [*command, "--json-folder", str(self.folder), *words], env=environment, cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def run(self, *words: str) -> tuple[int, str]:
        with self.start(*words) as process:
            printed, _ = process.communicate(timeout=LIMIT)
        return process.returncode, printed

    def ran(self) -> list[str]:
        """Return what has run since the last call."""
        file = self.base / "ran"
        found = file.read_text().split() if file.exists() else []
        file.unlink(missing_ok=True)
        return found

    def figures(self, what: str) -> dict:
        return json.loads((self.folder / f"{what}.json").read_text())


@pytest.fixture
def tree(tmp_path) -> Tree:
    return Tree(tmp_path)


def test_a_failure_stops_nothing_and_the_next_call_runs_only_what_is_left(tree):
    (tree.base / "fails-c").touch()
    code, printed = tree.run()
    assert code == 1 and tree.ran() == ["a", "b", "c", "d"], printed
    assert "FAILED second: exit code 1; the end of" in printed and "second: FAILED" in printed, printed
    assert "c has no luck" in printed and "the same command runs what failed again" in printed
    assert {path.name for path in tree.folder.glob("*.json")} == {"chaos.json", "kills.json"}
    assert (tree.folder / pages.FOLDER / "chaos.md").exists(), "the pages of what was measured"

    (tree.base / "fails-c").unlink()
    code, printed = tree.run()
    assert (code, tree.ran()) == (0, ["c"]), printed
    assert "first: done before" in printed and tree.figures("deepfm")["parts"] == ["b", "c"]
    assert tree.figures("deepfm")["command"] == "python -m benchmarks.all --only second"
    assert {tree.figures(what)["commit"] for what in ("chaos", "deepfm", "kills")} == {tree.head}
    index = (tree.folder / pages.FOLDER / "README.md").read_text()
    assert f"All pages are of commit `{tree.head}`." in index

    assert tree.run()[0] == 0 and tree.ran() == []
    (tree.folder / "chaos.json").unlink()
    assert tree.run()[0] == 0 and tree.ran() == ["a"], "a state without its figures is none"


def test_an_image_of_another_launcher_is_left_out_and_the_reason_is_said(tree, monkeypatch):
    docker = tree.base / "bin/docker"
    docker.parent.mkdir()
    monkeypatch.setenv("PATH", f"{docker.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(machine, "ROOT", tree.repository)

    def why(revision: str) -> str:
        docker.write_text(f"#!/bin/sh\necho {revision}\n")
        docker.chmod(0o755)
        return state.other_launcher("image")

    old = machine.said("git", "-C", str(tree.repository), "rev-parse", "HEAD")
    assert why(old) == ""
    assert why(f"{old}-modified").startswith(f"it was built of commit {old[:8]} with changes; commit them")
    assert why("") == "its labels name no commit"
    tree.commit("a page")
    assert why(old) == "", "the launcher is the same"
    (tree.repository / "entrypoint").write_text("another launcher")
    tree.commit("a launcher")
    assert why(old) == f"its launcher, of commit {old[:8]}, differs from this commit's"


def test_some_can_be_picked_and_the_plan_runs_nothing(tree):
    code, printed = tree.run("--plan")
    assert code == 0 and tree.ran() == [] and "all: 3 min" in printed and "left: 3 min" in printed, printed
    assert tree.run("--only", "third")[0] == 0 and tree.ran() == ["d"]
    assert "left: 2 min" in tree.run("--plan")[1]
    code, printed = tree.run("--only", "fourth")
    assert code == 2 and "found fourth; wanted some of first, second, third" in printed


def test_figures_of_two_commits_machines_or_a_changed_tree_are_not_mixed(tree):
    tree.run("--only", "first")
    before = tree.head
    tree.commit("second")
    code, printed = tree.run()
    assert code == 2 and tree.ran() == ["a"], printed
    assert f"found figures of commit {before}" in printed and f"wanted those of {tree.head}" in printed
    assert f"git checkout {before}" in printed and "--fresh" in printed
    assert before in tree.run("--plan")[1]

    assert tree.run("--fresh", "--only", "first")[0] == 0 and tree.ran() == ["a"]
    assert tree.figures("chaos")["commit"] == tree.head

    (tree.repository / "more").touch()
    code, printed = tree.run()
    assert (code, tree.ran()) == (2, []) and "found a tree with changes: more; wanted the commit alone" in printed
    (tree.repository / "more").rename(tree.repository / "more.md")
    assert tree.run("--only", "first")[0] == 0, "pages change no figure"

    state = tree.folder / ".measuring/state"
    found = json.loads(state.read_text())
    state.write_text(json.dumps(found | {"machine": found["machine"] | {"cpus": 96}}))
    code, printed = tree.run()
    assert (code, tree.ran()) == (2, []) and "found figures of another machine (cpus 96); wanted this one" in printed
    state.write_text("{")
    code, printed = tree.run()
    assert code == 2 and "is no state" in printed and "--fresh" in printed


def test_a_benchmark_that_measured_another_commit_has_failed(tree):
    head = json.loads((tree.base / "head").read_text())
    (tree.base / "head").write_text(json.dumps(head | {"commit": f"{tree.head}+"}))
    code, printed = tree.run("--only", "first")
    assert code == 1 and f"found figures of commit {tree.head}+; wanted those of {tree.head}" in printed, printed
    assert not (tree.folder / "chaos.json").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_that_a_benchmark_has_started(tree, number):
    (tree.base / "with-waiting").touch()
    with tree.start() as process:
        try:
            until = time.monotonic() + LIMIT
            while not (tree.base / "waits").exists():
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.05)
            left, session = (tree.base / "waits").read_text().split()
            process.send_signal(number)
            printed, _ = process.communicate(timeout=LIMIT)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert process.returncode == 128 + number, printed
    assert (tree.base / "cleaned").exists(), "a benchmark has time to clean up"
    assert not psutil.pid_exists(int(left)), "what it left is gone, though it ignores signals"
    assert f"session {session}\n" in printed, "its containers have the label of the command, which removes them"
    assert "the same command goes on from here" in printed
    tree.ran()
    (tree.base / "with-waiting").unlink()
    assert tree.run()[0] == 0 and tree.ran() == [], "what had ended before is kept"


def test_two_of_them_do_not_measure_at_once(tree):
    (tree.base / "with-waiting").touch()
    with tree.start("--only", "waits") as process:
        try:
            until = time.monotonic() + LIMIT
            while not (tree.base / "waits").exists():
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.05)
            code, printed = tree.run()
            assert code == 2 and "another benchmarks.all at work" in printed, printed
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT)


# ---- the plan --------------------------------------------------------------------------------------------------------


def test_the_plan_has_every_page_and_fits_into_three_and_a_half_hours():
    assert sorted(step.what for step in plan.STEPS) == sorted(pages.PAGES)
    assert sum(step.minutes for step in plan.STEPS) <= plan.MOST_MINUTES == 210
    assert [step.name for step in plan.STEPS[:3]] == ["profile", "side_by_side", "monitor"]


@pytest.mark.parametrize("step", plan.STEPS, ids=lambda step: step.name)
def test_every_command_is_of_a_benchmark_and_names_its_file(step, tmp_path):
    for command in step.commands({plan.IMAGE}):
        words = plan.filled(command, tmp_path / f"{step.what}.json")
        module = words[words.index("-m") + 1]
        assert importlib.util.find_spec(module), module
        assert any(word.endswith(f"/{step.what}.json") for word in words)
        assert not any("{" in word for word in words)
    assert str(ROOT) not in step.repeated_by(step.commands({plan.IMAGE}))


def test_an_image_that_is_not_there_is_named_with_the_way_to_get_it():
    pull = plan.chosen(["pull"])[0]
    assert f"image {plan.IMAGE} (./build.sh)" in pull.missing(set())
    words = pull.commands({plan.IMAGE, plan.OF_221})[0]
    assert f"ours, 2.21={plan.OF_221}" in words and not any(plan.FOR_GPUS in word for word in words)
