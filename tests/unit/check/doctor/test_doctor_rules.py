"""Test that each rule of the doctor finds its fault at its line and nothing else, and that its remedy ends it."""

import re
from pathlib import Path
from typing import Any

import pytest
from looking import check_remedy, fixed, look_at, read_toml

from entrypoint.check.doctor.aws_images import AWS_COMMANDS, AWS_COMMANDS_ON_GPUS, on_aws, ours
from entrypoint.check.doctor.rulebook import rules

pytestmark = pytest.mark.usefixtures("resolves_here")
ROOT = Path(__file__).resolve().parents[4]
EXAMPLES = read_toml("examples.toml")
# Of these no example can be mended here.
NO_REMEDY = {
    "no-sdk": "it is another Python",
    "no-sdk/other": "it is another Python",
    "api/unchecked": "it is another Python",
    "requirements-long": "it is an image of one's own; test_doctor_requirements.py has the finding",
    "requirements-unresolved": "it is an index",
}
HERE = [(rule, example) for rule, example in fixed() if "sdk" not in example]
# A script that is right by one of these is right by all of them.
OF_SCOPES = ("model-outside-scope", "metric-outside-scope", "no-strategy-run")


def test_each_rule_has_a_reason_and_each_remedy_an_example():
    assert EXAMPLES.keys() <= rules().keys() and [name for name, rule in rules().items() if not rule.why] == []
    assert [name for name, examples in EXAMPLES.items() if not any("finds" in each for each in examples)] == []
    shown = {"/".join([name, *filter(None, [each.get("variant")])]) for name, each in fixed()}
    remedies = {(name.partition("/")[0], rules()[name].instead) for name in {*shown, *NO_REMEDY}}
    several = {name.partition("/")[0] for name in rules() if "/" in name}
    assert [
        name
        for name, rule in rules().items()
        if (name.partition("/")[0], rule.instead) not in remedies and not (name in several and not rule.instead)
    ] == []


@pytest.mark.parametrize(
    ("rule", "example"),
    [
        pytest.param(rule, example, id=f"{rule}-{example.get('name', at)}")
        for rule, examples in EXAMPLES.items()
        for at, example in enumerate(examples)
        if "sdk" not in example
    ],
)
def test_doctor_rule_gives_exactly_the_expected_findings(rule: str, example: dict[str, Any], tmp_path: Path) -> None:
    """Check the finding's severity `finds`, its line `at`, its text `says`, and its number `times`.

    An example without `finds` must give no finding of the rule, except for notes if it has `but`.
    """
    names = OF_SCOPES if rule in OF_SCOPES and "finds" not in example else (rule,)
    findings = [each for each in look_at(tmp_path, example).findings if each.check in names]
    seen = [str(each.severity) for each in findings if str(each.severity) != example.get("but")]
    assert set(seen) == ({example["finds"]} if "finds" in example else set())
    assert len(seen) == example.get("times", len(seen))
    assert not seen or example["finds"] in rules()[rule].severity
    if "at" in example:
        texts = {path.name: path.read_text().splitlines() for path in tmp_path.iterdir() if path.is_file()}
        lines = [texts[Path(each.place.file).name][each.place.line - 1] for each in findings if each.place]
        assert any(example["at"] in line for line in lines), lines
    assert example.get("says", "") in " ".join(f"{each.found} {each.instead}" for each in findings)


@pytest.mark.parametrize(("rule", "example"), HERE, ids=[rule for rule, _ in HERE])
def test_remedy_ends_its_finding_and_brings_no_other(rule: str, example: dict[str, Any], tmp_path: Path) -> None:
    check_remedy(rule, example, tmp_path)


@pytest.mark.parametrize("job", ["single", "mpi", "mwms", "ps"])
def test_correct_job_has_no_findings(job: str, tmp_path: Path) -> None:
    assert look_at(tmp_path, {"script": job, "job": job.replace("single", "one")}).findings == ()


def test_every_finding_has_a_rule():
    code = "\n".join(path.read_text() for path in (ROOT / "entrypoint/check/doctor").glob("*.py"))
    assert {*re.findall(r'\bfinding\(\s*"([\w/-]+)"', code)} <= rules().keys()


def test_differences_page_names_tools_missing_from_our_image():
    page = (ROOT / "docs/differences.md").read_text()
    assert {each for each in AWS_COMMANDS | AWS_COMMANDS_ON_GPUS if f"`{each}`" not in page} == set()
    known = {"pandas", "PIL", "cv2", "matplotlib", "tqdm", "tensorflow_hub", "tensorflow_datasets", "seaborn", "shap"}
    known |= {"plotly", "bokeh", "imageio", "numba", "smclarify", "IPython", "tensorflow_text", "official"}
    assert known <= on_aws((2, 14))
    assert {each for each in known & (on_aws((2, 14)) - ours((2, 14))) if f"`{each}`" not in page} == set()
