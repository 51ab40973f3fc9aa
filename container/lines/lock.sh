#!/usr/bin/env bash
# Write locked.txt, gpu-locked.txt and gpu-jax-locked.txt of a line anew: the versions of its requirements.txt, gpu.txt and
# gpu-jax.txt, with their hashes in the index, for linux/amd64 and linux/arm64. Write image_lines.json and
# image_requires.json, of linux/amd64, which the launcher and the doctor read.
#
#     container/lines/lock.sh 2.14
#
# Those are complete, so nothing is resolved here. It needs uv (`pip install uv`), and a python3 with pip.
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
            --python-version "$python" --universal "$scratch/part"
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
    return dict(re.findall(r'^([a-z][\w.-]*)==([^\s;]+)(?!.*"aarch64")', "".join(texts), re.M))

lines = {}
for folder in sorted(path.parent for path in pathlib.Path(sys.argv[1]).glob("*/requirements.txt")):
    lines[folder.name] = pins(folder / "requirements.txt")
    lines[f"{folder.name}-gpu"] = pins(folder / "requirements.txt", folder / "gpu.txt")
    del lines[f"{folder.name}-gpu"]["tensorflow-cpu"]
print(json.dumps(lines, indent=1, sort_keys=True))
EOF

# What those that stay at their versions ask of others, which the doctor has no image to read in. Left out is what has no
# wheel for this Python, and NVIDIA's libraries, which ask only for one another.
PYTHONPATH=$HERE/../../entrypoint/programs/prepare python3 - >"$scratch/requires" <<'EOF'
import json, pathlib, subprocess, sys
from pins import KEPT
from refusals import LINES

def requires(pins):
    tags = [f"manylinux{each}_x86_64" for each in ("2014", *(f"_2_{minor}" for minor in range(5, 37)))]
    words = [word for tag in (*tags, "any") for word in ("--platform", tag)]
    asked = "--quiet --dry-run --report - --no-deps --ignore-installed --only-binary :all: --target none --python-version 3.11"
    command = [sys.executable, "-m", "pip", "install", *asked.split(), *words, *pins]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["install"]

found = {}
for versions in json.loads(LINES.read_text()).values():
    kept = versions.keys() & KEPT - {"horovod", "mpi4py", "sagemaker-tensorflow"}
    for each in requires(f"{name}=={versions[name]}" for name in kept if f"{name}=={versions[name]}" not in found):
        asks = [text for text in each["metadata"].get("requires_dist", []) if "extra ==" not in text]
        name = each["metadata"]["name"].replace("_", "-").lower()
        if asks := [text for text in asks if set(text) & set("<>=~!")]:
            found[f"{name}=={each['metadata']['version']}"] = asks
print(json.dumps(found, indent=1, sort_keys=True))
EOF
mv "$scratch/requires" "$HERE/../../entrypoint/programs/prepare/image_requires.json"
