"""Test distributions/mpi.py: the user's options for mpirun come last, and override the launcher's."""

import pytest
from builders import read

from entrypoint.base.values import replace
from entrypoint.launcher.job.open_mpi import DAEMONS, ORTE, PRRTE
from entrypoint.launcher.plan.distributions import common
from entrypoint.launcher.plan.distributions.mpi import STANDARD_LIBRARY
from entrypoint.launcher.plan.plan import Duty
from entrypoint.launcher.plan.planner import plan_for


def mpirun(tmp_path, options: str = "", hosts: int = 2, per_host: int = 2) -> tuple[str, ...]:
    """Return mpirun's command line, without the program that it starts."""
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


def test_host_option_gives_the_slot_of_a_single_rank(tmp_path):
    """`--host a,b` without :1 makes Open MPI count differently."""
    assert values(mpirun(tmp_path, per_host=1), "--host") == ["algo-1:1,algo-2:1"]


NUMBERS, HOSTS = {"-np", "--np", "-n", "--n", "-c"}, {"--host", "-host", "-H", "--hostfile", "-machinefile"}


@pytest.mark.parametrize(
    "option, alike",
    [
        *((f"{flag} 3", NUMBERS) for flag in sorted(NUMBERS)),
        *((f"{flag} algo-2:4", HOSTS) for flag in sorted(HOSTS)),
        *((f"{flag} core", {"--bind-to", "-bind-to"}) for flag in ("--bind-to", "-bind-to")),
        ("--verbose -x A --mca b c", {"--verbose"}),
    ],
)
def test_users_option_comes_last_and_replaces_the_launchers(tmp_path, option, alike):
    words = mpirun(tmp_path, option)
    assert words[-len(option.split()) :] == tuple(option.split())
    assert [word for word in words if word in alike] == [option.split()[0]]


@pytest.mark.parametrize("flag", ["--mca", "-mca"])
def test_users_mca_parameter_replaces_the_launchers(tmp_path, flag):
    words = mpirun(tmp_path, f"{flag} btl ^openib,vader {flag} my_own 1 {flag} odd -like-an-option")
    ours = mca(mpirun(tmp_path))
    assert mca(words) == {**ours, "btl": ["^openib,vader"], "my_own": ["1"], "odd": ["-like-an-option"]}


@pytest.mark.parametrize("asked, ranks", [(3, ["algo-1", "algo-1", "algo-2"]), (9, ["algo-1"] * 2 + ["algo-2"] * 2)])
def test_plan_has_requested_ranks_up_to_number_of_slots(tmp_path, asked, ranks):
    """If the user requests more ranks than slots, mpirun itself refuses them."""
    plan, launcher = launched(tmp_path, f"-np {asked}")
    assert values(launcher.argv, "-np") == [str(asked)]
    found = [(spec.host, spec.name) for spec in plan.processes if spec.duty is Duty.RANK]
    assert found == [(host, f"rank {number}") for number, host in enumerate(ranks)]
    assert f"{len(ranks)} ranks" in plan.title or asked == 9


def test_each_exported_variable_comes_once_with_users_value(tmp_path):
    words = mpirun(tmp_path, "-x NCCL_DEBUG=TRACE -x PATH -x 'A=b c'")
    exported = values(words, "-x")
    assert exported[-3:] == ["NCCL_DEBUG=TRACE", "PATH", "A=b c"]
    names = [value.partition("=")[0] for value in exported]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("option", ["--NCCL_DEBUG WARN", "--NCCL_DEBUG=WARN"])
def test_nccl_debug_option_becomes_a_variable(tmp_path, option):
    """AWS's toolkit parses the option with argparse, so both spellings are in use. mpirun knows neither."""
    words = mpirun(tmp_path, f"{option} --verbose")
    assert "NCCL_DEBUG=WARN" in values(words, "-x")
    assert not [word for word in words if word.startswith("--NCCL_DEBUG")]
    assert words[-1] == "--verbose"


# --- from Open MPI 5 on, whose runtime is PRRTE ---


def test_mpirun_options_have_the_names_of_the_runtime(tmp_path):
    (orte_plan, orte), (prrte_plan, prrte) = (
        launched(tmp_path, open_mpi=each, ENTRYPOINT_HOST_ADDRESSES="") for each in (ORTE, PRRTE)
    )
    assert [plan.daemon for plan in (orte_plan, prrte_plan)] == list(DAEMONS.values())
    assert [name for name in mca(orte.argv) if name.startswith(("orte_", "plm_", "oob_", "odls_"))]
    assert not [word for word in prrte.argv if word.startswith(("orte_", "plm_rsh", "oob_", "odls_", "btl_vader"))]
    assert values(prrte.argv, "--prtemca") == ["plm_ssh_agent", "plm_ssh_no_tree_spawn"]  # on loopback, no interface
    for option in ("-np", "--host", "--map-by", "--bind-to", "-x", "--allow-run-as-root", "--leave-session-attached"):
        assert values(orte.argv, option) == values(prrte.argv, option) != []


def test_only_prrte_starts_ranks_in_their_own_session(tmp_path):
    """PRRTE would kill ranks in its own session too soon."""
    assert launched(tmp_path, open_mpi=PRRTE)[1].argv[-1] == "apart"
    assert launched(tmp_path, open_mpi=ORTE)[1].argv[-1] != "apart"


@pytest.mark.parametrize("flag", ["--mca", "--prtemca", "-prtemca"])
def test_users_prrte_parameter_replaces_the_launchers(tmp_path, flag):
    words = launched(tmp_path, f"{flag} plm_ssh_agent /bin/mine", open_mpi=PRRTE)[1].argv
    assert [words[at + 1] for at, word in enumerate(words) if word == "plm_ssh_agent"] == ["/bin/mine"]
