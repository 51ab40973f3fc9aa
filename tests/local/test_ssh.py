"""Test the job's own ssh: the commands that its key allows, mpirun options of users, and the daemon's settings."""

import http.client
import json
import subprocess
import urllib.request

import pytest
from hosts import Hosts

from entrypoint.launcher.control.wire import to_json
from entrypoint.launcher.policy.events import Report

pytestmark = pytest.mark.xdist_group("ssh")  # `running` is one job
SUM = "from mpi4py import MPI\nprint('sum', MPI.COMM_WORLD.allreduce(1), flush=True)\n"
WAITS = """
import os, pathlib, time
from mpi4py import MPI
print("at work", flush=True)
while not pathlib.Path(os.environ["TEST_FOLDER"], "enough").exists():
    time.sleep(0.05)
"""
ORTED = "orted -mca ess env -mca orte_hnp_uri '1.0;tcp://127.0.0.1:1' "


# Settings, output, placing, a folder for output, a file of settings, a path in a setting, daemons that tell.
OPTIONS = (
    "--mca btl_tcp_links 1 -mca orte_base_help_aggregate 0 --mca coll_tuned_use_dynamic_rules 0 "
    "--tag-output --report-bindings --display-map --map-by node --rank-by slot --oversubscribe "
    "--output-filename {folder}/mpi-output --tune {folder}/settings.conf "
    "--mca btl_vader_backing_directory {folder} --debug-daemons"
)


def test_the_users_mpirun_options_reach_the_daemons_of_other_hosts(hosts, tmp_path):
    (tmp_path / "settings.conf").write_text("--mca btl_tcp_links 1\n")
    options = {"sagemaker_mpi_custom_mpi_options": OPTIONS.format(folder=tmp_path)}
    job = hosts(2, code=SUM, mode="mpi", hyperparameters=options, environment={"OMPI_MCA_oob_tcp_sndbuf": "0"})
    job.must_end(0)
    assert "sum 2" in job[1].log and "sum 2" in job[2].log


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Run one job of two hosts under mpirun for all tests below; yield it while its ranks work."""
    folder = tmp_path_factory.mktemp("ssh")
    with Hosts(folder / "job", 2, code=WAITS, mode="mpi") as job:
        job.all_say("at work")
        yield job
        (folder / "job/enough").touch()
        job.must_end(0)


def ssh(job, *words: str) -> subprocess.CompletedProcess[str]:
    """Call ssh with the job's key, as mpirun would."""
    command = ["ssh", "-F", str(job[1].base / "run/ssh/ssh_config"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("command", [["id"], [], [ORTED + "; id"]], ids=["other program", "nothing", "one more"])
def test_ssh_key_starts_only_the_mpi_daemon(running, command):
    """unit/programs/test_forced_command.py has more refused commands."""
    result = ssh(running, "algo-2", *command)
    assert result.returncode == 126, result
    assert "refused: " in result.stderr and "Traceback" not in result.stderr
    assert "uid=" not in result.stdout + result.stderr


def test_key_from_a_follower_is_refused(running):
    """A caller with a follower's address, and the token if any, counts as a follower, not as the coordinator."""
    public_keys = (
        ("authorized_keys", "ssh-ed25519 AAAA"),
        ("../no", "ssh-ed25519 AAAA"),
        ("no/such", "ssh-ed25519 AAAA"),
    )
    body = json.dumps(to_json(Report(host="algo-2", ready=frozenset({"prepare"}), public_keys=public_keys)))
    own, other = (running.addresses[name] for name in ("algo-1", "algo-2"))
    port = running.control_port
    caller = http.client.HTTPConnection(own, port, timeout=30, source_address=(other, 0))
    caller.request("POST", "/report", body)
    assert caller.getresponse().status == 200
    assert ssh(running, "algo-1", "id").returncode == 126  # its answers come in order: what was said is done by now
    status = urllib.request.Request(f"http://{own}:{port}/status")
    assert json.loads(urllib.request.urlopen(status, timeout=30).read())["host"] == "algo-1"
    keys = (running[1].base / "run/public_keys/authorized_keys").read_text().splitlines()
    assert len(keys) == 1 and keys[0].startswith("restrict,command=")
    assert running[1].process.poll() is None


def test_ssh_key_opens_no_terminal_tunnel_files_or_environment(running, tmp_path):
    terminal = ssh(running, "-tt", "algo-2", "id")
    assert terminal.returncode != 0 and "uid=" not in terminal.stdout
    tunnel = ssh(running, "-W", "127.0.0.1:1", "algo-2")
    assert tunnel.returncode != 0
    back = ssh(
        running, "-o", "ClearAllForwardings=no", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:1", "algo-2"
    )
    assert back.returncode == 255 or "refused" in back.stderr
    assert "Allocated port" not in back.stderr
    assert ssh(running, "-s", "algo-2", "sftp").returncode != 0
    variables = ssh(running, "-o", "SetEnv=LD_PRELOAD=/tmp/x ENTRYPOINT_MPI_OPTIONS=/tmp/x", "algo-2", "orted", "--hnp")
    assert variables.returncode == 126


def test_ssh_daemon_accepts_only_the_key(running):
    """The settings are those that `sshd -T` prints."""
    config = running[2].base / "run/ssh/sshd_config"
    answer = subprocess.run(["/usr/sbin/sshd", "-T", "-f", str(config)], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    found = dict(line.split(" ", 1) for line in answer.stdout.splitlines() if " " in line)
    assert {name: found[name] for name in ("passwordauthentication", "kbdinteractiveauthentication", "permittty",
            "hostbasedauthentication", "gssapiauthentication", "permituserenvironment", "permituserrc", "x11forwarding",
            "disableforwarding")} == {
        "passwordauthentication": "no", "kbdinteractiveauthentication": "no", "permittty": "no",
        "hostbasedauthentication": "no", "gssapiauthentication": "no", "permituserenvironment": "no",
        "permituserrc": "no", "x11forwarding": "no", "disableforwarding": "yes",
    }  # fmt: skip
    assert found["authenticationmethods"] == "publickey"
    assert "acceptenv" not in found and "subsystem" not in found
    assert found["port"] != "22"


def test_client_refuses_a_daemon_with_another_host_key(running, tmp_path):
    known = tmp_path / "known_hosts"
    key = (running[1].base / "run/ssh/host_key.pub").read_text().split()[1]
    known.write_text(f"algo-2 ssh-ed25519 {key}\n")  # algo-1's
    result = ssh(running, "-o", f"UserKnownHostsFile={known}", "algo-2", "orted")
    assert result.returncode == 255
    assert "Host key verification failed" in result.stderr
