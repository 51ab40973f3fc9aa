#!/usr/bin/env bash
# On a machine with Docker, as root, no GPU needed: builds the images of the ring and packs them into FOLDER.
#
#     HOROVOD_SOURCES=CHECKOUT tests/gpu/prepare.sh FOLDER [OPTION OF python tests/gpu pack]...
#
# HOROVOD_SOURCES: a checkout of Horovod's v0.28.1, for its own tests. Then bring FOLDER to the machine with the GPU, its
# files one by one if need be, and call its on_gpu.sh there, as root.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
readonly NAME=sagemaker-tf-entrypoint
readonly AWS=$NAME-like-aws-gpu:2.21 # the stand-in for AWS's image, with CUDA
folder=${1:?wanted the folder for the pieces}
shift
folder=$(realpath -m "$folder")

cd "$HERE/../.."
./build.sh --tensorflow 2.21 --gpu
./build.sh --tensorflow 2.14 --gpu
base=$(tests/cluster/make_aws.sh 2.21)
docker build --build-arg "BASE=$base" --tag "$AWS" - <"$HERE/aws_gpu.Dockerfile"
./build.sh --on "$AWS" --tag "$NAME:2.21-gpu-on"

# In this order they run, as long as the minutes suffice.
images=(--image "2.21=$NAME:2.21-gpu" --image "2.21-on=$NAME:2.21-gpu-on" --image "2.14=$NAME:2.14-gpu")
exec "${PYTHON:-python3}" tests/gpu pack "$folder" "${images[@]}" "$@"
