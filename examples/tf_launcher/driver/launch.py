"""Becomes the launcher of our image, in the container of a job that `Launcher` was given to.

It finds what the SDK's script has exported: the fields of `Launcher`, and the program. `--check` only says whether that
will do; what is wrong is then the job's FailureReason.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

FAILURE = Path("/opt/ml/output/failure")


def main() -> None:
    asked = json.loads(os.environ["SM_DISTRIBUTED_CONFIG"])
    ours = {"ENTRYPOINT_MODE": asked["mode"], "SAGEMAKER_PROGRAM": os.environ["SM_ENTRY_SCRIPT"]}
    if asked["process_count_per_node"]:
        ours["ENTRYPOINT_PROCESSES_PER_HOST"] = str(asked["process_count_per_node"])
    if sys.argv[1:] == ["--check"]:
        check(ours)
        return
    # What ends the job before the launcher listens is kept for it; it unblocks the signal itself.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    os.execvpe("train", ["train"], {**os.environ, **ours})


def check(ours: dict) -> None:
    problems = [
        f"environment has {name}={os.environ[name]}, and Launcher(...) asks for {value}; wanted one of them"
        for name, value in ours.items()
        if os.environ.get(name, value) != value
    ]
    if not shutil.which("train"):
        problems.append("this image has no command train; wanted one that build.sh of sagemaker-tf-entrypoint made")
    if problems:
        problem = "; ".join(problems)
        FAILURE.write_text(problem)
        sys.exit(f"tf_launcher: {problem}")


if __name__ == "__main__":
    main()
