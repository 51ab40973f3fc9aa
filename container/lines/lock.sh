#!/usr/bin/env bash
# Write locked.txt, gpu-locked.txt and gpu-jax-locked.txt of a line anew: the versions of its requirements.txt, gpu.txt and
# gpu-jax.txt, with their hashes in the index. Write image_lines.json, which the launcher and the doctor read, too.
#
#     container/lines/lock.sh 2.14
#
# Those are complete, so nothing is resolved here. It needs uv: `pip install uv`.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
line=${1:?wanted the line, a folder beside this script: 2.14, say}
folder=$HERE/$line
[[ -f $folder/requirements.txt ]] || { echo "lock.sh: there is no $folder/requirements.txt" >&2 && exit 2; }

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# lock PINS: print the pins with their hashes, part by part.
lock() {
    local mark python
    echo "# Made from $1 by container/lines/lock.sh. The parts are its parts."
    grep '^# ==== ' "$folder/$1" | while read -r mark; do
        printf '\n%s\n' "$mark"
        awk -v mark="$mark" '/^# ==== /{on = $0 == mark} on && /^[a-z].*==/' "$folder/$1" >"$scratch/part"
        # The Pipe mode operator needs no particular Python, but its wheel names 3.10, so only 3.10 finds it.
        python=3.11
        if grep -q '^sagemaker-tensorflow==' "$scratch/part"; then python=3.10; fi
        uv pip compile --quiet --no-deps --no-header --no-annotate --generate-hashes --no-config \
            --python-version "$python" --python-platform x86_64-manylinux_2_36 "$scratch/part"
    done
}

lock requirements.txt >"$scratch/locked"
lock gpu.txt >"$scratch/gpu-locked"
if [[ -f $folder/gpu-jax.txt ]]; then lock gpu-jax.txt >"$scratch/gpu-jax-locked"; fi
mv "$scratch/locked" "$folder/locked.txt"
mv "$scratch/gpu-locked" "$folder/gpu-locked.txt"
if [[ -f $scratch/gpu-jax-locked ]]; then mv "$scratch/gpu-jax-locked" "$folder/gpu-jax-locked.txt"; fi

# By line, for GPUs with another name: what lies in its image.
python3 - "$HERE" >"$HERE/../../entrypoint/programs/prepare/image_lines.json" <<'EOF'
import json, pathlib, re, sys

def pins(*files):
    texts = (file.read_text().partition("# ==== part 4")[0] for file in files)
    return {name: version for text in texts for name, version in re.findall(r"^([a-z][\w.-]*)==(\S+)", text, re.M)}

lines = {}
for folder in sorted(path.parent for path in pathlib.Path(sys.argv[1]).glob("*/requirements.txt")):
    lines[folder.name] = pins(folder / "requirements.txt")
    lines[f"{folder.name}-gpu"] = pins(folder / "requirements.txt", folder / "gpu.txt")
    del lines[f"{folder.name}-gpu"]["tensorflow-cpu"]
print(json.dumps(lines, indent=1, sort_keys=True))
EOF
