"""Test that committed pages match their data, and what README and the site's home page state.

After a change of the data: `pytest tests/unit/test_pages.py --refresh`, then read the diff. Links are checked by the
strict build of the site, in tests/run.sh.
"""

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

import matrix
import outcomes.page
import pytest
import requirements_forms
import yaml

ROOT = Path(__file__).resolve().parents[2]
PINNED = ROOT / "container/lines/2.14/requirements.txt"
HOME = ROOT / "docs/README.md"
ZOO = ROOT / "tests/zoo"
sys.path[:0] = [str(ZOO), str(ROOT / "tests/unit/check/doctor")]
import libraries  # noqa: E402 - after the path is set
import rules_page  # noqa: E402

LONGEST_SCRIPT = 40  # lines
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
    return re.search(rf"^{name}==([^\s;]+)", PINNED.read_text(), re.MULTILINE)[1]


@pytest.fixture(params=FIRST_PAGES)
def begin(request):
    """Return the page's text before its second heading, as one line."""
    text = (ROOT / request.param).read_text()
    return " ".join(re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0].split())


def test_versions_on_first_pages_are_pinned(begin):
    keras = pinned("keras").split(".")[0]
    # Both of these come with Debian; tests/cluster/test_image.py asks the image.
    python, mpi = re.search(r"Python (\d+\.\d+) and Open MPI (\d+\.\d+)", (ROOT / "Dockerfile").read_text()).groups()
    assert (
        f"TensorFlow {pinned('tensorflow-cpu')} with Keras {keras}, Python {python}, Horovod {pinned('horovod')} and "
        f"Open MPI {mpi}, for CPUs only"
    ) in begin


def test_first_pages_state_limits_and_show_report_and_commands(begin):
    assert "never run it on SageMaker itself, on several GPUs, or on EFA" in begin
    assert "benchmarks/gpu.md" in begin
    assert len(re.findall(r"!\[[^]]{40,}\]\((?:docs/)?report\.png\)", begin)) == 1
    assert 10_000 < (ROOT / "docs/report.png").stat().st_size < 200_000
    assert "examples/run.sh" in begin or "Estimator(" in begin


def listed() -> str:
    """Return the groups of `nav` in mkdocs.yml as Markdown for the home page, with links that also work on GitHub."""
    lines = []
    for name, pages in GROUPS.items():
        lines += ["", f"## {name}", ""]
        lines += [f"- [{title}]({link_of(page)})" for entry in pages for title, page in entry.items()]
    return "\n".join([*lines, "", ""])


def link_of(page: str) -> str:
    outside = page.removeprefix("repository/")
    return page if outside == page else posixpath.join("..", outside)


def home() -> str:
    """Return the site's home page, with the pages of mkdocs.yml's `nav`."""
    before, _, rest = HOME.read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n{listed()}{END}{rest.partition(END)[2]}"


PAGES = {
    "README": home,
    "libraries": libraries.page,
    "matrix": matrix.page,
    "outcomes": outcomes.page.page,
    "requirements-forms": requirements_forms.page,
    "rules": rules_page.page,
}


@pytest.mark.parametrize("name", PAGES)
def test_committed_page_matches_its_data(name, request):
    path, wanted = ROOT / f"docs/{name}.md", PAGES[name]()
    if request.config.getoption("--refresh"):
        path.write_text(wanted)
    assert path.read_text() == wanted


def test_matrix_has_each_line_of_the_image():
    assert set(matrix.LINES) == {folder.name for folder in (ROOT / "container/lines").iterdir() if folder.is_dir()}
    for image, way, name in matrix.NEVER:
        assert way in matrix.WAYS and name in matrix.LINES[image.removesuffix(matrix.ON)]


def test_each_requirements_form_has_unique_name_and_reason():
    forms = requirements_forms.FORMS
    assert len({form.title for form in forms}) == len(forms)
    assert all(form.note for form in forms if form.launchers != form.pip)


def test_each_listed_library_has_run_with_a_short_script():
    assert sorted(libraries.results()) == sorted(case.key(line) for case in libraries.CASES for line in case.lines)
    scripts = {ZOO / "scripts" / case.script for case in libraries.CASES if not case.refused}
    assert {*(ZOO / "scripts").glob("*.py")} - {ZOO / "scripts/shown.py"} == scripts
    assert not [path.name for path in scripts if len(path.read_text().splitlines()) > LONGEST_SCRIPT]


def test_security_page_lists_only_vulnerabilities_of_pinned_versions():
    rows = re.findall(r"^\| ([\d.]+) \| ([\w-]+ [\w.]+) \| \[CVE-\d+-\d+\]", (ROOT / "SECURITY.md").read_text(), re.M)
    assert rows
    for line, package in rows:
        pins = (ROOT / "container/lines" / line / "locked.txt").read_text().splitlines()
        assert any(pin.startswith(package.replace(" ", "==") + " ") for pin in pins), (line, package)


def test_every_page_is_in_the_navigation():
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= {page for _, page in ENTRIES}
    assert all((HOME.parent / link_of(page)).is_file() for _, page in ENTRIES)


def test_navigation_is_short():
    assert list(GROUPS) == ["Start", "Guides", "Concepts", "Reference", "Measured", "For contributors"]
    assert len(SITE["nav"]) - len(GROUPS) + len(ENTRIES) <= 50
    titles = [title for title, _ in ENTRIES]
    assert len(set(titles)) == len(titles)
    assert not [title for title in titles if ".md" in title or len(title.split()) > 7]


def test_readme_is_one_page():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len([word for word in text.split() if word.strip("|-")]) <= 900  # the lines of a table are none
