"""Compare docs/matrix.md with the matrix that tests/cluster/test_cluster_matrix.py runs."""

from pathlib import Path

import pytest
from matrix import LINES, NEVER, ON, WAYS, page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/matrix.md"


def test_the_page_of_the_docs_shows_the_matrix(request: pytest.FixtureRequest) -> None:
    """After a change of the matrix: --refresh, then read the diff."""
    if request.config.getoption("--refresh"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page()


def test_it_has_each_line_of_the_image() -> None:
    lines = {folder.name for folder in (ROOT / "container/lines").iterdir() if folder.is_dir()}
    assert set(LINES) == lines
    assert all(way in WAYS and name in LINES[image.removesuffix(ON)] for image, way, name in NEVER)
