"""Compare docs/requirements-forms.md with the rows that tests/cluster/test_cluster_forms.py runs."""

from pathlib import Path

import pytest
from requirements_forms import FORMS, page

PAGE = Path(__file__).resolve().parents[2] / "docs/requirements-forms.md"


def test_the_page_of_the_docs_shows_the_forms(request: pytest.FixtureRequest) -> None:
    """After a change of the rows: --refresh, then read the diff."""
    if request.config.getoption("--refresh"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page()


def test_each_form_has_a_name_of_its_own() -> None:
    assert len({form.title for form in FORMS}) == len(FORMS)
    assert all(form.note for form in FORMS if form.launchers != form.pip)
