"""Take the picture of the report, docs/report.png: run a job of a minute, make its report, open it in Chromium.

    python docs/_picture.py [FOLDER]

FOLDER is the output of such a job, if it has been run before. A job takes Open MPI, mpi4py and NumPy; the picture takes
Pillow and Chromium. README.md and docs/README.md show it.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS.parent / "tests"))
from browser import OPTIONS  # noqa: E402

JOB = "slow-reader"
RULES = "disk=off"  # the disk of whoever runs this is none of the reader's business
WIDTH, SCALE, MARGIN = 1000, 1.5, 24
NO_MORE = "<style>#timeline ~ section { display: none }</style></head>"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        page, picture = folder / "report.html", folder / "report.png"
        job = Path(sys.argv[1]) if sys.argv[1:] else run_job(folder / "job")
        run(sys.executable, "-m", "entrypoint", "report", job, "--price", "0.82", "--rules", RULES, "--output", page)
        page.write_text(page.read_text("utf-8").replace("</head>", NO_MORE, 1), "utf-8")
        take(page, picture, folder / "user")
        cropped(Image.open(picture).convert("RGB")).quantize().save(DOCS / "report.png", optimize=True)


def run_job(output: Path) -> Path:
    settings = {"TRAINING_JOB_NAME": JOB, "ENTRYPOINT_RULES": RULES}
    given = [word for each in settings.items() for word in ("--env", "=".join(each))]
    command = (sys.executable, "-m", "entrypoint", "local", DOCS / "_picture_job.py", "--hosts", "4", "--mode", "mpi")
    run(*command, "--output", output, *given)
    return output


def take(page: Path, picture: Path, profile: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or sys.exit("wanted: Chromium")
    view = (f"--window-size={WIDTH},1200", f"--force-device-scale-factor={SCALE}")
    light = "--blink-settings=preferredColorScheme=1"
    run(chromium, *OPTIONS, f"--user-data-dir={profile}", "--virtual-time-budget=5000", *view, light,
        f"--screenshot={picture}", page.as_uri())  # fmt: skip


def cropped(picture: Image.Image) -> Image.Image:
    """Return the picture without the empty page below its last row."""
    empty = Image.new("RGB", picture.size, picture.getpixel((0, picture.height - 1)))
    _, _, _, last = ImageChops.difference(picture, empty).getbbox()
    return picture.crop((0, 0, picture.width, last + MARGIN))


def run(*words: str | Path) -> None:
    subprocess.run(words, cwd=DOCS.parent, check=True)


if __name__ == "__main__":
    main()
