"""Test distributions/mpi.py: the user's options of mpirun override ours, and come last."""

import pytest
from builders import read

from entrypoint.base.values import replace
from entrypoint.launcher.job.open_mpi import DAEMONS, ORTE, PRRTE
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.distributions.mpi import STANDARD_LIBRARY
from entrypoint.launcher.plan.plan import Duty
from entrypoint.launcher.plan.planner import plan_for


def mpirun(tmp_path, options: str = "", hosts: int = 2, per_host: int = 2) -> tuple[str, ...]:
    """Return mpirun's own words, without the program that it starts."""
    return launched(tmp_path, options, hosts, per_host)[1].argv[: -len(common.child("rank", options=STANDARD_LIBRARY))]


def launched(tmp_path, options: str = "", hosts: int = 2, per_host: int = 2, open_mpi: int = ORTE, **settings: str):
    job = read(
        tmp_path,
        hosts,
        {"sagemaker_mpi_enabled": "true", "sagemaker_mpi_custom_mpi_options": options},
        {"ENTRYPOINT_PROCESSES_PER_HOST": str(per_host), **settings},
    )
    job = replace(job, open_mpi=open_mpi)
    plan = plan_for(job)
    (launcher,) = [spec for spec in plan.processes if spec.duty is Duty.LAUNCHER]
    return plan, launcher


def values(words: tuple[str, ...], option: str) -> list[str]:
    return [words[i + 1] for i, word in enumerate(words) if word == option]


def mca(words: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for i, word in enumerate(words):
        if word in ("--mca", "-mca"):
            found.setdefault(words[i + 1], []).append(words[i + 2])
    return found


def test_ours(tmp_path):
    words = mpirun(tmp_path)
    assert words[0] == "mpirun"
    assert values(words, "-np") == ["4"]
    assert values(words, "--host") == ["algo-1:2,algo-2:2"]
    assert mca(words)["orte_abort_on_non_zero_status"] == ["1"]
    assert all(len(each) == 1 for each in mca(words).values())


def test_one_rank_per_host_has_its_slot_written_down(tmp_path):
    """`--host a,b` without :1 makes Open MPI count differently."""
    assert values(mpirun(tmp_path, per_host=1), "--host") == ["algo-1:1,algo-2:1"]


@pytest.mark.parametrize("flag", ["--mca", "-mca"])
def test_the_same_mca_name_is_the_users(tmp_path, flag):
    words = mpirun(tmp_path, f"{flag} btl ^openib,vader {flag} my_own 1")
    assert mca(words)["btl"] == ["^openib,vader"]
    assert mca(words)["my_own"] == ["1"]
    assert mca(words)["pml"] == mca(mpirun(tmp_path))["pml"]  # others stay ours


def test_an_mca_value_that_looks_like_an_option(tmp_path):
    assert mca(mpirun(tmp_path, "--mca btl -openib --verbose"))["btl"] == ["-openib"]


@pytest.mark.parametrize("flag", ["-np", "--np", "-n", "--n", "-c"])
def test_the_users_number_of_ranks(tmp_path, flag):
    plan, launcher = launched(tmp_path, f"{flag} 3")
    words = launcher.argv
    assert [w for w in words if w in ("-np", "--np", "-n", "--n", "-c")] == [flag]
    assert values(words, flag)[0] == "3"
    ranks = [(spec.host, spec.name) for spec in plan.processes if spec.duty is Duty.RANK]
    assert ranks == [("algo-1", "rank 0"), ("algo-1", "rank 1"), ("algo-2", "rank 2")]
    assert "3 ranks" in plan.title


@pytest.mark.parametrize(
    "option", ["--host algo-2:4", "-host algo-2:4", "-H algo-2:4", "--hostfile /x", "-machinefile /x"]
)
def test_the_users_hosts(tmp_path, option):
    words = mpirun(tmp_path, option)
    assert words[-2:] == tuple(option.split())
    assert [w for w in words if w in ("--host", "-host", "-H", "--hostfile", "-machinefile")] == [option.split()[0]]


@pytest.mark.parametrize("option", ["--bind-to core", "-bind-to core"])
def test_the_users_binding(tmp_path, option):
    words = mpirun(tmp_path, option)
    assert "none" not in values(words, "--bind-to") + values(words, "-bind-to")
    assert words[-2:] == tuple(option.split())


def test_exported_variables_come_once_and_as_the_user_says(tmp_path):
    words = mpirun(tmp_path, "-x NCCL_DEBUG=TRACE -x PATH -x 'A=b c'")
    exported = values(words, "-x")
    assert exported[-3:] == ["NCCL_DEBUG=TRACE", "PATH", "A=b c"]
    names = [value.partition("=")[0] for value in exported]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("option", ["--NCCL_DEBUG WARN", "--NCCL_DEBUG=WARN"])
def test_nccl_debug_is_ours_to_take(tmp_path, option):
    """AWS's toolkit takes it with argparse, so both ways of writing it are in use; mpirun knows neither."""
    words = mpirun(tmp_path, f"{option} --verbose")
    assert "NCCL_DEBUG=WARN" in values(words, "-x")
    assert not [word for word in words if word.startswith("--NCCL_DEBUG")]
    assert words[-1] == "--verbose"


def test_users_options_come_last(tmp_path):
    assert mpirun(tmp_path, "--verbose -x A --mca b c")[-6:] == ("--verbose", "-x", "A", "--mca", "b", "c")


def test_more_ranks_than_places_is_mpiruns_to_refuse(tmp_path):
    plan, launcher = launched(tmp_path, "-np 9")
    assert values(launcher.argv, "-np") == ["9"]
    assert len([spec for spec in plan.processes if spec.duty is Duty.RANK]) == 4


# --- from Open MPI 5 on, whose runtime is PRRTE ---


def test_each_runtime_has_its_own_names_for_the_same(tmp_path):
    (orte_plan, orte), (prrte_plan, prrte) = (
        launched(tmp_path, open_mpi=each, ENTRYPOINT_HOST_ADDRESSES="") for each in (ORTE, PRRTE)
    )
    assert [plan.daemon for plan in (orte_plan, prrte_plan)] == list(DAEMONS.values())
    assert [name for name in mca(orte.argv) if name.startswith(("orte_", "plm_", "oob_", "odls_"))]
    assert not [word for word in prrte.argv if word.startswith(("orte_", "plm_rsh", "oob_", "odls_", "btl_vader"))]
    assert values(prrte.argv, "--prtemca") == ["plm_ssh_agent", "plm_ssh_no_tree_spawn"]  # on loopback, no interface
    for option in ("-np", "--host", "--map-by", "--bind-to", "-x", "--allow-run-as-root", "--leave-session-attached"):
        assert values(orte.argv, option) == values(prrte.argv, option) != []


def test_prrte_starts_ranks_apart_since_it_kills_them_too_soon(tmp_path):
    assert launched(tmp_path, open_mpi=PRRTE)[1].argv[-1] == "apart"
    assert launched(tmp_path, open_mpi=ORTE)[1].argv[-1] != "apart"


@pytest.mark.parametrize("flag", ["--mca", "--prtemca", "-prtemca"])
def test_the_same_name_of_prrtes_is_the_users(tmp_path, flag):
    words = launched(tmp_path, f"{flag} plm_ssh_agent /bin/mine", open_mpi=PRRTE)[1].argv
    assert [words[at + 1] for at, word in enumerate(words) if word == "plm_ssh_agent"] == ["/bin/mine"]
