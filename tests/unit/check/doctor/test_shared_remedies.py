"""Test that the log, `entrypoint local` and the report state the remedy that the doctor shows for the same fault."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import read
from looking import fixed, look_at
from records import GB, trained

from entrypoint.launcher.job.choices import Mode
from entrypoint.launcher.outcome.explain import explain
from entrypoint.launcher.outcome.outcome import Exit
from entrypoint.launcher.plan.planner import plan_for
from entrypoint.launcher.policy import events
from entrypoint.launcher.policy.policy import Policy
from entrypoint.observe.monitor.distributed import advice_on
from entrypoint.observe.monitor.trained_model import TrainedModel, model_of
from entrypoint.observe.report.make import make, told_in

pytestmark = pytest.mark.usefixtures("resolves_here")
PIPE = {"training": {"TrainingInputMode": "Pipe", "S3DistributionType": "FullyReplicated"}}
RANKS = {"ENTRYPOINT_MODE": "mpi", "ENTRYPOINT_PROCESSES_PER_HOST": "2"}
UNKNOWN = TrainedModel()
OUTSIDE, OWN_STEPS = model_of({"made_at": "train.py:3"}), model_of({"made": 2, "trained_at": "train.py:9"})
NCCL = 'Traceback (most recent call last):\n  File "train.py", line 3\nUnknownError: ncclCommInitRank: invalid usage\n'


def alone(mode: Mode, model: TrainedModel = UNKNOWN) -> Callable[[Path], str]:
    return lambda _: advice_on(mode, model)


def of_unused_gpus(folder: Path) -> str:
    job = read(folder, environment={"ENTRYPOINT_MODE": "single"})
    policy, said = Policy(plan_for(job), "algo-1", job.settings, 0.0), ""
    found = events.Prepared(flags=frozenset(), unused_gpus="4 GPUs: tensorflow-cpu 2.14.1 is built without CUDA")
    for each in (events.Due(), found, events.Ended(name="prepare", exit=Exit(code=0))):
        said += "\n".join(action.message for action in policy.on((each,), 1.0) if isinstance(action, events.Say))
    return said


def of_interpreter(folder: Path) -> str:
    (folder / "train.sh").write_text("#!/bin/no-shell\n")
    installing = importlib.import_module("installing")
    with pytest.raises(installing.Unusable) as wrong:
        installing.install("train.sh", folder)
    return str(wrong.value)


def of_idle_gpus(folder: Path) -> str:
    gpus = [[0.9, 8 * GB, 16 * GB, 200.0], [0.0, 0, 16 * GB, 30.0]]
    make({"algo-1": trained(seconds=120, gpus=2, sample={"gpus": gpus}).data}, folder / "report.html")
    return "\n".join(told_in(folder / "report.html", "verdict"))


def of_stop(folder: Path) -> str:
    record = trained()
    record.drop("outcome")
    record.add("phase", 60, "stopping")
    record.ends(66, "stopped", 143)
    make({"algo-1": record.data}, folder / "report.html")
    return "\n".join(told_in(folder / "report.html", "ending"))


SAID: dict[str, Callable[[Path], str]] = {
    "nothing-shared": lambda folder: read(folder, 2).warnings[0],
    "image-and-gpus": of_unused_gpus,
    "pipe-shared": lambda folder: plan_for(read(folder, environment=RANKS, channels=PIPE)).notes[0],
    "interpreter-missing": of_interpreter,
    "no-strategy/mwms": alone(Mode.MWMS),
    "no-strategy/ps": alone(Mode.PS),
    "no-strategy/jax": alone(Mode.JAX),
    "jax-nothing-shared": alone(Mode.JAX),
    "estimator-never-ends": alone(Mode.PS),
    "tf-config-written/alone": alone(Mode.MWMS),
    "model-outside-scope": alone(Mode.MWMS, OUTSIDE),
    "no-strategy-run": alone(Mode.MWMS, OWN_STEPS),
    "hvd-no-average": alone(Mode.MPI),
    "hvd-no-pin": lambda _: explain(Exit(code=1), NCCL).error,
    "gpus-idle": of_idle_gpus,
    "no-sigterm": of_stop,
}


@pytest.mark.parametrize("key", SAID)
def test_log_and_report_state_the_remedy_that_the_doctor_shows(key: str, tmp_path: Path) -> None:
    rule, _, of = key.partition("/")
    examples = [each for name, each in fixed() if name == rule and of in ("", each.get("variant"), each.get("job"))]
    shown = set()
    for at, example in enumerate(examples):
        (tmp_path / f"{at}").mkdir()
        shown |= {each.instead for each in look_at(tmp_path / f"{at}", example).findings if each.check == rule}
    said = SAID[key](tmp_path)
    # The log does not know the script's own words.
    assert [remedy for remedy in shown if remedy and re.sub(": model = .*", ": ...", remedy) in said], (shown, said)
