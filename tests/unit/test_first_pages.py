"""What README and the docs' first page say that the image holds is what is pinned, and every page can be found.

Links are checked by the strict build of the site, in tests/run.sh.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "container/lines/2.14/requirements.txt"
FIRST_PAGES = ("README.md", "docs/README.md")


def pinned(name: str) -> str:
    return re.search(rf"^{name}==(\S+)$", PINNED.read_text(), re.MULTILINE)[1]


@pytest.fixture(params=FIRST_PAGES)
def begin(request):
    """The page's text before its first table or heading of a part, as one line."""
    text = (ROOT / request.param).read_text()
    return " ".join(re.split(r"^(?:## |\|)", text, maxsplit=1, flags=re.MULTILINE)[0].split())


def test_the_versions_are_those_that_are_pinned(begin):
    said = dict(re.findall(r"\b(TensorFlow|Keras|Python|Horovod|Open MPI) (\d[\d.]*\d|\d)", begin))
    assert said["TensorFlow"] == pinned("tensorflow-cpu")
    assert said["Horovod"] == pinned("horovod")
    assert said["Keras"] == pinned("keras").split(".")[0]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f"/lib/python{said['Python']}/site-packages" in dockerfile
    # Both come with Debian; tests/cluster/test_image.py asks the image.
    assert f"Python {said['Python']} and Open MPI {said['Open MPI']}" in dockerfile


def test_what_was_never_tried_is_said(begin):
    assert "for CPUs only" in begin
    assert "never run on SageMaker itself, on several GPUs, or on EFA" in begin
    assert "benchmarks/gpu.md" in begin


def test_the_docs_first_page_names_every_page():
    linked = set(re.findall(r"\]\(([^)#]+\.md)\)", (ROOT / "docs/README.md").read_text()))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert linked == pages | {"benchmarks/README.md", "benchmarks/gpu.md"}


def test_the_readme_is_one_page():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len([word for word in text.split() if word.strip("|-")]) <= 1000  # the lines of a table are none
