#!/usr/bin/env bash
# Makes a stand-in for AWS's image of a TensorFlow, 2.14 or 2.21, and prints its name. Needs root, docker and debootstrap; it
# stays, and so does its base, for the next time. For test_cluster_matrix.py, unless TEST_AWS_IMAGE names one.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
line=${1:?wanted the line, 2.14 or 2.21}
declare -A suites=([2.14]=jammy [2.21]=noble) # for their Pythons: 3.10 and 3.12
readonly NAME=sagemaker-tf-entrypoint-like-aws:$line

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

base=$("$HERE/make_base.sh" "${suites[$line]:?found the line '$line'; wanted 2.14 or 2.21}")
# For archives behind a private CA, as in build.sh.
touch "$work/ca.pem"
[[ -z ${PIP_CERT-} ]] || cp "$PIP_CERT" "$work/ca.pem"
docker build --build-arg "BASE=$base" --tag "$NAME" --file "$HERE/aws_$line.Dockerfile" "$work" >&2
echo "$NAME"
