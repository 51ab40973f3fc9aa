"""Test that the documents, the doctor's rules and its code agree."""

import re
from pathlib import Path

from entrypoint.check.doctor.aws_images import AWS_COMMANDS, AWS_COMMANDS_ON_GPUS, on_aws, ours
from entrypoint.check.doctor.rulebook import rules

ROOT = Path(__file__).resolve().parents[4]


def test_page_lists_rules():
    listed = []
    for table in re.findall(r"^\| in the .*?\n\n", (ROOT / "docs/doctor.md").read_text(), re.M | re.S):
        (_, head, *_), _, *rows = (re.split(r" *\| *", line) for line in table.splitlines() if line)
        listed += [(head.removeprefix("in the "), name, severity, finds) for _, name, severity, finds, _ in rows]
    own = {name: rule for name, rule in rules().items() if "/" not in name}
    assert len(own) > 60
    assert listed == [(rule.of, f"`{name}`", rule.severity, rule.finds) for name, rule in own.items()]


def test_findings_have_rules():
    code = "\n".join(path.read_text() for path in (ROOT / "entrypoint/check/doctor").glob("*.py"))
    assert {*re.findall(r'\bfinding\(\s*"([\w/-]+)"', code)} <= rules().keys()


def test_page_on_differences_names_what_our_image_lacks():
    page = (ROOT / "docs/differences.md").read_text()
    assert {each for each in AWS_COMMANDS | AWS_COMMANDS_ON_GPUS if f"`{each}`" not in page} == set()
    known = {"pandas", "PIL", "cv2", "matplotlib", "tqdm", "tensorflow_hub", "tensorflow_datasets", "seaborn", "shap"}
    known |= {"plotly", "bokeh", "imageio", "numba", "smclarify", "IPython", "tensorflow_text", "official"}
    assert known <= on_aws((2, 14))
    assert {each for each in known & (on_aws((2, 14)) - ours((2, 14))) if f"`{each}`" not in page} == set()
