#!/usr/bin/env bash
# Writes locked.txt of a line anew: the versions of its requirements.txt with the hashes that the index has for them.
#
#     container/lines/lock.sh 2.14
#
# requirements.txt is complete, so nothing is resolved here. uv does it: `pip install uv`.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
line=${1:?wanted the line, a folder beside this script: 2.14, say}
folder=$HERE/$line
[[ -f $folder/requirements.txt ]] || { echo "lock.sh: there is no $folder/requirements.txt" >&2 && exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
{
    echo "# Made from requirements.txt by container/lines/lock.sh. The parts are its parts."
    grep '^# ==== ' "$folder/requirements.txt" | while read -r mark; do
        printf '\n%s\n' "$mark"
        awk -v mark="$mark" '/^# ==== /{on = $0 == mark} on && /^[a-z].*==/' "$folder/requirements.txt" >"$scratch/part"
        # The Pipe mode operator's wheels say which Python, and need none: any will do.
        python=3.11
        if grep -q '^sagemaker-tensorflow==' "$scratch/part"; then python=3.10; fi
        uv pip compile --quiet --no-deps --no-header --no-annotate --generate-hashes --no-config \
            --python-version "$python" --python-platform x86_64-manylinux_2_36 "$scratch/part"
    done
} >"$scratch/locked"
mv "$scratch/locked" "$folder/locked.txt"
