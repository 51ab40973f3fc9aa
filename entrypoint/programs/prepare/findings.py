"""Find facts about the code and the software around it: flags for the plan, digests to compare between hosts."""

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import code_files as files
from pins import Installed, changed, installed

# TensorFlow's, not that of SageMaker's SDK, which scripts that submit jobs use.
ESTIMATOR = re.compile(
    r"\btf\.estimator\b"
    r"|(?<!sagemaker\.)(?<!sagemaker\.tensorflow\.)\bestimator\.(Estimator|train_and_evaluate|RunConfig)\b"
)
TF1_SESSIONS = re.compile(
    rf"{ESTIMATOR.pattern}|\bMonitoredTrainingSession\b"
    r"|\bMonitoredSession\b|\bSessionCreator\b|\btrain\.Supervisor\b|\breplica_device_setter\b"
)

LEFT_BEHIND = re.compile(r"(^|/)(__pycache__|[^/]*\.egg-info)(/|$)")
LARGE_BYTES = 16 << 20  # bytes
FIRST_WITH_KERAS_3 = (2, 16)  # of TensorFlow
NAMED = ("tensorflow", "tensorflow-cpu", "keras", "horovod", "mpi4py", "numpy", "protobuf", "sagemaker-tf-entrypoint")

TRAIN, STARTS_SERVER = re.compile(r"\.train\("), re.compile(r"\btrain_and_evaluate\b|\bServer\(|\bstart_std_server\b")
TF2_COORDINATOR = re.compile(r"\bClusterCoordinator\b|(?<!v1\.)\bdistribute(\.experimental)?\.ParameterServerStrategy")
# A string, which is kept with its `#`, or a comment.
STRING_OR_COMMENT = re.compile(
    r"""("{3}(?:\\.|[^\\])*?"{3}|'{3}(?:\\.|[^\\])*?'{3}"""
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|[^\S\n]*#[^\n]*""",
    re.DOTALL,
)
MASTER = re.compile(r"""(['"])master\1""")
CHIEF = re.compile(r"""(['"])chief\1""")


def flags(files: list[tuple[str, str]]) -> list[str]:
    """Return flags of what the code uses, by its words: TF1's sessions or estimators. They decide no end of a job."""
    text = "\n".join(text for _, text in files)
    if TF2_COORDINATOR.search(text) or not TF1_SESSIONS.search(text):
        return []
    # With `chief` in place of `master`, an Estimator neither evaluates nor exports; nor do scripts that check for it.
    for_aws = (ESTIMATOR.search(text) or MASTER.search(text)) and not CHIEF.search(text)
    serverless = ESTIMATOR.search(text) and TRAIN.search(text) and not STARTS_SERVER.search(text)
    return ["tf1-sessions", *(["tf1-train"] if serverless else []), *(["tf1-master"] if for_aws else [])]


def texts(code: Path) -> Iterator[tuple[str, str]]:
    """Yield each Python file, at most 2,000 of them: its name below `code`, and its text without comments."""
    for path in files.ending(code, ".py"):
        with contextlib.suppress(OSError):
            if path.stat().st_size <= files.READ_BYTES:
                yield str(path.relative_to(code)), without_comments(path.read_text("utf-8", errors="replace"))


def without_comments(text: str) -> str:
    """Return a program without comments. All lines stay, since findings are reported by line number."""
    return STRING_OR_COMMENT.sub(r"\1", text)


def digest_of_code(code: Path) -> str:
    """Return 12 characters for the user's code as it was fetched: names and contents, not what running it leaves."""
    import hashlib

    whole = hashlib.sha256()
    for path in sorted(Path(entry.path) for entry in files.below(code)):
        inside = path.relative_to(code)
        if not path.is_file() or inside.parts[0] in (".git", "build") or LEFT_BEHIND.search(str(inside)):
            continue
        with contextlib.suppress(OSError):
            size = path.stat().st_size
            whole.update(f"{inside}\0{size}\0".encode("utf-8", "surrogateescape"))
            with path.open("rb") as file:  # of large files, most likely data, the size and the beginning
                whole.update(file.read(LARGE_BYTES))
    return whole.hexdigest()[:12]


def digest(text: str | bytes) -> str:
    import hashlib

    return hashlib.sha256(text if isinstance(text, bytes) else text.encode()).hexdigest()[:12]


def software(before: Mapping[str, Installed] | None = None) -> dict[str, str]:
    """Return versions of what a job consists of: Python, the packages that matter most, and the rest as one digest.

    What requirements have installed is named in lines; `before` is what was there.
    """
    after = installed()
    there = {name: each.version for name, each in after.items()}
    found = {"Python": sys.version.split()[0]}
    found |= {name: there.get(name, "") for name in NAMED}
    if before is not None:
        found["installed by requirements"] = "\n".join(
            sorted(f"{name} {there[name]}" for name in changed(before, after))
        )
    found["the set of Python packages"] = digest(json.dumps(sorted(there.items())))
    with contextlib.suppress(OSError):
        found["the set of Debian packages"] = digest(Path("/var/lib/dpkg/status").read_bytes())
    return found
