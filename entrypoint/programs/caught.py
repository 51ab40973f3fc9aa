"""Run a launch script while nothing leaves the machine, and write down the training jobs that it would start.

    python caught.py RESULT SCRIPT [ARGUMENT]...

`entrypoint doctor` starts it with any Python that has boto3 and a SageMaker SDK. It catches requests in botocore's
event `before-call`: by then they are checked against the API's description, and not sent yet. An audit hook refuses
sockets and programs; so does the kernel, if it gives us a network namespace. What the script leaves running is killed.
RESULT is a JSON file: {"requests", "launches", "uploads", "error", "unsealed", "sdk"}; `unsealed` says why there is no
such namespace.

It is one file: what it imports stays in the script's process, whose own modules may have the same names.
"""

import ast
import builtins
import contextlib
import ctypes
import functools
import importlib.machinery
import importlib.util
import inspect
import io
import json
import os
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

ACCOUNT = "000000000000"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/caught"
REFUSED = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "socket.sendto",
    "socket.sendmsg",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
)
DONE = ("Completed", "InService", "Succeeded", "Active", "ACTIVE", "Available", "Ready")
ASKS_ABOUT_ROLES = "sagemaker.core.helper.iam_role_resolver"  # of SDK v3: it goes on if it may not ask about roles
# Older names that SDK v2 still accepts.
RENAMED = {
    "train_instance_count": "instance_count",
    "train_instance_type": "instance_type",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
    "train_use_spot_instances": "use_spot_instances",
    "train_volume_kms_key": "volume_kms_key",
    "train_volume_size": "volume_size",
    "image_name": "image_uri",
    "distributions": "distribution",
}
DRIVERS = "/sm_drivers/"
NEW_USER, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000  # linux/sched.h

result: dict[str, Any] = {"requests": [], "launches": [], "uploads": {}, "error": None, "unsealed": "", "sdk": ""}
objects: list[Any] = []  # the object of each launch
state: dict[str, Any] = {"target": "", "script": "", "current": None, "local": False}


def line_of_script() -> int:
    """Return the line of the script that called this; 0 if none did."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == state["script"]:
            return int(frame.f_lineno)
        frame = frame.f_back
    return 0


def keep_in(event: str, args: object) -> None:
    """Refuse whatever would send data out of this machine, or start a program that could."""
    if event in REFUSED:
        raise PermissionError(f"`entrypoint doctor` lets a launch script neither connect nor start programs: {event}")


# --- AWS ---


def answer(model: Any, params: Any, **_: object) -> tuple[Any, dict[str, Any]]:
    """Answer in place of AWS: each request has succeeded at once."""
    service, name = model.service_model.service_name, model.name
    ok = SimpleNamespace(status_code=200)
    if service == "iam" and (name != "GetRole" or ASKS_ABOUT_ROLES in sys.modules):
        return SimpleNamespace(status_code=403), {"Error": {"Code": "AccessDenied", "Message": "nobody is asked"}}
    if service == "sagemaker" and name in ("CreateTrainingJob", "CreateHyperParameterTuningJob"):
        note(json.loads(params["body"]), "local mode" if state["local"] else name)
    if name == "PutObject" and DRIVERS in params["url_path"]:
        body = params["body"]
        text = body.read() if hasattr(body, "read") else body
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        result["uploads"][params["url_path"].partition(DRIVERS)[2]] = text
    if name == "DescribeTrainingJob" and result["requests"]:
        transition = {"Status": "Completed", "StartTime": datetime.now(timezone.utc), "StatusMessage": ""}
        return ok, {
            **invented(model.output_shape),
            **result["requests"][-1]["request"],
            "TrainingJobStatus": "Completed",
            "SecondaryStatus": "Completed",
            "SecondaryStatusTransitions": [transition],
            "ModelArtifacts": {"S3ModelArtifacts": "s3://caught/model.tar.gz"},
            "TrainingTimeInSeconds": 60,  # SDK v2 prints which part of it is billed
            "BillableTimeInSeconds": 60,
        }
    return ok, invented(model.output_shape)


def note(request: dict[str, Any], operation: str) -> None:
    at = state["current"] if state["current"] is not None else len(objects) - 1
    launch = at if at >= 0 else None
    found = {"request": request, "operation": operation, "line": line_of_script(), "launch": launch}
    result["requests"].append({**found, "uploads": dict(result["uploads"])})
    result["uploads"].clear()  # later uploads belong to the next job


def invented(shape: Any, name: str = "", depth: int = 0) -> Any:
    """Invent an answer of this shape: every job is complete, and all belongs to one account."""
    kind = shape.type_name if shape is not None else ""
    if kind == "structure":
        members = shape.members.items() if depth < 4 else ()
        skip = ("token", "marker", "truncated", "failurereason")
        return {
            key: invented(member, key, depth + 1)
            for key, member in members
            if not any(word in key.lower() for word in skip)
        }
    if kind == "string":
        known = list(getattr(shape, "enum", []) or [])
        if known or name.endswith("Status") or name == "State":
            return next((word for word in DONE if word in known), known[0] if known else "Completed")
        if name == "Arn" or name.endswith("Arn"):
            return ROLE
        return ACCOUNT if name == "Account" else "caught"
    if kind == "blob":
        return io.BytesIO(b"{}")
    values = {"list": [], "map": {}, "boolean": False, "timestamp": datetime.now(timezone.utc)}
    return values.get(kind, 0) if kind else {}


def catch_botocore() -> None:
    import botocore.session

    start = botocore.session.Session.__init__

    def caught(session: Any, *args: Any, **options: Any) -> None:
        start(session, *args, **options)
        session.register("before-call", answer)

    botocore.session.Session.__init__ = caught


# --- the SDKs: what a request does not show of their arguments ---


def launched(made: Any, sdk: str, **more: Any) -> None:
    objects.append(made)
    about = {"sdk": sdk, "class": type(made).__name__, "line": line_of_script(), "dropped": {}}
    result["launches"].append({**about, **more})


def of_v2(module: Any) -> None:
    """Record estimators: where they are made, and which of their arguments are ignored."""
    base = module.EstimatorBase
    start, fit = base.__init__, base.fit
    known = set(inspect.signature(start).parameters)

    @functools.wraps(start)
    def noted(self: Any, *args: Any, **given: Any) -> None:
        dropped = {
            "distribution" if key == "distributions" else key: short(value)
            for key, value in given.items()
            if key not in known and (key not in RENAMED or key == "distributions") and key != "enable_network_isolation"
        }
        renamed = {key: RENAMED[key] for key in given if key in RENAMED}
        launched(self, "v2", dropped=dropped, renamed=renamed)
        start(self, *args, **given)

    @functools.wraps(fit)
    def fitted(self: Any, *args: Any, **given: Any) -> Any:
        state["current"] = next((at for at, each in enumerate(objects) if each is self), None)
        return fit(self, *args, **given)

    base.__init__, base.fit = noted, fitted


def of_v3(module: Any) -> None:
    """Record trainers: their source and distribution, and a local folder as channel `code`."""
    real = module.ModelTrainer.train

    @functools.wraps(real)
    def train(self: Any, *args: Any, **given: Any) -> Any:
        channels = (
            given.get("input_data_config") or (args[0] if args else None) or getattr(self, "input_data_config", None)
        )
        distributed = type(self.distributed).__name__ if self.distributed is not None else ""
        launched(self, "v3", distributed=distributed, code=folder_of_code(channels or []))
        state["current"] = len(objects) - 1
        # Its local mode would start Docker: ask for the request of the same job on SageMaker.
        kinds = type(self.training_mode)
        state["local"] = getattr(kinds, "LOCAL_CONTAINER", None) == self.training_mode
        if state["local"]:
            self.training_mode = kinds.SAGEMAKER_TRAINING_JOB
            self.role = self.role or ROLE
            self.model_post_init(None)  # sets what only such jobs have
        return real(self, *args, **given)

    module.ModelTrainer.train = train


def folder_of_code(channels: Any) -> str:
    for each in channels:
        source = getattr(each, "data_source", None)
        if getattr(each, "channel_name", "") == "code" and isinstance(source, str) and "://" not in source:
            return source
    return ""


def of_local_mode(module: Any) -> None:
    """Turn a run of SDK v2's local mode, which would start Docker, into a request."""

    def create_training_job(self: Any, TrainingJobName: str, **given: Any) -> None:
        described = {key: value for key, value in given.items() if value is not None}
        note({"TrainingJobName": TrainingJobName, **json.loads(json.dumps(described, default=str))}, "local mode")

    module.LocalSagemakerClient.create_training_job = create_training_job


WATCHED = {
    "sagemaker.estimator": of_v2,
    "sagemaker.train.model_trainer": of_v3,
    "sagemaker.modules.train.model_trainer": of_v3,  # the same class, in late releases of SDK v2
    "sagemaker.local.local_session": of_local_mode,
}


class ModuleWatch:
    """Find modules as Python does, and change some as soon as they are loaded."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        change = WATCHED.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if change else None
        if change is None or spec is None or spec.loader is None:
            return None
        loader: Any = spec.loader
        load = loader.exec_module

        def loaded(module: ModuleType) -> None:
            load(module)
            change(module)

        loader.exec_module = loaded
        return spec


def short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."


def where_code_lies() -> None:
    """Add the local files that each launch names, once the script has ended."""
    for launch, made in zip(result["launches"], objects, strict=True):
        source = getattr(made, "source_code", None) or made
        entry = getattr(source, "entry_script", None) or getattr(source, "entry_point", None)
        folder = getattr(source, "source_dir", None)
        launch["entry_point"] = entry if isinstance(entry, str) else ""
        launch["source_dir"] = folder if isinstance(folder, str) else ""
        launch["command"] = str(getattr(source, "command", None) or "")
        mirrored = "multi_worker_mirrored_strategy" in (getattr(made, "distribution", None) or {})
        # A class that keeps an argument of its base reads it itself.
        launch["dropped"] = {key: value for key, value in launch["dropped"].items() if not getattr(made, key, None)}
        given = getattr(made, "dependencies", None)
        launch["dependencies"] = [each for each in given or [] if isinstance(each, str)]
        launch["unversioned"] = mirrored and getattr(made, "framework_version", None) is None


def installed() -> str:
    """Return the SDK that this Python has: v2, v3, or nothing. It is not imported."""
    spec = importlib.util.find_spec("sagemaker")
    folders = [Path(each) for each in (spec and spec.submodule_search_locations) or ()]
    has = {"v2": "estimator.py", "v3": "core"}
    return next((sdk for sdk, name in has.items() if any((each / name).exists() for each in folders)), "")


# --- the script ---


def run(script: str, arguments: Sequence[str]) -> dict[str, Any] | None:
    """Run the script as Python would. Return the error or exit that ended it, or None."""
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).absolute().parent)
    try:
        run_file(script)
    except SystemExit as end:
        if end.code in (None, 0):
            return None
        told = end.code if isinstance(end.code, str) else f"it exits with {end.code}"
        return {"kind": "SystemExit", "text": told, "line": last_line(end), "missing": ""}
    except BaseException as error:
        told = "".join(traceback.format_exception_only(type(error), error)).strip()
        missing = error.name or "" if isinstance(error, ModuleNotFoundError) else ""
        return {"kind": type(error).__name__, "text": told, "line": last_line(error), "missing": missing}
    return None


def run_file(script: str) -> None:
    """Run a script as `__main__`. For the export of a notebook, run the text that the doctor has made of it."""
    plain = Path(state["target"]).with_name("script.py")
    text = plain.read_text() if plain.exists() else Path(script).read_text("utf-8", errors="replace")
    if "get_ipython" not in text and not plain.exists():
        runpy.run_path(script, run_name="__main__")
        return
    main = ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=builtins, get_ipython=lambda: Notebook(main.__dict__))
    sys.modules["__main__"] = main
    exec(compile(text, script, "exec"), main.__dict__)


class Notebook:
    """Replace the object of get_ipython(): run cells of Python, write files, ignore everything else."""

    CELLS = ("time", "timeit", "capture", "prun")

    def __init__(self, names: dict[str, Any]) -> None:
        self.user_ns = names

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        if name in self.CELLS:
            tree, at = ast.parse(cell), line_of_script()
            for node in ast.walk(tree):
                if isinstance(node, ast.stmt | ast.expr):
                    node.lineno = node.end_lineno = at
            exec(compile(tree, state["script"], "exec"), self.user_ns)
        elif name in ("writefile", "file"):
            Path(line.split()[-1]).write_text(cell)

    def run_line_magic(self, name: str, line: str, *_: object) -> None:
        if name in ("time", "timeit", "prun"):
            exec(compile(line, state["script"], "exec"), self.user_ns)

    def magic(self, text: str) -> None:
        name, _, line = text.partition(" ")
        self.run_line_magic(name, line)

    def getoutput(self, *_: object, **__: object) -> list[str]:
        return []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def last_line(error: BaseException) -> int:
    """Return the last line of the script in a traceback. For a syntax error, return the line of the error."""
    if isinstance(error, SyntaxError) and error.filename == state["script"]:
        return error.lineno or 0
    lines = [
        line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == state["script"]
    ]
    return lines[-1] if lines else 0


# --- nothing stays, and nothing leaves ---


def seal() -> str:
    """Leave this machine's network, and make a process namespace for later children. Return why not, if that fails.

    Root may do so at once, others in a user namespace of their own, if the kernel allows that.
    """
    user, group = os.getuid(), os.getgid()
    try:
        unshare = ctypes.CDLL(None, use_errno=True).unshare
        if unshare(NEW_NETWORK | NEW_PIDS) != 0:
            if unshare(NEW_USER | NEW_NETWORK | NEW_PIDS) != 0:
                return os.strerror(ctypes.get_errno())
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{user} {user} 1"),
                ("gid_map", f"{group} {group} 1"),
            ):
                Path("/proc/self", name).write_text(text)
    except AttributeError:
        return "this system has no namespaces"  # macOS
    except OSError as error:
        return str(error)
    return ""


def main() -> None:
    """Run `catch` in a child, and kill all that it has started. A process namespace ends with its first process.

    Without a namespace, processes that lose their parent become our children (Linux, prctl).
    """
    state["target"], state["script"] = sys.argv[1:3]
    result["unsealed"] = seal()
    prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    child = os.fork()
    if child == 0:
        prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        catch()
        os._exit(1)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: None if child in ended else os.kill(child, signal.SIGKILL))
    while child not in ended:
        ended.append(os.wait()[0])
    while left := children():
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    os._exit(0)


def prctl(what: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def children() -> list[int]:
    """Return the processes whose parent we are."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
    return found


def catch() -> None:
    target, script, *arguments = sys.argv[1:]
    try:
        catch_botocore()
    except ImportError:
        pass  # every SDK needs it; the script will report what is missing
    time.sleep = lambda seconds: None  # SDKs poll a job every few seconds, though ours is over at once
    sys.meta_path.insert(0, ModuleWatch)
    sys.addaudithook(keep_in)
    result["error"] = run(script, arguments)
    with contextlib.suppress(ImportError, ValueError):
        result["sdk"] = installed()
    where_code_lies()
    with open(target, "w") as file:
        json.dump(result, file, default=str)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without waiting for threads of the SDK, which would report to Amazon


if __name__ == "__main__":
    main()
