"""Render a page in headless Chromium, without a network and with an empty profile."""

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr",
    "--mute-audio", "--proxy-server=127.0.0.1:9", "--disable-dev-shm-usage",
)  # fmt: skip
PATIENCE = 300.0  # seconds, on a machine that does other things
SCHEMES = {"dark": "0", "light": "1"}  # as Chromium numbers what the reader prefers


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A page after its scripts have run."""

    dom: str
    complaints: list[str]  # on the console: errors, and what the page was not allowed to load
    picture: Path | None


class Browser:
    """A browser that opens each page in its own Chromium."""

    def __init__(self, program: str, folder: Path) -> None:
        self._program, self._folder = program, folder

    def open(
        self, page: Path | str, *, width: int = 1280, height: int = 2000, scheme: str = "light", pictured: bool = False
    ) -> Shown:
        """Return the page of a file or an address after its scripts. A picture takes a second start of Chromium."""
        picture = self._folder / f"page-{width}-{scheme}.png"
        size = (f"--window-size={width},{height}", f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}")
        shot = self._run(page, *size, f"--screenshot={picture}").stderr if pictured else ""
        dom = self._run(page, *size, "--dump-dom")
        complaints = re.findall(r"CONSOLE[^\]]*\] (.*)", shot + dom.stderr)
        return Shown(dom=dom.stdout, complaints=complaints, picture=picture if picture.exists() else None)

    def dom(self, page: Path) -> str:
        """Return the page directly after its scripts."""
        return self._run(page, "--dump-dom").stdout

    def width_in(self, page: str, width: int, parts: str) -> int:
        """Return the width of the widest of `parts` (a selector) of this HTML, with what they hide, in such a frame.

        Chromium's window is no smaller than 500 px where it is not for a picture.
        """
        widths = f"[...document.querySelectorAll('html, {parts}')].map(its => its.scrollWidth)"
        probe = f"<script>setTimeout(() => console.log('wide', Math.max(...{widths})), 1000)</script>"
        (self._folder / "inside.html").write_text(page + probe, "utf-8")
        frame = self._folder / "frame.html"
        frame.write_text(f'<iframe src="inside.html" style="width: {width}px; border: 0"></iframe>', "utf-8")
        (found,) = re.findall(r'CONSOLE[^\]]*\] "wide (\d+)"', self._run(frame, "--dump-dom").stderr)
        return int(found)

    def print(self, page: Path) -> tuple[int, list[str]]:
        """Print the page as a PDF; return the number of its sheets, and the console output of the page."""
        paper = self._folder / "page.pdf"
        errors = self._run(page, f"--print-to-pdf={paper}", "--no-pdf-header-footer").stderr
        return len(re.findall(rb"/Type /Page\b", paper.read_bytes())), re.findall(r"CONSOLE[^\]]*\] (.*)", errors)

    def _run(self, page: Path | str, *options: str) -> "subprocess.CompletedProcess[str]":
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as profile:
            environment = {**os.environ, "HOME": profile, "XDG_CONFIG_HOME": profile, "XDG_CACHE_HOME": profile}
            return subprocess.run(
                [self._program, *OPTIONS, f"--user-data-dir={profile}/user", "--virtual-time-budget=5000", *options,
                 page if isinstance(page, str) else page.as_uri()],
                env=environment, capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=True,
            )  # fmt: skip


def browser_in(folder: Path) -> Browser:
    """Return a browser that writes its files into `folder`. Without a browser skip the test, or fail with CI=true."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not program:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("needs Chromium: apt-get install chromium")
    return Browser(program, folder)
