#!/bin/sh
# Find the Python with which an image trains, and run install.py with it, which makes /opt/sagemaker-tf-entrypoint.
# Runs in a stage of onto.Dockerfile.  usage: PYTHON=[/path/to/python] sh install.sh
set -eu

here=$(dirname "$0")
log=$(mktemp)

# look PYTHON: print its version and whether it has TensorFlow, such as `3.12 tensorflow`. Fail if it does not run.
look() {
    "$1" -c 'import sys
from importlib.util import find_spec
print("%d.%d" % sys.version_info[:2], "tensorflow" if find_spec("tensorflow") else "-")' 2>>"$log"
}

is_new_enough() {
    case $1 in 3.[1-9][0-9]) return 0 ;; *) return 1 ;; esac
}

chosen='' seen=''
for candidate in ${PYTHON:-python python3 /opt/venv/bin/python /opt/conda/bin/python /usr/local/bin/python3 /usr/bin/python3 \
    python3.13 python3.12 python3.11 python3.10}; do
    path=$(command -v "$candidate") && found=$(look "$path") || continue
    case "$seen " in *" $path "*) continue ;; esac
    seen="$seen $path ($found)"
    is_new_enough "${found% *}" || continue
    # Take the first that has TensorFlow, else the first.
    case $found in
        *tensorflow) chosen=$path && break ;;
        *) chosen=${chosen:-$path} ;;
    esac
done

if [ -z "$chosen" ]; then
    {
        echo "error: this image has no Python that our entrypoint runs on."
        echo "       found:${seen:- none}; looked for: ${PYTHON:-python, python3, /opt/venv/bin/python, ...}"
        echo "       wanted: Python 3.10 or later. Install one in the image, or name it: ./build.sh --on IMAGE --python PATH"
        cat "$log"
    } >&2
    exit 1
fi
echo "Python: $chosen$([ -n "${PYTHON:-}" ] || echo ", of$seen")"
exec "$chosen" "$here/install.py"
