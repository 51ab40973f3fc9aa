"""Test precision and recall of the rules on the scripts of corpus/, which are like public ones."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from builders import write_files
from looking import HERE, REQUEST, look_at, read_toml, script

from entrypoint.base.severity import Severity
from entrypoint.check.doctor.doctor import _entry_missing, program_of
from entrypoint.check.doctor.planned_job import described
from entrypoint.check.doctor.request import Launch, Request
from entrypoint.check.doctor.rulebook import rules
from entrypoint.usercode.source import Place

# Warnings that do not count here: docs/doctor.md says how often they were right on public scripts.
NOT_LABELLED = {
    *("no-checkpoint", "no-resume", "checkpoint-elsewhere", "no-sigterm", "no-model", "all-save", "chief-saves-alone"),
    *("no-shards", "uneven-ranks", "gpus-idle", "model-dir-s3", "s3-path", "path", "hvd-no-pin", "job-warning"),
    "plan-note",
}
# Programs that launch scripts name, the files of their folders, and whether that is a fault.
ENTRIES = {
    "another name": ("trian.py", ("train.py", "requirements.txt"), True),
    "in a folder of the folder": ("train.py", ("training/train.py", "utils.py"), True),
    "the name": ("train.py", ("train.py", "utils.py"), False),
    "a path in the folder": ("training/train.py", ("training/train.py", "setup.cfg"), False),
}


def short(name: str) -> dict[str, dict[str, Any]]:
    """Return the scripts of a file. Each begins with the line `### NAME | JOB | RULES | REQUIREMENTS`."""
    made = {}
    for part in (HERE / f"corpus/{name}.txt").read_text().split("### ")[1:]:
        head, _, text = part.partition("\n")
        title, job, wanted, requirements = (each.strip() for each in head.split("|"))
        made[f"{name} {title}"] = {
            "text": text, "job": job, "wanted": wanted.replace(",", " ").split(),
            "requirements": requirements.replace("; ", "\n"),
        }  # fmt: skip
    return made


@pytest.mark.usefixtures("resolves_here")
def test_rules_reach_required_precision_and_recall(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong, missed, told = Counter[str](), Counter[str](), Counter[str](), list[str]()
    examples = {**short("short_right"), **short("short_wrong"), **read_toml("corpus/programs.toml")}
    for name, example in examples.items():
        folder = tmp_path / name
        folder.mkdir()
        wanted = set(example.get("wanted", ()))
        worse = [each for each in look_at(folder, example).findings if each.severity > Severity.NOTE]
        seen = {each.check for each in worse if each.severity is Severity.ERROR or each.check not in NOT_LABELLED}
        right.update(seen & wanted)
        wrong.update(seen - wanted)
        missed.update(wanted - seen)
        told += [f"{name}: {sorted(seen - wanted)} too many, {sorted(wanted - seen)} missed"] if seen != wanted else []
    for name, (program, files, is_fault) in ENTRIES.items():
        texts = {path: script("mnist") if path.endswith("train.py") else "" for path in files}
        folder = write_files(tmp_path / f"entry {name}", texts)
        launch = Launch(entry_point=program, source_dir=str(folder))
        job = described(Request(body=REQUEST, file="submit.py", line=3, launch=launch))
        findings = _entry_missing(job)
        assert all("train.py" in each.instead for each in findings)  # which is there
        seen_missing = program_of(job, ()) is None and findings != []
        (right if is_fault else wrong)["entry-missing"] += seen_missing
        missed["entry-missing"] += is_fault and not seen_missing
    with capsys.disabled():
        print(f"\n{'check':22} right wrong missed precision recall")
        for check in sorted({*right, *wrong, *missed}):
            one, two, three = right[check], wrong[check], missed[check]
            precision, recall = one / (one + two or 1), one / (one + three or 1)
            print(f"{check:22} {one:5} {two:5} {three:6} {precision:9.2f} {recall:6.2f}")
        print("\n".join(told))
    assert not missed.total() and not wrong.total(), told
    of_scripts = {name for name, rule in rules().items() if rule.of == "training script" and "error" in rule.severity}
    assert {name for name in of_scripts if "/" not in name} <= right.keys(), "each error has a script that has it"


def told_line(place: Place) -> str:
    """Return the name of a finding's file, and its line."""
    path = Path(place.file)
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return f"{path.name} {lines[place.line - 1] if 0 < place.line <= len(lines) else ''}"


FOUND = 327  # of the wrong jobs of jobs.toml


@pytest.mark.usefixtures("resolves_here", "index")
def test_corpus_findings_match_wrong_jobs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Examine jobs written without knowledge of the doctor. A finding counts if it or its line contains `at`."""
    found, alarms = dict[str, bool](), set[str]()
    for at, (name, job) in enumerate(read_toml("corpus/jobs.toml").items()):
        folder = tmp_path / str(at)
        for file in ("train.py", *job.get("files", ())):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
        worse = [each for each in look_at(folder, job).findings if each.severity > Severity.NOTE]
        if "wrong" in job:
            words = [f"{each.found} {each.instead} {each.place and told_line(each.place)}" for each in worse]
            found[name] = any(job["at"].lower() in each.lower() for each in words)
        elif worse:
            alarms.add(name)
    with capsys.disabled():
        print(f"\nthe doctor finds {sum(found.values())} of {len(found)} wrong jobs; false alarms: {sorted(alarms)}")
    assert not alarms
    assert sum(found.values()) >= FOUND, [name for name, is_found in found.items() if not is_found]
