"""Test how the processes of a host divide its CPUs and GPUs: the plan's rule, and each host's numbers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import read
from hypothesis import given
from hypothesis import strategies as st

from entrypoint.base.values import replace
from entrypoint.cli import main
from entrypoint.launcher.host.machine import Machine, cpu_quota, this_machine
from entrypoint.launcher.plan.plan import NO_GPU, Duty, Plan, ProcessSpec, Role
from entrypoint.launcher.plan.planner import plan_for

V1 = "37 25 0:32 {root} {point} rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct"
V2 = "29 22 0:26 {root} {point} rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
SPARING = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
OTHER = "36 25 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n22 1 8:1 / / rw - ext4 /dev/vda rw"


def kernel(tmp_path: Path, mount: str, root: str, groups: str, files: dict[str, str]) -> Path:
    """Make a /proc/self and control groups with these files below tmp_path; return the path of the former."""
    process, point = tmp_path / "proc", tmp_path / "cgroup"
    process.mkdir()
    (process / "cgroup").write_text(groups)
    (process / "mountinfo").write_text(OTHER + "\n" + mount.format(root=root, point=point) + "\n")
    for name, text in files.items():
        (point / name).parent.mkdir(parents=True, exist_ok=True)
        (point / name).write_text(text)
    return process


DOCKER_V1 = ("5:memory:/docker/ab12\n4:cpu,cpuacct:/docker/ab12\n0::/docker/ab12\n", "/docker/ab12")


@pytest.mark.parametrize(
    "mount, groups, files, quota",
    [
        (V2, ("0::/\n", "/"), {"cpu.max": "150000 100000\n"}, 1.5),
        (V2, ("0::/\n", "/"), {"cpu.max": "max 100000\n"}, None),
        (V2, ("0::/a/b\n", "/"), {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "200000 50000\n"}, 4.0),
        (V2, ("0::/a/b\n", "/"), {"a/b/cpu.max": "100000 100000\n", "a/cpu.max": "200000 50000\n"}, 1.0),
        (V2, ("0::/\n", "/"), {}, None),
        (V2, ("0::/\n", "/"), {"cpu.max": "0 0\n"}, None),
        (V2, ("0::/\n", "/"), {"cpu.max": "much\n"}, None),
        (V1, DOCKER_V1, {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"}, 0.5),
        (V1, DOCKER_V1, {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, None),
        (V1, ("4:cpu,cpuacct:/jobs/7\n", "/"),
         {"jobs/7/cpu.cfs_quota_us": "-1\n", "jobs/7/cpu.cfs_period_us": "100000",
          "jobs/cpu.cfs_quota_us": "300000", "jobs/cpu.cfs_period_us": "100000"}, 3),
    ],
)  # fmt: skip
def test_quota_is_the_least_of_the_control_groups(tmp_path, mount, groups, files, quota):
    assert cpu_quota(kernel(tmp_path, mount, groups[1], groups[0], files)) == quota


def test_host_without_control_groups_has_no_quota(tmp_path):
    assert cpu_quota(tmp_path) is None


def test_cpus_are_those_of_the_affinity_mask(tmp_path):
    one = min(os.sched_getaffinity(0))
    script = (
        "from entrypoint.launcher.host.machine import this_machine; m = this_machine(); print(m.allowed, m.cpus <= 1)"
    )
    command = ["taskset", "-c", str(one), sys.executable, "-c", script]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["1", "True"]


# --- the numbers ---


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
def test_threads_are_the_processes_part_of_the_cpus(machine, share, expected):
    assert threads(machine, share) == expected


def test_a_rank_that_mpirun_has_bound_starts_no_more_threads_than_it_has_cpus():
    assert threads(Machine(allowed=96), 2, allowed=12) == (None,) * 3  # TensorFlow sees its 12 by itself
    assert threads(Machine(allowed=96), 8, allowed=48) == ("12",) * 3
    assert threads(Machine(allowed=96, quota=8.0), 2, allowed=12) == ("4",) * 3


@given(st.integers(1, 256), st.floats(0.1, 256) | st.none(), st.integers(1, 64))
def test_threads_fill_the_host_and_hardly_more(allowed, quota, share):
    machine = Machine(allowed=allowed, quota=quota)
    told = int(threads(machine, share)[0] or allowed)
    assert 1 <= told <= allowed
    assert abs(told - machine.cpus / share) <= 0.5 or told == 1


def test_variables_of_the_user_stay():
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
def test_only_ranks_without_gpus_yield_their_cpu_while_they_wait(duty, share, gpus, expected):
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
def test_process_sees_its_part_of_the_gpus(gpus, share, expected):
    assert Machine(allowed=4, gpus=gpus).part_of(spec(0, share), {}) == expected


# --- the rule; configs/*/plan.txt shows more of it ---


def plan(base: Path, hosts: int | list[str], **settings: object) -> Plan:
    variables = {f"ENTRYPOINT_{key.upper()}": str(value) for key, value in settings.items()}
    return plan_for(read(base, hosts, environment=variables))


def shares(plan: Plan, host: str = "algo-1") -> dict[str, int]:
    return {spec.name: spec.cpu_share for spec in plan.on(host)}


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"mode": "mpi", "processes_per_host": 4},
         {"prepare": 0, "host-key": 0, "client-key": 0, "sshd": 0, "mpirun": 0, **{f"rank {i}": 4 for i in range(4)}}),
        ({"mode": "mwms", "processes_per_host": 2, "evaluator": "first"},
         {"prepare": 0, "worker/0": 2, "worker/1": 2, "evaluator/0": 2}),  # it evaluates now and then
        ({"mode": "single"}, {"prepare": 0, "script": 1}),
        ({"mode": "ps"}, {"prepare": 0, "ps/0": 1, "chief/0": 1}),
        ({"mode": "ps", "processes_per_host": 2}, {"prepare": 0, "ps/0": 2, "chief/0": 2, "worker/0": 2}),
        ({"mode": "ps", "ps_workers": "server", "processes_per_host": 3},  # the chief only coordinates
         {"prepare": 0, "ps/0": 2, "chief/0": 2, "worker/0": 2, "worker/1": 2}),
        ({"mode": "ps", "ps_workers": "server"}, {"prepare": 0, "ps/0": 1, "chief/0": 1}),  # it has no other work
    ],
)  # fmt: skip
def test_processes_that_train_divide_the_cpus(tmp_path, settings, expected):
    assert shares(plan(tmp_path, 2, **settings)) == expected


def gpu_parts(plan: Plan) -> dict[str, tuple[int, int]]:
    return {spec.name: spec.gpu_share for spec in plan.on("algo-1") if spec.gpu_share}


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"mode": "mpi", "processes_per_host": 2, "pin_gpus": "always"}, {"rank 0": (0, 2), "rank 1": (1, 2)}),
        ({"mode": "mwms", "processes_per_host": 2}, {"worker/0": (0, 2), "worker/1": (1, 2)}),
        ({"mode": "mwms", "processes_per_host": 2, "pin_gpus": "never"}, {}),
        ({"mode": "mwms", "evaluator": "first"}, {"evaluator/0": NO_GPU}),
        ({"mode": "ps", "processes_per_host": 2}, {"chief/0": (0, 2), "worker/0": (1, 2)}),
        # The workers of the other host have half of its GPUs each, and all workers as many.
        ({"mode": "ps", "processes_per_host": 2, "ps_workers": "server"}, {"chief/0": NO_GPU, "worker/0": (0, 2)}),
        ({"mode": "ps", "processes_per_host": 2, "ps_workers": "server", "pin_gpus": "never"}, {}),
        ({"mode": "ps", "ps_workers": "server"}, {}),  # the workers are on other hosts
    ],
)
def test_processes_that_train_divide_the_gpus(tmp_path, settings, expected):
    assert gpu_parts(plan(tmp_path, 2, **settings)) == expected


@pytest.mark.parametrize(
    "hosts, settings, servers, ranks",
    [
        (2, {"mode": "ps"}, 2, 0),
        (2, {"mode": "ps", "ps_workers": "server"}, 2, 0),  # the chief has its host's GPUs to itself
        (2, {"mode": "ps", "ps_workers": "server", "processes_per_host": 2}, 0, 0),  # and here none
        (2, {"mode": "ps", "ps_workers": "server", "processes_per_host": 2, "pin_gpus": "never"}, 2, 0),
        (1, {"mode": "ps", "ps_workers": "server", "ps_count": 3}, 0, 0),
        (2, {"mode": "mpi", "processes_per_host": 3}, 0, 3),
        (2, {"mode": "mwms", "processes_per_host": 3}, 0, 0),
    ],
)
def test_prepare_step_gets_the_numbers_of_servers_and_ranks(tmp_path, hosts, settings, servers, ranks):
    (prepare,) = [spec for spec in plan(tmp_path, hosts, **settings).on("algo-1") if spec.role is Role.PREPARE]
    task = json.loads(prepare.stdin)
    assert (task["servers"], task["ranks"]) == (servers, ranks)


def test_the_plan_shows_the_rule_and_the_numbers_of_this_machine(capsys):
    words = ["plan", "--hosts", "2", "--mode", "mpi", "--processes-per-host", "99"]
    assert main.run(words, {"OMP_NUM_THREADS": "5"}) == 0
    numbers = ["TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=2"] * (this_machine().allowed > 1)
    here = " ".join([*numbers, *["OMPI_MCA_mpi_yield_when_idle=1"] * (not this_machine().gpus)])
    assert f"    part      1 of 99 parts of the host's CPUs; here {here}\n" in capsys.readouterr().out
