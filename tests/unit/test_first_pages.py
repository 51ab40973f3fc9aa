"""Test README and the site's home page: what they state of the image, and the list of pages.

Links are checked by the strict build of the site, in tests/run.sh.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "container/lines/2.14/requirements.txt"
HOME = ROOT / "docs/README.md"
FIRST_PAGES = ("README.md", "docs/README.md")
BEGIN, END = "<!-- pages:begin -->", "<!-- pages:end -->"


class Loader(yaml.SafeLoader):
    """A loader of mkdocs.yml that leaves out Python objects."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
GROUPS: dict[str, list[dict[str, str]]] = {
    name: pages for entry in SITE["nav"] for name, pages in entry.items() if isinstance(pages, list)
}
ENTRIES = [(title, page) for pages in GROUPS.values() for entry in pages for title, page in entry.items()]


def pinned(name: str) -> str:
    return re.search(rf"^{name}==(\S+)$", PINNED.read_text(), re.MULTILINE)[1]


@pytest.fixture(params=FIRST_PAGES)
def begin(request):
    """Return the page's text before its first table or second heading, as one line."""
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


def test_what_was_never_tried_is_stated(begin):
    assert "for CPUs only" in begin
    assert "never run it on SageMaker itself, on several GPUs, or on EFA" in begin
    assert "benchmarks/gpu.md" in begin


def test_a_picture_shows_what_a_job_leaves(begin):
    (picture,) = re.findall(r"!\[[^]]{40,}\]\(((?:docs/)?report\.png)\)", begin)
    assert picture
    assert 10_000 < (ROOT / "docs/report.png").stat().st_size < 200_000


def test_something_to_type_or_copy_comes_first(begin):
    assert "examples/run.sh" in begin or "Estimator(" in begin


def listed() -> str:
    """Return the groups of mkdocs.yml's `nav` as the home page has them, with links that work on GitHub, too."""
    lines = []
    for name, pages in GROUPS.items():
        lines += ["", f"## {name}", ""]
        lines += [f"- [{title}]({link_of(page)})" for entry in pages for title, page in entry.items()]
    return "\n".join([*lines, "", ""])


def link_of(page: str) -> str:
    outside = page.removeprefix("repository/")
    return page if outside == page else posixpath.join("..", outside)


def test_the_home_page_lists_the_pages_of_the_navigation(request):
    """After a change of `nav`: --refresh, then read the diff."""
    before, _, rest = HOME.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    wanted = f"{before}{BEGIN}\n{listed()}{END}{after}"
    if request.config.getoption("--refresh"):
        HOME.write_text(wanted)
    assert HOME.read_text() == wanted


def test_every_page_of_the_docs_is_in_the_navigation():
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= {page for _, page in ENTRIES}
    assert all((HOME.parent / link_of(page)).is_file() for _, page in ENTRIES)


def test_the_navigation_can_be_read_at_a_glance():
    assert list(GROUPS) == ["Start", "Guides", "Concepts", "Reference", "Project"]
    assert len(SITE["nav"]) - len(GROUPS) + len(ENTRIES) <= 50
    titles = [title for title, _ in ENTRIES]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if ".md" in title or len(title.split()) > 7]


def test_the_readme_is_one_page():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len([word for word in text.split() if word.strip("|-")]) <= 900  # the lines of a table are none
