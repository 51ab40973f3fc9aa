"""Check a launch script: whether it reaches a training job, and which of its arguments the SDK silently drops."""

from collections.abc import Iterator

from entrypoint.base.errors import clip
from entrypoint.check.doctor.run_launch_script import Launched
from entrypoint.check.finding import Finding, Place, error, note, warning

_SDK_MODULES = ("sagemaker", "boto3", "botocore")
# Switches of `distribution=`, with the value of ENTRYPOINT_MODE for each.
_MODES = {"parameter_server": "ps", "multi_worker_mirrored_strategy": "mwms", "mpi": "mpi", "smdistributed": "mpi"}


def _told(launched: Launched) -> str:
    """Return what ended the script; if it only exited with a code, also its last line of output."""
    last = launched.output.splitlines()[-1:] if launched.problem.startswith("it exits") else []
    return clip(" ".join(": ".join([launched.problem, *last]).split()))


def of_launch(launched: Launched, shown: str, python: str) -> Iterator[Finding]:
    """Yield why a launch script fails or submits nothing, and which of its arguments the SDK drops."""
    place = Place(file=shown, line=launched.line)
    if launched.missing in _SDK_MODULES:
        yield error(
            "no-sdk",
            f"it imports {launched.missing}, which {python} does not have: its request cannot be made",
            "--python PYTHON, of an environment with the SDK (`pip install sagemaker`, or `'sagemaker<3'`); or name a "
            "CreateTrainingJob request (JSON)",
            place=place,
        )
    elif launched.problem:
        make = note if launched.requests else error
        more = " after it has asked for a job" if launched.requests else ""
        instead = (
            "what it needs up to its first job: variables, files, arguments behind --args. It has no network, starts "
            "no program, and AWS's answers are invented"
        )
        if launched.problem.startswith("TypeError") and any(each.unversioned for each in launched.launches):
            instead = 'framework_version="2.14", without which SDK v2 has no workers that mirror; it is not sent'
        yield make(
            "launch-failed", f"run without a network, the script fails{more}: {_told(launched)}", instead, place=place
        )
    elif not launched.requests:
        yield error(
            "no-request",
            "the script ends without a training job",
            "a call of fit, train or create_training_job",
            place=place,
        )
    for launch in launched.launches:
        at = Place(file=shown, line=launch.line)
        if launch.renamed:
            yield note(
                "argument-renamed",
                f"{', '.join(launch.renamed)}: names of SDK v1, which v2 still takes and warns of",
                ", ".join(f"{new}=" for new in launch.renamed.values()),
                place=at,
            )
        for name, value in launch.dropped.items():
            if name == "distribution":
                mode = next((ours for word, ours in _MODES.items() if word in value), "MODE")
                yield error(
                    "distribution-dropped",
                    f"{launch.maker} takes distribution={value} and silently drops it: it is not in the request",
                    f'environment={{"ENTRYPOINT_MODE": "{mode}"}}'
                    + (', and "ENTRYPOINT_PROCESSES_PER_HOST"' if "processes_per_host" in value else ""),
                    place=at,
                )
            else:
                yield warning(
                    "argument-dropped",
                    f"{launch.maker} takes {name}={value}, but the SDK never reads it",
                    "another name, or none",
                    place=at,
                )
