"""Test the rule by which processes of a host divide its CPUs and GPUs. host/test_machine.py tests the numbers."""

import json
from pathlib import Path

import pytest
from builders import read

from entrypoint.cli import main
from entrypoint.launcher.host.machine import this_machine
from entrypoint.launcher.plan.plan import NO_GPU, Plan, Role
from entrypoint.launcher.plan.planner import plan_for


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
def test_prepare_step_gets_the_counts_of_servers_and_ranks(tmp_path, hosts, settings, servers, ranks):
    (prepare,) = [spec for spec in plan(tmp_path, hosts, **settings).on("algo-1") if spec.role is Role.PREPARE]
    task = json.loads(prepare.stdin)
    assert (task["servers"], task["ranks"]) == (servers, ranks)


def test_plan_command_shows_shares_and_numbers_of_this_machine(capsys):
    words = ["plan", "--hosts", "2", "--mode", "mpi", "--processes-per-host", "99"]
    assert main.run(words, {"OMP_NUM_THREADS": "5"}) == 0
    numbers = ["TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=2"] * (this_machine().allowed > 1)
    here = " ".join([*numbers, *["OMPI_MCA_mpi_yield_when_idle=1"] * (not this_machine().gpus)])
    assert f"    part      1 of 99 parts of the host's CPUs; here {here}\n" in capsys.readouterr().out
