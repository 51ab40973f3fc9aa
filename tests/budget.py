"""Check the cost of a default test run against a budget, count lines of Python, and record passed rings.

tests/run.sh calls it. pytest itself shows the slowest tests (--durations) and ends those that hang (pytest-timeout).

    python tests/budget.py containers            # print the CPU seconds of Docker's containers up to now
    python tests/budget.py judge PID BEFORE      # print the CPU seconds of the shell's children and, since BEFORE, of
                                                 # containers; exit with 1 if they exceed the budget
    python tests/budget.py lines                 # print the lines of Python of each part, beside those on record
    python tests/budget.py passed RING...        # record that all tests of these rings have passed on this commit
    python tests/budget.py line 2.21-gpu         # print why a line of the image has to be tested again, if it has

tests/budget.json has the budget and the lines on record; tests/full_run.json what has passed, when and on which commit.
"""

import contextlib
import datetime
import hashlib
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
RECORD, PASSED = ROOT / "tests/budget.json", ROOT / "tests/full_run.json"
TOLERANCE = 1.1  # a run may cost so many times its budget
PARTS = ("entrypoint", "tests", "benchmarks", "examples", "sagemaker_tf_data")
# Seconds of CPU that `work` takes at the speed of the budget: that of an idle core of a 2.6 GHz EPYC.
WORK_SECONDS = 0.020


def work() -> float:
    """Do a fixed amount of work similar to tests; return the CPU seconds that it took."""
    began = time.thread_time()
    rows = [{"host": f"algo-{n}", "rank": n, "values": [n * k % 97 for k in range(40)]} for n in range(150)]
    for _ in range(30):
        text = json.dumps(rows)
        found = [match[0] for match in re.finditer(r"algo-\d+", text)]
        digest = hashlib.sha256("".join(sorted(found)).encode()).digest()
        rows = sorted(json.loads(text), key=lambda row: digest[row["rank"] % 32])
    return time.thread_time() - began


def slowness(timings: list[float]) -> float:
    """Return by what factor this work took longer than at the budget's speed."""
    return statistics.median(timings) / WORK_SECONDS


def containers() -> float:
    """Return the CPU seconds of all containers since Docker's start; 0 without containers or kernel counts."""
    for path, unit in (
        ("/sys/fs/cgroup/cpuacct/docker/cpuacct.usage", 1e9),
        ("/sys/fs/cgroup/docker/cpu.stat", 1e6),  # version 2, under a dockerd that does not leave this to systemd
    ):
        with contextlib.suppress(OSError):
            return float(Path(path).read_text().removeprefix("usage_usec").split()[0]) / unit
    return 0.0


def judge(spent: float, budget: float, slow: float) -> tuple[str, bool]:
    """Return the cost of a run in words, and whether it is within the budget for a machine of this speed."""
    at_one_speed = spent / slow
    text = f"{at_one_speed:.0f} CPU seconds, of a budget of {budget:g} ({slow:.2f} times as slow as its machine)"
    if at_one_speed <= TOLERANCE * budget:
        return text, True
    return f"{text}: take as much away elsewhere, mark a variant with `more`, or raise it in tests/budget.json", False


def lines(parts: tuple[str, ...] = PARTS, root: Path = ROOT) -> dict[str, int]:
    """Return the lines of Python of each part."""
    return {part: sum(len(path.read_bytes().splitlines()) for path in (root / part).rglob("*.py")) for part in parts}


def why_again(line: str, record: Path = PASSED, root: Path = ROOT) -> str:
    """Return why a line of the image needs new tests; "" if it has passed with the present pins."""
    last = json.loads(record.read_text()).get(f"line-{line}")
    if last is None:
        return "it has not passed yet"
    pins = ["Dockerfile", f"container/lines/{line.removesuffix('-gpu')}"]
    pins += ["container/gpu"] if line.endswith("-gpu") else []
    same = subprocess.run(["git", "diff", "--quiet", last["commit"], "--", *pins], cwd=root, stderr=subprocess.DEVNULL)
    return f"its pins have changed since {last['date']} ({last['commit']})" if same.returncode else ""


def main(command: str, *words: str) -> int:
    """Run a command of tests/run.sh."""
    record = json.loads(RECORD.read_text())
    match command:
        case "containers":
            print(containers())
        case "judge":
            times = psutil.Process(int(words[0])).cpu_times()
            spent = times.children_user + times.children_system + containers() - float(words[1])
            text, within = judge(spent, record["cpu_seconds"], slowness([work() for _ in range(9)]))
            print(text)
            return 0 if within else 1
        case "lines":
            for part, count in lines().items():
                print(f"{part:20} {count:7,} lines, {record['lines'][part]:7,} on record")
        case "passed":
            commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
            today = {"date": datetime.date.today().isoformat(), "commit": commit}
            passed = json.loads(PASSED.read_text()) | dict.fromkeys(words, today)
            rows = (f"{json.dumps(ring)}: {json.dumps(passed[ring])}" for ring in sorted(passed))
            PASSED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
        case "line":
            print(why_again(words[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
