"""Print facts about this host on SageMaker, as lines `accept-fact {"name": ..., "value": ...}`; train nothing.

If a launcher can change a value, that of process 1 is printed.
"""

import json
import os
import platform
import re
import resource
import socket
import time
from pathlib import Path

INPUT = Path("/opt/ml/input")
LIMITS = ("RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_MEMLOCK", "RLIMIT_STACK", "RLIMIT_CORE")
CGROUP = ("memory.max", "cpu.max", "pids.max", "memory/memory.limit_in_bytes", "cpu/cpu.cfs_quota_us")
DOCUMENTED = ("TRAINING_JOB_", "AWS_", "ECS_", "HOSTNAME", "DMLC_", "NVIDIA_", "SAGEMAKER_", "SM_")  # or longer
SECRET = re.compile("CREDENTIAL|KEY|TOKEN|SECRET")


def tell(name, value):
    print("accept-fact", json.dumps({"name": name, "value": value}), flush=True)


def hosts():
    """Return the name of this host, and the names of the others."""
    found = json.loads((INPUT / "config/resourceconfig.json").read_text())
    return found["current_host"], [each for each in found["hosts"] if each != found["current_host"]]


def resolved(name, within):
    """Wait until the name resolves; return the seconds that it took, or None if it never did."""
    begun = time.monotonic()
    while (waited := time.monotonic() - begun) < within:
        try:
            socket.gethostbyname(name)
            return round(waited, 2)
        except OSError:
            time.sleep(0.25)
    return None


def read(path):
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def first_process():
    """Return the environment of process 1 as SageMaker started it: all names, and values of documented variables.

    "set" replaces the value of a credential and of a variable from the job's request.
    """
    pairs = (each.partition("=") for each in (read("/proc/1/environ") or "").split("\0") if each)
    return {
        name: value if name.startswith(DOCUMENTED) and not SECRET.search(name) else "set" for name, _, value in pairs
    }


def mounts():
    """Return place, type and options of each mount that SageMaker made."""
    rows = (line.split() for line in (read("/proc/mounts") or "").splitlines())
    wanted = ("/opt/ml", "/dev/shm", "/tmp", "/etc")
    return [
        [place, kind, options.split(",")[0]]
        for _, place, kind, options, *_ in rows
        if place.startswith(wanted) or place == "/"
    ]


def sizes(*places):
    return {place: os.statvfs(place).f_blocks * os.statvfs(place).f_frsize for place in places if Path(place).exists()}


def limits():
    """Return the soft and hard limits of this process."""
    return {name: resource.getrlimit(getattr(resource, name)) for name in LIMITS}


def started_s():
    """Return when process 1 was started, in seconds since the epoch."""
    ticks = int((read("/proc/1/stat") or "").rpartition(")")[2].split()[19])
    uptime = float((read("/proc/uptime") or "").split()[0])
    return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def main():
    me, others = hosts()
    tell("host", me)
    tell("times", {"process 1": started_s(), "script": time.time()})
    tell("resourceconfig", json.loads((INPUT / "config/resourceconfig.json").read_text()))
    tell("config-files", sorted(each.name for each in (INPUT / "config").iterdir()))
    tell("input-data", sorted(each.name for each in (INPUT / "data").iterdir()))
    tell("opt-ml", sorted(str(each) for each in Path("/opt/ml").glob("*/*")))
    tell("environment", first_process())
    tell("command", (read("/proc/1/cmdline") or "").split("\0"))
    tell("working-folder", str(Path("/proc/1/cwd").readlink()))
    tell("user", [os.getuid(), os.getgid()])
    tell(
        "capabilities",
        [line.split()[1] for line in (read("/proc/1/status") or "").splitlines() if line.startswith("CapEff")],
    )
    tell("limits", limits())
    tell("sizes", sizes("/dev/shm", "/tmp", "/opt/ml", "/opt/ml/model", "/opt/ml/checkpoints"))
    tell("cgroup", {name: found for name in CGROUP if (found := read(f"/sys/fs/cgroup/{name}"))})
    tell("cpus", [os.cpu_count(), len(os.sched_getaffinity(0))])
    tell("mounts", mounts())
    tell("kernel", platform.release())
    tell("hostname", socket.gethostname())
    tell("interfaces", sorted(name for _, name in socket.if_nameindex()))
    tell("names-s", {name: resolved(name, within=60) for name in others})
    print("accuracy=0.5", flush=True)
    for folder in (os.environ["SM_MODEL_DIR"], os.environ["SM_OUTPUT_DATA_DIR"]):
        Path(folder, f"from-{me}.txt").write_text(me)


if __name__ == "__main__":
    main()
