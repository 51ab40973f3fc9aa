"""Fetches the user's code, installs its requirements, and computes SM_*: once per host, before anything starts.

All of it by sagemaker-training's own functions. Reads the task as JSON from stdin and writes the result as
JSON to the file named there. On failure the last line printed says what is wrong, and the code is 65.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

CODE_ERROR = 65
LONGEST_ENTRY = 32 * 4096  # bytes of one argument or environment entry (MAX_ARG_STRLEN of execve(2))
TF1_SESSIONS = re.compile(
    r"\bMonitoredTrainingSession\b|\btf\.estimator\b|\bestimator\.(Estimator|train_and_evaluate|RunConfig)\b"
    r"|\bMonitoredSession\b|\bSessionCreator\b|\btrain\.Supervisor\b|\breplica_device_setter\b"
)

LEFT_BEHIND = re.compile(r"(^|/)(__pycache__|[^/]*\.egg-info)(/|$)")
LARGE = 16 << 20  # bytes
NAMED = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "mpi4py", "numpy", "protobuf", "sagemaker-tf-entrypoint")

TF2_SERVER = re.compile(r"\bdistribute\.Server\b")


class Unusable(Exception):
    """The user's code cannot be had."""


def fetch(source: str, code: Path) -> None:
    from sagemaker_training import files

    try:
        files.download_and_extract(source, str(code))
    except Exception as error:  # boto3, tarfile and OS errors alike: the user needs the reason, not our stack
        raise Unusable(
            f"the code at {source} cannot be fetched ({type(error).__name__}: {error}); "
            "wanted a folder, a .tar.gz or an s3:// URI of one in hyperparameter sagemaker_submit_directory"
        ) from None


def check(program: str, code: Path) -> None:
    if (code / program).is_file():
        return
    if not program.endswith((".py", ".sh")) and (code / "setup.py").is_file():
        return  # a module of a package
    there = sorted(path.name for path in code.iterdir()) if code.is_dir() else []
    raise Unusable(
        f"program {program} is not in {code}, which holds {', '.join(there[:20]) or 'nothing'}; "
        "wanted the file named by hyperparameter sagemaker_program"
    )


def install(program: str, code: Path) -> None:
    from sagemaker_training import entry_point, errors

    with one_at_a_time(), errors_of_pip() as said:
        try:
            entry_point.install(name=program, path=str(code), capture_error=False)
        except errors.ClientError:
            failed = True
        else:
            failed = False
    if failed:
        what = "requirements.txt" if (code / "requirements.txt").is_file() else "the package"
        reason = said[-1] if said else "see the lines of pip above"
        raise Unusable(f"{what} in {code} cannot be installed: {reason}")


@contextlib.contextmanager
def errors_of_pip() -> Iterator[list[str]]:
    """The lines in which pip says what is wrong; everything still reaches our stderr, as it comes."""
    said: list[str] = []
    real = os.dup(2)
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(writer)

    def copy() -> None:
        with open(reader, "rb") as lines:
            for line in lines:
                os.write(real, line)
                text = line.decode("utf-8", "replace").strip()
                if text.lower().startswith("error:"):
                    said.append(text)

    copier = threading.Thread(target=copy, daemon=True)
    copier.start()
    try:
        yield said
    finally:
        os.dup2(real, 2)  # closes the last writer of ours, so the copier comes to an end
        copier.join(timeout=5)


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hosts that are simulated on one machine share its Python: pip may run once at a time."""
    name = re.sub(r"\W", "_", sys.prefix)
    with open(Path(tempfile.gettempdir()) / f"entrypoint-install{name}-{os.getuid()}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def flags(code: Path) -> list[str]:
    """What the code uses, by the words in it: TF1's sessions or estimators, else TF2's servers in worker scripts."""
    serves = False
    for path in sorted(code.rglob("*.py"))[:2000]:
        with contextlib.suppress(OSError):
            text = path.read_text("utf-8", errors="replace")
            if TF1_SESSIONS.search(text):
                return ["tf1-sessions"]
            serves = serves or bool(TF2_SERVER.search(text))
    return ["tf2-server"] if serves else []


def digest_of_code(code: Path) -> str:
    """The user's code as it was fetched, in 12 characters: names and contents, without what running it leaves."""
    whole = hashlib.sha256()
    for path in sorted(code.rglob("*")):
        inside = path.relative_to(code)
        if not path.is_file() or inside.parts[0] in (".git", "build") or LEFT_BEHIND.search(str(inside)):
            continue
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            whole.update(f"{inside}\0{size}\0".encode("utf-8", "surrogateescape"))
            with path.open("rb") as file:  # of large files, data most likely, the size and the beginning
                whole.update(file.read(LARGE))
    return whole.hexdigest()[:12]


def digest(text: str | bytes) -> str:
    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:12]


def software() -> dict[str, str]:
    """Versions of what a job is made of: Python, the packages that matter most, and the rest as one digest."""
    installed: dict[str, str] = {}
    for entry in sys.path:
        for path in Path(entry).glob("*.dist-info") if entry else ():
            name, _, version = path.name.removesuffix(".dist-info").partition("-")
            installed.setdefault(name.lower().replace("_", "-"), version)
    found = {"Python": sys.version.split()[0]}
    found |= {name: installed.get(name, "") for name in NAMED}
    found["the set of Python packages"] = digest(json.dumps(sorted(installed.items())))
    with contextlib.suppress(OSError):
        found["the set of Debian packages"] = digest(Path("/var/lib/dpkg/status").read_bytes())
    return found


def short_enough(entries: dict[str, str]) -> dict[str, str]:
    """Without entries that Linux does not start a program with. Legal hyperparameters can make SM_HPS one."""
    too_long = [k for k, value in entries.items() if len(f"{k}={value}".encode(errors="replace")) >= LONGEST_ENTRY]
    if too_long:
        print(f"warning: left out of the environment, as longer than 128 KiB: {', '.join(too_long)}", flush=True)
    return {key: value for key, value in entries.items() if key not in too_long}


def main() -> int:
    task = json.load(sys.stdin)
    code, program = Path(task["code"]), task["program"]
    try:
        code.mkdir(parents=True, exist_ok=True)
        fetch(task["source"], code)
        check(program, code)
        requirements = code / "requirements.txt"
        things = {
            "the code": digest_of_code(code),
            "requirements.txt": digest(requirements.read_bytes()) if requirements.is_file() else "",
        }
        install(program, code)
    except Unusable as reason:
        print(reason, flush=True)
        return CODE_ERROR
    except OSError as error:
        print(f"the code folder {code} cannot be prepared: {error}", flush=True)
        return CODE_ERROR

    from sagemaker_training import environment

    # Given {}, it would read the files again, and those may be absent or null.
    environment.read_input_data_config = environment.read_hyperparameters = dict
    sagemaker = environment.Environment(
        resource_config=task["resource_config"],
        input_data_config=task["input_data_config"],
        hyperparameters=task["hyperparameters"],
    )
    own = str(Path(__file__).parent)
    path = [str(code), *(entry for entry in sys.path if entry not in ("", own, str(code)))]
    is_package = (code / "setup.py").is_file() and not program.endswith(".sh")
    result = {
        "env": {**short_enough(sagemaker.to_env_vars()), "PYTHONPATH": os.pathsep.join(path)},
        "module": program.removesuffix(".py") if is_package else None,
        "flags": flags(code),
        "things": {**things, **software()},
    }
    target = Path(task["result"])
    scratch = target.with_suffix(".new")
    scratch.touch(mode=0o600)
    scratch.write_text(json.dumps(result))
    scratch.rename(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
