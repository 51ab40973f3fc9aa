#!/usr/bin/env bash
# Makes what the tests in this folder drive the image with, in the repository's folder:
#
#     .venv-sdk-v2        SageMaker Python SDK 2, as requirements-v2.txt pins it
#     .venv-sdk-v3        SageMaker Python SDK 3, as requirements-v3.txt pins it
#
# and has tests/get_compose.sh get Docker's own `docker compose` where this machine has none.
#
# Each has a stamp that says what it was made from, so that it is made once, and again when that changes.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT

# shellcheck source=tests/install.sh
. "$ROOT/tests/install.sh"

die() {
    printf 'make_environments.sh: %s\n' "$*" >&2
    exit 1
}

# is_made FOLDER STAMP
is_made() { [[ $(cat "$1/.stamp" 2>/dev/null) == "$2" ]]; }

# A Python 3.11 that can make virtual environments.
find_python() {
    local name
    for name in "$ROOT/.venv/bin/python" python3.11 python3; do
        if "$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    die 'wanted Python 3.11 with its venv module, found none; tests/run.sh installs it, as root on Debian'
}

make_venv() {
    local version=$1 venv=$ROOT/.venv-sdk-$1 requirements=$HERE/requirements-$1.txt stamp
    stamp=$(sha256sum <"$requirements")
    if is_made "$venv" "$stamp"; then return; fi
    printf 'making %s\n' "$venv"
    "$(find_python)" -m venv --clear "$venv"
    # The lists are complete, and most of what is in them is never imported: nothing to resolve.
    pip_install "$venv/bin/python" --no-deps -r "$requirements"
    printf '%s\n' "$stamp" >"$venv/.stamp"
}

main() {
    local job jobs=() status=0
    # Side by side: most of the time goes into waiting, and unpacking.
    make_venv v2 & jobs+=($!)
    make_venv v3 & jobs+=($!)
    "$HERE/../get_compose.sh" & jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || status=1; done
    return $status
}

main
