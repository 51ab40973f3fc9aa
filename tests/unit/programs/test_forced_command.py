"""Test programs/forced_command.py, which limits the commands of the job's ssh key.

The tests check commands that it allows or refuses, and run the program.
"""

import json
import os
import shlex
import subprocess
import sys

import pytest

from entrypoint.launcher.plan.ssh import FORCED_COMMAND, OPTIONS, key_in, key_line
from entrypoint.programs.forced_command import complaint, split

# As Open MPI 4.1.4 sends it.
PLAIN = (
    ' orted -mca orte_leave_session_attached "1" -mca ess "env" -mca ess_base_jobid "213450752" -mca ess_base_vpid 2'
    ' -mca ess_base_num_procs "3" -mca orte_node_regex "vm,algo-[1:1-2]@0(3)"'
    ' -mca orte_hnp_uri "213450752.0;tcp://10.0.0.1,172.17.0.1:59713" --mca orte_abort_on_non_zero_status "1"'
    ' --mca odls_base_sigkill_timeout "101" --mca pml "ob1" --mca btl "^openib"'
    ' --mca btl_vader_single_copy_mechanism "none" --mca plm_rsh_no_tree_spawn "1" --mca oob_tcp_if_include "eth0"'
    ' --mca btl_tcp_if_include "eth0" -mca plm "rsh" -mca plm_rsh_agent "sh /run/entrypoint/ssh/client"'
    ' -mca rmaps_base_mapping_policy "slot" -mca hwloc_base_binding_policy "none" -mca pmix "^s1,s2,cray,isolated"'
)

# As Open MPI 5.0.7 sends it: Debian has built it with --enable-prte-prefix-by-default, as it is by default.
ELSEWHERE = (
    "PRTE_PREFIX=/usr;export PRTE_PREFIX;LD_LIBRARY_PATH=/usr/lib:/usr/lib/pmix2/lib:$LD_LIBRARY_PATH;"
    "export LD_LIBRARY_PATH;DYLD_LIBRARY_PATH=/usr/lib:/usr/lib/pmix2/lib:$DYLD_LIBRARY_PATH;"
    "export DYLD_LIBRARY_PATH;/usr/bin/"
)
PRTED = (
    'prted --leave-session-attached --allow-run-as-root --prtemca ess "env" --prtemca ess_base_nspace "prterun-a1-30@0"'
    ' --prtemca ess_base_vpid 1 --prtemca ess_base_num_procs "3"'
    ' --prtemca prte_hnp_uri "prterun-a1-30@0.0;tcp://172.17.0.2,10.0.0.1:39341:16,24"'
    ' --prtemca PREFIXES "errmgr,ess,filem,grpcomm,iof" --prtemca plm_ssh_agent "sh /run/entrypoint/ssh/client"'
    ' --prtemca plm_ssh_no_tree_spawn "1" --prtemca prte_if_include "eth0" --prtemca pmix_session_server "1"'
    ' --prtemca plm "ssh"'
)

USERS = {
    # the user's options: what mpirun makes of them, as seen with 4.1.4
    "--mca btl_tcp_links 4": '--mca btl_tcp_links "4"',
    "--mca coll_tuned_dynamic_rules_filename /a/rules": '--mca coll_tuned_dynamic_rules_filename "/a/rules"',
    "--mca orte_fork_agent /usr/bin/strace": '--mca orte_fork_agent "/usr/bin/strace"',
    "-mca note 'a;b $(c)'": "-mca note 'a;b $(c)'",
    "--tag-output --timestamp-output": '-mca orte_tag_output "1" -mca orte_timestamp_output "1"',
    "--output-filename here": '-mca orte_output_filename "/run/entrypoint/here"',
    "--tune am.conf": '-mca mca_base_envar_file_prefix "/run/entrypoint/am.conf"'
    ' -mca mca_base_param_file_path "/usr/share/openmpi/amca-param-sets:/run/entrypoint"',
    "--report-bindings --bind-to core": (
        '-mca orte_report_bindings "1" -mca hwloc_base_report_bindings "1" -mca hwloc_base_binding_policy "core"'
    ),
    "--map-by ppr:2:node:pe=2": '-mca rmaps_base_mapping_policy "ppr:2:node:pe=2"',
    "-d --debug-daemons": '-mca orte_debug "1" -mca orte_debug_daemons "1"',
    "-q --enable-recovery --max-restarts 3": (
        '-mca orte_execute_quiet "1" -mca orte_enable_recovery "1" -mca orte_max_restarts "3"'
    ),
    "": "",
}


# As Open MPI sends it that was configured with --enable-orterun-prefix-by-default, or is called by its path.
_PATHS = (
    "PATH={0}/bin:$PATH ; export PATH ; LD_LIBRARY_PATH={0}/lib:{1} ; export LD_LIBRARY_PATH ; "
    "DYLD_LIBRARY_PATH={0}/lib:{2} ; export DYLD_LIBRARY_PATH ;   {0}/bin/"
)
PLACES = {
    "4.0": f"    {_PATHS.format('/opt/amazon/openmpi', '$LD_LIBRARY_PATH', '$DYLD_LIBRARY_PATH')}",
    "4.1": f"          {_PATHS.format('/usr', '${LD_LIBRARY_PATH:-}', '${DYLD_LIBRARY_PATH:-}')}",
    "moved": f" OPAL_PREFIX=/mpi ; export OPAL_PREFIX; {_PATHS.format('/mpi', '$X', '$X')}",
}


@pytest.mark.parametrize("place", ["", *PLACES.values()])
def test_sh_users_profile_is_not_read(place):
    command = f"( test ! -r ./.profile || . ./.profile; {place}{PLAIN.lstrip()} )"
    assert split(command) == shlex.split(PLAIN)
    assert complaint(split(f"( . ./.profile; {PLAIN} )"), set())
    assert complaint(split(f"{command}; id"), set()) and complaint(split(f"id; {command}"), set())


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_path_of_open_mpi_in_the_command_is_ignored(place, tmp_path):
    assert split(place + PLAIN.lstrip()) == shlex.split(PLAIN)
    result = started(f"{place}orted -mca ess env", tmp_path)  # there is none in that folder
    assert (result.returncode, result.stderr) == (0, "")
    elsewhere = place.replace("/opt", "/$(id)")
    for refused in (f"{place}id", f"{place}orted; id", f"{place}{place}orted", f"{elsewhere}orted"):
        assert complaint(split(refused), set())


def test_command_of_open_mpi_5_is_allowed(tmp_path):
    assert complaint(shlex.split(PRTED), set()) == ""
    for command in (PRTED, ELSEWHERE + PRTED):
        result = started(command, tmp_path)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.startswith("<--leave-session-attached>\n<--allow-run-as-root>\n<--prtemca>\n<ess>\n")
        assert "PRTE_PREFIX" not in result.stdout  # and it is our PATH's daemon, wherever that of the caller lies


@pytest.mark.parametrize("options, sent", USERS.items(), ids=USERS)
def test_mpirun_options_of_the_user_are_allowed(options, sent):
    assert complaint(shlex.split(f"{PLAIN} {sent}"), set(shlex.split(options))) == ""


OTHERS = {
    "nothing": "",
    "another program": "id",
    "a shell": "/bin/sh -c id",
    "a file that is only called orted": "/tmp/orted -mca ess env",
    "a relative path": "./orted",
    "a name that begins like it": "orted-not",
    "a variable before it": "PATH=/tmp orted",
    "one more command": PLAIN + " ; id",
    "one more command, without spaces": PLAIN + ";id",
    "one command after success": PLAIN + " && id",
    "a pipe": PLAIN + " | sh",
    "help": "orted --help",
    "the master of a job": PLAIN + " --hnp",
    "reports its address to a file": PLAIN + " --report-uri /tmp/x",
    "tree spawn": PLAIN + " --tree-spawn",
    "in the background": PLAIN + " --daemonize",
    "in a session of its own": PLAIN + " --set-sid",
    "a terminal": PLAIN + " --xterm 0",
    "a folder": PLAIN + " --tmpdir /tmp/x",
    "a file for output": PLAIN + " --output-filename /tmp/x",
    "a setting without its value": PLAIN + " -mca btl",
    "a setting with a name that is none": PLAIN + " -mca 'btl;id' x",
    "libraries": PLAIN + " -mca mca_base_component_path /tmp/evil",
    "libraries, by the other name": PLAIN + " --mca mca_component_path /tmp/evil",
    "files of settings": PLAIN + " -mca mca_base_param_files /tmp/evil",
    "files of settings, found by path": PLAIN + " -mca mca_base_param_file_path /tmp",
    "variables": PLAIN + " -mca mca_base_env_list LD_PRELOAD=/tmp/evil.so",
    "another agent": PLAIN + " -mca plm_rsh_agent /tmp/evil",
    "an agent with more": PLAIN + " -mca plm_rsh_agent 'sh /run/ssh/client -o ProxyCommand=id'",
    "an agent that looks the same": PLAIN + " -mca plm_rsh_agent 'sh /x/ssh/client;id'",
    "its arguments": PLAIN + " -mca plm_rsh_args -oProxyCommand=id",
    "the old name of the agent": PLAIN + " -mca orte_rsh_agent /tmp/evil",
    "what starts daemons": PLAIN + " -mca orte_launch_agent /tmp/evil",
    "what starts programs": PLAIN + " -mca orte_fork_agent /tmp/evil",
    "a debugger": PLAIN + " -mca orte_base_user_debugger /tmp/evil",
    "output": PLAIN + " -mca orte_output_filename /etc/cron.d/evil",
    "stack traces": PLAIN + " -mca opal_stacktrace_output file:/etc/evil",
    "a server": PLAIN + " -mca orte_server file:/tmp/x",
    "another way of starting": PLAIN + " -mca ess hnp",
    "another launcher": PLAIN + " -mca plm slurm",
    "an address that is a file": PLAIN + " -mca orte_hnp_uri file:/tmp/x",
    "prted by a path": "/tmp/prted --prtemca ess env",
    "prted with an option of orted's": PRTED + " -mca ess env",
    "prted: the master of a job": PRTED + " --prtemca ess hnp",
    "prted: tree spawn": PRTED + " --tree-spawn",
    "prted: in the background": PRTED + " --daemonize",
    "prted: another agent": PRTED + " --prtemca plm_ssh_agent /tmp/evil",
    "prted: an option as a value, which shifts the rest": PRTED
    + " --prtemca plm_ssh_agent --allow-run-as-root /tmp/evil",
    "prted: what starts programs": PRTED + " --prtemca odls_base_exec_agent /tmp/evil",
    "prted: what starts daemons": PRTED + " --prtemca prte_launch_agent /tmp/evil",
    "prted: libraries": PRTED + " --pmixmca mca_base_component_path /tmp/evil",
    "prted: an address that is a file": PRTED + " --prtemca prte_hnp_uri file:/tmp/x",
    "prted: one more command": PRTED + "; id",
    # that of the options below
    "a program of the user's": "/usr/bin/strace",
    "another value of the user's option": PLAIN + " --mca orte_fork_agent /bin/evil",
}


@pytest.mark.parametrize("command", OTHERS.values(), ids=OTHERS)
def test_other_ssh_commands_are_refused(command):
    for asked in (set(), {"--mca", "orte_fork_agent", "/usr/bin/strace"}):
        assert complaint(shlex.split(command), asked)


def started(command: str, tmp_path, options: str | None = "[]") -> subprocess.CompletedProcess[str]:
    """Run the forced command as sshd does, with a stand-in for the daemon that prints its arguments and environment."""
    for name in ("orted", "prted"):
        daemon = tmp_path / name
        daemon.write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\nenv | cut -d= -f1 | sort | tr "\\n" " "\n')
        daemon.chmod(0o755)
    file = tmp_path / "mpi_options"
    if options is not None:
        file.write_text(options)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LD_PRELOAD": "", "MINE": "1"}
    environment |= {OPTIONS: str(file), "SSH_ORIGINAL_COMMAND": command}
    program = [sys.executable, "-I", "-S", str(FORCED_COMMAND)]
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=240)


def test_daemon_gets_exact_arguments_and_no_caller_environment(tmp_path):
    asked = ["-mca", "note", "a b;$(id) `id` $HOME"]
    result = started("orted -mca ess env -mca note 'a b;$(id) `id` $HOME'", tmp_path, json.dumps(asked))
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:6] == ["<-mca>", "<ess>", "<env>", "<-mca>", "<note>", "<a b;$(id) `id` $HOME>"]
    assert set(lines[6].split()) <= {"PATH", "PWD", "SHLVL", "_", "LC_CTYPE", "HOME", "LANG", "OLDPWD"}


UNREADABLE = ["orted\nid", "orted -mca a b\n-mca c d", "orted -mca a 'b", "orted -mca a '\x1b[2J'"]
PREFIXES = [
    "LD_PRELOAD=/tmp/x;export LD_PRELOAD;",
    "PRTE_PREFIX=/x;id;",
    "PRTE_PREFIX=$(id);export PRTE_PREFIX;",
    "id;",
]
REFUSED = [
    *((command, "[]") for command in UNREADABLE),
    *((f"{prefix}{PRTED}", "[]") for prefix in PREFIXES),
    # no list in the file of options
    *((f"{PLAIN} --mca orte_fork_agent t", options) for options in (None, "", "{", "5", "null", "[5, null, []]")),
]  # fmt: skip


@pytest.mark.parametrize("command, options", REFUSED)
def test_forced_command_refuses_in_one_line(command, options, tmp_path):
    result = started(command, tmp_path, options)
    assert (result.returncode, result.stdout) == (126, "")
    assert result.stderr.startswith("refused: ") and len(result.stderr.splitlines()) == 1


def test_ssh_key_is_restricted_to_the_forced_command(monkeypatch):
    line = key_line("authorized_keys", "algo-1", key_in("ssh-ed25519 AAAA client_key"))
    assert line.startswith('restrict,command="')
    assert line.endswith('forced_command.py" ssh-ed25519 AAAA')
    monkeypatch.setattr(sys, "executable", '/home/me/my "env"/bin/python')
    line = key_line("authorized_keys", "algo-1", key_in("ssh-ed25519 AAAA client_key"))
    inner = line.removeprefix('restrict,command="').removesuffix('" ssh-ed25519 AAAA').replace('\\"', '"')
    assert shlex.split(inner) == ['/home/me/my "env"/bin/python', "-I", "-S", str(FORCED_COMMAND)]
