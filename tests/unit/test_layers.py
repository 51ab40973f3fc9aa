"""Imports follow the arrows of the house: nobody asks upstream again."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured  # it reads the sources, and runs none

PACKAGE = Path(__file__).resolve().parents[2] / "entrypoint"
FILES = sorted(PACKAGE.rglob("*.py"))
LIBRARY = PACKAGE.parent / "sagemaker_tf_data"  # for training scripts; it and the launcher agree on variables, not code
# Room, or module outside of the rooms: what it may import of the package, as its README says, too.
MAY_IMPORT = {
    "errors": "",
    "python310": "",
    "values": "",
    "secret_names": "",
    "secrets": "secret_names",
    "job": "errors",
    "outcome": "errors secrets",
    "plan": "errors job secret_names secrets",
    "policy": "errors job outcome plan",
    "host": "errors job outcome plan policy secrets",
    "live": "errors",
    "control": "errors host job live outcome policy",
    "errands": "control host job policy",
    "monitor": "control errors host job live plan report secrets",
    "monitor_process": "host job monitor outcome plan secrets",
    "feed": "errors host job monitor monitor_process outcome plan policy",
    "supervisor": "control errands host job outcome plan policy",
    "surroundings": "errors host job",
    "launch": "control errors feed host job outcome plan policy secrets supervisor surroundings",
    "local": "errors export host job launch live outcome plan report secrets",
    "doctor": "errors job plan secrets",
    "rehearse": "doctor errors host job local monitor report secrets",
    "replay": "errors job outcome plan policy report",
    "report": "errors job",
    "export": "errors monitor report",
    "arguments": "errors job",
    "cli": "arguments doctor errors export host job launch live local plan rehearse replay report secrets",
    "__main__": "cli",
    "serving": "errors",
    "children": "",
    "stand_ins": "",
}
ROOMS = [name for name in MAY_IMPORT if (PACKAGE / name).is_dir()]
# Time and facts are given: no clock, no process, no thread, no socket, no environment.
IMPURE = {"asyncio", "os", "pathlib", "random", "socket", "subprocess", "sys", "threading", "time"}
PURE = ["errors", "secret_names", "secrets", "outcome", "plan", "policy", "job/channels", "job/cluster", "job/settings"]
BUT = {  # what these pure rooms have of it
    "outcome/outcome": {"os"},  # strerror
    "outcome/report": {"pathlib"},  # writes the failure file
    "plan/distributions/common": {"pathlib", "sys"},
    "plan/plan": {"pathlib"},
    "plan/ssh": {"os", "pathlib", "sys"},  # writes files; passes on its own PATH and library path
}
# As pyproject.toml says.
INSTALLED_WITH = {"boto3", "botocore", "flask", "psutil", "pynvml", "rich", "tensorboard", "tomli", "waitress"}
LONGEST_CLASS = 255  # lines
EXIT = {
    "__main__",
    "launch",
    "monitor_process",
    "cli",
    "local",
    "children",
    "export/mlflow_run",
    "host/fork",
    "monitor/reporting",
    "rehearse/runs",
    "serving/__main__",
}  # end it, read its environment


def module(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__")


MODULES = {module(path).replace("/", "."): path for path in FILES}


def room(name: str) -> str:
    return re.split("[./]", name)[0]


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """Dotted names that a file imports, anywhere in it; `from a import b` counts as a and a.b."""
    found = set()
    for node in nodes_of(path) if nodes is None else nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{name.name}" for name in node.names}
    return found


def foreign(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)} - {"entrypoint"}


def ours(path: Path, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """Modules of the package that a file imports: "secrets", "plan.distributions.common"."""
    names = {name.removeprefix("entrypoint.") for name in imports(path, nodes) if name.startswith("entrypoint.")}
    return names & MODULES.keys() - {"python310", "values"}  # they stand in for Python's library, for everybody


def needs_framework(path: Path) -> bool:
    """Return whether a file is for processes that import TensorFlow anyway."""
    return room(module(path)) in ("serving", "stand_ins") or module(path) == "programs/tf_server"


def is_pure(path: Path) -> bool:
    return any(module(path) == name or module(path).startswith(f"{name}/") for name in PURE)


def test_imports_follow_the_arrows():
    wrong = {}
    for path in FILES:
        if (name := module(path)) != "__init__":
            here = room(name)
            assert here in MAY_IMPORT, f"what may {here} import?"
            wrong[name] = {room(each) for each in ours(path)} - {here} - set(MAY_IMPORT[here].split())
    assert {name: found for name, found in wrong.items() if found} == {}


def test_no_class_is_so_long_that_it_must_be_about_two_things():
    classes = [(module(path), node) for path in FILES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    assert [(name, node.name) for name, node in classes if node.end_lineno - node.lineno >= LONGEST_CLASS] == []


def test_rooms_are_in_no_circle():
    list(graphlib.TopologicalSorter({name: may.split() for name, may in MAY_IMPORT.items()}).static_order())


def test_modules_are_in_no_circle():
    """Within a room, too, and though an import may stand in a function."""
    list(graphlib.TopologicalSorter({name: ours(path) - {name} for name, path in MODULES.items()}).static_order())


@pytest.mark.parametrize("name", ROOMS)
def test_the_page_of_a_room_says_what_it_may_import(name):
    told = re.search(r"^May import: ([^.]+)\.", (PACKAGE / name / "README.md").read_text(), re.MULTILINE)
    assert told, "no line 'May import: ...'"
    assert " ".join(re.findall(r"`(\w+)`", told[1])) == MAY_IMPORT[name]


def test_the_page_of_all_rooms_says_what_each_may_import():
    rows = re.findall(r"^\| (?:here: )?(.+?) \|.+\| (.+?) \|$", (PACKAGE / "README.md").read_text(), re.MULTILINE)
    told = {name: may for names, may in rows for name in re.findall(r"`(\w+)\.py`|\[(\w+)/\]", names)}
    told = {"".join(name): set(re.findall(r"\w+", may.split(";")[0])) - {"nothing"} for name, may in told.items()}
    assert told == {name: set(may.split()) for name, may in MAY_IMPORT.items() if name != "__main__"}


def test_the_page_of_a_room_names_its_modules():
    pages = {name: (PACKAGE / name / "README.md").read_text() for name in ROOMS if name != "stand_ins"}
    files = [path for path in FILES if room(module(path)) in pages and path.name != "__init__.py"]
    assert [module(path) for path in files if not re.search(rf"\b{path.name}", pages[room(module(path))])] == []


def test_who_enters_a_room_imports_nothing_by_it():
    """`import entrypoint.policy.events` must load that, and not the room."""
    assert [path.parent.name for path in PACKAGE.glob("*/__init__.py") if imports(path)] == []


def test_what_decides_is_pure():
    found = {module(path): foreign(path) & IMPURE for path in FILES if is_pure(path)}
    assert {name: has for name, has in found.items() if not has <= BUT.get(name, set())} == {}


def test_nobody_imports_children_and_only_the_server_imports_tensorflow():
    may = ("programs/tf_server", "serving/tensorflow_model", "stand_ins/")
    for path in FILES:
        name = module(path)
        assert not [each for each in imports(path) if each.startswith("entrypoint.children")], name
        if not name.startswith("stand_ins/"):
            assert not foreign(path) & {"smdistributed"}, name
        if not name.startswith(may):
            assert not foreign(path) & {"tensorflow", "keras", "horovod", "mpi4py"}, name


def test_only_main_exits_and_reads_the_environment():
    for path in FILES:
        name = module(path)
        if name in EXIT or room(name) in EXIT:
            continue
        calls = {ast.unparse(node) for node in nodes_of(path) if isinstance(node, ast.Attribute)}
        assert not calls & {"sys.exit", "os._exit"}, name
        assert name == "plan/ssh" or "os.environ" not in calls, name


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """What runs when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) or ast.unparse(child).startswith("if TYPE_CHECKING"):
            continue
        yield child
        yield from at_import(child)


def loaded_by(names: set[str]) -> set[str]:
    """Modules of ours that are loaded with these."""
    found: set[str] = set()
    while names:
        found |= names
        names = set().union(*(ours(MODULES[n], at_import(ast.parse(MODULES[n].read_text()))) for n in names)) - found
    return found


def test_what_starts_a_job_needs_neither_the_control_channel_nor_what_failures_need():
    """These come after the first process has started."""
    loaded = loaded_by({"launch", "job.config", "supervisor", "plan.planner"})
    late = {name for name in loaded if room(name) in ("control", "local", "serving", "cli")}
    assert not late | (loaded & {"outcome.explain", "outcome.symptoms", "outcome.tracebacks", "policy.evidence"})


def test_importing_the_launcher_imports_no_framework():
    """PID 1 stays small: no TensorFlow, no boto3, no Flask before the first process has started."""
    names = "entrypoint.launch, entrypoint.job.config, entrypoint.supervisor, entrypoint.plan.planner"
    code = f"import {names}, sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"tensorflow", "flask", "waitress", "boto3", "numpy", "mpi4py"} & set(out.stdout.split())


def test_the_launcher_needs_only_what_it_is_installed_with():
    """It is put onto images with any TensorFlow, NumPy, protobuf and sagemaker-training, or none of them."""
    for path in FILES:
        if not needs_framework(path):
            beside = {file.stem for file in path.parent.glob("*.py")}
            assert foreign(path) - sys.stdlib_module_names - beside <= INSTALLED_WITH, module(path)


def test_no_pattern_is_one_that_python_310_does_not_know():
    """Possessive repeats and atomic groups came with 3.11. vermin does not read patterns."""
    for path in [*FILES, *LIBRARY.glob("*.py")]:
        texts = [node.value for node in nodes_of(path) if isinstance(node, ast.Constant)]
        assert [text for text in map(str, texts) if re.search(r"[*+?}]\+|\(\?>", text)] == [], path.name


def test_the_launcher_does_not_import_the_scripts_library():
    """But for the worker server, in which what a script makes by it is run."""
    found = {module(path) for path in FILES if "sagemaker_tf_data" in foreign(path)}
    assert found <= {"programs/tf_server"}


def test_the_scripts_library_does_not_import_the_launcher():
    found = {path.name: {name.split(".")[0] for name in imports(path)} for path in LIBRARY.glob("*.py")}
    assert {name for name, has in found.items() if "entrypoint" in has} == set()


def test_importing_the_scripts_library_imports_no_framework():
    """A script may set TensorFlow's variables after it, and choose its GPU, before TensorFlow comes."""
    names = " ".join(f"import sagemaker_tf_data.{path.stem};" for path in sorted(LIBRARY.glob("[a-z]*.py")))
    code = f"{names} import sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=60
    )
    assert not {"tensorflow", "keras", "horovod", "numpy", "entrypoint"} & set(out.stdout.split())


def test_files_of_tests_have_names_of_their_own():
    """pytest imports them by these, so that two with the same could not be run together."""
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert len(names) == len(set(names))
