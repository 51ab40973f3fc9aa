"""Container start to the script's first line, and script end to container exit, for every mode.

Needs Docker and the image (./build.sh). The script imports nothing and trains for half a second, so
what is measured is the launcher and the container engine. Prints a Markdown table; --json FILE keeps the raw figures.
"""

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import tempfile
import uuid
from pathlib import Path

SCRIPT = """
import time
print(f"BENCH first {time.time():.6f}", flush=True)
time.sleep(0.5)
print(f"BENCH last {time.time():.6f}", flush=True)
"""
# name: (hosts, hyperparameters)
CASES = {
    "single, 1 host": (1, {}),
    "plain script, 2 hosts": (2, {}),
    "ps, 2 hosts": (2, {"sagemaker_parameter_server_enabled": "true"}),
    "mwms, 2 hosts": (2, {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}),
    "mpi, 2 hosts x 1 rank": (2, {"sagemaker_mpi_enabled": "true"}),
    "mpi, 2 hosts x 2 ranks": (
        2, {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "2"}
    ),
}  # fmt: skip


def docker(*words: str) -> str:
    return subprocess.run(["docker", *words], check=True, capture_output=True, text=True).stdout.strip()


def timestamp(text: str) -> float:
    """Docker's nanosecond timestamps, as seconds since the epoch."""
    head, _, rest = text.partition(".")
    fraction = re.match(r"\d*", rest)
    seconds = datetime.datetime.fromisoformat(head.rstrip("Z") + "+00:00").timestamp()
    return seconds + float(f"0.{fraction.group(0) or 0}" if fraction else 0)


def one_run(image: str, hosts: int, hyperparameters: dict[str, str]) -> tuple[float, float]:
    """(start, tail) in seconds."""
    run = f"bench-{uuid.uuid4().hex[:8]}"
    names = [f"algo-{i + 1}" for i in range(hosts)]
    with tempfile.TemporaryDirectory(prefix=run) as folder:
        docker("network", "create", run)
        try:
            for rank, name in enumerate(names):
                base = Path(folder) / name
                config = base / "input" / "config"
                (base / "code").mkdir(parents=True)
                config.mkdir(parents=True)
                (base / "code" / "train.py").write_text(SCRIPT)
                resources = {"current_host": name, "hosts": names, "network_interface_name": "eth0"}
                (config / "resourceconfig.json").write_text(json.dumps(resources))
                (config / "hyperparameters.json").write_text(
                    json.dumps({"sagemaker_program": "train.py", **hyperparameters})
                )
                (config / "inputdataconfig.json").write_text("{}")
                docker(
                    "create", "--name", f"{run}-{name}", "--hostname", f"ip-10-0-0-{rank + 1}.ec2.internal",
                    "--network", run, "--network-alias", name,
                    "-v", f"{base / 'input'}:/opt/ml/input", "-v", f"{base / 'code'}:/opt/ml/code",
                    image, "train",
                )  # fmt: skip
            containers = [f"{run}-{name}" for name in names]
            docker("start", *containers)
            codes = docker("wait", *containers).split()
            logs = "".join(
                subprocess.run(["docker", "logs", c], capture_output=True, text=True, check=True).stdout
                for c in containers
            )
            if set(codes) != {"0"}:
                raise SystemExit(f"a host failed, exit codes {codes}:\n{logs}")
            states = [json.loads(docker("inspect", "-f", "{{json .State}}", c)) for c in containers]
            began = [timestamp(state["StartedAt"]) for state in states]
            ended = [timestamp(state["FinishedAt"]) for state in states]
            first = [float(t) for t in re.findall(r"BENCH first ([\d.]+)", logs)]
            last = [float(t) for t in re.findall(r"BENCH last ([\d.]+)", logs)]
            # From the last container's start: the engine starts them one after another.
            return max(first) - max(began), max(ended) - max(last)
        finally:
            subprocess.run(["docker", "rm", "-f", *[f"{run}-{n}" for n in names]], capture_output=True, check=False)
            docker("network", "rm", run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", default="sagemaker-tf-entrypoint:latest")
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each case, after one that is not")
    parser.add_argument("--json", type=Path, help="file for the raw figures")
    arguments = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Docker "
        f"{docker('version', '-f', '{{.Server.Version}}')}; {arguments.runs} runs each after one warm-up\n"
    )
    print("| case | start, median (min-max) s | tail, median (min-max) s |\n|---|---|---|")
    raw = {}
    for name, (hosts, hyperparameters) in CASES.items():
        figures = [one_run(arguments.image, hosts, hyperparameters) for _ in range(arguments.runs + 1)][1:]
        raw[name] = figures
        cells = [
            f"{statistics.median(column):.2f} ({min(column):.2f}-{max(column):.2f})"
            for column in zip(*figures, strict=True)
        ]
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(raw, indent=1))


if __name__ == "__main__":
    main()
