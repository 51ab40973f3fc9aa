"""Measure all pages of docs/benchmarks anew, in some three and a half hours of a quiet machine of two cores.

    python -m benchmarks.all                      # all that is not measured yet, then the pages
    python -m benchmarks.all --plan               # what it would do, and how long that takes
    python -m benchmarks.all --only profile chaos
    python -m benchmarks.all --fresh              # forget what was measured so far

All figures are of one commit and one machine. Called again, it goes on where it stopped. Exit status 1 if a benchmark
failed, 2 if it refused to mix figures, 130 or 143 after Ctrl-C or SIGTERM.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks import machine
from benchmarks.all import plan
from benchmarks.all.child import Interrupted, interrupts, run
from benchmarks.all.state import Refused, State, changed, check_tree, here, other_launcher
from benchmarks.report.figures import BadRecord
from benchmarks.report.pages import FOLDER
from entrypoint.launcher.host.process import become_subreaper

QUIET_SHARE = 0.1  # of all processors, busy with other work
LOOK_SECONDS = 3.0
LAST_LINES = 15  # of a failed benchmark's log
SLOWER = 3.0  # times as long as planned, and then it has failed
LEAST_LIMIT_MINUTES = 20.0


def main(steps: tuple[plan.Step, ...] = plan.STEPS) -> int:
    given = _arguments()
    folder = given.json_folder.resolve()
    try:
        wanted = plan.chosen(given.only, steps)
        state = State(folder, here())
        if given.plan:
            return show(wanted, state)
        with state.alone(), interrupts() as interrupted:
            become_subreaper()  # what a benchmark leaves is found below this process, and ended
            check_tree(changed())
            if given.fresh:
                state.forget()
            state.read()
            return measure(wanted, state, interrupted)
    except (Refused, ValueError) as error:
        print(f"benchmarks.all: {error}", file=sys.stderr)
        return 2
    except Interrupted as error:
        say(f"ended by {error}; nothing is left behind; the same command goes on from here")
        return 128 + error.number


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.all", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plan", action="store_true", help="print the benchmarks, their commands and minutes, and end")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these benchmarks; --plan has the names")
    parser.add_argument("--fresh", action="store_true", help="forget what was measured so far")
    parser.add_argument(
        "--json-folder", type=Path, default=machine.ROOT / FOLDER, metavar="FOLDER",
        help=f"where the JSON files go (default: {FOLDER}); the pages of another one go below it",
    )  # fmt: skip
    return parser.parse_args()


def show(steps: list[plan.Step], state: State) -> int:
    """Print the plan: for each benchmark its minutes, whether it is done, what it lacks, and its commands."""
    images, left = plan.images_here(), 0.0
    try:
        state.read()
    except Refused as error:
        print(f"{error}\n")
    for step in steps:
        done = state.is_done(step.name, step.what)
        left += 0 if done else step.minutes
        lacks = "".join(f"\n    lacks {what}" for what in step.missing(images))
        print(f"{step.name:16} {step.minutes:4.0f} min{'  done' if done else ''}{lacks}")
        for command in step.commands(images):
            words = plan.filled(command, state.part(step.what))
            print(f"    {machine.command(words) if words[0] == sys.executable else shlex.join(words)}")
    print(f"\nall: {sum(step.minutes for step in steps):.0f} min on a quiet machine of two cores; left: {left:.0f} min")
    return 0


def measure(steps: list[plan.Step], state: State, interrupted: Callable[[], int]) -> int:
    """Run what is not done, make the pages, and return 1 if something failed. Raise Interrupted."""
    failed: dict[str, str] = {}
    left = [step for step in steps if not state.is_done(step.name, step.what)]
    for step in steps:
        if step not in left:
            say(f"{step.name}: done before")
    for number, step in enumerate(left, 1):
        stop_if(interrupted)
        rest = sum(each.minutes for each in left[number - 1 :])
        say(f"{step.name}: {number} of {len(left)}, some {step.minutes:.0f} min; left with it: {rest:.0f} min")
        began = time.monotonic()
        if wrong := measure_one(step, state, interrupted):
            failed[step.name] = wrong
            say(f"{step.name}: FAILED: {wrong}")
        else:
            say(f"{step.name}: measured in {(time.monotonic() - began) / 60:.1f} min")
    stop_if(interrupted)
    if wrong := report(steps, state):
        failed["report"] = wrong
    for name, wrong in failed.items():
        say(f"FAILED {name}: {wrong}")
    if failed:
        say("the same command runs what failed again")
    return 1 if failed else 0


def stop_if(interrupted: Callable[[], int]) -> None:
    """Raise Interrupted if a signal to end has come."""
    if number := interrupted():
        raise Interrupted(number)


def measure_one(step: plan.Step, state: State, interrupted: Callable[[], int]) -> str:
    """Run the commands of a benchmark that have not ended well yet. Return what went wrong, "" if nothing did."""
    try:
        check_tree(changed())
        state.check_commit()
    except Refused as error:
        return str(error)
    images = usable_images(step) if step.images else set()
    if lacks := step.missing(images):
        return f"it lacks {'; '.join(lacks)}"
    if warning := unquiet():
        say(f"WARNING: {warning}: figures will be of a busy machine")
    now = state.steps.setdefault(step.name, {})
    commands, file, log = step.commands(images), state.part(step.what), state.log(step.what)
    if "ended" in now or not (step.resumes and file.exists()):
        now.clear()
        for path in (file, log):
            path.unlink(missing_ok=True)
    now["date"] = time.strftime("%Y-%m-%d %H:%M")
    for at in range(now.get("commands", 0), len(commands)):
        now["commands"] = at
        state.write()
        limit_s = 60 * max(LEAST_LIMIT_MINUTES, SLOWER * step.minutes)
        if wrong := run(plan.filled(commands[at], file), log, limit_s, interrupted):
            tail = "".join(f"\n    {line}" for line in _last_lines(log))
            return f"{wrong}; the end of {log}:{tail}"
    try:
        state.finish(step.what, step.repeated_by(commands), step.in_image)
    except (Refused, BadRecord) as error:
        return str(error)
    now["ended"] = time.strftime("%Y-%m-%d %H:%M")
    state.write()
    return ""


def usable_images(step: plan.Step) -> set[str]:
    """Return the images that are there, without those of ours that hold another launcher than the commit."""
    images = plan.images_here()
    for image in sorted(filter(plan.is_ours, step.used(images))):
        if why := other_launcher(image):
            say(f"left out image {image}: {why}")
            images.remove(image)
    return images


def _last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LAST_LINES:] if log.exists() else []


def unquiet() -> str:
    """Return how busy the machine is with other work; "" if it is quiet. The load of an earlier benchmark is not it."""
    busy = psutil.cpu_percent(LOOK_SECONDS) / 100
    return f"processors are busy to {busy:.0%} (load {machine.load()})" if busy > QUIET_SHARE else ""


def report(steps: list[plan.Step], state: State) -> str:
    """Make the pages. Return what went wrong, "" if nothing did."""
    files = [path for step in steps if (path := state.folder / f"{step.what}.json").exists()]
    if not files:
        return ""
    words = [sys.executable, "-m", "benchmarks.report"]
    if state.folder != machine.ROOT / FOLDER:
        if not (readme := state.folder / "README.md").exists():
            shutil.copy(machine.ROOT / "README.md", readme)
        words += [*map(str, files), "--root", str(state.folder)]
    made = subprocess.run(words, cwd=machine.ROOT, capture_output=True, text=True)
    say(*made.stdout.splitlines())
    return made.stderr.strip() if made.returncode else ""


def say(*lines: str) -> None:
    for line in lines:
        print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
