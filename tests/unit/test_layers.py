"""Test that imports follow the layers of entrypoint/README.md."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unmeasured  # it reads the sources, and runs none

PACKAGE = Path(__file__).resolve().parents[2] / "entrypoint"
FILES = sorted(PACKAGE.rglob("*.py"))
LIBRARY = PACKAGE.parent / "sagemaker_tf_data"  # for training scripts; it and the launcher agree on variables, not code
WINGS = ("launcher", "observe", "check")  # folders of rooms; all else is a room, or a module by itself


def map_of_the_package() -> dict[str, set[str]]:
    """Return, for each package or module outside of packages, its allowed imports by the map in README.md."""
    page = (PACKAGE / "README.md").read_text()
    rows = re.findall(r"^\| \[?`([\w/.]+)`[^|]* \| [^|]+ \| ([^|]+) \|$", page, re.MULTILINE)
    return {name.removesuffix(".py").rstrip("/"): set(re.findall(r"[\w/]+", may)) - {"nothing"} for name, may in rows}


MAY_IMPORT = {**map_of_the_package(), "__main__": {"cli"}}
LAYERS = [
    "base", "usercode", "record", "launcher", "observe", "train", "simulate", "check", "serving", "cli", "programs"
]  # fmt: skip
# Wing or room: what none of its modules imports, whatever the arrows of its rooms may become.
NEVER = {
    **{layer: LAYERS[above:] for above, layer in enumerate(LAYERS[:-1], 1)},
    "launcher/host": ["launcher/control", "launcher/policy/facts", "launcher/policy/policy", "launcher/supervisor"],
    "serving": ["launcher", "observe", "simulate", "check", "cli", "programs", "train"],
}
ROOMS = [name for name in MAY_IMPORT if (PACKAGE / name).is_dir()]
# Time and facts are given: no clock, no process, no thread, no socket, no environment.
IMPURE = {"asyncio", "os", "pathlib", "random", "socket", "subprocess", "sys", "threading", "time"}
PURE = [
    "base/errors", "base/secret_names", "base/secrets", "launcher/outcome", "launcher/plan", "launcher/policy",
    "launcher/job/channels", "launcher/job/cluster", "launcher/job/settings",
]  # fmt: skip
BUT = {  # what these pure rooms have of it
    "launcher/outcome/outcome": {"os"},  # strerror
    "launcher/outcome/report": {"pathlib"},  # writes the failure file
    "launcher/plan/distributions/common": {"pathlib", "sys"},
    "launcher/plan/plan": {"pathlib"},
    "launcher/plan/ssh": {"os", "pathlib", "sys"},  # writes files; passes on its own PATH and library path
}
# As pyproject.toml says.
INSTALLED_WITH = {
    "argcomplete", "boto3", "botocore", "flask", "packaging", "psutil", "pynvml", "rich", "sagemaker_tf_data",
    "tensorboard", "tomli", "waitress",
}  # fmt: skip
ONLY_IN = {  # what imports them: elsewhere they take too long, or are not there
    "flask": ("serving/",),
    "smdistributed": ("stand_ins/",),
    **dict.fromkeys(
        ("tensorflow", "keras", "horovod", "mpi4py"), ("programs/tf_server", "serving/served_model", "stand_ins/")
    ),
    # The worker server runs what a script makes by it, and a rehearsal cuts its records.
    "sagemaker_tf_data": ("programs/tf_server", "check/rehearse/sample"),
}
# Durations are by the monotonic clock, since the other can be set while a job runs. Who reads the other, and why:
WALL_CLOCK = {
    "record/lines": {"time.time"},  # ZERO: the record's times since the epoch go on from it by the monotonic clock
    "observe/report/content": {"time.gmtime", "time.strftime"},  # shows people when the job began
    "observe/report/ending": {"time.gmtime", "time.strftime"},  # shows people when a job was last alive
    "observe/live/in_terminal": {"time.localtime", "time.strftime"},  # shows people when a line was logged
    "observe/monitor/silence": {"time.ctime"},  # shows people when stacks were taken
    "observe/monitor/monitor": {"time.time"},  # CloudWatch wants the timestamp of a line of metrics
    "observe/export/event_files": {"time.time", "time.time_ns"},  # TensorBoard wants it in events and in a file's name
    "cli/arguments": {"time.strftime"},  # names an output folder
    "cli/check_commands": {"time.strftime"},  # likewise
    "programs/caught": {"datetime.now"},  # a debugger's message of the container's agent, with its timestamp
}
CLOCKS = {
    "time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.ctime", "time.strftime", "time.CLOCK_REALTIME",
    "datetime.now", "datetime.utcnow", "datetime.today", "datetime.fromtimestamp", "date.today",
}  # fmt: skip
LONGEST_CLASS = 255  # lines
EXIT = {  # end the process, read its environment
    "__main__", "train", "cli", "simulate", "programs", "launcher/places", "launcher/self_failure",
    "observe/export/mlflow_run", "observe/monitor/reporting", "observe/monitor/spawn", "launcher/host/fork",
    "check/rehearse/runs", "serving/__main__",
}  # fmt: skip


def module(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix().removesuffix("/__init__")


MODULES = {module(path).replace("/", "."): path for path in FILES}


def room(name: str) -> str:
    """Return the package of a module, "launcher/job" or "cli"; a module outside of packages is its own."""
    parts = re.split("[./]", name)
    return "/".join(parts[: 2 if parts[0] in WINGS else 1])


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path, nodes: Iterable[ast.AST] | None = None) -> set[str]:
    """Return the dotted names that a file imports anywhere; `from a import b` counts as a and a.b."""
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
    """Return the package's modules that a file imports: "secrets", "plan.distributions.common"."""
    names = {name.removeprefix("entrypoint.") for name in imports(path, nodes) if name.startswith("entrypoint.")}
    return names & MODULES.keys() - set(WINGS)


def needs_framework(path: Path) -> bool:
    """Return whether a file runs only in processes that import TensorFlow anyway."""
    return room(module(path)) in ("serving", "stand_ins") or module(path) == "programs/tf_server"


def is_pure(path: Path) -> bool:
    return any(module(path) == name or module(path).startswith(f"{name}/") for name in PURE)


def test_imports_follow_the_layer_map():
    wrong = {}
    for path in FILES:
        if (name := module(path)) not in ("__init__", *WINGS):
            here = room(name)
            assert here in MAY_IMPORT, f"what may {here} import?"
            wrong[name] = {room(each) for each in ours(path)} - {here} - MAY_IMPORT[here]
    assert {name: found for name, found in wrong.items() if found} == {}


@pytest.mark.parametrize("wing", NEVER)
def test_folder_imports_nothing_of_a_higher_layer(wing):
    never = tuple(f"{name}/" for name in NEVER[wing])
    files = [path for path in FILES if f"{module(path)}/".startswith(f"{wing}/")]
    assert files
    found = {module(path): [n for n in ours(path) if f"{n.replace('.', '/')}/".startswith(never)] for path in files}
    assert {name: bad for name, bad in found.items() if bad} == {}


def test_no_class_is_too_long():
    classes = [(module(path), node) for path in FILES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    assert [(name, node.name) for name, node in classes if node.end_lineno - node.lineno >= LONGEST_CLASS] == []


def test_names_of_files_and_classes_are_unique():
    files = [path.name for path in FILES if path.name not in ("__init__.py", "__main__.py")]
    classes = [node.name for path in FILES for node in nodes_of(path) if isinstance(node, ast.ClassDef)]
    for names in (files, classes):
        assert {name for name, count in Counter(names).items() if count > 1} == set()


def test_map_and_modules_have_no_import_cycle():
    """Cycles within a package and imports inside functions count as well."""
    for arrows in (MAY_IMPORT, {name: ours(path) - {name} for name, path in MODULES.items()}):
        list(graphlib.TopologicalSorter(arrows).static_order())


@pytest.mark.parametrize("name", ROOMS)
def test_package_page_lists_its_allowed_imports(name):
    told = re.search(r"^May import: ([^.]+)\.", (PACKAGE / name / "README.md").read_text(), re.MULTILINE)
    assert told, "no line 'May import: ...'"
    assert set(re.findall(r"`([\w/]+)`", told[1])) == MAY_IMPORT[name]


def test_package_page_names_its_modules():
    pages = {name: (PACKAGE / name / "README.md").read_text() for name in ROOMS if name != "stand_ins"}
    files = [path for path in FILES if room(module(path)) in pages and path.name != "__init__.py"]
    assert [module(path) for path in files if not re.search(rf"\b{path.name}", pages[room(module(path))])] == []


def test_package_init_imports_no_own_modules():
    """`import entrypoint.launcher.policy.events` must load that module, and not the whole package."""
    assert [
        path.parent.name
        for path in PACKAGE.rglob("__init__.py")
        if module(path).split("/")[0] != "stand_ins" and imports(path)
    ] == []


def test_decision_modules_import_nothing_impure():
    found = {module(path): foreign(path) & IMPURE for path in FILES if is_pure(path)}
    assert {name: has for name, has in found.items() if not has <= BUT.get(name, set())} == {}


def test_wall_clock_is_read_only_for_shown_or_sent_times():
    found = {}
    for path in FILES:
        names = {name for name in imports(path) if name.startswith("time.")}  # a bare `time()` would not be seen below
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and isinstance(of := node.value, ast.Name | ast.Attribute):
                names.add(f"{of.id if isinstance(of, ast.Name) else of.attr}.{node.attr}")
        found[module(path)] = names & CLOCKS
    assert {name: reads for name, reads in found.items() if reads} == WALL_CLOCK


def test_no_module_imports_programs_and_few_import_frameworks():
    for path in FILES:
        name = module(path)
        assert not [each for each in imports(path) if each.startswith("entrypoint.programs")], name
        assert [each for each in foreign(path) & ONLY_IN.keys() if not name.startswith(ONLY_IN[each])] == [], name


def test_only_module_main_exits_and_reads_the_environment():
    for path in FILES:
        name = module(path)
        if name in EXIT or room(name) in EXIT:
            continue
        calls = {ast.unparse(node) for node in nodes_of(path) if isinstance(node, ast.Attribute)}
        assert not calls & {"sys.exit", "os._exit"}, name
        assert name == "launcher/plan/ssh" or "os.environ" not in calls, name


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Return the code that runs when a module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef) or ast.unparse(child).startswith("if TYPE_CHECKING"):
            continue
        yield child
        yield from at_import(child)


def loaded_by(names: set[str]) -> set[str]:
    """Return our modules that importing these modules loads."""
    found: set[str] = set()
    while names:
        found |= names
        names = set().union(*(ours(MODULES[n], at_import(ast.parse(MODULES[n].read_text()))) for n in names)) - found
    return found


def test_start_of_a_job_loads_neither_control_channel_nor_explanations():
    """Those modules are needed only after the first process has started."""
    loaded = loaded_by({*STARTS})
    late = {name for name in loaded if room(name) in ("launcher/control", "simulate", "serving", "cli")}
    failures = {"outcome.explain", "outcome.symptoms", "outcome.tracebacks"}
    assert not late | (loaded & {f"launcher.{name}" for name in failures})


STARTS = ["train", "launcher.job.config", "launcher.supervisor", "launcher.plan.planner"]
LATE = {
    # PID 1 stays small before the first process has started.
    "the launcher": (
        [f"entrypoint.{name}" for name in STARTS], {"tensorflow", "flask", "waitress", "boto3", "numpy", "mpi4py"}
    ),
    # A script may set TensorFlow's variables after it, and choose its GPU, before TensorFlow comes.
    "the scripts' library": (
        [f"sagemaker_tf_data.{path.stem}" for path in sorted(LIBRARY.glob("[a-z]*.py"))],
        {"tensorflow", "keras", "horovod", "jax", "numpy", "entrypoint"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("names", "late"), LATE.values(), ids=LATE)
def test_importing_the_launcher_loads_no_framework(names, late):
    code = f"import {', '.join(names)}, sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, cwd=PACKAGE.parent, capture_output=True, text=True, check=True, timeout=240)
    assert not late & set(out.stdout.split())


def test_launcher_imports_only_installed_dependencies():
    """The launcher is installed on images with any TensorFlow, NumPy, protobuf and sagemaker-training, or none."""
    for path in FILES:
        if not needs_framework(path):
            beside = {file.stem for file in path.parent.glob("*.py")}
            assert foreign(path) - sys.stdlib_module_names - beside <= INSTALLED_WITH, module(path)


def test_regex_patterns_compile_on_python_3_10():
    """Possessive quantifiers and atomic groups came with 3.11, and vermin does not check patterns."""
    for path in [*FILES, *LIBRARY.glob("*.py")]:
        texts = [node.value for node in nodes_of(path) if isinstance(node, ast.Constant)]
        assert [text for text in map(str, texts) if re.search(r"[*+?}]\+|\(\?>", text)] == [], path.name


def test_script_library_does_not_import_the_launcher():
    found = {path.name: {name.split(".")[0] for name in imports(path)} for path in LIBRARY.glob("*.py")}
    assert {name for name, has in found.items() if "entrypoint" in has} == set()


def test_test_files_have_unique_names():
    """pytest imports test files by name, so it cannot run two files of the same name together."""
    names = [path.name for path in Path(__file__).parents[1].rglob("test_*.py")]
    assert len(names) == len(set(names))
