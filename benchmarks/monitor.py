"""Measure what the monitor costs: jobs with it at one look a second, at ten, and without it, in turns.

The job is two hosts of `entrypoint local`, processes of this machine. Some scripts on each take steps (a fixed piece of
Python's work, then a pause), print a line for each, as a training does, and hold threads and open files as TensorFlow
does. Per host: the monitor's processor time and memory as the kernel counts them, bytes of its record; and how long a
step takes, against the same job without it.

    python -m benchmarks.monitor --json docs/benchmarks/monitor.json        # 3 rounds, some 15 minutes
    python -m benchmarks.monitor --seconds 20 --rounds 1                     # two minutes
"""

import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import machine
from benchmarks.report import page

CASES: dict[str, dict[str, str]] = {
    "without": {"ENTRYPOINT_MONITOR": "false"},
    "every second": {"ENTRYPOINT_MONITOR": "true"},
    "every 0.1 s": {"ENTRYPOINT_MONITOR": "true", "ENTRYPOINT_MONITOR_INTERVAL": "0.1"},
}
HOSTS = 2
PROGRAM = """
import os, sys, threading, time
held = [open(os.devnull) for _ in range(200)]
for _ in range(40):
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
ends, steps = time.monotonic() + float(sys.argv[2]), 0
while time.monotonic() < ends:
    began = time.perf_counter()
    sum(number * number for number in range(200_000))
    took = time.perf_counter() - began
    steps += 1
    print(f"step={steps} loss={1 / steps:.4f} took_ms={took * 1000:.3f}", flush=True)
    time.sleep(0.1)
"""
_WARM = 3.0  # seconds at the beginning that are not counted
LEAST_SECONDS = 10.0  # of a job, so that some looks are counted


def main() -> None:
    parser = machine.parser(__doc__, rounds=3)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 8], help="scripts on each host")
    parser.add_argument("--seconds", type=float, default=45.0, help="of each job")
    args = parser.parse_args()
    if args.seconds < LEAST_SECONDS:
        parser.error(f"--seconds {args.seconds:g}: wanted at least {LEAST_SECONDS:g}; the first {_WARM:g} do not count")
    record = machine.head("monitor", limits={"seconds": args.seconds, "hosts": HOSTS})
    for number in range(args.rounds):
        names = machine.turned(CASES, number)
        for processes in args.processes:
            for name in names:
                load = machine.load()
                measures = run(processes, args.seconds, CASES[name])
                made = {"name": name, "processes": processes, "round": number + 1, "load": load, "measures": measures}
                machine.add(record, made, args.json)
    print(page(record))


def run(processes: int, seconds: float, environment: dict[str, str]) -> dict[str, Any]:
    """Run one job; return the mean figures of its hosts."""
    with tempfile.TemporaryDirectory(prefix="monitor-cost-") as folder:
        code = Path(folder, "code")
        code.mkdir()
        (code / "train.py").write_text(PROGRAM)
        command = [sys.executable, "-m", "entrypoint", "local", str(code / "train.py"), "--hosts", str(HOSTS)]
        command += ["--mode", "mwms", "--processes-per-host", str(processes), "--output", f"{folder}/out"]
        command += [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        command += ["--hyperparameters", f"seconds={seconds:g}"]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            figures = watch(job, seconds) if environment["ENTRYPOINT_MONITOR"] == "true" else {}
            log, _ = job.communicate()
        finally:
            if job.poll() is None:
                job.send_signal(signal.SIGINT)  # it ends its hosts
                job.communicate()
        if job.returncode:
            raise SystemExit(f"{log}\nmonitor: the job ended with exit code {job.returncode}")
        sizes = [path.stat().st_size for path in Path(folder).glob("out/algo-1/ml/output/data/record/*.gz")]
    took = sorted(float(each) for each in re.findall(r"took_ms=([\d.]+)", log))
    figures |= {"step_ms": round(statistics.median(took), 3), "steps": len(took)}
    return figures | ({"bytes_per_hour": round(statistics.mean(sizes) / seconds * 3600)} if sizes else {})


def watch(job: "subprocess.Popen[str]", seconds: float) -> dict[str, float]:
    """Measure processor time and memory of a job's monitors, from its warm-up until shortly before its end."""
    began = time.monotonic()
    while time.monotonic() < began + _WARM or (len(monitors(job.pid)) < HOSTS and time.monotonic() < began + 30):
        time.sleep(0.1)
    mine, since = monitors(job.pid), time.monotonic()
    if len(mine) < HOSTS:
        raise SystemExit(f"monitor: {len(mine)} of {HOSTS} monitors run {since - began:.0f} s after the job's start")
    before = {each.pid: worked(each) for each in mine}
    most = 0
    while time.monotonic() < began + seconds:
        time.sleep(0.5)
        # Resident bytes, with those that it shares with the launcher, of which it is a fork.
        most = max([most, *(each.memory_info().rss for each in mine)])
    share = [(worked(each) - before[each.pid]) / (time.monotonic() - since) for each in mine]
    return {"cpu_share": round(statistics.mean(share), 5), "memory_bytes": most}


def monitors(root: int) -> list[psutil.Process]:
    """Return the monitors that descend from a process."""
    return [each for each in psutil.Process(root).children(recursive=True) if each.name() == "monitor"]


def worked(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
