"""Test the kernel's counter of out-of-memory kills, in folders as both versions of control groups have them."""

from pathlib import Path

import pytest

from entrypoint.launcher.host.machine import Meter

V2 = "29 22 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1 = "37 25 0:32 {root} {point} rw,nosuid shared:9 - cgroup cgroup rw,memory"
OTHER = "36 25 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n22 1 8:1 / / rw - ext4 /dev/vda rw"


def machine(tmp_path: Path, *, mount: str, root: str, groups: str, folder: str, files: dict[str, str]) -> Path:
    """Make a /proc/self and a control group file system below tmp_path; return the path of the former."""
    process, point = tmp_path / "proc", tmp_path / "cgroup"
    process.mkdir()
    (process / "cgroup").write_text(groups)
    (process / "mountinfo").write_text(OTHER + "\n" + mount.format(root=root, point=point) + "\n")
    (point / folder).mkdir(parents=True)
    for name, text in files.items():
        (point / folder / name).write_text(text)
    return process


EVENTS = "low 0\nhigh 0\nmax 7\noom 1\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
MACHINES = {
    # where the counter lies, by version and by what the container sees of the path
    "v2, in a container": (V2, "/", "0::/\n", "", "memory.events", EVENTS),
    "v2, outside": (V2, "/", "0::/user.slice/x.scope\n", "user.slice/x.scope", "memory.events", EVENTS),
    "v1, in a container": (
        V1, "/docker/ab12", "5:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12\n0::/docker/ab12\n", "",
        "memory.oom_control", CONTROL),
    "v1, outside": (V1, "/", "5:memory:/jobs/7\n4:cpu,cpuacct:/\n", "jobs/7", "memory.oom_control", CONTROL),
}  # fmt: skip


@pytest.mark.parametrize("mount, root, groups, folder, name, text", MACHINES.values(), ids=MACHINES)
def test_a_new_kill_is_reported_once(tmp_path, mount, root, groups, folder, name, text):
    process = machine(tmp_path, mount=mount, root=root, groups=groups, folder=folder, files={name: text.format(3)})
    found = Meter(process)
    assert found.killed_since() == "", "what was killed before we came is not ours"
    (tmp_path / "cgroup" / folder / name).write_text(text.format(4))
    assert found.killed_since().startswith("the kernel killed 1 process ")
    assert found.killed_since() == ""


def test_a_kill_is_reported_with_limit_and_peak(tmp_path):
    files = {"memory.events": EVENTS.format(0), "memory.max": f"{512 << 20}\n", "memory.peak": f"{511 << 20}\n"}
    process = machine(tmp_path, mount=V2, root="/", groups="0::/\n", folder="", files=files)
    found = Meter(process)
    (tmp_path / "cgroup" / "memory.events").write_text(EVENTS.format(2))
    assert found.killed_since() == (
        "the kernel killed 2 processes of this host for lack of memory (512 MiB limit, 511 MiB peak)"
    )


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", ""])
def test_a_missing_limit_is_not_shown(tmp_path, limit):
    files = {"memory.oom_control": CONTROL.format(0), "memory.limit_in_bytes": limit}
    process = machine(tmp_path, mount=V1, root="/", groups="5:memory:/\n", folder="", files=files)
    found = Meter(process)
    (tmp_path / "cgroup" / "memory.oom_control").write_text(CONTROL.format(1))
    assert found.killed_since() == "the kernel killed 1 process of this host for lack of memory"


@pytest.mark.parametrize("files", [{}, {"memory.events": "garbage"}, {"memory.events": "oom_kill many\n"}])
def test_a_kernel_without_the_counter_reports_no_kill(tmp_path, files):
    process = machine(tmp_path, mount=V2, root="/", groups="0::/\n", folder="", files=files)
    found = Meter(process)
    (tmp_path / "cgroup" / "memory.events").write_text(EVENTS.format(1))
    assert found.killed_since() == "", "it told nothing when we came: this need not have happened since then"


def test_without_control_groups_no_kill_is_reported(tmp_path):
    assert Meter(tmp_path).killed_since() == ""
