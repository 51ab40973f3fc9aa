"""Imports follow the arrows of the design: nobody asks upstream again."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "entrypoint"
FILES = sorted(path for path in PACKAGE.rglob("*.py"))
LIBRARY = PACKAGE.parent / "sagemaker_tf_data"  # for training scripts; it and the launcher agree on variables, not code
WIRING = {"__main__", "launch", "cli", "local", "serving/__main__"}  # they may use everything


def module(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def imports(path: Path) -> set[str]:
    """Dotted names that a file imports, anywhere in it; `from a import b` counts as a and a.b."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def foreign(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)} - {"entrypoint"}


def ours(path: Path) -> set[str]:
    """Modules of the package that a file imports: "plan", "distributions.common"."""
    names = {name.removeprefix("entrypoint.") for name in imports(path) if name.startswith("entrypoint.")}
    known = {module(p).replace("/", ".") for p in FILES}
    return {name for name in names if name in known or f"{name}.__init__" in known}


# module: what it may import of the package. A module that is not here is free (the wiring).
MAY_IMPORT = {
    "errors": set(),
    "cluster": set(),
    "secret_names": set(),
    "secrets": {"secret_names"},
    "tails": set(),
    "logs": {"secrets", "sink", "tails"},
    "sink": set(),
    "outcome": {"errors"},
    "tracebacks": set(),
    "echoes": set(),
    "explain": {"echoes", "outcome", "tails", "tracebacks"},
    "settings": {"errors"},
    "channels": {"errors"},
    "job": {"channels", "cluster", "settings"},
    "plan": {"channels", "secret_names", "secrets"},
    "artifacts": set(),
    "inventory": {"artifacts", "job"},
    "events": {"artifacts", "outcome", "plan"},
    "groups": {"cluster", "errors"},
    "limits": set(),
    "config": {"channels", "cluster", "errors", "groups", "job", "limits", "settings"},
    "facts": {"artifacts", "errors", "events", "outcome", "plan"},
    "fingerprint": {"errors", "job", "plan", "settings"},
    "verdict": {"echoes", "errors", "facts", "outcome", "plan", "settings"},
    "gpu_check": {"errors", "events", "facts", "plan", "settings"},
    "rendezvous": {"errors", "events", "facts", "plan", "settings"},
    "stopping": {"events", "facts", "outcome", "plan", "settings"},
    "attempts": {"errors", "events", "facts", "outcome", "plan", "settings"},
    "policy": {
        "artifacts",
        "attempts",
        "errors",
        "events",
        "explain",
        "facts",
        "gpu_check",
        "outcome",
        "plan",
        "rendezvous",
        "settings",
        "stopping",
        "verdict",
        "watching",
    },
    "watching": {"errors", "facts", "outcome", "settings"},
    "reach": {"cluster", "events"},
    "cgroups": set(),
    "memory": {"cgroups"},
    "machine": {"cgroups", "plan"},
    "evidence": {"facts", "outcome"},
    "process": {"logs", "plan"},
    "kin": {"process"},
    "resting": set(),
    "ranks": {"errors", "events", "lack", "logs", "outcome"},
    "wire": {"artifacts", "events", "outcome"},
    "callers": {"cluster"},
    "lack": {"cgroups", "errors", "events"},
    "door": {"callers", "lack", "lines"},
    "control": {"callers", "cluster", "door", "events", "lack", "lines", "wire"},
    "post": {"callers"},
    "lines": {"callers", "events", "post"},
    "calls": {"cluster", "control", "names", "post", "settings", "wire"},
    "last_words": {"calls", "cluster", "events", "outcome", "settings", "wire"},
    "names": {"callers", "cluster", "post"},
    "peers": {"calls", "cluster", "control", "errors", "events", "lack", "lines", "settings", "wire"},
    "ssh": {"job"},
    "report": {"outcome", "secrets"},
    "serving/config": {"errors"},
    "serving/find": {"errors"},
    "serving/model": set(),
    "serving/tensors": {"serving.model"},
    "serving/request": {"serving.model", "serving.tensors"},
    "serving/answer": {"serving.model", "serving.request"},
    "serving/tensorflow_model": {"errors", "serving.find", "serving.model"},
    "serving/user_code": {"errors", "serving.config", "serving.model"},
    "serving/app": {"serving.answer", "serving.config", "serving.model", "serving.request", "serving.user_code"},
    "serving/server": {"serving.app"},
}


@pytest.mark.parametrize("name", MAY_IMPORT)
def test_imports_follow_the_arrows(name):
    assert ours(PACKAGE / f"{name}.py") <= MAY_IMPORT[name]


@pytest.mark.parametrize("path", sorted((PACKAGE / "distributions").glob("*.py")), ids=module)
def test_distributions_only_plan(path):
    assert not ours(path) & {"supervisor", "policy", "process", "peers", "logs", "events", "config", "ranks"}
    assert not foreign(path) & {"os", "subprocess", "time", "threading", "socket"}


@pytest.mark.parametrize("name", [
    "policy", "facts", "gpu_check", "verdict", "watching", "plan", "events", "outcome", "secrets", "explain",
    "tails", "tracebacks", "echoes",
    "artifacts", "channels",
])  # fmt: skip
def test_the_policy_is_pure(name):
    """No clock, no process, no thread, no socket, no environment: time and facts are given."""
    impure = {"subprocess", "time", "threading", "socket", "random", "asyncio", "pathlib", "sys"}
    allowed = {"plan": {"pathlib"}, "outcome": set()}.get(name, set())
    assert not foreign(PACKAGE / f"{name}.py") & (impure - allowed)
    if name != "outcome":
        assert "os" not in foreign(PACKAGE / f"{name}.py")


@pytest.mark.parametrize("path", sorted((PACKAGE / "children").rglob("*.py")), ids=module)
def test_children_import_nothing_of_the_launcher(path):
    assert not [name for name in imports(path) if name.split(".")[0] == "entrypoint"]


@pytest.mark.parametrize("path", FILES, ids=module)
def test_nobody_imports_children_and_only_the_server_imports_tensorflow(path):
    assert not [name for name in imports(path) if name.startswith("entrypoint.children")]
    if not module(path).startswith("stand_ins/"):
        assert not foreign(path) & {"smdistributed"}
    may = ("children/tf_server", "serving/tensorflow_model", "stand_ins/")
    if not module(path).startswith(may):
        assert not foreign(path) & {"tensorflow", "keras", "horovod", "mpi4py"}


@pytest.mark.parametrize("path", FILES, ids=module)
def test_only_serving_imports_serving(path):
    assert module(path).startswith("serving/") or not [n for n in imports(path) if n.startswith("entrypoint.serving")]


@pytest.mark.parametrize("path", FILES, ids=module)
def test_only_main_exits_and_reads_the_environment(path):
    name = module(path)
    if name in WIRING or name.split("/")[0] in {"children", "local"}:
        return
    calls = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
    assert not calls & {"sys.exit", "os._exit"}
    if name != "ssh":  # passes on its own PATH and library path
        assert "os.environ" not in calls


def test_importing_the_launcher_imports_no_framework():
    """PID 1 stays small: no TensorFlow, no boto3, no Flask before the first process has started."""
    code = "import entrypoint.launch, entrypoint.config, entrypoint.supervisor, entrypoint.distributions, sys; " \
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"  # fmt: skip
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"tensorflow", "flask", "waitress", "boto3", "numpy", "mpi4py"} & set(out.stdout.split())


@pytest.mark.parametrize("path", FILES, ids=module)
def test_the_launcher_does_not_import_the_scripts_library(path):
    assert "sagemaker_tf_data" not in foreign(path)


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.py")), ids=lambda path: path.stem)
def test_the_scripts_library_does_not_import_the_launcher(path):
    assert "entrypoint" not in {name.split(".")[0] for name in imports(path)}


def test_importing_the_scripts_library_imports_no_framework():
    """A script may set TensorFlow's variables after it, and choose its GPU, before TensorFlow comes."""
    names = " ".join(f"import sagemaker_tf_data.{path.stem};" for path in sorted(LIBRARY.glob("[a-z]*.py")))
    code = f"{names} import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"tensorflow", "keras", "horovod", "numpy", "entrypoint"} & set(out.stdout.split())
