"""Add the files outside of docs/ that pages link to, and rank them in search; warn of pictures older than their source.

The links of a page work on GitHub and on the site. The files become part of the site under `repository/`, so that
the strict build checks links to them, too.
"""

import hashlib
import os
import posixpath
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OUTSIDE = "repository"
ASIDE = (OUTSIDE, "benchmarks", "decisions", "writing")  # where the pages begin that are not for users
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_log = get_plugin_logger(__name__)


def on_config(config: MkDocsConfig) -> None:
    """Show the version below each page and, if the checkout's origin has a web address, a link to the repository."""
    config.copyright = f"sagemaker-tf-entrypoint {version('sagemaker-tf-entrypoint')}, Apache-2.0"
    asked = subprocess.run(["git", "remote", "get-url", "origin"], cwd=ROOT, capture_output=True, text=True)
    if origin := re.fullmatch(r"https://(?:[^@/]*@)?(.+?)(?:\.git)?\s*", asked.stdout):
        config.repo_url = f"https://{origin[1]}"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that pages link to, and those that these link to."""
    pages = [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]
    found = set(ROOT.glob("*.md"))
    while pages:
        new = {path for path in _links(pages.pop()) if path.is_file() and not path.is_relative_to(DOCS)} - found
        found |= new
        pages += [path for path in new if path.suffix == ".md"]
    for path in sorted(found):
        files.append(File.generated(config, _uri(path), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the target of each link by its place on the site; MkDocs warns of those that have none.

    In search, pages of users stand above those of contributors and of benchmarks.
    """
    here = Path(page.file.abs_src_path)
    is_for_users = page.file.src_uri.startswith(f"{OUTSIDE}/examples") or not page.file.src_uri.startswith(ASIDE)
    page.meta.setdefault("search", {"boost": 1 if is_for_users else 0.01})

    def moved(link: re.Match[str]) -> str:
        target = _target(here, link[0])
        if not target.is_file():
            return link[0]
        return posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri) or ".")

    return _LINK.sub(moved, markdown)


def on_pre_build(config: MkDocsConfig) -> None:
    """Warn of a picture that was not drawn from its present source: docs/_draw.py writes a digest into it."""
    for source in sorted(DOCS.glob("*.dot")):
        digest = hashlib.sha256(source.read_bytes()).hexdigest()
        picture = source.with_suffix(".svg")
        if not picture.exists() or digest not in picture.read_text():
            _log.warning(f"docs/{picture.name} is not drawn from docs/{source.name} as it is: run docs/_draw.py")


def _links(page: Path) -> Iterator[Path]:
    return (_target(page, link) for link in _LINK.findall(page.read_text()))


def _target(page: Path, link: str) -> Path:
    """Return the file that a link of a page leads to; for a folder, its README.md."""
    path = Path(os.path.normpath(page.parent / link))
    return path / "README.md" if path.is_dir() else path


def _uri(path: Path) -> str:
    """Return the place of a file of the repository on the site."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{OUTSIDE}/{path.relative_to(ROOT).as_posix()}"
