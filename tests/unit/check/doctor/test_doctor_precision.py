"""Test precision and recall of the checks on scripts in the manner of public ones."""

from collections import Counter
from pathlib import Path

import corpus_programs
import corpus_scripts
import pytest
from looking import MPI, MWMS, PS, REQUEST, look

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import _entry_missing, program_of
from entrypoint.check.doctor.planned_job import described
from entrypoint.check.doctor.request import Launch, Request
from entrypoint.check.doctor.rules import rules

LEAST = 0.95
JAX = {"Environment": {"ENTRYPOINT_MODE": "jax"}, "ResourceConfig": {"InstanceCount": 2}}
JOBS = {"none": None, "one": {}, "mpi": MPI, "mwms": MWMS, "ps": PS, "jax": JAX}


def scripts(text: str) -> list[tuple[str, str, set[str], str, str]]:
    """Return (name, job, checks, requirements, source) of each."""
    made = []
    for part in text.strip().split("### ")[1:]:
        head, _, source = part.partition("\n")
        if head.count("|") < 3:  # a requirement in a line of its own
            more, _, source = source.partition("\n")
            head = f"{head}\n{more}"
        name, job, checks, requirements = (each.strip() for each in head.split("|"))
        made.append((name, job, {each.strip() for each in checks.split(",") if each.strip()}, requirements, source))
    return made


def read(text: str) -> list[tuple[str, str, set[str], str, str]]:
    """Return the scripts; requirements may have a second line."""
    lines: list[str] = []
    for line in text.splitlines():
        if lines and lines[-1].startswith("### ") and line.startswith(("git+", "tensorflow-hub")):
            lines[-1] += ";" + line
        else:
            lines.append(line)
    return [(*each[:3], each[3].replace(";", "\n"), each[4]) for each in scripts("\n".join(lines))]


@pytest.mark.usefixtures("looks_here")
def test_precision_and_recall(tmp_path: Path, capsys) -> None:
    right, wrong, missed, errors_wrong, errors = Counter(), Counter(), Counter(), Counter(), Counter()
    told = []
    short = read(corpus_scripts.HEALTHY) + read(corpus_scripts.ILL)
    assert len(short) >= 60
    cases = [(name, source, JOBS[job], requirements, {}, wanted) for name, job, wanted, requirements, source in short]
    cases += [
        (f"program: {name}", each.script, each.change, each.requirements, each.files, each.wanted)
        for name, each in corpus_programs.PROGRAMS.items()
    ]
    for name, source, change, requirements, files, wanted in cases:
        folder = tmp_path / name
        folder.mkdir()
        for beside, text in files.items():
            (folder / beside).write_text(text)
        report = look(folder, source, change, requirements)
        worse = [each for each in report.findings if each.severity > Severity.NOTE]
        seen = {
            each.check
            for each in worse
            if each.severity is Severity.ERROR or each.check not in corpus_scripts.NOT_LABELLED
        }
        right.update(seen & wanted)
        wrong.update(seen - wanted)
        missed.update(wanted - seen)
        of_errors = {each.check for each in worse if each.severity is Severity.ERROR}
        errors.update(of_errors)
        errors_wrong.update(of_errors - wanted)
        told += [f"{name}: {sorted(seen - wanted)} too many, {sorted(wanted - seen)} missed"] if seen != wanted else []
    for name, (program, files, missing) in corpus_programs.ENTRIES.items():
        folder = tmp_path / f"entry {name}"
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        launch = Launch(entry_point=program, source_dir=str(folder))
        job = described(Request(body=REQUEST, file="submit.py", line=3, launch=launch))
        seen = program_of(job, ()) is None and _entry_missing(job) != []
        (right if missing else wrong)["entry-missing"] += seen
        missed["entry-missing"] += missing and not seen
        errors["entry-missing"] += seen
        errors_wrong["entry-missing"] += seen and not missing
    with capsys.disabled():
        print(f"\n{'check':22} right wrong missed precision recall")
        for check in sorted({*right, *wrong, *missed}):
            one, two, three = right[check], wrong[check], missed[check]
            precision, recall = one / (one + two or 1), one / (one + three or 1)
            print(f"{check:22} {one:5} {two:5} {three:6} {precision:9.2f} {recall:6.2f}")
        never = {
            name.partition("/")[0]
            for name, rule in rules().items()
            if rule.of == "training script" and "error" in rule.severity
        }
        print("errors that no script here has:", *sorted(never - {*right, *wrong, *missed}))
        print("\n".join(told))
    low = {check for check in errors if 1 - errors_wrong[check] / errors[check] < LEAST}
    assert not low, f"{sorted(low)} are errors with a precision under {LEAST}: {told}"
    assert not missed.total() and not wrong.total(), told
    assert not never - {*right}, "each error has a script that has it"
