#!/usr/bin/env bash
# Trains the digits example on two simulated hosts of this machine. Needs no AWS account, and on Linux no Docker:
#
#     examples/run.sh                        # two hosts
#     examples/run.sh --hosts 3 --plan       # what is added goes to `entrypoint local`
#
# On a fresh machine it first makes .venv with Python 3.11, this package and TensorFlow. On macOS, any Python from 3.10 on
# will do, and hosts are containers of the image. It keeps to bash 3.2 and to BSD's tools. `main`, at the end, is the story.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly HERE
readonly VENV=$HERE/.venv
readonly CONSTRAINTS=$HERE/container/lines/2.14/requirements.txt

die() {
    printf 'examples/run.sh: %s\n' "$*" >&2
    exit 1
}

on_macos() { [[ $(uname) == Darwin ]]; }

# Prints a Python that can make virtual environments: 3.11, for which TensorFlow 2.14 is pinned; on macOS, any from 3.10 on.
find_python() {
    local name suits='(3, 11) == sys.version_info[:2]'
    if on_macos; then suits='(3, 10) <= sys.version_info[:2]'; fi
    for name in python3.11 python3 /usr/bin/python3.11 python3.14 python3.13 python3.12 python3.10; do
        if "$name" -c "import sys, venv, ensurepip; sys.exit(not $suits)" 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

# As root on Debian: Python.
install_with_apt() {
    ((EUID == 0)) && command -v apt-get >/dev/null || return
    printf 'installing with apt-get: %s\n' "$*"
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# What the environment is made from: when that changes, it is made again. tests/run.sh leaves the same mark for its own,
# which has all that is needed here.
fingerprint() {
    cat "$HERE/pyproject.toml" "$CONSTRAINTS" 2>/dev/null | sha256 | cut -d' ' -f1
}

is_made() {
    grep -qsx "$(fingerprint)" "$VENV/.stamp" "$VENV/.stamp-examples" && "$VENV/bin/python" -c 'import entrypoint' 2>/dev/null
}

make_venv() {
    local python pinned=() large='; TensorFlow is some 200 MB to download'
    if on_macos; then
        python=$(find_python) || die 'wanted Python 3.10 or newer, found none: brew install python'
        large=', without TensorFlow, which the image has'
    elif ! python=$(find_python); then
        install_with_apt python3.11 python3.11-venv && python=$(find_python) ||
            die 'wanted Python 3.11 with its venv module, found none; on Debian 12: apt-get install python3.11-venv'
    fi
    if [[ -f $CONSTRAINTS ]]; then pinned=(-c "$CONSTRAINTS"); fi
    printf 'making .venv with %s%s\n' "$("$python" -V)" "$large"
    "$python" -m venv "$VENV"
    "$VENV/bin/python" -m pip install -q --disable-pip-version-check ${pinned[@]+"${pinned[@]}"} -e "${HERE}[tensorflow,monitor,tools]" pytest
    on_macos || say_what_mpi_needs
    fingerprint >"$VENV/.stamp-examples"
}

# Mode mpi is the only one that needs more than Python packages.
say_what_mpi_needs() {
    if ! command -v mpirun >/dev/null || [[ ! -x /usr/sbin/sshd ]]; then
        printf '%s\n' 'mode mpi needs Open MPI and an ssh daemon, the others do not; on Debian, as root:' \
            "    apt-get install openmpi-bin libopenmpi-dev openssh-server && $VENV/bin/pip install mpi4py"
    fi
}

main() {
    is_made || make_venv
    if on_macos; then
        printf '%s\n' 'on macOS these work: doctor, plan, new, report, replay, settings, top; local and rehearse in containers, the default here'
    fi
    exec "$VENV/bin/entrypoint" local "$HERE/examples/digits/train.py" --hosts 2 --mode mwms "$@"
}

main "$@"
