#!/usr/bin/env bash
# Makes a stand-in for other people's images: Debian 13 with its Python 3.13 and Open MPI 5, and our package in a venv.
# Prints the name of the image. Needs root, docker and debootstrap; the base stays for the next time. For
# test_cluster_open_mpi_5.py.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly ROOT
readonly NAME=sagemaker-tf-entrypoint-trixie
readonly PATHS=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

base=$("$ROOT/tests/cluster/make_base.sh" trixie)

mkdir "$work/context"
cp -r "$ROOT"/{pyproject.toml,README.md,LICENSE,entrypoint,sagemaker_tf_data} "$work/context"
# For archives behind a private CA, as in build.sh.
touch "$work/context/ca.pem"
[[ -z ${PIP_CERT-} ]] || cp "$PIP_CERT" "$work/context/ca.pem"
cat >"$work/Dockerfile" <<TEXT
FROM $base
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update -q && apt-get install -q -y --no-install-recommends \
    ca-certificates openmpi-bin openssh-client openssh-server procps python3-mpi4py python3-venv && \
    rm -rf /etc/ssh/ssh_host_* /var/lib/apt/lists/* && mkdir -p /run/sshd
RUN python3 -m venv --system-site-packages /opt/venv
ENV PATH=/opt/venv/bin:$PATHS LANG=C.UTF-8 PYTHONUNBUFFERED=1
COPY ca.pem /build/
COPY pyproject.toml README.md LICENSE /src/
COPY entrypoint /src/entrypoint
COPY sagemaker_tf_data /src/sagemaker_tf_data
RUN if [ -s /build/ca.pem ]; then export PIP_CERT=/build/ca.pem; fi; pip install -q /src && mpirun --version
CMD ["train"]
TEXT
docker build --tag "$NAME:latest" --file "$work/Dockerfile" "$work/context" >&2
echo "$NAME:latest"
