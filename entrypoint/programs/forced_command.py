"""Run as the forced command of the job's ssh key: start Open MPI's daemon and nothing else.

mpirun asks for `orted -mca NAME "VALUE" ...`, and from Open MPI 5 on for `prted --prtemca NAME "VALUE" ...`, quoted for
a shell. No shell reads it here: it is split as a shell would split it, checked, and executed. Anything else is refused.
Settings by which the daemon would load, start or write something are refused, too, unless the job's own mpirun options
ask for them. mpirun decides what the daemon starts then: whoever has the coordinator's key can run the job.

An Open MPI that was configured with a place of its own, as AWS's is, puts settings of PATH and library path before the
command. They are ignored: the daemon is the one on this host's own PATH.
"""

import json
import os
import re
import shlex
import sys

OPTIONS = "ENTRYPOINT_MPI_OPTIONS"  # environment variable: file with the words of the job's own mpirun options
# The values that mpirun sends for these, unless the user's options change them.
FIXED = {
    "ess": re.compile(r"env"),
    "plm": re.compile(r"rsh|ssh"),
    "orte_hnp_uri": re.compile(r"\d+\.\d+(;tcp6?://[0-9a-fA-F.,:\[\]]+:\d+)+"),
    "prte_hnp_uri": re.compile(r"[\w.@-]+(;tcp6?://[0-9a-fA-F.,:\[\]]+:\d+(:[\d,]+)?)+"),
    "plm_rsh_agent": (agent := re.compile(r"sh /[\w@%+=:,./-]+/ssh/client")),
    "plm_ssh_agent": agent,
}
# What an Open MPI that knows its place puts in front: settings, and the daemon's folder.
PLACE = re.compile(
    r"( *(OPAL_PREFIX|PRTE_PREFIX|PMIX_PREFIX|(DY)?(LD_LIBRARY_)?PATH)=[\w@%+=:,./${}-]* ?; ?export \w+ ?;)+ *"
    r"(/[^ ;]+/)?(?=(orted|prted) )"
)
# The arguments of each daemon: options with NAME VALUE, and options that stand alone.
DAEMONS = {
    "orted": ({"-mca", "--mca"}, set[str]()),
    "prted": (
        {"--prtemca", "--pmixmca", "--omca"},
        {"--leave-session-attached", "--allow-run-as-root", "--debug", "--debug-daemons"},
    ),
}
# Around everything, for users whose shell is sh. Nobody's profile is read here.
PROFILE = re.compile(r"\( test ! -r \./\.profile \|\| \. \./\.profile;(.*)\) *")
RISKY_NAMES = re.compile(
    r"agent|args|chdir|command|component|debugger|dir|env|events|exec|file|launch|output|param|path|plugin|prefix|script"
    r"|server|tmp|uri|xterm"
)
FOR_A_SHELL = set(";&|<>$`\\'\"")
# Settings whose values mpirun makes from the arguments of these options.
_FILES = {"-am", "--am", "-tune", "--tune"}
MADE_FROM = {
    "mca_base_envar_file_prefix": _FILES,
    "mca_base_param_file_prefix": _FILES,
    "mca_base_param_file_path": _FILES,
    "mca_base_param_file_path_force": _FILES,
    "orte_output_filename": {"-output-filename", "--output-filename"},
}


def split(asked: str) -> list[str]:
    """Return the words of a command as a shell would, without those that name Open MPI's place."""
    if profile := PROFILE.fullmatch(asked):
        asked = profile[1]
    place = PLACE.match(asked)
    return shlex.split(asked[place.end() :] if place else asked)


def complaint(words: list[str], asked_for: set[str]) -> str:
    """Return what is wrong with a command; "" if it is a plain call of Open MPI's daemon."""
    daemon = words[0] if words else ""
    if daemon not in DAEMONS:
        return "this key starts Open MPI's daemon only"
    options, alone = DAEMONS[daemon]
    rest = words[1:]
    while rest:
        if rest[0] in alone:
            rest = rest[1:]
            continue
        (option, name, value), whole = (*rest[:3], "", "")[:3], len(rest) > 2
        rest = rest[3:]
        if option not in options or not re.fullmatch(r"\w+", name) or not whole:
            return f"{daemon} is started with settings (NAME VALUE) only, and not with {option!r}"
        if not value.isprintable():
            return f"{daemon}'s setting {name} holds a control character"
        if name in FIXED:
            plain = bool(FIXED[name].fullmatch(value))
        else:
            plain = value.isdigit() or not (RISKY_NAMES.search(name) or FOR_A_SHELL & set(value))
        if not plain and value not in asked_for and not MADE_FROM.get(name, set()) & asked_for:
            return f"{daemon}'s setting {name} is {value!r}, which no option of this job asks for"
    return ""


def main() -> None:
    asked = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    try:
        words = split(asked.strip()) if asked.isprintable() else []
        with open(os.environ[OPTIONS]) as file:
            asked_for = {word for word in json.load(file) if isinstance(word, str)}
    except (OSError, ValueError, KeyError, TypeError):
        words, asked_for = [], set()
    if why := complaint(words, asked_for):
        print(f"refused: {why}; found {asked[:200]!r}", file=sys.stderr)
        sys.exit(126)
    kept = ("PATH", "HOME", "LD_LIBRARY_PATH", "OPAL_PREFIX", "TMPDIR", "LANG", "ENTRYPOINT_RANKS")
    os.execvpe(words[0], words, {key: os.environ[key] for key in kept if key in os.environ})


if __name__ == "__main__":
    main()
