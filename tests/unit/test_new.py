"""Test `entrypoint new`: contents of projects, findings of linters and the doctor, and refusals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from builders import write_files

from entrypoint.base.errors import ExitCode
from entrypoint.check.doctor.doctor import examine
from entrypoint.cli import main, new
from entrypoint.launcher.job.job import Mode

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "src/train.py", "src/model.py", "src/requirements.txt", "submit.py", "requirements-submit.txt", "test_train.py",
    "compose.yaml", ".github/workflows/check.yml", ".gitignore",
}  # fmt: skip
PROJECTS = [(mode, sdk) for mode in new.MODES for sdk in new.SDKS]
TOOLS = Path(sys.executable).parent
LONGEST_FILE = 60  # lines
# A job on spot instances, with checkpoints: of these the doctor is strict. tests/sdk has the requests of submit.py.
REQUEST = {
    "TrainingJobName": "job",
    "RoleArn": "arn:aws:iam::123456789012:role/Training",
    "HyperParameters": {"sagemaker_program": "train.py", "sagemaker_submit_directory": "s3://bucket/code.tar.gz"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
    "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"},
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxWaitTimeInSeconds": 3600},
}


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """Make a project for each mode and SDK; return the folders of the projects."""
    folder = tmp_path_factory.mktemp("projects")
    made = {each: folder / "-".join(each) for each in PROJECTS}
    for (mode, sdk), path in made.items():
        assert main.run(["new", str(path), "--mode", mode, "--sdk", sdk], {}) == ExitCode.SUCCESS
    return made


def call(*command: object, cwd: Path) -> str:
    """Run a tool; raise AssertionError with its output unless it ends with 0."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_new_offers_the_modes_of_the_launcher():
    assert set(new.MODES) == {mode.value for mode in Mode} - {Mode.AUTO}


def test_project_has_all_files_and_no_unfilled_placeholder(projects):
    for folder in projects.values():
        files = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
        assert files.keys() == FILES
        assert [name for name, text in files.items() if "@@" in text or not text.endswith("\n")] == []
        assert [name for name, text in files.items() if len(text.splitlines()) > LONGEST_FILE] == []


def test_every_project_template_is_used(monkeypatch, tmp_path):
    used, fill = set(), new._filled
    monkeypatch.setattr(new, "_filled", lambda name, words: used.add(f"{name}.template") or fill(name, words))
    for mode, sdk in PROJECTS:
        main.run(["new", str(tmp_path / f"{mode}-{sdk}"), "--mode", mode, "--sdk", sdk], {})
    assert used == {path.name for path in new.TEMPLATES.iterdir()}


def test_scripts_of_projects_compile_and_pass_ruff(projects):
    """Ruff uses the rules of this repository, with the project as root, as for a user's own project."""
    text = (ROOT / "pyproject.toml").read_text()
    for path in projects.values():
        for script in path.rglob("*.py"):
            compile(script.read_text(), str(script), "exec")
    folder = next(iter(projects.values())).parent
    rules = text[text.index("[tool.ruff]") : text.index("[tool.ruff.lint.per-file-ignores]")]
    (folder / "ruff.toml").write_text(rules.replace("[tool.ruff]\n", "").replace("[tool.ruff.", "["))
    options = ["--no-cache", "--config", folder / "ruff.toml"]
    for path in projects.values():
        call(TOOLS / "ruff", "check", *options, "--config", "src=['src']", ".", cwd=path)
        call(TOOLS / "ruff", "format", *options, "--check", ".", cwd=path)


def test_workflow_of_projects_passes_its_linters(projects):
    """All projects have the same workflow."""
    texts = {(path / ".github/workflows/check.yml").read_text() for path in projects.values()}
    assert len(texts) == 1
    path = projects["ps", "2"]
    workflow = path / ".github/workflows/check.yml"
    call(TOOLS / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", workflow, cwd=path)
    call(TOOLS / "zizmor", "--offline", "--quiet", "--pedantic", ".github", cwd=path)
    ours = (ROOT / ".github/workflows/test.yml").read_text()
    used = [step["uses"] for step in yaml.safe_load(texts.pop())["jobs"]["check"]["steps"] if "uses" in step]
    assert used and all(f"uses: {action} #" in ours for action in used), "the pins are those of this repository"


@pytest.mark.parametrize("mode", new.MODES)
def test_doctor_finds_nothing_in_projects(projects, mode, monkeypatch, tmp_path):
    """There is not even a note."""
    folder = projects[mode, "2"]
    words = new._words(mode, "2")
    request = {
        **REQUEST,
        "AlgorithmSpecification": {"TrainingImage": words["repository"], "TrainingInputMode": "File"},
        "Environment": json.loads(words["environment"]),
        "ResourceConfig": {
            "InstanceType": "ml.c5.xlarge", "InstanceCount": int(words["hosts"]), "VolumeSizeInGB": 30
        },
    }  # fmt: skip
    (tmp_path / "request.json").write_text(json.dumps(request))
    monkeypatch.chdir(folder)
    report = examine([str(tmp_path / "request.json"), "src/train.py"])
    assert [(each.check, each.found) for each in report.findings] == []
    (job,) = [each for each in report.jobs if each.plan]
    assert job.plan.title


def test_projects_compose_file_and_test_run_the_same_job(projects):
    for (mode, _), folder in projects.items():
        compose = yaml.safe_load((folder / "compose.yaml").read_text())
        options = new._words(mode, "2")["options"]
        assert options in compose["x-host"]["command"]
        assert str(["src/train.py", *options.split()]).replace("'", '"') in (folder / "test_train.py").read_text()
        assert list(compose["services"]) == (["algo-1"] if mode == "single" else ["algo-1", "algo-2"])


def test_new_prints_files_and_next_commands(tmp_path, capsys):
    assert main.run(["new", str(tmp_path / "made" / "here"), "--mode", "ps", "--sdk", "3"], {}) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in FILES)
    assert "entrypoint local src/train.py --hosts 2 --mode ps --env=ENTRYPOINT_PS_WORKERS=server" in out
    assert "\n  python -m pytest\n" in out and "\n  .venv/bin/python submit.py --image IMAGE" in out
    activates = f"  . {TOOLS}/activate"
    assert activates in out, "entrypoint is not on PATH"
    assert main.run(["new", str(tmp_path / "again")], {"PATH": str(TOOLS)}) == 0
    assert activates not in capsys.readouterr().out


def test_new_says_how_to_get_pytest_where_it_is_not(tmp_path, capsys, monkeypatch):
    """The wheel alone brings none."""
    installs = "\n  python -m pip install pytest\n  python -m pytest\n"
    assert main.run(["new", str(tmp_path / "with")], {}) == 0
    assert installs not in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "pytest", None)
    assert main.run(["new", str(tmp_path / "without")], {}) == 0
    out = capsys.readouterr().out
    assert installs in out and "has entrypoint and pytest" not in out


@pytest.mark.parametrize(
    ("file", "folder", "says"),
    [
        ("project/.keep", "project", "project is not empty (it has .keep); wanted a new or an empty folder"),
        ("project", "project", "project cannot be written: File exists; wanted a new or an empty folder"),
        ("file", "file/project", "cannot be written: Not a directory; wanted a new or an empty folder"),
    ],
)
def test_new_overwrites_no_files(tmp_path, capsys, file, folder, says):
    write_files(tmp_path, {file: "mine"})
    before = sorted(tmp_path.rglob("*"))
    assert main.run(["new", str(tmp_path / folder)], {}) == ExitCode.CONFIG
    assert says in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_new_accepts_an_empty_folder(tmp_path):
    assert main.run(["new", str(tmp_path)], {}) == 0
    assert (tmp_path / "src/train.py").exists()
