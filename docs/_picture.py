"""Take the picture of the report, docs/report.png: run a job of a minute, make its report, open it in Chromium.

    python docs/_picture.py

It takes Open MPI, mpi4py, NumPy, Pillow and Chromium. README.md and docs/README.md show the picture.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))
from browser import OPTIONS  # noqa: E402

JOB = "slow-reader"
WIDTH, HEIGHT, SCALE = 1000, 866, 1.5  # down to the end of the timeline
COLOURS = 256


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page, picture = folder / "report.html", folder / "report.png"
        # The disk of whoever runs this is none of the reader's business.
        entrypoint("local", DOCS / "_picture_job.py", "--hosts", "4", "--mode", "mpi", "--output", folder / "job",
                   "--env", f"TRAINING_JOB_NAME={JOB}", "--env", "ENTRYPOINT_RULES=disk=off")  # fmt: skip
        entrypoint("report", folder / "job", "--price", "0.82", "--rules", "disk=off", "--output", page)
        chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("wanted: Chromium")
        view = (f"--window-size={WIDTH},{HEIGHT}", f"--force-device-scale-factor={SCALE}")
        light = "--blink-settings=preferredColorScheme=1"
        run(chromium, *OPTIONS, f"--user-data-dir={folder / 'user'}", "--virtual-time-budget=5000", *view, light,
            f"--screenshot={picture}", page.as_uri())  # fmt: skip
        Image.open(picture).convert("RGB").quantize(COLOURS).save(DOCS / "report.png", optimize=True)


def entrypoint(*words: str | Path) -> None:
    run(sys.executable, "-m", "entrypoint", *words)


def run(*words: str | Path) -> None:
    subprocess.run(words, cwd=DOCS.parent, check=True)


if __name__ == "__main__":
    main()
