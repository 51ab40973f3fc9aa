"""Test machine.py: limits and counters of control groups v1 and v2, and a process's share of CPUs and GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.values import replace
from entrypoint.launcher.host.machine import Machine, Meter, cpu_quota
from entrypoint.launcher.plan.plan import NO_GPU, Duty, ProcessSpec, Role

V2 = "29 22 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_CPU = "37 25 0:32 {root} {point} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
V1_MEMORY = "37 25 0:32 {root} {point} rw,nosuid shared:9 - cgroup cgroup rw,memory"
SPARING = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
OTHERS = "36 25 0:31 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n22 1 8:1 / / rw - ext4 /dev/vda rw\n"


def kernel(tmp_path: Path, mount: str, root: str, groups: str, files: dict[str, str]) -> Path:
    """Make a /proc/self, and control groups with these files, below tmp_path. Return the path of that /proc/self."""
    process, point = tmp_path / "proc", tmp_path / "cgroup"
    process.mkdir()
    (process / "cgroup").write_text(groups)
    (process / "mountinfo").write_text(OTHERS + mount.format(root=root, point=point) + "\n")
    for name, text in files.items():
        (point / name).parent.mkdir(parents=True, exist_ok=True)
        (point / name).write_text(text)
    return process


# --- processes that the kernel killed for lack of memory ---

EVENTS = "low 0\nhigh 0\nmax 7\noom 1\noom_kill {}\noom_group_kill 0\n"
CONTROL = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
DOCKER_V1 = "5:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12\n0::/docker/ab12\n"
COUNTERS = {
    # where the counter lies, by version and by what the container sees of the path
    "v2, in a container": (V2, "/", "0::/\n", "memory.events", EVENTS),
    "v2, outside": (V2, "/", "0::/user.slice/x.scope\n", "user.slice/x.scope/memory.events", EVENTS),
    "v1, in a container": (V1_MEMORY, "/docker/ab12", DOCKER_V1, "memory.oom_control", CONTROL),
    "v1, outside": (V1_MEMORY, "/", "5:memory:/jobs/7\n4:cpu,cpuacct:/\n", "jobs/7/memory.oom_control", CONTROL),
}


@pytest.mark.parametrize("mount, root, groups, name, text", COUNTERS.values(), ids=COUNTERS)
def test_new_out_of_memory_kill_is_reported_once(tmp_path, mount, root, groups, name, text):
    found = Meter(kernel(tmp_path, mount, root, groups, {name: text.format(3)}))
    assert found.killed_since() == "", "what was killed before we came is not ours"
    (tmp_path / "cgroup" / name).write_text(text.format(4))
    assert found.killed_since() == "the kernel killed 1 process of this host for lack of memory"
    assert found.killed_since() == ""


V2_LIMIT = {"memory.events": EVENTS.format(0), "memory.max": f"{512 << 20}\n", "memory.peak": f"{511 << 20}\n"}
LIMITS = {
    # files of the control group: what is reported of two kills
    "a limit and a peak": (V2, "0::/\n", V2_LIMIT, " (512 MiB limit, 511 MiB peak)"),
    **{
        f"v1 without a limit: {limit!r}": (
            V1_MEMORY,
            "5:memory:/\n",
            {"memory.oom_control": CONTROL.format(0), "memory.limit_in_bytes": limit},
            "",
        )
        for limit in ("max\n", "9223372036854771712\n", "")
    },
}


@pytest.mark.parametrize("mount, groups, files, said", LIMITS.values(), ids=LIMITS)
def test_report_of_kills_has_known_limit_and_peak(tmp_path, mount, groups, files, said):
    found = Meter(kernel(tmp_path, mount, "/", groups, files))
    for name, text in (("memory.events", EVENTS), ("memory.oom_control", CONTROL)):
        (tmp_path / "cgroup" / name).write_text(text.format(2))
    assert found.killed_since() == f"the kernel killed 2 processes of this host for lack of memory{said}"


@pytest.mark.parametrize("files", [{"x": ""}, {"memory.events": "garbage"}, {"memory.events": "oom_kill many\n"}])
def test_kernel_without_the_counter_reports_no_kill(tmp_path, files):
    found = Meter(kernel(tmp_path, V2, "/", "0::/\n", files))
    (tmp_path / "cgroup" / "memory.events").write_text(EVENTS.format(1))
    assert found.killed_since() == "", "it told nothing when we came: this need not have happened since then"


def test_host_without_control_groups_has_no_quota_and_reports_no_kill(tmp_path):
    assert cpu_quota(tmp_path) is None
    assert Meter(tmp_path).killed_since() == ""


# --- CPUs ---


@pytest.mark.parametrize(
    "mount, groups, root, files, quota",
    [
        (V2, "0::/\n", "/", {"cpu.max": "150000 100000\n"}, 1.5),
        (V2, "0::/\n", "/", {"cpu.max": "max 100000\n"}, None),
        (V2, "0::/a/b\n", "/", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 50000\n"}, 4.0),
        (V2, "0::/a/b\n", "/", {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "200000 50000\n"}, 1.0),
        (V2, "0::/\n", "/", {}, None),
        (V2, "0::/\n", "/", {"cpu.max": "0 0\n"}, None),
        (V2, "0::/\n", "/", {"cpu.max": "much\n"}, None),
        (V1_CPU, DOCKER_V1, "/docker/ab12", {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, 0.5),
        (V1_CPU, DOCKER_V1, "/docker/ab12", {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        (V1_CPU, "4:cpu,cpuacct:/jobs/7\n", "/",
         {"jobs/7/cpu.cfs_quota_us": "-1\n", "jobs/7/cpu.cfs_period_us": "100000",
          "jobs/cpu.cfs_quota_us": "300000", "jobs/cpu.cfs_period_us": "100000"}, 3),
    ],
)  # fmt: skip
def test_cpu_quota_is_the_least_of_all_control_groups(tmp_path, mount, groups, root, files, quota):
    assert cpu_quota(kernel(tmp_path, mount, root, groups, files)) == quota


def test_cpus_are_those_of_the_affinity_mask(tmp_path):
    one = min(os.sched_getaffinity(0))
    script = (
        "from entrypoint.launcher.host.machine import this_machine; m = this_machine(); print(m.allowed, m.cpus <= 1)"
    )
    command = ["taskset", "-c", str(one), sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["1", "True"]


# --- the part of a process ---


def spec(cpu_share: int = 1, gpu_share: tuple[int, int] | None = None) -> ProcessSpec:
    return ProcessSpec(
        host="algo-1", name="rank 0", role=Role.RANK, duty=Duty.RANK, argv=("x",),
        cpu_share=cpu_share, gpu_share=gpu_share,
    )  # fmt: skip


def threads(machine: Machine, share: int, allowed: int | None = None) -> tuple[str | None, ...]:
    env = machine.part_of(spec(share), {}, allowed)
    return tuple(env.get(k) for k in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS"))


@pytest.mark.parametrize(
    "machine, share, expected",
    [
        (Machine(allowed=96), 8, ("12", "12", "12")),
        (Machine(allowed=96), 1, (None,) * 3),  # as many as it starts by itself
        (Machine(allowed=96), 0, (None,) * 3),  # switched off
        (Machine(allowed=96, quota=4.0), 1, ("4", "4", "4")),  # TensorFlow would see 96
        (Machine(allowed=96, quota=4.0), 4, ("1", "2", "1")),  # no pool of one thread for operations
        (Machine(allowed=4, quota=96.0), 2, ("2", "2", "2")),
        (Machine(allowed=8), 3, ("3", "3", "3")),  # 2.67
        (Machine(allowed=4), 3, ("1", "2", "1")),  # 1.33
        (Machine(allowed=2), 8, ("1", "2", "1")),  # never less than one
        (Machine(allowed=1), 8, (None, "2", None)),  # with one, parameter servers hung
        (Machine(allowed=1), 1, (None, "2", None)),
        (Machine(allowed=1), 0, (None,) * 3),
        (Machine(allowed=2, quota=0.5), 1, ("1", "2", "1")),
    ],
)
def test_numbers_of_threads_match_the_share_of_cpus(machine, share, expected):
    assert threads(machine, share) == expected


def test_bound_rank_has_at_most_one_thread_per_cpu():
    assert threads(Machine(allowed=96), 2, allowed=12) == (None,) * 3  # TensorFlow sees its 12 by itself
    assert threads(Machine(allowed=96), 8, allowed=48) == ("12",) * 3
    assert threads(Machine(allowed=96, quota=8.0), 2, allowed=12) == ("4",) * 3


@given(st.integers(1, 256), st.floats(0.1, 256) | st.none(), st.integers(1, 64))
def test_number_of_threads_is_rounded_share_of_cpus(allowed, quota, share):
    machine = Machine(allowed=allowed, quota=quota)
    told = int(threads(machine, share)[0] or allowed)
    assert 1 <= told <= allowed
    assert abs(told - machine.cpus / share) <= 0.5 or told == 1


def test_variables_set_by_user_are_not_overwritten():
    machine = Machine(allowed=8, gpus=4)
    assert set(machine.part_of(spec(2, (0, 2)), {"OMP_NUM_THREADS": "7"})) == {
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "CUDA_VISIBLE_DEVICES",
    }
    assert Machine(allowed=2).part_of(spec(1), {"OMPI_MCA_mpi_yield_when_idle": "0"}) == {}
    assert set(machine.part_of(spec(2, (0, 2)), {"CUDA_VISIBLE_DEVICES": ""})) == {
        "TF_NUM_INTRAOP_THREADS",
        "TF_NUM_INTEROP_THREADS",
        "OMP_NUM_THREADS",
    }


@pytest.mark.parametrize(
    "duty, share, gpus, expected",
    [
        (Duty.RANK, 1, 0, {"OMPI_MCA_mpi_yield_when_idle": "1"}),  # alone on its host: it waits for other hosts
        (Duty.RANK, 0, 0, {}),  # switched off
        (Duty.RANK, 1, 4, {}),
        (Duty.SCRIPT, 1, 0, {}),  # gRPC's threads sleep while they wait
    ],
)
def test_only_waiting_ranks_without_gpus_yield_their_cpu(duty, share, gpus, expected):
    assert Machine(allowed=2, gpus=gpus).part_of(replace(spec(share), duty=duty), {}) == expected


@pytest.mark.parametrize(
    "gpus, share, expected",
    [
        (0, (0, 2), {}),
        (8, None, {}),
        (8, (0, 2), {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}),
        (8, (1, 2), {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}),
        (4, (3, 4), {"CUDA_VISIBLE_DEVICES": "3"}),
        (8, NO_GPU, {"CUDA_VISIBLE_DEVICES": "-1"}),
        (0, NO_GPU, {}),
        (4, (2, 3), {"CUDA_VISIBLE_DEVICES": "2"}),  # as many for each: MultiWorkerMirroredStrategy wants that
        (1, (1, 2), {"CUDA_VISIBLE_DEVICES": "0", **SPARING}),
        (2, (1, 4), {"CUDA_VISIBLE_DEVICES": "0", **SPARING}),
        (2, (2, 4), {"CUDA_VISIBLE_DEVICES": "1", **SPARING}),
    ],
)
def test_process_sees_its_share_of_gpus(gpus, share, expected):
    assert Machine(allowed=4, gpus=gpus).part_of(spec(0, share), {}) == expected
