"""Run the GPU ring: `python tests/gpu run` runs its cases here, `python tests/gpu pack` packs images for elsewhere.

On processors, in the Python that runs this:

    python tests/gpu run --cpu
    python tests/gpu run --cpu facts 'kills and resumes'

For a machine with a GPU, tests/gpu/prepare.sh builds the images and packs them; there, tests/gpu/on_gpu.sh unpacks them
and calls this in each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder: our modules are gpu.NAME

from gpu import card, packing  # noqa: E402  (after the path is set)
from gpu.cases import chosen  # noqa: E402
from gpu.judge import Row, table, verdict  # noqa: E402
from gpu.running import Here, run  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run cases, print the table; exit code 1 if one came out otherwise")
    runs.add_argument("case", nargs="*", help="by default, all that this image is to run")
    runs.add_argument("--cpu", action="store_true", help="without a GPU, what can be run without one")
    runs.add_argument("--image", help="its name in the table; by default, the line of its TensorFlow")
    runs.add_argument("--output", type=Path, help="a new folder for jobs, logs and results.json")
    runs.add_argument("--seconds", type=float, default=float("inf"), help="what does not fit in is not run")
    runs.add_argument("--at-once", type=int, default=1, metavar="N", help="of the cases that may run beside others")
    packing.add_arguments(commands.add_parser("pack", help="pack images in pieces"))
    args = parser.parse_args()
    try:
        return packing.main(args) if args.command == "pack" else ring(args)
    except (ValueError, OSError, subprocess.SubprocessError) as error:
        print(f"tests/gpu: {error}", file=sys.stderr)
        return 2


def ring(args: argparse.Namespace) -> int:
    """Run the requested cases; print the table and the failures."""
    gpus = card.names()
    if not args.cpu and not gpus:
        raise ValueError("found no GPU by nvidia-smi; wanted one, or --cpu for what can be run without")
    image = args.image or line()
    cases = chosen(image, args.case, gpu=not args.cpu)
    output = args.output or Path(tempfile.mkdtemp(prefix="gpu-ring-"))
    output.mkdir(parents=True, exist_ok=bool(not args.output))
    here = Here(image, not args.cpu, output.resolve(), until=time.monotonic() + args.seconds)
    print(f"on {'; '.join(gpus) if here.gpu else 'CPUs'}, TensorFlow {version()}; logs in {here.output}", flush=True)
    rows: dict[str, Row] = {}
    beside = sorted((case for case in cases if not case.alone), key=lambda case: -case.limit)
    with ThreadPoolExecutor(args.at_once) as pool:
        for row in pool.map(lambda case: run(case, here), beside):
            rows[row.case] = told(row)
    for case in cases:
        if case.alone:
            rows[case.name] = told(run(case, here))
    in_order = [rows[case.name] for case in cases]
    code, words = verdict(in_order)
    print(f"\n{table(in_order)}\n\n{words}", flush=True)
    results = [{**vars(row), "outcome": row.outcome} for row in in_order]
    found = {"gpus": gpus, "tensorflow": version(), "rows": results}
    (here.output / "results.json").write_text(json.dumps(found, indent=1))
    return code


def told(row: Row) -> Row:
    """Print how a case ended while others still run."""
    words = (row.outcome, *row.complaints, *row.seen)
    print(f"{row.case}: {'; '.join(words)}" + f", after {row.seconds:.0f} s" * bool(row.seconds), flush=True)
    return row


def version() -> str:
    """Return the version of the installed TensorFlow."""
    for name in ("tensorflow", "tensorflow-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            pass
    raise ValueError(f"found no TensorFlow in {sys.executable}; wanted the Python of an image, or .venv's")


def line() -> str:
    """Return the image's line, such as 2.21 for TensorFlow 2.21.0."""
    return ".".join(version().split(".")[:2])


if __name__ == "__main__":
    sys.exit(main())
